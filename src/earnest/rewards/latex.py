"""The tokens of a written answer: LaTeX or plain characters, what only sets them left out, what is no mathematics refused."""

from __future__ import annotations

import re
from typing import NoReturn

MAX_DIGITS = 300  # of one number
FUNCTIONS = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "ln", "log", "exp", "max", "min",
    "gcd", "lcm",
})  # fmt: skip
GREEK = frozenset({
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa", "lambda", "mu",
    "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi",
    "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega", "ell", "hbar",
})  # fmt: skip
UNICODE = {
    "−": "-", "×": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "÷": "\\div ", "√": "\\sqrt ", "π": "\\pi ", "∞": "\\infty ",
    "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "∪": "\\cup ", "∩": "\\cap ", "±": "\\pm ", "°": "^\\circ ", "∈": "\\in ",
    "ℝ": "\\mathbb{R}", "∅": "\\emptyset ", "θ": "\\theta ", "α": "\\alpha ", "β": "\\beta ", "²": "^2 ", "³": "^3 ",
}  # fmt: skip
_UNICODE = str.maketrans(UNICODE)

_TEXT = r"\\(?:text|textbf|textrm|mathrm|mathbf|mathit|mbox|operatorname)\s*\{(?P<text>[^{}]*)\}"
_BEFORE = re.compile(
    r"(\\\\)|\\(?:left|right|displaystyle|limits|big|Big|bigl|bigr|Bigl|Bigr)(?![A-Za-z])|\\[,;:!>]|\\ |~|\\q?quad(?![A-Za-z])"
)
_THOUSANDS = re.compile(r"(?<![0-9.])[1-9][0-9]{0,2}(?:(?:\{,\}|,\\!)[0-9]{3})+(?![0-9])")
_WORDS = {"percent": "%", "pct": "%", "infinity": "infty", "sqrt": "sqrt", "pi": "pi", "cup": "cup"}
_VERDICTS = frozenset({"yes", "no", "true", "false"})  # as a whole answer a word, not y times e times s


class UnreadableError(ValueError):
    """The text is no answer of this grammar; says why."""


def refuse(reason: str) -> NoReturn:
    """Stop reading."""
    raise UnreadableError(reason)


def tokens(text: str, decimal: str) -> list[tuple[str, str]]:
    """Kinds and characters: "num", "let" (one letter), "cmd" (a name without its backslash), "text", "sym"."""
    if text.strip().lower() in _VERDICTS:
        return [("text", text.strip())]
    text = _THOUSANDS.sub(lambda m: re.sub(r"[^0-9]", "", m.group()), text.translate(_UNICODE))
    text = _BEFORE.sub(lambda m: m.group(1) or " ", text).replace("**", "^").replace("\\{", "\\lbrace ").replace("\\}", "\\rbrace ")
    point = re.escape(decimal)
    pattern = re.compile(
        rf"\s+|(?P<num>[0-9]+(?:{point}[0-9]+)?|{point}[0-9]+)|{_TEXT}|\\mathbb\s*\{{?(?P<bb>[RNZQC])\}}?|"
        r"\\(?P<env>begin|end)\s*\{(?P<name>[a-z]+)\}(?:\{[clr|]*\})?|\\(?P<cmd>[A-Za-z]+)|(?P<row>\\\\)|(?P<pct>\\?%)|"
        r"(?P<bars>\\\|)|(?P<let>[A-Za-z]+)|(?P<sym>[-+*/^_(){}\[\]|,;:=<>!'&])"
    )
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if not match:
            refuse("a character that is no mathematics")
        position = match.end()
        found += _token(match, decimal)
    return found


def _token(match: re.Match[str], decimal: str) -> list[tuple[str, str]]:
    kind, found = match.lastgroup, match.group()
    if kind == "num":
        if len(found) > MAX_DIGITS:
            refuse("a number of too many digits")
        return [("num", found.replace(decimal, "."))]
    if kind == "text":
        words = match.group("text").strip()
        if words in ("and", "or"):
            return [("sym", "and")]
        if words in FUNCTIONS or words in _WORDS:
            return _word(words)
        return [("text", " ".join(words.split()))] if re.search(r"[A-Za-z]{2}", words) else tokens(words, decimal)
    if kind == "bb":
        return [("cmd", "mathbb" + match.group("bb"))]
    if kind == "name":
        return [("cmd", match.group("env")), ("text", match.group("name"))]
    if kind == "let":
        return _word(found)
    if kind == "cmd":
        return [("cmd", {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac"}.get(match.group("cmd"), match.group("cmd")))]
    if kind in ("row", "pct", "sym"):
        return [("sym", {"row": "\\\\", "pct": "%"}.get(kind, found))]
    if kind == "bars":
        refuse("a norm")
    return []


def _word(letters: str) -> list[tuple[str, str]]:
    """A run of letters: a name, a conjunction, or up to three variables side by side."""
    if letters in ("and", "or"):
        return [("sym", "and")]
    if letters in _WORDS:
        return [("sym", "%")] if _WORDS[letters] == "%" else [("cmd", _WORDS[letters])]
    if letters in FUNCTIONS or letters in GREEK:
        return [("cmd", letters)]
    if len(letters) > 3:
        refuse("a word")
    return [("let", letter) for letter in letters]
