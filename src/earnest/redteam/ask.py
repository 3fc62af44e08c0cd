"""Asking rewards what they pay for hostile answers, without being harmed by them.

Rewards run in a child process: one that hangs is killed, one that calls `os._exit` or overflows the C stack takes only the child with it,
what it prints goes nowhere, and the red team carries on with the next answer. An answer that breaks a batch is found by asking each alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy import random as numpy_random  # NumPy loads it when it is first used, which would be in each child anew

from earnest.errors import UserError
from earnest.evidence import Case, judge_played, values_of
from earnest.redteam.way import Way
from earnest.score import reward_names, weighted_total
from earnest.task import Answer, Task, Verdict

PR_SET_PDEATHSIG = 1
BATCH = 64  # answers of one call
START = 30.0  # seconds a function's first call may take in a process: imports, workers of its own
GRACE = 1.0  # seconds more, as a machine that was asleep has given nobody the time that has passed
HANGS = 4  # after so many, a function gets a second an answer
SAID = 10_000  # characters kept of what an exception says; reports show fewer
GIVE_UP = 16  # after so many, it is not asked again

Fault = Literal["raised", "returned", "hung", "died"]


@dataclass(frozen=True)
class Paid:
    """What became of one answer.

    Attributes:
        values: One a reward function, unweighted; None for no verdict.
        parts: The same times the function's weight: what it adds to the total.
        total: Their weighted sum, as training would have it; None where no function gave a verdict.
        faults: By function name, what went wrong: the kind and a sentence.
        verdict: The check's; None where it gave none.
        check_fault: Why it gave none.
        seconds: Time of the call, shared evenly over its batch.
    """

    values: tuple[float | None, ...]
    parts: tuple[float | None, ...]
    total: float | None
    faults: dict[str, tuple[Fault, str]] = field(default_factory=dict)
    verdict: Verdict | None = None
    check_fault: str = ""
    seconds: float = 0.0


Asked = tuple[int, Answer]  # index of the case, and an answer to it


class Asker:
    """A task's rewards and check, behind a process that may die.

    Args:
        task: Whose rewards and check.
        cases: The rows that may be asked about.
        deadline: Seconds one answer may take.
    """

    def __init__(self, task: Task, cases: Sequence[Case], deadline: float = 10.0) -> None:
        self.task, self.cases, self.deadline = task, list(cases), deadline
        self.names = reward_names(task.rewards)
        self.calls = 0
        self._known: dict[str, Paid] = {}
        self._hung: dict[int | str, int] = {}
        self._answered: set[int | str] = set()
        self._child: _Child | None = None

    @property
    def gave_up(self) -> bool:
        """Whether a function hung so often that it was not asked about all answers."""
        return any(count >= GIVE_UP for count in self._hung.values())

    @property
    def guessed(self) -> bool:
        """Whether the check is a guess of ours, so that its word alone proves little."""
        return isinstance(getattr(self.task.check, "__self__", None), Way)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def forget(self) -> None:
        """Forget what was asked, and start over with the cases as they are now."""
        self._known.clear()
        self.close()

    def ask(self, answers: Sequence[Asked]) -> list[Paid]:
        """What each answer earns; equal ones on equal rows are asked once."""
        keys = [_key(asked) for asked in answers]
        new = {key: asked for key, asked in zip(keys, answers, strict=True) if key not in self._known}
        pending = list(new.items())
        for start in range(0, len(pending), BATCH):
            part = pending[start : start + BATCH]
            for (key, _), paid in zip(part, self.ask_again([asked for _, asked in part]), strict=True):
                self._known[key] = paid
        return [self._known[key] for key in keys]

    def show(self, answers: Sequence[Asked]) -> None:
        """Show answers to the rewards alone, for what they leave behind."""
        for start in range(0, len(answers), BATCH):
            for function in range(len(self.names)):
                self._one(function, answers[start : start + BATCH])

    def ask_again(self, answers: Sequence[Asked]) -> list[Paid]:
        """The same as one call, nothing remembered: to see whether marks depend on what stands beside them."""
        if not answers:
            return []
        self.calls += len(answers)
        began = time.monotonic()
        count = len(self.names)
        found: list[list[Any]] = []
        for function in [*range(count), "check"]:
            found.append(self._one(function, answers))
        seconds = time.monotonic() - began
        paid = []
        for index in range(len(answers)):
            values = tuple(None if isinstance(v := found[f][index], _Broken) or np.isnan(v) else float(v) for f in range(count))
            faults = {self.names[f]: (b.kind, b.sentence) for f in range(count) if isinstance(b := found[f][index], _Broken)}
            total = weighted_total(np.array([[np.nan if v is None else v for v in values]], dtype=float), self.task.weights)[0]
            verdict = found[count][index]
            broken = isinstance(verdict, _Broken)
            paid.append(
                Paid(
                    values,
                    tuple(None if v is None else v * w for v, w in zip(values, self.task.weights, strict=True)),
                    None if np.isnan(total) or faults else float(total),
                    faults,
                    None if broken else verdict,
                    verdict.sentence if broken else "",
                    seconds / len(answers),
                )
            )
        return paid

    def _one(self, function: int | str, answers: Sequence[Asked]) -> list[Any]:
        """Values of one function (or verdicts of the check); `_Broken` where there is none."""
        whole = self._call(function, answers)
        if not isinstance(whole, _Broken):
            return whole
        if len(answers) == 1:
            return [whole]
        alone = [self._call(function, [asked]) for asked in answers]
        return [a if isinstance(a, _Broken) else a[0] for a in alone]

    def _call(self, function: int | str, answers: Sequence[Asked]) -> Any:
        if self._hung.get(function, 0) >= GIVE_UP:
            return _Broken("hung", "hung so often that it was not asked again")
        if self._child is None:
            self._child = _Child(self.task, self.cases)
        if function not in self._child.usual:
            hung = 0
            for patience in (START, self.deadline):  # imports and worker processes are not the answer's fault
                began = time.monotonic()
                reply = self._child.call((function, [(0, self.cases[0].oracle)]), patience)
                usual = time.monotonic() - began
                if not self._child.alive:  # what it says late must not be taken for the next answer's mark
                    self.close()
                    self._child = _Child(self.task, self.cases)
                self._child.usual[function] = usual
                hung += isinstance(reply, _Broken) and reply.kind == "hung"
            if hung == 2 and function not in self._answered:  # nothing has come of it yet, and nothing will
                self._hung[function] = GIVE_UP
                return _Broken("hung", f"gave no answer within {START:.0f} s to the first that it was asked about, and hung again")
        # a function that has hung before is not given as long again; several answers of a batch may each take their time
        patience = self.deadline if self._hung.get(function, 0) < HANGS else min(self.deadline, 1.0)
        patience *= min(3, len(answers))
        reply = self._child.call((function, list(answers)), patience + len(answers) * self._child.usual.get(function, 0.1))
        if not isinstance(reply, _Broken):
            self._answered.add(function)
        if isinstance(reply, _Broken) and reply.kind in ("hung", "died"):
            self._hung[function] = self._hung.get(function, 0) + (reply.kind == "hung" and len(answers) == 1)
            self.close()
        return reply


@dataclass(frozen=True)
class _Broken:
    kind: Fault
    sentence: str


class _Child:
    """A forked copy of this process that answers calls until it is killed. Where there is no fork, this process itself."""

    def __init__(self, task: Task, cases: Sequence[Case]) -> None:
        self.task, self.cases, self.process, self.alive = task, cases, None, True
        self.usual: dict[int | str, float] = {}  # seconds that a right answer takes each function
        if "fork" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
            return
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")  # a task file's functions cannot be pickled
        self.process = context.Process(target=_serve, args=(theirs, ours, task, cases), daemon=False)
        self.process.start()
        theirs.close()
        self.pipe = ours

    def call(self, request: tuple[int | str, list[Asked]], seconds: float) -> Any:
        if self.process is None:
            return _answer(self.task, self.cases, *request)
        try:
            self.pipe.send(request)
            if not self.pipe.poll(seconds) and not self.pipe.poll(GRACE):
                self.alive = False
                return _Broken("hung", f"gave no answer within {seconds:.0f} s")
            reply = self.pipe.recv()
        except (EOFError, OSError):
            self.alive = False
            return _Broken("died", "ended the whole process")
        return reply

    def kill(self) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # and whatever it started
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Any, other_end: Any, task: Task, cases: Sequence[Case]) -> None:
    os.setpgid(0, 0)
    with contextlib.suppress(AttributeError, OSError):  # Linux: a reward that hangs must not outlive whoever asked it and was killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    other_end.close()  # or the end of our parent would go unnoticed
    sink = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(sink, descriptor)
    for stream in (sys.stdout, sys.stderr):  # a reward that prints what it reads is not broken by half a surrogate pair
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    own = os.getpid()
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        reply = _answer(task, cases, *request)
        if os.getpid() != own:  # a reward has forked, and this is the copy, which must not answer as well
            os._exit(0)
        pipe.send(reply)


def _answer(task: Task, cases: Sequence[Case], function: int | str, answers: Sequence[Asked]) -> Any:
    random.seed(0)
    numpy_random.seed(0)
    try:
        if function == "check":
            return [_verdict(task, cases[index], answer) for index, answer in answers]
        return values_of(task, task.rewards[function], [(cases[index], answer) for index, answer in answers]).tolist()
    except UserError as error:
        cause = error.__cause__
        return _Broken("raised" if cause is not None else "returned", str(error) if cause is None else _where(cause))
    except BaseException as error:
        return _Broken("raised", _where(error))


def _verdict(task: Task, case: Case, answer: Answer) -> Verdict | _Broken:
    try:
        found = judge_played(task, answer, case.row)
    except UserError as error:
        return _Broken("raised", str(error))
    return Verdict(found.correct, dict(found.fields), found.well_formed, found.handed_off)  # a mapping proxy cannot be sent


def _where(error: BaseException) -> str:
    """An exception with the innermost line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    try:
        says = str(error)
    except BaseException:  # an exception may be as broken as what raised it
        says = "(says nothing)"
    return f"raised {type(error).__name__}: {says[:SAID]}{at}"


def _key(asked: Asked) -> str:
    index, answer = asked
    return f"{index} {answer}" if isinstance(answer, str) else f"{index} {json.dumps(answer, default=repr)}"
