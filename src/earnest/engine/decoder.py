"""Decoding on the tree: the cache is a trunk and branches, and nothing in it moves.

The trunk is the beginning that all prompts of a batch share; a branch is the rest of one prompt and everything sampled below it. Keys and
values of every node are appended to their branch once. A new token attends to the trunk and to its own branch under a mask that
shows it its ancestors only, so samples that share a prefix share its cache, and rows may split or end without any copying.
Only when the rows have long parted, so that most of what they look at is masked away, does each get a branch of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from earnest.engine.attention import plan, tree_attention
from earnest.engine.transformer import Transformer
from earnest.engine.tree import sorted_tree

# What a branch costs is its slots times this plus the nodes that look at them: reading a slot's key and value takes about as long as two
# look-ups. Rows get branches of their own where that makes a pass cheaper by the factor WASTE.
READ, WASTE = 2, 1.5


@dataclass
class Cache:
    """Keys and values of all nodes so far, and the R rows the decoder stands on.

    Attributes:
        trunk: (keys, values) of each layer, [kv_heads, trunk tokens, head_dim].
        keys: Of each layer, [branches * kv_heads, capacity, head_dim]; `values` likewise.
        branches: How many branches there are.
        used: Slots in use, the same for every branch; a branch with fewer rows leaves holes, which no one sees.
        branch: int64 [R], the branch of each row.
        visible: bool [R, used], the slots of its branch each row sees.
        depth: int64 [R], position of each row's last token.
    """

    trunk: list[tuple[torch.Tensor, torch.Tensor]]
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    branches: int
    used: int
    branch: torch.Tensor
    visible: torch.Tensor
    depth: torch.Tensor


@dataclass
class Stem:
    """Keys and values of the beginning that the prompts of the last batch shared; the next batch often begins the same.

    Attributes:
        tokens: Its token ids.
        layers: (keys, values) of each layer, [kv_heads, tokens, head_dim].
    """

    tokens: Sequence[int] = ()
    layers: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)


class Decoder:
    """A model frozen at one moment, ready to prefill a batch of prompts and to extend it a token a row at a time.

    Args:
        transformer: Its forward pass.
        stem: What was read with these very weights before, and may be read again; it is brought up to date.
    """

    def __init__(self, transformer: Transformer, stem: Stem | None = None) -> None:
        self.transformer = t = transformer
        self.stem = Stem() if stem is None else stem
        self.kv_heads, self.groups, self.head_dim = t.kv_heads, t.heads // t.kv_heads, t.head_dim
        self.device, self.dtype = t.device, t.dtype

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]], room: int = 0) -> tuple[Cache, torch.Tensor]:
        """Run some distinct prompts through the model, what any of them share once, and what the last batch shared not at all.

        Args:
            prompts: Token ids of each of P prompts.
            room: How many slots a branch will need below its prompt, if known; it grows where that is too few.

        Returns:
            The cache, standing on the P last tokens of the prompts, and logits [P, V].
        """
        tree, paths = sorted_tree(prompts)
        first, last = min(prompts), max(prompts)  # what these two share, all do
        parted = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        shared = min(parted, min(len(p) for p in prompts) - 1)
        stem, wanted = self.stem, first[:shared]
        known = next((i for i, (a, b) in enumerate(zip(stem.tokens, wanted, strict=False)) if a != b), min(len(stem.tokens), shared))
        rests = [path[shared:] for path in paths]
        lengths = torch.tensor([len(r) for r in rests], device=self.device)
        width, branches = int(lengths.max()), len(rests)
        node = torch.from_numpy(np.concatenate(rests)).to(self.device)
        branch = torch.arange(branches, device=self.device).repeat_interleave(lengths)
        slot = torch.cat([torch.arange(len(r), device=self.device) for r in rests])
        shape = (branches * self.kv_heads, width + room, self.head_dim)
        like = {"dtype": self.dtype, "device": self.device}
        layers = range(len(self.transformer.layers))
        cache = Cache(
            [],
            [torch.zeros(shape, **like) for _ in layers],  # zeros: a masked slot still takes part, with weight 0
            [torch.zeros(shape, **like) for _ in layers],
            branches,
            width,
            torch.arange(branches, device=self.device),
            torch.arange(width, device=self.device)[None, :] < lengths[:, None],
            shared + lengths - 1,
        )
        parts = plan(tree, self.groups, self.head_dim, self.transformer.embedding)

        def attend(index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if known:
                k, v = (torch.cat([old[:, :known].transpose(0, 1), new]) for old, new in zip(stem.layers[index], (k, v), strict=True))
                q = F.pad(q, (0, 0, 0, 0, known, 0))  # the stem's own answers are not wanted again
            cache.trunk.append((k[:shared].transpose(0, 1).contiguous(), v[:shared].transpose(0, 1).contiguous()))
            for store, new in ((cache.keys[index], k), (cache.values[index], v)):
                store.view(branches, self.kv_heads, -1, self.head_dim)[branch, :, slot] = new[node]
            return tree_attention(q, k, v, parts)[known:]

        tokens, depths = (torch.tensor(column[known:], device=self.device) for column in (tree.token, tree.depth))
        ends = torch.tensor([path[-1] - known for path in paths], device=self.device)
        hidden = self.transformer.run(tokens, depths, attend, keep=ends)
        stem.tokens, stem.layers = wanted, cache.trunk
        return cache, self.transformer.head(hidden).float()

    @torch.inference_mode()
    def step(self, cache: Cache, tokens: np.ndarray, parents: np.ndarray) -> torch.Tensor:
        """Append nodes.

        Args:
            cache: From `prefill`, standing on R rows; afterwards it stands on the new nodes.
            tokens: int64 [N], a token each.
            parents: int64 [N], what each follows: a row below R, or R + i for new node i, which must come before it.

        Returns:
            Logits [N, V].
        """
        origin, level, new_parent = _roots(parents, len(cache.branch))
        stands, which = np.unique(origin, return_inverse=True)
        row, at = torch.from_numpy(stands).to(self.device), torch.from_numpy(which).to(self.device)
        cache.branch, cache.visible, cache.depth = cache.branch[row], cache.visible[row], cache.depth[row]
        slot, most = _slots(cache.branch[at])
        own_most, own_used = int(np.bincount(which).max()), int(cache.visible.sum(dim=1).max())
        if cache.branches * cache.used * (READ + most) > WASTE * len(stands) * own_used * (READ + own_most):
            _regrow(cache, self.kv_heads)
            slot, most = _slots(cache.branch[at])
        count, start, end = len(tokens), cache.used, cache.used + most
        _reserve(cache, end)
        own = torch.from_numpy(_own_slots(slot.cpu().numpy(), new_parent, most)).to(self.device)
        cache.visible, cache.used = torch.cat([cache.visible[at], own], dim=1), end
        cache.depth = cache.depth[at] + torch.from_numpy(level).to(self.device)
        branch = cache.branch = cache.branch[at]
        branches, groups = cache.branches, self.groups
        whole = count == branches * most and bool((branch * most + slot == torch.arange(count, device=self.device)).all())
        hidden_slots = torch.full((branches, most, end), -torch.inf, dtype=self.dtype, device=self.device)
        hidden_slots[branch, slot] = torch.zeros_like(hidden_slots[0, 0]).masked_fill(~cache.visible, -torch.inf)
        bias = hidden_slots[:, None, :, None, :].expand(branches, self.kv_heads, most, groups, end).reshape(-1, most * groups, end)
        scale, stems = 1 / math.sqrt(self.head_dim), cache.trunk[0][0].shape[1]

        def spread(x: torch.Tensor) -> torch.Tensor:
            """[N, ...] to [branches, most, ...]; where a branch has fewer nodes, zeros that no one sees."""
            if whole:
                return x.unflatten(0, (branches, most))
            out = x.new_zeros((branches, most, *x.shape[1:]))
            out[branch, slot] = x
            return out

        def attend(index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = cache.keys[index], cache.values[index]
            for store, new in ((keys, k), (values, v)):
                store.view(branches, self.kv_heads, -1, self.head_dim)[:, :, start:end] = spread(new).transpose(1, 2)
            q = spread(q * scale).view(branches, most, self.kv_heads, groups, self.head_dim)
            q = q.transpose(1, 2).reshape(-1, most * groups, self.head_dim)  # grouped heads ride as more queries of their key head
            weight = torch.baddbmm(bias, q, keys[:, :end].transpose(1, 2))
            if stems:
                on_trunk = torch.bmm(_by_head(q, self.kv_heads), cache.trunk[index][0].transpose(1, 2))
                weight = torch.cat([_by_branch(on_trunk, branches), weight], dim=-1)
            weight = weight.softmax(dim=-1)
            a = torch.bmm(weight[..., stems:], values[:, :end])
            if stems:
                a += _by_branch(torch.bmm(_by_head(weight[..., :stems], self.kv_heads), cache.trunk[index][1]), branches)
            a = a.view(branches, self.kv_heads, most, groups, self.head_dim).transpose(1, 2)
            return a.reshape(count, -1, self.head_dim) if whole else a[branch, slot]

        return self.transformer.head(self.transformer.run(torch.from_numpy(tokens).to(self.device), cache.depth, attend)).float()


def _roots(parents: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each new node: the row its chain starts from, how far below that row it is, and its parent among the new ones (-1 for none)."""
    origin, level, new_parent = parents.copy(), np.ones_like(parents), parents - rows
    for node in np.flatnonzero(new_parent >= 0):
        origin[node], level[node] = origin[new_parent[node]], level[new_parent[node]] + 1
    return origin, level, np.maximum(new_parent, -1)


def _own_slots(slot: np.ndarray, new_parent: np.ndarray, most: int) -> np.ndarray:
    """bool [N, most], which of the new slots of its branch each new node sees: its own and those of its new ancestors."""
    own = np.arange(most)[None, :] == slot[:, None]
    for node in np.flatnonzero(new_parent >= 0):
        own[node] |= own[new_parent[node]]
    return own


def _slots(branch: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Number the rows of each branch from 0; also the most any branch has."""
    order = branch.argsort(stable=True)
    counts = torch.bincount(branch)
    starts = counts.cumsum(0) - counts
    slot = torch.empty_like(branch)
    slot[order] = torch.arange(len(branch), device=branch.device) - starts[branch[order]]
    return slot, int(counts.max())


def _reserve(cache: Cache, slots: int) -> None:
    capacity = cache.keys[0].shape[1]
    if slots > capacity:
        extra = max(slots, capacity + capacity // 2) - capacity
        cache.keys = [F.pad(k, (0, 0, 0, extra)) for k in cache.keys]
        cache.values = [F.pad(v, (0, 0, 0, extra)) for v in cache.values]


def _regrow(cache: Cache, kv_heads: int) -> None:
    """Give each row a branch of its own that holds what it sees and nothing else."""
    rows = len(cache.branch)
    lengths = cache.visible.sum(dim=1)
    width = int(lengths.max())
    # slots a row sees come first, in order; the rest of the width is padding that stays invisible
    seen = (~cache.visible).to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
    capacity = width + max(width // 2, 16)
    for stores in (cache.keys, cache.values):
        for index, store in enumerate(stores):
            old = store.view(cache.branches, kv_heads, -1, store.shape[-1])
            new = store.new_zeros((rows, kv_heads, capacity, store.shape[-1]))
            new[:, :, :width] = old[cache.branch[:, None], :, seen].transpose(1, 2)
            stores[index] = new.view(rows * kv_heads, capacity, -1)
    device = cache.branch.device
    cache.branches, cache.used, cache.branch = rows, width, torch.arange(rows, device=device)
    cache.visible = torch.arange(width, device=device)[None, :] < lengths[:, None]


def _by_head(x: torch.Tensor, heads: int) -> torch.Tensor:
    """From [branches * heads, n, D] to [heads, branches * n, D]."""
    return x.unflatten(0, (-1, heads)).transpose(0, 1).flatten(1, 2)


def _by_branch(x: torch.Tensor, branches: int) -> torch.Tensor:
    """From [heads, branches * n, D] to [branches * heads, n, D]."""
    return x.unflatten(1, (branches, -1)).transpose(0, 1).flatten(0, 1)
