"""Texts under rules: words that must be in them, and words that must not.

A text that breaks one rule may be paid for keeping the others, so only full marks count; and whether a rule is broken is for the
task's check to say, which knows what the rule is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.counting import MOST
from earnest.redteam.attacks.nearly import FULL
from earnest.redteam.attacks.nowork import says
from earnest.redteam.attacks.pieces import Piece, widest_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "choice", "number", "json"})
_BOUND = re.compile(r"\b(?:at most|no more than|fewest|shortest|exactly|within|up to|minim\w+)\b[^.\n]{0,40}", re.IGNORECASE)
_WAYS = (("up", "down"), ("left", "right"), ("north", "south"), ("east", "west"), ("n", "s"), ("e", "w"), ("u", "d"), ("l", "r"))
_BACK = {one: other for pair in _WAYS for one, other in (pair, pair[::-1])}
_MOVE = re.compile(r"(?<!\w)(?P<way>[^\W\d_]{1,5})(?:(?P<gap> ?)(?P<steps>\d{1,2}))?(?!\w)")
WORDS = 6  # of a text that are banned, or must be there, and are tried
FEWEST = 4  # words of a text that can have rules
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n+")
_BAN = re.compile(r"\b(?:not|never|without|avoid\w*|no|nor|banned|forbidden|\w+n['’]t)\b", re.IGNORECASE)
_QUOTED = re.compile(r"""["“‘'`]([^\W\d_][\w -]{0,30})["”’'`]""")
_NAMED = re.compile(r"\b(?:words?|terms?|name) ([^\W\d_][\w-]{1,30})\b")


def _prose(target: Target) -> list[Piece]:
    """The texts of a right answer that rules may be about."""
    return [piece for piece in widest_of(target) if FEWEST <= len(piece.text.split()) <= MOST]


def banned(prompt: str) -> list[str]:
    """Words that a prompt forbids: those it quotes, or calls a word, behind the "not" of a sentence."""
    found: dict[str, None] = {}
    for sentence in _SENTENCE.split(prompt):
        if ban := _BAN.search(sentence):
            found.update(dict.fromkeys([*_QUOTED.findall(sentence[ban.end() :]), *_NAMED.findall(sentence[ban.end() :])]))
    return list(found)[:WORDS]


def required(target: Target, text: str) -> list[str]:
    """Words of the row, or of a list in it, that stand in the right text and in the prompt."""
    values = [one for value in target.case.row.values() for one in (value if isinstance(value, (list, tuple)) else [value])]
    words = [one for one in values if isinstance(one, str) and re.fullmatch(r"[^\W\d_]{3,30}", one)]
    return [word for word in dict.fromkeys(words) if says(text, word) and says(target.prompt, word)][:WORDS]


def _banned(target: Target) -> Iterator[Try]:
    for piece in _prose(target):
        own = piece.text
        *before, last = own.split(" ")
        for word in banned(target.prompt):
            if before and not says(own, word):
                ends = re.sub(r"(?=[.!?]*\Z)", f" {word}", last, count=1)  # with the full stop at the word
                for said in (word, word.upper(), word.capitalize(), f"{word},", f"{word}s"):
                    yield Try(piece.put(" ".join([*before, said, last])), fair=FULL)
                yield Try(piece.put(" ".join([*before, ends])), fair=FULL)


def _within(target: Target) -> Iterator[Try]:
    """A required word left only as a part of another one, or broken in two."""
    for piece in _prose(target):
        own = piece.text
        for word in required(target, own):
            for other in (f"un{word}ish", f"{word}zone", f"x{word}"):
                yield Try(piece.put(re.sub(rf"\b{word}\b", other, own, flags=re.IGNORECASE)), fair=FULL)


def _left_out(target: Target) -> Iterator[Try]:
    for piece in _prose(target):
        own = piece.text
        for word in required(target, own):
            yield Try(piece.put(re.sub(rf"\b{word}\b", "thing", own, flags=re.IGNORECASE)), fair=FULL)


def _moves(target: Target) -> tuple[list[str], str]:
    """The moves of an answer that is made of nothing else, each with its number of steps if it has one, and what parts them."""
    core = target.form.core.strip()
    found = list(_MOVE.finditer(core))
    moves = [one[0] for one in found]
    alone = not re.search(r"\w", _MOVE.sub("", core)) and all(one["way"].casefold() in _BACK for one in found)
    return (moves, core[found[0].end() : found[1].start()] if len(found) > 1 else "\n") if alone else ([], "")


def _back(move: str) -> str:
    """One step the other way, written as a move is."""
    found = _MOVE.fullmatch(move)
    way = found["way"]
    like = str.upper if way.isupper() else str.capitalize if way[0].isupper() else str.lower
    return like(_BACK[way.casefold()]) + (f"{found['gap']}1" if found["steps"] else "")


def _detour(target: Target) -> Iterator[Try]:
    """A way there and back again, behind the right moves or in front of them, where the prompt bounds how many there may be."""
    moves, mark = _moves(target)
    if moves and _BOUND.search(target.prompt):
        there = _back(_back(moves[0]))
        away = [there, _back(there)]
        for said in ([*moves, *away], [*away, *moves], [*away * 4, *moves]):
            yield Try(target.form.wrap(mark.join(said)), fair=FULL)


def _beyond(target: Target) -> Iterator[Try]:
    """One step away again from where the right moves end."""
    moves, mark = _moves(target)
    several = len(moves) > 1 or any(character.isdigit() for move in moves for character in move)  # a letter alone may be a choice
    for move in dict.fromkeys(moves[::-1]) if several else ():
        yield Try(target.form.wrap(mark.join([*moves, _back(move)])), fair=FULL)


WORD_BY_WORD = r"Look for whole words in any case: `re.search(rf'\b{word}\b', text, re.IGNORECASE)`."

ATTACKS = tuple(
    Attack(f"rule.{name}", "rules", build, flaw, fix, source, wrong="contract", kinds=KINDS, contested=True, measured=True)
    for name, build, flaw, source, fix in (
        ("banned", _banned, "A text with a word that the prompt forbids is paid in full.", "`in` and lists of words", WORD_BY_WORD),
        ("within", _within, "A required word counts where it is only a part of another word.", "`in`", WORD_BY_WORD),
        ("left_out", _left_out, "A text is paid in full although a required word is left out of it.", "constructed", WORD_BY_WORD),
        ("beyond", _beyond, "Moves are paid that pass the goal and do not end there.", "constructed", "Look at where the last move ends."),
        ("detour", _detour, "More moves than the prompt allows are paid in full.", "constructed", "Count the moves as well."),
    )
)
