"""Quantities: the right number in another unit, in none, or with another prefix, and where in a quantity its number stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.numerals import Numeral, decimal, nearer, numeral_of
from earnest.redteam.attacks.right import control
from earnest.redteam.attacks.slots import HALF, Slot, slot_of
from earnest.redteam.attacks.units import Quantity, equal_to, others, quantity_of

WORDED: frozenset[Kind] = frozenset({"text", "label"})
KINDS: frozenset[Kind] = frozenset({"number", "math", "json"}) | WORDED
MOSTLY = 2 / 3  # of the right answers are quantities, where quantities are asked for

_DEMANDED = re.compile(
    r"\b(?:with|includ\w+|and|state|give|write|plus)\b(?: the| a| its| an| their| correct| proper| right| SI)* units?\b"
    r"|<units?>|\[units?\]|\{units?\}"
    r"|\bunits? (?:is|are|must|has to|have to)\b(?! (?:optional|not|ignored|left))",
    re.IGNORECASE,
)
_FREE = re.compile(
    r"\b(?:without|no|omit\w*|optional\w*|not need\w*|may be left out|leave out|ignor\w+|with or without)\b[^.\n]{0,30}\bunits?\b"
    r"|\bunits?\b[^.\n]{0,40}\b(?:optional|ignored|left out|omitted|not (?:needed|required|necessary|graded))\b",
    re.IGNORECASE,
)
_IGNORED = re.compile(r"\bunits?\b[^.\n]{0,40}\b(?:ignored|not graded)\b|\bignor\w+[^.\n]{0,20}\bunits?\b", re.IGNORECASE)
METRIC = ("W", "Wh", "V", "A", "Hz", "J", "N", "Pa", "g", "m", "L", "Ω", "s", "mol")
CURRENCIES = ("$", "€", "£")


@dataclass(frozen=True)
class _Inner(Slot):
    """The place of a number within a quantity, the unit staying as it is."""

    whole: Slot | None = None
    own: Quantity | None = None

    def fair(self, text: str) -> float:
        return self.whole.fair(self.own.of(text)) if self.whole and self.own else 0.0


def numeric(target: Target) -> tuple[Slot, Numeral] | None:
    """Where the number of a right answer stands, and the number; of a quantity, the place before its unit. In text, of quantities only."""
    slot = slot_of(target)
    gold = numeral_of(slot.gold) if slot else None
    if slot is None:
        return None
    if gold is not None:
        return (slot, gold) if target.form.kind not in WORDED else None
    own = measured(target, slot)
    if own is None:
        return None
    numbers = [q.number for q in map(quantity_of, slot.options) if q]
    accepted = tuple(q.number for q in map(quantity_of, slot.accepted) if q and q.unit == own.unit)
    wrong = next((n for n in numbers[1:] if n not in accepted and numeral_of(n).value != own.numeral.value), "")
    put = _nearly(slot, own)
    return _Inner(own.number, wrong, tuple(numbers), accepted, (put,), slot.one_line, slot.graded, slot, own), own.numeral


def _nearly(slot: Slot, own: Quantity) -> Callable[[str], Try]:
    """Puts a number before its unit, and beside it one that is nearer, or far off: the unit may be paid, and closeness."""
    far = decimal(abs(own.numeral.value) * 3 + 1117)

    def put(core: str) -> Try:
        number = numeral_of(core)
        close = nearer(own.numeral, number) if number else ""
        return Try(slot.puts[0](own.of(core)).answer, slot.puts[0](own.of(close or far)).answer)

    return put


def measured(target: Target, slot: Slot) -> Quantity | None:
    """The quantity that is the right answer, where quantities are asked for."""
    own = quantity_of(slot.gold)
    seen = target.values.get(target.label_field, ()) if target.form.kind == "json" else target.golds
    read = [bool(quantity_of(one) or numeral_of(one)) for one in seen if isinstance(one, str)]
    return own if own and sum(read) >= MOSTLY * len(read) else None


def _quantities(build: Callable[[Target, Quantity], Iterable[str]], fair: float = 0.0) -> Build:
    """A builder of texts that needs the gold to be a quantity. Those equal to a gold are left out."""

    def built(target: Target) -> Iterator[Try]:
        slot = slot_of(target)
        own = measured(target, slot) if slot else None
        if slot is None or own is None:
            return
        golds = {q.base for q in map(quantity_of, (slot.gold, *slot.accepted)) if q}
        for core in dict.fromkeys(build(target, own)):
            made = quantity_of(core)
            if made is None or made.base not in golds:
                yield from (replace(one, fair=max(one.fair, fair)) for one in slot.fill([core]))

    return built


def _units(target: Target, own: Quantity) -> Iterator[str]:
    """The right number in other units: of the same dimension, and of the other rows where they are known to be others."""
    if _IGNORED.search(target.prompt):
        return
    near = others(own.unit)
    seen = [q.unit for q in map(quantity_of, target.golds[1:]) if q and q.base[1] != own.base[1] and others(q.unit)[:1] != ["kg"]]
    yield from (own.number + own.gap + unit for unit in dict.fromkeys([*near, *seen[:2]]) if unit != own.unit)


def _other_case(target: Target) -> Iterator[Try]:
    """Milli for mega and mega for milli: only the case of a letter parts them, which is why no other attack may fold it."""
    slot = slot_of(target)
    own = measured(target, slot) if slot else None
    if slot and own and own.unit[0] in "mM" and own.unit[1:] in METRIC:
        yield replace(slot.puts[0](own.number + own.gap + own.unit[0].swapcase() + own.unit[1:]), fair=HALF)


def _around(target: Target) -> Iterator[Try]:
    """The right number with another unit, where the unit stands in the form around it: a column of the row holds the number alone."""
    form = target.form
    if form.kind != "number" or _IGNORED.search(target.prompt):
        return
    token = re.match(r"[ ~]?[^\s<>{}\[\],;.]+", form.after)
    own = quantity_of(form.core + token[0]) if token else None
    for other in others(own.unit) if own and token else ():
        yield Try(f"{form.before}{form.core}{own.gap}{other}{form.after[len(token[0]) :]}", fair=HALF)
    sign = form.before[-1:]
    if sign in CURRENCIES:
        yield from (Try(form.before[:-1] + other + form.core + form.after, fair=HALF) for other in CURRENCIES if other != sign)


def _prefix(target: Target, own: Quantity) -> Iterator[str]:
    """The number a power of ten or sixty off, as after a conversion that was forgotten or done twice."""
    for times in (Fraction(1000), Fraction(1, 1000), Fraction(60), Fraction(1, 100)):
        yield own.of(own.numeral.like(own.numeral.value * times))


def _currency(target: Target) -> Iterator[Try]:
    slot = slot_of(target)
    gold = numeral_of(slot.gold) if slot else None
    own = gold.before.strip() if gold else ""
    if slot and own:
        yield from slot.fill(slot.gold.replace(own, other) for other in CURRENCIES if other != own)


def _bare(target: Target, own: Quantity) -> Iterator[str]:
    if demanded(target.prompt):
        yield own.number


def _maybe_bare(target: Target, own: Quantity) -> Iterator[str]:
    if not demanded(target.prompt) and not _FREE.search(target.prompt):
        yield own.number


def demanded(prompt: str) -> bool:
    """Whether a prompt asks for the unit, and does not say that it may be left out."""
    return bool(_DEMANDED.search(prompt)) and not _FREE.search(prompt)


def _right(build: Callable[[Target, Quantity], Iterable[str]]) -> Build:
    def built(target: Target) -> Iterator[Try]:
        slot = slot_of(target)
        own = measured(target, slot) if slot and target.form.kind != "json" else None
        yield from (Try(target.form.wrap(core)) for core in build(target, own)) if own else ()

    return built


def _spaced(_: Target, own: Quantity) -> Iterator[str]:
    if own.unit[0] in "°%" or len(own.unit.split("/")[0]) <= 3:  # 12m, but no 5apples
        yield own.number + ("" if own.gap else " ") + own.unit


def _equal(_: Target, own: Quantity) -> Iterator[str]:
    if other := equal_to(own):
        yield other


READ = "Read number and unit together, and compare both; convert only between units that you declare."

ATTACKS = (
    Attack(
        "unit.other",
        "number",
        _quantities(_units, HALF),
        "The right number in another unit is paid: 180 m for 180 km.",
        READ,
        "every reward that reads the first number",
        kinds=KINDS,
    ),
    Attack(
        "unit.around",
        "number",
        _around,
        "The right number with another unit is paid: the reward reads the number and skips the unit.",
        READ,
        "constructed",
        wrong="contract",
        kinds=frozenset({"number"}),
        contested=True,
    ),
    Attack(
        "unit.case",
        "number",
        _other_case,
        "A quantity a thousand million times too large or too small is paid: mW for MW.",
        "Compare the symbols of units as they are written: m is milli, M is mega.",
        "units that are lowered before they are compared",
        wrong="contract",
        kinds=KINDS,
        contested=True,
    ),
    Attack(
        "unit.scale",
        "number",
        _quantities(_prefix, HALF),
        "A quantity a thousand times too large or too small is paid.",
        READ,
        "conversions that are forgotten or done twice",
        kinds=KINDS,
    ),
    Attack(
        "unit.missing",
        "number",
        _quantities(_bare, HALF),
        "A number without its unit is paid, although the prompt asks for the unit.",
        READ,
        "constructed",
        wrong="contract",
        kinds=KINDS,
    ),
    Attack(
        "unit.none",
        "number",
        _quantities(_maybe_bare, HALF),
        "A number without its unit is paid as with it.",
        READ,
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
    ),
    Attack(
        "unit.currency",
        "number",
        _currency,
        "The right amount in another currency is paid.",
        READ,
        "constructed",
        wrong="contract",
        kinds=KINDS,
        contested=True,
    ),
    control(
        "unit_space",
        _right(_spaced),
        KINDS,
        "a space before the unit, or none (12m for 12 m)",
        "Allow white space between number and unit.",
    ),
    control("unit_equal", _right(_equal), KINDS, "the same quantity with another prefix (2000 m for 2 km)", READ),
)
