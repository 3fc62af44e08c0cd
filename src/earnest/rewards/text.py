"""Text equality: equal after a normalisation that is declared, and by nothing else.

No similarity and no containment: a part of the right answer, or the right answer among others, is another answer. What the other
verifiers of text need stands here too: which differences may be ignored, the acceptable golds of a row, and blocks in tags.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from typing import Any

from earnest.errors import UserError
from earnest.rewards.verifier import Attempt, Score, Verifier, invalid_task, right, wrong
from earnest.task import Row

MAX_CHARACTERS = 20_000  # longer is no answer, and is not looked at

IGNORABLE = ("case", "space", "punctuation", "articles", "compatibility")

# Marks of a sentence. Percent, ampersand, slash, hash, at and underscore mean something: 5% is not 5, C# is not C.
_MARK = re.compile(r"""["'`*()\[\]{}«»“”„‘’‹›、。，！？：；]|[-‐‑–—.,;:!?¡¿…·](?!\d)""")
_INSIDE_A_WORD = re.compile(r"(?<=[^\W\d])[.'’](?=[^\W\d])")  # U.S. is US, don't is dont
_ARTICLE = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)


def normaliser(ignore: Collection[str] = ()) -> Callable[[str], str]:
    """A function that takes away the differences that do not count.

    White space around the text, the kind of line ending and the Unicode form (NFC) never count. By name, also:

    - "case": upper and lower case, by Unicode case folding;
    - "space": how much white space stands between words;
    - "punctuation": the marks of a sentence, brackets, quotes and asterisks; a sign, point or comma before a digit stays (-5 is not 5);
    - "articles": the English words a, an, the;
    - "compatibility": width, ligatures and other forms that Unicode holds compatible (NFKC).

    Args:
        ignore: Any of these names.

    Raises:
        UserError: Another name.
    """
    ignored = frozenset([ignore] if isinstance(ignore, str) else ignore)
    if unknown := sorted(ignored - frozenset(IGNORABLE)):
        raise UserError(f"ignore={unknown}: it is not known what to ignore there. Choose from {', '.join(IGNORABLE)}.")
    form = "NFKC" if "compatibility" in ignored else "NFC"

    def normal(text: str) -> str:
        text = unicodedata.normalize(form, text).replace("\r\n", "\n").replace("\r", "\n")
        if "case" in ignored:
            text = unicodedata.normalize(form, text.casefold())
        if "punctuation" in ignored:
            text = _MARK.sub(" ", _INSIDE_A_WORD.sub("", text))
        if "articles" in ignored:
            text = _ARTICLE.sub(" ", text)
        if ignored & {"space", "punctuation", "articles"}:
            text = " ".join(text.split())
        return text.strip()

    return normal


def text_answer(
    gold: str = "answer", *, ignore: Collection[str] = (), name: str = "text", max_characters: int = MAX_CHARACTERS
) -> Verifier:
    """The whole answer equals the gold text.

    Rule: 1.0 when the answer and one of the acceptable golds are the same after `normaliser(ignore)`, else 0.0. An empty answer is
    always wrong; a row without gold, or with one of which the normalisation leaves nothing, is invalid.

    Args:
        gold: Column with the text, or a list of texts that are all acceptable.
        ignore: Differences that do not count, by the names of `normaliser`: "case", "space", "punctuation", "articles", "compatibility".
        name: Name in metrics.
        max_characters: Longest answer that is looked at.

    Returns:
        A verifier.

    Raises:
        UserError: `ignore` names something unknown.
    """
    normal = normaliser(ignore)

    def judge(attempt: Attempt, row: Row) -> Score:
        golds = accepted(row, gold)
        if not golds or not all(normal(text) for text in golds):
            return invalid_task(f"'{gold}' is no text to compare with")
        if len(attempt.text) > max_characters:
            return wrong("too long")
        answer = normal(attempt.text)
        if not answer:
            return wrong("no answer")
        return right(answer=shown(answer)) if answer in map(normal, golds) else wrong("another text", answer=shown(answer))

    return Verifier(name, judge, columns=(gold,))


def accepted(row: Row, column: str) -> list[str]:
    """The acceptable texts of a row: one text, or a list of them; nothing at all where the column holds anything else."""
    value = row.get(column)
    texts = [value] if isinstance(value, str) else value
    good = isinstance(texts, (list, tuple)) and all(isinstance(text, str) for text in texts)
    return list(texts) if good else []


def shown(text: str, most: int = 200) -> str:
    """The beginning of a text, such that it can be written to any file."""
    return text[:most].encode("utf-8", "backslashreplace").decode()


def tagged(verifier: Verifier, tags: Sequence[str] = ("answer",), *, max_characters: int = 200_000) -> Verifier:
    """A verifier that reads a block in tags, where these blocks must be the whole text.

    Rule: the text is exactly one block for each tag, in the given order, such as `<think>...</think> <answer>...</answer>`, with nothing
    but white space around them and something inside each. The verifier gets what is inside the last. Anything else scores the
    least: prose around the blocks, a block twice, missing, empty or closed by another tag, any of these tags inside a block.

    Where the model's thinking has been taken away before (as earnest does for models that think), `tags` is ("answer",).

    Args:
        verifier: What judges the inside, for example `number("gold")`.
        tags: Names of the blocks.
        max_characters: Longest text that is looked at, thinking included.

    Returns:
        A verifier of the same name, columns and bounds.

    Raises:
        UserError: A name of a block that is none, or twice.
    """
    if not tags or isinstance(tags, str) or len(set(tags)) < len(tags) or not all(re.fullmatch(r"[A-Za-z][\w-]*", tag) for tag in tags):
        raise UserError(f"tags={tags!r} must be different plain names, such as ('think', 'answer').")
    any_tag = re.compile(rf"<\s*/?\s*(?:{'|'.join(tags)})\s*/?\s*>", re.IGNORECASE)
    wanted = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]

    def judge(attempt: Attempt, row: Row) -> Score:
        inside = _last_block(attempt.text, any_tag, wanted) if len(attempt.text) <= max_characters else None
        message: dict[str, Any] = {**(attempt.messages[-1] if attempt.messages else {}), "content": inside or ""}
        score = verifier.judge(Attempt((*attempt.messages[:-1], message), attempt.ids), row)
        if inside is None and score.status != "invalid_task":  # an error of the row is one whatever is answered
            return Score(verifier.bounds[0], reasons=(f"not exactly {' '.join(wanted)}",))
        return score

    return dataclasses.replace(verifier, judge=judge)


def _last_block(text: str, any_tag: re.Pattern[str], wanted: list[str]) -> str | None:
    """What is inside the last block; None where the text is anything but the wanted blocks."""
    marks = list(any_tag.finditer(text))
    if [mark.group() for mark in marks] != wanted:
        return None
    edges = [0, *(position for mark in marks for position in mark.span()), len(text)]
    pieces = [text[start:end].strip() for start, end in zip(edges[::2], edges[1::2], strict=True)]  # around, inside, around, ...
    return pieces[-2] if all(pieces[1::2]) and not any(pieces[::2]) else None
