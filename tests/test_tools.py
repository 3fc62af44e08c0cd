"""The tools that ship: Python in the sandbox, and a search in documents."""

import inspect
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from earnest import Task, UserError, load_task
from earnest.check import check_task
from earnest.environment import acted, answer_to, begin
from earnest.redteam.audit import audit
from earnest.rewards.calls import ToolCall, as_messages, is_error
from earnest.rows import Rows, load_rows
from earnest.sandbox import Limits
from earnest.task import judge
from earnest.tools import BM25, KEPT, cut, python_tool, read_documents, search_tool, words

PYTHON = python_tool()
DOCUMENTS = [
    {"title": "Korla", "text": "A town of 4120 people on the river Venn."},
    {"text": "The river Venn is 310 km long."},
    {"text": "The Dask Bridge stands in Korla."},
]


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("347*286", "99242"),
        ("print(347*286)", "99242"),
        ("a = 347\nb = 286\na*b", "99242"),
        ("print('a')\n1+1", "a\n2"),
        ("None", "(no output: print the result)"),
        ("", "(no output: print the result)"),
        ("x = 3", "(no output: print the result)"),
        ("from datetime import date; (date(2025,11,2)-date(2023,3,14)).days", "964"),
        ("print(__name__)", "__main__"),
        ("'é'", "é"),
        ("import sys; sys.exit()", "(no output: print the result)"),
    ],
)
def test_code_answers_with_what_it_prints_and_the_value_of_its_last_line(code, answer):
    assert PYTHON(code) == answer


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("print(1)\nnothing", "NameError: name 'nothing' is not defined"),
        ("(", "SyntaxError: '(' was never closed (<code>, line 1)"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise ValueError('a\\nb')", "ValueError: a b"),
        ("input()", "EOFError: EOF when reading a line"),
        ("import numpy", "ModuleNotFoundError: No module named 'numpy'"),
        ("bytearray(10**9)", "too much memory"),
        ("import os; os.kill(os.getpid(), 9)", "the program was stopped"),
        ("print('x' * 10**6)", "too much output"),
        (12, "code must be text"),
    ],
)
def test_what_goes_wrong_is_an_answer_that_says_so(code, error):
    told = PYTHON(code)
    assert told == {"error": error} and is_error(told)


def test_a_call_knows_nothing_of_the_one_before():
    assert PYTHON("kept = 1\nkept") == "1"
    assert PYTHON("kept") == {"error": "NameError: name 'kept' is not defined"}


def test_code_sees_neither_files_of_this_machine_nor_its_variables(tmp_path, monkeypatch):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    monkeypatch.setenv("EARNEST_SECRET", "secret")
    assert PYTHON(f"open({str(secret)!r}).read()")["error"].startswith("FileNotFoundError")
    assert PYTHON("import os\nos.environ.get('EARNEST_SECRET', 'no')") == "no"


def test_a_loop_is_cut_at_the_limit_and_tried_again_the_next_time():
    quick = python_tool(Limits(wall=0.4, cpu=0.4))
    began = time.monotonic()
    assert quick("while True: pass") == {"error": "too slow: stopped after 0.4 s"}
    assert quick("while True: pass") == {"error": "too slow: stopped after 0.4 s"}
    assert 0.8 <= time.monotonic() - began < 20


def test_the_same_code_is_run_once_so_that_a_group_reads_the_same_answer():
    code = "import random\nrandom.random()"
    assert PYTHON(code) == PYTHON(code) != PYTHON(code + " ")
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(PYTHON, [code + "  "] * 4))) == 1


def test_a_kept_error_cannot_be_changed_by_whoever_got_it():
    PYTHON("1/0")["error"] = "changed"
    assert PYTHON("1/0") == {"error": "ZeroDivisionError: division by zero"}


def test_no_more_answers_are_kept_than_are_meant_to_be():
    kept = inspect.getclosurevars(PYTHON).nonlocals["kept"]
    before = dict(kept)
    kept.clear()
    kept.update({str(number): "old" for number in range(KEPT)})
    assert PYTHON("6*7") == "42" and kept == {"6*7": "42"}
    kept.update(before)


def test_many_calls_run_at_once_and_none_gets_the_answer_of_another():
    tool = python_tool()
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(tool, [f"{n}*1001" for n in range(24)])) == [str(n * 1001) for n in range(24)]


def test_a_long_answer_keeps_both_ends():
    assert cut("a" * 10 + "b" * 10 + "c" * 10, 20) == "a" * 10 + " ...(10 characters left out)... " + "c" * 10
    assert cut("a" * 20, 20) == "a" * 20
    assert python_tool(longest=10)("print('ab' * 50)") == "ababa ...(90 characters left out)... babab"


def test_a_failed_program_counts_as_a_failed_call_of_the_rollout():
    task = Task(rows=[{}], prompt=lambda row: [], rewards=[], check=lambda m, row: False, tools=[PYTHON])
    episode = begin(task, {})
    good = answer_to(episode, ToolCall("python", {"code": "1+1"}), 30.0)
    bad = answer_to(episode, ToolCall("python", {"code": "1+"}), 30.0)
    assert good["content"] == "2" and is_error(bad["content"])
    assert (episode.counts.calls, episode.counts.failed) == (2, 1)


def test_without_a_sandbox_the_tool_cannot_be_made_and_says_what_to_install(monkeypatch):
    def none(**_):
        raise UserError("This machine has no sandbox for programs that nobody trusts. Install bubblewrap")

    monkeypatch.setattr("earnest.tools.find_sandbox", none)
    with pytest.raises(UserError, match="Install bubblewrap"):
        python_tool()


@pytest.mark.parametrize("tool", [PYTHON, search_tool(["a"])], ids=["python", "search"])
def test_a_tool_has_what_trl_asks_of_one(tool):
    schema = pytest.importorskip("transformers.utils").get_json_schema(tool)["function"]
    assert schema["name"] == tool.__name__ and schema["description"]
    ((name, argument),) = schema["parameters"]["properties"].items()
    assert argument["type"] == "string" and argument["description"] and schema["parameters"]["required"] == [name]


def test_scores_are_those_of_the_formula():
    texts = ["a b", "a a c", "c"]
    index = BM25(texts)
    mean, count = sum(len(words(t)) for t in texts) / 3, 3

    def score(query, text):
        total = 0.0
        for word in words(query):
            holds = sum(word in words(t) for t in texts)
            times, length = words(text).count(word), len(words(text))
            idf = math.log(1 + (count - holds + 0.5) / (holds + 0.5))
            total += idf * times / (times + 1.5 * (1 - 0.75 + 0.75 * length / mean))
        return total

    for query in ("a", "b", "c", "a c", "b c"):
        expected = [score(query, text) for text in texts]
        assert index._index.get_scores(words(query)) == pytest.approx(expected, rel=1e-5)
        assert index.search(query) == [place for place in sorted(range(3), key=lambda i: -expected[i]) if expected[place] > 0]


def test_of_equal_scores_the_earlier_document_comes_first():
    assert BM25(["b", "a", "a", "a"]).search("a", k=2) == [1, 2]


@pytest.mark.parametrize("query", ["", "   ", "?!", "nowhere", "\ud800", "zq " * 10_000])
def test_a_query_without_a_known_word_finds_nothing(query):
    assert search_tool(DOCUMENTS)(query) == "nothing found"


def test_a_search_gives_the_best_documents_a_line_each_with_their_titles():
    search = search_tool(DOCUMENTS, k=2)
    assert search("Dask bridge") == "The Dask Bridge stands in Korla."
    assert search("KORLA") == "The Dask Bridge stands in Korla.\nKorla: A town of 4120 people on the river Venn."
    assert search_tool(DOCUMENTS, k=1)("river") == "The river Venn is 310 km long."


def test_many_threads_may_search_at_once():
    search = search_tool([f"w{n} common" for n in range(200)], k=1)
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(search, [f"w{n}" for n in range(200)])) == [f"w{n} common" for n in range(200)]


def test_no_documents_is_a_mistake_of_the_task():
    for documents in ([], [""], ["?!"]):
        with pytest.raises(UserError, match="no document with a word"):
            BM25(documents)
        with pytest.raises(UserError, match="no document with a word"):
            search_tool(documents)


def test_documents_are_read_a_line_each(tmp_path):
    (tmp_path / "d.jsonl").write_text('{"text": "é"}\n\n{"title": "t", "text": "b"}\n', encoding="utf-8")
    assert read_documents(tmp_path / "d.jsonl") == [{"text": "é"}, {"title": "t", "text": "b"}]


GUIDE = Path(__file__).parents[1] / "docs" / "environments.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_environment_of_the_guide_is_short_sound_and_clean(tmp_path):
    (tmp_path / "guide_store.py").write_text(BLOCKS[0], encoding="utf-8")
    task = load_task(str(tmp_path / "guide_store.py"))
    rows = load_rows(task)
    report = check_task(task, rows)
    assert report.ok and report.ceiling == 1.0, report.findings
    found = audit(task, Rows({"dev": rows.by_split["dev"]}, rows.where, rows.source), search_calls=0)
    assert not found.exploitable and not [f for f in found.findings if f.certainty == "fact"]
    assert sum(bool(line.strip()) for line in BLOCKS[0].splitlines()) <= 44


def test_the_guides_other_code_does_what_it_says():
    world = {"__name__": "guide"}
    told = 0
    for block in BLOCKS:
        exec(block, world)
        for line in block.splitlines():
            shown, arrow, answer = line.partition("# -> ")
            if arrow:
                told += 1
                assert eval(shown, world) == eval(answer), line
    assert told == 12
    turns = [{"role": "assistant", "content": "", "tool_calls": [{}] * 2}, {"role": "tool"}, {"role": "assistant", "tool_calls": [{}]}]
    assert world["few_calls"]([turns, []]) == [-0.05, 0.0]


def test_the_scripts_that_the_guide_asks_for_earn_nothing():
    world = {"__name__": "guide"}
    exec(BLOCKS[0], world)
    task = world["task"]
    for row in task.rows[::20]:
        thing, other = row["pair"]
        everything = [("move", {"thing": name, "shelf": row["shelves"][other]}) for name in row["shelves"]]
        wrong_way = [("move", {"thing": other, "shelf": row["shelves"][thing]})]
        again = [("find", {"thing": other})] * 8
        for script in (as_messages(everything, answer="done"), "done", as_messages(again), as_messages(wrong_way)):
            messages, environment = acted(task, row, script)
            paid = world["moved"](environments=[environment], shelves=[row["shelves"]], pair=[row["pair"]])
            assert paid == [0.0] and not judge(task, messages, row, environment).correct
