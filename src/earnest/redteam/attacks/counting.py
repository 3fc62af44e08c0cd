"""Texts of which the prompt says how long they must be, in words, sentences, lines, paragraphs or characters: lengths by what nobody reads.

A reward that counts with `split(" ")` takes every blank for a word, and takes words on lines of their own for one. So a text is written
in two ways that hold the same words: as it should be, which is the control, and with white space, dots or empty lines that are counted,
or that hide what should be. No reader sees a difference, so the second may not earn more than the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.nowork import NEARLY, filler
from earnest.redteam.attacks.pieces import pieces_of
from earnest.redteam.findings import SLACK

KINDS: frozenset[Kind] = frozenset({"text", "label", "choice", "number", "json"})
LEAST = 3  # words of a text of which the length may be asked for
MOST = 400  # words of the longest
KEPT = 8  # words that are tried as the one that is kept
_NUMBER = r"(?:\d{1,4}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|hundred)"
_UNITS = ("word", "sentence", "line", "paragraph", "character")
_DEMANDED = re.compile(rf"\b{_NUMBER}\b[- ](?:[a-z-]+ ){{0,2}}?(?P<unit>{'|'.join(_UNITS)})s?\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_a-z])")
_ITEM = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+")


@dataclass(frozen=True)
class Prose:
    """A right text whose length is asked for.

    Attributes:
        text: The text.
        units: In what its length may be asked for.
        put: Writes another text in its place.
    """

    text: str
    units: frozenset[str]
    put: Callable[[str], str]

    def beside(self, text: str, control: str, fair: float = 0.0) -> Iterator[Try]:
        """A text with the one that holds the same words as its control."""
        if text not in (control, self.text):
            yield Try(self.put(text), self.put(control), fair=fair)


def proses(target: Target) -> Iterator[Prose]:
    """The texts of a right answer whose length the prompt asks for: all of it, or fields of an object."""
    units = frozenset(found["unit"].lower() for found in _DEMANDED.finditer(target.prompt))
    pieces = pieces_of(target) if units else []
    yield from (Prose(piece.text, units, piece.put) for piece in pieces if LEAST <= len(piece.text.split()) <= MOST)


def _each(build: Callable[[Prose, Target], Iterator[Try]]) -> Callable[[Target], Iterator[Try]]:
    return lambda target: (made for prose in proses(target) for made in build(prose, target))


def _blanks(prose: Prose, _: Target) -> Iterator[Try]:
    """Most words, lines or paragraphs taken out, what parts them left: the same number for whoever counts the parting marks."""
    if "word" in prose.units and "\n" not in prose.text:
        words = prose.text.split()
        last = re.search(r"[.!?]?\Z", prose.text)[0]
        for kept in dict.fromkeys(word.rstrip(".!?,;:") for word in words[:KEPT]):
            yield from prose.beside(f"{kept}{' ' * (len(words) - 1)}{last or words[-1]}", f"{kept} {last or words[-1]}")
            yield from prose.beside(f"{kept}{' ' * len(words)}{words[-1]}", f"{kept} {words[-1]}")
        for at in range(1, len(words) - 1)[:KEPT]:  # one word fewer, where the others are asked for
            yield from prose.beside(" ".join([*words[:at], "", *words[at + 1 :]]), " ".join([*words[:at], *words[at + 1 :]]))
    for unit, between in (("line", "\n"), ("paragraph", "\n\n")):
        parts = prose.text.split(between)
        if unit in prose.units and len(parts) > 2:
            hollow = [(_ITEM.match(part) or [""])[0].strip("\n") for part in parts[1:-1]]
            kept = between.join([parts[0], parts[-1]])
            for between_them in (hollow, [" "] * len(hollow)):
                yield from prose.beside(between.join([parts[0], *between_them, parts[-1]]), kept, 2 / len(parts) + SLACK)
        elif unit in prose.units and len(parts) == 2:  # of two, the one that is right may be paid for itself
            yield from prose.beside(f"{parts[0]}{between}.", parts[0], 0.5 + SLACK)
    if "character" in prose.units:
        for kept in dict.fromkeys(word.rstrip(".!?,;:") for word in prose.text.split()[:KEPT]):
            for mark in (" ", "\u200b"):
                yield from prose.beside(f"{kept} {mark * len(prose.text)}.", f"{kept} .")


def _stops(prose: Prose, _: Target) -> Iterator[Try]:
    """The first sentence alone, with as many full stops as the right text has."""
    first, *rest = _SENTENCE.split(prose.text)
    if "sentence" in prose.units and rest:
        for stop in (" .", "."):
            yield from prose.beside(first + stop * len(rest), first, NEARLY)


def _hidden(prose: Prose, target: Target) -> Iterator[Try]:
    """As many words again and more, none of them parted by a blank, so that they count as one with the word before them."""
    words = prose.text.split()
    if "word" in prose.units and "\n" not in prose.text:
        more = filler(target, 10 * len(words) + 400).split()
        for mark in ("\t", "\n"):
            first = mark.join([words[0], *more])
            yield from prose.beside(" ".join([first, *words[1:]]), " ".join([words[0], *more, *words[1:]]))
            yield from prose.beside(mark.join([*words[:-1], *more, words[-1]]), " ".join([*words[:-1], *more, words[-1]]))


def _glued(prose: Prose, target: Target) -> Iterator[Try]:
    words = prose.text.split()
    if "word" in prose.units and "\n" not in prose.text:
        more = filler(target, 10 * len(words) + 400).split()
        for mark in ("-", ",", "_", "/"):
            first = mark.join([words[0], *(word.strip(".") for word in more)])
            yield from prose.beside(" ".join([first, *words[1:]]), " ".join([words[0], *more, *words[1:]]), NEARLY)


SEEN = "Count what can be read: `len(text.split())` for words, and only lines, sentences and paragraphs with words in them."

ATTACKS = (
    Attack(
        "len.blanks",
        "length",
        _each(_blanks),
        "Blanks or empty lines count as words, lines or characters: a text too short is paid as if it were long enough.",
        SEEN,
        "`split(' ')`, run",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "len.stops",
        "length",
        _each(_stops),
        "Every full stop counts as a sentence, also where there is none.",
        SEEN,
        "`text.count('.')`, run",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "len.hidden",
        "length",
        _each(_hidden),
        "Words that tabs or line breaks part are not counted: a text too long is paid as if it were short enough.",
        SEEN,
        "`split(' ')`, run",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "len.glued",
        "length",
        _each(_glued),
        "Words without blanks between them count as one: a text too long is paid as if it were short enough.",
        "Count words with a pattern such as `[^\\W_]+`, and bound the length in characters, too.",
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
    ),
)
