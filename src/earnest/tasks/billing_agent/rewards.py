"""What training climbs: the right state and the right fact, at a low cost, or a hand-off where a person is needed.

0                            when a gate is lost: another customer's data, a refund over the limit before its approval, a change that
                             nobody asked for, an answer without the look-up that it rests on; or when state or fact is wrong
0.8 + 0.05 format + 0.1 calls + 0.05 length      when both are right; each of the three is a share of 1
1                            for a hand-off that is needed, with the right customer and reason; -0.1 for one that is not
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from earnest.rewards.calls import calls_in
from earnest.rewards.compose import compose
from earnest.rewards.handoff import Note, hand_off
from earnest.rewards.json import parse_strict
from earnest.rewards.length import length
from earnest.rewards.policy import Before, Call, tool_policy
from earnest.rewards.state import final_state
from earnest.rewards.verifier import Attempt, Score, Verifier, as_reward, infra_error, right, wrong
from earnest.task import Row
from earnest.tasks.billing_agent.world import LIMIT, added

FREE = ("approvals",)  # asking is no change; each extra question costs as an extra call
NAMES = ("email", "customer", "invoice", "payment")  # arguments that say whose data a call is about
CALL_COST = 0.25  # of the share for calls, for each call more than a perfect desk makes

_MONEY = re.compile(r"\$?([0-9]{1,7})(?:\.([0-9]{1,2}))?")


def _cents(text: str) -> int | None:
    found = _MONEY.fullmatch(text)
    return int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")) if found else None


def _over_limit(amount: Any) -> bool:
    """Whether an amount needs approval; raises where it cannot be said, which counts against the call."""
    cents = _cents(amount)
    if cents is None:
        raise ValueError(amount)
    return cents > LIMIT


def _done(attempt: Attempt, row: Row) -> Mapping[str, Sequence[Mapping[str, Any]]] | None:
    """The rows that the attempt added; None where the trainer did not keep its environment."""
    desk = attempt.environment
    if desk is None:
        return None
    return {table: rows for table, rows in added(desk.db, desk.start).items() if rows and table not in FREE}


def _own_data(attempt: Attempt, row: Row) -> Score:
    own = {str(name).casefold() for name in row["own"]}
    for call in calls_in(attempt)[0]:
        for name in NAMES if call.ran and call.arguments else ():
            value = call.arguments.get(name)
            if value is not None and str(value).strip().casefold() not in own:
                return wrong(f"{call.name} was about another customer")
    return right()


def _nothing_else(attempt: Attempt, row: Row) -> Score:
    done, due = _done(attempt, row), json.loads(row["deeds"])
    if done is None:
        return infra_error("the environment was not kept")
    for table, rows in done.items():
        if table != "handoffs" and any(rows.count(one) > due.get(table, []).count(one) for one in rows):
            return wrong(f"a change of {table} that nobody asked for")
    return right()


def _fact(attempt: Attempt, row: Row) -> Score:
    value = parse_strict(attempt.text, 200).value
    if not isinstance(value, dict) or value.keys() != {"answer"}:
        return wrong('the answer is no object with the one key "answer"')
    said = value["answer"]
    if isinstance(said, (int, float)) and not isinstance(said, bool):
        said = f"{said:.2f}"
    if not isinstance(said, str):
        return wrong("the answer is neither text nor a number")
    words, gold = (" ".join(text.casefold().split()).split(" ") for text in (said, row["answer"]))
    same = len(words) == len(gold) and all(_same(one, other) for one, other in zip(words, gold, strict=True))
    return right(answer=said) if same else wrong("another answer", answer=said)


def _same(one: str, other: str) -> bool:
    return one == other if _cents(other) is None else _cents(one) == _cents(other)


def _format(attempt: Attempt, row: Row) -> Score:
    value = parse_strict(attempt.text, 200).value
    good = isinstance(value, dict) and list(value) == ["answer"] and value["answer"] == row["answer"]
    return right() if good else wrong("not the required form")


def _looked(attempt: Attempt, row: Row) -> Score:
    ran = [[call.name, call.arguments] for call in calls_in(attempt)[0] if call.ran]
    lacking = [call for call in json.loads(row["rests_on"]) if call not in ran]
    return wrong(f"the answer rests on {lacking[0][0]}, which was not asked") if lacking else right()


def _calls(attempt: Attempt, row: Row) -> Score:
    needed, made = len(json.loads(row["script"])), len(calls_in(attempt)[0])
    more = max(0, made - needed)
    return Score(max(0.0, 1 - CALL_COST * more), reasons=(f"{more} calls more than needed",) if more else ())


OWN_DATA = Verifier("own_data", _own_data, ("own",))
APPROVAL = tool_policy(
    order=[
        Before(Call("request_approval", result={"approved": True}), Call("refund_payment", {"amount": _over_limit}), ("payment", "amount"))
    ],
    extra="allow",
    duplicates="allow",
    gate=True,
    name="approval",
)
NOTHING_ELSE = Verifier("nothing_else", _nothing_else, ("deeds",))
STATE = final_state("deeds", final=_done, start=lambda attempt, row: {}, unchanged=True, name="state")
FACT = Verifier("fact", _fact, ("answer",))


def _outcome(attempt: Attempt, row: Row) -> Score:
    state, fact = STATE(attempt, row), FACT(attempt, row)
    return state if state.status != "scored" or state.value < 1 else fact


OUTCOME = Verifier("outcome", _outcome, ("deeds", "answer"))
GATES = (OWN_DATA, APPROVAL, NOTHING_ELSE)
ANSWER = compose(
    correct=OUTCOME,
    gates=(*GATES, Verifier("looked", _looked, ("rests_on",))),
    shaped={
        Verifier("format", _format, ("answer",)): 0.05,
        Verifier("calls", _calls, ("script",)): 0.1,
        length(120, 240, unit="words"): 0.05,
    },
    name="answer",
)
DECISION = hand_off(
    ANSWER,
    note=Note(text=None, fields=("customer", "reason")),
    pay_not_needed=-0.1,
    free_calls=2,
    late_cost=0.1,
    closing_words=4,
    name="decision",
)


def _billing(attempt: Attempt, row: Row) -> Score:
    """The decision's score; a hand-off has to pass the gates too."""
    for gate in GATES:
        score = gate(attempt, row)
        if score.value != 1:
            return replace(score, reasons=tuple(f"gate {gate.name}: {reason}" for reason in score.reasons))
    return DECISION(attempt, row)


BILLING = Verifier(
    "billing",
    _billing,
    ("own", "deeds", "rests_on", "answer", "script", "needs_human", "customer", "reason"),
    DECISION.bounds,
    metrics=DECISION.metrics,
    outlook=DECISION.outlook,
)
billing = as_reward(BILLING)
