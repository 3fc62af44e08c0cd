"""What runs in a jail of its own to look at an answer's results with somebody's tests. Sent there as source, behind `code_child`.

The answer is not in this jail. Where a test calls it, a stand-in looks the call up among those already made elsewhere, and hands out
the result as plain data; a call not yet made ends the test and is reported, so that it can be made before the next round. What is
said here is therefore said by the tests alone. (Told to load the answer beside the tests, it does so: then the answer can forge.)
"""

import ast
import builtins
import os
import random
import signal
import sys
from types import MethodType, ModuleType

from earnest.rewards.code_child import READY, decode, dumps, encode, find, load, read_request, say, take_channel  # in the jail: cut away


class UnknownCallError(BaseException):
    """A call whose result is not known yet. No `Exception`, so that no test swallows it."""


class FailedCallError(BaseException):
    """A call that gave nothing a test could look at."""


class AnswerError(Exception):
    """An exception of the answer that derives from none of Python's own that may be raised here."""


# What Python itself takes for the end of an iteration or of a program, so that a test would end early instead of failing.
ENDS = (StopIteration, StopAsyncIteration)


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
        same: What every call comes to, as a function, whatever its arguments; None for what is known of it.
        outside: Whether calls outside of any test are not known.
        trouble: Why this test cannot pass, whatever it makes of it.
        unfit: Why these tests cannot do without the answer beside them.
        keys: The calls made in this test.
        whole: Whether they are sure to be all that it makes.
    """

    def __init__(self, known, classes):
        self.known = known
        self.classes = classes
        self.unknown = {}
        self.unfit = ""
        self.outside = False
        self.same = None
        self.begin()

    def begin(self):
        """Forget the test before."""
        self.asked, self.trouble, self.keys, self.whole = False, "", [], True

    def make(self, name, args, kwargs):
        """What a call came to; ends the test where that is not known, or nothing a test could look at."""
        self.asked = True
        if self.same is not None:
            return self.same()
        try:
            call = [name, encode(list(args)), encode(kwargs)]
        except BaseException as error:
            self.unfit = self.trouble = "an argument is no plain data (" + str(error)[:60] + ")"
            raise FailedCallError(self.unfit) from None
        if name in self.classes:
            self.unfit = self.trouble = name + " makes an object"
            raise FailedCallError(self.unfit)
        key = dumps(ordered(call))
        self.keys.append(key)
        if key not in self.known:
            self.unknown[key] = call
            self.trouble = self.trouble or "a call is not known"
            raise UnknownCallError(key)
        outcome = self.known[key]
        if "value" in outcome:
            try:
                return decode(outcome["value"])
            except BaseException:  # a forged tree; what it raises is no answer either
                self.trouble = self.trouble or "what the answer sent back cannot be read"
                raise FailedCallError(self.trouble) from None
        if "truth" in outcome:
            return Opaque(outcome["truth"])
        if "raised" in outcome:
            raise exception(**outcome["raised"])
        self.trouble = self.trouble or outcome["failed"]
        raise FailedCallError(outcome["failed"])

    def skip(self, only_call):
        """Pass over a statement that cannot be run before a call is known, or that needs what such a statement would have made.

        Args:
            only_call: Whether the statement makes one call, so that passing over it hides no other.
        """
        unknown = isinstance(sys.exc_info()[1], UnknownCallError)
        if self.same is not None or not (unknown or self.trouble or (self.unknown and self.outside)):
            raise
        after = sys.exc_info()[2].tb_next
        direct = after is not None and after.tb_frame.f_code is StandIn.__call__.__code__
        self.whole = self.whole and unknown and only_call and direct

    def stand_in(self, name):
        """Something that looks its calls up, and is good for nothing else."""
        return StandIn(self, name)


class StandIn:
    """Stands for a function of the answer. Told what it is by looking at it as a value, the tests would judge the stand-in."""

    def __init__(self, calls, name):
        self.calls = calls
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args, **kwargs):
        """The result of a call."""
        return self.calls.make(self.__name__, args, kwargs)

    def __get__(self, owner, kind=None):
        return self if owner is None else MethodType(self, owner)

    __hash__ = object.__hash__


def value_used(self, *_):
    """What a stand-in does where a value, or a class, is asked for."""
    self.calls.unfit = self.calls.unfit or self.__name__ + " is used other than by calling it"
    self.calls.trouble = self.calls.trouble or self.calls.unfit
    raise FailedCallError(self.calls.unfit)


AS_VALUES = "lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor"
AS_VALUES += " neg pos abs invert int float complex index round len iter next contains getitem format instancecheck subclasscheck enter"
for operation in AS_VALUES.split():
    setattr(StandIn, "__" + operation + "__", value_used)
StandIn.__bool__ = lambda self: True
StandIn.__eq__ = lambda self, other: self is other or value_used(self)


def exception(raised, message, module, base):
    """An exception as the answer raised it: of that class if it is one of Python's library, else of one of its name and built-in base."""
    own = module.split(".")[0] in sys.stdlib_module_names and module.split(".")[0] not in ("unittest", "bdb")
    known = getattr(sys.modules.get(module), raised, None) if own else None
    if not isinstance(known, type) or not issubclass(known, Exception):
        known = getattr(builtins, base, None)
        if not isinstance(known, type) or not issubclass(known, Exception) or issubclass(known, ENDS):
            return AnswerError(message)
        known = type(raised, (known,), {})
    if issubclass(known, ENDS):
        return AnswerError(message)
    literal = ast.literal_eval(message) if issubclass(known, KeyError) and is_literal(message) else message  # it says the key's repr
    for kind in (known, type(raised, (known,), {"__init__": lambda self, said: None, "__str__": lambda self: message})):
        try:
            error = kind(literal)
            if str(error) == message:
                return error
        except Exception:  # it wants more than a message
            pass
    return AnswerError(message)


def is_literal(text):
    """Whether a text is a Python literal."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


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
        skip = ast.parse(f"__import__('builtins').earnest_skip({only_call(statement)})").body
        handler = ast.ExceptHandler(type=None, name=None, body=skip)
        return ast.Try(body=[statement], handlers=[handler], orelse=[], finalbody=[])


def only_call(statement):
    """Whether a statement makes exactly one call, as far as its text says."""
    nodes = list(ast.walk(statement))
    several = (ast.comprehension, ast.Lambda, ast.For, ast.While, ast.With, ast.Try, ast.If)
    found = [node for node in nodes if isinstance(node, ast.Call)]
    harmless = [node for node in found if isinstance(node.func, ast.Name) and node.func.id in HARMLESS]
    return len(found) - len(harmless) == 1 and not any(isinstance(node, several) for node in nodes)


HARMLESS = ("abs", "all", "any", "bool", "dict", "float", "int", "len", "list", "round", "set", "sorted", "str", "sum", "tuple", "type")


def skipping(source):
    """Tests rewritten by `Skipping`."""
    return ast.unparse(ast.fix_missing_locations(Skipping().visit(ast.parse(source))))


def judge():
    """Run tests: which passed, why the others have not, which calls have to be made."""
    request = read_request()
    channel = take_channel()
    say(channel, READY)
    calls = Calls(request["known"], request["classes"])
    builtins.earnest_skip = calls.skip
    random.seed(0)
    report = {"passed": [], "problems": {}, "asked": [], "collected": [], "calls": {}, "same": ""}
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
        calls.outside = bool(calls.unknown)
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
            report["calls"][name] = calls.keys if calls.whole and not calls.outside and name not in report["problems"] else []
        if not calls.trouble and name not in report["problems"]:
            report["passed"].append(name)
    if request["discover"] and calls.unknown and not calls.outside:
        report["same"] = passes_with_the_same(request["tests"], space, calls)


def refuses():
    """What a function does that takes no input."""
    raise TypeError("no")


SAME = (  # what an answer may say to every input, and whether a single test is enough to show that it would do
    ("None", lambda: None, False), ("TypeError", refuses, True), ("True", lambda: True, False), ("False", lambda: False, False),
    ("0", int, False), ("1", lambda: 1, False), ("''", str, False), ("[]", list, False),
)  # fmt: skip


def passes_with_the_same(tests, space, calls):
    """The result that, given to every call, passes all tests; "" if none of a few does."""

    def stop(*_):
        raise FailedCallError("a test never ends")

    signal.signal(signal.SIGALRM, stop)
    for name, same, alone in SAME:
        calls.same = same
        try:
            signal.alarm(2)
            for _, source in tests if alone or len(calls.unknown) > 1 else [("", "assert False")]:
                exec(source, space)
        except BaseException:
            continue
        finally:
            signal.alarm(0)
        return name
    return ""


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
            calls.outside = bool(calls.unknown)
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
                calls.whole = calls.whole and report.outcome == "passed" and not calls.outside
                asked[report.nodeid] = calls.keys if calls.whole else []

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
    report["asked"], report["calls"] = list(asked), asked
    whole = {"setup": True, "call": True, "teardown": True}
    report["passed"] = [name for name, seen in phases.items() if seen == whole]


def dunder(name):
    """Refuse the names Python itself asks modules for."""
    if name.startswith("__"):
        raise AttributeError(name)
