"""Where a short answer stands, and what may be written in its place.

A label, a number or a short text stands in the task's own wrapping, or in a field of a JSON object. What an attack writes goes there, and,
where there is a wrapping, bare as well. Of a JSON object the other fields stay right, so each such answer brings its own control: the same
object with an honest wrong value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from earnest.redteam.attack import Build, Target, Try
from earnest.redteam.attacks.nowork import NEARLY, SEVERAL
from earnest.redteam.attacks.numerals import nearer, numeral_of, standing
from earnest.redteam.attacks.units import quantity_of
from earnest.redteam.findings import SLACK
from earnest.redteam.form import prompt_text
from earnest.redteam.listed import CITATIONS

SHORT = 80  # characters of the longest answer that counts as short
HALF = 0.85  # of the way from wrong to right: a number may be paid without its unit, but not (nearly) as much as with it
_BESIDE = re.compile(
    r"\b(?:may|can|could|free to)\b[^.\n]{0,40}\b(?:expla(?:in|nation)|reason|comment|justif|notes?\b|words?\b|sentences?\b|text\b)",
    re.IGNORECASE,
)
MOST = 12  # options that stand in one answer
BARE = 3  # of so many texts one is also tried outside tags and boxes: a reward that finds it there mostly finds it inside as well


@dataclass(frozen=True)
class Slot:
    """The place of a short answer.

    Attributes:
        gold: What stands there in the right answer.
        wrong: What stands there in an honest wrong one; "" where nothing is known to be wrong.
        options: Everything that could be answered, the gold first, at most `MOST`.
        accepted: Further golds of the row.
        puts: Ways to write something there, the task's own first.
        one_line: Whether a line break would end the answer in the task's own way of writing, so that only its first line would be asserted.
        graded: Whether a part of the gold may be paid in part: free text, and lists of labels.
    """

    gold: str
    wrong: str
    options: tuple[str, ...]
    accepted: tuple[str, ...]
    puts: tuple[Callable[[str], Try], ...]
    one_line: bool = False
    graded: bool = False

    def fair(self, text: str) -> float:
        """How much of the way to right a text may earn for what it shares with a gold, where likeness may be paid."""
        own = quantity_of(self.gold)  # of a quantity, the number alone may be paid in part
        least = HALF if own and re.search(standing(own.number), text) else 0.0
        return max(least, *(likeness(text, gold) for gold in (self.gold, *self.accepted))) if self.graded else least

    def fill(self, cores: Iterable[str]) -> Iterator[Try]:
        """Each of the texts in the task's own way, and some of them bare too, those aside that are a gold of the row."""
        golds = {fold(text) for text in (self.gold, *self.accepted)}
        for index, core in enumerate(dict.fromkeys(cores)):
            if fold(core) not in golds:
                broken = self.one_line and "\n" in core
                asserted = broken and fold(core.rsplit("\n", 1)[1]) in golds  # by a contract that reads the last line
                bare = self.puts[1:] if (self.one_line or index % BARE == 0) and not asserted else ()
                puts = [*([] if broken else self.puts[:1]), *bare]
                yield from (replace(put(core), fair=self.fair(core)) for put in puts)

    def said(self, templates: Iterable[str]) -> Iterator[Try]:
        """Sentences with {gold} and {wrong} in them, those aside whose own words name the gold, and so might assert it."""
        good = (
            template
            for template in templates
            if ("{wrong}" not in template or self.wrong) and not self.named_in(template.replace("{gold}", " ").replace("{wrong}", " "))
        )
        return self.fill(template.replace("{wrong}", self.wrong).replace("{gold}", self.gold) for template in good)

    def named_in(self, text: str) -> bool:
        """Whether a text has a gold of the row in it, as a whole word; of single letters only capitals count."""
        return any(
            re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", text, re.IGNORECASE if len(gold) > 1 else 0)
            for gold in (self.gold, self.gold.strip("()[]"), *self.accepted)
            if gold
        )


def likeness(text: str, gold: str) -> float:
    """What F1 over words would pay a text, and a little more: rewards for free text pay it and mean to."""
    words, golden = (Counter(re.findall(r"\w+", one.casefold())) for one in (text, gold))
    shared = sum((words & golden).values())
    return min(NEARLY, 2 * shared / (words.total() + golden.total()) + SLACK) if shared else 0.0


def fold(text: str) -> str:
    """A text without what seldom counts: case and white space."""
    return " ".join(text.casefold().split())


def slot_of(target: Target) -> Slot | None:
    """Where the short answer of a row stands; None where it has none."""
    if target.form.kind == "json":
        return _field(target)
    gold = target.form.core.strip()
    if target.form.kind in ("calls", "code", "sql") or not 0 < len(gold) <= SHORT or "\n" in gold:
        return None
    if CITATIONS.fullmatch(gold) and _BESIDE.search(target.prompt):  # they count wherever they stand in what may be said
        return None
    options = _different([gold, *target.labels, *([] if target.labels else target.golds)])
    puts: list[Callable[[str], Try]] = [lambda core: Try(target.form.wrap(core))]
    if target.form.wrapped:
        puts.append(Try)
    one_line = target.form.wrapped in ("words", "hashes")
    slot = Slot(gold, _wrong(options, target.accepted), options[:MOST], tuple(target.accepted), tuple(puts), one_line)
    return replace(slot, graded=target.form.kind == "text" or several_at_once(target, slot))


def _field(target: Target) -> Slot | None:
    """The field that holds the main value of a JSON object."""
    field, value = target.label_field, target.form.value
    gold = value.get(field) if isinstance(value, dict) else None
    if isinstance(gold, bool) or not isinstance(gold, (str, int, float)) or not 0 < len(str(gold)) <= SHORT:
        return None
    seen = target.labels or target.values.get(field, ())
    options = _different([str(gold), *(str(one) for one in seen if isinstance(one, (str, int, float)) and not isinstance(one, bool))])
    wrong = _wrong(options, target.accepted)
    if not wrong:
        return None
    numeric = not isinstance(gold, str)
    control = target.form.change(**{field: typed(wrong) if numeric else wrong})
    put = lambda core: Try(target.form.change(**{field: typed(core) if numeric else core}), control)  # noqa: E731
    graded = isinstance(gold, str) and not target.labels and " " in gold
    return Slot(str(gold), wrong, options[:MOST], tuple(target.accepted), (put,), graded=graded)


def typed(text: str) -> Any:
    """A plain numeral as the number it is, any other text as it stands."""
    if re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d{1,15}\.\d{1,15}", text) else text


def _different(texts: Iterable[str]) -> tuple[str, ...]:
    """Each short text once, in order."""
    found: dict[str, str] = {}
    for text in texts:
        if text.strip() and len(text) <= SHORT:
            found.setdefault(fold(text), text.strip())
    return tuple(found.values())


def _wrong(options: tuple[str, ...], accepted: Iterable[str]) -> str:
    """An option that is no gold of the row, nor has the value of one."""
    golds = (options[0], *accepted)
    texts, values = {fold(text) for text in golds}, {n.value for n in map(numeral_of, golds) if n}
    for option in options[1:]:
        number = numeral_of(option)
        if fold(option) not in texts and (number is None or number.value not in values):
            return option
    return ""


def fairly(build: Build) -> Build:
    """Numbers may be paid for closeness: each that is none of the gold's but stands near it gets one that stands nearer as its control."""

    def built(target: Target) -> Iterator[Try]:
        slot = slot_of(target)
        gold = numeral_of(slot.gold) if slot else None
        for made in build(target):
            number = numeral_of(str(made.answer).removeprefix(target.form.before).removesuffix(target.form.after))
            if slot and gold and number and made.control is None and (close := nearer(gold, number)):
                made = replace(made, control=slot.puts[0](close).answer)
            yield made

    return built


def several_at_once(target: Target, slot: Slot) -> bool:
    """Whether an answer may hold several options ("news, sport"), so that two of them are no nonsense."""
    options = {fold(option) for option in slot.options}
    lists = any(
        len({fold(part) for part in re.split(r"[,;|/+]", option)} & options) > 0 for option in slot.options if re.search(r"[,;|/+]", option)
    )
    return lists or bool(SEVERAL.search(prompt_text(target.case)))
