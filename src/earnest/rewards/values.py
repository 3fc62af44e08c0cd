"""When two JSON values are the same: by type, by value, and with what a row's gold declares to make no difference."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from earnest.errors import UserError


@dataclass(frozen=True)
class Gold:
    """The right value, and what counts as equal to it.

    Types are kept apart: true is not 1, "5" is not 5, null is nothing else. 5.0 is 5, as JSON has one kind of number.

    Attributes:
        column: Column of the row that holds it.
        any_of: The column holds a list of values, each of which is right. A single value may stand there without the list.
        unordered: Lists are bags: the same elements equally often, in any order, at any depth.
        tolerance: How far a number may be off, in its own unit.
        relative: How far a number may be off, as a share of the gold number; the larger of the two holds.
        text: The column holds JSON text, to be decoded. For rows that cannot hold objects (CSV) or whose null must not read as "no gold".
    """

    column: str
    any_of: bool = False
    unordered: bool = False
    tolerance: float = 0.0
    relative: float = 0.0
    text: bool = False

    def __post_init__(self) -> None:
        for name, most in (("tolerance", math.inf), ("relative", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < most:
                raise UserError(f"{name}={value!r} for the column '{self.column}' must be a number from 0, below {most:g}.")


def equal(value: Any, gold: Any, rule: Gold) -> bool:
    """Whether two decoded values are the same, each type apart, under a rule."""
    if isinstance(value, bool) or isinstance(gold, bool):
        return value is gold
    if isinstance(value, (int, float)) and isinstance(gold, (int, float)):
        slack = max(rule.tolerance, rule.relative * abs(gold))
        return value == gold or (slack > 0 and abs(value - gold) <= slack)  # without slack exact: a difference is rounded, == is not
    if type(value) is not type(gold):
        return False
    if isinstance(gold, dict):
        return value.keys() == gold.keys() and all(equal(value[key], gold[key], rule) for key in gold)
    if isinstance(gold, list):
        if len(value) != len(gold):
            return False
        if rule.unordered:
            return _same_bag(value, gold, rule)
        return all(equal(*pair, rule) for pair in zip(value, gold, strict=True))
    return value == gold


def _same_bag(values: list[Any], golds: list[Any], rule: Gold) -> bool:
    """Whether the elements can be paired one to one so that each pair is equal.

    Without a tolerance, equal counts say so. With one, being equal is not transitive, and only a matching tells.
    """
    if not golds or not (rule.tolerance or rule.relative):
        return Counter(map(_key, values)) == Counter(map(_key, golds))
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    pairs = csr_array([[equal(value, gold, rule) for gold in golds] for value in values], shape=(len(values), len(golds)), dtype=int)
    return bool((maximum_bipartite_matching(pairs) >= 0).all())


def _key(value: Any) -> Any:
    """Equal and hashable for equal values: numbers as they are, all else with its type, lists as bags."""
    if isinstance(value, list):
        return list, frozenset(Counter(map(_key, value)).items())
    if isinstance(value, dict):
        return dict, frozenset((key, _key(member)) for key, member in value.items())
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else (type(value), value)
