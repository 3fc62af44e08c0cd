"""Comparing what came out of a jail with what was expected, on data alone.

Both sides are trees as `code_child.encode` makes them. The one from the jail may be forged: a tree of any shape is either well
formed or unequal to everything. Nothing here builds sets or mappings of numbers from it, whose hashes an answer could make collide.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

SAME_WITH_EQUALITY = {"frozenset": "set", "bytearray": "bytes", "Counter": "dict", "OrderedDict": "dict", "defaultdict": "dict"}
MAPPINGS = ("dict", "Counter", "OrderedDict", "defaultdict")


@dataclass(frozen=True)
class Equality:
    """When two values count as the same.

    Attributes:
        exact: Types must be the same at every depth: True is no 1, 1 is no 1.0, a tuple no list. Otherwise what Python's `==` holds
            equal between built-in types.
        relative: How far a float may be off, as a share of the expected one.
        absolute: How far a number may be off; an expected integer knows only this one.
    """

    exact: bool = True
    relative: float = 0.0
    absolute: float = 0.0


class _MalformedError(ValueError):
    """No tree that `encode` would have written."""


def same(got: Any, expected: Any, rule: Equality = Equality()) -> bool:
    """Whether two trees stand for the same value. NaN is the same as NaN; members of sets and keys know no tolerance."""
    try:
        return _same(got, expected, rule)
    except (_MalformedError, RecursionError):
        return False


def canonical(tree: Any, exact: bool = True) -> str:
    """A text that is the same for the same values, whatever the order of sets and mappings.

    Raises:
        ValueError: The tree is malformed.
    """
    kind, content = _kind(tree, exact)
    if kind in ("list", "tuple", "complex"):
        return f"{kind}[{','.join(canonical(item, exact) for item in content)}]"
    if kind == "set" or kind == "frozenset":
        return f"{kind}[{','.join(sorted(canonical(item, exact) for item in content))}]"
    if kind in MAPPINGS:
        return f"{kind}[{','.join(sorted(f'{canonical(k, exact)}:{canonical(v, exact)}' for k, v in content))}]"
    if kind in ("int", "bool", "number") and not isinstance(content, float):
        return f"{kind} {content:x}"
    if isinstance(content, float):
        whole = kind == "number" and content.is_integer()
        return f"{kind} {int(content):x}" if whole else f"{kind} {content + 0.0!r}"  # adding 0.0 makes -0.0 the same as 0.0
    return f"{kind} {json.dumps(content)}"


def _kind(tree: Any, exact: bool) -> tuple[str, Any]:
    """The type a tree stands for and its content, checked one level deep."""
    if tree is None:
        return "None", None
    if isinstance(tree, (bool, int, float)):
        return (type(tree).__name__ if exact else "number"), tree
    if isinstance(tree, str):
        return "str", tree
    if isinstance(tree, list):
        return "list", tree
    if not isinstance(tree, dict) or len(tree) != 1:
        raise _MalformedError
    ((kind, content),) = tree.items()
    if kind in ("int", "float"):
        return (kind if exact else "number"), _number(kind, content)
    if not exact:
        kind = SAME_WITH_EQUALITY.get(kind, kind)
    if kind in ("tuple", "set", "frozenset", *MAPPINGS, "complex"):
        pairs = kind in MAPPINGS
        if not isinstance(content, list) or (pairs and not all(isinstance(pair, list) and len(pair) == 2 for pair in content)):
            raise _MalformedError
        if kind == "complex" and (len(content) != 2 or any(_kind(part, True)[0] != "float" for part in content)):
            raise _MalformedError
    elif kind not in ("bytes", "bytearray", "utf-16") or not isinstance(content, str):
        raise _MalformedError
    return kind, content


def _number(kind: str, content: Any) -> int | float:
    if kind == "float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if kind == "int" and isinstance(content, str) and content.lower().lstrip("-").startswith("0x") and "_" not in content:
        try:
            return int(content, 16)  # linear in its length, unlike a decimal one
        except ValueError:
            pass
    raise _MalformedError


def _same(got: Any, expected: Any, rule: Equality) -> bool:
    kind, content = _kind(got, rule.exact)
    wanted, target = _kind(expected, rule.exact)
    if kind != wanted:
        return False
    if kind in ("number", "int", "float", "bool"):
        return _near(content, target, rule)
    if kind in ("list", "tuple", "complex"):
        return len(content) == len(target) and all(_same(a, b, rule) for a, b in zip(content, target, strict=True))
    if kind in ("set", "frozenset"):
        return sorted(canonical(item, rule.exact) for item in content) == sorted(canonical(item, rule.exact) for item in target)
    if kind in MAPPINGS:
        pairs = zip(_by_key(content, rule), _by_key(target, rule), strict=False)
        return len(content) == len(target) and all(a[0] == b[0] and _same(a[1], b[1], rule) for a, b in pairs)
    return content == target


def _by_key(pairs: list[Any], rule: Equality) -> list[tuple[str, Any]]:
    """Members in the order of their keys' texts, and among equal keys (several NaN) of their values'."""
    texts = sorted((canonical(key, rule.exact), canonical(value, rule.exact), index) for index, (key, value) in enumerate(pairs))
    return [(key, pairs[index][1]) for key, _, index in texts]


def _near(got: float, expected: float, rule: Equality) -> bool:
    if got == expected or (got != got and expected != expected):
        return True
    whole = isinstance(expected, int)
    if isinstance(got, bool) or isinstance(expected, bool) or (whole and (rule.exact or isinstance(got, int))):
        return False
    try:
        off = abs(got - expected)
        return math.isfinite(off) and (off <= rule.absolute or (not whole and off <= rule.relative * abs(expected)))
    except OverflowError:  # an integer beyond the range of a float
        return False
