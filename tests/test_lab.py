"""The readers of answers: difficulty, evaluation, intervals, baselines, and the run directory they stand on. Values by hand."""

import io
import json
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from earnest import Task, UserError, Verdict, load_task, stages
from earnest.config import Config, DifficultyConfig, EvalConfig
from earnest.engine.policy import Policy
from earnest.engine.rollouts import Sampled, answer, make_prompts
from earnest.engine.sampler import Completion, Sampling
from earnest.lab import plots
from earnest.lab.baselines import baselines
from earnest.lab.difficulty import choose, filtered, shares, summarise
from earnest.lab.evaluate import compare, describe, load_answers, markdown, table
from earnest.lab.statistics import paired_interval, share_interval
from earnest.rows import Rows, load_rows
from earnest.rundir import append_jsonl, plain, read_json, read_jsonl, write_json, write_text
from earnest.stages import Session, evaluate_stage
from earnest.task import judge
from earnest.text import Answer

RIGHT, WRONG = Verdict(True, well_formed=True), Verdict(False, well_formed=True)
BROKEN, FREE = Verdict(False, well_formed=False), Verdict(False)


def row_of(right, of, otherwise=WRONG):
    """Verdicts of a row answered right so many times."""
    return [RIGHT] * right + [otherwise] * (of - right)


def summary_of(*rows, group=8):
    return summarise([f"r{i}" for i in range(len(rows))], rows, "sft", group)


# --- difficulty


def test_shares_and_the_forecast_of_dead_groups_by_hand():
    got = shares(np.array([1.0, 1.0, 0.5, 0.0]))
    assert (got["rows"], got["all_right"], got["mixed"], got["all_wrong"], got["pass_rate"]) == (4, 0.5, 0.25, 0.25, 0.625)
    assert got["dead_forecast"] == {  # (1 + 1 + 2 * 0.5**G + 1) / 4
        "4": (3 + 0.125) / 4,
        "8": (3 + 0.0078125) / 4,
        "16": pytest.approx((3 + 2**-15) / 4),
        "32": pytest.approx((3 + 2**-31) / 4),
    }
    assert shares(np.array([0.25]))["dead_forecast"]["4"] == pytest.approx(0.25**4 + 0.75**4)  # 0.3203


@given(st.lists(st.integers(0, 8), min_size=1, max_size=20))
def test_the_three_shares_add_up_and_dead_groups_get_rarer_with_their_size(counts):
    got = shares(np.array(counts) / 8)
    assert got["all_right"] + got["mixed"] + got["all_wrong"] == pytest.approx(1)
    forecast = [got["dead_forecast"][g] for g in ("4", "8", "16", "32")]
    assert forecast == sorted(forecast, reverse=True)
    assert forecast[-1] >= got["all_right"] + got["all_wrong"] - 1e-12


def test_the_record_tells_format_from_content():
    record = summary_of(row_of(4, 4), row_of(1, 4), row_of(0, 4, BROKEN), [BROKEN, WRONG, FREE, RIGHT])
    assert record["model"] == "sft" and record["k"] == 4 and record["rows"] == 4
    assert record["pass_rates"] == {"r0": 1.0, "r1": 0.25, "r2": 0.0, "r3": 0.25}
    assert record["format_failures"] == 5 / 16 and record["content_failures"] == 5 / 16  # FREE knows no format: its content is wrong
    assert record["pass_rate"] == 6 / 16
    json.dumps(record, allow_nan=False)


def test_a_right_answer_in_broken_format_counts_as_a_format_failure():
    record = summary_of([Verdict(True, well_formed=False), RIGHT])
    assert (record["format_failures"], record["content_failures"], record["pass_rate"]) == (0.5, 0.0, 1.0)


@pytest.mark.parametrize(
    ("rows", "group", "says"),
    [
        ([row_of(0, 4, BROKEN)] * 3 + [row_of(2, 4)], 8, "Run SFT first: 75% of the answers break the format, and only 25% of groups of 8"),
        ([row_of(0, 4)] * 3 + [row_of(4, 4)] * 2, 8, "Take easier rows or run SFT first: 60% of the rows were never answered right"),
        ([row_of(0, 4)] * 2 + [row_of(4, 4)] * 3, 8, "Take harder rows: 60% of the rows are always answered right, and only 0%"),
        # p = 1/8: 0.125**4 + 0.875**4 = 0.5864 dead in fours, 0.3436 in eights
        ([row_of(1, 8)] * 5, 4, "Raise num_generations to 8: with groups of 4, only 41% would carry a signal."),
        # half right, half wrong: every group is dead, of whatever size
        ([row_of(4, 4)] * 2 + [row_of(0, 4)] * 2, 8, "Take rows of middling difficulty: with groups of 8, only 0% would carry a signal."),
        ([row_of(1, 2)] * 3, 8, "Go ahead and train: 99% of groups of 8 would carry a signal."),
    ],
)
def test_each_piece_of_advice_comes_when_it_should(rows, group, says):
    assert summary_of(*rows, group=group)["advice"].startswith(says)


RATES = {f"r{i}": rate for i, rate in enumerate([1.0] * 4 + [0.5] * 3 + [0.0] * 6)}


def test_the_filter_thins_out_both_ends_by_the_given_shares():
    kept = choose(RATES, DifficultyConfig(drop_all_right=0.5, drop_all_wrong=1 / 3), seed=0)
    assert Counter(RATES[i] for i in kept) == {1.0: 2, 0.5: 3, 0.0: 4}
    assert kept == [i for i in RATES if i in kept]  # in their order
    assert choose(RATES, DifficultyConfig(drop_all_right=0, drop_all_wrong=0), 0) == list(RATES)
    assert choose(RATES, DifficultyConfig(drop_all_right=1, drop_all_wrong=1), 0) == ["r4", "r5", "r6"]


def test_the_filter_is_fixed_by_the_seed():
    config = DifficultyConfig()
    picks = [choose(RATES, config, seed) for seed in (1, 1, 2, 3, 4)]
    assert picks[0] == picks[1] and len({tuple(pick) for pick in picks}) > 2


def test_rows_outside_the_bounds_go_first_and_their_share_is_of_what_is_left():
    config = DifficultyConfig(keep_from=0.5, drop_all_right=0.5, drop_all_wrong=0.5)
    assert Counter(RATES[i] for i in choose(RATES, config, 0)) == {1.0: 2, 0.5: 3}
    config = DifficultyConfig(keep_from=0.5, keep_to=0.5)
    assert choose(RATES, config, 0) == ["r4", "r5", "r6"]  # bounds belong to what is kept


def test_the_record_after_the_filter_is_that_of_the_kept_rows_alone():
    ids, verdicts = ["a", "b", "c"], [row_of(2, 2), row_of(1, 2), row_of(0, 2, BROKEN)]
    after = filtered(ids, verdicts, ["a", "b"], "sft", 8)
    assert after == summarise(["a", "b"], verdicts[:2], "sft", 8)
    assert (after["format_failures"], after["content_failures"], after["pass_rates"]) == (0.0, 0.25, {"a": 1.0, "b": 0.5})


def test_a_filter_that_leaves_nothing_says_so_without_numbers():
    before = summarise(["a"], [row_of(2, 2)], "sft", 8)
    after = filtered(["a"], [row_of(2, 2)], [], "sft", 8)
    assert set(after) == set(before) and after["rows"] == 0 and after["pass_rates"] == {} and "Loosen the filter" in after["advice"]
    assert after["all_right"] is None and set(after["dead_forecast"].values()) == {None}
    json.dumps(after, allow_nan=False)


# --- intervals


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1.0)],
)
def test_the_interval_of_a_share_is_wilsons(successes, total, low, high):
    assert share_interval(successes, total) == pytest.approx((low, high), abs=5e-5)
    z, p = 1.959963984540054, successes / total  # the formula written out
    centre = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    assert share_interval(successes, total) == pytest.approx((centre - half, centre + half), abs=1e-12)


def test_of_nothing_nothing_is_known():
    assert share_interval(0, 0) == (0.0, 1.0)


def test_equal_differences_leave_no_doubt():
    assert paired_interval([0, 0, 1], [1, 1, 2]) == (1.0, (1.0, 1.0))
    assert paired_interval([1, 0, 1], [1, 0, 1]) == (0.0, (0.0, 0.0))
    assert paired_interval([0.25], [1.0]) == (0.75, (0.75, 0.75))


def test_two_rows_of_which_one_improved_say_anything_from_none_to_all():
    # the mean of two draws from {0, 1} is 0, 0.5 or 1 with chances 1/4, 1/2, 1/4: 95% take in all three
    assert paired_interval([0, 0], [0, 1]) == (0.5, (0.0, 1.0))


def test_swapping_the_two_changes_the_sign_alone():
    rng = np.random.default_rng(0)
    a, b = rng.random(40), rng.random(40) + 0.2
    (there, (low, high)), (back, (low_back, high_back)) = paired_interval(a, b), paired_interval(b, a)
    assert back == pytest.approx(-there) and (low_back, high_back) == pytest.approx((-high, -low), abs=1e-9)
    assert low < there < high


def test_pairing_uses_that_the_rows_are_the_same():
    rng = np.random.default_rng(1)
    hard = rng.random(60)  # rows differ much, the two models by a steady tenth
    _, (low, high) = paired_interval(hard, hard + 0.1 + 0.01 * rng.standard_normal(60))
    assert low > 0.09 and high < 0.11


def test_the_interval_is_the_same_each_time():
    a, b = [0, 1, 0, 1, 1, 0], [1, 1, 0, 1, 0, 1]
    assert paired_interval(a, b) == paired_interval(a, b)


def test_about_95_of_100_intervals_hold_the_truth():
    rng, held = np.random.default_rng(2), 0
    for _ in range(100):
        a = rng.random(40)
        _, (low, high) = paired_interval(a, a + rng.normal(0.1, 0.3, 40))
        held += low <= 0.1 <= high
    assert 87 <= held <= 100


# --- evaluation


def said(row, correct, split="test", mode="greedy", sample=0, tokens=10, **verdict):
    """An answer as the run directory keeps it."""
    keep = {"fields": {}, "well_formed": None, "handed_off": None, **verdict}
    slices = keep.pop("slices", {})
    needs_human, terminated = keep.pop("needs_human", None), keep.pop("terminated", True)
    return {
        "split": split, "mode": mode, "sample": sample, "id": row, "text": "", "tokens": tokens, "terminated": terminated,
        "verdict": {"correct": correct, **keep}, "needs_human": needs_human, "slices": slices,
    }  # fmt: skip


def test_a_models_row_of_the_table_by_hand():
    answers = [
        said("a", True, tokens=4, fields={"x": True, "y": True}, well_formed=True, handed_off=True, needs_human=True, slices={"s": "u"}),
        said("b", True, tokens=6, fields={"x": True, "y": False}, well_formed=True, handed_off=False, needs_human=False, slices={"s": "u"}),
        said("c", True, tokens=8, fields={"x": True, "y": None}, well_formed=True, handed_off=True, slices={"s": "v"}),
        said("d", False, tokens=64, fields={"x": False, "y": None}, well_formed=False, terminated=False, slices={"s": "v"}),
        said("e", True, "dev"), said("f", False, "dev"),
        *(said("e", ok, "dev", "sampled", n) for n, ok in enumerate([True, True, False])),
        *(said("f", ok, "dev", "sampled", n) for n, ok in enumerate([False, False, False])),
    ]  # fmt: skip
    got = describe("sft", answers)
    assert (got["name"], got["n_test"], got["n_dev"]) == ("sft", 4, 2)
    assert (got["test_accuracy"], got["dev_accuracy"], got["sampled_accuracy"]) == (0.75, 0.5, 2 / 6)
    assert got["all_fields_accuracy"] == 0.5  # a and c: a field without gold holds nothing against it
    assert got["json_valid_rate"] == 0.75 and got["mean_output_tokens"] == 20.5 and got["truncated_rate"] == 0.25
    assert got["fields"] == {"x": 0.75, "y": 0.5}
    assert got["hand_off_rate"] == 2 / 3 and got["hand_off_gold"] == 0.5
    assert got["slices"] == {"s": {"u": {"n": 2, "accuracy": 1.0}, "v": {"n": 2, "accuracy": 0.5}}}
    assert got["test_accuracy_interval"] == list(share_interval(3, 4)) and got["all_fields_interval"] == list(share_interval(2, 4))


def test_what_was_not_measured_is_none_and_never_zero():
    got = describe("base", [])
    assert got["n_test"] == got["n_dev"] == 0
    assert {got[k] for k in ("test_accuracy", "dev_accuracy", "test_accuracy_interval", "json_valid_rate", "mean_output_tokens")} == {None}
    only_dev = describe("base", [said("a", True, "dev", tokens=3)])
    assert only_dev["test_accuracy"] is None and only_dev["dev_accuracy"] == 1.0 and only_dev["mean_output_tokens"] == 3
    assert only_dev["json_valid_rate"] is only_dev["hand_off_rate"] is only_dev["sampled_accuracy"] is None


def test_models_are_compared_over_the_rows_both_answered():
    answers = {
        "base": [said("a", False), said("b", False), said("only here", True)],
        "sft": [said("b", True), said("a", True), said("only there", True)],
    }
    accuracy, fields = compare(answers)
    assert (accuracy["a"], accuracy["b"], accuracy["split"], accuracy["mode"], accuracy["metric"]) == (
        "base", "sft", "test", "greedy", "accuracy",
    )  # fmt: skip
    assert (accuracy["difference"], accuracy["interval"], accuracy["n"]) == (1.0, [1.0, 1.0], 2)
    assert fields["metric"] == "all_fields"


def test_several_answers_to_a_row_count_as_one_row():
    answers = {
        "base": [said("a", ok, "dev", "sampled") for ok in (True, False)] + [said("b", False, "dev", "sampled")],
        "sft": [said("a", True, "dev", "sampled")] + [said("b", ok, "dev", "sampled") for ok in (True, False, False, False)],
    }
    (found,) = compare(answers)
    assert (found["n"], found["split"], found["mode"]) == (2, "dev", "sampled")
    assert found["difference"] == pytest.approx(((1 - 0.5) + (0.25 - 0)) / 2)


def test_every_pair_of_models_is_compared_once_and_later_minus_earlier():
    answers = {m: [said("a", m != "base"), said("b", m == "sft_grpo")] for m in ("base", "sft", "grpo", "sft_grpo")}
    pairs = [(c["a"], c["b"], c["difference"]) for c in compare(answers) if c["metric"] == "accuracy"]
    assert pairs == [
        ("base", "sft", 0.5), ("base", "grpo", 0.5), ("base", "sft_grpo", 1.0), ("sft", "grpo", 0.0), ("sft", "sft_grpo", 0.5),
        ("grpo", "sft_grpo", 0.5),
    ]  # fmt: skip


def test_models_that_share_no_row_are_not_compared():
    assert compare({"base": [said("a", True)], "sft": [said("b", True)]}) == []
    assert compare({"base": [said("a", True)]}) == []


def test_answers_are_read_in_the_order_of_the_table(tmp_path):
    for name in ("sft_grpo", "mine", "base", "grpo", "sft"):
        append_jsonl(tmp_path / "eval" / f"{name}.jsonl", [said("a", True)])
    append_jsonl(tmp_path / "eval" / "nothing.jsonl", [])
    assert list(load_answers(tmp_path)) == ["base", "sft", "grpo", "sft_grpo", "mine"]
    assert load_answers(tmp_path / "nowhere") == {}


def summary(*models, baselines=()):
    return {"models": list(models), "baselines": list(baselines)}


def test_the_table_shows_numbers_dashes_and_names():
    m = describe("sft_grpo", [*(said(i, i < 8, tokens=5, well_formed=True) for i in range(10)), said("d", True, "dev")])
    head, row, base = table(summary(m, baselines=[{"name": "constant", "test_accuracy": 0.25, "dev_accuracy": None, "n_train": 3}]))
    assert head[1] == "test accuracy (95%)"
    assert row == ["SFT then GRPO", "0.800 (0.490 to 0.943)", "1.000", "–", "0.800", "1.000", "5.0"]
    assert base[:3] == ["constant", "0.250", "–"] and len(head) == len(row) == len(base)
    text = markdown(summary(m)).splitlines()
    assert (
        text[0].startswith("| model | test accuracy (95%) |")
        and text[1] == "| --- | --: | --: | --: | --: | --: | --: |"
        and len(text) == 3
    )


def test_where_there_is_no_test_split_the_table_says_dev():
    head, row = table(summary(describe("base", [said("a", True, "dev")])))
    assert head[1] == "dev accuracy (95%)" and row[1].startswith("1.000 (0.207 to 1.000)")
    assert table(summary())[0][1] == "test accuracy (95%)"


def session(folder, task, rows, **config):
    return Session(task, rows, Config(eval=EvalConfig(samples=0, max_completion_length=6), **config), folder, Console(file=io.StringIO()))


def letters(count=7, split="test"):
    """A task of single letters, and its rows."""
    rows = [{"id": f"r{i}", "split": split, "question": "abcdefgh"[i], "gold": "xyz"[i % 3]} for i in range(count)]
    task = Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": row["question"]}],
        rewards=[lambda completions, **kwargs: [0.0] * len(completions)],
        check=lambda text, row: len(text) % 2 == 0,  # a random model keeps this now and then
        name="letters",
    )
    return task, load_rows(task)


@pytest.mark.parametrize(("text_of", "accuracy"), [(lambda task, row: task.oracle(row), 1.0), (lambda task, row: "", 0.0)])
def test_gold_answers_get_everything_right_and_empty_ones_nothing(text_of, accuracy, tmp_path, monkeypatch):  # S-EV-02
    task = load_task("triage")
    s = session(tmp_path, task, load_rows(task))

    def model(policy, task, prompts, samples, *others, **named):
        return [[Sampled(Completion((1, 2), True), Answer(text_of(task, p.row)))] for p in prompts]

    monkeypatch.setattr(stages, "prompts_of", lambda s, policy, rows, room: [SimpleNamespace(row=row, messages=[]) for row in rows])
    monkeypatch.setattr(stages, "answer", model)
    evaluate_stage(s, None, "base")
    got = describe("base", load_answers(tmp_path)["base"])
    assert got["n_test"] == len(s.rows.split("test")) > 100
    assert {got[k] for k in ("test_accuracy", "dev_accuracy", "all_fields_accuracy", "json_valid_rate")} == {accuracy}
    assert set(got["fields"].values()) == {accuracy}
    if accuracy:
        assert got["hand_off_rate"] == got["hand_off_gold"]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_greedy_evaluation_is_the_same_twice_and_leaves_the_config_alone(family, tmp_path):  # S-EV-01
    task, rows = letters()
    policy = tiny.make_policy(tiny.make(family))
    for name in ("first", "second"):
        s = session(tmp_path / name, task, rows, seed=len(name))  # the seed says nothing where nothing is drawn
        evaluate_stage(s, policy, "base")
        assert s.config.train == Config().train
    files = [(tmp_path / name / "eval" / "base.jsonl").read_bytes() for name in ("first", "second")]
    assert files[0] == files[1] and files[0].count(b"\n") == 7


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_batch_size_of_an_evaluation_changes_no_answer(family):  # S-EV-03
    task, rows = letters()
    policy = tiny.make_policy(tiny.make(family))
    prompts = make_prompts(task, policy.loaded, rows.split("test"), False, 6)
    texts, accuracies = [], []
    for size in (1, 4):
        groups = answer(policy, task, prompts, 1, Sampling(temperature=0, max_tokens=6), [0], False, rows=size)
        texts.append([one.answer.content for (one,) in groups])
        accuracies.append(np.mean([judge(task, text, p.row).correct for text, p in zip(texts[-1], prompts, strict=True)]))
    assert len(texts[0]) == 7 and len(set(texts[0])) > 1
    assert texts[0] == texts[1] and accuracies[0] == accuracies[1]


def test_several_greedy_samples_of_a_prompt_are_one_answer():
    task, rows = letters(2)
    policy = Policy(tiny.make(), rank=2)
    prompts = make_prompts(task, policy.loaded, rows.split("test"), False, 6)
    groups = answer(policy, task, prompts, 4, Sampling(temperature=0, max_tokens=6), [0], False)
    assert all(len({one.completion.ids for one in group}) == 1 for group in groups)


def test_an_evaluation_of_nothing_is_an_error(tmp_path):  # S-EV-04
    task, rows = letters()
    with pytest.raises(UserError, match="has no rows"):
        evaluate_stage(session(tmp_path, task, Rows({"train": rows.split("test")}, {}, "here")), None, "base")
    assert not (tmp_path / "eval").exists()


# --- baselines


def classified(*rows):
    """A task over (text, labels), and its rows."""
    task = Task(
        rows=[],
        prompt=lambda row: [],
        rewards=[],
        check=lambda text, row: False,
        baseline_text=lambda row: (row["text"], row["labels"]),
    )
    return task, [{"text": text, "labels": labels} for text, labels in rows]


def test_both_baselines_by_hand_on_six_rows():
    task, train = classified(
        ("card lost", ["card"]), ("card stolen", ["card"]), ("card", ["card"]), ("refund now", ["money"]), ("refund please", ["money"]),
        ("no label", []),
    )  # fmt: skip
    _, dev = classified(("card again", ["card"]), ("refund", ["money"]), ("skipped", []))
    # six known words; card: 3 + 1 + 1 = 5 counted, money: 2 + 1 + 1 = 4. "lost refund": 3/5 * 2/11 * 1/11 = 0.0099 for card,
    # 2/5 * 1/10 * 3/10 = 0.012 for money. An unknown word leaves the prior, which is for card.
    _, test = classified(("lost refund", ["card"]), ("lost refund", ["card", "money"]), ("unheard", ["card"]), ("unheard", ["money"]))
    constant, bayes = baselines(task, train, dev, test)
    assert constant == {"name": "constant answer (card)", "n_train": 5, "dev_accuracy": 0.5, "test_accuracy": 0.75}
    assert bayes == {"name": "naive Bayes on words", "n_train": 5, "dev_accuracy": 1.0, "test_accuracy": 0.5}


def test_chinese_is_read_character_by_character():
    task, train = classified(("发票", ["invoice"]), ("发", ["invoice"]), ("退款", ["refund"]))
    # 退: 2/3 * 1/7 = 0.095 for invoice, 1/3 * 2/6 = 0.111 for refund. As whole words it would be unknown and the prior would win.
    _, dev = classified(("退", ["refund"]), ("我要退款!", ["refund"]), ("发 票", ["invoice"]))
    _, bayes = baselines(task, train, dev, [])
    assert bayes["dev_accuracy"] == 1.0 and bayes["test_accuracy"] is None


def test_a_task_that_is_no_classification_has_no_baselines():
    task, train = classified(("a text", []))
    assert baselines(task, train, [], []) == [] == baselines(task, [], train, train)
    plain_task = Task(rows=[], prompt=lambda row: [], rewards=[], check=lambda text, row: False)
    assert baselines(plain_task, train, train, train) == []


def test_one_label_or_no_word_leaves_the_constant_answer_alone():
    for rows in ([("some text", ["a"]), ("other text", ["a"])], [("x", ["a"]), ("?", ["b"])]):
        task, train = classified(*rows)
        assert [b["name"] for b in baselines(task, train, train, train)] == ["constant answer (a)"]


# --- windows


def test_a_missing_value_leaves_the_others_of_its_window_alone():  # S-MC-01
    values = np.full(32, 0.7)  # a window is five wide here
    values[14:19] = [math.nan, 0.8, math.nan, 0.6, math.nan]
    assert plots._smooth(values)[16] == pytest.approx(0.7)
    values[14:19] = math.nan
    smooth = plots._smooth(values)
    assert math.isnan(smooth[16]) and np.isfinite(smooth[[13, 19]]).all() and smooth[0] == pytest.approx(0.7)


def test_none_in_a_metrics_column_is_missing_and_not_zero():
    rows = [{"reward": value} for value in (None, 0.8, None, 0.6)]
    column = plots._column(rows, "reward")
    found = plots.trend(column)
    assert (found.start, found.end, found.steps) == (0.8, 0.6, 2)
    assert plots.trend(plots._column(rows, "no such column")) is None
    assert "not measured" in plots.change_sentence("Reward", plots._column([{"reward": None}], "reward"))


# --- the run directory


def strict(text):
    def refuse(name):
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_what_is_no_number_becomes_null(tmp_path):  # S-LG-02
    value = {"a": math.nan, "b": [math.inf, -math.inf, 1.5], "c": {"d": np.float32("nan")}, 3: np.array([1.0, math.nan]), "e": True}
    wanted = {"a": None, "b": [None, None, 1.5], "c": {"d": None}, "3": [1.0, None], "e": True}
    write_json(tmp_path / "x.json", value)
    append_jsonl(tmp_path / "x.jsonl", [value, value])
    assert strict((tmp_path / "x.json").read_text()) == wanted == read_json(tmp_path / "x.json")
    assert [strict(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()] == [wanted] * 2
    assert plain({"n": np.int64(3), "p": tmp_path, "t": (1, 2)}) == {"n": 3, "p": str(tmp_path), "t": [1, 2]}


def test_lines_are_appended_and_any_text_survives(tmp_path):
    path = tmp_path / "below" / "x.jsonl"
    rows = [{"t": text} for text in ("plain", "中文 😀", "a\nb\r\n\u2028\u2029\x00\x1f", "\ud800 alone \udfff", '"\\u0041"', "")]
    append_jsonl(path, rows[:2])
    append_jsonl(path, rows[2:])
    assert read_jsonl(path) == rows
    assert "中文 😀".encode() in path.read_bytes()  # readable, not escaped
    write_json(tmp_path / "x.json", rows)
    assert read_json(tmp_path / "x.json") == rows


@given(st.text(st.characters(exclude_categories=())))
def test_every_string_comes_back_as_it_went(text):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        append_jsonl(Path(folder) / "x.jsonl", [{"text": text}, {"text": text + "x"}])
        got = read_jsonl(Path(folder) / "x.jsonl")
    # two halves of a pair written one after another are, as JSON, the whole character
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert [row["text"].encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") for row in got] == [whole, whole + "x"]


def test_a_last_line_cut_short_is_left_out_wherever_it_was_cut(tmp_path):
    path = tmp_path / "x.jsonl"
    append_jsonl(path, [{"a": 1}, {"b": "发票 😀"}])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) - 1):  # in the middle of a character too
        path.write_bytes(whole[:end])
        assert read_jsonl(path) == [{"a": 1}]
    path.write_bytes(whole[:-1])  # only the line end is missing
    assert len(read_jsonl(path)) == 2
    path.write_bytes(whole[:first] + b"\x00" * 100)  # what some file systems leave after a power cut
    assert read_jsonl(path) == [{"a": 1}]


@pytest.mark.parametrize("broken", [b'{"b": ', b"\xff\xfe", b"nonsense"])
def test_a_broken_line_in_the_middle_is_named(broken, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n\n' + broken + b'\n{"c": 3}\n')
    with pytest.raises(UserError, match=r"x\.jsonl:3: this line is not JSON"):
        read_jsonl(path)
    path.write_bytes(b'{"a": 1}\n\n' + broken + b"\n")  # a whole line, though the last
    with pytest.raises(UserError, match=r"x\.jsonl:3"):
        read_jsonl(path)


def test_what_is_not_there_is_empty_and_what_is_broken_is_named(tmp_path):
    assert read_jsonl(tmp_path / "no.jsonl") == [] and read_json(tmp_path / "no.json") is None
    for content in (b"{", b"\xff"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(UserError, match=r"x\.json' is not JSON"):
            read_json(tmp_path / "x.json")


@pytest.mark.parametrize("where", ["os.replace", "pathlib.Path.write_bytes"])
def test_a_file_is_replaced_whole_or_not_at_all(where, tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        with pytest.raises(UserError, match=r"Cannot write '.*No space left on device"):
            write_json(path, {"new": 2})
    assert read_json(path) == {"old": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]
    write_text(path, "done")
    assert path.read_text() == "done" and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    for write in (lambda p: write_json(p, {}), lambda p: append_jsonl(p, [{}])):
        with pytest.raises(UserError, match=r"Cannot write '.*below"):
            write(tmp_path / "file" / "below" / "x")
