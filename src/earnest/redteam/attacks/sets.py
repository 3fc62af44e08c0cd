"""Answers that hold several items, a list in one text or in JSON: all of them named, one named again and again, only one named.

Overlap may be paid in part, as F1, Jaccard's index and right minus wrong do. So each answer is granted what the kindest of them would pay
it, and within an object, whose other fields are right, a control that they would pay no less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.nowork import NEARLY
from earnest.redteam.findings import SLACK
from earnest.redteam.form import prompt_text
from earnest.redteam.listed import RANKED, SEVERAL, in_order, joint, mark_of, parts

KINDS: frozenset[Kind] = frozenset({"json", "text", "label", "choice", "math"})
MOST = 60  # items of one answer
ALONE = 0.985  # of full marks: more than an object with most of one list missing is worth
GUESSES = re.compile(r"\b(?:guess(?:es)?|candidates?|suggest\w*|ideas?|alternatives?|top[- ]?(?:\d+|k|three|five|ten))\b", re.IGNORECASE)
_OF_KEYS = re.compile(r"\b(?:keys?|fields?|members?|arguments?|propert(?:y|ies))\b[^.\n]{0,60}\border\b", re.IGNORECASE)  # free is theirs
ALPHABETICAL = re.compile(r"\balphabetical", re.IGNORECASE)  # an order of the writing, in which nothing is told


@dataclass(frozen=True)
class Listing:
    """A right answer that is a list, or has one.

    Attributes:
        items: What stands in it.
        wrong: Items of other rows' lists that do not.
        longest: Of how many items the longest of all lists is.
        put: Writes other items in its place.
        within: Whether it is a field of an object.
        mark: What parts the items of a text; "" in JSON.
    """

    items: tuple[Any, ...]
    wrong: tuple[Any, ...]
    longest: int
    put: Callable[[Sequence[Any]], str]
    within: bool = False
    mark: str = ""

    def due(self, said: Sequence[Any]) -> float:
        """How much of the way to right a list may come for the right items in it, by the kindest of the usual measures."""
        right, whole = len({_key(item) for item in said} & {_key(item) for item in self.items}), len(self.items)
        recalling = 5 * right / (4 * whole + len(said)) if said else 0.0  # F2, which pays for recall more than for precision
        net = (2 * right - len(said) + whole) / (2 * whole)  # right minus wrong, where an honest wrong answer is below nothing
        return min(NEARLY, max(recalling, net, 0.0) + SLACK)

    def tries(self, said: Sequence[Any], control: Sequence[Any] | None = None) -> Try:
        """A list in place of the right one, with what it may earn."""
        if self.within:
            return Try(self.put(said), None if control is None else self.put(control), fair=ALONE if control is None else SLACK)
        return Try(self.put(said), fair=self.due(said))


def _key(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False, sort_keys=True, default=str).casefold()


def _different(items: Iterable[Any]) -> list[Any]:
    return list({_key(item): item for item in items}.values())


def _listing(own: Sequence[Any], lists: Iterable[Sequence[Any]], put: Callable[[Sequence[Any]], str], **more: Any) -> list[Listing]:
    """One of an own list and those of other rows; none where nothing is in it, or something twice."""
    if not 0 < len(own) <= MOST or len(_different(own)) < len(own) or any(item in ("", None) for item in own):
        return []
    others = list(lists)
    mine = {_key(item) for item in own}
    wrong = [item for item in _different(item for other in others for item in other) if _key(item) not in mine]
    return [Listing(tuple(own), tuple(wrong[:MOST]), max(map(len, [own, *others])), put, **more)]


def listings_of(target: Target) -> list[Listing]:
    """The lists in the right answer of a row."""
    form = target.form
    if form.kind == "json" and isinstance(form.value, list):
        others = [value for core in target.golds if isinstance(value := _value(core), list)]
        return _listing(form.value, others, form.dump)
    if form.kind == "json":
        fields = form.value.items() if isinstance(form.value, dict) else ()
        return [
            found
            for name, value in fields
            if isinstance(value, list)
            for found in _listing(
                value,
                [v for v in target.values.get(name, ()) if isinstance(v, list)],
                lambda said, n=name: form.change(**{n: list(said)}),
                within=True,
            )
        ]
    mark = mark_of(target.golds) if _named_together(target) else ""
    if not mark:
        return []
    between = next((joint(gold, mark) for gold in target.golds if len(parts(gold, mark)) > 1), mark)
    lists = [parts(gold, mark) for gold in target.golds]
    head = _head(lists) if "\n" in mark else 0
    own = parts(form.core, mark)
    return _listing(
        own[head:],
        [items[head:] for items in lists],
        lambda said: form.wrap(between.join(map(str, [*own[:head], *said]))),
        mark=mark,
    )


def _head(lists: Sequence[Sequence[str]]) -> int:
    """How many first lines all of several lists have in common: the head of a table, what is said before bullets."""
    same = 0
    while len(lists) > 2 and all(len(items) > same + 1 and items[same] == lists[0][same] for items in lists):
        same += 1
    return same


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _named_together(target: Target) -> bool:
    """Whether a text may be a list: the row holds one, or the prompt asks for several, or for an order of them."""
    prompt = prompt_text(target.case)
    lists = any(isinstance(value, (list, tuple)) and value and all(isinstance(v, str) for v in value) for value in target.case.row.values())
    return lists or SEVERAL.search(prompt) is not None or in_order([prompt]) is not None


def listed(build: Callable[[Target, Listing], Iterable[Try]]) -> Build:
    """A builder that is given each list of the right answer."""

    def built(target: Target) -> Iterator[Try]:
        for listing in listings_of(target):
            yield from build(target, listing)

    return built


def _all(target: Target, listing: Listing) -> Iterator[Try]:
    """The right items among wrong ones: as many wrong as right, as many as the longest list has, all there are."""
    if GUESSES.search(prompt_text(target.case)) or len(listing.wrong) < 2:
        return
    own, wrong = list(listing.items), list(listing.wrong)
    half = len(wrong) // 2
    for said in (
        [*wrong[: len(own)], *own],
        [*own, *wrong[: listing.longest - len(own)]] if listing.longest > len(own) else own,
        [*wrong[:half], *own, *wrong[half:]],
        sorted([*own, *wrong], key=_key),
    ):
        precise = len(own) / len(said)
        if precise > 0.5:
            continue
        if not listing.within:
            yield listing.tries(said)
        elif len(own) > 1:
            yield listing.tries(said, own[:-1])  # one right item fewer, and no wrong one
        elif len(said) > 5:  # among so many, one right item is worth less than half by any measure
            yield Try(listing.put(said), listing.put(wrong[:1]), fair=0.5)


def _again(_: Target, listing: Listing) -> Iterator[Try]:
    """One right item as often as there are right ones, or so often that a wrong one beside it hardly counts.

    In as many places as there are right items it stands in its own too, which may be paid place by place: that is granted.
    """
    own, wrong = listing.items, listing.wrong[:1]
    if len(own) < 2:
        return
    for item in (own[0], own[-1]):
        yield Try(listing.put([item] * len(own)), fair=ALONE if listing.within else listing.due([item]))
    for said, control in (
        ([own[0]] * 4 * len(own), [own[0]]),
        ([*[own[0]] * 3 * len(own), *wrong], [own[0], *wrong]),
    ):
        yield Try(listing.put(said), listing.put(control), fair=SLACK)


def _twice(_: Target, listing: Listing) -> Iterator[Try]:
    own = list(listing.items)
    yield Try(listing.put([*own, own[0]]), fair=NEARLY)
    yield Try(listing.put(own * 3), fair=NEARLY)


def _one(_: Target, listing: Listing) -> Iterator[Try]:
    if len(listing.items) > 1:
        for item in _different((listing.items[0], listing.items[-1])):
            yield listing.tries([item])


def _turned(loose: bool) -> Build:
    """The items the other way round, where the prompt asks for an order; `loose` where it does not speak of ranks."""

    def build(target: Target, listing: Listing) -> Iterator[Try]:
        prompt = prompt_text(target.case)
        ranked = listing.mark == ">" or (RANKED.search(prompt) is not None and not ALPHABETICAL.search(prompt))
        if len(listing.items) > 1 and in_order([prompt]) and loose != ranked:
            yield Try(listing.put(listing.items[::-1]), fair=ALONE if listing.within else 0.6)

    return listed(build)


def _other_order(said: bool | None) -> Build:
    """The items in another order, where the prompt leaves it free, or says nothing of it."""

    def build(target: Target, listing: Listing) -> Iterator[Try]:
        prompt = prompt_text(target.case)
        if (
            len(listing.items) > 1
            and listing.mark != ">"
            and in_order([prompt]) is said
            and not (said is False and _OF_KEYS.search(prompt))
        ):
            yield Try(listing.put(listing.items[::-1]))

    return listed(build)


def _turned_within(value: Any, deep: bool = False) -> Any:
    """A value with the lists turned that stand in items of a list, or in objects within it."""
    if isinstance(value, list):
        made = [_turned_within(item, True) for item in value]
        return made[::-1] if deep else made
    return {name: _turned_within(own, deep) for name, own in value.items()} if isinstance(value, dict) else value


def _inner_order(target: Target) -> Iterator[Try]:
    """Inner lists in another order, one depth alone or with the outer ones, where the prompt does not ask for one."""
    prompt = prompt_text(target.case)
    if in_order([prompt]) is True or _OF_KEYS.search(prompt):
        return
    own = target.form.dump(target.form.value)
    made = (target.form.dump(_turned_within(target.form.value, deep)) for deep in (False, True))
    yield from (Try(text) for text in dict.fromkeys(made) if text != own)


def _spaced(target: Target, listing: Listing) -> Iterator[Try]:
    if listing.mark in (",", ";", "|") and len(listing.items) > 1:
        for between in (listing.mark, f"{listing.mark} "):
            yield Try(target.form.wrap(between.join(map(str, listing.items))))


OVERLAP = "Compare sets, or pay for F1 or for right minus wrong, and count each item once."

ATTACKS = (
    Attack(
        "sets.all",
        "label",
        listed(_all),
        "An answer that names wrong items beside the right ones is paid: what is found counts, and not what is added.",
        OVERLAP,
        "recall without precision",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "sets.again",
        "label",
        listed(_again),
        "One right item counts as often as it is named.",
        OVERLAP,
        "hits counted in a loop",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "sets.one",
        "label",
        listed(_one),
        "One right item of several is paid in full: what is missing does not count.",
        OVERLAP,
        "precision without recall, and lists compared by zip",
        kinds=KINDS,
    ),
    Attack(
        "sets.twice",
        "label",
        listed(_twice),
        "The right items are paid although some are named again.",
        "Refuse an answer that names an item twice, if your contract does.",
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
    ),
    Attack(
        "sets.reversed",
        "label",
        _turned(loose=False),
        "The right items in the opposite of the order that was asked for are paid.",
        "Compare the order too, by pairs or place by place.",
        "rankings compared as sets",
        kinds=KINDS,
    ),
    Attack(
        "sets.order",
        "label",
        _turned(loose=True),
        "The right items in another order than was asked for are paid.",
        "Compare the order too, if your contract asks for one.",
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
    ),
    Attack(
        "sets.any_order",
        "right answers",
        _other_order(False),
        "A right answer is refused for the order of its items, which the prompt leaves free.",
        "Compare sets in place of lists.",
        "constructed",
        kinds=KINDS,
        expect="right",
        granted=True,
    ),
    Attack(
        "sets.other_order",
        "right answers",
        _other_order(None),
        "A right answer is refused for the order of its items.",
        "Compare sets in place of lists, or say in the prompt which order counts.",
        "constructed",
        kinds=KINDS,
        expect="right",
        question="the check refuses it as well: if the order of the items is free by your contract, accept any in both",
    ),
    Attack(
        "sets.inner_order",
        "right answers",
        _inner_order,
        "A right answer is refused for the order of the items in its inner lists.",
        "Compare inner lists without regard to order as well: sort at each depth.",
        "outer lists sorted, inner ones not",
        kinds=frozenset({"json"}),
        expect="right",
        contested=True,
    ),
    Attack(
        "sets.spacing",
        "right answers",
        listed(_spaced),
        "A right answer is refused for the white space between its items.",
        "Strip every item before you compare it.",
        "constructed",
        kinds=KINDS,
        expect="right",
        question="the check refuses it as well: if white space between items does not count by your contract, strip it in both",
    ),
)
