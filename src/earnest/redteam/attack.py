"""An attack: one way to get points without doing the work, as a record, and what it may look at to build itself for a row.

Everything an attack writes is known to be wrong before any reward sees it, in one of two ways. "certain": worthless or wrong whatever the
contract says (nothing at all, every label at once, the gold denied). "contract": the right content in a form the contract forbids (words
behind the JSON, a number as text), so it is wrong only if the task's `check` refuses it too; if the check accepts it, the contract is loose
on purpose and nothing is reported. A control is the same, turned round: a right answer written another way, which must earn full marks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from earnest.evidence import Case
from earnest.redteam.form import Form, Kind
from earnest.task import Answer

Wrong = Literal["certain", "contract"]
Expect = Literal["wrong", "right"]


@dataclass(frozen=True)
class Target:
    """A row to attack, and everything an attack may use.

    Attributes:
        case: The row, its prompt and its oracle answer.
        form: Its oracle answer taken apart: what stands around the asserted part, and that part.
        wrongs: Honest wrong answers in the required form, the least alike first: at least one.
        golds: The asserted parts (`form.core`) of all rows, each once, this row's first.
        labels: Every label, if the task is to choose one of a set; of JSON answers, those of `label_field`. This row's own first.
        label_field: The field of a JSON answer that holds the label or main value; "" elsewhere.
        values: By field of a JSON object: the values seen over all rows, this row's first.
        accepted: Further golds of this row, where it has several (`gold` lists and the like); an attack must not assert one of them.
        answers: The oracle answers of other rows.
        needs_human: Whether the row must go to a person; None where the task does not say.
        hand_off: The oracle answer of a row that goes to a person, None where there is none.
        first: Whether it is the first row under attack: what is dear to ask about is asked about there only.
        canary: Call it for a fresh path in a folder of our own. A reward that runs what it reads creates the file, and is caught.
        rng: For choices; seeded by row, so the same attack is the same each time.
    """

    case: Case
    form: Form
    wrongs: Sequence[Answer]
    golds: Sequence[str]
    labels: Sequence[str] = ()
    label_field: str = ""
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    accepted: Sequence[str] = ()
    answers: Sequence[Answer] = ()
    needs_human: bool | None = None
    hand_off: Answer | None = None
    first: bool = True
    canary: Callable[[], Path] = Path
    rng: random.Random = field(default_factory=random.Random)

    @property
    def wrong(self) -> Answer:
        """The honest wrong answer that is least like the right one."""
        return self.wrongs[0]

    @property
    def prompt(self) -> str:
        """What the model was told, as one text."""
        return "\n".join(m["content"] for m in self.case.prompt if isinstance(m.get("content"), str))

    @property
    def system(self) -> str:
        """The system message, "" where there is none."""
        return "\n".join(m["content"] for m in self.case.prompt if m.get("role") == "system" and isinstance(m.get("content"), str))


@dataclass(frozen=True)
class Try:
    """One answer an attack gives.

    Attributes:
        answer: Text, or messages.
        control: An honest wrong answer with as much right content, which the answer must not out-earn; None for the usual ones.
        canary: The file that exists afterwards if the reward ran the answer as code.
        fair: How much of the way from wrong to right it may earn, for the right content that stands in it: partial credit is no flaw.
        pair: Shared by answers that say the same in another order, "" elsewhere. Many contracts let the first of two answers count, or the
            last, so that one order paid is no hedge; both are.
    """

    answer: Answer
    control: Answer | None = None
    canary: Path | None = None
    fair: float = 0.0
    pair: str = ""


Build = Callable[[Target], Iterable[Try | Answer]]


@dataclass(frozen=True)
class Attack:
    """One way to the points.

    Attributes:
        id: "family.name", as in reports and baselines.
        family: What it is about: no work, format, label, number, code, SQL, tool policy, hand-off, length, rules, judge, state,
            crash.
        build: Its answers to a row, smallest first; none where it does not apply. It must be deterministic, and may raise nothing.
        flaw: What is wrong with a reward that pays, in one sentence.
        fix: What mends it, in one sentence.
        source: Where it was seen.
        wrong: Why its answers are wrong.
        kinds: The forms of answers it applies to; empty for all.
        expect: "right" for a control: a right answer in another writing.
        question: Asked of the user when a control of a doubtful kind is refused by reward and check alike; "" asks nothing.
        contested: Whether equality with the right answer cannot say if it is right: a program that may do the same, words that may be
            allowed beside it. Nobody is paid for such an answer without knowing the right one. Where equality is all the check does,
            what is found is no fact, unless both orders of a pair of answers are paid.
        granted: Of a control: whether the prompt itself allows such a writing in plain words, so that a check of ours need not know it.
        measured: Whether its tries bring the most that likeness may earn by any usual measure (`Try.fair`), so that more is no likeness.
    """

    id: str
    family: str
    build: Build
    flaw: str
    fix: str
    source: str = ""
    wrong: Wrong = "certain"
    kinds: frozenset[Kind] = frozenset()
    expect: Expect = "wrong"
    question: str = ""
    contested: bool = False
    granted: bool = False
    measured: bool = False

    def tries(self, target: Target) -> list[Try]:
        """Its answers to a row."""
        if self.kinds and target.form.kind not in self.kinds:
            return []
        return [made if isinstance(made, Try) else Try(made) for made in self.build(target)]


def text_kinds() -> frozenset[Kind]:
    """All forms that are one text, which is all but trajectories."""
    return frozenset({"json", "label", "choice", "number", "math", "code", "sql", "text"})
