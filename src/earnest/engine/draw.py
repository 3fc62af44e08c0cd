"""How tokens are drawn: temperature and filters, a stream of uniform numbers a sample, and the inverse of the cumulative distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from earnest.engine.kernels import Exponentials

BLOCK = 256  # tokens of the vocabulary that a draw looks at one by one


@dataclass(frozen=True)
class Sampling:
    """How to draw.

    Attributes:
        temperature: 0 is greedy.
        top_p: Keep the smallest set of tokens with at least this probability.
        top_k: Keep this many tokens; 0 keeps all.
        min_p: Keep tokens at least this likely, relative to the likeliest.
        max_tokens: Longest answer.
        stop: Texts that end an answer; they stay part of it.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()


def uniforms(seed: Sequence[int], samples: int, tokens: int) -> np.ndarray:
    """float64 [samples, tokens] in [0, 1), one independent stream a sample; more samples or tokens extend, never change, the others."""
    # numpy fills a short seed up with zeros, so [1] and [1, 0] would be one; ending on sample + 1 keeps them apart
    streams = [np.random.Generator(np.random.PCG64(np.random.SeedSequence([*seed, sample + 1]))) for sample in range(samples)]
    return np.stack([stream.random(tokens) for stream in streams]) if samples else np.empty((0, tokens))


def filtered(scaled: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities [R, V] after top-k, top-p and min-p, in that order (as transformers orders its warpers).

    Args:
        scaled: float [R, V], logits divided by the temperature.
        sampling: How.
    """
    if 0 < sampling.top_k < scaled.shape[-1]:
        least = scaled.topk(sampling.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = scaled.softmax(dim=-1).sort(dim=-1, descending=True)
        beyond = ordered.cumsum(dim=-1) - ordered >= sampling.top_p  # the token that crosses the line is kept
        scaled = scaled.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)
    probabilities = scaled.softmax(dim=-1)
    if sampling.min_p is not None:
        keep = probabilities >= sampling.min_p * probabilities.amax(dim=-1, keepdim=True)
        probabilities = probabilities * keep
    return probabilities


def draw(
    logits: torch.Tensor, e: Exponentials, u: np.ndarray, row: np.ndarray, sampling: Sampling
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens drawn from the rows' distributions.

    Args:
        logits: float [R, V].
        e: Of the logits, at the temperature.
        u: [M] uniform numbers.
        row: [M] the row each is drawn from.
        sampling: How, at a temperature above 0.

    Returns:
        Tokens int64 [M]; their log-probabilities [M], and the entropy [M], of the distribution at the temperature, before any filter.
    """
    log_total = e.total.log()
    entropy = (log_total - e.mixed / e.total)[:, 0]
    unfiltered = sampling.top_p == 1.0 and not sampling.top_k and sampling.min_p is None
    p = e.powers if unfiltered else filtered(logits / sampling.temperature, sampling)
    where = torch.from_numpy(row).to(logits.device)
    tokens = inverse(p, torch.from_numpy(u).to(logits.device), where)
    logp = (logits[where, tokens] - e.most[where, 0]) / sampling.temperature - log_total[where, 0]
    return tokens.cpu().numpy(), logp.double().cpu().numpy(), entropy[where].double().cpu().numpy()


def inverse(p: torch.Tensor, u: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """Inverse of the cumulative distribution: the first token at which the running sum of row p passes u times the row's sum.

    In two stages, so that running sums in double precision are made of one block of tokens a draw and not of the vocabulary.

    Args:
        p: float [R, V], not negative, no row all zero.
        u: float64 [M], in [0, 1).
        row: int64 [M], the row of each.

    Returns:
        int64 [M]; never a token of probability zero.
    """
    short = -p.shape[-1] % BLOCK
    blocks = (F.pad(p, (0, short)) if short else p).unflatten(-1, (-1, BLOCK))  # padding by nothing would copy it all
    ends = blocks.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)[row]
    target = (u * ends[:, -1])[:, None]
    # right: never one without probability. Where rounding takes the target to the very end, it is the last that has any.
    block = torch.minimum(torch.searchsorted(ends, target, right=True), torch.searchsorted(ends, ends[:, -1:].contiguous()))
    before = F.pad(ends, (1, 0)).gather(-1, block)
    within = blocks[row, block[:, 0]].double().cumsum(dim=-1)
    token = torch.minimum(torch.searchsorted(within, target - before, right=True), torch.searchsorted(within, within[:, -1:].contiguous()))
    return (block * BLOCK + token)[:, 0]
