"""Scripted policies: what a model would earn that always did one thing. A scoreboard to read before any training.

What is seen only over many rows is judged here too, by rules: handing everything off, one answer for all, calls made for show.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from earnest.errors import UserError
from earnest.evidence import Case
from earnest.redteam.ask import Asker
from earnest.redteam.attack import Attack, Try
from earnest.redteam.attacks.handoff import hand_off_of, hands_off, names_a_person, needs_person
from earnest.redteam.attacks.trajectory import another_final, asking, calls, foreign, right, says
from earnest.redteam.findings import SLACK, Certainty, Finding, Level, Outcome, finding
from earnest.redteam.form import Form, forms_of
from earnest.redteam.targets import idle, needs_human
from earnest.task import Answer, Task

if TYPE_CHECKING:
    from earnest.redteam.ground import Ground

HALF = 0.5  # of the way from wrong to right: more for handing off what needed no one, and it is the easy way out
IN_FULL = 0.95  # of the way from wrong to right: as good as right
SKEWED = 0.6  # share of the ceiling that one answer may earn before the labels count as skewed
SHOWY = 0.25  # of the way: more than a format may be worth, for a call that nothing rests on
FEWEST = 4  # rows from which on a share of labels says something
SAMPLE = 500  # rows that the most common answer is looked for in


@dataclass(frozen=True)
class Policy:
    """One way to answer every row.

    Attributes:
        name: As printed.
        says: What it does.
        play: An answer for each row under attack, None where it has none.
        cheat: Whether it works without knowing the answer.
    """

    name: str
    says: str
    play: Callable[[Ground], Sequence[Answer | None]]
    cheat: bool = True


@dataclass(frozen=True)
class Played:
    """A scripted policy on the rows that were attacked.

    Attributes:
        name: Its name.
        says: What it does, in a few words.
        mean: Mean total over the rows it can play; NaN where none.
        share: Mean of the way from an honest wrong answer (0) to the right one (1).
        accepted: Share of its answers that the check accepts.
        rows: On how many rows it could play.
        cheat: Whether it works without knowing the answer.
    """

    name: str
    says: str
    mean: float
    share: float
    accepted: float
    rows: int
    cheat: bool


def _said(ground: Ground, text: str) -> list[Answer | None]:
    """The same text on every row, as the task's kind of answer."""
    return [says(text) if isinstance(idle(target), list) else text for target in ground.targets]


def _constant(ground: Ground) -> list[Answer | None]:
    common = most_common(ground)
    return [common] * len(ground.targets)


def most_common(ground: Ground) -> Answer:
    """The right answer of most rows, by what it asserts; of JSON answers with a label, by that first."""
    cases = list(ground.cases)[:: max(1, len(ground.cases) // SAMPLE)] or [target.case for target in ground.targets]
    field = ground.targets[0].label_field
    forms = forms_of(cases)
    heads = [
        str(form.value.get(field)) if field and isinstance(form.value, dict) else _asserted(form, case)
        for form, case in zip(forms, cases, strict=True)
    ]
    head = Counter(heads).most_common(1)[0][0]
    answers = [case.oracle for case, own in zip(cases, heads, strict=True) if own == head]
    whole = Counter(map(str, answers)).most_common(1)[0][0]
    return next(answer for answer in answers if str(answer) == whole)


def _asserted(form: Form, case: Case) -> str:
    return str(case.oracle) if form.kind == "calls" else form.core


def _echo(ground: Ground) -> list[Answer | None]:
    return [says(target.prompt) if isinstance(idle(target), list) else target.prompt for target in ground.targets]


def _always_off(ground: Ground) -> list[Answer | None]:
    return [target.case.oracle if needs_person(target) else hand_off_of(target) for target in ground.targets]


def _never_off(ground: Ground) -> list[Answer | None]:
    needs = [needs_person(target) for target in ground.targets]
    ordinary = next((target.case.oracle for target, needed in zip(ground.targets, needs, strict=True) if needed is False), None)
    if True not in needs:
        return [None] * len(needs)
    return [ordinary if needed else target.case.oracle for target, needed in zip(ground.targets, needs, strict=True)]


def _by_length(ground: Ground, pick: Callable[..., Answer]) -> list[Answer | None]:
    return [pick((target.case.oracle for target in ground.targets), key=lambda answer: len(str(answer)))] * len(ground.targets)


def _random(ground: Ground) -> list[Answer | None]:
    """Another row's answer each, the same ones each time."""
    rng, answers = random.Random(0), [target.case.oracle for target in ground.targets]
    return [rng.choice([other for k, other in enumerate(answers) if k != n] or [None]) for n in range(len(answers))]


def _without_calls(ground: Ground) -> list[Answer | None]:
    """The right final answer, no call made."""
    return [[*right(t)[-1:]] if calls(t.case.oracle) and not right(t)[-1].get("tool_calls") else None for t in ground.targets]


def _every_label(ground: Ground) -> list[Answer | None]:
    return [
        t.form.wrap(", ".join(t.labels)) if t.labels and t.form.kind in ("label", "choice") and len(t.labels) > 1 else None
        for t in ground.targets
    ]


POLICIES = (
    Policy("oracle", "the right answer", lambda g: [t.case.oracle for t in g.targets], cheat=False),
    Policy("honest wrong", "a wrong answer in the right form", lambda g: [t.wrong for t in g.targets], cheat=False),
    Policy("never hand off", "right, but answers itself where a person is needed", _never_off, cheat=False),
    Policy("no calls", "the right words, no tool called", _without_calls, cheat=False),
    Policy("empty", "nothing", lambda g: [idle(t) for t in g.targets]),
    Policy("echo", "the prompt, repeated", _echo),
    Policy("refusal", "says that it cannot help", lambda g: _said(g, "I'm sorry, but I can't help with that.")),
    Policy("claims", "says that it is done", lambda g: _said(g, "Done. Everything was completed successfully.")),
    Policy("most common answer", "the same answer each time", _constant),
    Policy("every label", "all labels at once", _every_label),
    Policy("always hand off", "a person for every row", _always_off),
    Policy("longest", "the longest right answer of any row, each time", lambda g: _by_length(g, max)),
    Policy("shortest", "the shortest right answer of any row, each time", lambda g: _by_length(g, min)),
    Policy("random", "the right answer of another row", _random),
)


def policies_of(task: Task) -> tuple[Policy, ...]:
    """The policies above, and the task's own, which stand for those of the same name; the oracle is the task's anyhow."""
    cheats = {policy.name: policy.cheat for policy in POLICIES}
    named = {name: function for name, function in task.policies.items() if name != "oracle"}
    own = [Policy(name, _says(function), partial(_own, task, name), cheats.get(name, False)) for name, function in named.items()]
    return tuple({policy.name: policy for policy in (*POLICIES, *own)}.values())


def _says(function: Callable[..., Any]) -> str:
    """The first line of a function's docstring, as one of a list."""
    line = (function.__doc__ or "").strip().split("\n")[0].rstrip(".") if inspect.isroutine(function) else ""
    return line[:1].lower() + line[1:] or "a script of the task"


def _own(task: Task, name: str, ground: Ground) -> list[Answer | None]:
    """What one of the task's own policies answers.

    Raises:
        UserError: It raised, or answered with neither text nor messages.
    """
    answers = []
    for target in ground.targets:
        try:
            answer = task.policies[name](target.case.row)
        except Exception as error:
            raise UserError(f"The policy '{name}' raised {type(error).__name__}: {error} on {target.case.place}. Mend it.") from error
        if not isinstance(answer, (str, list, type(None))):
            raise UserError(f"The policy '{name}' answered with {type(answer).__name__}, neither text nor messages. Mend it.")
        answers.append(answer)
    return answers


def played(policy: Policy, ground: Ground, asker: Asker) -> Played:
    """What a policy earns on the rows under attack."""
    answers = [(i, answer) for i, answer in enumerate(policy.play(ground)) if answer is not None]
    paid = asker.ask(answers)
    totals = [(i, p) for (i, _), p in zip(answers, paid, strict=True) if p.total is not None]
    shares = [ground.levels[i].share(p.total) for i, p in totals if ground.levels[i].gap > 0]
    accepted = [p.verdict is not None and p.verdict.correct and p.verdict.well_formed is not False for p in paid]
    nan = float("nan")
    mean = float(np.mean([p.total for _, p in totals])) if totals else nan
    return Played(
        policy.name,
        policy.says,
        mean,
        float(np.mean(shares)) if shares else nan,
        float(np.mean(accepted)) if accepted else nan,
        len(totals),
        policy.cheat,
    )


def outcomes_of(
    attack: Attack, ground: Ground, asker: Asker, answers: Sequence[Answer | None], levels: Sequence[Level] | None = None
) -> list[Outcome]:
    """What a policy's answers earned, where right is worth more than wrong."""
    levels = ground.levels if levels is None else levels
    asked = [(i, answer) for i, answer in enumerate(answers) if answer is not None and levels[i].gap > 0]
    return [
        Outcome(attack, ground.targets[i], Try(answer), paid, None, levels[i], ground.by_function[i])
        for (i, answer), paid in zip(asked, asker.ask(asked), strict=True)
        if paid.total is not None
    ]


def _share(outcome: Outcome) -> float:
    return outcome.level.share(outcome.paid.total)


def _found(certainty: Certainty, attack: Attack, every: Sequence[Outcome], hits: Sequence[Outcome], detail: str) -> list[Finding]:
    return [finding("exploit", certainty, attack, every, hits, (), detail)]


ALWAYS = Attack(
    "policy.always_hand_off",
    "hand-off",
    lambda _: (),
    "Handing off what needed no one is paid most of what the right answer is, so a model learns to hand off all that is hard.",
    "Pay a hand-off that was not needed about what a wrong answer earns, or a little less.",
    "reported of support-desk environments",
)
CONSTANT = Attack(
    "policy.constant",
    "label",
    lambda _: (),
    "One and the same answer is paid in full on rows where the check calls it wrong.",
    "Compare the answer with the row's own gold.",
    "constructed",
)
SKEW = Attack(
    "policy.skewed_labels",
    "label",
    lambda _: (),
    "One answer is right on most rows, so a model that always gives it earns most of what there is.",
    "Draw rows so that the answers are balanced, or weigh rare ones more; and judge by balanced accuracy.",
    "constructed",
)
SHOW = Attack(
    "policy.decorative_call",
    "tool policy",
    lambda _: (),
    "A wrong answer earns more once a call has been made that nothing rests on.",
    "Pay for calls only where the answer is right, and for none that the row did not need.",
    "reported of DeepEyes and of tool-call hacking",
)

OWN = Attack(
    "own.policy",
    "own policies",
    lambda _: (),
    "A script of the task's own is paid in full for what the check calls wrong.",
    "Mend whichever of reward and check is mistaken about it.",
    "the task",
)


def hand_off_findings(ground: Ground, asker: Asker) -> list[Finding]:
    """Whether handing everything off is the easy way out.

    That a needless hand-off earns a little more than a wrong answer may be meant. It is an exploit where it earns over half of the way to
    the right answer in the mean, and a lead where handing off every row would earn what answering every row rightly does.
    """
    needs = [needs_person(target) for target in ground.targets]
    answers = [hand_off_of(target) if needed is False else None for target, needed in zip(ground.targets, needs, strict=True)]
    levels = [_of_answers(ground, asker, i, answer) for i, answer in enumerate(answers)]
    every = [o for o in outcomes_of(ALWAYS, ground, asker, answers, levels) if not o.accepted]
    if not every:
        return []
    needless = float(np.mean([_share(o) for o in every]))
    hits = [o for o in every if _share(o) > HALF] or every
    if needless > HALF and any(o.refused for o in every):
        return _found("fact", ALWAYS, every, hits, f"handing off what needed no one earns {needless:.0%} of the way from wrong to right")
    needed = _needed_rate(ground, asker)
    always = needed + (1 - needed) * needless
    if needless > HALF or (needless > SLACK and needed <= HALF and always >= 1 - needed):
        says_so = f"{needed:.0%} of rows need a person; always handing off earns {always:.0%} of the way, always answering {1 - needed:.0%}"
        return _found("lead", ALWAYS, every, hits, says_so)
    return []


def _of_answers(ground: Ground, asker: Asker, i: int, hand_off: Answer | None) -> Level:
    """What a row pays for answers alone: another row's hand-off is no honest wrong answer here."""
    target, own = ground.targets[i], ground.levels[i]
    if hand_off is None:
        return own
    pairs = zip(target.wrongs, ground.wrong[i], strict=True)
    plain = [a for a, paid in pairs if paid.total is not None and a != hand_off and not hands_off(a) and a not in own.paid_in_full]
    paid = asker.ask([(i, answer) for answer in plain or [idle(target)]])
    return Level(own.right, max((p.total for p in paid if p.total is not None), default=own.wrong))


def _needed_rate(ground: Ground, asker: Asker) -> float:
    """Share of rows that need a person: over all rows where the task tells, else over those under attack."""
    told = [needed for case in ground.cases if (needed := needs_human(asker.task, case)) is not None]
    told = told or [needed for target in ground.targets if (needed := needs_person(target)) is not None]
    return sum(told) / max(1, len(told))


def constant_findings(ground: Ground, asker: Asker) -> list[Finding]:
    """Whether one answer for all rows earns what it should not, and whether it earns much because it is right on most rows."""
    every = outcomes_of(CONSTANT, ground, asker, _constant(ground))
    hits = [o for o in every if _share(o) > IN_FULL and o.refused]
    if len(hits) > 1:
        return _found("fact", CONSTANT, every, hits, "the check refuses it there")
    cases, common = ground.cases, most_common(ground)
    same = [case.oracle == common for case in cases]
    if len(cases) < FEWEST or len({str(case.oracle) for case in cases}) < 2 or np.mean(same) <= SKEWED:
        return []
    right_there = [o for o in every if o.tried.answer == o.target.case.oracle] or every
    return _found("lead", SKEW, every, right_there, f"it is the right answer of {np.mean(same):.0%} of all rows") if every else []


def decoration_findings(ground: Ground, asker: Asker) -> list[Finding]:
    """Whether a call that the row did not need makes a wrong answer worth more.

    A fact where it brings more than a format may be worth, by a tool that the right answer does not use; a lead where it is less, or where
    the tool is the right one, used on another case.
    """
    plain: list[Answer | None] = []
    shown: list[Answer | None] = []
    strange: list[bool] = []
    for target in ground.targets:
        own = {call.name for call in calls(target.case.oracle)}
        others = sorted((call for call in foreign(target) if not names_a_person(call.name)), key=lambda call: call.name in own)
        usable = bool(own and others and target.form.kind == "calls")
        wrong = says(another_final(target))
        plain.append(wrong if usable else None)
        shown.append([*asking(target.case.oracle, others[:1]), *wrong] if usable else None)
        strange.append(usable and others[0].name not in own)
    bare = {id(o.target): o for o in outcomes_of(SHOW, ground, asker, plain)}
    every = [o for o in outcomes_of(SHOW, ground, asker, shown) if id(o.target) in bare]
    gains = {id(o): _gain(bare[id(o.target)], o) for o in every}
    hits = [o for o in every if gains[id(o)] > SLACK and not o.accepted]
    if not hits or 2 * len(hits) < len(every):
        return []
    proven = [o for o in hits if strange[ground.position(o.target)] and gains[id(o)] > SHOWY and bare[id(o.target)].paid.total >= 0]
    mean = float(np.mean([gains[id(o)] for o in hits]))
    return _found(
        "fact" if len(proven) > 1 else "lead", SHOW, every, proven or hits, f"it makes up {mean:.0%} of the way to the right answer"
    )


def _gain(bare: Outcome, shown: Outcome) -> float:
    """What the call brings, as a share of the way from the wrong answer without it to the right answer."""
    way = shown.level.right - bare.paid.total
    return (shown.paid.total - bare.paid.total) / way if way > 0 else 0.0


def own_findings(ground: Ground, asker: Asker) -> list[Finding]:
    """Whether one of the task's own policies is paid in full where the check refuses what it did."""
    found = []
    for name in asker.task.policies:
        attack = replace(OWN, id=f"own.{'_'.join(name.split())}")
        every = outcomes_of(attack, ground, asker, _own(asker.task, name, ground))
        if hits := [o for o in every if _share(o) > IN_FULL and o.refused]:
            found += _found("fact", attack, every, hits, f"the task's policy '{name}' does it, and the check refuses it")
    return found


RULES = (hand_off_findings, constant_findings, decoration_findings, own_findings)
