"""GRPO: sample groups, score them, push towards what scored better than its group.

One step, top to bottom: `train` takes P prompts, samples G answers each on the prefix tree, scores and judges them, turns rewards
into advantages, and runs what can contribute through the policy once. Groups whose rewards are all equal contribute nothing; they are
left out of the pass through the model, their tokens stay in the denominator, and so nothing but time changes. (In a step where every
group is dead the optimiser does nothing at all: momentum of earlier steps moves no weight.)

Left out on purpose: a value model, replay, and a second model in memory for the reference (it is the starting adapter, swapped in).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from earnest.canaries import watch_canaries
from earnest.config import TrainConfig
from earnest.engine import grpo
from earnest.engine.policy import Policy, TokenScores, Trajectory, packs_of
from earnest.engine.rollouts import CANARIES, Batch, Prompt, answer, ask_canaries, join, rollout_records, score_batch, silent, start_metrics
from earnest.engine.sampler import Sampling
from earnest.engine.sft import make_optimizer, shuffled, update
from earnest.engine.tree import PrefixTree
from earnest.engine.turns import acting_metrics
from earnest.errors import UserError
from earnest.rundir import append_jsonl
from earnest.task import Task

# Times the token budget: of so many tokens sampling keeps what training needs, at a fifth to a quarter of what a token takes in a pass.
TRACED = 5


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
    updates = config.steps * config.num_iterations
    optimizer, scheduler = make_optimizer(policy, config.learning_rate, config.lr_scheduler_type, config.warmup_ratio, updates)
    reference = policy.state() if config.beta else None
    watch = watch_canaries(task, [p.row for p in prompts], seed) if config.canary_rate else None
    order = chain.from_iterable(shuffled(len(prompts), config.num_prompts, seed))
    tokens_seen, dead_steps = 0, 0
    try:
        for step in range(1, config.steps + 1):
            began = time.perf_counter()
            remember = 0 if step == 1 or reference else TRACED * config.token_budget
            batch, used = _collect(policy, task, prompts, order, config, [seed, step], thinking, remember)
            advantages = np.zeros(batch.rewards.shape)
            advantages[used] = grpo.advantages(batch.rewards[used], config.scale_rewards)
            sampled = time.perf_counter()
            by_turn = _turn_advantages(batch, used, config) if config.credit == "turn" else None
            learned = _learn(policy, optimizer, scheduler, batch, used, advantages, by_turn, config, reference)
            row = {"step": step, **learned, **start_metrics(task, batch), **_metrics(batch, used, config)}
            tokens_seen += row["tokens/total"]
            row["num_tokens"] = tokens_seen
            row |= {"time/sample": sampled - began, "time/train": time.perf_counter() - sampled, "step_time": time.perf_counter() - began}
            append_jsonl(folder / "rollouts.jsonl", rollout_records(batch, advantages, step, by_turn=by_turn))
            if watch and (due := watch.due(step, config.num_prompts, config.canary_rate)):
                asked = ask_canaries(policy, task, prompts, due, config.num_generations, sampling_of(config), [seed, step], thinking)
                append_jsonl(folder / "rollouts.jsonl", rollout_records(asked, np.zeros(asked.rewards.shape), step, CANARIES))
                row |= watch.note(due, asked.rewards)
            append_jsonl(folder / "metrics.jsonl", [row])
            report(row)
            taught = row["groups/used"] > 0 and row["tokens/trained"] > 0 and _beats_silence(task, batch, step)
            dead_steps = 0 if taught else dead_steps + 1
            if config.max_dead_steps and dead_steps >= config.max_dead_steps:
                return _why_dead(row, dead_steps)
            if config.save_steps and step % config.save_steps == 0:
                policy.save(folder / "adapter")
    finally:
        policy.save(folder / "adapter")
    return ""


def sampling_of(config: TrainConfig) -> Sampling:
    """How to draw rollouts."""
    return Sampling(config.temperature, config.top_p, config.top_k, config.min_p or None, config.max_completion_length)


def loss_of(config: TrainConfig) -> grpo.LossConfig:
    """The loss."""
    return grpo.LossConfig(**{name: getattr(config, name) for name in grpo.LossConfig.__dataclass_fields__})


def _collect(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    order: Iterator[int],
    config: TrainConfig,
    seed: Sequence[int],
    thinking: bool,
    remember: int,
) -> tuple[Batch, np.ndarray]:
    """The step's rollouts, and which groups are trained on: P of them. Of up to `remember` tokens sampling keeps what training needs.

    With dynamic sampling, dead groups are replaced by groups of the next prompts, for a bounded number of rounds; where those do not
    suffice, dead groups fill up the P.
    """
    batch = None
    for attempt in range(1 + config.dynamic_sampling):
        live = 0 if batch is None else int((~grpo.tied(batch.rewards)).sum())
        missing = config.num_prompts - live
        if missing <= 0:
            break
        chosen = [prompts[i] for i in islice(order, missing)]
        how, own = sampling_of(config), [*seed, attempt]
        samples = answer(policy, task, chosen, config.num_generations, how, own, thinking, remember=remember)
        fresh = score_batch(task, chosen, samples, seed[-1])
        if config.overlong_cache:
            fresh = _with_overlong_penalty(fresh, config)
        batch = fresh if batch is None else join(batch, fresh)
    live_first = np.argsort(grpo.tied(batch.rewards), kind="stable")
    used = np.zeros(len(batch.prompts), dtype=bool)
    used[live_first[: config.num_prompts]] = True
    if config.keep_spread < 1:
        used[used] = spread_groups(batch.rewards[used], config.keep_spread)
    return batch, used


def spread_groups(rewards: np.ndarray, share: float) -> np.ndarray:
    """bool [P], the share of the groups (at least one) whose rewards [P, G] have the largest standard deviations."""
    spread = np.array([np.nanstd(group) if (~np.isnan(group)).any() else 0.0 for group in rewards])
    kept = np.zeros(len(rewards), dtype=bool)
    kept[np.argsort(-spread, kind="stable")[: max(1, round(share * len(rewards)))]] = True
    return kept


def _with_overlong_penalty(batch: Batch, config: TrainConfig) -> Batch:
    lengths = np.array([one.completion.written for group in batch.samples for one in group])
    penalty = grpo.soft_overlong_penalty(lengths, config.max_completion_length, config.overlong_cache)
    return replace(batch, scores=replace(batch.scores, total=batch.scores.total + penalty))


def _learn(
    policy: Policy,
    optimizer: Any,
    scheduler: Any,
    batch: Batch,
    used: np.ndarray,
    advantages: np.ndarray,
    by_turn: Sequence[Sequence[float]] | None,
    config: TrainConfig,
    reference: Mapping[str, torch.Tensor] | None,
) -> dict[str, float]:
    """One or more updates on the step's rollouts.

    A rollout counts (in the denominators) when its group is used, it has a reward, and it is not masked for being cut off; it goes
    through the model when it can also contribute: a non-zero advantage, or any at all while the KL term is on.
    """
    flat = [(p, one.completion) for p, group in zip(batch.prompts, batch.samples, strict=True) for one in group]
    lengths = np.array([c.written for _, c in flat])
    ended = np.array([c.terminated for _, c in flat])
    counts = np.repeat(used, config.num_generations) & ~np.isnan(batch.scores.total) & (lengths > 0)
    if config.mask_truncated_completions:
        counts &= ended
    rollouts = [one.rollout for group in batch.samples for one in group]
    turns = None if by_turn is None else [r.by_token(own) for r, own in zip(rollouts, by_turn, strict=True)]
    pushed = advantages.ravel() != 0 if turns is None else np.array([any(own) for own in turns])
    chosen = np.flatnonzero(counts & (pushed | (config.beta != 0)))
    step = Step(
        [Trajectory(flat[i][0].ids, flat[i][1].ids, flat[i][1].own) for i in chosen],
        [torch.tensor([advantages.ravel()[i]] if turns is None else turns[i], dtype=torch.float32) for i in chosen],
        [flat[i][1].logp for i in chosen],
        int(counts.sum()),
        int(lengths[counts].sum()),
    )
    packs = packs_of(policy, step.trajectories, config.token_budget)
    old: dict[int, torch.Tensor] = {}  # of each pack: the sampling policy's log-probabilities, which the first pass gives for free
    ref = _reference_scores(policy, step, packs, config, reference)
    gap = Gap()
    for _ in range(config.num_iterations):
        sums = _backward(policy, step, packs, old, ref, config, gap)
        if packs:
            norm, rate = update(policy, optimizer, scheduler, config.max_grad_norm)
        else:
            norm, rate = 0.0, scheduler.get_last_lr()[0]
            policy.tidy()
            optimizer.step()  # nothing to do, but the schedule moves on and wants to see it
            scheduler.step()
    return {
        "loss": sums.loss,
        "grad_norm": norm,
        "learning_rate": rate,
        **sums.means(config),
        **gap.metrics(),
        "tokens/trained": int(lengths[chosen].sum()),
    }


def _turn_advantages(batch: Batch, used: np.ndarray, config: TrainConfig) -> list[np.ndarray]:
    """Of each rollout, the advantage of each turn. Nothing in groups that are not used."""
    rollouts = [one.rollout for group in batch.samples for one in group]
    if any(rollout is None for rollout in rollouts):
        raise UserError("credit = 'turn' needs turns: the task has neither an environment nor tools. Leave it at 'trajectory'.")
    by_turn = grpo.turn_advantages(batch.rewards, [r.turn_rewards for r in rollouts], config.turn_discount, config.scale_rewards)
    kept = np.repeat(used, config.num_generations)
    return [own if keep else np.zeros_like(own) for own, keep in zip(by_turn, kept, strict=True)]


@dataclass(frozen=True)
class Step:
    """What one update is made of.

    Attributes:
        trajectories: n rollouts that can contribute.
        advantages: Of each, float32 [1], or one a token of its completion.
        sampled: Log-probability of each token as it was sampled; empty where that is not known.
        rollouts: Those that count, the denominator of the losses that count rollouts.
        tokens: The denominator of the losses that count tokens.
    """

    trajectories: list[Trajectory]
    advantages: Sequence[torch.Tensor]
    sampled: Sequence[Sequence[float]]
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
    low_min: float = 1.0
    high_max: float = 0.0

    def means(self, config: TrainConfig) -> dict[str, float]:
        """TRL's metrics of the update, over the tokens that went through the model."""
        tokens = max(self.tokens, 1)
        row = {
            "clip_ratio/low_mean": self.low / tokens,
            "clip_ratio/low_min": self.low_min if self.tokens else 0.0,
            "clip_ratio/high_mean": self.high / tokens,
            "clip_ratio/high_max": self.high_max,
            "clip_ratio/region_mean": (self.low + self.high) / tokens,
        }
        if config.loss_type == "cispo":
            row["cispo_clip_ratio"] = self.high / tokens
        return row | ({"kl": self.kl / max(self.tokens, 1)} if config.beta else {})


@dataclass
class Gap:
    """How far the log-probabilities of sampling are from those of the first pass of training: rounding, or a fault."""

    total: float = 0.0
    largest: float = 0.0
    tokens: int = 0

    def add(self, scores: TokenScores, sampled: Sequence[Sequence[float]]) -> None:
        """Compare a pack with what was sampled."""
        known = np.array([bool(values) for values in sampled])
        if known.any():
            own = scores.logp.detach()[known][scores.mask[known]].double().cpu().numpy()
            apart = np.abs(own - np.concatenate([values for values in sampled if values]))
            self.total, self.largest, self.tokens = self.total + apart.sum(), max(self.largest, apart.max()), self.tokens + len(apart)

    def metrics(self) -> dict[str, float]:
        """Under TRL's names; nothing where nothing is known."""
        if not self.tokens:
            return {}
        name = "sampling/sampling_logp_difference"
        return {f"{name}/mean": float(self.total / self.tokens), f"{name}/max": float(self.largest)}


def _backward(
    policy: Policy,
    step: Step,
    packs: Sequence[Sequence[int]],
    old: dict[int, torch.Tensor],
    ref: Sequence[torch.Tensor | None],
    config: TrainConfig,
    gap: Gap,
) -> Sums:
    """Forward and backward, pack by pack; gradients add up to those of the whole step."""
    sums = Sums()
    for index, part in enumerate(packs):
        scores = policy.log_probabilities([step.trajectories[i] for i in part], config.temperature, config.token_budget)
        if index not in old:
            gap.add(scores, [step.sampled[i] for i in part])
        before = old.setdefault(index, scores.logp.detach())
        advantage = pad_sequence([step.advantages[i] for i in part], batch_first=True).to(scores.logp.device)
        token_loss = grpo.token_loss(scores.logp, before, advantage, scores.mask, loss_of(config), ref[index])
        loss = grpo.reduce(token_loss, scores.mask, loss_of(config), step.rollouts, step.tokens)
        loss.backward()
        clipped = grpo.clip_counts(scores.logp, before, advantage, scores.mask, loss_of(config))
        sums.loss += loss.item()
        sums.low, sums.high, sums.tokens = sums.low + clipped.low, sums.high + clipped.high, sums.tokens + clipped.tokens
        sums.low_min, sums.high_max = min(sums.low_min, clipped.low_min), max(sums.high_max, clipped.high_max)
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
    tree = PrefixTree()
    for prompt, group in zip(batch.prompts, batch.samples, strict=True):
        for one in group:
            tree.add(prompt.ids + one.completion.ids)
    lengths = np.array([c.written for c in completions])
    ended = lengths[[c.terminated for c in completions]]
    rewards, dead = batch.rewards, grpo.tied(batch.rewards)
    correct = np.array([v.correct for v in batch.verdicts]).reshape(rewards.shape)
    right, wrong = dead & correct.all(axis=1), dead & ~correct.any(axis=1)
    formed = [v.well_formed for v in batch.verdicts if v.well_formed is not None]
    acting = [one.rollout for group in batch.samples for one in group if one.rollout is not None]
    row: dict[str, float | None] = {
        **batch.scores.metrics,
        **(acting_metrics(acting) if acting else {}),
        "reward": mean_of(rewards),
        "reward_std": grpo.std_of(rewards),
    }
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
        "completions/min_terminated_length": int(ended.min()) if ended.size else None,
        "completions/max_terminated_length": int(ended.max()) if ended.size else None,
        "completions/clipped_ratio": 1.0 - ended.size / lengths.size,
        "completions/distinct": len({(i // config.num_generations, c.ids) for i, c in enumerate(completions)}) / len(completions),
        "tokens/total": sum(tree.count),
        "tokens/distinct": len(tree),
        "entropy": sum(c.entropy for c in completions) / max(int(lengths.sum()), 1),
        "check/accuracy": float(correct.mean()),
        "check/well_formed": float(np.mean(formed)) if formed else None,
    }


def mean_of(values: np.ndarray) -> float | None:
    """Mean of the values that are no NaN; None where there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _beats_silence(task: Task, batch: Batch, step: int) -> bool:
    """Whether any answer of the step earned more than an empty one would.

    Where none did, what spread there is comes from penalties, and the way up ends at saying nothing.
    """
    if any(v.correct for v in batch.verdicts):
        return True
    empty = [[silent(task, prompt)] for prompt in batch.prompts]
    try:
        silence = score_batch(task, batch.prompts, empty, step).rewards
    except UserError:  # a reward may demand at least one token: then there is nothing to compare with
        return True
    return bool((batch.rewards > silence + grpo.TIE).any() or np.isnan(silence).any())


def _why_dead(row: Mapping[str, Any], steps: int) -> str:
    """Why there was nothing to learn, and what to do."""
    if row["reward"] is None:
        return f"In {steps} steps in a row no answer got a reward: every reward function gave no verdict (None). Mend what they depend on."
    if row["frac_reward_zero_std"] < 1.0 and row["tokens/trained"] == 0:
        return (
            f"In {steps} steps in a row nothing was left to train on: {row['completions/clipped_ratio']:.0%} of the answers were cut off, "
            "and mask_truncated_completions leaves those out. Raise max_completion_length."
        )
    said = f"In {steps} steps in a row every group was dead: all answers to a prompt earned the same, so the gradient was exactly zero."
    if row["frac_reward_zero_std"] < 1.0:
        said = f"In {steps} steps in a row no answer earned more than an empty one would, so there was nothing to climb but penalties."
    if row["groups/all_right"] >= 0.5:
        return f"{said} Most groups were all right: the rows are too easy. Take harder rows."
    if row["check/well_formed"] is not None and row["check/well_formed"] < 0.05:
        return f"{said} The model practically never keeps the required format, so it never earns anything to climb from. Run SFT first."
    return f"{said} Most groups were all wrong: the rows are too hard. Run SFT first, take easier rows, or raise num_generations."
