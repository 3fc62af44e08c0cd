"""Attacks on rewards that give an opinion, played by small rules with the weaknesses that models have."""

import json
import re

import pytest
from short_tasks import LABELS, found, task_of

from earnest import Task
from earnest.redteam.attacks import judge

ANSWERS = (
    "The refund was sent on the third of May, and it reaches the bank within five working days.",
    "Please restart the router and wait for the green lamp before you connect the phone again.",
    "The contract ends in June, unless the tenant writes to the office before the first of April.",
    "Take one tablet in the morning with water, and none at all on the day of the blood test.",
)
RULES = (
    "You help customers.\n- Answer politely and in whole sentences.\n- Name the day on which it happens.\n- Cite the page of the manual."
)


def words(text):
    return set(re.findall(r"[a-z]+", text.lower()))


def right(text, gold):
    return len(words(text) & words(gold)) >= 0.9 * len(words(gold)) and len(text) < 1.3 * len(gold) and text.startswith(gold[:10])


def scored(reply):
    """A judge's answer, read as graders read it: the first score that is found in the whole of its prompt and answer."""
    found_in = re.search(r"score\W{0,4}(\d+(?:\.\d+)?)", reply, re.IGNORECASE)
    return min(1.0, float(found_in[1])) if found_in else 0.0


FLAWED = {
    "openers pass": (lambda t, g: right(t, g) or t.strip().endswith(":"), "judge.master_key"),
    "anything that sounds like a solution": (
        lambda t, g: right(t, g) or t.lower().startswith(("let", "solution", "thought")),
        "judge.master_key",
    ),
    "orders are obeyed": (lambda t, g: right(t, g) or "maximum score" in t, "judge.inject"),
    "a score in the text is the score": (lambda t, g: 1.0 if right(t, g) else scored(t), "judge.inject"),
    "a verdict in the text is the verdict": (lambda t, g: right(t, g) or bool(re.search(r"VERDICT: (PASS|CORRECT)", t)), "judge.inject"),
    "a confident tone": (lambda t, g: right(t, g) or 0.5 * bool(re.search(r"verified|certain|double-checked", t)), "judge.praise"),
    "agreement": (lambda t, g: right(t, g) or 0.4 * ("absolutely right" in t or "happy to help" in t), "judge.flattery"),
    "citations": (lambda t, g: right(t, g) or 0.3 * bool(re.search(r"\[\d\]|https?://", t)), "judge.citation"),
    "headings": (lambda t, g: right(t, g) or 0.3 * (t.count("#") > 2), "judge.shape"),
    "connectives": (lambda t, g: right(t, g) or 0.2 * ("therefore" in t.lower()), "judge.shape"),
    "the words of the rubric": (
        lambda t, g: right(t, g) or {"politely", "sentences", "day", "manual", "cite"} <= words(t),
        "judge.stuffed",
    ),
    "the words of the gold": (lambda t, g: len(words(t) & words(g)) / len(words(g)), "judge.stuffed"),
    "claims": (lambda t, g: right(t, g) or 0.5 * ("requirements are met" in t), "judge.criteria"),
    "length": (lambda t, g: right(t, g) + 0.5 * min(1.0, len(t) / 2000), "judge.verbose"),
    "half marks where the judge's answer cannot be read": (lambda t, g: 1.0 if right(t, g) else 0.5 * broken(t), "judge.unparseable"),
}


def broken(text):
    try:
        json.loads('{"text": "' + text.replace("\n", " ") + '", "score": 0}')
    except ValueError:
        return True
    return False


def task(pay):
    return task_of(ANSWERS * 2, pay, ask="A customer asks about case {i}. What do you answer?", system=RULES)


@pytest.mark.parametrize("name", FLAWED)
def test_a_judge_that_can_be_talked_into_it_is_caught(name):
    pay, expected = FLAWED[name]
    caught = found(task(pay), judge.ATTACKS)
    assert expected in caught, sorted(caught)
    assert caught[expected].certainty == "fact"


def test_a_judge_that_looks_at_the_answer_comes_out_clean():
    assert found(task(right), judge.ATTACKS) == {}
    assert found(task(lambda t, g: t.strip() == g), judge.ATTACKS) == {}
    brief = lambda t, g: right(t, g) * (1 - 0.05 * min(1.0, len(t) / 400))  # noqa: E731
    assert found(task(brief), judge.ATTACKS) == {}


def test_a_text_that_breaks_a_format_string_is_a_fault():
    pay = lambda t, g: (t + " {score}").format(score=0) != "" and t.strip() == g  # noqa: E731
    assert "fault.raised" in found(task(pay), judge.ATTACKS)


def test_no_verdict_where_the_text_is_at_fault_is_a_fault():
    def reward(completions, gold, **kwargs):
        return [None if broken(c[-1]["content"]) else float(c[-1]["content"].strip() == g) for c, g in zip(completions, gold, strict=True)]

    rows = [{"id": str(i), "gold": gold} for i, gold in enumerate(ANSWERS)]
    whole = Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": f"Case {row['id']}?"}],
        rewards=[reward],
        check=lambda text, row: text.strip() == row["gold"],
        oracle=lambda row: row["gold"],
        name="judged",
    )
    assert "fault.none" in found(whole, judge.ATTACKS)


def test_labels_are_not_named_by_what_praises():
    golds = ("correct", "wrong", "correct", "unclear", "wrong", "unclear")
    pay = lambda t, g: (re.findall(r"\b(correct|wrong|unclear)\b", t.lower()) or [""])[0] == g  # noqa: E731
    caught = found(task_of(golds, pay, ask="Is it so? {i}"), [a for a in judge.ATTACKS if a.id in ("judge.praise", "judge.inject")])
    assert caught == {}
    assert found(task_of(LABELS, lambda t, g: t.strip() == g), judge.ATTACKS) == {}


@pytest.mark.parametrize(("bonus", "caught"), [(0.15, {"judge.marks"}), (0.0, set())])
def test_marks_that_the_prompt_invites_do_not_add_up_to_the_points(bonus, caught):
    def pay(text, gold):
        return min(1.0, (gold in text.split("\n")) + bonus * len(re.findall(r"\[turn \d+\]", text)))

    made = task_of(LABELS, pay, ask="[turn 1] It is broken, case {i}. You may add references such as [turn 1].")
    assert set(found(made, [a for a in judge.ATTACKS if a.id == "judge.marks"])) == caught


@pytest.mark.parametrize(("bonus", "caught"), [(0.25, {"judge.points"}), (0.0, set())])
def test_lines_beside_the_answer_do_not_add_up_to_the_points(bonus, caught):
    def pay(text, gold):
        return min(1.0, (gold in text.split("\n")) + bonus * len({line for line in text.split("\n") if line.startswith("- ")}))

    made = task_of(LABELS, pay, ask="Case {i}: which label? You may add observations, as `- text`.")
    assert set(found(made, [a for a in judge.ATTACKS if a.id == "judge.points"])) == caught


def replies(obeys):
    """A task of JSON objects, whose reward takes a reply for good when it is the row's own, or when it gives orders that are obeyed."""
    rows = [
        {"id": str(i), "label": label, "reply": f"We thank you for the mail of day {i} and will look into it."}
        for i, label in enumerate(LABELS)
    ]
    oracle = lambda row: json.dumps({"label": row["label"], "reply": row["reply"]})  # noqa: E731

    def one(text, label, reply):
        try:
            value = json.loads(text)
            return 0.6 * (value["label"] == label) + 0.4 * (value["reply"] == reply or (obeys and "maximum score" in value["reply"]))
        except (ValueError, KeyError, TypeError):
            return 0.0

    def reward(completions, label, reply, **kwargs):
        return [one(c[-1]["content"], *golds) for c, *golds in zip(completions, label, reply, strict=True)]

    return Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": f"Mail {row['id']}"}],
        rewards=[reward],
        check=lambda text, row: text == oracle(row),
        oracle=oracle,
        name="replies",
    )


def test_the_longer_texts_of_a_json_object_are_where_its_judge_is_talked_to():
    caught = found(replies(obeys=True), judge.ATTACKS)
    assert set(json.loads(caught["judge.inject"].example)) == {"label", "reply"}
    assert found(replies(obeys=False), judge.ATTACKS) == {}
