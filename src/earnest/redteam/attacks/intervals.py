"""Intervals and inequalities whose ends are turned: a round bracket for a square one, < for ≤."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.nearly import FULL
from earnest.redteam.attacks.pieces import widest_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "math", "json"})
LONGEST = 300
_NUMBER = r"[-+−]?(?:\d[\d./]*|\\infty|inf(?:inity)?|oo|∞|\\[dt]?frac\{\d+\}\{\d+\})"
_INTERVAL = re.compile(rf"(?P<left>[\[(])\s*(?P<low>{_NUMBER})\s*[,;]\s*(?P<high>{_NUMBER})\s*(?P<right>[\])])", re.IGNORECASE)
_SIGNS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "≤": "<", "≥": ">", "\\leq": "<", "\\geq": ">", "\\le": "<", "\\ge": ">"}
_SIGN = re.compile(r"(?<![<>=])(?:<=|>=|<(?!/?\w+>)|>|≤|≥|\\leq?(?![a-z])|\\geq?(?![a-z]))(?![<>=])")
_BOUNDS = re.compile(
    r"\b(?:interval|inequalit|end ?points?|half[- ]open|inclusive|exclusive|solution set|domain|(?:square|round) bracket|parenthes[ie]s)",
    re.IGNORECASE,
)
_TURNED = {"[": "(", "(": "[", "]": ")", ")": "]"}
Turn = tuple[int, int, str]


def _turns(text: str) -> list[Turn]:
    """Where an end of a set of numbers stands in or out of it, and what says the opposite; infinity never stands in."""
    found: list[Turn] = []
    for piece in _INTERVAL.finditer(text):
        for bracket, number in (("left", "low"), ("right", "high")):
            if piece[number][-1:].isdigit() or piece[number].endswith("}"):
                found.append((*piece.span(bracket), _TURNED[piece[bracket]]))
    if not found and re.search(r"\d", text):
        found = [(*sign.span(), _SIGNS[sign[0]]) for sign in _SIGN.finditer(text)]
    return found[:6]


def _opposite(text: str, turns: Sequence[Turn]) -> str:
    for start, end, new in sorted(turns, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _told(texts: Sequence[str]) -> bool:
    """Whether right answers have ends of both sorts, so that which one it is says something."""
    ends = {new in "[]" or "=" in new for text in texts for _, _, new in _turns(text)}
    return len(ends) > 1


def _ends(told: bool) -> Build:
    """Each end turned, then all of them; `told` where the right answers themselves show that it matters."""

    def build(target: Target) -> Iterator[Try]:
        for piece in widest_of(target):
            text = piece.text
            turns = _turns(text) if len(text) <= LONGEST else []
            if turns and _told([text, *piece.seen[:60]]) == told and (told or _BOUNDS.search(target.prompt)):
                made = [_opposite(text, [turn]) for turn in turns] + [_opposite(text, turns)]
                yield from (Try(piece.put(said), fair=FULL) for said in dict.fromkeys(made))

    return build


ATTACKS = tuple(
    Attack(
        f"interval.{name}",
        "number",
        _ends(told),
        "An interval or inequality is paid in full although an end of it stands in where it should be out, or the other way about.",
        "Compare the ends and their brackets too, or try the set at its ends and not only between them.",
        "sets tried at points between whole numbers",
        wrong="contract",
        kinds=KINDS,
        contested=not told,
        measured=True,
    )
    for name, told in (("ends", True), ("ends_untold", False))
)
