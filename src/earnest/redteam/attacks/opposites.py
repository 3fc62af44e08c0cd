"""A right answer with words turned to their opposites: a debit for a credit, up for down; and tags of its lines exchanged.

Rewards that compare sizes, names or sets of words lose which way round they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.nearly import FULL
from earnest.redteam.attacks.pieces import pieces_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "number", "math", "json"})
LONGEST = 2_000
TURNS = 4  # words of an answer that are turned one at a time
_PAIRS = """
    dr/cr debit/credit debits/credits debited/credited buy/sell bought/sold north/south east/west left/right before/after increase/decrease
    increases/decreases increased/decreased rise/fall up/down above/below higher/lower greater/less more/fewer min/max minimum/maximum
    asc/desc ascending/descending add/remove allow/deny grant/revoke open/close enable/disable enabled/disabled true/false yes/no first/last
    win/lose won/lost am/pm pass/fail passed/failed accept/reject accepted/rejected approve/reject approved/rejected import/export
    income/expense
    inflow/outflow incoming/outgoing inbound/outbound source/target sender/receiver positive/negative plus/minus push/pull hot/cold
    start/stop long/short upload/download encrypt/decrypt include/exclude included/excluded early/late clockwise/anticlockwise
    odd/even upgrade/downgrade deposit/withdrawal gain/loss profit/loss arrival/departure
"""
_TURNED: dict[str, str] = {}
for _pair in _PAIRS.split():
    _one, _other = _pair.split("/")
    _TURNED.setdefault(_one, _other)
    _TURNED.setdefault(_other, _one)
_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(_TURNED)})(?![\w-])", re.IGNORECASE)
_SIDE = r"\S[^\n]{0,80}?"
_WORDS = "|".join(_TURNED)
_OPPOSED = re.compile(
    rf"(?P<first>\b(?P<a>{_WORDS})\b[ :]{{1,2}})(?P<one>{_SIDE})"
    rf"(?P<between>\s?[/,;|\n]\s?(?P<b>{_WORDS})\b[ :]{{1,2}})(?P<other>\S[^\n,;|]{{0,80}})",
    re.IGNORECASE,
)
_FROM_TO = re.compile(
    rf"(?P<first>\b(?P<a>from) )(?P<one>{_SIDE})(?P<between>,? (?P<b>to) )(?P<other>[^\s,.;][^\n,.;]{{0,40}})", re.IGNORECASE
)
_ARROW = re.compile(
    r"(?P<first>(?<![^\s,;]))(?P<one>[^\s,;>-][^\n,;>]{0,40}?)(?P<between> ?(?:->|→|=>) ?)(?P<other>[^\s,;>][^\n,;>]{0,40})"
)
_TAG = re.compile(r"^[ \t]*([A-Za-z]{1,12})(?=[ \t:])", re.MULTILINE)


def _turn(word: str) -> str:
    """The opposite, with the capitals of the word."""
    other = _TURNED[word.lower()]
    return other.upper() if word.isupper() else other.capitalize() if word[0].isupper() else other


def _opposite(target: Target) -> Iterator[Try]:
    """Every such word turned, and one at a time."""
    for piece in pieces_of(target, around=True):
        text = piece.text
        found = list(_WORD.finditer(text)) if len(text) <= LONGEST else []
        if not found or _WORD.fullmatch(text):  # an answer of one word is another label
            continue
        yield Try(piece.put(_WORD.sub(lambda one: _turn(one[0]), text)), fair=FULL)
        for one in found[:TURNS] if len(found) > 1 else ():
            yield Try(piece.put(text[: one.start()] + _turn(one[0]) + text[one.end() :]), fair=FULL)


def _sides(target: Target) -> Iterator[Try]:
    """What stands on both sides of an arrow, behind `from` and `to`, or behind two opposites, exchanged."""
    for piece in pieces_of(target, around=True):
        for pattern in (_OPPOSED, _FROM_TO, _ARROW):
            found = pattern.search(piece.text) if len(piece.text) <= LONGEST else None
            if found and found["one"].strip() != found["other"].strip() and _opposed(found):
                said = f"{found['first']}{found['other']}{found['between']}{found['one']}"
                yield Try(piece.put(piece.text[: found.start()] + said + piece.text[found.end() :]), fair=FULL)
                break


def _opposed(found: re.Match[str]) -> bool:
    """Whether the words in front of the two sides are opposites, where words stand there."""
    words = found.groupdict()
    return "b" not in words or _TURNED.get(words["a"].lower()) == words["b"].lower() or words["a"].lower() == "from"


def _tags(target: Target) -> Iterator[Try]:
    """The first words of lines, of two sorts, exchanged for one another."""
    for piece in pieces_of(target, around=True):
        text = piece.text
        tags = list(dict.fromkeys(_TAG.findall(text))) if len(text) <= LONGEST else []
        if len(tags) == 2 and _TURNED.get(tags[0].lower()) != tags[1].lower():
            other = {tags[0]: tags[1], tags[1]: tags[0]}
            said = _TAG.sub(lambda one, other=other: one[0][: one.start(1) - one.start()] + other[one[1]], text)
            if sorted(said.split("\n")) != sorted(text.split("\n")):
                yield Try(piece.put(said), fair=FULL)


BOTH = "Compare the words that tell the direction too, or a sign made of them, and not only sizes and names."

ATTACKS = (
    Attack(
        "opposite.words",
        "words",
        _opposite,
        "An answer that says the opposite is paid in full: which way round it was is lost before the comparison.",
        BOTH,
        "amounts compared without their sides",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "opposite.sides",
        "words",
        _sides,
        "An answer is paid in full with its two sides exchanged: where from for where to, a debit for a credit.",
        BOTH,
        "postings sorted before they are compared",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "opposite.tags",
        "words",
        _tags,
        "An answer is paid in full with the tags of its lines exchanged.",
        BOTH,
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
        measured=True,
    ),
)
