"""Marks that change with repetition, order or neighbours, and marks that take far too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from earnest.redteam.ask import Asker, Paid
from earnest.redteam.attack import Try
from earnest.redteam.faults import fault_attack
from earnest.redteam.findings import Finding, Outcome, finding
from earnest.redteam.ground import Ground
from earnest.redteam.targets import idle
from earnest.task import Answer

SLOW = 20.0  # times the usual, from two seconds on  # times the usual, from two seconds on


def unsteady(ground: Ground, asker: Asker) -> list[Finding]:
    """Marks that change with repetition, order or neighbours."""
    some = [(i, answer) for i, t in enumerate(ground.targets) for answer in (t.case.oracle, t.wrong, idle(t))]
    first = asker.ask_again(some)
    ways = {
        "when the same answers were scored again": asker.ask_again(some),
        "when the batch came in reverse order": asker.ask_again(some[::-1])[::-1],
        "when it was scored alone": [asker.ask_again([one])[0] for one in some],
    }
    found = []
    for f, name in enumerate(asker.names):
        for how, again in ways.items():
            changed = [k for k, (a, b) in enumerate(zip(first, again, strict=True)) if not _same(a.values[f], b.values[f])]
            if changed:
                hits = [_plain_outcome(ground, some[k], first[k], "unsteady") for k in changed]
                every = [_plain_outcome(ground, one, paid, "unsteady") for one, paid in zip(some, first, strict=True)]
                found.append(finding("fault", "fact", hits[0].attack, every, hits, (name,), f"other marks {how}"))
                break
    return found or _refused_twice(ground, asker, some, first)


def _refused_twice(ground: Ground, asker: Asker, some: Sequence[tuple[int, Answer]], first: Sequence[Paid]) -> list[Finding]:
    """Right answers of which a second one, as groups have them, earns little: a reward against sameness that forbids to be right."""
    right, wrong = range(0, len(some), 3), range(1, len(some), 3)
    again = asker.ask_again([some[k] for k in right for _ in range(2)])[1::2]
    found = []
    for f, name in enumerate(asker.names):
        marks = [(paid.values[f], first[r].values[f], first[w].values[f]) for paid, r, w in zip(again, right, wrong, strict=True)]
        refused = [k for k, (own, a, b) in enumerate(marks) if None not in (own, a, b) and b < a and own < (a + b) / 2]
        if refused:
            every = [_plain_outcome(ground, some[r], paid, "unsteady") for r, paid in zip(right, again, strict=True)]
            says = "little for a right answer when the same one came before it"
            found.append(finding("fault", "fact", every[0].attack, every, [every[k] for k in refused], (name,), says))
    return found


def steadied(found: Finding, ground: Ground, asker: Asker) -> Finding:
    """Of a reward with changing marks: a finding that does not come again is chance, and no fact."""
    place = next((i for i, target in enumerate(ground.targets) if target.case.place == found.place), None)
    if found.kind == "fault" or found.certainty != "fact" or place is None:
        return found
    again = [asker.ask_again([(place, found.example)])[0].total for _ in range(3)]
    if all(_same(total, found.earned) for total in again):
        return found
    return replace(found, certainty="lead", detail="the reward gives changing marks, so this may be chance")


def slow(ground: Ground, asker: Asker, outcomes: Sequence[Outcome]) -> list[Finding]:
    """Answers that take far longer than usual, each asked alone to be sure."""
    usual = float(np.median([paid.seconds for paid in ground.right]))
    timed = [o for o in outcomes if o.attack.family not in ("code", "SQL")]  # rewards give programs and queries seconds on purpose
    suspects = sorted((o for o in timed if o.paid.seconds > max(0.05, 3 * usual) and not o.paid.faults), key=lambda o: -o.paid.seconds)
    hits = []
    for outcome in suspects[:8]:
        again = asker.ask_again([(ground.position(outcome.target), outcome.tried.answer)])[0]
        if again.seconds > max(2.0, SLOW * usual) and not again.faults:
            hits.append(_plain_outcome(ground, (ground.position(outcome.target), outcome.tried.answer), again, "slow"))
    return (
        [finding("fault", "lead", hits[0].attack, hits, hits, (), f"{hits[0].paid.seconds:.1f} s, usually {usual:.2g} s")] if hits else []
    )


def _plain_outcome(ground: Ground, asked: tuple[int, Answer], paid: Paid, fault: str) -> Outcome:
    i, answer = asked
    return Outcome(fault_attack(fault), ground.targets[i], Try(answer), paid, None, ground.levels[i], ground.by_function[i])


def _same(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and abs(a - b) < 1e-9)
