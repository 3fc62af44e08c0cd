"""The rows under attack, what right and honest wrong answers earn on them, and which of them a guessed form is understood on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from earnest.errors import UserError
from earnest.evidence import Case
from earnest.redteam.ask import Asker, Paid
from earnest.redteam.attack import Attack, Target, Try
from earnest.redteam.findings import SLACK, Finding, Level, Outcome, finding, level_of
from earnest.redteam.targets import idle
from earnest.redteam.wording import quoted

UNPAID = Attack(
    "right.unpaid",
    "right answers",
    lambda _: (),
    "The right answer earns nothing where it is written as it is paid on other rows.",
    "Give the form of your right answers with --form, or their column with --gold.",
    expect="right",
)


@dataclass(frozen=True)
class Ground:
    """The rows under attack and what they pay.

    Attributes:
        targets: The rows.
        right: What the right answer earned, a row each.
        wrong: What each honest wrong answer earned, a row each.
        levels: What each row pays in total.
        by_function: What each function adds to that, times its weight.
        cases: All usable rows, of which these are some.
    """

    targets: Sequence[Target]
    right: Sequence[Paid]
    wrong: Sequence[Sequence[Paid]]
    levels: Sequence[Level]
    by_function: Sequence[tuple[Level, ...]]
    cases: Sequence[Case] = ()

    def position(self, target: Target) -> int:
        """Of a target among the rows."""
        return next(i for i, other in enumerate(self.targets) if other is target)


def ground_of(targets: Sequence[Target], asker: Asker) -> Ground:
    """Ask what right and honest wrong answers earn.

    Raises:
        UserError: The right answers earn nothing that could be compared with.
    """
    right = asker.ask([(i, target.case.oracle) for i, target in enumerate(targets)])
    broken = [(t, p) for t, p in zip(targets, right, strict=True) if p.faults]
    if broken:
        target, paid = broken[0]
        name, (_, sentence) = next(iter(paid.faults.items()))
        where = f"The reward '{name}' breaks on the right answer of {target.case.place}"
        raise UserError(f"{where}: {quoted(sentence)}. Mend it, then run again.")
    if all(paid.total is None for paid in right):
        raise UserError("The rewards give no verdict (None) on any right answer, so there is nothing to compare with. Run `earnest check`.")
    wrong = [asker.ask([(i, answer) for answer in target.wrongs]) for i, target in enumerate(targets)]
    nothing = asker.ask([(i, idle(target)) for i, target in enumerate(targets)])
    levels, by_function = [], []
    for target, gold, others, none in zip(targets, right, wrong, nothing, strict=True):
        totals = [(a, p.total) for a, p in zip(target.wrongs, others, strict=True) if p.total is not None]
        levels.append(Level(0.0, 0.0) if gold.total is None else level_of(gold.total, totals, none.total))
        functions = []
        for f, value in enumerate(gold.parts):
            pairs = [(a, p.parts[f]) for a, p in zip(target.wrongs, others, strict=True) if p.parts[f] is not None]
            functions.append(Level(0.0, 0.0) if value is None else level_of(value, pairs, none.parts[f]))
        by_function.append(tuple(functions))
    return Ground(targets, right, wrong, levels, by_function)


def understood(ground: Ground, asker: Asker) -> list[int]:
    """The rows on which the right answer is paid as we write it.

    Where the form is a guess, some rows may want another one: what earns the least of all there, and less than right answers of other rows,
    may not be the right answer at all, and nothing that is paid or refused beside it says anything.
    """
    every = list(range(len(ground.targets)))
    if not asker.guessed:
        return every
    nothing = asker.ask([(i, idle(target)) for i, target in enumerate(ground.targets)])
    most = max(paid.total for paid in ground.right if paid.total is not None)

    def low(i: int) -> bool:
        own, others = ground.right[i].total, [paid.total for paid in (*ground.wrong[i], nothing[i]) if paid.total is not None]
        return own is not None and bool(others) and own <= min(others) and own < most - SLACK * abs(most)

    return [i for i in every if not low(i)]


def unpaid_rows(ground: Ground, known: Sequence[int]) -> list[Finding]:
    """A question about the rows that are left out, as their right answers earn nothing."""
    every = [
        Outcome(UNPAID, target, Try(target.case.oracle), ground.right[i], None, ground.levels[i], ground.by_function[i])
        for i, target in enumerate(ground.targets)
    ]
    left = [outcome for i, outcome in enumerate(every) if i not in set(known)]
    asks = "these rows are left out: is that how their right answers are written?"
    return [finding("false reject", "question", UNPAID, every, left, (), asks)] if left else []


def of_rows(ground: Ground, rows: Sequence[int]) -> Ground:
    """Some of the rows alone."""
    return replace(
        ground,
        targets=[replace(ground.targets[i], first=place == 0) for place, i in enumerate(rows)],
        right=[ground.right[i] for i in rows],
        wrong=[ground.wrong[i] for i in rows],
        levels=[ground.levels[i] for i in rows],
        by_function=[ground.by_function[i] for i in rows],
    )
