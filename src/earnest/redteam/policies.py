"""Scripted policies: what a model would earn that always did one thing. A scoreboard to read before any training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from earnest.redteam.targets import idle
from earnest.task import Answer

if TYPE_CHECKING:
    from earnest.redteam.audit import Ground


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


def _constant(ground: Ground) -> list[Answer | None]:
    answers = [target.case.oracle for target in ground.targets]
    common = Counter(map(str, answers)).most_common(1)[0][0]
    return [next(a for a in answers if str(a) == common)] * len(answers)


POLICIES = (
    Policy("oracle", "the right answer", lambda g: [t.case.oracle for t in g.targets], cheat=False),
    Policy("honest wrong", "a wrong answer in the right form", lambda g: [t.wrong for t in g.targets], cheat=False),
    Policy("empty", "nothing", lambda g: [idle(t) for t in g.targets]),
    Policy("most common answer", "the same answer each time", _constant),
)
