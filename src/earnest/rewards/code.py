"""Verifiers of programs: functions with inputs and outputs, whole programs, assert statements, pytest suites.

The answer runs in a sandbox and is sent inputs; what it should say stays in the parent (`code_run` has the argument why that cannot
be forged). All tests must pass, and only those count as held out whose input no prompt has shown: a table of the visible ones earns
nothing. `assert_tests` and `pytest_suite` are in `code_tests`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from earnest.rewards.code_child import NotPlainError, encode
from earnest.rewards.code_compare import Equality, canonical
from earnest.rewards.code_run import ENDINGS, LIMITS, READY_LINE, Call, Fence, Outcome, Runner, Setting, extract_code, unstarted
from earnest.rewards.code_tally import FunctionTest, Tally, score_calls, too_weak, weak_calls
from earnest.rewards.code_tests import assert_tests, pytest_suite
from earnest.rewards.verifier import Score, Verifier, invalid_task
from earnest.sandbox.sandbox import Limits, Sandbox
from earnest.task import Row

__all__ = ["assert_tests", "extract_code", "function_calls", "programs", "pytest_suite"]

Whitespace = Literal["exact", "trailing", "tokens"]

# Writes to stderr that it is ready, then becomes the program, whose stdin and stdout are its own.
LAUNCHER = f"""import os, sys
os.write(2, {READY_LINE!r}.encode())
import runpy
sys.argv = ["answer.py"]
runpy.run_path("answer.py", run_name="__main__")
"""


class _BrokenTestError(ValueError):
    """A row's test that cannot be used, with the reason."""


def function_calls(
    gold: str = "tests",
    *,
    entry_point: str = "entry_point",
    exact_types: bool = True,
    relative: float = 0.0,
    absolute: float = 0.0,
    pure: bool = False,
    partial: bool = False,
    fence: Fence = "none",
    limits: Limits = LIMITS,
    seconds: float = 30.0,
    max_characters: int = 50_000,
    sandbox: Sandbox | None = None,
) -> Verifier:
    """The answer defines a function that returns the right value for every input.

    A test is a mapping: `args` (a list) and `kwargs`, then `expected` or `raises` (the name of the exception's class, exactly).
    For what JSON lacks, `args_literal` and `expected_literal` are Python literals in text, such as "((1, 2), {3})". `visible: true`
    marks a test that the prompt shows; it must pass and pays nothing. `function` names another function than the row's. The list may
    also be JSON text. A row without a held-out test is refused, and one that a function passes which does
    nothing, or says the same to every input.

    Results count only as plain data: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, and Counter,
    OrderedDict and defaultdict, nested up to 60 deep. Objects of other classes, subclasses and generators are wrong answers.

    Args:
        gold: Column of the tests.
        entry_point: Column of the function's name; "Class.method" calls the method of a fresh object.
        exact_types: Whether True differs from 1, 1 from 1.0 and Counter from dict. If not, `==` between built-in types decides.
        relative: How far a float may be off, as a share of the expected one.
        absolute: How far a float may be off. Where an integer is expected a float may be too, if types are not exact.
        pure: Whether the function keeps nothing between calls, so that one process can serve all of them. It then sees all inputs.
        partial: Whether passing some held-out tests pays their share, once all visible ones pass; otherwise it is all or nothing.
        fence: Where the program stands in the answer, as `extract_code` has it.
        limits: What each process may use.
        seconds: Wall time of all processes of one attempt together, as the sandbox charges it: beside many others a second costs less.
        max_characters: Longest answer that is looked at.
        sandbox: Where it runs; None looks for the best there is.
    """
    setting = Setting(sandbox, limits, seconds, fence, max_characters)
    rule = Equality(exact_types, relative, absolute)

    def judge(attempt: Any, row: Row) -> Score:
        try:
            tests = _function_tests(row[gold], row[entry_point], exact_types)
        except _BrokenTestError as error:
            return invalid_task(str(error))
        return setting.judge(attempt.text, lambda source, runner: score_calls(runner, source, tests, rule, pure, partial))

    return Verifier("function_calls", judge, columns=(gold, entry_point), slow=True)


def _function_tests(tests: Any, entry_point: Any, exact: bool) -> list[FunctionTest]:
    """The tests of a row.

    Raises:
        _BrokenTestError: They cannot be used.
    """
    found = [_numbered(number, _function_test, test, entry_point) for number, test in _listed(tests)]
    shown = {test.call.key for test in found if test.visible}
    found = [FunctionTest(t.call, t.expected, t.raises, t.visible or t.call.key in shown) for t in found]
    wanted: dict[str, str] = {}
    for test in found:
        answer = f"{test.raises} {canonical(test.expected)}"
        if wanted.setdefault(test.call.key, answer) != answer:
            raise _BrokenTestError("two tests have the same input and expect different results")
    if weak := weak_calls(found, exact):
        raise _BrokenTestError(weak)
    return found


def _function_test(test: Mapping[str, Any], entry_point: Any) -> FunctionTest:
    _only(test, {"args", "args_literal", "kwargs", "expected", "expected_literal", "raises", "visible", "function"})
    if len(test.keys() & {"args", "args_literal"}) != 1 or len(test.keys() & {"expected", "expected_literal", "raises"}) != 1:
        raise _BrokenTestError("it needs args or args_literal, and one of expected, expected_literal and raises")
    args = _literal(test["args_literal"]) if "args_literal" in test else test["args"]
    expected = _literal(test["expected_literal"]) if "expected_literal" in test else test.get("expected")
    kwargs, raises, function = test.get("kwargs") or {}, test.get("raises", ""), test.get("function") or entry_point
    if not isinstance(args, (list, tuple)) or not isinstance(kwargs, dict) or not isinstance(raises, str) or not isinstance(function, str):
        raise _BrokenTestError("args must be a list, kwargs a mapping, raises and the function's name text")
    if "raises" in test and not raises.isidentifier():
        raise _BrokenTestError("raises must be the name of an exception's class")
    try:
        return FunctionTest(Call.of(function, args, kwargs), encode(expected), raises, bool(test.get("visible", False)))
    except NotPlainError as error:
        raise _BrokenTestError(f"args and expected must be plain data, not {error}") from error


def _literal(text: Any) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (AttributeError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise _BrokenTestError("a literal in it is no Python literal") from error


def _listed(tests: Any) -> Iterable[tuple[int, Any]]:
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except (ValueError, RecursionError) as error:
            raise _BrokenTestError("the tests are no JSON") from error
    if not isinstance(tests, (list, tuple)) or not tests:
        raise _BrokenTestError("the row has no tests" if not tests else "the tests are no list")
    return enumerate(tests, start=1)


def _numbered(number: int, make: Any, test: Any, *more: Any) -> Any:
    try:
        if not isinstance(test, Mapping):
            raise _BrokenTestError("it is no mapping")
        return make(test, *more)
    except _BrokenTestError as error:
        raise _BrokenTestError(f"test {number} cannot be used: {error}") from error


def _only(test: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(str(key) for key in test.keys() - known)
    if unknown:
        raise _BrokenTestError(f"it has an unknown key '{unknown[0]}'")


@dataclass(frozen=True)
class ProgramTest:
    """What a program reads and what it must write."""

    stdin: str
    stdout: str
    visible: bool


def programs(
    gold: str = "tests",
    *,
    whitespace: Whitespace = "trailing",
    tolerance: float = 0.0,
    partial: bool = False,
    fence: Fence = "none",
    limits: Limits = LIMITS,
    seconds: float = 30.0,
    max_characters: int = 50_000,
    sandbox: Sandbox | None = None,
) -> Verifier:
    """The answer is a program that writes the right text for every input, and ends without an error.

    A test is a mapping with `stdin` and `stdout`; `visible: true` marks one that the prompt shows, which must pass and pays nothing.
    The list may also be JSON text. What a program writes is compared in the parent; nothing but stdout and the exit status counts.

    Args:
        gold: Column of the tests.
        whitespace: "exact": every byte. "trailing": white space at the ends of lines and of the text is ignored. "tokens": only the
            words between white space are compared.
        tolerance: How far a number in the output may be off, absolutely or as a share of the expected one (an expected integer: only
            absolutely; two integers: not at all). Numbers are ASCII decimals; any other text must be equal.
        partial: Whether passing some held-out tests pays their share, once all visible ones pass.
        fence: Where the program stands in the answer, as `extract_code` has it.
        limits: What each process may use.
        seconds: Wall time of all processes of one attempt together, as the sandbox charges it: beside many others a second costs less.
        max_characters: Longest answer that is looked at.
        sandbox: Where it runs; None looks for the best there is.
    """
    setting = Setting(sandbox, limits, seconds, fence, max_characters)

    def judge(attempt: Any, row: Row) -> Score:
        try:
            tests = _program_tests(row[gold])
        except _BrokenTestError as error:
            return invalid_task(str(error))

        def rule(source: str, runner: Runner) -> Score:
            tally = Tally([test.visible for test in tests], partial)
            for index in sorted(range(len(tests)), key=lambda index: not tests[index].visible):
                outcome = _run_program(runner, source, tests[index].stdin)
                right = outcome.kind == "value" and same_output(outcome.value, tests[index].stdout, whitespace, tolerance)
                tally.add(index, outcome, outcome.problem or ("" if right else "wrote another text than expected"))
                if tally.over:
                    break
            return tally.score()

        return setting.judge(attempt.text, rule)

    return Verifier("programs", judge, columns=(gold,), slow=True)


def _program_tests(tests: Any) -> list[ProgramTest]:
    found = [_numbered(number, _program_test, test) for number, test in _listed(tests)]
    shown = {test.stdin for test in found if test.visible}
    found = [ProgramTest(test.stdin, test.stdout, test.stdin in shown) for test in found]
    wanted = [" ".join(test.stdout.split()) for test in found]
    if weak := too_weak([test.visible for test in found], [test.stdin for test in found], wanted, ""):
        raise _BrokenTestError(weak)
    return found


def _program_test(test: Mapping[str, Any]) -> ProgramTest:
    _only(test, {"stdin", "stdout", "visible"})
    stdin, stdout = test.get("stdin", ""), test.get("stdout")
    if not isinstance(stdin, str) or not isinstance(stdout, str):
        raise _BrokenTestError("stdin and stdout must be text")
    return ProgramTest(stdin, stdout, bool(test.get("visible", False)))


def _run_program(runner: Runner, source: str, stdin: str) -> Outcome:
    result = runner.run(LAUNCHER, files={"answer.py": source.encode()}, stdin=stdin.encode("utf-8", "surrogatepass"))
    if unstarted(result, result.stderr):
        return Outcome("infra_error", detail=unstarted(result, result.stderr))
    if result.status == "ok":
        return Outcome("value", result.stdout)
    error = re.search(r"^(\w*(?:Error|Exception|Interrupt|Exit))\b[^\n]*\s*\Z", result.stderr[-2000:], re.MULTILINE)
    return Outcome("failed", detail=ENDINGS.get(result.status) or "ended with an error" + (f" ({error[1][:60]})" if error else ""))


_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def same_output(got: str, expected: str, whitespace: Whitespace = "trailing", tolerance: float = 0.0) -> bool:
    """Whether two outputs are the same under a policy for white space and, if asked, a tolerance for numbers."""
    if whitespace == "tokens":
        pieces, targets = got.split(), expected.split()
    elif whitespace == "trailing":
        pieces, targets = (re.split(r"(\s+)", "\n".join(map(str.rstrip, text.rstrip().split("\n")))) for text in (got, expected))
    else:
        pieces, targets = (re.split(r"(\s+)", text) for text in (got, expected))
    return len(pieces) == len(targets) and all(_same_token(a, b, tolerance) for a, b in zip(pieces, targets, strict=True))


def _same_token(got: str, expected: str, tolerance: float) -> bool:
    if got == expected or not tolerance:
        return got == expected
    if not _NUMBER.fullmatch(got) or not _NUMBER.fullmatch(expected):
        return False
    whole = _INTEGER.fullmatch(expected) is not None
    if whole and _INTEGER.fullmatch(got):
        return Fraction(got) == Fraction(expected)  # a different way to write it, such as +5
    target = Fraction(expected)
    return abs(Fraction(got) - target) <= Fraction(tolerance) * (1 if whole else max(1, abs(target)))
