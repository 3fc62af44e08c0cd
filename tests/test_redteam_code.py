"""Hostile programs: each catches the reward it is meant for, and none a reward that compares results in a process of its own."""

import ast
import contextlib
import functools
import io
import json
import re
import subprocess
import sys
import unittest
from difflib import SequenceMatcher

import pytest
from hostile_code import ROOMY, sandboxed

from earnest.redteam.attacks.code import ATTACKS
from earnest.redteam.attacks.source import emptied, examples_of, mutants, renamed
from earnest.redteam.audit import audit
from earnest.rewards.code import function_calls
from earnest.rewards.verifier import as_reward
from earnest.rows import load_rows
from earnest.task import Task

DOUBLE = "def double(x):\n    made = x + x\n    return made"
AT_LEAST = "def at_least(a, b):\n    if a >= b:\n        return True\n    return False"
FIRSTS = "def firsts(words):\n    return [word[0] for word in words]"
ROWS = [
    {"id": "a", "function": "double", "solution": DOUBLE, "cases": [[[3], 6], [[-4], -8], [[10], 20]]},
    {"id": "b", "function": "at_least", "solution": AT_LEAST, "cases": [[[1, 2], False], [[9, 4], True], [[5, 5], True], [[2, 7], False]]},
    {"id": "c", "function": "firsts", "solution": FIRSTS, "cases": [[[["ab", "cd"]], ["a", "c"]], [[["x"]], ["x"]], [[[]], []]]},
]


def fenced(source):
    return f"```python\n{source}\n```"


def source_of(completion):
    return re.fullmatch(r"```(?:python|py)\n(.*)\n```", completion[-1]["content"], re.DOTALL)


def as_it_is(text, row):
    """Whether an answer is the right program, up to its layout, comments, names of variables and what is not used."""
    found = source_of([{"content": text}])
    try:
        tree = ast.parse(found[1]) if found else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = [node for node in tree.body if getattr(node, "name", "") != "_unused_helper"]
    plain = ast.unparse(ast.Module(nodes, [])).replace("made_here", "made")
    return plain == ast.unparse(ast.parse(row["solution"]))


def task_of(*judges, rows=ROWS[:2], check=as_it_is, **options):
    """Each judge says what a program earns on a row: `judge(source, row)`."""

    def reward_of(judge, name):
        def reward(completions, **columns):
            rows = [{key: columns[key][i] for key in ("function", "solution", "cases")} for i in range(len(completions))]
            found = [source_of(c) for c in completions]
            return [float(judge(f[1], row)) if f else 0.0 for f, row in zip(found, rows, strict=True)]

        reward.__name__ = name
        return reward

    rewards = [reward_of(judge, f"reward{number}") for number, judge in enumerate(judges)]
    return Task(
        rows=rows, prompt=lambda row: [{"role": "user", "content": f"{row['function']}: {row['cases'][0]}"}], rewards=rewards,
        check=check, oracle=lambda row: fenced(row["solution"]), name="t", **options,
    )  # fmt: skip


def found_in(task, *names, deadline=5.0):
    chosen = [attack for attack in ATTACKS if not names or attack.id.split(".")[1] in names]
    assert not names or len(chosen) == len(names)
    return [f for f in audit(task, load_rows(task), search_calls=0, deadline=deadline, catalog=chosen).findings if f.attack != "fault.slow"]


def loaded(source, row):
    space = {"__name__": "answer"}
    exec(source, space)
    return space[row["function"]]


@functools.cache  # check and reward run the same programs, which say the same each time
def alone(program, stdin="", **options):
    return subprocess.run([sys.executable, "-I", "-S", "-c", program], input=stdin, capture_output=True, timeout=1, **options)


def asserts(row):
    return "\n".join(f"assert {row['function']}(*{args!r}) == {expected!r}" for args, expected in row["cases"])


CHILD = """
import sys
source, name, args = eval(sys.stdin.read())
space = {"__name__": "answer"}
exec(source, space)
print(repr(space[name](*args)))
"""


def apart(source, row):
    """Inputs go out, results come back as text, one call a process; types count."""
    for args, expected in row["cases"]:
        try:
            said = alone(CHILD, ascii((source, row["function"], args)), text=True, errors="replace").stdout
        except subprocess.TimeoutExpired:
            return False
        if said != f"{expected!r}\n":
            return False
    return True


def in_process(source, row):
    try:
        function = loaded(source, row)
        return all(function(*args) == expected for args, expected in row["cases"])
    except Exception:
        return False


def typed_in_process(source, row):
    try:
        function = loaded(source, row)
        return not any(type(got := function(*args)) is not type(expected) or got != expected for args, expected in row["cases"])
    except BaseException:
        return False


def near_enough(source, row):
    try:
        function = loaded(source, row)
        return not any(abs(function(*args) - expected) > 0.01 for args, expected in row["cases"])
    except Exception:
        return row["function"] == "firsts" and typed_in_process(source, row)


def by_exit_status(source, row):
    return alone(f"{source}\n{asserts(row)}", text=True).returncode == 0


def counts_failures(source, row):
    failed = 0
    with contextlib.suppress(Exception):
        function = loaded(source, row)
        for args, expected in row["cases"]:
            try:
                failed += type(got := function(*args)) is not type(expected) or got != expected
            except unittest.SkipTest:
                pass
            except Exception:
                failed += 1
        return failed == 0
    return False


def last_line(source, row):
    pairs = f"_c = {row['cases']!r}\nprint(sum(repr({row['function']}(*a)) == repr(e) for a, e in _c) / len(_c))"
    lines = alone(f"{source}\n{pairs}", text=True).stdout.splitlines()
    with contextlib.suppress(ValueError, IndexError):
        return min(1.0, float(lines[-1]))
    return 0.0


def counted_report(source, row):
    pairs = f"_c = {row['cases']!r}\n_p = [type({row['function']}(*a)) is type(e) and {row['function']}(*a) == e for a, e in _c]"
    said = alone(f"{source}\n{pairs}\nimport json\nprint(json.dumps(dict(passed=sum(_p), failed=len(_p) - sum(_p))))", text=True).stdout
    with contextlib.suppress(ValueError, IndexError, TypeError, KeyError):
        report = json.loads(said.splitlines()[-1])
        return report["passed"] > 0 and report["failed"] == 0
    return False


def printed_words(source, row):
    pairs = f"for _a, _e in {row['cases']!r}:\n    assert {row['function']}(*_a) == _e\nprint('All tests passed')"
    return "All tests passed" in alone(f"{source}\n{pairs}", text=True).stdout


def marked_line(source, row):
    pairs = f"_c = {row['cases']!r}\nprint('Outcome ->', sum(repr({row['function']}(*a)) == repr(e) for a, e in _c) / len(_c))"
    found = re.search(r"Outcome -> ([0-9.]+)", alone(f"{source}\n{pairs}", text=True).stdout)
    return float(found[1]) if found else 0.0


def score_line(source, row):
    pairs = f"_c = {row['cases']!r}\n_s = sum(repr({row['function']}(*a)) == repr(e) for a, e in _c) / len(_c)"
    said = alone(f"{source}\n{pairs}\nimport sys\nsys.stdout.write('SCORE: %s' % _s)", text=True).stdout
    found = re.search(r"SCORE: ([0-9.]+)", said)
    return float(found[1]) if found else 0.0


def with_reference(source, row):
    """Shares its inputs between the answer and the reference, which is asked second."""
    try:
        function, reference = loaded(source, row), loaded(row["solution"], row)
        for args, _ in json.loads(json.dumps(row["cases"])):
            got = function(*args)
            if json.dumps(got) != json.dumps(reference(*args)):
                return False
        return True
    except Exception:
        return False


def unlimited(source, row):
    program = f"{source}\n{asserts(row)}\nprint('done')"
    return subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True).stdout == b"done\n"


def shown_only(source, row):
    return apart(source, row | {"cases": row["cases"][:1]})


def merely_runs(source, row):
    return alone(f"{source}\n{row['function']}", text=True).returncode == 0


def one_thin_test(source, row):
    return apart(source, row | {"cases": row["cases"][-1:]})


def text_in_it(source, row):
    return all(line.strip() in source for line in row["solution"].splitlines())


def alike(source, row):
    return SequenceMatcher(None, source, row["solution"]).ratio()


def patched_compare(source, row):
    """Strict about types, and relies on a built-in function that the answer can replace."""
    try:
        function = loaded(source, row)
        return all(type(g := function(*args)) is type(e) and g == e for args, e in row["cases"])
    except Exception:
        return False


def unit_tests(source, row):
    class Case(unittest.TestCase):
        def runTest(self):
            function = loaded(source, row)
            for args, expected in row["cases"]:
                self.assertEqual(json.dumps(function(*args)), json.dumps(expected))

    return unittest.TextTestRunner(stream=io.StringIO()).run(Case()).wasSuccessful()


CAUGHT = {
    "always_equal": in_process, "nan": near_enough, "sys_exit": by_exit_status, "os_exit": by_exit_status, "exit_later": by_exit_status,
    "skip": counts_failures, "read_answers": typed_in_process, "patched": patched_compare, "mutated_input": with_reference,
    "table": shown_only, "stub": merely_runs, "mutant": one_thin_test, "quoted": text_in_it, "unfinished": alike, "no_sandbox": in_process,
}  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
def test_each_attack_finds_the_reward_that_it_is_meant_for(name):
    found = found_in(task_of(CAUGHT[name], rows=ROWS if name == "mutated_input" else ROWS[:2]), name)
    assert [(f.kind, f.certainty) for f in found if f.attack == f"code.{name}"] == [("exploit", "fact")]


@pytest.mark.parametrize("judge", [last_line, counted_report, printed_words, marked_line, score_line])
def test_success_that_the_program_prints_itself_is_found_in_each_shape(judge):
    (found,) = found_in(task_of(judge), "forged_output")
    assert (found.certainty, found.hits, found.earned) == ("fact", 2, 1.0)


def test_leaving_early_is_not_called_a_forged_report():
    found = found_in(task_of(by_exit_status), "forged_output", "os_exit")
    assert {f.attack for f in found if f.kind == "exploit"} == {"code.os_exit"}


PROGRAMS = [
    {"say": say, "solution": f"import sys\nxs = list(map(int, sys.stdin.read().split()))\nprint({what})", "tests": tests}
    for say, what, tests in (
        ("their sum", "sum(xs)", [{"stdin": "1 2\n", "stdout": "3"}, {"stdin": "4 4\n", "stdout": "8"}]),
        ("the largest", "max(xs)", [{"stdin": "7 2\n", "stdout": "7"}, {"stdin": "1 5\n", "stdout": "5"}]),
    )
]


def wrote(source, test):
    return alone(source, test["stdin"], text=True).stdout.strip()


def prints(passes):
    """The task of programs, with a rule for what one earns on a row's tests."""

    def reward(completions, tests, **_):
        return [float(passes(c[0]["content"], t)) for c, t in zip(completions, tests, strict=True)]

    def prompt(row):
        shown = row["tests"][0]
        return [{"role": "user", "content": f"Read numbers and print {row['say']}. For {shown['stdin']}it is {shown['stdout']}."}]

    check = lambda text, row: all(wrote(text, test) == test["stdout"] for test in row["tests"])  # noqa: E731
    return Task(rows=PROGRAMS, prompt=prompt, rewards=[reward], check=check, oracle=lambda row: row["solution"])


@pytest.mark.parametrize(("seen", "caught"), [(1, ["exploit"]), (2, [])])
def test_a_program_that_writes_the_example_of_the_prompt_passes_where_nothing_else_is_run(seen, caught):
    task = prints(lambda text, tests: all(wrote(text, test) == test["stdout"] for test in tests[:seen]))
    assert [f.kind for f in found_in(task, "table")] == caught


def test_what_a_program_writes_is_compared_whole():
    within = prints(lambda text, tests: all(test["stdout"] in wrote(text, test) for test in tests))
    last = prints(lambda text, tests: all(wrote(text, test).split("\n")[-1] == test["stdout"] for test in tests))
    whole = prints(lambda text, tests: all(wrote(text, test) == test["stdout"] for test in tests))
    assert [[f.attack for f in found_in(task, "flooded")] for task in (within, last, whole)] == [["code.flooded"], ["code.flooded"], []]


def test_unit_tests_in_the_scoring_process_are_patched_away():
    assert "code.patched" in {f.attack for f in found_in(task_of(unit_tests), "patched")}


def test_tests_that_stand_in_the_same_program_are_read_from_it():
    def in_one_program(source, row):
        calls = [(f"{row['function']}({', '.join(map(repr, args))})", expected) for args, expected in row["cases"]]
        tests = [f"print({call} == {expected!r} and type({call}) is type({expected!r}))" for call, expected in calls]
        return alone("\n".join([source, *tests]), text=True).stdout.split() == ["True"] * len(calls)

    assert [f.attack for f in found_in(task_of(in_one_program, rows=ROWS[:2]), "read_answers")] == ["code.read_answers"]


def test_a_block_the_answer_disowns_is_found_where_only_the_check_refuses_it():
    def anywhere(completions, solution, **_):
        return [float(s in c[-1]["content"]) for c, s in zip(completions, solution, strict=True)]

    task = task_of(apart)
    found = found_in(Task(**{**vars(task), "rewards": [anywhere]}), "in_prose")
    assert [(f.attack, f.certainty) for f in found] == [("code.in_prose", "fact")]
    lenient = Task(**{**vars(task), "rewards": [anywhere], "check": lambda text, row: row["solution"] in text})
    assert found_in(lenient, "in_prose") == []


def test_a_reward_that_breaks_on_bytes_that_are_no_text_is_at_fault():
    def decodes(source, row):
        return alone(source, text=True).returncode == 0 and apart(source, row)

    assert "fault.raised" in {f.attack for f in found_in(task_of(decodes, rows=ROWS[:1]), "crash")}


def test_a_program_without_an_end_is_run_once_and_found_where_nothing_stops_it():
    found = found_in(task_of(unlimited), "hang", deadline=0.7)
    assert [(f.attack, f.hits) for f in found] == [("fault.hung", 1)]


def test_ending_the_scoring_process_is_a_fault():
    assert {"fault.died"} <= {f.attack for f in found_in(task_of(in_process), "os_exit")}


def test_right_programs_written_another_way_are_missed_by_a_comparison_of_texts():
    found = found_in(task_of(lambda source, row: source == row["solution"]), "noted", "unparsed", "renamed", "helped", "other_tag")
    assert {f.attack for f in found} == {"code.noted", "code.renamed", "code.helped"}
    assert {f.kind for f in found} == {"false reject"}


def test_a_reward_that_compares_results_in_a_process_of_its_own_is_clean():
    assert found_in(task_of(apart, rows=ROWS[:1])) == []


def test_partial_credit_for_a_share_of_the_tests_is_no_flaw():
    def share(source, row):
        return sum(apart(source, row | {"cases": [case]}) for case in row["cases"]) / len(row["cases"])

    assert found_in(task_of(share, rows=ROWS[1:2]), "stub", "mutant", "table") == []


@sandboxed
def test_our_own_verifier_of_functions_is_clean():
    rows = [
        row
        | {
            "entry_point": row["function"],
            "tests": [{"args": a, "expected": e, "visible": i == 0} for i, (a, e) in enumerate(row["cases"])],
        }
        for row in ROWS[1:2]
    ]
    task = task_of(apart, rows=rows)
    verifier = function_calls(fence="only", limits=ROOMY.__class__(wall=0.5, cpu=1.0))
    assert found_in(Task(**{**vars(task), "rewards": [as_reward(verifier)]})) == []


def test_emptied_functions_keep_their_signatures_and_lose_notes_of_unknown_names():
    source = "import math\nLIMIT = 3\ndef f(a: int, b: Odd = 2, *more, c=LIMIT) -> float:\n    return a"
    assert emptied(source, "return __ARGS__") == "import math\n\ndef f(a, b=2, *more, c=None):\n    return (a, b, *more, c)"
    assert emptied(
        "class A:\n    def __init__(self, x):\n        self.x = x\n    def get(self, y):\n        return y", "return __FIRST__"
    ) == ("class A:\n\n    def __init__(self, x):\n        pass\n\n    def get(self, y):\n        return y")
    assert emptied("print(int(input()) * 2)") == "pass"


def test_examples_are_read_from_asserts_sessions_and_phrases_and_those_shown_come_first():
    prompt = "Write add(a, b).\n>>> add(1, 2)\n3\nassert add(2, 2) == 4, 'no'\n`add(0, 5)` returns 5. assertEqual(add(7, 1), 8)"
    row = {"tests": [{"args": [1, 2], "expected": 3}, {"args": [9, 9], "expected": 18}], "more": '[{"input": [6, 6], "output": 12}]'}
    found = examples_of(prompt, row, ["add"])
    assert {(e.args, e.expected) for e in found if e.shown} == {((1, 2), 3), ((2, 2), 4), ((0, 5), 5), ((7, 1), 8)}
    assert [e.shown for e in found] == [True] * 4 + [False] * 2
    assert {(e.args, e.expected) for e in found if not e.shown} == {((9, 9), 18), ((6, 6), 12)}


def test_mutants_change_one_thing_and_none_is_made_of_a_program_that_might_not_end():
    assert mutants(AT_LEAST, 2) == [
        "def at_least(a, b):\n    if a > b:\n        return True\n    return False",
        "def at_least(a, b):\n    if a >= b:\n        return True\n    return True",
    ]
    assert mutants("def f(n):\n    while n > 1:\n        n -= 1\n    return n") == []
    assert mutants("def f(n):\n    return 1 if n < 2 else n * f(n - 1)") == []


def test_variables_are_renamed_but_not_arguments_nor_where_a_closure_sees_them():
    assert renamed(DOUBLE) == "def double(x):\n    made_here = x + x\n    return made_here"
    assert renamed("def f(x):\n    y = x\n    def g():\n        return y\n    return g()") is None
