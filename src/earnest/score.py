"""Calling reward functions, by TRL's contract, and refusing what they must not return.

A reward function gets keywords: `prompts`, `completions` (each a list of messages), `completion_ids`, every column of the rows,
`trainer_state`, `log_extra`, `log_metric`. It returns one number or None a completion. None means "no verdict": the value is left
out of means and the rollout out of the loss, it is never a zero. Whatever else comes back (another length, text, NaN, infinity)
and any exception is an error that names the function and the row.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import numbers
import os
import threading
import traceback
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from earnest.errors import UserError
from earnest.task import Message, RewardFunction, Row

# TRL hands a row's own "prompt" and "completion" columns to nobody: they would collide with the lists of the call.
NOT_FORWARDED = frozenset({"prompt", "completion", "completion_ids", "prompts", "completions"})


@dataclass(frozen=True)
class Scores:
    """What the reward functions said of N completions.

    Attributes:
        names: Reward function names, F of them.
        values: float64 [N, F], unweighted; NaN where a function gave no verdict.
        total: float64 [N], weighted sum over the functions that gave one; NaN where none did (TRL's `nansum`, its zero aside).
        extra: Columns logged through `log_extra`.
        metrics: Numbers logged through `log_metric`, averaged.
    """

    names: tuple[str, ...]
    values: np.ndarray
    total: np.ndarray
    extra: Mapping[str, list[Any]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


def reward_names(functions: Sequence[RewardFunction]) -> tuple[str, ...]:
    """A name for each function, as TRL logs it.

    Raises:
        UserError: Two functions share a name, so that their metrics would overwrite each other.
    """
    names = tuple(_name(function) for function in functions)
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"Two reward functions are called '{name}', so their metrics would be mixed up. Write one with def and another name, or "
                "set its __name__."
            )
    return names


def _name(function: RewardFunction) -> str:
    if isinstance(function, partial) and not hasattr(function, "__name__"):
        return _name(function.func)
    return getattr(function, "__name__", type(function).__name__)


def missing_columns(function: RewardFunction, columns: Sequence[str]) -> list[str]:
    """Parameters a reward function demands that neither TRL nor the rows supply."""
    supplied = ("prompts", "completions", "completion_ids", "environments", "trainer_state", "log_extra", "log_metric")
    given = {*supplied, *columns} - {"prompt", "completion"}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    wanted = [p.name for p in _parameters(function) if p.kind in named and p.default is p.empty]
    wanted += getattr(getattr(function, "verifier", None), "columns", ())  # of names that no parameter can have
    return [name for name in dict.fromkeys(wanted) if name not in given]


def weighted_total(values: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """[N]: the weighted sum of values [N, F] over those that are numbers; NaN where none is."""
    scored = ~np.isnan(values)
    total = np.where(scored, values * np.asarray(weights, dtype=float), 0.0).sum(axis=1)
    total[~scored.any(axis=1)] = np.nan
    return total


def score(
    functions: Sequence[RewardFunction],
    weights: Sequence[float],
    prompts: Sequence[list[Message]],
    completions: Sequence[list[Message]],
    rows: Sequence[Row],
    completion_ids: Sequence[Sequence[int]] | None = None,
    step: int = 0,
    environments: Sequence[Any] | None = None,
) -> Scores:
    """Score N completions with every reward function.

    Sync functions run one after another, async ones together, as in TRL. A function without `**kwargs` gets only what it declares.

    Args:
        functions: Reward functions.
        weights: One weight each.
        prompts: N prompts as chat messages.
        completions: N completions, each a list with the assistant's message.
        rows: The N rows the prompts came from.
        completion_ids: N lists of sampled token ids; empty lists when None.
        step: Optimiser step, as `trainer_state.global_step`.
        environments: The N environments, as the attempts left them; None where the task has none.

    Raises:
        UserError: A function raised, or returned what the contract does not allow.
    """
    if not len(prompts) == len(rows) == len(completions) or not len(weights) == len(functions):
        raise ValueError(
            f"one prompt and one row a completion, one weight a function: got {len(prompts)} prompts, {len(rows)} rows, "
            f"{len(completions)} completions, {len(weights)} weights, {len(functions)} functions"
        )
    names = reward_names(functions)
    extra: dict[str, list[Any]] = {}
    logged: dict[str, list[float]] = {}
    columns = sorted({key for row in rows for key in row} - NOT_FORWARDED)
    offered: dict[str, Any] = {
        "prompts": list(prompts),
        "completions": list(completions),
        "completion_ids": [list(ids) for ids in completion_ids] if completion_ids is not None else [[] for _ in completions],
        **{column: [row.get(column) for row in rows] for column in columns},
        **({} if environments is None else {"environments": list(environments)}),
        "trainer_state": SimpleNamespace(global_step=step),
        "log_extra": lambda column, values: extra.__setitem__(column, list(values)),
        "log_metric": lambda name, value: logged.setdefault(name, []).append(float(value)),
    }
    values = np.full((len(completions), len(functions)), np.nan)
    for index, result in enumerate(_call_all(functions, offered)):
        if isinstance(result, BaseException):
            raise _raised(functions[index], names[index], result, offered) from result
        values[:, index] = _validated(names[index], result, len(completions))
    for column, logged_values in extra.items():
        if len(logged_values) != len(completions):
            raise UserError(f"log_extra({column!r}, ...) got {len(logged_values)} values for {len(completions)} completions. Log one each.")
    metrics = {name: float(np.mean(numbers_logged)) for name, numbers_logged in logged.items()}
    return Scores(names, values, weighted_total(values, weights), extra, metrics)


def _parameters(function: RewardFunction) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some compiled functions do not say: they get everything
        return [inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]


def _accepted(function: RewardFunction, offered: Mapping[str, Any]) -> dict[str, Any]:
    parameters = _parameters(function)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(offered)
    return {p.name: offered[p.name] for p in parameters if p.name in offered}


def _call_all(functions: Sequence[RewardFunction], offered: Mapping[str, Any]) -> list[Any]:
    """What each function returned, or the exception it raised.

    Calling an async function only makes its coroutine: those wait until all sync ones are through, then run together.
    """
    results: list[Any] = []
    for function in functions:
        try:
            results.append(function(**_accepted(function, offered)))
        except Exception as error:
            results.append(error)
    waiting = [index for index, result in enumerate(results) if inspect.isawaitable(result)]
    if waiting:

        async def together() -> list[Any]:
            return await asyncio.gather(*(results[index] for index in waiting), return_exceptions=True)

        for index, result in zip(waiting, wait_for(together()), strict=True):
            results[index] = result
    return results


def wait_for(coroutine: Awaitable[Any]) -> Any:
    """What a coroutine returns, run on the one event loop of the process."""
    return asyncio.run_coroutine_threadsafe(coroutine, _event_loop(os.getpid())).result()


@cache
def _event_loop(process: int) -> asyncio.AbstractEventLoop:
    """One loop for the whole process, on a thread of its own.

    As in TRL: an async client made once keeps working from step to step, which a new loop each time would break, and a notebook,
    where a loop runs already, can score too. A forked child needs its own, hence the process id.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="earnest-async-rewards", daemon=True).start()
    return loop


def _raised(function: RewardFunction, name: str, error: BaseException, offered: Mapping[str, Any]) -> UserError:
    """The error for a reward that raised, with the row that made it raise and the first traceback.

    The batch hides the culprit, so each completion is scored alone until one raises; the run is over anyway.
    """
    count = len(offered["completions"])
    culprit = "only on the whole batch"
    for index in range(count):
        alone = {k: v[index : index + 1] if isinstance(v, list) else v for k, v in offered.items()}
        if isinstance(_call_all([function], alone)[0], BaseException):
            identity = alone.get("id", [f"number {index}"])[0]
            message = alone["completions"][0][-1] if alone["completions"][0] else {}
            culprit = f"on row {identity!r} for the completion {str(message.get('content'))[:120]!r}"
            break
    frames = "".join(traceback.format_exception(error)).rstrip()
    return UserError(
        f"The reward function '{name}' raised {type(error).__name__}: {error} {culprit}. "
        "A reward must score any text a model may write; mend it and run again.",
        details=frames,
    )


def _validated(name: str, result: Any, expected: int) -> list[float]:
    """One float a completion, NaN for None.

    Raises:
        UserError: Wrong length, a type that is no number, NaN or infinity.
    """
    is_list = isinstance(result, Sequence) and not isinstance(result, (str, bytes, bytearray))
    if not is_list and getattr(result, "ndim", 0) == 0:  # neither a list nor an array: a set, say, has no order
        got = "1 number" if isinstance(result, numbers.Real) or hasattr(result, "ndim") else "no list"
        raise UserError(
            f"The reward function '{name}' returned {type(result).__name__} ({result!r:.60}): expected a list of {expected} numbers, got "
            f"{got}. Return one number (or None) a completion."
        )
    items = list(result)
    if len(items) != expected:
        raise UserError(
            f"The reward function '{name}' returned the wrong number of values: expected {expected}, got {len(items)}. "
            "Return one number (or None) a completion."
        )
    return [_number(name, index, item) for index, item in enumerate(items)]


def _number(name: str, index: int, item: Any) -> float:
    if item is None:
        return math.nan
    if hasattr(item, "item") and getattr(item, "ndim", 0) == 0:  # a NumPy or torch scalar
        item = item.item()
    if not isinstance(item, numbers.Real):
        raise UserError(
            f"The reward function '{name}' returned {type(item).__name__} ({item!r:.60}) at index {index}. Return numbers or None."
        )
    try:
        value = float(item)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise UserError(
            f"The reward function '{name}' returned {value} at index {index}. A reward must be finite; return None when it can give "
            "no verdict."
        )
    return value
