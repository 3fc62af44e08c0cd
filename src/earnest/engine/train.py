"""GRPO: sample groups, score them, push towards what scored better than its group.

One step, top to bottom: `train` takes P prompts, samples G answers each on the prefix tree, scores and judges them, turns rewards
into advantages, and runs what can contribute through the policy once. Groups whose rewards are all equal contribute nothing; they are
left out of the pass through the model, their tokens stay in the denominator, and so nothing but time changes. (In a step where every
group is dead the optimiser does nothing at all: momentum of earlier steps moves no weight.)

Left out on purpose: a value model, replay, and a second model in memory for the reference (it is the starting adapter, swapped in).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from earnest.canaries import watch_canaries
from earnest.config import TrainConfig
from earnest.engine import grpo
from earnest.engine.learn import learn
from earnest.engine.policy import Policy
from earnest.engine.rollouts import CANARIES, Batch, Prompt, answer, ask_canaries, join, rollout_records, score_batch, silent, start_metrics
from earnest.engine.sampler import Sampling
from earnest.engine.sft import make_optimizer, shuffled
from earnest.engine.tree import PrefixTree
from earnest.engine.turns import acting_metrics
from earnest.errors import UserError
from earnest.rundir import append_jsonl
from earnest.task import Task

# Times the token budget: of so many tokens sampling keeps what training needs, at a third of what a pass keeps of one (by count).
TRACED = 5


def train(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    config: TrainConfig,
    folder: Path,
    seed: int,
    thinking: bool,
    report: Callable[[dict[str, Any]], None],
) -> str:
    """Train the policy; every step's metrics and rollouts go to FOLDER, the adapter to FOLDER/adapter.

    Args:
        policy: Trained in place.
        task: Rewards and check.
        prompts: Of the train split.
        config: How.
        folder: Where the stage is kept.
        seed: Of the order of prompts and of sampling.
        thinking: Whether the model has room to think.
        report: Called with the metrics of each step.

    Returns:
        Why training ended early, or "".
    """
    updates = config.steps * config.num_iterations
    optimizer, scheduler = make_optimizer(policy, config.learning_rate, config.lr_scheduler_type, config.warmup_ratio, updates)
    reference = policy.state() if config.beta else None
    watch = watch_canaries(task, [p.row for p in prompts], seed) if config.canary_rate else None
    order = chain.from_iterable(shuffled(len(prompts), config.num_prompts, seed))
    tokens_seen, dead_steps = 0, 0
    try:
        for step in range(1, config.steps + 1):
            began = time.perf_counter()
            remember = 0 if step == 1 or reference else TRACED * config.token_budget
            batch, used = _collect(policy, task, prompts, order, config, [seed, step], thinking, remember)
            advantages = np.zeros(batch.rewards.shape)
            advantages[used] = grpo.advantages(batch.rewards[used], config.scale_rewards)
            sampled = time.perf_counter()
            by_turn = _turn_advantages(batch, used, config) if config.credit == "turn" else None
            learned = learn(policy, optimizer, scheduler, batch, used, advantages, by_turn, config, reference)
            row = {"step": step, **learned, **start_metrics(task, batch), **_metrics(batch, used, config)}
            tokens_seen += row["tokens/total"]
            row["num_tokens"] = tokens_seen
            row |= {"time/sample": sampled - began, "time/train": time.perf_counter() - sampled, "step_time": time.perf_counter() - began}
            append_jsonl(folder / "rollouts.jsonl", rollout_records(batch, advantages, step, by_turn=by_turn))
            if watch and (due := watch.due(step, config.num_prompts, config.canary_rate)):
                asked = ask_canaries(policy, task, prompts, due, config.num_generations, sampling_of(config), [seed, step], thinking)
                append_jsonl(folder / "rollouts.jsonl", rollout_records(asked, np.zeros(asked.rewards.shape), step, CANARIES))
                row |= watch.note(due, asked.rewards)
            append_jsonl(folder / "metrics.jsonl", [row])
            report(row)
            taught = row["groups/used"] > 0 and row["tokens/trained"] > 0 and _beats_silence(task, batch, step)
            dead_steps = 0 if taught else dead_steps + 1
            if config.max_dead_steps and dead_steps >= config.max_dead_steps:
                return _why_dead(row, dead_steps)
            if config.save_steps and step % config.save_steps == 0:
                policy.save(folder / "adapter")
    finally:
        policy.save(folder / "adapter")
    return ""


def sampling_of(config: TrainConfig) -> Sampling:
    """How to draw rollouts."""
    return Sampling(config.temperature, config.top_p, config.top_k, config.min_p or None, config.max_completion_length)


def _collect(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    order: Iterator[int],
    config: TrainConfig,
    seed: Sequence[int],
    thinking: bool,
    remember: int,
) -> tuple[Batch, np.ndarray]:
    """The step's rollouts, and which groups are trained on: P of them. Of up to `remember` tokens sampling keeps what training needs.

    With dynamic sampling, dead groups are replaced by groups of the next prompts, for a bounded number of rounds; where those do not
    suffice, dead groups fill up the P.
    """
    batch = None
    for attempt in range(1 + config.dynamic_sampling):
        live = 0 if batch is None else int((~grpo.tied(batch.rewards)).sum())
        missing = config.num_prompts - live
        if missing <= 0:
            break
        chosen = [prompts[i] for i in islice(order, missing)]
        how, own = sampling_of(config), [*seed, attempt]
        samples = answer(policy, task, chosen, config.num_generations, how, own, thinking, remember=remember)
        fresh = score_batch(task, chosen, samples, seed[-1])
        if config.overlong_cache:
            fresh = _with_overlong_penalty(fresh, config)
        batch = fresh if batch is None else join(batch, fresh)
    live_first = np.argsort(grpo.tied(batch.rewards), kind="stable")
    used = np.zeros(len(batch.prompts), dtype=bool)
    used[live_first[: config.num_prompts]] = True
    if config.keep_spread < 1:
        used[used] = spread_groups(batch.rewards[used], config.keep_spread)
    return batch, used


def spread_groups(rewards: np.ndarray, share: float) -> np.ndarray:
    """bool [P], the share of the groups (at least one) whose rewards [P, G] have the largest standard deviations."""
    spread = np.array([np.nanstd(group) if (~np.isnan(group)).any() else 0.0 for group in rewards])
    kept = np.zeros(len(rewards), dtype=bool)
    kept[np.argsort(-spread, kind="stable")[: max(1, round(share * len(rewards)))]] = True
    return kept


def _with_overlong_penalty(batch: Batch, config: TrainConfig) -> Batch:
    lengths = np.array([one.completion.written for group in batch.samples for one in group])
    penalty = grpo.soft_overlong_penalty(lengths, config.max_completion_length, config.overlong_cache)
    return replace(batch, scores=replace(batch.scores, total=batch.scores.total + penalty))


def _turn_advantages(batch: Batch, used: np.ndarray, config: TrainConfig) -> list[np.ndarray]:
    """Of each rollout, the advantage of each turn. Nothing in groups that are not used."""
    rollouts = [one.rollout for group in batch.samples for one in group]
    if any(rollout is None for rollout in rollouts):
        raise UserError("credit = 'turn' needs turns: the task has neither an environment nor tools. Leave it at 'trajectory'.")
    by_turn = grpo.turn_advantages(batch.rewards, [r.turn_rewards for r in rollouts], config.turn_discount, config.scale_rewards)
    kept = np.repeat(used, config.num_generations)
    return [own if keep else np.zeros_like(own) for own, keep in zip(by_turn, kept, strict=True)]


def _metrics(batch: Batch, used: np.ndarray, config: TrainConfig) -> dict[str, float | None]:
    """TRL's metrics of the rollouts, over all that were sampled in the step."""
    completions = [one.completion for group in batch.samples for one in group]
    tree = PrefixTree()
    for prompt, group in zip(batch.prompts, batch.samples, strict=True):
        for one in group:
            tree.add(prompt.ids + one.completion.ids)
    lengths = np.array([c.written for c in completions])
    ended = lengths[[c.terminated for c in completions]]
    rewards, dead = batch.rewards, grpo.tied(batch.rewards)
    correct = np.array([v.correct for v in batch.verdicts]).reshape(rewards.shape)
    right, wrong = dead & correct.all(axis=1), dead & ~correct.any(axis=1)
    formed = [v.well_formed for v in batch.verdicts if v.well_formed is not None]
    acting = [one.rollout for group in batch.samples for one in group if one.rollout is not None]
    row: dict[str, float | None] = {
        **batch.scores.metrics,
        **(acting_metrics(acting) if acting else {}),
        "reward": mean_of(rewards),
        "reward_std": grpo.std_of(rewards),
    }
    for index, name in enumerate(batch.scores.names):
        row[f"rewards/{name}/mean"] = mean_of(batch.scores.values[:, index])
        row[f"rewards/{name}/std"] = grpo.std_of(batch.scores.values[:, index])
    return row | {
        "rewards/unscored": int(np.isnan(rewards).sum()),
        "frac_reward_zero_std": float(dead.mean()),
        "groups/all_right": float(right.mean()),
        "groups/all_wrong": float(wrong.mean()),
        "groups/tied": float((dead & ~right & ~wrong).mean()),
        "groups/used": int((used & ~dead).sum()),
        "completions/mean_length": float(lengths.mean()),
        "completions/min_length": int(lengths.min()),
        "completions/max_length": int(lengths.max()),
        "completions/mean_terminated_length": float(ended.mean()) if ended.size else None,
        "completions/min_terminated_length": int(ended.min()) if ended.size else None,
        "completions/max_terminated_length": int(ended.max()) if ended.size else None,
        "completions/clipped_ratio": 1.0 - ended.size / lengths.size,
        "completions/distinct": len({(i // config.num_generations, c.ids) for i, c in enumerate(completions)}) / len(completions),
        "tokens/total": sum(tree.count),
        "tokens/distinct": len(tree),
        "entropy": sum(c.entropy for c in completions) / max(int(lengths.sum()), 1),
        "check/accuracy": float(correct.mean()),
        "check/well_formed": float(np.mean(formed)) if formed else None,
    }


def mean_of(values: np.ndarray) -> float | None:
    """Mean of the values that are no NaN; None where there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _beats_silence(task: Task, batch: Batch, step: int) -> bool:
    """Whether any answer of the step earned more than an empty one would.

    Where none did, what spread there is comes from penalties, and the way up ends at saying nothing.
    """
    if any(v.correct for v in batch.verdicts):
        return True
    empty = [[silent(task, prompt)] for prompt in batch.prompts]
    try:
        silence = score_batch(task, batch.prompts, empty, step).rewards
    except UserError:  # a reward may demand at least one token: then there is nothing to compare with
        return True
    return bool((batch.rewards > silence + grpo.TIE).any() or np.isnan(silence).any())


def _why_dead(row: Mapping[str, Any], steps: int) -> str:
    """Why there was nothing to learn, and what to do."""
    if row["reward"] is None:
        return f"In {steps} steps in a row no answer got a reward: every reward function gave no verdict (None). Mend what they depend on."
    if row["frac_reward_zero_std"] < 1.0 and row["tokens/trained"] == 0:
        return (
            f"In {steps} steps in a row nothing was left to train on: {row['completions/clipped_ratio']:.0%} of the answers were cut off, "
            "and mask_truncated_completions leaves those out. Raise max_completion_length."
        )
    said = f"In {steps} steps in a row every group was dead: all answers to a prompt earned the same, so the gradient was exactly zero."
    if row["frac_reward_zero_std"] < 1.0:
        said = f"In {steps} steps in a row no answer earned more than an empty one would, so there was nothing to climb but penalties."
    if row["groups/all_right"] >= 0.5:
        return f"{said} Most groups were all right: the rows are too easy. Take harder rows."
    if row["check/well_formed"] is not None and row["check/well_formed"] < 0.05:
        return f"{said} The model practically never keeps the required format, so it never earns anything to climb from. Run SFT first."
    return f"{said} Most groups were all wrong: the rows are too hard. Run SFT first, take easier rows, or raise num_generations."
