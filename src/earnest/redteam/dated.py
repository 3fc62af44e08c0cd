"""Dates that a column has in one form and the prompts ask for in another, which an example or words such as DD.MM.YYYY show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from earnest.redteam.moments import dates_in, moment_of

PADDED, BARE = "date:", "bare date:"  # readings, with an example behind them: single digits with a zero in front, and without
_PART = r"(?:DD?|MM?|YYYY|Month|Mon)"
_WORDS = re.compile(rf"(?<!\w){_PART}(?:(?:[-/. ]|, ){_PART}){{2}}(?!\w)", re.IGNORECASE)
_SAMPLE = {"YYYY": "2024", "DD": "25", "D": "25", "MM": "12", "M": "12", "MONTH": "December", "MON": "Dec"}


def writings_of(golds: Sequence[Any], prompts: Sequence[str]) -> list[str]:
    """Readings of dates in the forms that all prompts show, where the right answers are dates; none where they show the golds' own."""
    own = [moment_of(gold) if isinstance(gold, str) else None for gold in golds]
    if not prompts or not own or not all(one and one.day and one.minutes is None and not one.ambiguous for one in own):
        return []
    shown = [dict.fromkeys(dates_in(_exemplified(prompt))) for prompt in prompts]
    shared = [one for one in shown[0] if one not in golds and all(one in other for other in shown)]
    if any(moment_of(one).found.re == own[0].found.re for one in shared):
        return []
    return [f"{kind}{one}" for one in shared for kind in (PADDED, BARE)]


def _exemplified(prompt: str) -> str:
    """A prompt with a date in place of the words for one."""
    return _WORDS.sub(lambda words: re.sub(_PART, lambda part: _SAMPLE[part[0].upper()], words[0], flags=re.IGNORECASE), prompt)


def written_as(reading: str, value: Any) -> Any:
    """A date as the example of a reading is written; anything else as it is."""
    kind, _, example = reading.partition(":")
    day, sample = moment_of(value) if isinstance(value, str) else None, moment_of(example)
    if not day or not day.day or not sample:
        return value
    text = sample.on(day.day)
    return text if f"{kind}:" == PADDED else moment_of(text).padded(1)
