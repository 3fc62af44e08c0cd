"""Are the data and the rewards sound? Asked before anything is spent: no model, no torch, seconds.

A task is sound when the oracle's answer earns full marks and passes the check on every row, an empty answer does neither, no row
of one split stands in another, and marks depend on nothing but the answer and its row. Each rule below asks one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.console import Console

from earnest.errors import UserError
from earnest.evidence import (
    NEAR,
    NOT_ASKED,
    REPEATS,
    TOLERANCE,
    Case,
    Evidence,
    Problem,
    attempt,
    beyond_limits,
    cases_of,
    empty,
    failed_call,
    gather,
    last_question,
    oracle_problem,
    refuses,
    repeats,
    sample,
    verdict,
)
from earnest.rewards.compose import gate_findings, opinion_findings
from earnest.rewards.verifier import Verifier
from earnest.rows import Rows
from earnest.score import reward_names
from earnest.task import SPLITS, Row, Task

FEW = 5  # places shown for a finding

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something that does not hold.

    Attributes:
        rule: Short name of the rule.
        level: "error" when training would suffer, "warning" when it may be meant.
        message: A sentence; counts all rows concerned.
        places: 'file:line (row id)' of the first few.
    """

    rule: str
    level: Level
    message: str
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """What `earnest check` found.

    Attributes:
        task: The task's name.
        counts: Rows by split.
        ceiling: What the oracle earns: its lowest total over the rows; None without an oracle or with a broken reward.
        findings: What does not hold.
        passed: What held, in plain sentences.
        outlook: What the rewards say of all rows before training, such as what handing every case off would earn.
    """

    task: str
    counts: Mapping[str, int]
    ceiling: float | None
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    outlook: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing worse than warnings was found."""
        return all(finding.level != "error" for finding in self.findings)


def check_task(task: Task, rows: Rows) -> CheckReport:
    """Ask every rule of a task and its rows. Mistakes in the task's functions become findings, never exceptions."""
    evidence = gather(task, rows)
    findings: list[Finding] = []
    passed: list[str] = []
    for sentence, rule in RULES.items():
        found = rule(evidence)
        findings += found or []
        if found == []:  # None: the rule had nothing to look at, so it did not pass either
            passed.append(sentence)
    totals = evidence.totals[0] if task.oracle and evidence.totals else np.array([])
    ceiling = float(np.nanmin(totals)) if np.isfinite(totals).any() else None
    counts = {split: len(rows.by_split.get(split, [])) for split in SPLITS}
    looks = [verifier.outlook for verifier in _verifiers(task) if verifier.outlook is not None]
    outlook = tuple(line for look in looks for line in look([case.row for case in evidence.cases]))
    return CheckReport(task.name, counts, ceiling, tuple(findings), tuple(passed), outlook)


def usable_rows(task: Task, rows: Rows) -> tuple[Rows, list[tuple[str, str]]]:
    """The rows without those whose prompt or gold cannot be used: it cannot be built, or fails the task's own check.

    Returns:
        The rows that are left, and (place, reason) of each dropped one.

    Raises:
        UserError: No row is left.
    """
    by_split: dict[str, list[Row]] = {}
    where: dict[tuple[str, int], str] = {}
    dropped: list[tuple[str, str]] = []
    for (place, row), case in zip(rows.everything(), cases_of(task, rows), strict=True):
        problem = case.prompt_problem or case.gold_problem or (oracle_problem(task, case) if task.oracle else None)
        if problem is not None:
            dropped.append((case.place, str(problem)))
            continue
        kept = by_split.setdefault(case.split, [])
        where[case.split, len(kept)] = place
        kept.append(row)
    if not by_split:
        reason = f"; the first, {dropped[0][0]}: {dropped[0][1]}" if dropped else ""
        raise UserError(f"No row of task '{task.name}' can be used{reason}. Mend the rows, or the task's prompt, oracle and check.")
    return Rows(by_split, where, rows.source), dropped


def print_report(report: CheckReport, console: Console) -> None:
    """Print what held, what did not and where, and a verdict in one sentence."""
    tick, cross = ("✓", "✗") if console.encoding.lower().startswith("utf") else ("+", "x")

    def line(text: str, style: str) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    line(f"{report.task}: " + ", ".join(f"{count} {split}" for split, count in report.counts.items()) + " rows", "bold")
    for sentence in report.passed:
        line(f"{tick} {sentence}", "green")
    for sentence in report.outlook:
        line(f"  {sentence}", "")
    for level, mark, style in (("warning", "!", "yellow"), ("error", cross, "red")):  # errors last, next to the verdict
        for finding in report.findings:
            if finding.level == level:
                line(f"{mark} {finding.message}", style)
                for place in finding.places:
                    line(f"    {place}", "dim")
    errors = sum(finding.level == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    read = f"; read the {_count(warnings, 'warning')} above" if warnings else ""
    if errors:
        line(f"Not sound yet: mend the {_count(errors, 'error')} above and check again.", "bold red")
    elif report.ceiling is None:
        line(f"Nothing wrong was found, but what a right answer earns is unknown{read}.", "bold yellow")
    else:
        line(f"Sound: a right answer earns at least {report.ceiling:g} on every row{read}.", "bold green")


# The rules. Each returns what it found, an empty list when all holds, or None when there was nothing to look at.


def _finding(rule: str, level: Level, message: str, cases: Sequence[Case] = ()) -> Finding:
    return Finding(rule, level, message, tuple(case.place for case in cases[:FEW]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _grouped(rule: str, problems: Iterable[tuple[Case, Problem | None]], consequence: str, level: Level = "error") -> list[Finding]:
    """One finding a kind of problem, with the words of the first."""
    kinds: dict[str, list[tuple[Case, Problem]]] = {}
    for case, problem in problems:
        if problem is not None:
            kinds.setdefault(problem.kind, []).append((case, problem))
    return [
        _finding(rule, level, f"{_count(len(found), 'row')} {consequence}: {found[0][1]}.", [case for case, _ in found])
        for found in kinds.values()
    ]


def _where(evidence: Evidence, chosen: np.ndarray) -> tuple[str, list[Case]]:
    cases = [case for case, is_chosen in zip(evidence.sound, chosen, strict=True) if is_chosen]
    return _count(len(cases), "row"), cases


def _held(evidence: Evidence, found: list[Finding]) -> list[Finding] | None:
    """A rule about every reward and every row cannot pass while one of them could not be asked."""
    whole = evidence.sound and not any(marks.error for marks in evidence.marks)
    return found if found or whole else None


def _splits(evidence: Evidence) -> list[Finding]:
    have = {case.split for case in evidence.cases}
    lost = {"train": "nothing to learn from", "dev": "no way to choose the best checkpoint", "test": "no honest number at the end"}
    return [
        _finding("splits", "error" if split == "train" else "warning", f"The split '{split}' has no rows, so there is {lost[split]}.")
        for split in SPLITS
        if split not in have
    ]


def _ids(evidence: Evidence) -> list[Finding]:
    named: dict[str, list[Case]] = {}
    odd: list[Case] = []
    for case in evidence.cases:
        identity = case.row["id"]
        good = isinstance(identity, (str, int)) and identity != ""
        (named.setdefault(str(identity), []) if good else odd).append(case)
    shared = [case for cases in named.values() if len(cases) > 1 for case in cases]
    found = []
    if odd:
        found.append(_finding("ids", "error", f"{_count(len(odd), 'row')} with an id that is neither text nor a whole number.", odd))
    if shared:
        found.append(_finding("ids", "error", f"{len(shared)} rows share their id with another. Give every row an id of its own.", shared))
    return found


def _prompts(evidence: Evidence) -> list[Finding]:
    return _grouped("prompts", ((case, case.prompt_problem) for case in evidence.cases), "cannot be asked")


def _leaks(evidence: Evidence) -> list[Finding] | None:
    cases = [case for case in evidence.cases if case.prompt]
    if len({case.split for case in cases}) < 2:
        return None
    texts = [last_question(case.prompt) for case in cases]
    pairs = repeats(texts, [case.split for case in cases])
    if not pairs:
        return []
    same = sum(texts[later] == texts[earlier] for later, earlier in pairs.items())
    message = (
        f"{_count(len(pairs), 'row')} of one split also in another, {same} word for word and {len(pairs) - same} nearly (at least "
        f"{NEAR:.0%} of their 4-letter pieces shared). Keep each in one split, or the score will measure memory."
    )
    places = [f"{cases[later].place} repeats {cases[earlier].place}" for later, earlier in list(pairs.items())[:FEW]]
    return [Finding("leaks", "error", message, tuple(places))]


def _columns(evidence: Evidence) -> list[Finding]:
    return [
        _finding(
            "columns",
            "error",
            f"The reward '{marks.name}' needs the column '{column}', which {len(lacks)} of {_count(len(evidence.cases), 'row')} lack. "
            f"The columns there are: {', '.join(lacks[0].row)}.",
            lacks,
        )
        for marks in evidence.marks
        for column, lacks in marks.lacking.items()
    ]


def _gold(evidence: Evidence) -> list[Finding]:
    if evidence.task.oracle is None:
        return [_finding("gold", "warning", "The task has no oracle, so the gold could not be verified: nobody knows what it earns.")]
    return _grouped("gold", ((case, case.gold_problem) for case in evidence.cases), "without usable gold")


def _rewards(evidence: Evidence) -> list[Finding] | None:
    found = [_finding("rewards", "error", marks.error) for marks in evidence.marks if marks.error not in ("", NOT_ASKED)]
    try:
        reward_names(evidence.task.rewards)
    except UserError as error:
        found.append(_finding("rewards", "error", str(error)))
    return found if found or any(not marks.error for marks in evidence.marks) else None


def _full_marks(evidence: Evidence) -> list[Finding] | None:
    asked = [(marks.name, marks.paid[0]) for marks in evidence.marks if marks.paid] if evidence.task.oracle else []
    found = []
    for name, paid in asked:
        silent = np.isnan(paid)
        if silent.any():
            # Some rows only may be meant: it is how TRL mixes tasks, each reward speaking on its own rows.
            level: Level = "error" if silent.all() or len(asked) == 1 else "warning"
            rows, cases = _where(evidence, silent)
            found.append(
                _finding("full marks", level, f"The reward '{name}' gives no verdict (None) on the right answer of {rows}.", cases)
            )
        best = np.max(paid, initial=-np.inf, where=~silent)
        short = paid < best - TOLERANCE
        if short.any():
            rows, cases = _where(evidence, short)
            message = f"The reward '{name}' gives the right answer of {rows} less than the full marks others get."
            found.append(_finding("full marks", "error", message, cases))
    if evidence.totals and asked:
        poor = ~(evidence.totals[0] > 0)
        if poor.any():
            rows, cases = _where(evidence, poor)
            found.append(_finding("full marks", "error", f"The right answer of {rows} earns nothing in total.", cases))
    return _held(evidence, found) if asked else None


def _accepts(evidence: Evidence) -> list[Finding] | None:
    if not evidence.sound or evidence.task.oracle is None:
        return None
    return _grouped("check", ((case, oracle_problem(evidence.task, case)) for case in evidence.sound), "with doubtful gold or check")


def _acts(evidence: Evidence) -> list[Finding] | None:
    task = evidence.task
    if not task.acts or task.oracle is None or not evidence.sound:
        return None
    found = _grouped("acts", ((case, beyond_limits(task, case)) for case in evidence.sound), "whose right answer no rollout could give")
    vain = "whose right answer makes a call in vain"
    return found + _grouped("acts", ((case, failed_call(case)) for case in evidence.sound), vain, "warning")


def _empty(evidence: Evidence) -> list[Finding] | None:
    if not evidence.sound:
        return None
    verdicts = [(case, verdict(evidence.task, case, empty(case))) for case in evidence.sound]
    found = _grouped("empty answer", ((case, v if isinstance(v, Problem) else None) for case, v in verdicts), "with an empty answer")
    accepted = [case for case, v in verdicts if not isinstance(v, Problem) and v.correct]
    if accepted:
        message = f"The check accepts an empty answer on {_count(len(accepted), 'row')}."
        found.append(_finding("empty answer", "error", message, accepted))
    if evidence.totals and evidence.task.oracle:
        oracle, idle = evidence.totals
        level = ~(idle < oracle - TOLERANCE)
        if level.any():
            rows, cases = _where(evidence, level)
            message = f"An empty answer earns as much in total as the right one, or gets no verdict, on {rows}."
            found.append(_finding("empty answer", "error", message, cases))
    return _held(evidence, found)


def _idle_pay(evidence: Evidence) -> list[Finding] | None:
    asked = [(marks.name, *marks.paid) for marks in evidence.marks if marks.paid] if evidence.task.oracle else []
    found = []
    for name, oracle, idle in asked:
        rows, cases = _where(evidence, (idle >= oracle - TOLERANCE) & (oracle > 0))  # a penalty pays nobody
        if cases:
            message = f"The reward '{name}' pays an empty answer as much as the right one on {rows}."
            found.append(_finding("idle pay", "warning", message, cases))
    return _held(evidence, found) if asked else None


def _steady(evidence: Evidence) -> list[Finding] | None:
    if not evidence.sound:
        return None
    found = []
    for marks in evidence.marks:
        for when, cases in marks.swings.items():
            message = f"The reward '{marks.name}' gave other marks {when}. Marks may depend on the answer and its row alone."
            found.append(_finding("steady", "error", message, cases))
    changed: dict[str, Case] = {}
    for case, text in sample(evidence.sound):
        first = verdict(evidence.task, case, text)
        if any(verdict(evidence.task, case, text) != first for _ in range(REPEATS - 1)):
            changed[case.place] = case
    if changed:
        rows = _count(len(changed), "row")
        message = f"The check changed its verdict on the same answer for {rows}."
        found.append(_finding("steady", "error", message, list(changed.values())))
    return _held(evidence, found)


def _pays(evidence: Evidence) -> list[Finding] | None:
    """What is wrong with the way rewards are put together, where they are made of our verifiers."""
    task, verifiers = evidence.task, _verifiers(evidence.task)
    if not verifiers or task.oracle is None:
        return None
    some = evidence.sound[: FEW * FEW]
    wrong = [next((other.oracle for other in some if refuses(task, case, other.oracle)), empty(case)) for case in some]
    cases = [(attempt(task, c, c.oracle), attempt(task, c, other), c.row) for c, other in zip(some, wrong, strict=True)]
    sentences = [sentence for verifier in verifiers for sentence in gate_findings(verifier, cases)]
    sentences += opinion_findings(task.rewards, task.weights)
    return [_finding("pays", "warning", sentence) for sentence in sentences]


def _verifiers(task: Task) -> list[Verifier]:
    """Those that reward functions were made of."""
    return [function.verifier for function in task.rewards if getattr(function, "verifier", None) is not None]


RULES: Mapping[str, Callable[[Evidence], list[Finding] | None]] = {
    "Every split has rows: train to learn from, dev to choose by, test for the final number.": _splits,
    "Every row has an id of its own.": _ids,
    "Every row gives a prompt.": _prompts,
    "No row stands in two splits, exactly or nearly.": _leaks,
    "Every reward finds the columns it needs in every row.": _columns,
    "Every row has a right answer to test with.": _gold,
    "Every reward gives numbers for right, empty and garbled answers.": _rewards,
    "The right answer earns full marks from every reward on every row.": _full_marks,
    "The check accepts the right answer of every row.": _accepts,
    "The tools answer every call of the oracle, which keeps within the limits.": _acts,
    "An empty answer fails the check and earns less than the right one on every row.": _empty,
    "No reward pays an empty answer as much as the right one.": _idle_pay,
    "Rewards and check say the same again, in any order and alone.": _steady,
    "Gates leave right and wrong apart, and no model's opinion is the main reward.": _pays,
}
