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
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    names = tuple(getattr(f, "__name__", type(f).__name__) for f in functions)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"Two reward functions are called '{name}', so their metrics would be mixed up. Rename one.")
    return names


def missing_columns(function: RewardFunction, columns: Sequence[str]) -> list[str]:
    """Parameters a reward function demands that neither TRL nor the rows supply."""
    given = {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", *columns} - {"prompt", "completion"}
    parameters = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in named and p.default is p.empty and p.name not in given]


def score(
    functions: Sequence[RewardFunction],
    weights: Sequence[float],
    prompts: Sequence[list[Message]],
    completions: Sequence[list[Message]],
    rows: Sequence[Row],
    completion_ids: Sequence[Sequence[int]] | None = None,
    step: int = 0,
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

    Raises:
        UserError: A function raised, or returned what the contract does not allow.
    """
    names = reward_names(functions)
    extra: dict[str, list[Any]] = {}
    logged: dict[str, list[float]] = {}
    columns = sorted({key for row in rows for key in row} - NOT_FORWARDED)
    offered: dict[str, Any] = {
        "prompts": list(prompts),
        "completions": list(completions),
        "completion_ids": [list(ids) for ids in completion_ids] if completion_ids is not None else [[] for _ in completions],
        **{column: [row.get(column) for row in rows] for column in columns},
        "trainer_state": SimpleNamespace(global_step=step),
        "log_extra": lambda column, values: extra.__setitem__(column, list(values)),
        "log_metric": lambda name, value: logged.setdefault(name, []).append(float(value)),
    }
    results: list[Any] = [None] * len(functions)
    for index, function in enumerate(functions):
        if not _is_async(function):
            try:
                results[index] = function(**_accepted(function, offered))
            except Exception as error:
                raise _raised(function, names[index], error, offered) from error
    waiting = [index for index, function in enumerate(functions) if _is_async(function)]
    if waiting:
        for index, result in zip(waiting, _run_together([functions[i] for i in waiting], offered), strict=True):
            if isinstance(result, Exception):
                raise _raised(functions[index], names[index], result, offered) from result
            results[index] = result
    values = np.full((len(completions), len(functions)), np.nan)
    for index, name in enumerate(names):
        values[:, index] = _validated(name, results[index], len(completions))
    scored = ~np.isnan(values)
    total = np.where(scored, values * np.asarray(weights, dtype=float), 0.0).sum(axis=1)
    total[~scored.any(axis=1)] = np.nan
    metrics = {name: float(np.mean(values)) for name, values in logged.items()}
    return Scores(names, values, total, extra, metrics)


def _is_async(function: RewardFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def _accepted(function: RewardFunction, offered: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(offered)
    return {p.name: offered[p.name] for p in parameters if p.name in offered}


def _run_together(functions: Sequence[RewardFunction], offered: Mapping[str, Any]) -> list[Any]:
    async def gather() -> list[Any]:
        return await asyncio.gather(*(f(**_accepted(f, offered)) for f in functions), return_exceptions=True)

    return asyncio.run(gather())


def _raised(function: RewardFunction, name: str, error: Exception, offered: Mapping[str, Any]) -> UserError:
    """The error for a reward that raised, with the row that made it raise and the first traceback.

    The batch hides the culprit, so each completion is scored alone until one raises; the run is over anyway.
    """
    count = len(offered["completions"])
    culprit = "only on the whole batch"
    for index in range(count):
        alone = {k: v[index : index + 1] if isinstance(v, list) else v for k, v in offered.items()}
        try:
            result = function(**_accepted(function, alone))
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except Exception:
            identity = alone.get("id", [f"number {index}"])[0]
            culprit = f"on row {identity!r} for the completion {alone['completions'][0][-1]['content'][:120]!r}"
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
    if isinstance(result, (str, bytes, Mapping)) or not hasattr(result, "__len__") or not hasattr(result, "__iter__"):
        raise UserError(
            f"The reward function '{name}' returned {type(result).__name__} ({result!r:.60}): expected a list of {expected} numbers, got 1 "
            "value. Return one number (or None) a completion."
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
