"""TRL's own numbers: its loss, gradients, advantages and metrics, computed by its own code, against ours."""

import itertools
import math
import zlib
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from earnest import text
from earnest.config import TrainConfig
from earnest.engine import grpo, learn, train
from earnest.engine.grpo import LossConfig
from earnest.engine.models import Loaded
from earnest.engine.policy import Policy, Trajectory
from earnest.engine.rollouts import Batch, Prompt, Sampled
from earnest.engine.sampler import Completion
from earnest.engine.sft import make_optimizer
from earnest.score import Scores, weighted_total
from earnest.task import Verdict

NAN = math.nan
LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo"]
LONGEST = 7


# ---- the loss


def trl_loss(config, logp, inputs, micro_batches=1):
    """`GRPOTrainer._compute_loss` on given log-probabilities, in train mode; returns loss and metrics."""
    accelerator = SimpleNamespace(num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logp, torch.zeros_like(logp), None),
        model=SimpleNamespace(training=True),
        accelerator=accelerator,
        args=SimpleNamespace(delta=config.delta, use_bias_correction_kl=config.use_bias_correction_kl, steps_per_generation=micro_batches),
        current_gradient_accumulation_steps=micro_batches,
        loss_type=config.loss_type,
        importance_sampling_level=config.importance_sampling_level,
        beta=config.beta,
        epsilon_low=config.epsilon,
        epsilon_high=config.epsilon if config.epsilon_high is None else config.epsilon_high,
        max_completion_length=config.max_completion_length,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
    )
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    return loss, {name: values[0] for name, values in trainer._metrics["train"].items()}


def random_step(seed, rollouts=6):
    """Ragged rollouts, one of them fully masked, whose ratios go far out of every clip range on both sides."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (rollouts,), generator=rng)
    lengths[0], lengths[1] = LONGEST, 0
    old = -3 * torch.rand(rollouts, LONGEST, dtype=torch.float64, generator=rng)
    # a shift of the whole sequence beside that of each token, so that sequence ratios leave the range too
    shift = 0.5 * torch.randn(rollouts, 1, dtype=torch.float64, generator=rng)
    logp = old + shift + 0.4 * torch.randn(rollouts, LONGEST, dtype=torch.float64, generator=rng)
    ref = logp + 0.5 * torch.randn(rollouts, LONGEST, dtype=torch.float64, generator=rng)
    a = torch.randn(rollouts, dtype=torch.float64, generator=rng)
    mask = torch.arange(LONGEST)[None, :] < lengths[:, None]
    return SimpleNamespace(logp=logp, old=old, ref=ref, advantages=a, mask=mask, tokens=int(lengths.sum()))


def trl_inputs(step, rows):
    rows = list(rows)
    return {
        "prompt_ids": torch.zeros(len(rows), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(rows), 1, dtype=torch.long),
        "completion_ids": torch.zeros(len(rows), LONGEST, dtype=torch.long),
        "completion_mask": step.mask[rows].long(),
        "advantages": step.advantages[rows],
        "old_per_token_logps": step.old[rows],
        "ref_per_token_logps": step.ref[rows],
        "num_items_in_batch": torch.tensor(step.tokens),
    }


def ours(config, step):
    """Our loss and gradient of the whole step, with NaN on all padding."""
    logp, old, ref = (torch.where(step.mask, x, NAN) for x in (step.logp, step.old, step.ref))
    logp.requires_grad_()
    token = grpo.token_loss(logp, old, step.advantages, step.mask, config, ref)
    loss = grpo.reduce(token, step.mask, config, len(logp), step.tokens)
    loss.backward()
    return loss.item(), logp.grad, grpo.clip_counts(logp, old, step.advantages, step.mask, config)


CASES = list(itertools.product(["token", "sequence"], [None, 2.5], [(0.0, False), (0.1, False), (0.1, True)], [None, 0.28, 1.2]))


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize(("level", "delta", "kl", "epsilon_high"), CASES)
def test_loss_and_gradient_are_trls(loss_type, level, delta, kl, epsilon_high):
    config = LossConfig(loss_type, level, 0.2, epsilon_high, delta, *kl, max_completion_length=LONGEST + 2)
    for seed in range(5):
        step = random_step(seed)
        logp = step.logp.clone().requires_grad_()
        loss, metrics = trl_loss(config, logp, trl_inputs(step, range(6)))
        loss.backward()
        own, gradient, clipped = ours(config, step)
        assert own == pytest.approx(loss.item(), rel=1e-9, abs=1e-9)
        torch.testing.assert_close(gradient, logp.grad, rtol=1e-9, atol=1e-9)
        assert (logp.grad != 0).any()
        if level == "token":  # at level `sequence` TRL counts sequences, where we count their tokens
            if loss_type == "cispo":
                assert clipped.high / clipped.tokens == pytest.approx(metrics["cispo_clip_ratio"], abs=1e-6)
            else:
                assert clipped.low / clipped.tokens == pytest.approx(metrics["clip_ratio/low_mean"], abs=1e-6)
                assert clipped.high / clipped.tokens == pytest.approx(metrics["clip_ratio/high_mean"], abs=1e-6)


def test_the_steps_compared_bind_every_bound_there_is():
    steps = [random_step(seed) for seed in range(5)]
    logp, old, a, mask = (torch.cat([getattr(step, name) for step in steps]) for name in ("logp", "old", "advantages", "mask"))
    for level, count in (("token", 5), ("sequence", 2)):
        ratio = grpo.log_ratio(logp, old, mask, level).exp()
        positive = (a > 0)[:, None] & mask
        negative = (a < 0)[:, None] & mask
        for where in (positive & (ratio > 1.28), negative & (ratio < 0.8), positive & (ratio < 0.8), negative & (ratio > 1.28)):
            assert where.sum() >= count
        assert (negative & (ratio > 2.5)).any()


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_trls_gradient_accumulation_is_our_whole_step_but_for_bnpo(loss_type):
    config = LossConfig(loss_type, "token", 0.2, None, None, 0.1, max_completion_length=LONGEST)
    step = random_step(11)
    assert step.mask[:3].sum() != step.mask[3:].sum()
    logp = step.logp.clone().requires_grad_()
    parts = [trl_loss(config, logp[rows], trl_inputs(step, rows), micro_batches=2)[0] for rows in (range(3), range(3, 6))]
    sum(parts).backward()
    own, gradient, _ = ours(config, step)
    if loss_type == "bnpo":  # TRL divides by the tokens of each micro-batch, so its number depends on how the step is cut
        assert abs(own - sum(parts).item()) > 1e-3
        return
    assert own == pytest.approx(sum(parts).item(), rel=1e-9, abs=1e-9)
    torch.testing.assert_close(gradient, logp.grad, rtol=1e-9, atol=1e-9)


def test_an_overflowing_k3_is_infinite_in_trl_and_finite_here():  # case S-AL-12
    step = random_step(0)
    step.ref = step.logp.detach() + 800.0
    config = LossConfig(beta=0.1)
    logp = step.logp.clone().requires_grad_()
    assert not torch.isfinite(trl_loss(config, logp, trl_inputs(step, range(6)))[0])
    own, gradient, _ = ours(config, step)
    assert math.isfinite(own)
    assert torch.isfinite(gradient).all()


# ---- rollouts: TRL's trainer, with rewards read from a script


WORDS = ["<eos>", "<unk>", "user", "assistant", *(f"w{i}" for i in range(8))]
PROMPTS = [[{"role": "user", "content": "w1 w2"}], [{"role": "user", "content": "w3"}]]
TEMPERATURE = 0.7


class Script:
    """Two reward functions that return what they are told; remembers the completions."""

    def __init__(self):
        self.values, self.ids = [[0.0] * 8, [0.0] * 8], []

    def functions(self):
        def first(completions, completion_ids, **kwargs):
            self.ids = completion_ids
            return self.values[0]

        def second(completions, **kwargs):
            return self.values[1]

        return [first, second]


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    """A TRL trainer on a tiny random Llama, our policy on a copy of it, and the script of its rewards."""
    words = models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>")
    backend = Tokenizer(words)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<eos>", eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' ' }}{% endfor %}assistant"
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(shape)
    copy = LlamaForCausalLM(shape)
    copy.load_state_dict(model.state_dict())
    script = Script()
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(GRPOTrainer, "_send_telemetry", lambda self: None)  # the suite stays offline
    args = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trl")),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=LONGEST,
        temperature=TEMPERATURE,
        reward_weights=[1.0, 0.5],
        learning_rate=0.0,
        max_steps=1,
        logging_steps=1,
        shuffle_dataset=False,
        use_bias_correction_kl=False,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=script.functions(),
        args=args,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        processing_class=tokenizer,
    )
    monkeypatch.undo()
    policy = Policy(Loaded(copy.eval(), tokenizer, frozenset([0]), "tiny"), rank=2)  # a fresh LoRA changes nothing
    return SimpleNamespace(trainer=trainer, policy=policy, script=script, tokenizer=tokenizer)


def trl_rollouts(setup, first, second, scale="group", seed=0):
    """TRL samples 2 x 4 completions and scores them; returns its advantages and metrics, and the same rollouts as a batch of ours."""
    trainer, script = setup.trainer, setup.script
    script.values = [[None if x is None or math.isnan(x) else x for x in values] for values in (first, second)]
    trainer.scale_rewards = scale
    trainer._metrics["train"].clear()
    trainer.model.train()
    torch.manual_seed(seed)
    output = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in PROMPTS for _ in range(4)])
    found = {name: values[0] for name, values in trainer._metrics["train"].items()}
    assert trainer._logs["advantages"] == type(trainer._logs["advantages"])(output["advantages"].tolist(), maxlen=8)
    return output["advantages"].double().numpy().reshape(2, 4), found, our_batch(setup)


def our_batch(setup):
    ids = [tuple(c) for c in setup.script.ids]
    prompts = [Prompt({"id": str(i)}, p, tuple(text.render(setup.tokenizer, p)), False) for i, p in enumerate(PROMPTS)]
    written = [Trajectory(prompts[i // 4].ids, c) for i, c in enumerate(ids)]
    entropy = [entropy_of(setup, one) for one in written]
    flat = [Sampled(Completion(c, c[-1] == 0, float(h)), text.Answer("")) for c, h in zip(ids, entropy, strict=True)]
    values = np.array(setup.script.values, dtype=float).T
    scores = Scores(("first", "second"), values, weighted_total(values, [1.0, 0.5]))
    return Batch(prompts, [flat[:4], flat[4:]], scores, [Verdict(False)] * 8)


def entropy_of(setup, written):
    """Of the distributions a completion was drawn from, summed, through transformers' own forward pass."""
    with torch.no_grad():
        logits = setup.policy.model(torch.tensor([written.prompt + written.completion]), use_cache=False).logits[0]
    every = (logits[len(written.prompt) - 1 : -1] / TEMPERATURE).log_softmax(-1)
    return -(every.exp() * every).sum()


def our_metrics(batch, **options):
    return train._metrics(batch, np.array([True, True]), TrainConfig(num_prompts=2, num_generations=4, **options))


NOTHING = [0.0] * 8
REWARDS = {
    "both live": ([1, 0, 0, 1, 0.5, 0.25, 0.5, 0], [0.5, 1, -1, 0, 0, 0, 2, 1]),
    "one dead": ([1, 0, 0, 0, 1, 1, 1, 1], NOTHING),
    "both dead": ([1, 1, 1, 1, 0, 0, 0, 0], [0.5] * 8),
    "some missing": ([1, None, 0, None, 0.5, 0.5, None, 0], [1, 2, None, None, 1, None, None, 3]),
    "one function silent": ([1, 0, 0, 1, 0, 1, 0, 0], [None] * 8),
    "tiny contrast": ([0, 0.001, 0, 0, 0.5, 0.5, 0.502, 0.5], NOTHING),
}
RANDOM = np.random.default_rng(0)
for number in range(4):
    drawn = RANDOM.normal(size=(2, 8)).round(3)
    drawn[RANDOM.random((2, 8)) < 0.15] = NAN
    REWARDS[f"random {number}"] = (drawn[0].tolist(), drawn[1].tolist())


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("name", REWARDS)
def test_advantages_are_trls(setup, name, scale):
    expected, _, batch = trl_rollouts(setup, *REWARDS[name], scale)
    own = grpo.advantages(batch.rewards, scale)
    np.testing.assert_allclose(own, expected, atol=2e-4 if name == "tiny contrast" else 1e-5)  # TRL's rewards are float32
    if name == "both dead":
        assert (own == 0).all()
    else:
        assert np.abs(own).max() > (0.1 if scale == "group" else 1e-4)


@pytest.mark.parametrize("name", REWARDS)
def test_metrics_of_rollouts_are_trls(setup, name):
    _, expected, batch = trl_rollouts(setup, *REWARDS[name], seed=zlib.crc32(name.encode()))
    own = our_metrics(batch)
    silent = {"rewards/second/mean", "rewards/second/std"} if name == "one function silent" else set()
    ended = [one.completion.terminated for group in batch.samples for one in group]
    assert any(ended)
    compared = set(expected) - {"num_tokens"}
    assert {"reward", "reward_std", "frac_reward_zero_std", "rewards/first/mean", "rewards/second/std"} <= compared
    assert {f"completions/{x}" for x in ("mean_length", "min_terminated_length", "clipped_ratio")} <= compared
    assert compared <= set(own)  # every name of TRL's is there
    for key in compared - silent:
        assert own[key] == pytest.approx(expected[key], abs=1e-6), key
    if silent:  # TRL: NaN, logged as None
        assert all(math.isnan(expected[key]) for key in silent)
        assert own["rewards/second/mean"] is None


def test_a_training_step_logs_trls_loss_entropy_and_tokens(setup, monkeypatch):
    trainer, script = setup.trainer, setup.script
    script.values = [[1, 0, 0, 1, 0.5, 0.25, 0.5, 0], [0.5, 1, -1, 0, 0, 0, 2, 1]]
    trainer.scale_rewards = "group"
    trainer._metrics["train"].clear()
    trainer.state.num_input_tokens_seen = 0
    trainer.train()
    expected = trainer.state.log_history[0]
    batch = our_batch(setup)
    config = TrainConfig(num_prompts=2, num_generations=4, max_completion_length=LONGEST, temperature=TEMPERATURE)
    norms = []

    def norm_only(policy, optimizer, scheduler, limit):
        norms.append(torch.cat([p.grad.flatten() for p in policy.trainable()]).norm().item())
        policy.peft.zero_grad()
        return norms[-1], 0.0

    monkeypatch.setattr(learn, "update", norm_only)
    row = learn.learn(setup.policy, None, None, batch, np.array([True, True]), grpo.advantages(batch.rewards), None, config, None)
    row |= our_metrics(batch)
    assert norms[0] > 0
    assert abs(expected["loss"]) > 1e-3
    assert row["loss"] == pytest.approx(expected["loss"], abs=1e-6)
    for name in ("entropy", "reward", "reward_std", "completions/mean_length", "completions/clipped_ratio", "clip_ratio/region_mean"):
        assert row[name] == pytest.approx(expected[name], abs=1e-5), name
    tokens = sum(len(p.ids) + len(one.completion.ids) for p, group in zip(batch.prompts, batch.samples, strict=True) for one in group)
    assert tokens == expected["num_tokens"] == row["tokens/total"]
    assert {key for key in expected if key.startswith(("reward", "completions/", "clip_ratio/", "frac", "entropy"))} <= set(row)


def test_log_probability_and_gradient_of_a_step_are_trls(setup):
    """From token ids to the gradient: TRL's forward pass over a padded batch and its loss, against the prefix tree and ours."""
    expected, _, batch = trl_rollouts(setup, *REWARDS["both live"], seed=5)
    trainer, policy = setup.trainer, setup.policy
    flat = [(p.ids, one.completion.ids) for p, group in zip(batch.prompts, batch.samples, strict=True) for one in group]
    width, longest = max(len(p) for p, _ in flat), max(len(c) for _, c in flat)
    ids, attention = torch.zeros(8, width + longest, dtype=torch.long), torch.zeros(8, width + longest, dtype=torch.long)
    for row, (prompt, completion) in enumerate(flat):  # left-padded prompts, right-padded completions, as TRL lays them out
        ids[row, width - len(prompt) : width + len(completion)] = torch.tensor(prompt + completion)
        attention[row, width - len(prompt) : width + len(completion)] = 1
    mask = attention[:, width:].bool()
    own = policy.log_probabilities([Trajectory(*pair) for pair in flat], TEMPERATURE)
    assert torch.equal(own.mask, mask)
    logp, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, longest, compute_entropy=False)
    torch.testing.assert_close(own.logp, torch.where(mask, logp, 0.0), atol=1e-5, rtol=0)
    config = LossConfig(max_completion_length=LONGEST)
    inputs = {
        "prompt_ids": ids[:, :width],
        "prompt_mask": attention[:, :width],
        "completion_ids": ids[:, width:],
        "completion_mask": attention[:, width:],
        "advantages": torch.tensor(expected.ravel(), dtype=torch.float32),
        "num_items_in_batch": mask.sum(),
    }
    trl_loss(config, logp, inputs)[0].backward()
    weights = dict(trainer.model.named_parameters())
    a = torch.tensor(grpo.advantages(batch.rewards).ravel(), dtype=torch.float32)
    token = grpo.token_loss(own.logp, own.logp.detach(), a, own.mask, config)
    grpo.reduce(token, own.mask, config, 8, int(mask.sum())).backward()
    layers = {name: module for name, module in policy.model.named_modules() if hasattr(module, "lora_B")}
    assert len(layers) == 14  # seven projections in each of two layers
    for name, module in layers.items():  # W + 2 B A with B = 0: the gradient of B is 2 dL/dW A'
        through = 2 * weights[f"{name}.weight"].grad @ module.lora_A["default"].weight.T
        assert through.abs().max() > 1e-4
        torch.testing.assert_close(module.lora_B["default"].weight.grad, through.detach(), atol=1e-6, rtol=1e-4)
    trainer.model.zero_grad()
    policy.peft.zero_grad()


def test_one_optimiser_step_is_trls(setup, tmp_path, monkeypatch):
    """The same adapter, the same rollouts: the adapter changes as TRL's whole trainer changes it, Adam and clipping included."""
    monkeypatch.setattr(GRPOTrainer, "_send_telemetry", lambda self: None)
    shape, script = setup.trainer.model.config, Script()
    base, copy = LlamaForCausalLM(shape), LlamaForCausalLM(shape)
    copy.load_state_dict(base.state_dict())
    trainer = GRPOTrainer(
        model=base,
        reward_funcs=script.functions(),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,  # two micro-batches a step, with activation checkpointing: TRL's way
            gradient_accumulation_steps=2,
            num_generations=4,
            max_completion_length=LONGEST,
            temperature=TEMPERATURE,
            reward_weights=[1.0, 0.5],
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            max_grad_norm=0.05,  # binds
            max_steps=1,
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        processing_class=setup.tokenizer,
        peft_config=LoraConfig(r=2, lora_alpha=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    policy = Policy(Loaded(copy.eval(), setup.tokenizer, frozenset([0]), "tiny"), rank=2)
    theirs = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, p in policy.peft.named_parameters():
            if p.requires_grad:
                p.copy_(0.3 * torch.randn(p.shape))  # B too: else the gradient of A is zero
                theirs[name].copy_(p)
    policy.changed()
    before = policy.state()
    script.values = [[1, 0, 0, 1, 0.5, 0.25, 0.5, 0], [0.5, 1, -1, 0, 0, 0, 2, 1]]
    trainer.train()
    batch = our_batch(SimpleNamespace(script=script, tokenizer=setup.tokenizer, policy=policy))
    config = TrainConfig(
        num_prompts=2, num_generations=4, max_completion_length=LONGEST, temperature=TEMPERATURE, max_grad_norm=0.05, learning_rate=1e-3
    )
    optimizer, scheduler = make_optimizer(policy, 1e-3, "constant", 0.0, 1)
    row = learn.learn(policy, optimizer, scheduler, batch, np.array([True, True]), grpo.advantages(batch.rewards), None, config, None)
    assert row["grad_norm"] > 0.05
    for name, start in before.items():
        change, expected = policy.state()[name] - start, theirs[name].detach() - start
        assert expected.abs().max() > 5e-4
        assert (change - expected).norm() < 1e-3 * expected.norm(), name


# ---- where earnest and TRL differ on purpose


def test_rounding_gets_an_advantage_in_trl_and_none_here(setup):  # case S-AL-03
    noisy = [float(np.nextafter(np.float32(0.3), np.float32(1))), 0.3, 0.3, 0.3]
    expected, _, batch = trl_rollouts(setup, [*noisy, 1, 0, 0, 0], NOTHING)
    assert 0 < np.abs(expected[0]).max() < 1e-3
    assert (grpo.advantages(batch.rewards)[0] == 0).all()


def test_dead_groups_are_counted_under_batch_scaling_too(setup):  # case S-MC-06
    _, expected, batch = trl_rollouts(setup, [1, 0, 0, 0, 1, 1, 1, 1], NOTHING, "batch")
    assert expected["frac_reward_zero_std"] == 0.0  # TRL looks at the batch's deviation
    assert our_metrics(batch, scale_rewards="batch")["frac_reward_zero_std"] == 0.5


def test_a_group_with_a_single_verdict_counts_as_dead(setup):  # case S-AL-02
    _, expected, batch = trl_rollouts(setup, [1, 0, 0, 0, 0.8, None, None, None], [0, 0, 0, 0, 0, None, None, None])
    assert expected["frac_reward_zero_std"] == 0.0  # the deviation of one value is NaN
    assert our_metrics(batch)["frac_reward_zero_std"] == 0.5
