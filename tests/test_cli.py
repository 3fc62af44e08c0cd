"""The command line end to end on a tiny random model: what a command writes, and what it says when something is wrong."""

import contextlib
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest
import tiny
import torch

from earnest import cli, stages
from earnest.engine.policy import Policy
from earnest.lab import report
from earnest.lab.statistics import share_interval
from earnest.rundir import read_jsonl
from earnest.trackers import open_tracker

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "triage_real"
WORDS = [
    "apple",
    "bridge",
    "candle",
    "dragon",
    "engine",
    "forest",
    "guitar",
    "harbor",
    "island",
    "jungle",
    "kettle",
    "ladder",
    "magnet",
    "needle",
]
SPLITS = ["train"] * 8 + ["dev"] * 3 + ["test"] * 3
ROWS = [
    {"id": f"r{i}", "split": split, "question": word, "gold": "xyz"[i % 3]}
    for i, (word, split) in enumerate(zip(WORDS, SPLITS, strict=True))
]
# Pays the right letter in full and an odd first character by half: a random model earns something here and there.
CLOSE = """
def close(completions, gold, **kwargs):
    texts = [c[0]["content"] for c in completions]
    return [1.0 if t == g else 0.5 * (ord(t[0]) % 2) if t else 0.0 for t, g in zip(texts, gold)]
"""
TASK = """
from earnest import Task, Verdict

def prompt(row):
    return [{{"role": "user", "content": row["question"]}}]

def check(text, row):
    return Verdict(text == row["gold"], {{"letter": text == row["gold"]}}, well_formed=len(text) == 1)

{reward}

task = Task(rows="rows.jsonl", prompt=prompt, rewards=[close], check=check, {rest})
"""
REST = (
    'oracle=lambda row: row["gold"], slices={"letter": lambda row: row["gold"]}, baseline_text=lambda row: (row["question"], [row["gold"]])'
)
SMALL = {
    "difficulty": ["--samples", "3"],
    "sft": ["--steps", "3", "--batch-size", "4"],
    "train": ["--steps", "2", "--num-prompts", "3", "--num-generations", "4", "--max-completion-length", "4"],
    "eval": ["--samples", "2", "--max-completion-length", "4"],
}
REPORTS = {"run.json", "summary.json", "table.md", "report.html", "curves.png"}
ADAPTER = {"adapter/adapter_config.json", "adapter/adapter_model.safetensors", "adapter/README.md"}


class Done:
    """What a command left behind: exit code, stdout, stderr."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def failed_with(self, *words):
        """Exit 2 and one sentence that holds these words, on stderr, without a traceback."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert "Traceback" not in self.err + self.out
        sentences = self.err.strip().splitlines()
        assert len(sentences) == 1 and sentences[0].startswith("earnest: "), self.err
        for word in words:
            assert str(word) in self.err, self.err
        return self


def earnest(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.run_command([str(a) for a in arguments])
        except SystemExit as end:
            code = end.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def stage(name, task, model, out, *more):
    return earnest(name, task, "--model", model, "--out", out, "--device", "cpu", "--lora-rank", "2", *SMALL.get(name, []), *more)


def whole_run(task, model, out, *more):
    own = [f"--{name}.{flag.removeprefix('--')}" if flag.startswith("--") else flag for name, flags in SMALL.items() for flag in flags]
    return earnest("run", task, "--model", model, "--out", out, "--device", "cpu", "--lora-rank", "2", *own, *more)


def spawned(*arguments, cwd, **options):
    """The same in a process of its own."""
    command = [sys.executable, "-m", "earnest.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options
    )


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_task(folder, reward=CLOSE, rows=ROWS, rest=REST):
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "rows.jsonl", rows)
    path = folder / "toy.py"
    path.write_text(TASK.format(reward=textwrap.dedent(reward), rest=rest), encoding="utf-8")
    return path


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def load(path):
    return strict(path.read_text(encoding="utf-8"))


def lines(path):
    return [strict(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return tiny.save(tiny.make(max_position_embeddings=2048), tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Curves are drawn in the runs that many tests look at; for each test anew they would take most of its time."""
    monkeypatch.setattr(stages, "curves_png", lambda run: (run / "curves.png").write_bytes(b""))
    monkeypatch.setattr(report, "curve_svgs", lambda run: [])


@pytest.fixture
def toy(tmp_path):
    return write_task(tmp_path / "task")


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """One `earnest run`, looked at by many tests."""
    folder = tmp_path_factory.mktemp("whole")
    done = whole_run(write_task(folder / "task"), model, folder / "run", "--seed", "3")
    assert done.code == 0, done.err
    return folder / "run", done


@pytest.fixture(scope="module")
def warm(model, tmp_path_factory):
    """The run directory of an `earnest sft`."""
    folder = tmp_path_factory.mktemp("warm")
    done = stage("sft", write_task(folder / "task"), model, folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


# --- earnest run


def test_run_writes_the_files_that_the_documentation_names(whole):
    run, done = whole
    grown = {"metrics.jsonl", "rollouts.jsonl", *ADAPTER}
    wanted = REPORTS | {"difficulty.json"} | {f"eval/{name}.jsonl" for name in ("base", "grpo", "sft", "sft_grpo")}
    wanted |= {f"{name}/{file}" for name in ("grpo", "sft_grpo") for file in grown}
    wanted |= {f"sft/{file}" for file in {"metrics.jsonl", *ADAPTER}}
    assert files_in(run) == wanted
    assert done.err == "" and f"report: {run / 'report.html'}" in done.out
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_everything_a_run_writes_is_strict_json(whole):
    run, _ = whole
    for path in run.rglob("*.json"):
        load(path)
    counts = {path.relative_to(run).as_posix(): len(lines(path)) for path in run.rglob("*.jsonl")}
    answers = 3 + 3 + 3 * 2  # dev and test once greedily, dev twice by sampling
    assert counts == {
        **{f"eval/{name}.jsonl": answers for name in ("base", "grpo", "sft", "sft_grpo")},
        **{f"{name}/metrics.jsonl": 2 for name in ("grpo", "sft_grpo")},
        **{f"{name}/rollouts.jsonl": 2 * 3 * 4 for name in ("grpo", "sft_grpo")},
        "sft/metrics.jsonl": 3,
    }


def test_the_run_record_says_what_was_asked_and_how_it_ended(whole):
    run, _ = whole
    record = load(run / "run.json")
    assert record["state"] == "done" and record["task"] == "toy" and record["seed"] == 3 and record["device"] == "cpu float32"
    assert record["start"] <= record["end"] and record["command"].startswith("earnest run ")
    assert record["config"]["train"]["steps"] == 2 and record["config"]["eval"]["samples"] == 2  # S-EV-01: eval settings are kept
    assert record["config"]["train"]["temperature"] == 1.0
    assert record["origins"]["train.steps"] == "command line" and record["origins"]["train.beta"] == "default"
    assert record["rows"] == {"source": "rows.jsonl", "train": 8, "dev": 3, "test": 3}
    assert {"python", "torch", "transformers", "peft"} <= set(record["versions"])


def test_the_summary_has_the_agreed_shape(whole):
    run, _ = whole
    summary = load(run / "summary.json")
    assert {"models", "comparisons", "difficulty", "seconds"} <= set(summary)
    assert [m["name"] for m in summary["models"]] == ["base", "sft", "grpo", "sft_grpo"]
    keys = {
        "name", "dev_accuracy", "test_accuracy", "json_valid_rate", "mean_output_tokens", "n_dev", "n_test", "test_accuracy_interval",
        "all_fields_accuracy",
    }  # fmt: skip
    for m in summary["models"]:
        assert keys <= set(m) and (m["n_dev"], m["n_test"]) == (3, 3)
        low, high = m["test_accuracy_interval"]
        assert 0 <= low <= m["test_accuracy"] <= high <= 1
        assert all(0 <= m[k] <= 1 for k in ("dev_accuracy", "json_valid_rate", "all_fields_accuracy", "sampled_accuracy"))
        assert 1 <= m["mean_output_tokens"] <= 4
    for c in summary["comparisons"]:
        assert {"a", "b", "split", "difference", "interval"} <= set(c)
        assert c["interval"][0] <= c["difference"] <= c["interval"][1]
    for when in ("before", "after"):
        assert {"all_right", "mixed", "all_wrong"} <= set(summary["difficulty"][when])
    assert all(isinstance(v, float) and v >= 0 for v in summary["seconds"].values()) and len(summary["seconds"]) >= 8
    assert summary["difficulty"] == load(run / "difficulty.json")


def test_the_summary_can_be_worked_out_again_from_the_answers(whole):
    run, _ = whole
    summary = load(run / "summary.json")
    gold = {row["id"]: row for row in ROWS}
    right = {}
    for m in summary["models"]:
        for split in ("dev", "test"):
            own = [a for a in lines(run / "eval" / f"{m['name']}.jsonl") if (a["split"], a["mode"]) == (split, "greedy")]
            assert [a["id"] for a in own] == [row["id"] for row in ROWS if row["split"] == split]
            assert {a["model"] for a in own} == {m["name"]}
            right[m["name"], split] = sum(a["text"] == gold[a["id"]]["gold"] for a in own)
            assert m[f"{split}_accuracy"] == right[m["name"], split] / 3
            assert m[f"{split}_accuracy_interval"] == list(share_interval(right[m["name"], split], 3))
            assert all(a["slices"] == {"letter": gold[a["id"]]["gold"]} for a in own)
    tests = [c for c in summary["comparisons"] if (c["split"], c["metric"]) == ("test", "accuracy")]
    assert len(tests) == 6
    for c in tests:
        assert c["difference"] == pytest.approx((right[c["b"], "test"] - right[c["a"], "test"]) / 3)


def test_the_table_has_four_models_and_the_baselines(whole):
    run, done = whole
    table = (run / "table.md").read_text(encoding="utf-8").splitlines()
    assert [row.split("|")[1].strip() for row in table] == [
        "model", "---", "base", "SFT", "GRPO", "SFT then GRPO", "constant answer (x)", "naive Bayes on words",
    ]  # fmt: skip
    assert all(name in done.out for name in ("SFT then GRPO", "constant", "naive Bayes", "difficulty before the filter"))


def test_the_same_seed_gives_the_same_summary_and_another_seed_another(whole, model, tmp_path):
    run, _ = whole
    task = write_task(tmp_path / "task")
    summaries = [load(run / "summary.json")]
    for name, seed in (("again", 3), ("other", 4)):
        assert whole_run(task, model, tmp_path / name, "--seed", seed).code == 0
        summaries.append(load(tmp_path / name / "summary.json"))
    for summary in summaries:
        del summary["seconds"]
    assert summaries[0] == summaries[1]
    for file in ("grpo/rollouts.jsonl", "sft_grpo/rollouts.jsonl", "eval/sft_grpo.jsonl", "difficulty.json"):
        assert (run / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
        assert (run / file).read_bytes() != (tmp_path / "other" / file).read_bytes()


def test_grpo_that_changed_no_weight_is_not_judged_twice_and_says_so(model, tmp_path):
    never = """
    def close(completions, gold, **kwargs):
        return [float(c[0]["content"] == g) for c, g in zip(completions, gold)]
    """
    run = tmp_path / "run"
    done = whole_run(write_task(tmp_path / "task", never), model, run, "--train.max-dead-steps", "1")
    assert done.code == 0
    base, grpo = (lines(run / "eval" / f"{name}.jsonl") for name in ("base", "grpo"))
    assert grpo == [{**a, "model": "grpo"} for a in base]
    notes = load(run / "summary.json")["notes"]
    assert any(note.startswith("GRPO stopped early.") for note in notes) and any("changed no weight" in note for note in notes)
    assert "every group was dead" in (run / "report.html").read_text(encoding="utf-8")


def test_run_without_a_test_split_judges_on_dev_and_says_dev(model, tmp_path):
    run = tmp_path / "run"
    done = whole_run(write_task(tmp_path / "task", rows=[r for r in ROWS if r["split"] != "test"]), model, run)
    assert done.code == 0 and "The split 'test' has no rows" in done.out
    models = load(run / "summary.json")["models"]
    assert all((m["n_test"], m["test_accuracy"], m["test_accuracy_interval"]) == (0, None, None) and m["n_dev"] == 3 for m in models)
    assert "dev accuracy (95%)" in (run / "table.md").read_text(encoding="utf-8")
    assert "on 3 dev rows" in " ".join(done.out.split())


def test_run_with_nothing_to_judge_on_stops_before_it_trains(model, tmp_path):
    run = tmp_path / "run"
    done = whole_run(write_task(tmp_path / "task", rows=ROWS[:8]), model, run)
    done.failed_with("neither dev nor test rows")
    assert files_in(run) == {"run.json"}


def test_run_without_an_oracle_stops_before_it_trains(model, tmp_path):
    run = tmp_path / "run"
    done = whole_run(write_task(tmp_path / "task", rest="oracle=None"), model, run)
    done.failed_with("has no oracle", "earnest train")
    assert files_in(run) == {"run.json"}


def test_run_refuses_a_task_that_is_not_sound_and_may_be_started_again_once_it_is(model, tmp_path):
    run, task = tmp_path / "run", write_task(tmp_path / "task", rows=[*ROWS, {**ROWS[0], "id": "copy", "split": "test"}])
    done = whole_run(task, model, run)
    done.failed_with("is not sound")
    assert "also in another" in done.out and load(run / "run.json")["state"] == "failed"
    write_rows(task.parent / "rows.jsonl", ROWS)
    assert stage("sft", task, model, run).code == 0


# --- one stage at a time


def test_sft_writes_its_folder_and_a_report(warm):
    assert files_in(warm) == REPORTS | {f"sft/{file}" for file in {"metrics.jsonl", *ADAPTER}}
    assert [row["step"] for row in lines(warm / "sft" / "metrics.jsonl")] == [1, 2, 3]
    summary = load(warm / "summary.json")
    assert summary["models"] == [] and summary["comparisons"] == [] and summary["difficulty"] is None


def test_train_from_an_adapter_is_sft_then_grpo_and_eval_judges_it_by_its_name(warm, toy, model, tmp_path):
    trained = tmp_path / "trained"
    assert stage("train", toy, model, trained, "--adapter", warm / "sft" / "adapter").code == 0
    assert files_in(trained) == REPORTS | {f"sft_grpo/{file}" for file in {"metrics.jsonl", "rollouts.jsonl", *ADAPTER}}
    own = Policy(tiny.make(max_position_embeddings=2048), adapter=trained / "sft_grpo" / "adapter").state()
    start = Policy(tiny.make(max_position_embeddings=2048), adapter=warm / "sft" / "adapter").state()
    assert any(not torch.equal(own[name], start[name]) for name in own)
    judged = tmp_path / "judged"
    done = stage("eval", toy, model, judged, "--adapter", trained / "sft_grpo" / "adapter")
    assert done.code == 0 and files_in(judged) == REPORTS | {"eval/sft_grpo.jsonl"}
    assert [m["name"] for m in load(judged / "summary.json")["models"]] == ["sft_grpo"]


def test_train_without_an_adapter_is_grpo_and_eval_without_one_is_base(toy, model, tmp_path):
    assert stage("train", toy, model, tmp_path / "grpo").code == 0
    assert files_in(tmp_path / "grpo") == REPORTS | {f"grpo/{file}" for file in {"metrics.jsonl", "rollouts.jsonl", *ADAPTER}}
    assert stage("eval", toy, model, tmp_path / "eval").code == 0
    assert files_in(tmp_path / "eval") == REPORTS | {"eval/base.jsonl"}


def test_a_greedy_evaluation_gives_the_same_answers_again(toy, model, tmp_path):  # S-EV-01
    answers = []
    for seed in (0, 5):
        assert stage("eval", toy, model, tmp_path / str(seed), "--seed", seed, "--samples", "0").code == 0
        answers.append((tmp_path / str(seed) / "eval" / "base.jsonl").read_bytes())
    assert answers[0] == answers[1]


def test_difficulty_measures_the_train_rows_and_gives_advice(toy, warm, model, tmp_path):
    done = stage("difficulty", toy, model, tmp_path / "run", "--adapter", warm / "sft" / "adapter")
    assert done.code == 0 and files_in(tmp_path / "run") == REPORTS | {"difficulty.json"}
    record = load(tmp_path / "run" / "difficulty.json")
    assert set(record) == {"before", "after"}
    keys = {
        "model", "k", "rows", "all_right", "mixed", "all_wrong", "pass_rate", "format_failures", "content_failures", "dead_forecast",
        "advice", "pass_rates",
    }  # fmt: skip
    assert set(record["before"]) == set(record["after"]) == keys
    assert record["before"]["model"] == "sft" and record["before"]["k"] == 3 and record["before"]["rows"] == 8
    assert list(record["before"]["pass_rates"]) == [row["id"] for row in ROWS[:8]]
    assert record["before"]["advice"] in done.out.replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize("name", ["difficulty", "sft", "train"])
def test_stages_that_judge_nothing_need_only_train_rows(name, model, tmp_path):
    task = write_task(tmp_path / "task", rows=[{"question": row["question"], "gold": row["gold"]} for row in ROWS[:8]])
    assert stage(name, task, model, tmp_path / "run").code == 0


def test_eval_needs_no_train_rows_and_no_oracle(model, tmp_path):
    for split in ("dev", "test"):
        rows = [row for row in ROWS if row["split"] == split]
        task = write_task(tmp_path / split, rows=rows, rest="oracle=None")
        assert stage("eval", task, model, tmp_path / f"{split}-run").code == 0
        (m,) = load(tmp_path / f"{split}-run" / "summary.json")["models"]
        assert (m["n_dev"], m["n_test"]) == ((3, 0) if split == "dev" else (0, 3))


def test_eval_with_nothing_to_judge_is_no_success(model, tmp_path):  # S-EV-04
    stage("eval", write_task(tmp_path / "task", rows=ROWS[:8]), model, tmp_path / "run").failed_with("has no rows")


def test_seven_prompts_in_groups_of_eight_train(toy, model, tmp_path):  # S-CL-04
    done = stage("train", toy, model, tmp_path / "run", "--num-prompts", "7", "--num-generations", "8", "--steps", "1")
    assert done.code == 0 and len(lines(tmp_path / "run" / "grpo" / "rollouts.jsonl")) == 56


def test_two_train_runs_differ_in_their_rollouts_when_their_seeds_do(toy, model, tmp_path):  # S-DS-02
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert stage("train", toy, model, tmp_path / name, "--seed", seed, "--steps", "1").code == 0
        texts.append((tmp_path / name / "grpo" / "rollouts.jsonl").read_bytes())
    assert texts[0] == texts[1] != texts[2]


def test_with_beta_zero_nothing_speaks_of_kl(whole):  # S-LG-01
    run, _ = whole
    assert not any("kl" in key for row in lines(run / "grpo" / "metrics.jsonl") for key in row)


def test_report_writes_page_and_curves_again(whole, tmp_path):
    run = tmp_path / "copy"
    shutil.copytree(whole[0], run)
    for name in ("report.html", "curves.png"):
        (run / name).unlink()
    done = earnest("report", run)
    assert done.code == 0 and f"report: {run / 'report.html'}" in done.out
    assert "SFT then GRPO" in (run / "report.html").read_text(encoding="utf-8")
    assert (run / "curves.png").stat().st_size > 1000


def test_report_on_what_is_no_run_is_refused(tmp_path):
    earnest("report", tmp_path / "nowhere").failed_with("nowhere")
    earnest("report", tmp_path).failed_with("not a run directory")


def test_check_says_what_holds_and_what_does_not(toy, tmp_path):
    done = earnest("check", toy)
    assert done.code == 0 and "Sound: a right answer earns at least 1 on every row" in done.out
    bad = write_task(tmp_path / "bad", rows=[*ROWS, {"id": "r99", "split": "train", "question": "orange", "gold": ""}])
    done = earnest("check", bad)
    assert done.code == 2 and "Not sound yet" in done.out and f"{bad.parent / 'rows.jsonl'}:15 (row r99)" in done.out
    done = earnest("check", bad, "--skip-bad-rows")
    assert done.code == 0 and "left out" in done.out and "r99" in done.out


def test_rows_without_usable_gold_are_left_out_by_name_when_asked(model, tmp_path):  # S-DL-03
    rows = [*ROWS[:4], {"id": "bad", "split": "train", "question": "orange", "gold": ""}]
    task = write_task(tmp_path / "task", rows=rows)
    done = stage("sft", task, model, tmp_path / "run", "--skip-bad-rows")
    assert done.code == 0 and "left out" in done.out and "bad" in done.out
    assert load(tmp_path / "run" / "run.json")["rows"]["train"] == 4


# --- bad input


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"question": "a", "gold": "x"}\n{"question": \n', ["rows.jsonl:2", "not JSON"]),
        ('\ufeff{"question": "a", "gold": "x"}\r\n\r\n[1]\r\n', ["rows.jsonl:3", "not an object"]),
        ('{"question": "a", "gold": NaN}\n', ["rows.jsonl:1", "NaN"]),
        ('{"question": "a", "gold": "x", "split": "trian"}\n', ["rows.jsonl:1", "trian"]),
        ('{"id": 1, "question": "a", "gold": "x"}\n{"id": "1", "question": "b", "gold": "y"}\n', ["rows.jsonl:2", "rows.jsonl:1", "id"]),
        ("", ["holds no rows"]),
        (None, ["There is no file", "rows.jsonl"]),
    ],
)
def test_bad_rows_are_named_by_file_and_line(content, says, toy, model, tmp_path):
    rows = toy.parent / "rows.jsonl"
    rows.unlink() if content is None else rows.write_text(content, encoding="utf-8", newline="")
    for name in ("train", "sft", "eval", "difficulty", "run"):
        done = stage(name, toy, "no-model-is-reached", tmp_path / name)
        done.failed_with(*says)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["difficulty", "sft", "train"])
def test_an_empty_train_split_is_refused(name, model, tmp_path):
    task = write_task(tmp_path / "task", rows=ROWS[8:])
    stage(name, task, model, tmp_path / "run").failed_with("'train'", "has no rows")


def test_a_missing_task_and_one_that_is_none_are_refused(model, tmp_path):
    for name in ("check", "train", "run"):
        earnest(name, tmp_path / "nowhere.py").failed_with("nowhere.py")
        earnest(name, "triagee").failed_with("triagee", "triage")
    (tmp_path / "empty.py").write_text("x = 1\n")
    earnest("check", tmp_path / "empty.py").failed_with("holds no Task")


def test_a_task_that_does_not_run_shows_its_own_traceback(tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    done = earnest("check", tmp_path / "broken.py")
    assert done.code == 2 and "broken.py:2" in done.err and "ZeroDivisionError" in done.err


def test_a_column_a_reward_needs_and_the_rows_lack_is_named(model, tmp_path):
    reward = "def close(completions, answer, **kwargs):\n    return [0.0 for _ in completions]\n"
    task = write_task(tmp_path / "task", reward)
    done = earnest("check", task)
    assert done.code == 2 and "needs the column 'answer'" in done.out
    done = stage("train", task, model, tmp_path / "run")
    assert done.code == 2 and "'close' raised TypeError" in done.err and "'answer'" in done.err


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [1.0]", "wrong number of values: expected 12, got 1"),
        ("return 1.0", "expected a list of 12 numbers"),
        ("return ['good'] * len(completions)", "returned str ('good') at index 0"),
        ("return [float('nan')] * len(completions)", "returned nan at index 0"),
        ("return [1e999] * len(completions)", "returned inf at index 0"),
        ("return None", "returned NoneType"),
    ],
)
def test_what_a_reward_must_not_return_is_refused_by_name(body, says, model, tmp_path):
    task = write_task(tmp_path / "task", f"def close(completions, **kwargs):\n    {body}\n")
    done = stage("train", task, model, tmp_path / "run")
    done.failed_with("'close'", says)
    assert load(tmp_path / "run" / "run.json")["state"] == "failed"


def test_a_reward_that_raises_is_shown_once_with_its_row_and_first_traceback(model, tmp_path):
    reward = """
    def close(completions, question, **kwargs):
        return [1 / (q != "bridge") for q in question]
    """
    task = write_task(tmp_path / "task", reward)
    done = stage("train", task, model, tmp_path / "run", "--num-prompts", "8")
    assert done.code == 2 and done.err.count("Traceback (most recent call last)") == 1
    assert "'close' raised ZeroDivisionError" in done.err and "on row 'r1'" in done.err and str(task) in done.err
    assert done.err.strip().splitlines()[-1].startswith("earnest: ")  # the sentence comes last, where it is read


@pytest.mark.parametrize(
    ("name", "part", "rest"),
    [
        ("train", "prompt", None),
        ("eval", "slices['kind']", 'slices={"kind": lambda row: row["kind"]}'),
        ("eval", "needs_human", 'needs_human=lambda row: row["kind"]'),
        ("eval", "baseline_text", 'oracle=None, baseline_text=lambda row: (row["kind"], [])'),
        ("sft", "oracle", 'oracle=lambda row: row["kind"]'),
    ],
)
def test_a_function_of_the_task_that_raises_is_named_with_its_row(name, part, rest, model, tmp_path):
    task = write_task(tmp_path / "task", rest=rest or REST)
    if part == "prompt":
        task.write_text(task.read_text().replace('row["question"]}]', 'row["kind"]}]'))
    done = stage(name, task, model, tmp_path / "run")
    assert done.code == 2 and done.err.count("Traceback (most recent call last)") == 1
    assert f"The task's {part} raised KeyError: 'kind' on row 'r" in done.err


def test_a_check_that_raises_is_shown_with_its_row(model, tmp_path):
    task = write_task(tmp_path / "task")
    task.write_text(task.read_text().replace('return Verdict(text == row["gold"],', "return Verdict(1 / 0,"))
    done = stage("eval", task, model, tmp_path / "run")
    assert done.code == 2 and "The check of task 'toy' raised ZeroDivisionError" in done.err and "on row 'r8'" in done.err


def test_a_slice_need_not_be_text(model, tmp_path):
    rest = 'slices={"size": lambda row: len(row["question"]) if row["id"] != "r8" else None}'
    task = write_task(tmp_path / "task", rest=rest)
    assert stage("eval", task, model, tmp_path / "run").code == 0
    (m,) = load(tmp_path / "run" / "summary.json")["models"]
    assert set(m["slices"]["size"]) <= {"None", "6", "7"}


def test_questions_without_words_leave_only_the_constant_baseline(model, tmp_path):
    rows = [{**row, "question": "abcdefghijklmn"[i]} for i, row in enumerate(ROWS)]
    assert stage("eval", write_task(tmp_path / "task", rows=rows), model, tmp_path / "run").code == 0
    assert [b["name"] for b in load(tmp_path / "run" / "summary.json")["baselines"]] == ["constant answer (x)"]


def test_a_model_that_is_none_is_refused_and_the_right_one_may_follow(toy, model, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")
    (tmp_path / "file").write_text("x")
    run = tmp_path / "run"
    for name, says in (
        ("empty", "holds no config.json"),
        ("half", "could not be loaded"),
        ("file", "is a file"),
        ("none/at/all", "no model"),
    ):
        stage("sft", toy, tmp_path / name, run).failed_with(tmp_path / name, says)
    assert load(run / "run.json")["state"] == "failed"
    assert stage("sft", toy, model, run).code == 0


def test_an_adapter_that_is_none_or_of_another_model_is_refused(toy, warm, model, tmp_path):
    (tmp_path / "empty").mkdir()
    for where in (tmp_path / "empty", tmp_path / "nowhere"):
        stage("train", toy, model, tmp_path / "run", "--adapter", where).failed_with(where, "no adapter_config.json")
    other = tiny.save(tiny.make(hidden_size=16), tmp_path / "other")
    stage("eval", toy, other, tmp_path / "run", "--adapter", warm / "sft" / "adapter").failed_with("does not fit the model")


def test_a_device_that_is_not_there_is_refused(toy, model, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = earnest("sft", toy, "--model", model, "--out", tmp_path / "run", "--device", "cuda")
    done.failed_with("no GPU", "--device cpu")
    assert not (tmp_path / "run").exists()


def test_the_run_directory_must_not_be_a_file_or_hold_a_run(toy, warm, model, tmp_path):
    (tmp_path / "file").write_text("x")
    stage("sft", toy, model, tmp_path / "file").failed_with("is a file")
    stage("sft", toy, model, tmp_path / "file" / "below").failed_with("Cannot make the folder")
    before = files_in(warm)
    stage("sft", toy, model, warm).failed_with("already holds a run", "--overwrite")
    assert files_in(warm) == before


def test_a_run_still_going_is_not_taken_over(toy, model, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"state": "running"}')
    stage("sft", toy, model, tmp_path / "run").failed_with("already holds a run")


def test_overwrite_replaces_the_run_and_nothing_else(toy, model, tmp_path):
    run = tmp_path / "run"
    assert stage("train", toy, model, run).code == 0
    (run / "notes.txt").write_text("mine")
    assert stage("sft", toy, model, run, "--overwrite").code == 0
    assert files_in(run) == REPORTS | {"notes.txt"} | {f"sft/{file}" for file in {"metrics.jsonl", *ADAPTER}}


def test_overwrite_never_deletes_the_adapter_it_is_to_start_from(toy, warm, model, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(warm, run)
    done = stage("train", toy, model, run, "--adapter", run / "sft" / "adapter", "--overwrite")
    done.failed_with("--adapter lies in", "Choose another --out")
    assert files_in(run) == files_in(warm)


def test_an_unknown_option_is_refused_before_anything_is_read(tmp_path):
    done = earnest("train", tmp_path / "nowhere.py", "--no-such-option", "1")
    assert done.code == 2 and "--no-such-option" in done.err and "Traceback" not in done.err


def test_square_brackets_in_names_are_printed_as_they_are(model, tmp_path):
    task = write_task(tmp_path / "[bold]task[/bold]")
    done = stage("sft", task, model, tmp_path / "[red]run[/red]")
    assert done.code == 0 and str(tmp_path / "[red]run[/red]" / "report.html") in done.out


def test_without_torch_check_works_and_training_says_what_to_install(toy, tmp_path):
    code = f"""
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
from earnest.cli import run_command
assert run_command(["check", {str(toy)!r}]) == 0
sys.exit(run_command(["train", {str(toy)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 2 and "needs 'torch'" in done.stderr and "pip install 'earnest[train]'" in done.stderr
    assert "Traceback" not in done.stderr


# --- interrupted


INTERRUPTED = """
def close(completions, gold, trainer_state, **kwargs):
    if trainer_state.global_step == 2:
        {what}
    return [float(i) for i, _ in enumerate(completions)]
"""


def assert_kept_one_step(run):
    assert load(run / "run.json")["state"] == "interrupted" and load(run / "run.json")["end"]
    assert [row["step"] for row in lines(run / "grpo" / "metrics.jsonl")] == [1]
    assert len(lines(run / "grpo" / "rollouts.jsonl")) == 12
    fresh = Policy(tiny.make(max_position_embeddings=2048), rank=2).state()
    kept = Policy(tiny.make(max_position_embeddings=2048), adapter=run / "grpo" / "adapter").state()
    assert any(not torch.equal(kept[name], fresh[name]) for name in kept)


def test_ctrl_c_in_the_middle_keeps_metrics_and_adapter(model, tmp_path):
    task = write_task(tmp_path / "task", INTERRUPTED.format(what="raise KeyboardInterrupt"))
    done = stage("train", task, model, tmp_path / "run", "--steps", "5")
    assert done.code == 130 and "interrupted" in done.err and "Traceback" not in done.err
    assert_kept_one_step(tmp_path / "run")
    assert earnest("report", tmp_path / "run").code == 0


def test_a_real_signal_in_the_middle_does_the_same(model, tmp_path):
    mark = tmp_path / "reached"
    task = write_task(tmp_path / "task", INTERRUPTED.format(what=f"open({str(mark)!r}, 'w').close(); __import__('time').sleep(60)"))
    flags = ["--model", model, "--out", tmp_path / "run", "--device", "cpu", "--lora-rank", "2", *SMALL["train"], "--steps", "5"]

    def restore():  # a shell's background job ignores the signal
        signal.signal(signal.SIGINT, signal.default_int_handler)

    process = spawned("train", task, *flags, cwd=tmp_path, preexec_fn=restore)
    try:
        deadline = time.monotonic() + 120
        while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, out + err
    assert "earnest: interrupted" in err and "Traceback" not in err
    assert_kept_one_step(tmp_path / "run")


def test_an_interrupted_run_is_not_overwritten_by_accident(model, tmp_path):
    task = write_task(tmp_path / "task", INTERRUPTED.format(what="raise KeyboardInterrupt"))
    assert stage("train", task, model, tmp_path / "run").code == 130
    stage("train", task, model, tmp_path / "run").failed_with("already holds a run")


# --- full disk


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("file", ["metrics.jsonl", "rollouts.jsonl", "run.json.part", "summary.json.part", "report.html.part"])
def test_a_disk_that_is_full_is_one_sentence(file, toy, model, tmp_path, monkeypatch):
    own_open, own_bytes = Path.open, Path.write_bytes

    def refuse(own):
        def call(self, *arguments, **options):
            if self.name == file:
                raise FULL
            return own(self, *arguments, **options)

        return call

    monkeypatch.setattr(Path, "open", refuse(own_open))
    monkeypatch.setattr(Path, "write_bytes", refuse(own_bytes))
    stage("train", toy, model, tmp_path / "run").failed_with("No space left", "make room")
    if file in ("metrics.jsonl", "rollouts.jsonl"):
        assert (tmp_path / "run" / "grpo" / "adapter" / "adapter_model.safetensors").is_file()
        assert load(tmp_path / "run" / "run.json")["state"] == "failed"


def test_a_full_disk_met_by_a_library_is_one_sentence_too(toy, model, tmp_path, monkeypatch):
    def full(run):
        raise FULL

    monkeypatch.setattr(stages, "curves_png", full)
    stage("eval", toy, model, tmp_path / "run").failed_with("The disk is full", "No space left")


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a tmpfs of some KiB; only where that is allowed."""
    mounted = []

    def mount(size):
        place = tmp_path / f"disk{size}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)]
        if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("a small disk cannot be mounted here")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.mark.parametrize("size", [4, 36, 72, 124])
def test_a_disk_that_is_really_full_is_one_sentence(size, small_disk, toy, model):
    disk = small_disk(size)
    done = stage("train", toy, model, disk / "run", "--steps", "40")
    done.failed_with("No space left")
    for path in (disk / "run").rglob("*.jsonl"):
        read_jsonl(path)  # readable all the same


# --- real tickets, which have no test split


real_tickets = pytest.mark.skipif(not REAL.is_dir(), reason="the real tickets are not beside this repository")


@real_tickets
def test_real_tickets_are_sound_without_a_test_split():
    done = earnest("check", "triage", "--data", REAL)
    assert done.code == 0, done.out
    assert "1293 train, 252 dev, 0 test rows" in done.out and "The split 'test' has no rows" in done.out


@real_tickets
def test_a_model_is_judged_on_real_tickets(model, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for split, count in (("train", 6), ("dev", 4)):
        (data / f"{split}.jsonl").write_text("".join((REAL / f"{split}.jsonl").read_text(encoding="utf-8").splitlines(True)[:count]))
    done = stage("eval", "triage", model, tmp_path / "run", "--data", data, "--samples", "0")
    assert done.code == 0, done.err
    (m,) = load(tmp_path / "run" / "summary.json")["models"]
    assert (m["n_dev"], m["dev_accuracy"], m["json_valid_rate"], m["n_test"]) == (4, 0.0, 0.0, 0)
    assert set(m["fields"]) == {"category", "needs_account_data", "needs_human", "urgency"}
    assert m["fields"]["category"] == 0.0 and m["fields"]["urgency"] is None  # there is no gold for it
    answers = lines(tmp_path / "run" / "eval" / "base.jsonl")
    assert [a["id"] for a in answers] == ["dev-1", "dev-2", "dev-3", "dev-4"] and all(a["needs_human"] is None for a in answers)


# --- trackers


class Fake(types.ModuleType):
    """A library with wandb's interface that records what it is told."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []
        for what in ("init", "log", "finish"):
            setattr(self, what, lambda *a, what=what, **k: self.calls.append((what, *a, k) if k else (what, *a)))


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_metrics_go_to_wandb_and_trackio_step_by_step(name, toy, model, tmp_path, monkeypatch):
    fake = Fake(name)
    monkeypatch.setitem(sys.modules, name, fake)
    assert stage("train", toy, model, tmp_path / "run", "--report-to", name).code == 0
    assert [call[0] for call in fake.calls] == ["init", "log", "log", "finish"]
    start = fake.calls[0][-1]
    assert start["project"] == "earnest" and start["name"] == "run" and start["config"]["train"]["steps"] == 2
    metrics = lines(tmp_path / "run" / "grpo" / "metrics.jsonl")
    for call, row in zip(fake.calls[1:3], metrics, strict=True):
        assert call[1]["grpo/step"] == row["step"] and call[1]["grpo/reward"] == row["reward"]
        assert set(call[1]) == {f"grpo/{key}" for key, value in row.items() if value is not None}


def test_a_tracker_is_closed_when_a_run_fails(model, tmp_path, monkeypatch):
    fake = Fake("wandb")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    task = write_task(tmp_path / "task", INTERRUPTED.format(what="raise KeyboardInterrupt"))
    assert stage("train", task, model, tmp_path / "run", "--report-to", "wandb").code == 130
    assert [call[0] for call in fake.calls] == ["init", "log", "finish"]


@pytest.mark.parametrize("name", ["wandb", "trackio", "tensorboard"])
def test_a_tracker_that_is_not_installed_is_one_sentence(name, toy, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    done = stage("train", toy, model, tmp_path / "run", "--report-to", name)
    done.failed_with(f"--report-to {name}", f"pip install {name}")
    assert load(tmp_path / "run" / "run.json")["state"] == "failed"
    assert stage("train", toy, model, tmp_path / "run").code == 0  # nothing stands in the way of going on without


def test_a_tracker_that_refuses_to_start_is_one_sentence(toy, model, tmp_path, monkeypatch):
    fake = Fake("wandb")

    def init(**options):
        raise RuntimeError("No API key\nconfigured")

    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    stage("train", toy, model, tmp_path / "run", "--report-to", "wandb").failed_with("wandb could not start: No API key configured")


def test_tensorboard_gets_every_number(toy, model, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    assert stage("train", toy, model, run, "--report-to", "tensorboard").code == 0
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    metrics = lines(run / "grpo" / "metrics.jsonl")
    always = {f"grpo/{key}" for key in metrics[0] if key != "step" and all(row[key] is not None for row in metrics)}
    assert always <= set(events.Tags()["scalars"])
    seen = events.Scalars("grpo/reward")
    assert [event.step for event in seen] == [1, 2]
    assert [event.value for event in seen] == pytest.approx([row["reward"] for row in metrics])


def test_no_tracker_does_nothing(tmp_path):
    log, close = open_tracker("none", tmp_path, {})
    log("sft", {"step": 1, "loss": 1.0})
    close()
    assert list(tmp_path.iterdir()) == []


def test_trackers_get_numbers_only(tmp_path, monkeypatch):
    fake = Fake("wandb")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    log, _ = open_tracker("wandb", tmp_path, {"seed": 0})
    log("sft", {"step": 4, "loss": 0.5, "reward": None, "note": "text", "count": 3})
    assert fake.calls[-1] == ("log", {"sft/loss": 0.5, "sft/count": 3.0, "sft/step": 4})


# --- in a process of its own


def test_the_module_runs_as_a_command(toy, tmp_path):
    process = spawned("check", toy, cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "Sound" in out and err == ""


def test_a_run_directory_is_named_after_the_task_by_default(toy, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = earnest("eval", toy, "--model", model, "--device", "cpu", "--max-completion-length", "2", "--samples", "0")
    assert done.code == 0 and (tmp_path / "runs" / "toy-eval" / "summary.json").is_file()
