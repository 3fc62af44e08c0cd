"""Loading a task from a file or a module, and the verdict of its check."""

import importlib
import sys
import textwrap

import numpy as np
import pytest

from earnest import Task, UserError, Verdict, load_task
from earnest.task import judge

GOOD = """
from earnest import Task

def prompt(row):
    return [{"role": "user", "content": row["q"]}]

def right(completions, **kwargs):
    return [1.0 for _ in completions]

"""
LINE = "task = Task(rows='rows.jsonl', prompt=prompt, rewards=[right], check=lambda text, row: True)\n"


@pytest.fixture(autouse=True)
def clean_imports():
    """Loading a task file leaves its folder on the path and its module loaded: undo both."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("quiz", "_earnest", "neighbour")):
            del sys.modules[name]


def written(folder, text, name="quiz.py"):
    (folder / name).write_text(textwrap.dedent(text))
    return str(folder / name)


def refused(where, *words):
    with pytest.raises(UserError) as caught:
        load_task(where)
    for word in words:
        assert word in str(caught.value)
    return caught.value


def test_a_task_file_gives_its_task_with_name_and_folder(tmp_path):
    task = load_task(written(tmp_path, GOOD + LINE))
    assert (task.name, task.folder, task.weights) == ("quiz", tmp_path, (1.0,))
    assert task.rewards[0].__name__ == "right"


def test_a_task_keeps_the_name_it_gives_itself(tmp_path):
    assert load_task(written(tmp_path, GOOD + LINE.replace("Task(", "Task(name='pub', "))).name == "pub"


def test_the_only_task_is_found_under_any_name(tmp_path):
    assert load_task(written(tmp_path, GOOD + LINE.replace("task =", "mine ="))).name == "quiz"


def test_a_missing_file_is_named(tmp_path):
    refused(str(tmp_path / "absent.py"), "no task file", "absent.py")


@pytest.mark.parametrize("where", ["absent", "", "folder/absent", ".", "absent.module", "/", "absent.json", "absent:task"])
def test_a_name_of_nothing_lists_the_built_in_tasks(where):
    refused(where, f"There is no task '{where}'", "triage")


def test_a_file_of_another_kind_is_refused(tmp_path):
    refused(written(tmp_path, "{}", "rows.jsonl"), "not a Python file")


def test_a_syntax_error_names_file_and_line(tmp_path):
    where = written(tmp_path, "x = 1\ndef broken(:\n")
    refused(where, "SyntaxError", f"at {where}:2")


def test_a_file_that_raises_names_its_own_line_and_keeps_the_traceback(tmp_path):
    where = written(tmp_path, "import json\n\njson.loads('{')\n")
    error = refused(where, "JSONDecodeError", f"at {where}:3")
    assert "Traceback" in error.details and "decoder.py" in error.details


def test_a_missing_import_names_the_module_and_the_line(tmp_path):
    where = written(tmp_path, "import os\nimport no_such_module_here\n")
    refused(where, "'no_such_module_here' is missing", f"at {where}:2", "Install it")


def test_a_file_that_exits_is_an_error_not_an_exit(tmp_path):
    refused(written(tmp_path, "import sys\nsys.exit(3)\n"), "SystemExit")


def test_a_file_without_a_task_says_how_to_end_it(tmp_path):
    refused(written(tmp_path, "x = 1\n"), "holds no Task", "task = Task(")


def test_of_two_tasks_the_one_called_task_is_taken(tmp_path):
    where = written(tmp_path, GOOD + LINE + LINE.replace("task =", "other =").replace("Task(", "Task(name='other', "))
    assert load_task(where).name == "quiz"


def test_an_attribute_selects_among_the_tasks_of_a_file(tmp_path):
    where = written(tmp_path, GOOD + LINE.replace("task =", "easy =") + LINE.replace("task =", "hard ="))
    assert load_task(where + ":hard").name == "hard"
    refused(where, "holds no Task named 'task'", "easy, hard", f"{where}:easy")
    refused(where + ":none", "named 'none'", "easy, hard")


def test_an_attribute_that_is_no_task_is_refused(tmp_path):
    refused(written(tmp_path, GOOD + LINE) + ":prompt", "holds no Task named 'prompt'")


def test_a_module_in_the_working_folder_is_found_by_its_dotted_name(tmp_path, monkeypatch):
    (tmp_path / "quizzes").mkdir()
    written(tmp_path / "quizzes", GOOD + LINE, "easy.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    importlib.invalidate_caches()
    assert load_task("quizzes.easy").name == "easy"
    assert load_task("quizzes.easy:task").folder == tmp_path / "quizzes"
    refused("quizzes.absent", "There is no task 'quizzes.absent'")


def test_a_task_file_may_import_its_neighbours(tmp_path):
    written(tmp_path, "SIZE = 3\n", "neighbour_of_quiz.py")
    assert load_task(written(tmp_path, "from neighbour_of_quiz import SIZE\n" + GOOD + LINE)).name == "quiz"


def test_a_task_file_never_takes_the_place_of_another_module(tmp_path):
    import colorsys

    assert load_task(written(tmp_path, GOOD + LINE, "colorsys.py")).name == "colorsys"
    assert sys.modules["colorsys"] is colorsys


def test_a_broken_task_file_leaves_no_half_module(tmp_path):
    refused(written(tmp_path, "x = 1\n1 / 0\n", "quiz_broken.py"), "ZeroDivisionError")
    assert "quiz_broken" not in sys.modules


def test_a_file_edited_between_two_loads_is_read_again(tmp_path):
    where = written(tmp_path, GOOD + LINE)
    assert load_task(where).name == "quiz"
    written(tmp_path, GOOD + LINE.replace("Task(", "Task(name='second edition', "))
    assert load_task(where).name == "second edition"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("rewards=[right]", "rewards=[]"), ["no list of rewards"]),
        (("rewards=[right]", "rewards=right"), ["no list of rewards"]),
        (("rewards=[right]", "rewards=['right']"), ["rewards[0]", "not a function"]),
        (("prompt=prompt", "prompt='hello'"), ["prompt", "not a function"]),
        (("check=lambda text, row: True", "check=None"), ["check", "not a function"]),
        (("Task(", "Task(oracle='gold', "), ["oracle", "leave it out"]),
        (("Task(", "Task(slices={'by': 'team'}, "), ["slices['by']", "not a function"]),
        (("Task(", "Task(reward_weights=[1, 2], "), ["1 rewards", "[1, 2]", "one weight"]),
        (("Task(", "Task(reward_weights=[], "), ["1 rewards", "one weight"]),
        (("Task(", "Task(reward_weights=2, "), ["one weight"]),
        (("Task(", "Task(reward_weights=[float('nan')], "), ["nan", "finite"]),
        (("Task(", "Task(reward_weights=['1'], "), ["'1'", "finite"]),
    ],
)
def test_a_task_that_cannot_work_is_refused_with_the_part(tmp_path, change, words):
    refused(written(tmp_path, GOOD + LINE.replace(*change)), "quiz.py", *words)


def task_with(check):
    return Task(rows=[], prompt=lambda row: [], rewards=[], check=check, name="quiz")


@pytest.mark.parametrize("yes", [True, np.True_, np.bool_(1), Verdict(True), Verdict(np.True_)])
def test_a_bool_of_any_kind_becomes_a_verdict(yes):
    verdict = judge(task_with(lambda text, row: yes), "a", {})
    assert verdict == Verdict(True) and verdict.correct is True


def test_a_verdict_holds_plain_values_and_compares():
    found = Verdict(True, {"team": np.False_, "area": None}, well_formed=np.True_)
    verdict = judge(task_with(lambda text, row: found), "a", {})
    assert verdict.fields == {"team": False, "area": None} and verdict.fields["team"] is False
    assert verdict.well_formed is True and not verdict.all_fields


def test_all_fields_passes_over_parts_without_gold():
    assert Verdict(True, {"team": True, "area": None}).all_fields
    assert not Verdict(False, {"team": True}).all_fields


@pytest.mark.parametrize("value", [None, 1, 0.5, "yes", [True], Verdict(None), Verdict(1), Verdict(True, {"a": "x"}), Verdict(True, {}, 1)])
def test_a_check_must_return_a_bool_or_a_verdict_of_bools(value):
    with pytest.raises(UserError, match=r"check of task 'quiz' returned .* on row 'r7'"):
        judge(task_with(lambda text, row: value), "a", {"id": "r7"})


def test_a_check_that_raises_names_row_and_text_and_keeps_the_traceback():
    with pytest.raises(UserError) as caught:
        judge(task_with(lambda text, row: text[5]), "abc", {"id": "r7"})
    assert "IndexError" in str(caught.value) and "'r7'" in str(caught.value) and "'abc'" in str(caught.value)
    assert "text[5]" in caught.value.details
