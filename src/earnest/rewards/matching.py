"""When a value is the one that was asked for, and which thing answers which.

Whether a call fits a pattern has three answers. True: it does. False: it does not. None: it cannot be said, because the values are equal
only after a conversion ("50" and 50), or of a kind that cannot be compared. A rule that pays wants True; a rule that forbids is satisfied
only by False. So what is unclear never helps whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from earnest.task import Row

ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()  # an argument that is not there; null is a value


@dataclass(frozen=True)
class Column:
    """The value that the row has in this column."""

    name: str


@dataclass(frozen=True)
class OneOf:
    """Any of these values.

    Attributes:
        values: Plain values, or patterns.
        absent: Whether the argument may be missing altogether.
    """

    values: Sequence[Any]
    absent: bool = False


@dataclass(frozen=True)
class Number:
    """A number within bounds, each a number or a `Column`. Text that looks like a number is none."""

    above: float | Column | None = None
    at_least: float | Column | None = None
    below: float | Column | None = None
    at_most: float | Column | None = None


def fits(pattern: Any, value: Any, row: Row) -> bool | None:
    """Whether a value fits a pattern.

    Args:
        pattern: A plain JSON value (numbers equal by value, true is no 1, text to the letter), an object or array holding patterns (the
            object's keys are exactly those given), a `Column`, `OneOf`, `Number`, or a function of the value.
        value: A plain JSON value, or `ABSENT`.
        row: Where a `Column` is looked up.

    Returns:
        True, False, or None where it cannot be said.
    """
    if isinstance(pattern, Column):
        return _same(row.get(pattern.name), value)
    if isinstance(pattern, OneOf):
        return pattern.absent if value is ABSENT else any_of(fits(one, value, row) for one in pattern.values)
    if isinstance(pattern, Number):
        return _within(pattern, value, row)
    if callable(pattern):
        return _asked(pattern, value)
    if isinstance(pattern, Mapping) and isinstance(value, Mapping):
        return all_of(fits(pattern.get(key, ABSENT), value.get(key, ABSENT), row) for key in {**pattern, **value})
    if isinstance(pattern, (list, tuple)) and isinstance(value, (list, tuple)):
        return len(pattern) == len(value) and all_of(fits(p, v, row) for p, v in zip(pattern, value, strict=True))
    return _same(pattern, value)


def all_of(answers: Iterator[bool | None]) -> bool | None:
    """True where all are; False where one is; else None."""
    unclear = False
    for answer in answers:
        if answer is False:
            return False
        unclear = unclear or answer is None
    return None if unclear else True


def any_of(answers: Iterator[bool | None]) -> bool | None:
    """True where one is; False where all are; else None."""
    unclear = False
    for answer in answers:
        if answer is True:
            return True
        unclear = unclear or answer is None
    return None if unclear else False


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: numbers by value, a boolean only to a boolean, text to the letter."""
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool) and one == other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    return one == other


# A number that stands alone: not a part of a word, a longer number, a range, a date, a time or a percentage.
_NUMBER = re.compile(
    r"(?<![\w.,:/%\u2212\u2013-])[-\u2212]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?![\w%]|[.,:/\u2212\u2013-]\w)"
)


def mentions(text: str, value: Any) -> bool:
    """Whether a text holds a value as a whole word or number: 10 stands in "10." and "$10", not in "2100", "10.5" or "10:30".

    Args:
        text: Any text.
        value: A number, compared by value with the numbers of the text; anything else as text, whatever its case.
    """
    if _is_number(value):
        return value in _numbers(text)
    wanted = re.escape(str(value).strip().casefold())
    return bool(wanted) and re.search(rf"(?<!\w){wanted}(?!\w)", text.casefold()) is not None


def most_others(text: str, wanted: Sequence[Any]) -> int:
    """How many values of the same form a text holds beside those that are wanted: many are a list of guesses.

    Args:
        text: Any text.
        wanted: Values. The form of a number is a number; that of a text with digits is the text with other digits and letters, so that
            "B-4" has the form of "A-17". A text without digits has none, for any word could be its like.

    Returns:
        The largest number, of all forms.
    """
    wanted = [value if _is_number(value) else str(value).strip().casefold() for value in wanted]
    counts = [0]
    if any(map(_is_number, wanted)):
        counts.append(len(set(_numbers(text)) - set(wanted)))
    for form in {_form(value) for value in wanted if isinstance(value, str) and any(map(str.isdigit, value))}:
        found = re.finditer(rf"(?<!\w)(?=({form})(?!\w))", text.casefold())  # looked ahead: one may overlap the next
        counts.append(len({match[1] for match in found} - set(wanted)))
    return max(counts)


def _numbers(text: str) -> Iterator[float]:
    return (float(match.group().replace(",", "").replace("\u2212", "-")) for match in _NUMBER.finditer(text))


def _form(value: str) -> str:
    """A pattern: runs of digits, of letters, and of both together stand for any such run."""
    kinds = {(True, False): r"\d+", (False, True): r"[^\W\d_]+", (True, True): r"(?=\w*\d)\w+", (False, False): r"\w+"}
    parts = re.findall(r"\w+|\W+", value)
    return "".join(kinds[any(map(str.isdigit, p)), any(map(str.isalpha, p))] if re.match(r"\w", p) else re.escape(p) for p in parts)


def frozen(value: Any) -> Any:
    """Something hashable that is the same for two values exactly when they are equal in the sense of `equal`; NaN is the same as NaN."""
    if isinstance(value, Mapping):
        return "object", frozenset((key, frozen(member)) for key, member in value.items())
    if isinstance(value, (list, tuple)):
        return "array", tuple(map(frozen, value))
    if _is_number(value):
        return "number", value if value == value else "NaN"
    return type(value).__name__, value if isinstance(value, (str, bytes, bool, type(None))) else repr(value)


def columns_in(*patterns: Any) -> tuple[str, ...]:
    """The row's columns that patterns name, each once."""
    found: dict[str, None] = {}
    left = list(patterns)
    while left:
        pattern = left.pop(0)
        if isinstance(pattern, Column):
            found[pattern.name] = None
        elif isinstance(pattern, OneOf):
            left.extend(pattern.values)
        elif isinstance(pattern, Number):
            left.extend([pattern.above, pattern.at_least, pattern.below, pattern.at_most])
        elif isinstance(pattern, Mapping):
            left.extend(pattern.values())
        elif isinstance(pattern, (list, tuple)):
            left.extend(pattern)
    return tuple(found)


def pair_up(fit: Sequence[Sequence[bool]], prefer: Sequence[bool] | None = None) -> dict[int, int]:
    """The largest one-to-one assignment between rows and columns of a table of what fits what.

    Greedy pairing can leave one unpaired that had a partner; this is an assignment of greatest weight (SciPy's `linear_sum_assignment`).

    Args:
        fit: One list a row, one truth value a column.
        prefer: Columns that are better used than left over, where there is a choice between largest assignments.

    Returns:
        Column by row, for the rows that got one.
    """
    if not fit or not fit[0]:
        return {}
    from scipy.optimize import linear_sum_assignment

    table = np.array(fit, dtype=float)
    # a pair weighs more than all preferences together, so that no preference costs a pair
    weights = table * (len(table) + 1 + (np.array(prefer, dtype=float) if prefer is not None else 0.0))
    pairs = zip(*linear_sum_assignment(weights, maximize=True), strict=True)
    return {int(row): int(column) for row, column in pairs if table[row, column]}


def _within(bounds: Number, value: Any, row: Row) -> bool | None:
    if not _is_number(value):
        return None

    def holds(bound: float | Column | None, compare: Callable[[Any, Any], bool]) -> bool | None:
        bound = row.get(bound.name) if isinstance(bound, Column) else bound
        return True if bound is None else compare(value, bound) if _is_number(bound) else None

    return all_of(
        holds(bound, compare)
        for bound, compare in (
            (bounds.above, lambda v, b: v > b),
            (bounds.at_least, lambda v, b: v >= b),
            (bounds.below, lambda v, b: v < b),
            (bounds.at_most, lambda v, b: v <= b),
        )
    )


def _asked(question: Callable[[Any], Any], value: Any) -> bool | None:
    """What the user's function says; it was written for values of one kind, and the model may write any."""
    if value is ABSENT:
        return None
    try:
        return bool(question(value))
    except Exception:
        return None


def _same(wanted: Any, value: Any) -> bool | None:
    if value is ABSENT or wanted is ABSENT:
        return value is wanted
    return True if equal(wanted, value) else None if _loosely(wanted) == _loosely(value) else False


def _loosely(value: Any) -> Any:
    """What a lenient reader may take a value for."""
    if isinstance(value, (Mapping, list, tuple)) or value is None:
        return type(value), repr(value)
    text = str(value).strip().casefold()
    text = {"true": "1", "false": "0"}.get(text, text)
    try:
        return float(text)
    except ValueError:
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
