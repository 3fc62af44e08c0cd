"""Will training learn anything here? Pass rates of rows under the model as it is now, the filter, and the forecast of dead groups.

A group teaches only when its rewards differ. A row the model always gets right or always wrong makes dead groups, so its pass rate
tells, before any step is paid for, how much of the batch will carry a signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from earnest.config import DifficultyConfig
from earnest.engine.grpo import dead_share
from earnest.engine.models import Loaded
from earnest.engine.rollouts import Prompt
from earnest.engine.sft import spread
from earnest.engine.turns import dialect_of
from earnest.environment import acted
from earnest.errors import UserError
from earnest.task import Task, Verdict

GROUPS = (4, 8, 16, 32)
LOOKED_AT = 32  # rows whose oracle is measured


def summarise(
    ids: Sequence[str], verdicts: Sequence[Sequence[Verdict]], model: str, group: int, acting: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What k answers a row say of the rows.

    Args:
        ids: Row ids.
        verdicts: k verdicts of each row.
        model: Name of the model asked.
        group: G of the training to come, for the advice.
        acting: What the model did with its tools (`engine.turns.acting_metrics`), where it has some.

    Returns:
        The record described in docs/run-directory.md.
    """
    right = np.array([[v.correct for v in row] for row in verdicts], dtype=float)
    rates = right.mean(axis=1)
    flat = [v for row in verdicts for v in row]
    broken = sum(v.well_formed is False for v in flat) / len(flat)
    wrong = sum(v.well_formed is not False and not v.correct for v in flat) / len(flat)
    record = {
        "model": model,
        "k": right.shape[1],
        **shares(rates),
        "format_failures": broken,
        "content_failures": wrong,
        "pass_rates": dict(zip(ids, rates.tolist(), strict=True)),
        **({} if acting is None else {"acting": dict(acting)}),
    }
    return record | {"advice": advice(record, group)}


def shares(rates: np.ndarray) -> dict[str, Any]:
    """Shares of rows all right, mixed and all wrong; the mean pass rate; dead groups to expect for several G."""
    rates = np.asarray(rates, dtype=float)
    return {
        "rows": len(rates),
        "all_right": float((rates == 1).mean()),
        "mixed": float(((rates > 0) & (rates < 1)).mean()),
        "all_wrong": float((rates == 0).mean()),
        "pass_rate": float(rates.mean()),
        "dead_forecast": {str(g): dead_share(rates, g) for g in GROUPS},
    }


def choose(rates: Mapping[str, float], config: DifficultyConfig, seed: int) -> list[str]:
    """Ids of the measured rows to train on.

    Rows outside [keep_from, keep_to] go; of the all-right and of the all-wrong rows that are left, the given shares go, chosen by the
    seed.
    """
    rng = np.random.default_rng([seed, 2])
    out = {i for i, rate in rates.items() if not config.keep_from <= rate <= config.keep_to}
    for value, share in ((1.0, config.drop_all_right), (0.0, config.drop_all_wrong)):
        same = [i for i, rate in rates.items() if rate == value and i not in out]
        out.update(same[i] for i in rng.permutation(len(same))[: round(share * len(same))])
    return [i for i in rates if i not in out]


def filtered(ids: Sequence[str], verdicts: Sequence[Sequence[Verdict]], kept: Sequence[str], model: str, group: int) -> dict[str, Any]:
    """The record of the rows that were kept, as `summarise` makes it of them alone; without numbers when none was."""
    wanted = set(kept)
    pairs = [(i, row) for i, row in zip(ids, verdicts, strict=True) if i in wanted]
    if pairs:
        return summarise([i for i, _ in pairs], [row for _, row in pairs], model, group)
    empty = dict.fromkeys(("all_right", "mixed", "all_wrong", "pass_rate", "format_failures", "content_failures"))
    forecast = dict.fromkeys(map(str, GROUPS))
    rest = {"dead_forecast": forecast, "pass_rates": {}, "advice": "No row is left. Loosen the filter."}
    return {"model": model, "k": len(verdicts[0]), "rows": 0, **empty, **rest}


def too_long(task: Task, loaded: Loaded, prompts: Sequence[Prompt], room: int) -> str:
    """A sentence where the oracle itself, with what its tools answer, does not fit into a rollout; "" where it does, or there is none."""
    if task.oracle is None or not task.acts or not prompts:
        return ""
    chosen = spread(prompts, LOOKED_AT)
    dialect = dialect_of(task, loaded, chosen[0].row, thinking=False)
    try:
        needed = [len(dialect.trajectory(p.messages, acted(task, p.row, task.oracle(p.row))[0])[1]) for p in chosen]
    except UserError:  # a template may be unable to write what it can read
        return ""
    over = sum(tokens > room for tokens in needed)
    return (
        f"The right answer of {over} of {len(needed)} rows takes up to {max(needed)} tokens, those of tools among them, and "
        f"max_completion_length is {room}: a rollout that is cut off there cannot be right. Raise it."
        if over
        else ""
    )


def advice(record: Mapping[str, Any], group: int) -> str:
    """One sentence: what to do before training."""
    dead = dead_share(np.array(list(record["pass_rates"].values())), group)
    signal = f"{1 - dead:.0%} of groups of {group} would carry a signal"
    if (cut := record.get("acting", {}).get("ended/token_limit", 0)) >= 0.5:
        return (
            f"Raise max_completion_length, or run SFT first: {cut:.0%} of the rollouts ran out of tokens, those of tools among them, "
            f"and only {signal}."
        )
    if record["format_failures"] >= 0.5:
        return f"Run SFT first: {record['format_failures']:.0%} of the answers break the format, and only {signal}."
    if record["all_wrong"] >= 0.6:
        return f"Take easier rows or run SFT first: {record['all_wrong']:.0%} of the rows were never answered right, and only {signal}."
    if record["all_right"] >= 0.6:
        return f"Take harder rows: {record['all_right']:.0%} of the rows are always answered right, and only {signal}."
    if dead >= 0.5:
        larger = next((g for g in GROUPS if record["dead_forecast"][str(g)] < 0.5), None)
        how = f"Raise num_generations to {larger}" if larger else "Take rows of middling difficulty"
        return f"{how}: with groups of {group}, only {signal[: signal.index(' of')]} would carry a signal."
    return f"Go ahead and train: {signal}."
