"""Tests that are code: they say what they would say beside the answer, and the answer cannot make them say anything else."""

import ast
import gzip
import json
import random
from pathlib import Path

import pytest
from hostile_code import ATTACKS, RIGHT, ROOMY, SUITE_ATTACKS, Scripted, sandboxed

from earnest.errors import UserError
from earnest.rewards import code_judge
from earnest.rewards.code import assert_tests, pytest_suite
from earnest.rewards.code_child import encode
from earnest.rewards.code_run import Call
from earnest.rewards.code_suites import literal_calls, undefined_names
from earnest.sandbox import Limits, Result

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.mark.parametrize(
    ("test", "function", "args", "kwargs", "value"),
    [
        ("assert f(1) == 2", "f", [1], {}, 2), ("assert (1, {2}) == f([1], x={'a': None})", "f", [[1]], {"x": {"a": None}}, (1, {2})),
        ("assert f(-1, 'a', b'b') == -2.5, 'message'", "f", [-1, "a", b"b"], {}, -2.5), ("assert sum(10, 15) == 6", "sum", [10, 15], {}, 6),
    ],
)  # fmt: skip
def test_an_assertion_on_literals_becomes_a_call_and_a_value(test, function, args, kwargs, value):
    assert literal_calls(ast.parse(test).body, {}) == [(Call.of(function, args, kwargs), encode(value))]


@pytest.mark.parametrize(
    "test",
    [
        "assert f(1)", "assert not f(1)", "assert f(1) != 2", "assert f(1) is None", "assert f(1) == 2 == 2", "assert abs(f(1)) == 2",
        "assert f(x) == 2", "assert f(1) == g(2)",
        "assert f(*[1]) == 2", "assert f(**{}) == 2", "f(1) == 2", "assert f(f(1)) == 2", "assert a.f(1) == 2", "assert f(1)[0] == 2",
        "assert 1 == 1", "x = 1", "assert f(1) == 2 or 1",
    ],
)  # fmt: skip
def test_any_other_assertion_is_not_taken_apart(test):
    assert literal_calls(ast.parse(test).body, {}) is None


def test_the_names_that_tests_do_not_define_are_the_answers():
    assert undefined_names(
        ["import math\nfrom a.b import c as d", "x = f(math.pi, d)\nassert len(g(x)) == 1", "def h(y): return y\nassert h(1)"]
    ) == ("f", "g")


def asserts(**options):
    return assert_tests(limits=ROOMY, seconds=120, **options)


INC = "def f(x):\n    return x + 1"


JUDGED = [
    "assert abs(f(1) - 2) < 1e-9",
    "import math\nassert math.sqrt(f(3)) == 2",
    "assert f(f(f(1))) == 4",
    "for i in range(5):\n    assert f(i) == i + 1",
    "assert set([f(1), f(2)]) == {2, 3} and f(1) is not True",
    "values = [f(i) for i in range(3)]\nassert values == [1, 2, 3]",
]


@sandboxed
@pytest.mark.parametrize("test", JUDGED)
def test_a_test_that_computes_runs_without_the_answer_on_what_it_returned(test):
    assert asserts(pure=True)(INC, test_list=[test]).value == 1.0
    assert asserts(pure=True)("def f(x):\n    return x + 2", test_list=[test]).value == 0.0


@sandboxed
def test_such_tests_run_one_after_another_with_one_process_for_each_call():
    assert asserts()(INC, test_list=JUDGED).value == 1.0


ON_VALUES = [  # the judge's jail sees nothing else of an answer
    "always equal", "equal int", "equal str", "class spoof", "mock", "exit in call", "os exit at import", "skip", "frames",
    "forge and answer", "forge a visible value", "forge depth", "universal exception", "generator", "patch asserts",
    "huge integer", "message bomb", "None",
]  # fmt: skip


@sandboxed
@pytest.mark.parametrize("attack", ON_VALUES)
def test_no_attack_on_assert_statements_gets_more_than_a_wrong_answer(attack):
    score = asserts(pure=True)(ATTACKS[attack].replace("NAME", "f"), test_list=["assert abs(f(5)) == 6", "assert f(1) in [2]"])
    assert (score.value, score.status) == (0.0, "scored")


@sandboxed
@pytest.mark.parametrize(
    ("literal", "value"),
    [("assert f(1) == True", 1.0), ("assert f(1) == 1.0", 1.0), ("assert f(1) is True", 0.0), ("assert f(1) == '1'", 0.0)],
)
def test_assert_statements_mean_what_python_means(literal, value):
    assert asserts()("def f(x): return 1", test_list=[literal]).value == value


@sandboxed
@pytest.mark.parametrize(
    ("test", "value"),
    [
        ("assert f('ab')", 1.0), ("assert not f('b')", 1.0), ("assert bool(f('ab')) == True", 1.0), ("assert not f('ab')", 0.0),
        ("assert f('ab') == 'a'", 0.0), ("assert f('ab') in ['a', True]", 0.0), ("assert f('ab') is True", 0.0),
        ("assert f('ab').group() == 'a'", 0.0), ("assert f('ab') == f('ab')", 0.0), ("assert len(f('ab')) == 1", 0.0),
    ],
)  # fmt: skip
def test_of_an_object_a_test_sees_only_whether_it_counts_as_true(test, value):
    assert asserts()("import re\ndef f(s): return re.match('a', s)", test_list=[test]).value == value
    equal = "class E:\n    __eq__ = lambda s, o: True\n    __len__ = lambda s: 1\ndef f(s): return E() if s == 'ab' else None"
    assert asserts()(equal, test_list=[test]).value == value


CHECK = "def check(candidate):\n    assert True, 'sure'\n    assert candidate([1, 2]) == 3, 'message'\n    assert candidate([]) == 0\n"


RANDOM = (
    "def check(candidate):\n    import random\n    for i in range(20):\n        x = [random.randint(0, 9) for _ in range(i)]\n"
    "        y = candidate(list(x))\n        assert abs(total(x) - y) < 1e-6\n"
)


PROMPT = "def total(xs):\n    t = 0\n    for x in xs: t += x\n    return t\n\ndef add_up(xs):\n    '''Add.'''\n"


@sandboxed
@pytest.mark.parametrize("test", [CHECK, RANDOM])
def test_a_check_function_is_run_on_what_the_answer_returned(test):
    verifier = asserts(gold="test", entry_point="entry_point", setup=("prompt",), pure=True)
    task = {"test": test, "entry_point": "add_up", "prompt": PROMPT}
    assert verifier("def add_up(xs): return sum(xs)", task).value == 1.0
    assert verifier("def add_up(xs): return sum(xs[1:])", task).value == 0.0
    assert verifier("def add_up(xs): return float('nan')", task).value == 0.0
    assert verifier("def total(xs): return 0\ndef add_up(xs): return 0", task).value == 0.0


@sandboxed
@pytest.mark.parametrize(
    "tests",
    [
        ["root = Node(1)\nassert depth(root) == 1"], ["assert Node(1).value == 1"], ["assert f(lambda x: x) == 1"],
        ["assert f(print) == 1"], ["import nowhere\nassert f(1) == 2"],
        ["assert unknown.attribute(f(1)) == 1"], ["assert f(1) == sys.maxsize"], ["assert f([Node(1)]) == 1"], ["assert f is not None"],
    ],
)  # fmt: skip
def test_tests_that_cannot_be_kept_apart_from_the_answer_are_refused(tests):
    score = asserts()("class Node:\n    def __init__(self, v): self.value = v\ndef depth(n): return 1\ndef f(x): return 1", test_list=tests)
    assert (score.status, score.value) == ("invalid_task", None)


@sandboxed
def test_such_tests_run_beside_the_answer_only_where_that_is_allowed():
    tests = ["n = Node(1)\nassert n.value == 1"]
    verifier = asserts(allow_asserts=True)
    assert verifier("class Node:\n    def __init__(self, v): self.value = v", test_list=tests).value == 1.0
    assert verifier("class Node:\n    def __init__(self, v): self.value = 0", test_list=tests).value == 0.0
    assert verifier("import os\nos._exit(0)", test_list=tests).value == 0.0
    assert verifier("class E:\n    def __eq__(s, o): return True\ndef f(x): return E()", test_list=["assert f(1) == 2"]).value == 0.0, (
        "others stay apart"
    )


@sandboxed
@pytest.mark.parametrize("tests", [[], [""], "x", [3], ["assert f(1) =="], ["assert 1 == 1", "x = 2"], "def check(a, b): pass"])
def test_assert_tests_that_no_answer_could_be_held_against_are_invalid(tests):  # S-CS-07
    assert asserts()("def f(x): return 2", test_list=tests).status == "invalid_task"


@sandboxed
def test_visible_assert_statements_earn_nothing():
    tests = ["assert f(1) == 2", "assert f(2) == 3"]
    assert asserts(visible=2)(INC, test_list=tests).status == "invalid_task"
    assert asserts(visible=1)(INC, test_list=[tests[0], tests[0]]).status == "invalid_task"
    assert asserts(visible=1)(INC, test_list=tests).value == 1.0
    table = "def f(x): return {1: 2}.get(x)"
    assert (
        asserts(visible=1, partial=True)(table, test_list=tests).value == 0.0 and asserts(partial=True)(table, test_list=tests).value == 0.5
    )
    judged = ["assert abs(f(1)) == 2", "assert abs(f(2)) == 3"]
    assert asserts(visible=2)(INC, test_list=judged).status == "invalid_task"
    assert (
        asserts(visible=1, partial=True)(table, test_list=judged).value == 0.0
        and asserts(partial=True)(table, test_list=judged).value == 0.5
    )


SUITE = """
import pytest
from solution import add

@pytest.mark.parametrize("a, b, c", [(1, 2, 3), (20, 22, 42)])
def test_add(a, b, c):
    assert add(a, b) == c
    assert add(add(a, b), 1) == c + 1

def test_refuses_text():
    with pytest.raises(TypeError, match="unsupported"):
        add(1, "a")
    assert add(-1, 1) == 0
"""


IDS = ["test_answer.py::test_add[1-2-3]", "test_answer.py::test_add[20-22-42]", "test_answer.py::test_refuses_text"]


def suite(**options):
    return pytest_suite(limits=ROOMY, seconds=240, pure=True, **options)


@sandboxed
def test_a_module_that_passes_every_test_gets_full_marks():
    assert suite()(RIGHT, tests=SUITE).evidence["passed"] == 3
    assert suite(test_ids="ids")(RIGHT, tests=SUITE, ids=IDS).value == 1.0
    assert suite()("def add(a, b):\n    return a - b", tests=SUITE).value == 0.0
    assert (
        suite(partial=True)(
            "def add(a, b):\n    return abs(a + b)", tests={"test_a.py": SUITE + "\ndef test_more():\n    assert add(-3, 1) == -2\n"}
        ).value
        == 0.75
    )


@sandboxed
@pytest.mark.parametrize(
    "attack",
    [
        "always equal",
        "exit at import",
        "syntax error",
        "equal int",
        "type error",
        "skip",
        "conftest",
        "options",
        "pytest hook",
        "forged report",
        "None",
    ],
)
def test_no_attack_on_a_suite_gets_more_than_a_wrong_answer(attack):
    score = suite()(SUITE_ATTACKS[attack].replace("NAME", "add"), tests=SUITE)
    assert (score.value, score.status) == (0.0, "scored")


@sandboxed
def test_only_a_test_that_passed_in_all_its_phases_counts():
    tests = {
        "test_a.py": "import pytest, unittest\nimport solution\nfrom helper import two\n"
        "@pytest.fixture\ndef broken():\n    yield solution.add(1, 1)\n    raise RuntimeError\n"
        "def test_teardown(broken):\n    assert broken == two\n"
        "@pytest.mark.skip\ndef test_skipped():\n    assert solution.add(1, 1) == two\n"
        "@pytest.mark.xfail\ndef test_xfailed():\n    assert solution.add(1, 1) == 5\n"
        "@pytest.mark.xfail\ndef test_xpassed():\n    assert solution.add(1, 1) == two\n"
        "class TestOld(unittest.TestCase):\n    def test_old(self):\n        self.assertEqual(solution.add(1, 1), two)\n"
        "def test_swallows():\n    try:\n        assert solution.add(1, 1) == two\n    except Exception:\n        pass\n"
        "def test_vacuous():\n    assert True\n",
        "helper.py": "two = 2\n",
    }
    assert suite()(RIGHT, tests=tests).reasons == ("test_a.py::test_skipped does not pass, whatever the answer",)
    names = ["teardown", "xfailed", "xpassed", "swallows", "vacuous"]
    ids = [f"test_a.py::test_{name}" for name in names] + ["test_a.py::TestOld::test_old"]
    score = suite(partial=True, test_ids="ids")(RIGHT, tests=tests, ids=ids)
    assert (score.evidence["held_out"], score.evidence["passed"], score.value) == (5, 3, 2 / 5)
    for name in ("test_a.py::test_xfailed", "test_a.py::test_xpassed", "test_a.py::test_teardown"):
        assert suite(test_ids="ids")(RIGHT, tests=tests, ids=[name]).value == 0.0
    assert suite(test_ids="ids")(RIGHT, tests=tests, ids=["test_a.py::TestOld::test_old", "test_a.py::test_swallows"]).value == 1.0
    assert suite(test_ids="ids")("def add(a, b): import os; os._exit(0)", tests=tests, ids=["test_a.py::test_swallows"]).value == 0.0
    for ids in (["test_a.py::test_vacuous"], ["test_a.py::test_skipped"], ["test_a.py::test_missing"], [], ["a", "a"]):
        assert suite(test_ids="ids")(RIGHT, tests=tests, ids=ids).status == "invalid_task"


@sandboxed
def test_a_suite_may_bring_its_own_conftest_and_folders():
    tests = {
        "conftest.py": "import pytest\n@pytest.fixture\ndef one(): return 1\n",
        "unit/test_a.py": "from solution import add\ndef test_a(one):\n    assert add(one, 1) == 2\n",
    }
    assert suite(test_ids="ids")(RIGHT, tests=tests, ids=["unit/test_a.py::test_a"]).value == 1.0


STACK = "from solution import Stack\ndef test_stack():\n    s = Stack()\n    s.push(1)\n    assert s.pop() == 1\n"


@sandboxed
def test_a_suite_that_makes_objects_runs_only_beside_the_answer():
    answer = (
        "class Stack:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n    def pop(self): return self.x.pop()"
    )
    assert suite()(answer, tests=STACK).status == "invalid_task"
    assert suite(allow_asserts=True)(answer, tests=STACK).value == 1.0
    for wrong in (
        answer.replace("pop()", "index(1)"),
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "Stack = 1",
        "import pytest\npytest.skip('x', allow_module_level=True)",
    ):
        assert suite(allow_asserts=True)(wrong, tests=STACK).value == 0.0


@pytest.mark.parametrize("module", ["conftest", "json", "test_solution", "sitecustomize", "a.b", "pytest", "class", "", "../x", "_pytest"])
def test_the_answer_cannot_take_the_name_of_something_that_loads_by_itself(module):
    with pytest.raises(UserError):
        pytest_suite(module=module)


@pytest.mark.parametrize(
    "tests",
    [
        {},
        "",
        3,
        {"test_a.py": 3},
        {"../test_a.py": ""},
        {"/test_a.py": ""},
        {"solution.py": ""},
        {"x/solution.py": ""},
        {"test_a.py": "def"},
    ],
)
def test_files_that_are_no_suite_are_invalid(tests):
    assert pytest_suite(sandbox=Scripted(Result("ok")))("x", tests=tests).status == "invalid_task"


def tasks(name):
    if not DATA.exists():
        pytest.skip("no shared data here")
    if name == "humaneval":
        with gzip.open(DATA / "humaneval" / "HumanEval.jsonl.gz", "rt") as lines:
            rows = [json.loads(line) for line in lines]
        return [row | {"code": row["prompt"] + row["canonical_solution"]} for row in rows]
    return [json.loads(line) for line in (DATA / "mbpp" / "mbpp.jsonl").read_text().splitlines()]


REAL = {
    "mbpp": {"setup": ("test_setup_code",)},
    "humaneval": {"gold": "test", "entry_point": "entry_point", "setup": ("prompt",), "pure": True},
}


class NothingReturned(ast.NodeTransformer):
    """The mutant that computes everything and returns something else."""

    def visit_Return(self, node):
        return ast.Return(ast.List([ast.Constant("?"), node.value or ast.Constant(None)], ast.Load()))

    def visit_Lambda(self, node):
        return node


@sandboxed
@pytest.mark.parametrize("name", REAL)
def test_reference_solutions_pass_their_own_tests_and_mutants_do_not(name):
    verifier = asserts(**REAL[name])
    for task in random.Random(0).sample(tasks(name), 12):
        assert verifier(task["code"], task).value == 1.0, task["task_id"]
        mutant = ast.unparse(ast.fix_missing_locations(NothingReturned().visit(ast.parse(task["code"]))))
        assert verifier(mutant, task).value == 0.0, task["task_id"]
        for answer in ("", "pass", task["code"][: len(task["code"]) // 2]):
            assert verifier(answer, task).value == 0.0


def imports(names, *lines):
    """A suite that imports names from the answer."""
    return "\n".join(["import json, pytest", f"from solution import {names}", *lines])


PARSER = (
    "import json\nclass ParseError(ValueError): pass\nVERSION = '1.0'\nlimit = 3\n"
    "def parse(x):\n    if x == '?': raise ParseError('no answer')\n    return json.loads(x)\n"
)


@sandboxed
@pytest.mark.parametrize(
    ("names", "lines"),
    [
        ("parse, ParseError", ["def test_a():", "    assert parse('1') == 1", "    with pytest.raises(ParseError):", "        parse('?')"]),
        ("parse, VERSION", ["def test_a():", "    assert parse('1') == 1", "def test_b():", "    assert VERSION == '1.0'"]),
        ("parse, Foo", ["def test_a():", "    assert not isinstance(parse('1'), (Foo, str))"]),
        ("parse, limit", ["def test_a():", "    assert parse('3') == limit"]),
        ("parse, ParseError as E", ["def test_a():", "    try:", "        parse('?')", "    except E:", "        pass"]),
        ("parse, limit", ["def test_a():", "    for i in range(limit):", "        assert parse(str(i)) == i"]),
        ("parse, VERSION", ["@pytest.mark.parametrize('x, y', [('\"1.0\"', VERSION)])", "def test_a(x, y):", "    assert parse(x) == y"]),
        ("parse", ["def test_a():", "    with pytest.raises(SystemExit):", "        parse('?')"]),
    ],
)  # fmt: skip
def test_a_suite_that_uses_more_of_the_answer_than_its_functions_runs_only_beside_it(names, lines):
    assert suite()(PARSER, tests=imports(names, *lines)).status == "invalid_task"


@sandboxed
def test_a_function_may_be_handed_on_to_be_called_elsewhere():
    lines = [
        "@pytest.mark.parametrize('f', [parse])",
        "def test_a(f):",
        "    assert f('1') == 1 and list(map(parse, ['2', '3'])) == [2, 3]",
    ]
    lines += [
        "class TestMore:",
        "    read = staticmethod(parse)",
        "    def test_b(self):",
        "        assert callable(parse) and self.read('4') == 4",
    ]
    assert suite()(PARSER, tests=imports("parse", *lines)).value == 1.0
    assert suite()("def parse(x): return 1", tests=imports("parse", *lines)).value == 0.0


def raising(*expected):
    """A suite with a test for each call that raises something."""
    lines = []
    for number, error in enumerate(expected):
        lines += [f"def test_{number}():", "    assert parse('1') == 1", f"    with pytest.raises({error}) as e:"]
        lines += [f"        parse('{{', {number})", "    assert e"]
    return imports("parse", *lines)


ERRORS = [
    ("ValueError", "import json; json.loads(x)"), ("json.JSONDecodeError", "import json; json.loads(x)"),
    ("ValueError", "raise type('BadInput', (ValueError,), {})('no')"), ("ValueError", "b'\\xff'.decode()"),
    ("ValueError", "import binascii; binascii.unhexlify('x')"), ("UnicodeDecodeError", "b'\\xff'.decode()"),
    ("LookupError", "raise type('Missing', (KeyError,), {})('no')"), ("OSError", "open('/nowhere')"),
    ("KeyError", "{}[x]"), ("Exception", "raise type('Own', (Exception,), {'__init__': lambda s, a, b: None})(1, 2)"),
    ("ArithmeticError", "import decimal; decimal.Decimal(1) / 0"),
]  # fmt: skip


@sandboxed
def test_an_exception_of_the_answer_is_caught_by_the_classes_it_derives_from():
    answer = "def parse(x, number=0):\n    if x == '1': return 1\n"
    answer += "".join(f"    if number == {number}: {statement}\n" for number, (_, statement) in enumerate(ERRORS))
    found = suite(partial=True)(answer, tests=raising(*(expected for expected, _ in ERRORS)))
    assert (found.value, found.evidence["passed"]) == (1.0, len(ERRORS)), found
    assert suite(partial=True)(answer, tests=raising(*["(TypeError, RuntimeError)"] * len(ERRORS))).value == 0.0


PRIMES = imports(
    "is_prime", "def test_a():", "    assert all(map(is_prime, [2, 3, 5]))",
    "def test_b():", "    for x in map(is_prime, [4, 6]):", "        assert x is False",
)  # fmt: skip


@sandboxed
@pytest.mark.parametrize(
    "error", ["StopIteration", "StopAsyncIteration", "type('S', (StopIteration,), {})", "GeneratorExit", "KeyboardInterrupt", "SystemExit"]
)
def test_no_exception_of_the_answer_ends_a_test_early(error):
    assert suite(partial=True)(f"def is_prime(x): raise {error}", tests=PRIMES).value == 0.0


@sandboxed
def test_a_suite_that_goes_through_what_the_answer_returns_is_passed_by_a_right_one():
    assert suite()("def is_prime(x): return x in (2, 3, 5)", tests=PRIMES).value == 1.0


def test_an_exception_keeps_what_it_says():
    calls = code_judge.Calls({}, [])
    assert calls.unknown == {}
    for error in (KeyError("q"), ValueError("no"), OSError(2, "gone"), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), KeyError(("a", 1))):
        kind = type(error).__name__
        again = code_judge.exception(kind, str(error), "builtins", kind)
        assert isinstance(again, type(error)) and str(again) == str(error)
    assert code_judge.exception("KeyError", "'q'", "builtins", "KeyError").args == ("q",)
    for name, module, base in (
        ("Skip", "unittest.case", "Exception"),
        ("X", "os", "eval"),
        ("X", "", "type"),
        ("BdbQuit", "bdb", "Exception"),
    ):
        assert type(code_judge.exception(name, "no", module, base)).__module__ not in ("unittest.case", "bdb")


@sandboxed
@pytest.mark.parametrize(
    ("held_out", "status"),
    [
        ("assert abs(f(1)) == 2", "invalid_task"), ("assert f(1) in (2, 3)", "invalid_task"), ("assert 2 == f(1) + 0", "invalid_task"),
        ("assert f(f(1)) in (3,)", "scored"), ("assert all(f(i) == i + 1 for i in (1, 2))", "scored"), ("assert abs(f(4)) == 5", "scored"),
        ("def g(): return f(1) + f(2)\nassert g() == 5", "scored"), ("assert f(1) + f(2) == 5", "scored"),
    ],
)  # fmt: skip
def test_a_test_that_asks_only_what_was_shown_is_shown(held_out, status):
    score = asserts(visible=1)(INC, test_list=["assert abs(f(1)) == 2", held_out])
    assert score.status == status and (status != "scored" or (score.value, score.evidence["held_out"]) == (1.0, 1))


@sandboxed
def test_a_test_of_a_suite_that_asks_only_what_was_shown_is_shown():
    lines = ["def test_a():", "    assert add(1, 1) == 2", "def test_b():", "    assert 2 == add(1, 1)", "def test_c():"]
    tests = imports("add", *lines, "    assert add(2, 3) == 5")
    ids = [f"test_answer.py::test_{name}" for name in "abc"]
    verifier = suite(visible="shown", test_ids="ids", partial=True)
    assert verifier(RIGHT, tests=tests, ids=ids[:2], shown=ids[:1]).status == "invalid_task"
    assert verifier(RIGHT, tests=tests, ids=ids, shown=ids[:1]).evidence["held_out"] == 1
    assert verifier("def add(a, b): return 2", tests=tests, ids=ids, shown=ids[:1]).value == 0.0


@sandboxed
@pytest.mark.parametrize(
    "line", ["import uuid; x = uuid.uuid4().hex", "import time; x = time.time_ns()", "x = list('abcdefgh'); x = list({*x})"]
)
def test_tests_whose_calls_differ_from_run_to_run_are_refused(line):
    assert asserts()("def f(x): return x", test_list=[f"{line}\nassert f(x) == x"]).status == "invalid_task"


@sandboxed
@pytest.mark.parametrize(
    ("tests", "valid"),
    [
        (["assert f(1) == None", "assert f(2) == None"], False), (["assert f(1) == None"], False),
        (["assert f(1) is None", "assert f(2) is None"], False),
        (["assert f(1) == True", "assert True == f(2)"], False), (["assert f(1)", "assert f(2)"], False),
        (["assert not f(1)", "assert not f(2)"], False), (["assert f(3) == 7", "assert f(4) == 7"], False),
        (["assert f(1) is False", "assert f(2) is False"], False), (["assert len(f(1)) == 0", "assert f(2) in ([], ())"], False),
        (["try:\n    f(1)\nexcept TypeError:\n    pass\nelse:\n    assert False"], False),
        (["assert f(1) == True", "assert f(2) == False"], True), (["assert f(1)", "assert not f(2)"], True), (["assert f(1)"], True),
    ],
)  # fmt: skip
def test_assert_statements_that_the_same_answer_to_every_input_passes_are_refused(tests, valid):
    score = asserts()("def f(x): return x == 1", test_list=tests)
    assert (score.status, score.value) == (("scored", 1.0) if valid else ("invalid_task", None))


@sandboxed
def test_a_suite_keeps_what_was_answered_before_a_call_that_hangs():
    tests = imports("f", *(f"def test_{i}():\n    assert f({i}) == {i}" for i in range(1, 5)))
    answer = "def f(x):\n    while x == 4: pass\n    return x"
    score = suite(partial=True)(answer.replace("while x == 4: pass", "x"), tests=tests)
    assert score.value == 1.0
    short = pytest_suite(limits=Limits(wall=8, cpu=2), seconds=240, pure=True, partial=True)
    score = short(answer, tests=tests)
    assert (score.value, score.evidence["timeout"]) == (0.75, True)
