"""What is left undone in an expression: whether an answer is a value or the question once more.

A verifier that evaluates what it is given pays for `17 \\times 23` where 391 was asked. So each kind of work that an expression
leaves undone has a name here, and an answer may leave undone only what the reference leaves undone too. Roots, powers of e and pi,
and sums of unlike terms are values; a sum or product of numbers, a power of a number, a fraction not in lowest terms, a root that
can be taken, terms that can be collected, and functions are not.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from earnest.rewards.expression import Tree

FACTORED = "a product of sums"  # the one form that is also asked for: factoring and expanding are each other's question
_TRIED = 10_000  # largest factor tried in a root


def undone(tree: Tree) -> frozenset[str]:
    """Names of all that a tree leaves undone."""
    found: set[str] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        parts = [part for part in node[1:] if isinstance(part, tuple)]
        found |= _BY_KIND.get(node[0], _nothing)(node)
        stack += parts
    return frozenset(found)


def rational(tree: Tree) -> Fraction | None:
    """The value, where it takes no more than a sign, a quotient of numerals and a per cent; else None."""
    kind = tree[0]
    if kind == "num":
        return Fraction(tree[1])
    if kind in ("neg", "percent", "degree"):
        inside = rational(tree[1])
        return None if inside is None or kind == "degree" else -inside if kind == "neg" else inside / 100
    if kind == "div":
        above, below = rational(tree[1]), rational(tree[2])
        return above / below if above is not None and below else None
    return None


def has_variable(tree: Tree) -> bool:
    """Whether a variable stands in it."""
    return tree[0] == "var" or any(has_variable(part) for part in tree[1:] if isinstance(part, tuple))


def _nothing(node: Tree) -> set[str]:
    return set()


def _term(tree: Tree) -> tuple[Fraction, Counter[Tree]]:
    """A term as its rational coefficient and its other factors."""
    value = rational(tree)
    if value is not None:
        return value, Counter()
    if tree[0] == "neg":
        coefficient, rest = _term(tree[1])
        return -coefficient, rest
    if tree[0] == "mul":
        coefficient, rest = Fraction(1), Counter()
        for part in tree[1:]:
            factor, others = _term(part)
            coefficient, rest = coefficient * factor, rest + others
        return coefficient, rest
    if tree[0] == "div" and (below := rational(tree[2])):
        coefficient, rest = _term(tree[1])
        return coefficient / below, rest
    return Fraction(1), Counter([tree])


def _terms(tree: Tree) -> list[Tree]:
    return [term for part in tree[1:] for term in _terms(part)] if tree[0] in ("add", "pm") else [tree]


def _add(node: Tree) -> set[str]:
    rests = [frozenset(_term(term)[1].items()) for term in _terms(node) if term != ("num", "0", "exact") or node[0] == "add"]
    found = set()
    if rests.count(frozenset()) > 1:
        found.add("a sum of numbers")
    if any(count > 1 for rest, count in Counter(rests).items() if rest):
        found.add("terms that can be collected")
    return found


def _mul(node: Tree) -> set[str]:
    found = set()
    factors = list(node[1:])
    numbers = [factor for factor in factors if _numeric(factor)]
    others = [factor for factor in factors if not _numeric(factor)]
    if len(numbers) > 1:
        found.add("a product of numbers")
    bases = [factor[1] if factor[0] == "pow" else factor for factor in others]
    if len(set(bases)) < len(bases):
        found.add("factors that can be collected")
    if sum(factor[0] == "root" and rational(factor[2]) is not None for factor in others) > 1:
        found.add("a product of roots")
    if len(others) > 1 and any(factor[0] == "add" or (factor[0] == "pow" and factor[1][0] == "add") for factor in others):
        found.add(FACTORED)
    return found


def _numeric(tree: Tree) -> bool:
    """Whether it comes to a rational number by more than reading it, as 2^3 does."""
    whole = tree[0] == "pow" and rational(tree[1]) is not None and (exponent := rational(tree[2])) is not None and exponent.denominator == 1
    return whole or rational(tree) is not None


def _neg(node: Tree) -> set[str]:
    return {"a sign of a sign"} if node[1][0] == "neg" else set()


def _div(node: Tree) -> set[str]:
    above, below = node[1], node[2]
    top, bottom = rational(above), rational(below)
    if top is not None and bottom is not None:
        whole = _integer(above if above[0] != "neg" else above[1]) and _integer(below)
        return set() if whole and bottom > 1 and math.gcd(int(top), int(bottom)) == 1 else {"a fraction not in lowest terms"}
    if top is not None and below[0] == "const" and below[1] == "oo":
        return {"an infinite term"}
    if bottom is not None:
        coefficients = [_term(term)[0] for term in _terms(above)]
        whole = bottom.denominator == 1 and all(c.denominator == 1 for c in coefficients)
        common = math.gcd(int(bottom), *(int(c) for c in coefficients)) if whole else 0
        return set() if bottom > 1 and common == 1 else {"a fraction not in lowest terms"}
    return {"a quotient by a variable"} if has_variable(below) else set()


def _pow(node: Tree) -> set[str]:
    base, exponent = node[1], node[2]
    power = rational(exponent)
    found = set()
    if rational(base) is not None and power is not None:
        found.add("a power of a number" if power.denominator == 1 or _takes_root(base, power.denominator) else "")
    if base == ("const", "i"):
        found.add("a power of i")
    if base[0] in ("pow", "root", "mul", "div"):
        found.add("a power of a power")
    if base[0] == "add":
        found.add(FACTORED)
    if power is not None and power < 0 and has_variable(base):
        found.add("a quotient by a variable")
    if power in (0, 1):
        found.add("a power that is none")
    return found - {""}


def _root(node: Tree) -> set[str]:
    index = rational(node[1])
    if index is None or index.denominator != 1 or index < 2:
        return {"a root of another kind"}
    if rational(node[2]) is not None:
        return {"a root that can be taken"} if _takes_root(node[2], int(index)) else set()
    return {"a root of variables"} if has_variable(node[2]) else set()


def _takes_root(tree: Tree, index: int) -> bool:
    """Whether something can be taken out of a root: a factor that is a power, or a sign of an odd one."""
    value = rational(tree)
    if value < 0 and index % 2:
        return True
    for part in (abs(value.numerator), value.denominator):
        if part < 2:
            continue
        if index > part.bit_length():
            continue
        for factor in range(2, _TRIED):
            power = factor**index
            if power > part:
                break
            if part % power == 0:
                return True
        else:
            if index == 2 and math.isqrt(part) ** 2 == part:
                return True
    return abs(value) == 1 or value == 0


def _call(node: Tree) -> set[str]:
    return {f"the function {node[1]}"}


def _integer(tree: Tree) -> bool:
    return tree[0] == "num" and "/" not in tree[1] and tree[2] == "exact"


def _cap(node: Tree) -> set[str]:
    return {"an intersection"}


_BY_KIND = {"add": _add, "pm": _add, "neg": _neg, "mul": _mul, "div": _div, "pow": _pow, "root": _root, "call": _call, "cap": _cap}
