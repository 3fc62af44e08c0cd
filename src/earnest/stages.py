"""The stages of a run: each reads and writes the run directory, `run` does them in order.

base -> evaluate; GRPO from base -> evaluate; SFT -> evaluate; difficulty of the train rows for the SFT model, filter; GRPO from the
SFT model -> evaluate; table, comparisons, report.
"""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from earnest.check import check_task, print_report, usable_rows
from earnest.config import Config
from earnest.engine.models import Loaded, load_model, pick_device, versions
from earnest.engine.policy import Policy
from earnest.engine.rollouts import Prompt, answer, make_prompts, verdict_record
from earnest.engine.sampler import Sampling
from earnest.engine.sft import sft, spread
from earnest.engine.train import train
from earnest.errors import UserError
from earnest.lab.baselines import baselines
from earnest.lab.difficulty import choose, filtered, summarise
from earnest.lab.evaluate import NAMES, compare, describe, load_answers, markdown, table
from earnest.lab.plots import curves_png
from earnest.lab.report import write_report
from earnest.rows import Rows, load_rows
from earnest.rundir import append_jsonl, read_json, read_jsonl, write_json, write_text
from earnest.task import Row, Task, judge
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
    """

    task: Task
    rows: Rows
    config: Config
    folder: Path
    console: Console
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    log: Callable[[str, Mapping[str, Any]], None] = lambda stage, row: None

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
    try:
        log, close = open_tracker(config.report_to, folder, record["config"])
        try:
            yield Session(task, rows, config, folder, console, log=log)
        finally:
            close()
    except BaseException as error:
        state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with suppress(UserError):  # on a full disk the first complaint is the one to hear
            write_json(folder / "run.json", record | {"state": state, "end": _now()})
        raise
    write_json(folder / "run.json", record | {"state": "done", "end": _now()})


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
        bar.update(task, completed=bar.tasks[0].completed)


# Stages


def check_stage(s: Session) -> None:
    """Refuse to spend time on a task that is not sound.

    Raises:
        UserError: The check found errors.
    """
    with s.timed("check"):
        report = check_task(s.task, s.rows)
    print_report(report, s.console)
    if not report.ok:
        raise UserError(f"Task '{s.task.name}' is not sound (see above), so nothing was trained. Mend it, then run again.")
    if s.task.oracle is None:
        raise UserError(
            f"Task '{s.task.name}' has no oracle, so SFT has nothing to imitate and `run` cannot compare. Add oracle=... to the Task, or "
            "use `earnest train`."
        )
    if not any(s.rows.by_split.get(split) for split in ("dev", "test")):
        raise UserError(f"{s.rows.source} has neither dev nor test rows, so nothing could be judged. Add some, or use `earnest train`.")


def load(s: Session, adapter: Path | None = None) -> Policy:
    """The model with an adapter: the one given, that of the config, or a fresh one."""
    with s.timed("load model"):
        loaded: Loaded = load_model(s.config.model, s.config.device)
        start = adapter or (Path(s.config.adapter) if s.config.adapter else None)
        return Policy(loaded, s.config.lora_rank, start, s.config.seed)


def prompts_of(s: Session, policy: Policy, rows: Sequence[Row], room: int) -> list[Prompt]:
    """The rows as prompts."""
    return make_prompts(s.named, policy.loaded, rows, s.config.thinking, room)


def evaluate_stage(s: Session, policy: Policy, model: str) -> None:
    """Answer dev and test greedily, and dev by sampling; keep every answer with the check's verdict."""
    c = s.config.eval
    plans = [(split, "greedy", 1, Sampling(temperature=0, max_tokens=c.max_completion_length)) for split in ("dev", "test")]
    if c.samples:
        plans.append(("dev", "sampled", c.samples, Sampling(temperature=c.temperature, max_tokens=c.max_completion_length)))
    plans = [plan for plan in plans if s.rows.by_split.get(plan[0])]
    if not plans:
        s.rows.split("dev")  # raises: nothing to evaluate on
    total = sum(len(s.rows.by_split[split]) for split, *_ in plans)
    with s.timed(f"evaluate {NAMES.get(model, model)}"), progress(s.console, f"evaluate {NAMES.get(model, model)}", total) as advance:
        for split, mode, samples, sampling in plans:
            prompts = prompts_of(s, policy, s.rows.by_split[split], c.max_completion_length)
            groups = answer(policy, prompts, samples, sampling, [s.config.seed, 3], s.config.thinking, advance=advance)
            append_jsonl(s.folder / "eval" / f"{model}.jsonl", _answer_records(s.named, model, split, mode, prompts, groups))


def _answer_records(task: Task, model: str, split: str, mode: str, prompts: Sequence[Prompt], groups: Any) -> Iterator[dict[str, Any]]:
    for prompt, group in zip(prompts, groups, strict=True):
        for number, one in enumerate(group):
            yield {
                "model": model,
                "split": split,
                "mode": mode,
                "sample": number,
                "id": prompt.row["id"],
                "text": one.answer.content,
                "reasoning": one.answer.reasoning,
                "tokens": len(one.completion.ids),
                "terminated": one.completion.terminated,
                "verdict": verdict_record(judge(task, one.answer.content, prompt.row)),
                "needs_human": task.needs_human(prompt.row) if task.needs_human else None,
                "slices": {name: str(slice_of(prompt.row)) for name, slice_of in task.slices.items()},
            }


def sft_stage(s: Session, policy: Policy) -> None:
    """Supervised fine-tuning on the train rows."""
    prompts = prompts_of(s, policy, s.rows.split("train"), 0)
    with s.timed("SFT"), progress(s.console, "SFT", s.config.sft.steps) as advance:

        def report(row: Mapping[str, Any]) -> None:
            s.log("sft", row)
            advance(1, f"loss {row['loss']:.3f}")

        sft(policy, s.named, prompts, s.config.sft, s.folder / "sft", s.config.seed, report)


def difficulty_stage(s: Session, policy: Policy, model: str) -> list[Row]:
    """Measure the train rows, keep the record before and after the filter, and return the rows to train on."""
    c, rows = s.config.difficulty, s.rows.split("train")
    measured = spread(rows, c.rows)
    group = s.config.train.num_generations
    sampling = Sampling(temperature=c.temperature, max_tokens=s.config.train.max_completion_length)
    with s.timed("difficulty"), progress(s.console, "difficulty", len(measured)) as advance:
        prompts = prompts_of(s, policy, measured, sampling.max_tokens)
        groups = answer(policy, prompts, c.samples, sampling, [s.config.seed, 4], s.config.thinking, advance=advance)
    verdicts = [[judge(s.task, one.answer.content, p.row) for one in g] for p, g in zip(prompts, groups, strict=True)]
    ids = [row["id"] for row in measured]
    before = summarise(ids, verdicts, model, group)
    kept = choose(before["pass_rates"], c, s.config.seed)
    after = filtered(ids, verdicts, kept, model, group)
    write_json(s.folder / "difficulty.json", {"before": before, "after": after})
    for when, record in (("before the filter", before), ("after", after)):
        s.console.print(_difficulty_line(when, record))
    s.console.print(before["advice"], style="bold")
    dropped = set(before["pass_rates"]) - set(kept)
    left = [row for row in rows if row["id"] not in dropped]
    if not left:
        raise UserError("The difficulty filter left no row to train on. Loosen drop_all_right, drop_all_wrong, keep_from or keep_to.")
    return left


def _difficulty_line(when: str, record: Mapping[str, Any]) -> str:
    if not record["rows"]:
        return f"difficulty {when}: no row left"
    return (
        f"difficulty {when}: {record['rows']} rows, {record['all_right']:.0%} all right, {record['mixed']:.0%} mixed, "
        f"{record['all_wrong']:.0%} all wrong; answers that break the format {record['format_failures']:.0%}, wrong in content "
        f"{record['content_failures']:.0%}"
    )


def train_stage(s: Session, policy: Policy, model: str, rows: Sequence[Row]) -> None:
    """GRPO on some rows."""
    c = s.config.train
    prompts = prompts_of(s, policy, rows, c.max_completion_length)
    s.console.print(
        f"{NAMES[model]}: {c.steps} steps of {c.num_prompts} prompts x {c.num_generations} samples, from {len(prompts)} rows "
        f"({c.steps * c.num_prompts / len(prompts):.1f} passes)",
    )
    with s.timed(NAMES[model]), progress(s.console, NAMES[model], c.steps) as advance:

        def report(row: Mapping[str, Any]) -> None:
            s.log(model, row)
            reward = "–" if row["reward"] is None else f"{row['reward']:.2f}"
            advance(1, f"reward {reward} check {row['check/accuracy']:.2f} dead {row['frac_reward_zero_std']:.2f}")
            if row["step"] == 3 and row["completions/clipped_ratio"] > 0.5:
                s.console.print(
                    f"{row['completions/clipped_ratio']:.0%} of the answers were cut at {c.max_completion_length} tokens; raise "
                    "max_completion_length if the task needs longer answers.",
                    style="yellow",
                )

        why = train(policy, s.task, prompts, c, s.folder / model, s.config.seed, s.config.thinking, report)
    if why:
        s.notes.append(f"{NAMES[model]} stopped early. {why}")
        s.console.print(s.notes[-1], style="yellow")


def summary_stage(s: Session) -> dict[str, Any]:
    """Write summary.json, table.md, curves.png and report.html from what the run directory holds, and print the table."""
    with s.timed("report"):
        answers = load_answers(s.folder)
        split = s.rows.by_split
        summary = {
            "task": s.task.name,
            "model": s.config.model,
            "models": [describe(model, own) for model, own in answers.items()],
            "baselines": baselines(s.named, split.get("train", []), split.get("dev", []), split.get("test", [])),
            "comparisons": compare(answers),
            "difficulty": read_json(s.folder / "difficulty.json"),
            "notes": s.notes,
            "seconds": s.seconds,
        }
        write_json(s.folder / "summary.json", summary)
        write_text(s.folder / "table.md", markdown(summary))
        curves_png(s.folder)
        write_report(s.folder)
    write_json(s.folder / "summary.json", summary)
    show(s.console, summary)
    s.console.print(f"report: {s.folder / 'report.html'}", soft_wrap=True)
    return summary


def show(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the table and the paired differences on held-out rows."""
    head, *lines = table(summary)
    grid = Table(title=f"{summary['task']}, {summary['model']}", title_justify="left")
    for index, name in enumerate(head):
        grid.add_column(name, justify="right" if index else "left", no_wrap=index == 0)
    for line in lines:
        grid.add_row(*line)
    console.print(grid)
    held_out = "test" if any(c["split"] == "test" for c in summary["comparisons"]) else "dev"
    for c in summary["comparisons"]:
        if (c["split"], c["mode"], c["metric"]) == (held_out, "greedy", "accuracy"):
            low, high = c["interval"]
            says = "" if low > 0 or high < 0 else ": the interval includes zero"
            console.print(
                f"{NAMES.get(c['b'], c['b'])} minus {NAMES.get(c['a'], c['a'])}: {c['difference']:+.3f} ({low:+.3f} to {high:+.3f}) on "
                f"{c['n']} {held_out} rows{says}"
            )


def run(s: Session) -> dict[str, Any]:
    """Everything, in order."""
    check_stage(s)
    policy = load(s)
    evaluate_stage(s, policy, "base")
    train_stage(s, policy, "grpo", s.rows.split("train"))
    if all(bool((value == 0).all()) for name, value in policy.state().items() if "lora_B" in name):
        same = [{**a, "model": "grpo"} for a in read_jsonl(s.folder / "eval" / "base.jsonl")]  # the same weights give the same answers
        append_jsonl(s.folder / "eval" / "grpo.jsonl", same)
        s.notes.append("GRPO from the base model changed no weight, so its answers are those of the base model.")
    else:
        evaluate_stage(s, policy, "grpo")
    policy = load(s)
    sft_stage(s, policy)
    evaluate_stage(s, policy, "sft")
    rows = difficulty_stage(s, policy, "sft")
    train_stage(s, policy, "sft_grpo", rows)
    evaluate_stage(s, policy, "sft_grpo")
    return summary_stage(s)
