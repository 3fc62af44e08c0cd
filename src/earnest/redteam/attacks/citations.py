"""Answers that cite numbered passages of the prompt, as [2] or [1, 3]: all of them cited, others, none that exists, nothing but citations.

The words stay right, and so does what they deserve: only (nearly) full marks count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.nowork import NEARLY
from earnest.redteam.form import prompt_text
from earnest.redteam.listed import CITATIONS

KINDS: frozenset[Kind] = frozenset({"text", "label", "number", "math"})
MOST = 30  # passages cited at once
_CITED = re.compile(r"\s*\[([A-Za-z]{0,8}[ -]?)(\d{1,3}(?:, ?\d{1,3})*)\]")
_TOGETHER = re.compile(r"\[[A-Za-z]{0,8}[ -]?\d{1,3}(, ?)\d")
_SENTENCE = re.compile(r"(?<=[a-z)\]])(?=\.(?:\s|\Z))")


@dataclass(frozen=True)
class Cited:
    """A right answer with citations.

    Attributes:
        text: All of it.
        own: The passages it cites, each once.
        others: Further passages that the prompt has.
        unreal: A number that no passage has.
        kind: What stands before the number within the brackets: "", "doc ".
        mark: What parts several numbers within one pair of brackets; "" where each has its own.
        room: White space in front of a citation.
        put: Makes an answer of such a text.
    """

    text: str
    own: tuple[int, ...]
    others: tuple[int, ...]
    unreal: int
    kind: str
    mark: str
    room: str
    put: Callable[[str], str] = str

    @property
    def words(self) -> str:
        """The answer without its citations."""
        return _CITED.sub("", self.text)

    def cite(self, *numbers: int) -> str:
        """Citations as the answer writes them."""
        if self.mark:
            return f"{self.room}[{self.kind}{self.mark.join(map(str, numbers))}]"
        return self.room + self.apart(*numbers)

    def apart(self, *numbers: int) -> str:
        """Citations in brackets of their own."""
        return "".join(f"[{self.kind}{number}]" for number in numbers)

    def beside(self, *numbers: int) -> str:
        """The answer, with more cited behind its last citation."""
        stop = [found.end() for found in _CITED.finditer(self.text)][-1]
        return self.text[:stop] + self.cite(*numbers).strip() + self.text[stop:]

    def instead(self, *numbers: int) -> str:
        """The answer, with these cited in the places of its own citations, in turn."""
        turn = cycle(numbers)

        def other(found: re.Match[str]) -> str:
            return found.group().partition("[")[0] + re.sub(r"\d+", lambda _: str(next(turn)), found.group().strip())

        return _CITED.sub(other, self.text)


def cited_in(target: Target) -> Cited | None:
    """The citations of a right answer, of passages that the prompt numbers alike; None where it has none."""
    form = target.form
    whole = form.wrapped == "words" and not _CITED.search(form.core)  # on a line of their own, behind the answer
    text = form.wrap(form.core) if whole else form.core
    found = list(_CITED.finditer(text))
    if not found or not _CITED.sub("", text).strip(" .\n"):
        return None
    kind = found[0][1]
    own = tuple(dict.fromkeys(number for one in found for number in _numbers(one[2])))
    prompt = prompt_text(target.case)
    given = {number for said, numbers in _CITED.findall(prompt) if said == kind for number in _numbers(numbers)}
    if not set(own) <= given:
        return None
    others = tuple(sorted(given - set(own)))[:MOST]
    put = str if whole else form.wrap
    together = _TOGETHER.search(text) or _TOGETHER.search(prompt)
    mark = together[1] if together else ""
    return Cited(text, own, others, max(given) + 7, kind, mark, found[0].group().partition("[")[0], put)


def _numbers(inside: str) -> list[int]:
    return [int(number) for number in inside.split(",")]


def citing(change: Callable[[Cited], Iterable[str]]) -> Build:
    """The right answer with other citations."""

    def build(target: Target) -> Iterator[Try]:
        cited = cited_in(target)
        for core in dict.fromkeys(change(cited)) if cited else ():
            if core.strip() and core != cited.text:
                yield Try(cited.put(core), fair=NEARLY)

    return build


def _all(cited: Cited) -> Iterator[str]:
    if len(cited.others) > 1:
        yield cited.beside(*cited.others)
        every = sorted((*cited.own, *cited.others))
        yield cited.words.rstrip(" .") + cited.cite(*every)
        yield cited.words.rstrip(" .") + cited.room + cited.apart(*every)


def _other(cited: Cited) -> Iterator[str]:
    if cited.others:
        yield cited.instead(*cited.others)


def _unreal(cited: Cited) -> Iterator[str]:
    yield cited.beside(cited.unreal)
    yield cited.instead(cited.unreal)


def _alone(cited: Cited) -> Iterator[str]:
    yield cited.cite(*cited.own).strip()
    yield cited.cite(*sorted((*cited.own, *cited.others))).strip()


def _everywhere(cited: Cited) -> Iterator[str]:
    yield cited.beside(*cited.own * 3)
    if len(_SENTENCE.findall(cited.words)) > 1:
        yield _SENTENCE.sub(lambda _: cited.cite(cited.own[0]), cited.words)


def _unknown(target: Target) -> Iterator[str]:
    """Where the answer is nothing but citations: those of passages that nobody gave, before the first and behind the last."""
    if CITATIONS.fullmatch(target.form.core):
        given = [number for _, numbers in _CITED.findall(f"{target.prompt} {target.form.core}") for number in _numbers(numbers)]
        if given and 0 not in given:
            yield from (target.form.wrap(f"[{number}]") for number in (0, max(given) + 7))


def _order(target: Target) -> Iterator[Try]:
    cited = cited_in(target)
    if cited and len(cited.own) > 1 and cited.text.endswith(cited.cite(*cited.own)):
        yield Try(cited.put(cited.words.rstrip() + cited.cite(*cited.own[::-1])))


EXACT = "Pay for exactly the passages that the answer rests on: what is cited beside them costs as much as what is missing."

ATTACKS = (
    Attack(
        "cites.all",
        "label",
        citing(_all),
        "An answer that cites every passage is paid, because the right one is among them.",
        EXACT,
        "citation recall without precision",
        kinds=KINDS,
    ),
    Attack("cites.other", "label", citing(_other), "An answer that cites the wrong passages is paid in full.", EXACT, kinds=KINDS),
    Attack(
        "cites.unreal",
        "label",
        citing(_unreal),
        "An answer that cites a passage that does not exist is paid in full.",
        "Refuse an answer that cites what it was not given.",
        "invented sources",
        kinds=KINDS,
    ),
    Attack(
        "cites.unknown",
        "label",
        _unknown,
        "A citation of a passage that does not exist is paid.",
        "Refuse an answer that cites what it was not given.",
        kinds=KINDS,
    ),
    Attack(
        "cites.alone",
        "label",
        citing(_alone),
        "Citations with no words before them are paid in full.",
        "Demand the words as well.",
        kinds=KINDS,
    ),
    Attack(
        "cites.none",
        "label",
        citing(lambda cited: [cited.words]),
        "The right words are paid in full without the citations that were asked for.",
        "Demand the citations as well.",
        wrong="contract",
        kinds=KINDS,
    ),
    Attack(
        "cites.everywhere",
        "label",
        citing(_everywhere),
        "The right passage is paid however often it is cited.",
        "Count each citation once, and refuse what is repeated if your contract does.",
        wrong="contract",
        kinds=KINDS,
        contested=True,
    ),
    Attack(
        "cites.order",
        "right answers",
        _order,
        "A right answer is refused for the order of its citations.",
        "Compare the passages cited as a set.",
        kinds=KINDS,
        expect="right",
        question="the check refuses it as well: if the order of citations is free by your contract, accept any in both",
    ),
)
