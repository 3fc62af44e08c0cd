"""What training climbs: the right place, then the right name for what is wrong there; a false alarm costs."""

from __future__ import annotations

from earnest.rewards.json import parse_strict
from earnest.rewards.verifier import Attempt, Score, Verifier, as_reward, invalid_task, right
from earnest.task import Row
from earnest.tasks.code_review.mutate import CATEGORIES

CLEAN = "none"
ALARM = -0.5  # a place where nothing is wrong, or an answer that is none
PLACE = 0.6  # of the marks, for the place alone
NEAR = 0.5  # of that, one line beside


def _judge(attempt: Attempt, row: Row) -> Score:
    lines, category = row["lines"], row["category"]
    if category not in (*CATEGORIES, CLEAN) or (category == CLEAN) != (not lines):
        return invalid_task("the row's category and lines do not fit")
    answer = _answer(attempt.text)
    if answer is None:
        return Score(ALARM, reasons=("no answer in the required form",))
    line, named = answer
    if line is None:
        return right(line=line, category=named) if not lines else Score(0.0, reasons=("missed",))
    away = min(abs(line - lines[0]), abs(line - lines[1])) if lines and not lines[0] <= line <= lines[1] else 0
    if not lines or away > 1:
        return Score(ALARM, reasons=("a false alarm",))
    if away:
        return Score(PLACE * NEAR, reasons=("one line beside",))
    return right(line=line, category=named) if named == category else Score(PLACE, reasons=("another category",))


def _answer(text: str) -> tuple[int | None, str] | None:
    """Line and category of an answer in the required form: both or neither say that something is wrong."""
    value = parse_strict(text).value
    if not isinstance(value, dict) or value.keys() != {"line", "category"}:
        return None
    line, category = value["line"], value["category"]
    if line is None:
        return (None, CLEAN) if category == CLEAN else None
    good = type(line) is int and line >= 1 and category in CATEGORIES if isinstance(category, str) else False
    return (line, category) if good else None


finding = Verifier("finding", _judge, ("lines", "category"), (ALARM, 1.0))
finding_reward = as_reward(finding)
