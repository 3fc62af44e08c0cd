"""Strict JSON: the whole answer is one value, or it is nothing.

Python's own decoder is lenient where a model gains by it: it takes NaN, lets the last of two equal keys win, turns 1e999 into
infinity, and raises something other than a decoding error on deep nesting and on very long integers. Here each of these is a
reason to refuse, and no text whatsoever raises.

`json_format` is a gate: it says that an answer has the form, and nothing about whether it is right. `json_answer` compares the
content with the row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from earnest.errors import UserError
from earnest.rewards.text import shown
from earnest.rewards.values import Gold, equal
from earnest.rewards.verifier import Attempt, Score, Verifier, invalid_task, right, wrong
from earnest.task import Row

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


def json_format(
    schema: Mapping[str, Any] | None = None,
    *,
    fence: bool = False,
    name: str = "json_format",
    max_characters: int = 20_000,
    max_depth: int = 32,
) -> Verifier:
    """The whole answer is one JSON value of a given form. A gate: it must not be paid for, since form says nothing about content.

    Rule: 1.0 when `parse_strict` decodes the answer and the JSON Schema holds, else 0.0. null, "", {} and [] are refused whatever
    the schema says: the empty answer has every form that forgot to demand something. true and false are never numbers; 1.0 is an
    integer, as JSON Schema has it since draft 6. `format` is checked, `pattern` is matched in linear time (no look-around).

    Args:
        schema: A JSON Schema (draft 2020-12 unless its `$schema` says otherwise); None for any value. References must stay inside it.
        fence: Whether the value may also stand in one Markdown code fence that is the whole answer.
        name: Name in metrics.
        max_characters: Longest answer that is looked at.
        max_depth: Most brackets that may be open at once.

    Returns:
        A verifier.

    Raises:
        UserError: The schema is no JSON Schema, or refers to something outside.
    """
    read = _reader(schema, fence, max_characters, max_depth)

    def judge(attempt: Attempt, row: Row) -> Score:
        value, refused = read(attempt.text)
        if refused is None and value in (None, "", {}, []):
            return wrong("an empty value")
        return refused or right(answer=value)

    return Verifier(name, judge)


def json_answer(
    gold: str | Gold | None = None,
    *,
    fields: Mapping[str, str | Gold] | Sequence[str] | None = None,
    schema: Mapping[str, Any] | None = None,
    partial: bool | Mapping[str, float] = False,
    extra: bool = False,
    fence: bool = False,
    name: str = "json",
    max_characters: int = 20_000,
    max_depth: int = 32,
) -> Verifier:
    """The whole answer is one JSON value that equals what the row holds.

    Rule: 0.0 unless `parse_strict` decodes the answer and the schema, if any, holds. Then 1.0 when the value equals the gold value of one
    column (`gold`), or when it is an object of exactly the given fields and each equals the gold value of its own column (`fields`), else
    0.0. What is equal, `Gold` says. With `partial`, an object of exactly the right fields gets the share of those that are right.

    Args:
        gold: Column with the whole value, by name or as `Gold`. "answer" where neither `gold` nor `fields` is given.
        fields: Fields of the answer and their columns; names alone where both are called the same.
        schema: A JSON Schema as in `json_format`, which must hold too. It pays nothing by itself.
        partial: Whether single fields pay: True for equal shares, or a weight for each field. With `gold`, the fields are those of the
            gold object.
        extra: Whether the answer may have fields beside the given ones. They are not looked at.
        fence: Whether the value may also stand in one Markdown code fence that is the whole answer.
        name: Name in metrics.
        max_characters: Longest answer that is looked at.
        max_depth: Most brackets that may be open at once.

    Returns:
        A verifier.

    Raises:
        UserError: Options that contradict each other, or an unusable schema.
    """
    whole, parts = _golds(gold, fields)
    by_field = bool(parts) or partial is not False
    if whole and whole.any_of and by_field:
        raise UserError("partial needs one gold object, but any_of allows several. Leave one of them out, or name the fields.")
    if extra and not by_field:
        raise UserError("extra=True says which fields may be more than the gold, so it needs fields= or partial=.")
    weights = dict(partial) if isinstance(partial, Mapping) else {}
    if not all(_is_weight(weight) for weight in weights.values()) or (parts and weights and set(weights) != set(parts)):
        raise UserError(f"partial={partial!r} must be True or give every field of {list(parts) or 'the gold'} a number above 0.")
    read = _reader(schema, fence, max_characters, max_depth)

    def judge(attempt: Attempt, row: Row) -> Score:
        rules = parts or {"": whole}
        golds = {field: _right_values(row, rule) for field, rule in rules.items()}
        if broken := [rules[field].column for field, values in golds.items() if not values]:
            return invalid_task(f"'{broken[0]}' holds no usable JSON value")
        if whole and by_field:
            members = golds[""][0]
            if not isinstance(members, dict) or not members or (weights and set(weights) != set(members)):
                return invalid_task(f"'{whole.column}' is no object with the fields to compare")
            rules, golds = dict.fromkeys(members, whole), {field: [member] for field, member in members.items()}
        value, refused = read(attempt.text)
        if refused is not None:
            return refused
        if by_field:
            return _by_field(value, golds, rules, weights, bool(partial), extra)
        good = any(equal(value, one, whole) for one in golds[""])
        return right(answer=value) if good else wrong("another value", answer=value)

    columns = dict.fromkeys(rule.column for rule in [whole, *parts.values()] if rule)
    return Verifier(name, judge, columns=tuple(columns))


def _by_field(
    value: Any, golds: Mapping[str, list[Any]], rules: Mapping[str, Gold], weights: Mapping[str, float], partial: bool, extra: bool
) -> Score:
    """The score of an object that must have the given fields: all right or, in part, the share that is."""
    if not isinstance(value, dict):
        return wrong("not an object", answer=value)
    if lacking := [field for field in rules if field not in value]:
        return wrong(f"no field {shown(lacking[0], 40)}", answer=value)
    if not extra and len(value) > len(rules):
        return wrong("a field too many", answer=value)
    good = {field: any(equal(value[field], one, rules[field]) for one in golds[field]) for field in rules}
    if all(good.values()):
        return right(answer=value, fields=good)
    weight = {field: weights.get(field, 1.0) for field in rules}
    share = sum(weight[field] for field in rules if good[field]) / sum(weight.values())
    reason = f"wrong: {', '.join(shown(field, 40) for field in rules if not good[field])}"
    return Score(share if partial else 0.0, reasons=(reason,), evidence={"answer": value, "fields": good})


def _golds(gold: str | Gold | None, fields: Mapping[str, str | Gold] | Sequence[str] | None) -> tuple[Gold | None, dict[str, Gold]]:
    """The rule for the whole value or, if there are fields, one for each."""
    if fields is None:
        gold = "answer" if gold is None else gold
        return (gold if isinstance(gold, Gold) else Gold(gold)), {}
    if gold is not None:
        raise UserError("Give gold= for the whole value or fields= for each field, not both.")
    named = fields if isinstance(fields, Mapping) else {field: field for field in ([fields] if isinstance(fields, str) else fields)}
    if not named:
        raise UserError("fields= names no field, so that every object would be right.")
    return None, {field: rule if isinstance(rule, Gold) else Gold(rule) for field, rule in named.items()}


def _is_weight(weight: Any) -> bool:
    return isinstance(weight, (int, float)) and not isinstance(weight, bool) and 0 < weight < math.inf


MAX_DEPTH = 100  # values are compared recursively
MAX_LOOSE_BAG = 4_000  # characters of a gold value whose lists are compared without order and with a tolerance: every pair is looked at


def _right_values(row: Row, gold: Gold) -> list[Any]:
    """The values that are right for a row, as a JSON decoder would give them; none where the column holds something else."""
    value = row.get(gold.column)
    if gold.text:
        parsed = parse_strict(value, max_characters=10**6, max_depth=100) if isinstance(value, str) else Parsed(None, "not text")
        if parsed.reason:
            return []
        value = parsed.value
    try:
        written = json.dumps(value, allow_nan=False)
        value = json.loads(written)
    except (TypeError, ValueError, RecursionError):
        return []
    if gold.unordered and (gold.tolerance or gold.relative) and len(written) > MAX_LOOSE_BAG:
        return []
    return value if gold.any_of and isinstance(value, list) else [value]


def _reader(
    schema: Mapping[str, Any] | None, fence: bool, max_characters: int, max_depth: int
) -> Callable[[str], tuple[Any, Score | None]]:
    """A function from a text to its value, or to the score that refuses it."""
    if max_depth > MAX_DEPTH:
        raise UserError(f"max_depth={max_depth} is more than the {MAX_DEPTH} that values are compared to. Set a lower one.")
    check = None if schema is None else compiled_schema(schema)

    def read(text: str) -> tuple[Any, Score | None]:
        fenced = _FENCE.fullmatch(text.strip(WHITESPACE)) if fence and len(text) <= max_characters else None
        parsed = parse_strict(fenced[1] if fenced else text, max_characters, max_depth)
        if parsed.reason:
            several = parsed.reason in ("not JSON", "text after the value") and _holds_two(text)
            return None, wrong("ambiguous: more than one JSON value" if several else parsed.reason, answer=shown(text))
        if check is None or check.is_valid(parsed.value):
            return parsed.value, None
        errors = [(error.kind.name, "/".join(map(str, error.instance_path))) for error in check.iter_errors(parsed.value)]
        keyword, place = errors[0] if errors else ("false", "")
        return None, wrong(f"breaks the schema: {keyword}", answer=parsed.value, at=shown(place))

    return read


# From the first line to the last. That it is one fence only, the decoder says: no string of JSON holds a raw line break.
_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


def _holds_two(text: str, tries: int = 20) -> bool:
    """Whether two objects or lists can be read in a text. Only for the reason given: the text is refused either way."""
    found = position = 0
    for _ in range(tries):
        start = min((at for at in (text.find("{", position), text.find("[", position)) if at >= 0), default=-1)
        if start < 0:
            break
        try:
            position = _DECODER.raw_decode(text, start)[1]
            found += 1
        except (ValueError, RecursionError):
            position = start + 1
    return found > 1


def compiled_schema(schema: Mapping[str, Any], unknown_formats: bool = False) -> Any:
    """A validator that reads nothing from outside the schema and matches patterns in linear time; booleans are no numbers.

    Args:
        schema: A JSON Schema.
        unknown_formats: Whether a `format` that nobody knows is ignored, rather than an error.

    Raises:
        UserError: What was given is no JSON Schema.
    """
    import jsonschema_rs

    if not isinstance(schema, Mapping):
        raise UserError(f"The JSON Schema is a {type(schema).__name__}. Give it as a dict.")
    try:
        return jsonschema_rs.validator_for(
            dict(schema),
            validate_formats=True,
            ignore_unknown_formats=unknown_formats,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except ValueError as error:
        raise UserError(f"The JSON Schema cannot be used: {' '.join(str(error).split())[:300]}. Mend the schema.") from error
