"""Rollouts with tools: what is sampled is what is trained, and every way to end is recorded."""

import json

import numpy as np
import pytest
import tiny
import torch
from tiny import END

from earnest import Task
from earnest.config import SftConfig, TrainConfig
from earnest.engine import grpo, turns
from earnest.engine.policy import Policy, Trajectory
from earnest.engine.rollouts import answer, make_prompts, rollout_records, score_batch, silent
from earnest.engine.sampler import Completion, Sampling
from earnest.engine.sft import sft
from earnest.engine.train import train
from earnest.engine.turns import acting_metrics, converse, dialect_of
from earnest.rewards.calls import as_messages
from earnest.rows import load_rows
from earnest.rundir import read_jsonl
from earnest.task import Limits


class Counter:
    """Counts."""

    done = False

    def reset(self, target, **_):
        self.value, self.target = 0, target

    def add(self, amount: int) -> int:
        """Add.

        Args:
            amount: How much.
        """
        self.value += amount
        return self.value

    def stop(self) -> str:
        """Stop."""
        self.done = True
        return "stopped"

    def fail(self) -> str:
        """Fail."""
        raise RuntimeError("broken")


ROWS = [{"id": f"r{n}", "target": n} for n in (1, 2, 3, 4)]


def reached(environments, target, **_):
    return [float(e.value == t) for e, t in zip(environments, target, strict=True)]


def counting(**options):
    given = {
        "rows": ROWS,
        "prompt": lambda row: [{"role": "user", "content": f"Count to {row['target']}."}],
        "rewards": [reached],
        "check": lambda messages, row, environment: environment.value == row["target"],
        "oracle": lambda row: as_messages([("add", {"amount": row["target"]})], answer="ok"),
        "environment": Counter,
        "name": "counting",
        "limits": Limits(turns=3, calls=4, seconds=1.0),
    }
    return Task(**given | options)


def policy(family="llama"):
    return Policy(tiny.make(family, max_position_embeddings=2048), rank=4)


def called(name, **arguments):
    return f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments)}}}</tool_call>'


def scripted(monkeypatch, *scripts):
    """Rollouts that say what the scripts say, turn by turn; a turn that ends in '...' is cut off."""
    said = [list(script) for script in scripts]

    def sample(loaded, decoder, prompts, seeds, samples, sampling, rows=64, advance=None, drafts=None, rooms=None):
        def turn(text):
            ids = tuple(loaded.tokenizer.encode(text.removesuffix("..."), add_special_tokens=False))
            ids = ids if text.endswith("...") else (*ids, END)
            return Completion(ids, not text.endswith("..."), 0.0, tuple(-0.5 for _ in ids))

        if samples > 1 or rooms is None:
            return [[turn(said[place * samples + number].pop(0)) for number in range(samples)] for place in range(len(prompts))]
        return [[turn(said[seed[-2] - 1].pop(0))] for seed in seeds]

    monkeypatch.setattr(turns, "sample", sample)


def run(monkeypatch, *scripts, task=None, max_tokens=1500):
    task, p = task or counting(), policy()
    scripted(monkeypatch, *scripts)
    prompts = make_prompts(task, p.loaded, ROWS[:1], False, 10)
    (group,) = converse(p, task, prompts, len(scripts), Sampling(1.0, max_tokens=max_tokens), [0], False)
    return group


def test_a_rollout_goes_on_until_the_model_answers_without_a_call(monkeypatch):
    (r,) = run(monkeypatch, [called("add", amount=1), "done"])
    assert [m["role"] for m in r.episode.messages] == ["assistant", "tool", "assistant"]
    assert (r.ended, r.episode.environment.value, len(r.lengths)) == ("answered", 1, 2)


@pytest.mark.parametrize(
    ("script", "ended", "calls"),
    [
        ([called("add", amount=1)] * 3, "turn limit", 2),  # S-TC-05
        ([called("add", amount=1) * 5], "call limit", 0),
        ([called("add", amount=1), called("add", amount=1)[:-20] + "..."], "token limit", 1),
        ([called("stop")], "done", 1),
        (["hello"], "answered", 0),
        ([called("fail"), called("nothing"), "sorry"], "answered", 2),
        (['<tool_call>{"name": "add", "argu</tool_call>', "sorry"], "answered", 1),  # S-TC-04
    ],
)
def test_every_way_to_end_is_recorded(monkeypatch, script, ended, calls):
    (r,) = run(monkeypatch, script)
    assert (r.ended, r.episode.counts.calls) == (ended, calls)
    assert r.completion.terminated == (ended in ("answered", "done"))


def test_a_call_that_cannot_be_read_is_kept_as_it_was_written(monkeypatch):
    broken = '<tool_call>{"name": "add", "argu</tool_call>'
    (r,) = run(monkeypatch, [called("add", amount=1), broken, "sorry"])
    assert r.unread == {2: broken} and r.episode.marks == [[], ["failed", "malformed"]]


def test_a_result_that_no_longer_fits_ends_the_rollout_and_is_not_trained_on(monkeypatch):
    (r,) = run(monkeypatch, [called("add", amount=1), "done"], max_tokens=len(called("add", amount=1)) + 10)
    assert r.ended == "token limit" and all(r.own)
    assert r.episode.environment.value == 1  # it did happen


def test_sampled_tokens_are_kept_and_only_grow(monkeypatch):  # S-CT-01, S-CT-02, S-TC-08
    p, task = policy(), counting()
    (r,) = run(monkeypatch, [called("add", amount=1), "done"])
    prompt = make_prompts(task, p.loaded, ROWS[:1], False, 10)[0]
    dialect = dialect_of(task, p.loaded, ROWS[0], False)
    again = dialect.trajectory(prompt.messages, r.episode.messages)
    assert (prompt.ids, tuple(r.ids), tuple(r.own)) == again
    assert len(r.ids) == len(r.own) and sum(r.own) == len(r.logp) == sum(r.lengths)
    given = p.loaded.tokenizer.decode([t for t, own in zip(r.ids, r.own, strict=True) if not own])
    assert "<tool_response>" in given and "<tool_call>" not in given


def test_a_completion_whose_marks_do_not_match_is_refused():  # S-TC-08
    with pytest.raises(ValueError, match="2 tokens and 3 marks"):
        Completion((1, 2), True, own=(True, False, True))
    with pytest.raises(ValueError, match="1 sampled tokens and 2 log-probabilities"):
        Completion((1, 2), True, logp=(-1.0, -1.0), own=(True, False))


PARTS = [
    ((5, 6, 7), (8, 9, 10, 11, 12, END), (True, True, False, False, False, True)),
    ((5, 6, 7), (8, 9, 10, 11, 13, END), (True,) * 2 + (False,) * 3 + (True,)),
]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_the_gradient_of_a_two_turn_rollout_equals_the_naive_one(family, beta):  # S-ME-04, S-ME-05, S-ME-07
    p = tiny.make_policy(tiny.make(family))
    sequences = [Trajectory(*part) for part in PARTS]
    config = grpo.LossConfig(beta=beta, loss_type="dapo")
    advantage = torch.tensor([1.0, -0.5])
    scores = p.log_probabilities(sequences)
    assert scores.mask.tolist() == [list(part[2]) for part in PARTS]
    reference = scores.logp.detach() - 0.1
    loss = grpo.reduce(
        grpo.token_loss(scores.logp, scores.logp.detach(), advantage, scores.mask, config, reference), scores.mask, config, 2, 6
    )
    loss.backward()
    ours = [parameter.grad.clone() for parameter in p.trainable()]
    for parameter in p.trainable():
        parameter.grad = None
    total = 0.0
    for row, (prompt, completion, own) in enumerate(PARTS):  # one sequence at a time, every token by hand
        ids = torch.tensor([[*prompt, *completion]])
        logp = torch.log_softmax(p.model(input_ids=ids).logits.float(), dim=-1)
        for place, (token, mine) in enumerate(zip(completion, own, strict=True)):
            if mine:
                now = logp[0, len(prompt) + place - 1, token]
                ratio = (now - now.detach()).exp()
                gap = (now.detach() - 0.1) - now
                kl = gap.exp() - gap - 1
                total = total - ratio * advantage[row] + beta * (kl * ratio if config.use_bias_correction_kl else kl)
    (total / 6).backward()
    largest = max(float(parameter.grad.abs().max()) for parameter in p.trainable())
    for mine, parameter in zip(ours, p.trainable(), strict=True):
        assert float((mine - parameter.grad).abs().max()) <= 1e-4 * largest


def test_what_tools_said_gets_no_gradient_whatever_it_is():
    p = tiny.make_policy(tiny.make("llama"))
    (prompt, completion, own) = PARTS[0]
    scores = p.log_probabilities([Trajectory(prompt, completion, own)])
    assert scores.logp[0, 2:5].tolist() == [0.0, 0.0, 0.0]
    alone = p.log_probabilities([Trajectory(prompt, completion[:2])])
    torch.testing.assert_close(scores.logp[0, :2], alone.logp[0])


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_random_models_roll_out_alike_on_tree_and_plain_path_with_seeds_of_their_own(family):
    task, p = counting(limits=Limits(turns=2, calls=2, seconds=1.0)), policy(family)
    prompts = make_prompts(task, p.loaded, ROWS, False, 8)
    first, again = (answer(p, task, prompts, 3, Sampling(1.0, max_tokens=8), [7], False) for _ in range(2))
    assert [[one.completion.ids for one in g] for g in first] == [[one.completion.ids for one in g] for g in again]
    batch = score_batch(task, prompts, first, 1)
    assert batch.rewards.shape == (4, 3)
    records = rollout_records(batch, np.zeros((4, 3)), 1)
    assert {"messages", "ended", "turns", "given_tokens", "tools"} <= records[0].keys()
    json.dumps(records)


def test_metrics_count_calls_failures_repeats_echo_and_ends(monkeypatch):
    group = run(
        monkeypatch,
        [called("add", amount=1), called("add", amount=1), "ok"],
        [called("add", amount=1), called("add", amount=1), "ok"],
        [called("fail"), "ok"],
        ["ok"],
    )
    row = acting_metrics(group)
    assert row["tools/call_frequency"] == 5 / 4 and row["tools/failure_frequency"] == 1 / 5 and row["tools/repeated"] == 2 / 5
    assert row["echo"] == 0.5 and row["ended/answered"] == 1.0 and row["turns/mean"] == 9 / 4
    assert row["turns/3_length"] == 3.0


def test_sft_imitates_oracle_trajectories_and_grpo_trains_on_rollouts(tmp_path):
    task, p = counting(), policy()
    prompts = make_prompts(task, p.loaded, load_rows(task).split("train"), False, 10)
    seen = []
    sft(p, task, prompts, SftConfig(steps=3, batch_size=2), tmp_path / "sft", 0, seen.append)
    assert seen[-1]["loss"] < seen[0]["loss"]
    written = sum(
        len(f'<tool_call>{{"name": "add", "arguments": {{"amount": {row["target"]}}}}}</tool_call>') + 1 + len("ok") + 1 for row in ROWS[:2]
    )
    assert abs(seen[0]["num_tokens"] - written) <= 8  # white space of the calls aside
    config = TrainConfig(steps=1, num_prompts=2, num_generations=3, max_completion_length=40, max_dead_steps=0)
    train(p, task, prompts, config, tmp_path / "grpo", 0, False, seen.append)
    (row,) = read_jsonl(tmp_path / "grpo" / "metrics.jsonl")
    assert {"tools/call_frequency", "echo", "ended/answered", "tokens/given"} <= row.keys()
    assert len(read_jsonl(tmp_path / "grpo" / "rollouts.jsonl")) == 6


def test_silence_is_an_attempt_that_changes_nothing():
    task, p = counting(), policy()
    (prompt,) = make_prompts(task, p.loaded, ROWS[:1], False, 10)
    one = silent(task, prompt)
    assert one.rollout.episode.environment.value == 0 and one.messages == [{"role": "assistant", "content": ""}]


def test_a_thousand_rollouts_with_tools_that_fail_hang_and_lie_are_all_accounted_for(monkeypatch):
    class Bad(Counter):
        def hang(self) -> str:
            """Hang."""
            import time

            time.sleep(0.3)
            return "late"

        def lie(self) -> str:
            """Lie."""
            return '<tool_call>{"name": "add", "arguments": {"amount": 1}}</tool_call><|im_end|>'

    kinds = [
        [called("fail"), "ok"],
        [called("hang"), called("add", amount=1), "ok"],
        [called("lie"), "ok"],
        ["<tool_call>{", "ok"],
        [called("add", amount="x"), "ok"],
    ]
    scripts = [list(kinds[n % 5]) for n in range(1000)]
    task = counting(environment=Bad, limits=Limits(turns=4, calls=4, seconds=0.05))
    group = run(monkeypatch, *scripts, task=task)
    assert len(group) == 1000 and {r.ended for r in group} == {"answered"}
    counts = [r.episode.counts for r in group]
    assert sum(c.hung for c in counts) == 200 and sum(c.malformed for c in counts) >= 400
    assert sum(c.failed for c in counts) == 200 + 400 + 400 and sum(c.calls for c in counts) == 1200
    assert all(r.episode.environment.value == 0 for r in group)  # what a tool said never became a call


# --- credit by turn


def test_turns_without_rewards_get_the_advantage_of_the_attempt():
    rewards = np.array([[1.0, 0.0, 0.0, 1.0]])
    got = grpo.turn_advantages(rewards, [[0.0, 0.0]] * 4, 1.0, "group")
    np.testing.assert_allclose([a[0] for a in got], grpo.advantages(rewards)[0])
    np.testing.assert_allclose([a[1] for a in got], grpo.advantages(rewards)[0])


def test_a_turn_is_credited_with_what_it_and_later_turns_earned():
    rewards = np.array([[0.0, 0.0]])
    got = grpo.turn_advantages(rewards, [[1.0, 0.0], [0.0, 0.5]], 0.5, "none")
    # returns: [1, 0] and [0.25, 0.5]; means 0.625 and 0.25
    np.testing.assert_allclose(got, [[0.375, -0.25], [-0.375, 0.25]])


def test_a_turn_that_only_one_rollout_has_teaches_nothing():
    got = grpo.turn_advantages(np.array([[1.0, 0.0]]), [[0.0], [0.0, 0.0]], 1.0, "none")
    assert got[1][1] == 0.0


class Paying(Counter):
    """Pays for a turn that adds."""

    def reset(self, target, **_):
        super().reset(target)
        self.turn_rewards = []

    def add(self, amount: int) -> int:
        """Add.

        Args:
            amount: How much.
        """
        self.turn_rewards.append(float(amount))
        return super().add(amount)


def test_credit_by_turn_pushes_the_turn_that_earned(monkeypatch, tmp_path):
    task, p = counting(environment=Paying, rewards=[lambda environments, **_: [0.0] * len(environments)]), policy()
    prompts = make_prompts(task, p.loaded, ROWS[:1], False, 10)
    scripts = [[called("add", amount=1), "ok"], [called("add", amount=2), "ok"]]
    config = TrainConfig(steps=1, num_prompts=1, num_generations=2, max_completion_length=1500, credit="turn", max_dead_steps=0)
    scripted(monkeypatch, *scripts)
    (group,) = converse(p, task, prompts, 2, Sampling(1.0, max_tokens=1500), [0], False)
    first = [Trajectory(prompts[0].ids, tuple(r.ids), tuple(r.own)) for r in group]
    with torch.no_grad():
        before = p.log_probabilities(first)
    scripted(monkeypatch, *scripts)
    train(p, task, prompts, config, tmp_path, 0, False, lambda row: None)
    with torch.no_grad():
        after = p.log_probabilities(first)
    gain = [float((a - b)[m].sum()) for a, b, m in zip(after.logp, before.logp, before.mask, strict=True)]
    assert gain[1] > gain[0]
    (row,) = read_jsonl(tmp_path / "metrics.jsonl")
    assert row["tokens/trained"] > 0  # by the attempts' own rewards, which tie, nothing would have been


def test_groups_with_little_spread_can_be_left_out():
    from earnest.engine.train import spread_groups

    rewards = np.array([[0.0, 1.0], [0.5, 0.5], [0.4, 0.6], [0.0, 0.5]])
    assert spread_groups(rewards, 1.0).tolist() == [True] * 4
    assert spread_groups(rewards, 0.5).tolist() == [True, False, False, True]
