"""What prompts allow in plain words, and what a check of ours cannot refuse: conventions of first and last, rows in another form."""

import json
import textwrap

import pytest

from earnest.redteam.adapters import task_of
from earnest.redteam.attacks import format as wrapping
from earnest.redteam.attacks import permitted, right
from earnest.redteam.attacks.phrases import order_left_out
from earnest.redteam.audit import audit
from earnest.rows import load_rows

FIRST, LAST = "re.findall(r'<c>(\\w+)</c>', c)[:1]", "re.findall(r'<c>(\\w+)</c>', c)[-1:]"


def found(folder, score, prompt, golds, attacks):
    """Attacks and certainty of what they found, of a reward that gives `score` to a completion `c` and a gold `a`."""
    source = f"""
        import re

        def reward(completions, answer, **_):
            return [float(bool({score})) for c, a in zip(completions, answer)]
        """
    (folder / "r.py").write_text(textwrap.dedent(source))
    rows = [{"prompt": f"{prompt} Number {i}", "answer": gold} for i, gold in enumerate(golds)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = task_of(str(folder / "r.py"), folder / "rows.jsonl")
    return {(one.attack, one.certainty) for one in audit(task, load_rows(task), search_calls=0, catalog=attacks).findings}


ANIMALS = ["cat", "dog", "owl", "ant", "bee"]
FREE = "Which animal? You may explain your choice in a sentence. After that, end with <c>animal</c>."
BARE = "Which animal? Reply with only <c>animal</c>."


@pytest.mark.parametrize(("prompt", "facts"), [(FREE, {("right.said_before", "fact")}), (BARE, set())])
def test_words_in_front_are_right_where_the_prompt_allows_them(tmp_path, prompt, facts):
    assert found(tmp_path, "c == f'<c>{a}</c>'", prompt, ANIMALS, permitted.ATTACKS) == facts


@pytest.mark.parametrize(
    ("attack", "prompt", "golds", "score"),
    [
        ("right.twelve_hours", "When? Use the 24-hour clock (15:05) or the 12-hour clock (3:05 PM).", ["12:35", "21:30", "0:10"], "c == a"),
        ("right.thousands_allowed", "How many? Commas between thousands are optional.", ["1250", "20400", "7100"], "c == a"),
        ("right.stop_allowed", "Which? A full stop does not matter.", ANIMALS, "c == a"),
        ("right.case_allowed", "Which? Capitals do not matter.", ANIMALS, "c == a"),
        ("right.zeros_allowed", "How much? Trailing zeros may be left out or written.", ["1.5", "20.25", "7.75"], "c == a"),
        ("right.case_allowed", "Which? Spelling with capitals or without does not matter.", ANIMALS, "c == a"),
        ("right.dates_allowed", "When? Either as 2023-07-21 or as 21 July 2023.", ["2024-03-31", "2022-12-30", "2025-10-17"], "c == a"),
        ("right.spaces_allowed", "Which two, separated by a comma? Spaces do not matter.", ["a, b", "c, d", "b, d"], "c == a"),
        ("right.leading_zeros_allowed", "When? Days may have a leading zero or not.", ["2 May 2024", "9 May 2024", "7 May 2024"], "c == a"),
        ("right.value_allowed", "How much? Give a fraction or an exact decimal.", ["3/4", "5/2", "7/8"], "c == a"),
    ],
)
def test_what_the_prompt_allows_is_a_fact_when_it_is_refused(tmp_path, attack, prompt, golds, score):
    assert (attack, "fact") in found(tmp_path, score, prompt, golds, permitted.ATTACKS)


@pytest.mark.parametrize(
    "prompt",
    [
        "When? Use the 24-hour clock, not the 12-hour clock (3:05 PM).",
        "How many? No commas between thousands may stand.",
        "Which? Capitals matter. Use lower case.",
        "Which? The prefixes m and M may be used, case matters.",
        "How much? Do not write trailing zeros.",
        "Which? A full stop is not allowed.",
        "Which two? Do not put spaces between them.",
        "When? No leading zeros may stand.",
    ],
)
def test_what_the_prompt_forbids_is_not_written(prompt):
    numbers, words = (
        (permitted._THOUSANDS, permitted._ZEROS, permitted._LEADING_ZEROS),
        (permitted._CASE, permitted._STOP, permitted._SPACES),
    )
    assert not any(find(prompt) for find in numbers + words)
    assert permitted._NOT.search(prompt) or not permitted._CLOCK.search(prompt)


def test_twelve_hours_of_midnight_and_noon(tmp_path):
    paid = "c in {'12:35': ('12:35', '12:35 PM'), '0:10': ('0:10', '12:10 AM'), '21:30': ('21:30', '9:30 PM')}[a]"
    prompt = "When? Use the 24-hour clock (15:05) or the 12-hour clock (3:05 PM)."
    assert found(tmp_path, paid, prompt, ["12:35", "21:30", "0:10"], permitted.ATTACKS) == set()


@pytest.mark.parametrize(
    ("score", "certainty"),
    [(f"{FIRST} == [a]", "lead"), (f"{LAST} == [a]", "lead"), (f"a in ({FIRST} + {LAST})", "fact")],
)
def test_one_order_of_two_answers_is_a_convention_and_both_are_a_hedge(tmp_path, score, certainty):
    assert found(tmp_path, score, BARE, ANIMALS, [one for one in wrapping.ATTACKS if one.id == "fmt.two_answers"]) == {
        ("fmt.two_answers", certainty)
    }


@pytest.mark.parametrize(
    ("prompt", "other"),
    [
        ("Either as 2023-07-21 or as 21 July 2023.", "f'{int(a[8:])} March 2024'"),
        ("July 21, 2023, or 2023-07-21.", "f'March {int(a[8:])}, 2024'"),
    ],
)
def test_a_date_is_right_in_the_ways_that_the_prompt_offers_and_no_other(tmp_path, prompt, other):
    golds = ["2024-03-31", "2024-03-30", "2024-03-29"]
    assert found(tmp_path, f"c in (a, {other})", f"When? {prompt}", golds, permitted.ATTACKS) == set()


def test_a_right_answer_that_is_refused_when_it_comes_again_is_a_fault(tmp_path):
    source = """
        def reward(completions, answer, **_):
            seen, marks = set(), []
            for c, a in zip(completions, answer):
                marks.append(float(c == a and c not in seen))
                seen |= {c} if c == a else set()
            return marks
        """
    (tmp_path / "r.py").write_text(textwrap.dedent(source))
    rows = [{"prompt": f"Which animal is it? Number {i}", "answer": gold} for i, gold in enumerate(ANIMALS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = task_of(str(tmp_path / "r.py"), tmp_path / "rows.jsonl")
    facts = [f for f in audit(task, load_rows(task), search_calls=0, catalog=[]).findings if f.attack == "fault.unsteady"]
    assert [f.certainty for f in facts] == ["fact"] and "came before it" in facts[0].detail


def test_a_pair_holds_both_answers():
    assert order_left_out("$Wrong or $Right") == order_left_out("$Right or $Wrong") == "$ or $"
    assert order_left_out("It is not $Right.") == ""


def test_rows_that_want_another_form_are_asked_about_and_left_out(tmp_path):
    golds = ["cat", "7", "owl", "9", "bee"]
    score = "c == (f'<c>{a}</c>' if a.isalpha() else f'<n>{a}</n>')"
    assert found(tmp_path, score, BARE, golds, []) == {("right.unpaid", "question")}


def test_windows_line_ends_are_a_question_to_a_check_of_ours(tmp_path):
    golds = ["a cat\nand a dog", "an owl\nand an ant", "a bee\nand a fly"]
    newlines = [one for one in right.ATTACKS if one.id == "right.newlines"]
    assert {certainty for _, certainty in found(tmp_path, "c.strip() == a", "Which two?", golds, newlines)} <= {"question"}
