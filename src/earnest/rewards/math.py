"""Maths: one asserted answer after the reasoning, compared as what it means and not as it is written.

In four steps, of which only the last can take long: the one asserted answer is found (`asserted`), read whole by a grammar that
evaluates nothing (`expression`), refused where it leaves work undone that the reference does not (`forms`), and compared
(`symbolic`): fractions here, everything else by math-verify in a worker process that is killed at the deadline (`process`).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from typing import Any, Literal

from earnest.errors import UserError
from earnest.rewards.asserted import Place, find_asserted
from earnest.rewards.expression import SCALARS, Tree, num, read_expression
from earnest.rewards.forms import FACTORED, has_variable, is_quotient, undone
from earnest.rewards.latex import UnreadableError
from earnest.rewards.number import (
    DOLLARS,
    Format,
    after_marker,
    check_options,
    numeral,
    read_gold,
    read_number,
    short,
    strip_units,
    strip_wrapping,
)
from earnest.rewards.process import Pool, StartError, WorkerError
from earnest.rewards.symbolic import UndecidedError, fractions, same
from earnest.rewards.verifier import Attempt, Score, Verifier, infra_error, invalid_task, right, wrong
from earnest.task import Row

WORKERS = Pool("earnest.rewards.math_worker", "compare_whole")  # shared by all; nothing runs before it is needed

_TEXT_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*([^{}]*?)\.?\s*\}\Z")
_KEPT = re.compile(r"=|°|\\circ|\\degree")


def math(
    gold: str = "answer",
    *,
    place: Place = "any",
    marker: str = "####",
    tolerance: float = 1e-6,
    decimal: Literal[".", ","] = ".",
    percent: bool = False,
    currency: Sequence[str] = DOLLARS,
    units: Sequence[str] = (),
    deadline: float = 5.0,
    pool: Pool = WORKERS,
    name: str = "math",
) -> Verifier:
    """A verifier of mathematics in LaTeX or plain characters: the one answer that is asserted equals the reference.

    Rule: numbers, terms, equations, inequalities, lists, sets, pairs, intervals, unions and matrices are equal if they have the same
    shape and their terms are equal by math-verify and by their values to 50 digits. An answer is refused if it leaves work undone that
    the reference does not (17 x 23 for 391, an unexpanded product for an expanded one, 3x = 15 for x = 5, degrees for radians). Where
    the reference is a product of sums, so must the answer be; where it has a denominator, (n^2 + n)/2 is n(n + 1)/2, but not the other
    way round. `x = 5` is 5 unless the reference names something else or several variables. Yes, no, true and false are words. Lists
    without brackets and sets have no order; (a, b) is a pair or an open interval, and no set. Equations are equal if their differences
    of sides are a constant factor apart; one solved for y wants one solved for y. Letters are told apart by case; e and i are the
    constants.

    Args:
        gold: The column with the reference: a number, LaTeX, or a worked solution that ends in a line with the marker.
        place: Where the answer stands, as for `number`.
        marker: What begins the line of an answer.
        tolerance: Relative. Applied only where the answer or the reference is written with a decimal sign and the reference is no
            integer, so that 4.3589 is the root of 19 and 42.00001 is not 42.
        decimal: "." or "," as the decimal sign.
        percent: Whether the reference counts per cent, as for `number`.
        currency: Signs and codes a number may have; () for none.
        units: Names of the one unit the answer may have; one in the reference must be among them, but a degree sign needs no name.
        deadline: Seconds one comparison may take; later, the answer scores nothing.
        pool: Worker processes.
        name: As it appears in metrics.

    Raises:
        UserError: An unknown option, a tolerance or deadline that is none, or math-verify is not installed.
    """
    check_options(place, decimal, {"tolerance": tolerance, "deadline": deadline})
    if importlib.util.find_spec("math_verify") is None:
        raise UserError("The maths verifier needs math-verify. Install it: pip install 'math-verify[antlr4_13_2]'.")
    form = Format(decimal, True, percent, tuple(currency), tuple(units))

    def judge(attempt: Attempt, row: Row) -> Score:
        reference = _read_gold(row[gold], form, marker)
        if reference is None:
            return invalid_task(f"the reference is no mathematics that can be read: {short(row[gold])}")
        asserted = find_asserted(attempt.text, lambda raw: read_answer(raw, form), place, marker, numeral(form))
        seen = {"answer": short(asserted.raw)}
        if asserted.reason:
            return wrong(asserted.reason, **seen)
        return _compared(reference, asserted.value, tolerance, deadline, pool, seen)

    return Verifier(name, judge, (gold,), slow=True)


def _compared(reference: Tree, answer: Tree, tolerance: float, deadline: float, pool: Pool, seen: dict[str, str]) -> Score:
    """The score of an answer that could be read. Whatever goes wrong in a worker, but its start, the answer brought about."""
    reason = _left_undone(reference, answer)
    if reason:
        return wrong(reason, **seen)
    try:
        equal = _equal(reference, answer, tolerance, deadline, pool)
    except TimeoutError:
        return wrong(f"comparing took longer than {deadline:g} s", timeout=True, **seen)
    except WorkerError:
        return wrong("the answer cannot be compared", **seen)
    except StartError as error:
        return infra_error(str(error))
    return right(**seen) if equal else wrong("not equal to the reference", **seen)


def _read_gold(value: Any, form: Format, marker: str) -> Tree | None:
    if isinstance(value, str):
        return read_answer(after_marker(value, marker), form)
    number = read_gold(value, form)
    return None if number is None else num(number, "decimal" if isinstance(value, float) else "exact")


def read_answer(raw: str, form: Format) -> Tree | None:
    """The tree of an answer, in the one form in which it is compared; None where it cannot be read whole."""
    body = strip_wrapping(raw)
    if not _KEPT.search(body):  # a numeral with thousands, a percentage, a currency; a name and a degree sign are kept below
        number = read_number(body, form)
        if number is not None:
            return num(number, "decimal" if form.decimal in body else "exact")
    unit = _TEXT_UNIT.search(body)
    if unit and unit.group(1) in form.units:
        body = f"{body[: unit.start()]} {unit.group(1)}"
    try:
        return _settled(read_expression(strip_units(body, form)[0], form.decimal), form)
    except UnreadableError:
        return None


def _settled(tree: Tree, form: Format) -> Tree:
    """A tree without plus-minus, which stands for two values, and without the sign of a percentage where that is the unit."""
    if tree[0] in SCALARS:
        tree = tree[1] if tree[0] == "percent" and form.percent else tree
        return ("list", _signed(tree, True), _signed(tree, False)) if _has_pm(tree) else tree
    if tree[0] in ("list", "set"):
        parts = [_settled(part, form) for part in tree[1:]]
        flat = [element for part in parts for element in (part[1:] if part[0] == "list" else [part])]
        return (tree[0], *flat)
    return (tree[0], *(_settled(part, form) if isinstance(part, tuple) else part for part in tree[1:]))


def _has_pm(tree: Tree) -> bool:
    return tree[0] == "pm" or any(_has_pm(part) for part in tree[1:] if isinstance(part, tuple))


def _signed(tree: Tree, plus: bool) -> Tree:
    """One of the two values of a term with plus-minus."""
    parts = tuple(_signed(part, plus) if isinstance(part, tuple) else part for part in tree[1:])
    if tree[0] != "pm":
        return (tree[0], *parts)
    first, second = parts
    if not plus:
        second = second[1] if second[0] == "neg" else ("neg", second)
    return second if first == num("0") else ("add", *(first[1:] if first[0] == "add" else [first]), second)


def _left_undone(reference: Tree, answer: Tree) -> str:
    """What the answer leaves to be done that the reference does not, or ""."""
    expected, left = undone(reference), undone(answer)
    if left - expected:
        return f"the answer is left undone: {min(left - expected)}"
    # n(n + 1) is what factoring asks for; of a quotient, n(n + 1)/2, both forms are finished
    if FACTORED in expected - left and has_variable(reference) and reference[0] != "relation" and not is_quotient(reference):
        return "the answer is not factored as the reference is"
    return ""


def _equal(reference: Tree, answer: Tree, tolerance: float, deadline: float, pool: Pool) -> bool:
    if reference[0] == "degree":  # the reference says what it counts; the answer may leave the sign out
        reference, answer = reference[1], answer[1] if answer[0] == "degree" else answer
    try:
        return same(reference, answer, tolerance, fractions)
    except UndecidedError:
        return bool(pool.call(reference, answer, tolerance, deadline=deadline))
