"""Strict JSON: the whole answer is one value, or it is nothing.

Python's own decoder is lenient where a model gains by it: it takes NaN, lets the last of two equal keys win, turns 1e999 into
infinity, and raises something other than a decoding error on deep nesting and on very long integers. Here each of these is a
reason to refuse, and no text whatsoever raises.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

WHITESPACE = " \t\n\r"  # what JSON allows around a value; str.strip() would also take a no-break space

# A string (closed or not, so that brackets inside it are skipped) or one bracket.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True)
class Parsed:
    """The value of a text, or why it has none.

    Attributes:
        value: The decoded value; None when refused (and for the JSON value null: ask `reason`).
        reason: "" when the text is good, else why it was refused.
    """

    value: Any
    reason: str


class _RefusedError(ValueError):
    """Carries the reason out of the decoder's hooks."""


def parse_strict(text: str, max_characters: int = 20_000, max_depth: int = 32) -> Parsed:
    """Decode a text that must be exactly one JSON value.

    Refused: anything before or after the value except JSON's whitespace, a key twice in one object at any depth, NaN and
    Infinity, numbers beyond the range of a double, lone surrogates, more than `max_characters` or `max_depth`.

    Args:
        text: What the model wrote.
        max_characters: Longest text that is looked at.
        max_depth: Most brackets that may be open at once.

    Returns:
        The value and "", or None and a short reason. Types are kept apart: true is no 1, "1" is no 1, 1.0 is a float.
    """
    if len(text) > max_characters:
        return Parsed(None, "too long")
    if _depth(text) > max_depth:
        return Parsed(None, "too deep")
    body = text.strip(WHITESPACE)
    try:
        value, end = _DECODER.raw_decode(body)
    except _RefusedError as error:
        return Parsed(None, str(error))
    except ValueError:
        return Parsed(None, "not JSON")
    except RecursionError:  # only where a caller allows more depth than the interpreter has
        return Parsed(None, "too deep")
    if end < len(body):
        return Parsed(None, "text after the value")
    if _has_lone_surrogate(value):
        return Parsed(None, "lone surrogate")
    return Parsed(value, "")


def _depth(text: str) -> int:
    """The most brackets open at once, without recursion and before anything is decoded."""
    deepest = depth = 0
    for token in _STRING_OR_BRACKET.findall(text):
        if token in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in "]}":
            depth -= 1
    return deepest


def _has_lone_surrogate(value: Any) -> bool:
    """Whether some string is no Unicode text, and would break whoever writes it to a file."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise _RefusedError(f"duplicate key {key[:40]}".encode("utf-8", "backslashreplace").decode())
        members[key] = value
    return members


def _constant(name: str) -> NoReturn:
    raise _RefusedError("not JSON (NaN/Infinity)")


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _RefusedError("number too large")
    return value


def _int(digits: str) -> int:
    _float(digits)  # refuses what no double holds; it also spares int() the digits it would raise on
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int)
