"""The stages of a run: each reads and writes the run directory, `run` does them in order.

base -> evaluate; GRPO from base -> evaluate; SFT -> evaluate; difficulty of the train rows for the SFT model, filter; GRPO from the
SFT model -> evaluate; table, comparisons, report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from earnest.check import check_task, print_report
from earnest.engine.models import BUILT_IN, FETCHING, Loaded, fetch_built_in, is_fetched, load_model
from earnest.engine.policy import Policy
from earnest.engine.rollouts import Prompt, acting_record, answer, make_prompts, verdict_of, verdict_record
from earnest.engine.sampler import Sampling
from earnest.engine.sft import sft, spread
from earnest.engine.train import train
from earnest.engine.turns import acting_metrics, dialect_of
from earnest.errors import UserError
from earnest.lab.baselines import baselines
from earnest.lab.difficulty import choose, filtered, summarise, too_long
from earnest.lab.evaluate import NAMES, compare, describe, load_answers, markdown, table
from earnest.lab.plots import curves_png
from earnest.lab.report import write_report
from earnest.rundir import append_jsonl, read_json, read_jsonl, write_json, write_text
from earnest.session import Session, progress
from earnest.task import Row, Task


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
    if s.config.model == BUILT_IN and not is_fetched():
        with s.timed("fetch model"), progress(s.console, f"fetch {BUILT_IN}", FETCHING) as advance:
            fetch_built_in(advance)
    with s.timed("load model"), s.console.status(f"loading {s.config.model}"):
        loaded: Loaded = load_model(s.config.model, s.config.device)
        start = adapter or (Path(s.config.adapter) if s.config.adapter else None)
        policy = Policy(loaded, s.config.lora_rank, start, s.config.seed)
    for said in _told(s, policy):
        if said not in s.notes:
            s.notes.append(said)
            s.console.print(said)
    return policy


def _told(s: Session, policy: Policy) -> Iterator[str]:
    """What is worth knowing about a model before anything is spent on it."""
    if policy.plain_because:
        yield f"No prefix tree for {s.config.model}: {policy.plain_because}. The plain path gives the same results and takes longer."
    if s.task.acts:
        row = next(row for _, row in s.rows.everything())
        for problem in dialect_of(s.named, policy.loaded, row, s.config.thinking).problems():
            yield f"{problem[0].upper()}{problem[1:]}."


def prompts_of(s: Session, policy: Policy, rows: Sequence[Row], room: int) -> list[Prompt]:
    """The rows as prompts; a note where an answer of so many tokens cannot be right."""
    prompts = make_prompts(s.named, policy.loaded, rows, s.config.thinking, room)
    told = any(f"max_completion_length is {room}:" in note for note in s.notes)
    if room and not told and (said := too_long(s.named, policy.loaded, prompts, room)):
        s.notes.append(said)
        s.console.print(said, style="yellow")
    return prompts


def evaluate_stage(s: Session, policy: Policy, model: str) -> None:
    """Answer dev and test greedily, and dev by sampling too; keep every answer with the check's verdict."""
    c = s.config.eval
    greedy, sampled = (Sampling(temperature=t, max_tokens=c.max_completion_length) for t in (0, c.temperature))
    # greedy and sampled answers to a prompt grow on one tree
    plans = {"dev": [greedy] + [sampled] * c.samples, "test": [greedy]}
    plans = {split: how for split, how in plans.items() if s.rows.by_split.get(split)}
    if not plans:
        s.rows.split("dev")  # raises: nothing to evaluate on
    name, total = NAMES.get(model, model), sum(len(s.rows.by_split[split]) for split in plans)
    with s.timed(f"evaluate {name}"), progress(s.console, f"evaluate {name}", total) as advance:
        for split, how in plans.items():
            prompts = prompts_of(s, policy, s.rows.by_split[split], c.max_completion_length)
            groups = answer(policy, s.named, prompts, len(how), how, [s.config.seed, 3], s.config.thinking, advance=advance)
            append_jsonl(s.folder / "eval" / f"{model}.jsonl", _answer_records(s.named, model, split, prompts, groups))


def _answer_records(task: Task, model: str, split: str, prompts: Sequence[Prompt], groups: Any) -> Iterator[dict[str, Any]]:
    for prompt, group in zip(prompts, groups, strict=True):
        for number, one in enumerate(group):
            yield {
                "model": model,
                "split": split,
                "mode": "sampled" if number else "greedy",
                "sample": max(number - 1, 0),
                "id": prompt.row["id"],
                "prompt": prompt.messages,
                "text": one.answer.content,
                "reasoning": one.answer.reasoning,
                "tokens": one.completion.written,
                "terminated": one.completion.terminated,
                "verdict": verdict_record(verdict_of(task, prompt, one)),
                **acting_record(one),
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
    sampling = Sampling(temperature=c.temperature, max_tokens=c.max_completion_length or s.config.train.max_completion_length)
    with s.timed("difficulty"), progress(s.console, "difficulty", len(measured)) as advance:
        prompts = prompts_of(s, policy, measured, sampling.max_tokens)
        groups = answer(policy, s.named, prompts, c.samples, sampling, [s.config.seed, 4], s.config.thinking, advance=advance)
    verdicts = [[verdict_of(s.task, p, one) for one in g] for p, g in zip(prompts, groups, strict=True)]
    ids = [row["id"] for row in measured]
    acting = acting_metrics([one.rollout for g in groups for one in g]) if s.task.acts else None
    before = summarise(ids, verdicts, model, group, acting)
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
            if (alarm := row.get("canary/alarm")) and not any(note.startswith("Canaries earn") for note in s.notes):
                s.notes.append(alarm)
                s.console.print(alarm, style="red")
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
        s.finish()
        curves_png(s.folder)
        write_report(s.folder)
    write_json(s.folder / "summary.json", summary)  # again: now with the time of the report itself
    show(s.console, summary)
    s.console.print(f"report: {s.folder / 'report.html'}", soft_wrap=True)
    return summary


def show(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the table and the paired differences on held-out rows."""
    head, *lines = table(summary)
    # narrow enough for 80 columns: only the name of a model may wrap
    grid = Table(title=f"{summary['task']}, {summary['model']}", title_justify="left", box=SIMPLE, collapse_padding=True, pad_edge=False)
    for index, name in enumerate(head):
        widest = max([*map(len, name.split()), *(len(line[index]) for line in lines)]) if index else None
        grid.add_column(name, justify="right" if index else "left", width=widest)
    for line in lines:
        grid.add_row(*line)
    if lines:
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
    """Everything, in order.

    Raises:
        UserError: The task is not sound, or an adapter is given: the rows of the table start from the model itself.
    """
    if s.config.adapter:
        raise UserError(
            "`run` compares models that start from the base model, so it takes no --adapter. Use `earnest train` or `earnest eval`."
        )
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
    del policy  # two models in memory at once would be one too many
    policy = load(s)
    sft_stage(s, policy)
    evaluate_stage(s, policy, "sft")
    rows = difficulty_stage(s, policy, "sft")
    train_stage(s, policy, "sft_grpo", rows)
    evaluate_stage(s, policy, "sft_grpo")
    return summary_stage(s)
