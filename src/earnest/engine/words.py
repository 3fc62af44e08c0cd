"""Tools in words: for chat templates that know none. And the descriptions of tools themselves.

The form of the calls is that of Hermes, which many open models have seen. Answers come back as a user's message, which every template has.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from earnest.errors import UserError
from earnest.rewards.calls import ToolCall, calls_in
from earnest.rewards.verifier import Attempt
from earnest.task import Message

HOW = (
    'To call one, write only <tool_call>{"name": ..., "arguments": {...}}</tool_call>. What it returns then stands between '
    "<tool_response> and </tool_response>."
)
EXAMPLE = '''for example

    def refund(payment: str, amount: float) -> dict:
        """Refund a payment.

        Args:
            payment: Id of the payment.
            amount: How much.
        """'''


def schemas_of(tools: Iterable[Callable[..., Any]]) -> list[dict[str, Any]]:
    """Descriptions of tools as chat templates take them, out of their types and docstrings, as transformers and TRL make them.

    Raises:
        UserError: A type, a docstring or the description of an argument is missing, or two tools have one name.
    """
    from transformers.utils import get_json_schema

    schemas: list[dict[str, Any]] = []
    for tool in tools:
        name = getattr(tool, "__name__", "")
        try:
            if stars := _stars(tool):
                raise ValueError(f"it takes {stars}")
            schemas.append(get_json_schema(tool))
        except Exception as error:
            raise UserError(
                f"The tool '{name or repr(tool)}' {_missing(tool, error)}. Write it with types and a docstring, {EXAMPLE}"
            ) from error
        if name in [schema["function"]["name"] for schema in schemas[:-1]]:
            raise UserError(f"There are two tools with the name '{name}'. Rename one of them.")
    return schemas


def _stars(tool: Callable[..., Any]) -> str:
    """Arguments without a name of their own, which a model cannot give: `*args`, `**kwargs`."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return ", ".join(f"'{parameter}'" for parameter in inspect.signature(tool).parameters.values() if parameter.kind in kinds)


def _missing(tool: Callable[..., Any], error: Exception) -> str:
    """What a tool lacks."""
    told = inspect.getdoc(tool) or ""
    if not told:
        return "has no docstring, and the model is told by it what the tool does"
    try:
        parameters = inspect.signature(tool).parameters.values()
        if stars := _stars(tool):
            return f"takes {stars}, but a model can only give arguments that are named one by one"
    except (TypeError, ValueError):
        return f"cannot be described: {error}"
    for parameter in parameters:
        if parameter.annotation is parameter.empty:
            return f"has no type for its argument '{parameter.name}'"
        if not re.search(rf"^\s+{parameter.name}\b.*:", told, re.MULTILINE):
            return f"has no line for its argument '{parameter.name}' under 'Args:' in its docstring"
    return f"cannot be described: {error}"


def described(schemas: Sequence[Mapping[str, Any]]) -> str:
    """What a model is told about its tools: one line each, and how to call them."""
    return "\n".join(["You can call these functions:", *map(_line, schemas), HOW])


def _line(schema: Mapping[str, Any]) -> str:
    function = schema.get("function", schema)
    parameters = function.get("parameters") or {}
    required = parameters.get("required") or ()
    arguments = [f"{name}{'' if name in required else '?'}: {_type(kind)}" for name, kind in (parameters.get("properties") or {}).items()]
    told = (function.get("description") or "").strip().partition("\n")[0]
    return f"{function['name']}({', '.join(arguments)}){': ' + told if told else ''}"


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get("enum"):
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {_type(schema['items'])}"
    return kind if isinstance(kind, str) else " | ".join(kind)


def with_tools(messages: Sequence[Message], schemas: Sequence[Mapping[str, Any]], system: bool) -> list[Message]:
    """Messages that tell of the tools: at the end of the system message, or before the first one where the template knows none."""
    told, made = described(schemas), [dict(message) for message in messages]
    if system and made and made[0].get("role") == "system":
        made[0]["content"] = f"{made[0].get('content') or ''}\n\n{told}".strip()
    elif system or not made:
        made.insert(0, {"role": "system" if system else "user", "content": told})
    else:
        made[0]["content"] = f"{told}\n\n{made[0].get('content') or ''}".strip()
    return made


def in_words(messages: Sequence[Message]) -> list[Message]:
    """Messages with their calls as text, and what tools answered as messages of the user."""
    made: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            waiting.append(str(message.get("content") or ""))
            continue
        if waiting:
            made.append(answers(waiting))
            waiting = []
        if message.get("tool_calls"):
            made.append({"role": "assistant", "content": turn(str(message.get("content") or "").strip(), calls_of(message))})
        else:
            made.append(dict(message))
    return [*made, answers(waiting)] if waiting else made


def turn(content: str, calls: Sequence[ToolCall]) -> str:
    """A turn with calls."""
    made = [json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in calls]
    return "\n".join([*([content] if content else []), *(f"<tool_call>{call}</tool_call>" for call in made)])


def answers(results: Sequence[str]) -> Message:
    """What the tools of one turn answered, as one message, since many templates want user and assistant in turn."""
    return {"role": "user", "content": "\n".join(f"<tool_response>{result}</tool_response>" for result in results)}


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The calls of an assistant message.

    Raises:
        UserError: One of them cannot be read.
    """
    calls, problems = calls_in(Attempt((message,)))
    if problems:
        raise UserError(f"The message {str(message)[:100]} holds a call that cannot be written: {problems[0]}. Mend the oracle's calls.")
    return calls


def entry(name: str, arguments: Mapping[str, Any] | None, number: str) -> dict[str, Any]:
    """A call as messages have it."""
    return {"id": number, "type": "function", "function": {"name": name, "arguments": None if arguments is None else dict(arguments)}}


def answered(names: Sequence[str], results: Sequence[str]) -> list[Message]:
    """The tools' messages of one turn."""
    return [
        {"role": "tool", "name": name, "tool_call_id": f"call_{number}", "content": result}
        for number, (name, result) in enumerate(zip(names, results, strict=True))
    ]
