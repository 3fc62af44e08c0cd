"""Kernels: norms, gates, rotations, softmax, attention, products; and with those all layers of a model that only reads.

PyTorch takes one pass over memory for each small operation; kernels.c takes one for all of them. Decoding multiplies few rows with all
weights, which must come from memory each time; there kernels.c fetches the next while it multiplies. It is compiled once, for this very
processor, by the C compiler that the machine has, and kept in the cache. Where there is none, or the model is not float32 on CPU, PyTorch
does the same, slower (docs/log.md). `EARNEST_KERNELS=off` leaves them out.
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
from typing import Any

import numpy as np
import torch

from earnest.engine.models import cache_folder

Pair = tuple[torch.Tensor, torch.Tensor]  # keys and values
Traced = Sequence[tuple[torch.Tensor, ...]]  # of each layer where its input goes, what was seen, what stands between attention and MLP

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-shared", "-fPIC")
COMPILERS = ("cc", "gcc", "clang")
LANES, AVX2_LANES = 16, 8  # numbers of a vector in kernels.c, at most and with AVX2
TILE_ROWS, TILE_SCORES = 48, 2**18  # queries of a tile of attention, and scores: a megabyte, which near memory holds
BACK_THREADS = 8  # on the way back each thread has gradients of all keys and values
KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}
ARGUMENTS = {  # p for an array, i for a count, f for a number
    "rms_norm": "ppipiiif",
    "rms_norm_back": "ppippiiif",
    "gate": "ppii",
    "gate_back": "pppii",
    "rotate": "pipippiiif",
    "exponentials": "pppppfii",
    "attend": "pppi",
    "attend_back": "ppppippi",
    "pack": "ppii",
    "product": "ppipiiii",
    "multiply": "ppipiiiiii",
    "run_layers": "ppipippippiipppi",
    "largest": "ppii",
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
        compiled.room_of.argtypes, compiled.room_of.restype = [ctypes.c_void_p], ctypes.c_int64
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


def rotate(of: ctypes.CDLL, y: torch.Tensor, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, way: int) -> torch.Tensor:
    """Rotary positions of x [R, heads, D] into y, each of whose rows lies in one piece; cos and sin [R, 1, D], contiguous."""
    x = _rows(x)
    of.rotate(y.data_ptr(), y.stride(0), x.data_ptr(), x.stride(0), cos.data_ptr(), sin.data_ptr(), *x.shape, way)
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


def multiply(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, into: torch.Tensor | None = None) -> torch.Tensor:
    """X w + bias, [R, out], of x [R, in], w [in, out] or a transposed [out, in], and bias [out]; no gradient.

    With vectors of eight numbers (AVX2) ours is 5% faster than MKL, which copies both matrices first, where this lays out no more than a
    panel of w at a time (docs/log.md). With other vectors, or without kernels, PyTorch does it.

    Args:
        x: Float.
        w: Of the same kind.
        bias: None for none.
        into: Where the product goes, contiguous, without a bias; None makes room.
    """
    lies_so = len(x) > 0 and x.dtype == w.dtype and 1 in w.stride()
    compiled = serve(x) if lies_so else None
    if not compiled or ctypes.c_int64.in_dll(compiled, "panel_lanes").value != AVX2_LANES:
        return torch.mm(x, w, out=into) if bias is None else torch.addmm(bias, x, w)
    x, y = _rows(x), x.new_empty((len(x), w.shape[1])) if into is None else into
    assert x.shape[1] == w.shape[0] and y.shape == (len(x), w.shape[1]) and y.is_contiguous()
    at = (y.data_ptr(), x.data_ptr(), x.stride(0), w.data_ptr(), *w.stride())
    compiled.multiply(*at, *y.shape, x.shape[1], torch.get_num_threads())
    return y if bias is None else y.add_(bias)


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


class Seen(ctypes.Structure):
    """What attention is told; see kernels.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("q", "keys", "values", "seen", "starts", "counts", "firsts", "shared")),
        *((name, ctypes.c_int64) for name in ("q_apart", "k_apart", "v_apart", "tiles", "kv_heads", "groups", "width", "most", "tall")),
    )


@dataclass(frozen=True)
class Sight:
    """What each of N nodes sees: of `seen`, so many from there on. Neighbours that see much the same are taken together, in T tiles.

    Attributes:
        seen: int32 [...], slots.
        starts: int64 [N].
        counts: int64 [N], at least 1.
        firsts: int64 [T + 1], the first node of each tile, and N.
        shared: int64 [T], how many slots the nodes of a tile have in common, the first ones of each; a node may see fewer.
    """

    seen: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    firsts: torch.Tensor
    shared: torch.Tensor

    @staticmethod
    def of(paths: Sequence[np.ndarray], path: np.ndarray, counts: np.ndarray, groups: int) -> Sight:
        """From paths of slots: node i sees the first `counts[i]` of path `path[i]`, with each of the query heads of a key head."""
        starts = np.cumsum([0, *(len(slots) for slots in paths[:-1])])[path]
        columns = (starts, counts.astype(np.int64), *_tiles(paths, path.tolist(), counts.tolist(), groups))
        return Sight(torch.from_numpy(np.concatenate(paths).astype(np.int32)), *map(torch.from_numpy, columns))


def _tiles(paths: Sequence[np.ndarray], path: Sequence[int], counts: Sequence[int], groups: int) -> tuple[np.ndarray, np.ndarray]:
    """`firsts` and `shared` of a Sight.

    A tile of n nodes that share m slots reads them once in place of n times. Of nodes on one path the next one sees all that the others
    see, and m grows; a node that sees other slots joins where that saves more than the tile loses, as no more can be shared than what it
    sees too. There are some tiles for each thread.
    """
    room = max(1, TILE_SCORES // (max(counts) + LANES))
    tall = max(1, min(-(-len(path) // (4 * torch.get_num_threads())), min(TILE_ROWS, room) // groups))
    firsts, shared, lead = [0], [counts[0]], 0  # the node that sees most of the tile
    for node in range(1, len(path)):
        before, nodes, count = shared[-1], node - firsts[-1], counts[node]
        common = min(before, count)
        if path[node] != path[lead]:
            apart = np.flatnonzero(paths[path[node]][:common] != paths[path[lead]][:common])
            common = int(apart[0]) if len(apart) else common
        follows = common == before == counts[lead] and nodes * (count - before) <= LANES  # what the others do not see of it is little
        if nodes < tall and (follows or common == count or nodes * common > (nodes - 1) * before):
            shared[-1] = max(count, before) if follows or common == count else common
        else:
            firsts.append(node)
            shared.append(count)
        lead = node if firsts[-1] == node or count > counts[lead] else lead
    return np.array([*firsts, len(path)]), np.array(shared)


@dataclass(frozen=True)
class Frozen:
    """The layers of a model that only reads.

    Attributes:
        weights: int64 [layers, 11], addresses of what makes a layer up, in the order of kernels.c; 0 for what it has not.
        epsilons: float32 [3], of the first norm, the norm of heads and the second.
        hidden: Numbers of a hidden state.
        inner: Numbers between the gate and what follows.
        heads: Query heads.
    """

    weights: np.ndarray
    epsilons: np.ndarray
    hidden: int
    inner: int
    heads: int


def run_layers(
    of: ctypes.CDLL,
    frozen: Frozen,
    x: torch.Tensor,
    turns: Pair,
    pool: Sequence[Pair],
    slots: np.ndarray,
    sight: Sight,
    keep: np.ndarray | None = None,
    traced: Traced | None = None,
) -> torch.Tensor:
    """Run N nodes through all layers in one call.

    Args:
        of: The kernels.
        frozen: The layers.
        x: [N, hidden], the nodes' embeddings, which are overwritten.
        turns: Cosines and sines of the nodes' positions, [N, D].
        pool: Of each layer keys and values, [slots, kv_heads, D].
        slots: int [N], where the nodes' own go.
        sight: What each sees there.
        keep: The nodes whose hidden state is wanted, in rising order; None for all.
        traced: Where a trace of the pass is to be left; the last layer's last part only of the nodes to keep.

    Returns:
        [len(keep), hidden], not normed.
    """
    nodes, (_, kv_heads, width), threads = len(x), pool[0][0].shape, torch.get_num_threads()
    traced = [()] * len(pool) if traced is None else traced
    stores = np.array(
        [[store.data_ptr() for store in (*pair, *trace)] + [0] * (3 - len(trace)) for pair, trace in zip(pool, traced, strict=True)]
    )
    layers, slots = np.concatenate([frozen.weights, stores], axis=1), np.ascontiguousarray(slots, dtype=np.int64)
    keep = np.arange(nodes) if keep is None else np.ascontiguousarray(keep, dtype=np.int64)
    seen = _seen(x.new_empty((0, frozen.heads, width)), pool[0], sight)
    sizes = frozen.hidden + frozen.heads * width + 2 * (frozen.heads + 2 * kv_heads) * width + 3 * frozen.inner
    room, desks = x.new_empty(nodes * sizes), torch.empty(of.room_of(seen) * threads, dtype=torch.uint8)
    at = (x.data_ptr(), layers.ctypes.data, len(layers), seen, nodes, slots.ctypes.data, keep.ctypes.data, len(keep))
    rest = (*(turn.data_ptr() for turn in turns), frozen.hidden, frozen.inner, frozen.epsilons.ctypes.data)
    of.run_layers(*at, *rest, room.data_ptr(), desks.data_ptr(), threads)
    return x[: len(keep)]


def largest(x: torch.Tensor) -> torch.Tensor:
    """int64 [R], the place of the largest of each row of x [R, V], the first of equal ones; PyTorch's argmax takes ten times as long."""
    if not (compiled := serve(x)):
        return x.argmax(dim=-1)
    x = x.contiguous()
    places = torch.empty(len(x), dtype=torch.int64)
    compiled.largest(places.data_ptr(), x.data_ptr(), *x.shape)
    return places


def attend(of: ctypes.CDLL, q: torch.Tensor, pool: Pair, sight: Sight) -> torch.Tensor:
    """Softmax attention of N nodes, each over slots of its own choice.

    Args:
        of: The kernels.
        q: [N, heads, D], D a multiple of `LANES`.
        pool: Keys and values, [slots, kv_heads, D].
        sight: What each sees.

    Returns:
        [N, heads, D]; no node's numbers depend on which others there are, to the bit.
    """
    q, pool, out = _rows(q), tuple(map(_rows, pool)), q.new_empty(q.shape)
    seen, threads = _seen(q, pool, sight), torch.get_num_threads()
    room = torch.empty(of.room_of(seen) * threads, dtype=torch.uint8)
    of.attend(out.data_ptr(), seen, room.data_ptr(), threads)
    return out


def attend_back(of: ctypes.CDLL, d_out: torch.Tensor, q: torch.Tensor, pool: Pair, sight: Sight) -> tuple[torch.Tensor, Pair]:
    """The gradients to q, and to keys and values as they lie in the pool.

    Each thread adds up its own share of the latter, so their last digits depend on how many there are.
    """
    threads = min(torch.get_num_threads(), BACK_THREADS)
    q, pool, dq, d_out = _rows(q), tuple(map(_rows, pool)), q.new_empty(q.shape), d_out.contiguous()
    d_keys, d_values = (store.new_zeros((threads, *store.shape)) for store in pool)
    seen = _seen(q, pool, sight)
    room = torch.empty(of.room_of(seen) * threads, dtype=torch.uint8)
    at = (dq.data_ptr(), d_keys.data_ptr(), d_values.data_ptr(), d_out.data_ptr())
    of.attend_back(*at, len(pool[0]), seen, room.data_ptr(), threads)
    return dq, (d_keys.sum(dim=0), d_values.sum(dim=0))


def _seen(q: torch.Tensor, pool: Pair, sight: Sight) -> Any:
    (keys, values), (_, heads, width), kv_heads = pool, q.shape, pool[0].shape[1]
    arrays = (q, keys, values, sight.seen, sight.starts, sight.counts, sight.firsts, sight.shared)
    most, tall = int(sight.counts.max()) + LANES - 1, int(sight.firsts.diff().max())
    numbers = (q.stride(0), keys.stride(0), values.stride(0), len(sight.shared), kv_heads, heads // kv_heads, width, most, tall)
    return ctypes.byref(Seen(*(array.data_ptr() for array in arrays), *numbers))
