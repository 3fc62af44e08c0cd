"""Objects that prompts ask for: the fields of a template such as {"reasoning": "...", "answer": "..."}, or that a sentence names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

SAID = "It follows from what is said in the question."  # in a field that is free
FIELDS = 12  # most fields of an object that is asked for
_TOKEN = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[{}\[\]]|\w+(?=\s*:)")
_KEY = re.compile(r"[\"']?([A-Za-z_][\w -]{0,40}?)[\"']?")
_QUOTED = re.compile(r"[\"'`“‘]([A-Za-z_]\w{0,40})[\"'`”’]")
_ONE = r"\w+(?:\s*\([^()\n]*\))?"
_NAMED = re.compile(  # behind "and" stands the last: what follows is no name any more
    rf"\b(?:keys?|fields?|properties|attributes)\b:?\s+({_ONE}(?:\s*,\s*(?!and\b){_ONE}){{0,10}}(?:\s*,?\s+and\s+{_ONE})?)",
    re.IGNORECASE,
)
_NOT_NAMES = frozenset(("and", "or", "of", "in", "the", "a", "an", "are", "is", "with", "to", "as", "for", "only", "must", "should")) | {
    *("may", "can", "could", "will", "do", "does", "come", "stand", "that", "which", "nothing", "no", "not")
}
_UNSURE = re.compile(r"conf|prob|certainty|score", re.IGNORECASE)
_NUMBER = re.compile(r"\b(?:number|float|int|integer|double|decimal)\b|\d", re.IGNORECASE)


def objects_in(prompts: Sequence[str]) -> list[dict[str, Any]]:
    """The objects whose fields all prompts name, each with something of the right type to say in every field."""
    if not prompts:
        return []
    found = [list(_templates(prompt)) for prompt in prompts]
    names = [{tuple(one) for one in them} for them in found]
    shared = [one for one in found[0] if all(tuple(one) in others for others in names)]
    if not shared and all("json" in prompt.lower() for prompt in prompts):
        said = [dict.fromkeys(_names(prompt)) for prompt in prompts]
        common = [name for name in said[0] if all(name in others for others in said)]
        shared = [{name: _saying(name, "") for name in common[:FIELDS]}] if common else []
    return list({tuple(one): one for one in shared}.values())


def _templates(prompt: str) -> list[dict[str, Any]]:
    """The objects that stand in a text, in JSON or nearly so."""
    found, position = [], 0
    while (start := prompt.find("{", position)) >= 0:
        fields, stop = _fields(prompt, start)
        if fields and len(fields) <= FIELDS:
            found.append(fields)
        position = stop if fields else start + 1
    return found


def _fields(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The fields of the object that opens at `start`, and where it closes; none where it does not close."""
    depth, marks = 0, []
    for token in _TOKEN.finditer(text, start):
        if token.group() in "{[":
            depth += 1
        elif token.group() in "}]":
            depth -= 1
            if depth == 0:
                marks.append(token.start())
                break
        elif depth == 1 and re.match(r"\s*:", text[token.end() :]) and (name := _KEY.fullmatch(token.group())):
            marks.append((name[1], token.start(), token.end()))
    if depth or len(marks) < 2:
        return {}, start + 1
    ends = [mark[1] for mark in marks[1:-1]] + [marks[-1]]
    return {name: _saying(name, text[begin:end].strip(" \n\t:,")) for (name, _, begin), end in zip(marks[:-1], ends, strict=True)}, marks[
        -1
    ] + 1


def _names(prompt: str) -> list[str]:
    """Names that a text gives in quotation marks, or behind "keys" and the like."""
    quoted = _QUOTED.findall(prompt)
    listed = [re.sub(r"\([^()]*\)", " ", them) for them in _NAMED.findall(prompt)]
    return [name for name in (quoted or [word for them in listed for word in re.findall(r"\w+", them)]) if name.lower() not in _NOT_NAMES]


def _saying(name: str, template: str) -> Any:
    """Something to say in a field, of the type that its template has."""
    inner = template.strip("\"'<>")
    if template.startswith(("{", "[")):
        return {} if template[0] == "{" else [SAID]
    if re.search(r"\b(?:true|false|bool(?:ean)?)\b", template, re.IGNORECASE) or re.match(r"(?:is|has|needs)_", name):
        return True
    if template[:1] not in ('"', "'") and (_NUMBER.search(inner) or (_UNSURE.search(name) and not inner.strip(" ."))):
        return 0.9 if _UNSURE.search(name) or "." in inner or "float" in inner else 1
    if template[:1] not in ('"', "'") and re.search(r"\b(?:list|array)\b", inner, re.IGNORECASE):
        return [SAID]
    options = [option.strip() for option in re.split(r"\s*\|\s*|\s*/\s*", inner)]
    return options[0] if len(options) > 1 and all(0 < len(option) <= 40 for option in options) else SAID


def besides(fields: Mapping[str, Any], own: Sequence[str]) -> dict[str, Any]:
    """The fields of an object that are not one's own."""
    return {name: said for name, said in fields.items() if name not in own}
