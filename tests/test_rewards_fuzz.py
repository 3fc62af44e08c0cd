"""Whatever is written, every verifier scores it, within its bounds and in time.

Texts are made by hypothesis and by a byte-level mutator over real answers. EARNEST_FUZZ multiplies how many: at 40 there are more than
100,000.
"""

import json
import math as maths
import os
import random
import sqlite3
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.rewards.calls import as_messages, no_leaked_tags
from earnest.rewards.choice import choice
from earnest.rewards.code import assert_tests, function_calls, programs
from earnest.rewards.compose import compose, weighted
from earnest.rewards.handoff import Note, hand_off
from earnest.rewards.json import Gold, json_answer, json_format
from earnest.rewards.label import label
from earnest.rewards.length import length, no_repetition, target_length
from earnest.rewards.matching import Column
from earnest.rewards.math import math
from earnest.rewards.number import number
from earnest.rewards.policy import Before, Call, tool_policy
from earnest.rewards.sql import sql
from earnest.rewards.state import final_state
from earnest.rewards.text import tagged, text_answer
from earnest.rewards.verifier import Attempt

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LONGEST = 20.0  # seconds for a verifier without a deadline of its own, on a busy machine; they take milliseconds

WRITTEN = [
    '{"category": "refund", "amount": 12.5, "tags": ["a", "b"], "needs_human": false}',
    '```json\n{"category": "other"}\n```',
    "refund",
    "The answer is (C), because the others contradict the text.",
    "Wait, no. The final answer is B.",
    "<think>17 * 23 is 391</think><answer>391</answer>",
    "She has 12 - 4 = 8 left, and 8 * 2 = 16.\n#### 16",
    r"So $x = \frac{-1 + \sqrt{5}}{2}$ and the answer is \boxed{\frac{\sqrt{5}-1}{2}}.",
    r"\boxed{\{1, 2, 3\}} and 50\% of \$1,000.00 is 5e2",
    "def f(n):\n    return sum(i * i for i in range(n))\n",
    "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n",
    "SELECT name, COUNT(*) FROM emp JOIN dept USING (dept) WHERE pay > 20 GROUP BY name ORDER BY 2 DESC, name LIMIT 3",
    '<tool_call>{"name": "refund_payment", "arguments": {"payment": "p1", "amount": 120}}</tool_call>',
    '{"hand_off": {"customer": "c9", "note": "Order A-17 was charged twice; billing should look at the second payment."}}',
    "我需要退款，订单 A-17。答案是 ４２。",
]
BITS = ["\ud800", "\0", "\u202e", "\u2212", "\u00a0", "NaN", "1e999", "\\boxed{", "}", "{", "[" * 50, "```", "'", '"', "--", ";"]
BITS += ["<answer>", "9" * 60, "\n" * 9, "^", "or"]


@cache
def written():
    """Answers people and programs really wrote; those above where the data is not there."""
    real = list(WRITTEN)
    if (DATA / "gsm8k" / "test.jsonl").is_file():
        real += [json.loads(line)["answer"] for line in (DATA / "gsm8k" / "test.jsonl").read_text().splitlines()[:300]]
    return real


def mutated(rng):
    """A real answer after some cuts, copies, flips and splices of its bytes; half of them then hold bytes that are no text."""
    raw = bytearray(rng.choice(written()).encode())
    for _ in range(rng.randint(1, 8)):
        i, j = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0 if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            case 1:
                del raw[i : min(j, i + 20)]
            case 2:
                raw[i:i] = raw[i:j] * rng.randint(1, 3)
            case 3:
                raw[i:i] = rng.choice(BITS).encode("utf-8", "surrogatepass")
            case 4:
                raw[i:j] = rng.choice(written()).encode()[: rng.randint(0, 60)]
            case _:
                raw[i:i] = rng.randbytes(rng.randint(1, 4))
    return raw.decode("utf-8", rng.choice(["replace", "surrogateescape"]))


@cache
def shop():
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE dept (dept TEXT PRIMARY KEY, city TEXT); INSERT INTO dept VALUES ('a', 'Bern'), ('b', 'Rome');"
        "CREATE TABLE emp (name TEXT, dept TEXT REFERENCES dept, pay INT);"
        "INSERT INTO emp VALUES ('Ann', 'a', 30), ('Bob', 'a', 20), ('Cy', 'b', 10), ('Di', 'b', 40), ('Ed', 'a', 25);"
    )
    return connection.serialize()


STATE = {"payments": [{"id": 1, "amount": 120, "refunded": 0}]}
ROW = {
    "gold": "refund",
    "letter": "C",
    "number": "391",
    "object": {"category": "refund", "amount": 12.5, "tags": ["a", "b"], "needs_human": False},
    "category": "refund",
    "amount": 12.5,
    "entry_point": "f",
    "tests": [{"args": [4], "expected": 14}],
    "test_list": ["assert f(4) == 14"],
    "pairs": [{"stdin": "1 2 3", "stdout": "6"}],
    "sql": "SELECT name FROM emp WHERE pay > 20",
    "payment": "p1",
    "needs_human": True,
    "customer": "c9",
    "order": "A-17",
    "body": "I was charged twice for order A-17.",
    "start": STATE,
    "expected": {"payments": [{"id": 1, "amount": 120, "refunded": 1}]},
}


def as_text(text):
    return Attempt.of(text)


def as_calls(text):
    """What the model wrote as the arguments of calls, the name of one, and the answer after them."""
    calls = [("request_approval", {"payment": text}), ("refund_payment", {"payment": "p1", "amount": text}), (text[:30], {text[:9]: text})]
    return Attempt((*as_messages(calls), {"role": "assistant", "content": text}))


def as_raw_calls(text):
    """The arguments as the model wrote them, whether they are JSON or not."""
    call = {"id": text[:5], "type": "function", "function": {"name": "refund_payment", "arguments": text}}
    messages = [{"role": "assistant", "content": text, "tool_calls": [call]}, {"role": "tool", "tool_call_id": text[:5], "content": text}]
    return Attempt((*messages, {"role": "assistant", "content": text}))


def of_state(attempt, row):
    try:
        return json.loads(attempt.text)  # an environment whose state is whatever the model says
    except (ValueError, RecursionError):
        return {"payments": [{"id": 1, "amount": attempt.text, "refunded": attempt.text}]}


REFUNDS = tool_policy(
    required=[Call("refund_payment", {"payment": Column("payment")})],
    allowed=["request_approval"],
    order=[Before("request_approval", "refund_payment", same=("payment",))],
    partial=True,
)
NOTE = Note(mentions=("order",), fields=("customer",), case=("body",))
GOOD = text_answer("gold")
QUICK = {
    "json": (json_answer("object"), as_text),
    "json fields": (
        json_answer(fields={"category": "category", "amount": Gold("amount", tolerance=0.1)}, extra=True, partial=True),
        as_text,
    ),
    "json format": (json_format({"type": "object", "required": ["category"]}, fence=True), as_text),
    "label": (label(["refund", "other", "billing"], "gold"), as_text),
    "label in prose": (label(["refund", "other", "billing"], "gold", prose=True), as_text),
    "choice": (choice("letter"), as_text),
    "text": (text_answer("gold", ignore=["case", "space", "punctuation", "articles", "compatibility"]), as_text),
    "tagged": (tagged(number("number"), ("think", "answer")), as_text),
    "number": (number("number", scientific=True, percent=True, units=("m", "s")), as_text),
    "last number": (number("number", place="last", relative=0.01), as_text),
    "policy": (REFUNDS, as_calls),
    "policy, raw arguments": (REFUNDS, as_raw_calls),
    "hand-off": (hand_off(GOOD, note=NOTE, form="json"), as_text),
    "hand-off by a tool": (hand_off(GOOD, note=NOTE, action="refund_payment"), as_raw_calls),
    "state": (final_state(final=of_state, keys={"payments": ["id"]}, partial=True), as_text),
    "tags": (no_leaked_tags(), as_text),
    "length": (length(20, 60, unit="words"), as_text),
    "target length": (target_length(20, unit="characters"), as_text),
    "repetition": (no_repetition(), as_text),
    "composed": (compose(gates=[no_repetition()], correct=GOOD, shaped={length(5, 60, unit="words"): 0.1}), as_text),
    "weighted": (weighted({json_format(): 0.3, GOOD: 1.0}), as_text),
}
SLOW = {
    "math": (math("number"), as_text, 100),
    "sql": (sql(database=shop(), copies=2), as_text, 60),
    "function": (function_calls(fence="anywhere"), as_text, 12),
    "asserts": (assert_tests("test_list"), as_text, 8),
    "program": (programs("pairs", fence="anywhere"), as_text, 8),
}


def scored(verifier, attempt):
    start = time.monotonic()
    score = verifier(attempt, ROW)
    seconds = time.monotonic() - start
    assert score.status == "scored", (score, attempt)
    assert verifier.bounds[0] <= score.value <= verifier.bounds[1] and maths.isfinite(score.value)
    assert seconds < (verifier.deadline or LONGEST) + LONGEST
    json.dumps(dict(score.evidence), allow_nan=False)
    assert all(isinstance(reason, str) and reason for reason in score.reasons)
    return score


@pytest.mark.parametrize("name", QUICK)
def test_a_mutated_answer_is_scored(name):
    verifier, shape = QUICK[name]
    rng = random.Random(name)
    for _ in range(100 * FUZZ):
        scored(verifier, shape(mutated(rng)))


@pytest.mark.parametrize("name", QUICK)
def test_any_text_is_scored(name):
    verifier, shape = QUICK[name]

    @settings(max_examples=30 * FUZZ)
    @given(st.text(max_size=60))
    def any_text(text):
        scored(verifier, shape(text))

    any_text()


@pytest.mark.parametrize("name", SLOW)
def test_a_mutated_answer_is_scored_by_those_that_run_something(name):
    verifier, shape, count = SLOW[name]
    rng = random.Random(name)
    for _ in range(count * FUZZ):
        scored(verifier, shape(mutated(rng)))
