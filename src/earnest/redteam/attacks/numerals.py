"""Numbers as they are written in answers: their value, and the same dress for another value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_NUMERAL = re.compile(r"(?P<before>[$€£]?\s?)(?P<number>[-+−]?(?:\d{1,3}(?:,\d{3})+|\d{1,200})?(?:\.\d{1,200})?)(?P<after>\s?\\?%?)")
_FRACTION = re.compile(r"(?P<sign>[-−]?)(?:(?P<a>\d{1,50})/(?P<b>\d{1,50})|\\[dt]?frac\{(?P<c>\d{1,50})\}\{(?P<d>\d{1,50})\})")


@dataclass(frozen=True)
class Numeral:
    """A number as it was written: its value, what stands before and behind its digits, and the digits themselves ("" of a fraction)."""

    value: Fraction
    before: str = ""
    after: str = ""
    digits: str = ""

    def like(self, value: Fraction | int) -> str:
        """Another value in the same dress."""
        return self.before + decimal(Fraction(value)) + self.after


def numeral_of(text: str) -> Numeral | None:
    """The number a text is; None where it is something else."""
    text = text.strip()
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        top, bottom = int(fraction["a"] or fraction["c"]), int(fraction["b"] or fraction["d"])
        return Numeral(Fraction(-top if fraction["sign"] else top, bottom)) if bottom else None
    found = _NUMERAL.fullmatch(text)
    if not found or not re.search(r"\d", found["number"]):
        return None
    return Numeral(Fraction(found["number"].replace(",", "").replace("−", "-")), found["before"], found["after"], found["number"])


def decimal(value: Fraction) -> str:
    """A value as a plain decimal, rounded where it does not end."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, 16):
        shifted = value * 10**places
        if shifted.denominator == 1:
            digits = str(abs(shifted.numerator)).rjust(places + 1, "0")
            return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return f"{float(value):.6f}"


def nearer(gold: Numeral, number: Numeral) -> str:
    """A number a little nearer to the gold than another, on the same side, with neither's digits in the other's; "" where there is none."""
    off, own = number.value - gold.value, decimal(abs(gold.value))
    for part in range(1, 10):
        value = gold.value + off * Fraction(100 - part, 100)
        text = decimal(abs(Fraction(round(value)) if abs(off) >= 10 else value))
        if own not in text and text not in own and text[::-1] != own and abs(Fraction(text)) != abs(number.value):
            return f"{'-' if value < 0 else ''}{text}"
    return ""
