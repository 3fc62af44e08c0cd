"""Sampling on the tree: the same answers as row by row, from the distribution that was asked for."""

from collections import Counter
from functools import cache
from itertools import chain, takewhile

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers import GenerationConfig, MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from earnest.engine.decoder import Decoder, Stem
from earnest.engine.drafts import LONGEST, SURE, Drafts
from earnest.engine.draw import BLOCK, draw, filtered, inverse, uniforms
from earnest.engine.kernels import exponentials
from earnest.engine.sampler import SLOTS, Completion, Sampling, batches, sample
from earnest.engine.transformer import Transformer

PROMPTS = ["Hi", "Hi there, how are you?", "A prompt that shares nothing", "Hi there, how is it?", "Hi"]


@cache
def model(family="llama", seed=0):
    """Never changed by anything here, so made once."""
    return tiny.make(family, seed)


@cache
def decoder(family="llama", seed=0):
    return Decoder(Transformer(model(family, seed).model))


@cache
def small():
    """A model small enough to write down all of its answers: 8 tokens, of which 7 ends the turn."""
    loaded = tiny.make("llama", 3, vocab_size=8, eos_token_id=7, stops=frozenset({7}))
    return loaded, Decoder(Transformer(loaded.model))


def ids(prompt, loaded=None):
    return (loaded or model()).tokenizer.encode(prompt, add_special_tokens=False)


def tokens(groups):
    return [[c.ids for c in group] for group in groups]


def without_cache(loaded, prompt, us, sampling):
    """The slow obvious way: the whole sequence through transformers' own forward for each token, one sample."""
    out, nats = [], 0.0
    for u in us:
        with torch.no_grad():
            logits = loaded.model(torch.tensor([[*prompt, *out]]), use_cache=False).logits[0, -1].double()
        if sampling.temperature == 0:
            token = int(logits.argmax())
        else:
            p = (logits / sampling.temperature).softmax(-1)
            nats += float(-(p * p.log()).sum())
            token = int((p.cumsum(-1) <= u * p.sum()).sum())
        out.append(token)
        if token in loaded.stops:
            break
    return tuple(out), nats


# --- the same answers however they are computed


@pytest.mark.parametrize("family", tiny.EXACT)
@pytest.mark.parametrize(
    "sampling", [Sampling(max_tokens=12), Sampling(0.6, top_p=0.9, top_k=20, min_p=0.02, max_tokens=12)], ids=["plain", "cut"]
)
def test_the_tree_and_row_by_row_give_the_same_answers(family, sampling):
    loaded, prompts = model(family), [ids(p) for p in PROMPTS]
    seeds = [[5, i] for i in range(len(prompts))]
    on_tree = sample(loaded, decoder(family), prompts, seeds, 6, sampling)
    plain = sample(loaded, None, prompts, seeds, 6, sampling)
    assert tokens(on_tree) == tokens(plain)
    for a, b in zip(chain.from_iterable(on_tree), chain.from_iterable(plain), strict=True):
        assert a.terminated == b.terminated
        assert a.entropy == pytest.approx(b.entropy, rel=1e-4)


@pytest.mark.parametrize("family", [*tiny.EXACT[:1], "qwen3", *tiny.PLAIN, "llama-dynamic"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_answers_are_those_of_decoding_without_any_cache(family, temperature):  # S-PD-01: also greedy, of short prompts beside long ones
    loaded, sampling = model(family), Sampling(temperature, max_tokens=14)
    prompts, seeds = [ids("Hey"), ids("nine token")], [[1], [2]]
    got = sample(loaded, decoder(family) if family in tiny.EXACT else None, prompts, seeds, 2, sampling)
    for prompt, seed, group in zip(prompts, seeds, got, strict=True):
        for us, completion in zip(uniforms(seed, 2, 14), group, strict=True):
            want, nats = without_cache(loaded, prompt, us, sampling)
            assert completion.ids == want
            assert completion.terminated == (want[-1] in loaded.stops)
            assert completion.entropy == pytest.approx(nats, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_answers_do_not_depend_on_the_other_prompts_nor_on_the_batch_size(family):
    loaded, sampling = model(family), Sampling(max_tokens=8)
    engine = decoder(family) if family in tiny.EXACT else None
    prompts, seeds = [ids(p) for p in PROMPTS], [[9, i] for i in range(len(PROMPTS))]
    together = sample(loaded, engine, prompts, seeds, 4, sampling)
    for rows in (1, 4, 9, 1000):
        assert tokens(sample(loaded, engine, prompts, seeds, 4, sampling, rows=rows)) == tokens(together)
    for i, prompt in enumerate(prompts):
        assert tokens(sample(loaded, engine, [prompt], [seeds[i]], 4, sampling)) == tokens(together[i : i + 1])
    backwards = sample(loaded, engine, prompts[::-1], seeds[::-1], 4, sampling)
    assert tokens(backwards[::-1]) == tokens(together)


def test_more_prompts_than_64_in_a_batch():
    loaded = model()
    prompts, seeds = [[65 + i, 66] for i in range(70)], [[i] for i in range(70)]
    many = sample(loaded, decoder(), prompts, seeds, 1, Sampling(max_tokens=3), rows=128)
    assert tokens(many) == tokens(sample(loaded, decoder(), prompts, seeds, 1, Sampling(max_tokens=3), rows=8))


def test_more_samples_or_a_longer_answer_extend_the_shorter_one():
    loaded, prompt = model(), [ids("Hi")]
    short = tokens(sample(loaded, decoder(), prompt, [[3]], 3, Sampling(max_tokens=4)))[0]
    long = tokens(sample(loaded, decoder(), prompt, [[3]], 5, Sampling(max_tokens=9)))[0]
    assert [completion[:4] for completion in long[:3]] == short


def test_greedy_samples_of_a_prompt_are_all_the_same():
    group = sample(model(), decoder(), [ids("Hi")], [[0]], 4, Sampling(0, max_tokens=6))[0]
    assert len({c.ids for c in group}) == 1 and all(c.entropy == 0 for c in group)


@pytest.mark.parametrize("family", ["llama", "gemma"])
def test_the_pad_token_changes_nothing(family):  # S-PD-03
    prompts, seeds = [ids("Hi"), ids("a prompt of thirty tokens here")], [[1], [2]]
    engine = decoder(family) if family in tiny.EXACT else None
    answers = []
    for pad in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):  # also one with a meaning, also the one that ends a turn
        loaded = model(family)
        loaded = type(loaded)(loaded.model, tiny.make_tokenizer(pad=pad), loaded.stops, "tiny")
        answers.append(tokens(sample(loaded, engine, prompts, seeds, 2, Sampling(max_tokens=6))))
    assert answers[0] == answers[1] == answers[2]


def test_the_models_own_generation_config_bends_nothing():
    prompts, seeds, sampling = [ids("Hi"), ids("aaaa")], [[1], [2]], Sampling(max_tokens=10)
    loaded = tiny.make("gemma")
    plain = tokens(sample(loaded, None, prompts, seeds, 3, sampling))
    bent = GenerationConfig(repetition_penalty=3.0, top_k=1, no_repeat_ngram_size=1, suppress_tokens=[97], eos_token_id=[97], max_length=3)
    loaded.model.generation_config = bent
    assert tokens(sample(loaded, None, prompts, seeds, 3, sampling)) == plain
    assert loaded.model.generation_config is bent


# --- seeds


def test_the_same_seed_gives_the_same_answers_and_another_gives_others():  # S-DS-02
    prompts = [ids("Hi"), ids("Hello")]
    first, again, other = (
        tokens(sample(model(), decoder(), prompts, [[seed, 0], [seed, 1]], 4, Sampling(max_tokens=6))) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_samples_and_equal_prompts_use_streams_of_their_own():  # S-DS-01
    prompts = [ids("Hi"), ids("Hi")]
    two = tokens(sample(model(), decoder(), prompts, [[1, 0], [1, 1]], 4, Sampling(2.0, max_tokens=6)))
    assert len({*two[0], *two[1]}) == 8
    calls = [tokens(sample(model(), decoder(), prompts[:1], [[1, i]], 4, Sampling(2.0, max_tokens=6)))[0] for i in range(2)]
    assert calls == two


def test_sampling_leaves_the_global_generators_alone():
    model(), decoder()  # making them draws
    torch.manual_seed(0)
    np.random.seed(0)
    before = (torch.get_rng_state().clone(), np.random.get_state()[1].copy())
    sample(model(), decoder(), [ids("Hi")], [[1]], 2, Sampling(max_tokens=3))
    sample(model(), None, [ids("Hi")], [[1]], 2, Sampling(max_tokens=3))
    assert torch.equal(before[0], torch.get_rng_state()) and (before[1] == np.random.get_state()[1]).all()


@given(st.lists(st.integers(0, 2**70), min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 5))
def test_uniform_numbers_are_extended_never_changed(seed, samples, length):
    u = uniforms(seed, samples, length)
    assert u.shape == (samples, length) and (u >= 0).all() and (u < 1).all()
    np.testing.assert_array_equal(uniforms(seed, samples + 2, length + 3)[:samples, :length], u)
    assert len(np.unique(u)) == u.size


def test_a_seed_and_the_same_seed_with_a_zero_are_two_seeds():
    drawn = [tuple(uniforms(seed, 1, 3)[0]) for seed in ([], [0], [0, 0], [1], [1, 0], [1, 0, 0], [0, 1], [0, 0, 0, 0, 0])]
    assert len(set(drawn)) == len(drawn)


# --- the distribution


def all_answers(loaded, prompt, sampling, cut):
    """{ids: probability} of every answer of at most two tokens."""

    def step(sequence):
        with torch.no_grad():
            logits = loaded.model(torch.tensor([sequence]), use_cache=False).logits[0, -1:]
        return cut(torch.tensor([sequence]), logits).double().softmax(-1)[0].tolist()

    answers = {}
    for first, p in enumerate(step(prompt)):
        if first in loaded.stops:
            answers[first,] = p
        elif p > 0:
            answers |= {(first, second): p * q for second, q in enumerate(step([*prompt, first]))}
    return {answer: p for answer, p in answers.items() if p > 0}


def warpers(sampling):
    """Transformers' own, in its order."""
    chain = [TemperatureLogitsWarper(float(sampling.temperature))]
    chain += [TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
    chain += [TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
    chain += [MinPLogitsWarper(sampling.min_p)] if sampling.min_p is not None else []

    def cut(sequence, logits):
        for warper in chain:
            logits = warper(sequence, logits)
        return logits

    return cut


CUTS = [
    Sampling(max_tokens=2),
    Sampling(0.5, max_tokens=2),
    Sampling(2.0, max_tokens=2),
    Sampling(top_k=3, max_tokens=2),
    Sampling(top_p=0.7, max_tokens=2),
    Sampling(min_p=0.2, max_tokens=2),
    Sampling(1.3, top_p=0.9, top_k=6, min_p=0.1, max_tokens=2),
]


@pytest.mark.parametrize("sampling", CUTS, ids=str)
@pytest.mark.parametrize("tree", [True, False], ids=["tree", "plain"])
def test_answers_come_in_the_models_proportions(sampling, tree):
    loaded, engine = small()
    prompt, draws = [1, 2, 3], 4000 if tree else 1500
    expected = all_answers(loaded, prompt, sampling, warpers(sampling))
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    group = sample(loaded, engine if tree else None, [prompt], [[11]], draws, sampling)[0]
    seen = Counter(c.ids for c in group)
    assert set(seen) <= set(expected)
    common = [a for a, p in expected.items() if p * draws >= 5]
    observed = np.array([seen[a] for a in common] + [draws - sum(seen[a] for a in common)], dtype=float)
    wanted = np.array([expected[a] * draws for a in common] + [0])
    wanted[-1] = max(draws - wanted.sum(), 1e-9)
    if wanted[-1] < 1:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    assert len(observed) == 1 or chisquare(observed, wanted).pvalue > 1e-3


def test_the_chi_squared_test_would_notice_another_temperature():
    loaded, engine = small()
    expected = all_answers(loaded, [1, 2, 3], CUTS[0], warpers(CUTS[0]))
    seen = Counter(c.ids for c in sample(loaded, engine, [[1, 2, 3]], [[11]], 4000, Sampling(0.8, max_tokens=2))[0])
    common = [a for a, p in expected.items() if p * 4000 >= 5]
    observed, wanted = np.array([seen[a] for a in common], float), np.array([expected[a] for a in common])
    assert chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue < 1e-6


@settings(max_examples=60)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.3, 1.0, 1.7]),
    st.sampled_from([1.0, 0.95, 0.5, 0.05]),
    st.sampled_from([0, 1, 2, 5, 40]),
    st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
)
def test_filters_are_those_of_transformers(seed, temperature, top_p, top_k, min_p):
    logits = 3 * torch.randn(4, 11, generator=torch.Generator().manual_seed(seed))
    sampling = Sampling(temperature, top_p, top_k, min_p)
    got = filtered(logits / temperature, sampling)
    got = got / got.sum(dim=-1, keepdim=True)  # min-p leaves the rest unscaled, and `draw` scales
    want = warpers(sampling)(None, logits).softmax(dim=-1)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


def test_filters_keep_ties_at_the_edge_as_transformers_does():
    logits = torch.tensor([[2.0, 1.0, 1.0, 0.0]])
    torch.testing.assert_close(filtered(logits, Sampling(top_k=2)), warpers(Sampling(top_k=2))(None, logits).softmax(-1))


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=12))
def test_a_draw_is_the_inverse_of_the_cumulative_distribution(seed, draws):
    logits = 2 * torch.randn(3, 6, generator=torch.Generator().manual_seed(seed))
    logits[:, 2] = -30.0
    row, u = np.array([r for r, _ in draws]), np.array([u for _, u in draws])
    got, logp, entropy = draw(logits, exponentials(logits, 0.7), u, row, Sampling(0.7))
    p = (logits / 0.7).softmax(-1).double()
    for i, (r, x) in enumerate(draws):
        cumulative = p[r].cumsum(-1) / p[r].sum()
        assert cumulative[got[i]] > x - 1e-12 and (got[i] == 0 or cumulative[got[i] - 1] <= x + 1e-12)
        assert entropy[i] == pytest.approx(float(-(p[r] * p[r].log()).sum()), abs=1e-5)
        assert logp[i] == pytest.approx(float(p[r, got[i]].log()), abs=1e-5)


@pytest.mark.parametrize("u", [0.0, 0.5, np.nextafter(1, 0)])
@pytest.mark.parametrize("sampling", [Sampling(top_k=1), Sampling(top_p=1e-6), Sampling(min_p=1.0), Sampling(top_k=2)], ids=str)
def test_a_token_that_was_filtered_out_is_never_drawn(u, sampling):
    logits = torch.tensor([[0.0, 5.0, 1.0, 4.0, 0.0]])
    got, *_ = draw(logits, exponentials(logits, sampling.temperature), np.array([u]), np.array([0]), sampling)
    assert got[0] in ((1, 3) if sampling.top_k == 2 else (1,))


# --- where an answer ends


def forced(*answer, loaded=None, **options):
    """A model that writes this and nothing else: greedy from a model whose logits follow the position."""
    loaded = loaded or tiny.make("llama", **options)

    class Fixed:
        def prefill(self, prompts, room):
            self.at = 0
            return None, self.logits(len(prompts))

        def step(self, cache, tokens, parents):
            self.at += 1
            return self.logits(len(tokens))

        def logits(self, rows):
            logits = torch.zeros(rows, tiny.VOCABULARY)
            logits[:, answer[min(self.at, len(answer) - 1)]] = 50.0
            return logits

    return loaded, Fixed()


def written(answer, stop=(), max_tokens=12, **options):
    loaded, engine = forced(*answer, **options)
    return sample(loaded, engine, [[1]], [[0]], 2, Sampling(0, max_tokens=max_tokens, stop=tuple(stop)))[0][0]


def test_each_of_several_end_ids_ends_the_turn_and_stays_in_the_answer():  # S-ME-02
    both = frozenset({7, 2})
    assert written([5, 7, 9, 9], stops=both).ids == (5, 7)
    assert written([5, 2, 9, 9], stops=both).ids == (5, 2)
    assert written([5, 7, 9, 9], stops=both).terminated
    assert written([7], stops=both).ids == (7,)


def test_the_length_limit_is_no_end_of_turn_unless_the_last_token_is_one():
    assert (written([5, 6, 8], max_tokens=2).ids, written([5, 6, 8], max_tokens=2).terminated) == ((5, 6), False)
    assert written([5, tiny.END], max_tokens=2).terminated
    assert len(written([5], max_tokens=1).ids) == 1


@pytest.mark.parametrize("engine", ["tree", "plain"])
def test_a_prompt_that_holds_the_end_id_does_not_end_the_answer(engine):  # S-ME-03
    loaded = model()
    prompt = [tiny.START, 65, tiny.END, 66]
    group = sample(loaded, decoder() if engine == "tree" else None, [prompt], [[4]], 8, Sampling(max_tokens=3))[0]
    assert any(len(c.ids) == 3 and not c.terminated for c in group)


def test_stop_texts_end_an_answer_and_stay_part_of_it():
    loaded = model()
    letters = ids("say </done> now")
    got = written(letters, stop=["</done>", "zz"], max_tokens=40)
    assert loaded.tokenizer.decode(list(got.ids)) == "say </done>" and got.terminated
    assert len(written(letters, max_tokens=40).ids) == 40


@pytest.mark.parametrize("stop", ["é", "日本語の終わり", "🙂🙂🙂🙂", " \n"])
def test_stop_texts_may_take_several_tokens_a_character(stop):
    letters = ids(f"ab{stop}cd")
    got = written(letters, stop=[stop], max_tokens=60)
    assert model().tokenizer.decode(list(got.ids)) == f"ab{stop}"


def test_stop_texts_work_on_the_plain_path_also_without_any_end_id():
    loaded = tiny.make("llama", stops=frozenset())
    sampling = Sampling(max_tokens=24, stop=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    on_tree = sample(loaded, Decoder(Transformer(loaded.model)), [ids("Hi"), ids("Hello")], [[0], [1]], 6, sampling)
    plain = sample(loaded, None, [ids("Hi"), ids("Hello")], [[0], [1]], 6, sampling)
    assert tokens(on_tree) == tokens(plain)
    flat = [c for group in plain for c in group]
    assert any(c.terminated for c in flat) and any(len(c.ids) > 1 for c in flat)
    for c in flat:
        text = loaded.tokenizer.decode(list(c.ids))
        assert c.terminated == (text[-1] in sampling.stop) and not set(text[:-1]) & set(sampling.stop)


@pytest.mark.parametrize("engine", ["tree", "plain"])
def test_nothing_asked_for_gives_nothing(engine):
    run = decoder() if engine == "tree" else None
    none = sample(model(), run, [ids("Hi")], [[0]], 3, Sampling(max_tokens=0))
    assert [(c.ids, c.terminated, c.entropy) for c in none[0]] == [((), False, 0.0)] * 3
    assert sample(model(), run, [ids("Hi")], [[0]], 0, Sampling()) == [[]]
    assert sample(model(), run, [], [], 3, Sampling()) == []


def test_progress_counts_prompts():
    seen = []
    sample(model(), decoder(), [ids("Hi")] * 5, [[i] for i in range(5)], 2, Sampling(max_tokens=1), rows=4, advance=seen.append)
    assert seen == [2, 2, 1]


def test_the_tree_runs_each_distinct_prefix_once():
    """What the tree is for: 16 greedy samples cost the model the tokens of one."""
    loaded, seen = model(), []

    class Counting(Decoder):
        def step(self, cache, tokens, parents):
            seen.append(len(tokens))
            return super().step(cache, tokens, parents)

    engine = Counting(Transformer(loaded.model))
    sample(loaded, engine, [ids("Hi"), ids("Hi")], [[0], [1]], 8, Sampling(0, max_tokens=6))
    assert set(seen) == {1}
    seen.clear()
    groups = sample(loaded, engine, [ids("Hi"), ids("Ho")], [[0], [1]], 8, Sampling(0.7, max_tokens=6))
    distinct = {(g, c.ids[: i + 1]) for g, group in enumerate(groups) for c in group for i in range(len(c.ids))}
    inner = {(g, p) for g, p in distinct if len(p) < 6 and p[-1] not in loaded.stops}  # the last token needs no logits
    assert sum(seen) == len(inner)


@settings(max_examples=60)
@given(st.integers(1, 3 * BLOCK), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 0.99]))
def test_the_inverse_is_that_of_the_whole_running_sum(width, seed, empty):
    rng = np.random.default_rng(seed)
    p = rng.random((3, width)) * (rng.random((3, width)) >= empty)
    p[:, rng.integers(width)] = 0.5  # no row all zero
    u, row = rng.random(40), rng.integers(3, size=40)
    u[:3] = 0.0, np.nextafter(1.0, 0.0), 0.5
    p = torch.from_numpy(p).float()
    got = inverse(p, torch.from_numpy(u), torch.from_numpy(row)).numpy()
    assert (p.numpy()[row, got] > 0).all()
    whole = p.double().cumsum(-1).numpy()[row]
    target = u * whole[:, -1]
    below = np.where(got > 0, whole[np.arange(40), np.maximum(got - 1, 0)], 0.0)
    rounding = 1e-12 * whole[:, -1]
    assert (below <= target + rounding).all() and (whole[np.arange(40), got] >= target - rounding).all()


# --- drafts


class Told(Drafts):
    """Guesses what it is told to, right or wrong."""

    def __init__(self, answers):
        self.answers = answers

    def guess(self, ids, most):
        return list(next((a[len(ids) :] for a in self.answers if list(a[: len(ids)]) == list(ids)), ()))[:most]

    def learn(self, ids):
        pass


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("sampling", [Sampling(0, max_tokens=12), Sampling(0.8, max_tokens=12), Sampling(1.0, 0.9, 20, 0.01, 12)], ids=str)
def test_drafts_change_no_answer_and_save_passes(family, sampling):
    engine, passes = decoder(family), []

    class Counting(Decoder):
        def step(self, cache, tokens, parents):
            passes.append(len(tokens))
            return super().step(cache, tokens, parents)

    counting = Counting(engine.transformer)
    prompts, seeds = [ids(p) for p in PROMPTS], [[i] for i in range(len(PROMPTS))]

    def run(drafts):
        passes.clear()
        return sample(model(family), counting, prompts, seeds, 3, sampling, drafts=drafts), len(passes)

    wanted, slow = run(Told([]))
    said = [c.ids for group in wanted for c in group]
    rng = np.random.default_rng(0)
    half_wrong = [tuple(int(t) if rng.random() < 0.7 else int(rng.integers(250)) for t in a) for a in said]
    for drafts in (Told(said), Told(half_wrong), Told([tuple(rng.integers(250, size=30).tolist())]), Drafts()):
        groups, taken = run(drafts)
        assert tokens(groups) == tokens(wanted)
        assert [c.terminated for g in groups for c in g] == [c.terminated for g in wanted for c in g]
        np.testing.assert_allclose([c.entropy for g in groups for c in g], [c.entropy for g in wanted for c in g], atol=1e-3)
        assert taken <= slow
    assert run(Told(said))[1] <= slow / 2


def test_a_guess_goes_on_while_it_is_sure_and_no_further():
    drafts = Drafts()
    for last in (5, 5, 6):
        drafts.learn((1, 2, 3, 4, last))
    # after (2, 3, 4): 5 twice in three, less than SURE * (3 + 1)
    assert SURE * 4 > 2
    assert drafts.guess((1,), 10) == [2, 3, 4]
    assert drafts.guess((1,), 2) == [2, 3]
    assert drafts.guess((), 10) == [1, 2, 3, 4]
    assert drafts.guess((9, 9, 9), 10) == []
    for _ in range(9):
        drafts.learn((1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1))
    assert drafts.guess((1, 2, 3, 4), 99) == ([5, 1, 2, 3, 4] * 9)[:LONGEST]


def test_once_is_not_sure():
    drafts = Drafts()
    drafts.learn((1, 2, 3))
    drafts.learn((1, 2, 3))
    assert drafts.guess((), 10) == []  # 2 of 2 + 1 is less than 0.7
    drafts.learn((1, 2, 3))
    assert drafts.guess((), 10) == [1, 2, 3]


def test_a_token_that_ends_the_turn_is_never_read():
    loaded, engine = small()
    seen = []

    class Watching(Decoder):
        def step(self, cache, tokens, parents):
            seen.extend(tokens.tolist())
            return super().step(cache, tokens, parents)

    sample(
        loaded,
        Watching(engine.transformer),
        [(1, 2)],
        [[0]],
        4,
        Sampling(1.0, max_tokens=9),
        drafts=Told([(3, 7, 7), (2, 2, 7), (7,), (0, 7)]),
    )
    assert seen and 7 not in seen


@pytest.mark.parametrize("family", ["llama", "gemma"])
def test_each_sample_of_a_prompt_may_be_drawn_in_its_own_way(family):
    engine = decoder(family) if family in tiny.EXACT else None
    prompts, seeds = [ids(p) for p in PROMPTS], [[i] for i in range(len(PROMPTS))]
    ways = [Sampling(0, max_tokens=6), Sampling(0.8, max_tokens=9), Sampling(1.2, top_k=30, max_tokens=3), Sampling(1.0, max_tokens=0)]
    mixed = tokens(sample(model(family), engine, prompts, seeds, 4, ways))
    for place, way in enumerate(ways):
        alone = tokens(sample(model(family), engine, prompts, seeds, 4, way))
        assert [group[place] for group in mixed] == [group[place] for group in alone]


@given(st.lists(st.integers(1, 9000), max_size=40), st.integers(1, 9), st.integers(0, 300), st.integers(1, 128))
def test_a_batch_keeps_within_its_rows_and_its_share_of_memory(lengths, samples, longest, rows):
    parts = batches(lengths, samples, longest, rows)
    assert [i for part in parts for i in range(len(lengths))[part]] == list(range(len(lengths)))
    for part in parts:
        own = lengths[part]
        assert len(own) == 1 or (len(own) * samples <= rows and len(own) * (max(own) + samples * longest) <= SLOTS)


def test_a_completion_has_a_log_probability_a_token_or_none():  # S-TC-08
    assert Completion((1, 2), True, logp=(-0.5, -0.1)).logp == (-0.5, -0.1)
    assert Completion((1, 2), True).logp == ()
    with pytest.raises(ValueError, match="2 sampled tokens and 1 log-probabilities"):
        Completion((1, 2), True, logp=(-0.5,))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize(
    "prompts",
    [
        [(1, 2, 3, 9), (1, 2, 3, 8, 7)],  # the same beginning
        [(1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 9)],  # it goes on
        [(1, 2, 8), (1, 2, 9)],  # less of it
        [(1, 2, 3)],  # nothing but it; the last token must be read, for its logits
        [(7, 8), (9,)],  # another one
    ],
)
def test_what_the_prompts_of_the_last_batch_shared_is_not_read_again(family, prompts):
    transformer, read = Transformer(model(family).model), []
    run = transformer.run
    transformer.run = lambda tokens, *rest, **kept: read.append(len(tokens)) or run(tokens, *rest, **kept)
    stem = Stem()
    Decoder(transformer, stem).prefill([(1, 2, 3, 4), (1, 2, 3, 5, 6)])
    assert tuple(stem.tokens) == (1, 2, 3) and read == [6]
    cache, logits = Decoder(transformer, stem).prefill(prompts)
    fresh, wanted = Decoder(transformer).prefill(prompts)
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=1e-5)
    shared = len(common([(1, 2, 3), *(p[:-1] for p in prompts)]))
    assert read[2] - read[1] == shared
    for again, first in zip(cache.trunk, fresh.trunk, strict=True):
        torch.testing.assert_close(again, first, atol=1e-5, rtol=1e-5)


def common(sequences):
    """The beginning that all share."""
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, zip(*sequences, strict=False))]


def test_a_change_of_weights_forgets_what_was_read():
    policy = tiny.make_policy(tiny.make("llama"))
    first = policy.decoder()
    first.prefill([(1, 2, 3, 4), (1, 2, 3, 5)])
    assert policy.decoder().stem is first.stem and len(first.stem.tokens) == 3
    policy.changed()
    assert policy.decoder().stem.tokens == ()
