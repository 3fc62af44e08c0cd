"""The loops end to end on tiny models: SFT lowers the loss, GRPO raises the reward, and nothing that must not matter matters."""

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from earnest import Task, UserError, Verdict
from earnest.config import SftConfig, TrainConfig
from earnest.engine import grpo
from earnest.engine import train as loop
from earnest.engine.learn import learn
from earnest.engine.policy import Policy
from earnest.engine.rollouts import make_prompts
from earnest.engine.sft import make_optimizer, sft, shuffled, spread
from earnest.engine.train import train

ROWS = [{"id": f"r{i}", "split": "train", "question": "abcdefgh"[i], "gold": "xyz"[i % 3]} for i in range(8)]
TIMES = {"step_time", "time/sample", "time/train"}


def even(completion_ids, **kwargs):
    """Pays for an even first token: about half of what a random model writes."""
    return [float(ids[0] % 2 == 0) for ids in completion_ids]


def length_of(completions, **kwargs):
    return [len(c[0]["content"]) / 10 for c in completions]


def nothing(completions, **kwargs):
    return [0.0] * len(completions)


def by_row(completions, completion_ids, id, **kwargs):
    """Dead groups for every row with an even number, live ones for the others."""
    return [0.0 if int(i[1:]) % 2 == 0 else float(ids[0] % 2) for i, ids in zip(id, completion_ids, strict=True)]


def make_task(*rewards, check=None, rows=ROWS):
    return Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": row["question"]}],
        rewards=list(rewards) or [even],
        check=check or (lambda text, row: text == row["gold"]),
        oracle=lambda row: row["gold"],
        name="tiny",
    )


CONFIG = TrainConfig(steps=2, num_prompts=3, num_generations=4, max_completion_length=5, learning_rate=1e-3, save_steps=0)


def run(folder, task=None, config=CONFIG, family="llama", seed=0, policy=None, thinking=False, rows=ROWS, **options):
    """A training run: the policy, the metrics, the rollouts, and why it ended."""
    policy = policy or Policy(tiny.make(family, **options), rank=4)
    task = task or make_task()
    prompts = make_prompts(task, policy.loaded, rows, thinking, config.max_completion_length)
    reported = []
    why = train(policy, task, prompts, config, folder, seed, thinking, reported.append)
    metrics, rollouts = (strict(folder / name) for name in ("metrics.jsonl", "rollouts.jsonl"))
    assert [row["step"] for row in metrics] == [row["step"] for row in reported]
    return policy, metrics, rollouts, why


def strict(path):
    """The lines of a file, refusing NaN and infinity."""

    def refuse(name):
        raise AssertionError(f"{path} holds {name}")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def flat(policy):
    return torch.cat([p.detach().flatten() for p in policy.trainable()])


def same(a, b, relative=1e-4):
    """Adapters that took the same steps, up to rounding (which Adam blows up where a gradient is all but zero)."""
    start = flat(Policy(tiny.make(), rank=4))
    moved = (flat(a) - start).norm()
    return float((flat(a) - flat(b)).norm()) <= relative * max(float(moved), 1e-9)


# --- order of rows


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 5))
def test_every_row_comes_once_before_any_comes_again(count, size, seed):
    batches = list(islice(shuffled(count, size, seed), 3 * count))
    assert all(len(batch) == size for batch in batches)
    order = [i for batch in batches for i in batch]
    for start in range(0, len(order) - count + 1, count):
        assert sorted(order[start : start + count]) == list(range(count))
    assert batches == list(islice(shuffled(count, size, seed), 3 * count))
    if size <= count:
        assert all(len(set(batch)) == size for batch in batches)
    else:  # 12 draws over 9 rows: none a third time before all came twice (S-DS-03)
        assert all(max(Counter(b).values()) - min([Counter(b)[i] for i in range(count)]) <= 2 for b in batches)


def test_another_seed_is_another_order():
    first, again, other = (next(shuffled(50, 20, seed)) for seed in (0, 0, 1))
    assert first == again != other


@given(st.integers(0, 30), st.integers(0, 40))
def test_rows_are_spread_evenly_and_never_twice(count, wanted):
    got = spread(list(range(count)), wanted)
    assert got == sorted(set(got)) and len(got) == (count if wanted == 0 else min(count, wanted))
    if 1 < wanted < count:
        gaps = np.diff(got)
        assert gaps.max() - gaps.min() <= 1 and got[0] == 0


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_warm_up_rises_from_zero_whatever_the_schedule(schedule):
    optimizer, scheduler = make_optimizer(Policy(tiny.make(), rank=2), 1.0, schedule, 0.4, 10)
    rates = []
    for _ in range(10):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates[:5] == pytest.approx([0, 0.25, 0.5, 0.75, 1.0])
    assert rates[5:] == ([1.0] * 5 if schedule == "constant" else sorted(rates[5:], reverse=True))


# --- SFT


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma", "gpt2"])
def test_sft_lowers_the_loss_and_teaches_the_end(family, tmp_path):
    # the head is frozen, so its rows must be long enough to say anything with certainty
    policy, task = Policy(tiny.make(family, initializer_range=0.3), rank=8), make_task()
    prompts = make_prompts(task, policy.loaded, ROWS, False, 4)
    reported = []
    config = SftConfig(steps=40, batch_size=8, learning_rate=2e-2)
    sft(policy, task, prompts, config, tmp_path, 0, reported.append)
    metrics = strict(tmp_path / "metrics.jsonl")
    assert metrics == reported
    assert [set(row) for row in metrics] == [{"step", "loss", "learning_rate", "grad_norm", "num_tokens", "step_time"}] * 40
    assert [row["step"] for row in metrics] == list(range(1, 41))
    assert metrics[-1]["loss"] < 0.5 * metrics[0]["loss"]
    last = [policy.log_probabilities([t]).logp[0, -1].item() for t in trajectories(policy, task, prompts)]
    assert math.exp(np.mean(last)) > 0.5  # the end of the turn is learned
    assert Policy(tiny.make(family), adapter=tmp_path / "adapter").state().keys() == policy.state().keys()


def trajectories(policy, task, prompts):
    from earnest.engine.policy import Trajectory

    return [Trajectory(p.ids, (*policy.loaded.tokenizer.encode(task.oracle(p.row)), tiny.END)) for p in prompts]


def test_the_first_loss_of_sft_is_the_mean_over_answer_tokens_end_included(tmp_path):
    task = replace(make_task(), oracle=lambda row: row["gold"] * (1 + int(row["id"][1:])))
    policy = tiny.make_policy(tiny.make())
    prompts = make_prompts(task, policy.loaded, ROWS, False, 16)
    with torch.no_grad():
        logps = [policy.log_probabilities([t]).logp[0] for t in trajectories(policy, task, prompts)]
    rows = []
    sft(policy, task, prompts, SftConfig(steps=1, batch_size=8), tmp_path, 0, rows.append)
    assert rows[0]["loss"] == pytest.approx(-float(torch.cat(logps).mean()), rel=1e-4)
    assert rows[0]["num_tokens"] == sum(len(logp) for logp in logps)


@pytest.mark.parametrize("family", ["llama", "gemma"])
def test_the_token_budget_changes_no_number_of_sft(family, tmp_path):
    adapters = []
    for budget in (1, 40, 4096):
        policy, rows = tiny.make_policy(tiny.make(family)), []
        task = make_task()
        config = SftConfig(steps=2, batch_size=4, warmup_ratio=0.0, token_budget=budget)
        sft(policy, task, make_prompts(task, policy.loaded, ROWS, False, 4), config, tmp_path / str(budget), 0, rows.append)
        adapters.append((flat(policy), [row["loss"] for row in rows]))
    for adapter, losses in adapters[1:]:
        torch.testing.assert_close(adapter, adapters[0][0], atol=1e-6, rtol=1e-4)
        assert losses == pytest.approx(adapters[0][1], rel=1e-4)


def test_sft_without_an_oracle_is_refused(tmp_path):
    policy, task = Policy(tiny.make(), rank=2), replace(make_task(), oracle=None)
    with pytest.raises(UserError, match="no oracle"):
        sft(policy, task, [], SftConfig(), tmp_path, 0, print)


# --- GRPO


def test_training_raises_the_reward(tmp_path):
    config = replace(CONFIG, steps=25, num_prompts=4, num_generations=8, max_completion_length=2, learning_rate=2e-2)
    policy, metrics, _, why = run(tmp_path, config=config)
    first, last = (np.mean([row["reward"] for row in part]) for part in (metrics[:4], metrics[-4:]))
    assert first < 0.7 and last > 0.9, (first, last)
    assert why == "" or "dead" in why
    assert policy.exact_tree


@pytest.mark.parametrize("family", ["qwen3", "qwen2-tied", *tiny.PLAIN])
def test_a_whole_step_works_on_every_architecture(family, tmp_path):
    policy, metrics, rollouts, why = run(tmp_path, make_task(length_of), family=family)
    assert why == "" and len(metrics) == 2 and len(rollouts) == 24
    assert policy.exact_tree == (family not in tiny.PLAIN)
    assert all(row["grad_norm"] > 0 for row in metrics)
    start = Policy(tiny.make(family), rank=4)
    assert not torch.equal(flat(policy), flat(start))  # S-LO-02: with a gradient the weights change
    again = Policy(tiny.make(family), adapter=tmp_path / "adapter")
    assert torch.equal(flat(again), flat(policy))


def test_the_tree_and_the_plain_path_train_to_the_same_adapter(tmp_path):
    config = replace(CONFIG, num_iterations=2, beta=0.05)
    tree = run(tmp_path / "tree", make_task(length_of), config)
    slow = Policy(tiny.make(), rank=4)
    slow.exact_tree = False
    plain = run(tmp_path / "plain", make_task(length_of), config, policy=slow)
    assert tree[0].exact_tree
    assert [r["text"] for r in tree[2]] == [r["text"] for r in plain[2]]
    assert same(tree[0], plain[0])


@pytest.mark.parametrize("family", ["qwen3", "gemma"])
def test_sampling_and_training_make_the_same_of_every_token(family, tmp_path):
    _, metrics, _, _ = run(tmp_path, make_task(length_of), replace(CONFIG, temperature=0.7, top_k=20, learning_rate=5e-3), family)
    assert len(metrics) > 1  # after an update too
    for row in metrics:
        if row["tokens/trained"] == 0:  # every group dead: nothing to compare
            continue
        assert 0 <= row["sampling/sampling_logp_difference/mean"] <= row["sampling/sampling_logp_difference/max"] < 1e-4


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "cispo"])
@pytest.mark.parametrize(
    "options", [{}, {"beta": 0.1}, {"importance_sampling_level": "sequence"}, {"delta": 1.5, "epsilon_high": 0.28}], ids=str
)
def test_every_loss_takes_finite_steps(loss_type, options, tmp_path):
    config = replace(CONFIG, loss_type=loss_type, num_iterations=2, learning_rate=5e-3, **options)
    policy, metrics, _, _ = run(tmp_path, make_task(length_of), config)
    assert torch.isfinite(flat(policy)).all()
    for row in metrics:
        assert row["grad_norm"] > 0 and math.isfinite(row["loss"])
        assert ("kl" in row) == ("beta" in options)
        assert 0 <= row["clip_ratio/low_mean"] + row["clip_ratio/high_mean"] == pytest.approx(row["clip_ratio/region_mean"])


def test_the_second_iteration_learns_from_the_ratio(tmp_path):
    one = run(tmp_path / "1", make_task(length_of), replace(CONFIG, steps=1))
    two = run(tmp_path / "2", make_task(length_of), replace(CONFIG, steps=1, num_iterations=2, learning_rate=1e-2))
    assert one[1][0]["clip_ratio/region_mean"] == 0  # the ratio is 1 at the first
    assert two[1][0]["clip_ratio/region_mean"] > 0
    assert one[1][0]["reward"] == two[1][0]["reward"]


def test_the_schedule_ends_with_the_last_update_however_many_iterations(tmp_path):
    for iterations in (1, 3):
        config = replace(CONFIG, steps=4, num_iterations=iterations, lr_scheduler_type="linear")
        _, metrics, _, _ = run(tmp_path / str(iterations), make_task(length_of), config)
        rates = [row["learning_rate"] for row in metrics]
        assert all(rate > 0 for rate in rates)
        assert rates[-1] == pytest.approx(config.learning_rate / (4 * iterations))


def test_kl_is_zero_at_the_first_step_and_not_after(tmp_path):  # S-LO-03
    tiny.make_policy(tiny.make()).save(tmp_path / "sft")
    policy = Policy(tiny.make(), adapter=tmp_path / "sft")
    _, metrics, _, _ = run(tmp_path / "run", make_task(length_of), replace(CONFIG, steps=3, beta=0.1, learning_rate=1e-2), policy=policy)
    assert abs(metrics[0]["kl"]) < 1e-6
    assert metrics[2]["kl"] > 1e-5


def test_kl_pulls_back_to_where_training_started(tmp_path):
    far = replace(CONFIG, steps=8, learning_rate=1e-2)
    free = run(tmp_path / "free", make_task(length_of), far)[0]
    tied = run(tmp_path / "tied", make_task(length_of), replace(far, beta=5.0))[0]
    task, start = make_task(), Policy(tiny.make(), rank=4)
    data = trajectories(start, task, make_prompts(task, start.loaded, ROWS, False, 4))
    with torch.no_grad():
        ref, a, b = (p.log_probabilities(data).logp for p in (start, free, tied))
    assert float((b - ref).abs().mean()) < 0.7 * float((a - ref).abs().mean())


# --- what must not matter


def comparable(metrics):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in metrics]


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):  # S-DS-02
    first, again, other = (run(tmp_path / name, make_task(length_of), seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert comparable(first[1]) == comparable(again[1]) != comparable(other[1])
    assert first[2] == again[2] != other[2]
    assert torch.equal(flat(first[0]), flat(again[0])) and not torch.equal(flat(first[0]), flat(other[0]))


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "cispo"])
def test_the_token_budget_changes_no_number(loss_type, tmp_path):  # S-AL-08
    config = replace(CONFIG, loss_type=loss_type, num_iterations=2, beta=0.04)
    runs = [run(tmp_path / str(budget), make_task(length_of), replace(config, token_budget=budget)) for budget in (1, 50, 100_000)]
    for policy, metrics, rollouts, _ in runs[1:]:
        assert same(policy, runs[0][0])
        assert rollouts == runs[0][2]
        for row, wanted in zip(comparable(metrics), comparable(runs[0][1]), strict=True):
            assert without_none(row) == pytest.approx(without_none(wanted), rel=1e-3, abs=1e-6)


def without_none(row):
    """What can be compared: no None, and not how far rounding took sampling and training apart, which any other pass changes."""
    return {key: -1 if value is None else value for key, value in row.items() if not key.startswith("sampling/")}


class Recorder:
    """In place of an optimiser: keeps the gradient and takes no step."""

    def __init__(self, policy):
        self.policy, self.gradients = policy, []

    def step(self):
        self.gradients.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.policy.trainable()]))

    def zero_grad(self, set_to_none=True):
        for p in self.policy.trainable():
            p.grad = None

    def get_last_lr(self):
        return [1.0]


def one_batch(reward, config, groups=4, seed=0, family="llama"):
    policy = tiny.make_policy(tiny.make(family))
    task = make_task(reward)
    prompts = make_prompts(task, policy.loaded, ROWS, False, config.max_completion_length)
    batch, used = loop._collect(policy, task, prompts, iter(range(groups)), replace(config, num_prompts=groups), [seed, 1], False, 0)
    return policy, batch, used


def gradient_of(policy, batch, used, advantages, config):
    recorder = Recorder(policy)

    class Still:
        get_last_lr = recorder.get_last_lr

        def step(self):
            pass

    info = learn(
        policy,
        recorder,
        Still(),
        batch,
        used,
        advantages,
        None,
        replace(config, max_grad_norm=1e9),
        policy.state() if config.beta else None,
    )
    return recorder.gradients[0], info


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "cispo"])
@pytest.mark.parametrize("masked", [False, True])
def test_dropping_dead_groups_changes_no_gradient(loss_type, masked):
    """Against the slow way: every rollout alone through the model, dead ones too, the textbook sums."""
    config = replace(CONFIG, loss_type=loss_type, max_completion_length=60, mask_truncated_completions=masked)
    policy, batch, used = one_batch(by_row, config)
    advantages = grpo.advantages(batch.rewards)
    assert grpo.tied(batch.rewards).any() and not grpo.tied(batch.rewards).all()
    got, info = gradient_of(policy, batch, used, advantages, config)
    losses, counts = [], []
    for p, group, row in zip(batch.prompts, batch.samples, advantages, strict=True):
        for one, advantage in zip(group, row, strict=True):
            if masked and not one.completion.terminated:
                continue
            ids = torch.tensor([p.ids + one.completion.ids])
            every = policy.model(ids, use_cache=False).logits[0].log_softmax(-1)
            logp = every[len(p.ids) - 1 : -1].gather(-1, ids[0, len(p.ids) :, None])[:, 0]
            if loss_type == "cispo":
                losses.append(-advantage * min(1.0, config.epsilon) * logp)
            else:
                losses.append(-advantage * (logp - logp.detach()).exp())
            counts.append(len(logp))
    assert sum(counts) > 0
    if loss_type == "grpo":
        total = sum(loss.mean() for loss in losses) / len(losses)
    elif loss_type == "dr_grpo":
        total = sum(loss.sum() for loss in losses) / (len(losses) * 60)
    else:
        total = sum(loss.sum() for loss in losses) / sum(counts)
    wanted = torch.cat([g.flatten() for g in torch.autograd.grad(total, policy.trainable())])
    assert wanted.abs().max() > 0
    assert float((got - wanted).abs().max()) < 1e-4 * float(wanted.abs().max())
    assert info["loss"] == pytest.approx(float(total.detach()), rel=1e-3, abs=1e-6)


def test_nothing_is_dropped_while_kl_is_on():
    config = replace(CONFIG, beta=0.1)
    policy, batch, used = one_batch(by_row, config)
    _, info = gradient_of(policy, batch, used, grpo.advantages(batch.rewards), config)
    lengths = [len(one.completion.ids) for group in batch.samples for one in group]
    assert info["tokens/trained"] == sum(lengths)
    _, info = gradient_of(policy, batch, used, grpo.advantages(batch.rewards), CONFIG)
    assert 0 < info["tokens/trained"] < sum(lengths)


def test_a_rollout_without_a_verdict_counts_for_nothing():
    """A group of four of which one has no reward trains exactly like the group of the other three."""

    def no_verdict_on_the_last(completion_ids, **kwargs):
        return [None if i % 4 == 3 else float(ids[0] % 2) for i, ids in enumerate(completion_ids)]

    for loss_type in ("grpo", "dapo", "dr_grpo"):
        config = replace(CONFIG, loss_type=loss_type)
        policy, batch, used = one_batch(no_verdict_on_the_last, config)
        got, _ = gradient_of(policy, batch, used, grpo.advantages(batch.rewards), config)
        fewer = replace(
            batch,
            samples=[group[:3] for group in batch.samples],
            scores=replace(batch.scores, total=batch.rewards[:, :3].ravel()),
        )
        three = replace(config, num_generations=3)
        wanted, _ = gradient_of(policy, fewer, used, grpo.advantages(fewer.rewards), three)
        assert wanted.abs().max() > 0
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-4)


# --- truncated answers


def test_masked_truncated_answers_leave_numerator_and_denominator():  # S-AL-09, S-TR-01
    config = replace(CONFIG, max_completion_length=60, mask_truncated_completions=True)
    policy, batch, used = one_batch(length_of, config)
    ended = np.array([one.completion.terminated for group in batch.samples for one in group])
    assert ended.any() and not ended.all()
    _, info = gradient_of(policy, batch, used, grpo.advantages(batch.rewards), config)
    lengths = np.array([len(one.completion.ids) for group in batch.samples for one in group])
    assert info["tokens/trained"] == lengths[ended].sum()
    assert loop._metrics(batch, used, config)["completions/max_length"] == lengths.max() == 60  # the raw length is still reported


def test_when_every_answer_is_cut_off_and_masked_nothing_moves_and_it_is_said(tmp_path):  # S-AL-10
    config = replace(CONFIG, steps=9, max_completion_length=1, mask_truncated_completions=True, max_dead_steps=3)
    policy, metrics, _, why = run(tmp_path, config=config, stops=frozenset())
    assert [row["completions/clipped_ratio"] for row in metrics] == [1.0] * 3
    assert [(row["loss"], row["grad_norm"], row["tokens/trained"]) for row in metrics] == [(0, 0, 0)] * 3
    assert torch.equal(flat(policy), flat(Policy(tiny.make(), rank=4)))
    assert "100% of the answers were cut off" in why and "max_completion_length" in why


def test_the_overlong_penalty_is_part_of_the_reward_before_groups_are_judged_dead(tmp_path):
    config = replace(CONFIG, max_completion_length=40, overlong_cache=20, dynamic_sampling=2)
    _, metrics, rollouts, _ = run(tmp_path, make_task(nothing), config)
    for r in rollouts:
        assert r["reward"] == pytest.approx(-min(max((r["tokens"] - 20) / 20, 0), 1))
        assert r["rewards"] == {"nothing": 0.0}
    assert any(row["frac_reward_zero_std"] < 1 for row in metrics)


# --- dead groups


def test_dead_steps_leave_the_weights_bit_identical_and_stop_with_the_reason(tmp_path):
    config = replace(CONFIG, steps=9, max_dead_steps=3)
    start = tiny.make_policy(tiny.make())
    before = flat(start).clone()
    policy, metrics, _, why = run(tmp_path, make_task(nothing), config, policy=start)
    assert len(metrics) == 3 and torch.equal(flat(policy), before)
    assert why.startswith("In 3 steps in a row every group was dead") and "all wrong" in why and "too hard" in why
    assert all(row["frac_reward_zero_std"] == 1 and row["groups/all_wrong"] == 1 and row["groups/used"] == 0 for row in metrics)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_adams_momentum_moves_nothing_in_a_dead_step(tmp_path):
    seen = []

    def first_step_only(completion_ids, trainer_state, **kwargs):
        return [float(ids[0] % 2) if trainer_state.global_step == 1 else 0.1 + 0.2 for ids in completion_ids]

    policy, task = Policy(tiny.make(), rank=4), make_task(first_step_only)
    prompts = make_prompts(task, policy.loaded, ROWS, False, 5)
    train(policy, task, prompts, replace(CONFIG, steps=4), tmp_path, 0, False, lambda row: seen.append(flat(policy).clone()))
    assert not torch.equal(seen[0], flat(Policy(tiny.make(), rank=4)))
    assert all(torch.equal(weights, seen[0]) for weights in seen[1:])


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [(Verdict(True), "too easy"), (Verdict(False, well_formed=False), "required format"), (Verdict(False, well_formed=True), "too hard")],
)
def test_why_nothing_was_learned_follows_the_check(verdict, sentence, tmp_path):
    task = make_task(nothing, check=lambda text, row: verdict)
    *_, why = run(tmp_path, task, replace(CONFIG, max_dead_steps=2))
    assert sentence in why


def test_zero_dead_steps_never_stops_and_a_live_step_starts_the_count_again(tmp_path):
    _, metrics, _, why = run(tmp_path / "never", make_task(nothing), replace(CONFIG, steps=10, max_dead_steps=0))
    assert len(metrics) == 10 and why == ""

    def every_third(completion_ids, trainer_state, **kwargs):
        return [float(i) if trainer_state.global_step % 3 == 0 else 0.0 for i, _ in enumerate(completion_ids)]

    _, metrics, _, why = run(tmp_path / "third", make_task(every_third), replace(CONFIG, steps=8, max_dead_steps=3))
    assert len(metrics) == 8 and why == ""


def test_dynamic_sampling_is_bounded(tmp_path):  # S-DF-01
    config = replace(CONFIG, steps=9, dynamic_sampling=3, max_dead_steps=2)
    _, metrics, rollouts, why = run(tmp_path, make_task(nothing), config)
    assert len(metrics) == 2 and "dead" in why
    assert len(rollouts) == 2 * 4 * 3 * 4  # steps, rounds, prompts, samples


def test_dynamic_sampling_refills_to_the_full_number_of_groups(tmp_path):  # S-DF-02
    config = replace(CONFIG, steps=1, num_prompts=4, num_generations=16, dynamic_sampling=20)
    _, metrics, rollouts, _ = run(tmp_path, make_task(by_row), config)
    assert metrics[0]["groups/used"] == 4
    trained = {r["group"] for r in rollouts if r["advantage"] != 0}
    assert len(trained) == 4
    live = {r["group"] for r in rollouts if int(r["id"][1:]) % 2}
    assert trained <= live
    dead = [r for r in rollouts if r["group"] not in trained]
    assert dead and all(r["advantage"] == 0 for r in dead)  # what was left out stays visible in the record


def test_where_refilling_does_not_suffice_dead_groups_stay_in_the_denominator():
    config = replace(CONFIG, dynamic_sampling=1, num_prompts=4)
    policy, task = tiny.make_policy(tiny.make()), make_task(by_row)
    prompts = make_prompts(task, policy.loaded, [ROWS[i] for i in (0, 2, 4, 1, 6, 2, 0, 6)], False, 5)
    batch, used = loop._collect(policy, task, prompts, iter(range(8)), config, [0, 1], False, 0)
    assert len(batch.prompts) == 7 and used.sum() == 4
    assert used[~grpo.tied(batch.rewards)].all()


def test_rows_not_needed_for_refilling_are_not_skipped():
    policy, task = tiny.make_policy(tiny.make()), make_task(by_row)
    prompts = make_prompts(task, policy.loaded, ROWS, False, 5)
    order = iter(range(8))
    config = replace(CONFIG, dynamic_sampling=1, num_prompts=2, num_generations=16)
    batch, _ = loop._collect(policy, task, prompts, order, config, [0, 1], False, 0)  # r0 is dead, r1 lives, r2 is the refill
    assert [p.row["id"] for p in batch.prompts] == ["r0", "r1", "r2"]
    assert next(order) == 3


def test_the_batchs_standard_deviation_is_that_of_the_groups_in_use(tmp_path):
    config = replace(CONFIG, steps=1, num_prompts=2, num_generations=16, dynamic_sampling=20, scale_rewards="batch")
    _, _, rollouts, _ = run(tmp_path, make_task(by_row), config)
    trained = {r["group"] for r in rollouts if r["advantage"] != 0}
    rewards = np.array([[r["reward"] for r in rollouts if r["group"] == g] for g in sorted(trained)])
    wanted = (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(ddof=1) + 1e-4)
    got = np.array([[r["advantage"] for r in rollouts if r["group"] == g] for g in sorted(trained)])
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


# --- the record


def test_every_rollout_and_every_metric_is_written(tmp_path):
    def check(text, row):
        return Verdict(False, {"label": None}, well_formed=True)

    def logs(completions, log_extra, log_metric, **kwargs):
        log_extra("note", [c[0]["content"][:1] for c in completions])
        log_metric("mine", 3.0)
        return [None if i % 4 == 0 else i / 7 for i in range(len(completions))]

    policy, metrics, rollouts, _ = run(tmp_path, make_task(even, logs, check=check), replace(CONFIG, beta=0.1))
    assert Counter(r["step"] for r in rollouts) == {1: 12, 2: 12}
    documented = {"step", "group", "sample", "id", "prompt", "text", "reasoning", "tokens", "terminated", "rewards", "reward", "advantage"}
    assert all(set(r) == documented | {"verdict", "note", "reasons"} for r in rollouts)
    assert [(r["group"], r["sample"]) for r in rollouts[:12]] == [(g, s) for g in range(3) for s in range(4)]
    assert rollouts[0]["rewards"]["logs"] is None and rollouts[0]["reward"] is not None
    assert rollouts[0]["verdict"] == {"correct": False, "fields": {"label": None}, "well_formed": True, "handed_off": None}
    assert rollouts[0]["prompt"] == [{"role": "user", "content": next(r["question"] for r in ROWS if r["id"] == rollouts[0]["id"])}]
    wanted = """
        step loss reward reward_std rewards/even/mean rewards/even/std rewards/logs/mean rewards/logs/std frac_reward_zero_std
        groups/all_right groups/all_wrong groups/tied completions/mean_length completions/min_length completions/max_length
        completions/mean_terminated_length completions/clipped_ratio entropy kl clip_ratio/low_mean clip_ratio/high_mean
        clip_ratio/region_mean grad_norm learning_rate check/accuracy check/well_formed num_tokens tokens/distinct tokens/total
        step_time time/sample time/train mine
    """
    assert set(wanted.split()) <= set(metrics[0])
    first = [r for r in rollouts if r["step"] == 1]
    row, tokens = metrics[0], [r["tokens"] for r in first]
    assert row["reward"] == pytest.approx(np.mean([r["reward"] for r in first]))
    assert row["completions/mean_length"] == pytest.approx(np.mean(tokens))
    assert row["completions/clipped_ratio"] == pytest.approx(np.mean([not r["terminated"] for r in first]))
    prompt_tokens = len(make_prompts(make_task(), policy.loaded, ROWS[:1], False, 5)[0].ids)
    assert row["tokens/total"] == row["num_tokens"] == sum(tokens) + 12 * prompt_tokens
    assert row["tokens/distinct"] < row["tokens/total"]
    assert metrics[1]["num_tokens"] == row["num_tokens"] + metrics[1]["tokens/total"]


def test_what_a_reward_logs_cannot_hide_a_documented_key(tmp_path):
    def logs(completions, log_extra, log_metric, **kwargs):
        log_extra("text", ["forged"] * len(completions))
        log_metric("reward", 99.0)
        return [0.5] * len(completions)

    _, metrics, rollouts, _ = run(tmp_path, make_task(logs))
    assert all(r["text"] != "forged" for r in rollouts)
    assert all(row["reward"] == 0.5 for row in metrics)


def test_steps_with_nothing_ended_and_no_verdicts_are_strict_json(tmp_path):
    def none(completions, **kwargs):
        return [None] * len(completions)

    _, metrics, rollouts, why = run(
        tmp_path, make_task(none), replace(CONFIG, max_completion_length=1, max_dead_steps=2), stops=frozenset()
    )
    assert metrics[0]["reward"] is None and metrics[0]["completions/mean_terminated_length"] is None
    assert metrics[0]["rewards/unscored"] == 12 and rollouts[0]["reward"] is None
    assert "no answer got a reward" in why


def test_one_prompt_with_more_generations_than_a_batch_of_rows_holds(tmp_path):
    config = replace(CONFIG, steps=1, num_prompts=1, num_generations=80)
    _, metrics, rollouts, _ = run(tmp_path, make_task(length_of), config)
    assert len(rollouts) == 80 and metrics[0]["grad_norm"] > 0


def test_more_prompts_a_step_than_there_are_rows(tmp_path):
    _, _, rollouts, _ = run(tmp_path, make_task(length_of), replace(CONFIG, steps=1, num_prompts=5), rows=ROWS[:2])
    texts = {g: [r["text"] for r in rollouts if r["group"] == g] for g in range(5)}
    assert len({tuple(t) for t in texts.values()}) == 5  # the same row again has streams of its own (S-DS-03)


def test_thinking_is_kept_apart_from_what_rewards_read(tmp_path):
    read = []

    def sees(completions, **kwargs):
        read.extend(c[0]["content"] for c in completions)
        return [float(i) for i in range(len(completions))]

    tokenizer = tiny.make_tokenizer(tiny.OPENING)
    _, _, rollouts, _ = run(tmp_path, make_task(sees), tokenizer=tokenizer, thinking=True)
    assert set(read) == {""}  # a random model never closes the block
    assert all(r["text"] == "" and r["reasoning"] for r in rollouts)


def test_a_gradient_that_is_not_finite_stops_before_it_spoils_the_weights(tmp_path, monkeypatch):
    policy = Policy(tiny.make(), rank=4)
    own = grpo.reduce
    monkeypatch.setattr(grpo, "reduce", lambda *arguments: own(*arguments) * math.inf)
    with pytest.raises(UserError, match=r"not finite.*Lower the learning rate"):
        run(tmp_path, make_task(length_of), policy=policy)
    assert torch.equal(flat(policy), flat(Policy(tiny.make(), rank=4)))
    assert torch.isfinite(flat(Policy(tiny.make(), adapter=tmp_path / "adapter"))).all()


def test_a_crash_in_the_middle_keeps_the_steps_and_the_adapter(tmp_path):
    def breaks(completion_ids, trainer_state, **kwargs):
        if trainer_state.global_step == 2:
            raise ValueError("no")
        return [float(i) for i, _ in enumerate(completion_ids)]

    policy = Policy(tiny.make(), rank=4)
    with pytest.raises(UserError, match="'breaks' raised ValueError"):
        run(tmp_path, make_task(breaks), policy=policy)
    assert len(strict(tmp_path / "metrics.jsonl")) == 1
    assert torch.equal(flat(Policy(tiny.make(), adapter=tmp_path / "adapter")), flat(policy))


def test_a_prompt_too_long_for_the_model_is_named_at_the_start():  # S-TR-02
    loaded, task = tiny.make(), make_task()
    rows = [ROWS[0], {**ROWS[1], "id": "long", "question": "x" * 600}]
    with pytest.raises(UserError, match=r"row 'long' has 6\d\d tokens.*512"):
        make_prompts(task, loaded, rows, False, 8)
