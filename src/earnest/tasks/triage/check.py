"""What judges: all four fields of a triage answer.

Written without a look at the rewards, and sharing no code with them, so that a hole in one is not a hole in both. Objects are
kept as the pairs they were written in, so a repeated key is simply a fifth pair; numbers have no place in an answer and end the reading.
"""

from __future__ import annotations

import json
from typing import Any

from earnest.task import Row, Verdict

LONGEST = 20_000  # characters; longer is no answer, whatever it says
ALLOWED: dict[str, tuple[Any, ...]] = {
    "category": ("billing", "refund", "invoice", "account", "technical", "plan_change", "api", "other"),
    "needs_account_data": (True, False),
    "needs_human": (True, False),
    "urgency": ("low", "medium", "high"),
}


class _Pairs(list):
    """An object as written: its (key, value) pairs, repeats included."""


def check(text: str, row: Row) -> Verdict:
    """Judge one answer against the golds a row has.

    `correct` means well formed and of an acceptable category. A field without gold in the row is None; without a gold category
    nothing can be correct.
    """
    answer = _read(text)
    fields: dict[str, bool | None] = {}
    for name in ALLOWED:
        accepted = _accepted(row, name)
        fields[name] = None if not accepted else answer is not None and answer[name] in accepted
    return Verdict(
        correct=fields["category"] is True,
        fields=fields,
        well_formed=answer is not None,
        handed_off=answer is not None and answer["needs_human"],
    )


def _accepted(row: Row, name: str) -> list[Any]:
    """The values of a field that count as right for this row; none where it has no (valid) gold."""
    gold = row.get("gold" if name == "category" else name)
    values = gold if isinstance(gold, (list, tuple)) and name == "category" else [gold]
    return list(values) if all(_is_allowed(name, value) for value in values) else []


def _read(text: Any) -> dict[str, Any] | None:
    """The answer's fields; None unless it is one JSON object of exactly the four, each with an allowed value."""
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    try:
        value = json.loads(text, object_pairs_hook=_Pairs, parse_int=_refuse, parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, _Pairs) or sorted(key for key, _ in value) != sorted(ALLOWED):
        return None
    return dict(value) if all(_is_allowed(name, given) for name, given in value) else None


def _is_allowed(name: str, value: Any) -> bool:
    """Whether a value is allowed, and of the very type: 1 equals True, but is no answer."""
    return any(type(value) is type(allowed) and value == allowed for allowed in ALLOWED[name])


def _refuse(number: str) -> None:
    raise ValueError(number)
