"""Intervals and inequalities whose ends are turned, a round bracket for a square one, < for ≤; and sets so wide that all lies in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from earnest.redteam.attack import Attack, Build, Kind, Target, Try
from earnest.redteam.attacks.nearly import FULL
from earnest.redteam.attacks.pieces import widest_of

KINDS: frozenset[Kind] = frozenset({"text", "label", "math", "json"})
LONGEST = 300
_NUMBER = r"[-+−]?(?:\d[\d./]*|\\infty|inf(?:inity)?|oo|∞|\\[dt]?frac\{\d+\}\{\d+\})"
_INTERVAL = re.compile(rf"(?P<left>[\[(])\s*(?P<low>{_NUMBER})\s*[,;]\s*(?P<high>{_NUMBER})\s*(?P<right>[\])])", re.IGNORECASE)
_SIGNS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "≤": "<", "≥": ">", "\\leq": "<", "\\geq": ">", "\\le": "<", "\\ge": ">"}
_SIGN = re.compile(r"(?<![<>=])(?:<=|>=|<(?!/?\w+>)|>|≤|≥|\\leq?(?![a-z])|\\geq?(?![a-z]))(?![<>=])")
_BOUNDS = re.compile(
    r"\b(?:interval|inequalit|end ?points?|half[- ]open|inclusive|exclusive|solution set|domain|(?:square|round) bracket|parenthes[ie]s)",
    re.IGNORECASE,
)
_TURNED = {"[": "(", "(": "[", "]": ")", ")": "]"}
_WIDEST = [  # what an answer looks like, and the widest of its sort
    (re.compile(pattern), widest)
    for pattern, widest in (
        (r"\d{1,3}(?:\.\d{1,3}){3}/\d{1,2}", ("0.0.0.0/0", "0.0.0.0/1")),
        (r"[0-9a-fA-F:]*:[0-9a-fA-F:]*/\d{1,3}", ("::/0",)),
        (r"(?:/[\w.*-]+){2,}/?", ("/", "/*", "/**")),
        (r"(?:\^|~|[<>]=?|==?)\s?v?\d+(?:\.\d+){1,2}(?:[ ,].*)?", ("*", ">=0", ">=0.0.0")),
        (r"\d{1,9}\s?(?:-|–|\.\.|to)\s?\d{1,9}", ("0-999999999", "0..999999999", "0 to 999999999")),
        (r"\d{4}-\d\d-\d\d(?:/| to | - |\.\.)\d{4}-\d\d-\d\d", tuple(f"0001-01-01{m}9999-12-31" for m in ("/", " to ", " - ", ".."))),
        (r"[01]\d:\d\d\s?(?:-|–|to)\s?[0-2]\d:\d\d", tuple(f"00:00{m}23:59" for m in ("-", " - ", "–", " to "))),
    )
]
_VERSION = re.compile(r"(?<![\d.])v?(\d{1,5})\.(\d{1,5})\.(\d{1,5})(?![\w.+-])")
_ANY_LATER = re.compile(
    r"\b(?:or|and) (?:any )?(?:later|newer|higher|above|greater|up|upwards?)\b|\bat least (?:version )?v?\d"
    r"|\bany (?:\w+ ){0,2}(?:version|release)s?\b",
    re.IGNORECASE,
)
Turn = tuple[int, int, str]


def _turns(text: str) -> list[Turn]:
    """Where an end of a set of numbers stands in or out of it, and what says the opposite; infinity never stands in."""
    found: list[Turn] = []
    for piece in _INTERVAL.finditer(text):
        for bracket, number in (("left", "low"), ("right", "high")):
            if piece[number][-1:].isdigit() or piece[number].endswith("}"):
                found.append((*piece.span(bracket), _TURNED[piece[bracket]]))
    if not found and re.search(r"\d", text):
        found = [(*sign.span(), _SIGNS[sign[0]]) for sign in _SIGN.finditer(text)]
    return found[:6]


def _opposite(text: str, turns: Sequence[Turn]) -> str:
    for start, end, new in sorted(turns, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _told(texts: Sequence[str]) -> bool:
    """Whether right answers have ends of both sorts, so that which one it is says something."""
    ends = {new in "[]" or "=" in new for text in texts for _, _, new in _turns(text)}
    return len(ends) > 1


def _ends(told: bool) -> Build:
    """Each end turned, then all of them; `told` where the right answers themselves show that it matters."""

    def build(target: Target) -> Iterator[Try]:
        for piece in widest_of(target):
            text = piece.text
            turns = _turns(text) if len(text) <= LONGEST else []
            if turns and _told([text, *piece.seen[:60]]) == told and (told or _BOUNDS.search(target.prompt)):
                made = [_opposite(text, [turn]) for turn in turns] + [_opposite(text, turns)]
                yield from (Try(piece.put(said), fair=FULL) for said in dict.fromkeys(made))

    return build


def any_later(target: Target) -> bool:
    """Whether the right answer is a version, and later ones will do by the words of the prompt."""
    return _VERSION.search(target.form.core) is not None and _ANY_LATER.search(target.prompt) is not None


def _versions(target: Target) -> Iterator[Try]:
    """Other versions than the one that was asked for: the next and the last of its line, the next lines, one that nobody published."""
    if any_later(target):
        return
    for piece in widest_of(target):
        found = list(_VERSION.finditer(piece.text))
        if len(found) != 1 or len(piece.text) > LONGEST:
            continue
        major, minor, patch = map(int, found[0].groups())
        later = ((major, minor, patch + 1), (major, minor, 999), (major, minor + 1, 0), (major, 999, 0), (major + 1, 0, 0), (999, 0, 0))
        for other in (*later, (0, 0, 0)):
            if other != (major, minor, patch):
                said = ".".join(map(str, other))
                yield Try(piece.put(piece.text[: found[0].start(1)] + said + piece.text[found[0].end() :]), fair=FULL)


def _everything(target: Target) -> Iterator[Try]:
    """For a network, a path, an address or the range of a version, the widest there is; for two numbers, from nought to very many."""
    for piece in widest_of(target):
        for pattern, widest in _WIDEST:
            if len(piece.text) <= LONGEST and pattern.fullmatch(piece.text.strip()):
                yield from (Try(piece.put(said), fair=FULL) for said in widest if said != piece.text.strip())


ATTACKS = (
    Attack(
        "interval.everything",
        "number",
        _everything,
        "An answer is paid because it covers the right one, and the widest there is covers everything.",
        "Ask for the narrowest that does, or compare both ends.",
        "coverage without tightness",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    Attack(
        "interval.versions",
        "number",
        _versions,
        "Another version than the one that was asked for is paid: later ones, which may not exist, or earlier ones.",
        "Compare with ==, or look it up among the versions there are and demand the lowest that does.",
        "versions compared with >=",
        wrong="contract",
        kinds=KINDS,
        measured=True,
    ),
    *(
        Attack(
            f"interval.{name}",
            "number",
            _ends(told),
            "An interval or inequality is paid in full although an end of it stands in where it should be out, or the other way about.",
            "Compare the ends and their brackets too, or try the set at its ends and not only between them.",
            "sets tried at points between whole numbers",
            wrong="contract",
            kinds=KINDS,
            contested=not told,
            measured=True,
        )
        for name, told in (("ends", True), ("ends_untold", False))
    ),
)
