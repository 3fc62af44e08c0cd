"""Which answer a text asserts: exactly one, or none.

Shared by numbers and maths. An answer counts where a form says that it is one: a box, tags, a marker at the start of a line, a
sentence such as "The answer is 42.", or a text that is nothing else. Searching for the right answer anywhere, or taking the last
number there is, pays for lists of guesses and for "definitely not 42"; so here what is asserted is found first, without knowing
the reference, and everything that leaves it open is refused: several answers that differ, a negation, a condition, a hedge, a
quotation, a question, or words afterwards that take it back.

A correction is no such doubt: of two answers that differ the last counts if the words between them correct the first. Whoever
guesses gains nothing by it, since still only one answer counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from earnest.rewards.doubt import NUMERAL, corrects, doubtful, doubtful_before, taken_back, without_sign_offs
from earnest.text import CLOSE, OPEN, split_thinking

Place = Literal["any", "whole", "box", "tag", "marker", "sentence", "last"]
PLACES = ("any", "whole", "box", "tag", "marker", "sentence", "last")
Read = Callable[[str], Any]

LONGEST = 100_000  # characters of a text that is looked at
LONGEST_ANSWER = 1_000  # characters of one answer
NEARBY = 200  # characters before a box that can make it a part of something
MOST = 50  # places in a text that assert an answer
MOST_WORDS = 200  # times the word "answer" is looked into, the last ones
LONGEST_GREETING = 100  # characters of a greeting after an answer that stands alone

_SENTENCE_END = re.compile(r"[.!?](?=[\s\"'”’)*_`]|$)|[\n。！？]")
_CLAUSE_START = re.compile(r"[,;]\s|(?<![\w\\])(?:so|thus|hence|therefore|then)(?!\w)", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_ANSWER_WORD = re.compile(r"(?<![\w\\])answer(?![\w])(?!>)", re.IGNORECASE)
# a colon counts right after the word only: "give the answer in per cent: 3/6 = 50%" is a step
_CONNECTOR = re.compile(r"(?<=answer)[\s*_]*[:=]|(?<!\w)(?:is|are|equals)(?!\w)\s*:?", re.IGNORECASE)
_HEADING = re.compile(
    r"(?im)^[#*_ \t]*+(?:(?:so|thus|hence|therefore)\b,?[ \t]+)?(?:(?:the|my|our)[ \t]+)?(?:(?:final|correct)[ \t]+)?"
    r"answer(?:[ \t]+is)?[ \t]*+:?[*_ \t]*+\n\s*+"
)
_DISPLAY = re.compile(r"(?:\$\$|\\\[)\s{0,9}([^\n$]{1,1000}?)\s{0,9}(?:\$\$|\\\])")
_REASON = re.compile(r",?\s+(?:because|since|as(?!\s+(?:well|opposed)\b))\s", re.IGNORECASE)
_NUMBERED = re.compile(r"\W*\d+[.):]\s+\D*[^\W\d]")
_BLANK = re.compile(r"[\s*_`$#.!\\()\[\]-]*\Z")
_SPACING = r"(?:\s|\$|\\[()\[\],;:! ]|\*\*|__|\\(?:quad|qquad|displaystyle|left|right)(?![A-Za-z]))*"
_OPERATOR = r"[+*/^_<>×÷±≠≈−-]|\\(?:times|cdot|div|pm|mp|sqrt|frac|ne|neq|not|le|leq|ge|geq|approx|in)(?![A-Za-z])"
_LARGER_LEFT = re.compile(rf"(?:{_OPERATOR}|\{{){_SPACING}\Z")
_WORDS_BEFORE = re.compile(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}\s*\Z")
_ADVERB = re.compile(r"\A(?:therefore|thus|hence|then|simply|exactly|indeed)\s+", re.IGNORECASE)
# scripts without spaces between words, but for their numerals: 42万 is no 42
_NO_SPACES = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
_LETTER = rf"[^\W{_NO_SPACES}]|[一二三四五六七八九十百千万萬亿億兆半]"
_GLUED_LEFT = re.compile(rf"(?<!\\)(?<![A-Za-z])(?:{_LETTER}|[)}}])+\Z")
_LARGER_RIGHT = re.compile(
    rf"(?:{_LETTER})|[({{]|[ \t]+\d|{_SPACING}(?:[+*/×÷±−-]\s*(?:[\d\\({{]|[A-Za-z]\b)|\^(?!\s*\{{?\s*\\circ)|_[\w{{\\]|[<>≠≈]|"
    r"\\(?:times|cdot|div|pm|mp|ne|neq|cup|cap|frac|sqrt|pi)(?![A-Za-z]))"
)
_PERCENT_AFTER = re.compile(r"\s*\$?\s*(?:\\?%|(?:percent|per\s+cent|pct)\b)", re.IGNORECASE)
_UNIT_AFTER = re.compile(rf"{_SPACING}(?:\\(?:text|mathrm|mbox)\s*\{{\s*)?")
_WORD_AFTER = re.compile(
    r"(?!(?:is|are|was|were|and|or|but|so|in|on|at|as|for|of|to|from|by|with|per|each|every|because|since|when|if|that|which|not|the|a|an|"
    r"would|altogether|total|left|more|now|today|I|long|wide|tall|high|deep|away|apart)\b)[^\W\d_]+"
)


@dataclass(frozen=True)
class Asserted:
    """The one answer of a text, or why it has none.

    Attributes:
        value: What `read` made of it; None when refused.
        raw: The answer as it was written; "" when nothing was asserted.
        reason: "" when there is exactly one answer.
    """

    value: Any
    raw: str
    reason: str


@dataclass(frozen=True)
class _Candidate:
    """A place where a text says what its answer is; `start` and `end` take in the form itself, such as the box."""

    kind: str
    start: int
    end: int
    raw: str


def find_asserted(
    text: str,
    read: Read,
    place: Place = "any",
    marker: str = "####",
    digits: re.Pattern[str] | None = None,
    units: Sequence[str] = (),
) -> Asserted:
    """Find the one answer that a text asserts.

    Args:
        text: What the model wrote; a leading thinking block is left out.
        read: From the characters of an answer to its value; None where they are no answer. Values are compared with `==`.
        place: The form that counts: "box" (`\\boxed{42}`), "tag" (`<answer>42</answer>`), "marker" (a line that starts with it),
            "sentence" ("The answer is 42."), "whole" (the text is the answer), "any" of these, which must then agree. "last" takes the
            last numeral wherever it stands: lenient, and gamed by "not 42", 1 to 100, and the like.
        marker: What starts the line of an answer, as in GSM8K.
        digits: For "last": what a numeral looks like.
        units: Names of a unit; where there are any, a word that follows a box is a part of its answer.

    Returns:
        The answer, or why there is none.
    """
    if len(text) > LONGEST:
        return Asserted(None, "", "the text is too long")
    body = _after_thinking(text.replace("\r\n", "\n"))
    if body is None:
        return Asserted(None, "", "tags of thinking stand in the answer")
    if place == "last":
        return _last(body, read, digits or re.compile(r"\d+"))
    body = without_sign_offs(body)
    found, broken = _candidates(body, place, marker, read, units)
    if broken:
        return Asserted(None, "", broken)
    if not found:
        return _whole(body, read) if place in ("any", "whole") else Asserted(None, "", "no answer is asserted")
    return _agreed(body, found, read)


def _after_thinking(text: str) -> str | None:
    """The text after one block of thinking, which the prompt may have opened; None where tags remain."""
    if OPEN not in text and CLOSE not in text:
        return text
    body = split_thinking(text, opened=OPEN not in text, thinking=True).content
    return None if OPEN in body or CLOSE in body else body


def _candidates(text: str, place: Place, marker: str, read: Read, units: Sequence[str]) -> tuple[list[_Candidate], str]:
    """Every place of the wanted forms in order, the innermost where forms stand in each other; or what is broken."""
    wanted = ("tag", "box", "marker", "sentence") if place == "any" else (place,)
    found: list[_Candidate] = []
    if "tag" in wanted:
        tags = list(_TAG.finditer(text))
        if tags and [tag.group(1) for tag in tags] != ["", "/"]:
            return [], "the answer tags are not one pair"
        if tags:
            found.append(_Candidate("tag", tags[0].start(), tags[1].end(), text[tags[0].end() : tags[1].start()]))
    if "box" in wanted or place in ("tag", "marker"):
        boxes, broken = _boxes(text, units)
        if broken and "box" in wanted:
            return [], broken
        found += boxes
    if "marker" in wanted:
        lines = re.finditer(rf"(?m)^[ \t]*+{re.escape(marker.strip())}[ \t]*+(\S.*)$", text)
        # headings look like the marker of GSM8K; where any form counts, a line of words is one
        answers = (
            _Candidate("marker", m.start(), m.end(), m.group(1))
            for m in lines
            if place == "marker"
            or (NUMERAL.match(m.group(1).lstrip("-+−$ ")) and not _NUMBERED.match(m.group(1)[:NEARBY]))
            or read(m.group(1)[:LONGEST_ANSWER]) is not None
        )
        found += islice(answers, MOST + 1)
    if "sentence" in wanted:
        found += _sentences(text, read)
    if len(found) > MOST:
        return [], "too many answers are asserted"
    found.sort(key=lambda c: (c.start, -c.end))
    inner = [c for c in found if not any(o is not c and c.start <= o.start and o.end <= c.end and _wraps(text, c, o) for o in found)]
    return [
        c for c in inner if place in ("any", c.kind) or any(o.kind == place and o.start <= c.start and c.end <= o.end for o in found)
    ], ""


def _wraps(text: str, outer: _Candidate, inner: _Candidate) -> bool:
    """Whether the outer form holds the inner one and else only punctuation, so that they are one answer."""
    if outer.kind == inner.kind:
        return outer.kind == "sentence" and inner.end == outer.end and inner.start > outer.start
    around = outer.raw.replace(text[inner.start : inner.end], "", 1)
    return inner.kind == "box" and _BLANK.match(around) is not None


def _boxes(text: str, units: Sequence[str]) -> tuple[list[_Candidate], str]:
    """All boxes with their braces balanced; a box in a box is refused."""
    found: list[_Candidate] = []
    for match in _BOX.finditer(text):
        if found and match.start() < found[-1].end:
            return [], "a box stands in a box"
        depth, position = 1, match.end()
        for brace in re.finditer(r"\\.|[{}]", text[match.end() : match.end() + LONGEST_ANSWER]):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            position = match.end() + brace.end()
            if depth == 0:
                break
        if depth:
            return [], "a box is not closed"
        raw = text[match.end() : position - 1]
        percent = _PERCENT_AFTER.match(text, position)
        if percent:
            raw, position = raw + "%", percent.end()
        elif units:
            name, position = _unit_after(text, position, units)
            raw += name
        found.append(_Candidate("box", match.start(), position, raw))
        if len(found) > MOST:
            break
    return found, ""


def _unit_after(text: str, position: int, units: Sequence[str]) -> tuple[str, int]:
    """The unit, or the word in the place of one, that follows a box, and where it ends."""
    start = _UNIT_AFTER.match(text, position).end()
    for unit in sorted(units, key=len, reverse=True):
        if text.startswith(unit, start) and not re.match(r"[\w/^]", text[start + len(unit) : start + len(unit) + 1]):
            return f" {unit}", start + len(unit)
    word = _WORD_AFTER.match(text, start) if start > position else None
    return (f" {word.group()}", word.end()) if word else ("", position)


def _sentences(text: str, read: Read) -> list[_Candidate]:
    """Sentences that say what the answer is, and headings that say it of the line below."""
    found = []
    for match in _HEADING.finditer(text):
        display = _DISPLAY.match(text, match.end())
        end = display.end() if display else text.find("\n", match.end())
        end = len(text) if end < 0 else end
        raw = display.group(1) if display else text[match.end() : end]
        below = text[end : end + LONGEST_ANSWER].strip().partition("\n")[0]
        if len(raw) <= LONGEST_ANSWER and read(raw) is not None and not (below and read(below) is not None):
            found.append(_Candidate("sentence", match.start(), end, raw))
    for word in list(_ANSWER_WORD.finditer(text))[-MOST_WORDS:]:
        end = _sentence_end(text, word.end(), word.end() + LONGEST_ANSWER)
        connector = _CONNECTOR.search(text, word.end(), min(end, word.end() + 100))
        if not connector:
            continue
        raw = _ADVERB.sub("", text[connector.end() : end].strip(), count=1)
        reason = _REASON.search(text, connector.end(), end) if read(raw) is None else None
        if reason:
            end = reason.start()
            raw = _ADVERB.sub("", text[connector.end() : end].strip(), count=1)
        # a box in the sentence is an answer of its own, and what is no answer ("the answer is as follows") is no assertion
        if read(raw) is not None:
            found.append(_Candidate("sentence", word.start(), end, raw))
    return found


def _sentence_end(text: str, start: int, limit: int = LONGEST) -> int:
    end = _SENTENCE_END.search(text, start, limit)
    return end.start() if end else min(limit, len(text))


def _agreed(text: str, found: list[_Candidate], read: Read) -> Asserted:
    """The answer of the last place, if the others say the same or are corrected, and nothing leaves it open."""
    last = found[-1]
    values = [read(candidate.raw) if len(candidate.raw) <= LONGEST_ANSWER else None for candidate in found]
    if values[-1] is None:
        return Asserted(None, last.raw, "what is asserted is not an answer of the expected kind")
    for index in range(len(found) - 1, 0, -1):
        if values[index - 1] == values[-1]:
            continue
        if not corrects(text[found[index - 1].end : found[index].start]):
            return Asserted(None, last.raw, "several answers are asserted and they differ")
        break
    reason = _doubt(text, last) or taken_back(text[_sentence_end(text, last.end) :], values[-1], read)
    return Asserted(None, last.raw, reason) if reason else Asserted(values[-1], last.raw, "")


def _doubt(text: str, answer: _Candidate) -> str:
    """What in the words around an answer makes it something else than an assertion, or ""."""
    ends = reversed(list(_SENTENCE_END.finditer(text, 0, answer.start)))
    start = next((m.end() for m in ends if not _goes_on(text, m.start())), 0)
    end = _sentence_end(text, answer.end)
    before, after = text[start : answer.start], text[answer.end : end]
    clause = before[max((m.end() for m in _CLAUSE_START.finditer(before)), default=0) :]
    said = text[answer.start : answer.end].replace(answer.raw, "", 1) if answer.kind == "sentence" else ""
    if _quoted(text, start, answer.start):
        return "the answer is quoted"
    if end < len(text) and text[end] in "?？":
        return "the answer is a question"
    if doubtful_before(before, clause) or doubtful(said) or doubtful(after, before):
        return "the answer is negated, hedged or conditional"
    if answer.kind == "box" and _part_of_more(before, text[answer.end : end + 1]):
        return "the box is a part of something larger"
    return ""


def _goes_on(text: str, end: int) -> bool:
    """Whether a line leads into the next, as "This is wrong:" does."""
    return text[end] == "\n" and text[max(0, end - NEARBY) : end].rstrip(" \t\n*_")[-1:] == ":"


def _quoted(text: str, start: int, position: int) -> bool:
    before = text[start:position]
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return before.count('"') % 2 == 1 or before.count("“") > before.count("”") or line.lstrip().startswith(">")


def _part_of_more(before: str, after: str) -> bool:
    """Whether a box is an operand: `-\\boxed{5}` is no 5. A dash that begins a line is none."""
    before, after = _WORDS_BEFORE.sub(" ", _TAG.sub("", before[-NEARBY:])), _TAG.sub("", after)
    if re.fullmatch(r"\s*[-+*]\s+", before):
        return bool(_LARGER_RIGHT.match(after))
    return bool(_LARGER_LEFT.search(before) or _GLUED_LEFT.search(before) or _LARGER_RIGHT.match(after))


def _whole(text: str, read: Read) -> Asserted:
    """A text that is an answer and nothing else, or an answer and a short greeting without another number."""
    body = text.strip()
    if len(body) <= LONGEST_ANSWER and (value := read(body)) is not None:
        return Asserted(value, body, "")
    end = _SENTENCE_END.search(body)
    if end:
        first, rest = body[: end.start()], body[end.end() :].strip()
        greeting = len(rest) <= LONGEST_GREETING and not NUMERAL.search(rest) and "\\" not in rest and not taken_back(rest, None, read)
        value = read(first) if greeting and body[end.start()] != "?" and len(first) <= LONGEST_ANSWER else None
        if value is not None and not doubtful(rest.split(".")[0]):
            return Asserted(value, first, "")
    return Asserted(None, "", "no answer is asserted")


def _last(text: str, read: Read, digits: re.Pattern[str]) -> Asserted:
    """The last numeral of a text that can be read."""
    for match in reversed(list(digits.finditer(text))):
        value = read(match.group())
        if value is not None:
            return Asserted(value, match.group(), "")
    return Asserted(None, "", "there is no number")
