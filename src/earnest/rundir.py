"""Writing and reading a run directory (docs/run-directory.md says what is in it).

JSON here is strict: a number that is not finite becomes null, so that any parser can read a run. Lines are appended whole and
flushed; other files are written beside and moved into place, so a run that is cut short stays readable.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from earnest.errors import UserError


def plain(value: Any) -> Any:
    """`value` as strict JSON knows it: non-finite numbers become null, NumPy scalars and other mappings become plain."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)


def _line(value: Any) -> str:
    # A lone surrogate a model wrote cannot be encoded; it stays visible as an escape.
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def append_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Add lines to a JSONL file and flush them.

    Raises:
        UserError: The disk is full or not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(_line(row) + "\n" for row in rows))
    except OSError as error:
        raise _cannot_write(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one move.

    Raises:
        UserError: The disk is full or not writable.
    """
    write_text(path, json.dumps(plain(value), ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one move.

    Raises:
        UserError: The disk is full or not writable.
    """
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(text.encode("utf-8", "backslashreplace"))
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()  # half a file would only fill the disk further
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(
        f"Cannot write '{path}': {error.strerror or error}. What was written before is kept; make room or choose another --out."
    )


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a JSONL file, none if it does not exist; a last line cut short by a crash is left out.

    Raises:
        UserError: A line in the middle is broken.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line.decode("utf-8")))  # a crash may cut a character in two
        except ValueError as error:
            if number == len(lines):
                break
            raise UserError(f"{path}:{number}: this line is not JSON ({error}). The run directory was changed by hand.") from error
    return rows


def read_json(path: Path) -> Any:
    """A JSON file; None if it does not exist."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"'{path}' is not JSON ({error}). The run directory was changed by hand.") from error
