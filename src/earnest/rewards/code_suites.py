"""Tests that are code: assert statements, a `check(candidate)` function, pytest suites.

Expected values stand inside such tests, so they must not run beside the answer. Assertions of the form `f(literals) == literal` are
taken apart here. All others run in a jail without the answer, on plain data that the answer returned in another one.
"""

from __future__ import annotations

import ast
import builtins
import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from earnest.rewards.code_child import NotPlainError, encode
from earnest.rewards.code_pytest import packed_pytest
from earnest.rewards.code_run import CHILD, ENDINGS, MARSHAL, MAX_DEPTH, READY_LINE, Call, Outcome, Runner, unstarted
from earnest.rewards.code_tally import Tally
from earnest.rewards.json import parse_strict
from earnest.rewards.verifier import Score, infra_error, invalid_task
from earnest.sandbox import Limits, Sandbox

JUDGE = "\n".join(
    line for line in Path(__file__).with_name("code_judge.py").read_text(encoding="utf-8").splitlines() if "from earnest." not in line
)
ROOMY = 60.0  # seconds for looking at a row's tests, which happens once and without any answer
ROUNDS = 12  # calls that depend on each other's results, at most


@dataclass(frozen=True)
class Suite:
    """Tests that are code: either statements or files.

    Attributes:
        names: Names that stand for the answer's functions, where tests are statements.
        setup: What runs before the statements.
        tests: Name and source of each test that is statements.
        files: Path and text of each file, for pytest.
        module: Name under which the files import the answer.
    """

    names: tuple[str, ...] = ()
    setup: str = ""
    tests: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    module: str = ""


@dataclass(frozen=True)
class Report:
    """What a jail said of a suite.

    Attributes:
        collected: Names of the tests there are.
        passed: Those that passed.
        asked: Those that called the answer.
        problems: Why others did not pass.
        same: What passes all tests if every call comes to it.
        calls: The keys of all calls that a test makes, where that is known.
        unknown: Calls to make before there can be a verdict, by key.
        unfit: Why the suite cannot be kept apart from the answer, if it cannot.
        failed: Why there is no report.
        infra: Whether that is the sandbox's fault.
    """

    collected: tuple[str, ...] = ()
    passed: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    problems: Mapping[str, str] | None = None
    calls: Mapping[str, frozenset[str]] | None = None
    unknown: Mapping[str, Call] | None = None
    unfit: str = ""
    same: str = ""
    failed: str = ""
    infra: bool = False


class _InfraError(Exception):
    """The sandbox failed while a suite was looked at; not kept, since it may work the next time."""


def run_suite(runner: Runner, suite: Suite, known: Mapping[str, Any], discover: bool = False, answer: str | None = None) -> Report:
    """Run a suite in a jail.

    Args:
        runner: Where.
        suite: The tests.
        known: Outcomes of the answer's calls, by key.
        discover: Whether to find the calls that do not depend on results, with nothing known yet.
        answer: The answer's source, to be loaded beside the tests; None keeps it out.
    """
    files: dict[str, str | bytes] = {f"suite/{path}": text for path, text in suite.files}
    if suite.files:
        files["pytest.zip"] = packed_pytest()
        if answer is not None:
            files[f"answer/{suite.module}.py"] = answer
    own_conftest = any(Path(path).name == "conftest.py" for path, _ in suite.files)
    request = {
        "names": list(suite.names),
        "setup": suite.setup,
        "tests": list(suite.tests),
        "files": [path for path, _ in suite.files],
        "module": suite.module,
        "classes": object_makers([suite.setup, *(text for _, text in suite.tests + suite.files)]),
        "known": dict(known),
        "discover": discover,
        "answer": answer,
        "options": [] if own_conftest else ["--noconftest"],
    }
    result = runner.run(f"{CHILD}\n{JUDGE}\njudge()\n", files=files, stdin=marshal.dumps(request, MARSHAL))
    if unstarted(result, result.stdout):
        return Report(failed=unstarted(result, result.stdout), infra=True)
    if result.status != "ok":
        return Report(failed=ENDINGS.get(result.status, "the tests ended with an error"))
    return _report(result.stdout[len(READY_LINE) :], runner.limits.output)


def _report(line: str, max_characters: int) -> Report:
    said = parse_strict(line, max_characters, MAX_DEPTH).value
    try:
        return Report(
            collected=tuple(map(str, said["collected"])),
            passed=frozenset(map(str, said["passed"])),
            asked=frozenset(map(str, said["asked"])),
            problems={str(name): str(problem)[:200] for name, problem in said["problems"].items()},
            calls={str(name): frozenset(map(str, keys)) for name, keys in said["calls"].items()},
            unknown={str(key): Call(str(name), args, kwargs) for key, (name, args, kwargs) in said["unknown"]},
            unfit=str(said["unfit"])[:200],
            same=str(said["same"])[:20],
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return Report(failed="what the tests sent back cannot be read")


@lru_cache(maxsize=4096)
def _discovered(sandbox: Sandbox, limits: Limits, suite: Suite) -> Report:
    roomy = replace(limits, wall=max(ROOMY, limits.wall), cpu=max(ROOMY, limits.cpu))
    report, again = (run_suite(Runner(sandbox, roomy, float("inf")), suite, {}, discover=True) for _ in range(2))
    if report.infra or again.infra:
        raise _InfraError(report.failed or again.failed)
    values = values_used([suite.setup, *(source for _, source in suite.tests)], suite.names)
    values = values or imported_values([text for path, text in suite.files if path.endswith(".py")], suite.module)
    if values and not report.unfit:
        report = replace(report, unfit=f"{values[0]} is used other than by calling it")
    if not report.unfit and (report.collected != again.collected or (report.unknown or {}).keys() != (again.unknown or {}).keys()):
        report = replace(report, unfit="the calls differ from run to run")
    return report


@dataclass(frozen=True)
class Rule:
    """How a suite's verdicts are turned into a score: see `code.assert_tests` and `code.pytest_suite`."""

    shown: frozenset[str]
    expected: tuple[str, ...]
    allow_asserts: bool
    pure: bool
    partial: bool


def score_suite(runner: Runner, source: str, suite: Suite, rule: Rule) -> Score:
    """Make the calls that the tests ask for in jails of their own, then run the tests on what came back."""
    try:
        plan = _discovered(runner.sandbox, runner.limits, suite)
    except _InfraError as error:
        return infra_error(str(error))
    names = rule.expected or plan.collected
    never = [name for name in names if name in plan.collected and name not in plan.asked | plan.passed]
    if plan.failed:
        return invalid_task(f"the tests cannot be run: {plan.failed}")
    if plan.unfit and not rule.allow_asserts:
        return invalid_task(f"{plan.unfit}: these tests can only run beside the answer, which could forge their verdict")
    lacking = set(names) - set(plan.collected) if not plan.unfit else set()
    if lacking or not names:
        return invalid_task(f"there is no test {min(lacking)}" if lacking else "the row has no tests")
    if never and not plan.unfit:
        return invalid_task(f"{never[0]} does not pass, whatever the answer")
    if plan.same and not plan.unfit:
        return invalid_task(f"an answer that comes to {plan.same} for every input would pass every test")
    calls = plan.calls or {}
    shown = frozenset().union(*(calls.get(name, ()) for name in rule.shown))
    seen = {name for name in names if name in rule.shown or (calls.get(name) and calls[name] <= shown)}  # its inputs were shown
    visible = [name in seen or not (plan.unfit or name in plan.asked) for name in names]
    if all(visible):
        return invalid_task("no test that calls the answer is held out")
    tally = Tally(visible, rule.partial, names)
    report = run_suite(runner, suite, {}, answer=source) if plan.unfit else _rounds(runner, source, suite, plan, rule)
    return _counted(report, tally, names)


def _rounds(runner: Runner, source: str, suite: Suite, plan: Report, rule: Rule) -> Report:
    """Call and judge, until no test asks for more."""
    known: dict[str, Any] = {}
    wanted = plan.unknown or {}
    for _ in range(ROUNDS):
        for keys in [list(wanted)] if rule.pure else [[key] for key in wanted]:
            for key, outcome in zip(keys, runner.calls(source, [wanted[key] for key in keys]), strict=True):
                if outcome.kind == "infra_error":
                    return Report(failed=outcome.detail, infra=True)
                late = outcome.detail.startswith("timeout") and not rule.pure  # each further call could take as long
                if outcome.kind == "failed" and outcome.truth is None and (late or not rule.partial):
                    return Report(failed=outcome.detail)  # no test can pass on it
                known[key] = _as_known(outcome)
        report = run_suite(runner, suite, known)
        if report.failed or not report.unknown:
            return report
        wanted = report.unknown
    return Report(failed="the tests never stop asking for calls")


def _as_known(outcome: Outcome) -> dict[str, Any]:
    if outcome.kind == "value":
        return {"value": outcome.value}
    if outcome.kind == "raised":
        said = {"raised": outcome.detail, "message": outcome.message, "module": outcome.module, "base": outcome.base}
        return {"raised": said}
    return {"failed": outcome.detail} if outcome.truth is None else {"truth": outcome.truth}


def _counted(report: Report, tally: Tally, names: Sequence[str]) -> Score:
    if report.failed:
        tally.add(0, Outcome("infra_error" if report.infra else "failed", detail=report.failed), report.failed)
        return tally.score()
    for index, name in enumerate(names):
        problem = "" if name in report.passed else (report.problems or {}).get(name, "not reported as passed")
        tally.add(index, Outcome("value" if name in report.collected else "failed", detail=problem), problem)
    return tally.score()


def undefined_names(sources: Sequence[str]) -> tuple[str, ...]:
    """Names that code reads and nobody in it defines: those of the answer.

    Raises:
        SyntaxError: It is no Python.
    """
    read: dict[str, None] = {}
    defined = set(dir(builtins)) | {"__name__"}
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Name):
            read.setdefault(node.id) if isinstance(node.ctx, ast.Load) else defined.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
            defined.add(node.name or "")
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
    return tuple(name for name in read if name not in defined)


def object_makers(sources: Sequence[str]) -> list[str]:
    """Names with a capital that are called, and of whose result an attribute is used or a function is told: classes, not functions."""
    made, variables, used = set(), {}, set()
    for node in (node for source in sources for node in ast.walk(_parsed(source))):
        name = _called(node)
        if name[:1].isupper():
            made.add(name)
        if isinstance(node, ast.Assign) and _called(node.value):
            variables.update({target.id: _called(node.value) for target in node.targets if isinstance(target, ast.Name)})
        if isinstance(node, ast.Attribute):
            used.add(_called(node.value) or getattr(node.value, "id", ""))
        if isinstance(node, ast.Call) and name not in dir(builtins):
            inside = (part for arg in [*node.args, *(word.value for word in node.keywords)] for part in ast.walk(arg))
            used.update(_called(part) or getattr(part, "id", "") for part in inside)
    return sorted(made & (used | {variables[name] for name in used & variables.keys()}))


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def values_used(sources: Sequence[str], names: Sequence[str]) -> list[str]:
    """Those of the names that code uses in another way than by calling them."""
    nodes = [node for source in sources for node in ast.walk(_parsed(source))]
    calls = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return sorted({node.id for node in nodes if isinstance(node, ast.Name) and node.id in names and id(node) not in calls})


ENDS = ("StopIteration", "StopAsyncIteration", "GeneratorExit", "KeyboardInterrupt", "SystemExit")
TAKE_FUNCTIONS = ("map", "filter", "callable", "iter", "print", "id", "repr", "staticmethod", "property")  # of Python's own functions


def imported_values(sources: Sequence[str], module: str) -> list[str]:
    """Names from the answer's module that files use as values or as classes; and exceptions it cannot be seen to raise.

    A function may be handed on, to be called elsewhere. What is compared, caught, looked into or computed with is no function, nor
    is, by its name, what begins with a capital and is not called.
    """
    found = set()
    for tree in map(_parsed, sources):
        nodes = list(ast.walk(tree))
        names, modules = _imports(nodes, module)

        def name_of(node: Any, names: Mapping[str, str] = names, modules: set[str] = modules) -> str:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                return node.attr
            return names.get(node.id, "") if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else ""

        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        found.update(name for node in nodes if (name := name_of(node)) and name.lstrip("_")[:1].isupper() and id(node) not in called)
        found.update(name for node in nodes for part in _as_values(node) if (name := name_of(part)))
        expected = [node.args[0] for node in nodes if isinstance(node, ast.Call) and node.args and "aises" in _function(node)]
        found.update(part.id for node in expected for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in ENDS)
    return sorted(found)


def _imports(nodes: Sequence[ast.AST], module: str) -> tuple[dict[str, str], set[str]]:
    """Names that stand for something in a module, and those that stand for the module."""
    names = {
        alias.asname or alias.name: alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }
    modules = {a.asname or a.name for node in nodes if isinstance(node, ast.Import) for a in node.names if a.name == module}
    return names, modules


def _function(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _as_values(node: ast.AST) -> list[ast.expr | None]:
    """Parts of a node that cannot be functions, or of which it would make no sense."""
    if isinstance(node, ast.Call):
        function = _function(node)
        if "aises" in function or function == "warns":
            return node.args[:1]
        takes_values = isinstance(node.func, ast.Name) and function in dir(builtins) and function not in TAKE_FUNCTIONS
        return node.args if takes_values or function.startswith("assert") else []
    if isinstance(node, ast.Attribute):
        return [] if node.attr in ("__name__", "__qualname__") else [node.value]
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return [node.test]
    if isinstance(node, ast.ClassDef):
        return list(node.bases)
    if isinstance(node, (ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Subscript, ast.FormattedValue, ast.Starred, ast.withitem,
                         ast.ExceptHandler, ast.For, ast.comprehension, ast.Raise)):  # fmt: skip
        fields = ("left", "right", "operand", "value", "slice", "context_expr", "type", "iter", "exc")
        parts = [getattr(node, field, None) for field in fields]
        return [*parts, *getattr(node, "comparators", ()), *getattr(node, "values", ())]
    return []


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):  # a suite may have data files
        return ast.Module([], [])


def literal_calls(statements: Sequence[ast.stmt], rename: Mapping[str, str]) -> list[tuple[Call, Any]] | None:
    """Calls and encoded results of assertions that are all `f(literals) == literal` (or the other way round); None if one is not.

    Args:
        statements: The tests.
        rename: Other names of the function.
    """
    found = []
    for statement in statements:
        if not isinstance(statement, ast.Assert) or not isinstance(statement.test, ast.Compare) or len(statement.test.ops) != 1:
            return None
        left, right = statement.test.left, statement.test.comparators[0]
        pair = _literal_call(left, right, rename) or _literal_call(right, left, rename)
        if pair is None or not isinstance(statement.test.ops[0], ast.Eq):
            return None
        found.append(pair)
    return found


def _literal_call(call: ast.expr, value: ast.expr, rename: Mapping[str, str]) -> tuple[Call, Any] | None:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or any(word.arg is None for word in call.keywords):
        return None
    try:
        args = [ast.literal_eval(arg) for arg in call.args]
        kwargs = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        return Call.of(rename.get(call.func.id, call.func.id), args, kwargs), encode(ast.literal_eval(value))
    except (ValueError, TypeError, SyntaxError, NotPlainError, RecursionError):
        return None
