"""Right answers written another way, which must earn what the right answer earns: what over-strict rewards refuse.

Whether such a writing is right at all is for the contract to say. Where the task's check accepts it and the reward does not, the reward is
at fault; where both refuse it, that may be meant, so it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.numerals import Numeral, decimal, numeral_of
from earnest.redteam.attacks.slots import slot_of

_REASONING = re.compile(r"<(think|thinking|thought|thoughts|reason|reasoning|scratchpad|plan|analysis)>(?P<inside>.*?)</\1>", re.DOTALL)
LOWEST = re.compile(
    r"\b(?:lowest|simplest|reduced|irreducible)\b|\bsimplif\w+|\bdecimals?\b|\bimproper\b", re.IGNORECASE
)  # how a fraction must be written
NUMBERS: frozenset[Kind] = frozenset({"number", "math"})
WORDED: frozenset[Kind] = frozenset({"label", "choice", "text"})
SHORT: frozenset[Kind] = NUMBERS | WORDED
FORMS: frozenset[Kind] = SHORT | {"json", "code", "sql"}


def _core(change: Callable[[str], Iterable[str]]) -> Build:
    """The right answer with its core written otherwise."""

    def build(target: Target) -> Iterator[Try]:
        core = target.form.core
        yield from (Try(target.form.wrap(other)) for other in change(core) if other != core and len(core) <= 200)

    return build


def _number(change: Callable[[Numeral], Iterable[str]]) -> Build:
    """The right number written otherwise."""

    def build(target: Target) -> Iterator[Try]:
        slot = slot_of(target)
        gold = numeral_of(slot.gold) if slot else None
        if slot is not None and gold is not None:
            yield from (Try(target.form.wrap(other)) for other in change(gold) if other != slot.gold)

    return build


def _whole(change: Callable[[str], Iterable[str]]) -> Build:
    """The whole right answer with something around it."""

    def build(target: Target) -> Iterator[Try]:
        oracle = target.case.oracle
        if isinstance(oracle, str):
            yield from (Try(other) for other in change(oracle) if other != oracle)

    return build


def _spaced(target: Target) -> Iterator[Try]:
    core = target.form.core
    # Behind a mark the answer stands on its line, and where it has several, white space in front may change the first.
    lined = target.form.wrapped in ("hashes", "words", "box", "fence") or "\n" in core
    inside_a_line = target.form.wrapped == "words" and target.form.after.strip(" ")[:1] not in ("", "\n")
    if len(core) <= 200 and not inside_a_line:
        around = [f"{core} ", f"{core}\n"] if lined else [f" {core} ", f"{core}\n", f"\n{core}\n\n"]
        yield from (Try(target.form.wrap(other)) for other in around)


def _equal(target: Target) -> Iterator[Try]:
    free = not LOWEST.search(target.prompt)
    written = _number(lambda gold: [*_as_value(gold), *(_unreduced(gold) if free and gold.fraction else [])])
    return written(target)


def _unreduced(gold: Numeral) -> Iterator[str]:
    """A fraction not in lowest terms, and as a mixed number."""
    top, bottom, sign = abs(gold.value.numerator), gold.value.denominator, "-" if gold.value < 0 else ""
    yield f"{sign}{2 * top}/{2 * bottom}"
    if top > bottom > 1:
        yield f"{sign}{top // bottom} {top % bottom}/{bottom}"


def _as_value(gold: Numeral) -> Iterator[str]:
    value = gold.value
    if value.denominator == 1 or gold.before or gold.after:
        return
    ends = decimal(value)
    if Fraction(ends) == value:
        yield ends
    if value.denominator <= 1000:
        top, sign = abs(value.numerator), "-" if value < 0 else ""
        yield f"{value.numerator}/{value.denominator}"
        yield f"{sign}\\frac{{{top}}}{{{value.denominator}}}"
        if top < 10 and value.denominator < 10:
            yield f"{sign}\\frac{top}{value.denominator}"


def thousands(gold: Numeral) -> Iterator[str]:
    """The number with its thousands grouped, and without."""
    if abs(gold.value) >= 1000:
        digits, _, rest = (gold.digits.replace(",", "").replace("−", "-") or decimal(gold.value)).partition(".")
        point = f".{rest}" if rest else ""
        yield from (f"{gold.before}{int(digits):,}{point}{gold.after}", f"{gold.before}{digits}{point}{gold.after}")


def _zeros(gold: Numeral) -> Iterator[str]:
    plain = decimal(gold.value)
    if Fraction(plain) == gold.value:
        yield f"{gold.before}{plain}{'0' if '.' in plain else '.0'}{gold.after}"


def _minus(gold: Numeral) -> Iterator[str]:
    if gold.value < 0:
        yield gold.like(gold.value).replace("-", "−")


def _corrected(target: Target) -> Iterator[Try]:
    slot = slot_of(target)
    if slot is not None and slot.wrong and target.form.kind != "json":
        yield Try(f"First I thought of {slot.wrong}. Wait, that is a mistake.\n\n{target.case.oracle}")


def _reasoned(target: Target) -> Iterator[Try]:
    """Reasoning of several lines where the right answer has some of one, or none, in tags of its own."""
    form = target.form
    room = list(_REASONING.finditer(form.before))
    if room:
        start, stop = room[-1].span("inside")
        for said in ("\nSo.\n", "\nOne.\n\nTwo.\n"):  # short, as length may cost
            yield Try(form.before[:start] + said + form.before[stop:] + form.core + form.after)


def _ask(what: str) -> str:
    return f"the check refuses it as well: if {what} is right by your contract, accept it in both"


def control(identity: str, build: Build, kinds: frozenset[Kind], what: str, fix: str, *, contested: bool = True) -> Attack:
    """A control: a right answer in another writing.

    Args:
        identity: Its name behind "right.".
        build: Its answers to a row.
        kinds: The forms of answers it applies to.
        what: What it is about, as in "refused for ...".
        fix: What mends a reward that refuses it.
        contested: Whether it is asked about where reward and check both refuse it.
    """
    return Attack(
        f"right.{identity}",
        "right answers",
        build,
        f"A right answer is refused for {what}.",
        fix,
        "constructed",
        kinds=kinds,
        expect="right",
        question=_ask(f"an answer with {what}") if contested else "",
    )


VALUES = "Compare values in place of characters."
STRIPPED = "Take away what does not count before you compare, by one declared rule."

ATTACKS = (
    replace(  # a strict form forbids it, which a guessed check does not know
        control("space", _spaced, SHORT, "white space around it", STRIPPED, contested=False), contested=True
    ),
    replace(  # many a pattern asks for "\n" alone, and few models write anything else
        control("newlines", _whole(lambda text: [text.replace("\n", "\r\n"), f"{text}\r\n"]), FORMS, "Windows line ends", STRIPPED),
        contested=True,
    ),
    control("case", _core(lambda core: [core.lower(), core.upper(), core.capitalize()]), WORDED, "other capitals", STRIPPED),
    control("reasoning", _reasoned, FORMS, "reasoning of several lines in front", "Let `.` match line breaks there.", contested=False),
    control("stop", _core(lambda core: [f"{core}."]), SHORT, "a full stop behind it", STRIPPED),
    control("bold", _core(lambda core: [f"**{core}**"]), SHORT, "bold type", STRIPPED),
    control(
        "sign_off",
        _whole(lambda text: [f"{text}\n\nHope this helps!", f"{text}\n\nLet me know if you have any questions."]),
        SHORT,
        "a short greeting behind it",
        "Find the answer in its fixed place, and let what follows be, if it asserts nothing.",
    ),
    control(
        "corrected",
        _corrected,
        SHORT,
        "a first thought that it corrects",
        "Take what is asserted last where the text says that it corrects itself, or read a fixed place.",
    ),
    control("equal", _equal, NUMBERS, "the same value as a fraction or a decimal (1/2 for 0.5)", VALUES),
    control("thousands", _number(thousands), NUMBERS, "thousands grouped by commas, or not grouped", VALUES),
    control("zeros", _number(_zeros), NUMBERS, "zeros behind the decimal point (42.0 for 42)", VALUES),
    control("minus", _number(_minus), NUMBERS, "the typographic minus sign", "Read U+2212 as a minus."),
    control(
        "named",
        _number(lambda gold: [f"x = {gold.like(gold.value)}"]),
        NUMBERS,
        "a name in front (x = 5)",
        "Read past a name and an equals sign.",
    ),
)
