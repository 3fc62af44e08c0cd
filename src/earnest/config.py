"""Every option of every stage: frozen dataclasses that are the command line, the TOML file and the run record at once.

No torch here, so that `earnest check` stays light. Precedence: command line, then the TOML file, then the defaults below; where each
value came from is saved with the run.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from earnest.errors import UserError

Credit = Literal["trajectory", "turn"]
LossType = Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo"]
ScaleRewards = Literal["group", "batch", "none"]
Level = Literal["token", "sequence"]
Schedule = Literal["linear", "cosine", "constant"]
Tracker = Literal["none", "trackio", "tensorboard", "wandb"]


@dataclass(frozen=True)
class DifficultyConfig:
    """How hard the rows are for the model as it is now, and which are worth training on.

    Attributes:
        samples: k, answers a row.
        rows: Measure only this many train rows, spread over the split; 0 measures all. Rows not measured are kept.
        temperature: Of sampling; that of training, or the forecast is of another policy.
        drop_all_right: Share of the rows with every answer right to leave out of training.
        drop_all_wrong: Share of the rows with every answer wrong to leave out.
        keep_from: Leave out rows with a lower pass rate.
        keep_to: Leave out rows with a higher pass rate.
        max_completion_length: Most tokens of an answer; that of training when not given.
    """

    samples: int = 8
    rows: int = 256
    temperature: float = 1.0
    drop_all_right: float = 0.5
    drop_all_wrong: float = 0.5
    keep_from: float = 0.0
    keep_to: float = 1.0
    max_completion_length: int | None = None

    def __post_init__(self) -> None:
        at_least("difficulty.samples", self.samples, 2)
        at_least("difficulty.rows", self.rows, 0)
        at_least("difficulty.max_completion_length", 1 if self.max_completion_length is None else self.max_completion_length, 1)
        between("difficulty.temperature", self.temperature, 0.01, 10)
        for name in ("drop_all_right", "drop_all_wrong", "keep_from", "keep_to"):
            between(f"difficulty.{name}", getattr(self, name), 0, 1)
        if self.keep_from > self.keep_to:
            raise UserError(f"difficulty.keep_from is {self.keep_from} and keep_to {self.keep_to}, so no row would be left. Swap them.")


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning on the gold answers.

    Attributes:
        steps: Optimiser steps.
        batch_size: Rows a step.
        rows: Use only this many rows of the train split, spread over it; 0 uses all.
        learning_rate: Peak of the schedule. LoRA wants about ten times the rate of full fine-tuning.
        lr_scheduler_type: linear, cosine or constant.
        warmup_ratio: Share of the steps over which the rate rises from 0.
        max_grad_norm: Gradients are scaled down to at most this norm.
        token_budget: Most distinct tokens in one pass through the model, half of it where a pass holds several prompts; bounds memory,
            changes no number.
    """

    steps: int = 24
    batch_size: int = 8
    rows: int = 192
    learning_rate: float = 4e-4
    lr_scheduler_type: Schedule = "constant"  # so short a training wants its full rate to the end (docs/log.md)
    warmup_ratio: float = 0.0
    max_grad_norm: float = 1.0
    token_budget: int = 2048

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "token_budget"):
            at_least(f"sft.{name}", getattr(self, name), 1)
        at_least("sft.rows", self.rows, 0)
        between("sft.max_grad_norm", self.max_grad_norm, 1e-6, 1e12)
        between("sft.learning_rate", self.learning_rate, 0, 1)
        between("sft.warmup_ratio", self.warmup_ratio, 0, 1)


@dataclass(frozen=True)
class TrainConfig:
    """GRPO, with TRL's names and meanings.

    Attributes:
        steps: Optimiser steps.
        num_prompts: P, prompts a step.
        num_generations: G, samples a prompt; at least 2.
        max_completion_length: Most tokens of an answer.
        temperature: Of sampling; log-probabilities are taken at the same.
        top_p: Keep the smallest set of tokens with at least this probability.
        top_k: Keep this many tokens; 0 keeps all.
        min_p: Keep tokens at least this likely relative to the likeliest; 0 keeps all.
        learning_rate: Peak of the schedule. TRL's 1e-6 is for full fine-tuning of large models; a small LoRA needs far more.
        lr_scheduler_type: linear, cosine or constant.
        warmup_ratio: Share of the steps over which the rate rises from 0.
        max_grad_norm: Gradients are scaled down to at most this norm.
        loss_type: grpo, bnpo, dr_grpo, dapo or cispo.
        importance_sampling_level: token, or sequence (GSPO, together with loss_type grpo).
        scale_rewards: Divide advantages by the standard deviation of the group, of the batch, or by none.
        epsilon: Lower clip range of the ratio.
        epsilon_high: Upper clip range; epsilon when not given.
        delta: Upper bound of the ratio for negative advantages too.
        beta: Weight of the KL to the starting policy; 0 leaves it out.
        use_bias_correction_kl: Multiply the KL estimate by the ratio (TRL's default since 1.16).
        num_iterations: Updates on each batch of rollouts.
        mask_truncated_completions: Leave answers that hit max_completion_length out of the loss.
        dynamic_sampling: Rounds of fresh prompts that may replace dead groups in a step (DAPO); 0 for none.
        overlong_cache: Tokens before max_completion_length over which DAPO's soft penalty falls to -1; 0 for none.
        max_dead_steps: Stop when this many steps in a row taught nothing: every group dead, or no answer above an empty one; 0 never.
        token_budget: Most distinct tokens in one pass through the model, half of it where a pass holds several prompts; bounds memory,
            changes no number.
        save_steps: Save the adapter every so many steps, beside at the end.
        canary_rate: Questions with the gold of another row, as a share of the prompts: sampled and scored beside them, never trained on,
            with an alarm when they earn more than chance. 0 for none; 0.05 is plenty.
        credit: Whose advantage a token gets: the whole trajectory's, or that of its turn, where the environment has a list `turn_rewards`
            with what each turn earned.
        turn_discount: What a reward of the next turn counts in this one, with credit by turn.
        keep_spread: Train on this share of the step's groups, those whose rewards differ most (as RAGEN filters); 1 trains on all.
    """

    steps: int = 60
    num_prompts: int = 8
    num_generations: int = 8
    max_completion_length: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    learning_rate: float = 2e-4
    lr_scheduler_type: Schedule = "constant"
    warmup_ratio: float = 0.0
    max_grad_norm: float = 1.0
    loss_type: LossType = "dapo"
    importance_sampling_level: Level = "token"
    scale_rewards: ScaleRewards = "group"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    beta: float = 0.0
    use_bias_correction_kl: bool = False
    num_iterations: int = 1
    mask_truncated_completions: bool = False
    dynamic_sampling: int = 0
    overlong_cache: int = 0
    max_dead_steps: int = 8
    token_budget: int = 2048
    save_steps: int = 20
    canary_rate: float = 0.0
    credit: Credit = "trajectory"
    turn_discount: float = 1.0
    keep_spread: float = 1.0

    def __post_init__(self) -> None:
        if self.num_generations < 2:
            raise UserError(
                f"num_generations is {self.num_generations}; a group must have at least 2 answers, or there is nothing to compare. Try 8."
            )
        for name in ("steps", "num_prompts", "max_completion_length", "num_iterations", "token_budget"):
            at_least(f"train.{name}", getattr(self, name), 1)
        for name in ("dynamic_sampling", "overlong_cache", "max_dead_steps", "save_steps", "top_k", "beta", "epsilon"):
            at_least(f"train.{name}", getattr(self, name), 0)
        between("train.turn_discount", self.turn_discount, 0, 1)
        between("train.keep_spread", self.keep_spread, 0.01, 1)
        for name in ("epsilon_high", "delta"):
            at_least(f"train.{name}", getattr(self, name) or 0, 0)
        if self.overlong_cache > self.max_completion_length:
            raise UserError(
                f"train.overlong_cache is {self.overlong_cache}, more than the {self.max_completion_length} tokens of "
                "max_completion_length. Lower it, or raise max_completion_length."
            )
        between("train.max_grad_norm", self.max_grad_norm, 1e-6, 1e12)
        between("train.temperature", self.temperature, 0.01, 10)
        between("train.top_p", self.top_p, 1e-6, 1)
        for name in ("min_p", "learning_rate", "warmup_ratio", "canary_rate"):
            between(f"train.{name}", getattr(self, name), 0, 1)


@dataclass(frozen=True)
class EvalConfig:
    """Evaluation by the task's check, never by the training rewards.

    Attributes:
        samples: Sampled answers a dev row, beside the greedy one; 0 for none.
        temperature: Of the sampled answers.
        max_completion_length: Most tokens of an answer.
    """

    samples: int = 2
    temperature: float = 1.0
    max_completion_length: int = 64

    def __post_init__(self) -> None:
        at_least("eval.samples", self.samples, 0)
        at_least("eval.max_completion_length", self.max_completion_length, 1)
        between("eval.temperature", self.temperature, 0.01, 10)


@dataclass(frozen=True)
class Shared:
    """What every stage with a model needs to know.

    Attributes:
        model: smollm2-135m (built in), a model folder, or a hub id.
        adapter: Start from this LoRA adapter instead of a fresh one.
        data: Rows to use in place of the task's: a file, a folder with train/dev/test files, or a data set id.
        skip_bad_rows: Leave rows without usable gold out, and say so, instead of stopping.
        seed: Of everything random.
        device: auto, cpu or cuda.
        thinking: Give a thinking model room to think; rewards and check read only what follows.
        lora_rank: Rank of the LoRA adapter on all linear layers; alpha is twice the rank.
        report_to: Also log metrics to trackio, tensorboard or wandb.
    """

    model: str = "smollm2-135m"
    adapter: str | None = None
    data: str | None = None
    skip_bad_rows: bool = False
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    thinking: bool = False
    lora_rank: int = 16
    report_to: Tracker = "none"

    def __post_init__(self) -> None:
        at_least("lora_rank", self.lora_rank, 1)
        at_least("seed", self.seed, 0)


@dataclass(frozen=True)
class Config(Shared):
    """What all stages share, and the options of each stage.

    Attributes:
        difficulty: Measuring and filtering rows.
        sft: Supervised fine-tuning.
        train: GRPO.
        eval: Evaluation.
    """

    difficulty: DifficultyConfig = field(default_factory=DifficultyConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a value below the least, and one that is not finite."""
    if not least <= value < math.inf:
        raise UserError(f"{name} is {value}; it must be a number of at least {least}.")


def between(name: str, value: float, low: float, high: float) -> None:
    """Refuse a value outside [low, high]."""
    if not low <= value <= high:
        raise UserError(f"{name} is {value}; it must be from {low} to {high}.")


def read_toml(path: Path) -> dict[str, Any]:
    """A config file, its keys and the kinds of its values checked against `Config`.

    Raises:
        UserError: Not there, not TOML, an unknown key (the nearest valid one is named), or a value of another kind.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UserError(f"There is no config file '{path}'. Check the path.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The config file '{path}' cannot be read ({error}).") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"The config file '{path}' is not TOML: {error}.") from error
    _refuse_unknown(values, Config, path, "")
    return values


def _refuse_unknown(values: Mapping[str, Any], kind: type, path: Path, section: str) -> None:
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key, value in values.items():
        place = f"in section [{section}] of '{path}'" if section else f"at the top of '{path}'"
        if key not in fields:
            raise UserError(f"Unknown key '{key}' {place}. {_nearest(key, section)}")
        default = fields[key].default_factory() if fields[key].default_factory is not dataclasses.MISSING else None
        if dataclasses.is_dataclass(default):
            if not isinstance(value, Mapping):
                raise UserError(f"'{key}' {place} must be a section: write [{key}] and its keys below.")
            _refuse_unknown(value, type(default), path, key)
        elif isinstance(value, bool) and not isinstance(fields[key].default, bool):
            name = f"{section}.{key}" if section else key
            raise UserError(f"'{name}' in '{path}' is {str(value).lower()}, but it is no switch. Give it a value.")


def _nearest(key: str, section: str) -> str:
    """The valid key that was probably meant, in its section."""
    valid = {name: name.rpartition(".") for name, _ in flatten(dataclasses.asdict(Config()))}
    wanted = key.replace("-", "_").lower()
    same = [name for name, (_, _, last) in valid.items() if last == wanted]
    if same:
        homes = " or ".join(f"section [{valid[name][0]}]" if valid[name][0] else "the top of the file" for name in same)
        return f"'{wanted}' belongs to {homes}."
    here = [last for (head, _, last) in valid.values() if head == section]
    sections = [] if section else list({head: None for head, _, _ in valid.values() if head})
    if near := difflib.get_close_matches(wanted, sections, 1, 0.5):
        return f"Did you mean section [{near[0]}]?"
    close = difflib.get_close_matches(wanted, here, 1, 0.5) or difflib.get_close_matches(wanted, [v[2] for v in valid.values()], 1, 0.6)
    if not close:
        return f"Valid keys here: {', '.join(here)}."
    home = next(v[0] for v in valid.values() if v[2] == close[0] and (v[0] == section or close[0] not in here))
    return f"Did you mean '{close[0]}'{'' if home == section else f' in section [{home}]' if home else ' at the top'}?"


def apply(config: Config, values: Mapping[str, Any], source: str) -> Config:
    """The config with some values replaced.

    Raises:
        UserError: A value is of another kind than its key, or out of its range.
    """
    from pydantic import TypeAdapter, ValidationError

    def merged(base: Any, new: Mapping[str, Any]) -> dict[str, Any]:
        own = {f.name: getattr(base, f.name) for f in dataclasses.fields(base)}
        return {k: merged(v, new.get(k, {})) if dataclasses.is_dataclass(v) else new.get(k, v) for k, v in own.items()}

    try:
        return TypeAdapter(Config).validate_python(merged(config, values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"'{key}' in {source} is {first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}.") from error


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every leaf."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
