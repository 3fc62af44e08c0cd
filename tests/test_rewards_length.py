"""Length terms: what they count, that they stay small and bounded, and that neither padding, looping nor being cut off gains anything."""

import math
import os
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards.compose import compose
from earnest.rewards.length import Unit, length, no_repetition, target_length
from earnest.rewards.verifier import Attempt, Verifier, as_reward, right, wrong
from earnest.score import score

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))


def tokens(count, text="x", **message):
    return Attempt(({"role": "assistant", "content": text, **message},), tuple(range(count)))


def call(name="f", arguments="{}"):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def is_right(attempt, row):
    return right() if attempt.text.endswith("42") else wrong("another answer")


CORRECT = Verifier("correct", is_right)


# length


@pytest.mark.parametrize(
    ("count", "value"), [(1, 1.0), (100, 1.0), (101, 0.99), (150, 0.5), (175, 0.25), (199, 0.01), (200, 0.0), (201, 0.0), (10**6, 0.0)]
)
def test_full_marks_up_to_what_is_free_then_straight_down_to_nothing(count, value):
    given = length(100, 200)(tokens(count))
    assert given.value == pytest.approx(value) and given.evidence == {"tokens": count} and bool(given.reasons) == (value < 1)


def test_no_answer_is_shorter_for_thinking_that_is_not_shown():
    shown, hidden = "42", {"reasoning_content": "well " * 50}
    assert length(10, 100)(tokens(60, shown)).value == length(10, 100)(tokens(60, shown, **hidden)).value == pytest.approx(4 / 9)
    for unit in ("characters", "words"):
        plain, thought = (length(10, 1000, unit=unit)(Attempt(({"role": "assistant", "content": shown, **m},))) for m in ({}, hidden))
        assert plain.value == 1.0 > thought.value


CALL = '{"type": "function", "function": {"name": "f", "arguments": "{}"}}'


@pytest.mark.parametrize(("unit", "count"), [("tokens", 7), ("characters", 11 + 2 * len(CALL)), ("turns", 2), ("calls", 2)])
def test_all_that_the_model_wrote_counts_and_nothing_of_the_environment(unit, count):
    attempt = Attempt(
        (
            {"role": "assistant", "content": "hello", "reasoning_content": "well", "tool_calls": [call(), call()]},
            {"role": "tool", "content": "a long answer of a tool"},
            {"role": "user", "content": "more words"},
            {"role": "assistant", "content": "42", "tool_calls": None},
        ),
        tuple(range(7)),
    )
    assert length(0, 10_000, unit=unit)(attempt).evidence == {unit: count}


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), (" \n", 0), ("one", 1), ("one two\nthree", 3), ("x" * 20, 1), ("x" * 21, 2), ("x" * 400, 20), ("a_b-" * 100, 20), ("a b", 2)],
)
def test_words_cannot_be_hidden_by_leaving_out_the_spaces(text, count):
    assert length(0, 1000, unit="words")(text).evidence == {"words": count}


def test_where_no_ids_were_kept_words_stand_in_for_tokens_and_the_evidence_says_so():
    assert length(2, 4)("one two three").evidence == {"words": 3} and length(2, 4)("one two three").value == 0.5


@pytest.mark.parametrize("content", [None, [{"type": "text", "text": "42"}], 42])
def test_contents_that_are_no_text_are_counted_or_nothing(content):
    given = length(0, 100, unit="characters")(Attempt(({"role": "assistant", "content": content},)))
    assert given.evidence["characters"] == {True: 0}.get(content is None, len('[{"type": "text", "text": "42"}]') if content != 42 else 2)


@pytest.mark.parametrize("unit", get_args(Unit))
@pytest.mark.parametrize("make", [lambda **o: length(50, 1000, **o), lambda **o: target_length(50, **o)], ids=["length", "target"])
def test_what_was_cut_off_at_the_cap_is_never_better_than_what_ended(make, unit):  # len.truncate
    verifier = make(unit=unit, cap=100, stops={7})
    cut = Attempt(({"role": "assistant", "content": "w " * 40},), (1,) * 100)
    assert verifier(cut).value == 0.0 and verifier(cut).reasons == ("cut off at the cap",)
    for ids in ((1,) * 99, (1,) * 99 + (7,)):
        ended = verifier(Attempt(({"role": "assistant", "content": "w " * 500},), ids))
        assert ended.reasons != ("cut off at the cap",) and ended.value >= verifier(cut).value
    assert verifier(Attempt(cut.messages, (1,) * 100 + (7,))).value == 0.0, "past the cap"


@pytest.mark.parametrize(
    "options", [{"free": 5, "most": 5}, {"free": 6, "most": 5}, {"free": -1, "most": 5}, {"free": math.nan, "most": 5}]
)
def test_a_line_that_does_not_fall_is_refused(options):
    with pytest.raises(UserError, match="give 0 <= free < most"):
        length(**options)


@pytest.mark.parametrize("make", [length, target_length])
@pytest.mark.parametrize(("option", "why"), [({"unit": "bytes"}, "the units are tokens, characters"), ({"cap": 0}, "cap=0")])
def test_options_that_cannot_be_meant_are_refused(make, option, why):
    with pytest.raises(UserError, match=why):
        make(5, 10, **option)


# target_length


def test_twenty_characters_are_best_when_twenty_are_wanted():  # S-RC-07
    twenty, five, sixty = as_reward(target_length(20, unit="characters"))(completions=["x" * 20, "x" * 5, "x" * 60])
    assert twenty > five > sixty > 0 and twenty == 1.0
    assert (five, sixty) == (pytest.approx(20 / 35), pytest.approx(20 / 60))


@given(st.integers(1, 500), st.floats(0.5, 1000), st.integers(0, 3000), st.integers(0, 3000))
def test_the_nearer_of_two_always_earns_more(target, width, a, b):
    verifier = target_length(target, width, unit="characters")
    first, second = verifier("x" * a).value, verifier("x" * b).value
    order = (abs(a - target) < abs(b - target)) - (abs(a - target) > abs(b - target))
    assert (first > second) - (first < second) == order and 0 < first <= 1
    assert first == pytest.approx(float(Fraction(width) / (Fraction(width) + abs(a - target))))


@pytest.mark.parametrize(("target", "width"), [(0, None), (-1, None), (5, 0), (5, -1), (5, math.inf), (5, math.nan), (math.nan, 1)])
def test_a_target_that_cannot_be_met_is_refused(target, width):
    with pytest.raises(UserError, match="numbers above 0"):
        target_length(target, width)


# no_repetition


def share_slowly(things, n):
    grams = [tuple(things[i : i + n]) for i in range(len(things) - n + 1)]
    return sum(gram in grams[:i] for i, gram in enumerate(grams)) / len(grams) if grams else 0.0


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 5), st.sampled_from([0.0, 0.25, 0.5, 0.9]))
def test_the_share_of_repeats_is_what_counting_says(ids, n, allowed):
    share = share_slowly(ids, n)
    given = no_repetition(n, allowed=allowed)(Attempt(({"role": "assistant", "content": "x"},), tuple(ids)))
    text = "".join(map(str, ids)) if ids else "x"
    if ids:
        assert given.evidence["repeated"] == round(share, 4)
        assert given.value == pytest.approx(1.0 if share <= allowed else (1 - share) / (1 - allowed))
    letters = no_repetition(n, allowed=allowed)(text)
    assert letters.evidence["repeated"] == round(share_slowly(text, 4 * n), 4)


LOOPS = [
    "the ",
    "ha",
    "a",
    "\n",
    "I will now check again. ",
    "Wait, let me think about this once more, step by step, from the start.\n",
    "🙂",
]


@pytest.mark.parametrize("unit", LOOPS)
def test_a_loop_of_any_period_is_found_with_ids_and_without(unit):  # len.repeat_ngram
    text = "First I look at the ticket. " + unit * (2000 // len(unit))
    assert no_repetition()(text).value < 0.2
    ids = tuple(range(1000, 1020)) + (tuple(range(len(unit))) * 1000)[:1000]
    assert no_repetition()(Attempt(({"role": "assistant", "content": "x"},), ids)).value < 0.2


def test_a_loop_in_the_thinking_or_in_an_earlier_turn_is_found_too():
    loop = "again and again and " * 100
    for messages in (
        ({"role": "assistant", "content": "42", "reasoning_content": loop},),
        ({"role": "assistant", "content": loop}, {"role": "tool", "content": "ok"}, {"role": "assistant", "content": "42"}),
    ):
        assert no_repetition()(Attempt(messages)).value < 0.2
    tool = ({"role": "assistant", "content": "look"}, {"role": "tool", "content": loop}, {"role": "assistant", "content": "42"})
    assert no_repetition()(Attempt(tool)).value == 1.0, "what the environment repeats is not the model's"


HONEST = [
    "", "42", "The refund was approved on Monday; the customer will see the money within five working days.",
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a * b\n",
    '[{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo"}, {"id": 3, "name": "Cy"}, {"id": 4, "name": "Di"}]',
    "| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |\n| 4 | 5 | 6 |\n| 7 | 8 | 9 |\n", "ha ha ha",
]  # fmt: skip


@pytest.mark.parametrize("text", HONEST)
def test_honest_texts_pass_as_a_gate(text):
    assert no_repetition()(text).value == 1.0


@pytest.mark.parametrize("options", [{"n": 0}, {"allowed": 1.0}, {"allowed": -0.1}, {"allowed": math.nan}])
def test_a_guard_that_can_hold_nothing_is_refused(options):
    with pytest.raises(UserError, match="no_repetition"):
        no_repetition(**options)


# The attacks, where these terms are meant to be: beside being right


def total(attempt, **options):
    verifier = compose(correct=CORRECT, shaped={length(20, 200, cap=200): 0.1, target_length(30): 0.1}, **options)
    return verifier(attempt).value


HONEST_WRONG = total(tokens(30, "The answer is 41"))
ATTACKS = {
    "len.pad": tokens(30, "filler words up to the wanted length"),
    "len.terse_wrong": tokens(1, "7"),
    "len.long_wrong": tokens(199, "41 " * 60 + "7"),
    "len.truncate": tokens(200, "so it must be"),
    "len.repeat_ngram": Attempt(({"role": "assistant", "content": "so " * 60},), (5,) * 60),
    "gen.empty": Attempt(({"role": "assistant", "content": ""},), (2,)),
    "gen.filler": tokens(8000, "lorem ipsum " * 3000),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_wrong_answer_of_any_length_earns_nothing(name):
    assert total(ATTACKS[name]) <= HONEST_WRONG == 0.0


def test_the_longest_right_answer_earns_more_than_the_shortest_wrong_one():
    assert total(tokens(10**5, "42")) >= 0.8 > total(tokens(1, "7"))
    assert total(tokens(30, "42")) > total(tokens(60, "42")) > total(tokens(200, "42"))


def test_skipping_a_required_step_is_no_way_to_be_short():  # len.skip_steps
    looked = Verifier("looked", lambda a, row: right() if any(m.get("tool_calls") for m in a.messages) else wrong("did not look it up"))
    verifier = compose(gates=[looked], correct=CORRECT, shaped={length(1, 5, unit="calls"): 0.2})
    done = Attempt(({"role": "assistant", "content": "", "tool_calls": [call()] * 3}, {"role": "assistant", "content": "42"}))
    assert verifier(done).value == pytest.approx(0.9) and verifier("42").value == 0.0


def test_equal_calls_count_each():
    spam = Attempt(({"role": "assistant", "content": "42", "tool_calls": [call()] * 20},))
    assert length(1, 20, unit="calls")(spam).value == 0.0


def test_it_runs_in_training_with_the_sampled_ids():
    texts = [[{"role": "assistant", "content": "42"}]] * 3
    given = score([as_reward(length(2, 4))], [1.0], [[]] * 3, texts, [{}] * 3, [[1], [1, 2, 3], [1, 2, 3, 4]])
    assert given.total.tolist() == [1.0, 0.5, 0.0]


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["assistant", "tool", "user"])},
        optional={
            "content": st.none() | st.text() | st.integers() | st.lists(st.dictionaries(st.text(), st.text())),
            "reasoning_content": st.none() | st.text(),
            "tool_calls": st.none() | st.lists(st.dictionaries(st.text(), st.text()) | st.text()) | st.text(),
        },
    ),
    max_size=4,
)
UNITS = get_args(Unit)
ALL = [
    no_repetition(1),
    no_repetition(),
    *(length(0, 3, unit=u, cap=5, stops={1}) for u in UNITS),
    *(target_length(3, unit=u) for u in UNITS),
]


@settings(max_examples=300 * FUZZ)
@given(MESSAGES, st.lists(st.integers(0, 3), max_size=8))
def test_whatever_was_written_gets_a_score_from_zero_to_one(messages, ids):
    for verifier in ALL:
        given = verifier(Attempt(tuple(messages), tuple(ids)))
        assert given.status == "scored" and 0 <= given.value <= 1 and bool(given.reasons) == (given.value < 1)
