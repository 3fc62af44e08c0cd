import copy
import gzip
import itertools
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards.calls import as_messages
from earnest.rewards.matching import ABSENT, Column, Number, OneOf, columns_in, equal, fits, frozen, mentions, pair_up
from earnest.rewards.policy import MOST_CALLS, Before, Call, hidden_by_gates, tool_policy
from earnest.rewards.verifier import Attempt, as_reward

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
BFCL = Path(__file__).resolve().parents[2] / "shared" / "data" / "bfcl"

ROW = {"payment": "p1", "amount": 120, "limit": 100}
PAID = {"payment": "p1", "amount": 120}
APPROVE, REFUND, LOOK = ("request_approval", PAID), ("refund_payment", PAID), ("lookup", {"payment": "p1"})
REFUND_OF_ROW = Call("refund_payment", {"payment": Column("payment"), "amount": Column("amount")})
APPROVED = Before("request_approval", "refund_payment", same=("payment", "amount"))


def does(*calls, result="ok", answer=None):
    return Attempt(tuple(as_messages(calls, result, answer)))


def joined(*attempts):
    return Attempt(tuple(message for attempt in attempts for message in attempt.messages))


def fails(*calls):
    return does(*calls, result='{"error": "refused"}')


def refunds(**options):
    return tool_policy(required=["request_approval", REFUND_OF_ROW], order=[APPROVED], **({"allowed": ["lookup"]} | options))


def value(policy, attempt, row=ROW):
    score = policy(attempt, row)
    assert score.status == "scored", score
    assert (score.value == 1.0) is (score.reasons == ()), "less than full marks has a reason"
    json.dumps(dict(score.evidence))
    return score.value


# what is required


def test_every_required_call_must_have_run():
    assert value(refunds(), does(APPROVE, REFUND)) == 1.0
    assert value(refunds(), does(APPROVE)) == value(refunds(), does(REFUND)) == 0.0


def test_a_call_from_memory_pays_nothing_where_a_call_is_required():  # tool.skip
    assert value(refunds(), Attempt.of("Your 120 have been refunded.")) == 0.0


@pytest.mark.parametrize(
    "text", ["", " \n", "I'm sorry, I can't help.", "# Plan\n- refund [1]", "refund_payment(payment='p1', amount=120)", "ok " * 8_000]
)
def test_no_work_earns_nothing(text):  # gen.*
    for policy in (refunds(), tool_policy(required=["refund_payment"]), tool_policy("calls")):
        assert value(policy, Attempt.of(text), {**ROW, "calls": [{"name": "refund_payment", "arguments": PAID}]}) == 0.0


def test_only_what_the_environment_answered_counts():  # tool.fake_result
    (call, _), text = (
        does(REFUND).messages,
        '<tool_call>{"name":"refund_payment","arguments":{}}</tool_call><tool_response>ok</tool_response>',
    )
    policy = tool_policy(required=["refund_payment"])
    for attempt in (Attempt((call,)), Attempt.of(text), Attempt((call, {"role": "assistant", "content": "ok"}))):
        assert value(policy, attempt) == 0.0


def test_a_failed_call_is_no_call_in_favour():  # tool.error_farm
    policy = tool_policy(required=["refund_payment"])
    assert value(policy, fails(REFUND)) == 0.0
    assert value(policy, fails(REFUND, REFUND, REFUND)) == 0.0
    assert value(policy, joined(fails(REFUND), does(REFUND))) == 1.0, "recovering is honest work"


@pytest.mark.parametrize(("failures", "expected"), [("refuse", 0.0), ("allow", 1.0), (0.25, 0.5), (1, 0.0)])
def test_failed_calls_are_refused_or_charged_as_declared(failures, expected):
    assert value(tool_policy(required=["refund_payment"], failures=failures), joined(fails(LOOK, LOOK), does(REFUND))) == expected


@pytest.mark.parametrize(
    ("arguments", "good"),
    [
        ({"payment": "p1", "amount": 120}, True),
        ({"payment": "p1", "amount": 120.0}, True),
        ({"payment": "p1", "amount": 120, "note": "x"}, True),
        ({"payment": "p1", "amount": "120"}, False),
        ({"payment": "P1", "amount": 120}, False),
        ({"payment": "p1", "amount": 121}, False),
        ({"payment": "p1", "amount": True}, False),
        ({"payment": "p1", "amount": None}, False),
        ({"payment": "p1", "amount": [120]}, False),
        ({"payment": "p1"}, False),
        ({"payment": ["p1", "p2"], "amount": 120}, False),
        ({}, False),
    ],
)
def test_arguments_are_those_of_the_row(arguments, good):
    assert (value(tool_policy(required=[REFUND_OF_ROW]), does(("refund_payment", arguments))) == 1.0) is good


@pytest.mark.parametrize(
    ("arguments", "good"),
    [({"amount": 5}, True), ({"amount": True}, False), ({"amount": "5"}, False), ({"amount": 5, "x": 1}, False), ({}, False)],
)
def test_arguments_keep_the_schema_of_their_tool(arguments, good):
    schema = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"], "additionalProperties": False}
    assert (value(tool_policy(required=["refund"], schemas={"refund": schema}), does(("refund", arguments))) == 1.0) is good


def test_a_column_that_a_pattern_names_is_asked_for():
    assert set(refunds().columns) == {"payment", "amount"}
    assert refunds()(does(APPROVE, REFUND), {"payment": "p1"}).status == "invalid_task"


# one call for one expectation


def test_one_call_meets_one_expectation():
    two = [{"name": "play", "arguments": {"artist": "A"}}, {"name": "play", "arguments": {"artist": "A"}}]
    once, twice = does(("play", {"artist": "A"})), does(*[("play", {"artist": "A"})] * 2)
    assert value(tool_policy("calls"), once, {"calls": two}) == 0.0
    assert value(tool_policy("calls"), twice, {"calls": two}) == 1.0
    assert value(tool_policy("calls"), twice, {"calls": two[:1]}) == 0.0


def test_the_assignment_is_the_largest_not_the_first():
    # greedy in either order gives f(1) to "any f" first and leaves "f(1)" without one
    policy = tool_policy(required=["f", Call("f", {"x": 1})])
    assert value(policy, does(("f", {"x": 1}), ("f", {"x": 2}))) == 1.0
    assert value(policy, does(("f", {"x": 2}), ("f", {"x": 1}))) == 1.0
    assert value(policy, does(("f", {"x": 2}), ("f", {"x": 3}))) == 0.0


def slow_pairs(fit, prefer):
    """Every assignment, tried."""
    rows, columns = len(fit), len(fit[0]) if fit else 0
    best = (0, 0)
    for chosen in itertools.product(range(-1, columns), repeat=rows):
        used = [column for column in chosen if column >= 0]
        if len(set(used)) == len(used) and all(column < 0 or fit[row][column] for row, column in enumerate(chosen)):
            best = max(best, (len(used), sum(prefer[column] for column in used)))
    return best


@settings(max_examples=150 * FUZZ)
@given(
    st.integers(0, 4).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), max_size=4)),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_pairs_are_as_many_as_possible_and_then_the_preferred_ones(fit, prefer):
    prefer = prefer[: len(fit[0]) if fit else 0]
    pairs = pair_up(fit, prefer)
    assert all(fit[row][column] for row, column in pairs.items()) and len(set(pairs.values())) == len(pairs)
    assert (len(pairs), sum(prefer[column] for column in pairs.values())) == slow_pairs(fit, prefer)


@pytest.mark.parametrize(("partial", "expected"), [(False, 0.0), (True, 2 / 3)])
def test_a_share_of_the_calls_pays_only_by_option(partial, expected):
    policy = tool_policy(required=["a", "b", "c"], partial=partial)
    assert value(policy, does(("a", {}), ("c", {}))) == pytest.approx(expected)
    assert value(policy, Attempt.of("")) == 0.0


# what is too much


@pytest.mark.parametrize(("extra", "expected"), [("refuse", 0.0), ("allow", 1.0), (0.1, 0.8), (0, 1.0), (5, 0.0)])
def test_extra_calls_are_refused_or_charged_as_declared(extra, expected):
    attempt = does(REFUND, ("close_account", {}), ("send_mail", {}))
    assert value(tool_policy(required=[REFUND_OF_ROW], extra=extra), attempt) == pytest.approx(expected)


def test_the_same_call_with_a_wrong_argument_is_extra():
    assert value(tool_policy(required=[REFUND_OF_ROW]), does(REFUND, ("refund_payment", {"payment": "p2", "amount": 120}))) == 0.0


@pytest.mark.parametrize(("duplicates", "expected"), [("refuse", 0.0), ("allow", 1.0), (0.01, 0.81)])
def test_twenty_equal_calls_earn_no_more_than_one(duplicates, expected):  # tool.spam
    policy = refunds(duplicates=duplicates)
    assert value(policy, does(LOOK, APPROVE, REFUND)) == 1.0
    assert value(policy, does(*[LOOK] * 20, APPROVE, REFUND)) == pytest.approx(expected)


@pytest.mark.parametrize("again", [PAID, {"payment": "p1", "amount": 120.0}, {**PAID, "note": "again"}, {"amount": 120, "payment": "p1"}])
def test_a_second_refund_is_a_duplicate_however_it_is_written(again):
    score = refunds(extra="allow")(does(APPROVE, REFUND, ("refund_payment", again)), ROW)
    assert score.value == 0.0 and score.evidence["duplicate"] == 1 and score.reasons == ("1 duplicate call",)


def test_a_free_call_is_left_free_where_another_can_be_assigned():
    policy = tool_policy(required=["f"], allowed=[Call("f", {"x": 1})])
    assert value(policy, does(("f", {"x": 2}))) == 1.0
    assert value(policy, does(("f", {"x": 1}), ("f", {"x": 2}))) == 1.0
    assert value(policy, does(("f", {"x": 3}), ("f", {"x": 2}))) == 0.0


@pytest.mark.parametrize(
    ("at_most", "good", "bad"),
    [(2, 2, 3), ({"lookup": 1}, 2, 3), ({"": 2}, 2, 3), (5, 5, 6)],
)
def test_more_calls_than_the_limit_earn_nothing(at_most, good, bad):  # S-TC-05, tool.loop_to_limit
    policy = tool_policy(required=["refund_payment"], allowed=["lookup"], at_most=at_most)
    looks = [("lookup", {"page": page}) for page in range(10)]
    assert value(policy, does(*looks[: good - 1], REFUND)) == 1.0
    assert value(policy, does(*looks[: bad - 1], REFUND)) == 0.0
    assert value(policy, joined(fails(*looks[: bad - 1]), does(REFUND))) == 0.0, "a failed call is spent too"


def test_calls_without_end_are_scored():  # S-TC-05
    policy = tool_policy(required=["refund_payment"], allowed=["lookup"], duplicates="allow")
    assert value(policy, does(*[LOOK] * MOST_CALLS, REFUND)) == 0.0
    assert value(policy, does(*[LOOK] * (MOST_CALLS - 1), REFUND)) == 1.0


# what is forbidden


def test_a_forbidden_call_takes_everything():  # tool.forbidden_then_ok
    policy = refunds(forbidden=["delete_account"], allowed=["lookup", "delete_account"], extra="allow", partial=True)
    assert value(policy, does(APPROVE, REFUND)) == 1.0
    score = policy(does(("delete_account", {}), APPROVE, REFUND), ROW)
    assert score.value == 0.0 and score.reasons == ("broken: no delete_account",)


@pytest.mark.parametrize(
    ("amount", "broken"),
    [
        (101, True),
        (100, False),
        (99.9, False),
        ("150", True),
        ("no limit", True),
        (None, True),
        (True, True),
        ([150], True),
        (ABSENT, True),
    ],
)
def test_what_cannot_be_compared_with_a_limit_is_over_it(amount, broken):
    policy = tool_policy(required=["refund"], forbidden=[Call("refund", {"amount": Number(above=Column("limit"))})])
    arguments = {} if amount is ABSENT else {"amount": amount}
    assert (value(policy, does(("refund", arguments))) == 0.0) is broken


def test_a_forbidden_call_that_failed_counts_unless_declared_otherwise():
    attempt = joined(fails(("delete_account", {})), does(APPROVE, REFUND))
    assert value(refunds(forbidden=["delete_account"]), attempt) == 0.0
    assert value(refunds(forbidden=["delete_account"], attempts=False), attempt) == 1.0


def test_a_call_with_broken_arguments_that_the_environment_ran_counts_against_its_maker():  # S-TC-06
    forbidden = [Call("refund_payment", {"amount": Number(above=1000)})]
    broken = {"role": "assistant", "tool_calls": [{"function": {"name": "refund_payment", "arguments": '{"amount": 1'}}]}
    ran, refused = {"role": "tool", "content": "ok"}, {"role": "tool", "content": '{"error": "bad arguments"}'}
    good = does(APPROVE, REFUND).messages
    assert value(refunds(forbidden=forbidden), Attempt((broken, ran, *good))) == 0.0
    assert value(refunds(forbidden=forbidden), Attempt((broken, refused, *good))) == 1.0


# order


def test_approval_comes_before_the_refund():  # tool.order_swap, S-TE-04
    score = refunds()(does(REFUND, APPROVE), ROW)
    assert score.value == 0.0 and score.reasons == ("broken: request_approval before refund_payment for the same payment and amount",)


@pytest.mark.parametrize(
    "approved",
    [{"payment": "p2", "amount": 120}, {"payment": "p1", "amount": 12}, {"payment": "p1"}, {"payment": "p1", "amount": "120"}, {}],
)
def test_approval_of_something_else_is_none(approved):
    assert value(refunds(), does(("request_approval", approved), REFUND)) == 0.0


def test_an_approval_that_failed_or_was_never_answered_is_none():
    policy = refunds(extra="allow", duplicates="allow")
    (asked, _) = does(APPROVE).messages
    assert value(policy, joined(fails(APPROVE), does(REFUND), does(APPROVE))) == 0.0
    assert value(policy, joined(Attempt((asked,)), does(REFUND), does(APPROVE))) == 0.0
    assert value(policy, joined(fails(APPROVE), does(APPROVE), does(REFUND))) == 1.0


def test_an_approval_that_was_denied_is_none():
    given = Call("request_approval", result={"approved": True})
    policy = tool_policy(required=["refund_payment"], allowed=["request_approval"], order=[Before(given, "refund_payment")])
    for result in ('{"approved": true}', {"approved": True}, "{'approved': True, 'by': 'A'}"):
        assert value(policy, joined(does(APPROVE, result=result), does(REFUND))) == 1.0
    for result in ('{"approved": false}', '{"approved": "true"}', "approved", '{"approved": 1}', "{}", "", {"approved": None}):
        assert value(policy, joined(does(APPROVE, result=result), does(REFUND))) == 0.0


def test_in_one_turn_nobody_has_seen_the_approval_yet():
    calls = [message for message in does(APPROVE, REFUND).messages if message["role"] == "assistant"]
    both = {"role": "assistant", "content": "", "tool_calls": [call["tool_calls"][0] for call in calls]}
    attempt = Attempt((both, *(message for message in does(APPROVE, REFUND).messages if message["role"] == "tool")))
    at_once = Before("request_approval", "refund_payment", same_turn=True)
    assert value(refunds(), attempt) == 0.0
    assert value(tool_policy(required=["request_approval", REFUND_OF_ROW], order=[at_once]), attempt) == 1.0


def test_one_approval_may_have_to_do_for_one_refund():
    for each, expected in ((True, 0.0), (False, 1.0)):
        rule = Before("request_approval", "refund_payment", each=each)
        policy = tool_policy(required=["refund_payment", "refund_payment"], allowed=["request_approval"], order=[rule])
        refund = [("refund_payment", {"payment": name}) for name in "ab"]
        assert value(policy, does(APPROVE, *refund)) == expected
        assert value(policy, does(APPROVE, ("request_approval", {}), *refund)) == 1.0


def test_arguments_with_two_names_can_be_the_same():
    rule = Before("approve", "refund", same=[("invoice", "payment")])
    policy = tool_policy(required=["approve", "refund"], order=[rule])
    assert value(policy, does(("approve", {"invoice": 7}), ("refund", {"payment": 7}))) == 1.0
    assert value(policy, does(("approve", {"payment": 7}), ("refund", {"invoice": 7}))) == 0.0


@pytest.mark.parametrize(
    ("amount", "approved", "good"), [(100, False, True), (101, False, False), (101, True, True), ("101", False, False)]
)
def test_approval_is_needed_over_a_limit(amount, approved, good):
    rule = Before("request_approval", Call("refund", {"amount": Number(above=Column("limit"))}))
    policy = tool_policy(required=["refund"], allowed=["request_approval"], order=[rule])
    attempt = does(*[APPROVE] * approved, ("refund", {"amount": amount}))
    assert (value(policy, attempt) == 1.0) is good


def test_an_early_call_that_failed_counts_unless_declared_otherwise():
    attempt = joined(fails(REFUND), does(APPROVE, REFUND))
    assert value(refunds(), attempt) == 0.0
    assert value(refunds(attempts=False), attempt) == 1.0


# what is shown


def test_each_rule_says_whether_it_held_and_whether_it_counts():  # S-TE-04
    policy = tool_policy(required=["refund"], forbidden=["close"], reported=["lookup", ("verify_identity", "refund")])
    score = policy(does(("refund", {})))
    assert score.value == 1.0
    assert score.evidence["rules"] == [
        {"rule": "no close", "held": True, "counts": True},
        {"rule": "no lookup", "held": True, "counts": False},
        {"rule": "verify_identity before refund", "held": False, "counts": False},
    ]
    counted = tool_policy(required=["refund"], order=[("verify_identity", "refund")])(does(("refund", {})))
    assert counted.value == 0.0 and counted.reasons == ("broken: verify_identity before refund",)


def test_a_gate_that_makes_right_and_wrong_equal_is_told():  # S-RC-08
    policy = tool_policy("calls", forbidden=["export"], extra="allow", partial=True)
    row = {"calls": [{"name": "find", "arguments": {"q": "x"}}]}
    right, wrong = does(("find", {"q": "x"}), ("export", {})), does(("find", {"q": "y"}), ("export", {}))
    scores = [policy(attempt, row) for attempt in (right, wrong)]
    assert [score.value for score in scores] == [0.0, 0.0] and [score.evidence["ungated"] for score in scores] == [1.0, 0.0]
    (told,) = hidden_by_gates(scores)
    assert told.startswith("gate makes correct and wrong equal: no export")
    assert hidden_by_gates([scores[0], scores[0]]) == hidden_by_gates([]) == ()


def test_with_the_gate_on_the_gated_part_only_right_beats_wrong():  # S-RC-08
    policy, safe = tool_policy("calls", extra="allow"), tool_policy(forbidden=["export"], extra="allow", gate=True)
    row = {"calls": [{"name": "find", "arguments": {"q": "x"}}]}
    right, wrong = (
        0.75 * value(policy, a, row) + 0.25 * value(safe, a, row)
        for a in (does(("find", {"q": "x"}), ("export", {})), does(("find", {"q": "y"}), ("export", {})))
    )
    assert right > wrong


# rows and options


@pytest.mark.parametrize(
    "calls",
    [
        "refund",
        {"name": "a", "arguments": {}},
        [1],
        [{"name": 1, "arguments": {}}],
        [{"arguments": {}}],
        [{"name": "a", "arguments": []}],
        [None],
    ],
)
def test_a_row_whose_calls_are_none_is_an_invalid_task(calls):
    assert tool_policy("calls")(does(("a", {})), {"calls": calls}).status == "invalid_task"


def test_a_row_whose_own_calls_break_the_policy_is_an_invalid_task():  # S-TE-05
    row = {"calls": [{"name": "refund", "arguments": {"amount": 500}}, {"name": "verify", "arguments": {}}]}
    for options in (
        {"forbidden": [Call("refund", {"amount": Number(above=100)})]},
        {"order": [("verify", "refund")]},
        {"at_most": 1},
        {"schemas": {"refund": {"maxProperties": 0}}},
    ):
        for attempt in (does(("refund", {"amount": 500}), ("verify", {})), Attempt.of("")):
            score = tool_policy("calls", **options)(attempt, row)
            assert score.status == "invalid_task" and "the row's own calls break the policy" in score.reasons[0]
    assert tool_policy("calls", order=[("login", "refund")], allowed=["login"])(Attempt.of(""), row).status == "scored"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.dictionaries(st.sampled_from("xy"), st.integers(0, 2) | st.booleans() | st.text(max_size=2), max_size=2),
        ),
        max_size=4,
    )
)
def test_the_reference_played_earns_full_marks(calls):  # S-TE-05
    row = {"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}
    assert value(tool_policy("calls"), does(*calls, answer="done"), row) == 1.0
    assert value(tool_policy("calls"), does(*reversed(calls), answer="done"), row) == 1.0
    assert value(tool_policy("calls"), does(*calls, ("d", {}), answer="done"), row) == 0.0


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [(Attempt.of("I need no tool for that: 42."), 1.0), (Attempt.of(" "), 0.0), (Attempt(()), 0.0), (does(LOOK, answer="42"), 0.0)],
)
def test_where_no_call_is_expected_an_answer_without_one_is_right_and_silence_is_not(attempt, expected):
    assert value(tool_policy("calls"), attempt, {"calls": []}) == expected


def test_a_policy_that_wants_nothing_says_that_it_is_a_gate():
    with pytest.raises(UserError, match="gate=True"):
        tool_policy(forbidden=["delete"])
    gate = tool_policy(forbidden=["delete"], extra="allow", gate=True)
    assert (value(gate, does(LOOK)), value(gate, does(("delete", {})))) == (1.0, 0.0)


@pytest.mark.parametrize(
    "options", [{"extra": "warn"}, {"duplicates": -1}, {"failures": float("nan")}, {"extra": None}, {"schemas": {"a": {"type": "int"}}}]
)
def test_an_option_without_sense_is_told_at_once(options):
    with pytest.raises(UserError, match="tool_policy"):
        tool_policy(required=["a"], **options)


def test_it_is_a_reward_function():
    reward = as_reward(refunds())
    completions = [list(does(APPROVE, REFUND).messages), list(does(REFUND).messages)]
    assert reward(completions=completions, payment=["p1"] * 2, amount=[120] * 2) == [1.0, 0.0]


# when a value is the one that was asked for


@pytest.mark.parametrize(
    ("pattern", "given_value", "answer"),
    [
        (1, 1, True), (1, 1.0, True), (1, True, None), (1, "1", None), (True, True, True), (True, 1, None), (False, 0, None), (1, 2, False),
        ("a", "a", True), ("a", "A", None), ("a", " a ", None), ("a", "b", False), (None, None, True), (None, ABSENT, False),
        ("", ABSENT, False), ([1, "a"], [1, "a"], True), ([1], [1, 1], False), ([1], 1, False), ({"x": 1}, {"x": 1}, True),
        ({"x": 1}, {"x": 1, "y": 2}, False),
        ({"x": 1}, {}, False), ({"x": OneOf([1, 2])}, {"x": 2}, True), ({"x": OneOf([1], absent=True)}, {}, True),
        ([Number(above=1)], [2], True), (Column("c"), "v", True), (Column("c"), "V", None), (Column("c"), ABSENT, False),
        (OneOf([1, 2]), 3, False),
        (OneOf([1, 2]), "2", None), (OneOf([1]), ABSENT, False), (OneOf([1], absent=True), ABSENT, True),
        (Number(at_least=1, at_most=2), 2, True),
        (Number(at_least=1, below=2), 2, False), (Number(above=Column("n")), 6, True), (Number(above=Column("n")), 5, False),
        (Number(), "2", None), (Number(), True, None), (Number(), ABSENT, None), (lambda v: v > 1, 2, True), (lambda v: v > 1, 1, False),
        (lambda v: v > 1, "2", None), (lambda v: True, ABSENT, None), (float("nan"), float("nan"), False), (10**400, 10**400, True),
        (Number(above=1.5), 10**400, True),
    ],
)  # fmt: skip
def test_a_value_fits_or_not_or_it_cannot_be_said(pattern, given_value, answer):
    assert fits(pattern, given_value, {"c": "v", "n": 5}) is answer or (pattern != pattern and answer is False)


def test_columns_are_found_wherever_a_pattern_has_them():
    pattern = {"a": [Column("x"), OneOf([1, {"b": Column("y")}])], "c": Number(above=Column("z")), "d": Column("x")}
    assert set(columns_in(pattern)) == {"x", "y", "z"} and columns_in("x", None, 3) == ()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, -0.0, 0.5]) | st.text("aA1 ", max_size=2),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text("ab", max_size=1), v, max_size=2),
    max_leaves=5,
)


@settings(max_examples=300 * FUZZ)
@given(PLAIN, PLAIN)
def test_equal_fitting_and_frozen_agree(one, other):
    assert equal(one, one) and equal(one, other) is equal(other, one)
    assert equal(one, other) is (frozen(one) == frozen(other)) is (fits(one, other, {}) is True)


@pytest.mark.parametrize(
    ("text", "wanted", "holds"),
    [
        ("You get 10.", 10, True), ("$10", 10, True), ("10.00 back", 10, True), ("1,010", 1010, True), ("(10)", 10, True),
        ("-10", -10, True), ("2100", 10, False), ("10.5", 10, False), ("10,000", 10, False), ("10%", 10, False), ("10:30", 10, False),
        ("5-10", 10, False),
        ("2010-10-11", 10, False), ("x10", 10, False), ("10th", 10, False), ("-10", 10, False), ("1/10", 10, False), ("0.10", 10, False),
        ("9" * 500, 10, False), ("order A-17 is late", "A-17", True), ("order A-170", "A-17", False), ("order a-17", "A-17", True),
        ("BA-17", "A-17", False), ("anything", "", False), ("café", "caf", False), ("10–12", 10, False), ("10−5", 10, False),
    ],
)  # fmt: skip
def test_a_text_mentions_a_value_as_a_whole_word_or_number(text, wanted, holds):  # S-TE-03
    assert mentions(text, wanted) is holds


# whatever is written


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["payment", "amount", "x"]), v, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300 * FUZZ)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["request_approval", "refund_payment", "lookup", "other"]), JUNK, st.sampled_from(["ok", '{"error": 1}', None])
        ),
        max_size=5,
    )
)
def test_no_trajectory_crashes_and_only_the_right_one_pays(calls):
    messages = []
    for name, arguments, result in calls:
        messages.append({"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]})
        messages += [] if result is None else [{"role": "tool", "content": result}]
    score = refunds(forbidden=["other"])(Attempt(tuple(messages)), ROW)
    assert score.status == "scored" and score.value == 0.0  # no junk is {"payment": "p1", "amount": 120}
    json.dumps(score.evidence)


# gold calls of others


def bfcl(name, limit=None):
    path = BFCL / "possible_answer" / f"BFCL_v4_{name}.json.gz"
    if not path.is_file():
        pytest.skip("no BFCL here")
    with gzip.open(path, "rt") as lines:
        return list(map(json.loads, itertools.islice(lines, limit)))


def accepted(values):
    """A list of accepted values as BFCL has it: "" means that the argument may be left out, objects hold lists of accepted values."""
    return OneOf([pattern(value) for value in values if value != ""], absent="" in values)


def pattern(value):
    if isinstance(value, dict):
        return {key: accepted(inner) for key, inner in value.items()}
    return [pattern(inner) for inner in value] if isinstance(value, list) else value


def plain(value):
    """One value that is accepted."""
    if isinstance(value, dict):
        return {key: plain(next(v for v in inner if v != "")) for key, inner in value.items() if any(v != "" for v in inner)}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def gold_calls(entry):
    calls = [next(iter(call.items())) for call in entry["ground_truth"]]
    expected = [Call(name, {key: accepted(values) for key, values in arguments.items()}, exact=True) for name, arguments in calls]
    made = [
        (name, {key: plain(next(v for v in values if v != "")) for key, values in arguments.items() if any(v != "" for v in values)})
        for name, arguments in calls
    ]
    return expected, made, calls


def perturbed(made, calls):
    """Every way to spoil the calls that must be noticed."""
    for index, (name, arguments) in enumerate(made):
        for key in arguments:
            dropped = copy.deepcopy(made)
            del dropped[index][1][key]
            if "" not in calls[index][1][key]:
                yield dropped
            wrong = copy.deepcopy(made)
            wrong[index][1][key] = ["no such value", 917_253]
            yield wrong
        yield [*made, (name, {**arguments})]
        yield [*made[:index], (f"{name}_x", arguments), *made[index + 1 :]]
        yield [*made[:index], (name, {**arguments, "unheard_of": 1}), *made[index + 1 :]]
        yield made[:index] + made[index + 1 :]
    yield [*made, ("another_tool", {})]


def run_bfcl(name, limit=None):
    """(entries, entries whose gold calls get full marks, perturbed attempts, perturbed attempts that get any).

    Two entries of live_simple are left out: they name arguments for which no value is accepted.
    """
    entries = [
        entry
        for entry in bfcl(name, limit)
        if all(values for call in entry["ground_truth"] for a in call.values() for values in a.values())
    ]
    policy, right, tried, passed = tool_policy("calls"), 0, 0, 0
    for entry in entries:
        expected, made, calls = gold_calls(entry)
        row = {"calls": expected}
        shuffled = random.Random(entry["id"]).sample(made, len(made))
        right += value(policy, does(*shuffled, answer="done"), row) == 1.0
        for attempt in perturbed(made, calls):
            tried += 1
            passed += value(policy, does(*attempt, answer="done"), row) > 0.0
    return len(entries), right, tried, passed


@pytest.mark.parametrize("name", ["simple_python", "multiple", "parallel", "live_simple"])
def test_bfcl_gold_calls_get_full_marks_and_spoilt_ones_nothing(name):
    entries, right, tried, passed = run_bfcl(name, limit=None if FUZZ > 1 else 60)
    assert right == entries and passed == 0 and tried > 3 * entries
