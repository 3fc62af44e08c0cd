"""What runs in the worker processes of the maths verifier: SymPy and math-verify, imported and warm before the first question."""

from __future__ import annotations

import math_verify  # noqa: F401  (before the first question, whose deadline must not pay for it)
import sympy  # noqa: F401

from earnest.rewards.symbolic import compare_whole

__all__ = ["compare_whole"]

# the first use of the LaTeX parser builds its tables, the first simplification fills caches: y = a / 2 is 2y - a = 0
_TWO, _A, _Y, _NONE = ["num", "2", "exact"], ["var", "a"], ["var", "y"], ["num", "0", "exact"]
compare_whole(["relation", _Y, "=", ["div", _A, _TWO]], ["relation", ["add", ["mul", _TWO, _Y], ["neg", _A]], "=", _NONE], 0.0)
