"""What a step of GRPO learns from its rollouts: packs of them through the policy, the loss, gradients, one or more updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from earnest.config import TrainConfig
from earnest.engine import grpo
from earnest.engine.policy import Policy, TokenScores, Trajectory, packs_of
from earnest.engine.rollouts import Batch
from earnest.engine.sft import update


def learn(
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


def loss_of(config: TrainConfig) -> grpo.LossConfig:
    """The loss."""
    return grpo.LossConfig(**{name: getattr(config, name) for name in grpo.LossConfig.__dataclass_fields__})
