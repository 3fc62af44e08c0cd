"""The transformer of the Llama family, kept by hand: one forward pass for sampling, evaluation and training.

Llama, Qwen2 and Qwen3 (RMSNorm, rotary positions, grouped-query attention, gated MLP) over weights with LoRA merged in and the
projections of one input fused. A node is a row; which nodes see which is the caller's `attend`, so prompts, branches and whole prefix
trees run through the same code. It is tested against transformers' own forward pass and PEFT's own gradients.

With LoRA merged, a layer costs what the base model costs, forward and backward; the gradients of A and B are four thin products beside
it. (In bf16 and fp16 LoRA stays beside the weights.) What training keeps in memory is the input of each norm, gate and projection, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from earnest.engine import kernels
from earnest.engine.elementwise import Elementwise, Gate, Inner, RmsNorm

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = frozenset({"llama", "qwen2", "qwen3"})

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def not_on_tree(config: Any) -> str:
    """Why a prefix tree does not represent this architecture; "" where it does, exactly.

    It does where a token depends on its ancestors only, through full attention. Sliding windows count distance in the packed order,
    recurrent layers (linear attention, state space) run through it, and rotary frequencies that follow the length of the input make
    a token depend on what comes after it. Those and every unknown architecture take the plain path.
    """
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    rotary = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if other := sorted(set(layers) - {"full_attention"}):
        return f"it has layers of {' and '.join(other).replace('_', ' ')}"
    if getattr(config, "use_sliding_window", False):
        return "it attends in a sliding window"
    if rotary == "longrope" or "dynamic" in rotary:
        return "its rotary positions depend on the length of the input"
    return "" if config.model_type in FAMILIES else f"'{config.model_type}' is none of {', '.join(sorted(FAMILIES))}"


class Transformer:
    """A model as it is at one moment: after a change of weights, make another.

    Args:
        model: A causal language model of the Llama family, LoRA layers injected or not.
        packed: Lay the weights out for products of few rows, where there are kernels for them. Such a model cannot train.
    """

    def __init__(self, model: PreTrainedModel, packed: bool = False) -> None:
        config, body = model.config, model.model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.rotary, self.embedding = body.rotary_emb, body.embed_tokens.weight.detach()
        of = partial(Projection.of, packed=packed)
        self.head, self.head_weight = of([model.lm_head]), model.lm_head.weight.detach()
        self.norm, self.gate = RmsNorm.of(body.norm), Gate(body.layers[0].mlp.act_fn)
        self.layers = [Layer.of(layer, self.heads, self.kv_heads, of) for layer in body.layers]
        self.device, self.dtype = self.embedding.device, self.embedding.dtype

    def run(
        self, tokens: torch.Tensor, depths: torch.Tensor, attend: Attend, keep: torch.Tensor | None = None, again: bool = False
    ) -> torch.Tensor:
        """Hidden states [R, H] of R nodes, normed, as the head wants them.

        Args:
            tokens: int64 [R].
            depths: int64 [R], their positions.
            attend: Given layer, queries [R, heads, D], keys and values [R, kv_heads, D]; returns [R, heads, D].
            keep: The nodes whose hidden state is wanted; None for all.
            again: Keep each layer's input alone for the way back and compute the rest again (activation checkpointing).
        """
        x, (cos, sin) = self.embed(tokens, depths)
        for index in range(len(self.layers)):
            wanted = keep if index == len(self.layers) - 1 else None
            if again and torch.is_grad_enabled():
                x = checkpoint(self._layer, index, x, cos, sin, attend, wanted, use_reentrant=False, preserve_rng_state=False)
            else:
                x = self._layer(index, x, cos, sin, attend, wanted)
        return Inner.apply(x, self.norm)

    def embed(self, tokens: torch.Tensor, depths: torch.Tensor) -> tuple[torch.Tensor, kernels.Pair]:
        """What goes into the first layer, [R, H], and cosines and sines of the positions, [R, 1, D]."""
        return F.embedding(tokens, self.embedding), self.turns(depths)

    def turns(self, depths: torch.Tensor) -> kernels.Pair:
        """Cosines and sines of positions [R], each [R, 1, D]."""
        cos, sin = (part[0, :, None].contiguous() for part in self.rotary(self.embedding[None, :1], depths[None]))
        return cos, sin

    def frozen(self) -> kernels.Frozen:
        """The layers as `kernels.run_layers` wants them, of a packed model, which must outlive them."""
        rows = []
        for layer in self.layers:
            qkv, out, up, down = ((p.panels, p.bias) for p in (layer.qkv, layer.out, layer.up, layer.down))
            norms = [None if norm is None else norm.weight for norm in (layer.norm1, layer.qk_norm, layer.norm2)]
            parts = [*norms[:2], *qkv, *out, norms[2], *up, *down]
            rows.append([0 if part is None else part.data_ptr() for part in parts])
        first = self.layers[0]
        epsilons = [0.0 if norm is None else norm.epsilon for norm in (first.norm1, first.qk_norm, first.norm2)]
        inner, hidden = first.down.weight.shape[1], first.down.weight.shape[0]
        return kernels.Frozen(np.array(rows), np.array(epsilons, dtype=np.float32), hidden, inner, self.heads)

    def _layer(
        self, index: int, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attend: Attend, keep: torch.Tensor | None
    ) -> torch.Tensor:
        layer = self.layers[index]
        h = layer.qkv(x, layer.norm1).view(len(x), -1, self.head_dim)
        a = attend(index, *_Heads.apply(h, self.kv_heads, layer.qk_norm, cos, sin)).flatten(1)
        if keep is not None:
            x, a = x[keep], a[keep]
        x = x + layer.out(a)
        return x + layer.down(layer.up(x, layer.norm2), self.gate)


@dataclass(frozen=True)
class Layer:
    """The weights of one layer."""

    norm1: RmsNorm
    norm2: RmsNorm
    qk_norm: RmsNorm | None
    qkv: Projection
    out: Projection
    up: Projection
    down: Projection

    @property
    def projections(self) -> tuple[Projection, ...]:
        """In the order in which a layer uses them."""
        return self.qkv, self.out, self.up, self.down

    @staticmethod
    def of(layer: Any, heads: int, kv_heads: int, of: Callable[[Sequence[torch.nn.Module]], Projection]) -> Layer:
        """From a decoder layer of transformers."""
        attention, mlp, qk_norm = layer.self_attn, layer.mlp, None
        if hasattr(attention, "q_norm"):  # one weight for all query heads, one for all key heads: side by side, one norm
            q, k = RmsNorm.of(attention.q_norm), RmsNorm.of(attention.k_norm)
            qk_norm = RmsNorm(torch.cat([q.weight.expand(heads, -1), k.weight.expand(kv_heads, -1)]), q.epsilon)
        return Layer(
            RmsNorm.of(layer.input_layernorm),
            RmsNorm.of(layer.post_attention_layernorm),
            qk_norm,
            of([attention.q_proj, attention.k_proj, attention.v_proj]),
            of([attention.o_proj]),
            of([mlp.gate_proj, mlp.up_proj]),
            of([mlp.down_proj]),
        )


@dataclass(frozen=True)
class Projection:
    """One or more linear layers of the same input as one, LoRA merged in.

    Attributes:
        weight: [out, in], W + scaling * B A, no gradient of its own; W alone where it is not merged. Its shape alone where it is packed.
        bias: [out], or None.
        lora: Of each part with LoRA: its outputs, scaling, A [r, in] and B [part, r], through which gradients go.
        merged: Whether LoRA is in the weight. In a model of lower precision it is not: an update is smaller than half a unit in the last
            place of W, and merging would round it away.
        panels: The weight as `kernels.pack` lays it out, which makes products of few rows a third faster; None where it is not packed.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    lora: tuple[tuple[slice, float, torch.Tensor, torch.Tensor], ...]
    merged: bool
    panels: torch.Tensor | None = None

    @staticmethod
    def of(linears: Sequence[torch.nn.Module], packed: bool = False) -> Projection:
        """From linear layers, of transformers or PEFT."""
        weights, biases, lora, start, merged = [], [], [], 0, True
        for linear in linears:
            base = getattr(linear, "base_layer", linear)
            weight, part = base.weight.detach(), slice(start, start + base.weight.shape[0])
            for name in getattr(linear, "active_adapters", ()):
                if name in linear.lora_A:
                    a, b, scale = linear.lora_A[name].weight, linear.lora_B[name].weight, linear.scaling[name]
                    if weight.dtype == a.dtype:
                        weight = torch.addmm(weight, b.detach(), a.detach(), alpha=scale)
                    else:
                        merged = False
                    lora.append((part, scale, a, b))
            weights.append(weight)
            biases.append(None if base.bias is None else base.bias.detach())
            start = part.stop
        bias = None if biases[0] is None else torch.cat(biases)
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        if not packed or not (compiled := kernels.serve(weight)):
            return Projection(weight, bias, tuple(lora), merged)
        shape_alone = weight.new_empty(()).expand(weight.shape)  # two copies of the weights would be too much memory
        return Projection(shape_alone, bias, tuple(lora), merged, kernels.pack(compiled, weight))

    def __call__(self, x: torch.Tensor, first: Elementwise | None = None) -> torch.Tensor:
        """x [R, in], or first(x) where something comes first, to [R, out]."""
        if torch.is_grad_enabled():
            return _Project.apply(x, self, first, *(matrix for *_, a, b in self.lora for matrix in (a, b)))
        return self.forward(x if first is None else first(x))

    def forward(self, z: torch.Tensor, rows: int | None = None) -> torch.Tensor:
        """Z [R, in] to [R, out], or to the first `rows` of it where the weight is merged and not packed; no gradient."""
        if self.panels is not None:
            y = kernels.product(kernels.library(), z, self.panels, len(self.weight))
            y = y if self.bias is None else y.add_(self.bias)
        else:
            y = kernels.multiply(z, self.weight[:rows].T, None if self.bias is None else self.bias[:rows])
        if not self.merged:
            for part, scale, a, b in self.lora:
                y[:, part] = (y[:, part] + F.linear(F.linear(z.to(a.dtype), a), b) * scale).to(y.dtype)
        return y

    def backward(
        self, x: torch.Tensor, first: Elementwise | None, dy: torch.Tensor, wanted: bool = True
    ) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Gradients of `self(x, first)`: to x, if wanted, and to A and B of each part.

        With z = first(x): dz through the merged weight, dA = s (dy B)^T z, dB = s dy^T (z A^T).
        """
        gradients = _of_lora(self, x if first is None else first(x), dy) if self.lora else []
        if not wanted:
            return None, gradients
        dx = kernels.multiply(dy, self.weight)
        if not self.merged:
            for part, scale, a, b in self.lora:
                dx = (dx + dy[:, part].to(b.dtype) @ b @ a * scale).to(x.dtype)
        return dx if first is None else first.backward(x, dx), gradients


class _Project(torch.autograd.Function):
    """z (W + s B A)^T of z = first(x).

    Kept for the way back is x alone; z is cheap to make again, and a norm's or a gate's output is memory.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: Projection, first: Elementwise | None, *matrices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, *matrices)
        ctx.projection, ctx.first = p, first
        return p.forward(x if first is None else first(x))

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple:
        x, *matrices = ctx.saved_tensors
        dx, gradients = ctx.projection.backward(x, ctx.first, dy, ctx.needs_input_grad[0])
        return dx, None, None, *(g.to(m.dtype) for g, m in zip(gradients, matrices, strict=True))


def _of_lora(p: Projection, z: torch.Tensor, dy: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of A and B of each part, in order."""
    z, dy = z.to(p.lora[0][2].dtype), dy.to(p.lora[0][2].dtype)
    downs = kernels.multiply(z, torch.cat([a for *_, a, _ in p.lora]).T)
    ups = [kernels.multiply(dy[:, part], b).mul_(scale) for part, scale, _, b in p.lora]
    ranks = [u.shape[1] for u in ups]
    das = (torch.cat(ups, dim=1).T @ z).split(ranks)
    dbs = [(d.T @ dy[:, part]).T * scale for (part, scale, *_), d in zip(p.lora, downs.split(ranks, dim=1), strict=True)]  # twice as fast
    return [matrix for pair in zip(das, dbs, strict=True) for matrix in pair]


class _Heads(torch.autograd.Function):
    """Queries, keys and values of h [R, heads + 2 * kv_heads, D]: queries and keys normed, if they are, and turned; values as they are.

    Rotary positions turn each pair (x_i, x_i+D/2) of a head by the angle of its row; the way back turns the other way.
    """

    @staticmethod
    def forward(ctx: Any, h: torch.Tensor, kv_heads: int, norm: RmsNorm | None, cos: torch.Tensor, sin: torch.Tensor) -> tuple:
        qk, v = h[:, :-kv_heads], h[:, -kv_heads:]
        ctx.save_for_backward(cos, sin, *(() if norm is None else (qk,)))
        ctx.norm = norm
        turned = _turn(torch.empty(qk.shape, dtype=h.dtype, device=h.device), qk if norm is None else norm(qk), cos, sin, 1)
        return turned[:, :-kv_heads], turned[:, -kv_heads:], v

    @staticmethod
    def backward(ctx: Any, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor) -> tuple:
        cos, sin, *qk = ctx.saved_tensors
        return backward_of_heads(dq, dk, dv, ctx.norm, *(qk or (None,)), cos, sin), None, None, None, None


def backward_of_heads(
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    norm: RmsNorm | None,
    qk: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> torch.Tensor:
    """The gradient to what queries [R, heads, D], keys and values came from, [R, heads + 2 * kv_heads, D].

    `qk` is what queries and keys were before their norm, where they have one.
    """
    heads, most = dq.shape[1], dq.shape[1] + dk.shape[1]
    dh = dq.new_empty((len(dq), most + dv.shape[1], dq.shape[2]))  # each part is written where it belongs
    _turn(dh[:, :heads], dq, cos, sin, -1)
    _turn(dh[:, heads:most], dk, cos, sin, -1)
    dh[:, most:] = dv
    if norm is not None:
        dh[:, :most] = norm.backward(qk, dh[:, :most])
    return dh


def queries_and_keys(t: Transformer, layer: Layer, x: torch.Tensor, turns: kernels.Pair) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Of a layer's input [R, H]: queries and keys before their norm [R, heads + kv_heads, D], None without one; queries [R, heads, D]."""
    rows = (t.heads + (t.kv_heads if layer.qk_norm else 0)) * t.head_dim
    h = layer.qkv.forward(layer.norm1(x), rows).view(len(x), -1, t.head_dim)
    normed = h if layer.qk_norm is None else layer.qk_norm(h)
    q = normed[:, : t.heads]
    return (None if layer.qk_norm is None else h), _turn(torch.empty(q.shape, dtype=h.dtype, device=h.device), q, *turns, 1)


def _turn(out: torch.Tensor, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, way: int) -> torch.Tensor:
    """x turned, into `out`, which it returns."""
    if (compiled := kernels.serve(x)) and cos.shape[-1] == x.shape[-1]:
        return kernels.rotate(compiled, out, x, cos, sin, way)
    half = x.shape[-1] // 2
    sin = sin[..., :half]  # its second half repeats the first
    torch.mul(x, cos, out=out)
    out[..., :half].addcmul_(x[..., half:], sin, value=-way)
    out[..., half:].addcmul_(x[..., :half], sin, value=way)
    return out
