"""The searcher: chains of changes to right, wrong and empty answers, bred for what they earn although they are wrong.

A chain is what is bred, not an answer: it can be replayed on every row, and what pays on one row only is chance. Chains that earn most
among the refused ones are lengthened, crossed and varied, no more than two of a kind at a time so that one hole does not
take the whole search.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from earnest.redteam.ask import BATCH, Asker
from earnest.redteam.attack import Attack, Target, Try
from earnest.redteam.attacks.numerals import standing
from earnest.redteam.faults import judge_faults
from earnest.redteam.findings import SLACK, Finding, Outcome, finding
from earnest.redteam.minimise import smallest
from earnest.redteam.mutate import Change, changes_for, starts
from earnest.redteam.worth import Hole, hole, keeps_nothing, same
from earnest.task import Answer

if TYPE_CHECKING:
    from earnest.redteam.ground import Ground

SECONDS = 40.0  # for slow rewards: code that runs, models that judge
PROBED = 4  # rows that chains are first tried on, in turn
VARIANTS = 10  # of each change, to begin with
ELITE = 24
LONGEST = 4  # changes in a chain
QUIET = 10  # generations without news after which the search is over
CONFIRMED = 24  # chains replayed on all rows
REPORTED = 3
SHORT = frozenset({"label", "choice", "number", "math", "text"})  # forms in which words may stand around an answer

Step = tuple[str, int]  # a change, and the number its choices are drawn from
Chain = tuple[str, tuple[Step, ...]]  # what it starts with, and what is done to that

_STARTS = {
    "right": "the right answer",
    "wrong": "an honest wrong answer",
    "form": "the bare form",
    "nothing": "nothing at all",
}
_FLAWS: Mapping[Hole, str] = {
    "worthless": "An answer that has no more right in it than honest wrong ones is paid",
    "near": "A wrong answer that keeps some of the right one is paid like it",
    "above": "An answer earns more than the right one",
}
_FIXES: Mapping[Hole, str] = {
    "worthless": "Read the whole answer in the required form, and compare it with the row's gold; pay nothing for what was not understood.",
    "near": "Compare the whole answer, and refuse what stands beside, around or in place of any part of the right one.",
    "above": "Make full marks the most that can be earned: cap every term, and pay for each thing once.",
}


@dataclass(frozen=True)
class Hit:
    """A chain that pays on several rows.

    Attributes:
        chain: The chain.
        hole: What it shows.
        rewards: The functions that pay.
        outcomes: On every row.
    """

    chain: Chain
    hole: Hole
    rewards: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def paid(self) -> list[Outcome]:
        """The outcomes that show it."""
        return [o for o in self.outcomes if hole(o) == self.hole]

    @property
    def names(self) -> frozenset[str]:
        """Names of its changes."""
        return frozenset(name for name, _ in self.chain[1])


def search(ground: Ground, asker: Asker, calls: int, seed: int, found: Sequence[Finding]) -> list[Finding]:
    """Look for holes that no attack of the catalog went through.

    Args:
        ground: The rows and what they pay.
        asker: Asks the rewards.
        calls: Answers that may be scored.
        seed: The same seed finds the same, unless time runs out.
        found: What is known already, and is not reported again.
    """
    hunt = _Hunt(ground, asker, calls, seed, found)
    if hunt.rows:
        hunt.run()
    return [*hunt.exploits(), *hunt.broken()]


class _Hunt:
    """One search: what was tried, what it earned, and what is left to spend."""

    def __init__(self, ground: Ground, asker: Asker, calls: int, seed: int, found: Sequence[Finding]) -> None:
        self.ground, self.asker, self.found = ground, asker, found
        self.rows = [i for i, level in enumerate(ground.levels) if level.gap > 0]
        self.changes = {change.name: change for change in changes_for(ground.targets[0].form.kind)}
        self.rng = Random(seed)
        self.last, self.until = asker.calls + calls, time.monotonic() + SECONDS
        self.seen: set[Chain] = set()
        self.earned: list[tuple[float, Chain]] = []
        self.hits: list[Hit] = []
        self.outcomes: list[Outcome] = []

    @property
    def spent(self) -> bool:
        return self.asker.calls >= self.last or time.monotonic() > self.until

    def run(self) -> None:
        chains = self._first()
        quiet, best, known = 0, 0.0, 0
        while chains and quiet < QUIET and not self.spent:
            for start in range(0, len(chains), BATCH):
                if self.spent or any(kind == "hung" for o in self.outcomes[-BATCH:] for kind, _ in o.paid.faults.values()):
                    return
                self._try(chains[start : start + BATCH])
            top = max((share for share, _ in self.earned), default=0.0)
            quiet = 0 if top > best + 0.01 or len(self.hits) > known else quiet + 1
            best, known = max(best, top), len(self.hits)
            chains = self._next()

    def _first(self) -> list[Chain]:
        """Every single change, in several variants, from every start."""
        begin = [start for start in _STARTS if start in starts(self.ground.targets[0])]
        chains = [(start, ((name, k),)) for k in range(VARIANTS) for name in self.changes for start in begin]
        return [(start, ()) for start in begin if start != "right"] + chains

    def _next(self) -> list[Chain]:
        """Children of the best, no two parents of them alike in kind more than twice."""
        elite: list[Chain] = []
        kinds: dict[tuple[str, frozenset[str]], int] = {}
        for _, chain in sorted(self.earned, key=lambda pair: (-round(pair[0], 2), self.rng.random())):
            kind = chain[0], frozenset(name for name, _ in chain[1])
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] <= 2:
                elite.append(chain)
            if len(elite) == ELITE:
                break
        children: dict[Chain, None] = {}
        for _ in range(4 * BATCH):
            if elite and len(children) < BATCH:
                child = self._child(elite)
                if child not in self.seen:
                    children[child] = None
        return list(children)

    def _child(self, elite: Sequence[Chain]) -> Chain:
        start, steps = self.rng.choice(elite)
        new = (self.rng.choice(list(self.changes)), self.rng.randrange(1000))
        way = self.rng.random()
        if steps and way < 0.25:  # cross
            other = self.rng.choice(elite)[1]
            return start, (steps[: self.rng.randint(1, len(steps))] + other[-1:])[:LONGEST]
        if steps and way < 0.45:  # vary
            at = self.rng.randrange(len(steps))
            return start, (*steps[:at], (steps[at][0], self.rng.randrange(1000)), *steps[at + 1 :])
        return start, (*steps[-LONGEST + 1 :], new)

    def _try(self, chains: Sequence[Chain]) -> None:
        asked = []
        for chain in chains:
            turn = len(self.seen) + sum(number for _, number in chain[1])  # so that variants of a change meet different rows
            row = self.rows[turn % min(PROBED, len(self.rows))]
            self.seen.add(chain)
            answer = grown(chain, self.ground.targets[row], self.changes)
            if answer is not None:
                asked.append((chain, row, answer))
        for (chain, _, _), outcome in zip(asked, self._asked([(row, answer) for _, row, answer in asked]), strict=True):
            shows = hole(outcome)
            if shows is not None:
                self._confirm(chain, shows)
            elif outcome.refused and outcome.paid.total is not None and not same(outcome.target, outcome.tried.answer):
                self.earned.append((outcome.level.share(outcome.paid.total), chain))

    def _asked(self, asked: Sequence[tuple[int, Answer]]) -> list[Outcome]:
        ground = self.ground
        outcomes = [
            Outcome(_FOUND, ground.targets[i], Try(answer), paid, None, ground.levels[i], ground.by_function[i])
            for (i, answer), paid in zip(asked, self.asker.ask(asked), strict=True)
        ]
        self.outcomes += outcomes
        return outcomes

    def _confirm(self, chain: Chain, shows: Hole) -> None:
        """Replay a chain on all rows, unless its like is known."""
        names = frozenset(name for name, _ in chain[1])
        if (
            len(self.hits) >= CONFIRMED
            or self.spent
            or any(h.hole == shows and h.chain[0] == chain[0] and h.names <= names for h in self.hits)
        ):
            return
        hit = self._replayed(chain, shows)
        if hit is None:
            return
        for index in reversed(range(len(chain[1]))):  # changes that are not needed
            shorter = (chain[0], chain[1][:index] + chain[1][index + 1 :])
            chain, hit = (shorter, less) if (less := self._replayed(shorter, shows)) is not None else (chain, hit)
        self.hits.append(hit)

    def _replayed(self, chain: Chain, shows: Hole) -> Hit | None:
        made = [(row, grown(chain, self.ground.targets[row], self.changes)) for row in self.rows]
        outcomes = tuple(self._asked([(row, answer) for row, answer in made if answer is not None]))
        paid = [o for o in outcomes if hole(o) == shows]
        golds = {str(o.target.case.oracle) for o in paid}
        # Queries and programs differ so much that a change may fit one row alone: a lead then, never a fact.
        alone = self.ground.targets[0].form.kind in ("sql", "code")
        fits = [o.target for o in outcomes] if alone else [self.ground.targets[row] for row in self.rows]
        if len(golds) < max(1, min(2, len({str(target.case.oracle) for target in fits}))):
            return None
        return Hit(chain, shows, _paying(paid, self.asker.names), outcomes)

    def exploits(self) -> list[Finding]:
        """The hits that nothing known covers, the most different ones."""
        new = [hit for hit in self.hits if not any(self._covers(f, hit) for f in self.found)]
        new.sort(key=lambda hit: (-len(hit.paid), len(hit.chain[1]), hit.chain))
        chosen: list[Hit] = []
        for hit in new:
            other = all(hit.names.isdisjoint(c.names) and (hit.hole, hit.rewards) != (c.hole, c.rewards) for c in chosen)
            if other and len(chosen) < REPORTED:
                chosen.append(hit)
        made = [self._finding(hit) for hit in chosen]
        known = [f.example for f in self.found]
        return [f for k, f in enumerate(made) if f.example not in known + [g.example for g in made[:k]]]

    def _covers(self, known: Finding, hit: Hit) -> bool:
        """Whether a known fact is the same kind of hole in the same rewards, as far as can be told."""
        if known.kind != "exploit" or known.certainty != "fact":
            return False
        if known.rewards and hit.rewards and not set(known.rewards) & set(hit.rewards):
            return False
        target = next((t for t in self.ground.targets if t.case.place == known.place), None)
        if target is None or (known.earned is not None and known.earned > known.right + SLACK * (known.right - known.wrong)):
            return hit.hole == "above"
        return hit.hole == ("worthless" if keeps_nothing(target, known.example) else "near")

    def _finding(self, hit: Hit) -> Finding:
        done = [self.changes[name].says for name, _ in hit.chain[1]]
        attack = Attack(
            "search." + "+".join([hit.hole, hit.chain[0], *(name for name, _ in hit.chain[1])]),
            "search",
            lambda _: (),
            f"{_FLAWS[hit.hole]} (found from {_STARTS[hit.chain[0]]}{': ' if done else ''}{', '.join(done)}).",
            _FIXES[hit.hole],
            "found by search",
        )
        paid = hit.paid
        # Terms of taste take a little away from right answers too: only what is missing beyond them is partial credit.
        full = hit.hole != "near" or all(o.paid.total >= o.level.right - 0.2 * SLACK * o.level.gap for o in paid)
        rows = {o.target.form.core if o.target.form.kind != "calls" else str(o.target.case.oracle) for o in paid}
        # The right answer with words around it may be read as it is meant: words, unlike values, are the catalog's business.
        around = hit.hole == "near" and any(o.target.form.kind in SHORT and _holds(o) for o in paid)
        proven = full and len(rows) > 1 and all(o.refused for o in paid) and not around
        # Equality refuses every other right program, so where it is the check the searcher has only shown another one.
        proven = proven and not (self.asker.guessed and hit.hole == "near" and paid[0].target.form.kind in ("code", "sql"))
        says = "the check refuses it" if all(o.refused for o in paid) else "it says nothing" if hit.hole == "worthless" else ""
        made = finding("exploit", "fact" if proven else "lead", attack, hit.outcomes, paid, hit.rewards, says)
        shown = min(paid, key=lambda o: len(str(o.tried.answer)))
        answer, mark = smallest(shown, self.ground, self.asker)
        return replace(made, example=answer, earned=mark.total)

    def broken(self) -> list[Finding]:
        """Faults that the catalog did not come upon."""
        known = {(f.attack, f.rewards) for f in self.found}
        right = [self.ground.right[self.ground.position(o.target)] for o in self.outcomes]
        return [f for f in judge_faults(self.outcomes, self.asker.names, right) if (f.attack, f.rewards) not in known]


def grown(chain: Chain, target: Target, changes: Mapping[str, Change]) -> Answer | None:
    """The answer that a chain of changes gives to a row; None where a change does not apply."""
    start, steps = chain
    draft = starts(target)[start]
    for name, number in steps:
        draft = changes[name].make(draft, target, Random(f"{name} {number}"))
        if draft is None:
            return None
    return draft.answer


def _holds(outcome: Outcome) -> bool:
    """Whether the right answer's asserted part stands in an answer, as whole words and whole numerals."""
    core, answer = outcome.target.form.core.strip(), str(outcome.tried.answer)
    return bool(core) and re.search(standing(core), answer) is not None


def _paying(outcomes: Sequence[Outcome], names: Sequence[str]) -> tuple[str, ...]:
    """The functions that pay more than an honest wrong answer gets of them."""

    def pays(outcome: Outcome, f: int) -> bool:
        part, level = outcome.paid.parts[f], outcome.levels[f]
        return part is not None and part > level.wrong + SLACK * max(level.gap, 1e-9)

    return tuple(name for f, name in enumerate(names) if any(pays(o, f) for o in outcomes))


_FOUND = Attack("search", "search", lambda _: (), "", "")
