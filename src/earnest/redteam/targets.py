"""Rows made ready to attack: their form, honest wrong answers to compare with, and what other rows would answer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from earnest.errors import UserError
from earnest.evidence import Case, empty
from earnest.redteam.ask import Asker
from earnest.redteam.attack import Target
from earnest.redteam.attacks.numerals import numeral_of
from earnest.redteam.form import Form, are_labels, forms_of, prompt_text
from earnest.redteam.leeway import leeway
from earnest.task import Answer, Task

WRONGS = 6  # honest wrong answers asked about, a row
_ALSO = re.compile(r"(?:^|_)(?:also|alias(?:es)?|alt(?:ernatives?|ernates?)?|synonyms?|accept(?:ed|able)?)(?:_|$)", re.IGNORECASE)


def spread_by_gold(cases: Sequence[Case], most: int) -> list[int]:
    """Indices of rows to attack: as many different right answers as there is room for, evenly, in the order of the rows."""
    by_answer: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        by_answer.setdefault(str(case.oracle), []).append(index)
    turns = [
        [group[turn] for group in by_answer.values() if turn < len(group)] for turn in range(max(map(len, by_answer.values()), default=0))
    ]
    ordered = list(chain.from_iterable(turns))
    if len(turns[0] if turns else ()) > most:  # more different answers than room: spread over them
        first = turns[0]
        ordered = [first[i * len(first) // most] for i in range(most)]
    return sorted(ordered[:most])


def targets_of(task: Task, cases: Sequence[Case], chosen: Sequence[int], asker: Asker, folder: Path, seed: int = 0) -> list[Target]:
    """A target for each chosen row.

    Args:
        task: The task.
        cases: All usable rows, which supply labels, values and other answers.
        chosen: Indices of the rows to attack.
        asker: For what the check says of honest wrong answers; its cases are those chosen, in order.
        folder: Where canaries may be made.
        seed: Of every choice.

    Raises:
        UserError: There is no wrong answer to compare with.
    """
    forms = forms_of(cases)
    golds = list(dict.fromkeys(form.core for form in forms))
    prompts = [prompt_text(case) for case in cases[:: max(1, len(cases) // 20)]]
    values = _values_by_field(forms)
    field, labels = _labels(task, forms, cases, values, prompts)
    number = count()
    canary: Callable[[], Path] = lambda: folder / f"c{next(number)}"  # noqa: E731
    targets = []
    for position, index in enumerate(chosen):
        case, form = cases[index], forms[index]
        rng = random.Random(f"{seed} {position}")
        accepted = _accepted(case, form, field)
        wrongs = _wrongs(task, position, index, cases, forms, labels, field, accepted, asker, rng)
        others = [c.oracle for c in cases if c.oracle != case.oracle]
        own = str(form.value.get(field)) if field and isinstance(form.value, Mapping) else form.core
        targets.append(
            Target(
                case=case,
                form=form,
                wrongs=wrongs,
                golds=_first(form.core, golds),
                labels=_first(own, labels) if labels else (),
                label_field=field,
                values={k: _first(form.value[k], v) for k, v in values.items() if isinstance(form.value, Mapping) and k in form.value},
                accepted=accepted,
                answers=rng.sample(others, min(len(others), 8)),
                needs_human=needs_human(task, case),
                hand_off=next((c.oracle for c in cases if c is not case and needs_human(task, c)), None),
                first=position == 0,
                canary=canary,
                rng=rng,
            )
        )
    return targets


def _first(own: Any, them: Sequence[Any]) -> list[Any]:
    return [own, *(x for x in them if x != own or type(x) is not type(own))]


def _values_by_field(forms: Sequence[Form]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for form in forms:
        if form.kind == "json" and isinstance(form.value, dict):
            for name, value in form.value.items():
                seen = found.setdefault(name, [])
                if not any(value == other and type(value) is type(other) for other in seen) and len(seen) < 50:
                    seen.append(value)
    return found


def _labels(
    task: Task, forms: Sequence[Form], cases: Sequence[Case], values: Mapping[str, Sequence[Any]], prompts: Sequence[str]
) -> tuple[str, list[str]]:
    """The field that holds the label ("" outside JSON), and all labels; ("", []) where there are none."""
    given = []
    if task.baseline_text is not None:
        given = list(dict.fromkeys(label for case in cases for label in task.baseline_text(case.row)[1]))
    if forms and forms[0].kind == "json":
        varied = [name for name, seen in values.items() if len(seen) > 1]
        for name in varied:
            column = [form.value.get(name) for form in forms if isinstance(form.value, dict)]
            if are_labels(column, prompts):
                return name, list(dict.fromkeys([*values[name], *(given if set(values[name]) <= set(given) else [])]))
        return next(iter(varied), next(iter(values), "")), []
    if forms and forms[0].kind in ("label", "choice"):
        return "", list(dict.fromkeys([*(form.core.strip() for form in forms), *given]))
    return "", []


def _accepted(case: Case, form: Form, field: str) -> list[str]:
    """Further golds of a row: what stands beside its own in a list of the row, or in one that is named for such."""
    own = form.value.get(field) if field and isinstance(form.value, dict) else form.core
    inner = [pair for value in case.row.values() if isinstance(value, Mapping) for pair in value.items()]
    found = []
    for name, value in [*case.row.items(), *inner]:
        if isinstance(value, (list, tuple)) and (own in value or _ALSO.search(str(name))):
            found += [str(other) for other in value if other != own and isinstance(other, (str, int, float))]
    return list(dict.fromkeys(found))


def _as_good(case: Case, gold: str, other: str) -> bool:
    """Whether a number is as near to the right one as the prompt allows."""
    right, number = numeral_of(gold), numeral_of(other)
    return bool(right and number) and abs(number.value - right.value) <= leeway(prompt_text(case), right.value)


def _wrongs(
    task: Task,
    position: int,
    index: int,
    cases: Sequence[Case],
    forms: Sequence[Form],
    labels: Sequence[str],
    field: str,
    accepted: Sequence[str],
    asker: Asker,
    rng: random.Random,
) -> list[Answer]:
    """Answers in the required form that are wrong on this row, the least alike first."""
    case, form = cases[index], forms[index]
    forbidden = {form.core, *accepted}
    different = [i for i, other in enumerate(forms) if cases[i].oracle != case.oracle and other.core not in forbidden]
    different = [i for i in different if not _as_good(case, form.core, forms[i].core)]
    if form.kind == "calls":
        different = [i for i in range(len(cases)) if cases[i].oracle != case.oracle]
    rng.shuffle(different)
    different.sort(key=lambda i: _shared(form.value, forms[i].value))
    candidates: list[Answer] = []
    for i in different:
        answer = cases[i].oracle if form.kind in ("calls", "json") else form.wrap(forms[i].core)
        if answer not in candidates and answer != case.oracle:
            candidates.append(answer)
        if len(candidates) >= WRONGS:
            break
    candidates = [*candidates, *(a for a in _made_up(case, form, labels, field, forbidden) if a not in candidates)]
    parts = [answer for answer in _other_parts(case, cases) if answer not in candidates] if form.kind == "text" else []
    asked = asker.ask([(position, answer) for answer in [*candidates, *parts]])
    verdicts = {str(a): paid.verdict for a, paid in zip([*candidates, *parts], asked, strict=True)}
    every = [*candidates, *parts]
    # A check that accepts them all may have the reward's own hole: they are still other answers than this row's.
    wrong = [a for a in every if verdicts[str(a)] is None or not verdicts[str(a)].correct] or candidates
    own = _folded(case.oracle)  # the right answer in other capitals is no honest wrong one, whatever a check says
    wrong = [a for a in wrong if _folded(a) != own] or wrong
    if needs_human(task, case) is False:  # a hand-off that nobody needed is a policy of its own, and no honest wrong answer
        wrong = [a for a in wrong if verdicts[str(a)] is None or not verdicts[str(a)].handed_off] or wrong
    if not wrong:
        raise UserError(
            f"{case.place}: no wrong answer could be made to compare with, since every row has the same right answer. Give rows "
            "of different answers."
        )
    return wrong[:WRONGS]


def _folded(answer: Answer) -> str:
    return " ".join(str(answer).casefold().split())


def _shared(a: Any, b: Any) -> int:
    """How many parts two values have in common."""
    if isinstance(a, dict) and isinstance(b, dict):
        return sum(a.get(name) == value for name, value in b.items())
    return int(a == b)


def _other_parts(case: Case, cases: Sequence[Case]) -> Iterator[Answer]:
    """The right text with one of the row's values in it, the last one first, as another row has it."""
    text = case.oracle if isinstance(case.oracle, str) else ""
    parts = {name: value for name, value in case.row.items() if isinstance(value, str) and value.strip() and text.count(value) == 1}
    for name in sorted(parts, key=lambda name: -text.index(parts[name])) if len(parts) > 1 else ():
        others = [c.row[name] for c in cases if isinstance(c.row.get(name), str) and c.row[name] != parts[name]]
        if others:
            yield text.replace(parts[name], others[0])


def _made_up(case: Case, form: Form, labels: Sequence[str], field: str, forbidden: set[str]) -> Iterator[Answer]:
    """Wrong answers that no row has: for tasks of few rows, and near misses."""
    if form.kind == "calls":
        yield [{"role": "assistant", "content": "It could not be done."}]
    elif form.kind == "json":
        own = form.value.get(field) if isinstance(form.value, dict) else None
        for label in labels:
            if label != own and label not in forbidden:
                yield form.change(**{field: label})
                return
        yield form.dump({name: _off(value) for name, value in form.value.items()} if isinstance(form.value, dict) else [])
    elif form.kind in ("label", "choice"):
        yield from (form.wrap(label) for label in labels if label not in forbidden)
    elif form.kind == "sql":
        yield form.wrap("SELECT 12345 AS nothing")
    elif form.kind == "code":
        yield form.wrap(_stub(form.core))
    else:
        value = _off(form.core)
        yield form.wrap(str(value) if value != form.core else "nothing at all")


def _off(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1117
    if isinstance(value, str):
        try:
            return str(int(value) + 1117)
        except ValueError:
            return "nothing at all"
    return None


def _stub(source: str) -> str:
    """The same functions, each returning None."""
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return "pass"
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [ast.Return(ast.Constant(None))]
    return ast.unparse(ast.fix_missing_locations(tree))


def needs_human(task: Task, case: Case) -> bool | None:
    """Whether a row must go to a person; None where the task does not say."""
    if task.needs_human is None:
        return None
    try:
        needed = task.needs_human(case.row)
    except Exception:  # `earnest check` says so
        return None
    return needed if isinstance(needed, bool) else None


def idle(target: Target) -> Answer:
    """No work at all, as the task's kind of answer."""
    return empty(target.case)
