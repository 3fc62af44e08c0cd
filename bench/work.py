"""What is measured: two kinds of work, the same for both engines.

`triage` is short structured answers after SFT, where samples share most of their tokens. `maths` is long free text from the model as it is,
where only prompts are shared; its reward differs within every group, so no engine may skip anything.
"""

import random
from dataclasses import dataclass

from earnest.rows import load_rows
from earnest.task import Task, Verdict, load_task

QUESTIONS = (
    "A baker sells {a} loaves in the morning and {b} in the afternoon at {c} dollars each. How much money does the shop take that day?",
    "A train covers {a} kilometres in {c} hours and then {b} kilometres in {c} hours. What is its mean speed over the whole way?",
    "Each of {c} shelves holds {a} books, and {b} books lie on the floor. How many books are there once {c} are given away?",
    "A tank holds {a} litres and loses {c} litres an hour while {b} litres are poured in. How much is in it after {c} hours?",
)


@dataclass(frozen=True)
class Work:
    """A task with its training rows, and how long an answer may get."""

    task: Task
    rows: list
    max_completion_length: int


def variety(completions, **_):
    """Share of distinct words, plus a trace of length: no two long texts earn the same."""
    texts = [completion[0]["content"] for completion in completions]
    return [len(set(text.split())) / (len(text.split()) + 1) + len(text) * 1e-5 for text in texts]


def maths() -> Work:
    rng = random.Random(0)
    numbers = [{"a": rng.randint(20, 400), "b": rng.randint(20, 400), "c": rng.randint(2, 9)} for _ in range(64)]
    rows = [{"id": f"q{i}", "question": QUESTIONS[i % 4].format(**n)} for i, n in enumerate(numbers)]
    task = Task(
        name="maths",
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": row["question"] + " Explain each step in detail, then give the answer."}],
        rewards=[variety],
        check=lambda text, row: Verdict(correct=False),
    )
    return Work(task, rows, 256)


def triage() -> Work:
    task = load_task("triage")
    return Work(task, load_rows(task).by_split["train"], 32)


WORK = {"triage": triage, "maths": maths}
