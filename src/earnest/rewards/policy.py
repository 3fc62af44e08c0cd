"""Tool policy: which calls must, may and must not be made, in which order, how often.

Only calls that the environment answered count (see `calls`). A call that failed never counts in favour of an attempt; as a forbidden or an
early call it counts all the same, because an error does not prove that nothing happened. What cannot be said for sure (see `matching`)
never helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from earnest.errors import UserError
from earnest.rewards.calls import ToolCall, answer_object, calls_in, schema_problem
from earnest.rewards.matching import ABSENT, all_of, columns_in, equal, fits, pair_up
from earnest.rewards.verifier import Attempt, Score, Verifier, invalid_task
from earnest.task import Row

MOST_CALLS = 256  # of an attempt; whoever makes more earns nothing

Charge = Literal["refuse", "allow"] | float
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Call:
    """A pattern that calls fit or not.

    Attributes:
        name: The tool.
        arguments: Pattern of each argument that matters: a value, or one of `matching`. Others are free.
        result: Pattern of each field of the tool's answer that matters, such as `{"approved": True}`.
        exact: Whether there may be no arguments but those named.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Before:
    """Every call that fits `then` needs one that fits `first`, answered without an error, in an earlier turn.

    Attributes:
        first: What comes first.
        then: What waits for it.
        same: Arguments that are equal in both calls, or pairs where the two tools name them differently.
        each: Whether each `then` needs a `first` of its own.
        same_turn: Whether an earlier place in the same turn will do. There the model has not seen the answer yet.
    """

    first: Call | str
    then: Call | str
    same: Sequence[str | tuple[str, str]] = ()
    each: bool = False
    same_turn: bool = False

    def __str__(self) -> str:
        return f"{self.first} before {self.then}" + (f" for the same {' and '.join(map(str, self.same))}" if self.same else "")


def tool_policy(
    gold: str | None = None,
    *,
    required: Sequence[Call | str] = (),
    allowed: Sequence[Call | str] = (),
    forbidden: Sequence[Call | str] = (),
    order: Sequence[Before | tuple[Call | str, Call | str]] = (),
    schemas: Mapping[str, Mapping[str, Any]] = NOTHING,
    at_most: int | Mapping[str, int] | None = None,
    extra: Charge = "refuse",
    duplicates: Charge = "refuse",
    failures: Charge = "allow",
    attempts: bool = True,
    partial: bool = False,
    gate: bool = False,
    reported: Sequence[Call | str | Before] = (),
    failed: Callable[[Any], bool] | None = None,
    name: str = "tool_policy",
) -> Verifier:
    """The calls that were made are those the policy wants.

    Rule, with n calls expected (those of the row and those required) and the largest one-to-one assignment of them to calls that ran well:

        0                             when a forbidden call was made, an order or a schema is broken, or there are too many calls
        m/n - charges, at least 0     otherwise; without `partial` the share m/n counts only when it is 1

    A call that ran well and is neither assigned nor allowed is a duplicate when it equals another call or fits an expected one, else it is
    extra. Where the row expects nothing, making no call is right, but an empty answer is not.

    Evidence: `rules`, each with `held` and `counts`; `expected`, `matched`, `extra`, `duplicate`, `failed`, `malformed`; `gated` with
    `ungated`, the value that the gates took away.

    Args:
        gold: Column with the calls of the row: a list of objects with `name` and `arguments` (exactly these), or of `Call`.
        required: Calls that every row needs.
        allowed: Calls that are free, such as look-ups.
        forbidden: Calls that take everything.
        order: What must come before what.
        schemas: JSON Schema of the arguments, by tool; calls that ran well must keep it.
        at_most: Most calls that were answered, failed ones too: in all, or by tool.
        extra: Whether an extra call takes everything, nothing, or this much each.
        duplicates: Likewise for duplicates. A duplicate of an allowed call is one too.
        failures: Likewise for calls that failed.
        attempts: Whether forbidden calls, and calls that come too early, count also when they failed.
        partial: Whether a share of the expected calls earns a share.
        gate: Says that the verifier is used as a gate, so that it may give full marks to an attempt that does nothing.
        reported: Rules that are looked at and shown, and count for nothing.
        failed: Whether a tool message's content tells of an error; an object with a key "error" by default.
        name: As it appears in metrics.

    Raises:
        UserError: The policy wants nothing, so that doing nothing would earn full marks, or an option has no sense.
    """
    shown = tuple(_before(rule) if isinstance(rule, (Before, tuple)) else _call(rule) for rule in reported)
    charges = {"extra": extra, "duplicate": duplicates, "failed": failures}
    policy = _Policy(
        gold, _calls(required), _calls(allowed), _calls(forbidden), tuple(map(_before, order)), schemas, at_most, attempts, charges,
        partial, shown, failed,
    )  # fmt: skip
    _check(name, policy, gate)
    parts = [part for call in policy.patterns() for part in (call.arguments, call.result)]
    columns = dict.fromkeys([*([gold] if gold else []), *columns_in(*parts)])
    return Verifier(name, lambda attempt, row: _score(policy, attempt, row), tuple(columns))


def hidden_by_gates(scores: Iterable[Score]) -> tuple[str, ...]:
    """Gates that make right and wrong attempts equal: what the rest of the reward would have told apart, they give the same value.

    Args:
        scores: Of attempts on one row.

    Returns:
        One sentence for each rule that hides a difference. Nothing is learned from such a group: make the policy a term of its own, or mend
        what makes every attempt break the rule.
    """
    spans: dict[str, list[float]] = {}
    for score in scores:
        if score.evidence.get("gated"):
            for rule in score.evidence["rules"]:
                if rule["counts"] and not rule["held"]:
                    spans.setdefault(rule["rule"], []).append(score.evidence["ungated"])
    return tuple(
        f"gate makes correct and wrong equal: {rule} (0 for {len(values)} attempts worth {min(values):g} to {max(values):g} without it)"
        for rule, values in spans.items()
        if min(values) < max(values)
    )


@dataclass(frozen=True)
class _Policy:
    """The options of `tool_policy`, in one form each."""

    gold: str | None
    required: tuple[Call, ...]
    allowed: tuple[Call, ...]
    forbidden: tuple[Call, ...]
    order: tuple[Before, ...]
    schemas: Mapping[str, Mapping[str, Any]]
    at_most: int | Mapping[str, int] | None
    attempts: bool
    charges: Mapping[str, Charge]
    partial: bool
    reported: tuple[Call | Before, ...]
    failed: Callable[[Any], bool] | None

    def patterns(self) -> list[Call]:
        """Every pattern of a call."""
        rules = (*self.order, *self.reported)
        ends = [call for rule in rules for call in ((rule,) if isinstance(rule, Call) else (rule.first, rule.then))]
        return [*self.required, *self.allowed, *self.forbidden, *ends]


def _check(name: str, policy: _Policy, gate: bool) -> None:
    if policy.gold is None and not policy.required and not gate:
        raise UserError(
            f"{name}: nothing is required, so that doing nothing would earn full marks. Give gold= or required=, or say gate=True and use "
            "it as a gate beside a verifier of the answer."
        )
    for kind, charge in policy.charges.items():
        if charge not in ("refuse", "allow") and not (isinstance(charge, (int, float)) and charge >= 0):
            raise UserError(f'{name}: what to do with {kind} calls is "refuse", "allow" or what each one costs, not {charge!r}.')
    for tool, schema in policy.schemas.items():
        try:
            schema_problem(schema, {})
        except UserError as error:
            raise UserError(f"{name}, the schema of {tool}: {error}") from error


def _score(policy: _Policy, attempt: Attempt, row: Row) -> Score:
    wanted = _wanted(row, policy.gold)
    if wanted is None:
        return invalid_task("the row's calls are no list of objects with name and arguments")
    broken = _contradiction(policy, wanted, row)
    if broken:
        return invalid_task(f"the row's own calls break the policy: {'; '.join(broken)}")
    calls, problems = calls_in(attempt, policy.failed)
    answered = [call for call in calls if call.answered]
    if len(answered) > MOST_CALLS:
        return Score(0.0, reasons=(f"more than {MOST_CALLS} calls",))
    rules = list(_rules(policy, answered, row))
    counts = _count(policy, wanted, answered, row)
    worth, why = _worth(policy, counts)
    if policy.gold is not None and not counts["expected"] and not attempt.text.strip():
        worth, why = 0.0, ["no call was expected, and there is no answer either"]
    lost = [f"broken: {rule}" for rule, held in rules if not held]
    shown = [{"rule": _named(rule), "held": _holds(rule, answered, row, policy.attempts), "counts": False} for rule in policy.reported]
    evidence = {
        "rules": [{"rule": rule, "held": held, "counts": True} for rule, held in rules] + shown,
        **counts,
        "malformed": len(problems),
        "gated": bool(lost),
        "ungated": worth,
    }
    return Score(0.0 if lost else worth, reasons=(*lost, *why), evidence=evidence)


def call_fits(pattern: Call, call: ToolCall, row: Row) -> bool | None:
    """Whether a call fits a pattern; None where it cannot be said, as with arguments that could not be read."""
    if call.name != pattern.name:
        return False
    answers: list[bool | None] = []
    if call.arguments is None:
        answers.append(None if pattern.arguments or pattern.exact else True)
    else:
        answers.append(not pattern.exact or not call.arguments.keys() - pattern.arguments.keys())
        answers += [fits(wanted, call.arguments.get(key, ABSENT), row) for key, wanted in pattern.arguments.items()]
    if pattern.result:
        told = answer_object(call.result)
        answers += [None if told is None else fits(wanted, told.get(key, ABSENT), row) for key, wanted in pattern.result.items()]
    return all_of(iter(answers))


def _may_fit(pattern: Call, call: ToolCall, row: Row) -> bool:
    """Whether a call counts against its maker. Arguments that could not be read, with an error for an answer, were no call at all."""
    return not (call.arguments is None and call.failed) and call_fits(pattern, call, row) is not False


def _does_fit(pattern: Call, call: ToolCall, row: Row) -> bool:
    return call.ran and call.arguments is not None and call_fits(pattern, call, row) is True


def _rules(policy: _Policy, answered: Sequence[ToolCall], row: Row) -> Iterator[tuple[str, bool]]:
    """Each rule that can take everything, and whether it held."""
    for rule in (*policy.forbidden, *policy.order):
        yield _named(rule), _holds(rule, answered, row, policy.attempts)
    for tool, schema in policy.schemas.items():
        ran = [call for call in answered if call.ran and call.name == tool]
        yield f"the schema of {tool}", all(call.arguments is not None and not schema_problem(schema, call.arguments) for call in ran)
    limits = {"": policy.at_most} if isinstance(policy.at_most, int) else policy.at_most or {}
    for tool, limit in limits.items():
        made = sum(call.name == tool or not tool for call in answered)
        yield f"at most {limit} calls" + (f" of {tool}" if tool else ""), made <= limit


def _named(rule: Call | Before) -> str:
    return f"no {rule}" if isinstance(rule, Call) else f"{rule}"


def _holds(rule: Call | Before, answered: Sequence[ToolCall], row: Row, attempts: bool) -> bool:
    counted = [call for call in answered if attempts or call.ran]
    if isinstance(rule, Call):
        return not any(_may_fit(rule, call, row) for call in counted)
    places = {id(call): place for place, call in enumerate(answered)}
    firsts = [call for call in answered if _does_fit(rule.first, call, row)]
    thens = [call for call in counted if _may_fit(rule.then, call, row)]

    def allows(first: ToolCall, then: ToolCall) -> bool:
        earlier = places[id(first)] < places[id(then)] if rule.same_turn else first.turn < then.turn
        return earlier and all(_share(argument, first, then) for argument in rule.same)

    if not all(any(allows(first, then) for first in firsts) for then in thens):
        return False
    ran = [then for then in thens if then.ran]
    return not rule.each or len(pair_up([[allows(first, then) for first in firsts] for then in ran])) == len(ran)


def _share(argument: str | tuple[str, str], first: ToolCall, then: ToolCall) -> bool:
    """Whether two calls have the same value in an argument."""
    one, other = (argument, argument) if isinstance(argument, str) else argument
    if first.arguments is None or then.arguments is None or one not in first.arguments or other not in then.arguments:
        return False
    return equal(first.arguments[one], then.arguments[other])


def _count(policy: _Policy, wanted: Sequence[Call], answered: Sequence[ToolCall], row: Row) -> dict[str, int]:
    """How many calls are expected, matched, extra, duplicates and failed."""
    expected = (*wanted, *policy.required)
    ran = [call for call in answered if call.ran]
    free = [any(_does_fit(pattern, call, row) for pattern in policy.allowed) for call in ran]
    fit = [[_does_fit(pattern, call, row) for call in ran] for pattern in expected]
    used = set(pair_up(fit, [not is_free for is_free in free]).values())
    extra = duplicates = 0
    for index, call in enumerate(ran):
        if index in used:
            continue
        twin = any(_twins(call, other) for place, other in enumerate(ran) if place in used or place < index)
        if twin or (not free[index] and any(row_of[index] for row_of in fit)):
            duplicates += 1
        elif not free[index]:
            extra += 1
    failures = sum(call.failed for call in answered)
    return {"expected": len(expected), "matched": len(used), "extra": extra, "duplicate": duplicates, "failed": failures}


def _twins(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and one.arguments is not None and other.arguments is not None and equal(one.arguments, other.arguments)


def _worth(policy: _Policy, counts: Mapping[str, int]) -> tuple[float, list[str]]:
    """What the calls are worth before any gate, and why it is not more."""
    expected, matched = counts["expected"], counts["matched"]
    value = 1.0 if matched == expected else matched / expected if policy.partial else 0.0
    why = [f"{matched} of {expected} expected calls"] if matched < expected else []
    for kind, charge in policy.charges.items():
        if counts[kind] and charge not in ("allow", 0):
            why.append(f"{counts[kind]} {kind} call{'s' if counts[kind] > 1 else ''}")
            value = 0.0 if charge == "refuse" else value - charge * counts[kind]
    return max(0.0, value), why


def _wanted(row: Row, gold: str | None) -> tuple[Call, ...] | None:
    """The calls of the row as patterns; None where the column holds something else."""
    calls: list[Call] = []
    entries = row[gold] if gold is not None else ()
    if not isinstance(entries, (list, tuple)):
        return None
    for entry in entries:
        if isinstance(entry, Call):
            calls.append(entry)
        elif isinstance(entry, Mapping) and isinstance(entry.get("name"), str) and isinstance(entry.get("arguments", {}), Mapping):
            calls.append(Call(entry["name"], entry.get("arguments", {}), exact=True))
        else:
            return None
    return tuple(calls)


def _contradiction(policy: _Policy, wanted: Sequence[Call], row: Row) -> list[str]:
    """The rules that the row's own calls break when they are made one after the other, as far as can be said without a tool's answer."""
    if any(_has_patterns(call.arguments) for call in wanted):
        return []
    played = [ToolCall(call.name, call.arguments, turn=turn, answered=True) for turn, call in enumerate(wanted)]
    # an order is judged only where the row lists the earlier call itself: it may also be one that is merely required or allowed
    listed = [rule for rule in policy.order if any(call.name == rule.first.name for call in wanted)]
    order = tuple(rule for rule in listed if not rule.first.result and not rule.then.result)
    forbidden = tuple(call for call in policy.forbidden if not call.result)
    return [rule for rule, held in _rules(replace(policy, forbidden=forbidden, order=order), played, row) if not held]


def _has_patterns(value: Any) -> bool:
    """Whether a value is more than plain JSON."""
    if isinstance(value, Mapping):
        return any(_has_patterns(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_patterns(part) for part in value)
    return not isinstance(value, (str, int, float, bool, type(None)))


def _call(call: Call | str) -> Call:
    return Call(call) if isinstance(call, str) else call


def _calls(calls: Sequence[Call | str]) -> tuple[Call, ...]:
    return tuple(map(_call, calls))


def _before(rule: Before | tuple[Call | str, Call | str]) -> Before:
    rule = rule if isinstance(rule, Before) else Before(*rule)
    return replace(rule, first=_call(rule.first), then=_call(rule.then))
