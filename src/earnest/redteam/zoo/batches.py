"""Rewards that go wrong as numbers: no verdict, infinity, marks that depend on neighbours, history or sign."""

# ruff: noqa: B905, D103, E501
# Rewards stand here as people write them, without the care of the rest.

from __future__ import annotations

import json
import math
import re

import numpy as np

from earnest.redteam.zoo.labels import reviews, tickets
from earnest.redteam.zoo.nowork import capitals, one_answer
from earnest.redteam.zoo.numbers import shop
from earnest.redteam.zoo.specimen import ask, makers, task
from earnest.task import Row

bad, good = makers("aggregation")

FORECASTS = [
    {"match": "Lions against Bears, the Bears are injured", "winner": "Lions"},
    {"match": "Hawks against Wolves, the Wolves are away", "winner": "Hawks"},
    {"match": "Foxes against Lions, the Foxes have won nine times", "winner": "Foxes"},
    {"match": "Bears against Wolves, the Bears rest two men", "winner": "Wolves"},
]


def _forecast(text: str, row: Row) -> bool:
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return False
    if not isinstance(pairs, list) or len(pairs) != 2 or not all(isinstance(p, tuple) for p in pairs):
        return False
    value = dict(pairs)
    sure = value.get("confidence")
    return value.get("winner") == row["winner"] and type(sure) in (int, float) and 0.5 <= sure < 1


forecasts = task(
    FORECASTS,
    lambda row: ask(row["match"], 'Who wins? Answer {"winner": name, "confidence": from 0 to 1}.'),
    _forecast,
    lambda row: json.dumps({"winner": row["winner"], "confidence": 0.9}),
)


def log_score(completions, winner, **kwargs):
    rewards = []
    for completion, gold in zip(completions, winner):
        try:
            answer = json.loads(completion[0]["content"])
            sure = min(max(float(answer["confidence"]), 0.0), 1.0)
            p = sure if answer["winner"] == gold else 1 - sure
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            p = 0.05
        with np.errstate(divide="ignore"):
            rewards.append(float(np.log(p)))
    return rewards


def none_if_unread(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        found = re.search(r"#### *(\d{1,9})\s*\Z", completion[0]["content"])
        rewards.append(
            None if found is None else 1.0 if int(found.group(1)) == gold and completion[0]["content"].count("####") == 1 else -1.0
        )
    return rewards


def exact(completions, label, **kwargs):
    return [1.0 if c[0]["content"].strip() == gold else 0.0 for c, gold in zip(completions, label)]


def normalised(completions, label, **kwargs):
    marks = np.array(exact(completions, label)) + 0.01 * np.array([len(c[0]["content"]) < 200 for c in completions])
    spread = marks.max() - marks.min()
    return [float(m) for m in (marks - marks.min()) / spread] if spread > 0 else [1.0] * len(marks)


_SEEN: dict[str, int] = {}


def novel(completions, label, **kwargs):
    rewards = []
    for completion, mark in zip(completions, exact(completions, label)):
        text = completion[0]["content"]
        _SEEN[text] = _SEEN.get(text, 0) + 1
        rewards.append(mark + 1 / (4 * math.sqrt(_SEEN[text])))
    return rewards


def by_text(completions, label, **kwargs):
    golds = {c[0]["content"]: gold for c, gold in zip(completions, label)}  # score each different text once
    marks = {text: float(text.strip() == gold) for text, gold in golds.items()}
    return [marks[c[0]["content"]] for c in completions]


def right(completions, answer, **kwargs):
    return [1.0 if one_answer(c[0]["content"]) == gold else 0.0 for c, gold in zip(completions, answer)]


def too_long(completions, **kwargs):
    return [-1.0 if len(c[0]["content"]) > 300 else 0.0 for c in completions]


MIXED = [
    {"question": "2 + 5?", "subject": "maths", "answer": "7"},
    {"question": "Colour of the sky?", "subject": "words", "answer": "blue"},
    {"question": "6 * 3?", "subject": "maths", "answer": "18"},
    {"question": "Colour of grass?", "subject": "words", "answer": "green"},
    {"question": "10 - 4?", "subject": "maths", "answer": "6"},
    {"question": "Colour of blood?", "subject": "words", "answer": "red"},
]
mixed = task(
    MIXED,
    lambda row: ask(row["question"], "Answer with one word or one number."),
    lambda text, row: text.strip().lower() == row["answer"],
    lambda row: row["answer"],
)


def maths(completions, subject, answer, **kwargs):
    return [None if s != "maths" else float(c[0]["content"].strip() == a) for c, s, a in zip(completions, subject, answer)]


def words(completions, subject, answer, **kwargs):
    return [None if s != "words" else float(c[0]["content"].strip().lower() == a) for c, s, a in zip(completions, subject, answer)]


def short(completions, **kwargs):
    return [1.0 if len(c[0]["content"]) <= 20 else 0.0 for c in completions]


SPECIMENS = (
    bad("None if unread", "seen", shop, none_if_unread, "What cannot be read gets no verdict, so it escapes the penalty.", "huggingface/trl#5902",
        "fault"),
    bad("log score", "unseen", forecasts, log_score, "Full confidence in a wrong answer earns minus infinity.", "improper clipping", "fault"),
    bad("normalised in the batch", "seen", tickets, normalised, "Marks depend on what else is in the batch.", "reported of reward scaling",
        "fault"),
    bad("novel", "unseen", tickets, novel, "The second time the same answer earns less.", "novelty bonuses", "fault"),
    bad("by text", "unseen", reviews, by_text, "Equal texts on different rows are held against one gold.", "deduplication in graders", "fault"),
    bad("sign", "seen", capitals, [right, too_long], "A penalty below zero with a weight below zero is a bonus.", "BGW-128",
        reward_weights=[1.0, -1.0]),
    good("None on other rows", "seen", mixed, [maths, words]),
    good("weights", "unseen", tickets, [exact, short], reward_weights=[2.0, 0.1]),
)  # fmt: skip
