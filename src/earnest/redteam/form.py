"""The form a task requires, found from its oracle answers: what stands around the part that answers, and what kind of thing that part is.

Attacks are worth nothing in the wrong wrapping: a reward that wants `<answer>...</answer>` pays no bare label, right or wrong. The oracle's
answers show the wrapping.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from earnest.evidence import Case
from earnest.redteam.attacks.units import ends_with
from earnest.redteam.listed import CITATIONS
from earnest.redteam.moments import moment_of
from earnest.rewards.json import parse_strict
from earnest.task import Answer, Row

Kind = Literal["json", "label", "choice", "number", "math", "code", "sql", "text", "calls"]

_TAG = re.compile(r"<(\w+)>(?P<core>(?:(?!<\1>).)*)</\1>(?P<after>\s*)\Z", re.DOTALL)
_PAIR = re.compile(r"<(\w+)>([^<]*)</\1>")
_SEVERAL = re.compile(r"\s*<(\w+)>(?:(?!<\1>).)*</\1>\s*(?:<\1>(?:(?!<\1>).)*</\1>\s*)+", re.DOTALL)  # one pair of tags after the other
_FENCE = re.compile(r"```(\w*)[ \t]*\n(?P<core>.*?)\n?```", re.DOTALL)
_HASHES = re.compile(r"^#### *(?P<core>.+?)\s*\Z", re.MULTILINE)
_NUMBER = re.compile(r"[$€£]?\s?[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?\s?%?|[-+−]?\.\d+|[-+−]?\d+/\d+", re.IGNORECASE)
_CHOICE = re.compile(r"\(?[A-J]\)?")
_SQL = re.compile(r"\s*(?:select|with|values)\b", re.IGNORECASE)
GOLD = ("answer", "gold", "label", "solution", "target", "expected", "ground_truth", "reference", "output", "value")
LABEL = 60  # characters of the longest label
BOX = "\\boxed{"


@dataclass(frozen=True)
class Form:
    """An oracle answer, taken apart: `before + core + after` is the whole of it.

    Attributes:
        kind: What the asserted part is.
        before: Text in front of it: reasoning, an opening tag or fence, "The answer is ".
        core: The asserted part. Of a trajectory, its last message's text.
        after: Text behind it.
        value: The core as a value, if it is JSON; the messages of a trajectory; else the core.
        wrapped: By what: "tag", "box", "fence", "hashes", "words", or "" where the core is all there is.
    """

    kind: Kind
    before: str
    core: str
    after: str
    value: Any
    wrapped: str = ""

    def wrap(self, core: str) -> str:
        """Another core in the same wrapping."""
        return self.before + core + self.after

    def dump(self, value: Any) -> str:
        """A JSON value in the same wrapping."""
        return self.wrap(json.dumps(value, ensure_ascii=False))

    def change(self, **fields: Any) -> str:
        """The right JSON object in the same wrapping, with some fields changed."""
        return self.dump({**self.value, **fields})


def forms_of(cases: Sequence[Case]) -> list[Form]:
    """The form of each row's oracle answer, the same way for all."""
    texts = [case.oracle for case in cases]
    if any(isinstance(text, list) for text in texts):
        return [_of_trajectory(text) for text in texts]
    forms = [_wrapped(text) for text in texts]
    if len({form.core for form in forms}) == 1 and len(set(texts)) > 1 and {form.wrapped for form in forms} == {"tag"}:
        forms = _varied(texts) or forms  # the last pair of tags holds the same in all: it is not what answers
    if Counter(form.wrapped for form in forms).most_common(1)[0][0] == "" and not all(f.kind in ("json", "code", "sql") for f in forms):
        forms = _worded(texts, [case.row for case in cases])
    kind = _kind_of([form.core for form in forms], [form.wrapped for form in forms], cases, {form.kind for form in forms})
    return [replace(form, kind=kind, value=form.value if kind == "json" else form.core) for form in forms]


def _of_trajectory(answer: Answer) -> Form:
    messages = answer if isinstance(answer, list) else [{"role": "assistant", "content": answer}]
    last = messages[-1].get("content") if messages[-1].get("role") == "assistant" else ""
    return Form("calls", "", last if isinstance(last, str) else "", "", messages)


def _wrapped(text: str) -> Form:
    """By the answer alone: whole JSON, one fence, a closing tag, a box, hashes, a query, a program."""
    value = _container(text)
    if value is not None:
        return Form("json", "", text, "", value)
    if _SEVERAL.fullmatch(text):  # such as several calls: the answer is all of them, and no one alone
        return Form("text", "", text, "", text)
    fences = list(_FENCE.finditer(text))
    if len(fences) == 1:
        return _around(text, *fences[0].span("core"), "fence")
    for pattern, by in ((_TAG, "tag"), (_HASHES, "hashes")):
        if found := pattern.search(text) if by == "hashes" else _last_tag(text):
            return _around(text, *found.span("core"), by)
    if box := boxed(text):
        return _around(text, *box, "box")
    kind: Kind = "sql" if _SQL.match(text) and " " in text.strip() else "code" if _is_program(text) else "text"
    return Form(kind, "", text, "", text)


def _last_tag(text: str) -> re.Match[str] | None:
    start = text.rfind("<", 0, max(text.rfind("</"), 0))  # the opening tag of the last pair, its content holding no other tag
    return _TAG.search(text, start) if start >= 0 else None


def _varied(texts: Sequence[str]) -> list[Form]:
    """By the pair of tags whose content differs most; none where all have the same."""
    pairs = [{found[1]: found.span(2) for found in _PAIR.finditer(text)} for text in texts]
    shared = [name for name in pairs[0] if all(name in pair for pair in pairs)]

    def different(name: str) -> int:
        return len({text[slice(*pair[name])] for text, pair in zip(texts, pairs, strict=True)})

    most = max(shared, key=different, default="")
    return [_around(text, *pair[most], "tag") for text, pair in zip(texts, pairs, strict=True)] if most and different(most) > 1 else []


def _around(text: str, start: int, stop: int, by: str) -> Form:
    core = text[start:stop]
    inner = core.strip()
    if by == "tag" and inner:  # white space within tags belongs to the wrapping
        start, stop = text.index(inner, start), text.index(inner, start) + len(inner)
        core = inner
    value = _container(core)
    kind: Kind = "text"
    if value is not None:
        kind = "json"
    elif by == "box":
        kind = "math"
    elif _SQL.match(core):
        kind = "sql"
    elif _is_program(core):
        kind = "code"
    return Form(kind, text[:start], core, text[stop:], core if value is None else value, by)


def _container(text: str) -> Any:
    """The JSON object or list a text is; None where it is neither."""
    value = parse_strict(text.strip()).value
    return value if isinstance(value, (dict, list)) else None


def boxed(text: str) -> tuple[int, int] | None:
    """Start and end of what the last \\boxed{} of a text holds; None where none is closed."""
    opened = text.rfind(BOX)
    if opened < 0:
        return None
    depth, start = 0, opened + len(BOX)
    for index in range(start, len(text)):
        if text[index] == "}" and depth == 0:
            return start, index
        depth += {"{": 1, "}": -1}.get(text[index], 0)
    return None


def _is_program(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    doing = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.For, ast.While, ast.With, ast.Try)
    return any(isinstance(n, doing) for n in tree.body) or any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ("print", "input") for n in ast.walk(tree)
    )


def _worded(texts: Sequence[str], rows: Sequence[Row]) -> list[Form]:
    """By the rows: a column whose value stands in nearly every answer is the core; else what differs between answers is.

    Dates and citations are cores as they are: what they share, such as a year or a bracket, is a part of them.
    """
    if all(CITATIONS.fullmatch(text) or moment_of(text) for text in texts):
        return [Form("text", "", text, "", text) for text in texts]
    columns = [name for name in dict.fromkeys(key for row in rows for key in row) if name not in ("id", "split")]
    columns.sort(key=lambda name: name.lower() not in GOLD)  # of what stands in the answers, what is called the answer
    best: list[tuple[int, int] | None] = []
    for name in columns:
        spans = [_span(text, row.get(name)) for text, row in zip(texts, rows, strict=True)]
        varied = len({text[span[0] : span[1]] for text, span in zip(texts, spans, strict=True) if span}) > 1
        if varied and sum(s is not None for s in spans) >= 0.9 * len(texts) and _later(spans, best):
            best = spans
        if best and name.lower() in GOLD:
            break
    if not best:
        start = len(_whole_words(_common(texts)))
        end = len(_whole_words(_common([text[start:][::-1] for text in texts])))
        best = [(start, len(text) - end) for text in texts] if len(set(texts)) > 1 else [None] * len(texts)
    best = _whole_quantities(texts, best)
    forms = []
    for text, span in zip(texts, best, strict=True):
        start, stop = span or (0, len(text))
        forms.append(
            Form("text", text[:start], text[start:stop], text[stop:], text[start:stop], "words" if span and span != (0, len(text)) else "")
        )
    return forms


def _whole_quantities(texts: Sequence[str], spans: Sequence[tuple[int, int] | None]) -> list[tuple[int, int] | None]:
    """Spans of numbers or of units, made spans of both where the units differ: one column is but half of such an answer."""
    wider, units = [], set()
    for text, span in zip(texts, spans, strict=True):
        token = re.match(r"[ ~]?[^\s<>{}\[\],;]*", text[span[1] :]) if span else None
        for stop in (span[1], span[1] + len(token[0])) if span and token else ():
            quantity = ends_with(text[:stop])
            whole = text[:stop].rfind(quantity.of(quantity.number)) if quantity else -1
            if quantity and 0 <= whole <= span[0] and text[slice(*span)].strip() in (quantity.number, quantity.unit):
                wider.append((whole, stop))
                units.add(quantity.unit)
                break
    return wider if len(wider) == len(spans) and len(units) > 1 else list(spans)


def _span(text: str, value: Any) -> tuple[int, int] | None:
    """Where a value stands last in a text, as a whole word; of a list of values, from the first to the last that stand there."""
    if isinstance(value, (list, tuple)):
        spans = [span for part in value if not isinstance(part, (list, tuple)) and (span := _span(text, part))]
        return (min(start for start, _ in spans), max(stop for _, stop in spans)) if spans else None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        return None
    wanted = str(value).strip()
    found = [m.span() for m in re.finditer(rf"(?<!\w){re.escape(wanted)}(?!\w)", text)]
    return found[-1] if found else None


def _later(spans: Sequence[tuple[int, int] | None], best: Sequence[tuple[int, int] | None]) -> bool:
    """Whether spans end further on than the best so far, or are longer where they end alike: reasoning stands before what it leads to."""

    def place(them: Sequence[tuple[int, int] | None]) -> tuple[int, int]:
        return sum(s[1] for s in them if s), sum(s[1] - s[0] for s in them if s)

    return not best or place(spans) > place(best)


def _common(texts: Sequence[str]) -> str:
    """The longest beginning that all texts share."""
    first, last = min(texts), max(texts)
    return next((first[:i] for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)


def _whole_words(prefix: str) -> str:
    """A common beginning, cut back to where a word ends."""
    return prefix if not prefix or not prefix[-1].isalnum() else prefix[: len(prefix.rstrip()) - len(re.split(r"\W", prefix)[-1])]


def _kind_of(cores: Sequence[str], wrappings: Sequence[str], cases: Sequence[Case], found: set[Kind]) -> Kind:
    plain = [core.strip() for core in cores]
    for kind in ("json", "code", "sql"):
        if found == {kind}:
            return kind
    if all(_CHOICE.fullmatch(core) for core in plain):
        return "choice"
    if "box" in wrappings:
        return "math"
    if all(_NUMBER.fullmatch(core) for core in plain):
        return "number"
    return "label" if are_labels(plain, [prompt_text(case) for case in cases]) else "text"


def are_labels(values: Sequence[Any], prompts: Sequence[str]) -> bool:
    """Whether values are labels out of a set: short texts that repeat over the rows, or all stand in every prompt."""
    if not values or not all(isinstance(value, str) and 0 < len(value) <= LABEL and "\n" not in value for value in values):
        return False
    different = set(values)
    listed = all(value.lower() in prompt.lower() for value in different for prompt in prompts[:20])
    return listed or (len(values) >= 4 and len(different) <= max(2, 0.6 * len(values)) and len(different) <= 50)


def prompt_text(case: Case) -> str:
    """What the model is told, as one text."""
    return "\n".join(m["content"] for m in case.prompt if isinstance(m.get("content"), str))
