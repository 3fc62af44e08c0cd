"""Decoding with the kernels: one pool of keys and values, in which every row knows its slots.

A slot holds one node of the prefix tree: its key and value in each layer. A row sees the slots on its path and no others, so rows that
share a beginning share its slots, and nothing is copied or masked when they part, end or change places. What has once been read stays
known by its path for as long as the weights stay the same: the next batch does not read the system message again, nor the next turn of a
conversation what was said before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from earnest.engine import kernels
from earnest.engine.attention import sight_of
from earnest.engine.trace import Kept, Trace
from earnest.engine.transformer import Transformer
from earnest.engine.tree import PrefixTree, sorted_tree

SLOTS = 32_768  # what a batch may need, and what a pool may hold before it forgets: 1.5 GB for the built-in model
AT_ONCE = 1024  # nodes of a prompt read in one pass: what lies between the layers stays small, and is used again and not given back
PAGE = 16  # slots that a row takes at once, so that what it sees lies together in memory


@dataclass
class Pool:
    """Keys and values of all that was read with the same weights.

    Attributes:
        layers: (keys, values) of each layer, [capacity, kv_heads, head_dim].
        used: Slots that were given out.
        known: Slot of each node, by the slot of its parent (-1 for none) and its token.
        same: Of slots that hold what an earlier one holds as well, that one: a prompt was answered twice in the same words.
        enough: How many slots may be used before it is worth while to forget those of rows that ended.
        trace: What else is kept of each node for training; None where nothing is.
    """

    layers: list[kernels.Pair] = field(default_factory=list)
    used: int = 0
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    enough: int = 0
    trace: Trace | None = None

    def emptied(self, trace: Trace | None = None) -> Pool:
        """A pool that knows nothing, in the memory of this one: neither it nor a decoder or graph that reads it may be used again."""
        return Pool(self.layers, trace=trace)

    def find(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        """int32, the slot of each node of a tree, -1 where it is not known."""
        slots: list[int] = []
        for token, parent in zip(tokens, parents, strict=True):
            above = slots[parent] if parent >= 0 else -1
            slots.append(self.known.get((above, token), -1) if above >= 0 or parent < 0 else -1)
        return np.array(slots, dtype=np.int32)

    def kept(self, tree: PrefixTree, ended: np.ndarray) -> Kept | None:
        """What training needs of a tree's nodes; None unless all of it is there, of the nodes `ended` to the last layer's end."""
        if self.trace is None:
            return None
        slots = self.find(tree.token, tree.parent)
        places = self.trace.find(slots, ended)
        return None if places is None else Kept(self.trace, places, self.layers, torch.from_numpy(slots.astype(np.int64)))

    def keep(self, slots: np.ndarray) -> None:
        """Forget everything but some slots, and close the gaps. What no longer hangs together is not known again."""
        place = {-1: -1} | {slot: index for index, slot in enumerate(slots.tolist())}
        self.same = {place[slot]: place[first] for slot, first in self.same.items() if slot in place and first in place}
        self.known = {
            (place[parent], token): place[slot] for (parent, token), slot in self.known.items() if slot in place and parent in place
        }
        for keys, values in self.layers:
            for store in (keys, values):
                store[: len(slots)] = store[slots]
        if self.trace is not None:
            self.trace.move(slots)
        self.used, self.enough = len(slots), 2 * len(slots)


@dataclass
class Rows:
    """The R rows a decoder stands on; a later `prefill` with the same pool may forget their slots.

    Attributes:
        paths: Of each, int32, the slots of its tokens.
        pages: Of each, the free slots that follow its last one: from, and to before.
    """

    paths: list[np.ndarray]
    pages: list[tuple[int, int]]


class PooledDecoder:
    """A model frozen at one moment, ready to read prompts and to extend them a token a row at a time.

    Args:
        transformer: Its forward pass, packed, float32 on CPU; the kernels are there (`serves`).
        pool: What was read before with these very weights; it is added to.
    """

    def __init__(self, transformer: Transformer, pool: Pool) -> None:
        self.transformer, self.pool, self.frozen = transformer, pool, transformer.frozen()
        self._last = np.empty(0, dtype=np.int32)  # slots of the nodes whose logits were given last
        self._groups = transformer.heads // transformer.kv_heads

    @staticmethod
    def serves(transformer: Transformer) -> bool:
        """Whether the kernels do for this model and machine; where they do not, so does `Decoder`."""
        packed = all(p.panels is not None for layer in transformer.layers for p in (layer.qkv, layer.out, layer.up, layer.down))
        usual = transformer.gate.silu and 2 * len(transformer.rotary.inv_freq) == transformer.head_dim
        return packed and usual and kernels.serve(transformer.embedding, transformer.head_dim) is not None

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]], room: int = 0) -> tuple[Rows, torch.Tensor]:
        """Read what is new of some distinct prompts, what any of them share once.

        Args:
            prompts: Token ids of each of P prompts.
            room: Of no use here: a pool has room.

        Returns:
            Rows that stand on the P last tokens, and logits [P, V].
        """
        tree, paths = sorted_tree(prompts)
        slots = self.pool.find(tree.token, tree.parent)
        if self.pool.used + int((slots < 0).sum()) > SLOTS:
            held = slots >= 0
            self.pool.keep(np.sort(slots[held]))
            slots = self.pool.find(tree.token, tree.parent)
        ends = np.array([path[-1] for path in paths])
        fresh = slots < 0
        slots[fresh] = self.pool.used + np.arange(fresh.sum())
        self.pool.used += int(fresh.sum())
        self._reserve(self.pool.used)
        own, above = slots.tolist(), np.append(slots, -1)[tree.parent].tolist()
        learned = {(above[node], tree.token[node]): own[node] for node in np.flatnonzero(fresh).tolist()}
        fresh[ends] = True  # their logits are wanted
        nodes = np.flatnonzero(fresh)
        hidden = torch.empty((len(tree), self.transformer.embedding.shape[1]), dtype=self.transformer.dtype)
        tokens, depths = np.array(tree.token), np.array(tree.depth)
        for part in np.array_split(nodes, -(-len(nodes) // AT_ONCE)):  # parents come before children, so in an earlier part or the same
            wanted = np.flatnonzero(np.isin(part, ends))
            hidden[part[wanted]] = self._run(tokens[part], depths[part], slots[part], sight_of(tree, part, self._groups, slots), wanted)
        self.pool.known.update(learned)  # now that they are there
        self._last = slots[ends]
        return Rows([slots[path] for path in paths], [(0, 0)] * len(paths)), self.transformer.head(hidden[ends])

    @torch.inference_mode()
    def step(self, rows: Rows, tokens: np.ndarray, parents: np.ndarray) -> torch.Tensor:
        """Append nodes.

        Args:
            rows: From `prefill`, R of them; afterwards they are the new nodes.
            tokens: int64 [N], a token each.
            parents: int64 [N], what each follows: a row below R, or R + i for new node i, which must come before it.

        Returns:
            Logits [N, V].
        """
        if self.pool.used > max(SLOTS, self.pool.enough):
            live = np.unique(np.concatenate(rows.paths))
            self.pool.keep(live)
            rows.paths = [np.searchsorted(live, path).astype(np.int32) for path in rows.paths]
            rows.pages = [(0, 0)] * len(rows.paths)
        pages, paths, learned = list(rows.pages), list(rows.paths), {}
        for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
            slot, end = pages[parent]
            if slot == end:
                slot, end = self.pool.used, self.pool.used + PAGE
                self.pool.used = end
            pages[parent] = (end, end)  # the first to follow goes on in the page; others take one of their own
            pages.append((slot + 1, end))
            above = paths[parent]
            before = int(above[-1])
            node = self.pool.same.get(before, before), token
            if (first := self.pool.known.get(node, learned.get(node))) is None:
                learned[node] = slot
            else:
                self.pool.same[slot] = first
            paths.append(np.append(above, np.int32(slot)))
        self._reserve(self.pool.used)
        old = len(rows.paths)
        rows.paths, rows.pages = paths[old:], pages[old:]
        slots, depths = (np.array([value(path) for path in rows.paths]) for value in (lambda p: p[-1], lambda p: len(p) - 1))
        hidden = self._run(tokens, depths, slots, kernels.Sight.of(rows.paths, np.arange(len(slots)), depths + 1, self._groups))
        self.pool.known.update(learned)
        self._last = slots
        return self.transformer.head(hidden)

    def drawn(self, rows: np.ndarray, e: kernels.Exponentials, temperature: float) -> None:
        """To be told, between two calls, from which rows of the logits tokens were drawn: exponentials [len(rows), V] of those rows."""
        if self.pool.trace is not None:
            self.pool.trace.drawn(self._last[rows], e, temperature)

    def _run(
        self, tokens: np.ndarray, depths: np.ndarray, slots: np.ndarray, sight: kernels.Sight, keep: np.ndarray | None = None
    ) -> torch.Tensor:
        """Hidden states of the nodes to keep, as the head wants them; the keys and values of all go into their slots."""
        x, turns = self.transformer.embed(torch.from_numpy(tokens), torch.from_numpy(depths))
        traced = None if self.pool.trace is None else self.pool.trace.open(len(slots))
        x = kernels.run_layers(kernels.library(), self.frozen, x, turns, self.pool.layers, slots, sight, keep, traced)
        if traced is not None:
            self.pool.trace.note(slots, keep, x)
        return self.transformer.norm(x)

    def _reserve(self, slots: int) -> None:
        """Room for so many in all."""
        pool, t = self.pool, self.transformer
        if not pool.layers:
            shape, like = (SLOTS, t.kv_heads, t.head_dim), {"dtype": t.dtype, "device": t.device}
            pool.layers = [(torch.empty(shape, **like), torch.empty(shape, **like)) for _ in t.layers]  # no memory until it is written to
        capacity = len(pool.layers[0][0])
        if slots > capacity:
            extra = max(slots, capacity + capacity // 2) - capacity
            for index, (keys, values) in enumerate(pool.layers):  # one after the other: both sizes of all would be too much memory
                pool.layers[index] = F.pad(keys, (0, 0) * 2 + (0, extra)), F.pad(values, (0, 0) * 2 + (0, extra))
