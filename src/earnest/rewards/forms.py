"""What is left undone in an expression: whether an answer is a value or the question once more.

A verifier that evaluates what it is given pays for `17 \\times 23` where 391 was asked. So each kind of work that an expression
leaves undone has a name here, and an answer may leave undone only what the reference leaves undone too. Roots, powers of e and pi,
and sums of unlike terms are values; a sum or product of numbers, a power of a number, a fraction not in lowest terms or by a sum of
numbers, a root that can be taken, terms that can be collected, degrees, functions, and equations that are not solved are not.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from earnest.rewards.expression import Tree, num
from earnest.rewards.polynomials import coprime

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


def isolated(relation: Tree) -> frozenset[Tree]:
    """The variables a relation is solved for: each stands alone on one side and nowhere on another."""
    sides = relation[1::2]
    return frozenset(side for side in sides if side[0] == "var" and sum(_contains(other, side) for other in sides) == 1)


def is_quotient(tree: Tree) -> bool:
    """Whether it is written with a denominator, or with a negative power."""
    if tree[0] in ("neg", "mul"):
        return any(is_quotient(part) for part in tree[1:])
    return tree[0] == "div" or _turned(tree) is not None


def _contains(tree: Tree, part: Tree) -> bool:
    return tree == part or any(_contains(inside, part) for inside in tree[1:] if isinstance(inside, tuple))


def _has_kind(tree: Tree, *kinds: str) -> bool:
    return tree[0] in kinds or any(_has_kind(part, *kinds) for part in tree[1:] if isinstance(part, tuple))


def _nothing(node: Tree) -> set[str]:
    return set()


def _relation(node: Tree) -> set[str]:
    return set() if isolated(node) else {"an equation that is not solved"}


def _degree(node: Tree) -> set[str]:
    return {"an angle in degrees"}


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
    if tree[0] == "div" and rational(tree[2]) != 0:
        coefficient, rest = _term(tree[1])
        below, factors = _term(tree[2])
        return coefficient / (below or 1), rest + Counter({("below", factor): count for factor, count in factors.items()})
    below = _turned(tree)
    return Fraction(1), Counter([("below", below) if below is not None else tree])


def _turned(tree: Tree) -> Tree | None:
    """Of a power with a minus in its exponent what 1 is divided by; else None."""
    if tree[0] != "pow" or _term(tree[2])[0] >= 0:
        return None
    base, exponent = tree[1:]
    power = rational(exponent)
    if power == -1:
        return base
    return ("pow", base, num(-power) if power is not None else exponent[1] if exponent[0] == "neg" else ("neg", exponent))


def _terms(tree: Tree) -> list[tuple[Fraction, Counter[Tree]]]:
    """The terms of a sum, those in brackets that only a number stands before among them."""
    if tree[0] in ("add", "pm"):
        return [term for part in tree[1:] for term in _terms(part)]
    coefficient, rest = _term(tree)
    inside = next(iter(rest)) if rest.total() == 1 else ()
    if inside and inside[0] == "add":
        return [(coefficient * factor, others) for factor, others in _terms(inside)]
    return [(coefficient, rest)]


def _factors(tree: Tree) -> tuple[list[Tree], list[Tree]]:
    """The factors of a product of products and quotients, above and below."""
    if rational(tree) is not None:
        return [tree], []
    if tree[0] == "neg":
        return _factors(tree[1])
    above: list[Tree] = []
    below: list[Tree] = []
    if tree[0] == "mul":
        for part in tree[1:]:
            over, under = _factors(part)
            above, below = above + over, below + under
    elif tree[0] == "div":
        (above, low), (high, below) = _factors(tree[1]), _factors(tree[2])[::-1]
        above, below = above + high, low + below
        above = [factor for factor in above if factor != ("num", "1", "exact")]
    else:
        above = [tree]
    return above, below


def _add(node: Tree) -> set[str]:
    rests = [frozenset(rest.items()) for coefficient, rest in _terms(node) if coefficient or node[0] == "add"]
    found = set()
    if rests.count(frozenset()) > 1:
        found.add("a sum of numbers")
    if any(count > 1 for rest, count in Counter(rests).items() if rest):
        found.add("terms that can be collected")
    if sum(any(factor[0] == "below" and has_variable(factor[1]) for factor, _ in rest) for rest in rests) > 1:
        found.add("a sum of quotients")
    return found


def _mul(node: Tree) -> set[str]:
    found = _product(node)
    above, below = _factors(node)
    numbers = [[factor for factor in factors if _numeric(factor)] for factors in (above, below)]
    if max(map(len, numbers)) > 1:
        found.add("a product of numbers")
    elif all(numbers) and _quotient(numbers[0][0], numbers[1][0]):
        found.add("a fraction not in lowest terms")
    others = [factor for factor in node[1:] if not _numeric(factor)]
    if len(others) > 1 and any(factor[0] == "add" or _power_of_sum(factor) for factor in others):
        found.add(FACTORED)
    return found


def _power_of_sum(tree: Tree) -> bool:
    """Whether it could be multiplied out, as 1 / (x + 1) and a root of x + 1 could not."""
    power = rational(tree[2]) if tree[0] == "pow" and tree[1][0] == "add" else Fraction(0)
    return power is None or abs(power) > 1


def _product(node: Tree) -> set[str]:
    """What a product or a quotient leaves undone among its factors that are no rational numbers."""
    above, below = _factors(node)
    others = [factor for factor in above + below if not _numeric(factor)]
    found = set()
    bases = [factor[1] if factor[0] == "pow" else factor for factor in others]
    if len(set(bases)) < len(bases):
        found.add("factors that can be collected")
    if sum(_radicand(factor) is not None for factor in others) > 1:
        found.add("a product of roots")
    return found


def _radicand(tree: Tree) -> Fraction | None:
    """What stands under a root of a number."""
    if tree[0] == "root":
        return rational(tree[2])
    power = rational(tree[2]) if tree[0] == "pow" else None
    return rational(tree[1]) if power is not None and power.denominator > 1 else None


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
        return _quotient(above, below)
    if top is not None and below[0] == "const" and below[1] == "oo":
        return {"an infinite term"}
    found = _product(node) | _by_sum(below)
    coefficients = [coefficient for side in (above, below) for coefficient, _ in _terms(side)]
    roots = [int(r) for factor in _factors(below)[0] if (r := _radicand(factor)) is not None and r.denominator == 1]
    whole = (bottom is None or bottom > 1) and all(c.denominator == 1 for c in coefficients)
    if not whole or math.gcd(*map(int, coefficients)) != 1 or not coprime(above, below):
        found.add("a fraction not in lowest terms")
    if any(math.gcd(root, *(int(c) for c, _ in _terms(above))) != 1 for root in roots):
        found.add("a fraction not in lowest terms")
    if has_variable(below):
        found.add("a quotient by a variable")
    if any(part[0] == "div" and rational(part) is None for side in (above, below) for part in _parts(side)):
        found.add("a quotient of quotients")
    return found


def _parts(tree: Tree) -> list[Tree]:
    return [tree, *(inside for part in tree[1:] if isinstance(part, tuple) for inside in _parts(part))]


def _quotient(above: Tree, below: Tree) -> set[str]:
    """What a quotient of two numbers leaves undone."""
    top, bottom = rational(above), rational(below)
    whole = _integer(above if above[0] != "neg" else above[1]) and _integer(below)
    return set() if whole and bottom > 1 and math.gcd(int(top), int(bottom)) == 1 else {"a fraction not in lowest terms"}


def _by_sum(below: Tree) -> set[str]:
    """1 / root 2 is a value, but what a sum or i stands under can be expanded."""
    expands = _has_kind(below, "add", "pm") or _contains(below, ("const", "i"))
    return {"a quotient by a sum of numbers"} if expands and not has_variable(below) else set()


def _pow(node: Tree) -> set[str]:
    base, exponent = node[1], node[2]
    power, number = rational(exponent), rational(base)
    found = set()
    if number is not None and power is not None:
        found.add("a power of a number" if power.denominator == 1 or _takes_root(base, power.denominator) else "")
    elif power is not None and power.denominator > 1:
        found |= _root(("root", num(power.denominator), base))
    if number in (0, 1):
        found.add("a power of a number")
    if base == ("const", "i"):
        found.add("a power of i")
    if _contains(exponent, ("const", "i")):
        found.add("a power with an imaginary exponent")
    if base[0] in ("pow", "root", "mul", "div"):
        found.add("a power of a power")
    if _power_of_sum(node):
        found.add(FACTORED)
    if _turned(node) is not None:
        found |= {"a quotient by a variable"} if has_variable(node) else _by_sum(base)
    if power in (0, 1):
        found.add("a power that is none")
    return found - {""}


def _root(node: Tree) -> set[str]:
    index = rational(node[1])
    if index is None or index.denominator != 1 or index < 2:
        return {"a root of another kind"}
    if has_variable(node[2]):
        return {"a root of variables"}
    coefficient, rest = _term(node[2])
    if any(_taken_apart(factor, int(index)) for factor in rest):
        return {"a root of a term"}
    return {"a root that can be taken"} if _takes_root(num(coefficient), int(index)) and (coefficient != 1 or not rest) else set()


def _taken_apart(factor: Tree, index: int) -> bool:
    """Whether a factor under a root is more than e or pi, or a power of them that the root does not undo."""
    power = rational(factor[2]) if factor[0] == "pow" else Fraction(1)
    base = factor[1] if factor[0] == "pow" else factor
    return base not in (("const", "e"), ("const", "pi")) or power is None or power.denominator != 1 or power % index == 0


def _takes_root(tree: Tree, index: int) -> bool:
    """Whether something can be taken out of a root: a factor that is a power, or a sign."""
    value = rational(tree)
    if value < 0:
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


_BY_KIND = {
    "add": _add, "pm": _add, "neg": _neg, "mul": _mul, "div": _div, "pow": _pow, "root": _root, "call": _call, "cap": _cap,
    "degree": _degree, "relation": _relation,
}  # fmt: skip
