"""What judges: the bug's line and its category, or that there is none. Shares no code with the rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from earnest.task import Row, Verdict

NAMES = {"comparison", "boundary", "operator", "variable", "return", "arguments", "dropped", "off_by_one", "default", "exception", "none"}
LONGEST = 2_000


def check(answer: str | Sequence[Mapping[str, Any]], row: Row) -> Verdict:
    """Judge a review, as text or as the last message of a trajectory.

    `correct` means that nothing was said where nothing is wrong, or that the line is one of the bug's and so is the category.
    """
    pairs = _read(answer if isinstance(answer, str) else _last(answer))
    said = dict(pairs) if pairs is not None else None
    if said is None:
        return Verdict(False, {"line": False, "category": False}, False)
    if row["category"] == "none":
        line = said["line"] is None
    else:
        line = said["line"] is not None and row["lines"][0] <= said["line"] <= row["lines"][1]
    category = said["category"] == row["category"]
    return Verdict(line and category, {"line": line, "category": category}, True)


def _last(messages: Sequence[Mapping[str, Any]]) -> str:
    message = messages[-1] if messages else {}
    content = message.get("content") if message.get("role") == "assistant" and not message.get("tool_calls") else None
    return content if isinstance(content, str) else ""


def _read(text: str) -> list[tuple[str, Any]] | None:
    """The two fields as written, or None. A repeated key is a third pair."""
    if len(text) > LONGEST:
        return None
    try:
        pairs = json.loads(text, object_pairs_hook=list, parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(pairs, list)
        or any(not isinstance(pair, tuple) for pair in pairs)
        or sorted(k for k, _ in pairs) != ["category", "line"]
    ):
        return None
    fields = dict(pairs)
    line, name = fields["line"], fields["category"]
    placed = line is None or (isinstance(line, int) and not isinstance(line, bool) and line > 0)
    named = isinstance(name, str) and name in NAMES
    return pairs if placed and named and (line is None) == (name == "none") else None


def _refuse(number: str) -> None:
    raise ValueError(number)
