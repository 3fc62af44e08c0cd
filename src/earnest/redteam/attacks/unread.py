"""A label that cannot be read, where the reward counts whatever it cannot read as one of two labels.

On the rows whose right label that one is, worthless text in the label's place earns what the label does. The rest of the answer stays
right, so only full marks count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.nearly import FULL

KINDS: frozenset[Kind] = frozenset({"json", "text", "label", "choice"})
FEWEST, MOST = 2, 4  # different labels in one place over all rows
PLACES = 6
LONGEST = 4_000
JUNK = ("xyz", "", "I cannot tell", "...", "0", "I'm sorry, but I can't help with that.")
# A line "Name: word", a line of one word, a pair of tags around a word: its key and where the word stands.
_PLACE = re.compile(
    r"^(?P<lead>(?:[-*] )?(?:\*\*)?[^\W\d_][\w ]{0,30}(?:\*\*)?[:=](?:\*\*)?[ \t]*)"
    r"(?P<led>[^\W\d_][\w-]{0,20}(?: [\w-]{1,20})?)[.!]?[ \t]*$"
    r"|^(?P<line>[^\W\d_][\w-]{0,20})[.!]?[ \t]*$"
    r"|<(?P<tag>\w{1,30})>\s*(?P<tagged>[^\W\d_][\w-]{0,20})\s*</(?P=tag)>",
    re.MULTILINE,
)
Place = tuple[str, str, Callable[[str], str]]


def _places(text: str) -> Iterator[Place]:
    """Words of a text that may be labels: what their place is called, the word, and what writes another in it."""
    for at, found in enumerate(_PLACE.finditer(text)):
        name = next(group for group in ("led", "line", "tagged") if found[group])
        start, end = found.span(name)
        yield found["lead"] or found["tag"] or f"line {at}", found[name], lambda new, s=start, e=end: text[:s] + new + text[e:]


def _labels(seen: Sequence[Any]) -> bool:
    """Whether what stands in one place over all rows is one of a few labels, each but one seen twice or more."""
    texts = [str(value).casefold() for value in seen]
    counts = sorted(texts.count(text) for text in set(texts))
    return FEWEST <= len(counts) <= MOST and (len(texts) < 4 or counts[-1] > 1)


def _of_text(target: Target) -> Iterator[Try]:
    others: dict[str, list[str]] = {}
    for answer in target.answers:
        for key, word, _ in _places(str(answer)) if len(str(answer)) <= LONGEST else ():
            others.setdefault(key, []).append(word)
    if target.form.kind in ("label", "choice"):
        yield from (Try(target.form.wrap(junk), fair=FULL) for junk in JUNK)
    text = str(target.case.oracle)
    for key, word, put in list(_places(text))[:PLACES] if len(text) <= LONGEST else ():
        if _labels([word, *others.get(key, ())]):
            yield from (Try(put(junk), fair=FULL) for junk in JUNK)


def _of_json(target: Target) -> Iterator[Try]:
    value = target.form.value
    for name, own in list(value.items())[: 2 * PLACES] if isinstance(value, dict) else ():
        if isinstance(own, (str, bool)) and (isinstance(own, bool) or (len(own) <= 40 and _labels(target.values.get(name, ())))):
            yield from (Try(target.form.change(**{name: junk}), fair=FULL) for junk in (*JUNK, None, [], {}))


def _unread(target: Target) -> Iterator[Try]:
    yield from _of_json(target) if target.form.kind == "json" else _of_text(target)


ATTACKS = (
    Attack(
        "unread.label",
        "label",
        _unread,
        "Worthless text in place of a label is paid in full: what cannot be read counts as one of the labels.",
        "Demand that the label is one of those there are, and pay nothing where it is not.",
        "`said == 'true'` compared with the gold",
        wrong="contract",
        kinds=KINDS,
        contested=True,
        measured=True,
    ),
)
