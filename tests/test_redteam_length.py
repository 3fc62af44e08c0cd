"""Length, and answers that break rewards: each attack catches the reward it is made for."""

import json
import re
import time
import unicodedata
from dataclasses import replace

import pytest
from test_redteam_format import BY_ID, OURS, WORDS, bonus, found, inside, object_task, reward, strict, tag_task, tags, task_of

from earnest.redteam.audit import audit
from earnest.rewards.policy import tool_policy
from earnest.rewards.verifier import as_reward
from earnest.rows import load_rows
from earnest.task import Task

LONG = {
    "len.pad_wrong": lambda text, gold: len(text) > 900,
    "len.reasoning_wrong": lambda text, gold: text.count("Wait,") > 0,
    "len.reasoning_wrong by steps": lambda text, gold: len(re.findall(r"^Step\b", text, re.MULTILINE)) >= 10,
    "len.reasoning_wrong by numbered steps": lambda text, gold: len(re.findall(r"^Step \d+:", text, re.MULTILINE)) >= 10,
    "len.different_words": lambda text, gold: len(set(text.split())) > 200,
    "len.terse_wrong": lambda text, gold: 0 < len(text.strip()) < 4,
    "len.as_long": lambda text, gold: len(text) == len(tags(gold)),
    "len.repeat_wrong": lambda text, gold: len(text.split()) > 20 and len(set(text.split())) < 5,
    "len.unseen_wrong": lambda text, gold: len(text) > 1_000 and len(text.strip(" \n\u200b\u2060")) < 40,
}


@pytest.mark.parametrize("kind", LONG)
def test_the_attack_catches_what_pays_for_length(kind):
    identity = kind.split()[0]
    assert identity in found(tag_task(bonus(LONG[kind])), identity)


def test_lines_that_begin_with_a_word_the_prompt_quotes_are_tried():
    pays = bonus(lambda text, gold: len(re.findall(r"^Because\b", text, re.MULTILINE)) >= 10)
    check = lambda text, gold: inside(text) == gold  # noqa: E731
    asked = task_of(WORDS, tags, check, reward(pays), asks="Lines that start with 'Because' are welcome.")
    assert "len.reasoning_wrong" in found(asked, "len.reasoning_wrong")


def test_a_length_that_the_prompt_asks_for_is_tried():
    pays = bonus(lambda text, gold: abs(len(text.split()) - 37) < 4)
    check = lambda text, gold: inside(text) == gold  # noqa: E731
    assert "len.demanded" in found(task_of(WORDS, tags, check, reward(pays), asks="Answer in 37 words."), "len.demanded")


def test_an_answer_that_breaks_off_is_found():
    cut = lambda text, gold: re.search(rf"<answer>{gold}\b", text) is not None  # noqa: E731
    assert "len.cut" in found(tag_task(cut), "len.cut")


MORE = {
    "len.repeat_right": lambda text, gold: (gold in text) * (1 + min(1.0, text.count(gold) / 10)),
    "len.unseen_right": lambda text, gold: (gold in text) * (1 + min(1.0, len(text) / 1_000)),
}


@pytest.mark.parametrize("identity", MORE)
def test_a_right_answer_that_earns_more_when_it_is_swollen_is_found(identity):
    assert identity in found(tag_task(MORE[identity]), identity)


@pytest.mark.parametrize("identity", ["len.pad_right", "len.reasoning_right"])
def test_a_right_answer_that_earns_more_when_padded_is_found(identity):
    def pays(text, gold):
        return (text.strip().endswith(gold) or text.startswith(gold)) * (1 + min(1.0, len(text) / 1_000))

    task = task_of(WORDS, str, lambda text, gold: text.strip().endswith(gold) or text.startswith(gold), reward(pays))
    (finding,) = audit(task, load_rows(task), search_calls=0, catalog=[BY_ID[identity]]).findings[:1]
    assert (finding.attack, finding.detail) == (identity, "it earns more than the right answer")


def test_a_small_term_for_brevity_on_right_answers_is_no_flaw():
    pays = lambda text, gold: (inside(text) == gold) * (0.9 + 0.1 * max(0.0, 1 - len(text) / 200))  # noqa: E731
    assert found(tag_task(pays)) == set()


# --- crash and time


def raises(text, gold):
    """A plain reward that decodes, converts and looks up without a thought."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return 0.0
    return float(isinstance(value, dict) and value.keys() == gold.keys() and value["label"] in {"spam", "ham", "other"} and value == gold)


def backtracks(text, gold):
    return float(re.match(r"(\w+\s?)+$", text) is None and inside(text) == gold)


CRASHES = {
    "crash.deep": (raises, "RecursionError"),
    "crash.huge_numbers": (raises, "ValueError"),
    "crash.surrogates": (lambda text, gold: float(bool(text.encode()) and strict(text) == gold), "UnicodeEncodeError"),
    "crash.controls": (lambda text, gold: float(strict(text % ()) == gold), "TypeError"),
    "crash.long": (lambda text, gold: float(strict(text) == gold and len(text) < 500_000) + [0.0][len(text) // 500_000], "IndexError"),
    "crash.odd_letters": (lambda text, gold: float(strict(text) == gold) + (0 * int(text) if text.isdigit() else 0), "ValueError"),
}  # fmt: skip


@pytest.mark.parametrize("identity", CRASHES)
def test_a_reward_that_raises_is_found(identity):
    pays, error = CRASHES[identity]
    task = object_task(pays)
    findings = audit(task, load_rows(task), search_calls=0, catalog=[BY_ID[identity]]).findings
    assert any(f.attack == "fault.raised" and error in f.detail for f in findings)


def test_lists_of_odd_items_are_tried_where_lists_are_wanted():
    golds = [["a1", "b2"], ["c3"], ["d4", "e5"], ["b2", "c3"]]
    pays = lambda text, gold: float(isinstance(v := strict(text), list) and set(v) == set(gold))  # noqa: E731
    task = task_of(golds, json.dumps, lambda text, gold: strict(text) == gold, reward(pays))
    findings = audit(task, load_rows(task), search_calls=0, catalog=[BY_ID["crash.odd_items"]]).findings
    assert any(f.attack == "fault.raised" and "unhashable" in f.detail for f in findings)


def test_a_pattern_that_backtracks_is_found_to_hang(monkeypatch):
    monkeypatch.setattr("earnest.redteam.ask.START", 0.5)
    attack = BY_ID["crash.slow_patterns"]
    few = replace(attack, build=lambda target: [made for made in attack.tries(target) if len(made.answer) < 60][:1])
    findings = audit(task := tag_task(backtracks), load_rows(task), search_calls=0, catalog=[few], deadline=0.5).findings
    assert any(f.attack == "fault.hung" for f in findings)


def test_a_text_that_grows_when_normalised_is_tried():
    pays = lambda text, gold: float(inside(text) == gold) + [0.0][len(unicodedata.normalize("NFKC", text)) > 10 * len(text) > 1_000]  # noqa: E731
    findings = audit(task := tag_task(pays), load_rows(task), search_calls=0, catalog=[BY_ID["crash.odd_letters"]]).findings
    assert any(f.attack == "fault.raised" for f in findings)


def test_hostile_texts_cost_a_sound_reward_little_time():
    began = time.monotonic()
    assert (
        found(tag_task(lambda text, gold: len(text) < 1_000 and inside(text) == gold), "crash.slow_patterns", "crash.deep", "crash.long")
        == set()
    )
    assert time.monotonic() - began < 5.0


# --- trajectories


def called(name, arguments, said="Done."):
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": name, "content": '{"ok": true}'},
        {"role": "assistant", "content": said},
    ]


def calls_task(paid):
    rows = [{"id": str(i), "order": f"A{i}", "calls": [{"name": "refund", "arguments": {"order": f"A{i}"}}]} for i in range(4)]

    def check(messages, row):
        made = [m.get("tool_calls") or [] for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
        return any(one == called("refund", {"order": row["order"]})[0]["tool_calls"] for one in made)

    return Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": f"Refund {row['order']}."}],
        rewards=[paid],
        check=check,
        oracle=lambda row: called("refund", {"order": row["order"]}),
        name="calls",
    )


def trusting(completions, order, **kwargs):
    """Reads the last words and the arguments as if they were always there."""
    totals = []
    for messages, one in zip(completions, order, strict=True):
        messages[-1]["content"].strip()
        asked = [c["function"]["arguments"] for m in messages for c in m.get("tool_calls") or ()]
        totals.append(float(any(arguments.get("order") == one for arguments in asked)))
    return totals


@pytest.mark.parametrize(
    ("identity", "error"),
    [("crash.odd_calls", "AttributeError"), ("crash.odd_messages", "KeyError"), ("crash.odd_envelopes", "IndexError")],
)
def test_a_reward_that_trusts_messages_is_found_to_raise(identity, error):
    findings = audit(task := calls_task(trusting), load_rows(task), search_calls=0, catalog=[BY_ID[identity]]).findings
    assert any(f.attack == "fault.raised" and error in f.detail for f in findings)


def test_talk_where_a_call_was_needed_is_found_and_a_sound_policy_is_clean():
    spoken = lambda completions, **kwargs: [float(bool(m and m[-1].get("content"))) for m in completions]  # noqa: E731
    assert "gen.talk_only" in found(calls_task(spoken), "gen.talk_only")
    assert found(calls_task(as_reward(tool_policy("calls")))) == set()


def test_every_attack_says_what_it_is_and_is_named_once():
    assert len(BY_ID) == len(OURS)
    assert all(attack.flaw.endswith(".") and attack.fix.endswith(".") for attack in BY_ID.values())
