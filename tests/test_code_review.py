"""Code review: bugs that show, clean changes that change nothing, and what reviewers who do not read would earn."""

import ast
import json
import random
import re
import sys
from pathlib import Path

import pytest

import earnest.tasks.code_review as code_review
from earnest.check import check_task
from earnest.environment import acted
from earnest.redteam.audit import audit
from earnest.rows import load_rows
from earnest.task import judge, load_task
from earnest.tasks.code_review import POLICIES, build, investigate, task
from earnest.tasks.code_review.build import diff
from earnest.tasks.code_review.functions import LIBRARY, Running, differs, outcomes, subjects, witness
from earnest.tasks.code_review.mutate import CATEGORIES, bugs, edits
from earnest.tasks.code_review.review import Review
from earnest.tasks.code_review.rewards import finding

BUG = {"lines": [3, 4], "category": "boundary"}
CLEAN = {"lines": [], "category": "none"}
FOLDER = Path(code_review.__file__).parent


def answer(line, category):
    return json.dumps({"line": line, "category": category})


def mutants(source, category):
    return [make() for name, make in bugs(source, random.Random(0)) if name == category]


# rewards


@pytest.mark.parametrize(
    ("line", "category", "marks"),
    [(3, "boundary", 1.0), (4, "boundary", 1.0), (3, "comparison", 0.6), (2, "boundary", 0.3), (5, "operator", 0.3), (6, "boundary", -0.5),
     (1, "boundary", -0.5), (None, "none", 0.0)],
)  # fmt: skip
def test_the_place_pays_and_then_the_name_a_miss_nothing_and_a_false_alarm_costs(line, category, marks):
    assert finding(answer(line, category), BUG).value == marks


def test_in_a_clean_change_every_alarm_costs():
    assert finding(answer(None, "none"), CLEAN).value == 1.0
    assert {finding(answer(line, name), CLEAN).value for line in (1, 3, 99) for name in CATEGORIES} == {-0.5}


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "[]", "{}", '{"line": 3}', '{"line": [3, 4], "category": "boundary"}', '{"line": 3, "category": ["boundary", "operator"]}',
        '{"line": 3.0, "category": "boundary"}', '{"line": true, "category": "boundary"}', '{"line": "3", "category": "boundary"}',
        '{"line": null, "category": "boundary"}', '{"line": 3, "category": "none"}', '{"line": 3, "category": "bug"}',
        '{"line": 1, "line": 3, "category": "boundary"}', '{"line": 3, "category": "boundary", "why": ""}',
        '{"line": 0, "category": "return"}',
        'It is {"line": 3, "category": "boundary"}', '[{"line": 3, "category": "boundary"}]', '{"line": 3, "category": null}',
    ],
)  # fmt: skip
def test_any_other_form_is_worth_the_least_and_fails_the_check(text):
    for row in (BUG, CLEAN):
        assert finding(text, row).value == -0.5
        assert not judge(task, text, row).correct and judge(task, text, row).well_formed is False


def test_the_check_wants_line_and_category():
    assert judge(task, answer(4, "boundary"), BUG).correct
    verdict = judge(task, answer(4, "operator"), BUG)
    assert (verdict.correct, dict(verdict.fields), verdict.well_formed) == (False, {"line": True, "category": False}, True)
    assert not judge(task, answer(5, "boundary"), BUG).correct
    assert judge(task, answer(None, "none"), CLEAN).correct and not judge(task, answer(None, "none"), BUG).correct


def test_a_row_whose_category_and_lines_do_not_fit_is_no_task():
    for row in ({"lines": [], "category": "return"}, {"lines": [1, 1], "category": "none"}, {"lines": [1, 1], "category": "odd"}):
        assert finding("{}", row).status == "invalid_task"


# mutation

SIGN = "def sign(a, b):\n    if a < b:\n        return f(a, b) - 1\n    else:\n        raise ValueError(a)\n    return a"


@pytest.mark.parametrize(
    ("category", "line"),
    [
        ("comparison", "    if a > b:"),
        ("boundary", "    if a <= b:"),
        ("operator", "        return f(a, b) + 1"),
        ("variable", "    if b < b:"),
        ("return", "        f(a, b) - 1"),
        ("arguments", "        return f(b, a) - 1"),
        ("off_by_one", "        return f(a, b) - 2"),
        ("exception", "        pass"),
    ],
)
def test_a_bug_changes_one_place_in_its_own_way(category, line):
    made = [text.splitlines() for text in mutants(SIGN, category)]
    assert any(line in lines for lines in made)
    for lines in made:
        assert ast.parse("\n".join(lines)) and lines != SIGN.splitlines()


def test_what_is_dropped_is_gone():
    assert mutants(SIGN, "dropped") == ["def sign(a, b):\n    if a < b:\n        return f(a, b) - 1\n    return a"]
    assert "await" not in mutants("async def f(x):\n    return await x", "dropped")[0]
    assert "pass" in mutants("def f(x):\n    for y in x:\n        continue", "dropped")[0]


def test_a_mutable_default_is_folded_in():
    source = "def f(x, seen=None):\n    if seen is None:\n        seen = []\n    return seen"
    assert mutants(source, "default") == ["def f(x, seen=[]):\n    return seen"]
    assert mutants("def f(x=None):\n    return x", "default") == []


def test_a_bug_that_no_input_shows_is_no_bug():
    subject = next(s for s in subjects() if s.name == "longest_run")
    usual = list(outcomes(subject, subject.source))
    equivalent = subject.source.replace("index > 0", "index != 0")
    assert equivalent != subject.source and not differs(subject, equivalent, usual) and witness(subject, subject.source, equivalent) == ""


def test_a_default_that_keeps_what_it_was_given_shows_in_the_second_call():
    subject = next(s for s in subjects() if s.name == "collect")
    (kept,) = mutants(subject.source, "default")
    assert witness(subject, subject.source, kept) == "collect(0)"
    running = Running(subject.module, subject.name, kept)
    assert [running.call([0]), running.call([0])] == ["[0]", "[0, 0]"]


def test_an_endless_loop_is_an_outcome():
    source = "def f(x):\n    while True:\n        try:\n            x += 1\n        except Exception:\n            pass"
    assert Running("statistics", "f", source).call([0]) == "endless"


def test_what_a_function_does_to_its_arguments_counts():
    assert Running("heapq", "f", "def f(x):\n    x.append(1)").call([[0]]) == "None, arguments [[0, 1]]"


# rows


def test_rows_are_the_same_for_a_seed_and_others_for_another():
    build.cache_clear()
    again = build(0)
    assert again == tuple(task.rows) and build(1) != again


def test_no_function_and_no_two_that_are_alike_stand_in_two_splits():
    splits = {}
    for row in task.rows:
        splits.setdefault(row["function"], set()).add(row["split"])
    assert all(len(found) == 1 for found in splits.values())
    assert splits["median"] == splits["median_low"] == splits["median_high"] and splits["leap_year"] == splits["isleap"]


def test_every_bug_shows_and_every_clean_change_is_one():
    by_name = {(s.module, s.name): s for s in subjects()}
    for row in task.rows:
        subject = by_name[row["module"], row["function"]]
        if row["lines"]:
            assert witness(subject, row["before"], row["after"]) == row["call"]
        else:
            assert not differs(subject, row["after"], list(outcomes(subject, row["before"])))


def test_the_bug_stands_among_the_lines_that_are_shown_as_new_or_beside_one_that_is_gone():
    for row in task.rows:
        shown = row["diff"].splitlines()
        new = {int(line.split("+")[0]) for line in shown if re.match(r"\d+\+ ", line)}
        if row["lines"] and row["lines"][0] == row["lines"][1]:
            assert row["lines"][0] in new or shown[-1].startswith("-"), row["id"]


def test_every_category_is_there_and_two_fifths_are_clean():
    found = [row["category"] for row in task.rows]
    assert set(found) == {*CATEGORIES, "none"} and 0.35 < found.count("none") / len(found) < 0.45
    assert 300 < len(found) < 900 and {row["split"] for row in task.rows} == {"train", "dev", "test"}


def test_how_many_lines_have_changed_says_next_to_nothing():
    """The best guess of "bug or not" from the numbers of new and old lines, made with a look at the answers, against always "a bug"."""
    kinds = {}
    for row in task.rows:
        shown = row["diff"].splitlines()
        counts = (sum("+" in line.split(" ")[0] for line in shown), sum(line.startswith("-") for line in shown))
        kinds.setdefault(counts, []).append(bool(row["lines"]))
    bugs_in_all = sum(bool(row["lines"]) for row in task.rows)
    assert sum(max(sum(found), len(found) - sum(found)) for found in kinds.values()) - bugs_in_all < 0.03 * len(task.rows)


def test_the_librarys_functions_are_read_from_the_python_that_runs():
    stored = "".join(file.read_text() for file in FOLDER.glob("*.py"))
    library = [s for s in subjects() if s.module in LIBRARY]
    assert len(library) > 40 and not any(s.source in stored for s in library)


def test_a_clean_change_of_a_line_shows_old_and_new():
    assert diff(["a", "b", "c"], ["a", "x", "c"]) == ["1 a", "- b", "2+ x", "3 c"]


def test_edits_mean_the_same():
    made = {make() for make in edits("def f(a, b):\n    c = a\n    c += b\n    return c < b", random.Random(0))}
    assert "def f(a, b):\n    c = a\n    c += b\n    return b > c" in made
    assert "def f(a, b):\n    c = a\n    c = c + b\n    return c < b" in made


# policies


def played(name):
    rewards = [finding(POLICIES[name](row), row).value for row in task.rows]
    checks = [judge(task, POLICIES[name](row), row).correct for row in task.rows]
    return sum(rewards) / len(rewards), sum(checks) / len(checks)


def test_the_oracle_earns_everything_and_naming_everything_the_least():
    assert played("oracle") == (1.0, 1.0)
    assert played("every category") == played("every line") == (-0.5, 0.0)


def test_who_never_finds_a_bug_earns_the_share_of_clean_changes():
    clean = sum(row["category"] == "none" for row in task.rows) / len(task.rows)
    assert played("no bug") == pytest.approx((clean, clean))


def test_who_does_not_read_earns_less_than_nothing():
    assert played("random")[0] < 0 and played("line 1")[0] < 0 and played("random")[1] < 0.1


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the README has the figures of Python 3.11, whose library the rows come from")
def test_the_readme_has_the_scores():
    table = dict(re.findall(r"^\| ([a-z1 ]+) \| (-?[\d.]+ \| [\d.]+) \|", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert {name: table.get(name) for name in POLICIES} == {name: "{:.3f} | {:.3f}".format(*played(name)) for name in POLICIES}


# with tools


def test_the_oracles_calls_show_every_bug_and_no_clean_change():
    for row in investigate.rows:
        messages, environment = acted(investigate, row, investigate.oracle(row))
        told = json.loads(messages[3]["content"])
        assert messages[1]["content"] == row["diff"] and ("error" in told) is False
        assert (told["before"] != told["after"]) == bool(row["lines"])
        assert judge(investigate, messages, row, environment).correct and finding(messages[-1]["content"], row).value == 1.0


def review(before="def f(x):\n    return x", after="def f(x):\n    return x + 1"):
    made = Review()
    made.reset(function="f", module="statistics", before=before, after=after, diff="1 def f(x):\n-     return x\n2+     return x + 1")
    return made


def test_a_call_is_run_before_and_after():
    assert review().run("f(1)") == {"before": "1", "after": "2"}
    assert review().run("f('a')") == {"before": "'a'", "after": "TypeError"}


def test_lines_are_shown_by_the_numbers_of_the_new_version():
    assert review().show(1, 1) == "1 def f(x):" and review().show(2, 2) == "-     return x\n2+     return x + 1"
    assert review().show(7, 9) == "no such lines"


@pytest.mark.parametrize(
    "call",
    ["f(__import__('os'))", "g(1)", "f", "f(x=1)", "f(*[1])", "f(1).real", "f(10**9)", "f(99999)", "f([i for i in 'a'])", "f(f(1))", "f(",
     "", "f('" + "a" * 200 + "')", "f(1); f(2)", "f(-99999)", "f('a' * 3)", "f(open)", "f(**{'x': 1})"],
)  # fmt: skip
def test_only_the_function_itself_is_run_and_only_on_plain_values(call):
    with pytest.raises(ValueError):
        review().run(call)


def test_an_answer_before_the_last_call_is_none():
    row = next(iter(investigate.rows))
    script = investigate.oracle(row)
    assert not judge(investigate, [script[-1], *script[:-1]], row).correct
    assert not judge(investigate, [], row).correct


# sound and clean


@pytest.mark.parametrize("name", ["code_review", "code_review:investigate"])
def test_both_tasks_are_sound_and_the_red_team_finds_nothing(name):
    loaded = load_task(name)
    rows = load_rows(loaded)
    report = check_task(loaded, rows)
    assert report.findings == () and report.ceiling == 1.0
    found = audit(loaded, rows, search_calls=0)
    assert not found.exploitable and found.findings == ()
