"""What a verifier may say, and how it becomes a reward function."""

import asyncio
import decimal
import inspect
import math
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards.verifier import (
    LATE,
    Attempt,
    Score,
    Verifier,
    as_reward,
    in_time,
    infra_error,
    invalid_task,
    right,
    tally,
    wrong,
)
from earnest.score import missing_columns, score

pytestmark = pytest.mark.filterwarnings("ignore:The verifier 'rule' raised")
BOTH = pytest.mark.parametrize("slow", [False, True], ids=["sync", "async"])


def rule(judge, **options):
    return Verifier("rule", judge, **options)


def saying(value, **options):
    return rule(lambda attempt, row: value, **options)


def equals_gold(attempt, row):
    return right(seen=attempt.text) if attempt.text == row["gold"] else wrong("another text", seen=attempt.text)


def train(verifier, texts, golds=None, ids=None, workers=8):
    """As a trainer calls it."""
    rows = [{"id": f"r{i}", "gold": gold} for i, gold in enumerate(golds or [None] * len(texts))]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    return score([as_reward(verifier, workers)], [1.0], [[] for _ in texts], completions, rows, completion_ids=ids)


def values(scores):
    return [None if math.isnan(value) else value for value in scores.values[:, 0]]


# What a verifier may say


@pytest.mark.parametrize("value", [0, 1, 0.5, 1.0, np.float64(0.25)])
def test_a_finite_number_within_the_bounds_is_a_score(value):
    assert saying(Score(value))("text").value == value


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.001, 1.0001, 2, 10**400, -(10**400), True, False, "1", None, [1.0], 1j, decimal.Decimal(1)]
)
def test_any_other_value_is_an_error_with_the_verifiers_name(value):
    with pytest.raises(UserError, match=r"'rule' returned the value .*finite number from 0 to 1"):
        saying(Score(value))("text")


@pytest.mark.parametrize("value", [-1.5, 2.5, math.nan])
def test_the_bounds_are_the_verifiers_own(value):
    assert saying(Score(-1.0), bounds=(-1, 2))("text").value == -1.0
    with pytest.raises(UserError, match="from -1 to 2"):
        saying(Score(value), bounds=(-1, 2))("text")


@pytest.mark.parametrize("said", [1.0, True, None, "right", (1.0, "scored"), {"value": 1.0}])
def test_what_is_no_score_is_an_error(said):
    with pytest.raises(UserError, match=r"'rule' returned .*Return a Score"):
        saying(said)("text")


@pytest.mark.parametrize("status", ["infra_error", "invalid_task"])
def test_no_verdict_has_no_value(status):
    assert saying(Score(None, status))("text").status == status
    with pytest.raises(UserError, match="Without a verdict the value is None"):
        saying(Score(0.0, status))("text")


@pytest.mark.parametrize("status", ["ok", "", None, "SCORED"])
@pytest.mark.parametrize("value", [None, 1.0])
def test_an_unknown_status_is_an_error(status, value):
    with pytest.raises(UserError, match="'rule' returned the status"):
        saying(Score(value, status))("text")


def test_right_wrong_and_no_verdict_are_short_to_say():
    assert right(a=1) == Score(1.0, evidence={"a": 1})
    assert wrong("why", a=1) == Score(0.0, "scored", ("why",), {"a": 1})
    assert infra_error("why") == Score(None, "infra_error", ("why",))
    assert invalid_task("why") == Score(None, "invalid_task", ("why",))


# What it reads


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "assistant", "content": "42"}], "42"),
        ([{"role": "assistant", "content": "41"}, {"role": "user", "content": "?"}, {"role": "assistant", "content": "42"}], "42"),
        ([{"role": "assistant", "content": "42"}, {"role": "tool", "content": "43"}], ""),
        ([{"role": "assistant", "content": "42"}, {"role": "user", "content": "42"}], ""),
        ([{"role": "assistant", "content": None, "tool_calls": []}], ""),
        ([{"role": "assistant"}], ""),
        ([{"content": "42"}], ""),
        ([], ""),
    ],
)
def test_the_final_answer_is_the_last_message_if_the_model_wrote_it(messages, text):
    assert Attempt(tuple(messages)).text == text


def test_a_row_comes_whole_or_by_columns():
    verifier = rule(equals_gold, columns=("gold",))
    assert verifier("a", {"gold": "a"}) == verifier("a", gold="a") == verifier(Attempt.of("a"), {"gold": "b"}, gold="a") == right(seen="a")


@pytest.mark.parametrize("row", [None, {}, {"gold": None}, {"answer": "a"}])
def test_a_row_without_a_column_it_reads_is_invalid_and_the_rule_is_not_asked(row):
    score = rule(lambda attempt, row: 1 / 0, columns=("gold", "id"))("a", row)
    assert score == invalid_task("the row has no gold and no id")


@pytest.mark.parametrize("gold", [0, "", False, []])
def test_a_gold_that_is_false_in_python_is_a_gold(gold):
    assert rule(lambda attempt, row: right(), columns=("gold",))("a", gold=gold).value == 1.0


# Rules that fail


class OddError(Exception):
    pass


@pytest.mark.parametrize("deadline", [None, 60])
@pytest.mark.parametrize("error", [ValueError("bad"), OddError(), RecursionError(), MemoryError(), TimeoutError("socket"), SystemExit(0)])
def test_a_rule_that_raises_gives_no_verdict_and_says_why(error, deadline):
    def raising(attempt, row):
        raise error

    with pytest.warns(RuntimeWarning, match="'rule' raised"):
        score = rule(raising, deadline=deadline)("text")
    assert (score.value, score.status) == (None, "infra_error")
    assert type(error).__name__ in score.reasons[0] and "in raising" in score.evidence["traceback"]
    assert not score.evidence.get("timeout"), "a time-out of its own is not our deadline"


@pytest.mark.parametrize("deadline", [None, 60])
def test_a_mistake_of_the_user_and_an_interrupt_go_through(deadline):
    for error in (UserError("install it"), KeyboardInterrupt()):

        def raising(attempt, row, error=error):
            raise error

        with pytest.raises(type(error)):
            rule(raising, deadline=deadline)("text")


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0)])
def test_what_is_late_scores_the_least_and_says_so(bounds):
    stop = threading.Event()
    score = rule(lambda attempt, row: stop.wait(60), bounds=bounds, deadline=0.05)("text")
    stop.set()
    assert score == Score(bounds[0], reasons=("took longer than 0.05 s",), evidence={"timeout": True})


def test_within_the_deadline_nothing_changes():
    assert rule(equals_gold, deadline=60)("a", gold="a") == rule(equals_gold)("a", gold="a")
    assert in_time(lambda: LATE is LATE, 60) is True


@BOTH
def test_a_crash_is_invalid_and_not_zero(slow):  # S-RC-05
    def judge(attempt, row):
        return {"good": right(), "bad": wrong("no")}[attempt.text]

    scores = train(rule(judge, slow=slow), ["good", "bad", "crash"])
    assert values(scores) == [1.0, 0.0, None]
    assert np.nanmean(scores.values) == 0.5 and scores.metrics["rule/infra_errors"] == 1.0
    assert "KeyError" in scores.extra["rule/reasons"][2]


@BOTH
def test_one_crash_and_one_hang_in_eight_stop_nothing(slow):  # S-CC-04
    stop = threading.Event()

    def judge(attempt, row):
        if attempt.text == "crash":
            raise OSError("bad call")
        if attempt.text == "hang":
            stop.wait(120)
        return right()

    start = time.monotonic()
    scores = train(rule(judge, slow=slow, deadline=2), ["a", "crash", "b", "c", "hang", "d", "e", "f"])
    seconds = time.monotonic() - start
    stop.set()
    assert values(scores) == [1.0, None, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0] and 2 <= seconds < 20
    assert scores.metrics == {"rule/infra_errors": 1.0, "rule/timeouts": 1.0}
    assert [bool(reason) for reason in scores.extra["rule/reasons"]] == [False, True, False, False, True, False, False, False]
    assert scores.extra["rule/reasons"][4] == "took longer than 2 s"


def test_each_attempt_is_judged_by_its_own_environment():  # S-TE-01
    def judge(attempt, row):
        time.sleep(0.05)
        return Score(attempt.environment.number / 8)

    reward = as_reward(rule(judge, slow=True))
    environments = [SimpleNamespace(number=number) for number in (1, 2, 3, 4)]
    alike = [[{"role": "assistant", "content": "done"}]] * 4  # equal words do not make equal attempts
    assert asyncio.run(reward(completions=alike, environments=environments)) == [1 / 8, 2 / 8, 3 / 8, 4 / 8]


def test_a_rule_may_read_what_was_asked():
    echo = rule(lambda attempt, row: wrong("an echo") if attempt.text == attempt.prompt[-1]["content"] else right())
    asked = [[{"role": "user", "content": "What?"}]] * 2
    assert as_reward(echo)(completions=[[{"role": "assistant", "content": text}] for text in ("What?", "That.")], prompts=asked) == [
        0.0,
        1.0,
    ]
    assert as_reward(echo)(completions=["What?"], prompts=["What?"]) == [0.0]


def test_who_does_not_answer_earns_no_more_than_who_answers_wrong():  # S-RC-06
    verifier = rule(lambda a, row: Score(1.0 if a.text == row["gold"] else -1.0), columns=("gold",), bounds=(-1.0, 1.0))
    silent = [[], [{"role": "assistant", "content": None}], [{"role": "tool", "content": "g"}], [{"role": "assistant", "content": ""}]]
    wrong_ones = [[{"role": "assistant", "content": "w"}]] * 2
    given = score([as_reward(verifier)], [1.0], [[]] * 6, silent + wrong_ones, [{"gold": "g"}] * 6)
    assert values(given) == [-1.0] * 6, "nobody is better than the mean, so nobody's advantage is above 0"


# As a reward function


@BOTH
def test_a_verifier_runs_as_a_reward_function(slow):
    scores = train(rule(equals_gold, columns=("gold",), slow=slow), ["a", "b", "a"], ["a", "a", "b"])
    assert scores.names == ("rule",) and values(scores) == [1.0, 0.0, 0.0]
    assert scores.extra == {"rule/reasons": ["", "another text", "another text"]}
    assert scores.metrics == {"rule/infra_errors": 0.0, "rule/timeouts": 0.0}


@BOTH
def test_it_is_called_as_trl_calls_it(slow):
    reward = as_reward(rule(equals_gold, columns=("gold",), slow=slow))
    assert inspect.iscoroutinefunction(reward) == slow and reward.__name__ == "rule" and reward.verifier.name == "rule"
    logged = {}
    call = {
        "prompts": ["p", "p"], "completion_ids": [[1], [2]], "gold": ["a", "a"], "trainer_state": object(), "environments": [1, 2],
        "log_extra": logged.__setitem__, "log_metric": logged.__setitem__,
    }  # fmt: skip
    for completions in (["a", "b"], [[{"role": "assistant", "content": "a"}], [{"role": "assistant", "content": "b"}]]):
        result = reward(completions=completions, **call)
        assert (asyncio.run(result) if slow else result) == [1.0, 0.0]
    assert logged == {"rule/infra_errors": 0.0, "rule/timeouts": 0.0, "rule/reasons": ["", "another text"]}


def test_it_asks_for_its_columns():
    reward = as_reward(rule(equals_gold, columns=("gold", "unit", "gold")))
    assert missing_columns(reward, ["id"]) == ["gold", "unit"]
    assert missing_columns(reward, ["gold", "unit", "id"]) == []


@pytest.mark.parametrize("column", ["Correct Answer", "class", "expected-output", "2nd", "columns", "kwargs", "é"])
def test_a_column_may_have_any_name(column):
    verifier = rule(lambda attempt, row: right() if attempt.text == row[column] else wrong("no"), columns=(column,))
    reward = as_reward(verifier)
    assert missing_columns(reward, [column]) == []
    assert reward(completions=["a", "b"], **{column: ["a", "a"]}) == [1.0, 0.0]
    with pytest.raises(UserError, match=f"the row has no {column}"):
        reward(completions=["a"], other=["a"])


@BOTH
def test_a_row_that_cannot_be_verified_stops_with_its_name(slow):
    verifier = rule(equals_gold, columns=("gold",), slow=slow)
    with pytest.raises(UserError, match=r"Row 'r1' cannot be verified by 'rule': the row has no gold\."):
        train(verifier, ["a", "b"], ["a", None])
    with pytest.raises(UserError, match="Row 'number 0' cannot be verified"):
        result = as_reward(verifier)(completions=["a"], gold=[None])
        asyncio.run(result)


@BOTH
def test_equal_attempts_on_equal_rows_are_scored_once(slow):
    seen = []

    def judge(attempt, row):
        seen.append((attempt.text, row["gold"], attempt.ids))
        return right()

    texts, golds = ["a", "a", "b", "a", "a"], ["g", "g", "g", "h", "g"]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    given = score(
        [as_reward(rule(judge, slow=slow))], [1.0], [[]] * 5, completions, [{"gold": g} for g in golds], [[1], [1], [2], [1], [9]]
    )
    assert values(given) == [1.0] * 5
    assert sorted(seen) == [("a", "g", (1,)), ("a", "g", (9,)), ("a", "h", (1,)), ("b", "g", (2,))]


class Thing:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return "a thing"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Thing(1), Thing(2)),
        (np.arange(5000), np.where(np.arange(5000) == 2500, 0, np.arange(5000))),  # equal repr
        (1, True),
        (1, 1.0),
        (1, "1"),
        ("a", ["a"]),
        ({1: "a"}, {2: "a"}),
        ({(1, 2): "a"}, {(1, 3): "a"}),
        (b"1", "b'1'"),
        ("\ud800", "\ud801"),
    ],
)
def test_rows_that_differ_in_anything_are_scored_apart(one, other):
    seen = []
    reward = as_reward(rule(lambda attempt, row: seen.append(row["gold"]) or right()))
    assert reward(completions=["a"] * 4, gold=[one, other, one, other]) == [1.0] * 4
    assert any(gold is one for gold in seen) and any(gold is other for gold in seen)


def test_equal_objects_that_are_no_json_are_still_scored_once():
    seen = []
    thing = Thing(1)
    as_reward(rule(lambda attempt, row: seen.append(row) or right()))(completions=["a"] * 8, gold=[thing] * 8)
    assert len(seen) == 1


def test_a_slow_verifier_scores_many_at_a_time_but_no_more_than_told():
    lock, running, most = threading.Lock(), [0], [0]

    def judge(attempt, row):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        return right()

    train(rule(judge, slow=True), [str(i) for i in range(24)], workers=12)
    assert 6 < most[0] <= 12, "more than asyncio's own pool has on two cores"


def test_slow_verifiers_do_not_wait_for_each_other():
    meeting = threading.Barrier(2, timeout=60)

    def judge(attempt, row):
        meeting.wait()
        return right()

    rewards = [as_reward(Verifier(name, judge, slow=True), workers=1) for name in ("one", "other")]
    texts = [[{"role": "assistant", "content": str(i)}] for i in range(40)]
    assert score(rewards, [1.0, 1.0], [[]] * 40, texts, [{}] * 40).total.tolist() == [2.0] * 40


@BOTH
def test_an_impossible_score_in_training_is_an_error(slow):
    with pytest.raises(UserError, match="'rule' returned the value nan"):
        train(rule(lambda attempt, row: Score(math.nan), slow=slow), ["a", "b"])


@BOTH
def test_no_completions_give_no_rewards(slow):
    assert values(train(rule(equals_gold, slow=slow), [])) == []


def test_what_a_verifier_counts_itself_is_logged_under_its_name():
    verifier = saying(right(), metrics=lambda scores: {"count": float(len(scores))})
    assert train(verifier, ["a", "b", "b"]).metrics == {"rule/infra_errors": 0.0, "rule/timeouts": 0.0, "rule/count": 3.0}
    assert tally(verifier, [infra_error("x"), Score(0.0, evidence={"timeout": True})]) == {"infra_errors": 1, "timeouts": 1, "count": 2}


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=2)), max_size=12), st.booleans())
def test_a_batch_gets_what_each_attempt_gets_alone(pairs, slow):
    verifier = rule(equals_gold, columns=("gold",), slow=slow)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = values(train(verifier, [text for text, _ in pairs], [gold for _, gold in pairs]))
    assert got == [verifier(text, gold=gold).value for text, gold in pairs]
