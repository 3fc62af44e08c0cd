"""A task: rows, a prompt, rewards that train, a check that judges.

One Python file describes a job::

    from earnest import Task

    def prompt(row):
        return [{"role": "user", "content": row["question"]}]

    def exact(completions, answer, **kwargs):          # TRL's reward contract, unchanged
        return [float(c[0]["content"].strip() == a) for c, a in zip(completions, answer)]

    task = Task(rows="questions.jsonl", prompt=prompt, rewards=[exact], check=lambda text, row: text.strip() == row["answer"],
                oracle=lambda row: row["answer"])

Rewards and check are kept apart on purpose: `rewards` are what training climbs, `check` is a second opinion written without
them, used only to judge. When the reward rises and the check does not, the reward is being gamed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from earnest.errors import UserError

Row = dict[str, Any]
Message = dict[str, Any]
RewardFunction = Callable[..., Any]

SPLITS = ("train", "dev", "test")
BUILT_IN = {"triage": "earnest.tasks.triage"}


@dataclass(frozen=True)
class Verdict:
    """What `check` says of one answer.

    Attributes:
        correct: The headline judgement, counted as accuracy.
        fields: Each part judged on its own; None where the row holds no gold for that part.
        well_formed: Whether the answer keeps the required format, right or wrong; None where the task has no format.
        handed_off: Whether the answer passes the case to a person; None where the task knows no hand-off.
    """

    correct: bool
    fields: Mapping[str, bool | None] = field(default_factory=lambda: MappingProxyType({}))
    well_formed: bool | None = None
    handed_off: bool | None = None

    @property
    def all_fields(self) -> bool:
        """Whether the headline and every field with a gold are right."""
        return self.correct and all(ok for ok in self.fields.values() if ok is not None)


@dataclass(frozen=True)
class Task:
    """A job to train for and to judge.

    Attributes:
        rows: Where the rows are: a file or folder (JSONL, CSV, Parquet), a Hugging Face data set id, a mapping from split to
            file, or a list of rows. A relative path is taken from the task file's folder.
        prompt: Turns a row into chat messages.
        rewards: Reward functions in TRL's calling convention, sync or async.
        check: `check(text, row)` returns a `Verdict` or a bool. Never summed into a reward.
        oracle: Turns a row into the gold answer in the required format, as a perfect model would write it; None where the
            rows hold no full gold.
        reward_weights: One weight a reward function, in order; all 1 when None (TRL's name and meaning).
        needs_human: Whether the row should go to a person; None where that has no gold. Lets evaluation compare the
            rate of hand-offs with the rate of need.
        slices: Name to function of a row; accuracy is also reported by these.
        baseline_text: The row's text and its acceptable labels, for the classic baselines (constant answer, naive Bayes)
            printed beside the models; None when the task is no classification.
        name: Name in reports; the file's name when empty.
        folder: Where relative paths start; set by `load_task`.
    """

    rows: str | Path | Mapping[str, Any] | Sequence[Row]
    prompt: Callable[[Row], list[Message]]
    rewards: Sequence[RewardFunction]
    check: Callable[[str, Row], Verdict | bool]
    oracle: Callable[[Row], str] | None = None
    reward_weights: Sequence[float] | None = None
    needs_human: Callable[[Row], bool | None] | None = None
    slices: Mapping[str, Callable[[Row], str]] = field(default_factory=lambda: MappingProxyType({}))
    baseline_text: Callable[[Row], tuple[str, Sequence[str]]] | None = None
    name: str = ""
    folder: Path = Path(".")

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(self.reward_weights) if self.reward_weights is not None else (1.0,) * len(self.rewards)


def judge(task: Task, text: str, row: Row) -> Verdict:
    """The check's verdict on one answer, a bare bool made a `Verdict`.

    Raises:
        UserError: The check raised or returned something else.
    """
    try:
        verdict = task.check(text, row)
    except Exception as error:
        raise UserError(
            f"The check of task '{task.name}' raised {type(error).__name__}: {error} on row {row.get('id')!r} for the text "
            f"{text[:80]!r}. A check must return a verdict for any text; mend it and run again."
        ) from error
    if isinstance(verdict, bool):
        return Verdict(correct=verdict)
    if not isinstance(verdict, Verdict):
        raise UserError(
            f"The check of task '{task.name}' returned {type(verdict).__name__} on row {row.get('id')!r}; return a bool or an "
            "earnest.Verdict."
        )
    return verdict


def load_task(where: str) -> Task:
    """Load a task by built-in name, by path of a Python file, or by 'package.module[:attribute]'.

    Raises:
        UserError: Nothing there, the file does not run, or it holds no `Task`.
    """
    module_name, _, attribute = where.partition(":") if not where.endswith(".py") else (where, "", "")
    path = Path(where)
    try:
        if module_name in BUILT_IN:
            module = importlib.import_module(BUILT_IN[module_name])
        elif path.suffix == ".py" or path.is_file():
            module = _import_file(path)
        elif "." in module_name and not path.exists() and "/" not in module_name:
            module = importlib.import_module(module_name)
        else:
            raise UserError(
                f"There is no task '{where}'. Give a Python file that holds a Task, or one of the built-in tasks: "
                f"{', '.join(BUILT_IN)}."
            )
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(
            f"Task '{where}' could not be loaded, because the module '{error.name}' is missing. Install it, or mend the import."
        ) from error
    except Exception as error:
        line = error.__traceback__
        while line is not None and line.tb_next is not None:
            line = line.tb_next
        at = f" at {line.tb_frame.f_code.co_filename}:{line.tb_lineno}" if line is not None else ""
        raise UserError(f"Task '{where}' could not be loaded: {type(error).__name__}: {error}{at}. Mend the file.") from error
    return _task_in(module, where, attribute)


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"There is no task file '{path}'. Check the path.")
    sys.path.insert(0, str(path.resolve().parent))  # a task file may import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"'{path}' is not a Python file. A task is a .py file that holds a Task.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that dataclasses and pickling in the task file find their module
    spec.loader.exec_module(module)
    return module


def _task_in(module: Any, where: str, attribute: str) -> Task:
    found = {name: value for name, value in vars(module).items() if isinstance(value, Task)}
    if attribute or "task" in found or len(found) > 1:
        found = {name: value for name, value in found.items() if name == (attribute or "task")}
    if not found:
        raise UserError(f"'{where}' holds no Task named '{attribute or 'task'}'. End the file with: task = Task(rows=..., ...).")
    task = next(iter(found.values()))
    folder = Path(getattr(module, "__file__", ".")).resolve().parent
    _validate(task, where)
    changes = {"folder": folder, "name": task.name or Path(getattr(module, "__file__", where)).stem}
    return Task(**{**{f: getattr(task, f) for f in task.__dataclass_fields__}, **changes})


def _validate(task: Task, where: str) -> None:
    if not task.rewards:
        raise UserError(f"Task '{where}' has no rewards. Give at least one reward function: Task(rewards=[...]).")
    for function in (task.prompt, task.check, *task.rewards):
        if not callable(function):
            raise UserError(f"Task '{where}': {function!r} is not a function. prompt, check and every reward must be callable.")
    if len(task.weights) != len(task.rewards):
        raise UserError(
            f"Task '{where}' has {len(task.rewards)} rewards and {len(task.weights)} reward_weights. Give one weight a reward."
        )
