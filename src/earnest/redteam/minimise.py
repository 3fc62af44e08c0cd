"""The smallest answer that still shows a hole: what is left when all is taken away that the points do not need."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from earnest.redteam.ask import Asker, Paid
from earnest.redteam.findings import Outcome
from earnest.redteam.mutate import opened
from earnest.redteam.mutate_data import turns_of
from earnest.redteam.worth import hole, same
from earnest.rewards.json import parse_strict
from earnest.task import Answer

if TYPE_CHECKING:
    from earnest.redteam.ground import Ground

CALLS = 60  # for one answer
SHORT = 12  # characters that anybody can read at once

_UNIT = re.compile(r"\w+|\s+|[^\w\s]")


def smallest(outcome: Outcome, ground: Ground, asker: Asker, calls: int = CALLS) -> tuple[Answer, Paid]:
    """An answer with nothing in it that could be left out, and what it earned: paid no less, and showing the same hole.

    Args:
        outcome: Of an answer that the check refuses; another, or one that was caught otherwise, is given back as it is.
        ground: The rows.
        asker: Asks the rewards.
        calls: Answers that may be scored.
    """
    first = outcome.tried.answer
    if not outcome.refused or outcome.paid.total is None or outcome.ran or outcome.control is not None or len(str(first)) <= SHORT:
        return first, outcome.paid
    row, shows = ground.position(outcome.target), hole(outcome)
    best: list[tuple[Answer, Paid]] = [(first, outcome.paid)]
    left = calls

    def holds(answers: Sequence[Answer]) -> list[bool]:
        nonlocal left
        answers = answers[: max(left, 0)]
        left -= len(answers)
        good = []
        for answer, paid in zip(answers, asker.ask([(row, answer) for answer in answers]), strict=True):
            now = replace(outcome, tried=replace(outcome.tried, answer=answer), paid=paid)
            # Less of the right answer in it would be another hole, and the sentence that is said of this one untrue.
            still = not same(outcome.target, answer) if shows == "worthless" else hole(now) == shows
            held = paid.total is not None and paid.total >= outcome.paid.total - 1e-9 and now.refused and still
            good.append(held)
            if held and len(str(answer)) < len(str(best[0][0])):
                best[0] = answer, paid
        return good

    for units, joined in _ways(outcome, lambda: best[0][0]):
        _reduce(units(), joined, holds)
        if left <= 0:
            break
    return best[0]


Units = Callable[[], list[Any]]
Joined = Callable[[list[Any]], Answer]


def _ways(outcome: Outcome, best: Callable[[], Answer]) -> list[tuple[Units, Joined]]:
    """How an answer can be taken apart and put together, the coarsest first. Each starts from what the last one left."""
    if isinstance(outcome.tried.answer, list):
        return [(lambda: turns_of(best()), lambda turns: [message for turn in turns for message in turn])]
    target = outcome.target
    ways: list[tuple[Units, Joined]] = []
    draft = opened(target, outcome.tried.answer)
    parsed = parse_strict(draft.core)
    if not parsed.reason and isinstance(parsed.value, dict):
        ways.append(
            (lambda: list(parsed.value.items()), lambda items: draft.before + json.dumps(dict(items), ensure_ascii=False) + draft.after)
        )
    ways.append((lambda: _UNIT.findall(str(best())), "".join))
    ways.append((lambda: list(str(best())) if len(str(best())) <= 80 else [], "".join))
    return ways


def _reduce(units: list[Any], joined: Joined, holds: Callable[[Sequence[Answer]], list[bool]]) -> None:
    """Leave out halves, quarters and so on while the rest holds, after Zeller and Hildebrandt's delta debugging (2002)."""
    size = (len(units) + 1) // 2
    while units and size:
        spans = [(start, start + size) for start in range(0, len(units), size)]
        candidates = [units[:start] + units[stop:] for start, stop in spans]
        good = holds([joined(candidate) for candidate in candidates])
        free = [span for span, held in zip(spans, good, strict=False) if held]
        if not free:
            size = size // 2 if len(good) == len(spans) else 0  # out of calls
            continue
        rest = [unit for index, unit in enumerate(units) if not any(start <= index < stop for start, stop in free)]
        together = len(free) > 1 and any(holds([joined(rest)]))
        units = rest if together else candidates[spans.index(free[0])]
        size = min(size, (len(units) + 1) // 2)
