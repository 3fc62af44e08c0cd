"""The policy: log-probabilities and gradients on the tree against the naive padded batch and against transformers itself."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model

from earnest import UserError
from earnest.engine import grpo, kernels
from earnest.engine.decoder import Decoder
from earnest.engine.policy import HeadLogProbability, Policy, Trajectory, packs_of
from earnest.engine.sampler import Sampling, sample
from earnest.engine.transformer import Projection, Transformer, not_on_tree

P, Q = (tiny.START, 10, 11, 12), (tiny.START, 10, 13)
BATCHES = {
    "ragged": [Trajectory(P, (1, 2, 3, 4, 5, tiny.END)), Trajectory(P, (1, 2)), Trajectory(P, (9,)), Trajectory(P, (1, 2, 3, 7))],
    "identical": [Trajectory(P, (1, 2, tiny.END))] * 3 + [Trajectory(Q, (1, 2, tiny.END))],
    "one empty": [Trajectory(P, ()), Trajectory(P, (1, tiny.END)), Trajectory(Q, (4,))],
    "a prefix of another": [Trajectory(P, (1, 2, 3)), Trajectory(P, (1, 2)), Trajectory(P, (1,)), Trajectory(P, (1, 2, 3, 4))],
    "a prompt going on as an answer": [Trajectory(P, (1, 2, 3)), Trajectory((*P, 1), (2, 3)), Trajectory((*P, 1, 2), (3, 4))],
    "nothing shared": [Trajectory((20,), (21, 22)), Trajectory((30, 31), (32,)), Trajectory((40,), (41, 42, 43))],
    "alone": [Trajectory(P, (1, 2, tiny.END))],
    "many groups": [Trajectory((tiny.START, g), (g, i, 5, 6)[: 1 + (g + i) % 4]) for g in range(5) for i in range(4)],
}


@cache
def policy(family="llama"):
    """Never changed by anything here; gradients are taken away again."""
    return tiny.make_policy(tiny.make(family))


def naive(p, sequences, temperature=1.0):
    """Each sequence alone, through transformers' own forward pass, the whole vocabulary's log-softmax."""
    logps = []
    for s in sequences:
        logits = p.model(torch.tensor([s.prompt + s.completion]), use_cache=False).logits[0] / temperature
        every = logits.log_softmax(-1)
        rows = range(len(s.prompt) - 1, len(s.prompt) + len(s.completion) - 1)
        logps.append(torch.stack([every[r, t] for r, t in zip(rows, s.completion, strict=True)]) if s.completion else torch.zeros(0))
    return logps


def entropy(p, s, temperature):
    """Of the distributions a completion was drawn from, summed."""
    with torch.no_grad():
        logits = p.model(torch.tensor([s.prompt + s.completion]), use_cache=False).logits[0, len(s.prompt) - 1 : -1]
    every = (logits / temperature).log_softmax(-1)
    return float(-(every.exp() * every).sum())


def batched(p, sequences, temperature=1.0):
    """The plain path, whatever the architecture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(p, "exact_tree", False)
        return p.log_probabilities(sequences, temperature)


def gradient(p, loss):
    grads = torch.autograd.grad(loss, p.trainable(), allow_unused=True)
    return torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for g, w in zip(grads, p.trainable(), strict=True)])


def weighted(scores):
    """Some loss in which every token has a weight of its own."""
    weights = torch.arange(1.0, scores.logp.numel() + 1).sin().view_as(scores.logp)
    return (weights * scores.logp * scores.mask).sum()


def close(a, b, relative=1e-4):
    """Within `relative` of the largest entry."""
    assert a.shape == b.shape
    scale = max(float(b.detach().abs().max()), 1e-6) if b.numel() else 1.0
    assert float((a - b).detach().abs().max() if b.numel() else 0.0) <= relative * scale


# --- the tree equals the naive way


@pytest.mark.parametrize("family", tiny.EXACT)
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_and_gradient_on_the_tree_are_those_of_the_padded_batch(family, kind, temperature):
    p, sequences = policy(family), BATCHES[kind]
    assert p.exact_tree
    tree, plain = p.log_probabilities(sequences, temperature), batched(p, sequences, temperature)
    assert torch.equal(tree.mask, plain.mask)
    close(tree.logp, plain.logp)
    close(gradient(p, weighted(tree)), gradient(p, weighted(plain)))


@pytest.mark.parametrize("family", [*tiny.EXACT, *tiny.PLAIN, "llama-dynamic"])
@pytest.mark.parametrize("kind", ["ragged", "one empty", "many groups"])
def test_log_probabilities_are_those_of_each_sequence_alone(family, kind):  # S-PD-02
    p, sequences = policy(family), BATCHES[kind]
    scores = p.log_probabilities(sequences, 0.8)
    logps = naive(p, sequences, 0.8)
    for i, s in enumerate(sequences):
        length = len(s.completion)
        assert scores.mask[i].tolist() == [j < length for j in range(scores.mask.shape[1])]
        close(scores.logp[i, :length], logps[i])
        assert not scores.logp[i, length:].any()
    flat = torch.cat([scores.logp[i, : len(s.completion)] for i, s in enumerate(sequences)])
    weights = torch.arange(1.0, len(flat) + 1).cos()
    close(gradient(p, (weights * flat).sum()), gradient(p, (weights * torch.cat(logps)).sum()))


def test_sequences_of_two_thousand_tokens_stay_exact():
    rng = np.random.default_rng(0)
    p = tiny.make_policy(tiny.make("qwen3", max_position_embeddings=4096))
    prompt = tuple(rng.integers(250, size=300).tolist())
    one, two = (tuple(rng.integers(250, size=1700).tolist()) for _ in range(2))
    sequences = [Trajectory(prompt, one), Trajectory(prompt, (*one[:900], *two[:800])), Trajectory(prompt, two[:40])]
    tree, plain = p.log_probabilities(sequences), batched(p, sequences)
    close(tree.logp, plain.logp)
    close(gradient(p, weighted(tree)), gradient(p, weighted(plain)))
    long = sample(p.loaded, p.decoder(), [prompt], [[0]], 2, Sampling(max_tokens=1700))[0]
    assert max(len(c.ids) for c in long) > 60
    again = p.log_probabilities([Trajectory(prompt, c.ids) for c in long])
    for i, c in enumerate(long):  # what it drew with is what training sees
        close(again.logp[i, : len(c.ids)], torch.tensor(c.logp))


TOKEN = st.integers(0, 3)


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(
            Trajectory,
            st.lists(TOKEN, min_size=1, max_size=4).map(tuple),
            st.lists(TOKEN, max_size=5).map(tuple),
        ),
        min_size=1,
        max_size=7,
    ),
    st.sampled_from(["llama", "qwen2", "qwen3"]),
)
def test_any_batch_whatever_is_the_same_on_the_tree(sequences, family):
    p = policy(family)
    tree = p.log_probabilities(sequences)
    logps = naive(p, sequences)
    for i, s in enumerate(sequences):
        close(tree.logp[i, : len(s.completion)], logps[i])
    if tree.mask.any():
        close(gradient(p, weighted(tree)), gradient(p, weighted(batched(p, sequences))))


@pytest.mark.parametrize("family", ["llama", "gemma"])
def test_only_empty_completions_give_empty_scores(family):
    scores = policy(family).log_probabilities([Trajectory(P, ()), Trajectory(Q, ())])
    assert scores.logp.shape == scores.mask.shape == (2, 0)


@settings(max_examples=15)
@given(st.integers(1, 60), st.sampled_from(["ragged", "many groups", "a prompt going on as an answer", "nothing shared"]))
@pytest.mark.parametrize("family", ["qwen3", "gemma"])
def test_any_split_into_passes_gives_the_same_gradient(family, budget, kind):
    p, sequences = policy(family), BATCHES[kind]
    whole = p.log_probabilities(sequences)
    weights = torch.arange(1.0, len(sequences) + 1).sin()
    wanted = gradient(p, (weights[:, None] * whole.logp).sum())
    packs = packs_of(p, sequences, budget)
    assert [i for part in packs for i in part] == list(range(len(sequences)))
    got = torch.zeros_like(wanted)
    for part in packs:
        scores = p.log_probabilities([sequences[i] for i in part])
        got += gradient(p, (weights[part][:, None] * scores.logp).sum())
        for row, i in enumerate(part):
            close(scores.logp[row, : len(sequences[i].completion)], whole.logp[i, : len(sequences[i].completion)])
    close(got, wanted)


@pytest.mark.parametrize("bias", [True, False])
def test_packed_weights_give_the_plain_product_for_any_number_of_rows(bias):
    torch.manual_seed(0)
    layer = torch.nn.Linear(96, 160, bias=bias)
    packed = Projection.of([layer], packed=True)
    assert (packed.panels is None) == (kernels.library() is None)
    with torch.no_grad():
        for rows in (*range(1, 140), 255, 256, 257, 1000):
            x = torch.randn(rows, 96)
            torch.testing.assert_close(packed(x), layer(x), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_sequence_longer_than_the_budget_keeps_less_and_gives_the_same_gradient(family):
    p, sequences = tiny.make_policy(tiny.make(family, max_position_embeddings=1024)), [Trajectory(P, tuple(range(10, 200)))]
    results = []
    for budget in (1000, 100):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t.numel()) or t, lambda t: t):
            scores = p.log_probabilities(sequences, budget=budget)
        results.append((scores.logp.detach(), gradient(p, weighted(scores)), sum(kept)))
    (logp, wanted, most), (again, got, least) = results
    close(again, logp, 1e-6)
    close(got, wanted, 1e-5)
    assert least < most / 3


@given(st.lists(st.integers(1, 9), max_size=9), st.integers(1, 30))
def test_padded_passes_keep_the_budget(lengths, budget):
    packs = packs_of(policy("gemma"), [Trajectory((1,), (2,) * (n - 1)) for n in lengths], budget)
    assert [i for part in packs for i in part] == list(range(len(lengths)))
    for part in packs:
        assert len(part) == 1 or len(part) * max(lengths[i] for i in part) <= budget


def test_the_head_works_in_chunks_of_any_size(monkeypatch):
    p, sequences = policy("llama"), BATCHES["many groups"]
    whole = p.log_probabilities(sequences)
    wanted = gradient(p, weighted(whole))
    monkeypatch.setattr(HeadLogProbability, "ROOM", 3 * 260)
    chunked = p.log_probabilities(sequences)
    close(chunked.logp, whole.logp, 1e-6)
    close(gradient(p, weighted(chunked)), wanted, 1e-5)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([0.5, 1.0, 1.3]), st.sampled_from([0, 1, 4, 256]))
def test_the_head_has_value_and_gradient_of_log_softmax(seed, rows, temperature, rows_at_once):
    generator = torch.Generator().manual_seed(seed)
    hidden, weight = torch.randn(rows, 6, generator=generator), torch.randn(13, 6, generator=generator)
    tokens = torch.randint(13, (rows,), generator=generator)
    incoming = torch.randn(rows, generator=generator)
    mine, its = hidden.clone().requires_grad_(), hidden.double().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeadLogProbability, "ROOM", 13 * rows_at_once)
        logp = HeadLogProbability.apply(mine, weight, tokens, temperature)
    every = F.log_softmax(its @ weight.double().T / temperature, dim=-1)
    close(logp.double(), every.gather(-1, tokens[:, None])[:, 0], 1e-5)
    logp.backward(incoming)
    every.gather(-1, tokens[:, None])[:, 0].backward(incoming.double())
    close(mine.grad.double(), its.grad, 1e-4)


# --- masks by place, never by value


@pytest.mark.parametrize("family", ["llama", "gemma", "gpt2"])
def test_the_first_end_token_is_trained_on_also_where_pad_is_the_end_token(family):  # S-ME-01
    loaded = tiny.make(family, tokenizer=tiny.make_tokenizer(pad="<|im_end|>"))
    p = tiny.make_policy(loaded)
    written = (5, 6, tiny.END)
    alone = p.log_probabilities([Trajectory(P, written)])
    assert alone.mask.tolist() == [[True, True, True]]
    beside = p.log_probabilities([Trajectory(P, written), Trajectory(P, (5, 6, 7, 8, tiny.END))])
    assert beside.mask[0].tolist() == [True, True, True, False, False]
    close(beside.logp[0, :3], alone.logp[0])
    last = torch.autograd.grad(beside.logp[0, 2], p.trainable(), allow_unused=True, retain_graph=True)
    assert any(g is not None and g.abs().max() > 0 for g in last)


@pytest.mark.parametrize("family", ["llama", "gemma", "gpt2"])
def test_a_real_token_equal_to_pad_is_seen_in_the_prompt(family):  # S-ME-06
    p = tiny.make_policy(tiny.make(family))
    sequences = [Trajectory((tiny.PAD, 8, 9), (1, 2)), Trajectory((tiny.PAD, tiny.PAD, 8, 9, 8), (1, tiny.PAD, 3))]
    scores = p.log_probabilities(sequences)
    logps = naive(p, sequences)
    close(scores.logp[0, :2], logps[0])
    close(scores.logp[1], logps[1])
    close(p.log_probabilities(sequences[:1]).logp[0], logps[0])
    hidden = p.log_probabilities([Trajectory((8, 9), (1, 2))]).logp[0]
    assert float((hidden - logps[0]).detach().abs().max()) > 1e-3  # leaving it out would be another number


# --- sampling and training speak of the same policy


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
@pytest.mark.parametrize("cut", [{}, {"top_p": 0.5}, {"top_k": 2}], ids=["whole", "top_p", "top_k"])
def test_the_ratio_is_one_at_unchanged_weights(family, temperature, cut):  # S-AL-11, S-AL-17
    p = policy(family)
    group = sample(p.loaded, p.decoder(), [P], [[1]], 4, Sampling(temperature, max_tokens=6, **cut))[0]
    sequences = [Trajectory(P, c.ids) for c in group]
    scores = p.log_probabilities(sequences, temperature)
    old = [p.log_probabilities([s], temperature).logp[0].detach() for s in sequences]
    for i, logp in enumerate(old):
        ratio = (scores.logp[i, : len(logp)] - logp).exp()
        close(ratio, torch.ones_like(ratio))
    for one, logp in zip(group, old, strict=True):  # the sampler's own numbers are of the uncut distribution at the temperature
        close(torch.tensor(one.logp), logp)
        assert one.entropy == pytest.approx(entropy(p, Trajectory(P, one.ids), temperature), rel=1e-4)


def test_the_temperature_divides_the_logits():  # S-AL-11, by hand
    hidden, weight = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    assert float(HeadLogProbability.apply(hidden, weight, torch.tensor([0]), 0.5)[0]) == pytest.approx(-0.01815, abs=1e-5)
    assert float(HeadLogProbability.apply(hidden, weight, torch.tensor([0]), 1.0)[0]) == pytest.approx(-0.12693, abs=1e-5)


@pytest.mark.parametrize("family", tiny.EXACT)
def test_the_decoders_logits_are_transformers_own(family):
    p = policy(family)
    prompts = [(1, 2, 3), (1, 2, 4, 5), (7,)]
    decoder = p.decoder()
    cache, logits = decoder.prefill(prompts, room=0)

    def own(sequence):
        with torch.no_grad():
            return p.model(torch.tensor([sequence]), use_cache=False).logits[0, -1]

    rows = [list(prompt) for prompt in prompts]
    close(logits, torch.stack([own(row) for row in rows]))
    for parents, new in (([0, 0, 2, 1], [9, 8, 9, 9]), ([3, 1, 1], [4, 4, 5]), ([0, 1, 2, 2, 2], [1, 1, 1, 2, 3])):
        rows = [[*rows[parent], token] for parent, token in zip(parents, new, strict=True)]
        logits = decoder.step(cache, torch.tensor(new).numpy(), torch.tensor(parents).numpy())
        close(logits, torch.stack([own(row) for row in rows]))


@pytest.mark.parametrize("family", ["llama-biased", "qwen2-tied", "qwen3"])
def test_the_decoders_logits_are_those_of_the_merged_model(family):  # S-LO-04
    p = tiny.make_policy(tiny.make(family))
    prompt = (tiny.START, 5, 6, 7)
    _, logits = p.decoder().prefill([prompt], room=0)
    merged = p.peft.merge_and_unload()
    with torch.no_grad():
        close(logits[0], merged(torch.tensor([prompt])).logits[0, -1])


def test_the_cache_grows_where_too_little_room_was_asked_for():
    p = policy("qwen2")
    long = sample(p.loaded, p.decoder(), [P, Q], [[1], [2]], 3, Sampling(max_tokens=80))
    assert max(len(c.ids) for group in long for c in group) > 70
    plain = sample(p.loaded, None, [P, Q], [[1], [2]], 3, Sampling(max_tokens=80))
    assert [[c.ids for c in group] for group in long] == [[c.ids for c in group] for group in plain]


@pytest.mark.parametrize("family", tiny.EXACT)
@pytest.mark.parametrize("waste", [0, 1, 6, 10**9])
@pytest.mark.parametrize(
    "prompts", [[(1, 2, 3, 4)], [(1, 2, 3, 4), (1, 2, 9)], [(1, 2), (1, 2, 3, 4, 5, 6)], [(1,), (2, 3), (4,)]], ids=str
)
def test_however_rows_are_laid_out_the_logits_are_those_of_each_sequence(family, waste, prompts, monkeypatch):
    """Trunk or none, branches of any size, with and without giving rows branches of their own; rows split, end and change place."""
    monkeypatch.setattr("earnest.engine.decoder.WASTE", waste)
    monkeypatch.setattr("earnest.engine.kernels.library", lambda: None)  # which lay rows out in another way
    p = policy(family)
    generator = np.random.default_rng(0)
    cache, _ = p.decoder().prefill(prompts, room=int(generator.integers(3)))
    rows = [list(prompt) for prompt in prompts]
    for size in (3, 5, 4, 2, 6, 1, 3):
        new = generator.integers(tiny.VOCABULARY, size=size)
        # a new node may follow a row, or a new node before it: a draft
        parents = np.array([int(generator.integers(len(rows) + (node if size > 3 else 0))) for node in range(size)])
        grown = list(rows)
        for parent, token in zip(parents, new, strict=True):
            grown.append([*grown[parent], int(token)])
        rows = grown[len(rows) :]
        logits = p.decoder().step(cache, new, parents)
        assert torch.isfinite(logits).all()
    with torch.no_grad():
        close(logits, torch.stack([p.model(torch.tensor([row]), use_cache=False).logits[0, -1] for row in rows]))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_however_the_tree_is_cut_into_blocks_numbers_and_gradients_are_the_same(size, monkeypatch):
    monkeypatch.setattr("earnest.engine.kernels.library", lambda: None)  # which need no blocks
    sequences = [Trajectory(P, (5, 6, 7)), Trajectory(P, (5, 6)), Trajectory(Q, (5,) * 9), Trajectory((7, 8), (1, 2)), Trajectory(P, (9,))]

    def numbers():
        p = tiny.make_policy(tiny.make("qwen3"))
        tiny.disturb(p, 3, 0.2)
        scores = p.log_probabilities(sequences)
        (scores.logp * torch.arange(1.0, 6)[:, None]).sum().backward()
        return scores.logp.detach(), *(q.grad for q in p.trainable())

    whole = numbers()
    monkeypatch.setattr("earnest.engine.attention.SIZE", size)
    for cut, uncut in zip(numbers(), whole, strict=True):
        close(cut, uncut)


@pytest.mark.parametrize("compiled", [True, False])
def test_memory_that_was_never_written_reaches_no_result(compiled, monkeypatch):
    """A slot that no row sees has weight 0, but 0 times NaN is NaN."""
    if not compiled:
        monkeypatch.setattr("earnest.engine.kernels.library", lambda: None)
    p = tiny.make_policy(tiny.make("qwen3"))
    wanted = sample(p.loaded, p.decoder(), [P, Q, (7,)], [[1], [2], [3]], 4, Sampling(max_tokens=20))
    p.changed()
    torch.use_deterministic_algorithms(True)  # fills every torch.empty with NaN
    try:
        assert torch.empty(1).isnan().all()
        assert sample(p.loaded, p.decoder(), [P, Q, (7,)], [[1], [2], [3]], 4, Sampling(max_tokens=20)) == wanted
    finally:
        torch.use_deterministic_algorithms(False)


# --- which architectures the tree represents


@pytest.mark.parametrize("family", [*tiny.PLAIN, "llama-dynamic"])
def test_other_architectures_take_the_plain_path_and_say_why(family):
    assert not policy(family).exact_tree and policy(family).decoder() is None
    why = {"gemma": "'gemma' is none of", "gemma3": "sliding attention", "qwen2-sliding": "sliding", "qwen3.5": "linear attention"}
    assert why.get(family, " ") in policy(family).plain_because


def test_an_update_smaller_than_the_rounding_of_a_bf16_weight_is_not_lost():
    """Merged into W = 1, which bf16 knows to 1 / 256, a change of 1e-4 would be gone."""
    linear = torch.nn.Linear(2, 1, bias=False, dtype=torch.bfloat16)
    holder = get_peft_model(torch.nn.Sequential(linear), LoraConfig(r=1, lora_alpha=1, target_modules=["0"]))
    layer = holder.base_model.model[0]
    with torch.no_grad():
        layer.base_layer.weight.fill_(1.0)
        layer.lora_A["default"].weight.copy_(torch.tensor([[1.0, 0.0]]))
        layer.lora_B["default"].weight.fill_(1e-4)
    x = torch.tensor([[1.0, -1.0]], dtype=torch.bfloat16, requires_grad=True)  # W x = 0
    y = Projection.of([layer])(x)
    assert y.dtype == torch.bfloat16 and float(y) == pytest.approx(1e-4, rel=0.01)
    y.float().backward()
    assert layer.lora_B["default"].weight.grad.item() == 1.0
    assert layer.lora_A["default"].weight.grad.tolist() == [[pytest.approx(1e-4), pytest.approx(-1e-4)]]
    own, peft = Projection.of([layer])(4 * x), layer(4 * x)
    assert torch.equal(own, peft)


def test_how_transformers_would_attend_does_not_matter():
    p = tiny.make_policy(tiny.make("llama", attention="eager"))
    assert p.exact_tree
    close(p.log_probabilities(BATCHES["ragged"]).logp, policy("llama").log_probabilities(BATCHES["ragged"]).logp)


def test_a_family_name_alone_is_not_enough():
    config = tiny.make("qwen3").model.config
    assert not_on_tree(config) == ""
    config.layer_types = ["full_attention", "sliding_attention"]
    assert not_on_tree(config)
    config.layer_types = ["full_attention", "linear_attention"]
    assert not_on_tree(config)
    config.layer_types = ["full_attention", "full_attention"]
    config.model_type = "qwen4"
    assert not_on_tree(config)


@pytest.mark.parametrize(
    "options",
    [
        {"use_dora": True, "target_modules": "all-linear"},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj"], "lora_bias": True},
        {"target_modules": ["q_proj", "v_proj"], "use_rslora": True},  # this one is plain LoRA with another scale
    ],
    ids=lambda o: next(iter(k for k in o if k.startswith(("use", "lora", "modules"))), str(o["target_modules"])),
)
def test_an_adapter_the_fused_passes_do_not_know_takes_the_plain_path(options, tmp_path):
    other = get_peft_model(tiny.make("llama").model, LoraConfig(r=3, task_type="CAUSAL_LM", **options))
    other.save_pretrained(tmp_path)
    p = tiny.make_policy(tiny.make("llama"), adapter=tmp_path)
    assert p.exact_tree == ("use_rslora" in options)
    logps = naive(p, BATCHES["alone"])
    scores = p.log_probabilities(BATCHES["alone"])
    close(scores.logp[0], logps[0])
    close(gradient(p, scores.logp.sum()), gradient(p, logps[0].sum()))
    p.save(tmp_path / "again")
    close(Policy(tiny.make("llama"), adapter=tmp_path / "again").log_probabilities(BATCHES["alone"]).logp, scores.logp)


# --- the adapter: saved, loaded, swapped, changed


def logits_of(p, prompt=P):
    with torch.no_grad():
        return p.model(torch.tensor([prompt])).logits


@pytest.mark.parametrize("family", ["llama", "qwen2-tied", "gemma", "gpt2"])
def test_a_saved_adapter_gives_the_outputs_of_the_one_in_memory(family, tmp_path):  # S-LO-01
    p = tiny.make_policy(tiny.make(family))
    p.save(tmp_path / "adapter")
    again = Policy(tiny.make(family), adapter=tmp_path / "adapter")
    assert float((logits_of(again) - logits_of(p)).abs().max()) < 1e-5
    with torch.no_grad():
        base = tiny.make(family).model(torch.tensor([P])).logits
    assert float((logits_of(p) - base).abs().max()) > 1e-3
    others = PeftModel.from_pretrained(tiny.make(family).model, tmp_path / "adapter")  # PEFT alone reads it too
    with torch.no_grad():
        close(others(torch.tensor([P])).logits, logits_of(p))


def test_saving_twice_leaves_the_second_and_no_rubbish(tmp_path):
    p = tiny.make_policy(tiny.make())
    p.save(tmp_path / "adapter")
    tiny.disturb(p, 5)
    p.save(tmp_path / "adapter")
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    again = Policy(tiny.make(), adapter=tmp_path / "adapter")
    assert all(torch.equal(a, b) for a, b in zip(again.trainable(), p.trainable(), strict=True))


def test_saving_proves_what_it_wrote(tmp_path, monkeypatch):
    p = tiny.make_policy(tiny.make())
    base = Policy(tiny.make())
    monkeypatch.setattr(p.peft, "save_pretrained", base.peft.save_pretrained)  # writes the weights of another
    with pytest.raises(UserError, match="not the one in memory"):
        p.save(tmp_path / "adapter")


def test_a_save_that_fails_keeps_the_adapter_that_was_there(tmp_path, monkeypatch):
    p = tiny.make_policy(tiny.make())
    p.save(tmp_path / "adapter")
    before = (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    tiny.disturb(p, 5)

    def full(folder, **options):
        folder.mkdir(parents=True)
        (folder / "adapter_model.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(p.peft, "save_pretrained", full)
    with pytest.raises(UserError, match="No space left"):
        p.save(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes() == before


def test_saving_asks_no_hub(tmp_path, monkeypatch):
    p = tiny.make_policy(tiny.make())
    p.peft.peft_config["default"].base_model_name_or_path = "someone/some-model"

    def hub(*arguments, **options):
        raise AssertionError("asked the hub")

    monkeypatch.setattr("peft.utils.save_and_load.check_file_exists_on_hf_hub", hub)
    p.save(tmp_path / "adapter")


def test_an_adapter_saved_for_inference_is_trained_on(tmp_path):  # S-LO-02
    first = tiny.make_policy(tiny.make())
    first.peft.peft_config["default"].inference_mode = True
    first.save(tmp_path / "adapter")
    p = Policy(tiny.make(), adapter=tmp_path / "adapter")
    assert len(p.trainable()) == len(first.trainable())
    p.log_probabilities(BATCHES["alone"]).logp.sum().backward()
    assert any(w.grad is not None and w.grad.abs().max() > 0 for w in p.trainable())


def test_no_trainable_parameters_is_an_error_at_the_start(tmp_path, monkeypatch):  # S-LO-02
    tiny.make_policy(tiny.make()).save(tmp_path / "adapter")
    load = PeftModel.from_pretrained
    monkeypatch.setattr(PeftModel, "from_pretrained", lambda model, folder, is_trainable: load(model, folder, is_trainable=False))
    with pytest.raises(UserError, match="no trainable parameters"):
        Policy(tiny.make(), adapter=tmp_path / "adapter")


def test_an_adapter_that_is_not_there_or_does_not_fit_says_so(tmp_path):
    with pytest.raises(UserError, match=r"no adapter in '.*nowhere'"):
        Policy(tiny.make(), adapter=tmp_path / "nowhere")
    tiny.make_policy(tiny.make()).save(tmp_path / "adapter")
    with pytest.raises(UserError, match="does not fit the model"):
        Policy(tiny.make("llama", hidden_size=64), adapter=tmp_path / "adapter")


def test_a_fresh_adapter_changes_nothing_and_follows_its_seed():
    base = tiny.make()
    with torch.no_grad():
        before = base.model(torch.tensor([P])).logits
    p = Policy(base, seed=3)
    assert torch.equal(logits_of(p), before)
    same, other = Policy(tiny.make(), seed=3), Policy(tiny.make(), seed=4)
    equal = [[torch.equal(a, b) for a, b in zip(p.trainable(), q.trainable(), strict=True)] for q in (same, other)]
    assert all(equal[0]) and not all(equal[1])


def test_no_stale_weights_survive_a_change():  # S-LO-05
    p = tiny.make_policy(tiny.make())
    first = p.transformer()
    assert p.transformer() is first
    before = p.decoder().prefill([P], 0)[1]
    tiny.disturb(p, 7, 0.2)  # calls changed()
    assert p.transformer() is not first
    after = p.decoder().prefill([P], 0)[1]
    close(after[0], logits_of(p)[0, -1])
    assert float((after - before).abs().max()) > 1e-2


def test_the_policy_is_another_only_for_a_while():  # S-LO-05 too: nor does a decoder of the reference survive
    p = tiny.make_policy(tiny.make())
    own, start = p.state(), p.state()
    tiny.disturb(p, 9, 0.2)
    changed = logits_of(p)
    p.decoder()
    with p.using(start):
        reference = logits_of(p)
        close(p.decoder().prefill([P], 0)[1][0], reference[0, -1])
    assert torch.equal(logits_of(p), changed) and not torch.allclose(reference, changed, atol=1e-3)
    close(p.decoder().prefill([P], 0)[1][0], changed[0, -1])
    assert all(torch.equal(own[name], start[name]) for name in own)
    with pytest.raises(ZeroDivisionError), p.using(start):
        raise ZeroDivisionError
    assert torch.equal(logits_of(p), changed)


def test_the_reference_of_a_policy_that_starts_from_an_adapter_is_that_adapter(tmp_path):  # S-LO-03
    tiny.make_policy(tiny.make()).save(tmp_path / "sft")
    p = Policy(tiny.make(), adapter=tmp_path / "sft")
    sequences, reference = BATCHES["many groups"], p.state()
    scores = p.log_probabilities(sequences)
    with p.using(reference), torch.no_grad():
        ref = p.log_probabilities(sequences)
    kl = grpo.kl_k3(scores.logp, ref.logp).detach()
    assert float(kl[scores.mask].mean()) < 1e-6
    with p.using({name: torch.zeros_like(w) for name, w in reference.items()}), torch.no_grad():
        base = p.log_probabilities(sequences)
    assert float(grpo.kl_k3(scores.logp, base.logp).detach()[scores.mask].mean()) > 1e-4  # the base would have been another reference


def test_a_decoder_can_be_made_of_a_model_without_adapter():
    loaded = tiny.make("qwen3")
    with torch.no_grad():
        close(Decoder(Transformer(loaded.model)).prefill([P], 0)[1][0], loaded.model(torch.tensor([P])).logits[0, -1])


def test_a_model_folder_gives_the_same_policy(tmp_path):
    from earnest.engine.models import load_model

    made = tiny.make("qwen3")
    loaded = load_model(str(tiny.save(made, tmp_path / "model")), device="cpu")
    assert loaded.stops == made.stops == {tiny.END}
    one, two = tiny.make_policy(made), tiny.make_policy(replace(loaded))
    assert two.exact_tree
    close(one.log_probabilities(BATCHES["ragged"]).logp, two.log_probabilities(BATCHES["ragged"]).logp, 1e-6)
