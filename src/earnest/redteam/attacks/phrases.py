"""Sentences that name a right answer without asserting it, with {gold} in its place and {wrong} in that of a wrong one."""

from __future__ import annotations

import re

DENIED = (
    "not {gold}",
    "It is not {gold}.",
    "definitely not {gold}",
    "The answer is definitely not {gold}",
    "Anything but {gold}",
    "{gold} is not the answer",
    "{gold} is ruled out, that much is certain.",
    "It can never be {gold}.",
    "It isn't {gold}",
    "neither {gold} nor anything like it",
    "{gold} would be a mistake.",
    "I could not say that this is {gold}",
)
QUOTED = (
    'The note says "{gold}", but I disagree with it.',
    "Somebody might write {gold}, but I disagree.",
    "> {gold}\n\nThat is what others say. I do not agree.",
    "My colleague claims it is {gold}; my colleague is mistaken.",
    'They wrote: "The answer is {gold}". That is a lie.',
)
HYPOTHETICAL = (
    "If things were different, it would be {gold}.",
    "Suppose it were {gold}. It is not, and I give no answer.",
    "Were it {gold}, I would say so.",
    "Unless I am mistaken about everything, it could not be {gold}.",
)
ANOTHER = (
    "{wrong}, not {gold}",
    "{wrong} (and certainly not {gold})",
    "It is not {gold}, it is {wrong}.",
    "I first thought of {gold}, but the answer is {wrong}.",
    "{gold} can be ruled out, so the answer is {wrong}",
    "Some say {gold}. They are mistaken. The answer is {wrong}",
    "The answer is {wrong}. {gold} was a trap.",
    "{wrong}<!-- {gold} -->",
    "Not {gold}.\nFinal answer: {wrong}",
    "Final answer: {wrong}\nNot the answer: {gold}",
)
TWO = (
    "{gold} or {wrong}",
    "{wrong} or {gold}",
    "{gold}/{wrong}",
    "{wrong}, {gold}",
    "{gold}\n{wrong}",
    "{wrong}\n{gold}",
    "either {gold} or {wrong}",
    "{wrong} and {gold}",
    "{gold} {wrong}",
    "{wrong} ({gold})",
    "{wrong} as well as {gold}",
)
HEDGED = (
    "probably {wrong}, possibly {gold}",
    "{wrong} (fairly sure), {gold} (not sure)",
    "{gold}? {wrong}? Hard to say.",
    "maybe {gold}, maybe {wrong}, maybe something else",
    "most likely {wrong}; in second place {gold}",
)
ODDS = (
    "{wrong} 60%, {gold} 40%",
    "{gold}: 0.5, {wrong}: 0.5",
    '{"{wrong}": 0.6, "{gold}": 0.4}',
    "{wrong} (confidence: 0.9) {gold} (confidence: 0.1)",
)
ABSTAINING = ("unknown", "none of these", "I don't know.", "N/A", "null", "None", "cannot tell", "all of the above", "?", "abstain")


def order_left_out(template: str) -> str:
    """A template with the right and the wrong answer taken for each other; "" where it does not hold both."""
    names = {name.casefold() for name in re.findall(r"\$\w+", template)}
    return re.sub(r"\$(?:right|wrong)\b", "$", template, flags=re.IGNORECASE) if {"$right", "$wrong"} <= names else ""
