"""The session of a run: its task, rows, options and run directory, and how it ends.

Whatever ends a run (done, failed, interrupted) is written into its run.json; a directory that holds a run is never written over
unasked.
"""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from earnest.check import usable_rows
from earnest.config import Config
from earnest.engine.models import pick_device, versions
from earnest.errors import UserError
from earnest.rows import Rows, load_rows
from earnest.rundir import read_json, write_json
from earnest.task import Row, Task
from earnest.trackers import open_tracker

OWN = (
    "run.json",
    "difficulty.json",
    "summary.json",
    "table.md",
    "report.html",
    "curves.png",
    "sft",
    "grpo",
    "sft_grpo",
    "eval",
    "tensorboard",
)


@dataclass
class Session:
    """A task, its rows, the options and the run directory they are worked out in.

    Attributes:
        seconds: Time of each stage.
        notes: Sentences for the reader of the report.
        log: Sends a metrics row of a stage to the tracker.
        finish: Says in run.json that the run is done, so that a report written next can say so too.
    """

    task: Task
    rows: Rows
    config: Config
    folder: Path
    console: Console
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    log: Callable[[str, Mapping[str, Any]], None] = lambda stage, row: None
    finish: Callable[[], None] = lambda: None

    @cached_property
    def named(self) -> Task:
        """The task, with functions that say which one and which row it was when one raises."""
        t = self.task
        slices = {name: _naming(f"slices[{name!r}]", function) for name, function in t.slices.items()}
        own = {part: _naming(part, getattr(t, part)) for part in ("prompt", "oracle", "needs_human", "baseline_text") if getattr(t, part)}
        return dataclasses.replace(t, slices=slices, **own)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the time of a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


def _naming(part: str, function: Callable[[Row], Any]) -> Callable[[Row], Any]:
    def call(row: Row) -> Any:
        try:
            return function(row)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"The task's {part} raised {type(error).__name__}: {error} on row {row['id']!r}. Mend it or the row; `earnest check` "
                "shows every such row.",
                details=traceback.format_exc().rstrip(),
            ) from error

    return call


@contextmanager
def session(task: Task, config: Config, origins: Mapping[str, str], command: str, folder: Path, overwrite: bool) -> Iterator[Session]:
    """Open a run directory; whatever ends it (done, failed, interrupted) is written into run.json.

    Raises:
        UserError: The folder holds a run already, the rows are bad, or there is no such device.
    """
    console = Console(markup=False, highlight=False)
    rows = read_rows(task, config, console)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("This machine has no GPU that PyTorch can use. Leave --device out, or give --device cpu.")
    _claim(folder, overwrite, config)
    device, dtype = pick_device(config.device)
    record = {
        "command": command,
        "task": task.name,
        "state": "running",
        "start": _now(),
        "end": None,
        "config": dataclasses.asdict(config),
        "origins": dict(origins),
        "rows": {"source": rows.source, **{split: len(own) for split, own in rows.by_split.items()}},
        "device": f"{device} {str(dtype).removeprefix('torch.')}",
        "seed": config.seed,
        "versions": versions(),
    }
    write_json(folder / "run.json", record)

    def end(state: str) -> None:
        write_json(folder / "run.json", record | {"state": state, "end": _now()})

    try:
        log, close = open_tracker(config.report_to, folder, record["config"])
        try:
            yield Session(task, rows, config, folder, console, log=log, finish=lambda: end("done"))
        finally:
            close()
    except BaseException as error:
        with suppress(UserError):  # on a full disk the first complaint is the one to hear
            end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        raise
    end("done")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _claim(folder: Path, overwrite: bool, config: Config) -> None:
    """Make the folder this run's own. A run that failed before it made anything is in nobody's way."""
    if folder.is_file():
        raise UserError(f"'{folder}' is a file. Give --out a folder.")
    present = [folder / name for name in OWN if (folder / name).exists()]
    hollow = present == [folder / "run.json"] and read_json(present[0]).get("state") in ("failed", "interrupted")
    if present and not overwrite and not hollow:
        raise UserError(f"'{folder}' already holds a run. Choose another --out, or add --overwrite to replace it.")
    for option in ("model", "adapter", "data"):
        source = getattr(config, option)
        if source and any(Path(source).resolve().is_relative_to(path.resolve()) for path in present):
            raise UserError(f"--{option} lies in '{folder}', which --overwrite would delete. Choose another --out.")
    for path in present:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make the folder '{folder}': {error.strerror}. Choose another --out.") from error


def read_rows(task: Task, config: Config, console: Console) -> Rows:
    """The rows to work on; bad ones are dropped and named when the config says so.

    Raises:
        UserError: Two rows share an id, by which answers and pass rates are kept.
    """
    rows = load_rows(task, config.data)
    if config.skip_bad_rows:
        rows, dropped = usable_rows(task, rows)
        for place, reason in dropped:
            console.print(f"left out {place}: {reason}", style="yellow", soft_wrap=True)
    seen: dict[str, str] = {}
    for place, row in rows.everything():
        if str(row["id"]) in seen:
            raise UserError(f"{place}: the id {row['id']!r} is that of {seen[str(row['id'])]} too. Give every row an id of its own.")
        seen[str(row["id"])] = place
    return rows


@contextmanager
def progress(console: Console, title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A bar with time left. The function it gives advances it by some steps and shows a few words."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total, words="")

        def advance(steps: int, words: str = "") -> None:
            bar.update(task, advance=steps, words=words)

        yield advance
