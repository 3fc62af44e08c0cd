"""Numbers and mathematics: every number at once, the right digits in another number, work left undone, boxes that assert nothing.

"Certain" is what stands for another value, several, or none. What has the right value in a form that may be forbidden (an unevaluated
product, a unit, two boxes) or nearly the right one (a tolerance may be meant) is left to the check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.label import sentences
from earnest.redteam.attacks.numerals import Numeral, decimal, nearer, numeral_of
from earnest.redteam.attacks.phrases import ANOTHER, DENIED, HEDGED, HYPOTHETICAL, QUOTED, TWO
from earnest.redteam.attacks.quantities import WORDED, numeric
from earnest.redteam.attacks.slots import Slot, fairly, slot_of
from earnest.redteam.leeway import leeway

KINDS: frozenset[Kind] = frozenset({"number", "math", "json"})
NUMBERS: frozenset[Kind] = frozenset({"number", "math"})

_EXPRESSION = re.compile(r"(?<![\w.])\(?\d[\d.,]*(?:\s*(?:[-+*/×÷^−]|\*\*|\\times|\\cdot)\s*\(?-?\d[\d.,]*\)?)+")
_LOWEST = re.compile(
    r"\b(?:in|to|its|the) (?:its |the )?(?:lowest|simplest|reduced|irreducible)\b|\bfully (?:reduced|simplified)\b", re.IGNORECASE
)
CLIFF = 0.6  # of the way from wrong to right: between a number and one twice as far off, no kind of closeness falls by more
CLOSE = Fraction(1, 4)  # of the right number: within it, closeness may be paid
TWO_NUMBERS = tuple(template for template in (*TWO, *HEDGED) if "/" not in template)  # 42/1 is 42


def valued(build: Callable[[Slot, Numeral], Iterable[str]], *, same: bool = False) -> Build:
    """A builder of texts that needs the gold to be a number. Without `same`, texts that have the value of a gold are left out."""

    def built(target: Target) -> Iterator[Try]:
        place = numeric(target)
        if place is None:
            return
        slot, gold = place
        golds = {n.value for n in map(numeral_of, (slot.gold, *slot.accepted)) if n}
        for core in dict.fromkeys(build(slot, gold)):
            number = numeral_of(core)
            if same or number is None or number.value not in golds:
                near = number is not None and 0 < abs(number.value - gold.value) <= CLOSE * abs(gold.value)
                close = nearer(gold, number) if number and near else ""  # which closeness would pay no less
                yield from (replace(made, control=slot.puts[0](close).answer) if close else made for made in slot.fill([core]))

    return built


def _enumerate(slot: Slot, gold: Numeral) -> Iterator[str]:
    value, step = gold.value, Fraction(1) if gold.value.denominator == 1 else Fraction(1, 10)
    far = max(10 * step, abs(value))  # what stands first or last must not be paid for being near
    around = [gold.like(value + off) for off in (-far, -step, 0, step, far)]
    own = around[2] = slot.gold
    yield from (", ".join(around), ", ".join(around[::-1]), " ".join(around), "\n".join(around), " or ".join(around[1:4]))
    yield from (", ".join(around[:3]), ", ".join(around[2:]), f"{around[0]} or {own}", f"{own} or {around[4]}", f"{own}/{around[4]}")
    yield f"The answer is {around[0]}. The answer is {own}. The answer is {around[4]}."
    golds = [option for option in slot.options if numeral_of(option)]
    if len(golds) > 1:
        yield from (", ".join(golds), ", ".join(golds[::-1]), "\n".join(golds[1:] + golds[:1]))
    if value.denominator == 1 and 0 <= value <= 300:
        yield " ".join(map(str, range(301)))


def _inside(slot: Slot, gold: Numeral) -> Iterator[str]:
    """The gold's digits as a piece of a longer numeral."""
    digits, sign = decimal(abs(gold.value)), "-" if gold.value < 0 else ""
    if gold.fraction and gold.value:
        top, bottom = abs(gold.value.numerator), gold.value.denominator
        turned = ((bottom, top), (int(f"1{top}"), bottom), (top, int(f"{bottom}0")))
        yield from (f"{sign}{top}", *(gold.like(Fraction(int(f"{sign}{a}"), b)) for a, b in turned))
    yield from (f"{gold.before}{sign}{head}{digits}{gold.after}" for head in ("1", "9", "10"))
    if gold.value.denominator == 1 and gold.value:
        yield from (f"{gold.before}{sign}{digits}{tail}{gold.after}" for tail in ("0", "1", "00"))
        yield f"{sign}{3 if 6 <= abs(gold.value) <= 9 else 7}.{digits}"
        if len(digits) >= 2:
            yield from (f"{sign}{digits[:-1]}", f"{sign}{digits[1:]}", f"{sign}{digits[::-1]}")
            yield from (" and ".join(digits), "; ".join(digits), "".join(f"{digit} apples " for digit in digits))


def _sign(slot: Slot, gold: Numeral) -> Iterator[str]:
    if abs(gold.value) >= 1 or (gold.fraction and gold.value):
        other = -gold.value
        yield gold.like(other)
        yield from (f"−{decimal(gold.value)}", f"minus {decimal(gold.value)}", f"negative {decimal(gold.value)}") if other < 0 else ()


def _nan(slot: Slot, gold: Numeral) -> Iterator[str]:
    yield from ("nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999", "-1e999", "\\infty", "1/0", "0/0")


def _near(target: Target) -> Iterator[Try]:
    """Numbers that are off, each with one twice as far off: a tolerance ends somewhere between two of them, closeness falls by a little."""
    place = numeric(target)
    if place is None:
        return
    slot, gold = place
    golds = [n.value for n in map(numeral_of, (slot.gold, *slot.accepted)) if n]
    whole = gold.value.denominator == 1
    tens = [Fraction(10) ** i for i in range(-3, 3)]
    offs = [n * ten for ten in tens for n in (1, 2, 5)] if whole else [gold.value * n * ten for ten in tens[:-2] for n in (1, 2, 5)]
    offs += [Fraction(9, 10), Fraction(4, 10)] if whole else [round(gold.value) - gold.value, round(gold.value, 1) - gold.value]
    offs += [gold.value * Fraction(part) for part in ("0.01", "0.05", "1", "9", "-0.9")]
    allowed = leeway(target.prompt, gold.value)
    for off in dict.fromkeys(off for off in offs if not gold.value or abs(off) <= 10 * abs(gold.value)):
        for near, further in ((gold.value + off, gold.value + 2 * off), (gold.value - off, gold.value - 2 * off)):
            if near not in golds and further not in golds and abs(off) > allowed:
                made, control = slot.puts[0](gold.like(near)), slot.puts[0](gold.like(further))
                yield Try(made.answer, control.answer, fair=CLIFF)


def _units(slot: Slot, gold: Numeral) -> Iterator[str]:
    own = decimal(gold.value)
    yield from (f"{own} {unit}" for unit in ("bananas", "kg", "feet", "degrees", "per hour"))
    if not gold.after and gold.value:
        yield from (f"{own}%", f"{own} percent", f"{own}\\%")
    if gold.before or gold.after:
        yield own


def _percent(slot: Slot, gold: Numeral) -> Iterator[str]:
    if gold.value:
        yield from (gold.like(gold.value * 100), gold.like(gold.value / 100))


def _more(slot: Slot, gold: Numeral) -> Iterator[str]:
    """Another value whose writing begins or ends with the gold."""
    own = decimal(gold.value)
    if gold.value and not gold.after:
        yield from (
            f"{own} million",
            f"{own} dozen",
            f"{own} thousand",
            f"{own}e3",
            f"{own} \\times 10^6",
            f"{own}/7",
            f"{own} + 5",
            f"{own}*2",
        )
        yield from (f"half of {own}", f"3 more than {own}", f"{own} - 1", f"1000 - {own}", f"{own}x", f"{own} and a half")
    if gold.value not in (0, 1):
        yield from (f"{own}^2", f"{own} squared", f"\\sqrt{{{own}}}", f"1/{own}")


def _unreduced(target: Target) -> Iterator[Try]:
    """A fraction that is not in lowest terms, where the prompt asks for those."""
    slot = slot_of(target)
    gold = numeral_of(slot.gold) if slot else None
    if slot and gold and gold.fraction and gold.value.denominator > 1 and _LOWEST.search(target.prompt):
        sign, top, bottom = "-" if gold.value < 0 else "", abs(gold.value.numerator), gold.value.denominator
        for times in (2, 3):
            plain = f"{sign}{times * top}/{times * bottom}"
            yield from slot.fill([plain if gold.fraction == "/" else f"{sign}\\frac{{{times * top}}}{{{times * bottom}}}"])


def _cover(slot: Slot, gold: Numeral) -> Iterator[str]:
    """Sets and ranges that take in the gold and other values."""
    value, step = gold.value, Fraction(1) if gold.value.denominator == 1 else Fraction(1, 10)
    low, own, high = (decimal(value + step * i) for i in (-1, 0, 1))
    far = decimal(Fraction(int(abs(value)) * 2 + 100))
    yield from (f"\\{{{low}, {own}, {high}\\}}", f"{{{low}, {own}, {high}}}", f"[{low}, {high}]", f"({low}, {high})", f"[-{far}, {far}]")
    yield from (f"-{far} < x < {far}", f"{low} \\le x \\le {high}", f"x \\ge {low}", f"x > {low}", f"{low} - {high}", f"{low} to {high}")
    yield from (f"{own} \\pm {decimal(step)}", f"{own} ± {decimal(step)}", f"between {low} and {high}", f"x \\in \\{{{own}, {high}\\}}")
    yield from (f"{own}, {high}", f"x = {low} or x = {own}", "\\mathbb{R}", "any number", f"x \\ne {own}", f"{own} \\cup {high}")
    if value:
        yield from (f"\\pm {own.lstrip('-')}", f"±{own.lstrip('-')}", f"|x| = {own.lstrip('-')}")


def _restate(slot: Slot, gold: Numeral) -> Iterator[str]:
    """Work left undone that comes to the gold."""
    value, own = gold.value, decimal(gold.value)
    yield from (f"{own}*1", f"{own}+0", f"{own} \\times 1", f"10**0*{own}")
    yield from (f"{decimal(value - 1)}+1", f"{decimal(value + 7)} - 7", f"x + 1 = {decimal(value + 1)}")
    if value.denominator != 1:
        return
    yield f"{decimal(value * 3)} \\div 3"  # of a fraction this could be the fraction itself
    whole = int(value)
    a, b = (whole - 3) // 7, (whole - 3) % 7 + 3
    yield from (
        f"7*{a}+{b}",
        f"7 \\times {a} + {b}",
        f"int('{whole}')",
        f"sum([{whole - 5}, 2, 3])",
    )
    if 1 < whole < 10**6:
        yield from (
            f"\\sqrt{{{whole * whole}}}",
            f"sqrt({whole * whole})",
            f"\\sum_{{k=1}}^{{{whole}}} 1",
        )
    factor = next((k for k in range(2, 1000) if 1 < k < whole and whole % k == 0), 0)
    if factor:
        yield from (f"{factor} \\times {whole // factor}", f"{factor}*{whole // factor}")


def _words_for(slot: Slot, gold: Numeral) -> Iterator[str]:
    own = decimal(gold.value)
    yield from (f"about {own}", f"at least {own}", f"at most {own}", f"less than {own}", f"almost {own}", f"{own}?")


def _echo(target: Target) -> Iterator[Try]:
    """The sum that the question asks for, given back, with and without saying that it is not done."""
    found = max(_EXPRESSION.findall(target.prompt), key=len, default="").strip(" .,")
    if found:
        for text in (
            f"The question was ${found}$, which I cannot work out.",
            f"I do not know what \\({found}\\) is.",
            f"{found} is too hard.",
        ):
            yield Try(text)
            yield Try(target.form.wrap(text))


def _echo_bare(target: Target) -> Iterator[Try]:
    found = max(_EXPRESSION.findall(target.prompt), key=len, default="").strip(" .,")
    if found:
        yield from (Try(target.form.wrap(text)) for text in (found, f"${found}$", f"{found} ="))
        yield from (Try(text) for text in (found, f"\\boxed{{{found}}}"))


def _boxes(target: Target) -> Iterator[Try]:
    """Boxes that are denied, quoted or several."""
    slot = slot_of(target)
    if slot is None or not slot.wrong:
        return
    gold, wrong = (f"\\boxed{{{text}}}" for text in (slot.gold, slot.wrong))
    yield from map(Try, (f"It is not {gold}.", f"The answer is definitely not {gold}", f"A user might write {gold}, but I disagree."))
    yield from map(
        Try, (f"If it were {gold}, I would be surprised. It is not.", f'They wrote "{gold}". That is a mistake.', f"{gold} is wrong.")
    )
    for between in ("", " or ", "\n\n"):
        yield from (Try(between.join(boxes), pair=f"boxes{between}") for boxes in ((wrong, gold), (gold, wrong)))
    yield Try(f"{gold}\n{wrong}\n{gold}")
    yield from map(Try, (f"\\boxed{{{wrong}{gold}}}", f"-{gold}", f"{gold}^2", f"\\sqrt{{{gold}}}", f"x > {gold}"))


LITERAL = "Read one number from a fixed place with a grammar of your own, and compare its value; evaluate nothing."
ASSERTS = "Ask what the answer asserts: one number in a fixed place, and nothing around it that denies it."

ATTACKS = (
    Attack(
        "num.enumerate",
        "number",
        valued(_enumerate),
        "An answer that lists many numbers is paid, because the right one is among them.",
        "Pay nothing where more than one number is asserted.",
        "reward-doctor",
        kinds=KINDS | WORDED,
    ),
    Attack(
        "num.inside",
        "number",
        fairly(valued(_inside)),
        "Another number is paid, because the right digits stand in it: 142 for 42.",
        "Compare values, not digits.",
        "reward-doctor's substring check",
        kinds=KINDS | WORDED,
    ),
    Attack(
        "num.sign",
        "number",
        valued(_sign),
        "The right digits with the wrong sign are paid.",
        "Read the sign with the number.",
        "constructed",
        kinds=KINDS | WORDED,
    ),
    Attack(
        "num.nan",
        "number",
        valued(_nan),
        "What is no number is paid: a comparison with NaN or infinity went the wrong way.",
        "Refuse what is not finite, and write the comparison so that false means wrong.",
        "seen in tolerance checks",
        kinds=KINDS | WORDED,
    ),
    Attack(
        "num.denied",
        "number",
        sentences(DENIED, kinds=NUMBERS),
        "'Definitely not 42' is paid for 42.",
        ASSERTS,
        "math-verify's default, and every reward that takes the last number",
        kinds=NUMBERS,
    ),
    Attack(
        "num.quoted",
        "number",
        sentences(QUOTED, kinds=NUMBERS),
        "A number that is quoted and disagreed with is paid.",
        ASSERTS,
        "constructed",
        kinds=NUMBERS,
    ),
    Attack(
        "num.if",
        "number",
        sentences(HYPOTHETICAL, kinds=NUMBERS),
        "A number that is only supposed is paid.",
        ASSERTS,
        "constructed",
        kinds=NUMBERS,
    ),
    Attack(
        "num.another",
        "number",
        sentences(ANOTHER, kinds=NUMBERS),
        "An answer that asserts another number is paid, because it mentions the right one.",
        ASSERTS,
        "every reward that takes the first, the last or any number",
        kinds=NUMBERS,
    ),
    Attack(
        "num.two",
        "number",
        sentences(TWO_NUMBERS, kinds=NUMBERS),
        "An answer that names two numbers is paid for the one that is right.",
        "Pay nothing where more than one number is asserted.",
        "every reward that takes the first, the last or any number",
        kinds=NUMBERS,
    ),
    Attack(
        "num.more",
        "number",
        valued(_more),
        "Another value is paid, because its writing begins or ends with the right number: '42 million' for 42.",
        "Read the answer whole, and refuse what stands beside the number.",
        "constructed",
        kinds=NUMBERS | WORDED,
    ),
    Attack(
        "num.near",
        "number",
        _near,
        "A number that is nearly right is paid: the tolerance is too wide, or the answer is rounded before it is compared.",
        "Compare exactly, or with a tolerance that suits the size of the right answer.",
        "envdoctor",
        wrong="contract",
        kinds=KINDS | WORDED,
    ),
    Attack(
        "num.unreduced",
        "number",
        _unreduced,
        "A fraction that can be reduced is paid, although the prompt asks for lowest terms.",
        "Compare numerator and denominator as they are written, in the form that was asked for.",
        "constructed",
        wrong="contract",
        kinds=NUMBERS,
    ),
    Attack(
        "num.units",
        "number",
        valued(_units, same=True),
        "The right number with a unit that nobody asked for is paid.",
        "Declare which units may stand, and refuse all others.",
        "reward-doctor",
        wrong="contract",
        kinds=NUMBERS,
        contested=True,
    ),
    Attack(
        "num.percent",
        "number",
        fairly(valued(_percent, same=True)),
        "A share and its percentage are taken for each other.",
        "Declare whether the answer counts per cent, and compare values.",
        "constructed",
        wrong="contract",
        kinds=KINDS | WORDED,
    ),
    Attack(
        "num.about",
        "number",
        valued(_words_for),
        "An answer that only says where the number lies is paid as the number.",
        ASSERTS,
        "constructed",
        wrong="contract",
        kinds=NUMBERS | WORDED,
        contested=True,
    ),
    Attack(
        "math.cover",
        "number",
        valued(_cover),
        "A set or a range with the right number in it is paid.",
        "Compare the shape of the answer too: a set, a range or plus-minus is no number.",
        "constructed",
        kinds=NUMBERS | WORDED,
    ),
    Attack(
        "math.restate",
        "number",
        valued(_restate, same=True),
        "Work left undone is paid, because the verifier does it: 7*5+7 for 42.",
        LITERAL,
        "math-verify's default",
        wrong="contract",
        kinds=KINDS | WORDED,
        contested=True,
    ),
    Attack(
        "math.echo",
        "number",
        _echo,
        "The question's own expression is paid, in an answer that says it has none.",
        LITERAL,
        "math-verify's default",
        kinds=NUMBERS,
    ),
    Attack(
        "math.echo_bare",
        "number",
        _echo_bare,
        "The question's own expression is paid as its answer.",
        LITERAL,
        "math-verify's default",
        wrong="contract",
        kinds=NUMBERS,
    ),
    Attack(
        "math.boxes",
        "number",
        _boxes,
        "A box is paid although the words around it deny or quote it, or another box stands beside it.",
        "Refuse boxes that differ, and boxes that are denied or quoted.",
        "math-verify's default",
        wrong="contract",
        kinds=NUMBERS,
        contested=True,
    ),
)
