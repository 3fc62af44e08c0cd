"""Tool calls: which ones the environment ran, and which ones a text asks for.

Only what the environment answered was run. A rollout keeps that in its messages: an assistant message with `tool_calls`, then a message of
the role "tool" for each. Text of the model that looks like a call or like a tool's answer is text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from earnest.rewards.json import compiled_schema, parse_strict
from earnest.rewards.verifier import Attempt, Score, Verifier
from earnest.rewards.written import LONGEST, READERS, Written
from earnest.rewards.written import MOST as MOST
from earnest.task import Message, Row

NEAR = 1000  # characters of a tool's answer that cannot be read, within which any key "error" is taken for its own
STYLES = tuple(READERS)
_PIECE = re.compile(r""""(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|[{}\[\]()]""", re.DOTALL)
_IS_KEY = re.compile(r"\s*(?:\Z|:\s*+(?!(?:None|null|False|false|0)\s*[,}]))")


@dataclass(frozen=True)
class ToolCall:
    """One call as the model wrote it, and what became of it.

    Attributes:
        name: The tool; "" where it could not be read.
        arguments: None where they could not be read.
        problem: Why the call must not be run; "" for a good one.
        id: As the messages have it; "" where they have none.
        turn: Number of the message it stands in.
        answered: Whether the environment answered it.
        failed: Whether the answer was an error.
        result: The answer: text, or an object.
    """

    name: str
    arguments: Mapping[str, Any] | None
    problem: str = ""
    id: str = ""
    turn: int = 0
    answered: bool = False
    failed: bool = False
    result: Any = field(default=None, compare=False)

    @property
    def ran(self) -> bool:
        """Whether the environment ran it to a good end."""
        return self.answered and not self.failed


def calls_in(attempt: Attempt, failed: Callable[[Any], bool] | None = None) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    """Every call of an attempt, in order, with what the environment made of it.

    The tool messages up to the next assistant message answer the calls of a turn: by id where the message has one, else by the tool's name
    where it has one, else in order; each answers one call. Arguments may be an object or its JSON text, which is read strictly.

    Args:
        attempt: Messages in the style of OpenAI and TRL.
        failed: Whether a tool message's content tells of an error; `is_error` by default.

    Returns:
        The calls, and the problems found in them.
    """
    failed = failed or is_error
    calls: list[ToolCall] = []
    waiting: list[int] = []  # calls of the current turn without an answer
    for turn, message in enumerate(attempt.messages):
        if not isinstance(message, Mapping):
            continue
        if message.get("role") == "assistant":
            asked = message.get("tool_calls")
            new = [_from_message(entry, turn) for entry in asked] if isinstance(asked, (list, tuple)) else []
            waiting = list(range(len(calls), len(calls) + len(new)))
            calls += new
        elif message.get("role") == "tool":
            index = _answered_by(message, calls, waiting)
            if index is not None:
                waiting.remove(index)
                content = _plain(message.get("content"))
                calls[index] = replace(calls[index], answered=True, failed=failed(content), result=content)
    return tuple(calls), tuple(call.problem for call in calls if call.problem)


def is_error(content: Any) -> bool:
    """Whether a tool's answer tells of an error: an object whose "error" is neither null, false nor 0, as TRL and many have it.

    So does what begins like an object, cannot be read (cut off, too long or too deep, or with the Python form of an exception in it) and
    has such a key: what is unclear must not count as a success.
    """
    answer = answer_object(content)
    if answer is not None:
        return answer.get("error") not in (None, False)
    return isinstance(content, str) and content.lstrip().startswith("{") and _has_error_key(content.lstrip())


def _has_error_key(text: str) -> bool:
    """Whether an object that cannot be read has a key "error": among its own keys, or anywhere near its start."""
    depth = 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece in "{[(":
            depth += 1
        elif piece in "}])":
            depth -= 1
        elif piece[1:] == f"error{piece[0]}" and (depth <= 1 or match.start() < NEAR) and _IS_KEY.match(text, match.end()):
            return True
    return False


def answer_object(content: Any) -> Mapping[str, Any] | None:
    """The object that a tool answered with, if it is one: as such, as JSON, or as Python writes a dict (TRL sends `str(result)`)."""
    if isinstance(content, Mapping):
        return content
    if not isinstance(content, str) or len(content) > LONGEST or not content.lstrip().startswith("{"):
        return None
    value = parse_strict(content, LONGEST).value
    if value is None:
        try:
            value = ast.literal_eval(content.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return value if isinstance(value, Mapping) else None


def as_messages(calls: Iterable[tuple[str, Mapping[str, Any]]], result: Any = "ok", answer: str | None = None) -> list[Message]:
    """The messages of an attempt that makes these calls one after the other, each with a good result: a reference, played.

    Args:
        calls: Names and arguments.
        result: What every tool answers.
        answer: What the model says in the end.
    """
    messages: list[Message] = []
    for number, (name, arguments) in enumerate(calls):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": dict(arguments)}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "name": name, "content": result})
    return messages if answer is None else [*messages, {"role": "assistant", "content": answer}]


@dataclass(frozen=True)
class Turn:
    """What a turn's text says.

    Attributes:
        content: The text around the calls.
        calls: The calls in order, those that must not be run among them, with their `problem`.
        problems: Every problem, also of the text around the calls.
    """

    content: str
    calls: tuple[ToolCall, ...]
    problems: tuple[str, ...]


def parse_calls(
    text: str, style: str = "hermes", tools: Sequence[Mapping[str, Any]] | None = None
) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    """Read the tool calls that a model wrote as text.

    "hermes" (also Qwen 2.5 and 3): each call is one JSON object between `<tool_call>` and `</tool_call>`; text may stand before the first.
    A call ends where its JSON ends, so a closing tag inside a string is a part of the string. "json": the whole text is one call, or an
    array of calls. A call is an object with `name`, a text, and `arguments`, an object; anything else in it is refused. "llama", "qwen"
    (3.5 and later), "glm", "gemma" (4) and "lfm" are the forms of those families (see `earnest.rewards.written`).

    A call that must not be run is returned in its place, with its `problem`, so that the environment can answer it with an error. Nothing
    is repaired: broken arguments never become empty ones.

    Args:
        text: What the model wrote.
        style: How calls are written.
        tools: The tools there are, as their JSON descriptions (`name` and `parameters`, bare or under `function`). Unknown names and
            arguments that break the parameters' schema are then problems; arguments may be left out where the schema demands none.

    Returns:
        The calls in order, and every problem, also of the text around them.
    """
    turn = parse_turn(text, style, tools)
    return turn.calls, turn.problems


def parse_turn(text: str, style: str = "hermes", tools: Sequence[Mapping[str, Any]] | None = None) -> Turn:
    """As `parse_calls`, with the text around the calls."""
    if style not in STYLES:
        raise ValueError(f"style is one of {', '.join(map(repr, STYLES))}, not {style!r}")
    if len(text) > LONGEST:
        return Turn(text, (), ("the text is too long",))
    known = None if tools is None else _known(tools)
    found, reasons = READERS[style](text)
    calls = tuple(_checked(_from_written(one, known), known) for one in found)
    ends = [0, *(one.end for one in found)]
    around = [text[end : max(end, start)] for end, start in zip(ends, [*(one.start for one in found), len(text)], strict=True)]
    content = "\n".join(part.strip() for part in around if part.strip()) if found else text
    return Turn(content, calls, (*(call.problem for call in calls if call.problem), *reasons))


# What chat templates mark turns, thinking and calls with. The first kind counts without its end too: it may have been cut off. Some
# families of models put their name before it: <seed:think>, <longcat_think>.
_CONTROL = re.compile(
    r"</?\s*(?:[a-z0-9]+[:_])?(?:think(?:ing)?|tool_(?:calls?|responses?|results?|outputs?|code)|function_(?:calls?|results?)|(?:start|end)_of_turn)\b[^<>]*>?"
    r"|</?\s*(?:tools?|functions?|reasoning|bos|eos|pad|unk|s)>|<function=[^<>]*>?"
    r"|<[|｜][^<>]{0,60}[|｜]>|\[/?(?:TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|INST|SYSTEM_PROMPT|THINK)\]|<</?SYS>>"
    r"|(?-i:\[(?:ARGS|CALL_ID)\])",
    re.IGNORECASE,
)


def control_tags(text: str) -> tuple[str, ...]:
    """The tags of chat templates that stand in a text: thinking, tool calls, tool answers, turns, special tokens."""
    return tuple(match.group()[:40] for match in _CONTROL.finditer(text))


def no_leaked_tags(name: str = "no_leaked_tags") -> Verifier:
    """Full marks where the final answer has words, and holds no tag of a chat template (see `control_tags`).

    A call that was written wrongly ends up as text, and so does thinking that was opened twice. Use it as a gate: alone it pays for any
    text. The evidence counts the tags under `leaked_tags`.
    """

    def judge(attempt: Attempt, row: Row) -> Score:
        tags = control_tags(attempt.text)
        reasons = tuple(f"the answer holds the tag {_ascii(tag)}" for tag in dict.fromkeys(tags[:3]))
        if not attempt.text.strip():
            reasons = ("no answer",)
        return Score(0.0 if reasons else 1.0, reasons=reasons, evidence={"leaked_tags": len(tags)})

    return Verifier(name, judge)


def schema_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Why arguments break a JSON Schema (2020-12 unless it names another); "" where they keep it. Booleans are no numbers.

    Raises:
        UserError: The schema is none.
    """
    error = next(iter(_validator(json.dumps(schema)).iter_errors(dict(arguments))), None)
    return "" if error is None else _ascii(error.message, 120)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    return compiled_schema(json.loads(schema), unknown_formats=True)  # tools come with formats of their own


def _from_message(entry: Any, turn: int) -> ToolCall:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping):
        return ToolCall("", None, "a tool call without a function", turn=turn)
    call = _call(function.get("name"), function.get("arguments"))
    return replace(call, id=entry["id"] if isinstance(entry.get("id"), str) else "", turn=turn)


def _call(name: Any, arguments: Any) -> ToolCall:
    """A call, its arguments read strictly, whether they came as text or were read by someone else."""
    if not isinstance(name, str) or not name:
        return ToolCall("", None, "a tool call without a name")
    if arguments is None:
        return ToolCall(name, None, f"{_ascii(name)} without arguments")
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    except (TypeError, ValueError, RecursionError):
        return ToolCall(name, None, f"the arguments of {_ascii(name)} are no JSON")
    parsed = parse_strict(text, LONGEST)
    if parsed.reason:
        return ToolCall(name, None, f"the arguments of {_ascii(name)}: {parsed.reason}")
    if not isinstance(parsed.value, dict):
        return ToolCall(name, None, f"the arguments of {_ascii(name)} are no object")
    return ToolCall(name, parsed.value)


def _answered_by(message: Mapping[str, Any], calls: Sequence[ToolCall], waiting: Sequence[int]) -> int | None:
    """Which of the waiting calls a tool message answers."""
    wanted, name = message.get("tool_call_id"), message.get("name")
    for index in waiting:
        if isinstance(wanted, str) and wanted:
            if calls[index].id == wanted:
                return index
        elif not (isinstance(name, str) and name) or calls[index].name == name:
            return index
    return None


def _plain(content: Any) -> Any:
    """A tool's answer: text (also out of content parts), or the object it is."""
    if isinstance(content, (str, Mapping)):
        return content
    if isinstance(content, (list, tuple)):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))
    return "" if content is None else str(content)


def _from_written(written: Written, known: Mapping[str, Mapping[str, Any]] | None) -> ToolCall:
    if written.problem:
        return ToolCall(written.name, None, written.problem)
    if written.typed:
        return _call(written.name, written.arguments)
    properties = ((known or {}).get(written.name) or {}).get("properties") or {}
    return _call(written.name, {key: _typed(text, properties.get(key)) for key, text in written.arguments.items()})


_PYTHON_NAMES = {"True": True, "False": False, "None": None}


def _typed(text: str, schema: Any) -> Any:
    """A value that was written without its type: text where the schema takes text and nothing else fits, else what its JSON says."""
    if isinstance(schema, Mapping) and text in (schema.get("enum") or ()):
        return text
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and "string" in kinds and not ("null" in kinds and text in ("null", "None")):
        return text
    parsed = parse_strict(text, LONGEST)
    return parsed.value if not parsed.reason else _PYTHON_NAMES.get(text, text)


def _known(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Schema of the arguments, by tool."""
    bare = [tool["function"] if isinstance(tool.get("function"), Mapping) else tool for tool in tools]
    return {tool["name"]: _with_null(tool.get("parameters") or {}) for tool in bare}


def _with_null(schema: Any) -> Any:
    """A schema in which `nullable`, which is OpenAPI's and says nothing in JSON Schema, allows null."""
    if isinstance(schema, (list, tuple)):
        return [_with_null(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _with_null(part) for key, part in schema.items()}
    return made | {"type": [made["type"], "null"]} if made.get("nullable") is True and isinstance(made.get("type"), str) else made


def _checked(call: ToolCall, known: Mapping[str, Mapping[str, Any]] | None) -> ToolCall:
    """The call, with what its tool has against it."""
    if known is None or not call.name:
        return call
    if call.name not in known:
        return replace(call, problem=f"there is no tool {_ascii(call.name)}")
    schema = known[call.name]
    if call.problem == f"{_ascii(call.name)} without arguments" and not schema_problem(schema, {}):
        return replace(call, arguments={}, problem="")
    if call.arguments is None:
        return call
    problem = schema_problem(schema, call.arguments)
    return replace(call, problem=f"the arguments of {_ascii(call.name)}: {problem}") if problem else call


def _ascii(text: str, longest: int = 40) -> str:
    """What the model wrote, so that it fits into a reason and can be written to any file."""
    return text[:longest].encode("unicode_escape").decode("ascii")
