"""What lies between the products of matrices, compiled: norms, gates, rotations, softmax and attention; and products of few rows.

PyTorch takes one pass over memory for each small operation; kernels.c takes one for all of them. Decoding multiplies few rows with all
weights, which must come from memory each time; there kernels.c fetches the next while it multiplies. It is compiled once, for this very
processor, by the C compiler that the machine has, and kept in the cache. Where there is none, or the model is not float32 on CPU, PyTorch
does the same, a quarter to a third slower (docs/log.md). `EARNEST_KERNELS=off` leaves them out.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from earnest.engine.models import cache_folder

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-shared", "-fPIC")
COMPILERS = ("cc", "gcc", "clang")
LANES = 16  # numbers of a vector in kernels.c, at most
BACK_THREADS = 8  # on the way back each thread has gradients of all keys and values
KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}
ARGUMENTS = {  # p for an array, i for a count, f for a number
    "rms_norm": "ppipiiif",
    "rms_norm_back": "ppippiiif",
    "gate": "ppii",
    "gate_back": "pppii",
    "rotate": "ppippiiif",
    "exponentials": "pppppfii",
    "append": "ppipipipiii",
    "attend": "ppippipppiiiipii",
    "attend_back": "pppppippipppiiiipii",
    "pack": "ppii",
    "product": "ppipiiii",
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled kernels; None where they cannot be had."""
    if os.environ.get("EARNEST_KERNELS", "").lower() in ("off", "0", "no"):
        return None
    for compiler in filter(None, map(shutil.which, COMPILERS)):
        try:
            compiled = ctypes.CDLL(str(_compiled(compiler)))
        except (OSError, RuntimeError, subprocess.SubprocessError):  # no OpenMP, no home, no room, no right to write: PyTorch does it all
            continue
        for name, kinds in ARGUMENTS.items():
            function = getattr(compiled, name)
            function.argtypes, function.restype = [KINDS[kind] for kind in kinds], None
        return compiled
    return None


def _compiled(compiler: str) -> Path:
    """The shared library for this source, compiler and processor, compiled unless it is there."""
    about = [SOURCE.read_bytes(), repr(FLAGS).encode(), compiler.encode(), _processor().encode()]
    path = cache_folder() / f"kernels-{hashlib.sha256(b'|'.join(about)).hexdigest()[:16]}.so"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch) / "kernels.so"
            subprocess.run([compiler, *FLAGS, "-o", made, SOURCE, "-lm"], check=True, capture_output=True, timeout=120)
            os.replace(made, path)
    return path


def _processor() -> str:
    """What the compiler tunes for: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def serve(x: torch.Tensor, head_dim: int = LANES) -> ctypes.CDLL | None:
    """The kernels, if they serve a tensor: float32 on CPU, its last dimension in one piece; for attention, heads of whole vectors."""
    fits = x.dtype == torch.float32 and x.device.type == "cpu" and x.stride(-1) == 1 and head_dim % LANES == 0
    return library() if fits else None


def _rows(x: torch.Tensor) -> torch.Tensor:
    """The tensor, each of its rows in one piece, whatever lies between them."""
    return x if x[0].is_contiguous() else x.contiguous()


def rms_norm(of: ctypes.CDLL, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """W x / rms(x) of x [R, H] and weight [H], or of x [R, heads, D] and weight [heads, D]."""
    x, y, heads = _rows(x), x.new_empty(x.shape), x.shape[1] if x.dim() == 3 else 1
    of.rms_norm(y.data_ptr(), x.data_ptr(), x.stride(0), weight.data_ptr(), len(x), heads, x.shape[-1], epsilon)
    return y


def rms_norm_back(of: ctypes.CDLL, x: torch.Tensor, weight: torch.Tensor, dy: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The gradient to x."""
    x, dx, dy, heads = _rows(x), x.new_empty(x.shape), dy.contiguous(), x.shape[1] if x.dim() == 3 else 1
    at = (dx.data_ptr(), x.data_ptr(), x.stride(0), weight.data_ptr(), dy.data_ptr())
    of.rms_norm_back(*at, len(x), heads, x.shape[-1], epsilon)
    return dx


def gate(of: ctypes.CDLL, both: torch.Tensor) -> torch.Tensor:
    """silu(g) u [R, M] of [R, 2 * M], g first."""
    both, y = both.contiguous(), both.new_empty((len(both), both.shape[1] // 2))
    of.gate(y.data_ptr(), both.data_ptr(), *y.shape)
    return y


def gate_back(of: ctypes.CDLL, both: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The gradient to both."""
    both, d_both, dy = both.contiguous(), both.new_empty(both.shape), dy.contiguous()
    of.gate_back(d_both.data_ptr(), both.data_ptr(), dy.data_ptr(), *dy.shape)
    return d_both


def rotate(of: ctypes.CDLL, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, way: int) -> torch.Tensor:
    """Rotary positions of x [R, heads, D]; cos and sin [R, 1, D], contiguous."""
    x, y = _rows(x), x.new_empty(x.shape)
    of.rotate(y.data_ptr(), x.data_ptr(), x.stride(0), cos.data_ptr(), sin.data_ptr(), *x.shape, way)
    return y


def pack(of: ctypes.CDLL, weight: torch.Tensor) -> torch.Tensor:
    """The weight [out, in] laid out for `product`: [panels, in, outputs of a panel], with zeros where the last has too few."""
    weight, width = weight.contiguous(), ctypes.c_int64.in_dll(of, "panel_width").value
    panels = weight.new_empty((-(-len(weight) // width), weight.shape[1], width))
    of.pack(panels.data_ptr(), weight.data_ptr(), *weight.shape)
    return panels


def product(of: ctypes.CDLL, x: torch.Tensor, panels: torch.Tensor, out: int) -> torch.Tensor:
    """X W^T, [R, out], of x [R, in] and a packed weight. No row depends on which others there are, to the bit."""
    x, y = _rows(x), x.new_empty((len(x), out))
    of.product(y.data_ptr(), x.data_ptr(), x.stride(0), panels.data_ptr(), *y.shape, x.shape[1], torch.get_num_threads())
    return y


@dataclass(frozen=True)
class Exponentials:
    """e^z of z = (x - max) / temperature, of rows [R, V].

    Attributes:
        powers: [R, V].
        most: The max of x, [R, 1].
        total: Sum of the powers, [R, 1].
        mixed: Sum of e^z z, [R, 1], if asked for; the entropy of the softmax is log(total) - mixed / total.
    """

    powers: torch.Tensor
    most: torch.Tensor
    total: torch.Tensor
    mixed: torch.Tensor | None


def exponentials(x: torch.Tensor, temperature: float = 1.0, into: torch.Tensor | None = None, mix: bool = True) -> Exponentials:
    """What softmax and its entropy are made of.

    Args:
        x: float [R, V].
        temperature: Not 0.
        into: Where the powers go, which may be x itself; None makes room.
        mix: Whether `mixed` is wanted; without the kernels it costs another pass and a copy.
    """
    x = x.contiguous()
    into = torch.empty_like(x) if into is None else into
    if not (compiled := serve(x)):
        most = x.amax(dim=-1, keepdim=True)
        z = torch.sub(x, most, out=into).div_(temperature)
        finite = z.clamp(min=-1e4) if mix else None  # 0 times -inf is no number
        powers = z.exp_()
        mixed = None if finite is None else finite.mul_(powers).sum(dim=-1, keepdim=True)
        return Exponentials(powers, most, powers.sum(dim=-1, keepdim=True), mixed)
    most, total, mixed = (x.new_empty((len(x), 1)) for _ in range(3))
    at = (into.data_ptr(), x.data_ptr(), most.data_ptr(), total.data_ptr(), mixed.data_ptr())
    compiled.exponentials(*at, 1 / temperature, *x.shape)
    return Exponentials(into, most, total, mixed)


def append(of: ctypes.CDLL, pool: Pair, new: Pair, slots: torch.Tensor) -> None:
    """Keys and values [N, kv_heads, D] into slots, int32 [N], of a pool [kv_heads, capacity, D]."""
    (keys, values), (k, v), (_, capacity, width) = pool, map(_rows, new), pool[0].shape
    at = (keys.data_ptr(), values.data_ptr(), capacity, k.data_ptr(), k.stride(0), v.data_ptr(), v.stride(0), slots.data_ptr())
    of.append(*at, len(k), k.shape[1], width)


@dataclass(frozen=True)
class Sight:
    """What each of N nodes sees: of `seen`, so many from there on.

    Attributes:
        seen: int32 [...], slots.
        starts: int64 [N].
        counts: int64 [N], at least 1.
        most: The largest of them.
    """

    seen: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    most: int

    @staticmethod
    def of(paths: Sequence[np.ndarray], path: np.ndarray, counts: np.ndarray) -> Sight:
        """From paths of slots: node i sees the first `counts[i]` of path `path[i]`."""
        starts = np.cumsum([0, *(len(slots) for slots in paths[:-1])])[path]
        seen = torch.from_numpy(np.concatenate(paths).astype(np.int32))
        return Sight(seen, torch.from_numpy(starts), torch.from_numpy(counts.astype(np.int64)), int(counts.max()))

    @property
    def apiece(self) -> int:
        """Numbers that one query's weights take: the kernels work on `LANES` at a time."""
        return self.most + LANES - 1


def attend(of: ctypes.CDLL, q: torch.Tensor, pool: Pair, sight: Sight) -> torch.Tensor:
    """Softmax attention of N nodes, each over slots of its own choice.

    Args:
        of: The kernels.
        q: [N, heads, D], D a multiple of `LANES`.
        pool: Keys and values, [kv_heads, capacity, D].
        sight: What each sees.

    Returns:
        [N, heads, D].
    """
    q, out, room = _rows(q), q.new_empty(q.shape), _room(q, pool, sight, 1)
    of.attend(out.data_ptr(), *_attention(q, pool, sight), room.data_ptr(), sight.apiece, torch.get_num_threads())
    return out


def attend_back(of: ctypes.CDLL, d_out: torch.Tensor, q: torch.Tensor, pool: Pair, sight: Sight) -> tuple[torch.Tensor, Pair]:
    """The gradients to q, and to keys and values as they lie in the pool.

    Each thread adds up its own share of the latter, so their last digits depend on how many there are.
    """
    threads = min(torch.get_num_threads(), BACK_THREADS)
    q, dq, d_out, room = _rows(q), q.new_empty(q.shape), d_out.contiguous(), _room(q, pool, sight, 2)
    d_keys, d_values = (store.new_zeros((threads, *store.shape)) for store in pool)
    at = (dq.data_ptr(), d_keys.data_ptr(), d_values.data_ptr(), d_out.data_ptr())
    of.attend_back(*at, *_attention(q, pool, sight), room.data_ptr(), sight.apiece, threads)
    return dq, (d_keys.sum(dim=0), d_values.sum(dim=0))


def _room(q: torch.Tensor, pool: Pair, sight: Sight, rooms: int) -> torch.Tensor:
    groups = q.shape[1] // pool[0].shape[0]
    return q.new_empty(torch.get_num_threads() * rooms * groups * sight.apiece)


def _attention(q: torch.Tensor, pool: Pair, sight: Sight) -> tuple[int, ...]:
    (keys, values), (nodes, heads, width), (kv_heads, capacity, _) = pool, q.shape, pool[0].shape
    seen = (sight.seen.data_ptr(), sight.starts.data_ptr(), sight.counts.data_ptr())
    at = (q.data_ptr(), q.stride(0), keys.data_ptr(), values.data_ptr(), capacity)
    return *at, *seen, nodes, kv_heads, heads // kv_heads, width
