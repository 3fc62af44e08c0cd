"""The environment of a review: look at the change, and try both versions."""

from __future__ import annotations

import ast
from typing import Any

from earnest.tasks.code_review.functions import Running

LONGEST = 120  # characters of a call
LARGEST = 10_000  # a number in a call
LITERAL = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.USub, ast.Load)


class Review:
    """A changed function beside what it was."""

    def reset(self, function: str, module: str, before: str, after: str, diff: str, **row: Any) -> None:
        """Both versions, fresh."""
        self._name, self._shown = function, diff.splitlines()
        self._before, self._after = (Running(module, function, source) for source in (before, after))

    def show(self, start: int, end: int) -> str:
        """Show lines of the change (- old, + new).

        Args:
            start: First line.
            end: Last line.
        """
        last = sum(not line.startswith("-") for line in self._shown)
        picked, number = [], 1
        for line in self._shown:
            if start <= min(number, last) <= end:  # an old line goes with the new one after it, at the end with the one before
                picked.append(line)
            number += not line.startswith("-")
        return "\n".join(picked) or "no such lines"

    def run(self, call: str) -> dict:
        """Run a call before and after the change.

        Args:
            call: Such as f(1, "a"), with plain values.
        """
        arguments = self._arguments(call)
        return {"before": _twice(self._before, arguments), "after": _twice(self._after, arguments)}

    def _arguments(self, call: str) -> list[Any]:
        """The arguments of a call of the function under review. Nothing else is ever run, and a model's text never is.

        Raises:
            ValueError: The text is something else.
        """
        if len(call) > LONGEST:
            raise ValueError("the call is too long")
        try:
            node = ast.parse(call.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            node = None
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != self._name or node.keywords:
            raise ValueError(f"only calls such as {self._name}(1, 'a') can be run")
        parts = [part for argument in node.args for part in ast.walk(argument)]
        numbers = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, (int, float, complex))]
        if not all(isinstance(part, LITERAL) for part in parts) or any(abs(number) > LARGEST for number in numbers):
            raise ValueError("arguments must be plain values, no number above 10000")
        return [ast.literal_eval(argument) for argument in node.args]


def _twice(version: Running, arguments: list[Any]) -> str:
    """What a call gives, and what it gives when it is made again, where that is something else."""
    first, again = version.call(arguments), version.call(arguments)
    return (first if first == again else f"{first}, then {again}")[:200]
