"""What judges: whether the last message is the right number. Written without a look at the rewards, and sharing no code with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from earnest.task import Row, Verdict

DIGITS = frozenset("0123456789")
LONGEST = 30  # characters of a number; those of this task have at most seven digits


def check(messages: Sequence[Any], row: Row) -> Verdict:
    """Judge the last message, if the model wrote it and calls nothing in it.

    Thousands may be parted by commas; `.0` may follow, and a full stop.
    """
    last = messages[-1] if isinstance(messages, (list, tuple)) and messages else {}
    said = last.get("content") if last.get("role") == "assistant" and not last.get("tool_calls") else None
    value = _whole(said.strip()) if isinstance(said, str) else None
    return Verdict(correct=value is not None and value == row["answer"], well_formed=value is not None)


def _whole(text: str) -> int | None:
    """The whole number that a text is; None where it is anything else."""
    text = text.removesuffix(".").removeprefix("+")
    whole, point, zeros = text.partition(".")
    text = whole if point and zeros and set(zeros) == {"0"} else text
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    first, *groups = text.split(",")
    grouped = not groups or (1 <= len(first) <= 3 and all(len(group) == 3 for group in groups))
    digits = first + "".join(groups)
    return sign * int(digits) if grouped and digits and len(text) <= LONGEST and set(digits) <= DIGITS else None
