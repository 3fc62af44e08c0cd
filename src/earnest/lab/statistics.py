"""Intervals, from SciPy: Wilson for a share, bootstrap for a mean and for a paired difference."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 9999


def share_interval(successes: int, total: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share; (0, 1) when nothing was observed."""
    if total == 0:
        return 0.0, 1.0
    interval = stats.binomtest(successes, total).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def paired_interval(a: Sequence[float], b: Sequence[float], seed: int = 0) -> tuple[float, tuple[float, float]]:
    """Mean of b - a over the same rows, with its 95% percentile bootstrap interval over rows.

    Args:
        a: One value a row (several samples of a row averaged before).
        b: The same rows, in the same order.
        seed: Of the resampling.
    """
    difference = np.asarray(b, dtype=float) - np.asarray(a, dtype=float)
    mean = float(difference.mean())
    if len(difference) < 2 or np.all(difference == difference[0]):
        return mean, (mean, mean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            (difference,), np.mean, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile", rng=np.random.default_rng(seed)
        )
    return mean, (float(found.confidence_interval.low), float(found.confidence_interval.high))
