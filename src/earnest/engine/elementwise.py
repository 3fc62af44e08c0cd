"""Norms and gates, forward and backward: what stands before a projection and is made again on the way back, since its output is memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from transformers.activations import SiLUActivation

from earnest.engine import kernels


class RmsNorm:
    """w x / rms(x) over the last dimension, in fp32 as transformers does it."""

    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        self.weight, self.epsilon = weight, epsilon

    @staticmethod
    def of(norm: Any) -> RmsNorm:
        """From a module of transformers."""
        return RmsNorm(norm.weight.detach(), norm.variance_epsilon)

    def _inverse(self, x: torch.Tensor) -> torch.Tensor:
        mean = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        return mean.add_(self.epsilon).rsqrt_()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Of [..., H]."""
        if (compiled := kernels.serve(x)) and x.dim() == self.weight.dim() + 1:
            return kernels.rms_norm(compiled, x, self.weight, self.epsilon)
        wide = x.float()
        return (wide * self._inverse(wide)).to(x.dtype).mul_(self.weight)

    def backward(self, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """With u = w dy and n = x / rms(x): dx = (u - n mean(u n)) / rms(x)."""
        if (compiled := kernels.serve(x)) and x.dim() == self.weight.dim() + 1:
            return kernels.rms_norm_back(compiled, x, self.weight, dy, self.epsilon)
        wide = x.float()
        inverse = self._inverse(wide)
        n, u = wide * inverse, (dy * self.weight).float()
        mean = (u * n).mean(dim=-1, keepdim=True)
        return u.addcmul_(n, mean, value=-1).mul_(inverse).to(x.dtype)


class Gate:
    """act(g) u of both, [R, 2 * M], g first."""

    def __init__(self, act: Any) -> None:
        self.act, self.silu = act, isinstance(act, (torch.nn.SiLU, SiLUActivation))

    def __call__(self, both: torch.Tensor) -> torch.Tensor:
        """[R, M]."""
        if self.silu and (compiled := kernels.serve(both)):
            return kernels.gate(compiled, both)
        g, u = both.chunk(2, dim=-1)
        return F.silu(g).mul_(u) if self.silu else self.act(g) * u

    def backward(self, both: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """The gradient to both."""
        if not self.silu:
            with torch.enable_grad():
                both = both.detach().requires_grad_()
                return torch.autograd.grad(self(both), both, dy)[0]
        if compiled := kernels.serve(both):
            return kernels.gate_back(compiled, both, dy)
        (g, u), out = both.chunk(2, dim=-1), torch.empty_like(both)
        d_g, d_u = out.chunk(2, dim=-1)
        torch.mul(F.silu(g), dy, out=d_u)
        torch.mul(torch.ops.aten.silu_backward(dy, g), u, out=d_g)
        return out


Elementwise = RmsNorm | Gate


class Inner(torch.autograd.Function):
    """A norm on its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, function: Elementwise) -> torch.Tensor:
        """Function(x)."""
        ctx.save_for_backward(x)
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple:
        """Of x."""
        (x,) = ctx.saved_tensors
        return ctx.function.backward(x, dy), None
