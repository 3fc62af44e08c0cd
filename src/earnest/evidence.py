"""What `earnest check` looks at, gathered once: every row's prompt and oracle answer, and what each reward makes of them.

The oracle (the gold answer in the required format) stands in for a perfect model and an empty text for a lazy one. A mistake in
one of the task's functions is kept as evidence and never stops the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from earnest.environment import acted, prompt_of
from earnest.errors import UserError
from earnest.rewards.calls import calls_in
from earnest.rewards.verifier import Attempt
from earnest.rows import Rows
from earnest.score import missing_columns, reward_names, score, weighted_total
from earnest.task import Answer, Message, RewardFunction, Row, Task, Verdict, judge, messages_of

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NEAR = 0.6  # Jaccard of 4-letter pieces from which two texts count as nearly the same
TEMPLATE = 50  # from this many texts on, what stands in every one is the template and says nothing of likeness
BLOCK = 256  # texts compared at once, which bounds memory
REPEATS = 5  # times the same answers are scored
SAMPLE = 32  # rows whose answers are scored again and again
TOLERANCE = 1e-9  # float noise in a mark
NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Problem:
    """Why a row cannot be used: `kind` is the same for rows of one kind, `detail` may differ from row to row."""

    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return self.kind + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Case:
    """A row with its place, its prompt (empty when unusable) and its oracle answer (None when there is none)."""

    place: str
    split: str
    row: Row
    prompt: Sequence[Message]
    prompt_problem: Problem | None
    oracle: Answer | None
    gold_problem: Problem | None


@dataclass(frozen=True)
class Marks:
    """What one reward gave on every sound row.

    Attributes:
        name: The reward's name.
        weight: Its weight.
        oracle: Marks of the oracle's answers; NaN for no verdict.
        empty: Marks of an empty answer.
        swings: In which ways marks of a sample changed without reason, and the rows.
        lacking: Columns the reward needs, and the rows without them.
        error: Why it could not be asked.
    """

    name: str
    weight: float
    oracle: np.ndarray
    empty: np.ndarray
    swings: Mapping[str, list[Case]]
    lacking: Mapping[str, list[Case]]
    error: str = ""

    @property
    def paid(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Marks of oracle and empty, signed so that more is better; None for a reward that was not asked or does not count."""
        return None if self.error or not self.weight else (self.oracle * np.sign(self.weight), self.empty * np.sign(self.weight))


@dataclass(frozen=True)
class Evidence:
    """All of it: every row, the sound ones (prompt and gold usable), and the marks of each reward on those."""

    task: Task
    cases: list[Case]
    sound: list[Case]
    marks: list[Marks]

    @cached_property
    def totals(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Weighted totals of oracle and empty on every sound row; None unless all rewards could be asked."""
        if not self.sound or any(marks.error for marks in self.marks):
            return None
        weights = [marks.weight for marks in self.marks]
        oracle, idle = (np.stack(columns, axis=1) for columns in ([m.oracle for m in self.marks], [m.empty for m in self.marks]))
        return weighted_total(oracle, weights), weighted_total(idle, weights)


def gather(task: Task, rows: Rows) -> Evidence:
    """Build every prompt and oracle answer, and score what can be scored."""
    cases = cases_of(task, rows)
    sound = [case for case in cases if not case.prompt_problem and not case.gold_problem]
    marks = [_marks(task, function, weight, cases, sound) for function, weight in zip(task.rewards, task.weights, strict=True)]
    return Evidence(task, cases, sound, marks)


def cases_of(task: Task, rows: Rows) -> list[Case]:
    """Every row with its prompt and oracle answer, or why it has none."""
    return [_case(task, place, row) for place, row in rows.everything()]


def _case(task: Task, place: str, row: Row) -> Case:
    prompt: Any = ()
    try:
        prompt = prompt_of(task, row)
        prompt_problem = _flaw(prompt)
    except UserError as error:
        prompt_problem = Problem("the environment cannot be reset", str(error))
    except Exception as error:
        prompt_problem = Problem(f"prompt(row) raised {type(error).__name__}", str(error))
    oracle = gold_problem = None
    if task.oracle is not None:
        try:
            oracle = task.oracle(row)
            if isinstance(oracle, (list, tuple)) and oracle and all(isinstance(message, Mapping) for message in oracle):
                oracle = acted(task, row, list(oracle))[0]  # in an environment: with what its tools really answer
            elif not isinstance(oracle, str):
                gold_problem = Problem(f"the oracle returned {type(oracle).__name__}, neither text nor messages")
            elif not oracle.strip():
                gold_problem = Problem("the oracle returned an empty answer")
        except Exception as error:
            gold_problem = Problem(f"the oracle raised {type(error).__name__}", str(error))
    return Case(
        place=f"{place} (row {row['id']})",
        split=row["split"],
        row=row,
        prompt=() if prompt_problem else prompt,
        prompt_problem=prompt_problem,
        oracle=None if gold_problem else oracle,
        gold_problem=gold_problem,
    )


def _flaw(messages: Any) -> Problem | None:
    if not isinstance(messages, (list, tuple)):
        return Problem(f"prompt(row) returned {type(messages).__name__}, not a list of messages")
    if not messages:
        return Problem("prompt(row) returned no messages")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            return Problem("prompt(row) returned a message without a role")
        content = message.get("content")
        if content is None and not message.get("tool_calls"):  # a turn that only calls tools has no words
            return Problem(f"prompt(row) returned a {message['role']} message without content")
        if content is not None and not isinstance(content, (str, list)):
            return Problem(f"prompt(row) returned a message whose content is {type(content).__name__}, not text")
        if message["role"] == "user" and not (content.strip() if isinstance(content, str) else content):
            return Problem("prompt(row) returned a user message that says nothing")
    return None


def sample(sound: Sequence[Case]) -> list[tuple[Case, Answer]]:
    """Answers to try again: for rows spread evenly over all, the right answer, none, and the right one written backwards."""
    chosen = [sound[i] for i in np.unique(np.linspace(0, len(sound) - 1, SAMPLE).astype(int))] if sound else []
    return [(case, text) for case in chosen for text in (case.oracle or "?", empty(case), (case.oracle or "no idea")[::-1])]


def empty(case: Case) -> Answer:
    """No work at all: an empty text, or a trajectory that is one empty message."""
    return [{"role": "assistant", "content": ""}] if isinstance(case.oracle, list) else ""


def verdict(task: Task, case: Case, answer: Answer) -> Verdict | Problem:
    """The check's verdict, or why there is none."""
    try:
        return judge_played(task, answer, case.row)
    except UserError as error:
        return Problem("the check gives no verdict", str(error))


def refuses(task: Task, case: Case, answer: Answer) -> bool:
    """Whether the check calls an answer wrong."""
    found = verdict(task, case, answer)
    return not isinstance(found, Problem) and not found.correct


def oracle_problem(task: Task, case: Case) -> Problem | None:
    """What the check holds against the oracle's own answer."""
    found = verdict(task, case, case.oracle or "")
    if isinstance(found, Problem):
        return found
    wrong = [name for name, ok in found.fields.items() if ok is False]
    if found.correct and found.well_formed is not False and not wrong:
        return None
    form = " and not well formed" if found.well_formed is False else ""
    return Problem(f"the check calls the oracle's answer wrong{form}" + (f", in {', '.join(wrong)}" if wrong else ""))


def attempt(task: Task, case: Case, answer: Answer) -> Attempt:
    """An answer as verifiers get it; in an environment it is played first."""
    messages, environment = acted(task, case.row, answer)
    return Attempt(tuple(messages), environment=environment)


def beyond_limits(task: Task, case: Case) -> Problem | None:
    """Why no rollout could do what the oracle does: its last calls would not be run."""
    turns = [message for message in messages_of(case.oracle or "") if message.get("role") == "assistant"]
    calls = calls_in(Attempt(tuple(turns)))[0]
    needed = (("turns", len(turns) + bool(turns and turns[-1].get("tool_calls"))), ("calls", len(calls)))
    most = {"turns": task.limits.turns, "calls": task.limits.calls}
    over = [f"{count} {what}, where limits.{what} is {most[what]}" for what, count in needed if count > most[what]]
    return Problem("more than a rollout may do", " and ".join(over)) if over else None


def failed_call(case: Case) -> Problem | None:
    """The first call of the oracle that was answered with an error."""
    calls = calls_in(Attempt(tuple(messages_of(case.oracle or ""))))[0]
    return next((Problem("a call of the oracle fails", f"{c.name or 'a call'} answers {c.result}") for c in calls if c.failed), None)


def _marks(task: Task, function: RewardFunction, weight: float, cases: Sequence[Case], sound: Sequence[Case]) -> Marks:
    (name,) = reward_names([function])
    lacking = {column: lacks for column in missing_columns(function, ()) if (lacks := [c for c in cases if column not in c.row])}
    unknown = np.full(len(sound), np.nan)
    if lacking or not sound:
        return Marks(name, weight, unknown, unknown, {}, lacking, NOT_ASKED)
    try:
        oracle = values_of(task, function, [(case, case.oracle) for case in sound]) if task.oracle else unknown
        idle = values_of(task, function, [(case, empty(case)) for case in sound])
        return Marks(name, weight, oracle, idle, _swings(task, function, sample(sound)), {})
    except UserError as error:
        return Marks(name, weight, unknown, unknown, {}, {}, str(error))


def values_of(task: Task, function: RewardFunction, answers: Sequence[tuple[Case, Answer]]) -> np.ndarray:
    """What one reward gives for some answers, float64, NaN for no verdict; in an environment the answers are played first.

    Raises:
        UserError: It raised, or returned what no reward may.
    """
    played = [acted(task, case.row, answer) for case, answer in answers]
    prompts = [[dict(message) for message in case.prompt] for case, _ in answers]
    environments = [environment for _, environment in played] if task.environment is not None else None
    rows = [case.row for case, _ in answers]
    return score([function], [1.0], prompts, [messages for messages, _ in played], rows, environments=environments).values[:, 0]


def judge_played(task: Task, answer: Answer, row: Row) -> Verdict:
    """The check's verdict; in an environment the answer is played first.

    Raises:
        UserError: The check gave none.
    """
    if not task.acts:
        return judge(task, answer, row)
    messages, environment = acted(task, row, answer)
    return judge(task, messages, row, environment)


def _swings(task: Task, function: RewardFunction, answers: Sequence[tuple[Case, Answer]]) -> dict[str, list[Case]]:
    def values(some: Sequence[tuple[Case, Answer]]) -> np.ndarray:
        return values_of(task, function, some)

    first = values(answers)
    changed = np.any([_differ(first, values(answers)) for _ in range(REPEATS - 1)], axis=0)
    if changed.any():  # what order and neighbours do cannot be told then
        return {f"when the same answers were scored {REPEATS} times": _chosen(answers, changed)}
    turned = _differ(first, values(answers[::-1])[::-1])
    alone = _differ(first, np.concatenate([values([answer]) for answer in answers]))
    found = {"when the batch came in reverse order": turned, "to an answer scored alone": alone}
    return {when: _chosen(answers, where) for when, where in found.items() if where.any()}


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ~np.isclose(a, b, rtol=0, atol=TOLERANCE, equal_nan=True)


def _chosen(answers: Sequence[tuple[Case, Answer]], where: np.ndarray) -> list[Case]:
    return list({case.place: case for (case, _), chosen in zip(answers, where, strict=True) if chosen}.values())


def last_question(messages: Sequence[Message]) -> str:
    """What the user said last, white space and case evened out."""
    said = [message["content"] for message in messages if message["role"] == "user"] or [messages[-1].get("content")]
    text = said[-1] if isinstance(said[-1], str) else " ".join(str(part) for part in said[-1] or ())
    return " ".join(text.lower().split())


def repeats(texts: Sequence[str], splits: Sequence[str]) -> dict[int, int]:
    """For each text that stands, exactly or nearly, in an earlier split as well: the one it repeats.

    Near is a Jaccard of at least `NEAR` over the sets of 4-letter pieces, computed exactly for every pair.

    Args:
        texts: All texts, those of one split together.
        splits: The split of each.
    """
    from sklearn.feature_extraction.text import CountVectorizer  # a second to import, and needed here alone

    found: dict[int, int] = {}
    first: dict[str, int] = {}
    for index, text in enumerate(texts):
        if splits[first.setdefault(text, index)] != splits[index]:
            found[index] = first[text]
    try:
        pieces = CountVectorizer(analyzer="char", ngram_range=(4, 4), binary=True, dtype=np.int32).fit_transform(texts)
    except ValueError:  # no text has four letters
        return found
    common = np.bincount(pieces.indices, minlength=pieces.shape[1])
    rarest_first = np.argsort(common, kind="stable")
    if len(texts) >= TEMPLATE:
        rarest_first = rarest_first[common[rarest_first] < len(texts)]
    pieces = pieces[:, rarest_first]
    starts = [i for i in range(len(texts)) if i == 0 or splits[i] != splits[i - 1]]
    for start, end in zip(starts[1:], [*starts[2:], len(texts)], strict=True):
        for block in range(start, end, BLOCK):
            for later, before in _near(pieces[block : min(block + BLOCK, end)], pieces[:start]):
                found.setdefault(block + later, before)
    return found


def _near(later: csr_matrix, earlier: csr_matrix) -> Iterator[tuple[int, int]]:
    """All (row of later, row of earlier) with a Jaccard of at least `NEAR`.

    Pieces that are common make comparing slow and tell little, so the rarer half of each later text is compared first: even if all
    of its other half were shared, most texts then cannot reach `NEAR`, and only the rest are compared in full.
    """
    later.sort_indices()
    size, earlier_size = np.diff(later.indptr), np.diff(earlier.indptr)
    rare = later.copy()
    rare.data[np.arange(later.nnz) - np.repeat(later.indptr[:-1], size) > np.repeat(size // 2, size)] = 0
    rare.eliminate_zeros()
    turned = earlier.T.tocsr()
    shared = (rare @ turned).tocoo()
    hope = shared.data + (size - np.diff(rare.indptr))[shared.row]
    hopeful = np.unique(shared.row[hope >= NEAR * (size[shared.row] + earlier_size[shared.col] - hope)])
    shared = (later[hopeful] @ turned).tocoo()
    row = hopeful[shared.row]
    near = shared.data >= NEAR * (size[row] + earlier_size[shared.col] - shared.data)
    return zip(row[near].tolist(), shared.col[near].tolist(), strict=True)
