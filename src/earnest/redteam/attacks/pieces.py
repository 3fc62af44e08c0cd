"""The texts of a right answer, and what writes another in the place of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from earnest.redteam.attack import Target


@dataclass(frozen=True)
class Piece:
    """A text of a right answer.

    Attributes:
        text: The text.
        seen: What right answers of the rows have in its place.
        put: Writes another text there.
    """

    text: str
    seen: tuple[str, ...]
    put: Callable[[str], str]


def pieces_of(target: Target, around: bool = False) -> list[Piece]:
    """The fields of an object that are texts; elsewhere the core, and all of the answer where words stand around it.

    Args:
        target: The row.
        around: Whether all of the answer is a piece also where tags, a fence or a box stand around the core: they may hold fields, too.
    """
    form = target.form
    if form.kind == "json":
        fields = form.value.items() if isinstance(form.value, dict) else ()
        return [
            Piece(own, _texts(target.values.get(name, ())), lambda text, n=name: form.change(**{n: text}))
            for name, own in fields
            if isinstance(own, str)
        ]
    pieces = [Piece(form.core.strip(), tuple(target.golds), form.wrap)]
    if form.wrapped == "words" or (around and form.wrapped):
        pieces.append(Piece(str(target.case.oracle).strip(), _texts(target.answers), str))
    return pieces


def widest_of(target: Target) -> list[Piece]:
    """The same, of two texts that stand within each other the wider alone."""
    return pieces_of(target) if target.form.kind == "json" else pieces_of(target)[-1:]


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str))
