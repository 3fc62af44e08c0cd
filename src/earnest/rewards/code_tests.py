"""The answer is held against tests that are code: assert statements, a `check(candidate)` function, pytest suites."""

from __future__ import annotations

import ast
import keyword
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from earnest.errors import UserError
from earnest.rewards.code_compare import Equality
from earnest.rewards.code_run import LIMITS, Fence, Setting
from earnest.rewards.code_suites import Rule, Suite, literal_calls, score_suite, undefined_names
from earnest.rewards.code_tally import FunctionTest, score_calls, weak_calls
from earnest.rewards.verifier import Score, Verifier, invalid_task
from earnest.sandbox.sandbox import Limits, Sandbox
from earnest.task import Row

AS_ASSERTED = Equality(exact=False)
SUITE_LIMITS = Limits(wall=30.0, cpu=20.0)  # pytest alone takes a good second to start
RESERVED = {"conftest", "sitecustomize", "usercustomize", "pytest", "setup"}  # what Python or pytest would load by itself


def assert_tests(
    gold: str = "test_list",
    *,
    entry_point: str | None = None,
    setup: Sequence[str] = (),
    visible: int = 0,
    allow_asserts: bool = False,
    pure: bool = False,
    partial: bool = False,
    fence: Fence = "none",
    limits: Limits = LIMITS,
    seconds: float = 60.0,
    max_characters: int = 50_000,
    sandbox: Sandbox | None = None,
) -> Verifier:
    """The answer's functions pass tests written as assert statements, as in MBPP, or as a function `check(candidate)`, as in HumanEval.

    The tests hold the expected values, so they do not run where the answer runs. `assert f(literals) == literal` becomes a call and a
    value that the parent compares as `==` does between built-in types. Other tests run in a jail of their own, where the answer's
    functions hand out what they returned elsewhere, as plain data. Tests that make objects of the answer's classes, or pass functions
    to it, cannot be taken apart: such a row is refused.

    Args:
        gold: Column of the tests: a list of statements, or the source of `check`.
        entry_point: Column of the function's name. Needed for `check`; otherwise every name that the tests do not define is the answer's.
        setup: Columns with what the tests need before them (imports, helpers; text or lists of lines), such as HumanEval's prompt.
        visible: How many tests of the list, from the first, the prompt shows. They must pass and pay nothing.
        allow_asserts: Whether tests that cannot be taken apart may run beside the answer. It can then read the expected values and
            forge the verdict: for answers that nobody optimises against these tests.
        pure: Whether the functions keep nothing between calls, so that one process can serve all of them.
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
            statements, suite = _statements(row, gold, row[entry_point] if entry_point else None, setup)
            pairs = literal_calls(*statements)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            return invalid_task(f"the tests cannot be used: {error}")
        if pairs is None:
            shown = frozenset(name for name, _ in suite.tests[:visible])
            rule = Rule(shown, tuple(name for name, _ in suite.tests), allow_asserts, pure, partial)
            return setting.judge(attempt.text, lambda source, runner: score_suite(runner, source, suite, rule))
        shown = {call.key for call, _ in pairs[:visible]}
        tests = [FunctionTest(call, value, "", call.key in shown) for call, value in pairs]
        if weak := weak_calls(tests, exact=False):
            return invalid_task(weak)
        return setting.judge(attempt.text, lambda source, runner: score_calls(runner, source, tests, AS_ASSERTED, pure, partial))

    columns = (gold, entry_point) if entry_point else (gold,)
    return Verifier("assert_tests", judge, columns=columns, slow=True)


def _statements(row: Row, gold: str, entry_point: Any, setup: Sequence[str]) -> tuple[tuple[list[ast.stmt], dict[str, str]], Suite]:
    """Tests as statements with other names of the function, and as a suite.

    Raises:
        ValueError: They are no tests.
        SyntaxError: They are no Python.
    """
    before = "\n".join(_text(row.get(column)) for column in setup)
    tests = row[gold]
    if isinstance(tests, str):
        if not isinstance(entry_point, str) or not entry_point.isidentifier():
            raise ValueError("a check function needs the column of the function's name: entry_point")
        check = [node for node in ast.parse(tests).body if isinstance(node, ast.FunctionDef) and node.name == "check"]
        if len(check) != 1 or len(check[0].args.args) != 1:
            raise ValueError("there must be one function check(candidate)")
        body = [node for node in check[0].body if not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant))]
        call = f"check(lambda *args, **kwargs: {entry_point}(*args, **kwargs))"
        suite = Suite((entry_point,), f"{before}\n{tests}", (("check", call),))
        return (body, {check[0].args.args[0].arg: entry_point}), suite
    if not isinstance(tests, (list, tuple)) or not tests or not all(isinstance(test, str) and test.strip() for test in tests):
        raise ValueError("there must be a list of statements, and it must not be empty")
    names = (entry_point,) if isinstance(entry_point, str) else undefined_names([before, *tests])
    body = [statement for test in tests for statement in ast.parse(test).body]
    named = tuple((f"test {number}", test) for number, test in enumerate(tests, start=1))
    return (body if len(body) == len(tests) else [ast.Pass()], {}), Suite(names, before, named)


def _text(lines: Any) -> str:
    return "\n".join(map(str, lines)) if isinstance(lines, (list, tuple)) else str(lines or "")


def pytest_suite(
    gold: str = "tests",
    *,
    module: str = "solution",
    test_ids: str | None = None,
    visible: str | None = None,
    allow_asserts: bool = False,
    pure: bool = False,
    partial: bool = False,
    fence: Fence = "none",
    limits: Limits = SUITE_LIMITS,
    seconds: float = 120.0,
    max_characters: int = 50_000,
    sandbox: Sandbox | None = None,
) -> Verifier:
    """The answer is a module that passes a pytest suite, every test of it by name.

    The suite is laid out anew for each run and pytest takes no configuration but the suite's own conftest.py, no plugins and no
    options. The answer is not there: what the tests import as `module` is a stand-in, whose functions hand out, as plain data, what
    the answer returned in a jail of its own. A test counts when its set-up, call and tear-down all passed; skipped, expected to fail,
    deselected or not there is not passed. Suites that make objects of the answer's classes or pass functions to it are refused.

    Args:
        gold: Column of the files: a mapping from path to text, or the text of one test file.
        module: Name under which the tests import the answer.
        test_ids: Column of the tests that must pass, such as ["test_add.py::test_zero"]; None means all there are.
        visible: Column of the tests that the prompt shows, which pay nothing. So do those that never call the answer.
        allow_asserts: Whether suites that cannot do without the answer may run beside it. The answer is then one file that pytest's
            process imports; it can read the tests and forge their reports, whatever is done about it.
        pure: Whether the functions keep nothing between calls, so that one process can serve all of them.
        partial: Whether passing some held-out tests pays their share, once all visible ones pass.
        fence: Where the program stands in the answer, as `extract_code` has it.
        limits: What each process may use.
        seconds: Wall time of all processes of one attempt together, as the sandbox charges it: beside many others a second costs less.
        max_characters: Longest answer that is looked at.
        sandbox: Where it runs; None looks for the best there is.

    Raises:
        UserError: The module's name is one that Python or pytest would load by itself.
    """
    if not module.isidentifier() or keyword.iskeyword(module) or module in RESERVED | set(sys.stdlib_module_names) or "test" in module:
        raise UserError(f"pytest_suite(module={module!r}): choose a name that is no part of Python, of pytest or of the tests.")
    setting = Setting(sandbox, limits, seconds, fence, max_characters)

    def judge(attempt: Any, row: Row) -> Score:
        try:
            suite = Suite(files=_files(row[gold], module), module=module)
            expected, shown = (_ids(row.get(column)) if column else () for column in (test_ids, visible))
        except ValueError as error:
            return invalid_task(f"the tests cannot be used: {error}")
        rule = Rule(frozenset(shown), expected, allow_asserts, pure, partial)
        return setting.judge(attempt.text, lambda source, runner: score_suite(runner, source, suite, rule))

    columns = (gold, test_ids) if test_ids else (gold,)
    return Verifier("pytest_suite", judge, columns=columns, slow=True)


def _files(files: Any, module: str) -> tuple[tuple[str, str], ...]:
    files = {"test_answer.py": files} if isinstance(files, str) else files
    if not isinstance(files, Mapping) or not files or not any(isinstance(text, str) and text.strip() for text in files.values()):
        raise ValueError("there must be a mapping from path to text, and it must not be empty")
    for path, text in files.items():
        parts = PurePosixPath(str(path)).parts
        if not isinstance(text, str) or not parts or ".." in parts or str(path).startswith("/"):
            raise ValueError("paths must be relative and files text")
        if parts[-1] == f"{module}.py":
            raise ValueError(f"{module}.py is the answer's file")
        if parts[-1].endswith(".py"):
            try:
                ast.parse(text)
            except (SyntaxError, ValueError) as error:
                raise ValueError(f"{path} is no Python") from error
    return tuple((str(path), text) for path, text in files.items())


def _ids(ids: Any) -> tuple[str, ...]:
    if not isinstance(ids, (list, tuple)) or not ids or not all(isinstance(name, str) for name in ids) or len(set(ids)) < len(ids):
        raise ValueError("names of tests must be a list of different texts, and it must not be empty")
    return tuple(ids)
