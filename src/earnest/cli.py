"""The command line: one command a question.

earnest check TASK        are my data and rewards sound?
earnest redteam TASK      how would someone cheat who only wants the points? (of a run: did anyone?)
earnest difficulty TASK   will training learn anything here?
earnest sft TASK          warm start on gold answers
earnest train TASK        GRPO
earnest eval TASK         is it really better?
earnest report RUN        the report of a run, made again
earnest run TASK          all of it, in order
earnest sandbox           does the sandbox for programs hold here?
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from earnest.config import Config, DifficultyConfig, EvalConfig, SftConfig, Shared, TrainConfig, apply, flatten, read_toml
from earnest.environment import load_task
from earnest.errors import UserError
from earnest.task import BUILT_IN, Task

TaskName = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="TASK", help=f"A Python file that holds a Task, or a built-in task: {', '.join(BUILT_IN)}."),
]
Flat = tyro.conf.arg(name="")


@dataclass(frozen=True)
class Check:
    """Are my data and rewards sound? No model needed; seconds."""

    task: TaskName
    data: str | None = None
    """Rows to use in place of the task's."""
    skip_bad_rows: bool = False
    """Leave rows without usable gold out, and say so."""


@dataclass(frozen=True)
class Redteam:
    """What would someone do who only wants the points? Attacks the rewards, without a model; exit code 1 when they can be gamed."""

    task: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="TASK", help="As elsewhere; with --rows, any reward as FILE.py:function; or a run directory, for what it paid."
        ),
    ] = None
    data: str | None = None
    """Rows to use in place of the task's."""
    out: Path | None = None
    """Folder for redteam.md and redteam.html, the analysis to read; nothing is written without it."""
    search_calls: int = 4000
    """Reward calls of the searcher that goes beyond the catalog; 0 leaves it out."""
    seed: int = 0
    """Of every choice: the same seed finds the same."""
    deadline: float = 10.0
    """Seconds one answer may take before the reward counts as hung."""
    baseline: Path | None = None
    """File of findings that were read and accepted."""
    update_baseline: bool = False
    """Accept everything that is found, and write it to --baseline."""
    json: Path | None = None
    """File for the whole audit as JSON."""
    sarif: Path | None = None
    """File for the findings as SARIF 2.1.0, which code hosts show beside the rewards."""
    rows: str | None = None
    """Rows for a reward that is no Task, given as FILE.py:function."""
    gold: str | None = None
    """With --rows: the column of the right answer."""
    prompt_column: str | None = None
    """With --rows: the column of the prompt."""
    form: str | None = None
    """With --rows: how a right answer is written, with {} for it, such as '<answer>{}</answer>', or with columns: '{value} {unit}'."""
    selftest: bool = False
    """Attack rewards known to be broken or sound, and print how many are told apart."""


@dataclass(frozen=True)
class Stage:
    """What every command with a run directory takes."""

    task: TaskName
    out: Path | None = None
    """Run directory; runs/TASK when not given, with the command's name behind it for a single stage."""
    config: Path | None = None
    """TOML file with these options, [difficulty], [sft], [train] and [eval] as sections."""
    overwrite: bool = False
    """Replace the run that is in the run directory."""
    shared: Annotated[Shared, Flat] = dataclasses.field(default_factory=Shared)


@dataclass(frozen=True)
class Difficulty(Stage):
    """Will training learn anything here? Pass rates of the train rows, and the share of dead groups to expect."""

    difficulty: Annotated[DifficultyConfig, Flat] = dataclasses.field(default_factory=DifficultyConfig)


@dataclass(frozen=True)
class Sft(Stage):
    """Supervised fine-tuning on the gold answers: the warm start."""

    sft: Annotated[SftConfig, Flat] = dataclasses.field(default_factory=SftConfig)


@dataclass(frozen=True)
class Train(Stage):
    """GRPO with the task's rewards; start from an SFT adapter with --adapter RUN/sft/adapter."""

    train: Annotated[TrainConfig, Flat] = dataclasses.field(default_factory=TrainConfig)


@dataclass(frozen=True)
class Eval(Stage):
    """Is it really better? Accuracy on dev and test by the task's check; --adapter names the adapter to judge."""

    eval: Annotated[EvalConfig, Flat] = dataclasses.field(default_factory=EvalConfig)


@dataclass(frozen=True)
class Run(Stage):
    """All of it: base, GRPO, SFT, SFT then GRPO, each judged on held-out rows, with a table and a report."""

    difficulty: DifficultyConfig = dataclasses.field(default_factory=DifficultyConfig)
    sft: SftConfig = dataclasses.field(default_factory=SftConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)


@dataclass(frozen=True)
class Report:
    """Write report.html and curves.png of a run again."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="A run directory.")]


@dataclass(frozen=True)
class Sandbox:
    """Does the sandbox for programs hold here? Runs hostile ones in it; exit code 1 when one did harm."""

    allow_unsafe: bool = False
    """Try limits alone where there is no sandbox; the programs harm nothing but what is laid out for them."""


COMMANDS: dict[str, type] = {
    "check": Check,
    "redteam": Redteam,
    "difficulty": Difficulty,
    "sft": Sft,
    "train": Train,
    "eval": Eval,
    "report": Report,
    "run": Run,
    "sandbox": Sandbox,
}
SECTIONS = ("difficulty", "sft", "train", "eval")


def main() -> None:
    """Entry point: exit code 2 and one sentence for a mistake of the user, 130 for Ctrl-C."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Do one command and return the exit code."""
    errors = Console(stderr=True)
    try:
        return _dispatch(list(arguments))
    except UserError as error:
        if error.details:
            errors.print(error.details, style="dim", markup=False, highlight=False, soft_wrap=True)
        errors.print(f"earnest: {error}", style="bold red", markup=False, highlight=False, soft_wrap=True)
        return 2
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (28, 122):  # ENOSPC and EDQUOT
            full = f"earnest: The disk is full ({error}). Make room and run again; what was written is kept."
            errors.print(full, style="bold red", markup=False, highlight=False, soft_wrap=True)
        elif arguments[:1] in (["redteam"], ["check"]):
            errors.print_exception()  # a fault of ours must not read as "exploitable", which is exit code 1
        else:
            raise
        return 2
    except KeyboardInterrupt:
        keeps = not arguments or arguments[0] not in ("check", "redteam", "sandbox")
        kept = " What was done so far is in the run directory; `earnest report RUN` shows it." if keeps else ""
        errors.print(f"earnest: interrupted.{kept}", style="bold yellow")
        return 130


def _dispatch(arguments: list[str]) -> int:
    file = _config_file(arguments)
    values = read_toml(file) if file else {}
    base = apply(Config(), values, f"'{file}'")
    command = _parse(arguments, base)
    if isinstance(command, Check):
        return _check(command)
    if isinstance(command, Redteam):
        return _redteam(command, Console())
    if isinstance(command, Sandbox):
        from earnest.sandbox.find import find_sandbox
        from earnest.sandbox.trial import print_trial

        return 0 if print_trial(find_sandbox(command.allow_unsafe), Console()) else 1
    _quiet_libraries()
    if isinstance(command, Report):
        from earnest.lab.plots import curves_png
        from earnest.lab.report import write_report

        path = write_report(command.run)
        curves_png(command.run)
        Console().print(f"report: {path}", soft_wrap=True, highlight=False)
        return 0
    return _stage(command, arguments, values, base)


def _config_file(arguments: Sequence[str]) -> Path | None:
    """The file after --config, needed before the other options because it sets their defaults."""
    for index, argument in enumerate(arguments):
        if argument == "--config" and index + 1 < len(arguments):
            return Path(arguments[index + 1])
        if argument.startswith("--config="):
            return Path(argument.partition("=")[2])
    return None


def _parse(arguments: Sequence[str], base: Config) -> Any:
    """Arguments as the dataclass of their command, with `base` for what they leave out."""
    shared = Shared(**{f.name: getattr(base, f.name) for f in dataclasses.fields(Shared)})
    choices: Any = None
    for name, kind in COMMANDS.items():
        fields = {f.name for f in dataclasses.fields(kind)}
        options: dict[str, Any] = {"description": (kind.__doc__ or "").strip()}
        if issubclass(kind, Stage):
            options["default"] = kind(task=tyro.MISSING, shared=shared, **{s: getattr(base, s) for s in SECTIONS if s in fields})
        entry = Annotated[kind, tyro.conf.subcommand(name, **options)]
        choices = entry if choices is None else choices | entry
    return tyro.cli(
        choices,
        args=list(arguments),
        prog="earnest",
        description="Rewards that are earned: one command a question.",
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )


def _quiet_libraries() -> None:
    """Only our own progress bars and sentences; no telemetry, no hub look-ups for what is local."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|peft")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _check(command: Check) -> int:
    from earnest.check import check_task, print_report, usable_rows
    from earnest.rows import load_rows

    console = Console()
    task = load_task(command.task)
    rows = load_rows(task, command.data)
    if command.skip_bad_rows:
        rows, dropped = usable_rows(task, rows)
        for place, reason in dropped:
            console.print(f"left out {place}: {reason}", style="yellow", markup=False, highlight=False)
    report = check_task(task, rows)
    print_report(report, console)
    return 0 if report.ok else 2


def _redteam(command: Redteam, console: Console) -> int:
    if command.selftest:
        from earnest.redteam.zoo.selftest import print_selftest

        return 0 if print_selftest(console) else 1
    if command.task and command.task not in BUILT_IN and Path(command.task).is_dir():
        from earnest.redteam.replay import print_replay, replay

        seen = replay(Path(command.task))
        print_replay(seen, console)
        return 1 if seen.suspicious else 0
    _check_redteam(command)
    from earnest.redteam.audit import audit
    from earnest.redteam.baseline import compare, read_baseline, write_baseline
    from earnest.redteam.printing import print_audit
    from earnest.rows import load_rows

    task = _attackable(command)
    update = command.update_baseline and command.baseline
    entries = read_baseline(command.baseline, task.name) if command.baseline and (command.baseline.exists() or not update) else []
    if console.is_terminal:
        console.print("attacking the rewards ...", style="dim")
    found = audit(task, load_rows(task, command.data), seed=command.seed, search_calls=command.search_calls, deadline=command.deadline)
    compared = compare(found, write_baseline(command.baseline, found, entries) if update else entries)
    print_audit(found, compared, console)
    written = [command.baseline] if update else []
    if command.out is not None:
        from earnest.redteam.report import write_reports

        written += write_reports(found, compared, task, command.out)
    if command.json or command.sarif:
        from earnest.redteam.sarif import audit_json, sarif
        from earnest.rundir import write_json

        for path, held in ((command.json, audit_json(found, compared)), (command.sarif, sarif(found, compared, task))):
            if path is not None:
                write_json(path, held)
                written.append(path)
    for path in written:
        console.print(f"written: {path}", soft_wrap=True, markup=False, highlight=False)
    return 1 if compared.fails else 0


def _check_redteam(command: Redteam) -> None:
    """Refuse what would be noticed only after the whole audit."""
    if command.update_baseline and command.baseline is None:
        raise UserError("--update-baseline needs to know the file: add --baseline FILE.")
    if command.deadline <= 0 or command.search_calls < 0:
        raise UserError("--deadline must be above 0 seconds, and --search-calls 0 or more.")
    for option, path in (("--out", command.out), ("--json", command.json), ("--sarif", command.sarif), ("--baseline", command.baseline)):
        folder = (
            None if path is None else next(p for p in (path if option == "--out" else path.parent, *path.absolute().parents) if p.exists())
        )
        if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise UserError(f"{option} {path} cannot be written: '{folder}' is no folder that you may write to. Name another place.")


def _attackable(command: Redteam) -> Task:
    """The task to attack, made up around a bare reward where rows are given for it."""
    if command.task is None:
        raise UserError("Say what to attack: earnest redteam TASK, where TASK is a Python file that holds a Task, or a built-in task.")
    if command.rows is None:
        if extra := [
            flag
            for flag, value in (("--gold", command.gold), ("--prompt-column", command.prompt_column), ("--form", command.form))
            if value
        ]:
            raise UserError(f"{extra[0]} is for a reward that is no Task: give its rows too, with --rows FILE.")
        return load_task(command.task)
    if command.data is not None:
        raise UserError("--rows and --data both name rows. Use --rows for a reward given as FILE.py:function, --data for a Task.")
    from earnest.redteam.adapters import task_of

    return task_of(command.task, command.rows, command.gold, command.prompt_column, command.form)


def _stage(command: Stage, arguments: Sequence[str], values: dict[str, Any], base: Config) -> int:
    try:
        from earnest import stages
        from earnest.session import session
    except ModuleNotFoundError as error:
        raise UserError(
            f"This command trains or runs a model and needs '{error.name}'. Install it: pip install 'earnest[train]'."
        ) from error
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    own = {s: getattr(command, s) for s in SECTIONS if hasattr(command, s)}
    config = dataclasses.replace(base, **vars(command.shared), **own)
    task = load_task(command.task)
    name = next(name for name, kind in COMMANDS.items() if isinstance(command, kind))
    folder = command.out or Path("runs") / (task.name if name == "run" else f"{task.name}-{name}")
    origins = _origins(config, arguments, values, command)
    with session(task, config, origins, "earnest " + " ".join(arguments), folder, command.overwrite) as s:
        if isinstance(command, Run):
            stages.run(s)
            return 0
        policy = stages.load(s)
        model = Path(config.adapter).resolve().parent.name if config.adapter else "base"
        if isinstance(command, Difficulty):
            stages.difficulty_stage(s, policy, model)
        elif isinstance(command, Sft):
            stages.sft_stage(s, policy)
        elif isinstance(command, Train):
            stages.train_stage(s, policy, "sft_grpo" if config.adapter else "grpo", s.rows.split("train"))
        else:
            stages.evaluate_stage(s, policy, model)
        stages.summary_stage(s)
    return 0


def _origins(config: Config, arguments: Sequence[str], values: dict[str, Any], command: Stage) -> dict[str, str]:
    """Where each value came from: the command line, the config file, or the default."""
    flags = {a.partition("=")[0].lstrip("-").replace("-", "_") for a in arguments if a.startswith("--")}
    typed = flags | {flag.removeprefix("no_").replace(".no_", ".") for flag in flags}
    in_file = {name for name, _ in flatten(values)}
    prefix = "" if isinstance(command, Run) else next((f"{s}." for s in SECTIONS if hasattr(command, s)), "")
    origins = {}
    for name, _ in flatten(dataclasses.asdict(config)):
        spelled = name if isinstance(command, Run) else name.removeprefix(prefix)
        origins[name] = "command line" if spelled in typed else str(command.config) if name in in_file else "default"
    return origins


if __name__ == "__main__":
    main()
