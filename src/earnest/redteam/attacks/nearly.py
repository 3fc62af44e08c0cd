"""Lists with one thing wrong in them: an item left out, in another's place, beside the right ones, two neighbours exchanged.

Such a list may be paid in part, and nearly in full where it is long, so only full marks count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from earnest.redteam.attack import Attack, Build, Target, Try
from earnest.redteam.attacks.sets import GUESSES, KINDS, Listing, listed
from earnest.redteam.form import prompt_text
from earnest.redteam.listed import in_order

MOST = 12  # items of the longest list that is tried
FULL = 0.999  # of full marks: any measure takes more than that away for one thing wrong, be it in one field of several


def _nearly(said: Callable[[list[Any], list[Any]], Iterable[list[Any]]]) -> Build:
    """Lists made of the right items and of wrong ones, each with one thing wrong in it."""

    def build(_: Target, listing: Listing) -> Iterator[Try]:
        own = list(listing.items)
        if 2 < len(own) <= MOST:
            yield from (Try(listing.put(made), fair=FULL) for made in said(own, list(listing.wrong)))

    return listed(build)


def _short(own: list[Any], _: list[Any]) -> Iterator[list[Any]]:
    for at in dict.fromkeys((0, len(own) // 2)):
        yield own[:at] + own[at + 1 :]


def _last_off(own: list[Any], _: list[Any]) -> Iterator[list[Any]]:
    yield own[:-1]


def _replaced(own: list[Any], wrong: list[Any]) -> Iterator[list[Any]]:
    for other in (*wrong[:1], own[1]):
        yield [other, *own[1:]]
    for other in (*wrong[:1], own[0]):
        yield [*own[:-1], other]


def _added(target: Target, listing: Listing) -> Iterator[Try]:
    own, wrong = list(listing.items), listing.wrong[:1]
    if wrong and 2 < len(own) <= MOST and not GUESSES.search(prompt_text(target.case)):
        yield from (Try(listing.put(said), fair=FULL) for said in ([*own, *wrong], [*wrong, *own]))


def _exchanged(target: Target, listing: Listing) -> Iterator[Try]:
    """Two neighbours in each other's place, where an order is asked for."""
    own = list(listing.items)
    if 2 < len(own) <= MOST and in_order([prompt_text(target.case)]):
        for at in dict.fromkeys((0, (len(own) - 1) // 2, len(own) - 2)):
            yield Try(listing.put([*own[:at], own[at + 1], own[at], *own[at + 2 :]]), fair=FULL)


WHOLE = "Demand each item once and no other, then compare place by place, or by one declared measure that weighs what is missing."

ATTACKS = (
    Attack(
        "sets.left_out",
        "label",
        _nearly(_short),
        "A list is paid in full although a right item is left out of it: the place of what is missing, -1, counts as one.",
        WHOLE,
        "`str.find` in rankings",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "sets.last_off",
        "label",
        _nearly(_last_off),
        "A list is paid in full although its last item is left out: lists are compared up to where the shorter one ends.",
        WHOLE,
        "`zip`",
        wrong="contract",
        kinds=KINDS,
        contested=True,
        measured=True,
    ),
    Attack(
        "sets.replaced",
        "label",
        _nearly(_replaced),
        "A list is paid in full although a wrong item, or another right one again, stands in place of a right one.",
        WHOLE,
        "places that are looked up item by item",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "sets.added",
        "label",
        listed(_added),
        "A list is paid in full although a wrong item was added to the right ones.",
        WHOLE,
        "`zip`, and recall alone",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "sets.exchanged",
        "label",
        listed(_exchanged),
        "A list is paid in full although two neighbours have changed places in the order that was asked for.",
        WHOLE,
        "rankings of which only one end is read",
        wrong="contract",
        kinds=KINDS,
        contested=True,
        measured=True,
    ),
)
