"""Answers that say how sure they are: a wrong one that owns up to it, and a right one that is more or less sure than can be.

A proper score of the stated confidence, taken alone, is best where the model answers wrongly and knows it. Beside a score of the answer
itself it may pay such a one half of the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.nearly import FULL
from earnest.redteam.attacks.nowork import NEARLY

KINDS: frozenset[Kind] = frozenset({"json", "text", "label", "choice", "number", "math"})
WRONG = 3  # honest wrong answers of a row that are tried
_WORDS = (
    r"(?:very|quite|fairly|almost|not)?[ _-]?"
    r"(?:certain(?:ly)?|sure|unsure|uncertain|high|medium|moderate|low|none|likely|unlikely|guess(?:ing)?|yes|no|true|false)"
)
_SURE = re.compile(
    r"(?P<name>\b(?:\w{1,20}[_ ])?"
    r"(?:confidence|confident|certainty|certain|probability|prob|likelihood|credence|how sure|sure(?:ness)?|belief)"
    r"(?:[_ ]\w{1,20})?\b[\"'*`]{0,3}\s{0,3}(?:[:=>]|\bis\b)[\"'*`]{0,3}\s{0,3}[\"']?)"
    rf"(?P<said>\d{{1,5}}(?:\.\d{{1,6}})?|\.\d{{1,6}}|{_WORDS})(?P<sign>\s?(?:%|/\s?\d{{1,3}}|percent)?)(?!\w)",
    re.IGNORECASE,
)
_SHARE = re.compile(
    r"(?P<name>\b(?:about |only )?)(?P<said>\d{1,3}(?:\.\d{1,4})?)(?P<sign>\s?(?:%|percent))(?= (?:sure|certain|confident|likely)\b)",
    re.IGNORECASE,
)
_DOUBTS = ("low", "very low", "none", "unsure", "not sure", "uncertain", "guess", "unlikely")
_NUMBERS = ("0", "0.0", "0.00", "1", "0.01")


def _places(text: str) -> list[re.Match[str]]:
    return [*_SURE.finditer(text), *_SHARE.finditer(text)][:2]


def _rest(text: str) -> str:
    for pattern in (_SURE, _SHARE):
        text = pattern.sub(lambda found: found["name"], text)
    return " ".join(text.casefold().split())


def _with(text: str, found: re.Match[str], said: str, sign: bool = True) -> str:
    return text[: found.start("said")] + said + text[found.end("said" if sign else "sign") :]


def _is_beside(target: Target) -> bool:
    """Whether how sure the answer is stands beside what it says, and is not the answer itself."""
    texts = [str(target.case.oracle), *(str(other) for other in target.answers[:20])]
    return bool(_places(texts[0])) and len({_rest(text) for text in texts}) > 1


def _doubts(target: Target, own: str) -> list[str]:
    """Ways to say that one is not sure, in numbers or in words as the right answer has them."""
    if own[-1:].isdigit():
        return [*_NUMBERS, re.sub(r"\d", "0", own)]
    opposite = {"yes": "no", "true": "false"}.get(own.casefold(), "")
    known = {word.casefold() for word in re.findall(_WORDS, target.prompt, re.IGNORECASE)}
    words = [opposite] if opposite else [word for word in _DOUBTS if word in known or word in ("low", "unsure")]
    return [word.upper() if own.isupper() else word.capitalize() if own[:1].isupper() else word for word in words]


def _owned_up(target: Target) -> Iterator[Try]:
    """A wrong answer that says it is not sure."""
    if not _is_beside(target):
        return
    golds = {_rest(str(target.case.oracle))}
    for wrong in [text for text in target.wrongs if isinstance(text, str) and _rest(text) not in golds][:WRONG]:
        for found in _places(wrong):
            for said in dict.fromkeys(_doubts(target, found["said"])):
                yield Try(_with(wrong, found, said), fair=NEARLY)


def _beyond(target: Target) -> Iterator[Try]:
    """The right answer, said to be not sure at all, or surer than anybody can be."""
    if not _is_beside(target):
        return
    text = str(target.case.oracle)
    for found in _places(text):
        own = found["said"]
        absurd = ("0", "0.0", "-1", "7", "100", "1000", "1e9", "-1000", "nan") if own[-1:].isdigit() else _doubts(target, own)
        for said in absurd:
            yield Try(_with(text, found, said), fair=FULL)


ATTACKS = (
    Attack(
        "sure.owned_up",
        "label",
        _owned_up,
        "A wrong answer is paid like a right one if it says that it is not sure.",
        "Let the answer itself decide, and the stated confidence add to it or take away a little.",
        "Brier's score without the answer's own",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "sure.beyond",
        "label",
        _beyond,
        "A right answer is paid in full whatever it says of how sure it is, or more the surer it claims to be.",
        "Read the confidence, and refuse one that is out of bounds.",
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
        measured=True,
    ),
)
