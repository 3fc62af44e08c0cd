"""How right answers are written and judged where no task file says it: a form with a hole, and where in a column the answer stands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from earnest.errors import UserError
from earnest.redteam.asked import SAID
from earnest.redteam.dated import BARE, PADDED, writings_of, written_as
from earnest.redteam.form import BOX, boxed
from earnest.redteam.layout import SLOT, filled, read, slots_of, values_of
from earnest.redteam.listed import JOINED, asks_for_several, citing, named_readings, parts
from earnest.redteam.shapes import gold_of
from earnest.redteam.terms import alike, solved
from earnest.rewards.json import parse_strict
from earnest.task import Answer, Row, Verdict

CITING = "cited:"
THOUGHT = "Let me see."  # reasoning, where a form has room for some
_NUMBER = re.compile(r"[-+−]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?(e[-+]?\d{1,3})?", re.IGNORECASE)
_HASHES = re.compile(r"####\s*(.+?)\s*\Z")


@dataclass(frozen=True)
class Way:
    """How right answers are written, and judged.

    Attributes:
        form: With `{}` in place of the answer; with slots such as `{value}` where the reading is "slots".
        gold: The column of the right answer.
        reading: Where in its value the answer stands: "hashes", "box", "first" of a list, all of it joined as `JOINED` says, "whole" of it
            as JSON, the number or truth "value" that a text is, "solved" where a term is to be made of it, "cited" and what parts them
            for numbers in brackets, a date as an example behind the reading is written, "slots" for several columns that fill those of
            the form, or "" for all of a text.
        free: Fields of an answer in JSON that may say anything: prose that the reward does not look at.
        unordered: Whether the order of lists does not matter.
        beside: Fields of an answer in JSON that are asked for beside the right ones and may say anything, each with something to say.
        listed: What parts the items of an answer that is a list in one text; "" for other texts.
        said: What gives the right answer of a row, where the file of the reward says it; no column does then.
    """

    form: str
    gold: str
    reading: str
    free: frozenset[str] = frozenset()
    unordered: bool = False
    beside: Mapping[str, Any] = field(default_factory=dict)
    listed: str = ""
    said: Callable[[Row], Answer] | None = None

    def oracle(self, row: Row) -> Answer:
        """The right answer of a row, in the form; "" where it has none."""
        if self.said is not None:
            return self.said(row)
        value = gold_of(row, self.gold)
        if value in (None, "", []) or (self.reading == "slots" and any(own is None for own in value.values())):
            return ""
        return self.written(self.cores(row)[0])

    def written(self, core: Any) -> str:
        """An answer in the form."""
        if self.reading == "slots":
            return filled(self.form, {**self.beside, **core})
        if self.is_json:
            return self.form.replace('"{}"', json.dumps(text_of(core), ensure_ascii=False)).replace("{}", _dumped(core))
        before, after = self.around
        # The free fields stand in front: what reasons should come before what it leads to.
        return before + text_of({**self.beside, **core} if self.beside else core) + after

    def check(self, text: Any, row: Row) -> Verdict:
        """Whether a text is a right answer in the form: equal but for white space and the writing of numbers."""
        said = text if isinstance(text, str) else str((text[-1] if text else {}).get("content") or "")
        core, golds = self.core_of(said), self.cores(row)
        if any(isinstance(gold, (Mapping, list, tuple)) for gold in golds):
            core = parse_strict(core).value if isinstance(core, str) else core
        elif not self.is_json and self.reading != "whole":
            golds = list(map(text_of, golds))
        even = partial(_even, unordered=self.unordered)
        golds = list(golds)
        right = core is not None and any(even(self._bound(core)) == even(self._bound(own)) for own in golds)
        right = right or (isinstance(core, str) and any(isinstance(own, str) and alike(core, own) for own in golds))
        return Verdict(right, well_formed=core is not None)

    def _bound(self, value: Any) -> Any:
        """A value, its free fields emptied, and a list in one text as one."""
        if self.listed and isinstance(value, str):
            return parts(value, self.listed)
        if isinstance(value, Mapping) and (self.free or self.beside):
            return {key: "" if key in self.free else item for key, item in value.items() if key not in self.beside}
        return value

    def cores(self, row: Row) -> list[Any]:
        """The answers of a row that count as right, the first the one to give."""
        value = self.said(row) if self.said is not None else gold_of(row, self.gold)
        if self.reading == "first":
            return list(value)
        if self.reading == "slots":
            return [values_of(self.form, value)]
        return [_read(value, self.reading)]

    def core_of(self, text: str) -> Any:
        """What a text gives as its answer; None where the form is broken."""
        if self.reading == "slots":
            return read(self.form, text, SAID)
        if self.is_json or (self.form == "{}" and self.reading == "whole"):
            found = parse_strict(text.strip())
            if found.value is None:
                return None
            pattern = json.loads(self.form.replace('"{}"', "{}").replace("{}", "null")) if self.is_json else None
            return _at_the_hole(pattern, found.value)
        before, after = (part.strip() for part in self.around)
        if before == THOUGHT:  # what leads to the last line may say anything
            return text.strip().rpartition("\n")[2].strip()
        body, marked, opening = text.strip(), _marks(before), re.match(r"<\w+>", before)
        led = opening is None or opening.group() == marked or body.startswith(opening.group())
        if (marked and body.count(marked) != 1 + after.count(marked)) or not led:
            return None
        if marked == BOX:  # of a box only what is in it counts, and words may follow it
            span = boxed(body)
            return body[slice(*span)].strip() if span and re.match(r"[\s.$,;:)]|\Z", body[span[1] + 1 :]) else None
        inner = body[body.find(marked) + len(marked) :]
        # Reasoning may stand in front of the mark, unless the form opens with a tag; nothing may follow but reasons that are asked for.
        if THOUGHT in after:
            head, _, tail = self.around[1].rstrip().partition(THOUGHT)
            pattern = rf"{_spaced(head)}(?P<said>[^<]+){_spaced(tail)}\Z" if tail else rf"(?<!\s){re.escape(head)}(?P<said>[^\n]+)\Z"
            ends = re.search(pattern, inner)
            return inner[: ends.start()].strip() if ends and ends["said"].strip() else None
        said = inner[: len(inner) - len(after)] if inner.endswith(after) else None
        if said is not None and before[-1:] in ("(", "[", "*") and said != said.strip():  # within brackets white space is no neutral thing
            return None
        return said.strip() if said is not None else None

    @property
    def is_json(self) -> bool:
        """Whether the form itself is JSON with a hole."""
        return self.reading != "slots" and _looks_json(self.form)

    @property
    def around(self) -> tuple[str, str]:
        """What stands before and behind the answer."""
        form = self.form if "{{}}" in self.form else self.form.replace("\\boxed{}", "\\boxed{{}}")
        before, _, after = form.partition("{}")
        return before, after


def sound(form: str) -> str:
    """A form that was given, refused if nothing can be put into it."""
    if "{}" not in form:
        if slots_of(form):
            return form
        raise UserError(
            f"The form {form!r} has no {{}} where the answer goes. Write it as in '<answer>{{}}</answer>', "
            "or with columns, as in '{value} {unit}'."
        )
    if _looks_json(form):
        hollow = form.replace('"{}"', "{}").replace("{}", "null")
        if parse_strict(hollow).value is None:
            raise UserError(f"The form {form!r} starts like JSON and is none. Write it as in '{{\"answer\": {{}}}}'.")
    return form


def _looks_json(form: str) -> bool:
    """Whether a form is JSON with a hole, or means to be: it opens with a bracket that belongs to no marker and no slot."""
    opened = form.lstrip()
    marker = re.match(r"\[/?[A-Za-z_]+\]", opened) or SLOT.match(opened)
    return opened.startswith(("{", "[")) and not marker and form.strip() not in ("{}", "[[{}]]")


def readings_of(golds: Sequence[Any], prompts: Sequence[str] = ()) -> list[str]:
    """How the answer may stand in the golds, the same way for all; the likeliest first."""
    known = [gold for gold in golds if gold not in (None, "", [])]
    cited = [f"{CITING}{joint}" for joint in citing(prompts)] if known and all(numbers_of(gold) for gold in known) else []
    return [*cited, *writings_of(known, prompts), *_readings(known, prompts)]


def _readings(known: Sequence[Any], prompts: Sequence[str]) -> list[str]:
    lists = [gold for gold in known if isinstance(gold, (list, tuple))]
    joined = named_readings(prompts)
    plain = (str, int, float)
    if known and len(lists) == len(known) and any(not isinstance(one, str) for gold in lists for one in gold):
        scalars = all(isinstance(one, plain) and not isinstance(one, bool) for gold in lists for one in gold)
        listed = asks_for_several(prompts) and not any("json" in prompt.lower() for prompt in prompts)
        return ["whole"] if not scalars else [*joined, "whole"] if listed else ["whole", *joined]
    if len(lists) == len(known) and all(gold and all(isinstance(one, str) for one in gold) for gold in lists):
        # where several may be named, the list is the answer; elsewhere it may hold as many answers that are all right
        every = ["whole", *joined] if any("json" in prompt.lower() for prompt in prompts) else [*joined, "whole"]
        return [*every, "first"] if asks_for_several(prompts) else ["first", *every]
    if known and all(solved(gold) for gold in known):
        return ["solved", "whole"]
    if any(isinstance(gold, (Mapping, list, tuple)) for gold in known):
        return ["whole"]
    for reading in ("hashes", "box"):
        if all(isinstance(gold, str) and _read(gold, reading) != gold for gold in known):
            return [reading]
    if all(isinstance(gold, str) and isinstance(parse_strict(gold).value, (dict, list)) for gold in known):
        return ["whole"]
    return [""]


def numbers_of(value: Any) -> list[Any]:
    """Numbers of passages: those that a list is of, or the places that one list's items have in the other, counted from 1."""
    if isinstance(value, Mapping):
        lists = sorted((own for own in value.values() if isinstance(own, (list, tuple))), key=len)
        places = [lists[1].index(item) + 1 if item in lists[1] else 0 for item in lists[0]] if len(lists) == 2 else [0]
        return places if all(places) else []
    items = list(value) if isinstance(value, (list, tuple)) else []
    return items if all(isinstance(item, (int, str)) and not isinstance(item, bool) and str(item).isdecimal() for item in items) else []


def _spaced(text: str) -> str:
    """A pattern for a text, white space between its words and tags left free."""
    return r"\s*".join(re.escape(word) for word in re.split(r"\s+|(?<=>)(?=<)", text.strip())) if text.strip() else r"\s*"


def _marks(before: str) -> str:
    """The last mark of what stands before an answer: a tag, a box, hashes, or all of it."""
    tag = re.search(r"(</?\w+>|\\boxed\{|####)\Z", before)
    return tag.group() if tag else before.rpartition("\n")[2] if THOUGHT in before else before


def _at_the_hole(pattern: Any, value: Any) -> Any:
    """What stands where a pattern has its one null; None where the rest differs."""
    if pattern is None:
        return value
    if isinstance(pattern, dict) and isinstance(value, dict) and set(pattern) == set(value):
        holes = [_at_the_hole(pattern[key], value[key]) for key in pattern if pattern[key] != value[key]]
        return holes[0] if len(holes) == 1 else None
    if isinstance(pattern, list) and isinstance(value, list) and len(pattern) == len(value):
        holes = [_at_the_hole(a, b) for a, b in zip(pattern, value, strict=True) if a != b]
        return holes[0] if len(holes) == 1 else None
    return None


def text_of(value: Any) -> str:
    """A value as it stands in a text."""
    return value if isinstance(value, str) else _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _even(value: Any, unordered: bool = False) -> Any:
    """A value with white space and the writing of numbers evened out; 1, 1.0 and "1" are equal, true is none of them."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, Mapping):
        return {key: _even(item, unordered) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_even(item, unordered) for item in value]
        return sorted(items, key=repr) if unordered else items
    lines = [line.rstrip() for line in str(value).strip().split("\n")]
    text = "\n".join(lines) if len(lines) > 1 else " ".join(lines[0].split())  # of several lines the indent may count
    number = text.replace("−", "-").replace(",", "") if _NUMBER.fullmatch(text) else ""
    try:
        return Decimal(number) if number else text
    except InvalidOperation:
        return text


def _read(value: Any, reading: str) -> Any:
    if reading == "whole" and isinstance(value, str):
        return parse_strict(value).value
    if reading == "solved":
        return solved(value)
    if reading.startswith(CITING):
        return reading.removeprefix(CITING).join(f"[{number}]" for number in numbers_of(value))
    if reading.startswith((PADDED, BARE)):
        return written_as(reading, value)
    if reading in JOINED:
        return JOINED[reading].join(map(text_of, value)) if isinstance(value, (list, tuple)) else value
    if reading in ("pairs", "tags"):
        pair = "{}: {}" if reading == "pairs" else "<{0}>{1}</{0}>"
        return "\n".join(pair.format(name, text_of(own)) for name, own in value.items())
    if reading == "value" and isinstance(value, Mapping):
        return {name: _read(own, reading) for name, own in value.items()}
    if reading == "value":  # of a text that is a number, true or false
        plain = parse_strict(str(value).replace(",", "").lower()).value
        return plain if isinstance(plain, (int, float)) else value
    if reading == "hashes" and isinstance(value, str):
        found = _HASHES.search(value)
        return found.group(1) if found else value
    if reading == "box" and isinstance(value, str):
        span = boxed(value)
        return value[slice(*span)] if span else value
    return value
