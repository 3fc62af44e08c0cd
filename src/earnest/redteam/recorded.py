"""The rollouts of a run, read from its directory: as this package writes them, or as TRL logs completions."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from earnest.environment import load_task, play
from earnest.errors import UserError
from earnest.redteam.attacks.trajectory import calls, final
from earnest.redteam.detectors import Rollout
from earnest.rows import load_rows
from earnest.rundir import read_json, read_jsonl
from earnest.task import Message, Row, Task, judge

PLACES = ("rollouts.jsonl", "rollouts.parquet", "rollouts/*.jsonl", "rollouts/*.parquet", "completions/*.parquet", "completions*.parquet")


def read_rollouts(run: Path) -> Iterator[Rollout]:
    """Every rollout of every stage."""
    paths = {path: None for place in PLACES for path in sorted([*run.glob(place), *run.glob(f"*/{place}")])}
    for path in paths:
        stage = path.parent if path.parent.name not in ("rollouts", "completions") else path.parent.parent
        rows = read_jsonl(path) if path.suffix == ".jsonl" else _parquet(path)
        for number, row in enumerate(rows):
            yield _rollout(stage.name if stage != run else "train", row, number)


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UserError("Parquet files need pyarrow. Install it: pip install 'earnest[data]'.") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return file.read().to_pylist()
    except Exception as error:  # pyarrow has no one class for a broken file
        raise UserError(f"'{path}' is not a readable Parquet file ({error}).") from error


def _rollout(stage: str, row: Mapping[str, Any], number: int) -> Rollout:
    """A line of ours, or of TRL's completions, where every further number is a reward."""
    verdict = row.get("verdict") if isinstance(row.get("verdict"), Mapping) else {}
    reward = row.get("reward")
    if "reward" not in row:
        own = [v for k, v in row.items() if k not in ("step", "advantage", "group", "sample", "tokens") and is_number(v)]
        reward = sum(own) if own else None
    prompt, said = _words(row.get("prompt") or ""), row["text"] if "text" in row else row.get("completion") or ""
    kept = row.get("messages") or said
    messages = tuple(kept) if isinstance(kept, (list, tuple)) and _acting(kept) else ()
    correct = verdict.get("correct")
    return Rollout(
        stage,
        int(row.get("step") or 0),
        str(row.get("id", prompt or number)),
        prompt,
        final(messages) if messages else _words(said),
        float(reward) if is_number(reward) else None,
        None if correct is None else bool(correct) and verdict.get("well_formed") is not False,
        verdict.get("handed_off"),
        int(row.get("tokens") or 0),
        bool(row.get("terminated", True)),
        tuple(line for message in messages if message["role"] == "assistant" for line in _written(message)),
        tuple(call.name for call in calls(messages)),
        messages,
    )


def _acting(messages: Sequence[Any]) -> bool:
    """Whether these are the messages of a rollout with tools."""
    whole = all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in messages)
    return whole and any(message.get("tool_calls") or message["role"] == "tool" for message in messages)


def _written(message: Message) -> list[str]:
    """What the model wrote in a turn: its words, and a line a call."""
    words = message.get("content")
    made = [f"{c.name}({', '.join(f'{name}={value}' for name, value in c.arguments.items())})" for c in calls([message])]
    return [*([words] if isinstance(words, str) and words.strip() else []), *made]


def is_number(value: Any) -> bool:
    """Whether a value read from a file is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _words(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "\n".join(str(m.get("content") or "") if isinstance(m, Mapping) else str(m) for m in value)
    return str(value)


def judged(run: Path, rollouts: list[Rollout], task: Task | None) -> tuple[list[Rollout], list[str]]:
    """The rollouts with verdicts, those without one judged by the task; and what could not be."""
    if all(r.accepted is not None for r in rollouts):
        return rollouts, []
    try:
        task = task or _task_of(run)
        rows = {str(row["id"]): row for _, row in load_rows(task).everything()}
        judged = [replace(r, accepted=_accepted(task, r, rows[r.id])) if r.accepted is None and r.id in rows else r for r in rollouts]
    except UserError as error:
        why = f"The rollouts hold no verdict of the check, and the task could not judge them: {error}"
        return rollouts, [f"{why} What is refused is not known; give the task."]
    unknown = sum(r.accepted is None for r in judged)
    why = "could not be judged: the task no longer has their rows, or their calls were not kept"
    return judged, [f"{unknown} rollouts {why}."] if unknown else []


def _accepted(task: Task, r: Rollout, row: Row) -> bool | None:
    """What the check says; None where calls were not kept.

    Calls are made again in a fresh environment, but for those of a last turn: a limit kept them from being made.
    """
    if not task.acts:
        found = judge(task, r.text, row)
    elif not r.messages:
        return None
    else:
        last = [message for message in r.messages[-1:] if message["role"] == "assistant"]
        episode = play(task, row, [*r.messages][: len(r.messages) - len(last)], task.limits.seconds)
        found = judge(task, [*episode.messages, *last], row, episode.environment)
    return found.correct and found.well_formed is not False


def _task_of(run: Path) -> Task:
    record = read_json(run / "run.json") or {}
    words = shlex.split(str(record.get("command") or ""))
    where = words[2] if len(words) > 2 and not words[2].startswith("-") else str(record.get("task") or "")
    if not where:
        raise UserError(f"'{run}' does not say which task it is of.")
    return load_task(where)
