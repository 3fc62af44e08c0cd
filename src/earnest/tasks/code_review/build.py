"""The rows: changes to functions, with a bug or clean, made anew from a seed and proven by running both versions."""

from __future__ import annotations

import ast
import copy
import difflib
import random
from collections.abc import Iterator
from functools import lru_cache

from earnest.task import Row
from earnest.tasks.code_review.functions import Subject, outcomes, subjects, witness
from earnest.tasks.code_review.mutate import Tree, bugs, edits

BUGS, CLEAN = 5, 3  # a function, at most
SHARES = ((0.7, "train"), (0.82, "dev"), (1.0, "test"))
REMARKS = ("see the tests", "kept simple", "as before", "note the order", "checked")
MOST_SHOWN = 16  # lines of a change


@lru_cache(maxsize=4)
def build(seed: int = 0) -> tuple[Row, ...]:
    """All rows. No function stands in two splits; the same seed and the same Python give the same rows."""
    functions = list(subjects())
    random.Random(seed).shuffle(functions)
    rows: list[Row] = []
    seen: set[str] = set()
    for place, subject in enumerate(functions):
        split = next(name for share, name in SHARES if place < share * len(functions))
        for row in _rows_of(subject, random.Random(f"{seed} {subject.module}.{subject.name}")):
            if row["diff"] not in seen:
                seen.add(row["diff"])
                rows.append({"id": f"{subject.name}-{len(rows)}", "split": split, **row})
    return tuple(rows)


def _rows_of(subject: Subject, rng: random.Random) -> Iterator[Row]:
    usual = outcomes(subject, subject.tree)
    if len(set(usual)) < 2:
        return
    same = [tree for _, tree in _shuffled(edits(subject.tree, rng), rng) if outcomes(subject, tree) == usual]
    for number in range(min(CLEAN, len(same) + 1)):
        tree = same[number] if number < len(same) else subject.tree
        if row := _row(subject, tree, None, "none", rng):
            yield row
    made, used = 0, set()
    for category, mutant in _by_category(bugs(subject.tree, rng), rng):
        base = rng.choice([subject.tree, *same[-2:]])
        if base is not subject.tree:  # the same bug in an edited version, found by its category and text
            again = [tree for name, tree in bugs(base, rng) if name == category]
            mutant = rng.choice(again) if again else mutant
            base = base if again else subject.tree
        text = ast.unparse(mutant)
        if text in used or made == BUGS or outcomes(subject, mutant) == usual:
            continue
        if row := _row(subject, mutant, base, category, rng):
            used.add(text)
            made += 1
            yield row


def _shuffled(pairs: Iterator[tuple[str, Tree]], rng: random.Random) -> list[tuple[str, Tree]]:
    listed = list(pairs)
    rng.shuffle(listed)
    return listed


def _by_category(pairs: Iterator[tuple[str, Tree]], rng: random.Random) -> list[tuple[str, Tree]]:
    """Shuffled, but one of each category before the second of any, the rare ones first."""
    listed = _shuffled(pairs, rng)
    names = [name for name, _ in listed]
    turn = [names[:index].count(name) for index, name in enumerate(names)]
    order = sorted(range(len(listed)), key=lambda index: (turn[index], names.count(names[index])))
    return [listed[index] for index in order]


def _row(subject: Subject, tree: Tree, base: Tree | None, category: str, rng: random.Random) -> Row | None:
    """One change as a row; None where it is too long, changes nothing that is seen, or its bug does not show in one or two calls."""
    before, after = ast.unparse(subject.tree).splitlines(), ast.unparse(copy.deepcopy(tree)).splitlines()
    lines = None
    if base is not None:
        lines = _place(ast.unparse(base).splitlines(), after)
    remarked = list(after)
    if rng.random() < 0.5 or before == after:
        index = rng.randrange(len(after))
        remarked[index] += f"  # {rng.choice(REMARKS)}"
    shown = diff(before, remarked)
    call = witness(subject, subject.tree, tree) if base is not None else _example(subject)
    if len(shown) > MOST_SHOWN or not call or len(call) > 60:
        return None
    return {
        "function": subject.name,
        "module": subject.module,
        "before": "\n".join(before),
        "after": "\n".join(after),
        "diff": "\n".join(shown),
        "first": None if lines is None else lines[0],
        "last": None if lines is None else lines[1],
        "category": category,
        "call": call,
    }


def _example(subject: Subject) -> str:
    """A call of middling length."""
    calls = sorted(subject.inputs, key=lambda arguments: (len(repr(arguments)), repr(arguments)))
    return f"{subject.name}({', '.join(map(repr, calls[len(calls) // 3]))})"


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
