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
from earnest.redteam.asked import SAID, besides, objects_in
from earnest.redteam.layout import slots_of
from earnest.redteam.listed import JOINED, asks_for_several, citing, in_order, joint, mark_of, parts
from earnest.redteam.shapes import GOLDS, columns_of, gold_of
from earnest.redteam.templates import columns_that_answer, in_pairs, templates_in
from earnest.redteam.way import CITING, THOUGHT, Way, numbers_of, readings_of
from earnest.redteam.wording import quoted
from earnest.rewards.json import parse_strict
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
    "```\n{}\n```",
)
LAST_LINE = f"{THOUGHT}\n{{}}"
_PAIR = re.compile(r"<(\w+)>(.*?)</\1>", re.DOTALL)
_FENCE = re.compile(r"```(\w+)")
_MARK = re.compile(r"(?<!\w)([A-Z][\w ]{0,30}:)(?=\s|$|[\"'`”’<\[{])", re.MULTILINE)
_QUOTED = re.compile(r"(?<=[\"'`“‘])([A-Z][\w ]{0,30}:)")
_HELD = re.compile(r"(?<!\w)([A-Z][\w ]{0,30}:)(?= ?(?:<\w|\[\w|\{\w|\.\.\.|…|[XN]\b))")
_BRACKETS = tuple(
    (left, right, re.compile(rf"{re.escape(left)}\w[\w ]{{0,20}}{re.escape(right)}"))
    for left, right in (("[[", "]]"), ("(", ")"), ("**", "**"))
)
_MARKER = re.compile(r"</?\w+>|\[/?[A-Z_]{2,}\]")  # <start_working_out>, </SOLUTION>, [ANSWER], [/ANSWER]
_CAPITALS = re.compile(r"(?<![\w<\[/])(?:[A-Z]{3,}(?: [A-Z]{2,})+|[A-Z]{4,})\b(?![\w>\]])")
_LAST = re.compile(r"\b(?:last|final)(?: non-?(?:empty|blank))? line\b", re.IGNORECASE)


def way_of(tasks: Sequence[Task], rows: Sequence[Row], gold: str, form: str | None = None) -> tuple[Task, Way, float]:
    """The first of some tasks, the same but for how they call the reward, that pays right answers, and how it pays most.

    Args:
        tasks: The likeliest first.
        rows: All rows.
        gold: The column of the right answer.
        form: The only form to try; None tries those that the prompts name, and the usual ones.

    Returns:
        The task, the way, and what right answers earn in it beyond empty ones.

    Raises:
        UserError: On nearly all rows right answers earn no more than an empty one, in each form that was tried.
    """
    errors = []
    for task in tasks:
        try:
            return task, *_best_paid(task, rows, gold, form)
        except UserError as error:
            errors.append(error)
    raise errors[0]


def told(tasks: Sequence[Task], rows: Sequence[Row], oracle: Callable[[Row], Answer]) -> tuple[Task, Way]:
    """The first of some tasks, the same but for how they call the reward, that pays right answers which are told, and how those are read.

    Args:
        tasks: The likeliest first; it is taken where none pays them.
        rows: All rows.
        oracle: What gives the right answers.
    """
    try:
        answers = [oracle(row) for row in rows]
    except Exception:  # the audit names the row
        return tasks[0], Way("{}", "", "", said=oracle)
    texts = [answer for answer in answers if isinstance(answer, str)]
    data = texts and all(isinstance(parse_strict(answer).value, (dict, list)) for answer in texts)
    way = Way("{}", "", "whole" if data else "", said=oracle)
    cases = [Case("", "", row, tasks[0].prompt(row), "", "", None) for row in rows[:PROBED]]
    for task in tasks:
        with Asker(task, cases) as asker:
            if _most_paid(asker, [way], _each(asker))[0] is not None:
                return task, _read_by(task, cases, way, rows) if len(texts) == len(answers) else way
    return tasks[0], way


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
            f"<{before}>{{}}</{before}>\n<{name}>{THOUGHT}</{name}>",
        ]
    markers = shared(_MARKER)
    if len(markers) > 1 and any(mark[0] == "[" or (mark[1] != "/" and f"</{mark[1:]}" not in markers) for mark in markers):
        asked += in_pairs(markers[-2 * MARKS :], THOUGHT)
    marks = list(dict.fromkeys([*shared(_QUOTED), *shared(_HELD)]))[-MARKS:]
    asked += [f"{mark} {{}}" for mark in marks]
    for one, other in combinations(marks, 2):
        asked += [f"{one} {THOUGHT}\n{other} {{}}", f"{one} {{}}\n{other} {THOUGHT}"]
    if prompts and all(_LAST.search(prompt) for prompt in prompts):
        asked.append(LAST_LINE)
    around = [f"{left}{{}}{right}" for left, right, pattern in _BRACKETS if prompts and all(pattern.search(prompt) for prompt in prompts)]
    around += [f"<{name}>\n{THOUGHT}\n</{name}>\n{{}}" for name in tags]
    capitals = shared(_CAPITALS)[-MARKS:]
    around += [form for name in capitals for form in (f"{name}\n{{}}", f"{name} {{}}")]
    around += [f"{one}\n{{}}\n{other}" for one, other in combinations(capitals, 2)]
    fences = [f"```{language}\n{{}}\n```" for language in shared(_FENCE)]
    return asked, around + fences + [f"{mark} {{}}" for mark in shared(_MARK)[-MARKS:]]


def _best_paid(task: Task, rows: Sequence[Row], gold: str, given: str | None) -> tuple[Way, float]:
    different: dict[str, Row] = {}
    for row in rows:
        if gold_of(row, gold) not in (None, "", []):
            different.setdefault(str(gold_of(row, gold)), row)
    cases = [Case("", "", row, task.prompt(row), "", "", None) for row in list(different.values())[:PROBED]]
    asked = list(map(_asked, cases))
    ways = _ways(rows, [case.row for case in cases], gold, asked, given)
    problem = ""
    with Asker(task, cases) as asker:  # a reward may hang or end the process on a form that is not its own
        best, rows_paid, problem, all_paid, paid = _most_paid(asker, ways, _each(asker))
        if best is None and not all_paid and len(cases) > 1:  # marks may be relative to those beside them
            best, rows_paid, _, all_paid, paid = _most_paid(asker, ways, _mixed(asker))
    if best is None or (not all_paid and FEWEST * len(cases) > rows_paid):
        if best is None and problem:  # what breaks on every answer needs mending, and no other form
            raise UserError(f"The reward pays no right answer (column '{gold}') in any form, and breaks: {quoted(problem)}")
        tried = f"the form {given!r}" if given else f"{len(dict.fromkeys(way.form for way in ways))} forms"
        few = f"on {rows_paid} of {len(cases)} rows only, as {best.form!r}" if best else "in no form"
        raise UserError(
            f"The right answers (column '{gold}') earn more than an empty one {few}; tried: {tried}. "
            + (f"The first trouble was: {quoted(problem)} " if problem else "")
            + "Say how they are written, with columns: --form 'Answer: {value} {unit}', or define oracle(row) -> str in the reward's file."
        )
    return _read_by(task, cases, best, [row for row in rows if gold_of(row, gold) not in (None, "", [])]), paid


def _read_by(task: Task, cases: Sequence[Case], way: Way, rows: Sequence[Row]) -> Way:
    """A way with what it leaves free: what parts lists, whether their order counts, and which fields are prose that nobody reads."""
    asked = [_asked(case) for case in cases]
    way = replace(way, listed=_listed(way, rows, asked))
    return replace(way, free=_free(task, cases, way), unordered=_unordered(task, cases, way, asked))


def _asked(case: Case) -> str:
    return "\n".join(str(m.get("content") or "") for m in case.prompt)


def _ways(rows: Sequence[Row], probed: Sequence[Row], gold: str, prompts: Sequence[str], given: str | None) -> list[Way]:
    """The ways to try, the likeliest first: where two earn the same, the first is taken."""
    if given and "{}" not in given:
        return [Way(given, _columns(slots_of(given)), "slots")]
    first, then = forms_in(prompts)
    golds = [gold_of(row, gold) for row in rows]
    if any("\n" in str(value) for value in golds):
        first = [one for one in first if one != LAST_LINE]
    forms = [given] if given else list(dict.fromkeys([*first, "{}", *then, *FORMS]))
    ways = [] if given else _objects(golds, gold, prompts)
    for reading in readings_of(golds, prompts):
        ways += [Way(form, gold, reading) for form in (["- {}"] if reading == "bullets" and not given else forms)]
    if given:
        return ways
    return [*ways, *_calls(golds, gold, prompts), *_templates(probed, prompts)]


def _columns(names: Sequence[str]) -> str:
    """Some columns as one gold, an object of them."""
    return ",".join(f"{name}={name}" for name in names)


def _templates(rows: Sequence[Row], prompts: Sequence[str]) -> list[Way]:
    """Answers of several columns, as the prompts show them; of one, with a plain hole."""
    made = []
    for one in templates_in(prompts, rows):
        if len(one.columns) == 1 and one.form.count("{") == 1 and one.form.count(f"{{{one.columns[0]}}}") == 1 and SAID not in one.form:
            made.append(Way(one.form.replace(f"{{{one.columns[0]}}}", "{}"), one.columns[0], ""))
        else:
            gold = _columns(one.columns)
            made += [
                Way(one.form, gold, "slots", beside=beside) for beside in (one.free, *([dict.fromkeys(one.free, 1.0)] if one.free else []))
            ]
    return made + _sourced(rows, prompts)


def _sourced(rows: Sequence[Row], prompts: Sequence[str]) -> list[Way]:
    """Answers of one column with the numbers of another in brackets behind them, where the prompts ask for such."""
    columns = columns_that_answer(prompts, rows)
    texts = [name for name, value in columns.items() if isinstance(value, (str, int, float))]
    lists = [name for name, value in columns.items() if isinstance(value, (list, tuple)) and numbers_of(value)]
    joints = citing(prompts)
    return [
        Way(f"{{{one}}} {{{several}:[n]{joint}[n]}}", _columns([one, several]), "slots")
        for one in texts[:MARKS]
        for several in lists[:MARKS]
        for joint in joints
    ]


def _calls(golds: Sequence[Any], gold: str, prompts: Sequence[str]) -> list[Way]:
    """Lists of objects, such as calls of tools, each in a pair of tags that the prompts name, or on a line of its own."""
    lists = [parse_strict(value).value if isinstance(value, str) else value for value in golds]
    if "," in gold or not any(isinstance(them, (list, tuple)) and them and isinstance(them[0], Mapping) for them in lists):
        return []
    tags = [form for form in forms_in(prompts)[0] if form.startswith("<") and THOUGHT not in form]
    samples = [*(f"{tag}\n{tag}" for tag in tags), "{}\n{}"]
    return [Way(f"{{{gold}:{sample.replace('{}', 'n')}}}", _columns([gold]), "slots") for sample in samples]


def _objects(golds: Sequence[Any], gold: str, prompts: Sequence[str]) -> list[Way]:
    """Answers as fields of the objects that the prompts ask for, bare and within tags and fences; what is beside them is free."""
    own = next((value for value in golds if isinstance(value, Mapping)), None)
    around = ["{}", *(form for form in forms_in(prompts)[0] if form.startswith("<") and THOUGHT not in form)]
    around += ["```json\n{}\n```"] if prompts and all("```" in prompt for prompt in prompts) else []
    made = []
    for fields in objects_in(prompts):
        if own is not None and (named := _renamed(list(fields), list(own))):
            made += [Way(form, named, "whole") for form in around]
        if own is not None and set(own) < set(fields):
            made += [Way(form, gold, "whole", beside=besides(fields, list(own))) for form in around]
        if own is not None or "," in gold:
            continue
        readings = ["whole"] if any(isinstance(value, (list, tuple)) for value in golds) else ["whole", "value"]
        likely = sorted(fields, key=lambda name: (name.lower() != gold.lower(), name.lower() not in GOLDS, -list(fields).index(name)))
        for name in likely:
            kinds = readings if isinstance(fields[name], (str, list)) else readings[::-1]
            made += [Way(form, f"{name}={gold}", kind, beside=besides(fields, [name])) for kind in kinds for form in around]
    if own is not None and all(isinstance(value, (str, int, float)) for value in own.values()):  # no JSON: a line or a pair of tags each
        written = {name: _as_written(name, prompts) for name in own}
        named = ",".join(f"{written[name]}={column}" for name, column in columns_of(gold).items()) if "," in gold else ""
        made += [Way(form, named or gold, "pairs") for form in around[:1] + [one for one in around[1:] if one.startswith("<")]]
        made += [Way("{}", gold, "tags")]
    return made


def _renamed(fields: Sequence[str], columns: Sequence[str]) -> str:
    """The columns under the names of the fields they are likest, such as name=tool_name; "" where they do not all fit.

    Of as many fields as columns, what is like none belongs to what is left, in their order.
    """
    if set(fields) == set(columns):
        return ""
    fits = {
        field: [c for c in columns if field.lower() in c.lower() or re.split(r"[_.]", c.lower())[-1][:3] == field.lower()[:3]]
        for field in fields
    }
    taken = {field: one[0] for field, one in fits.items() if len(one) == 1}
    if len(set(taken.values())) < len(taken) or (len(taken) < len(fields) and len(fields) != len(columns)):
        return ""
    left = iter([column for column in columns if column not in taken.values()])
    return ",".join(f"{field}={taken[field] if field in taken else next(left)}" for field in fields)


def _as_written(name: str, prompts: Sequence[str]) -> str:
    """A name with the capitals that it has in the prompts, where they have it with a colon."""
    found = re.search(rf"(?<!\w)({re.escape(name).replace('_', '[ _]')})(?=\s*:)", prompts[0], re.IGNORECASE) if prompts else None
    return found[1] if found else name


Marks = Callable[[list[Answer]], tuple[list[float | None], list[float | None], str]]  # of right answers and of empty ones, and the trouble


def _each(asker: Asker) -> Marks:
    """What right answers earn among themselves."""
    nothing = _earned(asker, ["" for _ in asker.cases])[0]

    def marks(answers: list[Answer]) -> tuple[list[float | None], list[float | None], str]:
        earned, why = _earned(asker, answers)
        return earned, nothing, why

    return marks


def _mixed(asker: Asker) -> Marks:
    """What right answers earn beside as many empty ones: a mark may be a rank, or divided by the best of its batch."""

    def marks(answers: list[Answer]) -> tuple[list[float | None], list[float | None], str]:
        paid = asker.ask_again([(i, said) for i, answer in enumerate(answers) for said in (answer, "")])
        return [one.total for one in paid[::2]], [one.total for one in paid[1::2]], ""

    return marks


def _most_paid(asker: Asker, ways: Sequence[Way], marks: Marks) -> tuple[Way | None, int, str, bool, float]:
    """The way in which right answers earn the most, on how many rows more than an empty one, and the first trouble.

    Also whether empty ones are paid on every row: a reward that pays an empty answer as well as the right one is one to audit. And how
    much that most is.
    """
    best, most, rows_paid, problem, all_paid = None, 0.0, 0, "", False
    for way in ways:
        said = [way.oracle(case.row) for case in asker.cases]
        found, empty, why = marks(said)
        problem = problem or why
        nothing = [none or 0.0 for none in empty]
        earned = [none if mark is None else mark for mark, none in zip(found, nothing, strict=True)]
        all_paid = min(nothing) > 0
        as_well = way is ways[0] and all_paid and sum(earned) >= sum(nothing)
        if sum(earned) - sum(nothing) > most + 1e-9 or (as_well and not why):
            best, most = way, sum(earned) - sum(nothing)
            rows_paid = sum(mark > none + 1e-9 for mark, none in zip(earned, nothing, strict=True))
    return best, rows_paid, problem, all_paid, most


def _listed(way: Way, rows: Sequence[Row], prompts: Sequence[str]) -> str:
    """What parts the items, where right answers are lists in one text: the rows hold lists, or the prompts ask for several."""
    golds = [way.cores(row)[0] for row in rows]
    if way.reading in ("pairs", "tags"):
        return "\n"
    several = way.reading in JOINED or way.reading.startswith(CITING) or asks_for_several(prompts)
    if not all(isinstance(gold, str) for gold in golds) or not several:
        return ""
    return mark_of(golds)


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
    """Whether lists may stand in any order: the prompts say so, or they say nothing and the reward takes them turned round."""
    golds = [way.cores(case.row)[0] for case in cases]
    turned = [_turned(gold, way.listed) for gold in golds]
    ordered = in_order(prompts)
    if golds == turned or ordered is not None:
        return ordered is False
    with Asker(task, cases) as asker:
        (right, _), (other, _) = (_earned(asker, list(map(way.written, them))) for them in (golds, turned))
        return right == other


def _turned(value: Any, mark: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _turned(item) for key, item in value.items()}
    if isinstance(value, str) and mark:
        return joint(value, mark).join(reversed(parts(value, mark)))
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
