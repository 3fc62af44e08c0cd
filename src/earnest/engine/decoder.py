"""Decoding on the tree: the cache is a trunk and branches, and nothing in it moves.

The trunk is the beginning that all prompts of a batch share; a branch is the rest of one prompt and everything sampled below it. Keys and
values of every node are appended to their branch once. A new token attends to the trunk and to its own branch under a mask that
shows it its ancestors only, so samples that share a prefix share its cache, and rows may split or end without any copying.
Only when most of what the rows look at is masked away (they have long parted) does each row get a branch of its own.

`Decoder` is a hand-kept forward pass of the Llama family (Llama, Qwen2, Qwen3: RMSNorm, rotary positions, grouped-query attention,
gated MLP) over weights with LoRA merged in and the projections fused. It is tested against transformers' own forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = frozenset({"llama", "qwen2", "qwen3"})
WASTE = 6  # look-ups a row may make for each one that counts, before the rows get branches of their own

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def tree_is_exact(config: Any) -> bool:
    """Whether a token of this architecture depends on its ancestors only through full attention, as tree packing requires.

    Sliding windows count distance in the packed order, recurrent layers (linear attention, state space) run through it, rotary
    frequencies that follow the length of the input make a token depend on what comes after it, and only SDPA attention takes a mask
    of ours. Those and every unknown architecture take the plain path.
    """
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    sliding = getattr(config, "use_sliding_window", False)
    rotary = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    by_length = rotary == "longrope" or "dynamic" in rotary
    sdpa = getattr(config, "_attn_implementation", None) == "sdpa"
    return config.model_type in FAMILIES and set(layers) == {"full_attention"} and not (sliding or by_length) and sdpa


def merged_weight(linear: torch.nn.Module) -> torch.Tensor:
    """The weight of a linear layer with its LoRA, W + scaling * B A, as a new tensor (or the plain weight where there is no LoRA)."""
    if not hasattr(linear, "lora_A"):
        return linear.weight.detach()
    weight = linear.base_layer.weight.detach()
    for name in linear.active_adapters:
        if name in linear.lora_A:
            a, b = linear.lora_A[name].weight.detach(), linear.lora_B[name].weight.detach()
            weight = torch.addmm(weight, b.to(weight.dtype), a.to(weight.dtype), alpha=linear.scaling[name])
    return weight


def _bias(linear: torch.nn.Module) -> torch.Tensor | None:
    bias = getattr(linear, "base_layer", linear).bias
    return None if bias is None else bias.detach()


def _fused(linears: Sequence[torch.nn.Module]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Several projections of the same input as one."""
    biases = [_bias(linear) for linear in linears]
    weight = torch.cat([merged_weight(linear) for linear in linears])
    return weight, None if biases[0] is None else torch.cat([bias for bias in biases if bias is not None])


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


class Decoder:
    """A model frozen at one moment, ready to prefill a batch of prompts and to extend it a token a row at a time.

    Args:
        model: A causal language model of one of `FAMILIES`, LoRA layers injected or not.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config, body = model.config, model.model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.groups = self.heads // self.kv_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.rotary, self.embedding = body.rotary_emb, body.embed_tokens.weight.detach()
        self.head, self.head_bias = merged_weight(model.lm_head), _bias(model.lm_head)
        self.norm, self.act = body.norm, body.layers[0].mlp.act_fn
        self.layers = []
        for layer in body.layers:
            attention, mlp = layer.self_attn, layer.mlp
            self.layers.append(
                {
                    "norm1": layer.input_layernorm,
                    "norm2": layer.post_attention_layernorm,
                    "q_norm": getattr(attention, "q_norm", None),
                    "k_norm": getattr(attention, "k_norm", None),
                    "qkv": _fused([attention.q_proj, attention.k_proj, attention.v_proj]),
                    "out": (merged_weight(attention.o_proj), _bias(attention.o_proj)),
                    "up": _fused([mlp.gate_proj, mlp.up_proj]),
                    "down": (merged_weight(mlp.down_proj), _bias(mlp.down_proj)),
                }
            )
        self.device = self.embedding.device

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]], room: int = 0) -> tuple[Cache, torch.Tensor]:
        """Run some distinct prompts through the model, what they all share once.

        Args:
            prompts: Token ids of each of P prompts.
            room: How many slots a branch will need below its prompt, if known; it grows where that is too few.

        Returns:
            The cache, standing on the P last tokens of the prompts, and logits [P, V].
        """
        first, last = min(prompts), max(prompts)  # what these two share, all do
        parted = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        shared = min(parted, min(len(p) for p in prompts) - 1)
        trunk = self._prefill_trunk(prompts[0][:shared])
        rests = [p[shared:] for p in prompts]
        lengths = torch.tensor([len(r) for r in rests], device=self.device)
        width, branches = int(lengths.max()), len(rests)
        branch = torch.arange(branches, device=self.device).repeat_interleave(lengths)
        slot = torch.cat([torch.arange(len(r), device=self.device) for r in rests])
        capacity = width + room
        shape = (branches * self.kv_heads, capacity, self.head_dim)
        like = {"dtype": self.embedding.dtype, "device": self.device}
        cache = Cache(
            trunk,
            [torch.zeros(shape, **like) for _ in self.layers],  # zeros: a masked slot still takes part, with weight 0
            [torch.zeros(shape, **like) for _ in self.layers],
            branches,
            width,
            torch.arange(branches, device=self.device),
            torch.arange(width, device=self.device)[None, :] < lengths[:, None],
            shared + lengths - 1,
        )
        # a query sees the trunk and, of its own branch, everything up to itself; what pads a short branch comes after all of it
        mask = torch.ones((width, shared + width), dtype=torch.bool, device=self.device).tril(diagonal=shared)

        def attend(index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            padded = {}
            for name, part, heads in (("q", q, self.heads), ("k", k, self.kv_heads), ("v", v, self.kv_heads)):
                padded[name] = part.new_zeros((branches, width, heads, self.head_dim))
                padded[name][branch, slot] = part
                padded[name] = padded[name].transpose(1, 2)
            for store, name, stem in ((cache.keys, "k", trunk[index][0]), (cache.values, "v", trunk[index][1])):
                store[index].view(branches, self.kv_heads, capacity, self.head_dim)[:, :, :width] = padded[name]
                padded[name] = torch.cat([stem[None].expand(branches, -1, -1, -1), padded[name]], dim=2)
            a = F.scaled_dot_product_attention(padded["q"], padded["k"], padded["v"], attn_mask=mask, enable_gqa=self.groups > 1)
            return a.transpose(1, 2)[branch, slot].flatten(1)

        tokens = torch.tensor([token for rest in rests for token in rest], device=self.device)
        hidden = self._run(tokens, shared + slot, attend, keep=lengths.cumsum(0) - 1)
        return cache, self._logits(hidden)

    def _prefill_trunk(self, tokens: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        trunk: list[tuple[torch.Tensor, torch.Tensor]] = []

        def attend(index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = (part.transpose(0, 1) for part in (q, k, v))
            trunk.append((k.contiguous(), v.contiguous()))
            a = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=self.groups > 1)
            return a[0].transpose(0, 1).flatten(1)

        if len(tokens) == 0:
            nothing = self.embedding.new_empty((self.kv_heads, 0, self.head_dim))
            return [(nothing, nothing)] * len(self.layers)
        ids = torch.tensor(list(tokens), device=self.device)
        self._run(ids, torch.arange(len(tokens), device=self.device), attend)
        return trunk

    @torch.inference_mode()
    def step(self, cache: Cache, tokens: np.ndarray, parents: np.ndarray) -> torch.Tensor:
        """Append one token to each row.

        Args:
            cache: From `prefill`; afterwards it stands on the new tokens.
            tokens: [R] the new tokens.
            parents: [R] the row, among those the cache stands on, that each follows.

        Returns:
            Logits [R, V].
        """
        origin = torch.from_numpy(parents).to(self.device)
        cache.branch, cache.visible, cache.depth = cache.branch[origin], cache.visible[origin], cache.depth[origin] + 1
        slot, most = _slots(cache.branch)
        if cache.branches * most * cache.used > WASTE * int(cache.visible.sum()):
            _regrow(cache, self.kv_heads)
            slot, most = _slots(cache.branch)
        rows, start, end = len(tokens), cache.used, cache.used + most
        _reserve(cache, end)
        own = torch.arange(most, device=self.device)[None, :] == slot[:, None]
        cache.visible, cache.used = torch.cat([cache.visible, own], dim=1), end
        branch, branches, groups = cache.branch, cache.branches, self.groups
        hidden_slots = torch.full((branches, most, end), -torch.inf, dtype=self.embedding.dtype, device=self.device)
        hidden_slots[branch, slot] = torch.zeros_like(hidden_slots[0, 0]).masked_fill(~cache.visible, -torch.inf)
        bias = hidden_slots[:, None, :, None, :].expand(branches, self.kv_heads, most, groups, end).reshape(-1, most * groups, end)
        scale, stems = 1 / math.sqrt(self.head_dim), cache.trunk[0][0].shape[1]

        def attend(index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = cache.keys[index], cache.values[index]
            for store, new in ((keys, k), (values, v)):
                store.view(branches, self.kv_heads, -1, self.head_dim)[branch, :, start + slot] = new
            padded = q.new_zeros((branches, most, self.kv_heads, groups, self.head_dim))
            padded[branch, slot] = q.view(rows, self.kv_heads, groups, self.head_dim) * scale
            q = padded.transpose(1, 2).reshape(-1, most * groups, self.head_dim)  # grouped heads ride as more queries of their key head
            on_branch = torch.baddbmm(bias, q, keys[:, :end].transpose(1, 2))
            q_stem = _by_head(q, self.kv_heads)
            on_trunk = _by_branch(torch.bmm(q_stem, cache.trunk[index][0].transpose(1, 2)), branches)
            weight = torch.cat([on_trunk, on_branch], dim=-1).softmax(dim=-1)
            a = torch.bmm(weight[..., stems:], values[:, :end])
            if stems:
                a += _by_branch(torch.bmm(_by_head(weight[..., :stems], self.kv_heads), cache.trunk[index][1]), branches)
            a = a.view(branches, self.kv_heads, most, groups, self.head_dim).transpose(1, 2)
            return a[branch, slot].flatten(1)

        hidden = self._run(torch.from_numpy(tokens).to(self.device), cache.depth, attend)
        return self._logits(hidden)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(self.norm(hidden), self.head, self.head_bias).float()

    def _run(self, tokens: torch.Tensor, depths: torch.Tensor, attend: Attend, keep: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states [R, H] of R new nodes; only those of `keep` after the last layer's attention.

        Args:
            tokens: [R].
            depths: [R], their positions.
            attend: Given layer, queries [R, heads, D], keys and values [R, kv_heads, D], keeps the latter and returns [R, heads * D].
            keep: Nodes whose hidden state is wanted; None for all.
        """
        x = F.embedding(tokens, self.embedding)
        cos, sin = (part[0, :, None] for part in self.rotary(x[None], depths[None]))
        for index, layer in enumerate(self.layers):
            h = F.linear(layer["norm1"](x), *layer["qkv"]).view(len(x), -1, self.head_dim)
            q, k, v = h.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
            if layer["q_norm"] is not None:
                q, k = layer["q_norm"](q), layer["k_norm"](k)
            a = attend(index, _rotate(q, cos, sin), _rotate(k, cos, sin), v)
            if keep is not None and index == len(self.layers) - 1:
                x, a = x[keep], a[keep]
            x = x + F.linear(a, *layer["out"])
            gate, up = F.linear(layer["norm2"](x), *layer["up"]).chunk(2, dim=-1)
            x = x + F.linear(self.act(gate) * up, *layer["down"])
        return x


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


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin
