"""Several short answers in one text: what parts them, and what prompts say of how many there may be and in what order they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence

ITEM = 60  # characters of the longest item of a list
SHARE = 0.3  # of the right answers that hold a mark from which it parts items: the others have one item
# Marks that part items, those first that stand in no item; a comma within a number parts nothing. Each pattern takes linear time.
_MARKS = {
    "\n- ": r"\n[ \t]*[-*•][ \t]",
    "\n": r"\n\s*",
    ";": r";",
    "|": r"\|",
    ">": r">",
    ",": r",(?!\d{3}(?!\d))",
    " and ": r"\sand\s",
    "][": r"(?<=\])[ ,]*(?=\[)",  # of numbers in brackets, where nothing else is said
}
JOINED = {
    "joined": ", ",
    "semicolons": "; ",
    "bullets": "\n- ",
    "lines": "\n",
    "bars": " | ",
    "arrows": " > ",
}  # readings of a list as one text
_NAMED = {
    "semicolons": re.compile(r"\bsemi-?colons?\b", re.IGNORECASE),
    "bullets": re.compile(r"\bbullet", re.IGNORECASE),
    "lines": re.compile(r"\b(?:own|separate|new|per|each) lines?\b|\bnew-?lines?\b|\bline by line\b", re.IGNORECASE),
    "arrows": re.compile(r"[\s\"'`(]>[\"'`)]? (?:in )?between\b|\b(?:separated|parted|joined) by [\"'`]?(?:>|greater-than)"),
    "bars": re.compile(r"\b(?:pipes?|vertical bars?)\b", re.IGNORECASE),
}
SEVERAL = re.compile(
    r"\b(?:all|every|any|each)\b[^.\n]{0,40}\b(?:appl(?:y|ies)|fits?)\b|\bone or (?:more|several)\b|\bmore than one\b"
    r"|\b(?:comma|semicolon)[- ]separated\b|\b(?:separated|delimited|joined) by\b"
    r"|\bseveral\b[^.\n]{0,30}\b(?:may|can|could|might)\b|\b(?:may|can|could) have several\b"
    r"|\bmulti-?(?:label|select)\b|\bone (?:\w+ )?per line\b"
    r"|\beach on (?:its|a|a new) (?:own )?line\b|\ball (?:the )?(?:correct|right|matching) ",
    re.IGNORECASE,
)
_EST = r"(?:most|least|best|worst|first|last|\w+est)"
_RANKS = (
    rf"\bfrom (?:the )?{_EST}\b[^.\n]{{0,30}} to (?:the )?{_EST}\b|\b{_EST}(?: \w+){{0,2}} first\b"
    r"|\b(?:chronological|ascending|descending)(?:ly)?\b"
)
RANKED = re.compile(rf"\b(?:rank|order|sort|arrange)(?:ed|ing)?\b|{_RANKS}", re.IGNORECASE)  # the opposite order is wrong
ORDER = re.compile(
    r"\bin (?!any\b|no\b|whatever\b)(?:\w+ ){0,3}order\b(?! to\b)|\border (?:matters|counts|is important)\b|\bordered (?:by|from)\b"
    r"|\b(?:sort|rank|order|arrange)(?:ed|ing)?\b[^.\n]{0,60}\b(?:by|from|according to|alphabetically)\b"
    rf"|{_RANKS}|\balphabetical(?:ly)?\b"
    r"|\b(?:list|give|write|name|put)\b[^.\n]{0,30}\bsteps\b",
    re.IGNORECASE,
)
_OF_ITEMS = r"\border\b(?! (?:id|ids|no|number|numbers|line|lines|total|date|status)\b)"  # and not of goods
_NOT = r"(?:\b(?:not|never)\b|n['’]t\b)"
ANY_ORDER = re.compile(
    r"\bin (?:any|either|whatever|no (?:particular|specific|special|fixed|set)) order\b|\bany order\b|\bwhichever order\b"
    rf"|{_OF_ITEMS}[^.;,\n]{{0,40}}{_NOT}[^.;\n]{{0,15}}"
    r"\b(?:matters?|counts?|important|relevant|significant|checked|scored|graded|considered|compared)\b"
    rf"|{_OF_ITEMS}[^.;:\n]{{0,30}}\b(?:is|are)(?: all| both)? "
    r"(?:free|irrelevant|unimportant|ignored|disregarded|arbitrary|up to you|yours|left to you|open)\b"
    r"|\border (?:makes no difference|plays no role)\b|\border[- ](?:insensitive|independent|free)\b"
    r"|\b(?:ignor(?:e|es|ed|ing)|disregard(?:s|ed|ing)?|without regard (?:to|for))(?: \w+){0,3} order\b"
    r"|\b(?:regardless|irrespective|independent(?:ly)?) of\b[^.;\n]{0,30}\border\b|\b(?:compared|scored|read|taken) as (?:a )?sets?\b",
    re.IGNORECASE,
)


_TIES = re.compile(r"[^.;\n]*\b(?:equals?|ties?|tied)\b[^.;\n]*", re.IGNORECASE)  # what is said of those is not said of the others
_AT_TIMES = re.compile(r"\border\b[^.\n]{0,60}\b(?:otherwise|else|unless|only (?:if|when|where))\b", re.IGNORECASE)
CITED = re.compile(r"\[\d+\]([ ,]*)\[\d+\]")  # how a prompt shows that passages are cited
CITATIONS = re.compile(r"\s*(?:\[\w{1,20}\][ ,]*)+\s*")  # an answer that is nothing else
_BRACKETS = re.compile(r"\b(?:in|with|within) (?:square )?brackets\b", re.IGNORECASE)


def citing(prompts: Sequence[str]) -> list[str]:
    """What stands between numbers in brackets by all prompts, the likeliest first; none where they ask for no such numbers."""
    shown = [CITED.search(prompt) for prompt in prompts]
    if prompts and all(shown):
        return list(dict.fromkeys(found[1] for found in shown if found))
    return ["", ", ", " "] if prompts and all(_BRACKETS.search(prompt) for prompt in prompts) else []


def named_readings(prompts: Sequence[str]) -> list[str]:
    """How lists are to be joined by the words of all prompts, with commas where they say nothing else."""
    said = [name for name, pattern in _NAMED.items() if prompts and all(pattern.search(prompt) for prompt in prompts)]
    return [*said, "joined"]


def asks_for_several(prompts: Sequence[str]) -> bool:
    """Whether by all prompts an answer may hold several items."""
    return bool(prompts) and all(SEVERAL.search(prompt) for prompt in prompts)


def mark_of(texts: Sequence[str]) -> str:
    """The mark that parts the items of some texts; "" where they are no lists of short items."""
    for mark in _MARKS:
        lists = [items for text in texts if len(items := parts(text, mark)) > 1]
        short = all(0 < len(item) <= ITEM for items in lists for item in items)
        if mark == "\n- " and any(text.startswith("- ") for text in texts):  # the first item has its mark too
            continue
        if mark == "][" and not all(CITATIONS.fullmatch(text) for text in texts):
            continue
        if short and len(lists) >= max(1, SHARE * len(texts)):
            return mark
    return ""


def parts(text: str, mark: str) -> list[str]:
    """The items of a text."""
    return [part.strip() for part in re.split(_MARKS[mark], text.strip())]


def joint(text: str, mark: str) -> str:
    """What stands between the items of a text, white space and all."""
    items = parts(text, mark)
    between = text.strip().removeprefix(items[0]) if len(items) > 1 else ""
    return between[: between.index(items[1])] if between and items[1] else {",": ", ", ";": "; ", "|": " | ", ">": " > "}.get(mark, mark)


def in_order(prompts: Sequence[str]) -> bool | None:
    """Whether all prompts ask for an order of the items, or all leave it free; None where they do not say, or tie it to a condition."""
    if any(_AT_TIMES.search(prompt) for prompt in prompts):
        return None
    prompts = [_TIES.sub(" ", prompt) for prompt in prompts]
    if prompts and all(ANY_ORDER.search(prompt) for prompt in prompts):
        return False
    return True if prompts and all(ORDER.search(ANY_ORDER.sub(" ", prompt)) for prompt in prompts) else None
