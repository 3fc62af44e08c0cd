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

import pytest

from earnest.errors import UserError
from earnest.lab.plots import change_sentence, check_sentence, curve_svgs, curves_png, dead_sentence
from earnest.lab.report import duration, forest, percent, points, verdict, write_report
from earnest.rundir import append_jsonl, write_json

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


def test_a_run_cut_short_within_a_line_is_readable(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path / "run", steps=3, leave_out=("summary.json",))
    for name in ("metrics", "rollouts"):
        with (run / f"sft_grpo/{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"step": 4, "rew')
    assert "too few to call a trend" in page_of(run)


def test_too_many_rollouts_are_thinned_by_whole_steps_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = synthetic_run(tmp_path / "run", steps=10, leave_out=("grpo/rollouts.jsonl",))
    monkeypatch.setattr("earnest.lab.report.MAX_ROLLOUTS", 100)
    shown = re.search(r'id="data">(.*?)</script>', page := page_of(run), re.DOTALL)
    assert shown and {row["step"] for row in json.loads(shown[1])["rollouts"]} == {1, 5, 9, 10}
    assert "192 rollouts are left out" in page


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
