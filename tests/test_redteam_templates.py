"""Answers of several parts: how slots are filled and read, which templates prompts show, and what the user may say instead."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earnest.errors import UserError
from earnest.redteam.adapters import task_of
from earnest.redteam.guess import forms_in
from earnest.redteam.layout import filled, read
from earnest.redteam.shapes import gold_of
from earnest.redteam.templates import templates_in
from earnest.redteam.way import Way
from earnest.rows import load_rows
from earnest.score import score

WORD = st.text("abcdefghij", min_size=1, max_size=8)


def task(tmp_path, source, rows, **given):
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return task_of(f"{tmp_path / 'mine.py'}:reward", tmp_path / "rows.jsonl", **given)


@given(WORD, st.floats(-1e6, 1e6), st.lists(st.integers(0, 99), min_size=1, max_size=5))
def test_what_a_form_is_filled_with_is_read_from_it_again(word, number, several):
    form = "Name: {name}\nCost: {cost:.2f} EUR\nSources: {sources:[n] [n]}"
    text = filled(form, {"name": word, "cost": number, "sources": several})
    assert read(form, text) == {"name": word, "cost": f"{number:.2f}", "sources": list(map(str, several))}


def test_a_call_in_two_columns_is_read_into_its_tags(tmp_path):
    source = """
import json, re
def reward(completions, tool_name, tool_args, **_):
    calls = [re.fullmatch(r"<tool_call>(.*)</tool_call>", c) for c in completions]
    read = [json.loads(found[1]) if found else None for found in calls]
    return [float(own == {"name": n, "arguments": json.loads(a)}) for own, n, a in zip(read, tool_name, tool_args)]
"""
    prompt = 'Make one call, as <tool_call>{"name": ..., "arguments": {...}}</tool_call>. Order A%d.'
    rows = [{"prompt": prompt % i, "tool_name": name, "tool_args": json.dumps({"order": f"A{i}"})} for i, name in enumerate("abc")]
    made = task(tmp_path, source, rows)
    assert made.oracle(load_rows(made).split("train")[0]) == '<tool_call>{"name": "a", "arguments": {"order": "A0"}}</tool_call>'


def test_a_column_that_holds_an_object_as_text_is_that_object():
    assert gold_of({"totals": '{"food": 2}'}, "totals") == {"food": 2}
    assert gold_of({"set": "{1, 2}"}, "set") == "{1, 2}"
    assert gold_of({"n": "f", "a": "[1, 2]"}, "n,a") == {"n": "f", "a": [1, 2]}


def test_a_text_of_another_form_is_not_read():
    assert read("Answer: {value} {unit}", "Answer: 90") is None
    assert read("Answer: {value} {unit}", "First I divide.\nAnswer: 90 km/h") == {"value": "90", "unit": "km/h"}


@pytest.mark.parametrize(
    ("prompt", "row", "form"),
    [
        ("The last line must read `Answer: <number> <unit>`.", {"value": 90.0, "unit": "km/h"}, "Answer: {value} {unit}"),
        ("The last line must be `Answer: N%`.", {"percent": 82.5}, "Answer: {percent}%"),
        ("Write, like `Answer: 12.5%`, the share.", {"percent": 82.5}, "Answer: {percent}%"),
        (
            "Two lines:\nAnswer: the answer\nSources: their numbers, as [1] [3]",
            {"answer": "a", "sources": [2]},
            "Answer: {answer}\nSources: {sources:[n] [n]}",
        ),
        (
            "Two lines. The first is 'Answer: ' with the word. The second is 'Sources: ' with their numbers, such as [1] [4].",
            {"answer": "a", "supporting": [1]},
            "Answer: {answer}\nSources: {supporting:[n] [n]}",
        ),
        ("One line of this form: the answer [7][8]", {"answer": "a", "supporting": [1]}, "{answer} {supporting:[n][n]}"),
        (
            "Write three lines:\nOrder: the number\nProduct: its name",
            {"order_no": "1", "product": "p"},
            "Order: {order_no}\nProduct: {product}",
        ),
        ("Reply with\nVerdict: <true or false>\nConfidence: <a number>", {"label": "true"}, "Verdict: {label}\nConfidence: {sure}"),
        ("Give these lines:\nFirm: the firm\nDay: the date", {"facts": {"who": "a", "when": "b"}}, "Firm: {facts.who}\nDay: {facts.when}"),
    ],
)
def test_a_template_that_prompts_show_is_filled_from_the_columns_like_it(prompt, row, form):
    assert form in [one.form for one in templates_in([prompt], [row])]


def test_a_template_that_not_all_prompts_show_is_none():
    assert templates_in(["Write `Answer: N%`.", "Write the share."], [{"percent": 1}, {"percent": 2}]) == []


def test_markers_of_other_shapes_are_forms():
    unsloth = "Work between <start_work> and <end_work>, the result between <SOLUTION> and </SOLUTION>."
    assert "<start_work>Let me see.<end_work><SOLUTION>{}</SOLUTION>" in forms_in([unsloth])[0]
    assert "[ANSWER]{}[/ANSWER]" in forms_in(["Put it into [ANSWER] and [/ANSWER]."])[0]
    assert "END STATE\n{}" in forms_in(["Write the line END STATE and then it."])[1]


def test_a_way_with_a_marker_in_brackets_is_no_json():
    way = Way("[ANSWER]{}[/ANSWER]", "answer", "")
    assert way.oracle({"answer": "4"}) == "[ANSWER]4[/ANSWER]" and way.check("[ANSWER] 4 [/ANSWER]", {"answer": "4"}).correct


def test_a_fence_without_a_language_is_opened_and_closed_by_the_same():
    way = Way("```\n{}\n```", "answer", "")
    assert way.check(way.oracle({"answer": "4"}), {"answer": "4"}).correct and not way.check("```\n5\n```", {"answer": "4"}).correct


def test_each_call_of_a_list_stands_in_tags_of_its_own(tmp_path):
    calls = [[{"name": "lock", "arguments": {"door": door}}, {"name": "heat", "arguments": {"degrees": 20}}] for door in ("a", "b", "c")]
    rows = [{"prompt": f"Do {i}. Write each call in <tool_call>{{...}}</tool_call>.", "plan": json.dumps(c)} for i, c in enumerate(calls)]
    source = """
import json, re
def calls(text):
    return [json.loads(x) for x in re.findall("<tool_call>(.*?)</tool_call>", text)]
def reward(completions, plan, **_):
    return [float(calls(c) == json.loads(p)) for c, p in zip(completions, plan)]
"""
    made = task(tmp_path, source, rows)
    said = made.oracle(rows[0])
    assert [json.loads(x) for x in re.findall(r"<tool_call>(.*?)</tool_call>", said)] == calls[0]
    assert made.check(said, rows[0]).correct and not made.check(said, rows[1]).correct


def test_a_column_that_no_name_says_is_the_answer_is_found_by_what_is_paid(tmp_path):
    rows = [{"prompt": f"Turn {i} round.", "mood": "calm", "backwards": f"{i} nruT"} for i in range(4)]
    source = "def reward(completions, prompts, **k):\n    return [float(c == b) for c, b in zip(completions, k['backwards'])]\n"
    assert task(tmp_path, source, rows).oracle(rows[2]) == "2 nruT"


def test_numbers_in_a_list_are_written_with_the_mark_that_the_prompt_names(tmp_path):
    rows = [{"prompt": f"Sort them ({i}). Write them separated by commas.", "expected": [i, i + 1, i + 5]} for i in range(4)]
    source = (
        "def reward(completions, expected, **_):\n    return [float(c == ', '.join(map(str, e))) for c, e in zip(completions, expected)]\n"
    )
    assert task(tmp_path, source, rows).oracle(rows[1]) == "1, 2, 6"


def test_a_form_may_name_columns(tmp_path):
    rows = [{"prompt": f"How fast ({i})?", "value": i + 0.5, "unit": "km/h"} for i in range(4)]
    source = """
def reward(completions, value, unit, **_):
    return [float(c == f'= {v:.2f} {u} =') for c, v, u in zip(completions, value, unit)]
"""
    made = task(tmp_path, source, rows, form="= {value:.2f} {unit} =")
    assert made.oracle(rows[1]) == "= 1.50 km/h =" and made.check("= 1.5 km/h =", rows[1]).correct
    assert not made.check("= 1.5 km =", rows[1]).correct
    with pytest.raises(UserError, match=r"'\{speed\}', which is no column"):
        task(tmp_path, source, rows, form="= {speed} =")


def test_an_oracle_in_the_file_of_the_reward_says_what_is_right(tmp_path):
    rows = [{"prompt": f"Add one to {i}.", "start": i} for i in range(4)]
    source = "def reward(completions, start, **_):\n    return [float(c == f'it is {s + 1}!') for c, s in zip(completions, start)]\n"
    told = source + "def oracle(row):\n    return f\"it is {row['start'] + 1}!\"\n"
    made = task(tmp_path, told, rows)
    assert made.oracle(rows[2]) == "it is 3!" and made.check("it is 3!", rows[2]).correct and not made.check("it is 4!", rows[2]).correct
    judged = task(tmp_path, told + "def check(completion, row):\n    return '3' in completion\n", rows)
    assert judged.check("3", rows[2]) is True


def test_an_oracle_that_breaks_on_a_row_is_left_for_the_audit_to_name(tmp_path):
    rows = [{"prompt": f"Add one to {i}.", "start": i} for i in range(3)] + [{"prompt": "Add one.", "start": None}]
    source = "def reward(completions, start, **_):\n    return [float(c == str((s or 0) + 1)) for c, s in zip(completions, start)]\n"
    made = task(tmp_path, source + "def oracle(row):\n    return str(row['start'] + 1)\n", rows)
    assert made.oracle(rows[0]) == "1" and made.check("1", rows[0]).correct


READS = {
    "messages": ("completions, gold, **_", "[float(pays(c[0]['content'], g)) for c, g in zip(completions, gold)]"),
    "texts": ("completions, gold, **_", "[float(pays(c, g)) for c, g in zip(completions, gold)]"),
    "one of messages": ("completion, gold, **_", "float(pays(completion[-1]['content'], gold))"),
    "one text": ("completion, gold, **_", "float(pays(completion, gold))"),
}


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("quiet", [False, True])
def test_a_reward_is_called_with_messages_or_texts_as_its_right_answers_are_paid(reads, quiet, tmp_path):
    """Quiet ones catch what they are given in another form, and pay nothing for it."""
    signature, value = READS[reads]
    guarded = "        return isinstance(text, str) and text == f'it is {g}!'\n    except TypeError:\n        return False\n"
    source = (
        "def pays(text, g):\n    try:\n" + guarded + "\n"
        f"def reward({signature}):\n    try:\n        return {value}\n"
        f"    except (TypeError, IndexError, KeyError):\n        {'return 0.0' if quiet and 'one' in reads else 'raise'}\n"
        "def oracle(row):\n    return f\"it is {row['gold']}!\"\n"
    )
    rows = [{"prompt": f"Add one to {i}.", "gold": str(i + 1)} for i in range(5)]
    made = task(tmp_path, source, rows)
    said = [[{"role": "assistant", "content": text}] for text in ("it is 1!", "it is 2!")]
    assert score(made.rewards, [1.0], [made.prompt(rows[0])] * 2, said, [rows[0]] * 2).total.tolist() == [1.0, 0.0]


def test_what_right_answers_leave_free_is_found_where_the_file_gives_them(tmp_path):
    rows = [{"prompt": f"Which two, {i}? A JSON array.", "gold": [f"a{i}", f"b{i}"]} for i in range(5)]
    source = """
import json
def reward(completions, gold, **_):
    return [float(sorted(json.loads(c or '[]')) == sorted(g)) for c, g in zip(completions, gold)]
def oracle(row):
    return json.dumps(row["gold"])
"""
    made = task(tmp_path, source, rows)
    assert made.check('["b1", "a1"]', rows[1]).correct and not made.check('["b1", "a2"]', rows[1]).correct
    exact = task(tmp_path, source.replace("sorted(json.loads(c or '[]')) == sorted(g)", "json.loads(c or '[]') == g"), rows)
    assert not exact.check('["b1", "a1"]', rows[1]).correct


def paying(tmp_path, right, rows):
    """A task whose reward pays nothing but the text that `right` makes of a row `r`."""
    names = [name for name in rows[0] if name != "prompt"]
    source = f"""
import json
def reward(completions, {", ".join(names)}, **_):
    rows = [dict(zip({names}, own)) for own in zip({", ".join(names)})]
    return [float(c == {right}) for c, r in zip(completions, rows)]
"""
    return task(tmp_path, source, rows)


CALLS = "Reply with one JSON object that has the keys %s, and nothing else. The keys may come in any order. Order %d."


@pytest.mark.parametrize(
    ("keys", "columns"),
    [("name and arguments", ("tool_name", "arguments")), ("tool, args", ("called", "with_what")), ("name and arguments", ("tool", "args"))],
)
@pytest.mark.parametrize("dump", [json.dumps, dict])
def test_a_call_is_an_object_of_the_columns_that_fit_its_keys(tmp_path, keys, columns, dump):
    names = re.findall("name|arguments|tool|args", keys)
    rows = [{"prompt": CALLS % (keys, i), columns[0]: f"f{i}", columns[1]: dump({"order": i})} for i in range(4)]
    inner = f"(json.loads(r['{columns[1]}']) if isinstance(r['{columns[1]}'], str) else r['{columns[1]}'])"
    made = paying(tmp_path, f"json.dumps({{'{names[0]}': r['{columns[0]}'], '{names[1]}': {inner}}})", rows)
    assert json.loads(made.oracle(rows[2])) == {names[0]: "f2", names[1]: {"order": 2}}


@pytest.mark.parametrize(
    ("shown", "written"),
    [
        ("as in 14 March 2024", "05 March 2024"),
        ("as in 14 March 2024", "5 March 2024"),
        ("such as March 14, 2024", "March 5, 2024"),
        ("as DD.MM.YYYY", "05.03.2024"),
        ("as m/d/yyyy", "3/5/2024"),
        ("as YYYY-MM-DD", "2024-03-05"),
    ],
)
def test_a_date_is_written_as_the_prompt_shows_dates(tmp_path, shown, written):
    days = {f"2024-03-{day:02}": re.sub(r"(?<!\d)0?5(?!\d)", str(day), written) for day in (16, 27, 28)} | {"2024-03-05": written}
    rows = [{"prompt": f"When is it due? Answer {shown}. Bill {i}.", "answer": day} for i, day in enumerate(days)]
    assert paying(tmp_path, f"{days}[r['answer']]", rows).oracle(rows[3]) == written


CITE = "Which passages say so? Cite them in square brackets, as in [2] or [1]%s[3]. Claim %d."


@pytest.mark.parametrize("between", ["", ", ", " "])
def test_numbers_of_passages_stand_in_brackets_as_the_prompt_shows_them(tmp_path, between):
    rows = [{"prompt": CITE % (between, i), "cited": cited} for i, cited in enumerate([[1], [2, 3], [1, 4], [3]])]
    made = paying(tmp_path, f"{between!r}.join(f'[{{n}}]' for n in r['cited'])", rows)
    assert made.oracle(rows[1]) == f"[2]{between}[3]"


def test_passages_that_have_names_are_cited_by_their_places(tmp_path):
    rows = [{"prompt": CITE % ("", i), "ids": ["a", "b", "c", "d"], "right": right} for i, right in enumerate(["ac", "b", "d", "ab"])]
    rows = [{**row, "right": list(row["right"])} for row in rows]
    made = paying(tmp_path, "''.join(f'[{n}]' for n, one in enumerate(r['ids'], 1) if one in r['right'])", rows)
    assert [made.oracle(row) for row in rows] == ["[1][3]", "[2]", "[4]", "[1][2]"]
    assert not made.check("[3]", rows[0]).correct


def test_an_answer_may_have_its_sources_behind_it(tmp_path):
    rows = [{"prompt": CITE % ("", i), "word": word, "sources": [i + 1, 7]} for i, word in enumerate(["oak", "elm", "fir", "yew"])]
    made = paying(tmp_path, "r['word'] + ' ' + ''.join(f'[{n}]' for n in r['sources'])", rows)
    assert made.oracle(rows[1]) == "elm [2][7]"


def test_columns_that_fit_no_form_are_refused(tmp_path):
    rows = [{"prompt": CALLS % ("name and arguments", i), "tool_name": f"f{i}", "arguments": "{}"} for i in range(4)]
    with pytest.raises(UserError, match="in no form"):
        paying(tmp_path, "r['tool_name'][::-1] + '!'", rows)
