"""What a verifier is, what it says, and how it becomes a reward.

A verifier looks at one attempt and its row and returns a `Score`. The rules are the same for all of them: whatever the policy can
cause is scored, at worst with nothing; only a failure of the infrastructure is no verdict; a row that cannot be verified at all is
an error in the data, not the model's. `as_reward` turns a verifier into a reward function of TRL's contract, so that it runs in any
trainer that knows that contract.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from earnest.errors import UserError
from earnest.task import Message, RewardFunction, Row

Status = Literal["scored", "infra_error", "invalid_task"]


@dataclass(frozen=True)
class Score:
    """What a verifier says of one attempt.

    Attributes:
        value: Between the verifier's bounds when scored, None otherwise.
        status: "scored"; "infra_error" when something that the model cannot cause failed, so that there is no verdict; "invalid_task" when
            the row itself cannot be verified (no reference, a reference that fails its own tests).
        reasons: Short sentences, why it is not full marks or why there is no verdict.
        evidence: What was looked at: the extracted answer, the counts. Plain values that go into JSON.
    """

    value: float | None
    status: Status = "scored"
    reasons: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def right(**evidence: Any) -> Score:
    """Full marks."""
    return Score(1.0, evidence=evidence)


def wrong(reason: str, **evidence: Any) -> Score:
    """Nothing, and why."""
    return Score(0.0, reasons=(reason,), evidence=evidence)


def infra_error(reason: str, **evidence: Any) -> Score:
    """No verdict: something failed that the model cannot cause."""
    return Score(None, "infra_error", (reason,), evidence)


def invalid_task(reason: str, **evidence: Any) -> Score:
    """No verdict: the row cannot be verified, whatever is answered. Stops `earnest check`, and training."""
    return Score(None, "invalid_task", (reason,), evidence)


@dataclass(frozen=True)
class Attempt:
    """What the model did on one row.

    Attributes:
        messages: The completion as chat messages: the assistant's turns, and what the environment put between them.
        ids: Sampled token ids; empty where nobody kept them.
    """

    messages: tuple[Message, ...]
    ids: tuple[int, ...] = ()

    @staticmethod
    def of(text: str) -> Attempt:
        """An attempt that is one message."""
        return Attempt(({"role": "assistant", "content": text},))

    @property
    def text(self) -> str:
        """The final answer: the content of the last message if the model wrote it, else nothing."""
        last = self.messages[-1] if self.messages else {}
        content = last.get("content") if last.get("role") == "assistant" else ""
        return content if isinstance(content, str) else ""


Judge = Callable[[Attempt, Row], Score]


@dataclass(frozen=True)
class Verifier:
    """A rule that scores attempts.

    Attributes:
        name: As it appears in metrics.
        judge: The rule. Must return a `Score` for any attempt whatsoever.
        columns: Columns of the row that it reads.
        bounds: Least and most it may give.
        deadline: Seconds one attempt may take; None trusts the rule. Later, the attempt scores the least and is counted: a rule that can
            be made slow is made slow by whoever gains from it.
        slow: Whether it waits for processes or the network. Slow ones run many attempts at a time, beside other slow ones.
    """

    name: str
    judge: Judge
    columns: tuple[str, ...] = ()
    bounds: tuple[float, float] = (0.0, 1.0)
    deadline: float | None = None
    slow: bool = False

    def __call__(self, attempt: Attempt | str, row: Row | None = None, /, **columns: Any) -> Score:
        """Score one attempt, as text or whole, against a row or columns given by name.

        Raises:
            UserError: The rule returned what no verifier may return.
        """
        attempt = Attempt.of(attempt) if isinstance(attempt, str) else attempt
        row = {**(row or {}), **columns}
        lacking = [column for column in self.columns if row.get(column) is None]
        if lacking:
            return invalid_task(f"the row has no {' and no '.join(lacking)}")
        if self.deadline is None:
            return _valid(self, self.judge(attempt, row))
        try:
            return _valid(self, _in_time(lambda: self.judge(attempt, row), self.deadline))
        except TimeoutError:
            return Score(self.bounds[0], reasons=(f"took longer than {self.deadline:g} s",), evidence={"timeout": True})


def _in_time(function: Callable[[], Score], seconds: float) -> Score:
    """Call a function on a thread of its own, which is left behind when time is up.

    A thread can be left but not stopped: what hangs for good belongs into a process that can be killed, as maths and code have it.
    """
    future: Future[Score] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future.result(timeout=seconds)


def _valid(verifier: Verifier, score: Any) -> Score:
    """The score, if it is one.

    Raises:
        UserError: Something else, a value out of bounds, or a status that does not fit the value.
    """
    where = f"The verifier '{verifier.name}' returned"
    if not isinstance(score, Score):
        raise UserError(f"{where} {type(score).__name__} ({score!r:.60}). Return a Score: right(), wrong(reason) or Score(value).")
    if score.status != "scored":
        if score.value is not None:
            raise UserError(f"{where} the value {score.value!r} with the status '{score.status}'. Without a verdict the value is None.")
        return score
    value, (least, most) = score.value, verifier.bounds
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not least <= value <= most:
        raise UserError(f"{where} the value {value!r}. Return a finite number from {least:g} to {most:g}, or infra_error(reason).")
    return score


WORKERS = 8  # attempts of a slow verifier at a time: enough to keep a few cores or an endpoint busy


def as_reward(verifier: Verifier, workers: int = WORKERS) -> RewardFunction:
    """A reward function of TRL's contract, with the verifier's name, asking for its columns.

    Equal attempts on equal rows are scored once. An infrastructure failure gives None, and is counted in the metric
    `<name>/infra_errors`, attempts that ran into the deadline in `<name>/timeouts`.

    Args:
        verifier: The rule.
        workers: Attempts at a time, for a slow one.

    Returns:
        A function, or a coroutine function when the verifier is slow.
    """

    def values(scores: Sequence[Score], rows: Sequence[Row], log_metric: Callable[[str, float], None] | None) -> list[float | None]:
        for score, row in zip(scores, rows, strict=True):
            if score.status == "invalid_task":
                raise UserError(
                    f"Row {row.get('id')!r} cannot be verified by '{verifier.name}': {'; '.join(score.reasons)}. Mend it or leave it out."
                )
        if log_metric is not None:
            log_metric(f"{verifier.name}/infra_errors", sum(score.status == "infra_error" for score in scores))
            log_metric(f"{verifier.name}/timeouts", sum(bool(score.evidence.get("timeout")) for score in scores))
        return [score.value for score in scores]

    if verifier.slow:
        limit = threading.BoundedSemaphore(workers)

        def limited(attempt: Attempt, row: Row) -> Score:
            with limit:
                return verifier(attempt, row)

        async def reward(completions: Sequence[Any], log_metric: Any = None, **columns: Any) -> list[float | None]:
            attempts, rows = _batch(completions, columns)
            keys = [_key(verifier, attempt, row) for attempt, row in zip(attempts, rows, strict=True)]
            first = {key: index for index, key in reversed(list(enumerate(keys)))}
            tasks = {key: asyncio.to_thread(limited, attempts[index], rows[index]) for key, index in first.items()}
            done = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
            return values([done[key] for key in keys], rows, log_metric)

    else:

        def reward(completions: Sequence[Any], log_metric: Any = None, **columns: Any) -> list[float | None]:
            attempts, rows = _batch(completions, columns)
            done: dict[Any, Score] = {}
            keys = [_key(verifier, attempt, row) for attempt, row in zip(attempts, rows, strict=True)]
            for key, attempt, row in zip(keys, attempts, rows, strict=True):
                if key not in done:
                    done[key] = verifier(attempt, row)
            return values([done[key] for key in keys], rows, log_metric)

    named = [inspect.Parameter(column, inspect.Parameter.KEYWORD_ONLY) for column in verifier.columns]
    completions = inspect.Parameter("completions", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    reward.__signature__ = inspect.Signature([completions, *named, inspect.Parameter("columns", inspect.Parameter.VAR_KEYWORD)])
    reward.__name__ = reward.__qualname__ = verifier.name
    reward.verifier = verifier
    return reward


NOT_COLUMNS = frozenset({"prompts", "completion_ids", "trainer_state", "log_extra", "environments"})


def _batch(completions: Sequence[Any], columns: Mapping[str, Any]) -> tuple[list[Attempt], list[Row]]:
    """Attempts and rows of a call; a completion may be plain text, as TRL has it for prompts that are plain text."""
    ids = columns.get("completion_ids") or [()] * len(completions)
    attempts = [
        Attempt(tuple(c) if not isinstance(c, str) else ({"role": "assistant", "content": c},), tuple(i))
        for c, i in zip(completions, ids, strict=True)
    ]
    kept = {name: column for name, column in columns.items() if name not in NOT_COLUMNS and isinstance(column, (list, tuple))}
    return attempts, [{name: column[index] for name, column in kept.items()} for index in range(len(completions))]


def _key(verifier: Verifier, attempt: Attempt, row: Row) -> Any:
    """Equal where a verifier must say the same: the same messages, the same number of tokens, the same row."""
    try:
        return json.dumps([attempt.messages, len(attempt.ids), row], sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return id(attempt)


def count_reasons(scores: Sequence[Score]) -> Counter[str]:
    """How often each reason was given, for a table."""
    return Counter(reason for score in scores for reason in score.reasons)
