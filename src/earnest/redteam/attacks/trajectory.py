"""Trajectories taken apart and put together: turns, calls, results, and the final answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from earnest.redteam.attack import Target
from earnest.rewards.json import parse_strict
from earnest.task import Answer, Message, messages_of


@dataclass(frozen=True)
class Made:
    """One call of a trajectory.

    Attributes:
        message: Number of the message it stands in.
        place: Its place among the calls of that message.
        name: The tool.
        arguments: As an object; empty where they cannot be read.
        result: What the tool answered, as the messages have it; "ok" where nothing did.
    """

    message: int
    place: int
    name: str
    arguments: Mapping[str, Any]
    result: Any = "ok"

    def same(self, other: Made) -> bool:
        """Whether the other one calls the same tool with the same arguments."""
        return self.name == other.name and self.arguments == other.arguments


def calls(answer: Answer) -> list[Made]:
    """Every call of an answer, in order; none in a text."""
    messages = messages_of(answer)
    found = []
    for number, message in enumerate(messages):
        entries = message.get("tool_calls")
        for place, entry in enumerate(entries if isinstance(entries, (list, tuple)) else ()):
            function = entry.get("function") if isinstance(entry, Mapping) else None
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                found.append(
                    Made(number, place, function["name"], _object(function.get("arguments")), _result(messages, number, place, entry))
                )
    return found


def _object(arguments: Any) -> Mapping[str, Any]:
    value = parse_strict(arguments).value if isinstance(arguments, str) else arguments
    return value if isinstance(value, Mapping) else {}


def _result(messages: Sequence[Message], number: int, place: int, entry: Mapping[str, Any]) -> Any:
    """What answered a call: by id where there is one, else by place."""
    answers = []
    for message in messages[number + 1 :]:
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            answers.append(message)
    for message in answers:
        if message.get("tool_call_id") and message["tool_call_id"] == entry.get("id"):
            return message.get("content")
    return answers[place].get("content") if place < len(answers) else "ok"


def body(answer: Answer) -> list[Message]:
    """A trajectory without its final answer."""
    messages = messages_of(answer)
    return messages[:-1] if messages and _speaks(messages[-1]) else messages


def final(answer: Answer) -> str:
    """The final answer; "" where it ends with something else."""
    messages = messages_of(answer)
    content = messages[-1].get("content") if messages and _speaks(messages[-1]) else ""
    return content if isinstance(content, str) else ""


def _speaks(message: Message) -> bool:
    return message.get("role") == "assistant" and not message.get("tool_calls")


def says(text: str) -> list[Message]:
    """One message of the model."""
    return [{"role": "assistant", "content": text}]


def turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Each message of the model with what answered it."""
    found: list[list[Message]] = []
    for message in messages:
        if message.get("role") == "assistant" or not found:
            found.append([])
        found[-1].append(message)
    return found


def joined(parts: Sequence[Sequence[Message]]) -> list[Message]:
    """Turns, one after the other."""
    return [message for part in parts for message in part]


def asking(like: Answer, made: Sequence[Made], start: int = 0, answered: bool = True) -> list[Message]:
    """One turn that makes calls, and their results, written as another trajectory writes its own.

    Args:
        like: The trajectory whose style is kept: arguments as text or as an object.
        made: The calls.
        start: Number of the first call's id.
        answered: Whether the results follow.
    """
    textual = any(isinstance(entry["function"].get("arguments"), str) for entry in entries(like))
    asked, results = [], []
    for number, call in enumerate(made, start):
        arguments: Any = json.dumps(dict(call.arguments), ensure_ascii=False) if textual else dict(call.arguments)
        asked.append({"id": f"extra_{number}", "type": "function", "function": {"name": call.name, "arguments": arguments}})
        results.append({"role": "tool", "tool_call_id": f"extra_{number}", "name": call.name, "content": call.result})
    return [{"role": "assistant", "content": "", "tool_calls": asked}, *(results if answered else [])]


def entries(answer: Answer) -> list[Mapping[str, Any]]:
    """Every call as the messages have it."""
    found = [entry for m in messages_of(answer) if isinstance(m.get("tool_calls"), (list, tuple)) for entry in m["tool_calls"]]
    return [entry for entry in found if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping)]


def repeated(like: Answer, call: Made, times: int) -> list[Message]:
    """The same call again and again, a turn each."""
    return joined([asking(like, [call], number) for number in range(times)])


def before_the_end(answer: Answer, more: Sequence[Message]) -> list[Message]:
    """A trajectory with more turns before its final answer."""
    start = body(answer)
    return [*start, *more, *messages_of(answer)[len(start) :]]


def changed(answer: Answer, call: Made, **new: Any) -> list[Message]:
    """A trajectory with another `name` or other `arguments` in one call; an object is written as the call's own arguments are."""
    messages = messages_of(answer)
    entries = list(messages[call.message]["tool_calls"])
    function = dict(entries[call.place]["function"])
    if isinstance(function.get("arguments"), str) and isinstance(new.get("arguments"), dict):
        new["arguments"] = json.dumps(new["arguments"], ensure_ascii=False)
    entries[call.place] = {**entries[call.place], "function": {**function, **new}}
    if "name" in new:
        for message in messages[call.message + 1 :]:
            if message.get("role") == "assistant":
                break
            if message.get("name") == call.name:
                message["name"] = new["name"]
    messages[call.message] = {**messages[call.message], "tool_calls": entries}
    return messages


def with_results(answer: Answer, content: Any) -> list[Message]:
    """A trajectory in which every tool answers the same."""
    return [{**message, "content": content} if message.get("role") == "tool" else message for message in messages_of(answer)]


def written(content: Any) -> str:
    """A tool's answer as text."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)


def wrong_one(target: Target) -> Answer:
    """An honest wrong trajectory, one with calls if there is any."""
    return next((answer for answer in target.wrongs if calls(answer)), target.wrong)


def foreign(target: Target) -> list[Made]:
    """Calls of other rows that this row's right answer does not make, those of the honest wrong trajectory first."""
    own = calls(target.case.oracle)
    found: list[Made] = []
    for answer in (wrong_one(target), *target.wrongs, *target.answers):
        for call in calls(answer):
            if not any(call.same(other) for other in (*own, *found)):
                found.append(call)
    return found


def another_final(target: Target) -> str:
    """The final answer of another row, or a plain failure."""
    own = final(target.case.oracle).strip()
    found = (final(answer) for answer in (*target.wrongs, *target.answers))
    return next((text for text in found if text.strip() and text.strip() != own), "It could not be done.")


def right(target: Target) -> list[Message]:
    """The right answer, as messages."""
    return messages_of(target.case.oracle)
