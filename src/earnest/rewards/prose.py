"""Which one of a set of options a text in prose asserts.

A sentence counts by its form, never because a word occurs in it: "the answer is C", "I would pick C", "C is correct", "Answer: (C)",
a lone "C", `\\boxed{C}`. What stands before that form may lead up to it and nothing else; what stands behind may explain it but name no
second option. Quotations and code are taken out first. What is asserted later replaces what was asserted before only where the text
says that it corrects itself or comes to its final answer; otherwise two answers are no answer.

English only. Where a strict and a generous reading differ, the text is refused: whoever trains on this learns to write plainly.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal

LONGEST_CLAUSE = 600  # characters; a longer one asserts nothing

_ADJECTIVE = (
    r"(?:the|my|your|our|its|a|final|correct|right|best|most|likely|appropriate|overall|predicted|proper|suitable|chosen|selected|only)"
)
_NOUN = (
    rf"(?:{_ADJECTIVE}\s+){{0,4}}(?:answer|ans|choice|option|label|category|class|classification|verdict|letter|response|prediction"
    r"|conclusion|solution|result|selection|pick|final|one)"
)
_QUALIFIER = r"(?:\s+(?:here|choice|option|letter|label)|\s+(?:for|to|of|in)\s[^,.:;=]{1,60}?)?"
_ADVERB = r"(?:(?:therefore|thus|hence|then|clearly|definitely|certainly|indeed|simply|just|obviously|probably|likely|most likely|now)\s+)?"
_IS = rf"\s*(?:\b(?:is|was|will be|would be|must be|should be|has to be)\b\s*{_ADVERB}:?|=|:|->|→|[-–—](?=\s))\s*"
_I = r"\b(?:i|we)(?:'d|'ll|'m|\s+would|\s+will)?\s+(?:(?:therefore|thus|still|now|have to|must)\s+)?"
_CHOOSE = r"(?:(?:am\s+)?going with|pick|choose|chose|select|say|answer|go with|go for|vote for|opt for|settle on|conclude|believe|think)"
_CLASSIFY = r"(?:classify|label|categori[sz]e|mark|tag|flag|rate)\s+(?:this|it|that|the\s+\w+)(?:\s+\w+)?\s+(?:as\s+)?"
_ARTICLE = r"(?:(?:the\s+)?(?:option|choice|answer|letter|label|category|class)\s+)?"
_DIRECT = (
    r"\b(?:choose|pick|select)\s+|\bcorrect(?:\s+(?:answer|option|choice))?\s*[:=]\s*|\bfinal\s+(?:answer|choice|option)\s+"
    r"|\b(?:this|that|it|which)\s+(?:best\s+)?(?:matches|corresponds\s+to|points\s+to)\s+"
)
_LEAD = (
    rf"(?i:(?:{_DIRECT}|\b{_NOUN}{_QUALIFIER}{_IS}|{_I}{_CHOOSE}(?:\s+that)?(?:\s+(?:it|this|{_NOUN})(?:'s\s+|{_IS}))?:?\s*|{_I}{_CLASSIFY}"
    rf"|\b(?:it|this|that|(?:this|the)(?:\s+[\w-]+){{1,3}})(?:'s|\s+(?:is|was|must be)\b)\s*{_ADVERB}){_ARTICLE})"
)


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_OPENER = _words(
    r"(?:(?:so|thus|therefore|hence|then|ok|okay|well|and|now|yes|sure|finally|in conclusion|to conclude|overall|clearly|definitely"
    r"|certainly|only|i (?:think|believe|conclude)(?: that)?|wait|no|actually|sorry|correction|hmm|on second thought|i mean|rather"
    r"|instead)\b[\s,:—-]*)*"
)
_CORRECTS = _words(
    r"^\W*(?:(?:but|oh|so)\s+)?(?:wait|no|actually|sorry|correction|hmm|on second thought|i mean|rather|instead)\b"
    r"|\b(?:scratch that|let me (?:re\w+|correct|double[- ]check|check|think)|i made an? (?:mistake|error)"
    r"|i was (?:wrong|mistaken)|i mis(?:read|counted|calculated)"
    r"|i take (?:that|it) back)"
)
_FINAL = _words(r"\bfinal(?:ly)?\b|\bin conclusion\b|\bto conclude\b")
_LEADS_UP = _words(r"(?:[,:—]|\b(?:so|thus|hence|therefore|then|and|but|means|that|have|finally)|=)\s*$")
_REASON = _words(r"[\s,]*(?:since|because|as(?! well\b)|given|after|when|with|by|from|based|looking|considering|for|due|among|of)\b")
_CONTRAST = _words(r"[\s,]*(?:and\s+)?(?:not|rather than|instead of)\b")
_OTHERS_SAY = _words(
    r"\b(?:say|says|said|saying|claim\w*|writ\w+|wrote|puts?|believes?|thinks|thought|argue\w*|users?|people|someone|somebody|students?|they"
    r"|he|she|others?|some|many|most would)\b"
)
_MAYBE = _words(
    r"\b(?:if|unless|whether|suppos\w+|assum\w+|imagin\w+|pretend\w*|tempt\w+|might|may|could|seem\w*|looks?|example|format|jok\w+|kidding"
    r"|ignore|disagree\w*|doubt\w*|den(?:y|ies)|hardly|neither|nor|either|both|or)\b"
)
_NEGATES = _words(r"\b(?:not|never|cannot|no longer|false|untrue|wrong\w*|incorrect\w*|mistak\w+)\b|n't\b")
_TAKES_BACK = _words(
    r"\b(?:that|this|it|which|(?:my|the|that|this) (?:answer|ans|choice|option|label|above))(?:'s|\s+(?:is|was))"
    r"(?:\s+(?:also|just|all|clearly|a))*\s+(?:wrong|incorrect|false|untrue|lie|joke|nonsense"
    r"|mistake\w*|not(?=\s*(?:$|[.,!;]|true|right|correct|so|the case|really)))\b"
    r"|\bi(?:'m|\s+(?:was|am))\s+(?:not sure|wrong|joking|kidding|lying|mistaken)\b|\bi (?:disagree|take (?:that|it) back|retract)\b"
    r"|\bjust kidding\b|\bor not\b|\bnot really\b|\bnever ?mind\b|\b(?:scratch|ignore|disregard|forget) (?:that|this|it|the above)\b"
    r"|^\W*(?:no|not|nope)\W*$|\bnot\W*$"
)
_OPENS_UP = _words(r"[\s,]*(?:if|unless|or|maybe|perhaps|possibly|except|alternatively)\b")
_OR_ELSE = _words(r"\W*(?:or|alternatively|maybe|perhaps|possibly)\b")
_ANOTHER = _words(
    r"\b(?:wrong|incorrect|false|worst|worse|bad|poor|least|less|unlikely|second|third|previous|next|other|another|trap|alternative|opposite"
    r"|rejected|eliminated|excluded|not|never)\b"
)
_EXPLAINS = _words(
    r"\s*(?:$|[.!,:;(—–-]|(?:because|since|as(?! well\b)|for|given|due|which|based|according|where|when|with|in|here|not|rather|instead)\b)"
)
_NO_MORE = _words(r"[\s.!]*$|[\s,.]*(?:because|since|as(?! well\b))\b")

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_WRAPPED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mathsf)\s*\{([^{}]*)\}")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_TYPOGRAPHY = re.compile(r"\*+|(?<!\w)_{1,3}(?=\w)|(?<=\w)_{1,3}(?!\w)|\\[()\[\]]|\$|^[ \t]*(?:#+|[-+•])[ \t]+", re.MULTILINE)
_QUOTATION = re.compile(r'"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|(?<!\w)\'(?=\S)(?:[^\'\n]|\'(?=\w))*\'')
_CLAUSES = _words(r"(?<=[.!?;])\s|\.\.\.|…|,?\s(?=(?:but|so|therefore|thus|hence|however)\b)")
_LEADS_DOWN = _words(rf"(?:.*\b)?{_NOUN}{_QUALIFIER}(?:{_IS})?\s*:?\s*")
_DENIES_DOWN = _words(r"\b(?:not|never|cannot|wrong|incorrect|false)\b|n't\b")
_BOX, _GAP = "\ue000", "\ue001"  # stand before an option that was boxed, and for a quotation


@dataclass(frozen=True)
class Reading:
    """What a text asserts.

    Attributes:
        option: The one option; None when there is none.
        reason: "" with an option, else why there is none.
    """

    option: str | None
    reason: str = ""


@dataclass(frozen=True)
class _Said:
    """What one clause says of an option."""

    kind: Literal["asserts", "adds", "hedges", "denies", "lists"]
    option: str
    final: bool = False


@dataclass(frozen=True)
class _Grammar:
    """The patterns of one set of options."""

    known: dict[str, str]  # an option as written, without case where case does not count -> the option
    fold: bool
    letters: bool
    lead: re.Pattern[str]
    bare: re.Pattern[str]
    boxed: re.Pattern[str]
    correct: re.Pattern[str]
    item: re.Pattern[str]
    denied: re.Pattern[str]
    quoted: re.Pattern[str]
    mention: re.Pattern[str]

    def option(self, written: str) -> str:
        """The option of a match; "" for what only looks like one, such as the Turkish ı for an i where case does not count."""
        written = " ".join(written.split())
        return self.known.get(written.casefold() if self.fold else written, "")

    def others(self, text: str, option: str, small: bool = False) -> bool:
        """Whether a text names another option. Of letters only capitals count unless `small`; A and I before a word are English."""
        for found in self.mention.finditer(text):
            if self.letters and (not (small or found.group().isupper()) or re.match(r"(?:'\w+)?\s+[a-z]", text[found.end() :])):
                continue
            if self.option(found.group()) != option:
                return True
        return False


def reader(options: Collection[str], *, letters: bool = False, ignore_case: bool = False) -> Callable[[str], Reading]:
    """A function that finds the one option a text asserts.

    Args:
        options: What may be asserted.
        letters: Whether they are single letters. Inside a sentence only capitals count, and A and I may be English words.
        ignore_case: Whether upper and lower case are the same.
    """
    fold = ignore_case or letters
    words = "|".join(r"\s+".join(map(re.escape, option.split())) for option in sorted(options, key=len, reverse=True))
    word = rf"(?<![\w'/\\-]){'(?i:' if fold else '(?:'}{words})(?![\w/\\]|['-]\w)"
    named = rf"{_BOX}?[(\[]?(?P<option>{word})(?P<close>[)\]]?)"
    verdict = r"(?:wrong|incorrect|false|not|never)\b|(?:isn't|wasn't|cannot be|can't be)\b"
    grammar = _Grammar(
        known={(key.casefold() if fold else key): option for option in options for key in [" ".join(option.split())]},
        fold=fold,
        letters=letters,
        lead=re.compile(_LEAD + named),
        bare=re.compile(rf"(?i:{_ARTICLE}){named}"),
        boxed=re.compile(rf"{_BOX}(?P<option>{word})(?P<close>)"),
        correct=re.compile(rf"(?i:(?:only\s+)?{_ARTICLE}){named}(?i:\s+is\s+{_ADVERB}(?:correct|right|true|{_NOUN})\b)"),
        item=re.compile(rf"\W*(?i:{_ARTICLE})(?:[(\[](?P<a>{word})[)\]]|(?P<b>{word})[).:])[.:]?\s+(?P<rest>\S.*)"),
        denied=re.compile(
            rf"(?i:(?:\bnot|n't|\bnever|\bneither|\bnor)\s+(?:\w+\s+){{0,2}}?{_ARTICLE}){_BOX}?[(\[]?(?P<a>{word})"
            rf"|(?P<b>{word})[)\]]?(?i:\s+(?:(?:is|was)\s+(?:\w+\s+)?)?(?:{verdict}))"
        ),
        quoted=re.compile(rf"""(["'`])(?P<inside>(?<![\w/\\-]){"(?i:" if fold else "(?:"}{words})[.,]?)\1"""),
        mention=re.compile(word),
    )
    return lambda text: _resolve(grammar, text)


def _resolve(grammar: _Grammar, text: str) -> Reading:
    """Follow the clauses of a text to what stands at its end."""
    live: set[str] = set()  # what is asserted so far; "" for what is no answer: a hedge, or an assertion taken back
    listed: set[str] = set()
    final = corrects = False
    for clause, said in _sayings(grammar, _plain(grammar, text)):
        corrects = corrects or bool(_CORRECTS.search(clause))
        if said is None:
            if live and (_TAKES_BACK.search(clause) or (_OR_ELSE.match(clause) and grammar.others(clause, ""))):
                live, corrects = live | {""}, True
        elif said.kind == "lists":
            listed.add(said.option)
        elif said.kind == "adds":
            live = live | {said.option} if live else live
        elif said.kind == "denies":
            live = live | {""} if said.option in live else live
        else:
            if corrects or (said.final and not final):
                live = set()
            live = live | {said.option if said.kind == "asserts" else ""}
            final, corrects = final or said.final, False
    live = live or listed
    if len(live) == 1 and "" not in live:
        return Reading(live.pop())
    return Reading(None, "several options are asserted" if len(live) > 1 else "no option is asserted")


def _plain(grammar: _Grammar, text: str) -> str:
    """The text without quotations, code and typography, its boxes marked."""
    text = unicodedata.normalize("NFC", text).replace(_BOX, " ").replace(_GAP, " ").replace("\r\n", "\n").replace("\r", "\n")
    text = text.translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0xA0: " "})
    text = _QUOTED_LINE.sub(_GAP, _FENCED.sub(_GAP, text))
    for _ in range(3):  # text in bold in a box
        text = _WRAPPED.sub(r"\1", text)

    def box(found: re.Match[str]) -> str:
        inside = _TYPOGRAPHY.sub("", found[1]).strip()
        option = grammar.bare.match(inside)
        good = option and re.match(r"[\s]*(?:$|[:.)])", inside[option.end() :])
        return f" {_BOX}{option['option']} " if option and good else _GAP

    text = _TYPOGRAPHY.sub("", _BOXED.sub(box, text))
    return _QUOTATION.sub(_GAP, grammar.quoted.sub(lambda found: found["inside"], text))


def _sayings(grammar: _Grammar, plain: str) -> Iterator[tuple[str, _Said | None]]:
    """Each clause and what it says. A line such as "b. 4" is one option with its text, not a sentence and a number."""
    lines = [line.strip() for line in plain.split("\n") if line.strip()]
    for line in _joined(grammar, lines):
        item = grammar.item.fullmatch(line)
        if item and not grammar.lead.search(item["rest"]) and not grammar.denied.search(line):
            written = item["a"] or item["b"]
            option = grammar.option(written)
            capital = not grammar.letters or written.isupper() or len(lines) == 1
            yield line, (_Said("lists", option) if capital and not grammar.others(item["rest"], option, small=written.islower()) else None)
            continue
        for index, clause in enumerate(clause.strip() for clause in _CLAUSES.split(line)):
            if clause and len(clause) <= LONGEST_CLAUSE:
                yield clause, _said(grammar, clause, index == 0, len(lines) == 1)


def _joined(grammar: _Grammar, lines: list[str]) -> Iterator[str]:
    """The lines, a heading such as "The answer is:" together with the one line below that it is about."""
    position = 0
    while position < len(lines):
        line, below = lines[position], lines[position + 1 : position + 3]
        heads = below and len(line) <= 100 and line.endswith(":")
        if heads and _DENIES_DOWN.search(line):
            position += 1  # what is said not to be the answer is no option of a list either
        elif heads and _LEADS_DOWN.fullmatch(line) and not any(grammar.item.fullmatch(other) for other in below[1:]):
            line, position = f"{line} {below[0]}", position + 1
        yield line
        position += 1


def _said(grammar: _Grammar, clause: str, first: bool, alone: bool) -> _Said | None:
    """What one clause says of an option; None when nothing.

    A bare option asserts at the beginning of a line or after a word such as "so". Behind a full stop it may as well be part of a list,
    and can only add to what was asserted before.
    """
    if clause.endswith("?"):
        return None
    start = _OPENER.match(clause).end()
    denied = grammar.denied.search(clause)
    for found in grammar.correct.finditer(clause, start):
        if _leads_up(grammar, clause[start : found.start()]):
            return _weighed(grammar, found, clause)
    for found in grammar.lead.finditer(clause):
        before = clause[start : found.start()]
        if _ANOTHER.search(clause, found.start(), found.start("option")):
            continue
        if _leads_up(grammar, before):
            return _weighed(grammar, found, clause)
        if _NEGATES.search(before):
            return _Said("denies", grammar.option(found["option"]))
    for found in grammar.boxed.finditer(clause):
        before = clause[start : found.start()]
        if not any(pattern.search(before) for pattern in (_OTHERS_SAY, _MAYBE, _NEGATES)) and not grammar.others(before, ""):
            return _weighed(grammar, found, clause)
    found = grammar.bare.match(clause, start)
    if found and _NO_MORE.match(clause[found.end() :]) and (alone or not grammar.letters or found["option"].isupper()):
        return _weighed(grammar, found, clause) if first or start else _Said("adds", grammar.option(found["option"]))
    return _Said("denies", grammar.option(denied["a"] or denied["b"])) if denied else None


def _leads_up(grammar: _Grammar, before: str) -> bool:
    """Whether what stands before an assertion, in its clause, leads up to it and puts it into nobody else's mouth."""
    if not before.strip():
        return True
    if not _LEADS_UP.search(before) or _OTHERS_SAY.search(before):
        return False
    return bool(_REASON.match(before)) or not (_MAYBE.search(before) or _NEGATES.search(before) or grammar.others(before, ""))


def _weighed(grammar: _Grammar, found: re.Match[str], clause: str) -> _Said | None:
    """An assertion, unless what follows takes it back or names a second option."""
    option, behind = grammar.option(found["option"]), clause[found.end() :]
    final = bool(_FINAL.search(clause[: found.start("option")]))
    denied = any(grammar.option(no["a"] or no["b"]) == option for no in grammar.denied.finditer(clause, found.start()))
    alternatives = not (_REASON.match(behind) or _CONTRAST.match(behind))
    second = alternatives and grammar.others(behind, option, small=found["option"].islower())
    if denied or second or _OPENS_UP.match(behind) or _TAKES_BACK.search(behind):
        return _Said("hedges", option, final)
    if not (_EXPLAINS.match(behind) or found["close"]):
        return None
    return _Said("asserts", option, final)
