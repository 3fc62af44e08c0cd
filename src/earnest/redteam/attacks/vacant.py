"""The right frame with a list in it left empty: `all()` over no items is true, and nothing is wrong with what is not there.

What else stands in the answer is right and may be paid in part, so only full marks count; and whether a list may be empty is for the
task's check to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.nearly import FULL

KINDS: frozenset[Kind] = frozenset({"json", "text", "label", "choice", "number", "math"})
MOST = 8  # lists of one answer
LONGEST = 4_000  # characters of an answer that is taken apart
_ITEM = re.compile(r"[ \t]*(?:[-*•+]|\(?\d{1,3}[.):]|\[\d{1,3}\]:?|\|)[ \t]*\S")
_RULE = re.compile(r"\s*\|?[\s:|-]*-[\s:|-]*\Z")
_CITED = re.compile(r"[ \t]?\[\d{1,3}(?:, ?\d{1,3})*\]|[ \t]?\(\d{1,3}\)")
_TWINS = re.compile(r"(?:<(\w{1,40})>[^<>]*</\1>\s*){1,60}")


def _items(lines: list[str]) -> list[bool]:
    """Which lines are items of lists, the head of a table and the rule beneath it not."""
    items = [_ITEM.match(line) is not None and not _RULE.match(line) for line in lines]
    for at, line in enumerate(lines):
        ruled = _RULE.match(line) is not None
        if "|" in line and (ruled or (line.lstrip()[:1] == "|" and not (at and "|" in lines[at - 1]))):  # the head of a table
            items[at] = False
    return items


def _blocks(items: list[bool]) -> list[range]:
    """The runs of items that stand together."""
    starts = [at for at, item in enumerate(items) if item and not (at and items[at - 1])]
    return [range(at, next((end for end in range(at, len(items)) if not items[end]), len(items))) for at in starts]


def _without(lines: list[str], gone: set[int]) -> str:
    return "\n".join(line for at, line in enumerate(lines) if at not in gone)


def _lines(target: Target) -> Iterator[str]:
    """The headings and what leads to a list, its items left out: all of them, or those of one list."""
    text = str(target.case.oracle)
    lines = text.split("\n")
    blocks = _blocks(_items(lines))
    every = {at for block in blocks for at in block}
    if len(every) < len([line for line in lines if line.strip()]):
        yield _without(lines, every)
        for block in blocks[:MOST] if len(blocks) > 1 else ():
            yield _without(lines, set(block))
    if not every and len(lines) > 2:  # rows under a head, without marks
        yield lines[0]
    yield "\n".join(_CITED.sub("", line) if not _CITED.fullmatch(line.strip()) else line for line in lines)
    yield _CITED.sub("", text)


def _sections(target: Target) -> Iterator[str]:
    """One section after the other with its heading alone, then all."""
    lines = str(target.case.oracle).split("\n")
    heads = [at for at, line in enumerate(lines) if re.match(r"#{1,6} |\*\*[^*]+\*\*:?\s*\Z|[A-Z][\w ]{0,40}:\s*\Z", line)]
    bodies = [set(range(at + 1, end)) for at, end in pairwise([*heads, len(lines)])]
    for body in bodies[:MOST]:
        yield _without(lines, body)
    yield _without(lines, set().union(*bodies))


def _tags(target: Target) -> Iterator[str]:
    """A pair of tags that holds pairs of one name, those left out."""
    text = str(target.case.oracle)
    for found in list(_TWINS.finditer(text))[:MOST]:
        if re.search(r">\s*\Z", text[: found.start()]) and re.match(r"</", text[found.end() :]):
            yield text[: found.start()] + text[found.end() :]


def _hollowed(value: Any) -> Iterator[Any]:
    """A value with one of its lists empty, then with all that stand in an object."""
    if isinstance(value, list):
        if value:
            yield []
        for at, item in enumerate(value[:MOST]):
            yield from ([*value[:at], made, *value[at + 1 :]] for made in _hollowed(item))
    elif isinstance(value, dict):
        for name, own in value.items():
            yield from ({**value, name: made} for made in _hollowed(own))
            if isinstance(own, dict) and own:
                yield {**value, name: {}}
            elif isinstance(own, str) and re.search(r"\S[,;]\s*\S|\n", own):
                yield {**value, name: ""}
        if sum(isinstance(own, list) and bool(own) for own in value.values()) > 1:
            yield {name: [] if isinstance(own, list) else own for name, own in value.items()}


def _empty(target: Target) -> Iterator[Try]:
    text = str(target.case.oracle)
    if len(text) > LONGEST:
        return
    if target.form.kind == "json":
        made = [target.form.dump(value) for _, value in zip(range(3 * MOST), _hollowed(target.form.value), strict=False)]
    else:
        made = [*_lines(target), *_sections(target), *_tags(target)]
    for said in dict.fromkeys(made):
        if said.split() != text.split():
            yield Try(said, fair=FULL)


ATTACKS = (
    Attack(
        "vacant.list",
        "no work",
        _empty,
        "The right frame is paid in full with nothing in its list: `all()` over no items is true.",
        "Demand at least one item, or as many as the right answer has, before you look at each.",
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
        measured=True,
    ),
)
