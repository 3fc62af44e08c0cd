"""What the report lets a reader browse: rollouts of training and answers of the evaluation, those with tools turn by turn."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from earnest.lab.evaluate import load_answers
from earnest.lab.plots import NAMES, RL_STAGES
from earnest.lab.trends import is_number
from earnest.rundir import plain, read_jsonl

MAX_SHOWN = 20_000  # answers; more would make the page slow to open
MAX_CHARACTERS = 60_000_000  # of trajectories; likewise
REASONS = "/reasons"  # ends the columns in which older runs keep why a reward function gave no more


def browsable(run: Path) -> dict[str, Any]:
    """All that can be browsed, every prompt stored once.

    Returns:
        `names` of the stages and models; `prompts`; `rollouts` and `answers`, each with the number of its prompt; `left_out`, how many of
        both are not among them.
    """
    rollouts = []
    for stage in RL_STAGES:
        rows = read_jsonl(run / stage / "rollouts.jsonl")
        rollouts += [{**row, "run": stage, "pay": word} for row, word in zip(rows, disagreements(rows), strict=True)]
    evaluated = [{**row, "run": model} for model, own in load_answers(run).items() for row in own]
    shown = _thinned(rollouts, lambda row: row.get("step") or 0), _thinned(evaluated, lambda row: (row.get("split"), str(row.get("id"))))
    prompts: dict[str, int] = {}
    for row in (*shown[0], *shown[1]):
        row["prompt"] = prompts.setdefault(json.dumps(row.get("prompt")), len(prompts))
        if "reasons" not in row and (said := {key.removesuffix(REASONS): row[key] for key in row if key.endswith(REASONS) and row[key]}):
            row["reasons"] = said
    names = {run: NAMES.get(run, run) for run in dict.fromkeys(row["run"] for row in (*shown[0], *shown[1]))}
    left_out = [len(rollouts) - len(shown[0]), len(evaluated) - len(shown[1])]
    return {
        "names": names,
        "prompts": [json.loads(prompt) for prompt in prompts],
        "rollouts": shown[0],
        "answers": shown[1],
        "left_out": left_out,
    }


def disagreements(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where reward and check disagree.

    The line is half way from what a wrong rollout earns to what a right one earns (medians of all that are given). Without rollouts of
    both kinds there is none.

    Returns:
        Of each rollout "paid" when it is wrong and earned that much (and more than the least), "unpaid" when it is right and earned less,
        else "".
    """
    judged = [(row.get("reward"), (row.get("verdict") or {}).get("correct")) for row in rows]
    earned = {kind: [reward for reward, correct in judged if correct is kind and is_number(reward)] for kind in (True, False)}
    if not earned[True] or not earned[False]:
        return [""] * len(judged)
    line, least = (median(earned[True]) + median(earned[False])) / 2, min(*earned[True], *earned[False])

    def word(reward: Any, correct: Any) -> str:
        if not is_number(reward):
            return ""
        if correct is False:
            return "paid" if reward >= line and reward > least else ""
        return "unpaid" if correct is True and reward < line else ""

    return [word(reward, correct) for reward, correct in judged]


def _thinned(rows: list[dict[str, Any]], place: Callable[[Mapping[str, Any]], Any]) -> list[dict[str, Any]]:
    """All of the rows, or those at evenly spaced places (a whole step, a whole row of the task) where they are too many."""
    size = sum(len(str(row.get("messages") or "")) for row in rows)
    every = max(math.ceil(len(rows) / MAX_SHOWN), math.ceil(size / MAX_CHARACTERS))
    if every <= 1:
        return rows
    places = sorted({place(row) for row in rows})
    kept = {*places[::every], places[-1]}
    return [row for row in rows if place(row) in kept]


def embedded(value: Any) -> str:
    """JSON that can sit in a script element: nothing in it can end the element, open a comment or break a line of script."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
