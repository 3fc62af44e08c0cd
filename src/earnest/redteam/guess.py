"""In what form a reward pays right answers, found by asking it: forms that its prompts name, and the usual ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from earnest.errors import UserError
from earnest.evidence import Case
from earnest.redteam.ask import Asker
from earnest.redteam.shapes import gold_of
from earnest.redteam.way import THOUGHT, Way, readings_of
from earnest.task import Answer, Row, Task

PROBED = 6  # rows on which forms are tried
PROSE = 4  # words from which on a text is prose
UNRELATED = "Grey herons stand in the shallow water at dawn."
FEWEST = 1 / 3  # share of those rows on which right answers must be paid: a reward may refuse some, a form that is wrong most
MARKS = 6  # most words with a colon that are tried as marks
# Barest first: where two earn the same, the first is taken.
FORMS = (
    "{}",
    "\\boxed{{}}",
    "<answer>{}</answer>",
    "<think></think><answer>{}</answer>",
    f"<think>\n{THOUGHT}\n</think>\n<answer>\n{{}}\n</answer>",
    f"<reasoning>\n{THOUGHT}\n</reasoning>\n<answer>\n{{}}\n</answer>\n",
    f"<think>{THOUGHT}</think>\\boxed{{{{}}}}",
    "#### {}",
    "Answer: {}",
    "Final answer: {}",
    "The answer is {}.",
    '{"answer": {}}',
    "```python\n{}\n```",
    "```json\n{}\n```",
)
LAST_LINE = f"{THOUGHT}\n{{}}"
_PAIR = re.compile(r"<(\w+)>(.*?)</\1>", re.DOTALL)
_FENCE = re.compile(r"```(\w+)")
_MARK = re.compile(r"(?<!\w)([A-Z][\w ]{0,30}:)(?=\s|$|[\"'`”’<\[{])", re.MULTILINE)
_QUOTED = re.compile(r"(?<=[\"'`“‘])([A-Z][\w ]{0,30}:)")
_HELD = re.compile(r"(?<!\w)([A-Z][\w ]{0,30}:)(?= ?(?:<\w|\[\w|\{\w|\.\.\.|…|[XN]\b))")
_ORDER = re.compile(
    r"\bin (?!any )(?:\w+ ){0,2}order\b|\border(?:ed|ing)? (?:by|from|matters)|\b(?:rank|sort|sequence|chronolog|steps\b)", re.IGNORECASE
)
_LAST = re.compile(r"\b(?:last|final) line\b", re.IGNORECASE)


def way_of(tasks: Sequence[Task], rows: Sequence[Row], gold: str, form: str | None = None) -> tuple[Task, Way]:
    """The first of some tasks, the same but for how they call the reward, that pays right answers, and the form in which it pays most.

    Args:
        tasks: The likeliest first.
        rows: All rows.
        gold: The column of the right answer.
        form: The only form to try; None tries those that the prompts name, and the usual ones.

    Raises:
        UserError: On nearly all rows right answers earn no more than an empty one, in each form that was tried.
    """
    errors = []
    for task in tasks:
        try:
            return task, _best_paid(task, rows, gold, form)
        except UserError as error:
            errors.append(error)
    raise errors[0]


def forms_in(prompts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The forms that all of some prompts name: pairs of tags, fences, a mark such as `Answer:`, the last line.

    Returns:
        Those that the prompts ask for, and those that may belong to what they are about.
    """

    def shared(pattern: re.Pattern[str]) -> list[str]:
        found = [dict.fromkeys(pattern.findall(prompt)) for prompt in prompts]
        return [name for name in found[0] if all(name in other for other in found)] if found else []

    # A pair that holds the same in every prompt is a form; one that holds something else in each holds the question.
    tags = list(dict.fromkeys(name for name, _ in shared(_PAIR)))[-MARKS:]
    asked = [f"<{name}>{{}}</{name}>" for name in tags]
    for before, name in combinations(tags, 2):
        asked += [
            f"<{before}>{THOUGHT}</{before}><{name}>{{}}</{name}>",
            f"<{before}>\n{THOUGHT}\n</{before}>\n<{name}>\n{{}}\n</{name}>",
        ]
    asked += [f"{mark} {{}}" for mark in [*shared(_QUOTED), *shared(_HELD)][-MARKS:]]
    if prompts and all(_LAST.search(prompt) for prompt in prompts):
        asked.append(LAST_LINE)
    fences = [f"```{language}\n{{}}\n```" for language in shared(_FENCE)]
    return asked, fences + [f"{mark} {{}}" for mark in shared(_MARK)[-MARKS:]]


def _best_paid(task: Task, rows: Sequence[Row], gold: str, given: str | None) -> Way:
    different: dict[str, Row] = {}
    for row in rows:
        if gold_of(row, gold) not in (None, "", []):
            different.setdefault(str(gold_of(row, gold)), row)
    cases = [Case("", "", row, task.prompt(row), "", "", None) for row in list(different.values())[:PROBED]]
    asked = ["\n".join(str(m.get("content") or "") for m in case.prompt) for case in cases]
    first, then = forms_in(asked)
    if any("\n" in str(gold_of(row, gold)) for row in rows):
        first = [one for one in first if one != LAST_LINE]
    forms = [given] if given else list(dict.fromkeys([*first, "{}", *then, *FORMS]))  # where two earn the same, the first is taken
    ways = [Way(form, gold, reading) for reading in readings_of([gold_of(row, gold) for row in rows]) for form in forms]
    problem = ""
    with Asker(task, cases) as asker:  # a reward may hang or end the process on a form that is not its own
        nothing = [none or 0.0 for none in _earned(asker, ["" for _ in cases])[0]]
        best, most, rows_paid = None, sum(nothing), 0
        for way in ways:
            marks, why = _earned(asker, [way.oracle(case.row) for case in cases])
            problem = problem or why
            earned = [none if mark is None else mark for mark, none in zip(marks, nothing, strict=True)]
            # One that pays an empty answer as well as the right one is one to audit.
            as_well = way is ways[0] and min(nothing) > 0 and sum(earned) >= most
            if sum(earned) > most + 1e-9 or (as_well and not why):
                best, most = way, sum(earned)
                rows_paid = sum(mark > none + 1e-9 for mark, none in zip(earned, nothing, strict=True))
    if best is None or (min(nothing) <= 0 and FEWEST * len(cases) > rows_paid):
        tried = ", ".join(repr(form) for form in forms)
        few = f"on {rows_paid} of {len(cases)} rows only, written as {best.form!r}" if best else "in no form"
        raise UserError(
            f"The right answers (column '{gold}') earn more than an empty one {few}; tried: {tried}. "
            + (f"The first trouble was: {problem} " if problem else "")
            + "Give the form your reward expects, such as --form '<answer>{}</answer>', or another --gold."
        )
    return replace(best, free=_free(task, cases, best), unordered=_unordered(task, cases, best, asked))


def _free(task: Task, cases: Sequence[Case], way: Way) -> frozenset[str]:
    """Fields of prose whose words the reward does not look at: how they are worded is then no question of right and wrong."""
    golds = [way.cores(case.row)[0] for case in cases]
    if not all(isinstance(gold, Mapping) for gold in golds):
        return frozenset()
    prose = {key for key in golds[0] if all(_is_prose(gold.get(key)) for gold in golds)}
    with Asker(task, cases) as asker:
        right, _ = _earned(asker, [way.oracle(case.row) for case in cases])

        def unmoved(key: str, say: Callable[[str], str]) -> bool:
            return _earned(asker, [way.written({**gold, key: say(gold[key])}) for gold in golds])[0] == right

        free = {key for key in prose if unmoved(key, lambda text: text.rpartition(" ")[0]) and unmoved(key, lambda _: UNRELATED)}
    return frozenset(free if len(free) < len(golds[0]) else ())


def _unordered(task: Task, cases: Sequence[Case], way: Way, prompts: Sequence[str]) -> bool:
    """Whether lists in JSON may stand in any order: the reward takes them turned round, and no prompt speaks of an order."""
    golds = [way.cores(case.row)[0] for case in cases]
    if golds == [_turned(gold) for gold in golds] or any(_ORDER.search(prompt) for prompt in prompts):
        return False
    with Asker(task, cases) as asker:
        (right, _), (turned, _) = (_earned(asker, list(map(way.written, them))) for them in (golds, [_turned(gold) for gold in golds]))
        return right == turned


def _turned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _turned(item) for key, item in value.items()}
    return [_turned(item) for item in reversed(value)] if isinstance(value, (list, tuple)) else value


def _is_prose(value: Any) -> bool:
    """Whether a field holds a sentence rather than a name or a label."""
    return isinstance(value, str) and (len(value.split()) >= PROSE or (" " in value and value.rstrip()[-1:] in (".", "!", "?")))


def _earned(asker: Asker, answers: Sequence[Answer]) -> tuple[list[float | None], str]:
    """What each answer earns, None where there is no mark, and why the reward broke, if it did."""
    paid = asker.ask([(0, answers[0])])  # alone: one that hangs, hangs once
    if not paid[0].faults:
        paid = asker.ask(list(enumerate(answers)))
    broken = [f"The reward '{name}' {why}." if why[0].islower() else why for one in paid for name, (_, why) in one.faults.items()]
    return ([None] * len(answers) if broken else [one.total for one in paid]), (broken[0] if broken else "")
