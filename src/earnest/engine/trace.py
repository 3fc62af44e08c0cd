"""What sampling computed, kept so that training need not compute it again.

Sampling and the first pass of training run the same tokens through the same weights. A trace keeps of each node that was sampled from or
read what the way back cannot do without and cannot make cheaply: in each layer its input, what it saw (the output of attention) and what
stands between attention and MLP. Keys and values are in the pool. Training then goes backward at once: it makes queries and the MLP's
inner numbers again, layer by layer, and skips the other products of a forward pass, its attention, and the memory of a whole pass.

Of the head it keeps, where a token was drawn, the log of the sum of exponentials and the mean of the head's rows under the distribution:
d log p(token) / d h is (W[token] - mean) / temperature, so training needs no logits either.

Nothing is approximated: the numbers are those of the very weights the gradient is taken at. A trace lies in the pool and ends with it, at
the first change of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from earnest.engine import kernels
from earnest.engine.transformer import Layer, Transformer, backward_of_heads, queries_and_keys

ROWS = 768  # of the MLP at a time: larger arrays go back to the system and come anew each time (docs/log.md)

TOGETHER = 192  # rows of probabilities that one product with the head takes: a pass brings few, which take longer each (docs/log.md)


class Trace:
    """Numbers of up to `room` nodes; later ones are not kept.

    Args:
        transformer: Whose.
        room: Most nodes. Memory is taken as they come.

    Attributes:
        layers: Of each layer its input [room, H], what was seen [room, heads * D] and what stands between attention and MLP [room, H].
        ends: [room, H], what leaves the last layer.
        means: [room, H], mean of the head's rows under the distribution that was drawn from.
        logs: [room], log of the sum of e^(logit / temperature).
        used: Nodes kept.
        room: Most nodes.
    """

    def __init__(self, transformer: Transformer, room: int) -> None:
        like, hidden = transformer.embedding, transformer.embedding.shape[1]
        widths = (hidden, transformer.heads * transformer.head_dim, hidden)
        self.layers = [tuple(like.new_empty((room, width)) for width in widths) for _ in transformer.layers]
        self.ends, self.means, self.logs = (like.new_empty(shape) for shape in ((room, hidden), (room, hidden), (room,)))
        self.room = room
        self._head = transformer.head_weight
        self._drawn = like.new_empty((TOGETHER, len(self._head)))
        self.clear()

    def clear(self) -> None:
        """Forget all nodes."""
        self.used = 0
        self._place = np.empty(0, dtype=np.int64)  # of each slot of the pool, -1 where its node is not kept
        self._ended = np.zeros(self.room, dtype=bool)  # whether the last layer was finished: only where logits were wanted
        self._temperature = np.zeros(self.room)  # at which tokens were drawn; 0 where none were
        self._waiting: list[int] = []  # places of the nodes whose means are to be made, of the probabilities in `_drawn`

    def open(self, nodes: int) -> kernels.Traced | None:
        """Where the next pass is to leave its numbers; None if there is no room for them."""
        if self.used + nodes > self.room:
            return None
        return [tuple(store[self.used :] for store in layer) for layer in self.layers]

    def note(self, slots: np.ndarray, keep: np.ndarray | None, ends: torch.Tensor) -> None:
        """A pass is done: `slots` of its nodes, those that were `keep`t to the end (None for all), and what left the last layer."""
        places = np.arange(self.used, self.used + len(slots))
        if (grow := int(slots.max()) + 1 - len(self._place)) > 0:
            self._place = np.append(self._place, np.full(grow + len(self._place), -1))
        self._place[slots] = places
        ended = places if keep is None else places[keep]
        self._ended[ended] = True
        self.ends[torch.from_numpy(ended)] = ends
        self.used += len(slots)

    def drawn(self, slots: np.ndarray, e: kernels.Exponentials, temperature: float) -> None:
        """Tokens were drawn from the nodes in R slots, at a temperature, by exponentials [R, V] of their logits."""
        places = self._of(slots)
        known = np.flatnonzero(places >= 0)
        for rows in (known[first : first + TOGETHER] for first in range(0, len(known), TOGETHER)):
            if len(self._waiting) + len(rows) > TOGETHER:
                self.finish()
            at, some = torch.from_numpy(places[rows]), slice(None) if len(rows) == len(slots) else torch.from_numpy(rows)
            start = len(self._waiting)
            torch.div(e.powers[some], e.total[some], out=self._drawn[start : start + len(rows)])
            self.logs[at] = (e.most[some] / temperature + e.total[some].log())[:, 0]
            self._temperature[places[rows]] = temperature
            self._waiting.extend(places[rows].tolist())

    def finish(self) -> None:
        """Make the means that are still to be made."""
        if self._waiting:
            self.means[torch.tensor(self._waiting)] = kernels.multiply(self._drawn[: len(self._waiting)], self._head)
            self._waiting.clear()

    def move(self, slots: np.ndarray) -> None:
        """The pool has closed its gaps: slot i was `slots[i]`."""
        self._place = self._of(slots)

    def find(self, slots: np.ndarray, ended: np.ndarray) -> torch.Tensor | None:
        """int64 [N], the places of the nodes in these slots; None unless all are kept, those at `ended` to the end."""
        places = self._of(slots)
        return torch.from_numpy(places) if len(places) and places.min() >= 0 and self._ended[places[ended]].all() else None

    def were_drawn(self, places: torch.Tensor, temperature: float) -> bool:
        """Whether the head's part is kept of all these nodes, at this temperature."""
        return bool((self._temperature[places.numpy()] == temperature).all())

    def _of(self, slots: np.ndarray) -> np.ndarray:
        """int64, the place of each slot; -1 where its node is not kept."""
        known = (slots >= 0) & (slots < len(self._place))
        places = np.full(len(slots), -1)
        places[known] = self._place[slots[known]]
        return places


@dataclass(frozen=True)
class Kept:
    """What training needs of N nodes of a tree.

    Attributes:
        trace: Where most of it is.
        places: int64 [N], where there.
        pool: Of each layer keys and values, [slots, kv_heads, D].
        slots: int64 [N], where there.
    """

    trace: Trace
    places: torch.Tensor
    pool: Sequence[kernels.Pair]
    slots: torch.Tensor


def hidden_of(t: Transformer, kept: Kept, depths: torch.Tensor, sight: kernels.Sight, keep: torch.Tensor) -> torch.Tensor:
    """What `Transformer.run` gives, without running it; the gradient goes to A and B of every projection.

    Args:
        t: The transformer with the weights that sampled, not packed.
        kept: What was kept.
        depths: int64 [N], positions of the nodes.
        sight: What they see.
        keep: int64 [R], the nodes whose hidden state is wanted.
    """
    matrices = [matrix for layer in t.layers for p in layer.projections for *_, a, b in p.lora for matrix in (a, b)]
    return _Backward.apply(t, kept, depths, sight, keep, *matrices)


def log_probability(
    kept: Kept, hidden: torch.Tensor, nodes: torch.Tensor, head: torch.Tensor, tokens: torch.Tensor, temperature: float
) -> torch.Tensor | None:
    """Log-probability [K] of tokens [K] behind nodes [K] of hidden states [K, H]; None unless all were drawn from at the temperature."""
    places = kept.places[nodes]
    kept.trace.finish()
    if not kept.trace.were_drawn(places, temperature):
        return None
    return _Drawn.apply(hidden, head[tokens], kept.trace.means[places], kept.trace.logs[places], temperature)


class _Drawn(torch.autograd.Function):
    """h W[token] / temperature - log-sum; its gradient to h is (W[token] - mean) / temperature."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, rows: torch.Tensor, means: torch.Tensor, logs: torch.Tensor, temperature: float
    ) -> torch.Tensor:
        logp = (hidden * rows).sum(dim=-1).div_(temperature).sub_(logs)
        ctx.save_for_backward(means.sub_(rows).div_(-temperature))
        return logp

    @staticmethod
    def backward(ctx: Any, grad_logp: torch.Tensor) -> tuple:
        (slope,) = ctx.saved_tensors
        return grad_logp[:, None] * slope, None, None, None, None


class _Backward(torch.autograd.Function):
    """The way back through all layers, of which nothing was computed on the way forward."""

    @staticmethod
    def forward(
        ctx: Any, t: Transformer, kept: Kept, depths: torch.Tensor, sight: kernels.Sight, keep: torch.Tensor, *matrices: torch.Tensor
    ) -> torch.Tensor:
        ctx.t, ctx.kept, ctx.depths, ctx.sight, ctx.keep = t, kept, depths, sight, keep
        return t.norm(kept.trace.ends[kept.places[keep]])

    @staticmethod
    def backward(ctx: Any, d: torch.Tensor) -> tuple:
        t, kept, keep = ctx.t, ctx.kept, ctx.keep
        turns, gradients = t.turns(ctx.depths), []
        d = t.norm.backward(kept.trace.ends[kept.places[keep]], d)
        for index in reversed(range(len(t.layers))):
            d, own = _through(t, index, kept, turns, ctx.sight, keep if index == len(t.layers) - 1 else None, d)
            gradients = own + gradients
        return None, None, None, None, None, *gradients


def _through(
    t: Transformer, index: int, kept: Kept, turns: kernels.Pair, sight: kernels.Sight, keep: torch.Tensor | None, d: torch.Tensor
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """Back through a layer: the gradient to its input, None below the first, and those of its A and B.

    `d` is that to its output; of the last layer only to the nodes `keep`, which are all that have one.
    """
    layer, places = t.layers[index], kept.places
    last = places if keep is None else places[keep]
    x, seen, middle = (store[at] for store, at in zip(kept.trace.layers[index], (places, last, last), strict=True))
    parts = [_through_mlp(t, layer, *rows) for rows in zip(middle.split(ROWS), d.split(ROWS), strict=True)]
    d_middle = torch.cat([part for part, _ in parts])
    of_mlp = [sum(matrices) for matrices in zip(*(own for _, own in parts), strict=True)]
    d_seen, of_out = layer.out.backward(seen, None, d_middle)
    if keep is not None:
        d_seen, d_middle = (part.new_zeros((len(x), part.shape[1])).index_copy_(0, keep, part) for part in (d_seen, d_middle))
    qk, q = queries_and_keys(t, layer, x, turns)
    pool = tuple(store[kept.slots] for store in kept.pool[index])
    dq, (dk, dv) = kernels.attend_back(kernels.library(), d_seen.view(q.shape), q, pool, sight)
    dh = backward_of_heads(dq, dk, dv, layer.qk_norm, qk, *turns)
    dx, of_qkv = layer.qkv.backward(x, layer.norm1, dh.flatten(1), wanted=index > 0)
    return None if dx is None else dx.add_(d_middle), [*of_qkv, *of_out, *of_mlp]


def _through_mlp(t: Transformer, layer: Layer, x: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Back through x + MLP(x): the gradient to x, and those of A and B."""
    both = layer.up.forward(layer.norm2(x))
    d_both, of_down = layer.down.backward(both, t.gate, d)
    dx, of_up = layer.up.backward(x, layer.norm2, d_both)
    return dx.add_(d), [*of_up, *of_down]
