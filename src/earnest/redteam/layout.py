"""Answers of several parts: a text with slots such as `Answer: {value} {unit}`, filled from a row and read again.

A slot may say how its value is written: a number as Python formats it (`{amount:.2f}`), a list by a sample of two items, each an `n`
(`{sources:[n] [n]}`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from earnest.rewards.json import parse_strict

SLOT = re.compile(r"\{([A-Za-z_][\w. -]*)(?::([^{}]*))?\}")
_ITEM = re.compile(r"(?<![A-Za-z])n(?![A-Za-z])")
LONGEST = 2000  # characters that are read: the pattern may take time that grows with their square
JOINT = "n, n"  # how a list is written where its slot does not say


def slots_of(form: str) -> list[str]:
    """The names of the slots of a form, in order."""
    return [found[1] for found in SLOT.finditer(form)]


def filled(form: str, values: Mapping[str, Any]) -> str:
    """A form with a value in each of its slots."""
    return SLOT.sub(lambda found: _as_text(values.get(found[1]), found[2] or ""), form)


def read(form: str, text: str, thought: str = "") -> dict[str, Any] | None:
    """What stands in the slots of a form in a text; None where the text has another form.

    Args:
        form: With slots.
        text: To read.
        thought: What the form says where reasoning may stand: anything may be there.
    """
    pattern, position, specs = "", 0, []
    for found in SLOT.finditer(form.strip()):
        pattern += _spaced(form.strip()[position : found.start()], thought) + r"(.+?)"
        specs.append((found[1], found[2] or ""))
        position = found.end()
    pattern += _spaced(form.strip()[position:], thought)
    flags = re.DOTALL if any("\n" in spec for _, spec in specs) else 0
    candidates = [text.strip()]
    if not form.strip().startswith(("{", "<", thought or "{")):  # reasoning may stand in front of what opens with a word
        candidates.append("\n".join(text.strip().split("\n")[-len(form.strip().split("\n")) :]))
    found = next((match for one in candidates if len(one) <= LONGEST and (match := re.fullmatch(pattern, one, flags))), None)
    if found is None:
        return None
    values = {name: _value_of(said, spec) for (name, spec), said in zip(specs, found.groups(), strict=True)}
    return values if len({*zip(specs, found.groups(), strict=True)}) == len(values) else None  # one column says one thing


def values_of(form: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What should stand in the slots of a form: lists that are given as JSON as lists."""
    specs = {found[1]: found[2] or "" for found in SLOT.finditer(form)}

    def one(name: str, value: Any) -> Any:
        listed = _ITEM.search(specs.get(name, "")) and isinstance(value, str)
        return found if listed and isinstance(found := parse_strict(value).value, list) else value

    return {name: one(name, value) for name, value in values.items()}


def _as_text(value: Any, spec: str) -> str:
    if _ITEM.search(spec):
        value = parse_strict(value).value if isinstance(value, str) else value
        items = [_plain(item) for item in value] if isinstance(value, (list, tuple)) else [_plain(value)]
        start, between, end = _joint(spec)
        return start + between.join(items) + end
    if isinstance(value, (list, tuple)):
        return _as_text(value, JOINT)
    if spec and isinstance(value, (int, float)) and not isinstance(value, bool):
        return format(value, spec)
    return _plain(value)


def _value_of(text: str, spec: str) -> Any:
    """What stands in a slot; of a list its items."""
    if not _ITEM.search(spec):
        return text.strip()
    start, between, end = (part.strip() for part in _joint(spec))
    inner = text.strip()
    if not (inner.startswith(start) and inner.endswith(end)):
        return text
    inner = inner[len(start) : len(inner) - len(end)]
    pattern = r"\s*".join(map(re.escape, between.split())) if between else r"\s+"
    items = [item.strip() for item in re.split(pattern, inner)]
    return [found if isinstance(found := parse_strict(item).value, (dict, list)) else item for item in items]


def _joint(spec: str) -> tuple[str, str, str]:
    """What stands before the first item of a sample, between two, and behind the last."""
    marks = [found.span() for found in _ITEM.finditer(spec)]
    between = spec[marks[0][1] : marks[1][0]] if len(marks) > 1 else ", "
    return spec[: marks[0][0]], between, spec[marks[-1][1] :]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _spaced(text: str, thought: str) -> str:
    """A pattern for the fixed part of a form: white space may be more, and what is thought may say anything."""
    said = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in (text.split(thought) if thought else [text])]
    return r"[^\n]*?".join(said)
