"""Right answers in other usual writings, of which only the task's own check can say whether they are right by its contract.

Nothing is asked where reward and check both refuse one, for then the form is simply strict. Where the check takes it and the reward does
not, the reward refuses a right answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.dates import moment_of, other_writings
from earnest.redteam.attacks.numerals import Numeral, decimal, numeral_of
from earnest.redteam.attacks.right import NUMBERS, STRIPPED, VALUES, WORDED, control
from earnest.redteam.attacks.sets import Listing, listed

KINDS: frozenset[Kind] = NUMBERS | WORDED | {"json"}
_SMALL = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def _places(target: Target) -> Iterator[tuple[str, Callable[[str], str]]]:
    """The short texts of a right answer, and what writes another in their place."""
    form = target.form
    if form.kind != "json":
        yield form.core.strip(), form.wrap
        if sign := re.match(r"[ \\]*%", form.after):  # the column of the row holds the number alone
            yield form.core + sign[0], lambda text: form.before + text + form.after[sign.end() :]
        elif not any(character.isalpha() for character in form.before + form.after):  # parts of a date, a sign
            yield str(target.case.oracle).strip(), str
    elif isinstance(form.value, dict):
        for name, own in form.value.items():
            if isinstance(own, str):
                yield own, lambda text, n=name: form.change(**{n: text})


def _texts(write: Callable[[str], Iterable[str]], longest: int = 80) -> Callable[[Target], Iterator[Try]]:
    def build(target: Target) -> Iterator[Try]:
        for own, put in _places(target):
            yield from (Try(put(text)) for text in (write(own) if len(own) <= longest else ()) if text != own)

    return build


def _numerals(write: Callable[[Numeral], Iterable[str]]) -> Callable[[Target], Iterator[Try]]:
    return _texts(lambda own: write(number) if (number := numeral_of(own)) else ())


def _moments(own: str) -> Iterator[str]:
    moment = moment_of(own)
    return other_writings(moment) if moment else iter(())


def shares(gold: Numeral) -> Iterator[str]:
    """A percentage as a share of one, a share as a percentage."""
    if gold.after.strip() in ("%", "\\%"):
        yield decimal(gold.value / 100)
    elif 0 < gold.value < 1 and not gold.before and not gold.after:
        yield f"{decimal(gold.value * 100)}%"


def _spaced_sign(gold: Numeral) -> Iterator[str]:
    if gold.after:
        body = gold.digits if gold.digits and not gold.power else decimal(gold.value)
        yield f"{gold.before}{body}{gold.after.strip()}"
        yield f"{gold.before}{body} {gold.after.strip()}"


def _grouped(gold: Numeral) -> Iterator[str]:
    if gold.value.denominator == 1 and abs(gold.value) >= 1000:
        yield from (f"{gold.before}{int(gold.value):,}{gold.after}".replace(",", gap) for gap in (" ", "\u202f", "'"))


def _bare_point(gold: Numeral) -> Iterator[str]:
    """No nought before the decimal point, and zeros behind it that count for nothing taken away."""
    plain = decimal(gold.value)
    if Fraction(plain) == gold.value and not gold.fraction:
        bare = plain.replace("0.", ".", 1) if abs(gold.value) < 1 else plain
        yield from (f"{gold.before}{text}{gold.after}" for text in (bare, plain))


def _in_words(own: str) -> Iterator[str]:
    if own.casefold() in _SMALL:
        yield str(_SMALL.index(own.casefold()))
    elif own.isdecimal() and own.isascii() and len(own) <= 2 and int(own) < len(_SMALL):
        yield from (_SMALL[int(own)], _SMALL[int(own)].capitalize())


def _quoted(own: str) -> Iterator[str]:
    if re.fullmatch(r"\(?[A-J]\)?", own):
        yield from (f"({own[own[0] == '(']})", own.strip("()"), f"{own.strip('()')})")
    elif 0 < len(own.split()) <= 3:
        yield from (f"{mark}{own}{mark}" for mark in ('"', "'", "`"))


def _bullets(own: str) -> Iterator[str]:
    if re.search(r"^[-*•] ", own, re.MULTILINE):
        yield from (re.sub(r"^[-*•](?= )", other, own, flags=re.MULTILINE) for other in "-*•")
    if re.search(r"^\d{1,2}[.)] ", own, re.MULTILINE):
        yield from (re.sub(r"^(\d{1,2})[.)](?= )", rf"\g<1>{other}", own, flags=re.MULTILINE) for other in ".)")


def _latex(own: str) -> Iterator[str]:
    if "\\frac" in own:
        yield own.replace("\\frac", "\\dfrac")
    if "\\%" in own:
        yield own.replace("\\%", "%")


def _unnamed(own: str) -> Iterator[str]:
    if named := re.fullmatch(r"([A-Za-z]) ?= ?([^=]+)", own):
        yield from (named[2], f"{named[1]}={named[2]}", f"{named[1]} = {named[2]}")


def _fenced(target: Target) -> Iterator[Try]:
    if target.form.kind == "json" and not target.form.wrapped:
        yield from (Try(f"{fence}\n{target.case.oracle}\n```") for fence in ("```json", "```"))


def _joined(target: Target, listing: Listing) -> Iterator[Try]:
    items = list(map(str, listing.items))
    if len(items) > 1 and listing.mark in (",", ";", "|", "\n"):
        for text in (f"{', '.join(items[:-1])} and {items[-1]}", "; ".join(items), "\n".join(items), ", ".join(items)):
            yield Try(target.form.wrap(text))


def values(gold: Numeral) -> Iterator[str]:
    """A decimal as a fraction, a fraction as a decimal that is exact, and fractions in their other writings, each with its sign."""
    plain, top, bottom = decimal(gold.value), abs(gold.value.numerator), gold.value.denominator
    sign = "-" if gold.value < 0 else ""
    if gold.fraction and Fraction(plain) == gold.value:
        yield plain
    if bottom > 1:
        yield f"{gold.before}{sign}{top}/{bottom}{gold.after}"
        if not gold.before and not gold.after:
            yield from (f"{sign}\\frac{{{top}}}{{{bottom}}}", f"\\frac{{{sign}{top}}}{{{bottom}}}")


def _items_valued(_: Target, listing: Listing) -> Iterator[Try]:
    """The items of a list of numbers, each or all of them written the other way."""
    others = [next(values(number), str(item)) if (number := numeral_of(str(item))) else str(item) for item in listing.items]
    own = list(map(str, listing.items))
    if listing.mark and len(own) > 1:
        for said in (others, *([*own[:at], other, *own[at + 1 :]] for at, other in enumerate(others[:6]))):
            if said != own:
                yield Try(listing.put(said))


def _silent(identity: str, build: Callable[[Target], Iterator[Try]], what: str, fix: str) -> Attack:
    return replace(control(identity, build, KINDS, what, fix, contested=False), contested=True)  # a check of ours knows nothing of it


ATTACKS = (
    _silent("moment", _texts(_moments), "the same date or time in another usual writing", "Read dates and times before you compare them."),
    _silent("share", _numerals(shares), "a percentage as a share of one, or the other way about", VALUES),
    _silent("sign_space", _numerals(_spaced_sign), "a blank before the per cent sign, or none", VALUES),
    _silent("grouped", _numerals(_grouped), "thousands parted by a blank or an apostrophe", VALUES),
    _silent("point", _numerals(_bare_point), "a decimal without what counts for nothing (.5 for 0.50)", VALUES),
    _silent("in_words", _texts(_in_words), "a small number in words, or in digits", VALUES),
    _silent("quoted", _texts(_quoted), "quotation marks or brackets around it", STRIPPED),
    _silent("bullets", _texts(_bullets, 2_000), "other marks in front of its items", "Read a dash, an asterisk and a dot as bullets."),
    _silent("latex", _texts(_latex), "\\dfrac for \\frac, or a bare per cent sign", VALUES),
    _silent("unnamed", _texts(_unnamed), "no name in front (5 for x = 5), or other blanks round the equals sign", "Read past a name."),
    _silent("fenced", _fenced, "a fence around it", "Take the fence away before you parse, if you allow one."),
    _silent("value", _numerals(values), "a fraction as a decimal, or a decimal as a fraction", VALUES),
    _silent("values", listed(_items_valued), "fractions as decimals in a list, or decimals as fractions", VALUES),
    _silent("joined", listed(_joined), "its items with other marks between them", "Part items at each mark you allow, and strip them."),
)
