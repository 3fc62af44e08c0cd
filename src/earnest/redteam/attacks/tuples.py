"""Answers of several numbers, such as points, ranges and lists: one of them wrong, one left out, two exchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.dates import moment_of
from earnest.redteam.attacks.numerals import numeral_of
from earnest.redteam.attacks.slots import HALF, Slot, slot_of
from earnest.redteam.findings import SLACK
from earnest.redteam.terms import term_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "math"})
MOST = 6  # numbers of an answer

_NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:\.\d+)?(?![\w.]*\d)")
_BETWEEN = re.compile(r"(?<![^\W\d_])(?:to|and|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?|weeks?)(?![^\W\d_])")
_RANGE = re.compile(r"\d+ ?-\s?\d+")  # which reads like a difference too
_PARTED = re.compile(r"[-−+]?\d+(?:\.\d+)?(?:\s*[,;]\s*[-−+]?\d+(?:\.\d+)?){1,5}")
_INTERVAL = re.compile(r"\b(?:interval|range|domain|solution set)", re.IGNORECASE)
_POINT = re.compile(r"point|pair|coordinate|vertex|\(x, ?y", re.IGNORECASE)


def numbers_of(text: str) -> list[re.Match[str]]:
    """The numbers of a text that is made of several and no other words; none where it is something else."""
    found = list(_NUMBER.finditer(text))
    plain = not re.search(r"[^\W\d_]{2,}", _BETWEEN.sub("", text)) and not any(c in text for c in "/^+*\\%$")
    other = numeral_of(text) or moment_of(text) or (term_of(text) and not _RANGE.fullmatch(text))
    return found if plain and 2 <= len(found) <= MOST and not other else []


def _several(target: Target) -> tuple[Slot, list[re.Match[str]]] | None:
    slot = slot_of(target)
    found = numbers_of(slot.gold) if slot else []
    return (slot, found) if slot and found else None


def _with(text: str, found: re.Match[str], new: str) -> str:
    return text[: found.start()] + new + text[found.end() :]


def _one_wrong(target: Target) -> Iterator[Try]:
    place = _several(target)
    if place is None:
        return
    slot, found = place
    fair = max(HALF, 1 - 1 / len(found) + SLACK)  # the others are right, and this one may be near: paid in full it must not be
    for one in found:
        changed = re.sub(r"[1-9]", lambda digit: str((int(digit.group()) + 3) % 9 + 1), one.group(), count=1)
        changed = changed if changed != one.group() else f"7{changed}"
        yield from (replace(made, fair=max(made.fair, fair)) for made in slot.fill([_with(slot.gold, one, changed)]))


def _sign(target: Target) -> Iterator[Try]:
    """Of a point, or of numbers parted by commas, one with the other sign."""
    place = _several(target)
    if place is None or not (place[0].gold.startswith(("(", "[")) or _PARTED.fullmatch(place[0].gold)):
        return
    slot, found = place
    fair = 1 - 1 / len(found) + SLACK
    for one in found:
        text = one.group()
        other = text.lstrip("-−") if text[0] in "-−" else f"-{text}"
        if float(text.replace("−", "-")):
            yield from (replace(made, fair=max(made.fair, fair)) for made in slot.fill([_with(slot.gold, one, other)]))


def _exchanged(target: Target) -> Iterator[Try]:
    """The first and the last in each other's place, of points and intervals: elsewhere the order need not count."""
    place = _several(target)
    point = place is not None and re.fullmatch(r"\(.*\)", place[0].gold) and _POINT.search(target.prompt)
    interval = place is not None and re.fullmatch(r"[\[(\]][^,;]+[,;][^,;]+[\])\[]", place[0].gold) and _INTERVAL.search(target.prompt)
    if place is None or not (point or interval):
        return
    slot, (first, *_, last) = place
    if first.group() != last.group():
        text = _with(_with(slot.gold, last, first.group()), first, last.group())
        yield from (replace(made, fair=max(made.fair, 0.5 + SLACK)) for made in slot.fill([text]))


ALL_OF_THEM = "Read all numbers of the answer, and compare each with the one that belongs in its place."

ATTACKS = tuple(
    Attack(f"tuple.{name}", "number", build, flaw, ALL_OF_THEM, "constructed", kinds=KINDS)
    for name, build, flaw in (
        ("one_wrong", _one_wrong, "An answer of several numbers is paid in full, although one of them is another."),
        ("sign", _sign, "A point or a list of numbers is paid with the wrong sign of one of them."),
        ("exchanged", _exchanged, "A point or an interval is paid with its two numbers in each other's place."),
    )
)
