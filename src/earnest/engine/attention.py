"""Attention on a prefix tree, forward and backward.

Node u sees its ancestors and itself. The tree is cut into blocks (`PrefixTree.blocks`): all nodes of a block share what is above the block,
so those keys need no mask, and a small mask orders the nodes within. Work grows with nodes times depth, as in separate sequences, not
with the square of the nodes. Weights are not kept for the way back but computed again, so memory does not grow with the square of
the length.

Where the compiled kernels serve, each node looks at its own path instead (`Sight`), neighbours together, in one call a layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from earnest.engine import kernels
from earnest.engine.tree import PrefixTree

SIZE = 128  # nodes of a block: larger ones mask more away, smaller ones are more calls (docs/log.md)


@dataclass(frozen=True)
class Part:
    """A block as tensors.

    Attributes:
        rows: Its n nodes.
        keys: int64 [m], the nodes they may see: ancestors, then the block.
        bias: [n * groups, n], 0 where a node sees one of the block and -inf where not, repeated for the query heads of one key head.
    """

    rows: slice
    keys: torch.Tensor
    bias: torch.Tensor


Plan = kernels.Sight | list[Part]


def plan(tree: PrefixTree, groups: int, head_dim: int, like: torch.Tensor) -> Plan:
    """What a tree's nodes attend to, computed once for all layers.

    Args:
        tree: From `sorted_tree`.
        groups: Query heads of one key head.
        head_dim: Of each head.
        like: A tensor of the kind that attention will get.
    """
    if kernels.serve(like, head_dim):
        return sight_of(tree, np.arange(len(tree)), groups)
    dtype, device = like.dtype, like.device
    parts = []
    for block in tree.blocks(SIZE):
        mask = torch.from_numpy(block.mask).to(device)
        own = torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill_(~mask, -torch.inf)
        keys = torch.cat([torch.from_numpy(block.above), torch.arange(block.start, block.stop)]).to(device)
        parts.append(Part(slice(block.start, block.stop), keys, own.repeat_interleave(groups, dim=0)))
    return parts


def sight_of(tree: PrefixTree, nodes: np.ndarray, groups: int, slots: np.ndarray | None = None) -> kernels.Sight:
    """What some nodes of a tree see: the slots of the nodes on their paths; the slot of a node is the node itself if none are given."""
    leaves = np.ones(len(tree), dtype=bool)
    leaves[[parent for parent in tree.parent if parent >= 0]] = False
    paths, path = [], np.empty(len(tree), dtype=np.int64)
    for leaf in np.flatnonzero(leaves).tolist():
        own = np.array(tree.path(leaf))
        path[own] = len(paths)  # whichever path a node is on, its own is the beginning of it
        paths.append(own if slots is None else slots[own])
    return kernels.Sight.of(paths, path[nodes], np.array(tree.depth)[nodes] + 1, groups)


def tree_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, planned: Plan) -> torch.Tensor:
    """Softmax attention of U nodes.

    Args:
        q: [U, heads, D].
        k: [U, kv_heads, D]; query heads in order share a key head.
        v: [U, kv_heads, D].
        planned: From `plan`.

    Returns:
        [U, heads, D].
    """
    return (_ByPath if isinstance(planned, kernels.Sight) else _ByBlock).apply(q, k, v, planned)


class _ByPath(torch.autograd.Function):
    """By the kernels, each node along its own path."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sight: kernels.Sight) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.sight = sight
        return kernels.attend(kernels.library(), q, (k, v), sight)

    @staticmethod
    def backward(ctx: Any, d_out: torch.Tensor) -> tuple:
        q, k, v = ctx.saved_tensors
        dq, (dk, dv) = kernels.attend_back(kernels.library(), d_out, q, (k, v), ctx.sight)
        return dq, dk, dv, None


class _ByBlock(torch.autograd.Function):
    """Blocks one after another; with P = softmax(Q K^T), dV = P^T dO, dS = P (dO V^T - rowsum(dO O)), dQ = dS K, dK = dS^T Q."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: Sequence[Part]) -> torch.Tensor:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        kv_heads = k.shape[1]
        for part in parts:
            keys, values = k[part.keys].transpose(0, 1), v[part.keys].transpose(0, 1)
            weights = _weights(_by_key_head(q[part.rows], kv_heads), keys, part)
            out[part.rows] = _by_node(torch.bmm(weights, values), len(out[part.rows]))
        ctx.save_for_backward(q, k, v, out)
        ctx.parts = parts
        return out

    @staticmethod
    def backward(ctx: Any, d_out: torch.Tensor) -> tuple:
        q, k, v, out = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(out), torch.zeros_like(k), torch.zeros_like(v)
        kv_heads, scale = k.shape[1], 1 / math.sqrt(q.shape[-1])
        rowsum = (d_out * out).sum(dim=-1, keepdim=True)
        for part in ctx.parts:
            queries, up, less = (_by_key_head(x[part.rows], kv_heads) for x in (q, d_out, rowsum))
            keys, values = k[part.keys].transpose(0, 1), v[part.keys].transpose(0, 1)
            weights = _weights(queries, keys, part)
            dv.index_add_(0, part.keys, torch.bmm(weights.transpose(1, 2), up).transpose(0, 1))
            slope = torch.baddbmm(less, up, values.transpose(1, 2), beta=-1).mul_(weights).mul_(scale)
            dq[part.rows] = _by_node(torch.bmm(slope, keys), len(dq[part.rows]))
            dk.index_add_(0, part.keys, torch.bmm(slope.transpose(1, 2), queries).transpose(0, 1))
        return dq, dk, dv, None


def _weights(queries: torch.Tensor, keys: torch.Tensor, part: Part) -> torch.Tensor:
    """softmax of [kv_heads, n * groups, m], in fp32 whatever the model's precision."""
    nothing = queries.new_empty(())  # times 0: only the scale is wanted of baddbmm
    scores = torch.baddbmm(nothing, queries, keys.transpose(1, 2), beta=0, alpha=1 / math.sqrt(queries.shape[-1]))
    scores[..., -part.bias.shape[-1] :] += part.bias
    return scores.softmax(dim=-1, dtype=torch.float32).to(queries.dtype)


def _by_key_head(x: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """[n, heads, D] to [kv_heads, n * groups, D]: the query heads of one key head are more queries of it."""
    return x.unflatten(1, (kv_heads, -1)).transpose(0, 1).flatten(1, 2)


def _by_node(x: torch.Tensor, nodes: int) -> torch.Tensor:
    """[kv_heads, n * groups, D] back to [n, heads, D]."""
    return x.unflatten(1, (nodes, -1)).transpose(0, 1).flatten(1, 2)
