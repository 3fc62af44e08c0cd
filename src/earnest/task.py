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
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from earnest.errors import UserError

Row = dict[str, Any]
Message = dict[str, Any]
Answer = str | list[Message]  # one message's text, or a trajectory: all messages after the prompt, tool calls and their results among them
RewardFunction = Callable[..., Any]

SPLITS = ("train", "dev", "test")
BUILT_IN = {
    "triage": "earnest.tasks.triage",
    "code_review": "earnest.tasks.code_review",
    "billing_agent": "earnest.tasks.billing_agent",
    "maths_tool": "earnest.tasks.maths_tool",
    "search": "earnest.tasks.search",
}


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
class Limits:
    """How long a rollout with tools may go on. What ends it is recorded; the attempt is scored as it stands.

    Attributes:
        turns: Turns of the model, the last answer included.
        calls: Calls of tools.
        seconds: What one call may take.
    """

    turns: int = 8
    calls: int = 16
    seconds: float = 10.0


@dataclass(frozen=True)
class Task:
    """A job to train for and to judge.

    Attributes:
        rows: Where the rows are: a file or folder (JSONL, CSV, Parquet), a Hugging Face data set id, a mapping from split to
            file, or a list of rows. A relative path is taken from the task file's folder.
        prompt: Turns a row into chat messages.
        rewards: Reward functions in TRL's calling convention, sync or async.
        check: `check(text, row)` returns a `Verdict` or a bool. Never summed into a reward. Where answers are trajectories, it gets
            the messages in place of the text; a third parameter, if it has one, is the environment as the attempt left it.
        oracle: Turns a row into the gold answer in the required format, as a perfect model would write it: text, or the messages
            of a whole trajectory with its tool calls. In an environment the calls are run, and what they answer need not be given.
            None where the rows hold no full gold.
        environment: TRL's `environment_factory`: makes an object with `reset(**row)`, whose other public methods are the tools, and
            which may have `get_reward()`, a reward of weight 1 under the name of its class.
        tools: Functions that the model may call, with typed arguments and docstrings; TRL's `tools`.
        limits: How long a rollout with tools may go on.
        policies: Scripts to compare with, by name: each answers a row as somebody might who guesses, refuses or does too much (None where
            it has no answer). The red team plays them beside its own, and says so where one is paid in full although the check refuses it.
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
    check: Callable[[Any, Row], Verdict | bool]
    oracle: Callable[[Row], Answer] | None = None
    environment: Callable[[], Any] | None = None
    tools: Sequence[Callable[..., Any]] = ()
    limits: Limits = Limits()
    policies: Mapping[str, Callable[[Row], Answer | None]] = field(default_factory=lambda: MappingProxyType({}))
    reward_weights: Sequence[float] | None = None
    needs_human: Callable[[Row], bool | None] | None = None
    slices: Mapping[str, Callable[[Row], str]] = field(default_factory=lambda: MappingProxyType({}))
    baseline_text: Callable[[Row], tuple[str, Sequence[str]]] | None = None
    name: str = ""
    folder: Path = Path(".")

    @property
    def acts(self) -> bool:
        """Whether the model has tools, so that an answer is a trajectory."""
        return self.environment is not None or bool(self.tools)

    @property
    def weights(self) -> tuple[float, ...]:
        """One weight a reward function."""
        return tuple(self.reward_weights) if self.reward_weights is not None else (1.0,) * len(self.rewards)


def messages_of(answer: Answer) -> list[Message]:
    """An answer as TRL hands it to rewards: a list of messages."""
    return [{"role": "assistant", "content": answer}] if isinstance(answer, str) else [dict(message) for message in answer]


def judge(task: Task, answer: Answer, row: Row, environment: Any = None) -> Verdict:
    """The check's verdict on one answer, a bare bool made a `Verdict` and NumPy or torch scalars made plain.

    Args:
        task: Whose check.
        answer: Text, or the messages of a trajectory.
        row: The row.
        environment: As the attempt left it; for a check that asks for it.

    Raises:
        UserError: The check raised or returned something else.
    """
    try:
        verdict = _plain(task.check(answer, row, *([environment] if _takes_three(task.check) else [])))
    except Exception as error:
        raise UserError(
            f"The check of task '{task.name}' raised {type(error).__name__}: {error} on row {row.get('id')!r} for the answer "
            f"{str(answer)[:80]!r}. A check must return a verdict for any text; mend it and run again.",
            details=traceback.format_exc().rstrip(),
        ) from error
    if isinstance(verdict, bool):
        return Verdict(correct=verdict)
    if not isinstance(verdict, Verdict):
        raise UserError(
            f"The check of task '{task.name}' returned {type(verdict).__name__} on row {row.get('id')!r}; return a bool or an "
            "earnest.Verdict."
        )
    correct, well_formed, handed_off = (_plain(part) for part in (verdict.correct, verdict.well_formed, verdict.handed_off))
    fields = {name: _plain(ok) for name, ok in verdict.fields.items()}
    if not isinstance(correct, bool) or not all(
        part is None or isinstance(part, bool) for part in (well_formed, handed_off, *fields.values())
    ):
        raise UserError(
            f"The check of task '{task.name}' returned {verdict} on row {row.get('id')!r}: 'correct' must be True or False, and every "
            "other part True, False or None."
        )
    return Verdict(correct, fields, well_formed, handed_off)


def _takes_three(check: Callable[..., Any]) -> bool:
    """Whether a check has a third place for the environment."""
    try:
        parameters = inspect.signature(check).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) >= 3


def _plain(value: Any) -> Any:
    """A NumPy or torch scalar as the Python value it stands for, so that verdicts compare and go into JSON."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def load_task(where: str) -> Task:
    """Load a task by built-in name, by path of a Python file, or by 'package.module', each with an optional ':attribute'.

    Raises:
        UserError: Nothing there, the file does not run, or it holds no `Task`.
    """
    name, _, attribute = where.rpartition(":") if ":" in where and not Path(where).is_file() else (where, "", "")
    path = Path(name)
    nothing = UserError(
        f"There is no task '{where}'. Give a Python file that holds a Task, or one of the built-in tasks: {', '.join(BUILT_IN)}."
    )
    try:
        if name in BUILT_IN:
            module = importlib.import_module(BUILT_IN[name])
        elif path.suffix == ".py" or path.is_file():
            module = _import_file(path)
        elif "." in name and "/" not in name and not path.exists():
            _add_to_path(Path(os.getcwd()))  # an installed command does not look there by itself
            module = importlib.import_module(name)
        else:
            raise nothing
    except UserError:
        raise
    except ModuleNotFoundError as error:
        if path.suffix != ".py" and f"{name}.".startswith(f"{error.name}."):
            raise nothing from error
        raise UserError(
            f"Task '{where}' could not be loaded, because the module '{error.name}' is missing{_at(error, path)}. "
            "Install it, or mend the import."
        ) from error
    except (Exception, SystemExit) as error:  # a file that runs its own command line would end this one
        raise UserError(
            f"Task '{where}' could not be loaded: {type(error).__name__}: {error}{_at(error, path)}. Mend the file.",
            details=traceback.format_exc().rstrip(),
        ) from error
    return _task_in(module, where, attribute)


def _at(error: BaseException, path: Path) -> str:
    """Where the error arose: in the task file if it passed through it, else the innermost line."""
    if isinstance(error, SyntaxError):
        return "" if error.filename is None else f" at {error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == path.resolve()] or frames
    return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"There is no task file '{path}'. Check the path.")
    loaded = sys.modules.get(path.stem)
    # A task called math.py must not take the place of a module that others use.
    taken = loaded is not None and Path(getattr(loaded, "__file__", None) or "").resolve() != path.resolve()
    name = f"_earnest_task_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"'{path}' is not a Python file. A task is a .py file that holds a Task.")
    module = importlib.util.module_from_spec(spec)
    _add_to_path(path.resolve().parent)  # a task file may import its neighbours
    sys.modules[name] = module  # so that dataclasses and pickling in the task file find their module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)  # half a module is worse than none
        raise
    return module


def _task_in(module: Any, where: str, attribute: str) -> Task:
    found = {name: value for name, value in vars(module).items() if isinstance(value, Task)}
    if not found:
        raise UserError(f"'{where}' holds no Task. End the file with: task = Task(rows=..., ...).")
    wanted = attribute or (next(iter(found)) if len(found) == 1 else "task")
    if wanted not in found:
        base = where.removesuffix(f":{attribute}")
        raise UserError(
            f"'{base}' holds no Task named '{wanted}'; it holds: {', '.join(found)}. Name one of them, as in '{base}:{next(iter(found))}'."
        )
    task = found[wanted]
    _validate(task, where)
    file = Path(getattr(module, "__file__", None) or where)
    return replace(task, folder=file.resolve().parent, name=task.name or (attribute if len(found) > 1 and attribute else file.stem))


def _validate(task: Task, where: str) -> None:
    if not isinstance(task.rewards, Sequence) or not (task.rewards or task.environment):  # which may score itself
        raise UserError(f"Task '{where}' has no list of rewards. Give at least one reward function: Task(rewards=[...]).")
    required = {"prompt": task.prompt, "check": task.check} | {f"rewards[{i}]": f for i, f in enumerate(task.rewards)}
    optional = {part: getattr(task, part) for part in ("oracle", "environment", "needs_human", "baseline_text")}
    required |= {f"tools[{i}]": tool for i, tool in enumerate(task.tools)}
    required |= {f"{part}[{name!r}]": f for part in ("slices", "policies") for name, f in getattr(task, part).items()}
    for part, function in required.items():
        if not callable(function):
            raise UserError(f"Task '{where}': {part} is {function!r}, not a function. Give a function.")
    for part, function in optional.items():
        if function is not None and not callable(function):
            raise UserError(f"Task '{where}': {part} is {function!r}, not a function. Give a function, or leave it out.")
    if task.reward_weights is None:
        return
    if not isinstance(task.reward_weights, Sequence) or len(task.reward_weights) != len(task.rewards):
        raise UserError(
            f"Task '{where}' has {len(task.rewards)} rewards and the reward_weights {task.reward_weights!r}. Give a list with one "
            "weight a reward."
        )
    for weight in task.reward_weights:
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise UserError(f"Task '{where}': the reward weight {weight!r} is not a finite number. Give one number a reward.")
