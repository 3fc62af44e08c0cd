"""Rollouts with tools: turn after turn, until the model answers, the environment is done, or a limit is hit.

Sampled tokens are kept as they are and never made again from text. A rollout's tokens only grow: a turn of the model, then the tokens of
what its tools answered, as the chat template writes them, then the next turn. So each token is trained in the very context it was
sampled in, and rollouts with the same history stand on the same node of the prefix tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from earnest import text
from earnest.engine.dialect import Dialect, schemas_of
from earnest.engine.policy import Policy
from earnest.engine.sampler import Completion, Sampling, sample
from earnest.environment import Episode, begin, run_turns
from earnest.rewards.calls import ToolCall
from earnest.task import Row, Task

if TYPE_CHECKING:
    from earnest.engine.decoder import Decoder
    from earnest.engine.models import Loaded
    from earnest.engine.pool import PooledDecoder
    from earnest.engine.rollouts import Prompt

ANSWERED, DONE, TURNS, CALLS, TOKENS = "answered", "done", "turn limit", "call limit", "token limit"


@dataclass
class Rollout:
    """One rollout in the making.

    Attributes:
        prompt: What was asked.
        sampling: How it is drawn.
        seed: Of its own turns after the first.
        episode: Its environment and messages.
        ids: Tokens since the prompt.
        own: Which of them the model wrote.
        logp: Log-probability of each that it wrote; empty when greedy.
        entropy: Sum of the entropies they were drawn at.
        lengths: How many it wrote in each turn.
        unread: Text of the turns with a call that could not be read, by number of the turn, from 1: their messages do not have it.
        ended: Why it ended; "" while it goes on.
    """

    prompt: Prompt
    sampling: Sampling
    seed: tuple[int, ...]
    episode: Episode
    ids: list[int] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: float = 0.0
    lengths: list[int] = field(default_factory=list)
    unread: dict[int, str] = field(default_factory=dict)
    ended: str = ""

    def take(self, turn: Completion) -> None:
        """Append a turn of the model's."""
        self.ids += turn.ids
        self.own += [True] * len(turn.ids)
        self.logp += turn.logp
        self.entropy += turn.entropy
        self.lengths.append(len(turn.ids))

    def give(self, ids: Sequence[int]) -> None:
        """Append tokens that the model did not write."""
        self.ids += ids
        self.own += [False] * len(ids)

    @property
    def turn_rewards(self) -> list[float]:
        """What each turn earned by the environment's list `turn_rewards`; 0 where it has none."""
        earned = [float(value) for value in getattr(self.episode.environment, "turn_rewards", None) or ()][: len(self.lengths)]
        return earned + [0.0] * (len(self.lengths) - len(earned))

    def by_token(self, by_turn: Sequence[float]) -> list[float]:
        """A value of each turn, for each token; 0 for those that the model did not write."""
        own = iter([value for value, length in zip(by_turn, self.lengths, strict=True) for _ in range(length)])
        return [next(own) if mine else 0.0 for mine in self.own]

    @property
    def completion(self) -> Completion:
        """All of it; terminated where the model or the environment ended it."""
        return Completion(tuple(self.ids), self.ended in (ANSWERED, DONE), self.entropy, tuple(self.logp), tuple(self.own))


def dialect_of(task: Task, loaded: Loaded, row: Row, thinking: bool) -> Dialect:
    """How the model's chat template writes the tools of a task, calls and answers.

    Raises:
        UserError: A tool has no types or docstring, or the template cannot be continued.
    """
    return Dialect(loaded.tokenizer, schemas_of(begin(task, row).tools.values()), thinking)


def converse(
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
) -> list[list[Rollout]]:
    """G rollouts of each prompt.

    `max_tokens` bounds all tokens after the prompt, those of tools included, as in TRL; so does the model's context. `remember` is for
    training on them (`Policy.decoder`).
    """
    each = [sampling] * samples if isinstance(sampling, Sampling) else list(sampling)
    dialect = dialect_of(task, policy.loaded, prompts[0].row, thinking)
    loaded = replace(policy.loaded, stops=policy.loaded.stops | dialect.ends)
    groups = [
        [Rollout(prompt, how, (*seed, place, number + 1), begin(task, prompt.row)) for number, how in enumerate(each)]
        for place, prompt in enumerate(prompts)
    ]
    everyone = [rollout for group in groups for rollout in group]
    seeds = [[*seed, place] for place in range(len(prompts))]
    decoder = policy.decoder(remember)
    first = sample(loaded, decoder, [p.ids for p in prompts], seeds, samples, each, rows, advance, policy.drafts)
    turns = [turn for group in first for turn in group]
    live = everyone
    for number in range(1, task.limits.turns + 1):
        _finish_turns(loaded, dialect, task, live, turns, number)
        live = [rollout for rollout in live if not rollout.ended]
        if not live:
            break
        turns = _next_turns(policy, loaded, decoder, live, number, rows)
    return groups


def _next_turns(
    policy: Policy, loaded: Loaded, decoder: Decoder | PooledDecoder | None, live: Sequence[Rollout], number: int, rows: int
) -> list[Completion]:
    """One more turn of each rollout, in their order; equal histories are read once."""
    turns: dict[int, Completion] = {}
    for how in dict.fromkeys(rollout.sampling for rollout in live):
        places = [place for place, rollout in enumerate(live) if rollout.sampling == how]
        histories = [live[place].prompt.ids + tuple(live[place].ids) for place in places]
        seeds = [[*live[place].seed, number] for place in places]
        rooms = [_room(loaded, live[place]) for place in places]
        drawn = sample(loaded, decoder, histories, seeds, 1, how, rows, None, policy.drafts, rooms)
        turns.update({place: one for place, (one,) in zip(places, drawn, strict=True)})
    return [turns[place] for place in range(len(live))]


def _room(loaded: Loaded, rollout: Rollout) -> int:
    """How many tokens a rollout may still grow by."""
    context = getattr(loaded.model.config, "max_position_embeddings", None) or 2**31
    return min(rollout.sampling.max_tokens, context - len(rollout.prompt.ids)) - len(rollout.ids)


def _finish_turns(loaded: Loaded, dialect: Dialect, task: Task, live: Sequence[Rollout], turns: Sequence[Completion], number: int) -> None:
    """Read what each model turn says, run its calls, append their answers, or note why the rollout ends."""
    calling: list[tuple[Rollout, Sequence[ToolCall]]] = []
    for rollout, turn in zip(live, turns, strict=True):
        rollout.take(turn)
        calls = _said(loaded, dialect, rollout, turn, opened=rollout.prompt.opened)
        if not turn.terminated:
            rollout.ended = TOKENS
        elif not calls:
            rollout.ended = ANSWERED
        elif number == task.limits.turns:
            rollout.ended = TURNS
        elif rollout.episode.counts.calls + len(calls) > task.limits.calls:
            rollout.ended = CALLS
        else:
            calling.append((rollout, calls))
    before = [len(rollout.episode.messages) for rollout, _ in calling]
    run_turns([(rollout.episode, calls) for rollout, calls in calling], task.limits.seconds)
    for (rollout, calls), start in zip(calling, before, strict=True):
        given = dialect.after(calls, rollout.episode.messages[start:], rollout.ids[-1])
        if getattr(rollout.episode.environment, "done", False) is True:
            rollout.ended = DONE
        elif len(given) >= _room(loaded, rollout):
            rollout.ended = TOKENS
        else:
            rollout.give(given)


def _said(loaded: Loaded, dialect: Dialect, rollout: Rollout, turn: Completion, opened: bool) -> Sequence[ToolCall]:
    """The calls of a turn, which is appended to the messages as rewards see it."""
    said = text.split_thinking(text.decode(loaded.tokenizer, turn.ids, loaded.stops), opened, dialect.thinking)
    parsed = dialect.parse(said.content)
    message = dialect.message(parsed)
    if any(call.arguments is None for call in parsed.calls):
        rollout.unread[len(rollout.lengths)] = said.content
    if said.reasoning is not None:
        message["reasoning_content"] = said.reasoning
    rollout.episode.messages.append(message)
    return parsed.calls


def acting_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """What a step's rollouts did with their tools.

    `tools/call_frequency` and `tools/failure_frequency` are TRL's: calls a rollout, and the share of calls that failed. Of the rest,
    `malformed`, `hung` and `repeated` are shares of calls, `echo` is the share of rollouts whose model text another rollout of the step
    has word for word, and `ended/...` says why rollouts ended. Of the rollouts that have a turn k, `turns/<k>_length` is the mean
    number of tokens they wrote in it, `turns/<k>_calls` the mean number of calls that were answered in it, and `turns/<k>_failed` the share
    of those that failed.
    """
    count, calls = len(rollouts), sum(r.episode.counts.calls for r in rollouts)
    said = Counter(_own_text(r) for r in rollouts)
    row = {
        "tools/call_frequency": calls / count,
        "turns/mean": sum(len(r.lengths) for r in rollouts) / count,
        "turns/max": float(max(len(r.lengths) for r in rollouts)),
        "tokens/given": sum(len(r.ids) - sum(r.lengths) for r in rollouts) / count,
        "echo": sum(said[_own_text(r)] > 1 for r in rollouts) / count,
    }
    for name, kind in (("failure_frequency", "failed"), ("malformed", "malformed"), ("hung", "hung"), ("repeated", "repeated")):
        row[f"tools/{name}"] = sum(getattr(r.episode.counts, kind) for r in rollouts) / calls if calls else 0.0
    for why in (ANSWERED, DONE, TURNS, CALLS, TOKENS):
        row[f"ended/{why.replace(' ', '_')}"] = sum(r.ended == why for r in rollouts) / count
    for turn in range(max(len(r.lengths) for r in rollouts)):
        have = [r for r in rollouts if len(r.lengths) > turn]
        made = [marks for r in have for calls in _marks_by_turn(r)[turn : turn + 1] for marks in calls]
        row[f"turns/{turn + 1}_length"] = sum(r.lengths[turn] for r in have) / len(have)
        row[f"turns/{turn + 1}_calls"] = len(made) / len(have)
        row[f"turns/{turn + 1}_failed"] = sum("failed" in marks for marks in made) / len(made) if made else 0.0
    return row


def _marks_by_turn(rollout: Rollout) -> list[list[list[str]]]:
    """Of each turn, what each of its calls that was answered counted as."""
    marks = iter(rollout.episode.marks)
    turns: list[list[list[str]]] = []
    for message in rollout.episode.messages:
        if message["role"] == "assistant":
            turns.append([])
        else:
            turns[-1].append(next(marks))
    return turns


def _own_text(rollout: Rollout) -> tuple[int, ...]:
    """All tokens of the model's own."""
    return tuple(token for token, own in zip(rollout.ids, rollout.own, strict=True) if own)
