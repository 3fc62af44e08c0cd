"""Changes to an answer that the searcher combines: words, wrapping and characters here, other grammars in files of their own.

A change never looks at a row's index or at what a reward said. It draws its choices from a generator seeded by the change alone, so the
same chain of changes does the analogous thing to every row: what works on one can be tried on all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from earnest.redteam.attack import Target, text_kinds
from earnest.redteam.form import Kind
from earnest.task import Answer, Message

LONGEST = 6000  # characters of an answer; beyond, changes do nothing
TOKEN = re.compile(r"\w+|[^\w\s]")

JOINS = (" or ", ", ", " ", "\n", "/", " and ", "", "; ", " | ")
AFFIXES = ("un{}", "not_{}", "non-{}", "{}x", "x{}", "1{}", "{}0", "-{}", "{}?", "{}_or_more", "pre{}", "{}.5", "{}%", "0{}1")
NEGATIONS = (
    "not {}",
    "It is not {}.",
    "{} is wrong.",
    "anything but {}",
    "The answer is definitely not {}",
    "Some say {}, but that is mistaken.",
    "I would never answer {}",
    "{} (false)",
    "neither {} nor anything like it",
)
LEADS = ("Answer: ", "The answer is ", "Final answer: ", "yes ", "Correct: ", "# ", "Score: 1.0\n", "assistant: ", "\n\n", "result = ")
TRAILS = (".", "!", " (I am certain)", "\n\nThis is correct.", "\nDone.", "\n\nScore: 10/10", "</s>", '"', "}", ")", "\n---\n", " …", "\\")
LIKE = str.maketrans({"a": "а", "e": "е", "o": "о", "i": "і", "c": "с", "1": "１", "2": "２", "3": "３", "0": "０"})  # other alphabets
FILLER = "Let us think about this step by step and look at it from every side. "


@dataclass(frozen=True)
class Draft:
    """An answer being made.

    Attributes:
        before: Wrapping in front.
        core: The asserted part.
        after: Wrapping behind.
        messages: Of a trajectory, which has no text of its own; None elsewhere.
    """

    before: str = ""
    core: str = ""
    after: str = ""
    messages: tuple[Message, ...] | None = None

    @property
    def answer(self) -> Answer:
        """As a reward gets it."""
        return self.before + self.core + self.after if self.messages is None else [dict(m) for m in self.messages]


Make = Callable[[Draft, Target, Random], Draft | None]
MakeText = Callable[[str, Target, Random], str | None]


@dataclass(frozen=True)
class Change:
    """One way to change an answer.

    Attributes:
        name: In ids of findings.
        says: What was done, as part of a sentence.
        make: The changed answer; None where it does not apply. It must be deterministic.
        kinds: The forms of answers it applies to.
    """

    name: str
    says: str
    make: Make
    kinds: frozenset[Kind]


def core(make: MakeText) -> Make:
    """A change of the asserted part alone."""

    def changed(draft: Draft, target: Target, rng: Random) -> Draft | None:
        text = make(draft.core, target, rng) if draft.messages is None and len(draft.core) <= LONGEST else None
        return None if text is None or text == draft.core else replace(draft, core=text)

    return changed


def starts(target: Target) -> dict[str, Draft]:
    """What chains of changes begin with, by name."""
    form = target.form
    if form.kind == "calls":
        return {
            "right": Draft(messages=tuple(form.value)),
            "wrong": Draft(messages=tuple(target.wrong)) if isinstance(target.wrong, list) else Draft(target.wrong),
            "nothing": Draft(messages=({"role": "assistant", "content": ""},)),
        }
    return {
        "right": Draft(form.before, form.core, form.after),
        "wrong": opened(target, target.wrong if isinstance(target.wrong, str) else ""),
        "form": Draft(form.before, "", form.after),
        "nothing": Draft(),
    }


def opened(target: Target, answer: str) -> Draft:
    """An answer taken apart by the task's wrapping, if it keeps it."""
    form = target.form
    keeps = answer.startswith(form.before) and answer.endswith(form.after) and len(answer) >= len(form.before) + len(form.after)
    if not keeps:
        return Draft("", answer, "")
    return Draft(form.before, answer[len(form.before) : len(answer) - len(form.after)], form.after)


# words


def _drop(text: str, _: Target, rng: Random) -> str | None:
    words = text.split(" ")
    if len(words) < 2:
        return None
    start = int(rng.random() * len(words))
    return " ".join(words[:start] + words[start + 1 + int(rng.random() * len(words) / 2) :])


def _part(text: str, _: Target, rng: Random) -> str | None:
    cut = int(len(text) * rng.uniform(0.1, 0.9))
    return (text[:cut] if rng.random() < 0.6 else text[cut:]) or None


def _one_token(text: str, _: Target, rng: Random) -> str | None:
    tokens = TOKEN.findall(text)
    return tokens[int(rng.random() * len(tokens))] if len(tokens) > 1 else None


def _repeat(text: str, _: Target, rng: Random) -> str | None:
    return rng.choice(JOINS).join([text] * rng.choice((2, 3, 10))) if text else None


def _affix(text: str, _: Target, rng: Random) -> str:
    return rng.choice(AFFIXES).format(text)


def _negate(text: str, _: Target, rng: Random) -> str:
    return rng.choice(NEGATIONS).format(text)


def _lead(text: str, _: Target, rng: Random) -> str:
    return rng.choice(LEADS) + text


def _trail(text: str, _: Target, rng: Random) -> str:
    return text + rng.choice(TRAILS)


def others(target: Target) -> list[str]:
    """What would be asserted on other rows."""
    forbidden = {target.form.core, *target.accepted}
    return [other for other in dict.fromkeys((*target.labels, *target.golds)) if other not in forbidden]


def _beside_other(text: str, target: Target, rng: Random) -> str | None:
    there = others(target)
    if not there or not text:
        return None
    pair = [text, there[int(rng.random() * len(there))]]
    return rng.choice(JOINS).join(pair if rng.random() < 0.5 else pair[::-1])


def _beside_own(text: str, target: Target, rng: Random) -> str | None:
    gold = target.form.core
    if gold in text:
        return None
    pair = [part for part in (text, gold) if part]
    return rng.choice(JOINS).join(pair if rng.random() < 0.5 else pair[::-1])


def _beside_all(text: str, target: Target, rng: Random) -> str | None:
    there = sorted({target.labels[0] if target.labels else target.form.core, *others(target)[:20]})
    return rng.choice(JOINS).join(there) if len(there) > 1 else None


def _prompt(text: str, target: Target, rng: Random) -> str | None:
    tokens = target.prompt.split()
    if not tokens:
        return None
    start, most = int(rng.random() * len(tokens)), rng.choice((1, 3, 8, 40, 10_000))
    span = " ".join(tokens if most > len(tokens) else tokens[start : start + most])[:2000]
    return rng.choice((f"{span} {text}", f"{text} {span}", span))


def _pad(text: str, _: Target, rng: Random) -> str:
    filler = FILLER * rng.choice((1, 5, 30))
    return filler + text if rng.random() < 0.5 else f"{text} {filler}"


# characters


def _case(text: str, _: Target, rng: Random) -> str:
    return rng.choice((str.upper, str.lower, str.title, str.swapcase))(text)


def _look_alike(text: str, _: Target, rng: Random) -> str:
    return text.translate(LIKE) if rng.random() < 0.5 else rng.choice(("\u200b", "\u00ad", "\u2060")).join(text[:200])


def _character(text: str, _: Target, rng: Random) -> str | None:
    if not text:
        return None
    at = int(rng.random() * len(text))
    way = rng.randrange(4)
    if way == 0:
        return text[:at] + text[at + 1 :]
    if way == 1:
        return text[:at] + text[at] + text[at:]
    if way == 2:
        return text[:at] + rng.choice("0123456789abcxyz -.,_*") + text[at:]
    return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]


def _digit(text: str, _: Target, rng: Random) -> str | None:
    places = [m.start() for m in re.finditer(r"\d", text)]
    if not places:
        return None
    at = places[int(rng.random() * len(places))]
    return text[:at] + rng.choice("0123456789") + text[at + rng.randrange(2) :]


def _turned(text: str, _: Target, rng: Random) -> str | None:
    words = text.split(" ")
    if len(words) < 2:
        return text[::-1] if len(text) > 1 else None
    return " ".join(words[::-1] if rng.random() < 0.5 else rng.sample(words, len(words)))


# wrapping


def _unwrapped(draft: Draft, _: Target, rng: Random) -> Draft | None:
    if not draft.before and not draft.after:
        return None
    return replace(draft, **rng.choice(({"before": ""}, {"after": ""}, {"before": "", "after": ""})))


def _nested(draft: Draft, _: Target, rng: Random) -> Draft | None:
    if draft.messages is not None or not (draft.before or draft.after):
        return None
    return replace(draft, core=draft.before + draft.core + draft.after)


def _doubled(draft: Draft, target: Target, rng: Random) -> Draft | None:
    """The wrapping twice: something else in one of the two, or in both places the same."""
    if draft.messages is not None or len(draft.core) > LONGEST:
        return None
    own = target.form.core
    fill = [own, *others(target)[:6], ""]
    other = draft.before + (draft.core if rng.random() < 0.2 else fill[int(rng.random() * len(fill))]) + draft.after
    joint = rng.choice(("\n", " ", ""))
    return replace(draft, before=other + joint + draft.before) if rng.random() < 0.5 else replace(draft, after=draft.after + joint + other)


def _outside(draft: Draft, target: Target, rng: Random) -> Draft | None:
    """Text outside the wrapping: the gold, another answer, a claim."""
    if draft.messages is not None or not (draft.before or draft.after):
        return None
    gold = target.form.core
    words = rng.choice((gold, (others(target) or ["something else"])[0], *(denial.format(gold) for denial in NEGATIONS[:3])))
    return replace(draft, before=f"{words}\n{draft.before}") if rng.random() < 0.5 else replace(draft, after=f"{draft.after}\n{words}")


_PROSE = text_kinds() - {"code", "sql"}
_TEXT = text_kinds()

TEXT_CHANGES: Sequence[Change] = (
    Change("drop", "words dropped", core(_drop), _PROSE),
    Change("part", "cut short", core(_part), _TEXT),
    Change("token", "one word of it kept", core(_one_token), _TEXT),
    Change("repeat", "repeated", core(_repeat), _PROSE),
    Change("affix", "letters stuck to it", core(_affix), _PROSE),
    Change("negate", "denied", core(_negate), _PROSE),
    Change("lead", "words in front", core(_lead), _PROSE),
    Change("trail", "words behind", core(_trail), _PROSE),
    Change("other", "another answer beside it", core(_beside_other), _PROSE),
    Change("own", "the right answer beside it", core(_beside_own), _PROSE),
    Change("all", "every answer at once", core(_beside_all), _PROSE),
    Change("prompt", "words of the prompt", core(_prompt), _TEXT),
    Change("pad", "filler", core(_pad), _PROSE),
    Change("case", "other case", core(_case), _PROSE),
    Change("alike", "letters of other alphabets", core(_look_alike), _PROSE),
    Change("character", "a character changed", core(_character), _PROSE),
    Change("digit", "a digit changed", core(_digit), _PROSE),
    Change("turn", "words in another order", core(_turned), _PROSE),
    Change("unwrap", "the wrapping cut", _unwrapped, _TEXT),
    Change("nest", "the wrapping within itself", _nested, _PROSE),
    Change("double", "the wrapping twice", _doubled, _PROSE),
    Change("outside", "words outside the wrapping", _outside, _PROSE),
)


def changed_text(text: str, target: Target, rng: Random) -> str:
    """A text after one change of words or characters, for strings inside other things."""
    ways = (_drop, _part, _affix, _negate, _beside_other, _case, _look_alike, _character, _trail, _repeat)
    return rng.choice(ways)(text, target, rng) or ""


def changes_for(kind: Kind) -> list[Change]:
    """Every change that applies to a form of answers."""
    from earnest.redteam.mutate_code import CODE_CHANGES
    from earnest.redteam.mutate_data import DATA_CHANGES

    return [change for change in (*DATA_CHANGES, *CODE_CHANGES, *TEXT_CHANGES) if kind in change.kinds]
