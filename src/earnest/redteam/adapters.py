"""From a reward and a file of rows to a task that can be audited: for rewards written elsewhere, without a task file.

What a task file would say is guessed and can be given: which column holds the right answer, which the question, and in what form the right
answer earns the most. The check is equality with the right answer in that form, and a guess as well (`way.py`).
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from earnest.errors import UserError
from earnest.redteam.guess import told, way_of
from earnest.redteam.layout import slots_of
from earnest.redteam.shapes import GOLDS, as_trl, columns_of, gold_of, of_messages, parts_of, shape_of, textual
from earnest.redteam.templates import columns_that_answer
from earnest.redteam.terms import columns_first
from earnest.redteam.way import sound, text_of
from earnest.rewards.json import parse_strict
from earnest.rows import load_rows
from earnest.score import missing_columns
from earnest.task import Message, RewardFunction, Row, Task

__all__ = ["as_trl", "task_of"]

PROMPTS = ("prompt", "messages", "question", "problem", "input", "instruction", "query", "text", "user", "content", "task")
OTHERS = 6  # columns that are tried though nothing says that they hold the right answer
PROSE = 8  # words from which on such a column holds prose
_SPEAKS = re.compile(r"answer|gold|label|solution|target|expect|truth|reference|correct|oracle|right|final", re.IGNORECASE)


def task_of(
    where: str, rows: str | Path, gold: str | None = None, prompt: str | Sequence[str] | None = None, form: str | None = None
) -> Task:
    """A task of one reward, to audit it.

    Args:
        where: 'file.py:function' or 'package.module:function'; the name may be left out where one function looks like a reward.
        rows: A JSONL, CSV or Parquet file.
        gold: The column of the right answer, dotted if nested; guessed by its name when None.
        prompt: The column or columns of the question, text or messages; guessed when None.
        form: How a right answer is written, `{}` in place of the answer, or with columns, as in `{value} {unit}`; guessed when None.

    Raises:
        UserError: There is no such function, its shape is not known, a column cannot be guessed, or no form earns anything.
    """
    function, name, module = _function_at(where)
    source = load_rows(Task(str(Path(rows).resolve()), _nothing, [], _nothing))
    sample = [row for _, row in source.everything()]
    oracle = getattr(module, "oracle", None)
    if callable(oracle) and oracle is not function and not gold and not form:
        return _told(where, (function, name), rows, sample, prompt, oracle, getattr(module, "check", None))
    if form and "{}" not in form:
        sound(form)
        gold = gold or ",".join(f"{slot}={slot}" for slot in _slots(form, sample[0]))
    errors = []
    try:
        likely = [gold] if gold else columns_first(_gold_columns(sample, function), sample[0])
    except UserError as error:
        likely, errors = [], [error]
    for column in likely:
        try:
            return _task_of(where, (function, name), rows, sample, column, prompt, form)[0]
        except UserError as error:
            errors.append(error)
    found = []
    # No name says which it is: the one that is paid the most. A reward that is handed its gold by us would pay any.
    for column in _others(sample, likely) if not gold and shape_of(function) == "trl" else []:
        try:
            found.append(_task_of(where, (function, name), rows, sample, column, prompt, form))
        except UserError as error:
            errors.append(error)
    if found:
        return max(found, key=lambda one: one[1])[0]
    raise errors[0]


def _told(where: str, named: tuple[Any, str], rows: str | Path, sample: Sequence[Row], prompt: Any, oracle: Any, check: Any) -> Task:
    """A task whose right answers the reward's own file gives, with `oracle(row)`, and judges where it has a `check(completion, row)`."""
    gold = next((name for name in sample[0] if name.lower() in GOLDS), None)
    task, way = told(_called(where, named, rows, sample, gold, prompt), sample, oracle)
    return replace(task, check=check if callable(check) and check is not named[0] else way.check, oracle=oracle)


def _slots(form: str, row: Row) -> list[str]:
    """The slots of a form that was given; each has to be a column."""
    slots = list(dict.fromkeys(slots_of(form)))
    if lacking := [slot for slot in slots if slot.partition(".")[0] not in row]:
        raise UserError(f"The form has a slot '{{{lacking[0]}}}', which is no column; there are: {', '.join(row)}.")
    return slots


def _others(rows: Sequence[Row], tried: Sequence[str]) -> list[str]:
    """All other columns that may hold right answers, those first whose names speak of one; none that their prompts show."""
    prompts = [text_of(next((row[name] for name in PROMPTS if name in row), "")) for row in rows]
    columns = dict.fromkeys(name.partition(".")[0] for name in columns_that_answer(prompts, rows))
    free = [name for name in columns if name not in tried and name.lower() not in (*PROMPTS, "id", "split")]
    free = [name for name in free if not all(isinstance(row.get(name), str) and _is_open(row[name]) for row in rows)]
    return sorted(free, key=lambda name: not _SPEAKS.search(name))[:OTHERS]


def _is_open(text: str) -> bool:
    """Whether a text is prose: one of many answers that may be right, of which equality says nothing."""
    return len(text.split()) >= PROSE and re.fullmatch(r"[\w\s.,;:'’!?*-]+", text) is not None


def _task_of(
    where: str,
    named: tuple[Any, str],
    rows: str | Path,
    sample: Sequence[Row],
    gold: str,
    prompt: str | Sequence[str] | None,
    form: str | None,
) -> tuple[Task, float]:
    """The task with right answers from a column, and what they earn."""
    if all(gold_of(row, gold) in (None, "", []) for row in sample):
        raise UserError(f"No row of '{rows}' has a right answer in the column '{gold}'. Name the column that has: --gold COLUMN.")
    tasks = _called(where, named, rows, sample, gold, prompt)
    chosen, way, paid = way_of(tasks, sample, gold, sound(form) if form else None)
    return replace(chosen, check=way.check, oracle=way.oracle), paid


def _called(
    where: str, named: tuple[Any, str], rows: str | Path, sample: Sequence[Row], gold: str | None, prompt: str | Sequence[str] | None
) -> list[Task]:
    """A task without right answers for each way to call its reward, with messages and with plain texts; the likeliest first."""
    function, name = named
    parts = parts_of(function, gold)
    rewards, weights = [part for part, _ in parts], [weight for _, weight in parts]
    for reward in rewards:
        if lacking := missing_columns(reward, list(sample[0])):
            raise UserError(f"The reward '{name}' needs the column '{lacking[0]}', which '{rows}' does not have.")
    asked = _prompt_columns(sample[0], prompt, gold or "")
    plain = Task(
        rows=str(Path(rows).resolve()),
        prompt=lambda row: _messages(row, asked),
        rewards=rewards,
        check=lambda text, row: False,
        oracle=lambda row: "",
        reward_weights=weights,
        name=f"{Path(where.partition(':')[0]).stem}:{name}",
    )
    if shape_of(function) == "trl":
        texts = replace(plain, rewards=[textual(reward) for reward in rewards])
        return [texts, plain] if all(isinstance(sample[0][name], str) for name in asked) and not _chat(sample[0], asked) else [plain, texts]
    messages = of_messages(function, gold)
    return [plain, replace(plain, rewards=[messages])] if messages else [plain]


def _nothing(*_: Any) -> Any:
    return None


def _gold_columns(rows: Sequence[Row], function: Any) -> list[str]:
    """The one column that is named like a right answer; of several, the one the reward asks for, then the others.

    Where none is, those that the reward asks for by name, or all but the question: together, as an object of them, and each alone.
    """
    row = rows[0]
    if isinstance(model := row.get("reward_model"), Mapping) and "ground_truth" in model:
        return ["reward_model.ground_truth"]
    named = [name for name in row if name.lower() in GOLDS and any(other.get(name) not in (None, "") for other in rows)]
    nested = [f"{name}.{inner}" for name, value in row.items() if isinstance(value, Mapping) for inner in value if inner.lower() in GOLDS]
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = []
    wanted = [name for name in named if name in parameters]
    rest = [name for name in row if name not in named and name.lower() not in (*PROMPTS, "id", "split")]
    asked = [name for name in rest if name in parameters] or ([] if named else rest)
    several = [",".join([*wanted, *asked])] if len([*wanted, *asked]) > 1 else []
    if len(named) > 1 and len(wanted) == 1:
        return wanted + [name for name in named if name not in wanted] + several
    if len(named) == 1:
        return named + several
    have = ", ".join(row)
    if not named:
        if found := [*nested, *several, *asked]:
            return found
        raise UserError(f"No column is named like a right answer; there are: {have}. Name it: --gold COLUMN.")
    if several and len(wanted) > 1:
        return [*several, *wanted]
    raise UserError(f"Several columns may hold the right answer: {', '.join(named)}. Name the one that does: --gold COLUMN.")


def _prompt_columns(row: Row, given: str | Sequence[str] | None, gold: str) -> list[str]:
    if given:
        wanted = [given] if isinstance(given, str) else list(given)
    else:
        taken = {own.partition(".")[0] for own in columns_of(gold).values()}
        free = {name.lower(): name for name in row if name not in taken}
        wanted = [free[name] for name in PROMPTS if name in free][:1]
    if not wanted or any(name not in row for name in wanted):
        what = f"There is no column '{next(n for n in wanted if n not in row)}'" if wanted else "No column is named like a question"
        raise UserError(f"{what}; there are: {', '.join(row)}. Name the question's: --prompt-column COLUMN.")
    return wanted


def _chat(row: Row, columns: Sequence[str]) -> list[Message]:
    """The messages of a column that holds them, as a list or as JSON in a CSV cell; none of another."""
    value = row[columns[0]] if len(columns) == 1 else None
    if isinstance(value, str) and value.lstrip().startswith('[{"'):
        value = parse_strict(value).value
    fits = isinstance(value, (list, tuple)) and value and all(isinstance(m, Mapping) and "role" in m for m in value)
    return [dict(message) for message in value] if fits else []


def _messages(row: Row, columns: Sequence[str]) -> list[Message]:
    """The question as chat messages; those of a column of messages up to the last of the user."""
    if messages := _chat(row, columns):
        while len(messages) > 1 and messages[-1]["role"] == "assistant":
            messages.pop()
        return messages
    return [{"role": "user", "content": "\n\n".join(text_of(row[name]) for name in columns)}]


def _function_at(where: str) -> tuple[Any, str, ModuleType]:
    """The function that 'file.py:function' or 'package.module:function' names, its name and its module."""
    place, _, name = where.partition(":") if not Path(where).is_file() else (where, "", "")
    module = _module(place)
    if name:
        found: Any = module
        for step in name.split("."):
            if not hasattr(found, step):
                have = ", ".join(_candidates(module)) or "none"
                raise UserError(f"'{place}' has no '{name}'. Functions there that look like rewards: {have}.")
            found = getattr(found, step)
        return found, name, module
    likely = _candidates(module)
    if len(likely) > 1:
        likely = {n: f for n, f in likely.items() if re.search(r"reward|compute_score", n)} or likely
    if len(likely) != 1:
        said = f"There are several: {', '.join(likely)}" if likely else "None looks like a reward"
        raise UserError(f"Which function of '{place}' is the reward? {said}. Name it: '{place}:function'.")
    return next((f, n, module) for n, f in likely.items())


def _candidates(module: ModuleType) -> dict[str, RewardFunction]:
    """The functions of a module that look like rewards: of a known shape, and not of a single text, as many a helper is."""
    told = {"oracle", "check"} if hasattr(module, "oracle") else set()
    own = {
        n: f
        for n, f in vars(module).items()
        if not n.startswith("_") and n not in told and inspect.isfunction(f) and f.__module__ == module.__name__
    }
    shapes = {n: shape_of(f) or ("inspect" if "Scorer" in str(f.__annotations__.get("return", "")) else "") for n, f in own.items()}
    return {n: f for n, f in own.items() if shapes[n] and (shapes[n] != "plain" or len(inspect.signature(f).parameters) > 1)}


def _module(place: str) -> ModuleType:
    from earnest.task import _add_to_path, _import_file  # what loads a task file loads a file of rewards

    try:
        if place.endswith(".py") or Path(place).is_file():
            return _import_file(Path(place))
        _add_to_path(Path(os.getcwd()))
        return importlib.import_module(place)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"'{place}' could not be loaded: {type(error).__name__}: {error}. Give 'file.py:function'.") from error
