"""The whole of it: rows chosen, attacks built and asked about, findings and a scoreboard of scripted policies."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from earnest.errors import UserError
from earnest.evidence import Case, cases_of
from earnest.redteam.aggregate import Weighing, analyse
from earnest.redteam.ask import Asker, Paid
from earnest.redteam.attack import Attack, Target, Try
from earnest.redteam.catalog import CATALOG
from earnest.redteam.faults import fault_attack, judge_faults
from earnest.redteam.findings import SLACK, Finding, Level, Outcome, finding, judge_attack, level_of
from earnest.redteam.fold import folded
from earnest.redteam.policies import RULES, Played, played, policies_of
from earnest.redteam.search import search
from earnest.redteam.targets import idle, spread_by_gold, targets_of
from earnest.redteam.wording import quoted
from earnest.rows import Rows
from earnest.score import missing_columns
from earnest.task import Answer, Task

ROWS = 16  # rows attacked, where asking is cheap
# Rows by the seconds that one answer takes: far apart, so that a busy machine attacks the same rows as an idle one.
AFFORDABLE = ((ROWS, 0.006), (8, 0.025), (4, 0.2), (2, float("inf")))
SECONDS = 240.0  # after which no further attack of the catalog is begun
SLOW = 20.0  # times the usual, from two seconds on


@dataclass(frozen=True)
class Audit:
    """What the red team has to say of a task.

    Attributes:
        task: Its name.
        rewards: Names and weights of its reward functions.
        kind: The form of its answers.
        rows: How many rows were attacked, and of how many.
        findings: Facts first, exploits first.
        board: The scripted policies, the oracle first.
        families: By family, how many attacks were tried and how many found something.
        tried: By attack id, how many answers were asked about: what was resisted is read from here.
        calls: Answers scored.
        seconds: Time it took.
        seed: Of every choice.
        weighing: What the sum of the rewards is made of.
    """

    task: str
    rewards: Mapping[str, float]
    kind: str
    rows: tuple[int, int]
    findings: tuple[Finding, ...]
    board: tuple[Played, ...]
    families: Mapping[str, tuple[int, int]]
    tried: Mapping[str, int]
    calls: int
    seconds: float
    seed: int
    weighing: Weighing | None = None
    late: bool = False

    @property
    def exploitable(self) -> bool:
        """Whether there is a proven exploit or fault."""
        return any(f.certainty == "fact" and f.kind in ("exploit", "fault") for f in self.findings)


def audit(
    task: Task,
    rows: Rows,
    *,
    seed: int = 0,
    search_calls: int = 4000,
    deadline: float = 10.0,
    catalog: Sequence[Attack] = CATALOG,
) -> Audit:
    """Attack a task's rewards, without a model.

    Args:
        task: With an oracle.
        rows: Its rows.
        seed: Of every choice; the same seed finds the same.
        search_calls: Reward calls of the searcher beyond the catalog; 0 leaves it out.
        deadline: Seconds one answer may take.
        catalog: The attacks.

    Raises:
        UserError: There is no oracle, no usable row, or the right answers themselves earn nothing.
    """
    began = time.monotonic()
    cases = _usable(task, rows)
    folder = Path(tempfile.mkdtemp(prefix="earnest-redteam-"))
    chosen = spread_by_gold(cases, ROWS)
    try:
        with Asker(task, [cases[i] for i in chosen], deadline) as asker:
            fewer = _affordable(asker, [cases[i] for i in chosen])
            chosen = chosen[:fewer] if fewer >= len(chosen) else [chosen[i * len(chosen) // fewer] for i in range(fewer)]
            asker.cases = [cases[i] for i in chosen]
            asker.forget()
            targets = targets_of(task, cases, chosen, asker, folder, seed)
            ground = replace(ground_of(targets, asker), cases=cases)
            known = understood(ground, asker)
            unpaid = unpaid_rows(ground, known)
            if len(known) < len(targets):
                chosen = [chosen[i] for i in known]
                asker.cases = [cases[i] for i in chosen]
                asker.forget()
                ground = _of_rows(ground, known)
                targets = ground.targets
            end = time.monotonic() + SECONDS
            catalog = sorted(catalog, key=lambda attack: targets[0].form.kind not in attack.kinds)  # made for such answers: first
            outcomes = {attack.id: attacked(attack, ground, asker) if time.monotonic() < end else [] for attack in catalog}
            late = time.monotonic() > end or asker.gave_up
            found = [f for attack in catalog for f in judge_attack(attack, outcomes[attack.id], asker.names, asker.guessed)]
            every = [o for them in outcomes.values() for o in them]
            found += unpaid + blind(ground, asker.names)
            found += judge_faults(every, asker.names, [ground.right[ground.position(o.target)] for o in every])
            asker.close()  # what hostile programs did to the process that scored them must not be held against the rewards
            restless = unsteady(ground, asker)
            found = [_steadied(f, ground, asker) for f in found] if restless else found
            found += restless + slow(ground, asker, every)
            found += [f for rule in RULES for f in rule(ground, asker)]
            if search_calls:
                found += search(ground, asker, search_calls, seed, found)
            weighing = analyse(ground, asker, every)
            found += weighing.leads
            board = tuple(played(policy, ground, asker) for policy in policies_of(task))
            calls = asker.calls
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found.sort(key=partial(_rank, loose={attack.id for attack in catalog if attack.wrong == "contract"}))
    found = folded([replace(f, detail=quoted(f.detail)) for f in found], targets, catalog)
    return Audit(
        task.name,
        dict(zip(asker.names, task.weights, strict=True)),
        targets[0].form.kind,
        (len(targets), len(cases)),
        tuple(found),
        board,
        _families(catalog, outcomes, found),
        {identity: len(them) for identity, them in outcomes.items()},
        calls,
        time.monotonic() - began,
        seed,
        weighing,
        late,
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


def _of_rows(ground: Ground, rows: Sequence[int]) -> Ground:
    """Some of the rows alone."""
    return replace(
        ground,
        targets=[replace(ground.targets[i], first=place == 0) for place, i in enumerate(rows)],
        right=[ground.right[i] for i in rows],
        wrong=[ground.wrong[i] for i in rows],
        levels=[ground.levels[i] for i in rows],
        by_function=[ground.by_function[i] for i in rows],
    )


def attacked(attack: Attack, ground: Ground, asker: Asker) -> list[Outcome]:
    """Everything an attack gives on every row, and what it earned.

    A control that the check accepts is no wrong answer, so it excuses nothing of what the check refuses.
    """
    tries = [(i, made) for i, target in enumerate(ground.targets) for made in attack.tries(target)]
    if attack.family == "code" and tries:  # what the last hostile program did to the process that scores must not help this one
        asker.close()
    alarmed = [(i, made.answer) for i, made in tries if made.canary is not None]
    asker.show(alarmed)  # before the check sees them, which may run them as well: that trains nothing
    ran = [made.canary is not None and made.canary.exists() for _, made in tries]
    paid = asker.ask([(i, made.answer) for i, made in tries])
    controls = iter(asker.ask([(i, made.control) for i, made in tries if made.control is not None]))
    return [
        Outcome(
            attack,
            ground.targets[i],
            made,
            p,
            _excuse(attack, next(controls)) if made.control is not None else None,
            ground.levels[i],
            ground.by_function[i],
            hit,
        )
        for (i, made), p, hit in zip(tries, paid, ran, strict=True)
    ]


def _excuse(attack: Attack, control: Paid) -> float | None:
    verdict = control.verdict
    accepted = verdict is not None and verdict.correct and verdict.well_formed is not False
    return None if attack.wrong == "contract" and accepted else control.total


UNPAID = Attack(
    "right.unpaid",
    "right answers",
    lambda _: (),
    "The right answer earns nothing where it is written as it is paid on other rows.",
    "Give the form of your right answers with --form, or their column with --gold.",
    expect="right",
)
WRONG_PAID = Attack(
    "honest.wrong",
    "no work",
    lambda _: (),
    "An ordinary wrong answer in the right form earns what the right one does.",
    "Compare the answer with the row's gold, whole and not in part.",
)


def blind(ground: Ground, names: Sequence[str]) -> list[Finding]:
    """Honest wrong answers that are paid in full."""
    outcomes = []
    for i, target in enumerate(ground.targets):
        for answer, paid in zip(target.wrongs, ground.wrong[i], strict=True):
            outcomes.append(Outcome(WRONG_PAID, target, Try(answer), paid, None, ground.levels[i], ground.by_function[i]))
    hits = [
        o for o in outcomes if o.tried.answer in o.level.paid_in_full and o.paid.total is not None and ground.right[0].total is not None
    ]
    if not hits:
        return []
    proven = any(o.refused for o in hits)
    found = finding("exploit", "fact" if proven else "lead", WRONG_PAID, outcomes, hits, (), "the check refuses it" if proven else "")
    return [found]


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


def _refused_twice(ground: Ground, asker: Asker, some: Sequence[tuple[int, Any]], first: Sequence[Paid]) -> list[Finding]:
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


def _steadied(found: Finding, ground: Ground, asker: Asker) -> Finding:
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


def _usable(task: Task, rows: Rows) -> list[Case]:
    if task.oracle is None:
        raise UserError(
            f"Task '{task.name}' has no oracle, so nobody knows what a right answer earns. Add oracle=... to the Task: a function that "
            "turns a row into its right answer."
        )
    cases = cases_of(task, rows)
    usable = [case for case in cases if not case.prompt_problem and not case.gold_problem]
    if not usable:
        problem = next((case.prompt_problem or case.gold_problem for case in cases), "there are no rows")
        raise UserError(f"No row of task '{task.name}' can be used: {problem}. Run `earnest check` and mend the rows.")
    for function in task.rewards:
        lacking = missing_columns(function, list({key for case in usable for key in case.row}))
        if lacking:
            raise UserError(
                f"The reward '{getattr(function, '__name__', function)}' needs the column '{lacking[0]}', which the rows do not have. "
                f"They have: {', '.join(usable[0].row)}."
            )
    return usable


def _rank(found: Finding, loose: set[str]) -> tuple[Any, ...]:
    """Facts first, of those exploits, of those what is wrong by any contract, and what earns most."""
    certainty, kind = {"fact": 0, "lead": 1, "question": 2}, {"exploit": 0, "fault": 1, "false reject": 2}
    share = -found.share if found.share == found.share else 0.0
    if found.attack == "fault.unsteady":  # it makes all else doubtful
        return (-1,)
    return certainty[found.certainty], kind[found.kind], found.attack in loose, share, found.attack


def _affordable(asker: Asker, cases: Sequence[Case]) -> int:
    """How many rows can be attacked in time, by what a right answer costs."""
    asker.ask([(0, cases[0].oracle)])  # the first call pays for imports and worker processes
    few = [(i, cases[i].oracle) for i in range(min(3, len(cases)))]
    each = min(_time_of(asker, few) for _ in range(3)) / len(few)
    return next(rows for rows, most in AFFORDABLE if each <= most)


def _time_of(asker: Asker, answers: Sequence[tuple[int, Answer]]) -> float:
    began = time.monotonic()
    asker.ask_again(answers)
    return time.monotonic() - began


def _families(catalog: Sequence[Attack], outcomes: Mapping[str, Sequence[Outcome]], found: Sequence[Finding]) -> dict[str, tuple[int, int]]:
    hit = {f.attack for f in found if f.certainty != "question"}
    families: dict[str, tuple[int, int]] = {}
    for attack in catalog:
        if outcomes[attack.id]:
            tried, worked = families.get(attack.family, (0, 0))
            families[attack.family] = (tried + 1, worked + (attack.id in hit))
    return families
