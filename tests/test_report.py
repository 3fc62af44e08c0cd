"""The report of a run, tested on synthetic run directories and in a real browser."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from earnest.engine.rollouts import Prompt, Sampled, rollout_records, score_batch
from earnest.engine.sampler import Completion
from earnest.environment import play
from earnest.errors import UserError
from earnest.lab.browse import disagreements
from earnest.lab.plots import curve_svgs, curves_png
from earnest.lab.report import duration, forest, percent, points, verdict, write_report
from earnest.lab.trends import change_sentence, check_sentence, dead_sentence
from earnest.rewards.calls import as_messages
from earnest.rewards.compose import compose
from earnest.rewards.verifier import Verifier, as_reward, right, wrong
from earnest.rundir import append_jsonl, write_json
from earnest.task import Task
from earnest.text import Answer

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\u2028<!-- ${1} \\u003c &lt;b&gt; \x00"


def synthetic_summary(difference: float = 0.12, interval: tuple[float, float] = (0.04, 0.2)) -> dict[str, Any]:
    """A made-up summary in the documented shape; every number is invented."""
    accuracies = {"base": 0.28, "sft": 0.49, "grpo": 0.28, "sft_grpo": 0.61}
    models = []
    for name, accuracy in accuracies.items():
        models.append({
            "name": name, "dev_accuracy": accuracy + 0.02, "dev_accuracy_interval": [accuracy - 0.06, accuracy + 0.1],
            "test_accuracy": accuracy, "test_accuracy_interval": [accuracy - 0.07, accuracy + 0.07],
            "json_valid_rate": min(1, accuracy + 0.39),
            "all_fields_accuracy": accuracy - 0.17, "all_fields_interval": [accuracy - 0.23, accuracy - 0.1], "n_dev": 120, "n_test": 200,
            "mean_output_tokens": 31 + 40 * accuracy, "sampled_accuracy": None if name == "grpo" else accuracy - 0.05,
            "fields": {"category": accuracy, "priority": accuracy - 0.08, "handoff": accuracy + 0.21},
            "hand_off_rate": 0.5 - accuracy / 2, "hand_off_gold": 0.22,
            "slices": {"language": {"de": {"n": 70, "accuracy": accuracy - 0.1}, "en": {"n": 130, "accuracy": accuracy + 0.05}},
                       "category": {word: {"n": 40 + at, "accuracy": accuracy + 0.04 * (at - 2)}
                                    for at, word in enumerate(("access", "billing", "shipping", "technical"))}},
        })  # fmt: skip
    compared = [("sft", "sft_grpo", "accuracy", difference, interval), ("base", "sft", "accuracy", 0.21, (0.13, 0.29)),
                ("base", "grpo", "accuracy", 0.0, (-0.03, 0.03)), ("sft", "sft_grpo", "all_fields", 0.12, (-0.01, 0.24))]  # fmt: skip
    return {
        "task": "synthetic-triage", "model": "synthetic-model-0", "models": models,
        "baselines": [{"name": "constant answer (technical)", "dev_accuracy": 0.29, "test_accuracy": 0.27, "n_train": 400},
                      {"name": "naive Bayes on words", "dev_accuracy": 0.55, "test_accuracy": 0.53, "n_train": 400}],
        "comparisons": [{"a": a, "b": b, "split": "test", "mode": "greedy", "metric": metric, "difference": gap,
                         "interval": list(reach), "n": 200} for a, b, metric, gap, reach in compared],
        "notes": ["GRPO from the base model learned nothing: every group was dead, because every answer was wrong."],
        "seconds": {"difficulty": 210.4, "sft": 344.0, "sft_grpo": 1421.7, "grpo": 610.2, "eval": 95.1},
    }  # fmt: skip


def synthetic_metrics(steps: int, learns: bool, seed: int = 0) -> list[dict[str, Any]]:
    """Made-up GRPO metrics: a run that learns, or one in which every group is dead."""
    noise, rows = random.Random(seed), []
    for step in range(1, steps + 1):
        level = 0.41 + 0.37 * (1 - math.exp(-3 * step / steps)) if learns else 0.05
        jitter = noise.gauss(0, 0.04) if learns else 0.0
        right, wrong, tied = (0.4 * step / steps, 0.3 * (1 - step / steps), 0.05) if learns else (0.0, 1.0, 0.0)
        rows.append({
            "step": step, "loss": noise.gauss(0, 0.02) if learns else 0.0, "reward": level + jitter,
            "reward_std": 0.2 * (1 - right) if learns else 0.0,
            "rewards/json_format/mean": min(1, level + 0.3 + jitter),
            "rewards/label_match/mean": level - 0.1 + noise.gauss(0, 0.03) * learns,
            "rewards/brevity/mean": 0.5, "frac_reward_zero_std": min(1, right + wrong + tied),
            "groups/all_right": right, "groups/all_wrong": wrong, "groups/tied": tied,
            "completions/mean_length": 62 - 20 * level + noise.gauss(0, 2), "completions/min_length": 31, "completions/max_length": 90,
            "completions/clipped_ratio": 0.03 if learns else 0.4, "entropy": 1.1 - 0.8 * level + noise.gauss(0, 0.02),
            "kl": 0.02 * step / steps if learns else math.nan, "grad_norm": abs(noise.gauss(0.8, 0.2)) * learns,
            "check/accuracy": level - 0.05 + jitter / 2,
        })  # fmt: skip
    return rows


def synthetic_rollouts(steps: int, groups: int = 4, size: int = 8, learns: bool = True, hostile: bool = True) -> Iterator[dict[str, Any]]:
    """Made-up rollouts of a triage task; the first text of the first step is hostile."""
    noise, labels = random.Random(7), ("billing", "technical", "shipping", "access")
    for step in range(1, steps + 1):
        for group in range(groups):
            number = (step * groups + group) % 60
            gold = labels[number % 4]
            message = f"Ticket {number}, synthetic: my {number} grey boxes did not arrive, I was charged twice. " * (1 + number % 3)
            prompt = [{"role": "system", "content": "Answer with one JSON object: category."}, {"role": "user", "content": message}]
            drawn = []
            for sample in range(size):
                right = learns and noise.random() < 0.3 + 0.5 * step / steps
                broken = noise.random() < (0.15 if learns else 0.8)
                answer = {"category": gold if right else "other", "priority": noise.randint(1, 3), "handoff": bool(sample % 2)}
                text = f"Sure! The category is {answer['category']}." if broken else json.dumps(answer)
                if hostile and (step, group, sample) == (1, 0, 0):
                    text = HOSTILE
                drawn.append((text, right and not broken, not broken, sample))
            rewards = [0.2 * formed + 0.8 * right if learns else 0.0 for _, right, formed, _ in drawn]
            mean = sum(rewards) / size
            for (text, right, formed, sample), reward in zip(drawn, rewards, strict=True):
                fields = {"category": right, "priority": bool(sample % 3) if formed else False, "handoff": None}
                yield {
                    "step": step, "group": group, "sample": sample, "id": f"row-{number}", "prompt": prompt, "text": text,
                    "reasoning": "It says charged twice, so billing or shipping." if sample == 1 else None, "tokens": len(text) // 4,
                    "terminated": sample != 7,
                    "rewards": {"json_format": float(formed), "label_match": None if sample == 6 else float(right)},
                    "reward": reward, "advantage": reward - mean,
                    "verdict": {"correct": right, "fields": fields, "well_formed": formed, "handed_off": formed and bool(sample % 2)},
                }  # fmt: skip


def synthetic_run(folder: Path, steps: int = 20, leave_out: tuple[str, ...] = (), **summary: Any) -> Path:
    """A whole synthetic run directory, without the named parts."""
    config = {"model": {"value": "synthetic-model-0", "origin": "task file"}, "grpo": {"steps": {"value": steps, "origin": "command line"},
              "learning_rate": {"value": 1e-5, "origin": "default"}, "beta": {"value": None, "origin": "default"}}}  # fmt: skip
    run = {"command": f"earnest run synthetic-triage --grpo.steps {steps}", "task": "synthetic-triage", "config": config,
           "versions": {"earnest": "0.0.0", "python": "3.11"}, "device": "cpu", "seed": 0, "start": "2024-02-03T10:00:00+00:00",
           "end": "2024-02-03T10:44:41+00:00", "state": "done"}  # fmt: skip
    forecast = {"4": 0.61, "8": 0.44, "16": 0.33, "32": 0.27}
    before = {"model": "base", "k": 8, "rows": 200, "all_right": 0.04, "mixed": 0.38, "all_wrong": 0.58, "pass_rate": 0.21,
              "format_failures": 0.5, "content_failures": 0.29, "dead_forecast": forecast, "pass_rates": {},
              "advice": "Most rows fail by format: train with SFT first."}  # fmt: skip
    after = before | {"model": "sft", "all_right": 0.27, "mixed": 0.6, "all_wrong": 0.13, "pass_rate": 0.52, "advice": "Ready for GRPO."}
    losses = [{"step": at, "loss": 2 / (1 + at / 9), "grad_norm": 1.0} for at in range(1, steps + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        "run.json": lambda path: write_json(path, run),
        "summary.json": lambda path: write_json(path, synthetic_summary(**summary)),
        "difficulty.json": lambda path: write_json(path, {"before": before, "after": after}),
        "sft/metrics.jsonl": lambda path: append_jsonl(path, losses),
        "sft_grpo/metrics.jsonl": lambda path: append_jsonl(path, synthetic_metrics(steps, learns=True)),
        "grpo/metrics.jsonl": lambda path: append_jsonl(path, synthetic_metrics(steps, learns=False)),
        "sft_grpo/rollouts.jsonl": lambda path: append_jsonl(path, synthetic_rollouts(steps)),
        "grpo/rollouts.jsonl": lambda path: append_jsonl(path, synthetic_rollouts(steps, learns=False, hostile=False)),
    }
    for name, write in parts.items():
        if name not in leave_out:
            write(folder / name)
    return folder


def page_of(run: Path) -> str:
    return write_report(run).read_text(encoding="utf-8")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is said beside curves, which take most of the time of a page."""
    monkeypatch.setattr("earnest.lab.plots._svg", lambda panel: "")


# Sentences


def test_verdict_of_an_interval_above_zero() -> None:
    said = verdict(synthetic_summary())
    assert said == "SFT then GRPO answers 61% of held-out rows right, 12 points more than SFT alone (95% interval 4 to 20 points)."


def test_verdict_of_an_interval_with_zero_claims_no_gain() -> None:
    assert verdict(synthetic_summary(0.03, (-0.05, 0.11))).endswith(
        "3 points more than SFT alone (95% interval −5 to 11 points): the interval includes zero, so this run does not show a gain."
    )
    assert "does not show a gain" in verdict(synthetic_summary(0.03, (0.0, 0.11)))


def test_verdict_of_a_loss_and_of_nothing() -> None:
    said = verdict(synthetic_summary(-0.09, (-0.14, -0.02)))
    assert "9 points fewer than SFT alone" in said and said.endswith("made it worse.")
    assert "Nothing was evaluated" in verdict({})
    assert "nothing was compared" in verdict(synthetic_summary() | {"comparisons": []})
    assert "nothing was compared" in verdict(synthetic_summary() | {"comparisons": [{"a": "sft", "b": "sft_grpo", "difference": None}]})


def test_sentences_of_rising_flat_and_falling_series() -> None:
    noise = random.Random(1)
    up = [0.4 + 0.006 * at + noise.gauss(0, 0.02) for at in range(60)]
    flat = [0.4 + noise.gauss(0, 0.02) for _ in range(60)]
    assert re.fullmatch(r"Reward rose from 0\.4\d to 0\.7\d over 60 steps\.", change_sentence("Reward", up))
    assert re.fullmatch(r"Reward fell from 0\.7\d to 0\.4\d over 60 steps\.", change_sentence("Reward", up[::-1]))
    assert change_sentence("Reward", flat) == "Reward stayed flat around 0.40 over 60 steps."
    assert change_sentence("Reward", [0.2] * 60) == "Reward stayed flat around 0.20 over 60 steps."
    assert "too few to call a trend" in change_sentence("Reward", up[:3])
    assert change_sentence("Reward", [math.nan]) == "Reward was not measured."
    assert check_sentence(up, up).endswith("so the reward was earned.")
    assert "read the best-paid rollouts" in check_sentence(up, flat)
    assert "read the best-paid rollouts" in check_sentence(up, up[::-1])
    assert "did not get better" in check_sentence(flat, flat)


def test_sentences_of_dead_groups() -> None:
    assert dead_sentence([1.0] * 9, [0, 9, 0]) == "Every group was dead, mostly because every answer was wrong: nothing to learn."
    assert dead_sentence([0.0] * 9, [0, 0, 0]).startswith("No group was dead")
    assert dead_sentence([0.5] * 9, [4.5, 0, 0]) == "50% of groups were dead on average, mostly because every answer was right."


def test_numbers_are_shown_as_a_person_would() -> None:
    assert [percent(value) for value in (None, math.nan, 0.614, 0.999, 1, 0)] == ["–", "–", "61%", "99.9%", "100%", "0%"]
    assert [points(value) for value in (None, 0.12, -0.053, 0.0004, 0)] == ["–", "12", "−5.3", "0.04", "0"]
    assert [duration(value) for value in (None, 4.25, 2681, 7260)] == ["–", "4.2 s", "45 min", "2 h 1 min"]


def test_forest_has_one_axis_for_all() -> None:
    drawn = forest(synthetic_summary()["comparisons"])
    assert all(0 <= row[edge] <= 100 for row in drawn["rows"] for edge in ("low", "middle", "high"))
    assert {row["tone"] for row in drawn["rows"]} == {"gain", "open"}
    assert (50, "0") in [(at, label.strip("+")) for at, label in drawn["ticks"]]
    assert forest([])["rows"] == []


# The page


def test_page_is_self_contained_and_safe(tmp_path: Path) -> None:
    page = page_of(synthetic_run(tmp_path / "run"))
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//|@import|url\((?!#)""", page)
    assert page.count("<script") == page.count("</script>") == 2, "hostile text must not open or close a script element"
    assert "onerror" not in page.split('id="data">')[0] and "<img" not in page and "\u2028" not in page
    assert "NaN" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_hostile_words_outside_rollouts_stay_text(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path / "run", leave_out=("summary.json", "run.json"))
    write_json(run / "run.json", {"task": HOSTILE, "config": {HOSTILE: HOSTILE}, "command": HOSTILE, "state": "interrupted"})
    write_json(run / "summary.json", synthetic_summary() | {"notes": [HOSTILE], "model": HOSTILE})
    append_jsonl(run / "sft_grpo/metrics.jsonl", [{"step": 99, "rewards/<img src=x>/mean": 0.5}])
    page = page_of(run)
    assert page.count("<script") == 2 and "<img" not in page
    assert "its state is “interrupted”" in page


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (["run.json"], "No training step was recorded."),
        (["summary.json"], "There is no run.json"),
        (["run.json", "sft/metrics.jsonl"], "GRPO has no recorded step."),
        (["grpo/metrics.jsonl"], "Every group was dead, mostly because every answer was wrong"),
        (["run.json", "sft_grpo/metrics.jsonl", "difficulty.json"], "There are no rollouts to browse."),
        (["run.json", "sft_grpo/metrics.jsonl", "sft_grpo/rollouts.jsonl"], "There is no summary.json yet"),
    ],
)
def test_partial_runs_show_what_is_there_and_name_what_is_not(tmp_path: Path, keep: list[str], said: str) -> None:
    whole = ["run.json", "summary.json", "difficulty.json", "sft/metrics.jsonl"]
    whole += [f"{stage}/{name}.jsonl" for stage in ("grpo", "sft_grpo") for name in ("metrics", "rollouts")]
    run = synthetic_run(tmp_path / "run", leave_out=tuple(set(whole) - set(keep)))
    assert said in page_of(run)
    assert curves_png(run).read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("undrawn")
def test_a_run_cut_short_within_a_line_is_readable(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path / "run", steps=3, leave_out=("summary.json",))
    for name in ("metrics", "rollouts"):
        with (run / f"sft_grpo/{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"step": 4, "rew')
    assert "too few to call a trend" in page_of(run)


@pytest.mark.usefixtures("undrawn")
def test_too_many_rollouts_are_thinned_by_whole_steps_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = synthetic_run(tmp_path / "run", steps=10, leave_out=("grpo/rollouts.jsonl",))
    monkeypatch.setattr("earnest.lab.browse.MAX_SHOWN", 100)
    shown = re.search(r'id="data">(.*?)</script>', page := page_of(run), re.DOTALL)
    assert shown and {row["step"] for row in json.loads(shown[1])["rollouts"]} == {1, 5, 9, 10}
    assert "192 rollouts are left out" in page


def test_trajectories_too_long_for_a_page_are_thinned_by_whole_rows_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "run.json", {"task": "synthetic"})
    own = [acting(id=f"row-{row}", split="test", mode="greedy", messages=[{"content": "x" * 1000}]) for row in range(4)]
    for model in ("base", "sft"):
        append_jsonl(tmp_path / f"eval/{model}.jsonl", own)
    monkeypatch.setattr("earnest.lab.browse.MAX_CHARACTERS", 6000)  # of a bit more than 8,000: every second row, and the last
    page = page_of(tmp_path)
    assert [row["id"] for row in data_of(page)["answers"]] == ["row-0", "row-2", "row-3"] * 2
    assert "2 answers of the evaluation are left out" in page and ">Answers</h2>" in page


def test_what_is_no_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        for write in (write_report, curves_png, curve_svgs):
            with pytest.raises(UserError, match=re.escape(str(folder))):
                write(folder)


def test_curves_follow_the_page_colours(tmp_path: Path) -> None:
    curves = curve_svgs(synthetic_run(tmp_path / "run"))
    titles = {one.title for one in curves}
    assert {"Reward", "Check against reward", "Reward functions", "Dead groups", "Entropy", "Gradient norm"} <= titles
    assert [one.stage for one in curves if one.title == "KL to the reference"] == ["sft_grpo"], "no curve without a number"
    for curve in curves:
        assert curve.sentence.endswith(".") and "nan" not in curve.sentence
        assert curve.svg.startswith("<svg viewBox") and "<style" not in curve.svg
        assert not re.findall(r"#[0-9a-f]{6}\b", re.sub(r"#(ffffff|000000)", "", curve.svg))


# Rollouts with tools


def called(*calls: tuple[str, Any], content: str = "", **more: Any) -> dict[str, Any]:
    entries = [{"id": f"call_{n}", "type": "function", "function": {"name": one[0], "arguments": one[1]}} for n, one in enumerate(calls)]
    return {"role": "assistant", "content": content, "tool_calls": entries, **more}


def told(content: str, name: str = "find", number: int = 0) -> dict[str, Any]:
    return {"role": "tool", "name": name, "tool_call_id": f"call_{number}", "content": content}


FIND, REFUND = ("find", {"email": "ann@oak.com"}), ("refund", {"payment": "P1", "amount": "60.00"})
ACTED = [
    called(FIND, content="I look first.", reasoning_content="Who is it?"),
    told('{"customer": "C7"}'),
    called(REFUND, FIND),
    told('{"error": "ValueError: needs approval"}', "refund"),
    told('{"customer": "C7"}', number=1),
    called(("refund", None)),
    told('{"error": "not JSON"}', "refund"),
    {"role": "assistant", "content": '{"answer": "60.00"}'},
]
PROGRAM = "for n in range(3):\n    print(n)"


def acting(**changed: Any) -> dict[str, Any]:
    """A rollout with tools, as the engine records it."""
    return {
        "step": 1, "group": 0, "sample": 0, "id": "row-0", "prompt": [{"role": "user", "content": "Refund it."}],
        "text": '{"answer": "60.00"}', "reasoning": None, "tokens": 50, "terminated": True, "rewards": {"billing": 0.0}, "reward": 0.0,
        "advantage": -0.5, "reasons": {"billing": "gate approval: broken: approve before refund"},
        "verdict": {"correct": False, "fields": {"state": False}, "well_formed": True, "handed_off": False},
        "messages": ACTED, "ended": "answered", "turns": [20, 15, 10, 5], "given_tokens": 33,
        "tools": {"calls": 4, "failed": 2, "malformed": 1, "hung": 0, "repeated": 1},
        "marks": [[], ["failed"], ["repeated"], ["failed", "malformed"]], "unread": {"3": '<tool_call>{"name": "refund", "argum'},
    } | changed  # fmt: skip


RIGHT = {"correct": True, "fields": {"state": True}, "well_formed": True, "handed_off": False}
ACTING = [
    acting(),
    acting(sample=1, reward=1.0, rewards={"billing": 1.0}, advantage=0.5, reasons={}, verdict=RIGHT,
           messages=[called(FIND), told("C7"), *ACTED[-1:]], turns=[20, 5], marks=[[]], turn_rewards=[0.25, 0.0],
           turn_advantages=[0.75, -0.5],
           tools={"calls": 1, "failed": 0, "malformed": 0, "hung": 0, "repeated": 0}),
    acting(sample=2, reward=0.9, ended="turn limit", terminated=False, turns=[9, 9], unread={"2": HOSTILE}, reasons={"billing": HOSTILE},
           messages=[called(("python", {"code": PROGRAM})), told(HOSTILE), called((HOSTILE, {HOSTILE: [HOSTILE]}), content=HOSTILE)],
           marks=[["failed", "hung"]], tools={"calls": 1, "failed": 1, "malformed": 0, "hung": 1, "repeated": 0}),
]  # fmt: skip


def acting_run(folder: Path) -> Path:
    """A run directory of a task with tools: training, and the evaluation of two models on two rows."""
    own = tuple(f"{stage}/{name}.jsonl" for stage in ("grpo", "sft_grpo") for name in ("metrics", "rollouts"))
    run = synthetic_run(folder, steps=3, leave_out=own)
    append_jsonl(run / "sft_grpo/rollouts.jsonl", ACTING)
    append_jsonl(run / "sft_grpo/metrics.jsonl", acting_metrics())
    training = ("step", "group", "reward", "rewards", "advantage", "reasons")
    answered = {key: value for key, value in ACTING[0].items() if key not in training} | {"split": "test", "mode": "greedy"}
    for model, judged in (("base", ACTING[0]["verdict"]), ("sft_grpo", RIGHT)):
        own = [answered | {"id": row, "model": model, "verdict": judged, "slices": {"family": "refund"}} for row in ("row-8", "row-9")]
        append_jsonl(run / f"eval/{model}.jsonl", own)
    return run


def acting_metrics(steps: int = 20) -> list[dict[str, Any]]:
    rows = synthetic_metrics(steps, learns=True)
    for at, row in enumerate(rows):
        row |= {
            "tools/call_frequency": 2.0, "turns/mean": 3.0, "tools/failure_frequency": 0.4 - 0.01 * at, "tools/malformed": 0.0,
            "tools/hung": 0.0, "tools/repeated": 0.1 + 0.01 * at, "echo": 0.05 + 0.01 * at, "ended/answered": 0.5 + 0.02 * at,
            "ended/turn_limit": 0.5 - 0.02 * at, "ended/done": 0.0, "ended/call_limit": 0.0, "ended/token_limit": 0.0,
            "turns/1_length": 20.0, "turns/2_length": 12.0,
        }  # fmt: skip
    return rows


def test_reward_and_check_disagree_where_wrong_earns_like_right_and_right_like_wrong() -> None:
    def rollouts(*pairs: tuple[float | None, bool | None]) -> list[dict[str, Any]]:
        return [{"reward": reward, "verdict": {"correct": correct}} for reward, correct in pairs]

    # right earn 1, 1 and 0.1 (median 1), wrong 0, 0.2 and 0.6 (median 0.2): the line is at 0.6
    mixed = rollouts((1, True), (1, True), (0.1, True), (0, False), (0.2, False), (0.6, False), (None, False), (9, None))
    assert disagreements(mixed) == ["", "", "unpaid", "", "", "paid", "", ""]
    assert disagreements(rollouts((1, True), (0, False))) == ["", ""]
    assert disagreements(rollouts((0, True), (0, False))) == ["", ""], "what all earn tells nothing"
    assert disagreements(rollouts((1, False), (1, False), (0, False), (1, True))) == ["paid", "paid", "", ""]
    assert disagreements(rollouts((1, False), (0, False))) == ["", ""], "nothing right to compare with"


@pytest.mark.usefixtures("undrawn")
def test_curves_of_tools_are_drawn_where_they_were_measured(tmp_path: Path) -> None:
    said = {one.title: one.sentence for one in curve_svgs(acting_run(tmp_path / "run"))}
    assert said["Calls and turns"] == "Calls a rollout stayed flat around 2.00 over 20 steps."
    # the first fifth is 0.4 to 0.37, the last 0.24 to 0.21
    went = "The share of failed calls fell from 0.39 to 0.23 over 20 steps. That of repeated ones rose"
    assert said["Failed and repeated calls"].startswith(went)
    # the last four steps answer 0.82 to 0.88
    assert said["How rollouts ended"] == "In the last steps rollouts ended: 85% with an answer, 15% at the turn limit."
    assert said["Echo"].endswith("over 20 steps: they became alike.")
    assert said["Length by turn"] == "In the last steps the turns have 20.0, 12.0 tokens, from the first on."
    plain = {one.title for one in curve_svgs(synthetic_run(tmp_path / "plain", steps=3))}
    assert not plain & {"Calls and turns", "Failed and repeated calls", "How rollouts ended", "Echo", "Length by turn"}


def scored(*words: str, log: str | None = None) -> list[dict[str, Any]]:
    """Records of single answers that a verifier (or a plain function, which logs `log`) scored."""

    def plain(completions: Any, log_extra: Any, **_: Any) -> list[float]:
        log_extra("plain/reasons", [log] * len(completions))
        log_extra("note", ["n"] * len(completions))
        return [0.5] * len(completions)

    exact = as_reward(Verifier("exact", lambda attempt, row: right() if attempt.text == "a" else wrong(f"not a but {attempt.text}")))
    rewards = [exact] if log is None else [exact, plain]
    task = Task(rows=[], prompt=lambda row: [], rewards=rewards, check=lambda text, row: text == "a")
    samples = [[Sampled(Completion((1,), True), Answer(text)) for text in words]]
    batch = score_batch(task, [Prompt({"id": "r"}, [], (1,), False)], samples, 1)
    return rollout_records(batch, np.zeros((1, len(words))), 1)


def test_reasons_of_rewards_reach_the_record_cut_where_they_are_long() -> None:
    good, bad, long = scored("a", "b", "c" * 1000)
    assert (good["reasons"], bad["reasons"]) == ({}, {"exact": "not a but b"})
    assert long["reasons"]["exact"] == "not a but " + "c" * 590 + " ..."
    assert "exact/reasons" not in bad, "they are kept once"
    (own,) = scored("b", log="because")
    assert own["reasons"] == {"exact": "not a but b", "plain": "because"} and own["note"] == "n"


def test_a_lost_gate_is_named_in_the_reasons() -> None:
    gate = Verifier("polite", lambda attempt, row: right() if "please" in attempt.text else wrong("no please"))
    whole = compose(gates=[gate], correct=Verifier("sum", lambda attempt, row: right() if "4" in attempt.text else wrong("another number")))
    assert whole("4").reasons == ("gate polite: no please",) and whole("please 5").reasons == ("sum: another number",)


def test_calls_are_marked_with_what_they_were_counted_as() -> None:
    task = Task(rows=[], prompt=lambda row: [], rewards=[], check=lambda messages, row: True, tools=[halve])
    wild = [("halve", {"number": 4}), ("halve", {"number": 4}), ("halve", {"number": 3}), ("double", {}), ("halve", {"of": 1})]
    episode = play(task, {}, as_messages(wild))
    assert episode.marks == [[], ["repeated"], ["failed"], ["failed", "malformed"], ["failed", "malformed"]]


def halve(number: int) -> int:
    """Halve an even number.

    Args:
        number: It.
    """
    if number % 2:
        raise ValueError("odd")
    return number // 2


def test_runs_from_before_reasons_and_prompts_were_kept_open(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"task": "synthetic"})
    old = acting(**{"billing/reasons": "broken: approve before refund"})
    for key in ("reasons", "marks", "unread"):
        del old[key]
    append_jsonl(tmp_path / "grpo/rollouts.jsonl", [old])
    answer = {"model": "base", "split": "dev", "mode": "greedy", "sample": 0, "id": "r", "text": "a", "verdict": RIGHT}
    append_jsonl(tmp_path / "eval/base.jsonl", [answer])
    shown = data_of(page_of(tmp_path))
    assert shown["rollouts"][0]["reasons"] == {"billing": "broken: approve before refund"}
    assert shown["prompts"][shown["answers"][0]["prompt"]] is None
    assert shown["names"] == {"grpo": "GRPO", "base": "base"}


def data_of(page: str) -> dict[str, Any]:
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.usefixtures("undrawn")
def test_the_page_tells_what_models_did_with_their_tools(tmp_path: Path) -> None:
    run = acting_run(tmp_path / "run")
    summary = synthetic_summary()
    summary["models"][0]["acting"] = {"turns": 3.5, "calls": 2.25, "failed": 0.125, "ended": {"answered": 1.0}}
    summary["models"][3]["acting"] = {"turns": 3.0, "calls": 2.0, "failed": 0.0, "ended": {"answered": 0.9, "turn limit": 0.1}}
    write_json(run / "summary.json", summary)
    before = {"k": 8, "rows": 9, "acting": {"turns/mean": 4.5, "tools/call_frequency": 3.5, "tools/failure_frequency": 0.2}}
    write_json(run / "difficulty.json", {"before": before, "after": {"rows": 5}})
    said = words_of(page_of(run))
    heads = "Model Turns Calls Failed calls Ended: answered Ended: turn limit"
    assert f"What they did with their tools {heads} base 3.50 2.25 12% 100% 0% SFT then GRPO 3.00 2.00 0% 90% 10%" in said
    assert "Turns a rollout 4.50 – Calls a rollout 3.50 – Failed calls 20% – Ended at the token limit – –" in said
    assert "Well formed" in said and "Strict JSON" not in said
    single = words_of(page_of(synthetic_run(tmp_path / "single", steps=3)))
    assert "What they did" not in single and "Strict JSON" in single and "Calls a rollout" not in single


def words_of(page: str) -> str:
    """What a reader of the page without its script reads."""
    return " ".join(re.sub(r"<(script|style)[ >].*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL).split())


# In a browser

FLAGS = """--headless=new --force-prefers-reduced-motion --no-sandbox --disable-gpu --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,900"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
    if not (chromium.exists() and driver.exists()):
        pytest.skip("Chromium is not installed: apt-get install -y chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(driver)))
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def whole_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(synthetic_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture
def page(browser: Any, whole_page: Path) -> Any:
    browser.get(whole_page.as_uri())
    yield browser
    assert browser.get_log("browser") == [], "nothing may be complained of in the console"


def texts(page: Any, selector: str) -> list[str]:
    # Read in one call: asking element by element takes seconds.
    return page.execute_script("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)


def choose(page: Any, name: str, value: str) -> None:
    script = "const [one, value] = arguments; one.value = value; one.dispatchEvent(new Event('input', {bubbles: true}))"
    page.execute_script(script, page.find_element("id", name), value)
    time.sleep(0.4)  # input is gathered for a moment before the list changes


def test_browser_shows_table_and_sections(page: Any) -> None:
    assert texts(page, ".wide tbody:first-of-type th") == ["base", "SFT", "GRPO", "SFT then GRPO"]
    assert [row.split("from")[0].strip() for row in texts(page, ".apart th")][1:] == ["constant answer (technical)", "naive Bayes on words"]
    assert len(texts(page, ".forest tbody tr")) == 5, "four comparisons and the axis"
    assert texts(page, "h1")[0].startswith("SFT then GRPO answers 61%")
    for link in texts(page, "nav a"):
        page.find_element("link text", link).click()


def test_browser_shows_hostile_text_as_text(page: Any) -> None:
    choose(page, "search", "hacked")
    assert texts(page, ".sample .text") == [HOSTILE]
    assert page.execute_script("return window.hacked") is None
    assert texts(page, "#groups img, #groups script") == []


def test_browser_filters_sorts_and_pages(page: Any) -> None:
    everything = 20 * 4 * 8 * 2
    assert texts(page, "#count") == [f"{everything:,} rollouts in 160 groups"] and texts(page, "#page") == ["1 of 20"]
    first = texts(page, ".group header b")
    page.find_element("id", "next").send_keys("\n")
    assert texts(page, "#page") == ["2 of 20"] and texts(page, ".group header b") != first
    choose(page, "run", "grpo")
    assert texts(page, "#count") == ["640 rollouts in 80 groups"]
    choose(page, "step", "20")
    assert texts(page, "#count") == ["32 rollouts in 4 groups"] and texts(page, "#step-name") == ["20"]
    assert all("dead: all earned the same" in header for header in texts(page, ".group > header"))
    choose(page, "run", "")
    choose(page, "low", "0.9")
    choose(page, "high", "1")
    assert set(texts(page, ".sample .reward")) == {"reward 1.00"} and set(texts(page, ".says")) == {"✓ right"}
    page.find_element("css selector", "#filters [type=reset]").click()
    time.sleep(0.2)
    assert texts(page, "#count")[0].startswith(f"{everything:,}")
    page.find_element("css selector", "[value=malformed]").send_keys(" ")
    time.sleep(0.4)
    assert set(texts(page, ".says")) == {"✗ not well formed"}
    choose(page, "search", "no such words")
    assert texts(page, "#count") == ["No rollout matches."] and texts(page, ".group") == []


def test_browser_lays_out_json_and_gives_back_what_was_written(page: Any) -> None:
    page.find_element("css selector", "[value=right]").send_keys(" ")
    time.sleep(0.4)
    laid_out = texts(page, ".sample .text:has(.key)")[0]
    assert laid_out.startswith('{\n  "category"')
    page.find_element("xpath", "(//button[text()='As written'])[1]").send_keys("\n")
    written = texts(page, ".sample:has(button.link) > .text")[0]
    assert "\n" not in written and json.loads(written) == json.loads(laid_out)


def test_browser_stays_fast_with_ten_thousand_rollouts(browser: Any, tmp_path: Path) -> None:
    run = synthetic_run(tmp_path / "run", leave_out=("sft_grpo/rollouts.jsonl", "grpo/rollouts.jsonl"))
    append_jsonl(run / "sft_grpo/rollouts.jsonl", synthetic_rollouts(160, groups=8))
    browser.get(write_report(run).as_uri())
    assert texts(browser, "#count") == ["10,240 rollouts in 1,280 groups"]
    assert len(texts(browser, ".sample")) == 64, "only one page is in the document"
    took = """const [done] = arguments, start = performance.now(), search = document.getElementById("search");
              document.getElementById("sort").value = "-reward"; search.value = "boxes";
              new MutationObserver(() => done(performance.now() - start)).observe(document.getElementById("groups"), {childList: true});
              search.dispatchEvent(new Event("input", {bubbles: true}))"""
    assert browser.execute_async_script(took) < 1500, "milliseconds to search and sort all"
    assert browser.get_log("browser") == []


def test_browser_opens_the_page_of_an_empty_run(browser: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"task": "synthetic-triage", "state": "running"})
    browser.get(write_report(tmp_path).as_uri())
    assert "its state is “running”" in texts(browser, ".caveat")[0]
    assert texts(browser, "nav a") == ["How it was made"] and browser.get_log("browser") == []


@pytest.fixture
def acting_page(browser: Any, tmp_path: Path) -> Any:
    browser.get(write_report(acting_run(tmp_path / "run")).as_uri())
    yield browser
    assert browser.get_log("browser") == [], "nothing may be complained of in the console"


def opened(page: Any, number: int) -> str:
    """Open a trajectory; the selector of its card."""
    page.execute_script("document.querySelectorAll('.trajectory')[arguments[0]].open = true", number)
    time.sleep(0.2)  # the turns are drawn once it is open
    return f".sample:nth-child({number + 1})"


def test_browser_shows_a_trajectory_turn_by_turn(acting_page: Any) -> None:
    assert texts(acting_page, ".turn") == [], "closed, it is not drawn"
    card = opened(acting_page, 0)
    assert texts(acting_page, f"{card} .path .step") == ["find", "refundfailed", "findrepeated", "refundmalformed"]
    assert texts(acting_page, f"{card} .why") == ["billing gate approval: broken: approve before refund"]
    assert texts(acting_page, f"{card} .turn > header") == ["Turn 120 tokens", "Turn 215 tokens", "Turn 310 tokens", "Turn 45 tokens"]
    assert texts(acting_page, f"{card} .turn:nth-of-type(1) > .text") == ["I look first."]
    assert texts(acting_page, f"{card} .turn details .text") == ["Who is it?"]
    assert texts(acting_page, f"{card} .turn:nth-of-type(2) .call > header") == ["refundfailed", "findrepeated"]
    assert texts(acting_page, f"{card} .call > .text")[1:3] == ['payment: "P1"', 'amount: "60.00"']
    results = texts(acting_page, f"{card} .result .text")
    assert [json.loads(one) for one in results[:2]] == [{"customer": "C7"}, {"error": "ValueError: needs approval"}]
    assert texts(acting_page, f"{card} .turn:nth-of-type(3) > .text") == ['<tool_call>{"name": "refund", "argum'], "as it was written"
    assert texts(acting_page, f"{card} .end") == ["Ended: answered (it answered without a call)"]


def test_browser_shows_what_turns_earned_where_they_earned_something(acting_page: Any) -> None:
    card = opened(acting_page, 1)
    heads = texts(acting_page, f"{card} .turn > header")
    assert heads == ["Turn 120 tokensreward 0.25advantage +0.75", "Turn 25 tokensreward 0.00advantage −0.50"]


def test_browser_shows_hostile_calls_and_answers_as_text(acting_page: Any) -> None:
    card = opened(acting_page, 2)
    assert texts(acting_page, f"{card} .block") == [PROGRAM], "a program stands in lines"
    assert texts(acting_page, f"{card} .call > header")[1] == HOSTILE + "not run"
    assert texts(acting_page, f"{card} .result .text") == [HOSTILE]
    assert texts(acting_page, f"{card} .end") == ["Ended: turn limit (its last turn still made a call)"]
    assert acting_page.execute_script("return window.hacked") is None
    assert texts(acting_page, "#groups img, #groups script") == []


def test_browser_finds_trajectories_by_their_end_their_calls_and_disagreement(acting_page: Any) -> None:
    assert texts(acting_page, "#count") == ["3 rollouts in 1 group"]
    for name, value, count in (("ended", "turn limit", 1), ("ended", "answered", 2), ("calls", "failed", 2), ("calls", "none failed", 1),
                               ("calls", "hung", 1), ("search", "needs approval", 1)):  # fmt: skip
        choose(acting_page, name, value)
        assert len(texts(acting_page, ".sample")) == count, (name, value)
        choose(acting_page, name, "")
    assert texts(acting_page, "#rollouts > .lead")[0].startswith("Reward and check disagree on 1 rollout: read")
    assert texts(acting_page, "#verdicts label") == ["all 3", "right 1", "wrong 2", "not well formed 0", "paid though wrong 1"]
    acting_page.find_element("css selector", "[value=paid]").send_keys(" ")
    time.sleep(0.4)
    assert texts(acting_page, ".sample > header .reward") == ["reward 0.90"]


def test_browser_puts_the_answers_of_all_models_to_a_row_together(acting_page: Any) -> None:
    assert texts(acting_page, "#sources label") == ["Training 3", "Evaluation 4"]
    acting_page.find_element("css selector", "[value=answers]").send_keys(" ")
    time.sleep(0.4)
    assert texts(acting_page, "#count") == ["4 answers in 2 rows"]
    assert texts(acting_page, ".group > header")[0] == "row-8testfamily: refund1 of 2 right"
    assert texts(acting_page, ".group:first-child .who") == ["base", "SFT then GRPO"]
    assert texts(acting_page, ".reward") == [], "nothing is paid in an evaluation"
    choose(acting_page, "run", "base")
    assert texts(acting_page, "#count") == ["2 answers in 2 rows"]
    card = opened(acting_page, 0)
    assert len(texts(acting_page, f"{card} .turn")) == 4
