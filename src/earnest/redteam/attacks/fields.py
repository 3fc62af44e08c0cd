"""Short lines of several fields, such as cron lines, named values and patterns: one field changed to another of its kind.

What a line does is often simulated on one input, which most of its fields have no say in. Whether the changed line does the same all the
same, only the task's check knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from earnest.redteam.attack import Attack, Kind, Target, Try
from earnest.redteam.attacks.nearly import FULL
from earnest.redteam.attacks.pieces import pieces_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "choice", "number", "math", "json", "code"})
LONGEST = 160
FEWEST, MOST = 3, 9  # fields of one line
CHANGES = 4  # of one field
_FIELD = re.compile(r"[^\s]+")
_SPECIAL = re.compile(r"[\d*=/\\^$+?|\[\]{}@:_]")
_COMMAND = re.compile(r"\b(?:commands?|shell|bash|git|arguments?|flags?)\b", re.IGNORECASE)
_PATTERN = re.compile(r"\\[dwsbDWSB]|\[[^\]]+\]|\{\d+(?:,\d*)?\}|\(\?:")
SETTING = re.compile(r"^[ \t]*(?P<name>[\w.-]{1,40}(?: [\w.-]{1,20}){0,3})[ \t]*[=:][ \t]*(?P<value>\S[^\n]{0,200})$", re.MULTILINE)
_TAGGED = re.compile(r"<(?P<name>\w{1,30})>\s*(?P<value>[^<\s][^<\n]{0,200}?)\s*</(?P=name)>")
_SWAPS = (
    ("\\d", "."), ("\\d", "\\w"), ("\\w", "."), ("\\s", "."), ("\\.", "."), ("^", ""), ("$", ""), ("+", "*"), ("*", "+"), ("?", "*"),
    ("+", ""), ("\\b", ""), ("{", "{1"), ("a-z", "a-y"), ("A-Z", "A-Y"), ("0-9", "0-8"),
)  # fmt: skip


def _next(field: str) -> list[str]:
    """Numbers of a field moved by one, the least of them first."""
    found = re.search(r"\d{1,4}", field)
    numbers = [int(found[0]) + by for by in (1, -1)] if found else []
    return [field[: found.start()] + str(number) + field[found.end() :] for number in numbers if found and number > 0]


def _others(own: list[str], at: int, lines: list[list[str]]) -> list[str]:
    """What else may stand in a field: a star where stars are used, what other lines have there, and the next number."""
    starred = any("*" in field for line in [own, *lines] for field in line)
    seen = [line[at] for line in lines if len(line) == len(own)]
    widened = ["*"] if starred else []
    narrowed = ["1", "2"] if starred and own[at] == "*" else []
    return [one for one in dict.fromkeys([*widened, *narrowed, *_next(own[at]), *seen]) if one != own[at]]


def _line(target: Target) -> Iterator[Try]:
    for piece in pieces_of(target, around=True):
        text, own = piece.text, _FIELD.findall(piece.text)
        terse = sum(bool(_SPECIAL.search(field)) for field in own) * 2 >= len(own)  # words alone are prose
        if not (terse and "\n" not in text and len(text) <= LONGEST and FEWEST <= len(own) <= MOST):
            continue
        lines = [_FIELD.findall(other) for other in piece.seen[:40]]
        for at, found in enumerate(_FIELD.finditer(text)):
            for new in _others(own, at, lines)[:CHANGES]:
                yield Try(piece.put(text[: found.start()] + new + text[found.end() :]), fair=FULL)


def _settings(target: Target) -> Iterator[Try]:
    """Of lines such as `name = value` and `name: value`, or tags around values, one changed to another row's value or the next number."""
    for piece in pieces_of(target, around=True):
        text = piece.text
        for form in (SETTING, _TAGGED):
            found = list(form.finditer(text))
            lines = [line for line in text.split("\n") if line.strip()]
            if not (len(text) <= 10 * LONGEST and 2 <= len(found) <= 2 * MOST and len(found) * 2 >= len(lines)):
                continue
            seen: dict[str, list[str]] = {}
            for one in (match for other in piece.seen[:40] for match in form.finditer(other)):
                seen.setdefault(one["name"], []).append(one["value"])
            for one in found:
                for new in [v for v in dict.fromkeys([*seen.get(one["name"], ()), *_next(one["value"])]) if v != one["value"]][:2]:
                    yield Try(piece.put(text[: one.start("value")] + new + text[one.end("value") :]), fair=FULL)


def _swapped(target: Target) -> Iterator[Try]:
    """Two neighbours exchanged among the words of a command, where options may stand anywhere and what they are about may not."""
    for piece in pieces_of(target) if _COMMAND.search(target.prompt) else ():
        own = piece.text.split(" ")
        if "\n" not in piece.text and len(piece.text) <= LONGEST and FEWEST <= len(own) <= MOST:
            for at in range(1, len(own) - 1):
                if own[at] != own[at + 1] and not own[at].startswith("-") and not own[at + 1].startswith("-"):
                    yield Try(piece.put(" ".join([*own[:at], own[at + 1], own[at], *own[at + 2 :]])), fair=FULL)


def _pattern(target: Target) -> Iterator[Try]:
    """Of a regular expression, one piece made wider or narrower."""
    for piece in pieces_of(target, around=True):
        text = piece.text
        if len(text) <= LONGEST and "\n" not in text and _PATTERN.search(text):
            made = [text.replace(old, new, 1) for old, new in _SWAPS if old in text]
            yield from (Try(piece.put(one), fair=FULL) for one in dict.fromkeys(made) if one != text)


ON_ALL = "Take the line apart and compare each field, or try it on inputs that each field decides."

ATTACKS = tuple(
    Attack(f"fields.{name}", "rules", build, flaw, ON_ALL, source, wrong="contract", kinds=KINDS, contested=True, measured=True)
    for name, build, flaw, source in (
        ("line", _line, "A line of several fields is paid in full with one of them changed.", "cron lines simulated over one day"),
        (
            "settings",
            _settings,
            "Several named values are paid in full with one of them changed.",
            "a passage number that only has to exist",
        ),
        ("swapped", _swapped, "A command is paid in full with two of its words exchanged: source and target.", "words compared sorted"),
        ("pattern", _pattern, "A pattern is paid in full that is wider or narrower than the right one.", "a few examples tried"),
    )
)
