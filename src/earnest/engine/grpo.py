"""The maths of GRPO and its relatives: pure functions on tensors, nothing else.

Letters: P prompts, G samples a prompt, N = P*G rollouts, T tokens of the longest completion. Names, meanings and defaults are those of
TRL's GRPOTrainer. `mask` [N, T] is True on the tokens that are trained on; everything here reads a token only where its mask is True,
so that whatever stands on padding (NaN included) cannot reach a result.

Sources: GRPO (DeepSeekMath, arXiv 2402.03300), Dr. GRPO (2503.20783), DAPO (2503.14476), CISPO (MiniMax-M1, 2506.13585), GSPO (2507.18071),
k3 (Schulman, "Approximating KL Divergence").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from earnest.config import Level, LossType, ScaleRewards

STD_EPSILON = 1e-4  # TRL's, in the denominator of the advantage
TIE = 1e-6  # rewards of a group this close, relative to their size, are equal: what is left is rounding, not signal
KL_CAP = 20.0  # log-ratio beyond which k3 goes on linearly: exp(20) is 5e8, exp(100) is infinite in float32


@dataclass(frozen=True)
class LossConfig:
    """What TRL's GRPOConfig calls the loss.

    Attributes:
        loss_type: How token losses become one number (`reduce`); `cispo` also changes the token loss.
        importance_sampling_level: Ratio a token, or one a sequence (GSPO, which also wants `loss_type="grpo"`).
        epsilon: Lower clip range of the ratio.
        epsilon_high: Upper clip range; `epsilon` when None.
        delta: Upper bound of the ratio for negative advantages too (two-sided clip); None for no bound.
        beta: Weight of the KL term.
        use_bias_correction_kl: Multiply k3 by the ratio. Off here; on in TRL since 1.16.
        max_completion_length: The constant divisor of `dr_grpo`, tokens.
    """

    loss_type: LossType = "dapo"
    importance_sampling_level: Level = "token"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    delta: float | None = None
    beta: float = 0.0
    use_bias_correction_kl: bool = False
    max_completion_length: int = 256

    @property
    def upper(self) -> float:
        """The upper clip range in use."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high


def tied(rewards: np.ndarray) -> np.ndarray:
    """bool [P]: groups that hold no signal, because fewer than two rollouts have a reward or all rewards are equal up to rounding.

    Args:
        rewards: float64 [P, G], NaN where there is no verdict.
    """
    known = ~np.isnan(rewards)
    high = np.where(known, rewards, -np.inf).max(axis=1)
    low = np.where(known, rewards, np.inf).min(axis=1)
    few = known.sum(axis=1) < 2
    with np.errstate(invalid="ignore"):
        spread = np.where(few, 0.0, high - low)
        size = np.where(few, 1.0, np.maximum(1.0, np.maximum(np.abs(high), np.abs(low))))
    return few | (spread <= TIE * size)


def advantages(rewards: np.ndarray, scale_rewards: ScaleRewards = "group") -> np.ndarray:
    """Reward minus the group's mean, divided by a standard deviation plus 1e-4.

    `group` divides by the group's own (Bessel-corrected), `batch` by that of all rollouts, `none` by nothing. A rollout without a verdict
    gets 0 and moves no one's mean; a tied group gets exactly 0.

    Args:
        rewards: float64 [P, G], NaN where there is no verdict.
        scale_rewards: What to divide by.

    Returns:
        float64 [P, G].
    """
    known = ~np.isnan(rewards)
    count = known.sum(axis=1, keepdims=True)
    filled = np.where(known, rewards, 0.0)
    mean = filled.sum(axis=1, keepdims=True) / np.maximum(count, 1)
    centred = np.where(known, rewards - mean, 0.0)
    centred[tied(rewards)] = 0.0
    if scale_rewards == "group":
        std = np.sqrt((centred**2).sum(axis=1, keepdims=True) / np.maximum(count - 1, 1))
        return centred / (std + STD_EPSILON)
    if scale_rewards == "batch":
        return centred / (std_of(rewards) + STD_EPSILON)
    return centred


def turn_advantages(
    rewards: np.ndarray, turns: Sequence[Sequence[float]], discount: float, scale_rewards: ScaleRewards
) -> list[np.ndarray]:
    """Advantages of each turn, where a turn may earn something of its own.

    The return of turn k is what the turns from k on earned, each further one discounted once more, plus the attempt's own reward. The
    advantage of a turn is that of its return among the group's rollouts that have such a turn, as `advantages` forms it. Where turns earn
    nothing it is the attempt's own advantage, at every turn that all of a group have. After arXiv:2505.11821, with returns in place of a
    fixed weight.

    Args:
        rewards: float64 [P, G] of the attempts, NaN where there is no verdict.
        turns: What each turn earned, of P * G rollouts, group after group; at least one turn each.
        discount: Between 0 and 1.
        scale_rewards: What to divide by.

    Returns:
        Of each rollout, float64 [its turns].
    """
    groups, size = rewards.shape
    most = max(len(own) for own in turns)
    returns = np.full((groups * size, most), np.nan)
    for row, own in enumerate(turns):
        ahead = 0.0
        for k in range(len(own) - 1, -1, -1):
            ahead = own[k] + discount * ahead
            returns[row, k] = ahead + rewards.ravel()[row]
    by_turn = [advantages(returns[:, k].reshape(groups, size), scale_rewards).ravel() for k in range(most)]
    return [np.array([by_turn[k][row] for k in range(len(own))]) for row, own in enumerate(turns)]


def std_of(values: np.ndarray) -> float:
    """Bessel-corrected standard deviation of the values that are no NaN; 0 for fewer than two."""
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if known.size > 1 else 0.0


def log_ratio(logp: torch.Tensor, old_logp: torch.Tensor, mask: torch.Tensor, level: Level) -> torch.Tensor:
    """log(pi / pi_old) of each token [N, T]; at level `sequence` the sequence's mean of it, the same for all its tokens (GSPO, eq. 5)."""
    difference = torch.where(mask, logp - old_logp, 0.0)
    if level == "token":
        return difference
    mean = difference.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return mean.expand_as(difference)


def kl_k3(logp: torch.Tensor, ref_logp: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 estimate of KL(pi || ref) a token: exp(d) - d - 1 with d = ref - logp. Never negative.

    Beyond d = 20 it goes on along its tangent, so that value and gradient stay finite.
    """
    d = ref_logp - logp
    capped, beyond = d.clamp(max=KL_CAP), (d - KL_CAP).clamp(min=0)
    return torch.expm1(capped) - capped + beyond * float(np.expm1(KL_CAP))


def token_loss(
    logp: torch.Tensor,
    old_logp: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    config: LossConfig,
    ref_logp: torch.Tensor | None = None,
) -> torch.Tensor:
    """Loss of each token.

    -min(r A, clip(r, 1 - epsilon, 1 + epsilon_high) A), with r also bounded by `delta` in the first term; for `cispo`
    -min(r, epsilon_high) A log pi with no gradient through the ratio; plus beta times k3.

    Args:
        logp: [N, T], with gradient.
        old_logp: [N, T], of the policy that sampled.
        advantage: [N] or [N, 1], or [N, T] where each turn has its own.
        mask: bool [N, T].
        config: The loss.
        ref_logp: [N, T], of the reference; needed when beta is not 0.

    Returns:
        [N, T], 0 where the mask is False.
    """
    logp = torch.where(mask, logp, 0.0)
    ratio = log_ratio(logp, old_logp, mask, config.importance_sampling_level).exp()
    a = _by_token(advantage).to(logp.dtype)
    if config.loss_type == "cispo":
        loss = -ratio.detach().clamp(max=config.upper) * a * logp
    else:
        bounded = ratio if config.delta is None else ratio.clamp(max=config.delta)
        loss = -torch.minimum(bounded * a, ratio.clamp(1 - config.epsilon, 1 + config.upper) * a)
    if config.beta != 0.0:
        if ref_logp is None:
            raise ValueError("beta is not 0, so the reference's log-probabilities are needed")
        kl = kl_k3(logp, torch.where(mask, ref_logp, 0.0))
        loss = loss + config.beta * (kl * ratio if config.use_bias_correction_kl else kl)
    return torch.where(mask, loss, 0.0)


def _by_token(advantage: torch.Tensor) -> torch.Tensor:
    return advantage if advantage.ndim == 2 else advantage[:, None]


def reduce(loss: torch.Tensor, mask: torch.Tensor, config: LossConfig, rollouts: int, tokens: int) -> torch.Tensor:
    """This part's share of the step's loss. The shares of all parts of a step add up to the same number however it is split.

    | loss_type | sum over tokens, divided by |
    |---|---|
    | grpo | the sequence's own tokens, then by the step's rollouts |
    | bnpo, dapo, cispo | the step's trained tokens |
    | dr_grpo | the step's rollouts times `max_completion_length` |

    (TRL's bnpo divides by the tokens of one local micro-batch. Here a step is never divided by how it was cut up, so bnpo equals dapo.)

    Args:
        loss: [n, T] of some of the step's rollouts, 0 off the mask.
        mask: bool [n, T].
        config: The loss.
        rollouts: Rollouts of the whole step that count: in a used group, with a reward, not masked for being cut off.
        tokens: Trained tokens of the whole step, dead groups included.
    """
    if config.loss_type == "grpo":
        return (loss.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).sum() / max(rollouts, 1)
    if config.loss_type == "dr_grpo":
        return loss.sum() / max(rollouts * config.max_completion_length, 1)
    return loss.sum() / max(tokens, 1)


@dataclass(frozen=True)
class ClipCounts:
    """Tokens whose ratio left the clip range where that stops the gradient.

    Attributes:
        low: Clipped below, where the advantage is negative.
        high: Clipped above, where it is positive.
        tokens: Trained tokens in all.
        low_min: Smallest share clipped below of any sequence.
        high_max: Largest share clipped above of any sequence.
    """

    low: int
    high: int
    tokens: int
    low_min: float = field(default=0.0, compare=False)
    high_max: float = field(default=0.0, compare=False)


def clip_counts(logp: torch.Tensor, old_logp: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor, config: LossConfig) -> ClipCounts:
    """How many trained tokens were clipped below (negative advantage) and above (positive)."""
    ratio = log_ratio(logp.detach(), old_logp, mask, config.importance_sampling_level).exp()
    sign = _by_token(advantage)
    if config.loss_type == "cispo":
        low = torch.zeros_like(mask)
        high = (ratio > config.upper) & (sign > 0) & mask
    else:
        low = (ratio < 1 - config.epsilon) & (sign < 0) & mask
        high = (ratio > 1 + config.upper) & (sign > 0) & mask
    share_low, share_high = (clipped.sum(dim=1) / mask.sum(dim=1).clamp(min=1) for clipped in (low, high))
    return ClipCounts(int(low.sum()), int(high.sum()), int(mask.sum()), float(share_low.min()), float(share_high.max()))


def soft_overlong_penalty(lengths: np.ndarray, max_length: int, cache: int) -> np.ndarray:
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), in tokens.

    0 up to max_length - cache, then linear down to -1 at max_length, -1 beyond.
    """
    start = max_length - cache
    return -np.clip((np.asarray(lengths, dtype=float) - start) / max(cache, 1), 0.0, 1.0)


def pass_at_k(correct: int, samples: int, k: int) -> float:
    """Unbiased chance that at least one of k answers is right, 1 - C(n-c, k) / C(n, k) (Chen et al., arXiv 2107.03374).

    Raises:
        ValueError: Fewer samples than k.
    """
    if samples < k:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {samples}")
    if samples - correct < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(samples - correct + 1, samples + 1)))


def dead_share(pass_rates: np.ndarray, group: int) -> float:
    """Expected share of dead groups of `group` samples: the mean over rows of p^G + (1 - p)^G."""
    p = np.asarray(pass_rates, dtype=float)
    return float(np.mean(p**group + (1 - p) ** group)) if p.size else float("nan")
