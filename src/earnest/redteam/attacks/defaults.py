"""Optional arguments whose default the prompt states: said where the right call leaves them out, left out where it says them.

Whether a tool does the same then, the task's check knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from earnest.redteam.attack import Attack, Target, Try
from earnest.redteam.attacks.tools import CALLS, MOST
from earnest.redteam.attacks.trajectory import calls, changed, foreign, right

_NAME = r"[\"'`*]*(?P<name>[A-Za-z_]\w{0,40})[\"'`*]*"
_VALUE = r"[\"'`*]*(?P<value>-?\d{1,9}(?:\.\d{1,6})?|[A-Za-z_][\w-]{0,40})"
_STATED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NAME},? (?:has (?:the|a) default(?: value)?(?: of)?|defaults to|(?:is|are) by default|by default (?:is|are)) {_VALUE}",
        rf"{_NAME},? (?:which )?(?:is|are) {_VALUE}[\"'`*]*,? (?:by default|unless|if (?:it is )?(?:left out|omitted|not given|missing))",
        rf"\bdefault (?:value )?(?:of|for) (?:the )?(?:argument |parameter )?{_NAME}(?: argument| parameter)? is {_VALUE}",
        rf"{_NAME}(?:: ?\w+)? ?\([^()\n]{{0,40}}\bdefault(?:s to|:| is|=)? ?{_VALUE}",
        rf"{_NAME}(?:: ?\w+)? ?= ?{_VALUE}",
        rf"(?:without|leave out|omit)[^.\n]{{0,20}} {_NAME},?[^.\n]{{0,30}} (?:means?|uses?|takes?|counts as) {_VALUE}",
    )
)


def stated(prompt: str) -> Mapping[str, tuple[Any, ...]]:
    """By name of an argument, the defaults that a prompt may mean: a number or truth as such and, as any other, as the text it is."""
    found: dict[str, tuple[Any, ...]] = {}
    for pattern in _STATED:
        for one in pattern.finditer(prompt):
            found[one["name"]] = (*found.get(one["name"], ()), *_values(one["value"]))
    return found


def _values(text: str) -> tuple[Any, ...]:
    try:
        return (json.loads(text.lower()), text)
    except ValueError:
        return (text,)


def _alike(value: Any, known: list[Any]) -> bool:
    """Whether a value is of the type that the argument has elsewhere; a text of the same case, where nothing is known of it."""
    return all(type(value) is type(other) for other in known)


def _said(target: Target) -> Iterator[Try]:
    own, defaults = right(target), stated(target.prompt)
    if not defaults:
        return
    made = calls(own)
    every = [*made, *foreign(target)]
    for call in made[:MOST]:
        known = {name for other in every if other.name == call.name for name in other.arguments} or set(call.arguments)
        anywhere = {name for other in every for name in other.arguments}
        for name, values in list(defaults.items())[:MOST]:
            if name in call.arguments:
                if any(call.arguments[name] == value and type(call.arguments[name]) is type(value) for value in values):
                    yield Try(changed(own, call, arguments={key: v for key, v in call.arguments.items() if key != name}))
            elif name in known or name in anywhere or re.search(rf"\b(?:argument|parameter|option)s? [\"'`*]*{name}\b", target.prompt):
                seen = [other.arguments[name] for other in every if name in other.arguments]
                for value in [value for value in values if _alike(value, seen)][:1]:
                    yield Try(changed(own, call, arguments={**call.arguments, name: value}))


def _in_json(target: Target) -> Iterator[Try]:
    """Of a call that is written as JSON, in its object or in one within it."""
    value, defaults = target.form.value, stated(target.prompt)
    if not isinstance(value, dict):
        return
    for place in (None, *(name for name, own in value.items() if isinstance(own, dict))):
        own = value if place is None else value[place]
        for name, values in list(defaults.items())[:MOST]:
            made = {key: v for key, v in own.items() if key != name}
            if name not in own and any(f'"{name}"' in gold for gold in target.golds):
                made[name] = values[0]
            if name in made or (name in own and own[name] in values):
                yield Try(target.form.dump(made if place is None else {**value, place: made}))


ATTACKS = (
    Attack(
        "tool.default",
        "right answers",
        lambda target: _in_json(target) if target.form.kind == "json" else _said(target),
        "A right call is refused because it says an argument's stated default, or leaves it out.",
        "Fill in the defaults of both calls before you compare them.",
        "arguments compared as they stand",
        kinds=CALLS | {"json"},
        expect="right",
        contested=True,
    ),
)
