"""Templates of several parts that prompts ask for, such as lines `Name: ...` or `Answer: <number> <unit>`, filled from columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from earnest.redteam.asked import SAID
from earnest.redteam.listed import CITED

MOST = 24  # templates that are tried
LINES = 8  # most lines of a template
SURE = 0.9  # what is said in a slot for how sure one is
QUOTED_AT_LEAST = 20  # characters from which on a value that stands in its prompt is a part of the question
_QUOTE = re.compile(r"`([^`\n]{3,120})`|\"([^\"\n]{3,120})\"|“([^”\n]{3,120})”|(?<!\w)'([A-Z][^'\n]{2,119})'(?!\w)")
_AFTER = re.compile(r"\b(?:form|format|template|layout|pattern)\b[^\n:]{0,40}: ?([^\n]{3,120})$", re.IGNORECASE | re.MULTILINE)
_LINE = re.compile(r"((?:[-*] )?[A-Za-z][\w -]{0,24}):(?: (.*))?")
_INLINE = re.compile(r"(?<![\w/])([A-Z][a-z]{2,20}):(?= ?[`'\"]? [a-z<\[])")
_HOLE = re.compile(r"<[^<>\n]{1,120}>|\[[a-z][a-z ]{1,30}\]|\.\.\.|…|\b(?:N|X|NUMBER|ANSWER|VALUE|UNIT|WORD|NAME|LABEL)\b(?!:)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_HEADING = re.compile(r"(?<![#\w])(#{1,4} [A-Z]\w+(?: [a-z]\w+){0,3})(?=[,.;:\n]|\Z| and\b)")
_FREE = re.compile(
    r"\b(?:reason|reasoning|why|because|explanation|explain|rationale|justification|sentences?|line of text|thoughts?|\d+ words)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(r"\b(?:confidence|certainty|probability|how sure)\b", re.IGNORECASE)
_CENTS = re.compile(r"\btwo decimals?\b|\btwo (?:decimal )?(?:digits|places)\b|\bwith cents\b", re.IGNORECASE)
_VAGUE = frozenset(("no", "id", "number", "name", "the", "of", "a", "is", "in"))


@dataclass(frozen=True)
class Template:
    """How an answer of several parts is written.

    Attributes:
        form: With a slot for each column, as `layout` reads it.
        columns: Of the slots, in order; dotted if nested.
        free: Slots that may say anything, each with something to say.
    """

    form: str
    columns: tuple[str, ...]
    free: Mapping[str, Any]


@dataclass(frozen=True)
class _Hole:
    start: int
    stop: int
    said: str  # what its line and the words in it say of it
    sample: str = ""  # of a list, two items


def templates_in(prompts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[Template]:
    """The templates that all of some prompts show, with the columns of their rows that are likeliest to fill them."""
    columns = columns_that_answer(prompts, rows)
    if not prompts or not columns:
        return []
    cents = all(_CENTS.search(prompt) for prompt in prompts)
    found = [{one.form: one for text in _texts(prompt) for one in _with_columns(text, columns, cents)} for prompt in prompts]
    return [one for form, one in found[0].items() if all(form in other for other in found)][:MOST]


def columns_that_answer(prompts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns, nested ones dotted, that may hold a part of an answer, each with its first value; none that the prompts show."""
    if not rows:
        return {}
    leaves: dict[str, Any] = {}
    for name, value in rows[0].items():
        inner = {f"{name}.{key}": own for key, own in value.items()} if isinstance(value, Mapping) else {name: value}
        leaves.update({key: own for key, own in inner.items() if key.lower() not in ("id", "split") and own is not None})

    def shown(name: str) -> bool:
        values = [row.get(name) for row in rows]
        return all(
            (isinstance(value, list) and value and isinstance(value[0], Mapping) and "role" in value[0])
            or (isinstance(value, str) and value in prompt and (len(value) >= QUOTED_AT_LEAST or value.strip() == prompt.strip()))
            for value, prompt in zip(values, prompts, strict=False)
        )

    return {name: value for name, value in leaves.items() if not shown(name)}


def _texts(prompt: str) -> Iterator[str]:
    """The passages of a prompt that may be templates."""
    for found in _QUOTE.finditer(prompt):
        text = next(filter(None, found.groups()))
        if ":" in text or _HOLE.search(text):
            yield text
    yield from (found[1].strip(" .") for found in _AFTER.finditer(prompt))
    yield from _blocks(prompt.split("\n"))
    names = list(dict.fromkeys(found[1] for found in _INLINE.finditer(prompt)))
    for take in range(2, min(len(names), LINES) + 1):
        yield "\n".join(f"{name}: {_said_of(name, prompt)}" for name in names[-take:])


def _said_of(name: str, prompt: str) -> str:
    """What a prompt says behind a name with a colon, up to the end of the sentence or line."""
    found = re.search(rf"\b{re.escape(name)}: ([^\n.]*)", prompt)
    return found[1] if found else ""


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Runs of lines that have a name with a colon or a hole in brackets; the fixed lines between and behind them may belong to it."""
    marks = [bool(_LINE.fullmatch(line.strip())) or bool(re.search(r"<[^<>/\n]{1,120}>", line)) for line in lines]
    starts = [i for i, mark in enumerate(marks) if mark and (i == 0 or not marks[i - 1])]
    headings = list(dict.fromkeys(_HEADING.findall("\n".join(lines))))
    for start in starts:
        stop = start
        while stop < len(lines) and stop - start < LINES and lines[stop].strip():
            stop += 1
        for end in range(stop, start, -1):
            block = "\n".join(line.strip() for line in lines[start:end])
            if sum(marks[start:end]) < 1 or (end - start == 1 and not _HOLE.search(block)):
                continue
            if len(headings) > 1:
                yield "\n\n".join([*(f"{heading}\n{SAID}" for heading in headings[:-1]), f"{headings[-1]}\n{block}"])
            yield block


def _with_columns(text: str, columns: Mapping[str, Any], cents: bool) -> Iterator[Template]:
    holes = _holes(text)
    free = {i: SAID for i, hole in enumerate(holes) if _FREE.search(hole.said)}
    unsure = {i for i, hole in enumerate(holes) if _UNSURE.search(hole.said) and i not in free}
    asked = [i for i in range(len(holes)) if i not in free and i not in unsure]
    if not asked or len(holes) > LINES:
        return
    for taken in _assigned([holes[i] for i in asked], columns):
        names = dict(zip(asked, taken, strict=True))
        form, position = "", 0
        for i, hole in enumerate(holes):
            form += text[position : hole.start]
            form += SAID if i in free else "{sure}" if i in unsure else _slot(names[i], hole, columns[names[i]], cents)
            position = hole.stop
        yield Template(form + text[position:], tuple(taken), {"sure": SURE} if unsure else {})


def _slot(name: str, hole: _Hole, value: Any, cents: bool) -> str:
    spec = hole.sample if isinstance(value, (list, tuple)) else ".2f" if cents and isinstance(value, float) else ""
    return f"{{{name}:{spec}}}" if spec else f"{{{name}}}"


def _holes(text: str) -> list[_Hole]:
    """The holes of a template: in each of its lines those in brackets, or what stands behind its name, or a sample's number."""
    holes, position = [], 0
    for line in text.split("\n"):
        holes += [_Hole(position + start, position + stop, said, sample) for start, stop, said, sample in _of_line(line)]
        position += len(line) + 1
    return holes


def _of_line(line: str) -> list[tuple[int, int, str, str]]:
    if line == SAID:
        return []
    cited, named = CITED.search(line), _LINE.fullmatch(line)
    sample = f"[n]{cited[1]}[n]" if cited else ""
    found = list(_HOLE.finditer(line))
    trailing = named and named[2] and len(found) == 1 and found[0].group() in ("...", "…") and not named[2].startswith((".", "…"))
    if found and not trailing:
        return [(hole.start(), hole.end(), f"{line[: hole.start()] if len(found) == 1 else ''} {hole.group()}", sample) for hole in found]
    if named and named[2]:
        if number := _NUMBER.search(named[2]) if len(named[2].split()) <= 2 else None:  # an example
            start = named.start(2)
            return [(start + number.start(), start + number.end(), named[1], "")]
        return [(named.start(2), len(line), f"{named[1]} {named[2]}", sample)]
    if cited:  # "the answer [7][8]"
        head = line[: cited.start()].rstrip()
        return [*([(0, len(head), head, "")] if head else []), (cited.start(), cited.end(), "sources", sample)]
    return []


def _assigned(holes: Sequence[_Hole], columns: Mapping[str, Any]) -> Iterator[list[str]]:
    """Columns for some holes: those that are named like what the holes say, the others in their order."""
    taken: dict[int, str] = {}
    pairs = [(-_likeness(name, hole, columns[name]), i, name) for i, hole in enumerate(holes) for name in columns]
    pairs.sort(key=lambda one: one[0])
    for score, i, name in pairs:
        if score < 0 and i not in taken and name not in taken.values():
            taken[i] = name
    left = [name for name in columns if name not in taken.values()]
    open_holes = [i for i in range(len(holes)) if i not in taken]
    if len(holes) == 1:
        yield from ([name] for name in dict.fromkeys([*taken.values(), *columns]))
    elif len(open_holes) <= len(left):
        starts = range(len(left) - len(open_holes) + 1) if open_holes else [0]
        for start in starts:
            rest = dict(zip(open_holes, left[start:], strict=False))
            yield [(taken | rest)[i] for i in range(len(holes))]
        if len(holes) == len(columns):
            yield list(columns)


def _likeness(column: str, hole: _Hole, value: Any) -> int:
    """How alike a column's name and what a hole says are: words in common, of which the first ones of a line count most."""
    own = [word for word in re.split(r"[\W_]+", column.rpartition(".")[2].lower()) if word and word not in _VAGUE]
    said = re.findall(r"[a-z]+", hole.said.lower())
    same = [i for i, word in enumerate(said) if any(_same(word, other) for other in own)]
    listed = bool(hole.sample) and isinstance(value, (list, tuple))
    return (10 - min(min(same), 9) if same else 0) + (2 if listed else 0)


def _same(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return one == other or (len(shorter) >= 4 and longer.startswith(shorter))


def in_pairs(markers: Sequence[str], thought: str) -> list[str]:
    """Forms of markers that open and close by turns: reasoning between the first ones, the answer between the last two."""
    couples = list(zip(markers[::2], markers[1::2], strict=False))
    forms = []
    for line in ("", "\n"):
        parts = [f"{a}{line}{thought}{line}{b}" for a, b in couples[:-1]] + [f"{a}{line}{{}}{line}{b}" for a, b in couples[-1:]]
        forms.append(line.join(parts))
    return [*forms, *(f"{a}{{}}{b}" for a, b in pairwise(markers))]
