"""How far off a prompt itself lets a number be, in its own words."""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER = r"(?P<n>\d+(?:\.\d+)?|\.\d+|an?|one|two|three|five|ten|half an?)"
_POINTS = r"(?:percentage|percent|%)[- ]points?\b"  # of the number itself, which is a percentage
_PER_CENT = r"(?P<percent>(?:%|percent\b)(?![- ]points?\b))"
_CENT = r"(?P<cent>cents?|penny|pennies|pence)"
_UP_TO = r"(?: at most| up to| no more than| less than)?"
_BEFORE = (
    rf"(?:\b(?:within|tolerance(?: of|:| is)?|accurate to|(?:off|differs?|differing|deviates?|wrong|out) by{_UP_TO}"
    rf"|(?:error|difference|deviation) (?:of|below|under){_UP_TO}|give or take|plus or minus)|±|\+/-)\s*±?\s*"
)
_UNIT = rf"\s?(?:{_POINTS}\s|{_PER_CENT}\s|{_CENT}\s|\w{{1,12}}\s)"
_PATTERNS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # What a whole number counts may be anything ("within 3 days"): it is a leeway where nothing follows, or what it is of.
        rf"{_BEFORE}{_NUMBER}(?:\s?{_PER_CENT}|\s{_CENT}|\s?{_POINTS}|(?=\s*(?:[.,;:)]|$)|\s(?:of|from)\b))",
        rf"{_BEFORE}(?P<n>0?\.\d+)(?![\d%]|\s(?:%|percent|cents?\b))",
        rf"(?<![\w.]){_NUMBER}{_UNIT}(?:off )?(?:either way|(?:on )?either side|in either direction|up or down)\b",
        rf"\b(?:at most|no more than|up to|be) {_NUMBER}(?:{_UNIT})?off\b",
        rf"(?<![\w.]){_NUMBER}{_UNIT}(?:\w+ ){{0,3}}(?:is|are) (?:accepted|allowed|tolerated|permitted|fine|okay|ok)\b",
        rf"\b(?:accept(?:s|ed|ing)?|allow(?:s|ed|ing)?|tolerat(?:es?|ed|ing)|permit(?:s|ted)?)(?: \w+){{0,3}} {_NUMBER}{_UNIT}(?:of )?"
        r"(?:rounding|error|deviation|slack|difference|either)\b",
        rf"(?P<n>\d+(?:\.\d+)?)\s?{_PER_CENT} (?:error|deviation|tolerance|margin|difference|leeway)\b",
    )
]
_WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "five": 5, "ten": 10, "half a": Fraction(1, 2), "half an": Fraction(1, 2)}


def leeway(prompt: str, gold: Fraction) -> Fraction:
    """How far off the prompt lets a number be: the widest that it names; 0 where it names none.

    Args:
        prompt: What was asked.
        gold: The right number, of which a percentage is taken.
    """
    named = []
    for pattern in _PATTERNS:
        for found in pattern.finditer(prompt):
            parts = found.groupdict()
            size = Fraction(_WORDS.get(parts["n"].lower(), 0) or parts["n"])
            named.append(size * abs(gold) / 100 if parts.get("percent") else size / 100 if parts.get("cent") else size)
    return max(named, default=Fraction(0))
