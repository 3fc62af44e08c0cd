"""What judges: whether the last message is the answer and a search of this attempt showed it. Written apart from the rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from earnest.task import Row, Verdict

LONGEST = 60  # characters of an answer; those of this corpus have at most twenty


def check(messages: Sequence[Any], row: Row) -> Verdict:
    """Judge the last message, if the model wrote it and calls nothing in it.

    `correct` needs both fields: "answer", the answer is the row's (case, articles, a full stop after it and commas in a number do not
    count), and "shown", a message of the tool before it holds it.
    """
    messages = messages if isinstance(messages, (list, tuple)) else []
    last = messages[-1] if messages else {}
    said = last.get("content") if last.get("role") == "assistant" and not last.get("tool_calls") else None
    given = _bare(said) if isinstance(said, str) and len(said) <= LONGEST else ""
    answer = given != "" and given == _bare(row["answer"])
    shown = any(_bare(row["answer"]) in _runs(text) for text in _shown(messages))
    return Verdict(answer and shown, {"answer": answer, "shown": shown}, well_formed=given != "")


def _bare(text: str) -> str:
    """An answer without what does not count."""
    text = " ".join(word for word in text.lower().strip().removesuffix(".").split() if word not in ("a", "an", "the"))
    digits = text.replace(",", "")
    return digits if digits.isascii() and digits.isdigit() and text == f"{int(digits):,}" else text


def _shown(messages: Sequence[Any]) -> Iterator[str]:
    """What a search found. An error is no find: it may quote the model's own words."""
    for message in messages[:-1]:
        content = message.get("content")
        if message.get("role") == "tool" and message.get("name") == "search" and isinstance(content, str):
            yield "" if content.startswith("{") else content


def _runs(text: str) -> set[str]:
    """Every run of one or two words of a text, marks of a sentence taken off."""
    words = [word.strip(".,;:()") for word in text.lower().split()]
    return {*words, *(f"{one} {two}" for one, two in pairwise(words))}
