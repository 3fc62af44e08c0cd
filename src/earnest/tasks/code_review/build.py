"""The rows: changes to functions, with a bug or clean, made anew from a seed and proven by running both versions."""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from earnest.task import Row
from earnest.tasks.code_review.functions import Subject, calls, differs, outcomes, subjects, witness, written
from earnest.tasks.code_review.mutate import CATEGORIES, Maker, bugs, edits

BUGS, CLEAN = 3, 2  # a function, at most
SHARES = ((0.7, "train"), (0.82, "dev"), (1.0, "test"))
REMARKS = ("see the tests", "kept simple", "as before", "note the order", "checked")
ALIKE = 0.35  # share of pieces of four letters
MOST_SHOWN = 16  # lines of a change
LONGEST_CALL = 60
RARE = ("boundary", "dropped", "off_by_one", "default", "exception")


@lru_cache(maxsize=4)
def build(seed: int = 0) -> tuple[Row, ...]:
    """All rows, the same for a seed and a version of Python. Functions that are alike stand in one split."""
    families = _families(subjects())
    random.Random(seed).shuffle(families)
    rows: list[Row] = []
    seen: set[str] = set()
    for place, family in enumerate(families):
        split = next(name for share, name in SHARES if place < share * len(families))
        for subject in family:
            for row in _rows_of(subject, random.Random(f"{seed} {subject.module}.{subject.name}")):
                if row["diff"] not in seen:
                    seen.add(row["diff"])
                    rows.append({"id": f"{subject.name}-{len(rows)}", "split": split, **row})
    return tuple(rows)


def _families(functions: Sequence[Subject]) -> list[list[Subject]]:
    """Functions that are much alike, or have one name, together."""
    families: list[list[Subject]] = []
    for subject in functions:
        kin = [family for family in families if any(_alike(subject, other) for other in family)]
        families = [family for family in families if family not in kin] + [[*(other for family in kin for other in family), subject]]
    return families


def _alike(one: Subject, other: Subject) -> bool:
    pieces = [{s.source[at : at + 4] for at in range(len(s.source) - 3)} for s in (one, other)]
    return one.name == other.name or len(pieces[0] & pieces[1]) > ALIKE * len(pieces[0] | pieces[1])


def _rows_of(subject: Subject, rng: random.Random) -> Iterator[Row]:
    usual = list(outcomes(subject, subject.source))
    if len(set(usual)) < 2:
        return
    edited = (make() for make in _shuffled(edits(subject.source, rng), rng))
    same = list(islice((text for text in edited if not differs(subject, text, usual)), CLEAN + 1))
    for number in range(CLEAN):
        if row := _row(subject, same[number] if number < len(same) else subject.source, None, "none", rng):
            yield row
    base = rng.choice([subject.source, *same])  # so that a bug stands among harmless changes too
    made: set[str] = set()
    for category, make in _in_turn(bugs(base, rng), rng):
        if len(made) == BUGS:
            return
        text = make()
        if text not in made and differs(subject, text, usual) and (row := _row(subject, text, base, category, rng)):
            made.add(text)
            yield row


def _shuffled(things: list[Any], rng: random.Random) -> list[Any]:
    return rng.sample(things, len(things))


def _in_turn(pairs: list[tuple[str, Maker]], rng: random.Random) -> list[tuple[str, Maker]]:
    """Shuffled, but one of each category before the second of any, and those that few functions allow before the others."""
    listed = _shuffled(pairs, rng)
    names = [name for name, _ in listed]
    luck = {name: rng.random() - (name in RARE) for name in CATEGORIES}
    order = sorted(range(len(listed)), key=lambda index: (names[:index].count(names[index]), luck[names[index]]))
    return [listed[index] for index in order]


def _row(subject: Subject, after: str, base: str | None, category: str, rng: random.Random) -> Row | None:
    """One change as a row; None where it is too long, or its bug does not show in one or two calls.

    Args:
        subject: The function.
        after: As changed.
        base: As changed but for the bug; None where there is none.
        category: Of the bug.
        rng: For remarks.
    """
    before = subject.source
    call = written(subject, calls(subject)[len(subject.inputs) // 3]) if base is None else witness(subject, before, after)
    remarked = after.splitlines()
    if rng.random() < 0.5 or before == after:
        remarked[rng.randrange(len(remarked))] += f"  # {rng.choice(REMARKS)}"
    shown = diff(before.splitlines(), remarked)
    if len(shown) > MOST_SHOWN or not call or len(call) > LONGEST_CALL:
        return None
    return {
        "function": subject.name,
        "module": subject.module,
        "before": before,
        "after": after,
        "diff": "\n".join(shown),
        "lines": [] if base is None else list(_place(base.splitlines(), after.splitlines())),
        "category": category,
        "call": call,
    }


def _place(before: list[str], after: list[str]) -> tuple[int, int]:
    """First and last line, counted from 1 in the new version, of what a bug changed; around what it removed."""
    blocks = [o for o in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if o[0] != "equal"]
    first, last = min(o[3] for o in blocks), max(o[4] for o in blocks)
    return (first + 1, last) if last > first else (max(1, first), min(len(after), first + 1))


def diff(before: list[str], after: list[str]) -> list[str]:
    """The whole function as changed, its lines numbered, new ones marked with +, old ones with - and no number."""
    shown = []
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            shown += [f"- {line}" for line in before[i1:i2]]
        shown += [f"{number + 1}{'' if kind == 'equal' else '+'} {after[number]}" for number in range(j1, j2)]
    return shown
