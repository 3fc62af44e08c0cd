"""Sampling G answers to each of P prompts on the prefix tree.

Each sample has its own stream of uniform numbers, fixed by its seed, and token t of a sample is the inverse of the model's
cumulative distribution at uniform number t. So samples that stand on the same node draw from one distribution, computed once, and a
sample's tokens do not depend on which other samples or prompts happen to be in the batch (up to rounding in the model's logits).
Sampling on the tree and sampling row by row give the same answers, not only answers of the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from earnest.engine.decoder import Decoder
from earnest.engine.drafts import Drafts
from earnest.engine.draw import Sampling, draw, uniforms
from earnest.engine.kernels import Exponentials, exponentials, largest
from earnest.engine.pool import SLOTS, PooledDecoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from earnest.engine.models import Loaded


@dataclass(frozen=True)
class Completion:
    """One sampled answer, or all of a rollout that follows its prompt.

    Attributes:
        ids: Token ids as they were sampled, the ones that end a turn included; between turns, those of what tools answered.
        terminated: Whether the model ended its turn, rather than running into `max_tokens`.
        entropy: Sum over the tokens of the entropy they were drawn at, in nats, before top-k, top-p and min-p; 0 when greedy.
        logp: Log-probability of each sampled token at the temperature it was drawn at, before the same; empty when greedy.
        own: Which tokens the model wrote itself; empty where it wrote them all. The others get no loss.
    """

    ids: tuple[int, ...]
    terminated: bool
    entropy: float = field(default=0.0, compare=False)  # floats of the model's, rounding included
    logp: tuple[float, ...] = field(default=(), compare=False)
    own: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if self.own and len(self.own) != len(self.ids):
            raise ValueError(f"A completion has {len(self.ids)} tokens and {len(self.own)} marks of whose they are: {self.ids[:8]}...")
        if self.logp and len(self.logp) != self.written:
            raise ValueError(f"A completion has {self.written} sampled tokens and {len(self.logp)} log-probabilities: {self.ids[:8]}...")

    @property
    def sampled(self) -> tuple[int, ...]:
        """The tokens that the model wrote."""
        return tuple(token for token, own in zip(self.ids, self.own, strict=True) if own) if self.own else self.ids

    @property
    def written(self) -> int:
        """How many those are."""
        return sum(self.own) if self.own else len(self.ids)


@dataclass
class _Sample:
    """A sample in the making."""

    uniforms: np.ndarray
    sampling: Sampling
    room: int
    ids: list[int] = field(default_factory=list)
    terminated: bool = False
    entropy: float = 0.0
    logp: list[float] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.terminated or len(self.ids) >= self.room

    def take(self, token: int, logp: float, entropy: float, loaded: Loaded) -> None:
        self.ids.append(token)
        if self.sampling.temperature > 0:
            self.logp.append(logp)
        self.entropy += entropy
        self.terminated = token in loaded.stops or _stopped(loaded.tokenizer, self.ids, self.sampling.stop)


def sample(
    loaded: Loaded,
    decoder: Decoder | PooledDecoder | None,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[Sequence[int]],
    samples: int,
    sampling: Sampling | Sequence[Sampling],
    rows: int = 64,
    advance: Callable[[int], None] | None = None,
    drafts: Drafts | None = None,
    rooms: Sequence[int] | None = None,
) -> list[list[Completion]]:
    """Sample answers.

    Args:
        loaded: The model.
        decoder: Its decoder for the tree; None takes the plain path through `transformers.generate`, with the same answers.
        prompts: Token ids of each prompt.
        seeds: A seed a prompt, as a sequence of integers.
        samples: G, answers a prompt.
        sampling: How to draw; or how to draw each of the G, such as one greedily and the rest not.
        rows: Most samples in one batch.
        advance: Called with the number of prompts done.
        drafts: What earlier answers teach about likely tokens; it learns from these too. They save time and change no answer.
        rooms: Most tokens of an answer, prompt by prompt, where that is less than `sampling` allows; at least 1.

    Returns:
        For each prompt its G completions.
    """
    drafts = Drafts() if drafts is None else drafts
    each = [sampling] * samples if isinstance(sampling, Sampling) else list(sampling)
    longest = max((s.max_tokens for s in each), default=0)
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))  # a batch is as wide as its longest prompt
    done: list[list[Completion]] = [[] for _ in prompts]
    for part in batches([len(prompts[place]) for place in order], samples, longest, rows):
        places = order[part]
        batch = [prompts[place] for place in places]
        states = [
            [
                _Sample(u, how, how.max_tokens if rooms is None else min(how.max_tokens, rooms[p]))
                for u, how in zip(uniforms(seeds[p], samples, longest), each, strict=True)
            ]
            for p in places
        ]
        if longest > 0:
            if decoder is None:
                _grow_plain(loaded, batch, states)
            else:
                _grow_tree(loaded, decoder, batch, states, drafts)
                for group in states:
                    for ids in {tuple(state.ids) for state in group}:
                        drafts.learn(ids)
        for place, group in zip(places, states, strict=True):
            done[place] = [Completion(tuple(s.ids), s.terminated, s.entropy, tuple(s.logp)) for s in group]
        if advance is not None:
            advance(len(batch))
    return done


def batches(lengths: Sequence[int], samples: int, longest: int, rows: int) -> list[slice]:
    """Cut prompts of these lengths into batches of at most `rows` samples, and of so few that their cache keeps within `SLOTS`.

    A branch of the cache is as long as the longest prompt of the batch, and has room for `longest` tokens of each sample.
    """
    cut, start, widest = [], 0, 0
    for place, length in enumerate(lengths):
        widest, count = max(widest, length), place - start + 1
        if count > 1 and (count * samples > rows or count * (widest + samples * longest) > SLOTS):
            cut.append(slice(start, place))
            start, widest = place, length
    return [*cut, slice(start, len(lengths))] if lengths else []


def _grow_tree(
    loaded: Loaded,
    decoder: Decoder | PooledDecoder,
    prompts: Sequence[Sequence[int]],
    states: list[list[_Sample]],
    drafts: Drafts,
) -> None:
    """Grow the samples of some prompts on one tree: at a node with n samples draw n tokens, go on with the distinct ones.

    Behind each new node hang the tokens that are likely to follow, and the model reads all of them in one pass. Samples then walk
    from node to node for as long as what they draw is there.
    """
    distinct = {tuple(prompt): None for prompt in prompts}
    row_of = {prompt: row for row, prompt in enumerate(distinct)}
    live = [(row_of[tuple(prompt)], state) for prompt, group in zip(prompts, states, strict=True) for state in group if not state.done]
    cache, logits = decoder.prefill(list(distinct), room=min(max(state.room for _, state in live), 64))
    children: dict[tuple[int, int], int] = {}  # (node, token) to node, of the last pass
    while live:
        waiting = _walk(loaded, logits, children, live, decoder.drawn if isinstance(decoder, PooledDecoder) else None)
        grown = _Growth([], [], len(logits))
        children, starts, live = {}, {}, []
        for place, state in waiting:
            if place not in starts:
                starts[place] = node = grown.add(*place)
                for guess in drafts.guess(state.ids, state.room - 1 - len(state.ids)):
                    if guess in loaded.stops:  # the model never reads it
                        break
                    node, parent = grown.add(grown.rows + node, guess), node
                    children[parent, guess] = node
            live.append((starts[place], state))
        if live:
            logits = decoder.step(cache, np.array(grown.tokens), np.array(grown.parents))


@dataclass(frozen=True)
class _Growth:
    """New nodes in the making: a token and a parent each, as `Decoder.step` wants them, and how many rows the cache stands on."""

    tokens: list[int]
    parents: list[int]
    rows: int

    def add(self, parent: int, token: int) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1


def _walk(
    loaded: Loaded,
    logits: torch.Tensor,
    children: Mapping[tuple[int, int], int],
    live: Sequence[tuple[int, _Sample]],
    drawn_from: Callable[[np.ndarray, Exponentials, float], None] | None,
) -> list[tuple[tuple[int, int], _Sample]]:
    """Draw for each sample until it is done or the node it needs is not there; returns those nodes, as (node, token)."""
    waiting, moving, best = [], live, _best(logits, [state for _, state in live])
    while moving:
        _take(loaded, logits, best, np.array([node for node, _ in moving]), [state for _, state in moving], drawn_from)
        onward = []
        for node, state in moving:
            place = node, state.ids[-1]
            if state.done:
                continue
            if place in children:
                onward.append((children[place], state))
            else:
                waiting.append((place, state))
        moving = onward
    return waiting


def _best(logits: torch.Tensor, states: Sequence[_Sample]) -> np.ndarray | None:
    """The likeliest token of each row, if any of the samples is greedy."""
    return largest(logits).cpu().numpy() if any(state.sampling.temperature == 0 for state in states) else None


def _take(
    loaded: Loaded,
    logits: torch.Tensor,
    best: np.ndarray | None,
    row: np.ndarray,
    states: Sequence[_Sample],
    drawn_from: Callable[[np.ndarray, Exponentials, float], None] | None = None,
) -> None:
    """Draw the next token of each sample from its row, in its own way; `best` from the same logits.

    `drawn_from` is told of the rows and their exponentials at each temperature.
    """
    for how in dict.fromkeys(state.sampling for state in states):
        chosen = [i for i, state in enumerate(states) if state.sampling == how]
        if how.temperature == 0:
            for i, token in zip(chosen, best[row[chosen]].tolist(), strict=True):
                states[i].take(token, 0.0, 0.0, loaded)
            continue
        u = np.array([states[i].uniforms[len(states[i].ids)] for i in chosen])
        rows, place = np.unique(row[chosen], return_inverse=True)
        part = logits if len(rows) == len(logits) else logits[torch.from_numpy(rows).to(logits.device)]
        e = exponentials(part, how.temperature)
        if drawn_from is not None:
            drawn_from(rows, e, how.temperature)
        for i, *drawn in zip(chosen, *(column.tolist() for column in draw(part, e, u, place, how)), strict=True):
            states[i].take(*drawn, loaded)


def _grow_plain(loaded: Loaded, prompts: Sequence[Sequence[int]], states: list[list[_Sample]]) -> None:
    """The same samples from `transformers.generate`, one row a sample, for architectures that no tree represents.

    `generate` keeps whatever cache the architecture has; a logits processor leaves it only the token that the sample's own uniform
    number picks. The model's own generation config is set aside: a repetition penalty in it would bend the distribution.
    """
    from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList

    flat = [(prompt, state) for prompt, group in zip(prompts, states, strict=True) for state in group]
    width = max(len(prompt) for prompt, _ in flat)
    pad = loaded.tokenizer.pad_token_id if loaded.tokenizer.pad_token_id is not None else min(loaded.stops, default=0)
    pad = pad if pad < loaded.model.config.vocab_size else 0  # a token added to the tokenizer only; it is masked, but must be one
    ids = torch.full((len(flat), width), pad)
    mask = torch.zeros((len(flat), width), dtype=torch.long)
    for row, (prompt, _) in enumerate(flat):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1

    class OwnDraw(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            growing = [i for i, (_, state) in enumerate(flat) if not state.done]
            states, logits = [flat[i][1] for i in growing], scores.float()
            _take(loaded, logits, _best(logits, states), np.array(growing), states)
            chosen = torch.full_like(scores, -torch.inf)
            choice = [s.ids[-1] if s.ids else pad for _, s in flat]  # what a finished row is fed no longer matters
            chosen[np.arange(len(flat)), choice] = 0.0
            return chosen

    def finished(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.tensor([s.done for _, s in flat], device=input_ids.device)

    model = loaded.model
    own, model.generation_config = model.generation_config, GenerationConfig(pad_token_id=pad)
    try:
        with torch.inference_mode():
            model.generate(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=max(state.room for _, state in flat),
                do_sample=False,
                logits_processor=LogitsProcessorList([OwnDraw()]),
                stopping_criteria=StoppingCriteriaList([finished]),
            )
    finally:
        model.generation_config = own


def _stopped(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stop: Sequence[str]) -> bool:
    """Whether a stop text has been completed by the last token."""
    if not stop:
        return False
    longest = max(len(text.encode()) for text in stop)  # a token is at least a byte
    tail = tokenizer.decode(list(ids[-(longest + 4) :]))
    return any(text in tail for text in stop)
