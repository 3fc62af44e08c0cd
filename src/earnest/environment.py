"""Tools and environments, by TRL's contracts: what a model may call, and what happens when it does.

A tool is a function with typed arguments and a docstring in Google style. An environment is a class with `reset(**row)`, whose other public
methods are its tools, and which may score itself with `get_reward()`. One instance serves one rollout and is then thrown away, so nothing
leaks from one to the next; the rollouts of a group start alike because `reset` gets the same row.

Whatever a model makes of its tools is an answer to the model and a count, never the end of a run: a call that cannot be read, an unknown
tool, arguments that do not fit, an exception, a tool that hangs.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from earnest.errors import UserError
from earnest.rewards.calls import ToolCall, calls_in
from earnest.rewards.verifier import LATE, Attempt, in_time
from earnest.score import wait_for
from earnest.task import Answer, Message, Row, Task, messages_of
from earnest.task import load_task as task_from

NOT_TOOLS = frozenset({"reset", "get_reward"})
WORKERS = 16  # rollouts whose calls run at the same time
LONGEST = 4_000  # characters of a tool's answer; of a longer one the rest is left out, and the model is told

Tool = Callable[..., Any]


@dataclass
class Counts:
    """What a rollout did with its tools.

    Attributes:
        calls: Calls asked for.
        failed: Calls answered with an error, all of the following but `repeated` among them.
        malformed: Calls that could not be read or that do not fit their tool: never run.
        hung: Calls that were cut.
        repeated: Calls equal to an earlier one of the same rollout.
    """

    calls: int = 0
    failed: int = 0
    malformed: int = 0
    hung: int = 0
    repeated: int = 0


@dataclass
class Episode:
    """One rollout's world: its environment and tools, and what was said since the prompt.

    Attributes:
        environment: The instance; None where the task has plain tools only.
        tools: By name.
        observation: What `reset` returned; it belongs to the end of the prompt's last message.
        messages: The model's turns and the answers of tools.
        counts: What it did with its tools.
        marks: Of each call, in the order of the tools' messages, what it was counted as beside a call: names of `Counts`.
        lost: Whether a call was cut. It may still be at work in there, so nothing else runs in this environment.
    """

    environment: Any
    tools: Mapping[str, Tool]
    observation: str = ""
    messages: list[Message] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    marks: list[list[str]] = field(default_factory=list)
    lost: bool = False
    seen: set[str] = field(default_factory=set, repr=False)


def begin(task: Task, row: Row) -> Episode:
    """A fresh environment for a row.

    Raises:
        UserError: It cannot be made or reset.
    """
    environment, observation = None, ""
    if task.environment is not None:
        try:
            environment = task.environment()
            told = environment.reset(**copy.deepcopy(row))  # the row belongs to the whole group
            observation = wait_for(told) if inspect.isawaitable(told) else told
        except Exception as error:
            raise UserError(
                f"The environment of task '{task.name}' cannot be reset to row {row.get('id')!r}: {type(error).__name__}: {error}. It "
                "needs a method reset(self, **row), and the columns it reads must be in the rows."
            ) from error
    tools = {tool.__name__: tool for tool in [*task.tools, *methods_of(environment)]}
    return Episode(environment, tools, observation if isinstance(observation, str) else "")


def methods_of(environment: Any) -> list[Tool]:
    """The tools of an environment: the public methods of its class but `reset` and `get_reward`, by name, as TRL finds them."""
    if environment is None:
        return []
    names = [name for name, _ in inspect.getmembers(type(environment), predicate=inspect.isfunction)]
    return [getattr(environment, name) for name in names if name not in NOT_TOOLS and not name.startswith("_")]


def prompt_of(task: Task, row: Row) -> list[Message]:
    """What a row asks: the task's prompt, with what `reset` returns appended to its last message, as TRL does it."""
    messages = task.prompt(row)
    observation = begin(task, row).observation if task.environment is not None else ""
    if not observation:
        return messages
    last = messages[-1] if messages else {"role": "user", "content": ""}
    return [*messages[:-1], {**last, "content": (last.get("content") or "") + observation}]


def run_turns(turns: Sequence[tuple[Episode, Sequence[ToolCall]]], seconds: float) -> None:
    """Run the calls of many rollouts' turns and append the tools' answers to their messages.

    Rollouts run side by side; the calls of one turn run in their order, since one may need what another did.

    Args:
        turns: Episodes, and the calls that the model's last turn asked for.
        seconds: What one call may take.
    """
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = pool.map(lambda turn: [answer_to(turn[0], call, seconds) for call in turn[1]], turns)
        for (episode, _), messages in zip(turns, answers, strict=True):
            episode.messages.extend(messages)


def answer_to(episode: Episode, call: ToolCall, seconds: float) -> Message:
    """Run one call, unless it must not be run, and give the tool's message."""
    before = asdict(episode.counts)
    message = _answer_to(episode, call, seconds)
    episode.marks.append([kind for kind, count in asdict(episode.counts).items() if kind != "calls" and count > before[kind]])
    return message


def _answer_to(episode: Episode, call: ToolCall, seconds: float) -> Message:
    counts = episode.counts
    counts.calls += 1
    key = json.dumps([call.name, call.arguments], sort_keys=True, default=repr)
    counts.repeated += key in episode.seen
    episode.seen.add(key)
    problem = call.problem or (
        "" if call.name in episode.tools else f"there is no tool '{call.name}'; there are: {', '.join(episode.tools)}"
    )
    if problem or call.arguments is None:
        counts.malformed += 1
        return _message(episode, call, error=problem or "the call has no arguments")
    if episode.lost:
        return _message(episode, call, error="an earlier call did not come back, so nothing more can be done here")
    tool = episode.tools[call.name]
    if unfit := _unfit(tool, call.arguments):
        counts.malformed += 1
        return _message(episode, call, error=unfit)
    try:
        result = in_time(lambda: _result(tool, call.arguments), seconds)
    except UserError:  # the tool's own infrastructure is missing: that is not the model's doing
        raise
    except (Exception, SystemExit) as error:
        return _message(episode, call, error=f"{type(error).__name__}: {error}"[:500])
    if result is LATE:
        counts.hung += 1
        episode.lost = True
        return _message(episode, call, error=f"no answer within {seconds:g} s")
    return _message(episode, call, result)


def _unfit(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Why a tool cannot be called with such arguments; "" where it can."""
    try:
        inspect.signature(tool).bind(**arguments)
    except TypeError as error:
        return f"the arguments do not fit: {error}"
    return ""


def _result(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    result = tool(**copy.deepcopy(dict(arguments)))
    return wait_for(result) if inspect.isawaitable(result) else result


def _message(episode: Episode, call: ToolCall, result: Any = None, error: str = "") -> Message:
    if error:
        episode.counts.failed += 1
        result = {"error": error}
    elif isinstance(result, Mapping) and result.get("error"):
        episode.counts.failed += 1
    message = {"role": "tool", "name": call.name, "content": as_text(result)}
    return message | ({"tool_call_id": call.id} if call.id else {})


def as_text(result: Any) -> str:
    """A tool's answer as the model reads it: text as it is, all else as JSON (TRL writes Python's `str`, which is no format)."""
    if isinstance(result, str):
        text = result
    else:
        try:
            text = json.dumps(result, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):
            text = str(result)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text) - LONGEST} more characters were left out)"


def play(task: Task, row: Row, script: Answer, seconds: float = 10.0) -> Episode:
    """What becomes of a script: its calls are run in a fresh environment, and their real answers stand in place of those it has.

    This is how an oracle's trajectory is proven, and how attacks are made real: nothing that a script says of a tool's answer counts.

    Args:
        task: With an environment or tools.
        row: The row.
        script: Text, or messages: the model's turns, with or without the answers of tools between them.
        seconds: What one call may take.

    Raises:
        UserError: The environment cannot be reset.
    """
    episode = begin(task, row)
    for message in messages_of(script):
        if not isinstance(message, Mapping) or message.get("role") != "assistant":
            continue
        episode.messages.append(dict(message))
        calls, _ = calls_in(Attempt((dict(message),)))
        episode.messages += [answer_to(episode, call, seconds) for call in calls]
    return episode


def acted(task: Task, row: Row, answer: Answer) -> tuple[list[Message], Any]:
    """An answer as rewards and check get it: its messages, and the environment as it left it (None where the task has none)."""
    if not task.acts:
        return messages_of(answer), None
    episode = play(task, row, answer, task.limits.seconds)
    return episode.messages, episode.environment


def load_task(where: str) -> Task:
    """A task by name, file or module, with the reward of its environment among its own.

    Raises:
        UserError: Nothing there, the file does not run, or its environment cannot be made.
    """
    return with_own_reward(task_from(where))


def with_own_reward(task: Task) -> Task:
    """The task, with what its environment says of itself (`get_reward`) as one more reward, of weight 1, under the name of its class."""
    try:
        kind = type(task.environment()) if task.environment is not None else None
    except Exception as error:
        raise UserError(
            f"The environment of task '{task.name}' cannot be made: {type(error).__name__}: {error}. It is called without arguments."
        ) from error
    if kind is None or not callable(getattr(kind, "get_reward", None)):
        if not task.rewards:
            raise UserError(
                f"Task '{task.name}' has no rewards, and its environment has no get_reward(). Give at least one: Task(rewards=[...])."
            )
        return task

    if inspect.iscoroutinefunction(kind.get_reward):

        async def own(environments: Sequence[Any], **_: Any) -> list[float]:
            return [await environment.get_reward() for environment in environments]

    else:

        def own(environments: Sequence[Any], **_: Any) -> list[float]:
            return [environment.get_reward() for environment in environments]

    own.__name__ = own.__qualname__ = kind.__name__
    weights = None if task.reward_weights is None else [*task.reward_weights, 1.0]
    return replace(task, rewards=[*task.rewards, own], reward_weights=weights)
