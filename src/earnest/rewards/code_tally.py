"""Counting tests: which passed, which were held out, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from earnest.rewards.code_compare import Equality, canonical, same
from earnest.rewards.code_run import Call, Outcome, Runner
from earnest.rewards.verifier import Score, infra_error


class Tally:
    """What became of each test. One that was not run, or of which nothing is known, has not passed.

    Args:
        visible: For each test, whether the prompt shows it.
        partial: Whether passing some of the held-out ones pays their share, once all visible ones pass.
        names: What the tests are called; None numbers them.
    """

    def __init__(self, visible: Sequence[bool], partial: bool, names: Sequence[str] | None = None) -> None:
        self.visible, self.partial = visible, partial
        self.names = names or [f"test {number}" for number in range(1, len(visible) + 1)]
        self.passed: set[int] = set()
        self.ran: set[int] = set()
        self.problem = ""
        self.infra = ""
        self.timeout = False

    def add(self, index: int, outcome: Outcome, problem: str) -> None:
        """Note a test by its place, how it ran, and why it has not passed ("" when it has)."""
        if outcome.kind == "infra_error":
            self.infra = outcome.detail
        elif not problem:
            self.passed.add(index)
        else:
            self.problem = self.problem or f"{self.names[index]}: {problem}"
        self.timeout |= outcome.detail.startswith("timeout")
        if outcome.kind in ("value", "raised"):
            self.ran.add(index)

    @property
    def over(self) -> bool:
        """Whether nothing that follows can change the score."""
        failed = self.problem and (not self.partial or any(shown and i not in self.passed for i, shown in enumerate(self.visible)))
        return bool(self.infra or failed or self.timeout)

    def score(self) -> Score:
        """Full marks for all, nothing for less; or the share of the held-out ones."""
        total, held_out = len(self.visible), [index for index, shown in enumerate(self.visible) if not shown]
        evidence = {"tests": total, "held_out": len(held_out), "passed": len(self.passed), "timeout": self.timeout}
        if self.infra:
            return infra_error(self.infra, **evidence)
        if held_out and len(self.passed) == total:
            return Score(1.0, evidence=evidence)
        share = len(self.passed & set(held_out)) / len(held_out) if self.partial and self._shown_passed else 0.0
        count = f"{len(self.passed)} of {total} tests passed" if self.ran else f"0 of {total} tests ran"
        return Score(share, reasons=(self.problem or "no test passed", count), evidence=evidence)

    @property
    def _shown_passed(self) -> bool:
        return all(index in self.passed for index, shown in enumerate(self.visible) if shown)


@dataclass(frozen=True)
class FunctionTest:
    """One call and what it must come to: a value (encoded), or the name of an exception."""

    call: Call
    expected: Any
    raises: str
    visible: bool

    def problem(self, outcome: Outcome, rule: Equality) -> str:
        """Why an outcome is not the expected one; "" when it is."""
        if self.raises:
            if outcome.kind == "raised":
                return "" if outcome.detail == self.raises else f"raised {outcome.detail}, not {self.raises}"
            return f"returned a value where {self.raises} must be raised" if outcome.kind == "value" else outcome.problem
        if outcome.kind != "value":
            return outcome.problem
        return "" if same(outcome.value, self.expected, rule) else "returned another value than expected"


def too_weak(visible: Sequence[bool], inputs: Sequence[str], wanted: Sequence[str], nothing: str, alone: bool = False) -> str:
    """Why tests that tell too little cannot be used; "" when they can.

    Args:
        visible: For each test, whether the prompt shows it.
        inputs: What it asks.
        wanted: What it wants, as a text.
        nothing: What a test wants that an answer without any work would pass.
        alone: Whether one held-out test is not enough where all want the same, as with an exception that any call may raise.
    """
    held_out = [index for index, shown in enumerate(visible) if not shown]
    if not held_out:
        return "no test is held out: a table of the visible ones would pass"
    if all(wanted[index] == nothing for index in held_out):
        return "an answer that does nothing would pass every held-out test"
    several = len({inputs[index] for index in held_out}) > 1
    return "an answer that says the same to every input would pass every test" if len(set(wanted)) == 1 and (several or alone) else ""


def weak_calls(tests: Sequence[FunctionTest], exact: bool) -> str:
    """`too_weak` for calls."""
    wanted = [test.raises or f"= {canonical(test.expected, exact)}" for test in tests]
    alone = all(test.raises for test in tests)
    return too_weak([test.visible for test in tests], [test.call.key for test in tests], wanted, f"= {canonical(None)}", alone)


def score_calls(runner: Runner, source: str, tests: Sequence[FunctionTest], rule: Equality, pure: bool, partial: bool) -> Score:
    """Run tests, visible ones first, and stop at the first that fails unless passing some pays."""
    tally = Tally([test.visible for test in tests], partial)
    order = sorted(range(len(tests)), key=lambda index: not tests[index].visible)
    at_once = dict(zip(order, runner.calls(source, [tests[index].call for index in order]), strict=True)) if pure else {}
    for index in order:
        outcome = at_once[index] if pure else runner.calls(source, [tests[index].call])[0]
        tally.add(index, outcome, tests[index].problem(outcome, rule))
        if tally.over:
            break
    return tally.score()
