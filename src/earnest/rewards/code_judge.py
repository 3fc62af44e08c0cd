"""What runs in a jail of its own to look at an answer's results with somebody's tests. Sent there as source, behind `code_child`.

The answer is not in this jail. Where a test calls it, a stand-in looks the call up among those already made elsewhere, and hands out
the result as plain data; a call not yet made ends the test and is reported, so that it can be made before the next round. What is
said here is therefore said by the tests alone. (Told to load the answer beside the tests, it does so: then the answer can forge.)
"""

import ast
import builtins
import os
import random
import sys
from types import ModuleType

from earnest.rewards.code_child import READY, decode, dumps, encode, find, load, read_request, say, take_channel  # in the jail: cut away


class UnknownCallError(BaseException):
    """A call whose result is not known yet. No `Exception`, so that no test swallows it."""


class FailedCallError(BaseException):
    """A call that gave nothing a test could look at."""


class AnswerError(Exception):
    """An exception of the answer that is none of Python's own."""


class Opaque:
    """Stands for a value that is no plain data: good for a condition, and equal to nothing."""

    __slots__ = ("truth",)

    def __init__(self, truth):
        self.truth = truth

    def __bool__(self):
        return self.truth


class Calls:
    """The results known, and what the test now running has asked for.

    Attributes:
        known: Outcome of each call, by key.
        unknown: Calls to be made, as trees.
        asked: Whether the answer was called in this test.
        trouble: Why this test cannot pass, whatever it makes of it.
        unfit: Why these tests cannot do without the answer beside them.
    """

    def __init__(self, known, classes):
        self.known = known
        self.classes = classes
        self.unknown = {}
        self.unfit = ""
        self.begin()

    def begin(self):
        """Forget the test before."""
        self.asked, self.trouble = False, ""

    def make(self, name, args, kwargs):
        """What a call came to; ends the test where that is not known, or nothing a test could look at."""
        self.asked = True
        try:
            call = [name, encode(list(args)), encode(kwargs)]
        except BaseException as error:
            self.unfit = self.trouble = "an argument is no plain data (" + str(error)[:60] + ")"
            raise FailedCallError(self.unfit) from None
        if name in self.classes:
            self.unfit = self.trouble = name + " makes an object"
            raise FailedCallError(self.unfit)
        key = dumps(ordered(call))
        if key not in self.known:
            self.unknown[key] = call
            self.trouble = self.trouble or "a call is not known"
            raise UnknownCallError(key)
        outcome = self.known[key]
        if "value" in outcome:
            return decode(outcome["value"])
        if "truth" in outcome:
            return Opaque(outcome["truth"])
        if "raised" in outcome:
            raise exception(outcome["raised"], outcome["message"])
        self.trouble = self.trouble or outcome["failed"]
        raise FailedCallError(outcome["failed"])

    def stand_in(self, name):
        """A function that looks its calls up."""

        def function(*args, **kwargs):
            return self.make(name, args, kwargs)

        function.__name__ = function.__qualname__ = name
        return function


def exception(name, message):
    """One of Python's own exceptions by name; one of the answer's own where there is none of that name that a message alone makes."""
    known = getattr(builtins, name, None)
    try:
        return known(message) if isinstance(known, type) and issubclass(known, Exception) else AnswerError(message)
    except TypeError:
        return AnswerError(message)


def ordered(tree):
    """A tree with the members of sets and mappings in one order, so that the same call has one key."""
    if type(tree) is list:
        return [ordered(item) for item in tree]
    if type(tree) is dict:
        ((kind, content),) = tree.items()
        content = ordered(content)
        return {kind: sorted(content, key=dumps) if kind not in ("tuple", "complex") and type(content) is list else content}
    return tree


class Skipping(ast.NodeTransformer):
    """Rewrites tests so that a statement stopped by an unknown call is passed over, and the calls of the following ones are seen too."""

    def generic_visit(self, node):
        """Guard every statement of every block, the inner ones first."""
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, [self.guarded(statement) for statement in statements])
        return node

    def guarded(self, statement):
        """A statement that a stopped test passes over."""
        plain = (ast.Assert, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.With, ast.If, ast.Try, ast.Raise, ast.Expr)
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not isinstance(statement, plain) or docstring:
            return statement
        handler = ast.ExceptHandler(type=None, name=None, body=ast.parse("__import__('builtins').earnest_skip()").body)
        return ast.Try(body=[statement], handlers=[handler], orelse=[], finalbody=[])


def skipping(source):
    """Tests rewritten by `Skipping`."""
    return ast.unparse(ast.fix_missing_locations(Skipping().visit(ast.parse(source))))


def judge():
    """Run tests: which passed, why the others have not, which calls have to be made."""
    request = read_request()
    channel = take_channel()
    say(channel, READY)
    calls = Calls(request["known"], request["classes"])
    if request["discover"]:

        def skip():
            if not calls.unknown and not calls.unfit:
                raise

        builtins.earnest_skip = skip
    random.seed(0)
    report = {"passed": [], "problems": {}, "asked": [], "collected": []}
    (run_suite if request["files"] else run_statements)(request, calls, report)
    say(channel, {**report, "unknown": [[key, call] for key, call in calls.unknown.items()], "unfit": calls.unfit})
    os._exit(0)


def run_statements(request, calls, report):
    """Tests that are statements, one after another in one namespace."""
    space = {"__name__": "tests"}
    names = dict.fromkeys(request["names"])
    rewritten = skipping if request["discover"] else str
    try:
        answer = load(request["answer"]) if request["answer"] is not None else None
        for name in names:
            names[name] = calls.stand_in(name) if answer is None else find(answer, name)
        space.update(vars(answer) if answer else {}, **names)
        exec(compile(rewritten(request["setup"]), "setup", "exec"), space)
        space.update(names)
    except BaseException as error:
        calls.unfit = calls.unfit or "what stands before the tests fails: " + type(error).__name__
        return
    for name, source in request["tests"]:
        calls.begin()
        report["collected"].append(name)
        try:
            exec(compile(rewritten(source), name, "exec"), space)
        except BaseException as error:
            report["problems"][name] = calls.trouble or type(error).__name__
            if not calls.asked and request["discover"]:
                calls.unfit = calls.unfit or name + " fails without calling the answer: " + type(error).__name__
        if calls.asked:
            report["asked"].append(name)
        if not calls.trouble and name not in report["problems"]:
            report["passed"].append(name)


def run_suite(request, calls, report):
    """Test files, run by pytest without anybody's configuration; a test has passed when all three of its phases say so."""
    sys.path.insert(0, os.path.abspath("pytest.zip"))
    sys.dont_write_bytecode = True
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for path in request["files"]:
        if request["discover"] and path.endswith(".py"):
            with open(os.path.join("suite", path), encoding="utf-8") as file:
                source = skipping(file.read())
            with open(os.path.join("suite", path), "w", encoding="utf-8") as file:
                file.write(source)
    import pytest

    class Reporter:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_setup(self, item):
            calls.begin()

        def pytest_collection_finish(self, session):
            report["collected"] = [item.nodeid for item in session.items]

        def pytest_collectreport(self, report):
            if report.failed:
                collecting.append(report.nodeid)

        def pytest_runtest_logreport(self, report):
            good = report.outcome == "passed" and not hasattr(report, "wasxfail") and not calls.trouble
            phases.setdefault(report.nodeid, {})[report.when] = good
            if not good:
                ending = "expected to fail" if hasattr(report, "wasxfail") else report.outcome
                problems.setdefault(report.nodeid, calls.trouble or ending + " in its " + report.when)
            if calls.asked:
                asked[report.nodeid] = True

    problems, phases, asked, collecting = report["problems"], {}, {}, []
    try:
        if request["answer"] is None:
            sys.modules[request["module"]] = module = ModuleType(request["module"])
            module.__getattr__ = lambda name: dunder(name) or calls.stand_in(name)
        else:
            sys.path.insert(0, os.path.abspath("answer"))
        options = ["-c", os.devnull, "--rootdir", "suite", "-p", "no:cacheprovider", "-q", "-s", *request["options"]]
        pytest.main([*options, "suite"], plugins=[Reporter()])
    except BaseException as error:
        collecting.append(type(error).__name__)
    if collecting and not calls.unknown:
        calls.unfit = calls.unfit or "the tests cannot be collected: " + collecting[0][:100]
    report["asked"] = list(asked)
    whole = {"setup": True, "call": True, "teardown": True}
    report["passed"] = [name for name, seen in phases.items() if seen == whole]


def dunder(name):
    """Refuse the names Python itself asks modules for."""
    if name.startswith("__"):
        raise AttributeError(name)
