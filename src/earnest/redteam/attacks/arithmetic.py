"""Arithmetic puzzles: a term is to make a number out of given ones, each used once. Terms that break a rule of it, and right ones.

A term's value and operands are read from the term itself, so that what is called wrong here is wrong by calculation. The rules are the
prompt's: what it does not say (that all numbers must be used, which operations there are) is not held against an answer.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.right import control
from earnest.redteam.attacks.slots import Slot, slot_of
from earnest.redteam.terms import MORE, OPERATIONS, alike, made_of, plain, term_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "math", "number", "json"})
FAIR = 0.75  # of the way from wrong to right: keeping one rule of two may be paid, but not nearly as much as keeping both

_ONCE = re.compile(r"\bonce\b", re.IGNORECASE)
_ALL = re.compile(
    r"\b(?:each|every|all)\b[^.\n]{0,40}\bnumbers?\b|\bnumbers? [^.\n]{0,20}\bexactly once|\buse (?:them )?all\b", re.IGNORECASE
)
_SOME = re.compile(
    r"at most once|no more than once|not all|need not|don't (?:have|need) to|do not (?:have|need) to|some of|subset|any of", re.IGNORECASE
)
_FOUR = re.compile(
    r"\+\W{1,12}[-−–]\W{1,12}(?:[*×·x]|\\times)\W{1,16}(?:[/÷]|\\div)|\baddition\b.{1,60}\bdivision\b|\bfour (?:basic )?operations\b",
    re.IGNORECASE | re.DOTALL,
)
_MORE = re.compile(r"\*\*|\^|//|%|\b(?:power|exponent\w*|factorial|root|modulo|concatenat\w+|any operations?)\b", re.IGNORECASE)


@dataclass(frozen=True)
class _Puzzle:
    """A row that is such a puzzle: where the term stands, the term, and the numbers and the goal."""

    slot: Slot
    gold: str
    numbers: tuple[int, ...]
    goal: Fraction


def _puzzle(target: Target) -> _Puzzle | None:
    """The puzzle of a row whose right answer is a term out of the numbers that the row, or else the prompt, gives."""
    slot = slot_of(target)
    term = term_of(slot.gold) if slot else None
    if slot is None or term is None:
        return None
    named = [int(one) for one in re.findall(r"(?<![\w.])\d{1,6}(?![\w.]*\d)", target.prompt)]
    given = any(
        isinstance(value, (list, tuple)) and all(type(n) is int for n in value) and sorted(value) == sorted(term.operands)
        for value in target.case.row.values()
    )
    if not given and Counter(term.operands) - Counter(named):
        return None
    if term.value.denominator != 1 or int(term.value) not in named:
        return None  # a question such as "what is 3 + 4, written out" has no goal
    return _Puzzle(slot, slot.gold, term.operands, term.value)


def _puzzles(build: Callable[[Target, _Puzzle], Iterator[str | Try]], fair: float = FAIR) -> Build:
    """A builder of terms, those aside that keep all the rules."""

    def built(target: Target) -> Iterator[Try]:
        puzzle = _puzzle(target)
        for made in dict.fromkeys(build(target, puzzle)) if puzzle else ():
            if isinstance(made, Try):
                yield made
            elif made and not alike(made, puzzle.gold):
                yield from (replace(one, fair=max(one.fair, fair)) for one in puzzle.slot.fill([made]))

    return built


def _again(target: Target, puzzle: _Puzzle) -> Iterator[str]:
    if _ONCE.search(target.prompt):
        for number in (max(puzzle.numbers), min(puzzle.numbers)):
            yield f"{puzzle.gold} + {number} - {number}"
            yield f"({puzzle.gold}) * {number} / {number}" if number else ""
        twice = (*puzzle.numbers, max(puzzle.numbers))
        yield made_of(twice, puzzle.goal) if len(twice) <= 5 else ""


def _left_out(target: Target, puzzle: _Puzzle) -> Iterator[str]:
    if _ALL.search(target.prompt) and not _SOME.search(target.prompt):
        for many in range(2, len(puzzle.numbers)):
            for some in combinations(puzzle.numbers, many):
                yield made_of(some, puzzle.goal)


def _foreign(_: Target, puzzle: _Puzzle) -> Iterator[str]:
    goal, numbers = int(puzzle.goal), puzzle.numbers
    if goal in numbers or {goal - 1, 1} <= set(numbers) or 0 in numbers:
        return
    yield from (f"{goal - 1} + 1", f"{goal}", f"{goal} * 1", f"{goal} + 0")
    yield f"{goal} + 0 * ({' + '.join(map(str, numbers))})"
    yield f"{goal} + {' + '.join(map(str, numbers))} - {' - '.join(map(str, numbers))}"


def _glued(_: Target, puzzle: _Puzzle) -> Iterator[str]:
    """The right digits in other numbers: two written as one (1 and 2 as 12), and last digits exchanged (44 + 19 as 49 + 14)."""
    numbers = puzzle.numbers
    for i, j in combinations(range(len(numbers)), 2):
        rest = tuple(n for k, n in enumerate(numbers) if k not in (i, j))
        a, b = numbers[i], numbers[j]
        if a % 10 != b % 10 and a >= 10 and b >= 10:
            yield made_of((a - a % 10 + b % 10, b - b % 10 + a % 10, *rest), puzzle.goal)
        for pair in (f"{numbers[i]}{numbers[j]}", f"{numbers[j]}{numbers[i]}"):
            if rest and not pair.startswith("0"):
                yield made_of((int(pair), *rest), puzzle.goal)


def _value_off(_: Target, puzzle: _Puzzle) -> Iterator[str | Try]:
    """The right numbers with another value: near ones beside others twice as far off, for closeness may be paid, and far ones."""
    numbers, goal = puzzle.numbers, puzzle.goal
    for off in (1, -1) if len(numbers) <= 4 else ():
        near, further = made_of(numbers, goal + off), made_of(numbers, goal + 2 * off)
        if near and further:
            yield replace(puzzle.slot.puts[0](near), control=puzzle.slot.puts[0](further).answer, fair=FAIR)
    for sign in (" + ", " * ", " - "):
        term = term_of(text := sign.join(map(str, numbers)))
        if term and abs(term.value - goal) > abs(goal) / 2:
            yield text


def _operations(strict: bool) -> Callable[[Target, _Puzzle], Iterator[str]]:
    def build(target: Target, puzzle: _Puzzle) -> Iterator[str]:
        if bool(_FOUR.search(target.prompt)) == strict and not _MORE.search(target.prompt) and len(puzzle.numbers) <= 4:
            yield from (made_of(puzzle.numbers, puzzle.goal, more) for more in MORE)

    return build


def _rewritten(target: Target) -> Iterator[Try]:
    puzzle = _puzzle(target) if target.form.kind != "json" else None
    if puzzle:
        body = ast.parse(plain(puzzle.gold), mode="eval").body
        turned = _turned(body)
        for text in (puzzle.gold.replace(" ", ""), f"({puzzle.gold})", turned):
            if text != puzzle.gold and alike(text, puzzle.gold):
                yield Try(target.form.wrap(text))


def _turned(node: ast.AST) -> str:
    """A term with the two sides of each sum and product changed round."""
    if not isinstance(node, ast.BinOp):
        return ast.unparse(node)
    sign = OPERATIONS[type(node.op)][0]
    left, right = (f"({_turned(side)})" if isinstance(side, ast.BinOp) else _turned(side) for side in (node.left, node.right))
    return f"{right} {sign} {left}" if isinstance(node.op, (ast.Add, ast.Mult)) else f"{left} {sign} {right}"


RULES = "Parse the term, count its operands against the given numbers, and work out its value with the allowed operations only."


def _attack(name: str, build: Build, flaw: str, *, contested: bool = False) -> Attack:
    return Attack(f"term.{name}", "number", build, flaw, RULES, "public rewards for countdown", kinds=KINDS, contested=contested)


ATTACKS = (
    _attack("again", _puzzles(_again), "A term that uses a number more often than it is given is paid."),
    _attack("left_out", _puzzles(_left_out), "A term that leaves numbers out is paid, although all must be used."),
    _attack("foreign", _puzzles(_foreign), "A term of numbers that were not given is paid, down to the goal itself."),
    _attack("glued", _puzzles(_glued), "The right digits are paid in other numbers: 1 and 2 written as 12."),
    _attack("value", _puzzles(_value_off), "A term of the right numbers is paid although it comes to another value."),
    _attack(
        "operations", _puzzles(_operations(True)), "A power, a floor division or a remainder is paid, which the prompt does not allow."
    ),
    _attack("operation", _puzzles(_operations(False)), "A power, a floor division or a remainder is paid.", contested=True),
    control("term", _rewritten, KINDS, "the same term in another order, with brackets or without spaces", RULES),
)
