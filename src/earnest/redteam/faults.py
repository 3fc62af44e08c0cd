"""Rewards that break: raise, hang, end the process, return what no reward may, or give no verdict where one is due."""

from __future__ import annotations

from collections.abc import Sequence

from earnest.redteam.ask import Paid
from earnest.redteam.attack import Attack
from earnest.redteam.findings import Certainty, Finding, Outcome, finding


def judge_faults(outcomes: Sequence[Outcome], names: Sequence[str], right: Sequence[Paid]) -> list[Finding]:
    """Rewards that break, or give no verdict where the right answer gets one: one finding for each function and kind of fault.

    Args:
        outcomes: Of all attacks.
        names: Of the reward functions.
        right: What the oracle's answers earned; a function that is silent on those does not speak on that row.
    """
    found: dict[tuple[str, str], list[tuple[Outcome, str]]] = {}
    for outcome, gold in zip(outcomes, right, strict=True):
        for name, (kind, sentence) in outcome.paid.faults.items():
            found.setdefault((name, f"{kind} {sentence.split(':')[0]}" if kind == "raised" else kind), []).append((outcome, sentence))
        for name, value, oracle in zip(names, outcome.paid.values, gold.values, strict=True):
            if value is None and oracle is not None and name not in outcome.paid.faults:
                found.setdefault((name, "none"), []).append((outcome, "gave no verdict (None) where the right answer gets one"))
    unjudged = [(outcome, outcome.paid.check_fault) for outcome in outcomes if outcome.paid.check_fault]
    if unjudged:
        found["check", "check"] = unjudged
    made = []
    for (name, kind), hits in found.items():
        causable = [(outcome, says) for outcome, says in hits if outcome.attack.id not in ONLY_BROKEN_WORLDS]
        certainty: Certainty = "lead" if kind == "check" or not causable else "fact"
        shown = [outcome for outcome, _ in causable or hits]
        asked = [o for o in outcomes if o.attack.id in {hit.attack.id for hit in shown}]
        says = min((says for _, says in causable or hits), key=len)
        made.append(finding("fault", certainty, fault_attack(kind), asked, shown, (name,), says))
    return made


ONLY_BROKEN_WORLDS = frozenset({"crash.odd_envelopes"})  # messages that no model can cause, only an environment at fault


_FAULTS = {
    "raised": (
        "fault.raised",
        "An answer makes the reward raise, which stops training.",
        "Score any text: catch what parsing it may raise, and pay nothing.",
    ),
    "returned": (
        "fault.returned",
        "An answer makes the reward return what no reward may.",
        "Return one finite number a completion, whatever the text.",
    ),
    "hung": (
        "fault.hung",
        "An answer keeps the reward busy until it is killed.",
        "Bound the work: limit lengths, use linear-time patterns, run what can hang in a process that can be killed.",
    ),
    "died": ("fault.died", "An answer ends the process that scores it.", "Run nothing the model wrote in the process that scores."),
    "none": (
        "fault.none",
        "An answer gets no verdict, so it escapes every penalty.",
        "Score whatever the model can cause; None is for failures of the infrastructure.",
    ),
    "check": (  # a lead: the policy is paid nothing for it
        "fault.check",
        "An answer makes the check raise, or keeps it busy, so that nobody can judge it.",
        "Let the check return a verdict for any text: evaluation meets such answers too.",
    ),
    "unsteady": (
        "fault.unsteady",
        "The same answer gets different marks.",
        "Let marks depend on the answer and its row alone: no state, no chance, no neighbours.",
    ),
    "slow": (
        "fault.slow",
        "An answer takes the reward many times as long as others.",
        "Bound the work by the length of the text, and set a deadline.",
    ),
}


def fault_attack(kind: str) -> Attack:
    """What a finding says of a kind of fault."""
    identity, flaw, fix = _FAULTS[kind.split()[0]]
    return Attack(identity, "crash and time", lambda _: (), flaw, fix)
