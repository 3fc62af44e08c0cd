"""Right answers written another way that the prompt allows in plain words: to refuse them is a flaw, whatever a guessed check says.

A permission is a sentence of the prompt. What it allows is written as plainly as it says, and where the prompt takes anything back
(nothing else, no other text), nothing is written at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.nowork import means_something
from earnest.redteam.attacks.numerals import Numeral, decimal, numeral_of
from earnest.redteam.attacks.objects import fields, with_raw
from earnest.redteam.attacks.right import FORMS, NUMBERS, SHORT, STRIPPED, VALUES, WORDED, control, thousands
from earnest.redteam.attacks.sets import listings_of
from earnest.redteam.attacks.slots import slot_of
from earnest.redteam.attacks.written import shares
from earnest.redteam.moments import STYLES, moment_of

_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n+")
_NOT = re.compile(
    r"\b(?:no|not|never|without|don['’]t|must|instead|avoid|nor)\b"
    r"|\b(?:case|capitals|capitali[sz]ation)[- ](?:matters?|counts?|sensitive)\b",
    re.IGNORECASE,
)
_MAY = r"\b(?:may|can|could|might|free to|welcome to|allowed|permitted|fine|okay|ok|optional|accepted|either way)\b"
_NO_MATTER = (
    r"\b(?:(?:do(?:es)?|will) not|(?:does|do|wo)n['’]t) (?:matter|count)\b|\b(?:is|are) (?:ignored|irrelevant|free|all the same|optional)\b"
    r"|\b(?:makes?|plays?) no (?:difference|role)\b"
)
_LEAVE = rf"(?:{_NO_MATTER}|{_MAY}|\bwith or without\b|\bor (?:left out|omitted|not)\b)"
_EXPLAIN = (
    r"\b(?:explain|explanation|reason(?:ing)?|think (?:aloud|out loud|in writing)|comment|justify|justification|argue"
    r"|show your work(?:ing)?|notes?)\b"
)
_FREE = rf"(?:{_MAY}|\bfeel free to\b)[^.\n]{{0,40}}{_EXPLAIN}"  # "you may explain"
_THEN = r"(?:after that|then|afterwards|finally|at the end|(?:but |and )?(?:end|finish|close))\b"
_BEFORE = re.compile(
    rf"{_FREE}[^.\n]{{0,60}}\b(?:before|first|beforehand|in front)\b"
    rf"|{_FREE}[^.\n]{{0,60}}[.;,]\s+{_THEN}"
    rf"|{_EXPLAIN}[^.\n]{{0,40}}{_MAY}[^.\n]{{0,20}}\b(?:before|precede|in front|first|come first)\b"
    rf"|\b(?:before|in front of) (?:it|that|the (?:answer|tag|last line|box|mark))[^.\n]{{0,30}}{_MAY}[^.\n]{{0,30}}{_EXPLAIN}"
    r"|(?:^|[.!?]\s+|\n)(?:first,? )?(?:explain|show your work)\b[^.\n]{0,60}(?:\bfirst\b|[.,;] ?then\b|\bbefore\b)",
    re.IGNORECASE,
)
_BEHIND = r"(?:after it|afterwards|below|underneath|behind it|after the (?:answer|tag|mark))"
_AFTER = re.compile(
    rf"{_FREE}[^.\n]{{0,60}}\b{_BEHIND}\b|{_EXPLAIN}[^.\n]{{0,40}}{_MAY}[^.\n]{{0,20}}\b(?:follow|come after|{_BEHIND})\b"
    rf"|\b{_BEHIND}\b[^.\n]{{0,30}}{_MAY}[^.\n]{{0,30}}{_EXPLAIN}|\bthen explain\b[^.\n]{{0,30}}\b{_BEHIND}\b",
    re.IGNORECASE,
)
_WORDS = re.compile(r"\b(?:up to|at most|no more than|fewer than|within) (\d{2,4}) words\b", re.IGNORECASE)
_NOTHING_ROUND = re.compile(
    r"\bwithout (?:any )?(?:other |further )?(?:text|words)\b|\bno (?:other |further |more )?(?:text|words)\b|\bonly white ?space\b"
    r"|\bnothing (?:before|in front|around|but|more)\b|\bnothing else\b(?!,? (?:between|inside|in)\b)"
    r"|\b(?:reply|answer|respond|output|write|give|return)(?: with)? (?:only|just)\b",
    re.IGNORECASE,
)
_PLACED = re.compile(r"</?\w+>|\btags?\b|\bblock\b|\bfields?\b|\bkeys?\b|\bJSON\b|\bcolumns?\b", re.IGNORECASE)
_CLOCK = re.compile(r"\b(?:12|twelve)[- ]hour\b", re.IGNORECASE)
_HALF = re.compile(r"(?<![A-Za-z])(AM|PM|am|pm|a\.m\.|p\.m\.)(?![A-Za-z])")
_ANY_STYLE = "|".join(style for style, _ in STYLES)
_EITHER_DATE = re.compile(rf"(?:{_ANY_STYLE})[`'\"]?,? or (?:as |like )?[`'\"]?(?:{_ANY_STYLE})")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_SAID = (
    "This was read with care.",
    "It was looked at twice.",
    "Every part of the question counts here.",
    "So the parts were taken one after another, in the way they are told.",
    "What is known was put down, and what is asked for was held against it.",
    "Then each step was made by itself and gone through again from the end.",
    "Nothing in the way of it was found to be in doubt.",
    "Another road leads to the same place, only by more steps.",
    "That is how it comes out as it stands above or below.",
)


def allowed(*phrases: str) -> Callable[[str], str]:
    """What finds the sentence of a prompt that allows something: one of the phrases with words of permission and no word against it."""
    patterns = [re.compile(phrase, re.IGNORECASE) for phrase in phrases]
    leave, no_matter = re.compile(_LEAVE, re.IGNORECASE), re.compile(_NO_MATTER, re.IGNORECASE)

    def found(prompt: str) -> str:
        for sentence in _SENTENCE.split(prompt):
            rest = no_matter.sub(" may ", sentence).replace("or without", "may").replace("or not", "")
            if leave.search(sentence) and not _NOT.search(rest) and any(pattern.search(sentence) for pattern in patterns):
                return sentence
        return ""

    return found


_ZEROS = allowed(r"\btrailing zeros?\b|\bzeros? (?:at the end|behind the (?:decimal )?point)\b")
_CASE = allowed(r"\bcapitals?\b|\bcapitali[sz]ation\b|\b(?:letter )?case\b", r"\bupper[- ]?case\b")
_EITHER_CASE = re.compile(r"\b(?:upper|lower)(?:[- ]?case)? or (?:upper|lower)[- ]?case\b|\bcase[- ]insensitive(?:ly)?\b", re.IGNORECASE)
_ONE_CASE = re.compile(r"(?<!or )(?<!upper or )\b(?:lower|upper)[- ]?case\b(?! or\b)|\bcapital letters?\b", re.IGNORECASE)
_THOUSANDS = allowed(r"\bthousands?\b[^.\n]{0,20}\b(?:separators?|commas?)\b|\bcommas?\b[^.\n]{0,30}\bthousands?\b")
_LANGUAGE = allowed(r"\blanguage (?:tag|name|hint)\b|\btag (?:after|behind) the (?:opening )?(?:fence|backticks)\b")
_EITHER_VALUE = re.compile(
    r"\bfraction\b[^.\n]{0,30}\bor\b[^.\n]{0,20}\b(?<!rounded )decimal\b|\bdecimal\b[^.\n]{0,30}\bor\b[^.\n]{0,20}\bfraction\b",
    re.IGNORECASE,
)
_SHARE = r"\b(?:decimals?|shares?|between 0 and 1|fraction of one)\b"
_EITHER_SHARE = re.compile(
    rf"\bpercent(?:age)?s?\b[^\n]{{0,80}}\bor\b[^\n]{{0,40}}{_SHARE}|{_SHARE}[^\n]{{0,80}}\bor\b[^\n]{{0,40}}\bpercent(?:age)?s?\b",
    re.IGNORECASE,
)
_EITHER_ZONE = re.compile(r"\bZ\b[^.\n]{0,20}\bor\b[^.\n]{0,15}\+00:00|\+00:00\W{0,3}or\b[^.\n]{0,15}\bZ\b")
_SPACES = allowed(r"\b(?:white ?)?spaces?\b|\bblanks?\b")
_LEADING_ZEROS = allowed(r"\bleading zeros?\b|\bzeros? in front\b")
_STOP = allowed(r"\bfull stop\b|\bfinal (?:period|dot)\b|\bperiod at the end\b")


def any_case(prompt: str) -> bool:
    """Whether a prompt leaves capitals free."""
    either = bool(_CASE(prompt)) or _EITHER_CASE.search(prompt) is not None
    return either and not _ONE_CASE.search(_EITHER_CASE.sub(" ", prompt))


def words_before(prompt: str) -> bool:
    """Whether a prompt lets an explanation stand before the answer."""
    return _BEFORE.search(prompt) is not None


def words_after(prompt: str) -> bool:
    """Whether a prompt lets an explanation stand behind the answer."""
    return _AFTER.search(prompt) is not None


def _said_before(target: Target) -> Iterator[Try]:
    yield from _beside(target, _BEFORE, lambda said, answer: f"{said}\n{answer}")


def _said_after(target: Target) -> Iterator[Try]:
    yield from _beside(target, _AFTER, lambda said, answer: f"{answer}\n{said}")


def _beside(target: Target, permission: re.Pattern[str], put: Callable[[str, str], str]) -> Iterator[Try]:
    form, prompt, answer = target.form, target.prompt, target.case.oracle
    found = permission.search(prompt)
    # Where the form has a place of its own for reasons, or the permission names one, that is where they belong.
    own_place = "</" in form.before or (found is not None and _PLACED.search(_EXPLAINED.sub(" ", found[0])))
    if not found or not form.wrapped or not isinstance(answer, str) or own_place or _NOTHING_ROUND.search(prompt):
        return
    said = [one for one in _SAID if not means_something(target, one)]
    room = _WORDS.search(prompt)
    if said:
        yield Try(put(said[0], answer))
    if room and len(" ".join(said).split()) < 0.8 * int(room[1]):  # well within the length that is allowed
        yield Try(put(" ".join(said), answer))


_EXPLAINED = re.compile(r"\b(?:before|after|in front of|behind) the (?:tags?|block|fields?)\b", re.IGNORECASE)


def _twelve_hours(target: Target) -> Iterator[Try]:
    """The time on the clock of twelve hours, where the prompt offers it beside the one of 24."""
    core = _TIME.fullmatch(target.form.core.strip())
    said = next((s for s in _SENTENCE.split(target.prompt) if _CLOCK.search(s) and re.search(rf"{_MAY}|\bor\b", s, re.I)), "")
    shown = _HALF.search(target.prompt)
    if core and shown and said and not _NOT.search(said):
        hour = int(core[1])
        half = {"a": "p", "A": "P"}[shown[1][0]] if hour >= 12 and shown[1][0] in "aA" else shown[1][0]
        half = half if hour >= 12 else {"p": "a", "P": "A"}.get(half, half)
        yield Try(target.form.wrap(f"{hour % 12 or 12}:{core[2]} {half}{shown[1][1:]}"))


def _zeros(target: Target) -> Iterator[Try]:
    said = _ZEROS(target.prompt)
    if not said:
        return
    if target.form.kind == "json":
        parts = [name for name in fields(target) if type(own := target.form.value[name]) is float and own == round(own, 6)]
        for name in parts if len(parts) == 1 else [name for name in parts if name in said]:
            yield Try(with_raw(target, target.form.value, {name: f"{target.form.value[name]!r}0"}))
        return
    slot = slot_of(target)
    gold = numeral_of(slot.gold) if slot else None
    if slot and gold and not gold.fraction and "." in (plain := decimal(gold.value)):
        yield Try(target.form.wrap(f"{gold.before}{plain}0{gold.after}"))


def _cases(target: Target) -> Iterator[Try]:
    prompt, core = target.prompt, target.form.core
    if any_case(prompt):
        others = (core.lower(), core.upper()) if len(core) <= 80 and "\n" not in core else ()
        yield from (Try(target.form.wrap(other)) for other in others if other != core)


def _granted(find: Callable[[str], str], change: Callable[[Numeral], Iterable[str]]) -> Callable[[Target], Iterator[Try]]:
    def build(target: Target) -> Iterator[Try]:
        slot = slot_of(target)
        gold = numeral_of(slot.gold) if slot else None
        if slot is not None and gold is not None and find(target.prompt):
            yield from (Try(target.form.wrap(other)) for other in change(gold) if other != slot.gold)

    return build


def _values(target: Target) -> Iterator[Try]:
    """A fraction as a decimal that is exact, or the other way about, where the prompt takes either."""
    slot = slot_of(target)
    gold = numeral_of(slot.gold) if slot else None
    if slot and gold and _EITHER_VALUE.search(target.prompt) and "." in (plain := decimal(gold.value)):
        if gold.fraction and Fraction(plain) == gold.value:
            yield Try(target.form.wrap(f"{gold.before}{plain}{gold.after}"))
        elif not gold.fraction:
            yield Try(target.form.wrap(f"{gold.before}{gold.value.numerator}/{gold.value.denominator}{gold.after}"))


def _shares(target: Target) -> Iterator[Try]:
    slot = slot_of(target)
    gold = numeral_of(slot.gold) if slot else None
    if slot and gold and _EITHER_SHARE.search(target.prompt):
        yield from (Try(target.form.wrap(other)) for other in shares(gold))


def _zones(target: Target) -> Iterator[Try]:
    slot = slot_of(target) if target.form.kind != "json" else None
    moment = moment_of(slot.gold) if slot and _EITHER_ZONE.search(target.prompt) else None
    zone = moment.found.groupdict().get("zone") if moment else None
    if moment and zone in ("Z", "+00:00"):
        yield Try(target.form.wrap(moment.zoned("+00:00" if zone == "Z" else "Z")))


def _spaces(target: Target) -> Iterator[Try]:
    """A list with and without white space between its items."""
    for listing in listings_of(target) if _SPACES(target.prompt) else ():
        if listing.mark in (",", ";", "|", ">") and len(listing.items) > 1:
            joints = (listing.mark, f"{listing.mark} ")
            yield from (Try(target.form.wrap(joint.join(map(str, listing.items)))) for joint in joints)


def _leading_zeros(target: Target) -> Iterator[Try]:
    """A date whose day or month of one digit has a zero in front, or none, where the prompt takes either."""
    slot, said = slot_of(target) if target.form.kind != "json" else None, _LEADING_ZEROS(target.prompt)
    own = moment_of(slot.gold) if slot and said else None
    if own and own.day and own.minutes is None:
        named = [part for part, name in (("d", r"\bdays?\b"), ("mo", r"\bmonths?\b")) if re.search(name, said, re.IGNORECASE)]
        written = [own.padded(width, named or ("d", "mo")) for width in (1, 2)]
        yield from (Try(target.form.wrap(other)) for other in written if other != slot.gold)


def _stop(target: Target) -> Iterator[Try]:
    """A stop behind an answer that ends there: not within brackets, and not where other lines may be the answer that is meant."""
    one_line = "\n" not in str(target.case.oracle).strip() or target.form.wrapped == "tag"
    if one_line and not re.match(r"\s*[\])}\"'”]", target.form.after) and _STOP(target.prompt):
        yield Try(target.form.wrap(f"{target.form.core}."))


def _fence_named(target: Target) -> Iterator[Try]:
    if target.form.wrapped == "fence" and _LANGUAGE(target.prompt):
        bare_fence = re.sub(r"```\w*[ \t]*\n\Z", "```\n", target.form.before)
        for before in (bare_fence, f"{bare_fence[:-1]}text\n"):
            if before != target.form.before:
                yield Try(before + target.form.core + target.form.after)


def _dates(target: Target) -> Iterator[Try]:
    """The date in another of the ways that the prompt offers, as in "2024-03-09 or 9 March 2024"."""
    slot, either = slot_of(target) if target.form.kind != "json" else None, _EITHER_DATE.search(target.prompt)
    moment = moment_of(slot.gold) if slot and either else None
    if moment and moment.day and moment.minutes is None and not moment.ambiguous:
        written = [write(moment.day) for style, write in STYLES if re.search(style, either[0])]
        yield from (Try(target.form.wrap(text)) for text in written if text != slot.gold)


def _allowed(identity: str, build: Callable[[Target], Iterator[Try]], kinds: frozenset[Kind], what: str, fix: str) -> Attack:
    made = control(identity, build, kinds, f"{what}, which the prompt allows", fix, contested=False)
    return replace(made, granted=True)


_PLACE = "Find the answer in its fixed place, and let what the prompt allows beside it be."

ATTACKS = (
    _allowed("said_before", _said_before, SHORT, "a sentence in front of it", _PLACE),
    _allowed("said_after", _said_after, SHORT, "a sentence behind it", _PLACE),
    _allowed("twelve_hours", _twelve_hours, SHORT, "the clock of twelve hours", "Read both clocks: twelve at noon is 12, at midnight 0."),
    _allowed("zeros_allowed", _zeros, NUMBERS | WORDED | {"json"}, "zeros behind the decimal point", VALUES),
    _allowed("case_allowed", _cases, WORDED, "other capitals", STRIPPED),
    _allowed("thousands_allowed", _granted(_THOUSANDS, thousands), NUMBERS | WORDED, "thousands grouped by commas, or not", VALUES),
    _allowed("fence_named", _fence_named, FORMS, "a language behind the fence, or none", "Skip the rest of the line that opens the fence."),
    _allowed("dates_allowed", _dates, SHORT | {"label"}, "a date in another way of writing", "Read dates as dates, in each way you allow."),
    _allowed("value_allowed", _values, NUMBERS | WORDED, "a fraction as a decimal, or a decimal as a fraction", VALUES),
    _allowed("share_allowed", _shares, NUMBERS | WORDED, "a percentage as a share of one, or the other way about", VALUES),
    _allowed("zone_allowed", _zones, SHORT | {"label"}, "+00:00 for Z, or Z for it", "Read the offset from UTC."),
    _allowed("spaces_allowed", _spaces, WORDED, "white space between its items, or none", "Strip every item before you compare it."),
    _allowed("leading_zeros_allowed", _leading_zeros, SHORT, "a zero in front of a single digit, or none", "Read dates as dates."),
    _allowed("stop_allowed", _stop, SHORT, "a full stop behind it", STRIPPED),
)
