"""One flaw is found by many attacks: which findings show the same one, and which of them shows it best.

What an answer has of the right one says why it is paid. Two findings of one reward whose answers have the same of it show one flaw. Where
an answer with nothing right in it is paid, whatever else is paid on those rows needs no other reason. Nothing is lost: every finding
stays, and those that say nothing new name the one that they stand under.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from earnest.redteam.attack import Attack, Target
from earnest.redteam.attacks.numerals import standing
from earnest.redteam.findings import RAN, SLACK, Finding
from earnest.redteam.mutate import TOKEN
from earnest.redteam.worth import keeps_nothing, kept

_GRAVITY = ("fact", "lead", "question")
_REASONS = ("above", "worthless", "wrong", "beside", "form", "near")  # what explains most comes first


def folded(findings: Sequence[Finding], targets: Iterable[Target], catalog: Sequence[Attack]) -> list[Finding]:
    """The same findings in the same order, each with why its example is paid and under which other one it stands.

    Args:
        findings: All of an audit.
        targets: The rows that were attacked.
        catalog: The attacks, what was made for such answers first: of findings that are equal otherwise, the first is shown.
    """
    rows = {target.case.place: target for target in targets}
    loose = {attack.id for attack in catalog if attack.wrong == "contract"}
    order = {attack.id: number for number, attack in enumerate(catalog)}
    known = [replace(f, reason=_reason(f, rows.get(f.place), f.attack in loose)) for f in findings]
    heads: list[Finding] = []
    under: dict[int, str] = {}
    for found in sorted(known, key=lambda f: (*_clarity(f), order.get(f.attack, len(order)))):
        head = next((h for h in heads if _same(h, found)), None)
        if head is None:
            heads.append(found)
        else:
            under[id(found)] = head.fingerprint
    return [replace(f, under=under.get(id(f), "")) for f in known]


def grouped(findings: Sequence[Finding]) -> list[tuple[Finding, list[Finding]]]:
    """Findings with those that stand under them. Where the one they stand under is not there, the first of them takes its place."""
    groups: list[tuple[Finding, list[Finding]]] = []
    led: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda f: bool(f.under)):
        if finding.under in led:
            led[finding.under].append(finding)
            continue
        others: list[Finding] = []
        groups.append((finding, others))
        led.setdefault(finding.under or finding.fingerprint, others)
    return groups


def _reason(found: Finding, target: Target | None, loose: bool) -> str:
    """Why the example is paid (or, of a right answer, refused), as far as it can be told from what it has of the right answer."""
    if found.kind == "fault" or found.family == "aggregation" or target is None:
        return found.attack
    if found.detail == RAN:
        return "ran"
    if found.kind == "exploit":
        if found.earned is not None and found.earned > found.right + SLACK * (found.right - found.wrong):
            return "above"
        if found.example in (*target.wrongs, *target.answers):
            return "wrong"
        if keeps_nothing(target, found.example) and not (target.form.kind == "json" and kept(target, found.example)):
            return "form" if loose else "worthless"  # what is wrong by contract alone is right in another writing
    whole = _has_all(target, found)
    return "near" if not whole else "form" if loose and found.kind == "exploit" else "beside"


def _has_all(target: Target, found: Finding) -> bool:
    """Whether all of the right answer stands in the example, whatever else does."""
    if target.form.kind == "calls":
        return kept(target, found.example) >= kept(target, target.case.oracle)
    core, answer = target.form.core, str(found.example)
    if found.kind == "false reject":  # other capitals and 3.0 for 3 are another writing, 3 with a full stop behind it is none
        return re.search(standing(core), answer) is not None
    core, answer = core.casefold(), answer.casefold()
    return core in answer or set(TOKEN.findall(core)) <= set(TOKEN.findall(answer))


def _clarity(found: Finding) -> tuple[object, ...]:
    """What is proven first, then what explains most, on most rows, by most, in fewest characters."""
    reason = _REASONS.index(found.reason) if found.reason in _REASONS else len(_REASONS)
    return _GRAVITY.index(found.certainty), reason, -found.hits, -min(1.0, round(found.share, 1)), len(str(found.example))


def _same(head: Finding, found: Finding) -> bool:
    """Whether a finding shows nothing that the other one does not show."""
    ours, theirs = set(head.rewards), set(found.rewards)
    if head.kind != found.kind or not (ours <= theirs or theirs <= ours):
        return False
    if "question" in (head.certainty, found.certainty) and head.certainty != found.certainty:
        return False
    if head.reason == found.reason and found.reason != "ran":
        return True
    return head.reason == "worthless" and found.reason not in ("ran", found.attack) and _covers(head, found)


def _covers(head: Finding, found: Finding) -> bool:
    """Whether one is paid as well wherever the other is."""
    return bool(found.shares) and all(head.shares.get(place, 0.0) >= share - SLACK for place, share in found.shares.items())
