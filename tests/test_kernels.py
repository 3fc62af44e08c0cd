"""The compiled kernels against PyTorch doing the same, and a machine that cannot compile."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earnest.engine import kernels
from earnest.engine.attention import plan, tree_attention
from earnest.engine.elementwise import Gate, RmsNorm
from earnest.engine.policy import Trajectory
from earnest.engine.sampler import Sampling, sample
from earnest.engine.transformer import _turn
from earnest.engine.tree import sorted_tree

WIDTHS = (2, 7, 16, 33, 64, 128, 576)
compiled = pytest.mark.skipif(kernels.library() is None, reason="no C compiler with OpenMP here")


@pytest.fixture
def without(monkeypatch):
    """A function that runs another one without the kernels."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "library", lambda: None)
            return function()

    return run


def close(a, b, relative=2e-6):
    scale = max(float(b.detach().abs().max()), 1e-6)
    assert a.shape == b.shape and float((a - b).detach().abs().max()) <= relative * scale


def by_autograd(function, x, dy):
    x = x.double().requires_grad_()
    return torch.autograd.grad(function(x), x, dy.double())[0].float()


@compiled
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_a_norm_and_its_way_back_are_those_of_autograd(width, rows):
    torch.manual_seed(0)
    x, dy, norm = torch.randn(rows, width) * 3, torch.randn(rows, width), RmsNorm(torch.randn(width), 1e-5)
    plain = lambda x: F.rms_norm(x, (width,), norm.weight.to(x.dtype), 1e-5)  # noqa: E731
    close(norm(x), plain(x))
    close(norm.backward(x, dy), by_autograd(plain, x, dy), 1e-4)


@compiled
def test_a_norm_of_heads_takes_them_out_of_wider_rows():
    torch.manual_seed(0)
    wide, weight, dy = torch.randn(6, 5, 16), torch.randn(3, 16), torch.randn(6, 3, 16)
    part, norm = wide[:, :3], RmsNorm(weight, 1e-6)
    plain = lambda x: F.rms_norm(x, (16,), None, 1e-6) * weight.to(x.dtype)  # noqa: E731
    close(norm(part), plain(part))
    close(norm.backward(part, dy), by_autograd(plain, part, dy), 1e-5)


@compiled
@pytest.mark.parametrize("width", WIDTHS)
def test_a_gate_and_its_way_back_are_those_of_autograd(width):
    torch.manual_seed(0)
    both, dy, gate = torch.randn(9, 2 * width) * 6, torch.randn(9, width), Gate(torch.nn.SiLU())
    both[0, 0], both[1, 0] = 300.0, -300.0  # beyond what e^x holds
    plain = lambda x: F.silu(x[:, :width]) * x[:, width:]  # noqa: E731
    close(gate(both), plain(both))
    close(gate.backward(both, dy), by_autograd(plain, both, dy))


@compiled
@pytest.mark.parametrize("width", [2, 16, 64, 80])
def test_a_turn_is_that_of_pytorch_and_its_way_back_undoes_it(width, without):
    torch.manual_seed(0)
    wide, angle = torch.randn(7, 5, width), torch.randn(7, 1, width // 2).repeat(1, 1, 2)
    x, cos, sin = wide[:, 1:4], angle.cos(), angle.sin()
    into = torch.zeros(7, 6, width)[:, 2:5]
    turned = _turn(into, x, cos, sin, 1)
    close(turned, without(lambda: _turn(torch.empty(7, 3, width), x, cos, sin, 1)))
    close(_turn(torch.empty(7, 3, width), turned, cos, sin, -1), x)


@compiled
@settings(max_examples=50)
@given(st.integers(1, 5), st.integers(1, 3000), st.floats(0.05, 5), st.integers(0, 100))
def test_exponentials_are_those_of_double_precision(rows, width, temperature, seed):
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 10
    z = (x.double() - x.double().amax(1, keepdim=True)) / temperature
    for e in (kernels.exponentials(x, temperature), kernels.exponentials(x.clone(), temperature, into=x.clone())):
        assert torch.equal(e.most, x.amax(1, keepdim=True))
        assert torch.allclose(e.powers.double(), z.exp(), rtol=1e-5, atol=1e-30)
        assert torch.allclose(e.total.double(), z.exp().sum(1, keepdim=True), rtol=1e-6)
        assert torch.allclose(e.mixed.double(), (z.exp() * z).sum(1, keepdim=True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["compiled", "plain"])
def test_entropy_from_exponentials_is_that_of_the_distribution_with_tokens_ruled_out(kind, without):
    logits = torch.tensor([[0.0, 0.0, -torch.inf, 0.0, 0.0], [5.0, -torch.inf, -torch.inf, -torch.inf, -torch.inf]])
    e = kernels.exponentials(logits) if kind == "compiled" else without(lambda: kernels.exponentials(logits))
    assert torch.allclose(e.total.log() - e.mixed / e.total, torch.tensor([[np.log(4.0)], [0.0]]).float(), atol=1e-6)


@compiled
def test_the_exponential_is_right_to_two_units_in_the_last_place():
    x = torch.linspace(-87, 0, 1_000_001)[None]
    powers = kernels.exponentials(x).powers
    exact = x.double().exp()
    assert float(((powers.double() - exact) / exact).abs().max()) < 2.4e-7


@compiled
def test_a_token_that_was_ruled_out_has_no_probability():
    assert kernels.exponentials(torch.tensor([[0.0, -torch.inf, -100.0]])).powers.tolist() == [[1.0, 0.0, 0.0]]


@compiled
def test_what_is_not_a_number_stays_so():
    nan = float("nan")
    assert kernels.exponentials(torch.tensor([[nan, 1.0]])).total.isnan().all()
    assert RmsNorm(torch.ones(2), 1e-5)(torch.tensor([[nan, 1.0]])).isnan().all()
    assert Gate(torch.nn.SiLU())(torch.tensor([[nan, 1.0]])).isnan().all()


@compiled
@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from([16, 48, 64, 128]), st.integers(1, 3), st.integers(1, 3))
def test_attention_of_a_pass_is_softmax_over_what_each_node_sees(seed, nodes, width, kv_heads, groups):
    rng = torch.Generator().manual_seed(seed)
    q, slots = torch.randn(nodes, kv_heads * groups + 2, width, generator=rng)[:, 1:-1], 50
    keys, values = (torch.randn(slots, kv_heads, width, generator=rng) for _ in range(2))
    seen = [torch.randperm(slots, generator=rng)[: int(torch.randint(1, slots, (), generator=rng))] for _ in range(nodes)]
    sight = kernels.Sight.of([own.numpy() for own in seen], np.arange(nodes), np.array([len(own) for own in seen]), groups)
    got = kernels.attend(kernels.library(), q, (keys, values), sight)
    for node, own in enumerate(seen):
        for head in range(kv_heads * groups):
            k, v = (store[own, head // groups].double() for store in (keys, values))
            weights = (k @ q[node, head].double() / width**0.5).softmax(0)
            assert torch.allclose(got[node, head].double(), weights @ v, rtol=1e-4, atol=1e-5)


@compiled
@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 3))
def test_no_node_of_attention_depends_on_which_others_share_its_tile_to_the_bit(seed, nodes, groups):
    rng, random = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    trunk = random.permutation(90)
    paths = [np.append(trunk[: random.integers(1, 60)], random.integers(90, 120, random.integers(0, 30))) for _ in range(5)]
    path = np.sort(random.integers(5, size=nodes))
    counts = np.array([random.integers(1, len(paths[p]) + 1) for p in path])
    q, pool = torch.randn(nodes, 2 * groups, 32, generator=rng), [torch.randn(120, 2, 32, generator=rng) for _ in range(2)]
    whole = kernels.attend(kernels.library(), q, pool, kernels.Sight.of(paths, path, counts, groups))
    for node in range(nodes):
        alone = kernels.Sight.of(paths, path[node : node + 1], counts[node : node + 1], groups)
        assert torch.equal(kernels.attend(kernels.library(), q[node : node + 1], pool, alone)[0], whole[node])


def tiles(paths, path, counts, groups=1):
    sight = kernels.Sight.of([np.array(p) for p in paths], np.array(path), np.array(counts), groups)
    return sight.firsts.tolist(), sight.shared.tolist()


def test_a_chain_is_one_tile_and_siblings_share_what_is_above_them(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert tiles([range(9)], [0] * 8, range(2, 10)) == ([0, 2, 4, 6, 8], [3, 5, 7, 9])  # four tiles a thread, at least
    siblings = [[0, 1, 2, 3, own] for own in range(10, 18)]
    assert tiles(siblings, list(range(8)), [5] * 8) == ([0, 2, 4, 6, 8], [4] * 4)
    strangers = [[own, own + 1] for own in (0, 10, 20, 30)]
    assert tiles(strangers, [0, 1, 2, 3], [2] * 4) == ([0, 1, 2, 3, 4], [2] * 4)


@compiled
@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 3000), st.integers(0, 100))
def test_the_largest_of_a_row_is_the_first_of_equal_ones(rows, width, seed):
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).round(decimals=1)
    wanted = [row.index(max(row)) for row in x.tolist()]
    assert kernels.largest(x).tolist() == wanted
    x[0] = -torch.inf
    assert kernels.largest(x)[0] == 0


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@compiled
@pytest.mark.usefixtures("three_threads")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from([16, 64, 128]), st.integers(1, 3), st.integers(1, 3))
def test_attention_on_a_tree_and_its_way_back_are_those_of_autograd(seed, nodes, width, kv_heads, groups):
    rng, random = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    tree, _ = sorted_tree([tuple(random.integers(3, size=random.integers(1, 6)).tolist()) for _ in range(nodes)])
    q, k, v = (torch.randn(len(tree), heads, width, generator=rng, requires_grad=True) for heads in (kv_heads * groups, kv_heads, kv_heads))
    up = torch.randn(q.shape, generator=rng)
    planned = plan(tree, groups, width, q)
    assert isinstance(planned, kernels.Sight)
    ours = tree_attention(q, k, v, planned)
    mask = torch.zeros(len(tree), len(tree), dtype=torch.bool)
    for node in range(len(tree)):
        mask[node, tree.path(node)] = True
    wide = [x.double().transpose(0, 1) for x in (q, *(x.repeat_interleave(groups, dim=1) for x in (k, v)))]
    slow = F.scaled_dot_product_attention(*wide, attn_mask=mask).transpose(0, 1)
    close(ours, slow.float(), 1e-5)
    for mine, autograds in zip(torch.autograd.grad(ours, (q, k, v), up), torch.autograd.grad(slow, (q, k, v), up.double()), strict=True):
        close(mine, autograds, 1e-5)


@compiled
@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 200), st.sampled_from([1, 3, 64, 1535, 1537, 3100]))
def test_a_packed_product_is_that_of_the_matrices(seed, rows, outputs, inputs):
    rng = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(rows, inputs + 3, generator=rng)[:, 1:-2], torch.randn(outputs, inputs, generator=rng)
    got = kernels.product(kernels.library(), x, kernels.pack(kernels.library(), weight), outputs)
    close(got.double(), x.double() @ weight.double().T, 1e-5)


@compiled
def test_no_row_of_a_packed_product_depends_on_the_others_to_the_bit():
    torch.manual_seed(0)
    x, plain = torch.randn(700, 1600), torch.randn(150, 1600)
    weight = kernels.pack(kernels.library(), plain)
    whole = kernels.product(kernels.library(), x, weight, 150)
    close(whole, x @ plain.T, 1e-5)
    for rows in (1, 2, 7, 8, 9, 33, 513):
        assert torch.equal(kernels.product(kernels.library(), x[-rows:], weight, 150), whole[-rows:])


def take_ours(patch):
    """Have `multiply` take the kernel, on a processor too for which PyTorch is faster."""
    patch.setattr(kernels, "AVX2_LANES", ctypes.c_int64.in_dll(kernels.library(), "panel_lanes").value)


def own_product(x, w, into=None):
    """x w by the kernel, or not at all."""
    with pytest.MonkeyPatch.context() as patch:
        take_ours(patch)
        patch.setattr(torch, "mm", None)
        return kernels.multiply(x, w, into=into)


@compiled
@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 200), st.sampled_from([1, 3, 64, 1535, 1537, 3100]), st.booleans())
def test_a_product_with_weights_as_they_lie_is_that_of_the_matrices(seed, rows, outputs, inputs, turned):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs + 3, generator=rng)[:, 1:-2]
    w = torch.randn(outputs, inputs, generator=rng).T if turned else torch.randn(inputs, outputs + 2, generator=rng)[:, 1:-1]
    close(own_product(x, w).double(), x.double() @ w.double(), 1e-5)


@compiled
def test_a_product_of_many_rows_is_the_same_to_the_bit_whichever_way_its_weights_lie():
    torch.manual_seed(0)
    x, w, room = torch.randn(1900, 1600), torch.randn(1600, 150), torch.full((1900, 150), torch.nan)
    packed = kernels.product(kernels.library(), x, kernels.pack(kernels.library(), w.T.contiguous()), 150)
    assert torch.equal(own_product(x, w), packed)
    assert torch.equal(own_product(x, w.T.contiguous().T), packed)
    assert own_product(x, w, room) is room and torch.equal(room, packed)


@compiled
@pytest.mark.parametrize("kind", ["half", "no rows", "weights with gaps", "rows with gaps"])
def test_what_the_kernel_does_not_know_pytorch_multiplies(kind, monkeypatch):
    take_ours(monkeypatch)
    x, w, bias = torch.randn(5, 6), torch.randn(6, 8), torch.randn(8)
    if kind == "half":
        x, w, bias = x.bfloat16(), w.bfloat16(), bias.bfloat16()
    elif kind == "no rows":
        x = x[:0]
    elif kind == "rows with gaps":
        x = torch.randn(5, 12)[:, ::2]
    else:
        w = torch.randn(12, 16)[::2, ::2]
    assert torch.equal(kernels.multiply(x, w), x @ w)
    assert torch.equal(kernels.multiply(x, w, bias), F.linear(x, w.T, bias))  # a bias is added before the sum is rounded


@compiled
@pytest.mark.parametrize("fewer", ["-mno-avx512f", "-mno-avx"])
def test_kernels_for_shorter_vectors_give_the_same(fewer, monkeypatch, tmp_path):
    torch.manual_seed(0)
    x, weight, q, up = torch.randn(13, 600), torch.randn(150, 600), torch.randn(9, 6, 64), torch.randn(9, 6, 64)
    pool, paths = (torch.randn(50, 2, 64), torch.randn(50, 2, 64)), [np.arange(40), np.arange(7, 30)]
    sight = kernels.Sight.of(paths, np.array([0, 1, 0, 1, 0, 1, 0, 1, 0]), np.array([40, 23, 1, 2, 16, 17, 9, 5, 33]), 3)

    def numbers():
        of = kernels.library()
        dq, back = kernels.attend_back(of, up, q, pool, sight)
        products = kernels.product(of, x, kernels.pack(of, weight), 150), own_product(x, weight.T), own_product(x, weight.T.contiguous())
        return *products, kernels.attend(of, q, pool, sight), dq, *back

    wanted = numbers()
    close(wanted[0], x @ weight.T, 1e-5)
    monkeypatch.setenv("EARNEST_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "FLAGS", (*kernels.FLAGS, fewer))
    kernels.library.cache_clear()
    try:
        if kernels.library() is None:
            pytest.skip("this compiler knows no such vectors")
        for ours, theirs in zip(numbers(), wanted, strict=True):
            close(ours, theirs, 1e-5)
    finally:
        kernels.library.cache_clear()


@compiled
@pytest.mark.parametrize("family", tiny.EXACT)
def test_log_probabilities_gradients_and_answers_are_those_without_kernels(family, without):
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(250, size=size).tolist()) for size in (4, 9)]
    sequences = [Trajectory(prompt, tuple(rng.integers(250, size=size).tolist())) for prompt in prompts for size in (3, 17, 40)]

    def numbers():
        p = tiny.make_policy(tiny.make(family))
        tiny.disturb(p, 3, 0.2)
        logp = p.log_probabilities(sequences, 0.7).logp
        (logp * torch.arange(1.0, 7)[:, None]).sum().backward()
        answers = sample(p.loaded, p.decoder(), prompts, [[0], [1]], 6, Sampling(max_tokens=40))
        return [logp.detach(), *(q.grad for q in p.trainable())], answers

    (ours, said), (plain, said_plainly) = numbers(), without(numbers)
    for a, b in zip(ours, plain, strict=True):
        close(a, b, 5e-5)
    assert [[c.ids for c in group] for group in said] == [[c.ids for c in group] for group in said_plainly]


@pytest.mark.parametrize("broken", ["no compiler", "it fails", "not wanted"])
def test_without_kernels_all_is_done_by_pytorch(broken, monkeypatch, tmp_path):
    monkeypatch.setenv("EARNEST_CACHE", str(tmp_path))
    if broken == "no compiler":
        monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    elif broken == "it fails":
        monkeypatch.setattr(kernels, "SOURCE", tmp_path / "wrong.c")
        (tmp_path / "wrong.c").write_text("no C")
    else:
        monkeypatch.setenv("EARNEST_KERNELS", "off")
    kernels.library.cache_clear()
    try:
        assert kernels.library() is None
        close(RmsNorm(torch.ones(2), 0.0)(torch.tensor([[3.0, 3.0]])), torch.ones(1, 2))
    finally:
        kernels.library.cache_clear()


@compiled
def test_kernels_are_compiled_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("EARNEST_CACHE", str(tmp_path))
    compiler = next(filter(None, map(shutil.which, kernels.COMPILERS)))
    first = kernels._compiled(compiler)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert kernels._compiled(compiler) == first and [path.name for path in tmp_path.iterdir()] == [first.name]
