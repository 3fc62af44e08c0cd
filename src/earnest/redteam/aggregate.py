"""What the rewards let through as a whole: which term moves the total, what ties, and where being right is worth too little.

Each reward may be sound and their sum not. Training climbs differences between answers to one row, so everything here is about those: the
differences among honest attempts (the right answer, a wrong one, none, the most common one) and what each term has in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from earnest.redteam.ask import Asker, Paid
from earnest.redteam.attack import Attack, Try
from earnest.redteam.findings import SLACK, Finding, Outcome, finding
from earnest.redteam.targets import idle
from earnest.task import Answer

if TYPE_CHECKING:
    from earnest.redteam.ground import Ground

MOST = 0.55  # share of the variance from which a term that tells nothing drowns the rest
TELLS = 0.1  # of what being right is worth: a term whose mean differs by less does not tell right from wrong
HIGH = 0.25  # of the same: what silence may earn beyond trying
LOW = 0.5  # of the same: a row whose right answer earns less than halfway cannot be won
SAME = 1e-9


@dataclass(frozen=True)
class Term:
    """One reward function within the sum. All marks are times its weight.

    Attributes:
        name: The function.
        weight: Its weight.
        variance: Its share of the variance among honest attempts at one row; negative where it works against the sum, NaN where nothing
            varies.
        right: Mean for the right answer.
        wrong: Mean for an honest wrong answer.
        nothing: Mean for no answer.
        silent: Share of the honest attempts it gives no verdict on.
    """

    name: str
    weight: float
    variance: float
    right: float
    wrong: float
    nothing: float
    silent: float


@dataclass(frozen=True)
class Weighing:
    """What the sum of the rewards is made of.

    Attributes:
        terms: One a reward function.
        right: Median total of the right answer.
        wrong: Median total of an honest wrong one.
        nothing: Median total of no answer.
        ties: Share of the pairs of different answers to one row with equal totals, the attacks' answers included.
        level: Share of the rows on which some honest wrong answer earns exactly what the right one does.
        sentences: The same in words, most important first.
        leads: What looks wrong; a matter of judgement, unless an attack proves it.
    """

    terms: tuple[Term, ...]
    right: float
    wrong: float
    nothing: float
    ties: float
    level: float
    sentences: tuple[str, ...]
    leads: tuple[Finding, ...]

    @property
    def worth(self) -> float:
        """What being right is worth on the median row."""
        return self.right - self.wrong


@dataclass(frozen=True)
class _Row:
    """Honest attempts at a row, and what each earned."""

    position: int
    right: Paid
    wrong: Sequence[Paid]
    nothing: Paid
    common: Paid | None


def analyse(ground: Ground, asker: Asker, outcomes: Sequence[Outcome]) -> Weighing:
    """Weigh the terms against each other.

    Args:
        ground: The rows and what they pay.
        asker: Asks the rewards.
        outcomes: Of all attacks, for ties.
    """
    rows = _attempts(ground, asker)
    names, weights = asker.names, asker.task.weights
    shares = _shares(rows, len(names))
    terms = tuple(_term(f, name, weights[f], shares[f], rows) for f, name in enumerate(names))
    right, wrong, nothing = (_median([p.total for p in them]) for them in _groups(rows))
    ties, level = _ties(ground, outcomes), _level(rows)
    shown = Weighing(terms, right, wrong, nothing, ties, level, (), ())
    made = [rule(shown, ground, rows, asker.names) for rule in RULES]
    leads = tuple(lead for leads in made for lead in leads)
    return Weighing(terms, right, wrong, nothing, ties, level, (*_sentences(shown), *(lead.detail for lead in leads)), leads)


def _attempts(ground: Ground, asker: Asker) -> list[_Row]:
    answers = [target.case.oracle for target in ground.targets]
    usual = Counter(map(str, answers)).most_common(1)[0][0]
    common = next(answer for answer in answers if str(answer) == usual)
    nothing = asker.ask([(i, idle(target)) for i, target in enumerate(ground.targets)])
    played = asker.ask([(i, common) for i in range(len(answers))])
    return [
        _Row(i, ground.right[i], ground.wrong[i], nothing[i], None if str(answers[i]) == usual else played[i])
        for i in range(len(answers))
        if ground.right[i].total is not None
    ]


def _groups(rows: Sequence[_Row]) -> tuple[list[Paid], list[Paid], list[Paid]]:
    return [row.right for row in rows], [paid for row in rows for paid in row.wrong], [row.nothing for row in rows]


def _shares(rows: Sequence[_Row], count: int) -> list[float]:
    """Each term's share of the variance within rows: its covariance with the sum, over the variance of the sum."""
    away = []
    for row in rows:
        tried = [row.right, *row.wrong[:1], row.nothing, *([row.common] if row.common else [])]
        parts = np.array([[0.0 if part is None else part for part in paid.parts] for paid in tried])
        away.append(parts - parts.mean(axis=0))
    if not away:
        return [float("nan")] * count
    parts = np.concatenate(away)
    total = parts.sum(axis=1)
    whole = float(total @ total)
    return [float(parts[:, f] @ total) / whole if whole > SAME else float("nan") for f in range(count)]


def _term(f: int, name: str, weight: float, variance: float, rows: Sequence[_Row]) -> Term:
    groups = _groups(rows)
    means = [_mean([paid.parts[f] for paid in them]) for them in groups]
    every = [paid.parts[f] for them in groups for paid in them]
    return Term(name, weight, variance, *means, float(np.mean([part is None for part in every])) if every else 0.0)


def _ties(ground: Ground, outcomes: Sequence[Outcome]) -> float:
    """Answers of attacks and honest ones, each once a row, compared with each other by counting equal totals."""
    equal = pairs = 0
    for i, target in enumerate(ground.targets):
        totals = {str(target.case.oracle): ground.right[i].total}
        totals |= {str(a): p.total for a, p in zip(target.wrongs, ground.wrong[i], strict=True)}
        totals |= {str(o.tried.answer): o.paid.total for o in outcomes if o.target is target}
        given = Counter(round(total, 9) for total in totals.values() if total is not None)
        equal += sum(n * (n - 1) // 2 for n in given.values())
        pairs += given.total() * (given.total() - 1) // 2
    return equal / pairs if pairs else float("nan")


def _level(rows: Sequence[_Row]) -> float:
    tied = [any(_same(paid.total, row.right.total) for paid in row.wrong) for row in rows]
    return float(np.mean(tied)) if tied else float("nan")


# what looks wrong

EASY = Attack(
    "agg.easy_term",
    "aggregation",
    lambda _: (),
    "A term that does not tell right from wrong makes up most of the differences in reward, so it is what training learns.",
    "Make it a gate, or let it pay only where the answer is right, and a fifth of the total at most.",
)
DEARER = Attack(
    "agg.form_over_content",
    "aggregation",
    lambda _: (),
    "A term that any well-formed answer gets pays more than being right.",
    "Make the form a gate, or weigh it at a tenth of being right.",
)
CANCEL = Attack(
    "agg.cancel",
    "aggregation",
    lambda _: (),
    "The right answer loses more by one term than being right is worth in the end.",
    "Bound the penalty well below what being right pays, or charge it only on wrong answers.",
)
TIED = Attack(
    "agg.level",
    "aggregation",
    lambda _: (),
    "Terms differ between right and wrong, yet the sum is equal: a gate or a cap, or terms that outweigh each other.",
    "Let every gate pass right answers, and set caps above what a wrong answer can collect.",
)
CEILING = Attack(
    "agg.ceiling",
    "aggregation",
    lambda _: (),
    "On some rows the right answer cannot earn what it earns elsewhere.",
    "Look at these rows: mend their gold or their limits, or drop them.",
)
SILENCE = Attack(
    "agg.silence",
    "aggregation",
    lambda _: (),
    "Saying nothing earns more than an honest try, so training learns to be silent.",
    "Let no penalty make a wrong answer worse than none.",
)
ESCAPE = Attack(
    "agg.escape",
    "aggregation",
    lambda _: (),
    "A term gives wrong answers no verdict, so it never counts against them.",
    "Return a number for every answer; None is for failures of the infrastructure.",
)


def _easy(shown: Weighing, ground: Ground, rows: Sequence[_Row], names: Sequence[str]) -> list[Finding]:
    if len(names) < 2 or not shown.worth > 0:
        return []
    found = []
    for term in shown.terms:
        if term.variance > MOST and abs(term.right - term.wrong) <= TELLS * shown.worth:
            says = f"'{term.name}' pays right and wrong alike, and makes up {term.variance:.0%} of the differences among honest attempts."
            found.append(_lead(EASY, ground, rows, [(row, 0) for row in rows], (term.name,), says))
    return found


def _dearer(shown: Weighing, ground: Ground, rows: Sequence[_Row], names: Sequence[str]) -> list[Finding]:
    found = []
    for term in shown.terms:
        pays = term.wrong - term.nothing
        if len(names) > 1 and shown.worth > 0 and pays > (1 + SLACK) * shown.worth and abs(term.right - term.wrong) <= TELLS * shown.worth:
            says = f"'{term.name}' pays {pays:.3g} for any well-formed answer, being right pays {shown.worth:.3g} more."
            found.append(_lead(DEARER, ground, rows, [(row, 0) for row in rows], (term.name,), says))
    return found


def _cancelling(shown: Weighing, ground: Ground, rows: Sequence[_Row], names: Sequence[str]) -> list[Finding]:
    found = []
    for f, name in enumerate(names):
        hits = []
        for row in rows:
            lost = _loss(row, f)
            if lost is not None and lost > max(_gap(row), 0.0) + SAME and any(_gain(row, g) > SAME for g in range(len(names)) if g != f):
                hits.append((row, 0))
        if hits:
            says = f"'{name}' takes more from right answers than being right is worth in the end, on {len(hits)} of {len(rows)} rows."
            found.append(_lead(CANCEL, ground, rows, hits, (name,), says, "false reject"))
    return found


def _tied(shown: Weighing, ground: Ground, rows: Sequence[_Row], names: Sequence[str]) -> list[Finding]:
    hits = []
    for row in rows:
        for k, paid in enumerate(row.wrong):
            differ = any(not _same(a, b) for a, b in zip(row.right.parts, paid.parts, strict=True))
            if _same(paid.total, row.right.total) and differ and _refused(paid):
                hits.append((row, k))
                break
    says = f"On {len(hits)} of {len(rows)} rows a wrong answer earns exactly what the right one does, though the terms tell them apart."
    return [_lead(TIED, ground, rows, hits, (), says)] if hits else []


def _ceiling(shown: Weighing, ground: Ground, rows: Sequence[_Row], names: Sequence[str]) -> list[Finding]:
    hits = [(row, -1) for row in rows if row.right.total < shown.wrong + LOW * shown.worth]
    if not shown.worth > 0 or not hits or 2 * len(hits) > len(rows):
        return []
    least = min(row.right.total for row, _ in hits)
    says = (
        f"On {len(hits)} of {len(rows)} rows the right answer earns {least:.3g} or little more, where it usually earns {shown.right:.3g}."
    )
    return [_lead(CEILING, ground, rows, hits, (), says, "false reject")]


def _silence(shown: Weighing, ground: Ground, rows: Sequence[_Row], names: Sequence[str]) -> list[Finding]:
    hits = [
        (row, -2)
        for row in rows
        if row.nothing.total is not None
        and row.wrong
        and row.nothing.total > _mean([p.total for p in row.wrong]) + HIGH * max(_gap(row), SAME)
    ]
    if len(hits) < max(2, len(rows) // 2):
        return []
    says = f"No answer earns {shown.nothing:.3g}, an honest wrong one {shown.wrong:.3g}: being silent pays better than trying."
    return [_lead(SILENCE, ground, rows, hits, (), says)]


def _escape(shown: Weighing, ground: Ground, rows: Sequence[_Row], names: Sequence[str]) -> list[Finding]:
    found = []
    for f, name in enumerate(names):
        hits = [
            (row, k)
            for row in rows
            for k, paid in enumerate(row.wrong[:1])
            if paid.parts[f] is None and row.right.parts[f] is not None and name not in paid.faults
        ]
        if hits and len(names) > 1:
            says = f"'{name}' gives no verdict (None) on wrong answers of {len(hits)} of {len(rows)} rows, and one on the right ones."
            found.append(_lead(ESCAPE, ground, rows, hits, (name,), says))
    return found


RULES = (_tied, _cancelling, _dearer, _easy, _silence, _ceiling, _escape)


def _lead(
    rule: Attack,
    ground: Ground,
    rows: Sequence[_Row],
    hits: Sequence[tuple[_Row, int]],
    rewards: tuple[str, ...],
    says: str,
    kind: Any = "exploit",
) -> Finding:
    """A lead with an answer that shows it: an honest wrong one by its number, the right one (-1), or none (-2)."""

    def outcome(row: _Row, which: int) -> Outcome:
        i = row.position
        target = ground.targets[i]
        answer: Answer = target.case.oracle if which == -1 or not target.wrongs else idle(target) if which == -2 else target.wrongs[which]
        paid = row.right if which == -1 or not target.wrongs else row.nothing if which == -2 else row.wrong[which]
        return Outcome(rule, target, Try(answer), paid, None, ground.levels[i], ground.by_function[i])

    return finding(kind, "lead", rule, [outcome(row, 0) for row in rows], [outcome(row, which) for row, which in hits], rewards, says)


# the numbers in words


def _sentences(shown: Weighing) -> list[str]:
    said = [
        f"On the median row the right answer earns {shown.right:.3g}, an honest wrong one {shown.wrong:.3g}, no answer {shown.nothing:.3g}."
    ]
    varied = [term for term in shown.terms if term.variance == term.variance]
    if len(varied) > 1:
        shares = ", ".join(f"{term.name} {term.variance:.0%}" for term in sorted(varied, key=lambda term: -term.variance))
        said.append(f"Of the differences among honest attempts at a row: {shares}.")
    if shown.ties == shown.ties:
        said.append(f"{shown.ties:.0%} of the pairs of different answers to one row earn the same, and a group of equals teaches nothing.")
    if shown.level > 0:
        said.append(f"On {shown.level:.0%} of the rows some honest wrong answer earns exactly what the right one does.")
    said += [f"{term.name} gives no verdict on {term.silent:.0%} of the honest attempts." for term in shown.terms if term.silent > 0]
    return said


def _gap(row: _Row) -> float:
    """What being right is worth on a row, on average over its wrong answers."""
    return row.right.total - _mean([paid.total for paid in row.wrong])


def _gain(row: _Row, f: int) -> float:
    loss = _loss(row, f)
    return 0.0 if loss is None else -loss


def _loss(row: _Row, f: int) -> float | None:
    """How much less the right answer gets of a term than wrong ones, on average."""
    theirs = [paid.parts[f] for paid in row.wrong if paid.parts[f] is not None]
    return None if row.right.parts[f] is None or not theirs else float(np.mean(theirs)) - row.right.parts[f]


def _refused(paid: Paid) -> bool:
    return paid.verdict is not None and (not paid.verdict.correct or paid.verdict.well_formed is False)


def _same(a: float | None, b: float | None) -> bool:
    return a is b or (a is not None and b is not None and abs(a - b) < SAME)


def _mean(values: Sequence[float | None]) -> float:
    given = [value for value in values if value is not None]
    return float(np.mean(given)) if given else float("nan")


def _median(values: Sequence[float | None]) -> float:
    given = [value for value in values if value is not None]
    return float(np.median(given)) if given else float("nan")
