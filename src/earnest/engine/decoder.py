"""Decoding on the tree: the cache is the tree.

Keys and values of every node are appended to one flat buffer a layer and never move. A new token attends to the whole buffer
under a mask that shows it its ancestors only, so samples that share a prefix share its cache, a branch costs nothing, and there is
no cache to gather, pad or reorder when rows branch or finish.

`Decoder` is a hand-kept forward pass of the Llama family (Llama, Qwen2, Qwen3: RMSNorm, rotary positions, grouped-query attention,
gated MLP) over weights with LoRA merged in and the projections fused. It is tested against transformers' own forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from earnest.engine.tree import PrefixTree

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = frozenset({"llama", "qwen2", "qwen3"})


def tree_is_exact(config: Any) -> bool:
    """Whether a token of this architecture depends on its ancestors only through full attention, as tree packing requires.

    Sliding windows count distance in the packed order, and recurrent layers (linear attention, state space) run through it, so those
    and every unknown architecture take the plain path.
    """
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    sliding = getattr(config, "use_sliding_window", False)
    return config.model_type in FAMILIES and set(layers) == {"full_attention"} and not sliding


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


class Decoder:
    """A model frozen at one moment, ready to prefill a tree of prompts and to extend it a token a row at a time.

    Args:
        model: A causal language model of one of `FAMILIES`, LoRA layers injected or not.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config, body = model.config, model.model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
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
        self.device, self.dtype = self.embedding.device, self.embedding.dtype

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]], room: int) -> tuple[Cache, torch.Tensor]:
        """Run the distinct prefixes of some prompts through the model, each once.

        Args:
            prompts: Token ids of each prompt.
            room: How many more tokens the cache will have to hold, if known; it grows where that is too few.

        Returns:
            The cache, standing on the P last tokens of the prompts, and logits [P, V].
        """
        tree = PrefixTree()
        ends = [int(tree.add(prompt)[-1]) for prompt in prompts]
        size = len(tree)
        cache = Cache(self, size + room)
        mask = torch.from_numpy(tree.mask()).to(self.device)
        tokens, depths = _long(tree.token, self.device), _long(tree.depth, self.device)
        hidden = self._run(tokens, depths, cache, mask, keep=_long(ends, self.device))
        cache.used = size
        cache.visible[: len(ends), :size] = mask[ends]
        cache.depth = depths[ends]
        return cache, self._logits(hidden)

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
        rows, start = len(tokens), cache.used
        cache.reserve(start + rows, rows)
        origin = torch.from_numpy(parents).to(self.device)
        visible = cache.visible[origin, :start]
        mask = torch.cat([visible, torch.eye(rows, dtype=torch.bool, device=self.device)], dim=1)
        cache.depth = cache.depth[origin] + 1
        hidden = self._run(torch.from_numpy(tokens).to(self.device), cache.depth, cache, mask)
        cache.used = start + rows
        cache.visible[:rows, : cache.used] = mask
        return self._logits(hidden)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(self.norm(hidden), self.head, self.head_bias).float()

    def _run(
        self, tokens: torch.Tensor, depths: torch.Tensor, cache: Cache, mask: torch.Tensor, keep: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Hidden states [R, H] of R new nodes, whose keys and values join the cache; only those of `keep` after the last layer."""
        rows, start = len(tokens), cache.used
        end, groups = start + rows, self.heads // self.kv_heads
        x = F.embedding(tokens, self.embedding)
        cos, sin = (part[0, :, None] for part in self.rotary(x[None], depths[None]))
        tiled = mask.repeat(groups, 1)  # grouped heads ride as extra query rows of their key head
        for index, layer in enumerate(self.layers):
            h = layer["norm1"](x)
            q, k, v = F.linear(h, *layer["qkv"]).view(rows, -1, self.head_dim).split([self.heads, self.kv_heads, self.kv_heads], dim=1)
            if layer["q_norm"] is not None:
                q, k = layer["q_norm"](q), layer["k_norm"](k)
            q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
            keys, values = cache.keys[index], cache.values[index]
            keys[:, start:end], values[:, start:end] = k.transpose(0, 1), v.transpose(0, 1)
            q = q.view(rows, self.kv_heads, groups, self.head_dim).permute(1, 2, 0, 3).reshape(1, self.kv_heads, groups * rows, self.head_dim)
            a = F.scaled_dot_product_attention(q, keys[None, :, :end], values[None, :, :end], attn_mask=tiled)
            a = a.view(self.kv_heads, groups, rows, self.head_dim).permute(2, 0, 1, 3).reshape(rows, -1)
            if keep is not None and index == len(self.layers) - 1:
                x, a = x[keep], a[keep]
            x = x + F.linear(a, *layer["out"])
            gate, up = F.linear(layer["norm2"](x), *layer["up"]).chunk(2, dim=-1)
            x = x + F.linear(self.act(gate) * up, *layer["down"])
        return x


class Cache:
    """Keys and values of all nodes so far, and the rows the decoder stands on.

    Attributes:
        keys: [kv_heads, capacity, head_dim] a layer; the same for `values`.
        used: Nodes held.
        visible: bool [rows, capacity]: the nodes each current row sees.
        depth: [rows] position of each current row's last token.
    """

    def __init__(self, decoder: Decoder, capacity: int) -> None:
        shape = (decoder.kv_heads, capacity, decoder.head_dim)
        make = {"dtype": decoder.dtype, "device": decoder.device}
        self.keys = [torch.empty(shape, **make) for _ in decoder.layers]
        self.values = [torch.empty(shape, **make) for _ in decoder.layers]
        self.visible = torch.zeros((64, capacity), dtype=torch.bool, device=decoder.device)
        self.used = 0
        self.depth = torch.empty(0, dtype=torch.long, device=decoder.device)

    def reserve(self, nodes: int, rows: int) -> None:
        """Make room for `nodes` nodes and `rows` rows."""
        capacity = self.keys[0].shape[1]
        if nodes > capacity:
            extra = max(nodes, capacity + capacity // 2) - capacity
            self.keys = [F.pad(k, (0, 0, 0, extra)) for k in self.keys]
            self.values = [F.pad(v, (0, 0, 0, extra)) for v in self.values]
            self.visible = F.pad(self.visible, (0, extra))
        if rows > self.visible.shape[0]:
            self.visible = F.pad(self.visible, (0, 0, 0, rows - self.visible.shape[0]))


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _long(values: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long, device=device)
