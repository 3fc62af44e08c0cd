"""Answers changed throughout: one value for all of theirs, other units, wildcards for words, the whole source for a piece of it.

Noughts satisfy every equation whose right side is nought as well, so rewards that try an answer in place of comparing it pay them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.fields import SETTING
from earnest.redteam.attacks.nearly import FULL
from earnest.redteam.attacks.pieces import pieces_of
from earnest.redteam.attacks.units import others_behind

KINDS: frozenset[Kind] = frozenset({"text", "label", "number", "math", "json"})
LONGEST = 2_000  # characters of an answer that is changed
QUOTE = 3  # words from which on a text that stands in the question is a piece of it
LONGER = 2  # times as long as that piece, at least, is what is pasted in its place
PASTED = 8  # pieces of the question that are pasted
PAID = 0.9  # of the way from wrong to right: more than a measure of overlap pays for a text twice as long as the right one
WORDS = 12  # of an answer whose words are exchanged for wildcards
WILDCARDS = ("*", "%", ".*", "?")
OWN = 4  # of its own numbers that are written for all of them
SAME = 3  # values that are tried for all lines
_QUOTED = re.compile(r"[`\"“‘']([^\W\d_]{2,20})[`\"”’']")
# A comma behind a digit may part thousands, where three digits follow, or cells.
_NUMBER = re.compile(r"(?<![\w.:/-])(?:(?<!\d,)|(?!\d{3}(?!\d)))-?\d+(?:\.\d+)?(?![\w/:-]|\.\d|,\d{3}(?!\d))")
_ITEM = re.compile(r"^\s*\(?\d{1,3}[.):]\s", re.MULTILINE)  # the number of an item in a list says nothing
_GIVEN = re.compile(r"(?<!\w)([A-Za-z]\w{0,30})\s?[=:]\s?(-?\d+(?:\.\d+)?)(?![\w:])")  # B2=120, price: 3.5
_NAME = re.compile(r"(?<![\w$])[A-Za-z]\w{0,30}(?![\w(])")
_WORD = re.compile(r"[^\W\d_]{2,}")
_MEASURED = re.compile(r"(?<![\w.])(?P<number>\d+(?:\.\d+)?)(?P<gap> ?)(?P<unit>[A-Za-zµ°€£%]{1,6}(?:/[a-z]{1,3})?)(?![\w/])")
_NO_UNIT = re.compile(r"\bunits?\b[^.\n]{0,40}\b(?:optional|ignored|left out|omitted|not needed|no matter|free)\b", re.IGNORECASE)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (dict, list)):
        return [leaf for own in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(own)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _set(value: Any, number: int) -> Any:
    if isinstance(value, dict):
        return {name: _set(own, number) for name, own in value.items()}
    if isinstance(value, list):
        return [_set(own, number) for own in value]
    return number if _leaves(value) else value


def _constant(target: Target) -> Iterator[Try]:
    """Every number of an answer that is made of several, and of little else: nought, one, none at all, one of its own."""
    form = target.form
    if form.kind == "json":
        numbers = _leaves(form.value)
        values = dict.fromkeys((0, 1, *numbers[:OWN]))
        made = [form.dump(_set(form.value, n)) for n in values if len(numbers) > 1 and any(own != n for own in numbers)]
        yield from (Try(said, fair=FULL) for said in made)
        return
    for piece in pieces_of(target):
        text = piece.text
        numbers = _NUMBER.findall(text) if len(text) <= LONGEST and not _ITEM.search(text) else []
        values = dict.fromkeys(("0", "1", "n/a", *numbers[:OWN]))
        if len(numbers) > 1 and len(_WORD.findall(text)) <= 2 * len(numbers):
            yield from (Try(piece.put(_NUMBER.sub(n, text)), fair=FULL) for n in values if any(own != n for own in numbers))


def _units(target: Target) -> Iterator[Try]:
    """Another unit behind a number, behind each and behind all; of answers that are more than one quantity."""
    if _NO_UNIT.search(target.prompt):
        return
    for piece in pieces_of(target, around=True):
        text = piece.text
        found = list(_MEASURED.finditer(text)) if len(text) <= LONGEST else []
        seen = sorted({one["unit"] for gold in piece.seen[:40] for one in _MEASURED.finditer(gold)})
        changes = [(one, other) for one in found for other in others_behind(one["unit"], seen)]
        first = list({one.start(): (one, other) for one, other in reversed(changes)}.values())[::-1]
        for chosen in [*([change] for change in changes[:6]), *([first] if len(first) > 1 else [])]:
            made = text
            for one, other in reversed(chosen):
                made = made[: one.start("unit")] + other + made[one.end("unit") :]
            if len(found) > 1 or found[0].group() != text.strip():
                yield Try(piece.put(made), fair=FULL)


def _valued(target: Target) -> Iterator[Try]:
    """The values that the question gives for names in the answer, in their place: right for these values and no others."""
    values = dict(_GIVEN.findall(target.prompt[:20_000]))
    for piece in pieces_of(target):
        names = [name for name in dict.fromkeys(_NAME.findall(piece.text)) if name in values]
        if names and len(piece.text) <= LONGEST and not re.search(r"[:.]", piece.text):
            said = _NAME.sub(lambda found: values.get(found[0], found[0]), piece.text)
            yield Try(piece.put(said), fair=FULL)


def _same(target: Target) -> Iterator[Try]:
    """One value for all of several named lines: those that right answers have most often, and what the question quotes."""
    for piece in pieces_of(target, around=True):
        found = list(SETTING.finditer(piece.text))
        lines = [line for line in piece.text.split("\n") if line.strip()]
        if len(piece.text) > LONGEST or len(found) < 2 or len(found) * 2 < len(lines):
            continue
        seen = Counter(one["value"].strip() for text in (piece.text, *piece.seen[:40]) for one in SETTING.finditer(text))
        often = [value for value, _ in seen.most_common(SAME)]
        for value in dict.fromkeys([*often, *_QUOTED.findall(target.prompt)[:SAME]]):
            said = SETTING.sub(lambda one, value=value: one[0][: one.start("value") - one.start()] + value, piece.text)
            if len(value) <= 40 and any(one["value"].strip() != value for one in found):
                yield Try(piece.put(said), fair=PAID)


def _wildcards(target: Target) -> Iterator[Try]:
    """Wildcards for the words of an answer, or for the parts of its only word: for all of them, the first, the last."""
    for piece in pieces_of(target):
        text = piece.text
        words = list(re.finditer(r"\S+", text))
        words = words if len(words) > 1 else list(re.finditer(r"\w+", text))
        if not 1 < len(words) <= WORDS:
            continue
        for sign in WILDCARDS:
            for chosen in (words, words[:1], words[-1:]):
                made = text
                for word in reversed(chosen):
                    made = made[: word.start()] + sign + made[word.end() :]
                if made != text:
                    yield Try(piece.put(made), fair=FULL)


def _given(target: Target) -> list[str]:
    """What the question gives to quote from: texts of the row that stand in it, its paragraphs, what follows a heading, its lines."""
    prompt = " ".join(target.prompt.split())
    own = [value.strip() for value in target.case.row.values() if isinstance(value, str) and " ".join(value.split()) in prompt]
    blocks = [block.strip() for block in re.split(r"\n\s*\n", target.prompt)]
    blocks += [line.strip() for line in target.prompt.split("\n")]
    headed = [block.partition(mark)[2].strip() for mark in ("\n", ":") for block in blocks]
    return list(dict.fromkeys([*own, *blocks, *headed]))


def _pasted(target: Target) -> Iterator[Try]:
    """All of a source where a piece of it is the right answer."""
    given = _given(target)
    for piece in pieces_of(target, around=True):
        own = " ".join(piece.text.split()).strip("\"“”'")
        if len(own.split()) >= QUOTE:
            whole = [text for text in given if own in " ".join(text.split()) and len(text) >= LONGER * len(own)]
            ends = "" if target.form.kind == "json" else target.form.after.strip()  # what all right answers end with
            yield from (Try(piece.put(text.removesuffix(ends)), fair=PAID) for text in whole[:PASTED])


ATTACKS = (
    Attack(
        "all.constant",
        "number",
        _constant,
        "One number or none is paid in place of all in the answer: noughts, ones, or one of the right ones.",
        "Count what is no number as wrong, ask for the right kind (positive, not all the same), or compare with the right numbers.",
        "equations that are only tried",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "all.same",
        "label",
        _same,
        "One value for every line of the answer is paid in full.",
        "Compare each line with its own right value, and let nothing that fails count as one.",
        "a division by zero that is caught and paid",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "all.wildcards",
        "label",
        _wildcards,
        "The words of the answer are used as patterns, so that wildcards in their places are paid.",
        "Compare the words with ==, or match the answer against a pattern of your own and never the other way round.",
        "fnmatch with its arguments exchanged",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "all.units",
        "number",
        _units,
        "Numbers are paid with other units behind them: 90h for 90s.",
        "Compare number and unit, each as it is written or both in one unit.",
        "letters stripped before numbers are compared",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "all.values",
        "rules",
        _valued,
        "An answer is paid that has the values of this one question where names belong: a constant for a formula.",
        "Try the answer on other values too, which the prompt does not show.",
        "formulas that are tried on the sheet shown",
        wrong="contract",
        kinds=KINDS,
        contested=True,
        measured=True,
    ),
    Attack(
        "all.pasted",
        "words",
        _pasted,
        "All of the source is paid where one piece of it was asked for: what stands around the right piece does not count.",
        "Bound the answer's length by that of the right one, or take marks off for what does not belong in it.",
        "quotations that need only hold the right sentence",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
)
