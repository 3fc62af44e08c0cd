"""Supervised fine-tuning on oracle answers: the warm start that gives GRPO something to choose from.

Left out on purpose: epochs as an option (steps say what is spent), evaluation in between (a stage of its own), loss on the prompt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from earnest import text
from earnest.config import Schedule, SftConfig
from earnest.engine.policy import Policy, Trajectory, packs_of
from earnest.engine.rollouts import Prompt
from earnest.engine.turns import dialect_of
from earnest.environment import acted
from earnest.errors import UserError
from earnest.rundir import append_jsonl
from earnest.task import Task


def make_optimizer(policy: Policy, learning_rate: float, schedule: Schedule, warmup_ratio: float, steps: int) -> tuple[Any, Any]:
    """AdamW on the adapter (TRL's default optimiser, without weight decay as there) and its schedule."""
    from transformers import get_scheduler

    optimizer = torch.optim.AdamW(policy.trainable(), lr=learning_rate, weight_decay=0.0)
    known_there = "constant_with_warmup" if schedule == "constant" else schedule  # their "constant" takes no notice of a warm-up
    return optimizer, get_scheduler(known_there, optimizer, round(warmup_ratio * steps), steps)


def update(policy: Policy, optimizer: Any, scheduler: Any, max_grad_norm: float) -> tuple[float, float]:
    """One optimiser step on the gradients that are there.

    Returns:
        The gradient norm before clipping, and the learning rate used.

    Raises:
        UserError: The gradient is not finite; the weights are left as they were.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(policy.trainable(), max_grad_norm))
    rate = scheduler.get_last_lr()[0]
    if not np.isfinite(norm):
        raise UserError("The gradient is not finite, so training stopped before it spoiled the weights. Lower the learning rate.")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    scheduler.step()
    policy.changed()
    return norm, rate


def shuffled(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """Batches of `size` indices out of `count`, for ever: every index once before any comes again, in an order fixed by the seed.

    A batch that crosses the end of a pass goes on into the next, without taking an index twice while others are left.
    """
    rng = np.random.default_rng([seed, 1])
    queue: list[int] = []
    while True:
        batch: list[int] = []
        while len(batch) < size:
            if not queue:
                queue = rng.permutation(count).tolist()
                if count >= size:  # what this batch holds already goes to the end of the new pass
                    queue = [i for i in queue if i not in batch] + [i for i in queue if i in batch]
            batch.append(queue.pop(0))
        yield batch


def sft(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    config: SftConfig,
    folder: Path,
    seed: int,
    report: Callable[[dict[str, Any]], None],
) -> None:
    """Train the policy on the oracle's answers; metrics go to FOLDER/metrics.jsonl, the adapter to FOLDER/adapter.

    Args:
        policy: Trained in place.
        task: With an oracle.
        prompts: Of the train split.
        config: How.
        folder: Where the stage is kept.
        seed: Of the order of rows.
        report: Called with the metrics of each step.

    Raises:
        UserError: The task has no oracle.
    """
    if task.oracle is None:
        raise UserError(f"Task '{task.name}' has no oracle, so there is nothing to imitate. Add oracle=... to the Task, or skip SFT.")
    chosen = spread(prompts, config.rows)
    tokenizer = policy.loaded.tokenizer
    end = text.end_of_turn(tokenizer)
    if task.acts:
        dialect = dialect_of(task, policy.loaded, chosen[0].row, thinking=False)
        data = [Trajectory(*dialect.trajectory(p.messages, acted(task, p.row, task.oracle(p.row))[0])) for p in chosen]
    else:
        data = [Trajectory(p.ids, (*tokenizer.encode(task.oracle(p.row), add_special_tokens=False), end)) for p in chosen]
    optimizer, scheduler = make_optimizer(policy, config.learning_rate, config.lr_scheduler_type, config.warmup_ratio, config.steps)
    batches = shuffled(len(data), config.batch_size, seed)
    try:
        for step in range(1, config.steps + 1):
            began = time.perf_counter()
            batch = [data[i] for i in next(batches)]
            tokens = sum(sum(t.written) for t in batch)
            total = 0.0
            for part in packs_of(policy, batch, config.token_budget, grouped=False):
                scores = policy.log_probabilities([batch[i] for i in part], budget=config.token_budget)
                loss = -scores.logp.sum() / tokens
                loss.backward()
                total += loss.item()
            norm, rate = update(policy, optimizer, scheduler, config.max_grad_norm)
            row = {
                "step": step,
                "loss": total,
                "learning_rate": rate,
                "grad_norm": norm,
                "num_tokens": tokens,
                "step_time": time.perf_counter() - began,
            }
            append_jsonl(folder / "metrics.jsonl", [row])
            report(row)
    finally:
        policy.save(folder / "adapter")


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """`count` of the items, evenly spaced over them; all when count is 0 or more than there are."""
    if count <= 0 or count >= len(items):
        return list(items)
    return [items[i * len(items) // count] for i in range(count)]
