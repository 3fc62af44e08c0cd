"""Whether the two sides of a quotient have a factor in common: a greatest common divisor of polynomials, modulo a prime.

One variable at a time stays a variable; all else (other variables, pi, e, roots, functions) is replaced by a number modulo the prime.
A common factor stays one under that, and two polynomials without one get one with a chance of about one in the prime.
"""

from __future__ import annotations

from fractions import Fraction

from earnest.rewards.expression import Tree

PRIME = 998_244_353  # leaves 1 when divided by 4, so that -1 has a root
_ROOT_OF_MINUS_ONE = pow(3, (PRIME - 1) // 4, PRIME)  # 3 is a primitive root of it
_DEGREE = 40  # largest that is looked at
_VARIABLES = 8  # most that are tried


def coprime(above: Tree, below: Tree) -> bool:
    """Whether no variable's polynomial divides both; also where a side is no polynomial, or one of too high a degree."""
    common = sorted(_generators(above) & _generators(below), key=str)
    for variable in common[:_VARIABLES]:
        places: dict[Tree, int] = {}
        sides = [_polynomial(side, variable, places) for side in (above, below)]
        if None in sides:
            continue
        left, right = sides
        while right:
            left, right = right, _remainder(left, right)
        if len(left) > 1:
            return False
    return True


def _generators(tree: Tree) -> set[Tree]:
    """The parts that are not put together of others by adding and multiplying."""
    if tree[0] in ("add", "neg", "mul", "div", "percent"):
        return {generator for part in tree[1:] for generator in _generators(part)}
    if tree[0] == "pow" and _exponent(tree) is not None:
        return _generators(tree[1])
    return set() if tree[0] == "num" or tree == ("const", "i") else {tree}


def _exponent(tree: Tree) -> int | None:
    exponent = tree[2]
    small = exponent[0] == "num" and "/" not in exponent[1] and len(exponent[1]) < 4 and int(exponent[1]) <= _DEGREE
    return int(exponent[1]) if small else None


def _polynomial(tree: Tree, variable: Tree, places: dict[Tree, int]) -> list[int] | None:
    """Coefficients from the constant one up, without zeros at the end; None where it is no polynomial."""
    kind = tree[0]
    if tree == variable:
        return [0, 1]
    if kind == "num":
        value = Fraction(tree[1])
        return _trimmed([value.numerator * pow(value.denominator, -1, PRIME)]) if value.denominator % PRIME else None
    if tree == ("const", "i"):
        return [_ROOT_OF_MINUS_ONE]
    power = _exponent(tree) if kind == "pow" else None
    if power is None and kind not in ("add", "neg", "mul", "div", "percent"):
        return [places.setdefault(tree, pow(5, 7919 * (len(places) + 2), PRIME))]
    parts = [_polynomial(part, variable, places) for part in (tree[1:2] if kind == "pow" else tree[1:])]
    if None in parts:
        return None
    if kind == "add":
        size = max(map(len, parts))
        return _trimmed([sum(part[at] for part in parts if at < len(part)) for at in range(size)])
    if kind == "div":
        return _product([parts[0], [pow(parts[1][0], -1, PRIME)]]) if len(parts[1]) == 1 else None
    extra = {"neg": [[-1]], "percent": [[pow(100, -1, PRIME)]]}.get(kind, [])
    return _product(parts * power if kind == "pow" else parts + extra)


def _product(factors: list[list[int]]) -> list[int] | None:
    total = [1]
    for factor in factors:
        if len(total) + len(factor) > _DEGREE + 2:
            return None
        sums = [0] * (len(total) + len(factor))
        for i, a in enumerate(total):
            for j, b in enumerate(factor):
                sums[i + j] += a * b
        total = _trimmed(sums)
    return total


def _trimmed(coefficients: list[int]) -> list[int]:
    reduced = [c % PRIME for c in coefficients]
    while reduced and not reduced[-1]:
        reduced.pop()
    return reduced


def _remainder(left: list[int], right: list[int]) -> list[int]:
    inverse = pow(right[-1], -1, PRIME)
    while len(left) >= len(right):
        factor, shift = left[-1] * inverse, len(left) - len(right)
        left = _trimmed([c - factor * right[at - shift] if at >= shift else c for at, c in enumerate(left)])
    return left
