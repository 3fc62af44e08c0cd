"""The rollouts of a run, read from its directory: as this package writes them, or as TRL logs completions."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from earnest.environment import load_task
from earnest.errors import UserError
from earnest.redteam.detectors import Rollout
from earnest.rows import load_rows
from earnest.rundir import read_json, read_jsonl
from earnest.task import Task, judge

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
    prompt, said = row.get("prompt") or "", row["text"] if "text" in row else row.get("completion") or ""
    prompt, said = (_words(value) for value in (prompt, said))
    correct = verdict.get("correct")
    return Rollout(
        stage,
        int(row.get("step") or 0),
        str(row.get("id", prompt or number)),
        prompt,
        said,
        float(reward) if is_number(reward) else None,
        None if correct is None else bool(correct) and verdict.get("well_formed") is not False,
        verdict.get("handed_off"),
        int(row.get("tokens") or 0),
        bool(row.get("terminated", True)),
    )


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
        judged = [replace(r, accepted=_accepted(task, r, rows)) if r.accepted is None and r.id in rows else r for r in rollouts]
    except UserError as error:
        why = f"The rollouts hold no verdict of the check, and the task could not judge them: {error}"
        return rollouts, [f"{why} What is refused is not known; give the task."]
    unknown = sum(r.accepted is None for r in judged)
    return judged, [f"{unknown} rollouts are of rows that the task no longer has, and could not be judged."] if unknown else []


def _accepted(task: Task, r: Rollout, rows: Mapping[str, Any]) -> bool:
    found = judge(task, r.text, rows[r.id])
    return found.correct and found.well_formed is not False


def _task_of(run: Path) -> Task:
    record = read_json(run / "run.json") or {}
    words = shlex.split(str(record.get("command") or ""))
    where = words[2] if len(words) > 2 and not words[2].startswith("-") else str(record.get("task") or "")
    if not where:
        raise UserError(f"'{run}' does not say which task it is of.")
    return load_task(where)
