"""The task maths_tool: its numbers, what is paid, what is judged, and what policies that never change would earn."""

import json
import random
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earnest import load_task
from earnest.check import check_task
from earnest.environment import acted
from earnest.evidence import repeats
from earnest.redteam.audit import audit
from earnest.rewards.calls import as_messages
from earnest.rewards.verifier import Attempt
from earnest.rows import Rows, load_rows
from earnest.task import judge
from earnest.tasks.maths_tool.check import check
from earnest.tasks.maths_tool.make import COUNTS, DATA, FAMILIES, THINGS, WORDS, rows
from earnest.tasks.maths_tool.rewards import reward

TASK = load_task("maths_tool")
LOADED = load_rows(TASK)
ALL = [row for _, row in LOADED.everything()]
ROW = {"question": "How many are 3 crates of 4?", "answer": 12, "code": "3*4", "family": "product"}


def said(text, *calls, result="12"):
    return as_messages([("python", {"code": code}) for code in calls], result=result, answer=text)


def pays(messages, row=ROW):
    return reward(Attempt(tuple(messages)), row).value


def numbers(row):
    return [int(numeral) for numeral in re.findall(r"\d+", row["question"])]


def test_the_files_are_what_the_code_makes():
    made = rows()
    for split in COUNTS:
        assert [json.loads(line) for line in (DATA / f"{split}.jsonl").read_text("utf-8").splitlines()] == made[split]


def test_every_family_stands_in_every_split_as_often_as_planned():
    assert Counter((row["split"], row["family"]) for row in ALL) == {(s, f): n for s, n in COUNTS.items() for f in FAMILIES}


def test_every_answer_follows_from_the_question_alone():
    """The arithmetic once more, from the words of the question instead of the drawn numbers."""
    for row in ALL:
        n = numbers(row)
        if row["family"] == "days":
            start, end = (datetime.strptime(d, "%d %B %Y").date() for d in re.findall(r"\d+ [A-Z][a-z]+ \d{4}", row["question"]))
            assert row["answer"] == (end - start).days
        elif row["family"] == "sum":
            assert row["answer"] == sum(n)
        elif row["family"] == "product":
            assert row["answer"] == n[0] * n[1]
        elif row["family"] == "rest":
            lost = max(n)
            first, second = (x for x in n if x != lost)
            assert row["answer"] == first * second - lost
        elif row["family"] == "left over":
            assert row["answer"] == max(n) % min(n)
        else:
            counts, prices = [x for x in n if x < 100], [x for x in n if x > 100]
            assert row["answer"] == sum(a * b for a, b in zip(counts, prices, strict=True))


def test_no_answer_stands_in_its_question_and_none_is_right_twice():
    assert not any(str(row["answer"]) in row["question"] for row in ALL)
    assert len({row["answer"] for row in ALL}) == len(ALL)


def test_the_arithmetic_is_more_than_a_head_does():
    assert all(row["answer"] >= 13_000 for row in ALL if row["family"] in ("product", "bill"))
    assert all(sum(len(str(n)) >= 2 for n in numbers(row)) >= 2 for row in ALL)


def test_splits_share_neither_wordings_nor_things():
    for family in FAMILIES:
        wordings = [wording for split in COUNTS for wording in WORDS[family][split]]
        assert len(set(wordings)) == len(wordings)
    things = [word for split in COUNTS for thing in THINGS[split] for word in thing[:2]]
    assert len(set(things)) == len(things)


def test_the_oracles_code_finds_the_answer_of_every_row():
    """Here without the sandbox, for it is our own code; with it on some rows below, and on all of them in `earnest check`."""
    for row in ALL:
        *before, last = row["code"].splitlines()
        world = {}
        exec("\n".join(before), world)
        assert eval(last, world) == row["answer"]
        played = said(str(row["answer"]), row["code"])
        assert pays(played, row) == 1.0 and check(played, row).correct


def test_no_question_stands_nearly_in_another_split():
    assert not repeats([row["question"] for row in ALL], [row["split"] for row in ALL])


def test_the_task_is_sound():
    few = Rows({split: LOADED.by_split[split][:12] for split in COUNTS}, LOADED.where, LOADED.source)
    report = check_task(TASK, few)
    assert report.ok and report.ceiling == 1.0, report.findings


def test_the_red_team_finds_nothing_that_is_paid_for_being_wrong():
    dev = Rows({"dev": LOADED.by_split["dev"][:8]}, LOADED.where, LOADED.source)
    found = audit(TASK, dev, search_calls=0)
    assert found.kind == "calls" and not found.exploitable and not [f for f in found.findings if f.certainty == "fact"]


@pytest.mark.parametrize(
    ("messages", "value"),
    [
        (said("12", "3*4"), 1.0),
        (said("12"), 1.0),
        (said("12", "3*4", "3*4"), 0.98),
        (said("12", *["3*4"] * 6), 0.9),
        (said("12", *["3*4"] * 20), 0.9),
        (said("12.0", "3*4"), 0.9),
        (said("12.", "3*4"), 0.9),
        (said(" 12\n", "3*4"), 1.0),
        (said("13", "3*4"), 0.0),
        (said("", "3*4"), 0.0),
        (said("The answer is 12", "3*4"), 0.0),
        (said("12 or 13", "3*4"), 0.0),
        (said("3 4 12", "3*4"), 0.0),
        (said("12\n12", "3*4"), 0.0),
        (said('{"result": 12}', "3*4"), 0.0),
        (said("12</tool_call>", "3*4"), 0.0),
        (said('<tool_call>{"name": "python", "arguments": {"code": "3*4"}}</tool_call> 12'), 0.0),
        (said("-12", "3*4"), 0.0),
        (said("1e1", "3*4"), 0.0),
        (said("**12**", "3*4"), 0.0),
        (said("\\boxed{12}", "3*4"), 0.0),
        (said("24/2", "3*4"), 0.0),
        (said("1200%", "3*4"), 0.0),
        (said("twelve", "3*4"), 0.0),
        (said(None, "3*4"), 0.0),
        (said("12", "3*4")[:-1], 0.0),
        ([*said("12", "3*4"), {"role": "tool", "content": "12"}], 0.0),
        ([], 0.0),
    ],
)
def test_what_is_paid(messages, value):
    assert pays(messages) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "correct", "well_formed"),
    [
        ("12", True, True), (" 12.\n", True, True), ("+12", True, True), ("13", False, True), ("-12", False, True), ("", False, False),
        ("12 or 13", False, False), ("The answer is 12", False, False), ("1,2", False, False),
        ("12.0", True, True), ("12.0.", True, True), ("12.5", False, False), ("12..", False, False),
        ("**12**", False, False), ("12%", False, False), ("١٢", False, False),
        ("12" * 5000, False, False), ("--12", False, False), (",12", False, False), ("²", False, False),
    ],
)  # fmt: skip
def test_what_is_judged(text, correct, well_formed):
    verdict = check(said(text, "3*4"), ROW)
    assert (verdict.correct, verdict.well_formed) == (correct, well_formed)


@pytest.mark.parametrize("before", ["", "+", "-", "$", "**", "\\boxed{", "=", "0", "`", "<answer>"])
@pytest.mark.parametrize(
    "after", ["", ".", ".0", ".00", ".5", "..", "%", "**", "}", "$", "`", "/1", " coins", "e0", ",", "\n", "</answer>"]
)
def test_what_is_paid_is_judged_right(before, after):
    messages = said(f"{before}12{after}", "3*4")
    assert pays(messages) == 0.0 or check(messages, ROW).correct


def test_thousands_may_be_parted_and_only_where_they_part():
    row = ROW | {"answer": 1234567}
    assert check(said("1,234,567"), row).correct and pays(said("1,234,567"), row) == pytest.approx(0.9)
    assert not check(said("12,34,567"), row).correct and pays(said("12,34,567"), row) == 0.0


@pytest.mark.parametrize("messages", [[], said("12", "3*4")[:-1], [*said("12"), {"role": "tool", "content": "12"}], [{}], "12"])
def test_only_a_last_message_of_the_model_is_judged(messages):
    assert not check(messages, ROW).correct


@given(st.text(max_size=30) | st.from_regex(r"[-+]?[0-9,. ]{0,8}", fullmatch=True))
def test_any_text_is_paid_and_judged(text):
    assert "12" in text or (pays(said(text)), check(said(text), ROW).correct) == (0.0, False)


def test_words_of_a_tool_are_not_words_of_the_model():
    messages = [*said("13", "3*4"), {"role": "tool", "name": "python", "content": "12"}]
    assert pays(messages) == 0.0 and not check(messages, ROW).correct


def head(row, rng):
    return str(row["answer"])


def add_up(row, rng):
    return said(str(sum(numbers(row))), "+".join(map(str, numbers(row))))


def multiply(row, rng):
    first, second = numbers(row)[:2]
    return said(str(first * second), f"{first}*{second}")


def guess(row, rng):
    return str(rng.randint(100, 999_999))


def first_number(row, rng):
    return str(numbers(row)[0])


def loop(row, rng):
    return said(None, *[row["code"]] * 6)[:-1]


def loop_and_answer(row, rng):
    return said(str(row["answer"]), *[row["code"]] * 6)


def print_everything(row, rng):
    return said(" ".join(map(str, range(100))), "print(*range(100))")


def echo(row, rng):
    return said(row["question"])


def forged(row, rng):
    return f'<tool_call>{{"name": "python", "arguments": {{"code": "{row["code"]}"}}}}</tool_call>\n{row["answer"]}'


POLICIES = {head: 1.0, add_up: 1 / 6, multiply: 1 / 6, guess: 0.0, first_number: 0.0, loop: 0.0, loop_and_answer: 0.9,
            print_everything: 0.0, echo: 0.0, forged: 0.0}  # fmt: skip
README = (Path(DATA).parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_what_a_policy_that_never_changes_would_earn(policy):
    rng, test = random.Random(0), LOADED.by_split["test"]
    answers = [policy(row, rng) for row in test]
    messages = [[{"role": "assistant", "content": a}] if isinstance(a, str) else a for a in answers]
    paid = [pays(m, row) for m, row in zip(messages, test, strict=True)]
    assert sum(paid) / len(test) == pytest.approx(POLICIES[policy])
    assert [check(m, row).correct for m, row in zip(messages, test, strict=True)] == [value > 0 for value in paid]
    assert f"| `{policy.__name__}` |" in README and f"| {POLICIES[policy]:.2f} |" in README


def test_a_played_oracle_reads_its_answer_from_the_tool():
    row = LOADED.by_split["test"][0]
    messages, environment = acted(TASK, row, TASK.oracle(row))
    assert environment is None and messages[1]["content"] == messages[2]["content"] == str(row["answer"])
    assert judge(TASK, messages, row).correct
