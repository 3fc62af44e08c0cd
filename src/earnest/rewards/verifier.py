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
import keyword
import math
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

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
        prompt: What the model was asked, as chat messages; empty where nobody kept it.
        environment: The environment it acted in, where the trainer hands it on.
    """

    messages: tuple[Message, ...]
    ids: tuple[int, ...] = ()
    prompt: tuple[Message, ...] = ()
    environment: Any = None

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
        opinion: Whether it is what a model thinks, so that it may shape a reward but not be the main one.
        metrics: Numbers about the scores of a batch, logged as `<name>/<key>`; None for no more than the usual ones.
        outlook: What can be said of all rows before training, as lines for `earnest check` to print; None for nothing.
    """

    name: str
    judge: Judge
    columns: tuple[str, ...] = ()
    bounds: tuple[float, float] = (0.0, 1.0)
    deadline: float | None = None
    slow: bool = False
    opinion: bool = False
    metrics: Callable[[Sequence[Score]], Mapping[str, float]] | None = None
    outlook: Callable[[Sequence[Row]], Sequence[str]] | None = None

    def __call__(self, attempt: Attempt | str, row: Row | None = None, /, **columns: Any) -> Score:
        """Score one attempt, as text or whole, against a row or columns given by name.

        A rule that raises gives no verdict: the score is an `infra_error` with the traceback in its evidence, and a warning is issued.

        Raises:
            UserError: The rule returned what no verifier may return, or raised a `UserError` of its own.
        """
        attempt = Attempt.of(attempt) if isinstance(attempt, str) else attempt
        row = {**(row or {}), **columns}
        lacking = [column for column in self.columns if row.get(column) is None]
        if lacking:
            return invalid_task(f"the row has no {' and no '.join(lacking)}")
        try:
            score = self.judge(attempt, row) if self.deadline is None else in_time(lambda: self.judge(attempt, row), self.deadline)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            warnings.warn(
                f"The verifier '{self.name}' raised {error!r:.200}. It must score any text: mend it.", RuntimeWarning, stacklevel=2
            )
            return infra_error(f"the rule raised {error!r:.200}", traceback=traceback.format_exc())
        if score is LATE:
            return Score(self.bounds[0], reasons=(f"took longer than {self.deadline:g} s",), evidence={"timeout": True})
        return _valid(self, score)


LATE = object()


def in_time(function: Callable[[], Any], seconds: float) -> Any:
    """What a function returns, or `LATE`; it runs on a thread of its own, which is left behind when time is up.

    A thread can be left but not stopped: what hangs for good belongs into a process that can be killed, as maths and code have it.
    """
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        future.exception(seconds)
    except TimeoutError:  # of the waiting; one that the function raised itself comes out below
        return LATE
    return future.result()


def _valid(verifier: Verifier, score: Any) -> Score:
    """The score, if it is one.

    Raises:
        UserError: Something else, a value out of bounds, or a status that does not fit the value.
    """
    where = f"The verifier '{verifier.name}' returned"
    if not isinstance(score, Score):
        raise UserError(f"{where} {type(score).__name__} ({score!r:.60}). Return a Score: right(), wrong(reason) or Score(value).")
    if score.status not in get_args(Status):
        raise UserError(f"{where} the status {score.status!r}. Return one of {', '.join(get_args(Status))}.")
    if score.status != "scored":
        if score.value is not None:
            raise UserError(f"{where} the value {score.value!r} with the status '{score.status}'. Without a verdict the value is None.")
        return score
    value, (least, most) = score.value, verifier.bounds
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most or not math.isfinite(value):
        raise UserError(f"{where} the value {value!r}. Return a finite number from {least:g} to {most:g}, or infra_error(reason).")
    return score


WORKERS = 8  # attempts of a slow verifier at a time: enough to keep a few cores or an endpoint busy


def as_reward(verifier: Verifier, workers: int = WORKERS) -> RewardFunction:
    """A reward function of TRL's contract, with the verifier's name, asking for its columns.

    Equal attempts on equal rows are scored once. An infrastructure failure gives None, and is counted in the metric
    `<name>/infra_errors`, attempts that ran into the deadline in `<name>/timeouts`; the reasons go into the column `<name>/reasons`.

    Args:
        verifier: The rule.
        workers: Attempts at a time, for a slow one.

    Returns:
        A function, or a coroutine function when the verifier is slow.
    """

    def values(scores: Sequence[Score], rows: Sequence[Row], log_metric: Any, log_extra: Any) -> list[float | None]:
        for index, (score, row) in enumerate(zip(scores, rows, strict=True)):
            if score.status == "invalid_task":
                raise UserError(
                    f"Row {row.get('id', f'number {index}')!r} cannot be verified by '{verifier.name}': {'; '.join(score.reasons)}. "
                    "Mend it or leave it out."
                )
        if log_metric is not None:
            for key, number in tally(verifier, scores).items():
                log_metric(f"{verifier.name}/{key}", number)
        if log_extra is not None:
            log_extra(f"{verifier.name}/reasons", ["; ".join(score.reasons) for score in scores])
        return [score.value for score in scores]

    if verifier.slow:

        async def reward(completions: Sequence[Any], log_metric: Any = None, log_extra: Any = None, **columns: Any) -> list[float | None]:
            rows, keys, different = _batch(completions, columns)
            pool = ThreadPoolExecutor(workers, thread_name_prefix=verifier.name)  # its own, so that no other verifier waits for it
            try:
                loop = asyncio.get_running_loop()
                scores = await asyncio.gather(*(loop.run_in_executor(pool, verifier, *pair) for pair in different.values()))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
            done = dict(zip(different, scores, strict=True))
            return values([done[key] for key in keys], rows, log_metric, log_extra)

    else:

        def reward(completions: Sequence[Any], log_metric: Any = None, log_extra: Any = None, **columns: Any) -> list[float | None]:
            rows, keys, different = _batch(completions, columns)
            done = {key: verifier(*pair) for key, pair in different.items()}
            return values([done[key] for key in keys], rows, log_metric, log_extra)

    # a column may have a name that no parameter can have; it is then found missing when the first row is scored
    names = [column for column in dict.fromkeys(verifier.columns) if column.isidentifier() and not keyword.iskeyword(column)]
    completions = inspect.Parameter("completions", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    reward.__signature__ = inspect.Signature([completions, *named, inspect.Parameter("_others", inspect.Parameter.VAR_KEYWORD)])
    reward.__name__ = reward.__qualname__ = verifier.name
    reward.verifier = verifier
    return reward


def tally(verifier: Verifier, scores: Sequence[Score]) -> dict[str, float]:
    """Numbers about the scores of a batch: failures, attempts past the deadline, and what the verifier itself counts."""
    return {
        "infra_errors": float(sum(score.status == "infra_error" for score in scores)),
        "timeouts": float(sum(bool(score.evidence.get("timeout")) for score in scores)),
        **(verifier.metrics(scores) if verifier.metrics is not None else {}),
    }


NOT_COLUMNS = frozenset({"prompts", "completion_ids", "trainer_state", "log_extra", "environments"})


def _batch(completions: Sequence[Any], columns: Mapping[str, Any]) -> tuple[list[Row], list[Any], dict[Any, tuple[Attempt, Row]]]:
    """Rows of a call, a key for each attempt, and one attempt and row for each different key.

    A completion may be plain text, as TRL has it for prompts that are plain text.
    """
    ids = columns.get("completion_ids") or [()] * len(completions)
    kept = {name: column for name, column in columns.items() if name not in NOT_COLUMNS and isinstance(column, (list, tuple))}
    rows = [{name: column[index] for name, column in kept.items()} for index in range(len(completions))]
    prompts, environments = (columns.get(name) or [None] * len(completions) for name in ("prompts", "environments"))
    attempts = [
        Attempt(_messages(c, "assistant"), tuple(i), _messages(p, "user"), e)
        for c, i, p, e in zip(completions, ids, prompts, environments, strict=True)
    ]
    keys = [_key(attempt, row) for attempt, row in zip(attempts, rows, strict=True)]
    different: dict[Any, tuple[Attempt, Row]] = {}
    for key, attempt, row in zip(keys, attempts, rows, strict=True):
        different.setdefault(key, (attempt, row))
    return rows, keys, different


def _messages(text: Any, role: str) -> tuple[Message, ...]:
    return ({"role": role, "content": text},) if isinstance(text, str) else tuple(text or ())


def _key(attempt: Attempt, row: Row) -> Any:
    """Equal where a verifier must say the same: the same messages, tokens, prompt, row; other objects count by identity."""
    told = [attempt.messages, attempt.prompt, row, attempt.environment]
    try:
        return json.dumps(told, sort_keys=True, default=lambda thing: {"object": id(thing)}), attempt.ids
    except (TypeError, ValueError, RecursionError):
        return id(attempt)
