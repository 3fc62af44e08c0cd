"""Dates and times: another day, month, year or hour, the parts in another order, all dates at once, a part alone.

A date is changed where its digits stand, so that it keeps its form, and only to one that exists. What is near the right one comes with one
twice as far off as its control, since closeness may be paid; no date is called wrong that the prompt allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.right import control
from earnest.redteam.attacks.slots import slot_of
from earnest.redteam.moments import DAY, STYLES, Moment, dates_in, moment_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "math", "json"})
FAIR = 0.75  # of the way from wrong to right: year and month may be paid without the day, but not nearly as much as with it
_NEAR = re.compile(
    r"\bwithin \w+ (?:day|week|month|year|hour|minute)|±|\btolerance\b|\bgive or take\b|\boff by\b|\bclosest\b|\bapprox", re.IGNORECASE
)
_STATED = re.compile(r"\b(?:Y{2,4}|D{1,2}|M{1,2}|H{1,2})\b|ISO|format|\bform\b|24.hour|12.hour", re.IGNORECASE)


def other_writings(own: Moment) -> Iterator[str]:
    """The same date or time in the other usual writings of it."""
    text, parts = own.found.string, own.found.groupdict()
    if own.day and own.minutes is None:
        yield from (write(own.day) for _, write in STYLES if not own.ambiguous)
        return
    if (zone := parts.get("zone")) in ("Z", "+00:00", "+0000"):
        yield own.zoned("+00:00" if zone == "Z" else "Z")
    if own.day and (between := text[own.found.start("h") - 1]) in "T ":
        yield text[: own.found.start("h") - 1] + {"T": " ", " ": "T"}[between] + text[own.found.start("h") :]
    if parts.get("sec") == "00":
        yield text[: own.found.start("sec") - 1] + text[own.found.end("sec") :]
    elif not parts.get("sec") and not parts.get("ap"):
        yield text[: own.found.end("mi")] + ":00" + text[own.found.end("mi") :]
    if not own.day and not parts.get("sec") and not zone:
        hour, minute = divmod(own.minutes or 0, 60)
        half = "PM" if hour >= 12 else "AM"
        yield from (f"{hour:02}:{minute:02}", f"{hour}:{minute:02}", f"{(hour + 11) % 12 + 1}:{minute:02} {half}")


Change = Callable[[Target, Moment], Iterator[tuple[str, str]]]


def _moments(change: Change, fair: float = FAIR) -> Callable[[Target], Iterator[Try]]:
    """A builder of other dates for a right answer that is one, and for the fields of an object that are; each with its control, or ""."""

    def built(target: Target) -> Iterator[Try]:
        if target.form.kind == "json":
            value = target.form.value if isinstance(target.form.value, dict) else {}
            for name, own in value.items():
                moment = moment_of(own) if isinstance(own, str) else None
                for text, further in change(target, moment) if moment else ():
                    others = [further] if further else [one for one in target.values.get(name, ()) if one != own]
                    if others and text != own:
                        yield Try(target.form.change(**{name: text}), target.form.change(**{name: others[0]}), fair=fair)
            return
        slot = slot_of(target)
        moment = moment_of(slot.gold) if slot else None
        for text, further in change(target, moment) if slot and moment else ():
            for made in slot.fill([text]):
                beside = slot.puts[0](further).answer if further else made.control
                yield replace(made, control=beside, fair=max(made.fair, fair))

    return built


def _other(days: int, own: Moment) -> tuple[str, str] | None:
    """A date so many days off, and one twice as far."""
    try:
        return own.on(own.day + timedelta(days)), own.on(own.day + timedelta(2 * days))
    except OverflowError:
        return None


def _off(target: Target, own: Moment) -> Iterator[tuple[str, str]]:
    """A day, a month or a year off; a minute or an hour."""
    if _NEAR.search(target.prompt):
        return
    if own.day and not own.ambiguous:
        days = [1, -1, *(_distance(own.day, months) for months in (1, -1, 12, -12))]
        yield from (pair for off in days if off and (pair := _other(off, own)))
    if own.minutes is not None:
        yield from ((own.at(own.minutes + off), own.at(own.minutes + 2 * off)) for off in (1, -1, 15, 60, -60))


def _distance(day: date, months: int) -> int:
    """Days to the same day of another month; 0 where it has none."""
    years, month = divmod(day.month - 1 + months, 12)
    try:
        return (date(day.year + years, month + 1, day.day) - day).days
    except ValueError:
        return 0


def _century(_: Target, own: Moment) -> Iterator[tuple[str, str]]:
    if own.day and 200 < own.day.year < 9700:
        for years in (100, -100):
            try:
                yield own.on(own.day.replace(year=own.day.year + years)), ""
            except ValueError:  # the 29th of February
                continue


def _swapped(_: Target, own: Moment) -> Iterator[tuple[str, str]]:
    """Day and month, hour and minute in each other's place, where that is another one that exists."""
    if own.day and own.day.day <= 12 and own.day.day != own.day.month:
        yield own.on(date(own.day.year, own.day.day, own.day.month)), ""
    if own.minutes is not None:
        hour, minute = divmod(own.minutes, 60)
        if minute < 24 and minute != hour:
            yield own.at(60 * minute + hour), ""


def _half_day(_: Target, own: Moment) -> Iterator[tuple[str, str]]:
    if own.minutes is None:
        return
    parts, hour = own.found.groupdict(), own.minutes // 60
    if parts.get("ap") or own.day or hour == 0 or hour > 12 or parts["h"].startswith("0"):  # a bare 2:30 may be both
        yield own.at(own.minutes + DAY // 2), ""


def _zone(_: Target, own: Moment) -> Iterator[tuple[str, str]]:
    if zone := own.found.groupdict().get("zone"):
        yield from ((own.zoned(other), "") for other in ("+05:00", "-08:00") if other != zone)


def _part(_: Target, own: Moment) -> Iterator[tuple[str, str]]:
    """Of date and time only one."""
    if own.day and own.minutes is not None:
        text, at = own.found.string, own.found.start("h")
        yield re.sub(r"(?:T| |,? at )\Z", "", text[:at]), ""
        yield text[at:], ""


def _every(target: Target, own: Moment) -> Iterator[tuple[str, str]]:
    """All dates of the prompt, in the form of the right one."""
    if own.day is None or own.minutes is not None or own.ambiguous:
        return
    found = [moment for text in dates_in(target.prompt) if (moment := moment_of(text))]
    others = [one for one in dict.fromkeys(own.on(m.day) for m in found if m.day) if one != own.found.string][:6]
    if others:
        for many in ([*others, own.found.string], [own.found.string, *others]):
            yield from ((", ".join(many), others[0]), ("\n".join(many), others[0]), (" or ".join(many), others[0]))


def _padded(target: Target) -> Iterator[Try]:
    slot = slot_of(target) if target.form.kind != "json" else None
    if slot and moment_of(slot.gold) and not _STATED.search(target.prompt):
        for text in (re.sub(r"(?<!\d)0(?=\d(?!\d))", "", slot.gold), re.sub(r"(?<![\d:])(?=\d[-/.:])", "0", slot.gold)):
            if text != slot.gold and moment_of(text):
                yield Try(target.form.wrap(text))


WHOLE = "Read the answer as a date and time, refuse what is none, and compare all of its parts."


def _attack(name: str, change: Change, flaw: str, *, loose: bool = False, fair: float = FAIR) -> Attack:
    return Attack(
        f"date.{name}", "number", _moments(change, fair), flaw, WHOLE, "constructed", wrong="contract" if loose else "certain", kinds=KINDS
    )


ATTACKS = (
    _attack("off", _off, "Another date or time is paid, a day, a month, a year, an hour or a minute off."),
    _attack("century", _century, "A date of another century is paid."),
    _attack("swapped", _swapped, "Day and month, or hour and minute, are paid in each other's place."),
    _attack("half_day", _half_day, "A time twelve hours off is paid: 2:30 for 14:30."),
    _attack("zone", _zone, "The same time of day in another time zone is paid."),
    _attack("part", _part, "The date without the time is paid, or the time without the date.", loose=True),
    _attack("every", _every, "All dates of the question at once are paid, since the right one is among them."),
    control("date_zeros", _padded, KINDS, "a date or time with or without zeros in front (9:05 for 09:05)", "Compare dates as dates."),
)
