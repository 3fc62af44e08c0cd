"""Where tool calls stand in a text, in the forms that models are trained to write them in.

Each reader gives the calls with their places, and what is wrong with the text around them. Nothing is repaired, and nothing is decided
about what a call may do: that is for `earnest.rewards.calls`. A call ends where its own grammar says so: a closing tag in a string is text.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from earnest.rewards.json import WHITESPACE, parse_strict

LONGEST = 100_000  # characters of a text that is searched for calls
MOST = 64  # calls of one turn that are looked at: more is no honest answer
DEEPEST = 32  # brackets of arguments that may be open at once
TRIES = 20  # closing tags inside strings that are passed over


@dataclass(frozen=True)
class Written:
    """One call as it stands in a text.

    Attributes:
        start: Where it starts.
        end: Where the text goes on after it.
        name: As written; "" where it could not be read.
        arguments: An object; None where they are missing or could not be read.
        problem: Why it cannot be read; "" where it can.
        typed: Whether the arguments say their own types. Where not, every value is text, to be read by the tool's schema.
    """

    start: int
    end: int
    name: Any = ""
    arguments: Any = None
    problem: str = ""
    typed: bool = True


Reader = Callable[[str], tuple[list[Written], list[str]]]


def _between(opening: str, closing: str, inside: Callable[[str, int, int], Written], text: str) -> tuple[list[Written], list[str]]:
    """The calls between tags. A block that is broken ends at the next closing tag, for there is no other place to go on."""
    calls: list[Written] = []
    reasons: list[str] = []
    place = text.find(opening)
    if closing in text[: place if place >= 0 else len(text)]:
        reasons.append("a closing tag without a call")
    while place >= 0 and len(calls) < MOST:
        found = inside(text, place, place + len(opening))
        calls.append(found)
        place = text.find(opening, found.end)
        if text[found.end : place if place >= 0 else len(text)].strip(WHITESPACE):
            reasons.append("text between calls" if place >= 0 else "text after the last call")
    if place >= 0:
        reasons.append(f"more than {MOST} calls")
    return calls, reasons


def _broken(text: str, start: int, place: int, closing: str, problem: str, name: str = "") -> Written:
    """A call that is refused, up to the next closing tag."""
    closed = text.find(closing, place)
    if closed < 0:
        return Written(start, len(text), name, problem="a call that is not closed")
    return Written(start, closed + len(closing), name, problem=problem)


# Hermes, Qwen 2.5 and 3: a JSON object between tags


def hermes(text: str) -> tuple[list[Written], list[str]]:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""
    return _between("<tool_call>", "</tool_call>", _json_block, text)


def _json_block(text: str, begin: int, place: int) -> Written:
    closing = "</tool_call>"
    start = _skip(text, place)
    end = _value_end(text, start)
    if end is None:
        return _broken(text, begin, start, closing, "a call that is not JSON")
    closed = text.find(closing, end)
    if closed < 0 or text[end:closed].strip(WHITESPACE):
        return _broken(text, begin, end, closing, "a call with text after its JSON")
    return _object(text[start:end], begin, closed + len(closing), ("arguments",))


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in WHITESPACE:
        place += 1
    return place


def _value_end(text: str, start: int) -> int | None:
    """Where the JSON value that starts here ends; it is read strictly afterwards."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _object(text: str, start: int, end: int, keys: tuple[str, ...]) -> Written:
    parsed = parse_strict(text, LONGEST)
    if parsed.reason:
        return Written(start, end, problem=f"a call that is refused: {parsed.reason}")
    return _from_value(parsed.value, start, end, keys)


def _from_value(value: Any, start: int, end: int, keys: tuple[str, ...] = ("arguments",)) -> Written:
    """A call out of a JSON value; `keys` are what its arguments may be called."""
    if not isinstance(value, dict):
        return Written(start, end, problem="a call that is no object")
    given = [key for key in keys if key in value]
    if value.keys() - {"name", *given} or len(given) > 1:
        return Written(start, end, problem=f"a call with other keys than name and {keys[0]}")
    arguments = value[given[0]] if given else None
    if isinstance(arguments, str):
        name = value["name"] if isinstance(value.get("name"), str) else ""
        return Written(start, end, name, problem="the arguments are text, not an object")
    return Written(start, end, value.get("name"), arguments)


# Generic JSON: the whole text is a call, or an array of calls


def whole_json(text: str) -> tuple[list[Written], list[str]]:
    """One call, or an array of them, and nothing else."""
    parsed = parse_strict(text, LONGEST)
    if parsed.reason:
        return [], [parsed.reason]
    entries = parsed.value if isinstance(parsed.value, list) else [parsed.value]
    return [_from_value(entry, 0, len(text)) for entry in entries[:MOST]], [f"more than {MOST} calls"] if len(entries) > MOST else []


# Llama 3: bare JSON objects, maybe after a tag. An answer may be JSON too, so only what looks like a call is one.

_TAG = "<|python_tag|>"
_LIKE_A_CALL = re.compile(r'\{\s*"(?:name|parameters|arguments|type)"\s*:')
_NEXT_CALL = re.compile(r"[\s;]*(?=\{)")


def llama(text: str) -> tuple[list[Written], list[str]]:
    """`{"name": ..., "parameters": {...}}`, several one after the other or with ";" between; text may stand before `<|python_tag|>`."""
    tag = text.find(_TAG)
    place = _skip(text, tag + len(_TAG) if tag >= 0 else 0)
    if tag < 0 and not _claims(text[place:]):
        return [], []
    start, calls = max(tag, 0), []
    while len(calls) < MOST:
        end = _value_end(text, place)
        if end is None:
            calls.append(Written(start, len(text), problem="a call that is not JSON"))
            return calls, []
        calls.append(_llama_object(text[place:end], start, end))
        following = _NEXT_CALL.match(text, end)
        if following is None:
            return calls, ["text after the last call"] if text[end:].strip(WHITESPACE + ";") else []
        start, place = end, following.end()
    return calls, [f"more than {MOST} calls"]


def _claims(text: str) -> bool:
    """Whether a text that starts with an object wants to be a call."""
    if not _LIKE_A_CALL.match(text):
        return False
    end = _value_end(text, 0)
    value = None if end is None else json.loads(text[:end])
    return '"parameters"' in text or '"arguments"' in text if value is None else bool(value.keys() & {"parameters", "arguments"})


def _llama_object(text: str, start: int, end: int) -> Written:
    parsed = parse_strict(text, LONGEST)
    value = parsed.value
    if not parsed.reason and isinstance(value, dict) and value.get("type") == "function":
        value = {key: part for key, part in value.items() if key != "type"}
    if parsed.reason:
        return Written(start, end, problem=f"a call that is refused: {parsed.reason}")
    return _from_value(value, start, end, ("parameters", "arguments"))


# Qwen 3.5, Nemotron: functions and parameters as tags

_FUNCTION = re.compile(r"\s*<function=([^<>\s]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>\n?")
_PARAMETER_END = re.compile(r"\n?</parameter>\s*(?=<parameter=|</function>)")
_FUNCTION_END = re.compile(r"</function>\s*</tool_call>")


def qwen(text: str) -> tuple[list[Written], list[str]]:
    """`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`, each on a line of its own."""
    return _between("<tool_call>", "</tool_call>", _qwen_block, text)


def _qwen_block(text: str, begin: int, place: int) -> Written:
    return _tagged(text, begin, place, (_FUNCTION, _PARAMETER, None, _PARAMETER_END, _FUNCTION_END))


# GLM 4.5: keys and values as tags

_GLM_NAME = re.compile(r"\s*([^<>\s]+)\s*")
_GLM_KEY = re.compile(r"<arg_key>([^<>\n]+)</arg_key>\s*")
_GLM_VALUE = re.compile(r"<arg_value>")
_GLM_VALUE_END = re.compile(r"</arg_value>\s*(?=<arg_key>|</tool_call>)")
_GLM_END = re.compile(r"</tool_call>")


def glm(text: str) -> tuple[list[Written], list[str]]:
    """`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`, each on a line of its own."""
    return _between("<tool_call>", "</tool_call>", _glm_block, text)


def _glm_block(text: str, begin: int, place: int) -> Written:
    return _tagged(text, begin, place, (_GLM_NAME, _GLM_KEY, _GLM_VALUE, _GLM_VALUE_END, _GLM_END))


def _tagged(text: str, begin: int, place: int, form: tuple[re.Pattern[str] | None, ...]) -> Written:
    """A call whose arguments stand between tags, as text."""
    opening, key_form, before_value, value_end, end = form
    named = opening.match(text, place)
    if named is None:
        return _broken(text, begin, place, "</tool_call>", "a call without a function")
    name, place, arguments = named.group(1), named.end(), {}
    while key := key_form.match(text, place):
        at = key.end()
        if before_value is not None:
            value = before_value.match(text, at)
            if value is None:
                return _broken(text, begin, at, "</tool_call>", "an argument without a value", name)
            at = value.end()
        ended = value_end.search(text, at)
        if ended is None:
            return _broken(text, begin, at, "</tool_call>", "an argument that is not closed", name)
        if key.group(1) in arguments:
            return _broken(text, begin, at, "</tool_call>", "an argument that is given twice", name)
        arguments[key.group(1)] = text[at : ended.start()]
        place = ended.end()
    closed = end.match(text, place)
    if closed is None:
        return _broken(text, begin, place, "</tool_call>", "a call with something else than arguments", name)
    return Written(begin, closed.end(), name, arguments, typed=False)


# Gemma 4: keys without quotes, and a token of their own for the quotes of strings

_QUOTE = '<|"|>'
_GEMMA_NAME = re.compile(r"call:([^{}\s]+)(?=\{)")
_GEMMA_KEY = re.compile(r"([^:{}\[\],<>]+):")
_GEMMA_PLAIN = re.compile(r"[^,{}\[\]<>]+")


class _NotGemmaError(ValueError):
    """It does not keep the grammar."""


def gemma(text: str) -> tuple[list[Written], list[str]]:
    """`<|tool_call>call:NAME{key:<|"|>text<|"|>,other:1}<tool_call|>`."""
    return _between("<|tool_call>", "<tool_call|>", _gemma_block, text)


def _gemma_block(text: str, begin: int, place: int) -> Written:
    named = _GEMMA_NAME.match(text, place)
    if named is None:
        return _broken(text, begin, place, "<tool_call|>", "a call without a function")
    try:
        arguments, end = _gemma_value(text, named.end(), 0)
    except _NotGemmaError as problem:
        return _broken(text, begin, place, "<tool_call|>", str(problem), named.group(1))
    if not text.startswith("<tool_call|>", end):
        return _broken(text, begin, end, "<tool_call|>", "a call with text after its arguments", named.group(1))
    return Written(begin, end + len("<tool_call|>"), named.group(1), arguments)


def _gemma_value(text: str, place: int, depth: int) -> tuple[Any, int]:
    if depth > DEEPEST:
        raise _NotGemmaError("arguments that are too deep")
    if text.startswith(_QUOTE, place):
        end = text.find(_QUOTE, place + len(_QUOTE))
        if end < 0:
            raise _NotGemmaError("a text that is not closed")
        return text[place + len(_QUOTE) : end], end + len(_QUOTE)
    if text.startswith(("{", "["), place):
        return _gemma_items(text, place, depth)
    plain = _GEMMA_PLAIN.match(text, place)
    if plain is None:
        raise _NotGemmaError("an argument without a value")
    parsed = parse_strict("null" if plain.group() == "None" else plain.group())
    if parsed.reason:
        raise _NotGemmaError("an argument that is no value")
    return parsed.value, plain.end()


def _gemma_items(text: str, place: int, depth: int) -> tuple[Any, int]:
    """An object or an array."""
    closing = "}" if text[place] == "{" else "]"
    found: list[tuple[str, Any]] = []
    place += 1
    while not text.startswith(closing, place):
        if found:
            if not text.startswith(",", place):
                raise _NotGemmaError("arguments that are not closed")
            place += 1
        key = ""
        if closing == "}":
            key, place = _gemma_key(text, place)
        value, place = _gemma_value(text, place, depth + 1)
        found.append((key, value))
    if closing == "]":
        return [value for _, value in found], place + 1
    if len(dict(found)) < len(found):
        raise _NotGemmaError("an argument that is given twice")
    return dict(found), place + 1


def _gemma_key(text: str, place: int) -> tuple[str, int]:
    if text.startswith(_QUOTE, place):
        key, end = _gemma_value(text, place, 0)
        if text.startswith(":", end):
            return key, end + 1
    elif key := _GEMMA_KEY.match(text, place):
        return key.group(1), key.end()
    raise _NotGemmaError("an argument without a name")


# LFM 2: a list of Python calls

_JSON_NAMES = {"true": True, "false": False, "null": None}


def lfm(text: str) -> tuple[list[Written], list[str]]:
    """`<|tool_call_start|>[name(key='text', other=1), ...]<|tool_call_end|>`."""
    opening, closing = "<|tool_call_start|>", "<|tool_call_end|>"
    start = text.find(opening)
    if start < 0:
        return [], ["a closing tag without a call"] if closing in text else []
    place, end, nodes = start + len(opening), start, None
    for _ in range(TRIES):
        end = text.find(closing, max(end, place))
        nodes = None if end < 0 else _python_calls(text[place:end])
        end += len(closing) if end >= 0 else 0
        if end < 0 or nodes is not None:
            break
    if nodes is None:
        return [_broken(text, start, place, closing, "a call that is no list of calls")], []
    if not nodes:
        return [Written(start, end, problem="a call without a function")], []
    reasons = ["text after the last call"] if text[end:].strip(WHITESPACE) else []
    if len(nodes) > MOST:
        reasons.append(f"more than {MOST} calls")
    return [_python_call(node, start, end) for node in nodes[:MOST]], reasons


def _python_calls(source: str) -> list[ast.Call] | None:
    try:
        with warnings.catch_warnings():  # a text with a backslash in it is no matter for our warnings
            warnings.simplefilter("ignore")
            tree = ast.parse(source[:20_000].strip(), mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(tree, ast.List) or not all(isinstance(node, ast.Call) and isinstance(node.func, ast.Name) for node in tree.elts):
        return None
    return tree.elts


def _python_call(node: ast.Call, start: int, end: int) -> Written:
    name = node.func.id
    keys = [keyword.arg for keyword in node.keywords]
    if node.args or None in keys:
        return Written(start, end, name, problem="arguments without names")
    if len(set(keys)) < len(keys):
        return Written(start, end, name, problem="an argument that is given twice")
    try:
        return Written(start, end, name, {keyword.arg: _python_value(keyword.value) for keyword in node.keywords})
    except (ValueError, TypeError, MemoryError, RecursionError):
        return Written(start, end, name, problem="an argument that is no value")


def _python_value(node: ast.expr) -> Any:
    """A literal, in which the names of JSON may stand for those of Python."""
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    if isinstance(node, ast.List):
        return [_python_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {ast.literal_eval(key): _python_value(item) for key, item in zip(node.keys, node.values, strict=True) if key is not None}
    return ast.literal_eval(node)


READERS: dict[str, Reader] = {
    "hermes": hermes, "json": whole_json, "llama": llama, "qwen": qwen, "glm": glm, "gemma": gemma, "lfm": lfm,
}  # fmt: skip
