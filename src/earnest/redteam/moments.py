"""Dates and times as they are written: read from a text, and others written in the same form."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

DAY = 24 * 60  # minutes

_MONTHS = [name.casefold() for name in calendar.month_name]
_SHORT = [name.casefold() for name in calendar.month_abbr]
_DATES = (
    r"(?P<y>\d{4})(?P<s>[-/.])(?P<mo>\d{1,2})(?P=s)(?P<d>\d{1,2})",
    r"(?P<d>\d{1,2})(?P<s>[-/.])(?P<mo>\d{1,2})(?P=s)(?P<y>\d{4})",
    r"(?P<name>[A-Za-z]{3,9})\.? (?P<d>\d{1,2})(?:st|nd|rd|th)?,? (?P<y>\d{4})",
    r"(?P<d>\d{1,2})(?:st|nd|rd|th)?\.? (?P<name>[A-Za-z]{3,9})\.?,? (?P<y>\d{4})",
)
_TIME = r"(?P<h>\d{1,2}):(?P<mi>\d{2})(?::(?P<sec>\d{2}))?(?:\s?(?P<ap>[AaPp])(?P<m>\.?[Mm]\.?))?(?P<zone>Z|[+-]\d{2}:?\d{2})?"
_FORMS = tuple(re.compile(form) for form in (*_DATES, _TIME, *(rf"{one}(?:[T ]|,? at ){_TIME}" for one in _DATES)))
_IN_TEXT = tuple(re.compile(rf"(?<![\w.,/-]){form}(?![\w/-])") for form in _DATES)
# How a day is written: what such a writing looks like, and what writes it.
STYLES: tuple[tuple[str, Callable[[date], str]], ...] = (
    (r"\d{4}-\d{2}-\d{2}", date.isoformat),
    (r"\d{1,2} [A-Z][a-z]{2,8} \d{4}", lambda day: f"{day.day} {calendar.month_name[day.month]} {day.year}"),
    (r"[A-Z][a-z]{2,8} \d{1,2}, \d{4}", lambda day: f"{calendar.month_name[day.month]} {day.day}, {day.year}"),
)


@dataclass(frozen=True)
class Moment:
    """A date, a time or both, as it was written.

    Attributes:
        found: Where its parts stand in the text.
        day: The date; None of a time alone.
        minutes: Of the day; None of a date alone.
        ambiguous: Whether day and month could be each other.
        month_first: Whether the month stands where the day is looked for.
    """

    found: re.Match[str]
    day: date | None
    minutes: int | None
    ambiguous: bool = False
    month_first: bool = False

    def on(self, day: date) -> str:
        """Another date in the same form."""
        month, number = (day.day, day.month) if self.month_first else (day.month, day.day)
        return self._with(y=f"{day.year:04}", mo=str(month), d=str(number), name=_named(self.found, day.month))

    def at(self, minutes: int) -> str:
        """Another time in the same form."""
        hour, minute = divmod(minutes % DAY, 60)
        half = self._group("ap")
        letter = ("P" if hour >= 12 else "A") if half.isupper() else ("p" if hour >= 12 else "a")
        return self._with(h=str((hour + 11) % 12 + 1 if half else hour), mi=f"{minute:02}", ap=letter)

    def zoned(self, zone: str) -> str:
        """The same in another time zone."""
        return self._with(zone=zone)

    def padded(self, width: int, parts: Sequence[str] = ("d", "mo")) -> str:
        """The same with so many digits at least in its day, its month or both."""
        text = self.found.string
        for part in sorted(filter(self._group, parts), key=lambda part: -self.found.start(part)):
            start, stop = self.found.span(part)
            text = text[:start] + text[start:stop].lstrip("0").zfill(width) + text[stop:]
        return text

    def _group(self, name: str) -> str:
        return self.found.groupdict().get(name) or ""

    def _with(self, **parts: str) -> str:
        text = self.found.string
        for name, new in sorted(((n, v) for n, v in parts.items() if self._group(n)), key=lambda part: -self.found.start(part[0])):
            start, stop = self.found.span(name)
            text = text[:start] + (new.zfill(stop - start) if new.isdigit() else new) + text[stop:]
        return text


def moment_of(text: str) -> Moment | None:
    """The date or time a text is; None where it is something else, or none that exists."""
    found = next((m for form in _FORMS if (m := form.fullmatch(text.strip()))), None)
    return _moment(found) if found else None


def dates_in(text: str) -> list[str]:
    """The dates that stand in a text, as they are written; none of which day and month could be each other."""
    found = [match.group() for form in _IN_TEXT for match in form.finditer(text)]
    return [one for one in found if (moment := moment_of(one)) and not moment.ambiguous]


def _moment(found: re.Match[str]) -> Moment | None:
    parts = found.groupdict()
    day, ambiguous, month_first = None, False, False
    if parts.get("y"):
        month = int(parts["mo"]) if parts.get("mo") else _month(parts["name"])
        number = int(parts["d"])
        numeric = "mo" in parts and found.start("d") < found.start("y")
        ambiguous, month_first = numeric and month <= 12 and number <= 12, numeric and month > 12
        month, number = (number, month) if month_first else (month, number)
        try:
            day = date(int(parts["y"]), month, number)
        except ValueError:
            return None
    hour, minute = int(parts.get("h") or 0), int(parts.get("mi") or 0)
    if hour > (12 if parts.get("ap") else 23) or minute > 59:
        return None
    if parts.get("ap"):
        hour = hour % 12 + (12 if parts["ap"] in "Pp" else 0)
    return Moment(found, day, 60 * hour + minute if parts.get("h") else None, ambiguous, month_first)


def _month(name: str) -> int:
    folded = name.casefold()
    return _MONTHS.index(folded) if folded in _MONTHS else _SHORT.index(folded[:3]) if folded[:3] in _SHORT and len(folded) <= 4 else 0


def _named(found: re.Match[str], month: int) -> str:
    own = found.groupdict().get("name") or ""
    names = calendar.month_name if own.casefold() in _MONTHS else calendar.month_abbr
    return str(names[month]) if own[:1].isupper() else str(names[month]).lower()
