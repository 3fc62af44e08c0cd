"""Putting verifiers together: gates, then being right, then a little for how.

A sum of rewards is climbed where it is cheapest, and format, brevity and politeness are cheaper than being right. `compose` leaves no such
path: a lost gate takes everything, the small terms pay only for a right answer, and together they are a fifth at most. `weighted` is the
plain sum, as TRL has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from earnest.errors import UserError
from earnest.rewards.verifier import Attempt, Score, Verifier, tally
from earnest.task import RewardFunction, Row

MOST_SHAPED = 0.2  # share of the total that terms beside correctness may make up
NOTHING: Mapping[Verifier, float] = MappingProxyType({})


def compose(
    *,
    correct: Verifier,
    gates: Sequence[Verifier] = (),
    shaped: Mapping[Verifier, float] = NOTHING,
    most_shaped: float = MOST_SHAPED,
    name: str = "reward",
) -> Verifier:
    """One reward in [0, 1] out of gates, correctness and small shaped terms.

    With every value brought to [0, 1] by its verifier's bounds, c of `correct`, s_i of the shaped terms and w_i their weights:

        0                                          when a gate is below full marks
        (1 - sum w_i) c                            when c < 1
        1 - sum w_i (1 - s_i)                      when c = 1

    So the more correct of two answers never earns less, however the rest looks, and a right answer earns at least 1 - sum w_i.

    A part without a verdict leaves the whole without one only where it could have changed the result: a lost gate or a wrong answer is 0
    whatever the rest would have said, and a shaped term that fails on a right answer is an `infra_error` (a zero in its place would punish
    the answer, any other number would pay for what nobody looked at). An `invalid_task` of any part that was asked is one of the whole.
    Once nothing can be earned any more, slow parts are not asked.

    The evidence has what each term pays under `terms`, and each part's own score under `parts`. Logged with a batch: for each term the
    mean of what it pays and its share of the variance of the total (`variance_shares`), for each gate the share of attempts that pass.

    Args:
        correct: What being right is.
        gates: What must hold for anything to be paid: format, required and forbidden actions.
        shaped: Small terms and the share of the total that each makes up.
        most_shaped: What the shares may sum to. Saying more than 0.2 is saying that looks may count for that much.
        name: As it appears in metrics.

    Raises:
        UserError: Weights out of range, two parts of one name, or a model's opinion as the main reward.
    """
    parts = (*gates, correct, *shaped)
    _check_parts(name, parts)
    _check_shares(name, shaped, most_shaped)
    if correct.opinion:
        raise UserError(
            f"{name}: '{correct.name}' is a model's opinion, which can be talked into anything, so it cannot be what is correct. Make it a "
            "shaped term, or say main_reward= where it is made, in the words that llm_judge asks for."
        )
    base = 1 - math.fsum(shaped.values())

    def judge(attempt: Attempt, row: Row) -> Score:
        asked: dict[str, Score] = {}
        worthless = False
        for index, part in enumerate(parts):
            if worthless and part.slow:
                continue
            asked[part.name] = score = part(attempt, row)
            if score.status == "scored" and index <= len(gates):
                worthless |= _share(part, score) < 1 if index < len(gates) else score.value == part.bounds[0]
        return _total(asked, gates, correct, shaped, base, worthless)

    def metrics(scores: Sequence[Score]) -> dict[str, float]:
        passed = {f"{gate.name}/passed": _passed(gate, _part_scores(scores, gate)) for gate in gates}
        return passed | _term_metrics(scores, parts)

    columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
    return Verifier(name, judge, columns, slow=any(part.slow for part in parts), metrics=metrics, outlook=_outlooks(parts))


def weighted(terms: Mapping[Verifier, float], *, name: str = "weighted") -> Verifier:
    """The weighted sum of what verifiers say, as TRL sums reward functions.

        sum w_i v_i over the terms that gave a verdict; no verdict where none did

    Nothing is scaled: the bounds are those of the sum. What is cheap to earn is earned first, right or wrong: see `compose`.

    Args:
        terms: Verifiers and their weights, of either sign.
        name: As it appears in metrics.

    Raises:
        UserError: No terms, a weight that is no finite number, or two terms of one name.
    """
    _check_parts(name, terms)
    if not terms:
        raise UserError(f"{name}: there is nothing to sum. Give at least one verifier and its weight.")
    for term, weight in terms.items():
        _check_weight(name, term, weight)
    ends = [sorted((weight * term.bounds[0], weight * term.bounds[1])) for term, weight in terms.items()]
    # zero is within the bounds too: a term without a verdict adds nothing
    least, most = (math.fsum(min(0.0, low) for low, _ in ends), math.fsum(max(0.0, high) for _, high in ends))
    if len(terms) == 1:
        (least, most) = ends[0]
    spans = {term: high - low for (term, _), (low, high) in zip(terms.items(), ends, strict=True)}
    opinions = math.fsum(span for term, span in spans.items() if term.opinion)

    def judge(attempt: Attempt, row: Row) -> Score:
        asked = {term.name: term(attempt, row) for term in terms}
        pays = {t.name: w * asked[t.name].value for t, w in terms.items() if asked[t.name].status == "scored"}
        evidence = {"terms": pays, "parts": _plain(asked)}
        if invalid := [part for part, score in asked.items() if score.status == "invalid_task"]:
            return Score(None, "invalid_task", _reasons(asked, invalid), evidence)
        if not pays:
            return Score(None, "infra_error", _reasons(asked, asked), evidence)
        return Score(math.fsum(pays.values()), reasons=_reasons(asked, asked), evidence=evidence)

    columns = tuple(dict.fromkeys(column for term in terms for column in term.columns))
    return Verifier(
        name,
        judge,
        columns,
        (least, most),
        slow=any(term.slow for term in terms),
        opinion=opinions > MOST_SHAPED * math.fsum(spans.values()),
        metrics=lambda scores: _term_metrics(scores, tuple(terms)),
        outlook=_outlooks(tuple(terms)),
    )


def variance_shares(terms: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The share of the variance of a sum that each term has; they sum to 1.

        share_i = cov(t_i, t) / var(t),  t = sum of the t_i

    The natural decomposition of "Inequality Decomposition by Factor Components", Econometrica 50(1), 1982. A term that moves against the
    total has a negative share. Where the total does not vary there is nothing to share: an empty result.

    Args:
        terms: What each term paid, one number an attempt.
    """
    values = {name: np.asarray(paid, dtype=float) for name, paid in terms.items()}
    total = np.sum(list(values.values()), axis=0)
    if np.size(total) < 2 or np.ptp(total) < 1e-12:
        return {}
    away = total - total.mean()
    return {name: float(paid @ away / (away @ away)) for name, paid in values.items()}


def gate_findings(verifier: Verifier, cases: Iterable[tuple[Attempt | str, Attempt | str, Row]]) -> list[str]:
    """Gates that make right and wrong equal, so that nothing can be learned behind them.

    Args:
        verifier: Made by `compose`.
        cases: A right attempt, a wrong one, and their row; rows without a verdict on both are left out.

    Returns:
        One sentence for each gate that a right attempt loses while it earns no more than the wrong one.
    """
    behind: dict[str, int] = {}
    count = 0
    for right, wrong, row in cases:
        good, bad = verifier(right, row), verifier(wrong, row)
        if good.status != "scored" or bad.status != "scored":
            continue
        count += 1
        for gate in good.evidence.get("lost_gates", ()) if good.value <= bad.value else ():
            behind[gate] = behind.get(gate, 0) + 1
    return [
        f"The gate '{gate}' of '{verifier.name}' makes right and wrong equal on {'all' if rows == count else f'{rows} of'} {count} rows: "
        "a right answer loses it too. Mend the gate, or put it before only the part that it guards."
        for gate, rows in behind.items()
    ]


def opinion_findings(rewards: Sequence[RewardFunction], weights: Sequence[float]) -> list[str]:
    """Whether a model's opinions are the main reward of a list of reward functions.

    Args:
        rewards: Reward functions; those that `as_reward` made are known by their verifier.
        weights: One weight each.

    Returns:
        One sentence when opinions weigh more than a fifth of everything, else nothing.
    """
    known = [(getattr(function, "verifier", None), abs(weight)) for function, weight in zip(rewards, weights, strict=True)]
    # of a function that is no verifier only the weight is known; it counts as if it went from 0 to 1
    spans = [(weight * (v.bounds[1] - v.bounds[0]) if v else weight, v) for v, weight in known]
    opinions = [(span, v.name) for span, v in spans if v and v.opinion]
    if math.fsum(span for span, _ in opinions) <= MOST_SHAPED * math.fsum(span for span, _ in spans):
        return []
    names = ", ".join(f"'{name}'" for _, name in opinions)
    return [
        f"A model's opinion ({names}) is more than a fifth of the reward, and can be talked into anything: put it into compose(shaped=...)."
    ]


def _total(
    asked: Mapping[str, Score],
    gates: Sequence[Verifier],
    correct: Verifier,
    shaped: Mapping[Verifier, float],
    base: float,
    worthless: bool,
) -> Score:
    """The scores of the parts as one."""
    lost = [g.name for g in gates if g.name in asked and asked[g.name].status == "scored" and _share(g, asked[g.name]) < 1]
    evidence: dict[str, Any] = {"terms": {part.name: 0.0 for part in (correct, *shaped)}, "parts": _plain(asked), "lost_gates": lost}
    if invalid := [name for name, score in asked.items() if score.status == "invalid_task"]:
        return Score(None, "invalid_task", _reasons(asked, invalid), evidence)
    if worthless:
        return Score(0.0, reasons=_reasons(asked, asked, lost), evidence=evidence)
    right = _share(correct, asked[correct.name]) if asked[correct.name].status == "scored" else None
    needed = (*gates, correct, *(shaped if right == 1 else ()))
    if missing := [part.name for part in needed if asked[part.name].status != "scored"]:
        return Score(None, "infra_error", _reasons(asked, missing), evidence)
    if right < 1:
        evidence["terms"][correct.name] = base * right
        return Score(base * right, reasons=_reasons(asked, asked), evidence=evidence)
    shares = {term.name: _share(term, asked[term.name]) for term in shaped}
    evidence["terms"] = {correct.name: base} | {term.name: weight * shares[term.name] for term, weight in shaped.items()}
    value = 1 - math.fsum(weight * (1 - shares[term.name]) for term, weight in shaped.items())
    return Score(value, reasons=_reasons(asked, asked), evidence=evidence)


def _outlooks(parts: Sequence[Verifier]) -> Callable[[Sequence[Row]], list[str]]:
    return lambda rows: [line for part in parts if part.outlook is not None for line in part.outlook(rows)]


def _share(part: Verifier, score: Score) -> float:
    """The value, brought to [0, 1] by the verifier's bounds."""
    least, most = part.bounds
    return (score.value - least) / (most - least)


def _reasons(asked: Mapping[str, Score], names: Iterable[str], lost: Sequence[str] = ()) -> tuple[str, ...]:
    """The parts' reasons, each with the part's name; a lost gate is called one, since it is what took everything."""
    return tuple(f"{'gate ' if name in lost else ''}{name}: {reason}" for name in names for reason in asked[name].reasons)


def _plain(asked: Mapping[str, Score]) -> dict[str, Any]:
    return {n: {"value": s.value, "status": s.status, "reasons": list(s.reasons), "evidence": dict(s.evidence)} for n, s in asked.items()}


def _part_scores(scores: Sequence[Score], part: Verifier) -> list[Score]:
    """A part's own scores, where it was asked."""
    found = [score.evidence["parts"][part.name] for score in scores if part.name in score.evidence.get("parts", ())]
    return [Score(p["value"], p["status"], tuple(p["reasons"]), p["evidence"]) for p in found]


def _passed(gate: Verifier, scores: Sequence[Score]) -> float:
    verdicts = [_share(gate, score) == 1 for score in scores if score.status == "scored"]
    return float(np.mean(verdicts)) if verdicts else 0.0


def _term_metrics(scores: Sequence[Score], parts: Sequence[Verifier]) -> dict[str, float]:
    """What each term pays on average, its share of the variance, and what each part counts itself."""
    paid = [score.evidence["terms"] for score in scores if score.status == "scored" and "terms" in score.evidence]
    names = dict.fromkeys(name for terms in paid for name in terms)
    terms = {name: [one.get(name, 0.0) for one in paid] for name in names}
    logged = {f"{name}/mean": float(np.mean(values)) for name, values in terms.items()}
    logged |= {f"{name}/variance_share": share for name, share in variance_shares(terms).items()}
    for part in parts:
        logged |= {f"{part.name}/{key}": number for key, number in tally(part, _part_scores(scores, part)).items()}
    return logged


def _check_parts(name: str, parts: Iterable[Verifier]) -> None:
    seen: set[str] = set()
    for part in parts:
        if not isinstance(part, Verifier):
            raise UserError(f"{name}: {part!r:.60} is no verifier. Give what number(), label() or another of them returns.")
        if part.name in seen:
            raise UserError(f"{name}: two parts are called '{part.name}', so their terms would be mixed up. Give one another name=.")
        seen.add(part.name)
        if not part.bounds[0] < part.bounds[1]:
            raise UserError(f"{name}: '{part.name}' has the bounds {part.bounds}. Give it a least and a greater most.")


def _check_weight(name: str, term: Verifier, weight: Any) -> None:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
        raise UserError(f"{name}: the weight {weight!r} of '{term.name}' is not a finite number.")


def _check_shares(name: str, shaped: Mapping[Verifier, float], most_shaped: float) -> None:
    for term, weight in shaped.items():
        _check_weight(name, term, weight)
        if weight < 0:
            raise UserError(f"{name}: the weight {weight} of '{term.name}' is negative. Turn the term round: what is good earns more.")
    if not 0 <= most_shaped < 1:
        raise UserError(f"{name}: most_shaped={most_shaped} must be from 0 up to, not including, 1.")
    total = math.fsum(shaped.values())
    if total > most_shaped * (1 + 1e-9):
        raise UserError(
            f"{name}: the shaped terms make up {total:.0%} of the total, and may make up {most_shaped:.0%}. Lower their weights, or say "
            f"most_shaped={total:.3g}."
        )
