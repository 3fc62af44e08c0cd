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

from earnest.errors import UserError
from earnest.evidence import Case, cases_of
from earnest.redteam.aggregate import Weighing, analyse
from earnest.redteam.ask import Asker, Paid
from earnest.redteam.attack import Attack, Try
from earnest.redteam.catalog import CATALOG
from earnest.redteam.faults import judge_faults
from earnest.redteam.findings import Finding, Outcome, finding, judge_attack, may_be_another
from earnest.redteam.fold import folded
from earnest.redteam.ground import Ground, ground_of, of_rows, understood, unpaid_rows
from earnest.redteam.leave import leave_of
from earnest.redteam.policies import RULES, Played, played, policies_of
from earnest.redteam.search import search
from earnest.redteam.steady import slow, steadied, unsteady
from earnest.redteam.targets import spread_by_gold, targets_of
from earnest.redteam.wording import quoted
from earnest.rows import Rows
from earnest.score import missing_columns
from earnest.task import Answer, Task

ROWS = 16  # rows attacked, where asking is cheap
# Rows by the seconds that one answer takes: far apart, so that a busy machine attacks the same rows as an idle one.
AFFORDABLE = ((ROWS, 0.006), (8, 0.025), (4, 0.2), (2, float("inf")))
SECONDS = 240.0  # after which no further attack of the catalog is begun


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
        leave: What the prompts were read to allow, in words.
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
    leave: tuple[str, ...] = ()

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
                ground = of_rows(ground, known)
                targets = ground.targets
            end = time.monotonic() + SECONDS
            catalog = sorted(catalog, key=lambda attack: targets[0].form.kind not in attack.kinds)  # made for such answers: first
            outcomes = {attack.id: attacked(attack, ground, asker) if time.monotonic() < end else [] for attack in catalog}
            late = time.monotonic() > end or asker.gave_up
            found = [f for attack in catalog for f in judge_attack(attack, outcomes[attack.id], asker.names, asker.guessed)]
            every = [o for them in outcomes.values() for o in them]
            found += unpaid + blind(ground, asker.guessed)
            found += judge_faults(every, asker.names, [ground.right[ground.position(o.target)] for o in every])
            asker.close()  # what hostile programs did to the process that scored them must not be held against the rewards
            restless = unsteady(ground, asker)
            found = [steadied(f, ground, asker) for f in found] if restless else found
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
        leave_of(targets),
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


WRONG_PAID = Attack(
    "honest.wrong",
    "no work",
    lambda _: (),
    "An ordinary wrong answer in the right form earns what the right one does.",
    "Compare the answer with the row's gold, whole and not in part.",
)


def blind(ground: Ground, guessed: bool) -> list[Finding]:
    """Honest wrong answers that are paid in full; by a check that is a guess of ours, a few of them may be right."""
    outcomes = []
    for i, target in enumerate(ground.targets):
        for answer, paid in zip(target.wrongs, ground.wrong[i], strict=True):
            outcomes.append(Outcome(WRONG_PAID, target, Try(answer), paid, None, ground.levels[i], ground.by_function[i]))
    hits = [
        o for o in outcomes if o.tried.answer in o.level.paid_in_full and o.paid.total is not None and ground.right[0].total is not None
    ]
    if not hits:
        return []
    proven = any(o.refused for o in hits) and not (guessed and may_be_another(WRONG_PAID, outcomes, hits))
    found = finding("exploit", "fact" if proven else "lead", WRONG_PAID, outcomes, hits, (), "the check refuses it" if proven else "")
    return [found]


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
