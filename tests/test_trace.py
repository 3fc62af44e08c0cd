"""The trace: training goes back through what sampling computed, with the numbers of a pass of its own."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earnest.config import TrainConfig
from earnest.engine import kernels, trace
from earnest.engine import policy as policies
from earnest.engine.policy import Trajectory
from earnest.engine.rollouts import Prompt
from earnest.engine.sampler import Sampling, sample
from earnest.engine.train import train
from earnest.task import Task

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="no C compiler with OpenMP here")
KINDS = {  # heads of whole vectors
    "with norms of heads": ("qwen3", {}),
    "with biases everywhere": ("llama-biased", {}),
    "with biases of queries, keys and values": ("qwen2", {"hidden_size": 64}),
    "with scaled positions, the embedding its head": ("llama-scaled", {"hidden_size": 64}),
    "of one layer": ("qwen3", {"num_hidden_layers": 1}),
}
P, Q = (tiny.START, 10, 11, 12), (tiny.START, 10, 13)


def make(kind="with norms of heads"):
    family, options = KINDS[kind]
    return tiny.make_policy(tiny.make(family, **options))


def drawn(policy, prompts, samples=4, tokens=12, remember=1000, seed=1, **how):
    seeds = [[seed, place] for place in range(len(prompts))]
    how = Sampling(max_tokens=tokens, **how)
    groups = sample(policy.loaded, policy.decoder(remember), prompts, seeds, samples, how, drafts=policy.drafts)
    return [Trajectory(prompt, one.ids) for prompt, group in zip(prompts, groups, strict=True) for one in group]


def gradients(policy, trajectories, temperature=1.0):
    """Log-probabilities, and the gradient of a sum of them with weights that all differ."""
    scores = policy.log_probabilities(trajectories, temperature)
    weights = torch.randn(scores.logp.shape, generator=torch.Generator().manual_seed(5))
    (scores.logp * weights).sum().backward()
    found = [p.grad for p in policy.trainable()]
    for p in policy.trainable():
        p.grad = None
    return scores.logp.detach(), found


def naive(policy, trajectories):
    """The same from transformers' own forward pass, a sequence at a time."""
    width = max(len(t.completion) for t in trajectories)
    logp = []
    for t in trajectories:
        every = policy.model(torch.tensor([t.prompt + t.completion]), use_cache=False).logits[0].log_softmax(-1)
        own = every[len(t.prompt) - 1 : -1].gather(-1, torch.tensor(t.completion, dtype=torch.long)[:, None])[:, 0]
        logp.append(torch.nn.functional.pad(own, (0, width - len(own))))
    logp = torch.stack(logp)
    weights = torch.randn(logp.shape, generator=torch.Generator().manual_seed(5))
    (logp * weights).sum().backward()
    found = [p.grad for p in policy.trainable()]
    for p in policy.trainable():
        p.grad = None
    return logp.detach(), found


def close(found, wanted, largest=1e-5):
    """Relative to the largest entry of any gradient, as the engine's bound is (1e-4)."""
    torch.testing.assert_close(found[0], wanted[0], atol=2e-5, rtol=1e-4)
    scale = max(float(g.abs().max()) for g in wanted[1])
    assert scale > 0.01
    for own, other in zip(found[1], wanted[1], strict=True):
        assert float((own - other).abs().max()) <= largest * scale


@pytest.fixture
def used(monkeypatch):
    """How many passes went back through a trace."""
    passes = []
    monkeypatch.setattr(policies, "hidden_of", lambda *args: passes.append(1) or trace.hidden_of(*args))
    return passes


@pytest.fixture
def heads(monkeypatch):
    """Of each of those, whether it had no need of logits."""
    without = []

    def watched(*args):
        logp = trace.log_probability(*args)
        without.append(logp is not None)
        return logp

    monkeypatch.setattr(policies, "log_probability", watched)
    return without


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_naive_computation(kind, used, heads):
    policy = make(kind)
    trajectories = drawn(policy, [P, Q])
    found = gradients(policy, trajectories)
    assert used == [1] and heads == [True]
    close(found, naive(policy, trajectories))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple), min_size=1, max_size=4),
    rounds=st.integers(1, 3),
    tokens=st.integers(1, 9),
    temperature=st.sampled_from([0.7, 1.0]),
    drawn_at=st.sampled_from([0.7, 1.0]),
    cut=st.sampled_from([{}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.05}]),
    chosen=st.randoms(use_true_random=False),
)
def test_whatever_was_sampled_and_whichever_part_is_trained_on_gradients_are_those_of_a_pass(
    used, heads, prompts, rounds, tokens, temperature, drawn_at, cut, chosen
):
    policy, every = make(), []
    for number in range(rounds):  # rounds of dynamic sampling share a trace
        every += drawn(policy, prompts, 3, tokens, seed=number, temperature=drawn_at, **cut)
    part = [t for t in every if chosen.random() < 0.7 and t.completion] or [t for t in every if t.completion][:1]
    used.clear()
    heads.clear()
    found = gradients(policy, part, temperature)
    assert used == [1] and heads == [drawn_at == temperature]
    policy.changed()
    wanted = gradients(policy, part, temperature)
    assert used == [1]
    torch.testing.assert_close(found[0], wanted[0], atol=2e-5, rtol=1e-4)
    scale = max(float(g.abs().max()) for g in wanted[1])
    assert all(float((a - b).abs().max()) <= 1e-5 * scale + 1e-7 for a, b in zip(found[1], wanted[1], strict=True))


def test_the_turns_of_a_conversation_share_a_trace(used):
    policy = make()
    decoder, how = policy.decoder(1000), Sampling(max_tokens=5)
    (first,) = sample(policy.loaded, decoder, [P], [[1]], 2, how)
    told = (40, 41, 42)  # what a tool answers: read, and not learned from
    histories = [P + one.ids + told for one in first]
    second = [one for (one,) in sample(policy.loaded, decoder, histories, [[2], [3]], 1, how)]
    whole = [
        Trajectory(P, a.ids + told + b.ids, (True,) * len(a.ids) + (False,) * 3 + (True,) * len(b.ids))
        for a, b in zip(first, second, strict=True)
    ]
    found = gradients(policy, whole)
    assert used == [1]
    policy.changed()
    close(found, gradients(policy, whole))


def test_after_a_change_of_weights_nothing_of_the_trace_is_used(used):
    policy = make()
    trajectories = drawn(policy, [P])
    before = gradients(policy, trajectories)
    tiny.disturb(policy, 7, 0.2)  # calls changed()
    after = gradients(policy, trajectories)
    assert used == [1] and float((before[0] - after[0]).abs().max()) > 1e-2
    close(after, naive(policy, trajectories))
    fresh = drawn(policy, [P])
    close(gradients(policy, fresh), naive(policy, fresh))
    assert used == [1, 1]


def test_the_next_step_finds_the_memory_of_the_last_and_none_of_its_numbers(used):
    policy = make()
    gradients(policy, drawn(policy, [P, Q], tokens=20))
    keys = policy.decoder(1000).pool.layers[0][0]
    tiny.disturb(policy, 7, 0.2)
    fresh = drawn(policy, [Q, P])
    assert policy.decoder(1000).pool.layers[0][0].data_ptr() == keys.data_ptr()
    close(gradients(policy, fresh), naive(policy, fresh))
    assert used == [1, 1]


def test_what_an_evaluation_held_is_given_back_before_training_goes_on():
    policy = make()
    gradients(policy, drawn(policy, [P]))
    policy.changed()
    drawn(policy, [P, Q], remember=0)
    assert policy.decoder(0).pool.layers and not policy.decoder(1000).pool.layers


def test_what_did_not_fit_goes_through_a_pass_of_its_own(used):
    policy = make()
    early, late = drawn(policy, [P], remember=60, tokens=8), drawn(policy, [Q], remember=60, tokens=20)
    close(gradients(policy, early), naive(policy, early))
    assert used == [1]
    close(gradients(policy, late), naive(policy, late))
    assert used == [1] and policy.decoder(60).pool.trace.used <= 60


def test_another_sequence_than_was_sampled_goes_through_a_pass_of_its_own(used):
    policy = make()
    drawn(policy, [P])
    for other in ([Trajectory(P, (1, 2, 3, 4, 5))], [Trajectory(P[:2], (*P[2:], 9))]):  # the second predicts what was only read
        close(gradients(policy, other), naive(policy, other))
    assert not used


@pytest.mark.parametrize("slots", [50, 80])
def test_a_pool_that_closes_its_gaps_moves_the_trace_with_them(slots, used, monkeypatch):
    monkeypatch.setattr("earnest.engine.pool.SLOTS", slots)
    policy = make()
    drawn(policy, [P], 2, 10)
    trajectories = drawn(policy, [P, Q], 1, 30, seed=2)
    found = gradients(policy, trajectories)
    policy.changed()
    close(found, gradients(policy, trajectories))


def test_an_evaluation_keeps_no_trace():
    policy = make()
    drawn(policy, [P])
    drawn(policy, [P], remember=0)
    assert policy.decoder().pool.trace is None


def test_what_was_read_without_a_trace_is_read_again_for_one(used):
    policy = make()
    drawn(policy, [P], remember=0)
    trajectories = drawn(policy, [P])
    close(gradients(policy, trajectories), naive(policy, trajectories))
    assert used == [1]


def test_a_trace_that_is_half_full_is_forgotten_between_steps_that_changed_nothing():
    policy = make()
    drawn(policy, [P], remember=1000)
    kept = policy.decoder(1000).pool
    policy.tidy()
    assert policy.decoder(1000).pool is kept and kept.trace.used
    policy.changed()
    drawn(policy, [P], remember=20)
    policy.tidy()
    assert not policy.decoder(20).pool.used and not policy.decoder(20).pool.trace.used


def trained(tmp_path, steps, **options):
    policy = make()
    task = Task(rows=[{"id": str(i)} for i in range(4)], prompt=lambda row: "?", rewards=[ones], check=lambda text, row: False)
    prompts = [Prompt(row, [{"role": "user", "content": "?"}], (tiny.START, 60 + i), False) for i, row in enumerate(task.rows)]
    config = TrainConfig(steps=steps, num_prompts=2, num_generations=6, max_completion_length=16, max_dead_steps=0, save_steps=0)
    tmp_path.mkdir(exist_ok=True)
    rows = []
    train(policy, task, prompts, replace(config, **options), tmp_path, 0, False, rows.append)
    return policy.state(), rows


def ones(completions, **_):
    """How many of the characters are of the first half of the alphabet."""
    return [float(sum(c < "n" for c in one[-1]["content"])) for one in completions]


def test_training_uses_the_trace_from_its_second_step_on(tmp_path, used, monkeypatch):
    state, rows = trained(tmp_path / "a", 3)
    assert len(used) == 2
    monkeypatch.setattr("earnest.engine.train.TRACED", 0)
    plain, others = trained(tmp_path / "b", 3)
    assert len(used) == 2
    assert [r["reward"] for r in rows] == [r["reward"] for r in others]
    for one, other in zip(rows, others, strict=True):
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
    for name, value in state.items():
        torch.testing.assert_close(value, plain[name], atol=2e-5, rtol=1e-3)


def test_with_a_kl_term_every_pass_is_computed(tmp_path, used):
    trained(tmp_path, 2, beta=0.1)
    assert not used


def test_later_iterations_compute_their_own_pass(tmp_path, used):
    trained(tmp_path, 2, num_iterations=3)
    assert len(used) == 1


def test_greedy_and_sampled_answers_share_a_trace(used, heads):  # whose heads differ: a greedy token was not drawn at any temperature
    policy = make()
    how = [Sampling(0.0, max_tokens=8), Sampling(1.0, max_tokens=8)]
    (group,) = sample(policy.loaded, policy.decoder(1000), [P], [[1]], 2, how)
    both = [Trajectory(P, one.ids) for one in group]
    close(gradients(policy, both), naive(policy, both))
    assert used == [1] and heads == [False]


def test_places_follow_their_slots():
    class Small:
        embedding = torch.zeros(3, 2)
        heads, head_dim, layers = 1, 2, [None]
        head_weight = embedding

    kept = trace.Trace(Small, 5)
    kept.note(np.array([3, 0]), None, torch.zeros(2, 2))
    kept.note(np.array([7, 1]), np.array([1]), torch.zeros(1, 2))
    assert kept.find(np.array([0, 7, 1, 3]), np.array([0, 2])).tolist() == [1, 2, 3, 0]
    assert kept.find(np.array([0, 7]), np.array([1])) is None  # only read, not finished
    assert kept.find(np.array([0, 2]), np.array([0])) is None
    assert kept.find(np.array([0, 99]), np.array([0])) is None
    assert kept.open(2) is None and kept.open(1) is not None
    kept.move(np.array([1, 7, 20]))
    assert kept.find(np.array([0, 1]), np.array([0])).tolist() == [3, 2] and kept.find(np.array([2]), np.array([0])) is None
