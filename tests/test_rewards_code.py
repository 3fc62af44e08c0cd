"""Functions and programs: right answers get full marks, and what does not compute the right values gets what a wrong answer gets."""

import asyncio
import glob
import json
import os
import random
import time
from pathlib import Path

import pytest
from hostile_code import ATTACKS, BOMBS, FUZZ, RIGHT, ROOMY, SHORT, Scripted, sandboxed
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.errors import UserError
from earnest.rewards import code_run
from earnest.rewards.code import assert_tests, extract_code, function_calls, programs, pytest_suite, same_output
from earnest.rewards.code_run import READY_LINE
from earnest.rewards.verifier import Attempt, as_reward
from earnest.sandbox import Limits, Result, find_sandbox


def calls(**options):
    return function_calls(limits=options.pop("limits", ROOMY), seconds=options.pop("seconds", 120), **options)


def row(entry_point, *pairs, visible=1):
    """Pairs of arguments and value; the first ones are visible."""
    tests = [{"args": list(args), "expected": value, "visible": i < visible} for i, (args, value) in enumerate(pairs)]
    return {"entry_point": entry_point, "tests": tests}


CODE = "def f():\n    return 1\n"


BLOCK = f"```python\n{CODE}```"


@pytest.mark.parametrize(
    ("text", "fence", "source"),
    [
        (CODE, "none", CODE), (BLOCK, "only", CODE), (f"\n\n{BLOCK}\n \n", "only", CODE), (f"Here:\n{BLOCK}\nDone.", "anywhere", CODE),
        (f"```\n{CODE}```", "only", CODE), (f"```PY\n{CODE}```", "only", CODE), (f"~~~python3\n{CODE}~~~", "only", CODE),
        (f"````\ns = '''\n```\n'''\n{CODE}`````", "only", f"s = '''\n```\n'''\n{CODE}"), (f"~~~\n```\n{CODE}~~~", "only", f"```\n{CODE}"),
        (f"{CODE}```", "only", CODE), (f"import re\n{CODE}```\n", "anywhere", f"import re\n{CODE}"),  # S-RP-12, S-RP-13
        (BLOCK.replace("\n", "\r\n"), "only", CODE.replace("\n", "\r\n")), (f"Use `f` and ```f```.\n{BLOCK}", "anywhere", CODE),
    ],
)  # fmt: skip
def test_the_program_is_the_text_or_its_one_block(text, fence, source):
    assert extract_code(text, fence).source == source


@pytest.mark.parametrize(
    ("text", "fence", "reason"),
    [
        (CODE, "only", "the answer has no fenced block"), (CODE, "anywhere", "the answer has no fenced block"),
        (f"{BLOCK}\n{BLOCK}", "anywhere", "the answer has more than one fenced block"), (f"{BLOCK}\n```text\n1\n```", "anywhere",
        "the answer has more than one fenced block"),
        (f"Here:\n{BLOCK}", "only", "there is text around the fenced block"), (f"```python\n{CODE}", "anywhere",
        "the fenced block is never closed"),
        (f"text ```python\n{CODE}", "anywhere", "the answer has no fenced block"),  # S-RP-13
        (f"```\n{CODE}", "only", "the fenced block is never closed"), (f"{CODE}```python", "only", "the fenced block is never closed"),
        (f"```python\n{CODE}~~~", "anywhere", "the fenced block is never closed"), (f"```bash\n{CODE}```", "only",
        "the fenced block is not marked as Python"),
        ("", "none", "the answer holds no code"), (" \n\t ", "none", "the answer holds no code"), ("```\n```", "only",
        "the answer holds no code"),
        ("x = '\ud800'", "none", "the answer is no Unicode text"), ("x = '\0'", "none", "the answer holds a null character"),
        ("#" * 50_001, "none", "the answer is too long"),
    ],
)  # fmt: skip
def test_an_answer_without_one_program_is_refused_with_the_reason(text, fence, reason):
    assert extract_code(text, fence).reason == reason and extract_code(text, fence).source == ""


@settings(max_examples=300 * FUZZ)
@given(st.text(st.characters() | st.sampled_from("`~\n p"), max_size=60), st.sampled_from(["none", "only", "anywhere"]))
def test_any_text_is_a_program_or_refused(text, fence):
    program = extract_code(text, fence)
    assert bool(program.reason) != bool(program.source)


ADD = row("add", ((1, 2), 3), ((20, 22), 42), ((-5, 5), 0))


UPPER = row("upper", (("a",), "A"), (("bc",), "BC"), (("dé",), "DÉ"))


SWAP = {
    "entry_point": "swap",
    "tests": [
        {"args_literal": "((1, 2),)", "expected_literal": "(2, 1)", "visible": True},
        {"args_literal": "((3, 'x'),)", "expected_literal": "('x', 3)"},
        {"args_literal": "({4: 5},)", "expected_literal": "{5: 4}"},
    ],
}


THREADS = """
import threading
def add(a, b):
    threads = [threading.Thread(target=int) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return a + b
"""
AT_EXIT = """
import atexit, threading, time
atexit.register(print, 'bye')
threading.Thread(target=time.sleep, args=(60,)).start()
def add(a, b): return a + b
"""
SWAPPED = "def swap(x):\n    return {v: k for k, v in x.items()} if isinstance(x, dict) else x[::-1]"


@sandboxed
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize(
    ("answer", "row"),
    [
        ("def add(a, b): return a + b", ADD), ("add = lambda a, b: a + b", ADD), ("import operator\nadd = operator.add", ADD),
        ("class add:\n    def __new__(cls, a, b): return a + b", ADD), ("def upper(s): return s.upper()", UPPER), (SWAPPED, SWAP),
        ("print('hello')\ndef add(a, b):\n    print(a)\n    return a + b", ADD), (THREADS, ADD), (AT_EXIT, ADD),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef add(a, b): return P(a + b).x", ADD),
        ("if __name__ == '__main__':\n    raise SystemExit\ndef add(a, b): return a + b", ADD),
    ],
)  # fmt: skip
def test_a_right_function_gets_full_marks(answer, row, pure):
    score = calls(pure=pure)(answer, row)
    assert (score.value, score.reasons, score.evidence["passed"]) == (1.0, (), 3)


@sandboxed
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_on_a_function_gets_more_than_a_wrong_answer(attack):  # S-CS-05, S-CS-15, attacks 2.5
    for task, pure in ((ADD, False), (UPPER, True)):
        score = calls(pure=pure)(ATTACKS[attack].replace("NAME", task["entry_point"]), task)
        assert (score.value, score.status) == (0.0, "scored") and score.reasons


@sandboxed
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_a_wrong_answer_in_time(bomb):  # S-CS-01, S-CS-02, S-CS-04
    score = calls(limits=SHORT)(BOMBS[bomb].replace("NAME", "add"), ADD)
    assert (score.value, score.status) == (0.0, "scored")
    assert score.reasons[0].startswith(("test 1: timeout", "test 1: output", "test 1: killed"))


@sandboxed
@pytest.mark.parametrize(
    "attack", ["x = [0] * (10**9)\ny = x * 9", "def add(a, b):\n    x = []\n    while True: x.append(bytearray(2**20))"]
)
def test_what_takes_too_much_memory_is_a_wrong_answer_that_says_so(attack):  # S-CS-03
    score = calls()(attack, ADD)
    assert score.value == 0.0 and "emory" in score.reasons[0]
    assert calls()("def add(a, b): return a + b", ADD).value == 1.0


@sandboxed
def test_the_environment_and_the_expected_values_are_not_in_the_jail(monkeypatch):  # S-CS-13
    monkeypatch.setenv("DEMO_SECRET", "abc")
    answer = (
        "import os, glob\ndef leak(x):\n    seen = str(dict(os.environ))\n"
        "    for p in glob.glob('*') + glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline') + ['/proc/self/fd/0']:\n"
        "        try: seen += open(p, errors='replace').read()\n        except OSError: pass\n"
        "    return 'DEMO_SECRET' in seen or 'unguessed' in seen"
    )
    tests = [{"args": [1], "expected": False}, {"args": [2], "expected": "unguessed"}]
    score = calls(partial=True)(answer, entry_point="leak", tests=tests)
    assert (score.value, score.evidence["passed"]) == (0.5, 1)


@sandboxed
def test_nothing_is_written_outside_and_the_kind_of_isolation_is_recorded(tmp_path):  # S-CS-08
    marker = tmp_path / "marker"
    answer = (
        "def add(a, b):\n    for c in ().__class__.__base__.__subclasses__():\n        if c.__name__ == 'Popen':\n"
        f"            c(['/bin/sh', '-c', 'echo x > {marker}'])\n"
        f"    import subprocess\n    subprocess.run(['/bin/sh', '-c', 'echo x > {marker}'])\n    open({str(marker)!r}, 'w')"
    )
    score = calls()(answer, ADD)
    assert score.value == 0.0 and not marker.exists() and score.evidence["isolation"] == find_sandbox().isolation != "none"


@sandboxed
@pytest.mark.parametrize(
    "text", ['1); print("pwned") #', "'''\nimport os\n'''", "__import__('os')", "\n", "\ud800\x00'\"\\", "{}%s", "é" * 1000]
)
def test_an_input_is_data(text):  # S-CS-11
    assert calls()("def same(s): return [len(s), s]", row("same", ((text,), [len(text), text]), visible=0)).value == 1.0


@sandboxed
def test_visible_tests_alone_earn_nothing():
    table = "def add(a, b): return {(1, 2): 3}.get((a, b))"
    assert calls()(table, ADD).value == calls(partial=True)(table, ADD).value == 0.0


@sandboxed
def test_part_of_the_tests_pays_only_when_asked_and_when_the_visible_ones_pass():
    half = "def add(a, b): return a + b if a > 0 else None"
    assert calls()(half, ADD).value == 0.0 and calls(partial=True)(half, ADD).value == 0.5
    assert calls(partial=True)("def add(a, b): return a + b if a < 0 else None", ADD).value == 0.0


@sandboxed
def test_state_between_calls_is_lost_unless_the_function_is_declared_pure():
    counting = "n = []\ndef f(x):\n    n.append(x)\n    return len(n)"
    assert calls()(counting, row("f", ((1,), 1), ((2,), 1))).value == 1.0
    assert calls(pure=True)(counting, row("f", ((1,), 1), ((2,), 2))).value == 1.0


RAISES = {"entry_point": "f", "tests": [{"args": [-1], "raises": "ValueError"}, {"args": [4], "expected": 2}]}


@sandboxed
@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("if x < 0: raise ValueError('no')\n    return 2", 1.0), ("return 2", 0.0), ("raise ValueError", 0.0),
        ("if x < 0: raise TypeError\n    return 2", 0.0),
        ("if x < 0: raise type('E', (ValueError, TypeError), {})\n    return 2", 0.0), ("if x < 0: return 'ValueError'\n    return 2", 0.0),
        ("if x < 0: return ValueError()\n    return 2", 0.0), ("if x < 0: raise SystemExit\n    return 2", 0.0),
    ],
)  # fmt: skip
def test_an_expected_exception_is_one_of_exactly_that_name(body, value):
    assert calls()(f"def f(x):\n    {body}", RAISES).value == value


@sandboxed
def test_options_loosen_the_comparison():
    task = row("f", ((0.1, 0.2), 0.3), ((1, 1), 2), visible=0)
    answer = "def f(a, b): return float(a + b)"
    assert calls(absolute=1e-9)(answer, task).value == 0.0
    assert calls(absolute=1e-9, exact_types=False)(answer, task).value == 1.0
    assert calls(exact_types=False)(answer, task).value == 0.0
    counter = "import collections\ndef f(s): return collections.Counter(s)"
    task = row("f", (("aab",), {"a": 2, "b": 1}), visible=0)
    assert calls()(counter, task).value == 0.0 and calls(exact_types=False)(counter, task).value == 1.0


@sandboxed
def test_a_method_of_a_fresh_object_can_be_called():
    answer = "class Solution:\n    def __init__(self): self.n = 0\n    def add(self, a, b):\n        self.n += 1\n        return a + b"
    assert calls()(answer, ADD | {"entry_point": "Solution.add"}).value == 1.0
    assert calls()(answer, ADD | {"entry_point": "Solution.sub"}).value == 0.0


@sandboxed
def test_keywords_other_functions_and_fences():
    tests = [{"args": [], "kwargs": {"a": 1, "b": [2]}, "expected": [1, 2]}, {"args": [3], "function": "g", "expected": 4}]
    answer = "```python\ndef f(*, a, b): return [a, *b]\ndef g(x): return x + 1\n```"
    assert calls(fence="only")(answer, entry_point="f", tests=tests).value == 1.0
    assert calls(fence="only")(answer, entry_point="f", tests=json.dumps(tests)).value == 1.0
    assert calls()(answer, entry_point="f", tests=tests).value == 0.0


@sandboxed
def test_a_program_that_does_not_load_has_run_none_of_the_tests():  # S-CS-06
    tests = [{"args": [i], "expected": i} for i in range(5)]
    assert calls()("def f(x) return x", entry_point="f", tests=tests).reasons == (
        "test 1: the program cannot be loaded (SyntaxError)",
        "0 of 5 tests ran",
    )


@pytest.mark.parametrize(
    "tests",
    [
        [], "[]", "no json", "[" * 100_000, "e30=", {}, 3, [3], [{}], [{"args": [1]}], [{"expected": 1}], [{"args": 1, "expected": 1}],
        [{"args": [1], "args_literal": "(1,)", "expected": 1}], [{"args": [1], "expected": 1, "raises": "E"}], [{"args": [1],
        "expected": 1, "visble": True}],
        [{"args_literal": "(1", "expected": 1}], [{"args_literal": "f()", "expected": 1}], [{"args": [1], "expected_literal": "x"}],
        [{"args": [1], "raises": ""}],
        [{"args": [object()], "expected": 1}], [{"args": [1], "expected": range(3)}], [{"args": [1], "expected": 1, "visible": True}],
        [{"args": [1], "expected": 1, "visible": True}, {"args": [1], "expected": 1}], [{"args": [1], "expected": 1}, {"args": [1],
        "expected": 2}],
        [{"args": [1], "expected": None}, {"args": [2], "expected": None}], [{"args": [1], "kwargs": [], "expected": 1, "function": 3}],
    ],
)  # fmt: skip
def test_a_row_that_no_answer_could_be_held_against_is_invalid(tests):  # S-CS-07, S-CS-12
    sandbox = Scripted(Result("ok", READY_LINE + '{"value":1}\n'))
    for answer in ("def f(x): return 1", ""):
        score = function_calls(sandbox=sandbox)(answer, entry_point="f", tests=tests)
        assert (score.status, score.value) == ("invalid_task", None) and sandbox.asked == []


@pytest.mark.parametrize(
    "tests",
    [
        [],
        [{"stdin": "1"}],
        [{"stdin": 1, "stdout": "1"}],
        [{"stdin": "1", "stdout": "1", "visible": True}],
        [{"stdin": "1", "stdout": " \n"}],
        "x",
    ],
)
def test_a_row_of_programs_that_no_answer_could_be_held_against_is_invalid(tests):
    assert programs(sandbox=Scripted(Result("ok")))("print(1)", tests=tests).status == "invalid_task"


def cases_of(*wanted, visible=0):
    return [
        {"args": [i], **({"raises": w[1:]} if str(w)[:1] == "!" else {"expected": w}), "visible": i < visible} for i, w in enumerate(wanted)
    ]


@pytest.mark.parametrize(
    ("tests", "visible", "valid"),
    [
        ((True, True), 0, False), ((7, 7, 7), 0, False), (("!TypeError", "!TypeError"), 0, False), (("!ValueError",), 0, False),
        (([], []), 0, False), ((True, True, True), 1, False), (({"a": 1}, {"a": 1}), 0, False), (("", ""), 0, False),
        ((True, False), 0, True), ((False, True, True), 1, True), ((2, "!TypeError"), 0, True), ((2, "!TypeError"), 1, True),
        ((7,), 0, True), ((True, 1), 0, True), ((7, 7), 1, True), (("!TypeError", "!ValueError"), 0, True),
    ],
)  # fmt: skip
def test_a_row_that_the_same_result_for_every_input_passes_is_invalid(tests, visible, valid):
    sandbox = Scripted(Result("ok", READY_LINE))
    score = function_calls(sandbox=sandbox)("def f(x): return 1", entry_point="f", tests=cases_of(*tests, visible=visible))
    assert score.status == ("scored" if valid else "invalid_task")


def test_what_is_the_same_depends_on_what_counts_as_equal():
    task = {"entry_point": "f", "tests": cases_of(True, 1)}
    assert function_calls(sandbox=Scripted(Result("ok", READY_LINE)), exact_types=False)("x", task).status == "invalid_task"


@pytest.mark.parametrize(
    ("outputs", "visible", "valid"),
    [
        (("YES", "YES"), 0, False), (("YES\n", "YES", " YES \n"), 1, False), (("1 2", "1\n2"), 0, False),
        (("YES", "NO"), 0, True), (("NO", "YES", "YES"), 1, True), (("YES",), 0, True),
    ],
)  # fmt: skip
def test_a_row_that_a_program_without_input_passes_is_invalid(outputs, visible, valid):
    tests = [{"stdin": str(i), "stdout": text, "visible": i < visible} for i, text in enumerate(outputs)]
    score = programs(sandbox=Scripted(Result("ok", stderr=READY_LINE)))("print('YES')", tests=tests)
    assert score.status == ("scored" if valid else "invalid_task")


@pytest.mark.parametrize(("seconds", "charged", "value"), [(100.0, 0.01, 1.0), (0.01, 100.0, 0.0)])
def test_an_attempt_pays_what_the_sandbox_charged_and_not_what_its_neighbours_took(seconds, charged, value):
    results = [Result("ok", READY_LINE + f'{{"value":{n}}}\n', seconds=seconds, charged=charged) for n in (3, 42, 0)]
    assert function_calls(sandbox=Scripted(*results), seconds=5)("x", ADD).value == value


@pytest.mark.parametrize("make", [function_calls, programs, assert_tests, pytest_suite])
def test_time_on_the_clock_of_the_wall_decides_nothing(make):
    assert make().deadline is None


@pytest.mark.parametrize(
    ("status", "said", "share"),
    [
        ("timeout", '{"value":3}\n{"value":42}\n', 0.5), ("memory", '{"value":3}\n{"value":42}\n', 0.5), ("timeout", '{"value":3}\n', 0.0),
        ("output", '{"value":3}\n{"value":42}', 0.0), ("timeout", '{"value":3}\n{"value":42}\n{"value":0}\n', 0.5),
        ("timeout", "", 0.0), ("killed", '{"value":3}\n{"value":42}\n{"val', 0.5), ("ok", '{"value":3}\n{"value":42}\n', 0.5),
    ],
)  # fmt: skip
def test_what_a_pure_function_has_answered_before_it_hangs_counts(status, said, share):
    score = function_calls(sandbox=Scripted(Result(status, READY_LINE + said)), pure=True, partial=True)("x", ADD)
    assert (score.value, score.evidence["timeout"]) == (share, status == "timeout")
    assert function_calls(sandbox=Scripted(Result(status, READY_LINE + said)), pure=True)("x", ADD).value == 0.0


def test_without_a_sandbox_there_is_no_verdict(monkeypatch):  # S-CS-12
    def none():
        raise UserError("no sandbox works here")

    monkeypatch.setattr(code_run, "find_sandbox", none)
    metrics = {}
    reward = as_reward(function_calls())
    values = asyncio.run(
        reward(["def add(a, b): return a + b", ""], log_metric=metrics.__setitem__, entry_point=["add"] * 2, tests=[ADD["tests"]] * 2)
    )
    assert values == [None, None] and metrics["function_calls/infra_errors"] == 2


TASKS = [
    (function_calls, ADD),
    (programs, {"tests": [{"stdin": "", "stdout": "1"}]}),
    (assert_tests, {"test_list": ["assert f(1) == 2"]}),
    (assert_tests, {"test_list": ["assert abs(f(1)) == 2"]}),
    (pytest_suite, {"tests": "from solution import f\ndef test_f():\n    assert f(1) == 1"}),
]


@pytest.mark.parametrize(
    "result",
    [Result("infra_error", stderr="bwrap: gone"), OSError("gone"), Result("nonzero", stderr="no such file", returncode=127),
    Result("timeout"), Result("ok"), Result("ok", "x", "x")],
)  # fmt: skip
@pytest.mark.parametrize(("make", "task"), TASKS)
def test_an_answer_that_never_began_to_run_has_no_verdict(make, task, result):
    score = make(sandbox=Scripted(result))("def add(a, b): return a + b", task)
    assert (score.status, score.value) == ("infra_error", None) and score.reasons[0].startswith("the sandbox")


@pytest.mark.parametrize("status", ["nonzero", "timeout", "memory", "output", "killed"])
def test_an_answer_that_began_to_run_is_scored_however_it_ends(status):
    right = READY_LINE + '{"value":3}\n{"value":42}\n{"value":0}\n'
    for pure in (False, True):
        score = function_calls(sandbox=Scripted(Result(status, right)), pure=pure)("def add(a, b): return a + b", ADD)
        assert (score.status, score.value) == ("scored", 0.0) and score.evidence["timeout"] is (status == "timeout")


LINES = st.text(max_size=30) | st.sampled_from(
    ['{"value":3}', '{"value":42}', '{"raised":"E","message":""}', '{"failed":"x"}', "null", "[]", '{"value":NaN}']
)


@settings(max_examples=300 * FUZZ)
@given(st.lists(LINES, max_size=4).map("\n".join), st.booleans())
def test_whatever_comes_back_from_a_jail_is_scored(said, pure):
    score = function_calls(sandbox=Scripted(Result("ok", READY_LINE + said)), pure=pure)("x", ADD)
    assert score.status == "scored" and score.value == 0.0
    assert all(reason.isprintable() and len(reason) < 300 for reason in score.reasons)


@settings(max_examples=300 * FUZZ)
@given(
    st.text(max_size=60)
    | st.just('{"passed":["test 1"],"problems":{},"asked":["test 1"],"collected":["test 1"],"unknown":[],"unfit":""}').map(
        lambda s: s[: len(s) // 2]
    )
)
def test_whatever_comes_back_from_a_suite_is_no_pass(said):
    score = assert_tests(sandbox=Scripted(Result("ok", READY_LINE + said)))("x", test_list=["assert abs(f(1)) == 2"])
    assert score.value is None or score.value == 0.0


def test_the_answer_is_sent_inputs_and_never_what_is_expected():
    sandbox = Scripted(Result("ok", READY_LINE + '{"value":1}\n'))
    task = row("f", ((1,), 1), ((2,), "unguessable"), visible=1)
    function_calls(sandbox=sandbox, partial=True)("pass", task)
    programs(sandbox=sandbox, partial=True)("pass", tests=[{"stdin": "1", "stdout": "unguessable"}])
    assert len(sandbox.asked) == 3 and "unguessable" not in repr(sandbox.asked)


def test_the_time_of_all_processes_of_an_attempt_is_limited_together():  # S-CC-03
    sandbox = Scripted(Result("ok", READY_LINE + '{"value":3}\n'), Result("timeout", ""))
    score = function_calls(sandbox=sandbox, limits=Limits(wall=5), seconds=1)("x", ADD)
    assert all(limits.wall <= 1 for *_, limits in sandbox.asked)
    assert (score.value, score.status) == (0.0, "scored"), "who leaves the last process no time to start has caused that"


@sandboxed
def test_a_batch_goes_on_beside_one_that_hangs():  # S-CS-01, S-CC-02, S-CC-04
    right, hang = "def add(a, b): return a + b", "while True: pass"
    metrics = {}
    reward = as_reward(function_calls(limits=SHORT, seconds=2), workers=2)
    begin = time.monotonic()
    answers = [hang, right, "def add(a, b): return 3", right]
    values = asyncio.run(reward(answers, log_metric=metrics.__setitem__, entry_point=["add"] * 4, tests=[ADD["tests"]] * 4))
    assert values == [0.0, 1.0, 0.0, 1.0] and metrics["function_calls/timeouts"] == 1
    assert time.monotonic() - begin < 60


def zombies():
    """Children that have ended and that nobody has asked about."""
    states = [Path(path).read_text().rpartition(")")[2].split() for path in glob.glob("/proc/[0-9]*/stat") if os.path.exists(path)]
    return [fields for fields in states if fields[0] == "Z" and fields[1] == str(os.getpid())]


@sandboxed
def test_timeouts_leave_neither_processes_nor_files_behind():  # S-CS-14
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    verifier = calls(limits=Limits(wall=0.2, cpu=1), seconds=30)
    verifier("while True: pass", ADD)
    before = open_files()
    assert [verifier("while True: pass", ADD).value for _ in range(6)] == [0.0] * 6
    assert open_files() == before
    assert zombies() == []


ECHO = {
    "tests": [
        {"stdin": "1 2\n", "stdout": "3\n", "visible": True},
        {"stdin": "20 22\n", "stdout": "42\n"},
        {"stdin": "5 5\n", "stdout": "10"},
    ]
}


SUM = "print(sum(map(int, input().split())))"


@sandboxed
@pytest.mark.parametrize(
    "answer",
    [
        SUM, "import sys\nsys.stdout.buffer.write(b'%d\\n' % sum(map(int, sys.stdin.buffer.read().split())))",
        "if __name__ == '__main__':\n    " + SUM,
        "import sys\nprint(sum(map(int, open(0).read().split())), end='')\nsys.exit(0)",
        "import sys\nprint('working', file=sys.stderr)\n" + SUM,
        "import sys\n\ndef main():\n    sys.stdout.write(str(sum(int(x) for l in sys.stdin for x in l.split())) + ' \\n\\n')\n\nmain()",
        "#!/usr/bin/python\n# é\n" + SUM,
    ],
)  # fmt: skip
def test_a_right_program_gets_full_marks(answer):  # S-CS-10
    assert programs(limits=ROOMY, seconds=120)(answer, ECHO).value == 1.0


@sandboxed
@pytest.mark.parametrize(
    "answer",
    [
        "print(3)", "print({'1 2': 3}.get(input()))", "print('3 passed')\nraise SystemExit(0)", SUM + "\nraise SystemExit(1)",
        SUM + "\n1 / 0", SUM + "\nimport os\nos.abort()",
        "print(list(range(100)))", "for i in range(100): print(i)", "", "print(", "import os\nos._exit(0)", SUM + "\nprint('ok')",
        "print('The answer is', sum(map(int, input().split())))",
        "import sys\nprint(open(sys.argv[0]).read())", "import glob\nfor p in glob.glob('*'): print(open(p).read())",
        "print('x' * 10**7)", "import sys\nsys.stderr.write('3\\n42\\n10')",
    ],
)  # fmt: skip
def test_no_wrong_program_gets_anything(answer):
    assert programs(limits=ROOMY, seconds=120)(answer, ECHO).value == 0.0


@sandboxed
def test_a_program_that_hangs_is_a_wrong_answer_in_time():
    score = programs(limits=SHORT)("print(3)\nwhile True: pass", ECHO)
    assert score.value == 0.0 and score.evidence["timeout"] is True


@pytest.mark.parametrize(
    ("got", "expected", "whitespace", "tolerance", "right"),
    [
        ("0.333333\n", "0.333333333333", "trailing", 1e-6, True), ("3.0000001 1.0", "3 1", "trailing", 1e-6, True), ("12.1", "12",
        "trailing", 1e-6, False),  # S-CS-09
        ("0.333333\n", "0.333333333333", "trailing", 0, False), ("5 \n\n", "5", "trailing", 0, True), ("5\r\n6\r\n", "5\n6", "trailing",
        0, True), (" 5", "5", "trailing", 0, False),
        ("1  2", "1 2", "trailing", 0, False), ("1  2", "1 2", "tokens", 0, True), ("1\n2", "1 2", "tokens", 0, True), ("12", "1 2",
        "tokens", 0, False), ("1\n2", "1 2", "trailing", 1e-6, False),
        ("5\n", "5", "exact", 0, False), ("5\n", "5\n", "exact", 0, True), ("1\n\n2", "1\n2", "trailing", 0, False), ("nan", "1.0",
        "trailing", 1e-6, False), ("inf", "1e999", "trailing", 1, False),
        ("nan", "nan", "trailing", 1e-6, True), ("1000000008", "1000000007", "trailing", 1e-6, False), ("1000000008.0", "1000000007",
        "trailing", 1e-6, False),
        ("1000000008.0", "1000000007.0", "trailing", 1e-6, True), ("1_0.0", "10.0", "trailing", 1e-6, False), ("１.０", "1.0", "trailing",
        1e-6, False), ("1e999999999", "1.0", "trailing", 1e-6, False),
        ("+5", "5", "trailing", 1e-6, True), ("5.", "5", "trailing", 1e-6, True), ("Yes 1.0000001", "Yes 1.0", "trailing", 1e-6, True),
        ("No 1.0", "Yes 1.0", "trailing", 1e-6, False),
        ("1.0 2.0", "1.0", "trailing", 1e-6, False), ("0x5", "5", "trailing", 1e-6, False), ("5", "5.0", "trailing", 0, False), ("1.05",
        "1.0", "trailing", 1e-6, False),
    ],
)  # fmt: skip
def test_outputs_are_the_same_as_far_as_the_policy_says(got, expected, whitespace, tolerance, right):
    assert same_output(got, expected, whitespace, tolerance) is right


@sandboxed
def test_damaged_answers_are_scored():
    verifier, rng = calls(limits=Limits(wall=5, cpu=2)), random.Random(1)
    for _ in range(12 * FUZZ):
        damaged = bytearray(RIGHT.encode())
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randint(0, 3)] = bytes(rng.choices(range(256), k=rng.randint(0, 2)))
        score = verifier(damaged.decode("utf-8", rng.choice(["replace", "surrogateescape"])), ADD)
        assert score.status == "scored" and score.value in (0.0, 1.0)


def test_an_attempt_that_ends_with_a_tool_result_has_no_answer():
    attempt = Attempt(({"role": "assistant", "content": RIGHT}, {"role": "tool", "content": RIGHT}))
    assert function_calls(sandbox=Scripted(Result("ok")))(attempt, ADD).value == 0.0
