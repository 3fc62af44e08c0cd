"""The maths of GRPO: advantages, token losses, reductions and the metrics of a step, against numbers worked out by hand."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from transformers import LlamaConfig, LlamaForCausalLM
from trl.rewards import get_soft_overlong_punishment

from earnest import text
from earnest.config import TrainConfig
from earnest.engine import grpo, learn, train
from earnest.engine.grpo import LossConfig, advantages, dead_share, kl_k3, pass_at_k, reduce, soft_overlong_penalty, tied, token_loss
from earnest.engine.models import Loaded
from earnest.engine.policy import HeadLogProbability, Policy, Trajectory
from earnest.engine.rollouts import Batch, Prompt, Sampled
from earnest.engine.sampler import Completion, Sampling, sample
from earnest.score import Scores, weighted_total
from earnest.task import Verdict

NAN, INF = math.nan, math.inf
EOS = 1
LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo"]
every_loss_type = pytest.mark.parametrize("loss_type", LOSS_TYPES)


def close(actual, expected, tolerance=1e-6):
    torch.testing.assert_close(torch.as_tensor(actual).double(), torch.as_tensor(expected).double(), atol=tolerance, rtol=0, equal_nan=True)


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def ragged(lengths, width=None):
    return torch.arange(width or max(lengths))[None, :] < torch.tensor(lengths)[:, None]


def losses_at(ratio, advantage, **options):
    """Token loss, and its gradient to log pi, of single tokens of these ratios; old log-probability 0."""
    logp = leaf([[math.log(r)] for r in ratio])
    mask = torch.ones(len(ratio), 1, dtype=torch.bool)
    loss = token_loss(logp, torch.zeros_like(logp), torch.tensor(advantage), mask, LossConfig(**options))
    loss.sum().backward()
    return loss.detach()[:, 0], logp.grad[:, 0]


# ---- advantages


def test_a_missing_reward_moves_no_baseline_and_gets_zero():  # case S-AL-01
    # mean of 1, 0, 0 is 1/3; squares 4/9 + 1/9 + 1/9 = 2/3; std sqrt(2/3 / 2) = 0.57735; (2/3)/0.57745 = 1.15450, (-1/3)/0.57745 = -0.57725
    got = advantages(np.array([[1, 0, 0, NAN]]))
    close(got, [[1.15450, -0.57725, -0.57725, 0]], 1e-5)
    assert got[0, 3] == 0


def test_a_single_verdict_in_a_group_is_no_signal():  # case S-AL-02
    for scale in ("group", "batch", "none"):
        assert (advantages(np.array([[NAN, NAN, 0.8, NAN]]), scale) == 0).all()
    assert tied(np.array([[NAN, NAN, 0.8, NAN]])).all()


@pytest.mark.parametrize("epsilon", [1e-4, 1e-8])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize(
    "group",
    [
        [0.3, 0.1 + 0.2, 0.3, 0.3],
        np.full(8, 0.35, dtype=np.float32).tolist(),
        [float(np.float32(0.1) + np.float32(0.2)), float(np.float32(0.3)), 0.3, 0.3],
        [1e6 + 0.1, 1e6 + 0.1 + 1e-10, 1e6 + 0.1, NAN],
        [-0.7, -0.7 + 1e-16, -0.1 * 7, -0.7],
    ],
)
def test_rounding_is_no_signal_whatever_the_epsilon(group, scale, epsilon, monkeypatch):  # case S-AL-03
    monkeypatch.setattr(grpo, "STD_EPSILON", epsilon)
    rewards = np.array([group, np.linspace(0, 1, len(group))])  # a live group beside it, so that the batch's deviation is not 0
    assert tied(rewards).tolist() == [True, False]
    got = advantages(rewards, scale)
    assert (got[0] == 0).all()
    assert (got[1] != 0).any()


def test_a_group_of_one_has_advantage_zero():  # case S-AL-04
    for scale in ("group", "batch", "none"):
        assert advantages(np.array([[0.7], [0.2]]), scale).tolist() == [[0.0], [0.0]]
    with pytest.raises(Exception, match=r"(?i)num_generations.*at least 2"):
        TrainConfig(num_generations=1)


def test_groups_are_made_by_row_not_by_prompt_text():  # case S-AL-05
    batch = batch_of([[1, 0], [0, 0]])
    assert batch.prompts[0].messages == batch.prompts[1].messages
    # mean 0.5, std sqrt(0.25 + 0.25) = 0.70711; 0.5 / 0.70721 = 0.70701
    close(advantages(batch.rewards), [[0.70701, -0.70701], [0, 0]], 1e-5)


def test_mean_and_deviation_are_those_of_the_whole_group():  # case S-AL-06
    # mean 1/4; squares 9/16 + 3/16 = 3/4; std sqrt(3/4 / 3) = 0.5; 0.75/0.5001 = 1.49970, -0.25/0.5001 = -0.49990
    close(advantages(np.array([[1.0, 0, 0, 0]])), [[1.49970, -0.49990, -0.49990, -0.49990]], 1e-5)


def test_scale_batch_divides_by_the_deviation_of_all_rollouts_and_none_by_nothing():
    rewards = np.array([[1.0, 0.0], [4.0, NAN], [3.0, 2.0]])
    # centred: (0.5, -0.5), (0, 0) as it is alone, (0.5, -0.5); all rewards 0 1 2 3 4: mean 2, squares 10, std sqrt(10/4) = 1.58114
    close(advantages(rewards, "none"), [[0.5, -0.5], [0, 0], [0.5, -0.5]])
    close(advantages(rewards, "batch"), np.array([[1, -1], [0, 0], [1, -1]]) * 0.5 / 1.58124, 1e-5)


def test_an_empty_completion_has_no_say_in_its_sibling_baseline():  # case S-AL-07
    # the mean of what is left, 1, is B's own reward; with A in it B would get (1 - 50.5) = -49.5
    for scale in ("group", "batch", "none"):
        assert advantages(np.array([[NAN, 1.0]]), scale).tolist() == [[0.0, 0.0]]


def test_the_sampler_never_returns_an_empty_completion(tiny):  # why no reward of an empty completion can reach a baseline, S-AL-07
    model = tiny.model
    everything_stops = Loaded(model, None, frozenset(range(model.config.vocab_size)), "tiny")
    groups = sample(everything_stops, tiny.decoder(), [(5, 6)], [[0]], 4, Sampling(max_tokens=5))
    assert [(len(c.ids), c.terminated) for c in groups[0]] == [(1, True)] * 4


def test_all_rewards_missing_is_all_zero():
    for scale in ("group", "batch", "none"):
        assert (advantages(np.full((2, 3), NAN), scale) == 0).all()


def test_tied_sees_equal_missing_and_single_rewards():
    groups = [[1, 1, 1], [NAN, 1, 1], [NAN, NAN, 1], [NAN] * 3, [1, 1, 0], [NAN, 0, 1], [0, 0, 1e-5], [1e7, 1e7, 1e7 + 1], [-3, -3, -2.9]]
    #         equal       equal        single        none          no          no         no           within 1e-6    no
    assert tied(np.array(groups)).tolist() == [True, True, True, True, False, False, False, True, False]


# rewards on a grid of 1/1000, so that none is close to a tie without being one
REWARD = st.one_of(st.just(NAN), st.integers(-5000, 5000).map(lambda n: n / 1000))
GROUPS = st.integers(1, 6).flatmap(lambda g: st.lists(st.lists(REWARD, min_size=g, max_size=g), min_size=1, max_size=5)).map(np.array)
SCALES = st.sampled_from(["group", "batch", "none"])


@given(GROUPS, SCALES)
def test_advantages_of_a_group_sum_to_zero_and_keep_the_order_of_rewards(rewards, scale):
    got = advantages(rewards, scale)
    assert np.isfinite(got).all()
    assert np.abs(got.sum(axis=1)).max() < 1e-9
    assert (got[np.isnan(rewards)] == 0).all()
    for reward, advantage in zip(rewards, got, strict=True):
        known = ~np.isnan(reward)
        order = np.sign(reward[known][:, None] - reward[known][None, :])
        assert (np.sign(advantage[known][:, None] - advantage[known][None, :]) == order).all()


@given(GROUPS, SCALES)
def test_advantages_are_zero_in_exactly_the_tied_groups(rewards, scale):
    dead = [len({r for r in group if not math.isnan(r)}) < 2 for group in rewards.tolist()]
    assert tied(rewards).tolist() == dead
    assert (advantages(rewards, scale) == 0).all(axis=1).tolist() == dead


@given(GROUPS, st.sampled_from(["group", "none"]), st.lists(st.integers(-100, 100), min_size=5, max_size=5))
def test_a_constant_added_to_a_group_changes_nothing(rewards, scale, constants):
    shift = np.array(constants[: len(rewards)])[:, None]
    np.testing.assert_allclose(advantages(rewards + shift, scale), advantages(rewards, scale), atol=1e-6)


@given(GROUPS, SCALES, st.integers(-100, 100))
def test_a_constant_added_to_all_rewards_changes_nothing(rewards, scale, constant):
    np.testing.assert_allclose(advantages(rewards + constant, scale), advantages(rewards, scale), atol=1e-6)


@given(GROUPS, SCALES, st.randoms(use_true_random=False))
def test_advantages_follow_permutations_of_groups_and_members(rewards, scale, random):
    groups, members = (random.sample(range(n), n) for n in rewards.shape)
    permuted = rewards[groups][:, members]
    np.testing.assert_allclose(advantages(permuted, scale), advantages(rewards, scale)[groups][:, members], atol=1e-9)


@given(st.floats(-10, 10), st.lists(st.integers(-3, 3), min_size=2, max_size=6), SCALES)
def test_float_noise_around_any_reward_is_a_tie(reward, ulps, scale):
    noisy = np.array([[reward + n * np.spacing(np.float32(reward)) for n in ulps], list(range(len(ulps)))], dtype=np.float64)
    assert (advantages(noisy, scale)[0] == 0).all()


@given(GROUPS, st.integers(2, 1000))
def test_the_unit_of_rewards_matters_only_through_epsilon(rewards, factor):
    assume((~tied(rewards)).any())
    a, b = advantages(rewards, "group"), advantages(rewards * factor, "group")
    np.testing.assert_allclose(a * (1 + 1e-4 / _stds(rewards)), b * (1 + 1e-4 / (_stds(rewards) * factor)), rtol=1e-9, atol=1e-12)


def _stds(rewards):
    known = [[r for r in group if not math.isnan(r)] for group in rewards.tolist()]
    return np.array([np.std(g, ddof=1) if len(set(g)) > 1 else 1.0 for g in known])[:, None]


# ---- token loss


def test_the_clipped_loss_on_both_sides_of_both_signs():
    # r A against clip(r, 0.8, 1.2) A, the smaller one, negated; gradient -r A where the unclipped one is it, else 0
    loss, slope = losses_at([1.5, 0.5, 1.1, 1.5, 0.5, 0.9], [2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    close(loss, [-2.4, -1.0, -2.2, 3.0, 1.6, 1.8])
    close(slope, [0, -1.0, -2.2, 3.0, 0, 1.8])


def test_epsilon_high_moves_only_the_upper_bound():
    loss, slope = losses_at([1.25, 1.5, 0.5], [1.0, 1.0, -1.0], epsilon=0.2, epsilon_high=0.28)
    close(loss, [-1.25, -1.28, 0.8])
    close(slope, [-1.25, 0, 0])


def test_delta_bounds_the_ratio_of_negative_advantages():
    # A < 0: min(3, 4) A = -3 is smaller than clip(4) A = -1.2; beyond delta there is no gradient; A > 0 is clipped at 1.2 as before
    loss, slope = losses_at([4.0, 2.0, 4.0], [-1.0, -1.0, 1.0], delta=3.0)
    close(loss, [3.0, 2.0, -1.2])
    close(slope, [0, 2.0, 0])


def test_cispo_bounds_the_weight_and_keeps_the_gradient():
    # -min(r, epsilon_high) A log pi, log pi = log r here; no gradient through r, and none is ever cut off
    loss, slope = losses_at([2.0, 8.0, 0.5, 8.0], [1.0, 1.0, 3.0, -1.0], loss_type="cispo", epsilon_high=5.0)
    close(loss, [-2 * math.log(2), -5 * math.log(8), -1.5 * math.log(0.5), 5 * math.log(8)])
    close(slope, [-2.0, -5.0, -1.5, 5.0])


def test_the_sequence_ratio_is_the_geometric_mean_and_ignores_padding():
    # log ratios 0.1, 0.3 and padding: mean 0.2, r = e^0.2 = 1.2214 for both tokens; each token's gradient is half of all, -A r / 2 a token
    logp, old = leaf([[0.1, 0.3, 7.0]]), torch.tensor([[0.0, 0.0, NAN]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    options = LossConfig(loss_type="grpo", importance_sampling_level="sequence", epsilon_high=0.5)
    loss = token_loss(logp, old, torch.tensor([2.0]), mask, options)
    close(loss, [[-2 * math.exp(0.2), -2 * math.exp(0.2), 0]])
    reduce(loss, mask, options, 1, 2).backward()  # mean over the sequence: -A r, spread evenly over its tokens
    close(logp.grad, [[-math.exp(0.2), -math.exp(0.2), 0]])


def test_the_sequence_ratio_is_clipped_as_a_whole():
    # token log ratios 1.0 and -0.9: mean 0.05, inside the clip range though both tokens alone are outside
    logp = leaf([[1.0, -0.9]])
    mask, zero = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.float64)
    gspo = LossConfig(loss_type="grpo", importance_sampling_level="sequence")
    close(token_loss(logp, zero, torch.tensor([1.0]), mask, gspo), [[-math.exp(0.05)] * 2])
    tokens = LossConfig(loss_type="grpo")
    close(token_loss(logp, zero, torch.tensor([1.0]), mask, tokens), [[-1.2, -math.exp(-0.9)]])
    assert grpo.clip_counts(logp, zero, torch.tensor([1.0]), mask, gspo) == grpo.ClipCounts(0, 0, 2)
    assert grpo.clip_counts(logp, zero, torch.tensor([1.0]), mask, tokens) == grpo.ClipCounts(0, 1, 2)


def test_clipped_tokens_are_counted_where_the_gradient_stops():
    logp = torch.tensor([1.5, 0.5, 1.5, 0.5, 9.0]).log()[:, None]
    advantage, mask = torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0]), torch.tensor([[True]] * 4 + [[False]])
    assert grpo.clip_counts(logp, torch.zeros(5, 1), advantage, mask, LossConfig()) == grpo.ClipCounts(low=1, high=1, tokens=4)
    wide = LossConfig(epsilon=0.6, epsilon_high=0.2)
    assert grpo.clip_counts(logp, torch.zeros(5, 1), advantage, mask, wide) == grpo.ClipCounts(low=0, high=1, tokens=4)
    cispo = LossConfig(loss_type="cispo", epsilon_high=1.4)
    assert grpo.clip_counts(logp, torch.zeros(5, 1), advantage, mask, cispo) == grpo.ClipCounts(low=0, high=1, tokens=4)


def test_k3_values_and_slopes_are_right_and_finite():  # case S-AL-12
    d = torch.tensor([0.0, math.log(2), -math.log(2), 100.0, -1000.0])
    logp = torch.zeros(5, requires_grad=True)
    kl = kl_k3(logp, d)
    kl.sum().backward()
    # 2 - ln 2 - 1, 1/2 + ln 2 - 1; beyond 20 along the tangent: e^20 - 21 + 80 (e^20 - 1); far below: 0 + 1000 - 1
    close(kl[:3], [0, 0.30685, 0.19315], 1e-5)
    assert kl[3].item() == pytest.approx(math.exp(20) - 21 + 80 * math.expm1(20), rel=1e-6)
    assert kl[4].item() == 999
    # d/dlogp = 1 - e^d; at the cap it stays that of d = 20
    close(logp.grad[[0, 1, 2, 4]], [0, -1, 0.5, 1], 1e-6)
    assert logp.grad[3].item() == pytest.approx(-math.expm1(20), rel=1e-6)


@given(st.floats(-30, 0, width=32), st.floats(-60, 120, width=32))
def test_k3_is_never_negative_nor_infinite(logp, d):
    for dtype in (torch.float32, torch.float64):
        p = torch.tensor(logp, dtype=dtype)
        value = kl_k3(p, p + d).item()
        assert 0 <= value < INF


def test_the_kl_term_has_a_gradient():  # case S-AL-13
    logp, mask = leaf([[-1.0]]), torch.tensor([[True]])
    loss = token_loss(logp, logp.detach(), torch.tensor([0.0]), mask, LossConfig(beta=0.1), logp.detach() + math.log(2))
    loss.sum().backward()
    close(logp.grad, [[-0.1]])  # 0.1 (1 - e^ln 2)


def test_bias_correction_multiplies_k3_by_the_ratio_with_gradient():
    # ratio 1.1, d = ln 2: loss 0.1 (1 - ln 2) 1.1; slope 0.1 [ (1 - 2) 1.1 + (1 - ln 2) 1.1 ] = -0.11 ln 2
    logp, mask = leaf([[math.log(1.1)]]), torch.tensor([[True]])
    config = LossConfig(beta=0.1, use_bias_correction_kl=True)
    loss = token_loss(logp, torch.zeros_like(logp), torch.tensor([0.0]), mask, config, logp.detach() + math.log(2))
    loss.sum().backward()
    close(loss, [[0.11 * (1 - math.log(2))]])
    close(logp.grad, [[-0.11 * math.log(2)]])


def test_the_kl_is_averaged_over_trained_tokens_only():  # case S-AL-14
    d = [brentq(lambda x, k=k: math.expm1(x) - x - k, 0, 5) for k in (0.5, 1.5, 9.0)]
    mask, zero = torch.tensor([[True, True, False]]), torch.zeros(1, 3, dtype=torch.float64)
    config = LossConfig(beta=0.1)
    loss = token_loss(zero, zero, torch.tensor([-1.0]), mask, config, torch.tensor([d], dtype=torch.float64))
    close(reduce(loss, mask, config, 1, 2), 1.1)  # (1 + 1)/2 + 0.1 (0.5 + 1.5)/2


@every_loss_type
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("rubbish", [NAN, INF, -INF])
def test_what_stands_on_padding_reaches_neither_loss_nor_gradient(loss_type, level, rubbish):  # case S-AL-15
    d = brentq(lambda x: math.expm1(x) - x - 0.2, 0, 5)
    config = LossConfig(loss_type=loss_type, importance_sampling_level=level, beta=1.0, max_completion_length=1, delta=4.0)
    mask = torch.tensor([[True, False], [False, False]])
    logp, old = leaf([[0.0, rubbish], [rubbish, rubbish]]), torch.tensor([[0.0, rubbish], [rubbish, rubbish]], dtype=torch.float64)
    ref = torch.tensor([[d, rubbish], [rubbish, rubbish]], dtype=torch.float64)
    loss = token_loss(logp, old, torch.tensor([0.0, 3.0]), mask, config, ref)
    close(loss, [[0.2, 0], [0, 0]])
    reduce(loss, mask, config, 1, 1).backward()
    close(logp.grad, [[1 - math.exp(d), 0], [0, 0]])
    assert grpo.clip_counts(logp, old, torch.tensor([0.0, 3.0]), mask, config) == grpo.ClipCounts(0, 0, 1)


def test_a_kl_weight_without_a_reference_is_an_error():
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="reference"):
        token_loss(one, one, torch.ones(1), torch.ones(1, 1, dtype=torch.bool), LossConfig(beta=0.1))


# ---- reduction


@pytest.mark.parametrize(
    ("loss_type", "expected"),
    [
        ("grpo", 0.0),  # -(4/4 - 1/1) / 2
        ("dapo", -0.6),  # -(4 - 1) / 5
        ("bnpo", -0.6),
        ("dr_grpo", -0.1875),  # -(4 - 1) / (2 * 8)
        ("cispo", 0.0),  # the weight min(1, 0.2) times log pi = 0
    ],
)
def test_each_loss_type_has_its_own_divisor(loss_type, expected):  # case S-AL-16
    mask, zero = ragged([4, 1]), torch.zeros(2, 4, dtype=torch.float64)
    config = LossConfig(loss_type=loss_type, max_completion_length=8)
    close(reduce(token_loss(zero, zero, torch.tensor([1.0, -1.0]), mask, config), mask, config, 2, 5), expected, 1e-7)


def test_the_divisor_of_dr_grpo_is_constant():
    loss = torch.ones(2, 4, dtype=torch.float64)
    for lengths in ([4, 4], [4, 1], [1, 1]):
        mask = ragged(lengths, 4)
        close(reduce(loss * mask, mask, LossConfig(loss_type="dr_grpo", max_completion_length=10), 2, sum(lengths)), sum(lengths) / 20)


@pytest.mark.parametrize("parts", [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]], [[3, 0], [2], [1]]])
def test_a_token_mean_is_not_a_mean_of_micro_batch_means(parts):  # case S-AL-08
    lengths, sums = [1, 3, 2, 6], [1.0, -3.0, 2.0, 6.0]
    weight = leaf([s / n for s, n in zip(sums, lengths, strict=True)])
    mask = ragged(lengths)
    loss = weight[:, None] * mask
    total = sum(reduce(loss[p], mask[p], LossConfig(loss_type="dapo"), 4, 12) for p in parts)
    total.backward()
    close(total, 0.5)  # 6/12; the mean of the means of two halves would be (-2/4 + 8/8) / 2 = 0.25
    close(weight.grad, [1 / 12, 3 / 12, 2 / 12, 6 / 12])


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from(LOSS_TYPES), st.sampled_from(["token", "sequence"]), st.integers(0, 10**6))
def test_any_split_of_a_step_gives_the_same_loss_and_gradient(data, loss_type, level, seed):
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=7))
    part = data.draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    rng = torch.Generator().manual_seed(seed)
    n, mask = len(lengths), ragged(lengths, 5)
    old, ref = (torch.randn(n, 5, dtype=torch.float64, generator=rng) for _ in range(2))
    logp = (old + 0.3 * torch.randn(n, 5, dtype=torch.float64, generator=rng)).requires_grad_()
    a = torch.randn(n, generator=rng)
    config = LossConfig(loss_type=loss_type, importance_sampling_level=level, beta=0.1, delta=2.0, max_completion_length=5)

    def share(rows, width):
        m = mask[rows, :width]
        loss = token_loss(logp[rows, :width], old[rows, :width], a[rows], m, config, ref[rows, :width])
        return reduce(loss, m, config, n, sum(lengths))

    whole = share(list(range(n)), 5)
    (gradient,) = torch.autograd.grad(whole, logp)
    total, pieces = 0.0, torch.zeros_like(logp)
    for k in range(4):
        rows = [i for i in reversed(range(n)) if part[i] == k]
        if rows:
            piece = share(rows, max(1, *(lengths[i] for i in rows)) if len(rows) > 1 else max(1, lengths[rows[0]]))
            total, pieces = total + piece.item(), pieces + torch.autograd.grad(piece, logp)[0]
    close(total, whole.item(), 1e-12)
    close(pieces, gradient, 1e-12)


@every_loss_type
def test_a_step_of_empty_completions_costs_nothing(loss_type):
    mask, logp = torch.zeros(2, 3, dtype=torch.bool), leaf([[-1.0] * 3] * 2)
    config = LossConfig(loss_type=loss_type)
    total = reduce(token_loss(logp, logp.detach(), torch.ones(2), mask, config), mask, config, 2, 0)
    total.backward()
    assert total.item() == 0
    assert (logp.grad == 0).all()
    assert reduce(torch.zeros(0, 0), torch.zeros(0, 0, dtype=torch.bool), config, 0, 0).item() == 0


# ---- helpers of the trainer


def test_the_soft_overlong_penalty_by_hand():
    # 20 tokens of cache before 100: 0 up to 80, 90 is half way, -1 from 100
    assert soft_overlong_penalty(np.array([0, 80, 85, 90, 100, 130]), 100, 20).tolist() == [0, 0, -0.25, -0.5, -1, -1]


@pytest.mark.parametrize(("longest", "cache"), [(100, 20), (7, 7), (12, 1), (12, 0), (64, 63)])
def test_the_soft_overlong_penalty_is_trls(longest, cache):
    lengths = np.arange(longest + 5)
    expected = get_soft_overlong_punishment(longest, cache)(completion_ids=[[0] * n for n in lengths])
    np.testing.assert_allclose(soft_overlong_penalty(lengths, longest, cache), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("correct", "samples", "k", "expected"),
    [(1, 4, 1, 0.25), (1, 4, 2, 0.5), (1, 4, 4, 1.0), (1, 3, 3, 1.0), (2, 8, 4, 1 - 15 / 70), (0, 4, 2, 0.0), (4, 4, 1, 1.0)],
)
def test_pass_at_k_by_hand(correct, samples, k, expected):  # case S-MC-03
    assert pass_at_k(correct, samples, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_answer():
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
            assert pass_at_k(c, n, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_pass_at_k_of_too_few_samples_is_never_a_number():  # case S-MC-04
    with pytest.raises(ValueError, match=r"pass@2 needs at least 2 samples, there are 1"):
        pass_at_k(1, 1, 2)


def test_dead_share_is_the_share_of_groups_without_contrast():
    rates, size = [0.0, 0.3, 0.5, 0.9, 1.0], 4
    outcomes = list(itertools.product([0, 1], repeat=size))
    dead = [sum(math.prod(p if x else 1 - p for x in xs) for xs in outcomes if len(set(xs)) == 1) for p in rates]
    assert dead_share(np.array(rates), size) == pytest.approx(np.mean(dead))
    assert dead_share(np.array([0.5]), 2) == 0.5  # both right or both wrong: two of four
    assert math.isnan(dead_share(np.array([]), 4))


def test_the_logged_reward_is_the_weighted_one():  # case S-MC-02
    assert weighted_total(np.array([[1.0, 0.0]] * 3), [0.7, 0.3]).tolist() == [0.7] * 3
    assert weighted_total(np.array([[1.0, 1.0]]), [2, 1]).tolist() == [3.0]
    batch = batch_of([[1, 1]], values=[[1, 0], [1, 0]], weights=[0.7, 0.3])
    row = metrics(batch)
    assert (row["reward"], row["rewards/r0/mean"], row["rewards/r1/mean"]) == (0.7, 1.0, 0.0)


# ---- the metrics of a step


def batch_of(rewards, lengths=None, ended=None, correct=None, prompts=None, ids=None, values=None, weights=(1.0,)):
    """A scored batch, made up: rewards [P, G], the rest [N] or [P]."""
    rewards = np.asarray(rewards, dtype=float)
    count, size = rewards.size, rewards.shape[1]
    values = rewards.reshape(-1, 1) if values is None else np.asarray(values, dtype=float)
    ids = ids or [tuple(2 + (i + t) % 9 for t in range(n)) for i, n in enumerate([3] * count if lengths is None else lengths)]
    ended, correct = [True] * count if ended is None else ended, (rewards.ravel() == 1).tolist() if correct is None else correct
    flat = [Sampled(Completion(tuple(c), e, 0.5 * len(c)), text.Answer("")) for c, e in zip(ids, ended, strict=True)]
    asked = [
        Prompt({"id": f"r{p}", "split": "train"}, [{"role": "user", "content": "Compute."}], (prompts or {}).get(p, (5, 6)), False)
        for p in range(len(rewards))
    ]
    names = tuple(f"r{k}" for k in range(values.shape[1]))
    return Batch(
        asked,
        [flat[start : start + size] for start in range(0, count, size)],
        Scores(names, values, weighted_total(values, weights)),
        [Verdict(bool(c)) for c in correct],
    )


def metrics(batch, used=None, **options):
    size = len(batch.samples[0])
    used = np.ones(len(batch.prompts), dtype=bool) if used is None else np.array(used)
    return train._metrics(batch, used, TrainConfig(num_generations=size, **options))


def test_lengths_are_those_sampled_also_when_cut_answers_are_masked():  # cases S-MC-05, S-TR-01
    row = metrics(batch_of([[1, 0]], lengths=[3, 8], ended=[True, False]), mask_truncated_completions=True)
    names = ("mean_length", "min_length", "max_length", "clipped_ratio")
    assert [row[f"completions/{name}"] for name in names] == [5.5, 3, 8, 0.5]
    assert [row[f"completions/{name}_terminated_length"] for name in ("mean", "min", "max")] == [3, 3, 3]


def test_the_share_of_cut_answers_is_told():  # case S-TR-04
    row = metrics(batch_of(np.zeros((25, 4)), ended=[True] * 3 + [False] * 97))
    assert row["completions/clipped_ratio"] == pytest.approx(0.97)
    nobody = metrics(batch_of([[1, 0]], ended=[False, False]))
    assert nobody["completions/clipped_ratio"] == 1.0
    none = [nobody[f"completions/{name}_terminated_length"] for name in ("mean", "min", "max")]
    assert none == [None] * 3  # TRL says 0; there is no such length


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_groups_that_teach_nothing_are_told_apart(scale):  # case S-MC-06
    rewards = [[1, 1], [0, 0], [1, 0], [0.5, 0.5]]
    row = metrics(batch_of(rewards, correct=[1, 1, 0, 0, 1, 0, 1, 0]), scale_rewards=scale)
    names = ("frac_reward_zero_std", "groups/all_right", "groups/all_wrong", "groups/tied", "groups/used")
    assert [row[name] for name in names] == [0.75, 0.25, 0.25, 0.25, 1]


def test_a_missing_verdict_is_counted_and_leaves_means_alone():  # cases S-AL-01, S-AL-02
    row = metrics(batch_of([[1, 0, NAN, NAN], [NAN, NAN, 0.8, NAN]]))
    # 1, 0 and 0.8: mean 0.6; squares 0.16 + 0.36 + 0.04 = 0.56; std sqrt(0.28) = 0.52915; the second group has a single verdict
    close([row["reward"], row["reward_std"], row["rewards/r0/mean"], row["rewards/r0/std"]], [0.6, 0.52915, 0.6, 0.52915], 1e-5)
    assert (row["rewards/unscored"], row["frac_reward_zero_std"]) == (5, 0.5)
    assert metrics(batch_of([[NAN, NAN]]))["reward"] is None


# ---- one update of a policy


@pytest.fixture
def tiny():
    return tiny_policy()


def tiny_policy():
    """A random two-layer Llama with a LoRA that already does something."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    policy = Policy(Loaded(LlamaForCausalLM(shape).eval(), None, frozenset([EOS]), "tiny"), rank=2)
    with torch.no_grad():
        for parameter in policy.trainable():
            parameter.copy_(0.2 * torch.randn_like(parameter))
    return policy


def learned(policy, batch, a, monkeypatch, used=None, reference=None, **options):
    """One `learn`; returns its row, the gradients of the last update, and what every call of `token_loss` saw."""
    config = TrainConfig(num_prompts=len(batch.prompts), num_generations=len(batch.samples[0]), **options)
    calls, gradients = [], []

    def spy(logp, old, *rest):
        calls.append((logp.detach(), old))
        return token_loss(logp, old, *rest)

    def keep(policy, optimizer, scheduler, limit):
        gradients[:] = [p.grad.clone() for p in policy.trainable()]
        policy.peft.zero_grad()
        return 1.0, 0.1

    monkeypatch.setattr(grpo, "token_loss", spy)
    monkeypatch.setattr(learn, "update", keep)
    used = np.ones(len(batch.prompts), dtype=bool) if used is None else np.array(used)
    schedule = SimpleNamespace(get_last_lr=lambda: [0.1], step=lambda: None)
    optimizer = SimpleNamespace(step=lambda: None)
    row = learn.learn(policy, optimizer, schedule, batch, used, np.array(a, dtype=float), None, config, reference)
    return row, gradients, calls


def slow_logp(policy, prompt, completion, temperature=1.0):
    """Log-probabilities of a completion, one sequence alone through the whole model."""
    logits = policy.peft(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]


def test_log_probabilities_are_at_the_sampling_temperature_by_hand():  # case S-AL-11
    # logits 2, 0 at T = 0.5 are 4, 0: -ln(1 + e^-4) = -0.01815; at T = 1 it would be -ln(1 + e^-2) = -0.12693
    for temperature, expected in ((0.5, -0.018150), (1.0, -0.126928)):
        logp = HeadLogProbability.apply(torch.tensor([[2.0, 0.0]]), torch.eye(2), torch.tensor([0]), temperature)
        close(logp, [expected], 1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
@pytest.mark.parametrize("tree", [True, False])
def test_the_ratio_at_unchanged_weights_is_one_at_every_temperature(tiny, temperature, tree, monkeypatch):  # case S-AL-11
    tiny.exact_tree = tree
    batch = batch_of([[1, 0], [0, 1]], ids=[(3, 4, EOS), (3, 5, 6, 2), (7, EOS), (7, 7, 7)], prompts={0: (5, 6), 1: (5, 8, 9)})
    _, _, calls = learned(tiny, batch, [[1, -1], [-1, 1]], monkeypatch, temperature=temperature, num_iterations=2)
    assert len(calls) == 2  # two updates of one pass each
    for logp, old in calls:
        close((logp - old).exp(), torch.ones_like(logp), 1e-4)
    flat = [(p.ids, one.completion.ids) for p, group in zip(batch.prompts, batch.samples, strict=True) for one in group]
    for row, (prompt, completion) in enumerate(flat):
        close(calls[0][0][row, : len(completion)], slow_logp(tiny, prompt, completion, temperature).detach(), 1e-5)


@pytest.mark.parametrize("options", [{"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.5}])
def test_the_ratio_is_one_when_the_sampler_cuts_the_distribution(tiny, options, monkeypatch):  # case S-AL-17
    drawing = train.sampling_of(TrainConfig(max_completion_length=6, **options))
    groups = sample(tiny.loaded, tiny.decoder(), [(5, 6)], [[3]], 4, drawing)
    batch = batch_of([[1, 0, 0, 0]], ids=[c.ids for c in groups[0]], ended=[c.terminated for c in groups[0]])
    _, _, calls = learned(tiny, batch, [[1, -1, -1, -1]], monkeypatch, max_completion_length=6, **options)
    logp, old = calls[0]
    close((logp - old).exp(), torch.ones_like(logp), 1e-4)
    for row, completion in enumerate(c.ids for c in groups[0]):  # over the full vocabulary: not renormalised to what was kept
        close(logp[row, : len(completion)], slow_logp(tiny, (5, 6), completion).detach(), 1e-5)


@every_loss_type
def test_one_update_is_the_plain_loss_over_every_rollout(loss_type, monkeypatch):  # cases S-DF-02, S-TR-01, S-AL-09
    # a live group, a dead one, one with a missing verdict, one with a cut answer that is masked
    rewards = [[1, 0], [1, 1], [NAN, 1], [0, 1]]
    ids = [(3, 4, EOS), (3, EOS), (4, 4, 4, EOS), (2, EOS), (6, 7), (6, 7, 8, 9), (2, 3, 4, 5, 6), (3, 3, EOS)]
    ended = [True] * 6 + [False, True]
    batch = batch_of(rewards, ids=ids, ended=ended, prompts={0: (5,), 1: (5, 6), 2: (7,), 3: (5, 6, 7)})
    a = advantages(batch.rewards, "none")
    options = {"loss_type": loss_type, "temperature": 0.7, "mask_truncated_completions": True, "max_completion_length": 5}
    runs = [learned(tiny_policy(), batch, a, monkeypatch, token_budget=budget, **options) for budget in (1, 9, 2048)]

    policy, losses = tiny_policy(), []
    counted = [len(c) for c, r, e in zip(ids, batch.rewards.ravel(), ended, strict=True) if e and not math.isnan(r)]  # 3 2 4 2 4 3
    assert sum(counted) == 18
    for i, completion in enumerate(ids):
        if not ended[i] or math.isnan(batch.rewards.ravel()[i]):
            continue
        logp = slow_logp(policy, batch.prompts[i // 2].ids, completion, 0.7)
        # at ratio 1 the clipped loss is -A r, whose gradient is -A d log pi; cispo is -min(1, 0.2) A log pi
        token = -a.ravel()[i] * (0.2 * logp if loss_type == "cispo" else (logp - logp.detach()).exp())
        divisor = {"grpo": 6 * len(completion), "dr_grpo": 6 * 5}.get(loss_type, 18)
        losses.append(token.sum() / divisor)
    expected = sum(losses)
    expected.backward()
    assert expected.item() != 0
    for row, gradients, calls in runs:
        assert row["loss"] == pytest.approx(expected.item(), abs=1e-6)
        assert row["tokens/trained"] == 3 + 2 + 0 + 0 + 0 + 0 + 0 + 3  # group 0, and group 3 without its cut answer
        assert sum(int((logp != 0).sum()) for logp, _ in calls) == 8
        for gradient, parameter in zip(gradients, policy.trainable(), strict=True):
            close(gradient, parameter.grad, 1e-5 * float(parameter.grad.abs().max()) + 1e-7)  # of the largest entry, as sums are rounded
    assert len(runs[0][2]) > len(runs[2][2]) == 1  # the budgets did split it differently


def test_a_masked_cut_answer_leaves_numerator_and_denominator(tiny, monkeypatch):  # case S-AL-09
    batch = batch_of([[0, 1]], lengths=[4, 6], ended=[True, False])
    # advantage -1 at ratio 1 is a token loss of 1: 4/4; with B's 6 tokens below the line 4/10
    row, _, calls = learned(tiny, batch, [[-1, -1]], monkeypatch, mask_truncated_completions=True)
    assert row["loss"] == pytest.approx(1.0)
    assert [tuple(logp.shape) for logp, _ in calls] == [(1, 4)]
    unmasked, _, _ = learned(tiny, batch, [[-1, 1]], monkeypatch)
    assert unmasked["loss"] == pytest.approx((4 - 6) / 10)


def test_a_batch_of_masked_cut_answers_changes_no_weight(tiny):  # case S-AL-10
    batch = batch_of([[0, 1]], lengths=[4, 6], ended=[False, False])
    optimizer, scheduler = train.make_optimizer(tiny, 0.1, "linear", 0.0, 4)
    before, config = tiny.state(), TrainConfig(num_prompts=1, num_generations=2, mask_truncated_completions=True)
    row = learn.learn(tiny, optimizer, scheduler, batch, np.array([True]), np.array([[-1.0, 1.0]]), None, config, None)
    assert (row["loss"], row["grad_norm"], row["tokens/trained"]) == (0.0, 0.0, 0)
    assert all(torch.equal(before[name], value) for name, value in tiny.state().items())
    assert scheduler.get_last_lr()[0] == pytest.approx(0.1 * 3 / 4)  # the schedule moved on


def test_dead_groups_keep_their_tokens_below_the_line(tiny, monkeypatch):  # case S-DF-02
    rewards = [[1, 0]] * 3 + [[1, 1]] * 5
    batch = batch_of(rewards, lengths=[2, 4] * 8)
    a = np.array([[-1.0, -0.5]] * 3 + [[0, 0]] * 5)
    row, _, _ = learned(tiny, batch, a, monkeypatch)
    assert row["loss"] == pytest.approx(3 * (2 * 1 + 4 * 0.5) / (8 * 6))  # 12/48; over the live groups alone it would be 12/18
    assert row["tokens/trained"] == 18
    assert metrics(batch)["groups/used"] == 3
    per_sequence, _, _ = learned(tiny, batch, a, monkeypatch, loss_type="grpo")
    assert per_sequence["loss"] == pytest.approx(3 * (1 + 0.5) / 16)


def test_groups_that_are_not_used_are_in_no_denominator(tiny, monkeypatch):  # case S-DF-02
    batch = batch_of([[1, 0], [1, 1]], lengths=[2, 4, 3, 3])
    row, _, _ = learned(tiny, batch, [[-1.0, -0.5], [0, 0]], monkeypatch, used=[True, False])
    assert row["loss"] == pytest.approx((2 * 1 + 4 * 0.5) / 6)
    per_sequence, _, _ = learned(tiny, batch, [[-1.0, -0.5], [0, 0]], monkeypatch, used=[True, False], loss_type="grpo")
    assert per_sequence["loss"] == pytest.approx((1 + 0.5) / 2)


@pytest.mark.parametrize(("rounds", "live", "asked"), [(0, 3, 8), (1, 6, 13), (2, 8, 15), (5, 8, 15)])
def test_dynamic_sampling_fills_the_step_up_again_and_ends(monkeypatch, rounds, live, asked):  # cases S-DF-01, S-DF-02
    # of the first 8 groups 5 are dead; of the 5 that replace them 3 are live, then 2 are missing, which the third round brings
    worth = [[1, 0]] * 3 + [[1, 1]] * 5 + [[1, 0], [0, 0], [0, 1], [0, 0], [1, 0]] + [[1, 0]] * 10
    monkeypatch.setattr(train, "answer", lambda policy, task, chosen, *rest, **how: chosen)
    monkeypatch.setattr(train, "score_batch", lambda task, chosen, samples, step: batch_of([worth[i] for i in chosen]))
    config = TrainConfig(num_prompts=8, num_generations=2, dynamic_sampling=rounds)
    batch, used = train._collect(None, None, list(range(23)), iter(range(23)), config, [0, 1], False, 0)
    assert (int(used.sum()), len(batch.prompts)) == (8, asked)
    assert int((used & ~tied(batch.rewards)).sum()) == live
    assert metrics(batch, used)["groups/used"] == live


def test_a_step_of_dead_groups_has_exactly_no_gradient_from_rewards(tiny, monkeypatch):  # case S-AL-03
    batch = batch_of([[0.3, 0.1 + 0.2], [1, 1]])
    a = advantages(batch.rewards)
    row, gradients, calls = learned(tiny, batch, a, monkeypatch)
    assert (row["loss"], gradients, calls) == (0.0, [], [])
    # with KL on nothing is dropped; to the policy itself the KL and its gradient are 0
    row, gradients, calls = learned(tiny, batch, a, monkeypatch, beta=0.1, reference=tiny.state())
    assert sum(len(logp) for logp, _ in calls) == 4
    assert row["loss"] == row["kl"] == 0
    assert max(float(g.abs().max()) for g in gradients) < 1e-7


def test_the_kl_of_a_step_is_the_mean_over_trained_tokens(tiny, monkeypatch):  # cases S-AL-14, S-AL-15
    batch = batch_of([[1, 1]], ids=[(3, 4, EOS), (6, EOS)])
    reference = {name: torch.zeros_like(value) for name, value in tiny.state().items()}  # the bare model
    row, gradients, _ = learned(tiny, batch, [[0, 0]], monkeypatch, beta=0.5, reference=reference)
    own = torch.cat([slow_logp(tiny, (5, 6), c) for c in ((3, 4, EOS), (6, EOS))])
    with tiny.peft.disable_adapter():
        bare = torch.cat([slow_logp(tiny, (5, 6), c) for c in ((3, 4, EOS), (6, EOS))])
    bare = bare.detach()
    mean = ((bare - own).exp() - (bare - own) - 1).mean()
    (0.5 * mean).backward()
    for gradient, parameter in zip(gradients, tiny.trainable(), strict=True):
        close(gradient, parameter.grad, 3e-6)  # entries reach 0.2
    assert max(float(g.abs().max()) for g in gradients) > 1e-3
    expected = mean.item()
    assert expected > 0.01
    assert row["kl"] == pytest.approx(expected, rel=1e-4)
    assert row["loss"] == pytest.approx(0.5 * expected, rel=1e-4)


def test_later_updates_compare_with_the_policy_that_sampled(tiny, monkeypatch):
    batch = batch_of([[1, 0], [0, 1]], lengths=[3, 2, 4, 1])
    optimizer, scheduler = train.make_optimizer(tiny, 0.05, "constant", 0.0, 3)
    calls = []
    monkeypatch.setattr(grpo, "token_loss", lambda logp, old, *rest: calls.append((logp.detach(), old)) or token_loss(logp, old, *rest))
    config = TrainConfig(num_prompts=2, num_generations=2, num_iterations=3)
    learn.learn(tiny, optimizer, scheduler, batch, np.array([True, True]), advantages(batch.rewards), None, config, None)
    first = calls[0][0]
    assert len(calls) == 3
    assert all(torch.equal(old, first) for _, old in calls)
    assert all(float((logp - first).abs().max()) > 0.01 for logp, _ in calls[1:])


def test_the_policy_scores_an_empty_completion_as_nothing(tiny):
    scores = tiny.log_probabilities([Trajectory((5, 6), ()), Trajectory((5, 6), (3, EOS))])
    assert scores.mask.tolist() == [[False, False], [True, True]]
    assert scores.logp[0].tolist() == [0.0, 0.0]
    close(scores.logp[1], slow_logp(tiny, (5, 6), (3, EOS)).detach(), 1e-5)
    assert not tiny.log_probabilities([Trajectory((5, 6), ())]).mask.any()


# ---- the whole update on the tree, against the padded batch


WRITTEN = [(5, 6, 0), (5, 6, 0), (5,), (), (7, 8, 9, 0), (7, 8, 9, 10, 11), (7, 8), (1, 1), (3,) * 9, (4,), (4, 4), (4, 0)]


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "cispo"])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_update_is_that_of_the_padded_batch(tiny, monkeypatch, loss_type, scale, beta, level):
    """Identical completions, empty ones, one that begins another, padding and end tokens inside, ragged groups, packs cut anywhere."""
    rewards = [[1, 0, 0.5, 0], [0, 1, 0, 0.25], [1, 1, 1, 1]]
    batch = batch_of(rewards, ids=WRITTEN, prompts={0: (1, 2), 1: (1, 2, 3), 2: (9,)})
    a = advantages(np.array(rewards, dtype=float), scale)
    reference = None
    if beta:
        reference = {name: p + 0.05 for name, p in tiny.state().items()}
    options = {"loss_type": loss_type, "beta": beta, "importance_sampling_level": level, "max_completion_length": 9}
    exact = []
    for on_tree, budget in ((False, 10**6), (True, 10**6), (True, 7), (True, 13)):
        monkeypatch.setattr(tiny, "exact_tree", on_tree)
        row, gradients, _ = learned(tiny, batch, a, monkeypatch, reference=reference, token_budget=budget, **options)
        exact.append((row["loss"], row.get("kl", 0.0), torch.cat([g.flatten() for g in gradients])))
    (loss, kl, gradient), *others = exact
    assert gradient.abs().max() > 1e-4
    for other in others:
        assert other[0] == pytest.approx(loss, abs=1e-5) and other[1] == pytest.approx(kl, abs=1e-5)
        assert float((other[2] - gradient).abs().max()) < 1e-4 * float(gradient.abs().max())
