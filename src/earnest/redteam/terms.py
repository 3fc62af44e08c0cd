"""Terms of whole numbers and the four operations: their value and operands, and a term that makes a number out of given ones."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

STEPS = 20_000  # of the search for a term, after which there is none
LONGEST = 200  # characters of a term
GOALS = ("target", "goal", "result", "total", "answer")

OPERATIONS: Mapping[type, tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul), ast.Div: ("/", operator.truediv),
}  # fmt: skip
MORE: Mapping[str, Callable[[int, int], int]] = {"**": operator.pow, "//": operator.floordiv, "%": operator.mod}


@dataclass(frozen=True)
class Term:
    """A term with the four operations.

    Attributes:
        value: What it comes to.
        operands: The whole numbers in it, in order.
    """

    value: Fraction
    operands: tuple[int, ...]


@lru_cache(maxsize=4096)
def term_of(text: str) -> Term | None:
    """The term a text is; None where it is something else, or a number alone."""
    text = plain(text)
    if len(text) > LONGEST or not re.fullmatch(r"[\d+\-*/() ]*[+\-*/][\d+\-*/() ]*", text, re.ASCII):
        return None
    used: list[int] = []
    try:
        value = _value(ast.parse(text, mode="eval").body, used)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return Term(value, tuple(used)) if len(used) > 1 else None


def plain(text: str) -> str:
    """A term with Python's signs in place of the typographic ones."""
    return text.strip().translate({ord("×"): "*", ord("÷"): "/", ord("−"): "-", ord("·"): "*"})


def _value(node: ast.AST, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)][1](_value(node.left, used), _value(node.right, used))
    raise ValueError("neither a number nor one of the four operations")


def alike(a: str, b: str) -> bool:
    """Whether two texts are terms of one value out of the same numbers."""
    own, other = term_of(a), term_of(b)
    return bool(own and other) and own.value == other.value and sorted(own.operands) == sorted(other.operands)


def given_of(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The columns of a row that is a puzzle: the numbers, a list of whole ones, and the goal, one beside it; None where it is none."""
    lists = [n for n, v in row.items() if isinstance(v, (list, tuple)) and 2 <= len(v) <= 6 and all(type(number) is int for number in v)]
    goals = [name for name in GOALS if type(row.get(name)) is int]
    return (lists[0], goals[0]) if len(lists) == 1 and goals else None


def solved(row: Any) -> str:
    """A term for a row that is a puzzle; "" where there is none."""
    given = given_of(row) if isinstance(row, Mapping) else None
    return made_of(tuple(row[given[0]]), row[given[1]]) if given else ""


def columns_first(columns: list[str], row: Mapping[str, Any]) -> list[str]:
    """Columns that may hold the right answer; of a row that is a puzzle those of its terms first, or else numbers and goal together.

    The goal itself, which is often named like a right answer, is none.
    """
    given = given_of(row)
    if given is None:
        return columns
    numbers, goal = given
    terms = [name for name, value in row.items() if isinstance(value, str) and (term := term_of(value)) and term.value == row[goal]]
    first = terms or ([f"{numbers},{goal}"] if made_of(tuple(row[numbers]), row[goal]) else [])
    return [*first, *(name for name in columns if name not in first)]


@lru_cache(maxsize=4096)
def made_of(numbers: tuple[int, ...], goal: Fraction | int, more: str = "") -> str:
    """A term of a value that uses each of some numbers once; "" where none was found.

    Args:
        numbers: To be used.
        goal: The value.
        more: An operation beyond the four that must be used, once: "**", "//" or "%".
    """
    budget = [STEPS]
    found = _search(tuple((Fraction(n), str(n), False) for n in numbers), Fraction(goal), more, budget)
    return found.removeprefix("(").removesuffix(")") if found.startswith("(") else found


_Part = tuple[Fraction, str, bool]  # a value, how it is written, and whether an operation beyond the four is in it


def _search(parts: tuple[_Part, ...], goal: Fraction, more: str, budget: list[int]) -> str:
    budget[0] -= 1
    if len(parts) == 1:
        value, text, odd = parts[0]
        return text if value == goal and odd == bool(more) else ""
    for i, j in combinations(range(len(parts)), 2):
        rest = tuple(part for k, part in enumerate(parts) if k not in (i, j))
        for part in _joined(parts[i], parts[j], more):
            if budget[0] <= 0:
                return ""
            if found := _search((*rest, part), goal, more, budget):
                return found
    return ""


def _joined(a: _Part, b: _Part, more: str) -> Iterator[_Part]:
    """All that two parts can become."""
    odd = a[2] or b[2]
    yield a[0] + b[0], f"({a[1]} + {b[1]})", odd
    yield a[0] * b[0], f"({a[1]} * {b[1]})", odd
    for (x, left, _), (y, right, _) in ((a, b), (b, a)):
        yield x - y, f"({left} - {right})", odd
        if y:
            yield x / y, f"({left} / {right})", odd
        whole = x.denominator == y.denominator == 1 and x >= 0 and y > 0
        if more and not odd and whole and (more != "**" or (y <= 12 and x <= 100)):
            yield Fraction(MORE[more](int(x), int(y))), f"({left} {more} {right})", True
