"""Rollouts: rows become prompts, prompts become answers, answers get rewards and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from earnest import text
from earnest.canaries import Canary
from earnest.engine.models import Loaded
from earnest.engine.policy import Policy
from earnest.engine.sampler import Completion, Sampling, sample
from earnest.engine.turns import ANSWERED, Rollout, converse, dialect_of
from earnest.environment import begin, prompt_of
from earnest.errors import UserError
from earnest.score import Scores, score
from earnest.task import Message, Row, Task, Verdict, judge

CANARIES = 1_000_000  # of their random stream and their first group: what no other group of a step has
LONGEST = 600  # characters kept of the reasons that a reward function gives for one rollout, and of a turn that could not be read


@dataclass(frozen=True)
class Prompt:
    """A row, as the model is asked about it.

    Attributes:
        row: The row.
        messages: The chat messages.
        ids: Their tokens, up to where the model starts to write.
        opened: Whether they end inside an open thinking block.
    """

    row: Row
    messages: list[Message]
    ids: tuple[int, ...]
    opened: bool


@dataclass(frozen=True)
class Sampled:
    """One answer to a prompt.

    Attributes:
        completion: Its tokens.
        answer: Its text, split into thinking and answer; of a rollout with tools, its last turn's.
        rollout: The whole rollout, where there are tools.
    """

    completion: Completion
    answer: text.Answer
    rollout: Rollout | None = None

    @property
    def messages(self) -> list[Message]:
        """As rewards see it."""
        return self.answer.messages() if self.rollout is None else self.rollout.episode.messages


@dataclass(frozen=True)
class Batch:
    """P groups of G rollouts, scored.

    Attributes:
        prompts: P prompts.
        samples: P lists of G answers.
        scores: Of the N = P*G rollouts, group after group.
        verdicts: N verdicts of the check.
    """

    prompts: Sequence[Prompt]
    samples: Sequence[Sequence[Sampled]]
    scores: Scores
    verdicts: Sequence[Verdict]

    @property
    def rewards(self) -> np.ndarray:
        """float64 [P, G], NaN where no reward function gave a verdict."""
        return self.scores.total.reshape(len(self.prompts), -1)


def make_prompts(task: Task, loaded: Loaded, rows: Sequence[Row], thinking: bool, room: int) -> list[Prompt]:
    """Render rows.

    Args:
        task: The task.
        loaded: The model.
        rows: Its rows.
        thinking: Whether the model gets room to think.
        room: Most tokens of an answer; prompt and answer must fit the model's context.

    Raises:
        UserError: A prompt is too long for the model, or the chat template refuses it.
    """
    limit = getattr(loaded.model.config, "max_position_embeddings", None)
    dialect = dialect_of(task, loaded, rows[0], thinking) if task.acts and rows else None
    prompts = []
    for row in rows:
        messages = prompt_of(task, row)
        ids = text.render(loaded.tokenizer, messages, thinking) if dialect is None else dialect.render(messages)
        if limit and len(ids) + room > limit:
            raise UserError(
                f"The prompt of row {row['id']!r} has {len(ids)} tokens; with an answer of up to {room} that is more than the {limit} "
                f"'{loaded.name}' can hold. Shorten the row, lower max_completion_length, or use a model with a longer context."
            )
        opened = thinking and text.opens_thinking(loaded.tokenizer.decode(ids[-16:]))
        prompts.append(Prompt(row, list(messages), tuple(ids), opened))
    return prompts


def answer(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    samples: int,
    sampling: Sampling | Sequence[Sampling],
    seed: Sequence[int],
    thinking: bool,
    rows: int = 128,
    advance: Callable[[int], None] | None = None,
    remember: int = 0,
) -> list[list[Sampled]]:
    """G answers to each prompt, all drawn in one way or each in its own.

    The seed of a prompt is `seed` and its place, so that the same call gives the same answers and no two prompts share a stream.
    `remember` is for training on them (`Policy.decoder`).
    """
    loaded = policy.loaded
    if task.acts:
        rollouts = converse(policy, task, prompts, samples, sampling, seed, thinking, rows, advance, remember)
        return [[Sampled(r.completion, _last(r.episode.messages), r) for r in group] for group in rollouts]
    seeds = [[*seed, place] for place in range(len(prompts))]
    ids, decoder = [p.ids for p in prompts], policy.decoder(remember)
    groups = sample(loaded, decoder, ids, seeds, samples, sampling, rows, advance, policy.drafts)
    return [
        [Sampled(c, text.split_thinking(text.decode(loaded.tokenizer, c.ids, loaded.stops), prompt.opened, thinking)) for c in group]
        for prompt, group in zip(prompts, groups, strict=True)
    ]


def _last(messages: Sequence[Message]) -> text.Answer:
    """What the model wrote last, calls aside; nothing where a tool has the last word."""
    last = messages[-1] if messages and messages[-1].get("role") == "assistant" else {}
    return text.Answer(last.get("content") or "", last.get("reasoning_content"))


def silent(task: Task, prompt: Prompt) -> Sampled:
    """An attempt that says and does nothing."""
    rollout = None
    if task.acts:
        rollout = Rollout(prompt, Sampling(), (), begin(task, prompt.row), ended=ANSWERED)
        rollout.episode.messages.append({"role": "assistant", "content": ""})
    return Sampled(Completion((), True), text.Answer(""), rollout)


def verdict_of(task: Task, prompt: Prompt, one: Sampled) -> Verdict:
    """What the check says of an attempt."""
    if one.rollout is None:
        return judge(task, one.answer.content, prompt.row)
    return judge(task, one.messages, prompt.row, one.rollout.episode.environment)


def score_batch(task: Task, prompts: Sequence[Prompt], samples: Sequence[Sequence[Sampled]], step: int) -> Batch:
    """Rewards and verdicts of the answers."""
    flat = [(prompt, one) for prompt, group in zip(prompts, samples, strict=True) for one in group]
    scores = score(
        task.rewards,
        task.weights,
        [prompt.messages for prompt, _ in flat],
        [one.messages for _, one in flat],
        [prompt.row for prompt, _ in flat],
        [one.completion.sampled for _, one in flat],
        step,
        [one.rollout.episode.environment for _, one in flat] if task.environment is not None else None,
    )
    verdicts = [verdict_of(task, prompt, one) for prompt, one in flat]
    return Batch(prompts, samples, scores, verdicts)


def start_metrics(task: Task, batch: Batch) -> dict[str, float]:
    """Rewards by what rollouts start from; a group starts from one state.

    `reward_spread/mean`, `/min` and `/max` are over the groups, each with the (Bessel-corrected) standard deviation of its rewards. Where
    there are tools, `by/<slice>/<value>/reward` and `/accuracy` are means over the rollouts of rows with that value of one of the task's
    slices: what a run earns in each kind of environment.
    """
    spreads = [float(known.std(ddof=1)) if (known := group[~np.isnan(group)]).size > 1 else 0.0 for group in batch.rewards]
    row = {"reward_spread/mean": float(np.mean(spreads)), "reward_spread/min": min(spreads), "reward_spread/max": max(spreads)}
    correct = np.array([verdict.correct for verdict in batch.verdicts], dtype=float).reshape(batch.rewards.shape)
    for name, slice_of in task.slices.items() if task.acts else ():
        values = np.array([str(slice_of(prompt.row)) for prompt in batch.prompts])
        for value in sorted(set(values.tolist())):
            paid = batch.rewards[values == value]
            row |= {f"by/{name}/{value}/reward": float(np.nanmean(paid))} if (~np.isnan(paid)).any() else {}
            row[f"by/{name}/{value}/accuracy"] = float(correct[values == value].mean())
    return row


def ask_canaries(
    policy: Policy,
    task: Task,
    prompts: Sequence[Prompt],
    due: Sequence[Canary],
    samples: int,
    sampling: Sampling,
    seed: Sequence[int],
    thinking: bool,
) -> Batch:
    """Canaries of a step, sampled and scored as any other row; their own random stream leaves that of the others as it is."""
    asked = [prompts[canary.place] for canary in due]
    given = answer(policy, task, asked, samples, sampling, [*seed, CANARIES], thinking)  # in the environment that belongs to the question
    return score_batch(task, [replace(prompt, row=canary.row) for prompt, canary in zip(asked, due, strict=True)], given, seed[-1])


def join(first: Batch, second: Batch) -> Batch:
    """The groups of both, in order."""
    a, b = first.scores, second.scores
    columns = {*a.extra, *b.extra}
    extra = {c: [*a.extra.get(c, [None] * len(a.total)), *b.extra.get(c, [None] * len(b.total))] for c in columns}
    scores = Scores(a.names, np.concatenate([a.values, b.values]), np.concatenate([a.total, b.total]), extra, {**a.metrics, **b.metrics})
    return Batch([*first.prompts, *second.prompts], [*first.samples, *second.samples], scores, [*first.verdicts, *second.verdicts])


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict as the run directory keeps it."""
    return {
        "correct": verdict.correct,
        "fields": dict(verdict.fields),
        "well_formed": verdict.well_formed,
        "handed_off": verdict.handed_off,
    }


def rollout_records(
    batch: Batch, advantages: np.ndarray, step: int, first_group: int = 0, by_turn: Sequence[Sequence[float]] | None = None
) -> list[dict[str, Any]]:
    """Every rollout of a step, as the run directory keeps it.

    Args:
        batch: The rollouts.
        advantages: [P, G].
        step: Optimiser step.
        first_group: Number of the first group.
        by_turn: Of each rollout, the advantage of each turn, where turns have their own.
    """
    group_size = len(batch.samples[0])
    records = []
    for index, verdict in enumerate(batch.verdicts):
        group, number = divmod(index, group_size)
        prompt, one = batch.prompts[group], batch.samples[group][number]
        reasons, logged = _logged(batch.scores, index)
        records.append(
            {
                **logged,  # first: it may hide no key of ours
                "step": step,
                "group": first_group + group,
                "sample": number,
                "id": prompt.row["id"],
                "prompt": prompt.messages,
                "text": one.answer.content,
                "reasoning": one.answer.reasoning,
                "tokens": one.completion.written,
                "terminated": one.completion.terminated,
                "rewards": dict(zip(batch.scores.names, batch.scores.values[index].tolist(), strict=True)),
                "reasons": reasons,
                "reward": float(batch.scores.total[index]),
                "advantage": float(advantages[group, number]),
                "verdict": verdict_record(verdict),
                **acting_record(one),
                **({} if by_turn is None else {"turn_advantages": [float(value) for value in by_turn[index]]}),
            }
        )
    return records


def _logged(scores: Scores, index: int) -> tuple[dict[str, str], dict[str, Any]]:
    """What reward functions logged of a rollout: why it got no more, by function (`as_reward` logs that), and all else."""
    columns = {column: values[index] for column, values in scores.extra.items()}
    said = {name: columns.pop(f"{name}/reasons", None) for name in scores.names}
    return {name: _cut(str(reasons)) for name, reasons in said.items() if reasons}, columns


def _cut(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[:LONGEST]} ..."


def acting_record(one: Sampled) -> dict[str, Any]:
    """What a rollout with tools did, as the run directory keeps it; nothing of one without."""
    if one.rollout is None:
        return {}
    r = one.rollout
    earned = {"turn_rewards": r.turn_rewards} if getattr(r.episode.environment, "turn_rewards", None) else {}
    unread = {"unread": {str(turn): _cut(words) for turn, words in r.unread.items()}} if r.unread else {}
    return {
        "messages": r.episode.messages,
        "ended": r.ended,
        "turns": r.lengths,
        "given_tokens": len(r.ids) - sum(r.lengths),
        "tools": asdict(r.episode.counts),
        "marks": r.episode.marks,
        **earned,
        **unread,
    }
