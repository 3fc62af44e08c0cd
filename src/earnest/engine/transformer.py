"""The transformer of the Llama family, kept by hand: one forward pass for sampling, evaluation and training.

Llama, Qwen2 and Qwen3 (RMSNorm, rotary positions, grouped-query attention, gated MLP) over weights with LoRA merged in and the
projections of one input fused. A node is a row; which nodes see which is the caller's `attend`, so prompts, branches and whole prefix
trees run through the same code. It is tested against transformers' own forward pass and PEFT's own gradients.

With LoRA merged, a layer costs what the base model costs, forward and backward; the gradients of A and B are four thin products beside
it. What training keeps in memory is the input of each projection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from transformers.activations import SiLUActivation

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = frozenset({"llama", "qwen2", "qwen3"})

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


class Transformer:
    """A model as it is at one moment: after a change of weights, make another.

    Args:
        model: A causal language model of the Llama family, LoRA layers injected or not.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config, body = model.config, model.model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.rotary, self.embedding = body.rotary_emb, body.embed_tokens.weight.detach()
        self.head = Projection.of([model.lm_head])
        self.norm, self.act = body.norm, body.layers[0].mlp.act_fn
        self.layers = [Layer.of(layer) for layer in body.layers]
        self.device, self.dtype = self.embedding.device, self.embedding.dtype

    def run(self, tokens: torch.Tensor, depths: torch.Tensor, attend: Attend, keep: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states [R, H] of R nodes, normed, as the head wants them.

        Args:
            tokens: int64 [R].
            depths: int64 [R], their positions.
            attend: Given layer, queries [R, heads, D], keys and values [R, kv_heads, D]; returns [R, heads, D].
            keep: The nodes whose hidden state is wanted; None for all.
        """
        x = F.embedding(tokens, self.embedding)
        cos, sin = (part[0, :, None] for part in self.rotary(x[None], depths[None]))
        for index, layer in enumerate(self.layers):
            h = layer.qkv(rms_norm(x, layer.norm1)).view(len(x), -1, self.head_dim)
            q, k, v = h.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
            if layer.q_norm is not None:
                q, k = rms_norm(q, layer.q_norm), rms_norm(k, layer.k_norm)
            a = attend(index, rotate(q, cos, sin), rotate(k, cos, sin), v).flatten(1)
            if keep is not None and index == len(self.layers) - 1:
                x, a = x[keep], a[keep]
            x = x + layer.out(a)
            x = x + layer.down(gated(layer.up(rms_norm(x, layer.norm2)), self.act))
        return rms_norm(x, self.norm)


@dataclass(frozen=True)
class Layer:
    """The weights of one layer."""

    norm1: torch.nn.Module
    norm2: torch.nn.Module
    q_norm: torch.nn.Module | None
    k_norm: torch.nn.Module | None
    qkv: Projection
    out: Projection
    up: Projection
    down: Projection

    @staticmethod
    def of(layer: Any) -> Layer:
        """From a decoder layer of transformers."""
        attention, mlp = layer.self_attn, layer.mlp
        return Layer(
            layer.input_layernorm,
            layer.post_attention_layernorm,
            getattr(attention, "q_norm", None),
            getattr(attention, "k_norm", None),
            Projection.of([attention.q_proj, attention.k_proj, attention.v_proj]),
            Projection.of([attention.o_proj]),
            Projection.of([mlp.gate_proj, mlp.up_proj]),
            Projection.of([mlp.down_proj]),
        )


@dataclass(frozen=True)
class Projection:
    """One or more linear layers of the same input as one, LoRA merged in.

    Attributes:
        weight: [out, in], W + scaling * B A, no gradient of its own.
        bias: [out], or None.
        lora: Of each part with LoRA: its first and last output, scaling, A [r, in] and B [part, r], through which gradients go.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    lora: tuple[tuple[slice, float, torch.Tensor, torch.Tensor], ...]

    @staticmethod
    def of(linears: Sequence[torch.nn.Module]) -> Projection:
        """From linear layers, of transformers or PEFT."""
        weights, biases, lora, start = [], [], [], 0
        for linear in linears:
            base = getattr(linear, "base_layer", linear)
            weight, part = base.weight.detach(), slice(start, start + base.weight.shape[0])
            for name in getattr(linear, "active_adapters", ()):
                if name in linear.lora_A:
                    a, b, scale = linear.lora_A[name].weight, linear.lora_B[name].weight, linear.scaling[name]
                    weight = torch.addmm(weight, b.detach().to(weight.dtype), a.detach().to(weight.dtype), alpha=scale)
                    lora.append((part, scale, a, b))
            weights.append(weight)
            biases.append(None if base.bias is None else base.bias.detach())
            start = part.stop
        bias = None if biases[0] is None else torch.cat(biases)
        return Projection(weights[0] if len(weights) == 1 else torch.cat(weights), bias, tuple(lora))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, in] to [R, out]."""
        if self.lora and torch.is_grad_enabled():
            return _Lora.apply(x, self, *(matrix for *_, a, b in self.lora for matrix in (a, b)))
        return F.linear(x, self.weight, self.bias)


class _Lora(torch.autograd.Function):
    """x (W + s B A)^T: dx through the merged weight, dA = s (dy B)^T x, dB = s dy^T (x A^T)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: Projection, *matrices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, *matrices)
        ctx.projection = p
        return F.linear(x, p.weight, p.bias)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple:
        x, *matrices = ctx.saved_tensors
        p, own = ctx.projection, [m.to(x.dtype) for m in matrices]
        down = F.linear(x, torch.cat(own[::2]))
        ups = [dy[:, part] @ b * scale for (part, scale, *_), b in zip(p.lora, own[1::2], strict=True)]
        das = (torch.cat(ups, dim=1).T @ x).split([u.shape[1] for u in ups])
        gradients: list[torch.Tensor] = []
        for (part, scale, *_), da, xa in zip(p.lora, das, down.split([u.shape[1] for u in ups], dim=1), strict=True):
            gradients += [da, (dy[:, part].T @ xa) * scale]
        dx = dy @ p.weight if ctx.needs_input_grad[0] else None
        return dx, None, *(g.to(m.dtype) for g, m in zip(gradients, matrices, strict=True))


def rms_norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """RMSNorm with the weights of transformers' module, in its precision."""
    return _RmsNorm.apply(x, norm.weight.detach(), norm.variance_epsilon)


class _RmsNorm(torch.autograd.Function):
    """w x / rms(x); with u = w dy and n = x / rms(x), dx = (u - n mean(u n)) / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        wide = x.float()
        inverse = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return weight * (wide * inverse).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple:
        x, weight, inverse = ctx.saved_tensors
        n = x.float() * inverse
        u = (dy * weight).float()
        mean = (u * n).mean(dim=-1, keepdim=True)
        return torch.addcmul(u, n, mean, value=-1).mul_(inverse).to(x.dtype), None, None


def gated(both: torch.Tensor, act: Any) -> torch.Tensor:
    """act(gate) * up of [R, 2 * M], gate first."""
    if isinstance(act, (torch.nn.SiLU, SiLUActivation)):
        return _SwiGlu.apply(both)
    gate, up = both.chunk(2, dim=-1)
    return act(gate) * up


class _SwiGlu(torch.autograd.Function):
    """silu(g) u, keeping only its input: d silu(g) = s (1 + g (1 - s)) at s = sigmoid(g)."""

    @staticmethod
    def forward(ctx: Any, both: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        (both,) = ctx.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        out = torch.empty_like(both)
        d_gate, d_up = out.chunk(2, dim=-1)
        torch.mul(F.silu(gate), dy, out=d_up)
        torch.mul(torch.ops.aten.silu_backward(dy, gate), up, out=d_gate)
        return out


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of x [R, heads, D] at the angles of its rows."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin
