"""The pool of keys and values: what is known is not read again, and makes no difference to any number."""

import numpy as np
import pytest
import tiny
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earnest.engine import kernels
from earnest.engine.decoder import Decoder
from earnest.engine.pool import PAGE, Pool, PooledDecoder
from earnest.engine.sampler import Sampling, sample
from earnest.engine.transformer import Transformer

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="no C compiler with OpenMP here")
FAMILY = "qwen3"  # its heads are of whole vectors
TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)


def make(pool=None):
    """A decoder, and the list of how many tokens each of its passes read."""
    transformer, read = Transformer(tiny.make(FAMILY).model, packed=True), []
    embed = transformer.embed
    transformer.embed = lambda tokens, depths: read.append(len(tokens)) or embed(tokens, depths)
    return PooledDecoder(transformer, Pool() if pool is None else pool), read


def logits_of(sequence):
    return Decoder(Transformer(tiny.make(FAMILY).model)).prefill([sequence])[1][0]


def close(a, b):
    torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@settings(max_examples=40)
@given(st.lists(st.lists(TOKENS, min_size=1, max_size=4, unique=True), min_size=1, max_size=4))
def test_whatever_was_read_before_logits_are_those_of_a_fresh_reading(batches):
    decoder, _ = make()
    for prompts in batches:
        _, logits = decoder.prefill(prompts)
        close(logits, torch.stack([logits_of(prompt) for prompt in prompts]))


def test_prompts_are_read_in_parts_with_the_same_logits(monkeypatch):
    prompts = [(1, 2, 3, 0, 1, 2), (1, 2, 3, 0, 3), (2, 2), (1,)]
    monkeypatch.setattr("earnest.engine.pool.AT_ONCE", 3)
    decoder, read = make()
    _, logits = decoder.prefill(prompts)
    assert len(read) > 2 and max(read) <= 3 and sum(read) == 9
    close(logits, torch.stack([logits_of(prompt) for prompt in prompts]))


def test_a_prompt_is_read_as_far_as_it_is_new_and_its_last_token_always():
    decoder, read = make()
    decoder.prefill([(1, 2, 3, 4), (1, 2, 5)])
    decoder.prefill([(1, 2, 3, 4), (1, 2, 3, 6, 7), (9,)])
    assert read == [5, 4]  # 1 2 3 4 5, then 4 for its logits, 6 7 and 9


def test_the_next_turn_of_a_conversation_reads_only_what_was_added():
    decoder, read = make()
    rows, _ = decoder.prefill([(1, 2, 3)])
    decoder.step(rows, np.array([4, 5]), np.array([0, 0]))
    decoder.step(rows, np.array([6, 7]), np.array([0, 1]))
    _, logits = decoder.prefill([(1, 2, 3, 4, 6, 8, 8), (1, 2, 3, 5, 7, 9)])
    assert read == [3, 2, 2, 3]
    close(logits, torch.stack([logits_of((1, 2, 3, 4, 6, 8, 8)), logits_of((1, 2, 3, 5, 7, 9))]))


def test_a_branch_of_an_earlier_row_is_known_as_well():
    decoder, read = make()
    rows, _ = decoder.prefill([(1,)])
    decoder.step(rows, np.array([2, 3, 4]), np.array([0, 1, 0]))  # 3 follows the new 2: a draft
    _, logits = decoder.prefill([(1, 2, 3, 5)])
    assert read == [1, 3, 1]
    close(logits[0], logits_of((1, 2, 3, 5)))


def test_a_full_pool_forgets_all_but_what_the_prompts_begin_with(monkeypatch):
    monkeypatch.setattr("earnest.engine.pool.SLOTS", 12)
    decoder, read = make()
    decoder.prefill([(1, 2, 3, 4, 5, 6), (7, 8, 9)])
    _, logits = decoder.prefill([(1, 2, 3, 9, 9, 9, 9)])
    assert read == [9, 4] and decoder.pool.used == 7
    close(logits[0], logits_of((1, 2, 3, 9, 9, 9, 9)))
    _, logits = decoder.prefill([(7, 8, 9)])
    assert read[2] == 3
    close(logits[0], logits_of((7, 8, 9)))


@pytest.mark.parametrize("slots", [10, 60, 10_000])
def test_a_small_pool_changes_no_answer(slots, monkeypatch):
    monkeypatch.setattr("earnest.engine.pool.SLOTS", slots)
    policy = tiny.make_policy(tiny.make(FAMILY))
    for prompts in ([(tiny.START, 1), (tiny.START, 2)], [(tiny.START, 1), (tiny.START, 1, 2, 3)]):
        seeds = [[place] for place in range(len(prompts))]
        pooled = sample(policy.loaded, policy.decoder(), prompts, seeds, 5, Sampling(max_tokens=40), rows=6)
        plain = sample(policy.loaded, None, prompts, seeds, 5, Sampling(max_tokens=40))
        assert [[c.ids for c in group] for group in pooled] == [[c.ids for c in group] for group in plain]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000), st.sampled_from([1, 30, 10_000]))
def test_however_rows_part_end_and_change_place_logits_are_those_of_each_sequence(monkeypatch, seed, slots):
    random = np.random.default_rng(seed)
    with monkeypatch.context() as patch:
        patch.setattr("earnest.engine.pool.SLOTS", slots)
        decoder, _ = make()
        paths = [(1, 2, 3, 4), (1, 2, 9), (5,)][: int(random.integers(1, 4))]
        rows, _ = decoder.prefill(paths)
        for size in (3, 5, 4, 2, 6, 1, 3, 4):
            new, grown = random.integers(tiny.VOCABULARY, size=size), list(paths)
            # a new node may follow a row, or a new node before it: a draft
            parents = np.array([int(random.integers(len(paths) + (node if size > 3 else 0))) for node in range(size)])
            for parent, token in zip(parents, new, strict=True):
                grown.append((*grown[parent], int(token)))
            paths = grown[len(paths) :]
            logits = decoder.step(rows, new, parents)
        close(logits, torch.stack([logits_of(path) for path in paths]))


def test_a_pool_forgets_rows_that_ended_before_it_outgrows_its_bound(monkeypatch):
    monkeypatch.setattr("earnest.engine.pool.SLOTS", 40)
    decoder, _ = make()
    rows, _ = decoder.prefill([(1,)])
    for token in range(100):  # every draft is refused, so every pass begins pages
        decoder.step(rows, np.array([token, 7, 8]), np.array([0, 0, 1]))
        rows.paths, rows.pages = rows.paths[:1], rows.pages[:1]
    assert decoder.pool.layers[0][0].shape[1] <= 2 * (40 + 2 * 100)
    _, logits = decoder.prefill([(1, *range(100))])
    close(logits[0], logits_of((1, *range(100))))


def test_rows_go_on_in_pages_of_their_own():
    decoder, _ = make()
    rows, _ = decoder.prefill([(1,), (2,)])
    for _ in range(PAGE):
        decoder.step(rows, np.array([3, 4]), np.array([0, 1]))
    first, second = (path[1:].tolist() for path in rows.paths)
    assert first == list(range(first[0], first[0] + PAGE)) and second == list(range(second[0], second[0] + PAGE))


def test_a_change_of_weights_empties_the_pool():
    policy = tiny.make_policy(tiny.make(FAMILY))
    policy.decoder().prefill([(1, 2, 3)])
    assert policy.decoder().pool.used == 3
    policy.changed()
    assert policy.decoder().pool.used == 0
