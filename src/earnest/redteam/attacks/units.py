"""Quantities: numbers with a unit, what the units measure, and which of them are only another prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from earnest.redteam.attacks.numerals import Numeral, decimal, numeral_of

# One dimension a line: no two units of a line are the same.
_DIMENSIONS = tuple(
    line.split()
    for line in """
        mm cm m km in ft mi
        millimeters centimeters meters kilometers inches feet miles
        mg g kg t lb oz
        milligrams grams kilograms tonnes pounds ounces
        s min h
        seconds minutes hours days weeks months years
        mL L
        milliliters liters gallons
        m/s km/h mph
        m² cm² km² ha
        m^2 cm^2 km^2
        m³ cm³ L
        m^3 cm^3
        N kN
        Pa kPa MPa bar atm
        J kJ MJ kWh kcal
        joules kilojoules calories
        W kW MW
        watts kilowatts
        V mV kV
        A mA
        Ω kΩ
        Hz kHz MHz GHz
        °C °F K
        B KB MB GB TB
        bytes kilobytes megabytes gigabytes
        mol mmol
        USD EUR GBP
        dollars euros cents
    """.strip().splitlines()
)
# Times, sizes and lengths as they stand behind numbers, each line of one kind, no two the same.
_BEHIND = tuple(
    line.split()
    for line in (
        "ns us ms s m h d w",
        "k m g t",
        "K M G T",
        "KB MB GB TB",
        "kb mb gb tb",
        "Ki Mi Gi Ti",
        "KiB MiB GiB TiB",
        "px em rem pt vh vw",
    )
)
_TABLED = ("mm", "cm", "km", "mg", "kg", "ml", "mL", "min", "EUR", "USD", "€")  # of the table of units, those that are nothing else
# A unit, how many of another it is, and that other.
_STEPS = {
    "km": (1000, "m"), "m": (100, "cm"), "cm": (10, "mm"), "t": (1000, "kg"), "kg": (1000, "g"), "g": (1000, "mg"), "L": (1000, "mL"),
    "h": (60, "min"), "min": (60, "s"), "kN": (1000, "N"), "MPa": (1000, "kPa"), "kPa": (1000, "Pa"), "MJ": (1000, "kJ"), "kJ": (1000, "J"),
    "MW": (1000, "kW"), "kW": (1000, "W"), "kV": (1000, "V"), "V": (1000, "mV"), "A": (1000, "mA"), "kΩ": (1000, "Ω"),
    "GHz": (1000, "MHz"), "MHz": (1000, "kHz"), "kHz": (1000, "Hz"), "mol": (1000, "mmol"),
}  # fmt: skip
_SPELLED = {
    "l": "L", "ml": "mL", "sec": "s", "secs": "s", "mins": "min", "hr": "h", "hrs": "h", "kilo": "kg", "kilos": "kg", "kgs": "kg",
    "ohm": "Ω", "ohms": "Ω", "kph": "km/h", "kmh": "km/h", "lbs": "lb", "€": "EUR", "$": "USD", "£": "GBP",
}  # fmt: skip
_WORDS = {
    "kilometer": "km", "meter": "m", "centimeter": "cm", "millimeter": "mm", "tonne": "t", "kilogram": "kg", "gram": "g", "milligram": "mg",
    "liter": "L", "milliliter": "mL", "hour": "h", "minute": "min", "second": "s", "kilojoule": "kJ", "joule": "J", "kilowatt": "kW",
    "watt": "W",
}  # fmt: skip
_SYMBOLS = {unit for line in _DIMENSIONS for unit in line}
_TOKEN = r"(?:[^\W\d_]|[°µμΩ€£])[^\s\d,;:=<>(){}\[\]?!*+]{0,14}(?:\^?-?[23]|[²³]|\^\{-?[23]\})?(?:/[^\W\d_]{1,3}(?:\^?[23]|[²³])?)?"
_QUANTITY = re.compile(
    r"(?P<number>[-+−]?\d[\d.,/]*(?:[eE][-+]?\d{1,3}|\s?(?:×|\\times)\s?10\^\{?-?\d{1,3}\}?)?)(?P<gap>\s?|\\,|~|\\ )"
    rf"(?P<unit>{_TOKEN}(?: (?:per|squared|cubed|Celsius|Fahrenheit|[^\W\d_]{{1,12}} per) ?(?:{_TOKEN})?)?"
    rf"|(?:square|cubic|degrees) {_TOKEN})"
)
_NO_UNIT = re.compile(r"st|nd|rd|th|[ap]\.?m\.?", re.IGNORECASE)  # 7th, 5 pm


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, as it was written.

    Attributes:
        number: The number as text.
        numeral: The same, read.
        gap: What stands between them: a space, or nothing.
        unit: The unit.
    """

    number: str
    numeral: Numeral
    gap: str
    unit: str

    def of(self, number: str) -> str:
        """Another number in the same unit."""
        return number + self.gap + self.unit

    @property
    def base(self) -> tuple[Fraction, str]:
        """Its value in the smallest unit that only another prefix leads to, and that unit."""
        value, unit = self.numeral.value, _plain(self.unit)
        while unit in _STEPS:
            times, unit = _STEPS[unit]
            value *= times
        return value, unit


def quantity_of(text: str) -> Quantity | None:
    """The quantity a text is; None where it is something else: no number, a number alone, words."""
    found = _QUANTITY.fullmatch(text.strip().removesuffix("."))
    numeral = numeral_of(found["number"]) if found else None
    if found is None or numeral is None or _NO_UNIT.fullmatch(found["unit"]):
        return None
    joined = not found["gap"]  # 5x, 10k and the 1990s are no quantities, 12m is one
    if joined and (_written(found["unit"].split("/")[0]) not in _SYMBOLS or re.fullmatch(r"\d{4}s", text.strip())):
        return None
    return Quantity(found["number"], numeral, found["gap"], found["unit"])


def ends_with(text: str) -> Quantity | None:
    """The quantity at the end of a text; None where it ends otherwise."""
    text = text.strip().removesuffix(".")
    starts = [m.start() for m in re.finditer(r"(?<![\w.,])[-+−]?\d", text[-60:])]
    found = (quantity_of(text[-60:][start:]) for start in starts)
    return next((one for one in found if one), None)


def others(unit: str) -> list[str]:
    """Units that measure the same as one and are another, the nearest first; of one that nobody knows, units of other dimensions."""
    head, stroke, rest = unit.partition("/")
    own = _written(unit)
    for line in _DIMENSIONS:
        if own in line:
            at = line.index(own)
            return sorted(line[:at] + line[at + 1 :], key=lambda other: abs(line.index(other) - at))[:3]
    if stroke and (changed := [f"{other}/{rest}" for other in others(head) if _written(head) in _SYMBOLS]):
        return changed
    return [other for other in ("kg", "s", "m") if other[0] != unit.casefold()[:1]][:2]


def others_behind(unit: str, seen: list[str]) -> list[str]:
    """Other units than one, one of each kind that it may be of: where right answers have some, of theirs, else the next smaller."""
    made = []
    for kind in _BEHIND:
        if unit in kind:
            at = kind.index(unit)
            made.append(next((other for other in seen if other != unit and other in kind), kind[at - 1 if at else 1]))
    return list(dict.fromkeys([*made, *(others(unit)[:1] if unit in _TABLED else ())]))


def equal_to(own: Quantity) -> str:
    """The same quantity with another prefix; "" where none is known."""
    unit = _plain(own.unit)
    if own.unit != unit or unit not in _STEPS:
        return ""
    times, smaller = _STEPS[unit]
    return decimal(own.numeral.value * times) + own.gap + smaller


def _written(unit: str) -> str:
    """A unit as the table writes it: symbols as they are, words in the plural."""
    if unit in _SYMBOLS:
        return unit
    folded = _spelled(unit)
    return next((form for form in (folded, f"{folded}s", folded.removesuffix("s") + "s") if form in _SYMBOLS), _SPELLED.get(folded, unit))


def _plain(unit: str) -> str:
    """The symbol of a unit, the same for all ways to write it."""
    folded = _spelled(unit)
    return _WORDS.get(folded.removesuffix("s")) or (unit if unit in _SYMBOLS else _SPELLED.get(folded, folded))


def _spelled(unit: str) -> str:
    return re.sub(r"(met|lit)re(s?)$", r"\1er\2", unit.casefold().rstrip("."))
