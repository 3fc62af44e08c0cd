"""GRPO: sample groups, score them, push towards what scored better than its group.

One step, top to bottom: `train` takes P prompts, samples G answers each on the prefix tree, scores and judges them, turns rewards
into advantages, and runs what can contribute through the policy once. Groups whose rewards are all equal contribute nothing; they are
left out of the pass through the model, their tokens stay in the denominator, and so nothing but time changes.

Left out on purpose: a value model, replay, and a second model in memory for the reference (it is the starting adapter, swapped in).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from earnest.engine import grpo
from earnest.engine.policy import Policy, Trajectory, packs_of
from earnest.engine.rollouts import Batch, Prompt, answer, join, rollout_records, score_batch
from earnest.engine.sampler import Sampling
from earnest.engine.sft import Schedule, make_optimizer, shuffled, update
from earnest.errors import UserError
from earnest.rundir import append_jsonl
from earnest.task import Task


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
        max_dead_steps: Stop when this many steps in a row had no group to learn from; 0 never stops.
        token_budget: Most distinct tokens in one pass through the model; bounds memory, changes no number.
        save_steps: Save the adapter every so many steps, beside at the end.
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
    loss_type: grpo.LossType = "dapo"
    importance_sampling_level: grpo.Level = "token"
    scale_rewards: grpo.ScaleRewards = "group"
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

    def __post_init__(self) -> None:
        if self.num_generations < 2:
            raise UserError(
                f"num_generations is {self.num_generations}; a group must have at least 2 answers, or there is nothing to compare. Try 8."
            )
        for name in ("steps", "num_prompts", "max_completion_length", "num_iterations", "token_budget"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.temperature <= 0:
            raise UserError(f"temperature is {self.temperature}; sampling for training needs more than 0. Try 1.0.")
        if not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1 or self.top_k < 0:
            raise UserError("top_p must be in (0, 1], min_p in [0, 1] and top_k at least 0.")

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, self.top_k, self.min_p or None, self.max_completion_length)

    @property
    def loss(self) -> grpo.LossConfig:
        return grpo.LossConfig(
            self.loss_type,
            self.importance_sampling_level,
            self.epsilon,
            self.epsilon_high,
            self.delta,
            self.beta,
            self.use_bias_correction_kl,
            self.max_completion_length,
        )


def train(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    config: TrainConfig,
    folder: Path,
    seed: int,
    thinking: bool,
    report: Callable[[dict[str, Any]], None],
) -> str:
    """Train the policy; every step's metrics and rollouts go to FOLDER, the adapter to FOLDER/adapter.

    Args:
        policy: Trained in place.
        task: Rewards and check.
        prompts: Of the train split.
        config: How.
        folder: Where the stage is kept.
        seed: Of the order of prompts and of sampling.
        thinking: Whether the model has room to think.
        report: Called with the metrics of each step.

    Returns:
        Why training ended early, or "".
    """
    optimizer, scheduler = make_optimizer(policy, config.learning_rate, config.lr_scheduler_type, config.warmup_ratio, config.steps)
    reference = policy.state() if config.beta else None
    batches = shuffled(len(prompts), config.num_prompts, seed)
    tokens_seen, dead_steps = 0, 0
    try:
        for step in range(1, config.steps + 1):
            began = time.perf_counter()
            batch, used = _collect(policy, task, prompts, batches, config, [seed, step], thinking)
            advantages = np.where(used[:, None], grpo.advantages(batch.rewards, config.scale_rewards), 0.0)
            sampled = time.perf_counter()
            learned = _learn(policy, optimizer, scheduler, batch, used, advantages, config, reference)
            tokens_seen += sum(len(p.ids) + len(one.completion.ids) for p, group in zip(batch.prompts, batch.samples, strict=True) for one in group)
            row = {"step": step, **learned, **_metrics(batch, used, config), "num_tokens": tokens_seen}
            row |= {"time/sample": sampled - began, "time/train": time.perf_counter() - sampled, "step_time": time.perf_counter() - began}
            append_jsonl(folder / "rollouts.jsonl", rollout_records(batch, advantages, step))
            append_jsonl(folder / "metrics.jsonl", [row])
            report(row)
            dead_steps = dead_steps + 1 if row["frac_reward_zero_std"] == 1.0 else 0
            if config.max_dead_steps and dead_steps >= config.max_dead_steps and config.beta == 0.0:
                return _why_dead(row, dead_steps)
            if config.save_steps and step % config.save_steps == 0:
                policy.save(folder / "adapter")
    finally:
        policy.save(folder / "adapter")
    return ""


def _collect(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    batches: Iterator[list[int]],
    config: TrainConfig,
    seed: Sequence[int],
    thinking: bool,
) -> tuple[Batch, np.ndarray]:
    """The step's rollouts, and which groups are trained on: P of them.

    With dynamic sampling, dead groups are replaced by groups of the next prompts, for a bounded number of rounds; where those do not
    suffice, dead groups fill up the P.
    """
    batch = None
    for attempt in range(1 + config.dynamic_sampling):
        live = 0 if batch is None else int((~grpo.tied(batch.rewards)).sum())
        missing = config.num_prompts - live
        if missing <= 0:
            break
        chosen = [prompts[i] for i in next(batches)][:missing]
        samples = answer(policy, chosen, config.num_generations, config.sampling, [*seed, attempt], thinking)
        fresh = score_batch(task, chosen, samples, seed[-1])
        batch = fresh if batch is None else join(batch, fresh)
    if config.overlong_cache:
        batch = _with_overlong_penalty(batch, config)
    order = np.argsort(grpo.tied(batch.rewards), kind="stable")  # live groups first
    used = np.zeros(len(batch.prompts), dtype=bool)
    used[order[: config.num_prompts]] = True
    return batch, used


def _with_overlong_penalty(batch: Batch, config: TrainConfig) -> Batch:
    lengths = np.array([len(one.completion.ids) for group in batch.samples for one in group])
    penalty = grpo.soft_overlong_penalty(lengths, config.max_completion_length, config.overlong_cache)
    return replace(batch, scores=replace(batch.scores, total=batch.scores.total + penalty))


def _learn(
    policy: Policy,
    optimizer: Any,
    scheduler: Any,
    batch: Batch,
    used: np.ndarray,
    advantages: np.ndarray,
    config: TrainConfig,
    reference: Mapping[str, torch.Tensor] | None,
) -> dict[str, float]:
    """One or more updates on the step's rollouts.

    A rollout counts (in the denominators) when its group is used, it has a reward, and it is not masked for being cut off; it goes
    through the model when it can also contribute: a non-zero advantage, or any at all while the KL term is on.
    """
    flat = [(p, one.completion) for p, group in zip(batch.prompts, batch.samples, strict=True) for one in group]
    lengths = np.array([len(c.ids) for _, c in flat])
    ended = np.array([c.terminated for _, c in flat])
    counts = np.repeat(used, config.num_generations) & ~np.isnan(batch.scores.total) & (lengths > 0)
    if config.mask_truncated_completions:
        counts &= ended
    contributes = counts & ((advantages.ravel() != 0) | (config.beta != 0))
    chosen = np.flatnonzero(contributes)
    step = Step(
        [Trajectory(flat[i][0].ids, flat[i][1].ids) for i in chosen],
        torch.tensor(advantages.ravel()[chosen], dtype=torch.float32, device=policy.model.device),
        int(used.sum()) * config.num_generations,
        int(lengths[counts].sum()),
    )
    packs = packs_of(policy, step.trajectories, config.token_budget)
    old: dict[int, torch.Tensor] = {}  # of each pack: the sampling policy's log-probabilities, which the first pass gives for free
    ref = _reference_scores(policy, step, packs, config, reference)
    for _ in range(config.num_iterations):
        sums = _backward(policy, step, packs, old, ref, config)
        if packs:
            norm, rate = update(policy, optimizer, scheduler, config.max_grad_norm)
        else:
            norm, rate = 0.0, scheduler.get_last_lr()[0]
            optimizer.step()  # nothing to do, but the schedule moves on and wants to see it
            scheduler.step()
    return {"loss": sums.loss, "grad_norm": norm, "learning_rate": rate, **sums.means(config), "tokens/trained": int(lengths[chosen].sum())}


@dataclass(frozen=True)
class Step:
    """What one update is made of.

    Attributes:
        trajectories: n rollouts that can contribute.
        advantages: float32 [n].
        rollouts: N, the denominator of the losses that count rollouts.
        tokens: The denominator of the losses that count tokens.
    """

    trajectories: list[Trajectory]
    advantages: torch.Tensor
    rollouts: int
    tokens: int


@dataclass
class Sums:
    """Totals over the passes of one update."""

    loss: float = 0.0
    kl: float = 0.0
    low: int = 0
    high: int = 0
    tokens: int = 0

    def means(self, config: TrainConfig) -> dict[str, float]:
        """TRL's metrics of the update, over the tokens that went through the model."""
        share = {"low_mean": self.low, "high_mean": self.high, "region_mean": self.low + self.high}
        row = {f"clip_ratio/{name}": count / max(self.tokens, 1) for name, count in share.items()}
        return row | ({"kl": self.kl / max(self.tokens, 1)} if config.beta else {})


def _backward(
    policy: Policy,
    step: Step,
    packs: Sequence[Sequence[int]],
    old: dict[int, torch.Tensor],
    ref: Sequence[torch.Tensor | None],
    config: TrainConfig,
) -> Sums:
    """Forward and backward, pack by pack; gradients add up to those of the whole step."""
    sums = Sums()
    for index, part in enumerate(packs):
        scores = policy.log_probabilities([step.trajectories[i] for i in part], config.temperature)
        before = old.setdefault(index, scores.logp.detach())
        advantage = step.advantages[part]
        token_loss = grpo.token_loss(scores.logp, before, advantage, scores.mask, config.loss, ref[index])
        loss = grpo.reduce(token_loss, scores.mask, config.loss, step.rollouts, step.tokens)
        loss.backward()
        clipped = grpo.clip_counts(scores.logp, before, advantage, scores.mask, config.loss)
        sums.loss += loss.item()
        sums.low, sums.high, sums.tokens = sums.low + clipped.low, sums.high + clipped.high, sums.tokens + clipped.tokens
        if ref[index] is not None:
            sums.kl += float(torch.where(scores.mask, grpo.kl_k3(scores.logp.detach(), ref[index]), 0.0).sum())
    return sums


def _reference_scores(
    policy: Policy, step: Step, packs: Sequence[Sequence[int]], config: TrainConfig, reference: Mapping[str, torch.Tensor] | None
) -> list[torch.Tensor | None]:
    """The reference's log-probabilities of each pack; None a pack without KL."""
    if reference is None:
        return [None] * len(packs)
    with policy.using(reference), torch.no_grad():
        return [policy.log_probabilities([step.trajectories[i] for i in part], config.temperature).logp for part in packs]


def _metrics(batch: Batch, used: np.ndarray, config: TrainConfig) -> dict[str, float | None]:
    """TRL's metrics of the rollouts, over all that were sampled in the step."""
    completions = [one.completion for group in batch.samples for one in group]
    lengths = np.array([len(c.ids) for c in completions])
    ended = lengths[[c.terminated for c in completions]]
    rewards, dead = batch.rewards, grpo.tied(batch.rewards)
    correct = np.array([v.correct for v in batch.verdicts]).reshape(rewards.shape)
    right, wrong = dead & correct.all(axis=1), dead & ~correct.any(axis=1)
    formed = [v.well_formed for v in batch.verdicts if v.well_formed is not None]
    row: dict[str, float | None] = {"reward": mean_of(rewards), "reward_std": grpo.std_of(rewards)}
    for index, name in enumerate(batch.scores.names):
        row[f"rewards/{name}/mean"] = mean_of(batch.scores.values[:, index])
        row[f"rewards/{name}/std"] = grpo.std_of(batch.scores.values[:, index])
    return row | {
        "rewards/unscored": int(np.isnan(rewards).sum()),
        "frac_reward_zero_std": float(dead.mean()),
        "groups/all_right": float(right.mean()),
        "groups/all_wrong": float(wrong.mean()),
        "groups/tied": float((dead & ~right & ~wrong).mean()),
        "groups/used": int((used & ~dead).sum()),
        "completions/mean_length": float(lengths.mean()),
        "completions/min_length": int(lengths.min()),
        "completions/max_length": int(lengths.max()),
        "completions/mean_terminated_length": float(ended.mean()) if ended.size else None,
        "completions/clipped_ratio": 1.0 - ended.size / lengths.size,
        "completions/distinct": len({(i // config.num_generations, c.ids) for i, c in enumerate(completions)}) / len(completions),
        "entropy": sum(c.entropy for c in completions) / max(int(lengths.sum()), 1),
        "check/accuracy": float(correct.mean()),
        "check/well_formed": float(np.mean(formed)) if formed else None,
        **batch.scores.metrics,
    }


def mean_of(values: np.ndarray) -> float | None:
    """Mean of the values that are no NaN; None where there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _why_dead(row: Mapping[str, Any], steps: int) -> str:
    """Why there was nothing to learn, and what to do."""
    said = f"In {steps} steps in a row every group was dead: all answers to a prompt earned the same, so the gradient was exactly zero."
    if row["groups/all_right"] >= 0.5:
        return f"{said} Most groups were all right: the rows are too easy. Take harder rows."
    if row["check/well_formed"] is not None and row["check/well_formed"] < 0.05:
        return f"{said} The model practically never keeps the required format, so it never earns anything to climb from. Run SFT first."
    return f"{said} Most groups were all wrong: the rows are too hard. Run SFT first, take easier rows, or raise num_generations."
