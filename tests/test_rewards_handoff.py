import json
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards.calls import as_messages
from earnest.rewards.handoff import Note, hand_off, hand_off_values, needed_rate, note_problem
from earnest.rewards.verifier import Attempt, Verifier, as_reward, infra_error, right, wrong

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
CASE = "Hello, my card was charged 75 twice for order A-17 and your bot keeps telling me to wait. I want my money back today, or else."
ROW = {"needs_human": True, "order": "A-17", "amount": 75, "customer": "c9", "body": CASE, "answer": None}
EASY = {"needs_human": False, "answer": "42", "body": "What is 6 times 7?"}
GOOD = "Order A-17 was charged twice (75 each); billing should check the second payment and refund it."
NOTE = Note(fields=("customer",), mentions=("order", "amount"), case=("body",))


def judged(attempt, row):
    return right() if attempt.text == row["answer"] else wrong("another answer")


ANSWER = Verifier("answer", judged, ("answer",))
TOOL, JSON = hand_off(ANSWER, note=NOTE), hand_off(ANSWER, note=NOTE, form="json")


def says(note=GOOD, customer="c9", **more):
    return {"note": note, "customer": customer, **more}


def hands(arguments, *before, after=None, result="ok"):
    return Attempt(tuple(as_messages([*before, ("hand_off", arguments)], result, after)))


def value(verifier, attempt, row):
    score = verifier(attempt, row)
    assert score.status == "scored", score
    json.dumps(dict(score.evidence))
    return score.value


def test_a_needed_hand_off_with_a_good_note_gets_full_marks_in_both_forms():
    assert value(TOOL, hands(says()), ROW) == 1.0
    assert value(JSON, json.dumps({"hand_off": says()}), ROW) == 1.0
    assert value(TOOL, hands(says(), ("lookup", {"order": "A-17"})), ROW) == 1.0


def test_the_four_cases():
    for verifier, handed in ((TOOL, hands(says())), (JSON, json.dumps({"hand_off": says()}))):
        assert value(verifier, handed, EASY) == -0.1
        assert value(verifier, "42", EASY) == 1.0
        assert value(verifier, "41", EASY) == 0.0
        assert value(verifier, "42", ROW) == value(verifier, "", ROW) == 0.0  # handoff.never


def test_a_hand_off_that_nobody_needed_is_worth_less_than_a_wrong_answer():  # handoff.always
    assert value(TOOL, hands(says()), EASY) < value(TOOL, "41", EASY)


def test_the_pay_is_as_declared():
    verifier = hand_off(ANSWER, note=NOTE, pay_needed=0.9, pay_not_needed=0.2)
    assert value(verifier, hands(says()), ROW) == 0.9 and value(verifier, hands(says()), EASY) == 0.2
    assert value(verifier, hands(says(note="")), ROW) == 0.0, "a bad note never earns"
    assert verifier.bounds == (0.0, 1.0) and TOOL.bounds == (-0.1, 1.0)


@pytest.mark.parametrize(
    "note",
    [
        "", " \n", None, 7, ["A-17 75"], "The customer needs help from a person.", "Please take over this case, thank you very much.",
        "A-17 75", "A-17, 75, A-17, 75!", "order amount A-17 75", "a a a a a a a A-17 75", CASE, CASE.upper(), f"Note: {CASE}",
        f"{CASE} A-17 75", "Order A-170 was charged twice (75 each); billing should check the second payment.",
        "Order A-17 was charged twice (750 each); billing should check the second payment.",
        "Order A-17 was charged twice (75% each); billing should check the second payment.",
        "{order} {amount} was charged twice; billing should check the second payment and refund it.", GOOD + " word" * 150,
        "my card was charged 75 twice for order A-17 and your bot keeps telling me to wait",
    ],
)  # fmt: skip
def test_a_note_that_is_empty_boilerplate_or_a_copy_earns_no_more_than_a_wrong_answer(note):  # handoff.empty_note, gen.echo_prompt
    for score in (TOOL(hands(says(note)), ROW), JSON(json.dumps({"hand_off": says(note)}), ROW)):
        assert score.value == -0.1 and len(score.reasons) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"note": GOOD},
        says(customer="c8"),
        says(customer="C9"),
        says(customer=None),
        says(customer=["c9"]),
        says(extra=1),
        {},
        {"customer": "c9"},
    ],
)
def test_the_fields_of_a_note_are_exactly_those_of_the_case(arguments):
    assert value(TOOL, hands(arguments), ROW) == value(JSON, json.dumps({"hand_off": arguments}), ROW) == -0.1


def test_fields_may_have_other_names_than_columns_and_do_without_a_text():
    verifier = hand_off(ANSWER, note=Note(text=None, fields={"who": "customer", "sum": "amount"}))
    assert value(verifier, hands({"who": "c9", "sum": 75.0}), ROW) == 1.0
    for bad in ({"who": "c9", "sum": "75"}, {"who": "c9", "sum": True}, {"who": "c9"}, {"who": "c9", "sum": 75, "note": "x"}):
        assert value(verifier, hands(bad), ROW) == -0.1


def test_every_value_of_a_list_must_be_mentioned():
    row = {**ROW, "order": ["A-17", "B-2"]}
    assert note_problem(NOTE, says(), row) == "the note does not mention the order"
    assert note_problem(NOTE, says(GOOD + " See also B-2."), row) == ""


def test_a_copy_of_two_columns_is_a_copy():
    row = {**ROW, "order": "A-17", "subject": "Order A-17 was charged twice on my card last week"}
    note = Note(mentions=("order",), case=("body", "subject"))
    copied = "Order A-17 was charged twice on my card, your bot keeps telling me to wait. I want my money. Please help him"
    assert note_problem(note, {"note": copied}, row) == "the note is a copy of the case"
    for column in note.case:
        assert note_problem(Note(mentions=("order",), case=(column,)), {"note": copied}, row) == "", "of neither alone"


@pytest.mark.parametrize(
    "note",
    [
        "One of the orders A-12, A-13, A-14, A-15, A-16, A-17 (75) was charged twice; billing should look at it.",
        "Orders a-17, b-17, c-17, d-17 and e-17: 75 was charged twice by our bank and somebody should pay it back.",
        "Order A-17 was charged 71, 72, 73, 74, 75 or 76 twice; billing should check the second payment.",
    ],
)
def test_a_note_that_names_everything_names_nothing(note):
    assert note_problem(NOTE, says(note), ROW) == "the note names many things beside what it must mention"
    assert note_problem(Note(("note"), ("customer",), ("order", "amount"), ("body",), most_others=9), says(note), ROW) == ""


def test_a_note_may_name_some_other_things():
    text = "Order A-17 was charged twice, 75 on 3 May and 75 on 4 May, the second as A-18; billing should check it."
    assert note_problem(NOTE, says(text), ROW) == ""


def test_a_note_may_quote_the_case_but_not_only():
    quoting = (
        'Order A-17, 75: the customer says "your bot keeps telling me to wait" and threatens a chargeback, so billing should call first.'
    )
    assert note_problem(NOTE, says(quoting), ROW) == ""


@pytest.mark.parametrize(
    "note",
    ["订单 A-17 被重复扣款 75，请财务核对后退款。", "La commande A-17 a été débitée deux fois de 75, merci de vérifier le paiement."],
)
def test_notes_in_other_languages_have_words_too(note):
    assert note_problem(NOTE, says(note), ROW) == ""


# an ending, and no answer beside it


def test_a_hand_off_ends_the_attempt():
    look = as_messages([("lookup", {})])
    for attempt in (
        hands(says(), after="I have also refunded you."),
        hands(says(), after="42"),
        Attempt((*hands(says()).messages, *look)),
        Attempt((*hands(says()).messages, *hands(says()).messages)),
        Attempt((*hands(says()).messages, look[0])),
    ):
        assert value(TOOL, attempt, ROW) == -0.1
    assert value(TOOL, hands(says(), after="  "), ROW) == 1.0


def test_a_few_closing_words_can_be_allowed():
    verifier = hand_off(ANSWER, note=NOTE, closing_words=6)
    assert value(verifier, hands(says(), after="A colleague will write to you."), ROW) == 1.0
    assert value(verifier, hands(says(), after="A colleague will write to you. 42!"), ROW) == -0.1


def test_handing_off_with_an_answer_beside_it_earns_neither():
    both = [{"hand_off": says(), "answer": "42"}, {"hand_off": says(), "confidence": 0.5}]
    for answer in both:
        assert value(JSON, json.dumps(answer), ROW) == -0.1 and value(JSON, json.dumps(answer), EASY) == -0.1
    assert value(TOOL, hands(says(), after="42"), EASY) == -0.1


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"hand_off": says()}) + " as asked", "I hand this over: " + json.dumps({"hand_off": says()}), "hand_off",
        "I want a human.",
        '{"hand_off": 1, "hand_off": ' + json.dumps(says()) + "}", "```json\n" + json.dumps({"hand_off": says()}) + "\n```",
        '<tool_call>{"name": "hand_off", "arguments": ' + json.dumps(says()) + "}</tool_call>", json.dumps({"HAND_OFF": says()}),
    ],
)  # fmt: skip
def test_text_that_is_no_hand_off_is_an_answer(text):  # tool.fake_result
    assert value(JSON, text, ROW) == value(TOOL, text, ROW) == 0.0
    assert value(JSON, text, EASY) == value(TOOL, text, EASY) == 0.0


def test_only_an_executed_call_hands_off():
    asked = Attempt(hands(says()).messages[:1])
    failed = hands(says(), result='{"error": "nobody there"}')
    for attempt in (asked, failed):
        assert value(TOOL, attempt, ROW) == 0.0 and TOOL(attempt, ROW).evidence["handed_off"] is False
    retried = Attempt((*failed.messages, *hands(says()).messages))
    assert value(TOOL, retried, ROW) == 1.0


@pytest.mark.parametrize("inside", [True, None, "please", [], 3, {}])
def test_a_hand_off_without_a_note_is_one_all_the_same(inside):
    assert value(JSON, json.dumps({"hand_off": inside}), ROW) == value(JSON, json.dumps({"hand_off": inside}), EASY) == -0.1


def test_a_late_hand_off_costs():  # handoff.late
    verifier = hand_off(ANSWER, note=NOTE, free_calls=2, late_cost=0.25)
    looks = [("lookup", {"page": page}) for page in range(9)]
    assert [value(verifier, hands(says(), *looks[:count]), ROW) for count in (0, 2, 3, 4, 6, 9)] == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]


# rows and options


@pytest.mark.parametrize(
    "row",
    [{}, {**ROW, "needs_human": "yes"}, {**ROW, "needs_human": 1}, {**ROW, "order": None}, {**ROW, "body": None}, {**EASY, "answer": None}],
)
def test_a_row_that_does_not_say_is_invalid_whatever_was_done(row):
    for attempt in (hands(says()), Attempt.of("42")):
        assert TOOL(attempt, row).status == "invalid_task"


@pytest.mark.parametrize(
    "note",
    [
        Note(),
        Note(fields=("customer",)),
        Note(text=None),
        Note(text=None, mentions=("order",)),
        Note(mentions=("order",)),
        Note(case=("body",)),
    ],
)
def test_a_note_that_would_do_for_any_case_is_refused_at_once(note):
    with pytest.raises(UserError, match="one note"):
        hand_off(ANSWER, note=note)


@pytest.mark.parametrize("options", [{"pay_needed": float("nan")}, {"pay_not_needed": float("-inf")}, {"late_cost": -1}])
def test_pays_are_finite_numbers(options):
    with pytest.raises(UserError, match="finite"):
        hand_off(ANSWER, note=NOTE, **options)


def test_what_the_answers_verifier_cannot_say_stays_unsaid():
    broken = Verifier("answer", lambda attempt, row: infra_error("down"))
    assert hand_off(broken, note=NOTE)("42", EASY).status == "infra_error"
    assert hand_off(broken, note=NOTE)(hands(says()), EASY).value == -0.1


def test_it_is_a_reward_function_that_counts_hand_offs():
    logged = {}
    columns = {key: [ROW.get(key), EASY.get(key), EASY.get(key)] for key in {**ROW, **EASY}}
    values = as_reward(TOOL)(
        completions=[list(hands(says()).messages), "42", list(hands(says()).messages)], log_metric=logged.__setitem__, **columns
    )
    assert values == [1.0, 1.0, -0.1]
    assert logged["hand_off/handed_off"] == pytest.approx(2 / 3) and logged["hand_off/handed_off_when_needed"] == 1.0


# what it is worth to decide nothing


def test_the_values_are_those_worked_out_by_hand():
    # 100 rows, 20 need a person, answers right half the time: always 20 - 8, never 40, honest 20 + 40, oracle 20 + 80
    values = hand_off_values(0.2, accuracy=0.5)
    assert [round(v, 9) for v in (values.always, values.never, values.honest, values.oracle)] == [0.12, 0.4, 0.6, 1.0]
    assert values.break_even == pytest.approx(0.15) and values.warnings == ()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("pays", [(1.0, -0.1), (0.5, 0.3), (1.0, 0.9)])
@pytest.mark.parametrize("accuracy", [0.0, 0.3, 1.0])
def test_the_values_are_the_means_of_the_verifier_itself(rate, pays, accuracy):
    verifier = hand_off(ANSWER, note=NOTE, pay_needed=pays[0], pay_not_needed=pays[1])
    rows = [ROW] * round(10 * rate) + [EASY] * round(10 - 10 * rate)
    always = sum(value(verifier, hands(says()), row) for row in rows) / 10
    right_one, wrong_one = ([value(verifier, text, row) for row in rows] for text in ("42", "41"))
    never = sum(accuracy * r + (1 - accuracy) * w for r, w in zip(right_one, wrong_one, strict=True)) / 10
    oracle = sum(value(verifier, hands(says()) if row["needs_human"] else "42", row) for row in rows) / 10
    values = hand_off_values(needed_rate(rows), accuracy=accuracy, pay_needed=pays[0], pay_not_needed=pays[1])
    assert (values.always, values.never, values.oracle) == pytest.approx((always, never, oracle))


@settings(max_examples=200 * FUZZ)
@given(st.floats(0, 0.99), st.floats(0, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_at_the_break_even_both_who_do_not_decide_earn_the_same(rate, accuracy, pay, cost):
    even = hand_off_values(rate, accuracy=accuracy, pay_needed=pay, pay_not_needed=cost).break_even
    if 0 <= even <= 1:
        values = hand_off_values(rate, accuracy=even, pay_needed=pay, pay_not_needed=cost)
        assert values.always == pytest.approx(values.never, abs=1e-9)


def test_always_handing_off_beside_an_honest_answerer_is_warned_of():  # handoff.always
    (warning,) = hand_off_values(0.2, accuracy=0.4, pay_not_needed=0.5).warnings
    assert warning.startswith("always handing off (0.600) beats an honest answerer of accuracy 0.4 (0.520)")
    (warning,) = hand_off_values(0.5, accuracy=0.4).warnings
    assert "drifts to handing everything off" in warning and "0.900" in warning
    assert hand_off_values(0.2, accuracy=0.5).warnings == ()


def test_pays_that_teach_nothing_are_warned_of():
    assert any("nobody learns" in w for w in hand_off_values(0.2, accuracy=0.5, pay_needed=0.0).warnings)
    assert any("no row needs" in w for w in hand_off_values(0.0, accuracy=0.5).warnings)
    assert any("every row needs" in w for w in hand_off_values(1.0, accuracy=0.5).warnings)
    assert hand_off_values(1.0, accuracy=0.5).break_even is None


def test_the_table_has_every_policy_and_the_warnings():
    table = hand_off_values(0.5, accuracy=0.4).table()
    assert (
        "50.0% of rows" in table
        and "always hands off" in table
        and "+0.450" in table
        and "above accuracy 0.900" in table
        and "warning:" in table
    )
    assert hand_off_values(1.0, accuracy=0.4).table().count("answering everything beats handing off everything: never") == 1


@pytest.mark.parametrize(
    "options", [{"needed_rate": 1.2}, {"needed_rate": float("nan")}, {"accuracy": -0.1}, {"right": 0.0}, {"pay_needed": float("inf")}]
)
def test_numbers_without_sense_are_told(options):
    with pytest.raises(UserError):
        hand_off_values(**({"needed_rate": 0.5, "accuracy": 0.5} | options))


def test_the_rate_is_that_of_the_rows_that_say():
    assert needed_rate([ROW, EASY, EASY, EASY, {"needs_human": None}, {}, {"needs_human": 1}]) == 0.25
    with pytest.raises(UserError, match="needs_human"):
        needed_rate([{}])


# whatever is written


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([GOOD, "c9"]),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["note", "customer", "hand_off", "x"]), v, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300 * FUZZ)
@given(JUNK, st.text(max_size=20), st.booleans())
def test_no_hand_off_crashes(arguments, after, as_text):
    try:
        given_arguments = json.dumps(arguments) if as_text else arguments
    except ValueError:
        given_arguments = arguments
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "hand_off", "arguments": given_arguments}}]}
    attempt = Attempt((call, {"role": "tool", "content": "ok"}, {"role": "assistant", "content": after}))
    for row in (ROW, EASY):
        assert value(TOOL, attempt, row) in (-0.1, 1.0) and value(JSON, json.dumps({"hand_off": arguments}), row) in (-0.1, 0.0, 1.0)


def test_mutated_hand_offs_crash_nothing():
    dice = random.Random(0)
    honest = json.dumps({"hand_off": says()}).encode()
    for _ in range(1_500 * FUZZ):
        data = bytearray(honest)
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(data))
            data[place : place + dice.randint(0, 2)] = bytes(dice.randrange(256) for _ in range(dice.randint(0, 2)))
        for row in (ROW, EASY):
            assert -0.1 <= value(JSON, data.decode(errors=dice.choice(["replace", "surrogateescape"])), row) <= 1.0


@pytest.mark.parametrize(
    "text", ["9" * 90_000, "1," * 40_000, "- " * 40_000, "A-17 " * 15_000, "a" * 90_000, "٣" * 9_000, "-" * 90_000, "x,9" * 30_000]
)
def test_hostile_notes_end_soon(text):
    assert value(TOOL, hands(says(text)), ROW) == -0.1
