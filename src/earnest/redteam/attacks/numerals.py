"""Numbers as they are written in answers: their value, and the same dress for another value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_NUMERAL = re.compile(
    r"(?P<before>[$€£]?\s?)(?P<number>[-+−]?(?:\d{1,3}(?:,\d{3})+|\d{1,200})?(?:\.\d{1,200})?)"
    r"(?P<power>[eE](?P<e>[-+−]?\d{1,3})|\s?(?:×|\*|\\times|\\cdot)\s?10(?:\^|\*\*)\{?(?P<ten>[-+−]?\d{1,3})\}?)?(?P<after>\s?\\?%?)"
)
_FRACTION = re.compile(
    r"(?P<sign>[-−]?)(?:(?P<whole>\d{1,20})\s)?(?:(?P<a>\d{1,50})/(?P<b>\d{1,50})|\\[dt]?frac\{(?P<c>\d{1,50})\}\{(?P<d>\d{1,50})\})"
)
# In running text, the longest first: a fraction, a decimal, either with its sign and its power of ten.
_IN_TEXT = re.compile(
    r"(?<![\w.])[-+−]?(?:\\[dt]?frac\{\d{1,50}\}\{\d{1,50}\}|\d{1,50}/\d{1,50}(?![\d/])"
    r"|(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,200})(?:\.\d{1,200})?|\.\d{1,200})(?:e[-+]?\d{1,3}(?!\d))?)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Numeral:
    """A number as it was written.

    Attributes:
        value: Its value.
        before: What stands before its digits.
        after: What stands behind them.
        digits: The digits themselves, with the sign; "" of a fraction.
        fraction: How a fraction is written: "/", "frac", or "" where it is none.
        power: The power of ten as it is written behind the digits, if any.
    """

    value: Fraction
    before: str = ""
    after: str = ""
    digits: str = ""
    fraction: str = ""
    power: str = ""

    def like(self, value: Fraction | int) -> str:
        """Another value in the same dress: with as many decimals, commas between thousands and a plus where the number has them."""
        value = Fraction(value)
        if self.fraction:
            top, bottom, sign = abs(value.numerator), value.denominator, "-" if value < 0 else ""
            return f"{sign}{top}/{bottom}" if self.fraction == "/" else f"{sign}\\frac{{{top}}}{{{bottom}}}"
        plus = "+" if self.digits.startswith("+") and value >= 0 else ""
        whole, _, rest = decimal(value).partition(".")
        rest = rest if self.power else rest.ljust(len(self.digits.partition(".")[2]), "0")
        whole = re.sub(r"(?<=\d)(?=(?:\d{3})+\Z)", ",", whole) if "," in self.digits else whole
        return f"{self.before}{plus}{whole}{'.' if rest else ''}{rest}{self.after}"


def numeral_of(text: str) -> Numeral | None:
    """The number a text is; None where it is something else."""
    text = text.strip()
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        top, bottom = int(fraction["a"] or fraction["c"]), int(fraction["b"] or fraction["d"])
        top += int(fraction["whole"] or 0) * bottom
        value = Fraction(-top if fraction["sign"] else top, bottom) if bottom else None
        return Numeral(value, fraction="/" if fraction["a"] else "frac") if value is not None else None
    found = _NUMERAL.fullmatch(text)
    if not found or not re.search(r"\d", found["number"]):
        return None
    power = int((found["e"] or found["ten"] or "0").replace("−", "-"))
    value = Fraction(found["number"].replace(",", "").replace("−", "-")) * Fraction(10) ** power
    return Numeral(value, found["before"], found["after"], found["number"], power=found["power"] or "")


def numerals_in(text: str) -> list[Numeral]:
    """The numbers that a text names, in order."""
    found = (numeral_of(one) for one in _IN_TEXT.findall(text) if one.isascii() or "−" in one)
    return [one for one in found if one]


def standing(text: str) -> str:
    """A pattern for a text where it stands whole: within no longer word, and as a numeral within no other: no 5 in 1.5, -5 or 5/7."""
    before, after = r"(?<!\w)", r"(?!\w)"
    if re.match(r"\.?\d", text):
        before += r"(?<!\d[.,:/])(?<![-−/^.])"
    if re.search(r"\d\Z|\A[.\d].*\w\Z", text):  # a unit goes on behind a stroke too: m, m/s
        after += r"(?!\s?(?:\^|/|\*\*)\s?[\w({])(?!\s?(?:×|\*|\\times|\\cdot)\s?10\b)(?![.,:−-]\d)"
    return before + re.escape(text) + after


def decimal(value: Fraction) -> str:
    """A value as a plain decimal, rounded where it does not end."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, 40):
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
