"""Calling reward functions by TRL's contract, and refusing what they must not return."""

import asyncio
import functools
import json
import math
import threading
from collections import deque
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.score import missing_columns, reward_names, score, weighted_total


def call(*functions, n=4, weights=None, rows=None, texts=None, **options):
    texts = texts or [f"text {i}" for i in range(n)]
    rows = rows or [{"id": f"r{i}", "split": "train", "gold": str(i)} for i in range(len(texts))]
    prompts = [[{"role": "user", "content": f"question {i}"}] for i in range(len(texts))]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    return score(functions, weights or [1.0] * len(functions), prompts, completions, rows, **options)


def returning(value):
    def fixed(completions, **kwargs):
        return value

    return fixed


def returning_later(value):
    async def fixed(completions, **kwargs):
        await asyncio.sleep(0)
        return value

    return fixed


BOTH = pytest.mark.parametrize("make", [returning, returning_later], ids=["sync", "async"])


@BOTH
@pytest.mark.parametrize("value", [[0.7], 0.7, np.float64(0.7), np.array(0.7), np.array([0.7])])
def test_one_value_is_never_broadcast(make, value):  # case S-RC-01
    with pytest.raises(UserError, match=r"'fixed'.*expected (a list of )?4.*got 1"):
        call(make(value))


@BOTH
@pytest.mark.parametrize("got", [0, 3, 5])
def test_a_wrong_number_of_values_names_function_and_both_numbers(make, got):  # case S-RC-02
    with pytest.raises(UserError, match=f"'fixed'.*expected 4, got {got}"):
        call(make([0.5] * got))


@BOTH
def test_numbers_of_every_kind_become_floats_and_text_is_an_error(make):  # case S-RC-03
    with pytest.raises(UserError, match=r"'fixed' returned str \('0.7'\) at index 3"):
        call(make([True, np.float32(0.5), 1, "0.7"]))
    values = call(make([True, np.float32(0.5), 1]), n=3).values[:, 0].tolist()
    assert values == [1.0, 0.5, 1.0] and json.dumps(values) == "[1.0, 0.5, 1.0]"


def test_a_function_without_kwargs_gets_only_what_it_declares():  # case S-RC-04
    def plain(prompts, completions):
        return [1.0] * len(completions)

    def with_gold(completions, *, gold, missing="default"):
        assert missing == "default"
        return [float(g) for g in gold]

    async def later(completions, trainer_state):
        return [float(trainer_state.global_step)] * len(completions)

    assert call(plain, with_gold, later, step=7).values.tolist() == [[1.0, float(i), 7.0] for i in range(4)]


def test_no_verdict_is_nan_and_stays_out_of_means_and_totals():  # case S-RC-05
    scores = call(returning([1.0, 0.0, None]), n=3)
    assert np.isnan(scores.values[2, 0]) and np.isnan(scores.total[2])
    assert np.nanmean(scores.values) == 0.5 and np.isnan(scores.values).sum() == 1


def test_the_total_sums_over_the_functions_that_gave_a_verdict():
    def other(completions, **kwargs):
        return [0.5, None, 0.5, None]

    scores = call(returning([1.0, 1.0, None, None]), other, weights=[1.0, 2.0])
    assert scores.total[:3].tolist() == [2.0, 1.0, 1.0] and math.isnan(scores.total[3])


def test_the_twenty_characters_reward_ranks_twenty_first():  # case S-RC-07
    def near_twenty(completions, **kwargs):
        return [-abs(20 - len(c[0]["content"])) for c in completions]

    twenty, five, sixty = call(near_twenty, texts=["x" * 20, "x" * 5, "x" * 60]).total
    assert twenty > five > sixty and twenty == 0


@pytest.mark.parametrize(("ones", "weights", "total"), [((1, 0), [0.7, 0.3], 0.7), ((1, 1), [2, 1], 3.0)])
def test_the_total_is_weighted(ones, weights, total):  # case S-MC-02
    def second(completions, **kwargs):
        return [ones[1]] * len(completions)

    scores = call(returning([ones[0]] * 4), second, weights=weights)
    assert scores.total.tolist() == [total] * 4
    assert scores.values[0].tolist() == list(ones)


def test_weighted_total_leaves_out_what_is_nan():
    assert weighted_total(np.array([[1.0, np.nan], [1.0, 1.0]]), [0.5, 2.0]).tolist() == [0.5, 2.5]


@BOTH
@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (10**400, "inf"),
        (np.float32("nan"), "nan"),
        ("1", "str"),
        (b"1", "bytes"),
        ([1.0], "list"),
        ({"score": 1.0}, "dict"),
        (1j, "complex"),
        (np.complex64(1j), "complex"),
        (np.array([1.0, 2.0]), "ndarray"),
        (object(), "object"),
    ],
)
def test_a_value_that_is_no_finite_number_names_function_and_index(make, bad, word):
    with pytest.raises(UserError, match=rf"'fixed' returned {word}.*at index 2"):
        call(make([1.0, None, bad, 1.0]))


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        None,
        "abcd",
        b"abcd",
        bytearray(4),
        {0: 1, 1: 1, 2: 1, 3: 1},
        {1, 2, 3, 4},
        (x for x in range(4)),
        map(int, "1234"),
        {}.keys(),
        object(),
    ],
)
def test_what_is_no_list_is_refused_by_type(make, value):
    with pytest.raises(UserError, match=rf"'fixed' returned {type(value).__name__} .*expected a list of 4 numbers"):
        call(make(value))


@BOTH
@pytest.mark.parametrize("shape", [(4, 1), (4, 2), (4, 1, 1)])
def test_an_array_of_more_dimensions_is_refused(make, shape):
    with pytest.raises(UserError, match=r"'fixed' returned ndarray .* at index 0"):
        call(make(np.ones(shape)))


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        (1, 2, 3, 4),
        deque([1, 2, 3, 4]),
        range(1, 5),
        np.arange(1, 5),
        np.arange(1, 5, dtype=np.float16),
        [1.0, np.int8(2), Fraction(3), np.array(4)],
    ],
)
def test_every_ordered_list_of_numbers_is_taken(make, value):
    assert call(make(value)).total.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_torch_tensors_and_scalars_are_taken():
    torch = pytest.importorskip("torch")
    for value in (torch.arange(4), torch.arange(4.0, dtype=torch.bfloat16), [torch.tensor(i) for i in range(4)]):
        assert call(returning(value)).total.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(UserError, match="expected a list of 4"):
        call(returning(torch.tensor(0.7)))
    with pytest.raises(UserError, match=r"Tensor .* at index 0"):
        call(returning(torch.ones(4, 1)))


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3), st.lists(st.integers(), max_size=2),
    st.complex_numbers(), st.fractions(), st.decimals(), st.dictionaries(st.integers(), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(VALUES, st.lists(VALUES, max_size=4), st.tuples(VALUES, VALUES, VALUES), st.sets(st.integers(), max_size=3)))
def test_whatever_comes_back_is_three_finite_numbers_or_a_user_error(value):
    try:
        scores = call(returning(value), n=3)
    except UserError as error:
        assert "'fixed'" in str(error)
        return
    assert len(value) == 3 and scores.values.shape == (3, 1)
    for item, number in zip(value, scores.values[:, 0], strict=True):
        assert math.isnan(number) if item is None else number == float(item) and math.isfinite(number)


@BOTH
def test_a_reward_that_raises_names_the_row_and_keeps_the_first_traceback(make):
    def picky(completions, gold, **kwargs):
        for completion in completions:
            assert completion[0]["content"] != "text 2", "cannot read it"
        return [1.0] * len(completions)

    async def picky_later(completions, gold, **kwargs):
        await asyncio.sleep(0)
        return picky(completions, gold)

    function = picky if make is returning else picky_later
    with pytest.raises(UserError) as caught:
        call(function)
    assert f"'{function.__name__}' raised AssertionError: cannot read it" in str(caught.value)
    assert "on row 'r2' for the completion 'text 2'" in str(caught.value)
    assert "Traceback" in caught.value.details and "in picky" in caught.value.details


def test_a_reward_that_raises_on_the_batch_alone_says_so():
    def whole(completions, **kwargs):
        assert len(completions) == 1
        return [1.0]

    with pytest.raises(UserError, match="only on the whole batch"):
        call(whole)


def test_a_raising_reward_is_reported_for_completions_without_text():
    def broken(completions, **kwargs):
        return [len(c[-1]["content"]) for c in completions]

    for completion in ([], [{"role": "assistant", "content": None}], [{"role": "assistant", "tool_calls": []}]):
        with pytest.raises(UserError, match=r"'broken' raised .* on row 'a'"):
            score([broken], [1.0], [[]], [completion], [{"id": "a"}])


def test_rows_without_ids_are_named_by_number():
    with pytest.raises(UserError, match="on row 'number 0'"):
        call(lambda completions: [1 / 0], rows=[{"gold": 1}], n=1)


def test_a_needed_column_that_is_missing_is_named():
    def needs(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, gold, label, optional=1, *args, **kwargs):
        return []

    assert missing_columns(needs, ["gold"]) == ["label"]
    assert missing_columns(needs, ["gold", "label"]) == []
    assert missing_columns(functools.partial(needs, label=1), ["gold"]) == []
    assert missing_columns(lambda completions, **kwargs: [], []) == []


def test_callable_instances_partials_and_lambdas_are_rewards():
    class Length:
        def __init__(self, scale):
            self.scale = scale

        def __call__(self, completions, **kwargs):
            return [self.scale * len(c[0]["content"]) for c in completions]

    class Later(Length):
        async def __call__(self, completions, **kwargs):
            return super().__call__(completions)

    def times(completions, factor):
        return [factor] * len(completions)

    async def times_later(completions, factor):
        return [factor] * len(completions)

    functions = [Length(2), Later(3), functools.partial(times, factor=5), functools.partial(times_later, factor=7), lambda completions: [9]]
    scores = call(*functions, texts=["abc"])
    assert scores.values.tolist() == [[6.0, 9.0, 5.0, 7.0, 9.0]]
    assert scores.names == ("Length", "Later", "times", "times_later", "<lambda>")


def test_a_lambda_that_returns_a_coroutine_is_async():
    assert call(lambda completions: returning_later([1.0] * 4)(completions)).total.tolist() == [1.0] * 4


def test_two_rewards_of_one_name_are_refused():
    with pytest.raises(UserError, match="Two reward functions are called '<lambda>'"):
        reward_names([lambda: 0, lambda: 0])


def test_columns_named_like_the_calls_own_lists_do_not_collide():
    def look(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, **kwargs):
        assert prompts[0][0]["content"] == "question 0" and completions[0][0]["content"] == "text 0"
        assert completion_ids == [[]] and trainer_state.global_step == 3 and callable(log_extra) and callable(log_metric)
        assert kwargs == {"id": ["a"], "environment": ["shop"]}
        return [1.0]

    names = ("prompt", "completion", "prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
    call(look, rows=[dict.fromkeys(names, "row") | {"id": "a", "environment": "shop"}], n=1, step=3)


def test_a_column_that_some_rows_lack_is_none_there():
    def look(completions, hint, **kwargs):
        return [h is not None for h in hint]

    assert call(look, rows=[{"hint": 1}, {}, {"hint": 0}], n=3).total.tolist() == [1.0, 0.0, 1.0]


def test_completion_ids_reach_the_reward():
    def lengths(completions, completion_ids):
        return [len(ids) for ids in completion_ids]

    assert call(lengths, n=2, completion_ids=[(1, 2), []]).total.tolist() == [2.0, 0.0]


def test_sync_rewards_run_before_async_ones_which_run_together():
    order = []
    started = []

    def meeting(name):
        async def meet(completions):
            order.append(name)
            started.append(name)
            while len(started) < 2:
                await asyncio.sleep(0)
            return [1.0]

        meet.__name__ = name
        return meet

    def sync(completions):
        order.append("sync")
        return [1.0]

    call(meeting("one"), sync, meeting("two"), n=1)
    assert order == ["sync", "one", "two"]


def test_an_async_client_made_once_works_from_call_to_call():
    loops = []

    async def judge(completions):
        loops.append(asyncio.get_running_loop())
        return [1.0]

    for _ in range(2):
        call(judge, n=1)
    assert loops[0] is loops[1] and not loops[0].is_closed()


def test_async_rewards_work_where_a_loop_runs_already_and_from_threads():
    async def notebook():
        return call(returning_later([1.0] * 4)).total.sum()

    assert asyncio.run(notebook()) == 4.0
    totals = []
    threads = [threading.Thread(target=lambda: totals.append(call(returning_later([1.0] * 4)).total.sum())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [4.0] * 4


def test_what_rewards_log_comes_back():
    def logs(completions, log_extra, log_metric):
        log_extra("length", (len(c[0]["content"]) for c in completions))
        log_metric("share", 0.25)
        log_metric("share", np.float32(0.75))
        return [1.0] * len(completions)

    scores = call(logs)
    assert scores.extra == {"length": [6, 6, 6, 6]} and scores.metrics == {"share": 0.5}


def test_a_logged_column_of_another_length_is_refused():
    def logs(completions, log_extra):
        log_extra("length", [1, 2])
        return [1.0] * len(completions)

    with pytest.raises(UserError, match=r"log_extra\('length', ...\) got 2 values for 4 completions"):
        call(logs)


def test_lists_of_different_lengths_are_our_own_mistake():
    with pytest.raises(ValueError, match="2 weights, 1 functions"):
        call(returning([1.0] * 4), weights=[1.0, 1.0])
    with pytest.raises(ValueError, match="3 rows, 4 completions"):
        call(returning([1.0] * 4), rows=[{}] * 3, n=4)
