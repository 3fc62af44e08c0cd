"""`earnest redteam` from the command line: exit codes, files, and sentences for mistakes."""

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from earnest import cli
from earnest.redteam import audit as audit_module
from earnest.redteam.attacks import nowork

TASK = """
from earnest import Task

def texts(completions):
    return [c[0]["content"] for c in completions]

def exact(completions, gold, **kwargs):
    "One point for the gold."
    return [float(t.strip() == g) for t, g in zip(texts(completions), gold)]

def lazy(completions, gold, **kwargs):
    return [float(g.startswith(t)) for t, g in zip(texts(completions), gold)]  # as "" does of any

def prompt(row):
    return [{{"role": "user", "content": row["question"] + " Answer with a city."}}]

ROWS = [{{"id": str(i), "question": f"Question {{i}}?", "gold": city}} for i, city in enumerate(["Oslo", "Paris", "Rome", "Bern"])]
CHECK = lambda text, row: text.strip() == row["gold"]
task = Task(rows=ROWS, prompt=prompt, rewards=[{reward}], check=CHECK, oracle=lambda row: row["gold"])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two tasks, and a catalog that is small and known."""
    for name in ("exact", "lazy"):
        (tmp_path / f"{name}_task.py").write_text(TASK.format(reward=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit_module, "audit", functools.partial(audit_module.audit, catalog=nowork.ATTACKS))
    yield tmp_path
    for name in ("exact", "lazy"):
        sys.modules.pop(f"{name}_task", None)


def redteam(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.run_command(["redteam", *map(str, arguments), *(() if "--search-calls" in arguments else ("--search-calls", "0"))])
        except SystemExit as end:
            code = end.code or 0
    return types.SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())


def failed_with(done, *words):
    assert done.code == 2 and "Traceback" not in done.out + done.err, (done.out, done.err)
    (sentence,) = done.err.strip().splitlines()
    assert sentence.startswith("earnest: ") and all(word in sentence for word in words), sentence


def test_clean_rewards_exit_with_0_and_broken_ones_with_1(folder):
    clean = redteam("exact_task.py")
    assert clean.code == 0 and "Clean: " in clean.out and clean.err == ""
    broken = redteam("lazy_task.py")
    assert broken.code == 1 and "Exploitable: " in broken.out and "gen.empty against lazy" in broken.out
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == ["exact_task.py", "lazy_task.py"]


def test_what_cannot_run_exits_with_2(folder):
    failed_with(redteam("nowhere.py"), "nowhere.py")
    failed_with(redteam(), "Say what to attack")
    failed_with(redteam("exact_task.py", "--update-baseline"), "--baseline FILE")
    failed_with(redteam("exact_task.py", "--baseline", "none.json"), "There is no baseline 'none.json'")
    failed_with(redteam("exact_task.py", "--data", "none.jsonl"), "none.jsonl")
    failed_with(redteam("exact_task.py", "--gold", "gold"), "--gold", "--rows")
    failed_with(redteam("exact_task.py:exact", "--rows", "r.jsonl", "--data", "d.jsonl"), "--rows and --data")
    (folder / "file").write_text("")
    failed_with(redteam("exact_task.py", "--out", "file/below"), "--out file/below cannot be written")
    failed_with(redteam("exact_task.py", "--deadline", "0"), "--deadline must be above 0")


def test_a_baseline_accepts_and_reports_what_went_stale(folder):
    assert redteam("lazy_task.py", "--baseline", "b.json", "--update-baseline").code == 0
    accepted = json.loads((folder / "b.json").read_text())["accepted"]
    assert accepted and all(entry["finding"].strip() for entry in accepted)
    again = redteam("lazy_task.py", "--baseline", "b.json")
    assert again.code == 0 and "Exploitable" not in again.out and "In the baseline" in again.out
    (folder / "lazy_task.py").write_text(TASK.format(reward="exact"))
    sys.modules.pop("lazy_task", None)
    mended = redteam("lazy_task.py", "--baseline", "b.json")
    assert mended.code == 0 and "no longer found" in mended.out
    redteam("lazy_task.py", "--baseline", "b.json", "--update-baseline")
    assert json.loads((folder / "b.json").read_text())["accepted"] == []


def test_files_are_written_only_where_they_are_asked_for(folder):
    done = redteam("lazy_task.py", "--out", "report", "--json", "a.json", "--sarif", "a.sarif")
    assert done.code == 1
    for name in ("report/redteam.md", "report/redteam.html", "a.json", "a.sarif"):
        assert f"written: {name}" in done.out and (folder / name).stat().st_size > 500
    assert json.loads((folder / "a.json").read_text())["fails"] is True
    (location,) = json.loads((folder / "a.sarif").read_text())["runs"][0]["results"][0]["locations"]
    lines = (folder / "lazy_task.py").read_text().splitlines()
    place = location["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "lazy_task.py" and lines[place["region"]["startLine"] - 1].startswith("def lazy")


def test_the_same_seed_says_the_same(folder):
    redteam("lazy_task.py", "--seed", "3", "--json", "one.json")
    redteam("lazy_task.py", "--seed", "3", "--json", "two.json")
    one, two = (json.loads((folder / name).read_text()) for name in ("one.json", "two.json"))
    assert one.pop("seconds") and two.pop("seconds") and one == two and list(one) == list(two) and one["seed"] == 3


def test_a_bare_reward_is_made_a_task_of(folder, monkeypatch):
    asked = []

    def task_of(*given):
        asked.append(given)
        return cli.load_task("lazy_task.py")

    monkeypatch.setitem(sys.modules, "earnest.redteam.adapters", types.SimpleNamespace(task_of=task_of))
    form = "<answer>{}</answer>"
    done = redteam("mine.py:compute_score", "--rows", "r.jsonl", "--gold", "answer", "--prompt-column", "q", "--form", form)
    assert done.code == 1 and asked == [("mine.py:compute_score", "r.jsonl", "answer", "q", form)]


def test_the_self_test_needs_no_task(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "earnest.redteam.zoo.selftest", types.SimpleNamespace(print_selftest=lambda console: False))
    assert redteam("--selftest").code == 1


@pytest.mark.parametrize("suspicious", [True, False])
def test_a_run_directory_is_looked_through(folder, monkeypatch, suspicious):
    (folder / "run").mkdir()
    asked = []
    found = types.SimpleNamespace(suspicious=suspicious)
    replay = types.SimpleNamespace(replay=lambda run: asked.append(run) or found, print_replay=lambda seen, console: console.print("seen"))
    monkeypatch.setitem(sys.modules, "earnest.redteam.replay", replay)
    done = redteam("run")
    assert done.code == suspicious and done.out == "seen\n" and asked == [Path("run")]


def test_the_command_loads_no_torch_and_works_in_a_pipe(tmp_path):
    (tmp_path / "lazy_task.py").write_text(TASK.format(reward="lazy"))
    program = (
        "import sys; from earnest.cli import run_command; code = run_command(['redteam', 'lazy_task.py', '--search-calls', '0']); "
        "print('torch' in sys.modules, 'transformers' in sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 1 and done.stdout.endswith("False False\n") and done.stderr == "", done.stderr
    assert done.stdout.isascii() and "\x1b" not in done.stdout and "x Exploit: " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
