"""Changes to answers that are data: JSON values and their text, and the calls of a trajectory."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from earnest.redteam.attack import Target
from earnest.redteam.form import Kind
from earnest.redteam.mutate import Change, Draft, Make, changed_text, core
from earnest.rewards.json import parse_strict
from earnest.task import Message

ODD = (None, True, False, 0, 1, -1, "", [], {}, 1e308, 10**30, "null", "0", "true", "any")
BARE = ("NaN", "Infinity", "-Infinity", "1e999", "-0", "1.0", "0x1")
_HOLE = "\ue000"  # stands where bare text goes

Path = tuple[Any, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value in a value that holds no others, with its place."""
    if isinstance(value, Mapping) and value:
        for name, member in value.items():
            yield from leaves(member, (*path, name))
    elif isinstance(value, list) and value:
        for index, member in enumerate(value):
            yield from leaves(member, (*path, index))
    else:
        yield path, value


def put(value: Any, path: Path, new: Any) -> Any:
    """A copy with one place changed."""
    if not path:
        return new
    made = copy.copy(value)
    made[path[0]] = put(value[path[0]], path[1:], new)
    return made


def _some(rng: Random, them: Sequence[Any]) -> Any:
    """One of them, the same fraction of the way whatever their number."""
    return them[int(rng.random() * len(them))]


MakeValue = Callable[[Any, Target, Random], Any]
NOTHING = object()


def _value(make: MakeValue) -> Make:
    """A change of the value of a core that is JSON."""

    def text(asserted: str, target: Target, rng: Random) -> str | None:
        parsed = parse_strict(asserted)
        if parsed.reason:
            return None
        made = make(parsed.value, target, rng)
        return None if made is NOTHING else json.dumps(made, ensure_ascii=False)

    return core(text)


def _leaf_odd(value: Any, _: Target, rng: Random) -> Any:
    path, _own = _some(rng, list(leaves(value)))
    return put(value, path, rng.choice(ODD))


def _leaf_wrapped(value: Any, _: Target, rng: Random) -> Any:
    path, own = _some(rng, list(leaves(value)))
    return put(value, path, rng.choice(([own], {"value": own}, [own, own], str(own), [own, None])))


def _leaf_other(value: Any, target: Target, rng: Random) -> Any:
    path, own = _some(rng, list(leaves(value)))
    seen = [other for other in target.values.get(path[0], ()) if other != own] if path else []
    if not seen or len(path) > 1:
        return NOTHING
    return put(value, path, _some(rng, seen))


def _leaf_all(value: Any, target: Target, rng: Random) -> Any:
    path, _own = _some(rng, list(leaves(value)))
    seen = list(target.values.get(path[0], ()))[:20] if path else []
    if len(seen) < 2 or len(path) > 1:
        return NOTHING
    return put(value, path, rng.choice((seen, " or ".join(map(str, seen)), ", ".join(map(str, seen)))))


def _leaf_text(value: Any, target: Target, rng: Random) -> Any:
    path, own = _some(rng, list(leaves(value)))
    return put(value, path, changed_text(str(own), target, rng))


def _holders(value: Any, kind: type, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, kind):
        yield path, value
    for name, member in value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ():
        yield from _holders(member, kind, (*path, name))


def _member(make: Callable[[dict[str, Any], str, Random], dict[str, Any]]) -> MakeValue:
    """A change of one member of one object, at any depth."""

    def changed(value: Any, _: Target, rng: Random) -> Any:
        objects = [(path, held) for path, held in _holders(value, dict) if held]
        if not objects:
            return NOTHING
        path, held = _some(rng, objects)
        return put(value, path, make(held, _some(rng, list(held)), rng))

    return changed


def _without(held: dict[str, Any], name: str, _: Random) -> dict[str, Any]:
    return {k: v for k, v in held.items() if k != name}


def _renamed(held: dict[str, Any], name: str, rng: Random) -> dict[str, Any]:
    new = rng.choice((name.upper(), name + " ", name.replace("_", ""), "x"))
    return {new if k == name else k: v for k, v in held.items()}


def _added(held: dict[str, Any], name: str, rng: Random) -> dict[str, Any]:
    return {**held, rng.choice(("answer", "score", "correct", name + "_2", "")): held[name]}


def _list(value: Any, target: Target, rng: Random) -> Any:
    """A list with an element less, twice, strange, or in another order."""
    lists = [(path, held) for path, held in _holders(value, list) if held]
    if not lists:
        return NOTHING
    path, held = _some(rng, lists)
    at = int(rng.random() * len(held))
    ways = (held[:at] + held[at + 1 :], [*held, held[at]], held * 5, held[::-1], [*held, rng.choice(ODD)], [held], held[:1])
    return put(value, path, rng.choice(ways))


def _whole(value: Any, target: Target, rng: Random) -> Any:
    """The value within another."""
    others = [parse_strict(gold).value for gold in target.golds[1:6]]
    ways = [[value], {"answer": value}, [value, value], [value, *others], [*others, value], {}, []]
    return _some(rng, ways)


# JSON's text


def _twice(text: str, target: Target, rng: Random) -> str | None:
    """A key twice, the second time with another value."""
    parsed = parse_strict(text)
    if parsed.reason or not isinstance(parsed.value, dict) or not parsed.value:
        return None
    name, own = _some(rng, list(parsed.value.items()))
    seen = [other for other in target.values.get(name, ()) if other != own] or [None]
    extra = f"{json.dumps(name)}: {json.dumps(_some(rng, seen), ensure_ascii=False)}"
    inner = text.strip()[1:-1]
    return f"{{{extra}, {inner}}}" if rng.random() < 0.5 else f"{{{inner}, {extra}}}"


def _bare(text: str, target: Target, rng: Random) -> str | None:
    parsed = parse_strict(text)
    if parsed.reason:
        return None
    path, _own = _some(rng, list(leaves(parsed.value)))
    return json.dumps(put(parsed.value, path, _HOLE), ensure_ascii=False).replace(f'"{_HOLE}"', rng.choice(BARE))


def _loose(text: str, _: Target, rng: Random) -> str | None:
    """What lenient parsers forgive."""
    stripped = text.strip()
    if stripped[-1:] not in ("}", "]"):
        return None
    return rng.choice(
        (
            f"{stripped[:-1]},{stripped[-1]}",
            stripped.replace('"', "'"),
            f"{stripped[:-1]} /* sure */ {stripped[-1]}",
            stripped[:-1],
            f"{stripped}{stripped[-1]}",
            stripped.replace('"', ""),
            f'{stripped} {{"answer": 0}}',
        )
    )


# calls


def turns_of(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages by turn: what the model says, and what its tools answer to that."""
    turns: list[list[Message]] = []
    for message in messages:
        if message.get("role") == "tool" and turns:
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


MakeTurns = Callable[[list[list[Message]], Target, Random], list[list[Message]] | None]


def _turns(make: MakeTurns) -> Make:
    def changed(draft: Draft, target: Target, rng: Random) -> Draft | None:
        if not draft.messages or len(draft.messages) > 200:
            return None
        made = make(turns_of(copy.deepcopy(draft.messages)), target, rng)
        messages = None if made is None else tuple(message for turn in made for message in turn)
        return None if not messages or messages == draft.messages else replace(draft, messages=messages)

    return changed


def _calling(turns: Sequence[list[Message]]) -> list[int]:
    return [index for index, turn in enumerate(turns) if turn[0].get("tool_calls")]


def _drop_turn(turns: list[list[Message]], _: Target, rng: Random) -> list[list[Message]] | None:
    at = int(rng.random() * len(turns))
    return turns[:at] + turns[at + 1 :] if len(turns) > 1 else None


def _repeat_turn(turns: list[list[Message]], _: Target, rng: Random) -> list[list[Message]] | None:
    calling = _calling(turns)
    if not calling:
        return None
    at = _some(rng, calling)
    return [*turns[: at + 1], *(copy.deepcopy(turns[at]) for _ in range(rng.choice((1, 3, 19)))), *turns[at + 1 :]]


def _order(turns: list[list[Message]], _: Target, rng: Random) -> list[list[Message]] | None:
    calling = _calling(turns)
    if len(calling) < 2:
        return None
    first = int(rng.random() * (len(calling) - 1))
    a, b = calling[first], calling[first + 1] if rng.random() < 0.7 else calling[-1]
    turns[a], turns[b] = turns[b], turns[a]
    return turns


def _splice(turns: list[list[Message]], target: Target, rng: Random) -> list[list[Message]] | None:
    """A call of another row's answer, or its last message."""
    others = [answer for answer in target.answers if isinstance(answer, list)]
    if not others:
        return None
    theirs = turns_of(copy.deepcopy(_some(rng, others)))
    calling = _calling(theirs)
    if rng.random() < 0.25 or not calling:
        return turns[:-1] + theirs[-1:]
    at = int(rng.random() * (len(turns) + 1))
    return [*turns[:at], theirs[_some(rng, calling)], *turns[at:]]


def _mutate_call(turns: list[list[Message]], target: Target, rng: Random, change: Callable[[dict[str, Any]], None]) -> None:
    at = _calling(turns)
    call = _some(rng, _some(rng, [turns[i][0]["tool_calls"] for i in at]))
    change(call.get("function", call))


def _arguments(turns: list[list[Message]], target: Target, rng: Random) -> list[list[Message]] | None:
    if not _calling(turns):
        return None

    def change(function: dict[str, Any]) -> None:
        given = function.get("arguments")
        value = parse_strict(given).value if isinstance(given, str) else given
        if not isinstance(value, dict) or not value:
            function["arguments"] = {}
            return
        made = rng.choice((_leaf_odd, _leaf_text, _leaf_wrapped, _member(_without), _member(_added)))(value, target, rng)
        function["arguments"] = json.dumps(made) if isinstance(given, str) else made

    _mutate_call(turns, target, rng, change)
    return turns


def _rename(turns: list[list[Message]], target: Target, rng: Random) -> list[list[Message]] | None:
    if not _calling(turns):
        return None

    def change(function: dict[str, Any]) -> None:
        name = str(function.get("name"))
        function["name"] = rng.choice((name.upper(), f"{name}_all", name.split("_")[0], "noop", f"un{name}"))

    _mutate_call(turns, target, rng, change)
    return turns


def _last_words(turns: list[list[Message]], target: Target, rng: Random) -> list[list[Message]] | None:
    said = [turn[0] for turn in turns if turn[0].get("role") == "assistant" and isinstance(turn[0].get("content"), str)]
    if not said:
        return None
    text = said[-1]["content"]
    said[-1]["content"] = rng.choice(("", "Done.", changed_text(text, target, rng), changed_text(text, target, rng), f"{text} {text}"))
    return turns


def _calls_said(turns: list[list[Message]], _: Target, rng: Random) -> list[list[Message]] | None:
    """Calls told of and not made."""
    calling = _calling(turns)
    if not calling:
        return None
    told = json.dumps([turns[i][0]["tool_calls"] for i in calling], default=repr)[:3000]
    return [
        *(turn for i, turn in enumerate(turns) if i not in calling),
        [{"role": "assistant", "content": f"<tool_call>{told}</tool_call>"}],
    ]


_JSON: frozenset[Kind] = frozenset({"json"})
_CALLS: frozenset[Kind] = frozenset({"calls"})

DATA_CHANGES: Sequence[Change] = (
    Change("odd-value", "a value of another type", _value(_leaf_odd), _JSON),
    Change("wrapped-value", "a value within a list or object", _value(_leaf_wrapped), _JSON),
    Change("other-value", "a value of another row", _value(_leaf_other), _JSON),
    Change("all-values", "every value at once", _value(_leaf_all), _JSON),
    Change("text-value", "a changed text in a field", _value(_leaf_text), _JSON),
    Change("drop-key", "a key left out", _value(_member(_without)), _JSON),
    Change("rename-key", "a key with another name", _value(_member(_renamed)), _JSON),
    Change("extra-key", "a key that nobody asked for", _value(_member(_added)), _JSON),
    Change("one-key", "one key alone", _value(_member(lambda held, name, _: {name: held[name]})), _JSON),
    Change("list", "a list with an element more, less or elsewhere", _value(_list), _JSON),
    Change("whole", "the whole within a list or object", _value(_whole), _JSON),
    Change("twice", "a key twice", core(_twice), _JSON),
    Change("bare", "NaN, Infinity or the like", core(_bare), _JSON),
    Change("loose", "text that only lenient parsers take for JSON", core(_loose), _JSON),
    Change("drop-turn", "a turn left out", _turns(_drop_turn), _CALLS),
    Change("repeat-call", "a call repeated", _turns(_repeat_turn), _CALLS),
    Change("order", "calls in another order", _turns(_order), _CALLS),
    Change("splice", "a call of another row", _turns(_splice), _CALLS),
    Change("arguments", "other arguments", _turns(_arguments), _CALLS),
    Change("rename", "another tool's name", _turns(_rename), _CALLS),
    Change("last-words", "another last message", _turns(_last_words), _CALLS),
    Change("told", "calls told of and not made", _turns(_calls_said), _CALLS),
)
