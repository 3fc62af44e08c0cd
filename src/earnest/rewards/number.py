"""Numbers: one asserted answer after the reasoning, compared as the exact number it is.

What a numeral is, is a grammar of ASCII characters and not what `float` or `isdigit` would take: a sign (also U+2212), digits,
thousands only in well-formed groups of three, a decimal part, a fraction in lowest terms, an exponent where asked for. NaN,
infinities, digits of other scripts, dates and times are no numbers. Values are fractions of integers, so that nothing is rounded
before it is compared, and a tolerance of 0 means equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from earnest.errors import UserError
from earnest.rewards.asserted import PLACES, Place, find_asserted
from earnest.rewards.verifier import Attempt, Score, Verifier, invalid_task, right, wrong
from earnest.task import Row

MAX_DIGITS = 300  # of a numeral; longer ones are no answer to anything
MAX_EXPONENT = 308  # of ten, as a double has it
DOLLARS = ("$", "USD")

_SPACES = re.compile(r"\\[,;:! ]|~|\\(?:quad|qquad|displaystyle|left|right)(?![A-Za-z])|\u00a0|\u202f")
_WRAPPED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mathsf|mbox|bf|rm)\s*\{([^{}]*)\}")
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("__", "__"), ("`", "`"), ("*", "*"), ("_", "_"))
_PERCENT = re.compile(r"\s*(?:\\?%|(?:percent|per\s+cent|pct)\.?)\Z", re.IGNORECASE)
_DEGREE = re.compile(r"(?<=[0-9])\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|°)\Z")
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?\s*=\s*(?=[^=])")
_SCIENTIFIC = re.compile(r"\s*(?:[eE]|(?:\\times|\\cdot|[x×*])\s*10\s*(?:\^|\*\*)\s*)\{?([+-]?[0-9]{1,4})\}?")
_MIXED = re.compile(r"([0-9]+)(?:\s+([0-9]+)/([0-9]+)|\s*\\frac\{([0-9]+)\}\{([0-9]+)\})")
_FRACTION = re.compile(r"([0-9]+)\s*/\s*([0-9]+)|\\frac\s*(?:\{(-?[0-9]+)\}|([0-9]))\s*(?:\{(-?[0-9]+)\}|([0-9]))")


@dataclass(frozen=True)
class Format:
    """How numbers are written.

    Attributes:
        decimal: "." with thousands in commas, or "," with thousands in points.
        scientific: Whether 1.5e3 and 1.5 x 10^3 are numbers.
        percent: Whether the reference counts per cent, so that 28, 28% and "28 percent" are one number; else a per cent is a hundredth.
        currency: Signs and codes that may stand before or after a number.
        units: Names that may follow a number, all of the same unit.
        unit_required: Whether one of them must.
    """

    decimal: Literal[".", ","] = "."
    scientific: bool = False
    percent: bool = False
    currency: tuple[str, ...] = DOLLARS
    units: tuple[str, ...] = ()
    unit_required: bool = False


def number(
    gold: str = "answer",
    *,
    place: Place = "any",
    marker: str = "####",
    relative: float = 0.0,
    absolute: float = 0.0,
    decimal: Literal[".", ","] = ".",
    scientific: bool = False,
    percent: bool = False,
    currency: Sequence[str] = DOLLARS,
    units: Sequence[str] = (),
    unit_required: bool = False,
    name: str = "number",
) -> Verifier:
    """A verifier of numbers: the one number that the answer asserts is the reference.

    Rule: right when |answer - reference| <= max(absolute, relative * |reference|), in exact arithmetic (as `math.isclose` with the
    reference as its scale). Only one asserted number counts; see `earnest.rewards.asserted` for what asserts and what leaves it open.

    Args:
        gold: The column with the reference: a number, a numeral, or a worked solution that ends in a line with the marker (GSM8K).
        place: Where the answer stands: "any" of whole text, box, tags, marker or sentence, or one of them; "last" for the last numeral
            wherever it stands, which pays for "not 42" too.
        marker: What begins the line of an answer.
        relative: Tolerance as a share of the reference.
        absolute: Tolerance in the unit of the reference. Mind references near zero.
        decimal: "." or "," as the decimal sign; the other one groups thousands.
        scientific: Whether exponents are allowed.
        percent: Whether the reference counts per cent (28 is 28%). Without it 28% is 0.28, and 28 is not.
        currency: Signs and codes a number may have; () for none.
        units: Names of the one unit a number may have. Any other unit is refused.
        unit_required: Whether it must have it.
        name: As it appears in metrics.

    Raises:
        UserError: A tolerance that is negative or not finite, or an unknown place or decimal sign.
    """
    check_options(place, decimal, {"relative": relative, "absolute": absolute})
    if unit_required and not units:
        raise UserError("unit_required=True needs units=(...): the names that count.")
    form = Format(decimal, scientific, percent, tuple(currency), tuple(units), unit_required)
    allowed = Fraction(absolute), Fraction(relative)

    def judge(attempt: Attempt, row: Row) -> Score:
        reference = read_gold(row[gold], form, marker)
        if reference is None:
            return invalid_task(f"the reference is not a number: {short(row[gold])}")
        asserted = find_asserted(
            attempt.text, lambda raw: read_number(_DEGREE.sub("", strip_wrapping(raw)), form), place, marker, numeral(form), form.units
        )
        if asserted.reason:
            return wrong(asserted.reason, answer=short(asserted.raw))
        off = abs(asserted.value - reference)
        if off <= max(allowed[0], allowed[1] * abs(reference)):
            return right(answer=short(asserted.raw))
        return wrong("another number than the reference", answer=short(asserted.raw))

    return Verifier(name, judge, (gold,))


def check_options(place: str, decimal: str, tolerances: Mapping[str, float]) -> None:
    """Refuse options that mean nothing.

    Raises:
        UserError: An unknown place or decimal sign, or a number of `tolerances` that is negative or not finite.
    """
    if place not in PLACES:
        raise UserError(f"place={place!r} is no place of an answer. Use one of {', '.join(PLACES)}.")
    if decimal not in (".", ","):
        raise UserError(f'decimal={decimal!r} is no decimal sign. Use "." or ",".')
    for option, value in tolerances.items():
        if not 0 <= value < math.inf:
            raise UserError(f"{option}={value!r} is no tolerance. Use a finite number that is not negative.")


def read_gold(value: Any, form: Format, marker: str = "####") -> Fraction | None:
    """The number of a row: a JSON number, a numeral, or what follows the marker in a worked solution; None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        # the shortest decimal that reads back as this double is what somebody wrote
        return Fraction(Decimal(repr(value))) if math.isfinite(value) else None
    return read_number(after_marker(value, marker), form, reduced=False) if isinstance(value, str) else None


def after_marker(text: str, marker: str) -> str:
    """What follows the last line that begins with the marker, or the whole text."""
    lines = re.findall(rf"(?m)^[ \t]*{re.escape(marker.strip())}(.*)$", text)
    return lines[-1] if lines else text


def read_number(raw: str, form: Format = Format(), reduced: bool = True) -> Fraction | None:
    """The number that a text is, or None.

    Args:
        raw: Characters of an answer; mathematical delimiters, emphasis and a final full stop are no part of it.
        form: How numbers are written.
        reduced: Whether a fraction must be in lowest terms and no integer: one that is not is a sum left undone.
    """
    body, unit = strip_units(_strip_commands(strip_wrapping(raw)), form)
    if unit is None or (form.unit_required and not unit):
        return None
    body = _NAMED.sub("", body, count=1) if _NAMED.match(body) else body
    percent = _PERCENT.search(body)
    if percent:
        body = body[: percent.start()]
    value = _signed(body.strip(), form, reduced)
    return value / 100 if value is not None and percent and not form.percent else value


def strip_wrapping(raw: str) -> str:
    """An answer without what only sets it: delimiters of mathematics, emphasis, a final full stop."""
    body = raw.replace("−", "-").strip()
    for _ in range(8):  # each layer is taken off once; more than a handful is no answer
        before = body
        body = body.rstrip(" \t\n.").strip()
        for left, right_ in _DELIMITERS:
            inside = body[len(left) : -len(right_)]
            if len(body) > len(left) + len(right_) and body.startswith(left) and body.endswith(right_) and left not in inside:
                body = inside.strip()
        body = body.strip("*") if body.startswith("**") or body.endswith("**") else body
        if body == before:
            break
    return body


def _strip_commands(body: str) -> str:
    """A numeral without LaTeX around its parts: text commands, spacing, braces around a comma."""
    body = re.sub(r",\\!|\{\s*,\s*\}", ",", body)
    body = re.sub(r"\\[dtc]frac", r"\\frac", body)
    return _WRAPPED.sub(r"\1", _SPACES.sub(" ", body)).strip()


def strip_units(body: str, form: Format) -> tuple[str, str | None]:
    """An answer without currency and unit, and the unit it had ("" for none); None for currency both before and after."""
    for sign in sorted(form.currency, key=len, reverse=True):
        signs = rf"\\?{re.escape(sign)}"
        edge = r"(?![A-Za-z])" if sign[-1:].isalpha() else ""
        before = re.match(rf"([+-]?)\s*{signs}{edge}\s*(?=[-+.0-9])", body)
        after = re.search(rf"(?<=[0-9])\s*{signs}\Z", body)
        if before and after:
            return body, None
        if before:
            body = before.group(1) + body[before.end() :]
        elif after:
            body = body[: after.start()]
        if before or after:
            break
    for unit in sorted(form.units, key=len, reverse=True):
        edge = r"(?<![A-Za-z])" if unit[:1].isalpha() else ""
        match = re.search(rf"\s*{edge}{re.escape(unit)}\.?\Z", body)
        if match and match.start():
            return body[: match.start()], unit
    return body, ""


def _signed(body: str, form: Format, reduced: bool) -> Fraction | None:
    sign = re.match(r"[+-]?\s?", body).group()
    value = _unsigned(body[len(sign) :], form, reduced)
    return -value if value is not None and sign.strip() == "-" else value


def _unsigned(body: str, form: Format, reduced: bool) -> Fraction | None:
    if len(body) > MAX_DIGITS + 100:
        return None
    mixed = _MIXED.fullmatch(body)
    if mixed:
        whole, top, bottom = (int(part) for part in mixed.groups() if part is not None)
        return whole + Fraction(top, bottom) if 0 < top < bottom and math.gcd(top, bottom) == 1 else None
    fraction = _FRACTION.fullmatch(body)
    if fraction:
        top, bottom = (int(part) for part in fraction.groups() if part is not None)
        if bottom == 0 or (reduced and (abs(bottom) == 1 or math.gcd(top, bottom) != 1)):
            return None
        return Fraction(top, bottom)
    match = re.match(_decimal(form.decimal), body)
    if not match or len(match.group()) > MAX_DIGITS:
        return None
    thousands = "," if form.decimal == "." else "."
    value = Fraction(match.group().replace(thousands, "").replace(form.decimal, "."))
    rest = body[match.end() :]
    if not rest:
        return value
    exponent = _SCIENTIFIC.fullmatch(rest) if form.scientific else None
    if not exponent or abs(int(exponent.group(1))) > MAX_EXPONENT:
        return None
    return value * Fraction(10) ** int(exponent.group(1))


def _decimal(decimal: str) -> str:
    point, comma = re.escape(decimal), "," if decimal == "." else r"\."
    return rf"(?:[1-9][0-9]{{0,2}}(?:{comma}[0-9]{{3}})+(?![0-9])|[0-9]+)(?:{point}[0-9]+)?|{point}[0-9]+"


def numeral(form: Format) -> re.Pattern[str]:
    """A numeral in running text, for the last one."""
    fraction = r"\\[dtc]?frac\{-?[0-9]+\}\{-?[0-9]+\}|[0-9]+/[0-9]+(?![0-9/])"
    return re.compile(rf"(?<![\w.,/])[-−]?(?:{fraction}|(?:{_decimal(form.decimal)})(?![0-9/]))(?:\s*(?:\\?%|percent\b|pct\b))?(?!\w)")


def short(value: Any) -> str:
    """A value for evidence and reasons, on one line and not long."""
    text = value if isinstance(value, str) else repr(value)
    return re.sub(r"\s+", " ", text.encode("utf-8", "backslashreplace").decode()).strip()[:80]
