"""Length: what an answer cost to write, as a small term beside being right.

Length alone says nothing of an answer. These verifiers are made to be `shaped` terms of `compose`, where they pay only when the answer is
right and never more than their small share; alone, a short wrong answer would do well by them.

Everything the model wrote counts: thinking, tool calls, and turns before the last. What the environment wrote does not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, Literal, get_args

from earnest.errors import UserError
from earnest.rewards.verifier import Attempt, Score, Verifier
from earnest.task import Row

Unit = Literal["tokens", "characters", "words", "turns", "calls"]

LONGEST_WORD = 20  # characters; what has no space in it for longer counts as several words


def length(
    free: int, most: int, *, unit: Unit = "tokens", cap: int | None = None, stops: Collection[int] = (), name: str = "length"
) -> Verifier:
    """Full marks up to `free` units, nothing from `most` on, a straight line between.

        value(n) = min(1, max(0, (most - n) / (most - free)))

    Args:
        free: Units that cost nothing: what a right answer needs.
        most: Units from which nothing is paid. For tokens, `max_completion_length` or less.
        unit: What is counted. "tokens" are the sampled ids, with thinking and the end of the turn; where none were kept, as in
            `earnest check`, words stand in for them, of which no answer has more than tokens. "characters" and "words" count all that the
            model wrote; a run of more than 20 characters without a space is several words. "turns" are the model's messages, "calls" its
            tool calls, equal ones too.
        cap: Tokens at which sampling is cut off (`max_completion_length`). An attempt of that many earns nothing, whatever the unit:
            not to end is no way to be short.
        stops: Token ids that end a turn; an attempt whose last id is one of them was not cut off, also at the cap.
        name: As it appears in metrics.

    Raises:
        UserError: `free` is negative or not below `most`, or the unit is unknown.
    """
    if not 0 <= free < most:
        raise UserError(f"length(free={free}, most={most}): give 0 <= free < most, both in {unit}.")
    ends = _ends(name, unit, cap, stops)

    def judge(attempt: Attempt, row: Row) -> Score:
        count, counted = _count(attempt, unit)
        if not ends(attempt):
            return Score(0.0, reasons=("cut off at the cap",), evidence={counted: count})
        value = min(1.0, max(0.0, (most - count) / (most - free)))
        return Score(value, reasons=(f"{count} {counted}, {free} are free",) if value < 1 else (), evidence={counted: count})

    return Verifier(name, judge)


def target_length(
    target: int,
    width: float | None = None,
    *,
    unit: Unit = "tokens",
    cap: int | None = None,
    stops: Collection[int] = (),
    name: str = "target_length",
) -> Verifier:
    """Full marks at the target, less the farther an answer is from it, on both sides.

        value(n) = width / (width + |n - target|)

    It falls without end, so that of two answers the nearer one always earns more, and stays within (0, 1].

    Args:
        target: Units wanted.
        width: Distance at which half is left; the target itself when None.
        unit: As for `length`.
        cap: As for `length`.
        stops: As for `length`.
        name: As it appears in metrics.

    Raises:
        UserError: The target or the width is not above 0, or the unit is unknown.
    """
    half = target if width is None else width
    if not (target > 0 and 0 < half < float("inf")):
        raise UserError(f"target_length(target={target}, width={width}): give numbers above 0, in {unit}.")
    ends = _ends(name, unit, cap, stops)

    def judge(attempt: Attempt, row: Row) -> Score:
        count, counted = _count(attempt, unit)
        if not ends(attempt):
            return Score(0.0, reasons=("cut off at the cap",), evidence={counted: count})
        value = half / (half + abs(count - target))
        return Score(value, reasons=(f"{count} {counted}, {target} are wanted",) if value < 1 else (), evidence={counted: count})

    return Verifier(name, judge)


def no_repetition(n: int = 6, *, allowed: float = 0.5, name: str = "no_repetition") -> Verifier:
    """Full marks unless the model goes round in circles; fit to be a gate.

        repeated = 1 - different n-grams / n-grams
        value = 1 up to the share that is allowed, then (1 - repeated) / (1 - allowed)

    The n-grams are of sampled token ids; where none were kept, of 4n characters of all that the model wrote. A loop of any period brings
    the share of repeated ones near 1, a paragraph said twice brings it to about a half.

    Args:
        n: Tokens of an n-gram. What has no two of them repeats nothing.
        allowed: Share that may be repeats: tables, code and lists of objects say the same thing again for a reason.
        name: As it appears in metrics.

    Raises:
        UserError: `n` is below 1 or `allowed` is not in [0, 1).
    """
    if n < 1 or not 0 <= allowed < 1:
        raise UserError(f"no_repetition(n={n}, allowed={allowed}): give n of at least 1 and a share from 0 up to, not including, 1.")

    def judge(attempt: Attempt, row: Row) -> Score:
        things: Any = attempt.ids
        size = n
        if not things:
            things, size = "\n".join(_written(attempt)), 4 * n
        grams = len(things) - size + 1
        if grams < 2:
            return Score(1.0, evidence={"repeated": 0.0})
        repeated = 1 - len({things[i : i + size] for i in range(grams)}) / grams
        value = min(1.0, (1 - repeated) / (1 - allowed))
        return Score(value, reasons=("goes round in circles",) if value < 1 else (), evidence={"repeated": round(repeated, 4)})

    return Verifier(name, judge)


def _ends(name: str, unit: str, cap: int | None, stops: Collection[int]) -> Any:
    """Whether an attempt came to its own end."""
    if unit not in get_args(Unit):
        raise UserError(f"{name}(unit={unit!r}): the units are {', '.join(get_args(Unit))}.")
    if cap is not None and cap < 1:
        raise UserError(f"{name}(cap={cap}): give the tokens at which sampling is cut off, or leave it out.")
    last = frozenset(stops)
    return lambda attempt: cap is None or len(attempt.ids) < cap or (len(attempt.ids) == cap and attempt.ids[-1] in last)


def _count(attempt: Attempt, unit: Unit) -> tuple[int, str]:
    """How much there is of a unit, and the unit that was really counted."""
    turns = [message for message in attempt.messages if message.get("role") == "assistant"]
    if unit == "tokens" and attempt.ids:
        return len(attempt.ids), unit
    if unit == "turns":
        return len(turns), unit
    if unit == "calls":
        return sum(len(_calls(message)) for message in turns), unit
    if unit == "characters":
        return sum(map(len, _written(attempt))), unit
    return sum(-(-len(word) // LONGEST_WORD) for text in _written(attempt) for word in text.split()), "words"


def _written(attempt: Attempt) -> Iterator[str]:
    """Every text that the model wrote: thinking, contents, the names and arguments of its calls."""
    for message in attempt.messages:
        if message.get("role") != "assistant":
            continue
        for part in (message.get("reasoning_content"), message.get("content")):
            if isinstance(part, str):
                yield part
            elif part:
                yield json.dumps(part, ensure_ascii=False, default=repr)
        for call in _calls(message):
            yield json.dumps(call, ensure_ascii=False, default=repr)


def _calls(message: Any) -> list[Any]:
    calls = message.get("tool_calls")
    return list(calls) if isinstance(calls, (list, tuple)) else []
