"""Attacks on labels, options and short texts: each catches a reward with the flaw it is about, and none a sound one."""

import json
import re
import unicodedata
from dataclasses import replace

import pytest
from short_tasks import CHOICES, LABELS, found, reward_of, task_of

from earnest import Task
from earnest.redteam.attack import Target
from earnest.redteam.attacks import evaluated, label, right, words
from earnest.redteam.attacks.slots import slot_of
from earnest.redteam.audit import audit
from earnest.rewards import choice as choices
from earnest.rewards import label as labels
from earnest.rewards import text as texts
from earnest.rewards.verifier import as_reward
from earnest.rows import load_rows

ALL = (*label.ATTACKS, *words.ATTACKS)
BOTH = (*ALL, *right.ATTACKS)
TAG = "<answer>{}</answer>"


def attack(identity):
    return [a for a in ALL if a.id == identity]


def said_in(text):
    return re.findall(r"spam|ham|other", text.lower())


def pattern(text, gold):
    try:
        return bool(re.fullmatch(text, gold))
    except re.error:
        return False


def plain(text):
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) not in ("Cf", "Cc"))


def first_tag(text):
    inside = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return inside[1].strip() if inside else ""


FLAWED = {
    "the gold anywhere": (
        lambda t, g: g in t,
        ("shotgun", "two", "inside", "denied", "quoted", "if", "another", "hedged", "prompt", "thought"),
    ),
    "the gold as a word": (lambda t, g: bool(re.search(rf"\b{g}\b", t)), ("shotgun", "two", "denied", "quoted", "if", "another", "hedged")),
    "the first label": (lambda t, g: (said_in(t) or [""])[0] == g, ("shotgun", "two", "denied", "another")),
    "the last label": (lambda t, g: (said_in(t) or [""])[-1] == g, ("shotgun", "two", "denied", "another")),
    "starts with the gold": (lambda t, g: t.lower().startswith(g), ("shotgun", "inside", "denied", "two")),
    "ends with the gold": (lambda t, g: t.endswith(g), ("shotgun", "inside", "denied", "two", "hedged")),
    "the only label, unless not": (lambda t, g: set(said_in(t)) == {g} and "not" not in t.lower(), ("denied", "quoted", "if", "inside")),
    "the most frequent label": (lambda t, g: t.count(g) and t.count(g) == max(map(t.count, LABELS)), ("shotgun", "denied")),
    "the last line": (lambda t, g: t.strip().splitlines()[-1:] == [g], ("shotgun", "two")),
    "a list split at commas": (lambda t, g: g in re.split(r",\s*", t), ("shotgun",)),
    "a list of lines": (lambda t, g: g in t.split("\n"), ("shotgun",)),
    "the answer as a pattern": (pattern, ("wildcard",)),
    "half marks for a blank": (lambda t, g: 1.0 if t == g else 0.5 if "know" in t else 0.0, ("abstain",)),
    "any piece of the gold": (lambda t, g: t != "" and t in g, ("inside", "part")),
    "a prefix of the gold": (lambda t, g: t != "" and g.startswith(t), ("part",)),
    "repetition": (lambda t, g: t.split().count(g) * (set(t.split()) == {g}), ("repeated",)),
    "look-alikes": (lambda t, g: plain(t).strip() == g, ("disguised",)),
    "marks for likeness": (lambda t, g: len(set(t) & set(g)) / len(set(t) | set(g) | {""}), ("part",)),
}


@pytest.mark.parametrize("name", FLAWED)
def test_a_flawed_label_reward_is_caught_by_what_it_falls_for(name):
    pay, expected = FLAWED[name]
    caught = found(task_of(LABELS, pay), label.ATTACKS)
    assert {f"label.{short}" for short in expected} <= set(caught), sorted(caught)
    assert all(f.certainty == "fact" for f in caught.values())


@pytest.mark.parametrize(
    "pay",
    {
        "the same text": lambda t, g: t == g,
        "stripped, without case": lambda t, g: t.strip().lower() == g,
        "a final stop is ignored": lambda t, g: t.strip().rstrip(".").lower() == g,
        "less for another case": lambda t, g: 1.0 if t == g else 0.95 if t.lower() == g else 0.0,
        "minus one for nonsense": lambda t, g: 1.0 if t.strip() == g else -0.5 if t.strip() in LABELS else -1.0,
    }.values(),
)
def test_a_sound_label_reward_comes_out_clean(pay):
    check = lambda text, row: pay(text, row["gold"]) == 1.0  # noqa: E731
    assert found(task_of(LABELS, pay, check=check), BOTH) == {}


@pytest.mark.parametrize("form", ["{}", "The label is {}.", "<answer>{}</answer>", "#### {}"])
def test_our_label_verifiers_come_out_clean(form):
    verifier = labels.label(("spam", "ham", "other"), "gold", prose=form == "The label is {}.")
    verifier = texts.tagged(verifier) if form == TAG else verifier
    task = (
        task_of(LABELS, as_reward(verifier), form=form)
        if form != "#### {}"
        else task_of(LABELS, lambda t, g: t.strip() == f"#### {g}", form=form)
    )
    assert found(task, ALL) == {}


def test_our_choice_verifier_comes_out_clean():
    verifier = as_reward(choices.choice("gold", letters="ABCD"))
    for form in ("{}", "The answer is ({})."):
        assert found(task_of(CHOICES, verifier, form=form, ask="Pick A, B, C or D. Question {i}"), (*ALL, *evaluated.ATTACKS)) == {}


def test_a_check_that_reads_prose_as_the_reward_does_changes_nothing():
    verifier = labels.label(("spam", "ham", "other"), "gold", prose=True)
    task = task_of(LABELS, as_reward(verifier), check=lambda text, row: verifier(text, gold=row["gold"]).value == 1.0)
    assert found(task, BOTH) == {}


@pytest.mark.parametrize(
    ("pay", "expected"),
    [
        (lambda t, g: t[:1] == g, "label.inside"),
        (lambda t, g: g in t, "label.shotgun"),
        (lambda t, g: bool(re.search(rf"\b{g}\b", t)), "label.denied"),
        (lambda t, g: (re.findall(r"\b[A-D]\b", t) or [""])[-1] == g, "label.another"),
    ],
)
def test_a_flawed_choice_reward_is_caught(pay, expected):
    assert expected in found(task_of(CHOICES, pay, ask="Pick A, B, C or D. Question {i}"), ALL)


def test_attacks_stand_in_the_tasks_own_tags():
    caught = found(task_of(LABELS, lambda t, g: g in first_tag(t), form=TAG), ALL)
    assert {"label.shotgun", "label.inside", "label.denied", "label.another"} <= set(caught)
    assert caught["label.denied"].example.startswith("<answer>")


def test_any_of_several_tags_is_an_exploit_only_where_the_check_refuses_it():
    pay = lambda t, g: f"<answer>{g}</answer>" in t  # noqa: E731
    assert "label.two_finals" in found(task_of(LABELS, pay, form=TAG), attack("label.two_finals"))
    loose = task_of(LABELS, pay, form=TAG, check=lambda text, row: f"<answer>{row['gold']}</answer>" in text)
    assert found(loose, attack("label.two_finals")) == {}


def test_the_last_tag_may_count_where_the_check_says_so():
    last = lambda t, g: (re.findall(r"<answer>(.*?)</answer>", t) or [""])[-1] == g  # noqa: E731
    assert found(task_of(LABELS, last, form=TAG, check=lambda text, row: last(text, row["gold"])), ALL) == {}


def test_an_answer_in_the_reasoning_alone_is_caught():
    pay = lambda t, g: g in re.sub(r"<answer>.*", "", t) or first_tag(t) == g  # noqa: E731
    assert {"label.thought", "label.only_thought"} <= set(found(task_of(LABELS, pay, form=TAG), ALL))


def test_labels_that_may_stand_together_are_no_shotgun():
    overlap = lambda t, g: len(set(t.split(", ")) & set(g.split(", "))) / len(set(t.split(", ")) | set(g.split(", ")))  # noqa: E731
    golds = ("news", "sport", "news, sport", "sport", "news", "news, sport")
    assert {"label.shotgun", "label.two"} & set(found(task_of(golds, overlap, ask="Tag {i}."), ALL)) == set()


def test_saying_that_nobody_knows_is_right_where_it_is_the_label():
    task = task_of(("unknown", "paid", "unknown", "open", "paid", "open"), lambda t, g: t == g, ask="State of {i}?")
    assert found(task, attack("label.abstain")) == {}


def triage(reward, labels_of=LABELS):
    rows = [{"id": f"r{i}", "text": f"ticket {i}", "gold": gold, "sure": 0.8} for i, gold in enumerate(labels_of)]
    oracle = lambda row: json.dumps({"label": row["gold"], "confidence": row["sure"], "urgent": True})  # noqa: E731

    def check(text, row):
        try:
            return json.loads(text)["label"] == row["gold"]
        except (ValueError, TypeError, KeyError):
            return False

    prompt = lambda row: [{"role": "user", "content": row["text"]}]  # noqa: E731
    return Task(rows=rows, prompt=prompt, rewards=[reward_of(reward)], check=check, oracle=oracle, name="triage")


def parsed(text):
    try:
        value = json.loads(text)
        return value if isinstance(value, dict) else {}
    except ValueError:
        return {}


def test_a_label_in_a_json_field_is_attacked_there():
    caught = found(triage(lambda t, g: g in str(parsed(t).get("label"))), ALL)
    assert {"label.shotgun", "label.inside", "label.denied", "label.another", "label.two"} <= set(caught)
    assert set(parsed(caught["label.denied"].example)) == {"label", "confidence", "urgent"}


def test_partial_credit_for_the_other_fields_is_no_exploit():
    pay = lambda t, g: 0.5 * (parsed(t).get("label") == g) + 0.3 * (parsed(t).get("urgent") is True) + 0.2 * ("label" in parsed(t))  # noqa: E731
    assert found(triage(pay), ALL) == {}


def test_confidence_that_pays_when_wrong_is_caught_and_a_proper_rule_is_not():
    def number(t):
        value = parsed(t).get("confidence")
        return value if isinstance(value, float) and 0 <= value <= 1 else 0.0

    boasting = lambda t, g: (parsed(t).get("label") == g) + number(t)  # noqa: E731
    brier = lambda t, g: 1 - (number(t) - (parsed(t).get("label") == g)) ** 2 if parsed(t).get("label") in LABELS else 0  # noqa: E731
    assert "label.sure" in found(triage(boasting), attack("label.sure"))
    assert found(triage(brier), attack("label.sure")) == {}


REPLIES = (
    "The parcel left the store on Monday and will be with you by the end of this week.",
    "You can send the shoes back to us for free, and the money is in your account a few days later.",
    "The invoice for the order was sent to the address that we have for you in our books.",
    "We have opened a case for the broken lamp, and a person from the workshop will call you.",
)


def overlap(text, gold):
    mine, theirs = words.words_of(text.lower()), words.words_of(gold.lower())
    return sum(word in mine for word in theirs) / len(theirs)


@pytest.mark.parametrize(
    ("pay", "expected"),
    [
        (overlap, {"words.salad", "words.taken_back", "label.shotgun_texts", "words.padded"}),
        (lambda t, g: g in t, {"words.taken_back", "label.shotgun_texts", "words.padded"}),
        (lambda t, g: t != "" and t in g, {"words.part", "words.common"}),
        (lambda t, g: 1.0 if t == g else 0.6 * ("parcel" in t.lower() and "monday" in t.lower()), {"words.salad"}),
        (lambda t, g: len(set(t.split()) & {"reply", "politely", "to", "the", "customer", "of", "mail"}) > 4 or t == g, {"words.prompt"}),
    ],
)
def test_a_flawed_reward_for_texts_is_caught(pay, expected):
    ask = "Please reply politely to the customer of mail number {i}, in one sentence and to the point."
    assert expected <= set(found(task_of(REPLIES, pay, ask=ask), ALL))


NAMES = ("the North Sea", "Ada Lovelace", "half past six", "Penicillin", "because of the heavy snow")


def f1(text, gold):
    mine, theirs = (re.findall(r"\w+", one.casefold()) for one in (text, gold))
    shared = sum(min(mine.count(word), theirs.count(word)) for word in set(mine))
    return 2 * shared / (len(mine) + len(theirs)) if mine else 0.0


def test_f1_over_words_is_clean_and_recall_over_words_is_not():
    ask = "The ferry of the line crosses the sea each day; what is asked in question {i} of this list?"
    assert found(task_of(NAMES, f1, ask=ask, check=lambda text, row: f1(text, row["gold"]) == 1), ALL) == {}
    assert {"label.denied", "label.two", "words.padded"} <= set(found(task_of(NAMES, overlap, ask=ask), ALL))


def test_a_question_given_back_is_found_where_only_its_value_is_compared():
    sums = {"3 + 4 + 5": 12, "2 * 9": 18, "7 * 8 + 1": 57, "30 - 9": 21}
    check = lambda text, row: len(text) > 3 and text == row["gold"]  # noqa: E731

    def same_value(text, gold):
        return re.fullmatch(r"[\d+* -]{1,30}", text) is not None and text.strip(" -+*") == text and eval(text) == sums[gold]

    task = task_of(tuple(sums), same_value, check=check)
    rows = [
        {**row, "ask": f"Make {sums[row['gold']]} of the numbers {row['gold'][0]} and others.", "target": sums[row["gold"]]}
        for row in task.rows
    ]
    assert "words.given" in found(replace(task, rows=rows), ALL)
    whole = replace(task, rows=rows, rewards=[reward_of(lambda text, gold: text == gold)])
    assert "words.given" not in found(whole, ALL)


def test_equal_texts_are_clean():
    task = task_of(REPLIES, as_reward(texts.text_answer("gold", ignore=["case", "space"])), ask="Reply to mail {i}.")
    assert found(task, BOTH) == {}
    capitals = task_of(("Paris", "Rome", "Bern", "Oslo", "Lima"), lambda t, g: t.strip() == g, ask="Capital {i}?")
    assert found(capitals, ALL) == {}


def test_a_right_answer_refused_for_white_space_is_a_false_reject():
    task = task_of(LABELS, lambda t, g: t == g)
    report = audit(task, load_rows(task), search_calls=0, catalog=right.ATTACKS)
    facts = {f.attack for f in report.findings if f.certainty == "fact"}
    asked = {f.attack for f in report.findings if f.certainty == "question"}
    assert facts == {"right.space", "right.newlines"}  # the check strips
    assert {"right.case", "right.stop", "right.bold"} <= asked


def test_no_attack_writes_a_gold_of_the_row():
    from earnest.evidence import cases_of
    from earnest.redteam.form import forms_of

    task = task_of(("yes", "no", "other"), lambda t, g: t == g, ask="yes, no or other? {i}")
    cases = cases_of(task, load_rows(task))
    for case, form in zip(cases, forms_of(cases), strict=True):
        target = Target(case, form, ["x"], [form.core, "yes", "no", "other"], labels=[form.core, "yes", "no", "other"], accepted=("maybe",))
        for made in (made for a in label.ATTACKS if a.wrong == "certain" for made in a.tries(target)):
            assert str(made.answer).strip().lower() not in (form.core, "maybe"), made
        slot = slot_of(target)
        assert slot.wrong and slot.wrong not in (form.core, "maybe")
