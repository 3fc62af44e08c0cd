"""Code review: find the bug that a change brings into a function, by line and category, or say that there is none.

`task` shows the change at once; `investigate` (`code_review:investigate`) has tools that show it and that run both versions.
"""

from __future__ import annotations

import json
import random

from earnest.rewards.calls import as_messages
from earnest.task import Limits, Message, Row, Task
from earnest.tasks.code_review.build import build
from earnest.tasks.code_review.check import check
from earnest.tasks.code_review.functions import Running
from earnest.tasks.code_review.mutate import CATEGORIES
from earnest.tasks.code_review.review import Review
from earnest.tasks.code_review.rewards import finding_reward

FORM = (
    'Answer only with JSON: {"line": N, "category": C} where the change breaks the function, '
    f'C one of {", ".join(CATEGORIES)}; {{"line": null, "category": "none"}} where it means the same.'
)


def prompt(row: Row) -> list[Message]:
    """The form of answers, then the change."""
    return [{"role": "system", "content": f"Review the change (- old, + new). {FORM}"}, {"role": "user", "content": row["diff"]}]


def prompt_with_tools(row: Row) -> list[Message]:
    """The form of answers, then which function has changed; the change itself must be looked at."""
    asked = f"The function {row['function']} has changed; it has {row['after'].count(chr(10)) + 1} lines."
    return [{"role": "system", "content": f"Review a change. {FORM}"}, {"role": "user", "content": asked}]


def answer(line: int | None, category: str) -> str:
    """An answer in the required form."""
    return json.dumps({"line": line, "category": category})


def oracle(row: Row) -> str:
    """The bug's first line and its category."""
    return answer(row["lines"][0] if row["lines"] else None, row["category"])


def oracle_with_tools(row: Row) -> list[Message]:
    """Look at the change, run the call that shows the bug (or some call, where there is none), answer."""
    look = ("show", {"start": 1, "end": row["after"].count("\n") + 1})
    return as_messages([look, ("run", {"call": row["call"]})], answer=oracle(row))


def guess(row: Row) -> str:
    """Some line and some category, or none."""
    rng = random.Random(f"guess {row['id']}")
    category = rng.choice((*CATEGORIES, "none"))
    return answer(None if category == "none" else rng.randint(1, row["after"].count("\n") + 1), category)


def no_bug(row: Row) -> str:
    """Finds nothing, ever."""
    return answer(None, "none")


def line_1(row: Row) -> str:
    """Another variable in the first line, ever."""
    return answer(1, "variable")


def every_category(row: Row) -> str:
    """All categories at once."""
    return json.dumps({"line": 1, "category": list(CATEGORIES)})


def every_line(row: Row) -> str:
    """A bug in every line."""
    return json.dumps([{"line": n + 1, "category": "variable"} for n in range(row["after"].count("\n") + 1)])


POLICIES = {
    "oracle": oracle,
    "no bug": no_bug,
    "line 1": line_1,
    "random": guess,
    "every category": every_category,
    "every line": every_line,
}

SLICES = {
    "category": lambda row: row["category"],
    "from": lambda row: "own" if row["module"].startswith("earnest.") else "library",
}

task = Task(
    name="code_review",
    rows=build(),
    prompt=prompt,
    rewards=[finding_reward],
    check=check,
    oracle=oracle,
    policies=POLICIES,
    slices=SLICES,
)

investigate = Task(
    name="code_review_with_tools",
    rows=build(),
    prompt=prompt_with_tools,
    rewards=[finding_reward],
    check=check,
    oracle=oracle_with_tools,
    environment=Review,
    limits=Limits(turns=6, calls=5, seconds=5.0),
    policies=POLICIES,
    slices=SLICES,
)

__all__ = ["POLICIES", "Review", "Running", "build", "check", "investigate", "oracle", "task"]
