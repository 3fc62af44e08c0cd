"""Whether two trees of mathematics are the same answer: shapes piece by piece, terms by math-verify.

Shapes (lists, sets, pairs and intervals, matrices, relations) are compared here, strictly: as many elements, the same brackets, the
order where there is one. What is left are single terms. Where both are plain fractions nothing more is needed; everything else is
written as LaTeX that leaves no choice of reading, parsed and compared by math-verify on SymPy, and held against the numbers
themselves: math-verify 0.9 rounds at a fixed number of decimals, so that 2^-70 and 2^-71 are equal to it, takes 9% for 9, an
open interval for a pair, and two equations without real solutions for one. `terms` runs in a worker process only.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from earnest.rewards.expression import SCALARS, Tree
from earnest.rewards.forms import isolated, rational

Compare = Callable[[str, Tree, Tree, float], bool]  # question, reference, answer, tolerance

NAMED = ("=", "in")  # x = 5 and x in (0, 1) name their value
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
MANY = 50  # elements of an unordered answer that are compared


class UndecidedError(Exception):
    """Takes more than comparing fractions."""


def same(gold: Tree, answer: Tree, tolerance: float, compare: Compare) -> bool:
    """Whether an answer is the reference.

    Args:
        gold: The reference.
        answer: The answer.
        tolerance: Relative, where one of two terms is written as a decimal and the reference is no integer.
        compare: Compares terms: "equal", "multiple" (a number other than 0 apart), "positive" (a positive number apart).
    """
    if gold[0] != "relation" and _names_value(answer):
        answer = answer[3]
    elif answer[0] != "relation" and _names_value(gold):
        gold = gold[3]
    if gold == answer:
        return True
    if gold[0] in SCALARS and answer[0] in SCALARS:
        return compare("equal", gold, answer, tolerance)
    kinds = {"list": "set"}
    if kinds.get(gold[0], gold[0]) != kinds.get(answer[0], answer[0]):
        return False
    if gold[0] == "relation":
        return _same_relation(gold, answer, tolerance, compare)
    if gold[0] in ("list", "set"):
        names = {element[1] for element in gold[1:] if _names_value(element)}
        if len(names) > 1 and any(element[0] != "relation" for element in answer[1:]):
            return False  # which of x and y is 2 is part of the answer
        return _same_set(list(gold[1:]), list(answer[1:]), tolerance, compare)
    if gold[0] == "union":
        return _same_set(_members(gold), _members(answer), tolerance, compare)
    return _in_order(gold[1:], answer[1:], tolerance, compare)


def _names_value(tree: Tree) -> bool:
    return tree[0] == "relation" and len(tree) == 4 and tree[1][0] == "var" and tree[2] in NAMED


def _members(tree: Tree) -> list[Tree]:
    return [member for part in tree[1:] for member in _members(part)] if tree[0] == "union" else [tree]


def _in_order(gold: Any, answer: Any, tolerance: float, compare: Compare) -> bool:
    """Parts one by one; a part that is a string (a bracket, digits, words) must be the same string."""
    if len(gold) != len(answer):
        return False
    return all(
        g == a if isinstance(g, str) or isinstance(a, str) else same(g, a, tolerance, compare) for g, a in zip(gold, answer, strict=True)
    )


def _same_set(gold: list[Tree], answer: list[Tree], tolerance: float, compare: Compare) -> bool:
    """One to one, in any order."""
    if len(gold) != len(answer) or len(gold) > MANY:
        return False
    left = list(answer)
    for element in gold:
        # what is written alike first, which costs nothing
        match = next((a for a in sorted(left, key=lambda a: a != element) if same(element, a, tolerance, compare)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same_relation(gold: Tree, answer: Tree, tolerance: float, compare: Compare) -> bool:
    if len(gold) != len(answer) or (isolated(gold) and not isolated(gold) & isolated(answer)):
        return False  # where y is asked for, what x is in y is the question once more
    signs = answer[2::2]
    if gold[2::2] == signs and _in_order(gold[1::2], answer[1::2], tolerance, compare):
        return True
    if all(sign in FLIPPED for sign in signs):
        flipped = [FLIPPED[sign] for sign in reversed(signs)]
        if list(gold[2::2]) == flipped and _in_order(gold[1::2], answer[1::2][::-1], tolerance, compare):
            return True
    if len(gold) != 4 or any(side[0] not in SCALARS for side in (gold[1], gold[3], answer[1], answer[3])):
        return False
    difference = [("add", tree[1], ("neg", tree[3])) for tree in (gold, answer)]
    if gold[2] == answer[2] and gold[2] in FLIPPED:
        return compare("multiple" if gold[2] in ("=", "!=") else "positive", *difference, 0.0)
    if gold[2] == FLIPPED.get(answer[2]):
        return compare("positive", difference[0], ("neg", difference[1]), 0.0)
    return False


def fractions(question: str, gold: Tree, answer: Tree, tolerance: float) -> bool:
    """Compare two terms that are plain fractions.

    Raises:
        UndecidedError: One is more than that.
    """
    left, right = rational(gold), rational(answer)
    if question != "equal" or left is None or right is None:
        raise UndecidedError
    return left == right or (_inexact(gold, answer) and abs(left - right) <= Fraction(tolerance) * abs(left))


def _inexact(gold: Tree, answer: Tree) -> bool:
    """Whether a tolerance applies: something is written as a decimal, and the reference is no integer."""
    value = rational(gold)
    return (_has_decimal(gold) or _has_decimal(answer)) and (value is None or value.denominator != 1)


def _has_decimal(tree: Tree) -> bool:
    return (tree[0] == "num" and tree[2] == "decimal") or any(_has_decimal(part) for part in tree[1:] if isinstance(part, tuple))


def latex(tree: Tree, names: dict[str, str]) -> str:
    """A term in LaTeX that can be read in one way only: every operand in parentheses, every variable under a plain name."""
    kind, parts = tree[0], tree[1:]
    if kind == "num":
        value = Fraction(parts[0])
        return str(value.numerator) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    if kind == "var":
        return names.setdefault(parts[0], f"x_{{{len(names) + 1}}}")
    if kind == "const":
        return {"pi": r"\pi", "e": "e", "i": "i", "oo": r"\infty"}[parts[0]]
    if kind == "root" and parts[1][0] == "neg" and rational(parts[0]) is not None and rational(parts[0]) % 2 == 1:
        return latex(("neg", ("root", parts[0], parts[1][1])), names)  # the real root, where SymPy takes the principal one
    if kind == "call":
        written = [latex(part, names) for part in parts[1:]]
        return _call(parts[0], written)
    written = [f"({latex(part, names)})" for part in parts]
    if kind == "add":
        return "+".join(written)
    if kind == "mul":
        return r"\cdot ".join(written)
    if kind == "neg":
        return f"-{written[0]}"
    if kind == "percent":
        return rf"\frac{{{written[0]}}}{{100}}"
    if kind == "degree":
        return rf"\frac{{{written[0]}\cdot \pi}}{{180}}"
    first, second = written
    return {"div": rf"\frac{{{first}}}{{{second}}}", "pow": f"{first}^{{{second}}}", "root": rf"\sqrt[{first}]{{{second}}}"}[kind]


def _call(name: str, written: list[str]) -> str:
    if name == "factorial":
        return f"({written[0]})!"
    if name == "abs":
        return f"|{written[0]}|"
    if name in ("floor", "ceil"):
        return rf"\l{name} {written[0]} \r{name}"
    if name == "binom":
        return rf"\binom{{{written[0]}}}{{{written[1]}}}"
    if name == "log" and len(written) == 2:
        return rf"\log_{{{written[1]}}}({written[0]})"
    return rf"\{name}({','.join(written)})"


def compare_whole(gold: Any, answer: Any, tolerance: float) -> bool:
    """Compare two trees that came as JSON. For a worker process: may take any time and memory."""
    return same(_tuples(gold), _tuples(answer), tolerance, terms)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def terms(question: str, gold: Tree, answer: Tree, tolerance: float) -> bool:
    """Compare two terms by math-verify, and by their numbers."""
    try:
        return fractions(question, gold, answer, tolerance)
    except UndecidedError:
        pass
    import math_verify
    import sympy

    names: dict[str, str] = {}
    left, right = (_parsed(latex(tree, names)) for tree in (gold, answer))
    if left is None or right is None or any(side.has(sympy.oo, sympy.zoo, sympy.nan) for side in (left, right)):
        return False  # infinite terms are the same only where they are written alike
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    if question == "equal":
        if not symbols and _inexact(gold, answer):
            return _near(left, right, tolerance)
        return _agree(left, right, symbols) and bool(math_verify.verify(left, right, timeout_seconds=None))
    if _agree(left, 0 * left, symbols) or _agree(right, 0 * right, symbols):
        return False  # true everywhere or nowhere
    ratio = sympy.simplify(left / right)
    if ratio.free_symbols or not _agree(left, ratio * right, symbols):
        return False
    return bool(ratio.is_positive) if question == "positive" else ratio.is_zero is False


def _parsed(written: str) -> Any:
    """The SymPy expression of our own LaTeX, nothing of which is lost or guessed at; None where math-verify cannot read it."""
    import math_verify
    import sympy
    from latex2sympy2_extended import NormalizationConfig

    plain = NormalizationConfig(basic_latex=False, units=False, malformed_operators=False, nits=False, boxed="none", equations=False)
    config = math_verify.LatexExtractionConfig(boxed_match_priority=-1, normalization_config=plain)
    found = math_verify.parse(f"$${written}$$", [config], fallback_mode="no_fallback", parsing_timeout=None)
    if len(found) != 1 or not isinstance(found[0], sympy.Expr):
        return None
    # its assumptions about symbols follow the text of each side; here they must be the same on both
    known = {s: sympy.I if s.name == "i" else sympy.Symbol(s.name, real=True) for s in found[0].free_symbols}
    return found[0].xreplace(known)


def _near(left: Any, right: Any, tolerance: float) -> bool:
    a, b = left.evalf(30), right.evalf(30)
    return bool(a.is_number and b.is_number and a.is_finite and b.is_finite and abs(a - b) <= tolerance * abs(a))


def _agree(left: Any, right: Any, symbols: list[Any]) -> bool:
    """Whether two terms have the same value to 50 digits, at a few places if they have variables, of which one must be defined."""
    import sympy

    defined = 0
    for start in (3, 7, 11) if symbols else (0,):
        place = {symbol: sympy.Rational(start + 2 * index, 5 + index) for index, symbol in enumerate(symbols)}
        a, b = (side.xreplace(place).evalf(60) for side in (left, right))
        if not (a.is_finite and b.is_finite):
            continue
        # against nothing there is no relative difference, only what is left over of a cancellation
        scale = max(abs(a), abs(b)) if a != 0 and b != 0 else 1
        if not abs(a - b) <= sympy.Float("1e-50") * scale:
            return False
        defined += 1
    return defined > 0
