"""How a series of numbers went, in a plain sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kendalltau

ENOUGH = 8  # steps below which no trend is called


@dataclass(frozen=True)
class Trend:
    """Where a series began and ended (means of its first and last fifth), over how many steps, and whether it moved.

    Attributes:
        word: "rose", "fell" or "flat", or "short" when there are too few steps to tell.
    """

    start: float
    end: float
    steps: int
    word: str


def is_number(value: Any) -> bool:
    """Whether a value read from JSON is a number that can be shown."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def short(value: float) -> str:
    """A number as a person would say it: two decimals, fewer for large numbers, two digits for tiny ones."""
    size = abs(value)
    if size >= 100:
        text = f"{size:,.0f}"
    elif size >= 10:
        text = f"{size:.1f}"
    else:
        text = f"{size:.2f}" if size >= 0.095 or size < 1e-9 else f"{size:.2g}"
    return f"−{text}" if value < 0 else text


def trend(values: Sequence[float]) -> Trend | None:
    """Whether a series moved: Mann-Kendall at 5%, and by more than a hundredth of its size; None for an empty series."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    start, end = last_fifth(values[::-1]), last_fifth(values)
    if len(values) < ENOUGH:
        return Trend(start, end, len(values), "short")
    moved = abs(end - start) > 0.01 * max(abs(start), abs(end)) and np.ptp(values) > 0
    moved = moved and kendalltau(np.arange(len(values)), values).pvalue < 0.05
    return Trend(start, end, len(values), ("rose" if end > start else "fell") if moved else "flat")


def last_fifth(values: Sequence[float]) -> float:
    """The mean of the last fifth of the numbers that were measured; NaN where there are none."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values)]
    return float(values[-max(1, len(values) // 5) :].mean()) if len(values) else math.nan


def change_sentence(name: str, values: Sequence[float]) -> str:
    """One sentence on how a series went: "Reward rose from 0.41 to 0.78 over 60 steps."."""
    found = trend(values)
    if found is None:
        return f"{name} was not measured."
    if found.word == "short":
        steps = "1 step" if found.steps == 1 else f"{found.steps} steps"
        return f"{name} ended at {short(found.end)}; {steps} are too few to call a trend."
    if found.word == "flat":
        return f"{name} stayed flat around {short(float(np.nanmean(values)))} over {found.steps} steps."
    return f"{name} {found.word} from {short(found.start)} to {short(found.end)} over {found.steps} steps."


def check_sentence(reward: Sequence[float], check: Sequence[float]) -> str:
    """Whether the independent check followed the reward."""
    paid, judged = trend(reward), trend(check)
    if paid is None or judged is None:
        return "The check was not measured."
    span = f"{short(judged.start)} to {short(judged.end)}"
    if "short" in (paid.word, judged.word):
        return f"The check ended at {short(judged.end)}; there are too few steps to compare it with the reward."
    if paid.word == "rose" and judged.word == "rose":
        return f"The check rose with the reward, from {span}, so the reward was earned."
    if paid.word == "rose":
        return f"The reward rose and the check did not (it went from {span}): read the best-paid rollouts before believing the reward."
    if judged.word == "rose":
        return f"The check rose from {span} although the reward did not."
    if judged.word == "fell":
        return f"The check fell from {span}: training made the answers worse."
    return f"The check stayed flat around {short(float(np.nanmean(check)))}: answers did not get better."


def dead_sentence(dead: Sequence[float], split: Sequence[float]) -> str:
    """How many groups could teach nothing, and why; `split` weighs all right, all wrong and tied."""
    mean = float(np.nanmean(dead))
    causes = ("every answer was right", "every answer was wrong", "all answers earned the same, neither all right nor all wrong")
    cause = causes[int(np.argmax(split))] if max(split) > 0 else ""
    if mean >= 0.9995:
        return f"Every group was dead{f', mostly because {cause}' if cause else ''}: nothing to learn."
    if mean < 0.0005:
        return "No group was dead: every group had something to teach."
    text = f"{100 * mean:.0f}% of groups were dead on average" + (f", mostly because {cause}" if cause else "")
    found = trend(dead)
    moved = found is not None and found.word in ("rose", "fell")
    return f"{text}; the share {found.word} from {100 * found.start:.0f}% to {100 * found.end:.0f}%." if moved else f"{text}."
