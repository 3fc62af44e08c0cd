"""Gates, correctness and small terms put together: what they pay, what they never pay, and what is logged about it."""

import itertools
import json
import math
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards.compose import MOST_SHAPED, compose, gate_findings, opinion_findings, variance_shares, weighted
from earnest.rewards.verifier import Attempt, Score, Verifier, as_reward, infra_error, invalid_task, right, wrong
from earnest.score import missing_columns, score, weighted_total

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
INFRA, INVALID = infra_error("the disk is full"), invalid_task("the row has no reference")


def reads(name, bounds=(0.0, 1.0), **options):
    """A verifier that is told by the row what to say: a number, or a score."""

    def judge(attempt, row):
        said = row[name]
        return said if isinstance(said, Score) else Score(float(said), reasons=() if said == bounds[1] else ("not full",))

    return Verifier(name, judge, columns=(name,), bounds=bounds, **options)


FORMAT, SAFE, CORRECT, BRIEF, POLITE = (reads(name) for name in ("format", "safe", "correct", "brief", "polite"))
WHOLE = compose(gates=[FORMAT, SAFE], correct=CORRECT, shaped={BRIEF: 0.15, POLITE: 0.05})
FULL = {"format": 1, "safe": 1, "correct": 1, "brief": 1, "polite": 1}


def of(verifier=WHOLE, **said):
    return verifier("text", {**FULL, **said})


# What is paid


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ({}, 1.0),
        ({"brief": 0}, 0.85),
        ({"polite": 0}, 0.95),
        ({"brief": 0, "polite": 0}, 0.8),
        ({"brief": 0.5}, 0.925),
        ({"correct": 0}, 0.0),
        ({"correct": 0, "brief": 0, "polite": 0}, 0.0),
        ({"correct": 0.5}, 0.4),
        ({"correct": 0.5, "brief": 0, "polite": 0}, 0.4),
        ({"correct": 0.999}, 0.7992),
        ({"format": 0}, 0.0),
        ({"safe": 0}, 0.0),
        ({"format": 0.999}, 0.0),
        ({"format": 0, "safe": 0, "correct": 0}, 0.0),
    ],
)
def test_gates_then_correctness_then_a_little_for_how(said, value):
    assert of(**said).value == pytest.approx(value, abs=1e-12)


def test_full_marks_everywhere_are_exactly_one():
    for weights in ([0.1, 0.1], [0.07, 0.13], [1 / 15, 2 / 15], [0.2, 0.0]):
        verifier = compose(gates=[SAFE], correct=CORRECT, shaped=dict(zip((BRIEF, POLITE), weights, strict=True)))
        assert of(verifier).value == 1.0


def by_the_formula(said, weights):
    """The docstring's three cases in exact arithmetic."""
    if said["format"] < 1 or said["safe"] < 1:
        return Fraction(0)
    w = {name: Fraction(weight) for name, weight in weights.items()}
    if said["correct"] < 1:
        return (1 - sum(w.values())) * Fraction(said["correct"])
    return 1 - sum(w[name] * (1 - Fraction(said[name])) for name in w)


SHARE = st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0, 1)


@settings(max_examples=300 * FUZZ)
@given(st.fixed_dictionaries(dict.fromkeys(FULL, SHARE)), st.floats(0, 0.1), st.floats(0, 0.1))
def test_the_total_is_the_formula_and_the_sum_of_its_terms(said, brief, polite):
    weights = {"brief": brief, "polite": polite}
    given = of(compose(gates=[FORMAT, SAFE], correct=CORRECT, shaped={BRIEF: brief, POLITE: polite}), **said)
    assert 0 <= given.value <= 1 and given.value == pytest.approx(float(by_the_formula(said, weights)), abs=1e-12)
    assert sum(given.evidence["terms"].values()) == pytest.approx(given.value, abs=1e-12)
    assert set(given.evidence["terms"]) == {"correct", "brief", "polite"}
    json.dumps(dict(given.evidence), allow_nan=False)


@settings(max_examples=300 * FUZZ)
@given(SHARE, SHARE, SHARE, SHARE, SHARE, SHARE, st.floats(0, 0.9))
def test_who_is_more_correct_never_earns_less_whatever_the_rest(c1, c2, b1, b2, p1, p2, most):
    verifier = compose(correct=CORRECT, shaped={BRIEF: most * 0.75, POLITE: most * 0.25}, most_shaped=most)
    one, other = (of(verifier, correct=c, brief=b, polite=p).value for c, b, p in ((c1, b1, p1), (c2, b2, p2)))
    if c1 != c2:
        assert (one - other) * (c1 - c2) >= -1e-12


@pytest.mark.parametrize(("bounds", "low", "half", "high"), [((-1.0, 1.0), -1, 0, 1), ((-0.5, 0.0), -0.5, -0.25, 0), ((0, 4), 0, 2, 4)])
def test_values_are_brought_to_zero_to_one_by_their_bounds(bounds, low, half, high):
    term = reads("term", bounds)
    as_correct = compose(correct=term)
    assert [as_correct("t", term=v).value for v in (low, half, high)] == [0.0, 0.5, 1.0]
    as_gate = compose(gates=[term], correct=CORRECT)
    assert [as_gate("t", term=v, correct=1).value for v in (low, half, high)] == [0.0, 0.0, 1.0]
    as_shaped = compose(correct=CORRECT, shaped={term: 0.2})
    assert [as_shaped("t", term=v, correct=1).value for v in (low, half, high)] == pytest.approx([0.8, 0.9, 1.0])


def test_a_term_of_no_weight_is_looked_at_and_pays_nothing():
    verifier = compose(correct=CORRECT, shaped={BRIEF: 0.0})
    given = of(verifier, brief=0)
    assert given.value == 1.0 and given.evidence["terms"]["brief"] == 0.0 and given.evidence["parts"]["brief"]["value"] == 0.0


# Statuses


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"correct": INFRA}, "infra_error"),
        ({"format": INFRA}, "infra_error"),
        ({"brief": INFRA}, "infra_error"),
        ({"correct": INVALID}, "invalid_task"),
        ({"format": INVALID}, "invalid_task"),
        ({"brief": INVALID}, "invalid_task"),
        ({"correct": INFRA, "brief": INVALID}, "invalid_task"),
        ({"format": INVALID, "correct": INFRA}, "invalid_task"),
        ({"format": 0, "correct": INVALID}, "invalid_task"),
        ({"correct": 0, "brief": INVALID}, "invalid_task"),
    ],
)
def test_an_invalid_task_comes_before_an_infra_error_before_a_score(said, status):
    given = of(**said)
    assert (given.value, given.status) == (None, status) and given.reasons
    wanted = "the row has no reference" if status == "invalid_task" else "the disk is full"
    assert all(reason.endswith(wanted) for reason in given.reasons)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ({"format": 0, "correct": INFRA}, 0.0),
        ({"format": 0, "safe": INFRA}, 0.0),
        ({"format": INFRA, "safe": 0}, 0.0),
        ({"format": INFRA, "correct": 0}, 0.0),
        ({"correct": 0, "brief": INFRA}, 0.0),
        ({"correct": 0.5, "brief": INFRA}, 0.4),
    ],
)
def test_a_failure_that_changes_nothing_is_no_way_out_of_a_zero(said, value):  # agg.none_escape
    given = of(**said)
    assert (given.value, given.status) == (pytest.approx(value), "scored")


def test_the_reasons_say_which_part():
    assert of(format=0, brief=0.5).reasons == ("gate format: not full", "brief: not full")
    assert of().reasons == ()


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({}, ["format", "correct", "brief"]),
        ({"format": 0}, ["format"]),
        ({"correct": 0}, ["format", "correct"]),
        ({"correct": 0.5}, ["format", "correct", "brief"]),
        ({"format": INFRA}, ["format", "correct", "brief"]),
    ],
)
def test_slow_parts_are_not_asked_when_nothing_can_be_earned_any_more(said, asked):
    seen = []

    def noting(name, slow):
        part = reads(name)
        return Verifier(name, lambda attempt, row: seen.append(name) or part.judge(attempt, row), (name,), slow=slow)

    verifier = compose(gates=[noting("format", False)], correct=noting("correct", True), shaped={noting("brief", True): 0.1})
    assert verifier.slow
    of(verifier, **said)
    assert seen == asked


def test_quick_parts_are_always_asked_so_that_the_evidence_is_whole():
    given = of(format=0, correct=0.5)
    assert set(given.evidence["parts"]) == set(FULL) and given.evidence["lost_gates"] == ["format"]
    assert given.evidence["parts"]["correct"] == {"value": 0.5, "status": "scored", "reasons": ["not full"], "evidence": {}}


# What may not be put together


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"shaped": {BRIEF: 0.15, POLITE: 0.06}}, "make up 21% of the total, and may make up 20%.*most_shaped=0.21"),
        ({"shaped": {BRIEF: 1.0}}, "make up 100%"),
        ({"shaped": {BRIEF: -0.1}}, "is negative"),
        ({"shaped": {BRIEF: math.nan}}, "not a finite number"),
        ({"shaped": {BRIEF: math.inf}}, "not a finite number"),
        ({"shaped": {BRIEF: True}}, "not a finite number"),
        ({"shaped": {BRIEF: "0.1"}}, "not a finite number"),
        ({"most_shaped": 1.0}, "most_shaped=1.0 must be"),
        ({"most_shaped": -0.1}, "most_shaped=-0.1 must be"),
        ({"most_shaped": math.nan}, "most_shaped=nan must be"),
        ({"gates": [CORRECT]}, "two parts are called 'correct'"),
        ({"gates": [reads("correct")]}, "two parts are called 'correct'"),
        ({"gates": [SAFE, SAFE]}, "two parts are called 'safe'"),
        ({"gates": [lambda attempt, row: right()]}, "is no verifier"),
        ({"gates": [reads("flat", (1.0, 1.0))]}, "'flat' has the bounds"),
        ({"correct": reads("model", opinion=True)}, "'model' is a model's opinion"),
        ({"correct": weighted({CORRECT: 0.7, reads("model", opinion=True): 0.3})}, "'weighted' is a model's opinion"),
    ],
)
def test_what_would_not_hold_is_refused(options, why):
    with pytest.raises(UserError, match=why):
        compose(**{"correct": CORRECT} | options)


def test_more_than_a_fifth_is_possible_in_so_many_words():
    verifier = compose(correct=CORRECT, shaped={BRIEF: 0.5}, most_shaped=0.5)
    assert of(verifier, brief=0).value == 0.5
    assert of(compose(correct=CORRECT, shaped={BRIEF: 0.1, POLITE: 0.1})).value == 1.0, "a fifth is a fifth, in floats too"


def test_a_models_opinion_may_shape_gate_and_weigh_a_little():
    model = reads("model", opinion=True)
    for verifier in (
        compose(correct=CORRECT, shaped={model: 0.2}),
        compose(correct=CORRECT, gates=[model]),
        compose(correct=weighted({CORRECT: 0.8, model: 0.2})),
    ):
        assert not verifier.opinion and of(verifier, model=1).value == 1.0
    assert weighted({model: 1.0}).opinion and weighted({CORRECT: 1.0, model: -1.0}).opinion


@pytest.mark.parametrize(
    ("weights", "found"), [([1.0, 0.25, 0.0], False), ([1.0, 0.3, 0.0], True), ([0.0, 1.0, 0.0], True), ([0.5, 0.2, 0.5], False)]
)
def test_a_models_opinion_as_the_main_of_several_rewards_is_found(weights, found):
    def plain(completions, **kwargs):
        return [0.0] * len(completions)

    findings = opinion_findings([as_reward(CORRECT), as_reward(reads("model", opinion=True)), plain], weights)
    assert bool(findings) == found and all("'model'" in finding for finding in findings)


# Attacks


def test_a_cheap_term_alone_earns_nothing():  # agg.easy_term, fmt.pays_alone, len.terse_wrong
    for brief, polite in itertools.product((0, 1), repeat=2):
        assert of(correct=0, brief=brief, polite=polite).value == of(correct=0, brief=0, polite=0).value == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.5, -0.1])
@pytest.mark.parametrize("part", ["format", "correct", "brief"])
def test_an_impossible_value_of_a_part_is_an_error_with_its_name(part, value):  # agg.inf_poison, agg.scale
    with pytest.raises(UserError, match=f"'{part}' returned the value"):
        of(**{part: value})


def test_who_does_not_answer_earns_no_more_than_who_answers_wrong():  # S-RC-06
    exact = Verifier("exact", lambda a, row: Score(1.0 if a.text == "42" else -1.0), bounds=(-1.0, 1.0))
    silent = [[], [{"role": "assistant", "content": None}]]
    wrong_ones = [[{"role": "assistant", "content": "41"}]] * 2
    for verifier, least in ((compose(correct=exact), 0.0), (weighted({exact: 1.0}), -1.0)):
        assert as_reward(verifier)(completions=[*silent, *wrong_ones]) == [least] * 4


# S-RC-08


def ends_with(name, ending):
    return Verifier(name, lambda a, row: right() if a.text.endswith(ending) else wrong("no"))


def test_a_gate_that_right_answers_lose_too_is_found():  # S-RC-08
    never = Verifier("safety", lambda attempt, row: wrong("unsafe"))
    parts = weighted({ends_with("tool", "!"): 0.3, ends_with("argument", "42!"): 0.7}, name="parts")
    capped = compose(gates=[never], correct=parts)
    cases = [("42!", "41!", {"id": i}) for i in range(3)]
    assert capped("42!").value == capped("41!").value == 0.0
    (finding,) = gate_findings(capped, cases)
    assert finding.startswith("The gate 'safety' of 'reward' makes right and wrong equal on all 3 rows")

    guarded = compose(gates=[never], correct=ends_with("tool", "!"), name="guarded tool")
    partly = weighted({guarded: 0.3, ends_with("argument", "42!"): 0.7})
    assert partly("42!").value == 0.7 and partly("41!").value == 0.0
    assert gate_findings(partly, cases) == []


def test_a_gate_that_holds_back_only_the_wrong_is_no_finding():
    gate = ends_with("ends", "!")
    verifier = compose(gates=[gate], correct=ends_with("correct", "42!"))
    assert gate_findings(verifier, [("42!", "42", {}), ("42!", "41", {}), ("42!", "41!", {})]) == []
    assert gate_findings(verifier, []) == []


def test_rows_are_counted_and_those_without_a_verdict_left_out():
    verifier = compose(gates=[SAFE, FORMAT], correct=CORRECT)
    rows = [{**FULL, "safe": 0}, {**FULL, "safe": 0, "format": 0}, FULL, {**FULL, "correct": INFRA}]
    cases = [("right", "wrong", row) for row in rows]
    safe, form = gate_findings(verifier, cases)
    assert "'safe'" in safe and "on 2 of 3 rows" in safe and "'format'" in form and "on 1 of 3 rows" in form


# The weighted sum


@given(st.lists(st.tuples(st.none() | st.floats(-2, 3), st.floats(-10, 10)), min_size=1, max_size=5))
def test_the_weighted_sum_is_the_trainers(pairs):
    terms = {reads(f"t{i}", (-2.0, 3.0)): weight for i, (_, weight) in enumerate(pairs)}
    row = {f"t{i}": INFRA if value is None else value for i, (value, _) in enumerate(pairs)}
    values = np.array([[math.nan if value is None else value for value, _ in pairs]])
    expected = weighted_total(values, [weight for _, weight in pairs])[0]
    got = weighted(terms)("text", row)
    assert (got.status == "infra_error") if math.isnan(expected) else got.value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("bounds", "weights", "total"),
    [
        ([(0, 1), (0, 1)], [1, 0.5], (0, 1.5)),
        ([(0, 1), (-1, 0)], [1, 0.5], (-0.5, 1)),
        ([(0, 1), (0, 1)], [1, -2], (-2, 1)),
        ([(1, 3)], [-1], (-3, -1)),
    ],
)
def test_the_bounds_are_those_of_the_sum(bounds, weights, total):
    terms = {reads(f"t{i}", b): w for i, (b, w) in enumerate(zip(bounds, weights, strict=True))}
    assert weighted(terms).bounds == total


def test_an_invalid_row_of_any_term_is_one_of_the_sum():
    assert of(weighted({CORRECT: 1, BRIEF: 1}), brief=INVALID).status == "invalid_task"


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({}, "nothing to sum"),
        ({CORRECT: math.inf}, "not a finite"),
        ({CORRECT: 1, reads("correct"): 1}, "two parts"),
        ({len: 1}, "no verifier"),
    ],
)
def test_a_sum_that_is_none_is_refused(terms, why):
    with pytest.raises(UserError, match=why):
        weighted(terms)


# What is logged


@given(st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=2, max_size=12))
def test_the_shares_are_covariances_with_the_total_and_sum_to_one(rows):
    terms = dict(zip("abc", zip(*rows, strict=True), strict=True))
    shares = variance_shares(terms)
    exact = {name: [Fraction(v) for v in values] for name, values in terms.items()}
    total = [sum(values) for values in zip(*exact.values(), strict=True)]

    def cov(x, y):
        mx, my = sum(x) / len(x), sum(y) / len(y)
        return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))

    if max(total) - min(total) < 1e-6:
        return
    for name, values in exact.items():
        assert shares[name] == pytest.approx(float(cov(values, total) / cov(total, total)), rel=1e-4, abs=1e-4)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("terms", "shares"),
    [
        ({"correct": [0, 1, 0, 1], "brief": [0.1, 0.1, 0.1, 0.1]}, {"correct": 1.0, "brief": 0.0}),
        ({"a": [0, 2, 0, 2], "b": [0, 0, 1, 1]}, {"a": 0.8, "b": 0.2}),
        ({"a": [0, 2], "b": [1, 0]}, {"a": 2.0, "b": -1.0}),
        ({"a": [1, 1], "b": [2, 2]}, {}),
        ({"a": [0, 1], "b": [1, 0]}, {}),
        ({"a": [1]}, {}),
        ({"a": []}, {}),
    ],
)
def test_shares_worked_out_by_hand(terms, shares):
    assert variance_shares(terms) == pytest.approx(shares)


def test_a_training_step_logs_what_each_term_pays_and_its_share_of_the_variance():
    rows = [
        FULL,
        {**FULL, "brief": 0},
        {**FULL, "correct": 0},
        {**FULL, "format": 0},
        {**FULL, "correct": INFRA},
        {**FULL, "brief": Score(0.0, evidence={"timeout": True})},
    ]
    texts = [[{"role": "assistant", "content": f"{i}"}] for i in range(6)]
    logged = score([as_reward(WHOLE)], [1.0], [[]] * 6, texts, rows).metrics
    assert logged["reward/correct/mean"] == pytest.approx(0.8 * 3 / 5) and logged["reward/brief/mean"] == pytest.approx(0.15 / 5)
    assert logged["reward/polite/mean"] == pytest.approx(0.05 * 3 / 5)
    assert logged["reward/format/passed"] == pytest.approx(5 / 6) and logged["reward/safe/passed"] == 1.0
    assert logged["reward/infra_errors"] == logged["reward/correct/infra_errors"] == logged["reward/brief/timeouts"] == 1.0
    shares = {name: logged[f"reward/{name}/variance_share"] for name in ("correct", "brief", "polite")}
    paid = np.array([[0.8, 0.15, 0.05], [0.8, 0, 0.05], [0, 0, 0], [0, 0, 0], [0.8, 0, 0.05]])
    expected = [np.cov(paid[:, i], paid.sum(axis=1))[0, 1] / np.var(paid.sum(axis=1), ddof=1) for i in range(3)]
    assert list(shares.values()) == pytest.approx(expected) and sum(shares.values()) == pytest.approx(1)


def test_what_a_part_counts_itself_is_logged_also_from_within():
    counting = Verifier(
        "counting", lambda a, row: right(length=len(a.text)), metrics=lambda s: {"length": sum(x.evidence["length"] for x in s)}
    )
    inner = compose(correct=counting, name="inner")
    outer = weighted({inner: 1.0, CORRECT: 1.0}, name="outer")
    metrics = score([as_reward(outer)], [1.0], [[], []], [[{"role": "assistant", "content": t}] for t in ("ab", "c")], [FULL, FULL]).metrics
    assert metrics["outer/inner/counting/length"] == 3.0 and metrics["outer/inner/mean"] == 1.0
    assert metrics["outer/correct/infra_errors"] == metrics["outer/inner/counting/timeouts"] == 0.0


def test_a_step_without_any_verdict_logs_without_complaint():
    metrics = score([as_reward(WHOLE)], [1.0], [[]], [[{"role": "assistant", "content": "a"}]], [{**FULL, "correct": INFRA}]).metrics
    assert metrics["reward/infra_errors"] == 1.0 and "reward/correct/mean" not in metrics


def test_the_columns_are_those_of_all_parts_once():
    again = Verifier("again", lambda a, row: right(), columns=("correct", "other"))
    verifier = compose(gates=[FORMAT, again], correct=CORRECT, shaped={BRIEF: 0.1})
    assert verifier.columns == ("format", "correct", "other", "brief")
    assert missing_columns(as_reward(verifier), ["correct"]) == ["format", "other", "brief"]
    assert verifier("text", {"correct": 1}).status == "invalid_task"


def test_a_slow_part_makes_the_whole_slow_and_it_still_trains():
    verifier = compose(correct=reads("correct", slow=True), shaped={BRIEF: MOST_SHAPED})
    texts = [[{"role": "assistant", "content": str(i)}] for i in range(3)]
    given = score([as_reward(verifier)], [1.0], [[]] * 3, texts, [FULL, {**FULL, "brief": 0}, {**FULL, "correct": 0}])
    assert given.total.tolist() == pytest.approx([1.0, 0.8, 0.0])


SAID = st.sampled_from([0.0, 0.5, 1.0, INFRA, INVALID])


@settings(max_examples=300 * FUZZ)
@given(st.fixed_dictionaries(dict.fromkeys(FULL, SAID)), st.text(max_size=5))
def test_whatever_the_parts_say_there_is_one_valid_result(said, text):
    given = WHOLE(Attempt.of(text), said)
    known = {name: value for name, value in said.items() if not isinstance(value, Score)}
    lost = any(known.get(gate, 1) < 1 for gate in ("format", "safe")) or known.get("correct") == 0
    if INVALID in said.values():
        assert given.status == "invalid_task"
    elif lost:
        assert given.value == 0.0
    elif INFRA in (said["format"], said["safe"], said["correct"]) or (said["correct"] == 1 and INFRA in said.values()):
        assert given.status == "infra_error"
    else:
        missing = {"brief": 0.0, "polite": 0.0}
        assert given.value == pytest.approx(float(by_the_formula(missing | known, {"brief": 0.15, "polite": 0.05})))
