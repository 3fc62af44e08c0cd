"""Reading rows: JSONL, CSV, Parquet, a Hugging Face data set, or rows already in memory.

Each row stays exactly as its file has it (no unified columns, no invented nulls), gets a `split` and an `id`, and its place is
remembered so that every later complaint can name file and line.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earnest.errors import UserError
from earnest.task import SPLITS, Row, Task

SUFFIXES = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True)
class Rows:
    """The rows of a task.

    Attributes:
        by_split: Rows of each split, in file order; each row is a dict with `id` and `split` added where they were missing.
        where: 'file:line' of each row, by (split, position).
        source: What was read, for the run record.
    """

    by_split: Mapping[str, list[Row]]
    where: Mapping[tuple[str, int], str]
    source: str

    def split(self, name: str) -> list[Row]:
        """The rows of one split.

        Raises:
            UserError: The split is missing or empty.
        """
        rows = self.by_split.get(name, [])
        if not rows:
            have = ", ".join(f"{s} ({len(r)})" for s, r in self.by_split.items() if r) or "none at all"
            raise UserError(f"The split '{name}' of {self.source} has no rows; there are: {have}. Add rows or name another split.")
        return rows

    def everything(self) -> Iterator[tuple[str, Row]]:
        """(place, row) of every row of every split."""
        for name, rows in self.by_split.items():
            for position, row in enumerate(rows):
                yield self.where[name, position], row


def load_rows(task: Task, data: str | Path | None = None) -> Rows:
    """The rows of a task, or those of `data` in their place.

    A folder holds one file a split (`train.jsonl`, `dev.csv`, ...). One file holds a `split` column, or is all `train`.

    Raises:
        UserError: A file is missing, broken, empty or of an unknown kind, or a split's name is unknown or contradicted by a row.
    """
    source = task.rows if data is None else str(data)
    folder = task.folder if data is None else Path(".")
    if isinstance(source, Mapping):
        return _collect({split: list(_read(value, folder)) for split, value in source.items()}, "the task's rows")
    if isinstance(source, (str, Path)):
        path = folder / source
        if path.is_dir():
            return _collect({split: list(_read_file(file)) for split, file in _files_in(path).items()}, str(source))
        # A name that ends like a file is meant as one: asking the hub for a mistyped path would hide the mistake.
        if path.exists() or path.suffix[1:].isalpha():
            return _collect({None: list(_read_file(path))}, str(source))
        return _collect(_read_hub(str(source), path), str(source))
    return _collect({None: list(_read(source, folder))}, "the task's rows")


def _files_in(folder: Path) -> dict[str, Path]:
    """The one file of each split in a folder."""
    files: dict[str, Path] = {}
    for split in SPLITS:
        found = [folder / f"{split}{suffix}" for suffix in SUFFIXES if (folder / f"{split}{suffix}").is_file()]
        if len(found) > 1:
            raise UserError(f"The folder '{folder}' holds both {found[0].name} and {found[1].name}. Keep one file a split.")
        if found:
            files[split] = found[0]
    if not files:
        raise UserError(f"The folder '{folder}' holds none of {', '.join(s + '.jsonl' for s in SPLITS)} (or .csv, .parquet).")
    return files


def _collect(named: Mapping[str | None, list[tuple[str, Row]]], source: str) -> Rows:
    """Sort rows into splits, and give ids to those without.

    Rows that came under a split's name belong to it; those under None go by their own `split` column, and to train without one.
    """
    by_split: dict[str, list[Row]] = {}
    where: dict[tuple[str, int], str] = {}
    for name, placed in named.items():
        for place, row in placed:
            split = row.get("split", name or "train")
            if split not in SPLITS:
                raise UserError(f"{place}: unknown split {split!r}. Use one of {', '.join(SPLITS)}.")
            if name is not None and split != name:
                raise UserError(f"{place}: this row says split '{split}' but was given as '{name}'. Move the row or mend its split.")
            rows = by_split.setdefault(split, [])
            position = len(rows)
            rows.append({"id": f"{split}-{position + 1}", "split": split} | row)
            where[split, position] = place
    if not by_split:
        raise UserError(f"{source} holds no rows. Add at least one.")
    return Rows({name: by_split[name] for name in SPLITS if name in by_split}, where, source)


def _read(value: Any, folder: Path) -> Iterator[tuple[str, Row]]:
    if isinstance(value, (str, Path)):
        yield from _read_file(folder / value)
        return
    if not isinstance(value, Iterable):
        raise UserError(f"The task's rows are {type(value).__name__}. Give a file, a folder, a data set id or a list of dicts.")
    for number, row in enumerate(value, 1):
        if not isinstance(row, Mapping) or not all(isinstance(column, str) for column in row):
            raise UserError(f"Row {number} of the task's rows is {row!r:.60}, not a dict with text keys. Give one dict a row.")
        yield f"row {number}", dict(row)


def _read_file(path: Path) -> Iterator[tuple[str, Row]]:
    if not path.is_file():
        raise UserError(f"There is no file '{path}'. Check the path; rows come from {', '.join(SUFFIXES)} or a data set id.")
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise UserError(f"'{path}' is of an unknown kind. Rows come from {', '.join(SUFFIXES)}.")
    empty = True
    for item in readers[path.suffix.lower()](path):
        empty = False
        yield item
    if empty:
        raise UserError(f"'{path}' holds no rows. Add at least one, or leave the split out.")


def _text(path: Path) -> str:
    """The file as text; a byte-order mark is dropped, newlines stay as they are."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}. Check its permissions.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{data[: error.start].count(10) + 1}: not UTF-8 text. Save the file as UTF-8.") from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_constant(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different: of two golds under one key, Python would quietly keep the last."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return made


def _read_jsonl(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_object)
            if "\\u" in line:
                json.dumps(row, ensure_ascii=False).encode()  # half of an escaped surrogate pair is no text a tokenizer takes
        except UnicodeEncodeError as error:
            raise UserError(f"{path}:{number}: this line holds half of a \\u surrogate pair. Write the whole character.") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: this line is not JSON ({error}). Each line must be one JSON object.") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}:{number}: this line is a {type(row).__name__}, not an object. Each line must be one JSON object.")
        yield f"{path}:{number}", row


def _read_csv(path: Path) -> Iterator[tuple[str, Row]]:
    text = _text(path)
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))  # the default refuses long documents
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    end = 0
    try:
        for cells in reader:
            line, end = end + 1, reader.line_num  # a quoted cell may run over several lines: the row's place is the first
            if not cells:
                continue
            if not header:
                header = cells
                if "" in header or len(set(header)) < len(header):
                    raise UserError(f"{path}:{line}: every column of the header needs a name of its own, but they are: {header}.")
            elif len(cells) != len(header):
                raise UserError(
                    f"{path}:{line}: this row has {len(cells)} cells, the header {len(header)}. Put cells that hold commas or newlines "
                    "in double quotes."
                )
            else:
                yield f"{path}:{line}", dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise UserError(f"{path}:{end + 1}: broken CSV ({error}). Check the quotes.") from error


def _read_parquet(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UserError("Parquet files need pyarrow. Install it: pip install 'earnest[data]'.") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:  # this file alone: read_table would make columns of folder names
            rows = file.read().to_pylist()
    except Exception as error:  # pyarrow has no one class for a broken file
        raise UserError(f"'{path}' is not a readable Parquet file ({error}). Write it again.") from error
    for number, row in enumerate(rows, 1):
        yield f"{path}:row {number}", row


def _read_hub(name: str, path: Path) -> dict[str, list[tuple[str, Row]]]:
    """A Hugging Face data set; its validation split counts as dev."""
    if name.count("/") > 1 or name.startswith((".", "/")) or " " in name:
        raise UserError(f"There is no file or folder '{path}'. Check the path; rows come from {', '.join(SUFFIXES)} or a data set id.")
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise UserError(
            f"There is no file or folder '{path}'. If '{name}' is meant as a Hugging Face data set, install: pip install 'earnest[data]'."
        ) from error
    try:
        loaded = datasets.load_dataset(name)
    except Exception as error:  # network, unknown id, gated set: the hub's own words say which
        raise UserError(
            f"'{name}' is neither a file or folder here ('{path}') nor a data set that could be loaded ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason given'}). Check the path or the id."
        ) from error
    rename = {"validation": "dev", "valid": "dev", "val": "dev"}
    return {
        rename.get(split, split): [(f"{name}[{split}]:{number}", dict(row)) for number, row in enumerate(rows, 1)]
        for split, rows in loaded.items()
        if rename.get(split, split) in SPLITS
    }
