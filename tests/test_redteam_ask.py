"""Rewards that do to the process that scores them what they should not, and are asked all the same."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from earnest.evidence import cases_of
from earnest.redteam import ask
from earnest.redteam.ask import Asker
from earnest.rows import load_rows
from earnest.task import Task

ROWS = [{"id": f"r{k}", "label": label} for k, label in enumerate(("red", "blue", "green"))]


def right(completions, label):
    return [float(c[0]["content"] == gold) for c, gold in zip(completions, label, strict=True)]


def asker(reward, deadline=2.0):
    task = Task(
        rows=ROWS,
        prompt=lambda row: [{"role": "user", "content": row["id"]}],
        rewards=[reward],
        check=lambda text, row: text == row["label"],
        oracle=lambda row: row["label"],
        name="t",
    )
    return Asker(task, cases_of(task, load_rows(task)), deadline)


def forked(completions, label, **_):
    os.fork()  # and both go on
    return right(completions, label)


def emptied(completions, label, **others):
    marks = right(completions, label)
    completions.clear()
    label.clear()
    return marks


def loud(completions, label, **_):
    os.write(1, b"\xff" * 100_000)
    sys.stderr.write("x" * 100_000)
    return right(completions, label)


@pytest.mark.parametrize("reward", [forked, emptied, loud])
def test_what_a_reward_does_beside_scoring_changes_no_mark(reward):
    with asker(reward) as asked:
        for _ in range(3):
            paid = asked.ask_again([(0, "red"), (1, "red"), (2, "green"), (0, "")])
            assert [one.total for one in paid] == [1.0, 0.0, 1.0, 0.0]


class Mute(Exception):
    def __str__(self):
        raise ValueError("not even that")


def test_an_exception_that_cannot_be_told_is_a_fault_of_the_reward_and_not_of_the_process():
    def mute(completions, label, **_):
        if "?" in completions[0][0]["content"]:
            raise Mute
        return right(completions, label)

    with asker(mute) as asked:
        fault, fine = asked.ask([(0, "?"), (0, "red")])
        assert fault.faults["mute"][0] == "raised" and fine.total == 1.0


def test_a_reward_that_hangs_from_the_first_answer_on_is_given_up(monkeypatch):
    def hangs(completions, **_):
        time.sleep(600)

    monkeypatch.setattr(ask, "START", 0.3)
    monkeypatch.setattr(ask, "GRACE", 0.1)
    began = time.monotonic()
    with asker(hangs, deadline=0.2) as asked:
        paid = asked.ask([(k % 3, f"answer {k}") for k in range(200)])
        assert all(one.faults["hangs"][0] == "hung" for one in paid) and asked.gave_up
    assert time.monotonic() - began < 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_a_reward_that_hangs_does_not_outlive_whoever_asked_it(tmp_path):
    script = f"""
        import os, pathlib, sys, time
        sys.path.insert(0, {str(os.path.dirname(__file__))!r})
        from test_redteam_ask import asker

        def hangs(completions, **_):
            pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
            while True:
                time.sleep(0.01)

        asker(hangs).ask([(0, "red")])
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    pid = tmp_path / "pid"
    _until(lambda: pid.exists() and pid.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _until(lambda: not _runs(int(pid.read_text())))


def _until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
