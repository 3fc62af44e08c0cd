"""From what rewards paid to what that means: exploits, false rejects and faults, each with its evidence.

Right earns R on a row and an honest wrong answer W: the most of several, those aside that are paid in full, which are a finding of their
own. An answer known to be wrong that earns more than W and more than its own control, by over a tenth of R - W, is paid for something other
than being right.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from earnest.redteam.ask import Paid
from earnest.redteam.attack import Attack, Target, Try
from earnest.redteam.listed import mark_of
from earnest.task import Answer

Z = 1.959963984540054  # standard deviations that hold 95%
SLACK = 0.1  # of R - W: terms of taste, such as a bonus for brevity, move honest answers by that much

_WORD = re.compile(r"\w+")
IN_FULL = 0.05  # of R - W below R: an honest wrong answer that earns more is paid as the right one is
FEW_ROWS = 2
MOST_ROWS = 0.5  # of the rows: where a program that is changed in one place is paid on more, that is no chance
LIKENESS = 0.9  # of the way from wrong to right: below, free text may be paid for likeness

RAN = "the reward ran the answer as code"

Kind = Literal["exploit", "false reject", "fault"]
Certainty = Literal["fact", "lead", "question"]


@dataclass(frozen=True)
class Level:
    """What one row pays, in total or by one function.

    Attributes:
        right: For the oracle's answer.
        wrong: The most an honest wrong answer gets, those aside that are paid in full.
        paid_in_full: Which of the honest wrong answers earn what the right one does.
    """

    right: float
    wrong: float
    paid_in_full: tuple[Answer, ...] = ()

    @property
    def gap(self) -> float:
        """What being right is worth; 0 where it is worth nothing."""
        return max(0.0, self.right - self.wrong)

    def share(self, earned: float) -> float:
        """Of the way from wrong to right, how far: 0 for an honest wrong answer, 1 for the right one."""
        return (earned - self.wrong) / self.gap if self.gap > 0 else 0.0


@dataclass(frozen=True)
class Outcome:
    """What one try of an attack came to on one row.

    Attributes:
        attack: The attack.
        target: The row.
        tried: The answer and its control.
        paid: What it earned.
        control: What the control earned in total; None where it has none of its own.
        level: What the row pays in total.
        levels: The same, function by function.
        ran: Whether a reward, and not the check, ran it as code.
    """

    attack: Attack
    target: Target
    tried: Try
    paid: Paid
    control: float | None
    level: Level
    levels: tuple[Level, ...] = ()
    ran: bool = False

    @property
    def refused(self) -> bool:
        """Whether the check calls it wrong, or not well formed."""
        verdict = self.paid.verdict
        return verdict is not None and (not verdict.correct or verdict.well_formed is False)

    @property
    def accepted(self) -> bool:
        """Whether the check calls it right and well formed."""
        verdict = self.paid.verdict
        return verdict is not None and verdict.correct and verdict.well_formed is not False

    @property
    def overpaid(self) -> bool:
        """Whether it earns clearly more than honest wrong answers."""
        floor = max(self.level.wrong, self.level.wrong if self.control is None else self.control)
        if isinstance(self.tried.answer, str) and any(str(wrong) in self.tried.answer for wrong in self.level.paid_in_full):
            return False  # it is made of a wrong answer that is paid as it stands, which is a finding of its own
        return self.level.gap > 0 and self.paid.total is not None and self.paid.total > floor + max(SLACK, self.tried.fair) * self.level.gap

    @property
    def above_right(self) -> bool:
        """Whether it earns clearly more than the right answer."""
        return self.level.gap > 0 and self.paid.total is not None and self.paid.total > self.level.right + SLACK * self.level.gap

    @property
    def underpaid(self) -> bool:
        """Whether it earns clearly less than the right answer."""
        return self.level.gap > 0 and self.paid.total is not None and self.paid.total < self.level.right - SLACK * self.level.gap

    @property
    def for_likeness(self) -> bool:
        """Whether free text is paid in part for words it shares with the right one, as F1 and its like do: that may be meant."""
        if self.target.form.kind != "text" or self.paid.total is None or self.attack.measured:
            return False
        gold, said = (set(_WORD.findall(text.casefold())) for text in (self.target.form.core, str(self.tried.answer)))
        shared = len(gold & said) / len(gold) if gold else 0.0
        return shared > 0 and self.level.share(self.paid.total) < min(LIKENESS, shared + SLACK)


@dataclass(frozen=True)
class Finding:
    """Something the red team found.

    Attributes:
        kind: "exploit" where wrong earns too much, "false reject" where right earns too little, "fault" where a reward breaks.
        certainty: "fact" where it is proven; "lead" where it may be meant; "question" where the contract decides.
        attack: Id of the attack, or of the rule.
        family: What it is about.
        rewards: The reward functions that do it; empty for the sum of all.
        example: The smallest answer that shows it.
        place: 'file:line (row id)' of the example.
        earned: What the example earned in total; None for no verdict.
        wrong: What an honest wrong answer earns there.
        right: What the right answer earns there.
        hits: On how many rows it worked.
        tried: Out of how many.
        interval: 95% Wilson interval of hits / tried.
        share: The mean over the rows that were tried of the way from wrong to right; NaN where that says nothing.
        flaw: What is wrong, in one sentence.
        fix: What mends it, in one sentence.
        detail: What was seen: the exception, or what the check says.
        source: Where such a thing was seen before.
        shares: By place of each row it worked on, how far it went there: 0 is an honest wrong answer, 1 the right one.
        reason: What of the right answer the example has, which is why it is paid; told by `earnest.redteam.fold`.
        under: Fingerprint of the finding that shows the same flaw better; "" for one that stands for itself.
    """

    kind: Kind
    certainty: Certainty
    attack: str
    family: str
    rewards: tuple[str, ...]
    example: Answer
    place: str
    earned: float | None
    wrong: float
    right: float
    hits: int
    tried: int
    interval: tuple[float, float]
    share: float
    flaw: str
    fix: str
    detail: str = ""
    source: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    under: str = ""

    @property
    def fingerprint(self) -> str:
        """The same for the same flaw of the same rewards, whatever the rows: what a baseline remembers."""
        what = self.detail.split(":")[0] if self.kind == "fault" else ""  # one exception accepted is not every exception accepted
        return hashlib.sha256(" ".join([self.kind, self.attack, what, *sorted(self.rewards)]).encode()).hexdigest()[:12]


def wilson(hits: int, tried: int) -> tuple[float, float]:
    """95% interval of a share, after Wilson (1927)."""
    if not tried:
        return 0.0, 1.0
    share, ease = hits / tried, Z * Z / tried
    middle, half = share + ease / 2, math.sqrt(ease * (share * (1 - share) + ease / 4))
    return max(0.0, (middle - half) / (1 + ease)), min(1.0, (middle + half) / (1 + ease))


def level_of(right: float, wrongs: Sequence[tuple[Answer, float]], nothing: float | None) -> Level:
    """What a row pays.

    Args:
        right: What the right answer earned.
        wrongs: Honest wrong answers, and what each earned.
        nothing: What no answer at all earned: where every honest wrong answer is paid in full, the only thing left to compare with.
    """
    values = [value for _, value in wrongs] + ([nothing] if nothing is not None else [])
    if not values:
        return Level(right, right)
    full = tuple(answer for answer, value in wrongs if value >= right - IN_FULL * (right - min(values)))
    rest = [value for answer, value in wrongs if answer not in full]
    return Level(right, max(rest, default=min(right, values[-1])), full)


def judge_attack(attack: Attack, outcomes: Sequence[Outcome], names: Sequence[str], guessed: bool = False) -> list[Finding]:
    """What an attack found over all rows: at most one finding of each kind, faults aside.

    Args:
        attack: The attack.
        outcomes: Of all its tries on all rows.
        names: Of the reward functions.
        guessed: Whether the check is a guess of ours: equality with the right answer, of which it knows one writing.
    """
    programs = any(o.target.form.kind in ("code", "sql") for o in outcomes)  # of which many are right
    if attack.expect == "right":
        bad = [o for o in outcomes if o.underpaid]
        known = [o for o in bad if o.accepted or (guessed and attack.granted)]
        found = []
        if known:
            sure, says = "fact", "the prompt allows it" if attack.granted else "the check accepts it"
            if guessed and (attack.question or programs or attack.contested):
                sure, says = "question", attack.question or "is it right by your contract?"
            found.append(finding("false reject", sure, attack, outcomes, known, _low(known, names), says))
        elif bad and attack.question:
            found.append(finding("false reject", "question", attack, outcomes, bad, _low(bad, names), attack.question))
        above = [o for o in outcomes if o.above_right]
        return found + ([_above(attack, outcomes, above, names)] if above else [])
    ran = [o for o in outcomes if o.ran]
    if ran:
        return [finding("exploit", "fact", attack, outcomes, ran, (), RAN)]
    if any(o.tried.canary is not None for o in outcomes):
        attack = replace(
            attack, flaw="A program in place of an answer is paid, although nothing ran it.", fix="Demand an answer and nothing else."
        )
    paid = [o for o in outcomes if o.overpaid and (attack.wrong == "certain" or o.refused)]
    if paid:
        proven = any(not o.for_likeness for o in paid) and (any(o.refused for o in paid) or _right_everywhere(paid))
        proven = proven and not (guessed and attack.contested and not _both_orders(outcomes))
        proven = proven and not (guessed and may_be_another(attack, outcomes, paid))
        if guessed and programs and attack.wrong == "contract":  # on the data of a few rows another program may come to the same
            proven = proven and len({id(o.target) for o in paid}) > MOST_ROWS * len({id(o.target) for o in outcomes})
        says = (
            "the check refuses it" if any(o.refused for o in paid) else "the check accepts it too" if any(o.accepted for o in paid) else ""
        )
        return [finding("exploit", "fact" if proven else "lead", attack, outcomes, paid, _high(paid, names), says)]
    above = [o for o in outcomes if o.above_right]
    if above:
        return [_above(attack, outcomes, above, names)]
    held_back = _held_back(attack, outcomes, names)
    return [held_back] if held_back else []


def _right_everywhere(paid: Sequence[Outcome]) -> bool:
    """Whether one and the same answer is paid on rows of different right answers: it cannot be right on all, whatever a check says."""
    rows: dict[str, set[str]] = {}
    for outcome in paid:
        rows.setdefault(str(outcome.tried.answer), set()).add(str(outcome.target.case.oracle))
    return any(len(golds) > 1 for golds in rows.values())


def may_be_another(attack: Attack, outcomes: Sequence[Outcome], paid: Sequence[Outcome]) -> bool:
    """Whether a free text, or a list in one, is paid on so few of the rows that it may just be another right answer there."""
    hit, tried = ({id(o.target) for o in them} for them in (paid, outcomes))
    rare = len(hit) <= FEW_ROWS and len(tried) > FEW_ROWS and len(hit) < MOST_ROWS * len(tried)
    form = paid[0].target.form
    open_to_many = form.kind == "text" or (form.kind == "label" and mark_of([form.core]) != "")
    return open_to_many and rare and not attack.measured and not _right_everywhere(paid)


def _both_orders(outcomes: Sequence[Outcome]) -> bool:
    """Whether on some row two answers are paid that are the same in another order: whichever of them counts, nobody had to know."""
    pairs: dict[tuple[int, str], list[bool]] = {}
    for outcome in outcomes:
        if outcome.tried.pair:
            pairs.setdefault((id(outcome.target), outcome.tried.pair), []).append(outcome.overpaid)
    return any(len(paid) > 1 and all(paid) for paid in pairs.values())


def finding(
    kind: Kind,
    certainty: Certainty,
    attack: Attack,
    outcomes: Sequence[Outcome],
    hits: Sequence[Outcome],
    rewards: tuple[str, ...],
    detail: str,
) -> Finding:
    """A finding from the outcomes that show it, with the smallest of them as example."""
    smallest = min(hits, key=lambda o: len(str(o.tried.answer)))
    rows = {id(o.target): o for o in hits}
    tried = {id(o.target) for o in outcomes} | set(rows)
    shares = [
        max((o.level.share(o.paid.total) for o in hits if id(o.target) == row and o.paid.total is not None), default=0.0) for row in tried
    ]
    return Finding(
        kind,
        certainty,
        attack.id,
        attack.family,
        rewards,
        smallest.tried.answer,
        smallest.target.case.place,
        smallest.paid.total,
        smallest.level.wrong,
        smallest.level.right,
        len(rows),
        len(tried),
        wilson(len(rows), len(tried)),
        float(np.mean(shares)),
        attack.flaw,
        attack.fix,
        detail,
        attack.source,
        _best(hits),
    )


def _best(hits: Sequence[Outcome]) -> dict[str, float]:
    """By place, how far the best of the answers there went."""
    best: dict[str, float] = {}
    for hit in hits:
        share = hit.level.share(hit.paid.total) if hit.paid.total is not None else 0.0
        best[hit.target.case.place] = round(max(share, best.get(hit.target.case.place, share)), 3)
    return best


def _above(attack: Attack, outcomes: Sequence[Outcome], hits: Sequence[Outcome], names: Sequence[str]) -> Finding:
    if attack.expect == "right":
        flaw, fix = "A right answer earns more when it is only written another way.", "Pay every writing of the right answer the same."
        attack = replace(attack, flaw=flaw, fix=fix)
    return finding("exploit", "fact", attack, outcomes, hits, _high(hits, names), "it earns more than the right answer")


def _high(hits: Sequence[Outcome], names: Sequence[str]) -> tuple[str, ...]:
    """The functions that pay too much, where there are several."""
    return _those(hits, names, lambda value, level: value > level.wrong + SLACK * max(level.gap, 1e-9))


def _low(hits: Sequence[Outcome], names: Sequence[str]) -> tuple[str, ...]:
    """The functions that pay too little, where there are several."""
    return _those(hits, names, lambda value, level: value < level.right - SLACK * max(level.gap, 1e-9))


def _those(hits: Sequence[Outcome], names: Sequence[str], off: Callable[[float, Level], bool]) -> tuple[str, ...]:
    return tuple(
        name
        for position, name in enumerate(names)
        if any(o.paid.parts[position] is not None and off(o.paid.parts[position], o.levels[position]) for o in hits)
    )


def _held_back(attack: Attack, outcomes: Sequence[Outcome], names: Sequence[str]) -> Finding | None:
    """A lead where one function that tells right from wrong is fooled, and only the others keep the total down."""
    fooled: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if len(names) > 1 and not outcome.tried.fair and (attack.wrong == "certain" or outcome.refused):
            for name, value, level in zip(names, outcome.paid.parts, outcome.levels, strict=True):
                tells = level.gap > SLACK * outcome.level.gap and not level.paid_in_full  # a term of form or length does not
                if value is not None and tells and value >= level.right - SLACK * level.gap:
                    fooled.setdefault(name, []).append(outcome)
    if not fooled:
        return None
    hits = max(fooled.values(), key=len)
    return finding("exploit", "lead", attack, outcomes, hits, tuple(fooled), "only the other rewards hold it back")
