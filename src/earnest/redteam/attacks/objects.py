"""JSON objects with something wrong in one field, or in those that nobody may look at.

The other fields stay right, and the control is the same object with a wrong value of the right type in that field: partial credit by fields
pays both alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from earnest.redteam.attack import Target, Try
from earnest.redteam.findings import SLACK
from earnest.redteam.form import forms_of

MOST_FIELDS = 8  # of an object that are attacked


def fields(target: Target) -> list[str]:
    """The fields to attack, the main one first; none where the answer is no object."""
    if not isinstance(target.form.value, dict):
        return []
    return sorted(target.form.value, key=lambda name: name != target.label_field)[:MOST_FIELDS]


def dumped(value: Any) -> str:
    """As the attacks write it."""
    return json.dumps(value, ensure_ascii=False)


def written(target: Target, pairs: Iterable[tuple[str, str]]) -> str:
    """An object in the wrapping, of names and raw text of values, which need not be JSON; names may repeat."""
    return target.form.wrap("{" + ", ".join(f"{dumped(name)}: {text}" for name, text in pairs) + "}")


def with_raw(target: Target, value: Mapping[str, Any], changed: Mapping[str, str]) -> str:
    """An object with raw text in the place of some values."""
    return written(target, [(name, changed.get(name) or dumped(one)) for name, one in value.items()])


def another(target: Target, name: str) -> Any:
    """A wrong value for a field, of the right type."""
    own = target.form.value[name]
    others = [v for v in target.values.get(name, ()) if v != own and str(v) not in target.accepted]
    seen = [v for v in others if type(v) is type(own)] or [v for v in others if own is None]  # a field that may be null
    if seen:
        return seen[0]
    if isinstance(own, bool):
        return not own
    if isinstance(own, (int, float)):
        return own + 1117
    return "nothing at all" if isinstance(own, str) else ["nothing at all"] if isinstance(own, list) else {} if own else None


def wrong_object(target: Target) -> dict[str, Any] | None:
    """The first honest wrong answer that is an object with the right fields."""
    for answer in target.wrongs:
        value = forms_of([replace(target.case, oracle=answer)])[0].value if isinstance(answer, str) else None
        if isinstance(value, dict) and isinstance(target.form.value, dict) and value.keys() == target.form.value.keys():
            return value
    return None


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, or would be to Python (1 and true)."""
    return a == b or dumped(a) == dumped(b)


def matched(answer: str, control: str) -> Try:
    """An answer and its control; what is right in both makes no reward suspicious."""
    return Try(answer, control, fair=SLACK)


def unsaid(target: Target, answer: str, control: str) -> Try:
    """An answer that says nothing in one field, and its control, which says something wrong there.

    A wrong value costs precision as well as recall. By F1 over k values, one fewer is worth (k - 1) / (k (2k - 1)) more than one wrong,
    which is less than half of a field.
    """
    said = sum(value not in (None, "", [], {}) for value in target.form.value.values())
    return Try(answer, control, fair=max(SLACK, 0.5 / max(said, 1)))


def each_field(choose: Callable[[Any], Iterable[Any]], raw: bool = False) -> Callable[[Target], Iterator[Try]]:
    """The right object with one field changed, for each field and each value chosen by what it holds."""

    def build(target: Target) -> Iterator[Try]:
        for name in fields(target):
            control = target.form.change(**{name: another(target, name)})
            for value in choose(target.form.value[name]):
                answer = with_raw(target, target.form.value, {name: value if raw else dumped(value)})
                yield unsaid(target, answer, control) if value in (None, "", [], {}) else matched(answer, control)

    return build


def wrong_types(own: Any) -> Iterator[Any]:
    """Values of other types, none of which could stand for this one."""
    if own in (None, "", [], {}):  # nothing in another writing may well count as nothing
        return
    for value in (None, {}, [], [[]], "", 0, -1, {"a": {"b": []}}, "x" * 300):
        alike = type(value) is type(own) or same(value, own) or str(value) == str(own)
        if not alike and not (is_number(own) and is_number(value)):
            yield value


def is_number(value: Any) -> bool:
    """Whether JSON holds it a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal_in_python(own: Any) -> list[Any]:
    """What Python holds equal though JSON does not: 1 and true, 0 and false."""
    return [int(own)] if isinstance(own, bool) else [bool(own)] if isinstance(own, (int, float)) and own in (0, 1) else []


def as_other_type(own: Any) -> Iterator[Any]:
    """The right value as text, in a list, as a number."""
    if isinstance(own, bool):
        yield from (str(own), str(own).lower(), "yes" if own else "no")
    elif isinstance(own, (int, float)):
        yield from (str(own), f" {own} ", f"{own} apples", [own])
    elif isinstance(own, str):
        yield from ([own], {"value": own}, {own: True}, [[own]])
        if own.strip("-").isdecimal() and own.isascii():
            yield int(own)


def renamed(target: Target) -> Iterator[Try]:
    """The right object with the name of one field written otherwise."""
    for name in fields(target):
        control = target.form.change(**{name: another(target, name)})
        for other in dict.fromkeys((name.upper(), name.capitalize(), f"{name} ", f"{name}s")):
            if other not in target.form.value:
                yield matched(target.form.dump({other if k == name else k: v for k, v in target.form.value.items()}), control)


def missing(target: Target) -> Iterator[Try]:
    """The right object without one field."""
    for name in fields(target) if len(fields(target)) > 1 else ():
        control = target.form.change(**{name: another(target, name)})
        yield unsaid(target, target.form.dump({k: v for k, v in target.form.value.items() if k != name}), control)


def only_main(target: Target) -> Iterator[Try]:
    """The main field, right, and no other."""
    if len(fields(target)) > 1:
        main = fields(target)[0]
        yield matched(target.form.dump({main: target.form.value[main]}), _main_alone_right(target))


def _main_alone_right(target: Target) -> str:
    return target.form.change(**{name: another(target, name) for name in fields(target)[1:]})


def beside(choose: Callable[[Target, str], Iterable[str]]) -> Callable[[Target], Iterator[Try]]:
    """The main field right and the others, one at a time and all, with raw values chosen for each by its name."""

    def build(target: Target) -> Iterator[Try]:
        others, value = fields(target)[1:], target.form.value
        chosen = {name: list(choose(target, name)) for name in others}
        for name in others:
            control = target.form.change(**{name: another(target, name)})
            yield from (matched(with_raw(target, value, {name: raw}), control) for raw in chosen[name])
        if len(others) > 1:
            for turn in range(max(map(len, chosen.values()))):
                all_of_them = {name: raws[turn % len(raws)] for name, raws in chosen.items() if raws}
                control = target.form.change(**{name: another(target, name) for name in all_of_them})  # as much of it right
                yield matched(with_raw(target, value, all_of_them), control)

    return build


def junk(target: Target, name: str) -> list[str]:
    """Raw values of types that the field has on no row."""
    own = target.form.value[name]
    usual = {type(v) for v in (own, *target.values.get(name, ()))} - {list, dict}  # an empty one may be of another type yet
    usual |= {int, float} if usual & {int, float} else set()
    return [dumped(v) for v in (None, "", [], 12, "qzx", {"a": 1}) if not same(v, own) and type(v) not in usual]


def unseen(target: Target, name: str) -> list[str]:
    """Raw values of the same type that no row has."""
    own = target.form.value[name]
    if isinstance(own, bool) or not isinstance(own, (str, int, float)):
        return []
    return ['""', '"qzx vjk"'] if isinstance(own, str) else ["-987654321", "1e300"]


def number_forms(target: Target) -> Iterator[str]:
    """Whole numbers as floats, and floats that are whole without their dot: the same numbers in JSON Schema. All, and each by itself."""
    value = target.form.value
    if isinstance(value, dict):
        other = {name: float(v) if type(v) is int else int(v) for name, v in value.items() if _whole(v)}
        if other:
            yield target.form.dump({**value, **other})
        for name, one in other.items() if len(other) > 1 else ():
            yield target.form.dump({**value, name: one})


def _whole(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 2**53 and value == int(value)


def turned(value: Any) -> Any:
    """A value with the fields of all its objects the other way round."""
    if isinstance(value, dict):
        return {name: turned(one) for name, one in reversed(value.items())}
    return [turned(one) for one in value] if isinstance(value, list) else value
