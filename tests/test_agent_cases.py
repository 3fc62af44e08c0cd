"""Public reports about masks, cut-offs and tools in other trainers, where nothing else holds them: each test names its case."""

import io
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from rich.console import Console
from tiny import END, START, THINK, UNTHINK

from earnest import Limits, Task, UserError, stages
from earnest.check import check_task
from earnest.config import Config, TrainConfig
from earnest.engine import grpo, learn, rollouts, train, turns
from earnest.engine.policy import HeadLogProbability, Trajectory
from earnest.engine.rollouts import Batch, Prompt, Sampled, answer, make_prompts, score_batch
from earnest.engine.sampler import Completion, Sampling
from earnest.engine.turns import Rollout, acting_metrics, converse, dialect_of
from earnest.environment import Episode, answer_to, begin
from earnest.rewards.calls import ToolCall, as_messages
from earnest.rewards.state import digest
from earnest.rows import load_rows
from earnest.score import Scores
from earnest.session import Session
from earnest.task import Verdict
from earnest.tasks.billing_agent import billing_task
from earnest.text import Answer


class Shelf:
    """A shelf with a note."""

    def reset(self, note="", **row):
        self.taken = []
        return note

    def take(self, thing: str) -> str:
        """Take a thing.

        Args:
            thing: What.
        """
        self.taken.append(thing)
        return "taken"


def taking(rows=({"id": "a"}, {"id": "b"}), **options):
    given = {
        "rows": list(rows),
        "prompt": lambda row: [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Take it."}],
        "rewards": [lambda environments, **columns: [float(len(one.taken)) for one in environments]],
        "check": lambda messages, row, environment: environment.taken == ["tea"],
        "oracle": lambda row: as_messages([("take", {"thing": "tea"})], answer="ok"),
        "environment": Shelf,
        "name": "taking",
    }
    return Task(**given | options)


TAKE = '<tool_call>{"name": "take", "arguments": {"thing": "tea"}}</tool_call>'


def scripted(monkeypatch, *scripts):
    """Sampling that says what the scripts say, and a list of the histories that it was to continue."""
    said, histories = [list(script) for script in scripts], []

    def sample(loaded, decoder, prompts, seeds, samples, sampling, rows=64, advance=None, drafts=None, rooms=None):
        histories.append([tuple(prompt) for prompt in prompts])

        def turn(text):
            ids = (*loaded.tokenizer.encode(text, add_special_tokens=False), END)
            return Completion(ids, True, 0.0, (-1.0,) * len(ids))

        if rooms is None:
            return [[turn(script.pop(0)) for script in said]]
        return [[turn(said[seed[-2] - 1].pop(0))] for seed in seeds]

    monkeypatch.setattr(turns, "sample", sample)
    return histories


def converse_by(monkeypatch, task, scripts, thinking=False, template=tiny.CHATML):
    """One group of rollouts that follow scripts, its prompt, and the histories."""
    loaded = tiny.make(tokenizer=tiny.make_tokenizer(template), max_position_embeddings=4096)
    (prompt,) = make_prompts(task, loaded, load_rows(task).split("train")[:1], thinking, 10)
    histories = scripted(monkeypatch, *scripts)
    speaker = SimpleNamespace(loaded=loaded, decoder=lambda remember: None, drafts=None)
    (group,) = converse(speaker, task, [prompt], len(scripts), Sampling(1.0, max_tokens=3000), [0], thinking)
    return group, prompt, histories


# ---- what is trained

PROMPT = Prompt({"id": "r"}, [{"role": "user", "content": "?"}], (5, 6, 7), False)
A, E = (8, 9, END), (10, 11, 12)  # tokens of the model, A1 A2 and A3, and of the environment
IDS, OWN = (*A[:2], *E, A[2]), (True, True, False, False, False, True)


def acted(ids=IDS, own=OWN, lengths=(2, 1), ended="answered", entropy=1.5):
    """A rollout that was sampled, made up."""
    rollout = Rollout(PROMPT, Sampling(), (), Episode(None, {}), list(ids), list(own), entropy=entropy, lengths=list(lengths), ended=ended)
    return Sampled(rollout.completion, Answer(""), rollout)


def batch_of(*samples, rewards):
    values = np.array(rewards, dtype=float)
    return Batch([PROMPT], [list(samples)], Scores(("r",), values[:, None], values), [Verdict(False)] * len(samples))


def learned(monkeypatch, speaker, batch, advantages=None, **options):
    """The row and the gradient of one update on a batch."""
    advantages = grpo.advantages(batch.rewards) if advantages is None else advantages
    config, used = TrainConfig(num_prompts=1, num_generations=len(batch.samples[0]), **options), np.array([True])
    gradient = []

    def keep(policy, *others):
        gradient[:] = [parameter.grad.clone() for parameter in policy.trainable()]
        policy.peft.zero_grad()
        return 1.0, 0.1

    monkeypatch.setattr(learn, "update", keep)
    row = learn.learn(speaker, None, None, batch, used, advantages, None, config, {} if config.beta else None)
    return row | train._metrics(batch, used, config), gradient


def test_only_tokens_of_the_model_have_a_gradient_in_the_logits():  # S-ME-04
    speaker, kept = tiny.make_policy(tiny.make("gpt2")), []

    def keep(module, given, logits):
        logits.retain_grad()
        kept.append(logits)

    speaker.model.lm_head.register_forward_hook(keep)
    scores = speaker.log_probabilities([Trajectory(PROMPT.ids, IDS, OWN)])
    assert scores.mask.int().tolist() == [[1, 1, 0, 0, 0, 1]]
    scores.logp.sum().backward()
    moved = kept[0].grad[0].abs().sum(-1) != 0
    assert moved.tolist() == [False, False, True, True, False, False, False, True, False]  # each logit predicts the token after it


def test_the_tree_asks_for_no_prediction_of_what_the_environment_said(monkeypatch):  # S-ME-04
    asked, real = [], HeadLogProbability.apply

    def spy(hidden, weight, tokens, temperature):
        asked.extend(tokens.tolist())
        return real(hidden, weight, tokens, temperature)

    monkeypatch.setattr(HeadLogProbability, "apply", spy)
    scores = tiny.make_policy(tiny.make("llama")).log_probabilities([Trajectory(PROMPT.ids, IDS, OWN)])
    assert sorted(asked) == sorted(A) and scores.mask.int().tolist() == [[1, 1, 0, 0, 0, 1]]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_kl_entropy_and_lengths_are_of_the_models_tokens(family, monkeypatch):  # S-ME-05
    def reference(speaker, step, packs, config, adapter):
        scores = [speaker.log_probabilities([step.trajectories[i] for i in part]) for part in packs]
        return [(one.logp + torch.where(one.mask, 0.1, 50.0)).detach() for one in scores]

    monkeypatch.setattr(learn, "_reference_scores", reference)
    batch = batch_of(acted(), acted(), rewards=[1, 0])
    row, _ = learned(monkeypatch, tiny.make_policy(tiny.make(family)), batch, beta=0.1)
    assert row["kl"] == pytest.approx(0.00517, abs=1e-5)  # e^0.1 - 0.1 - 1
    assert row["entropy"] == pytest.approx(0.5)  # 1.5 over A1, A2 and A3
    assert [row[f"completions/{name}_length"] for name in ("mean", "min", "max")] == [3, 3, 3]
    assert row["tokens/given"] == 3 and row["tokens/trained"] == 6


def test_every_turn_of_the_model_is_trained(monkeypatch):  # S-ME-07
    (rollout,), prompt, _ = converse_by(monkeypatch, taking(), [[TAKE, TAKE, "ok"]])
    assert rollout.lengths == [len(TAKE) + 1, len(TAKE) + 1, 3] and sum(rollout.own) == sum(rollout.lengths)
    scores = tiny.make_policy(tiny.make(max_position_embeddings=4096)).log_probabilities(
        [Trajectory(prompt.ids, rollout.completion.ids, rollout.completion.own)]
    )
    assert scores.mask[0].tolist() == rollout.own and (scores.logp[0][scores.mask[0]] < 0).all()
    dialect = dialect_of(taking(), tiny.make(), {"id": "a"}, False)
    _, ids, own = dialect.trajectory(prompt.messages, rollout.episode.messages)  # as SFT has it
    assert sum(own) == sum(rollout.lengths) and list(ids) == rollout.ids


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_cut_rollout_that_is_masked_counts_nowhere_but_in_the_lengths(family, monkeypatch):  # S-TR-01
    whole, other = acted(), acted((8, *E, END), (True, False, False, False, True), (1, 1))
    cut = acted((*IDS[:-1], 13, 14, 15), (*OWN, True, True), (2, 3), ended="token limit")
    speaker, options = tiny.make_policy(tiny.make(family)), {"mask_truncated_completions": True}
    batch = batch_of(whole, other, cut, rewards=[2, 0, 0.5])
    row, gradient = learned(monkeypatch, speaker, batch, **options)
    alone, wanted = learned(monkeypatch, speaker, batch_of(whole, other, rewards=[2, 0]), grpo.advantages(batch.rewards)[:, :2], **options)
    assert row["tokens/trained"] == alone["tokens/trained"] == 3 + 2
    assert row["completions/max_length"] == 5 and row["completions/clipped_ratio"] == pytest.approx(1 / 3)
    for mine, its in zip(gradient, wanted, strict=True):
        torch.testing.assert_close(mine, its, atol=1e-7, rtol=1e-5)
    unmasked, other_gradient = learned(monkeypatch, speaker, batch)
    assert unmasked["tokens/trained"] == 3 + 2 + 5
    assert max(float((one - two).abs().max()) for one, two in zip(gradient, other_gradient, strict=True)) > 1e-4


# ---- prompts and cut-offs


LONG = {
    "said by reset": taking([{"id": "a"}, {"id": "long", "note": "x" * 3000}]),
    "in the row": taking([{"id": "a"}, {"id": "long"}], prompt=lambda row: [{"role": "user", "content": "x" * 10 ** len(row["id"])}]),
    "without tools": taking(
        [{"id": "long", "q": "x" * 3000}], environment=None, prompt=lambda row: [{"role": "user", "content": row["q"]}]
    ),
}


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("task", LONG.values(), ids=LONG)
def test_a_prompt_that_is_too_long_is_named_before_anything_is_sampled(family, task):  # S-TR-02
    with pytest.raises(UserError, match=r"row 'long' has \d{4,} tokens.*512.*Shorten the row"):
        make_prompts(task, tiny.make(family), load_rows(task).split("train"), False, 8)


@pytest.mark.parametrize("acts", [True, False])
def test_a_limit_that_does_not_bind_leaves_the_prompt_as_the_template_wrote_it(acts, monkeypatch):  # S-TR-03
    task = taking(**({} if acts else {"environment": None}))
    loaded, sent = tiny.make(max_position_embeddings=4096), []

    def sample(loaded, decoder, histories, seeds, samples, *others, **more):
        sent.append([list(ids) for ids in histories])
        return [[Completion((END,), True)] * samples for _ in histories]

    monkeypatch.setattr(turns if acts else rollouts, "sample", sample)
    speaker = SimpleNamespace(loaded=loaded, decoder=lambda remember: None, drafts=None)
    for room in (1, 8, 2000):
        prompts = make_prompts(task, loaded, load_rows(task).split("train"), False, room)
        answer(speaker, task, prompts, 1, Sampling(max_tokens=room), [0], False)
    assert sent[0] == sent[1] == sent[2]
    assert sent[0][0].count(START) == 3 and sent[0][0].count(END) == 2  # system, user, and the turn to come
    if not acts:
        whole = loaded.tokenizer.apply_chat_template(prompts[0].messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        assert sent[0][0] == whole
    assert not [one.name for one in fields(TrainConfig) if "prompt_length" in one.name]  # nothing cuts a prompt


def session(task, folder, **config):
    return Session(task, load_rows(task), Config(**config), folder, Console(file=io.StringIO(), width=400))


def test_it_is_said_when_most_answers_are_cut(monkeypatch, tmp_path):  # S-TR-04
    task = taking()
    shares = [0.97] * 5

    def trained(policy, task, prompts, config, folder, seed, thinking, report):
        for number, share in enumerate(shares, start=1):
            report({"step": number, "reward": 0.0, "check/accuracy": 0.0, "frac_reward_zero_std": 1.0, "completions/clipped_ratio": share})

    monkeypatch.setattr(stages, "train", trained)
    monkeypatch.setattr(stages, "prompts_of", lambda *given: [PROMPT])
    s = session(task, tmp_path, train=TrainConfig(max_completion_length=64))
    stages.train_stage(s, None, "grpo", s.rows.split("train"))
    assert s.console.file.getvalue().count("97% of the answers were cut at 64 tokens; raise max_completion_length") == 1
    shares[:] = [0.4] * 5
    stages.train_stage(s, None, "grpo", s.rows.split("train"))
    assert s.console.file.getvalue().count("were cut") == 1


# ---- templates

FORGETFUL = tiny.CHATML.replace(
    "{{ m['content'] }}", "{{ m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'] }}"
)


def test_a_later_turn_is_sampled_after_the_thinking_of_the_earlier_one(monkeypatch):  # S-CT-03
    thought = f"<think>\nTea.\n</think>\n\n{TAKE}"
    (rollout,), prompt, histories = converse_by(monkeypatch, taking(), [[thought, "ok"]], thinking=True, template=FORGETFUL)
    ids = list(prompt.ids) + rollout.ids
    assert histories == [[prompt.ids], [tuple(ids[: -rollout.lengths[1]])]]
    assert rollout.ids[0] == THINK and rollout.ids.count(UNTHINK) == 1 and all(rollout.own[: rollout.lengths[0]])
    assert rollout.episode.messages[0]["reasoning_content"].strip() == "Tea." and rollout.episode.environment.taken == ["tea"]


@pytest.mark.parametrize(("template", "said"), [(FORGETFUL, "drops the thinking of earlier turns"), (tiny.CHATML, "described in words")])
def test_what_the_template_does_with_turns_is_said_when_the_model_is_loaded(template, said, monkeypatch, tmp_path):  # S-CT-03
    monkeypatch.setattr(stages, "load_model", lambda name, device: tiny.make(tokenizer=tiny.make_tokenizer(template)))
    s = session(taking(), tmp_path, model="some/model")
    for _ in range(2):
        stages.load(s)
    assert s.console.file.getvalue().count(said) == 1 and any(said in note for note in s.notes)
    plain = session(taking(environment=None, tools=[]), tmp_path, model="some/model")
    stages.load(plain)
    assert not plain.notes


# ---- tools and environments


def test_a_policy_that_only_calls_stops_at_the_limit_and_the_others_go_on(monkeypatch):  # S-TC-05
    task = taking(limits=Limits(turns=6))
    group, prompt, _ = converse_by(monkeypatch, task, [[TAKE] * 9, [TAKE, "ok"]])
    assert [(r.ended, r.episode.counts.calls) for r in group] == [("turn limit", 5), ("answered", 1)]
    batch = score_batch(task, [prompt], [[Sampled(r.completion, Answer(""), r) for r in group]], 1)
    assert batch.rewards.tolist() == [[5.0, 1.0]]
    assert acting_metrics(group)["ended/turn_limit"] == 0.5


def test_a_database_that_one_rollout_changed_is_new_for_the_next():  # S-TE-02
    task = billing_task()
    row = next(row for row in load_rows(task).split("train") if row["family"] == "person")
    first, beside = begin(task, row), begin(task, row)
    start = digest(first.environment.db)
    answer_to(first, ToolCall("hand_off", {"customer": row["customer"], "reason": "legal"}), 5.0)
    assert digest(first.environment.db) != start == digest(beside.environment.db) == digest(begin(task, row).environment.db)


def test_a_reference_that_does_not_do_what_the_task_asks_is_found_before_training():  # S-TE-05
    honest, idle = taking(), taking(oracle=lambda row: "I took it.")
    assert check_task(honest, load_rows(honest)).ok
    report = check_task(idle, load_rows(idle))
    assert not report.ok and any("oracle" in str(finding) for finding in report.findings)


def test_a_reference_whose_call_would_be_refused_is_not_imitated():  # S-TE-05, S-TC-02
    task = taking(oracle=lambda row: as_messages([("take", {"thing": 7})], answer="ok"))
    dialect = dialect_of(task, tiny.make(), {"id": "a"}, False)
    with pytest.raises(UserError, match=r'reads differently: the arguments of take: 7 is not of type "string".*arguments that fit'):
        dialect.trajectory([], task.oracle({}))
    own = dialect.trajectory([{"role": "user", "content": "?"}], taking().oracle({}))[2]
    assert any(own) and not all(own)
