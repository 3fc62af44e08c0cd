"""Handing a case to a person: a decision that must be neither the easy way out nor never worth it.

A hand-off ends the attempt, excludes an answer, and carries a note that only this case could have. What handing off always, never, and
exactly when needed would earn is plain arithmetic: `hand_off_values`, to be looked at before any training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from earnest.errors import UserError
from earnest.rewards.calls import ToolCall, calls_in
from earnest.rewards.json import parse_strict
from earnest.rewards.matching import ABSENT, Column, fits, mentions, most_others
from earnest.rewards.verifier import Attempt, Score, Verifier, invalid_task
from earnest.task import Row

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")  # a character of Chinese or Japanese, else a run of letters and digits
RUN = 5  # words in a row that nobody writes by chance as the case has them


GUESSED = 0.5  # accuracy of the answerers in the outlook, while no model has answered anything


@dataclass(frozen=True)
class Note:
    """What a hand-off must say of its case.

    Attributes:
        text: Argument that holds the note itself; None where the fields say it all.
        fields: Arguments that must equal the row's columns, by argument; a sequence where both have the same names.
        mentions: Columns whose values the note's text must hold, as whole words or numbers. Without them it would do for any case.
        case: Columns with what the model was shown. The note's text must not be a copy of it.
        least_words: Different words that it has besides what it must mention.
        most_words: Longest note, in words.
        most_copied: Share of its words that may stand in the case, all its columns together, in runs of five words or more.
        most_others: Numbers, or names with digits in them, that its text may hold beside those it must mention and of the same form: a
            note that names every order of the prompt says nothing of which it is about.
    """

    text: str | None = "note"
    fields: Sequence[str] | Mapping[str, str] = ()
    mentions: Sequence[str] = ()
    case: Sequence[str] = ()
    least_words: int = 5
    most_words: int = 150
    most_copied: float = 0.5
    most_others: int = 3

    def columns(self) -> dict[str, str]:
        """Column by argument, of the fields."""
        return dict(self.fields) if isinstance(self.fields, Mapping) else {name: name for name in self.fields}


def hand_off(
    answer: Verifier,
    gold: str = "needs_human",
    *,
    note: Note,
    form: Literal["tool", "json"] = "tool",
    action: str = "hand_off",
    pay_needed: float = 1.0,
    pay_not_needed: float = -0.1,
    free_calls: int = 8,
    late_cost: float = 0.1,
    closing_words: int = 0,
    failed: Callable[[Any], bool] | None = None,
    name: str = "hand_off",
) -> Verifier:
    """The answer's own score, or what handing the case to a person is worth.

    Rule, where "good" is a hand-off that ends the attempt, happens once, leaves no answer beside it, and has a good note:

        handed off, needed, good         max(0, pay_needed - late_cost * calls made before it beyond free_calls)
        handed off, not needed           pay_not_needed: what it costs. Less than a wrong answer, or every hard case is handed off
        handed off, needed, not good     min(0, pay_not_needed)
        not handed off, needed           0, whatever was answered
        not handed off, not needed       the score of `answer`

    As a tool, only a call that the environment ran hands off; one that is merely written, or failed, is an attempt to answer. As JSON, the
    whole answer is an object with the one key `action`, holding the note's arguments.

    Args:
        answer: The verifier of an answer.
        gold: Column that is true where a person is needed.
        note: What the hand-off must say.
        form: A tool call, or a JSON answer.
        action: Name of the tool, or of the key.
        pay_needed: For a good hand-off of a case that needs one.
        pay_not_needed: For a hand-off that nobody needed.
        free_calls: Calls that may come before it.
        late_cost: Charge for each further one.
        closing_words: Words that the model may say after the tool's answer; more is an answer.
        failed: Whether a tool message's content tells of an error; an object with a key "error" by default.
        name: As it appears in metrics.

    Raises:
        UserError: A note that would do for any case, or numbers that are no finite ones.
    """
    lacking = [option for option in (("mentions", "case") if note.text is not None else ("fields",)) if not getattr(note, option)]
    if lacking:
        raise UserError(
            f"{name}: nothing ties the note to its case, so that one note, or a copy of the prompt, would do for all. Give Note() columns "
            f"of the row: {' and '.join(lacking)}."
        )
    if not all(map(math.isfinite, (pay_needed, pay_not_needed, late_cost))) or late_cost < 0:
        raise UserError(f"{name}: pay_needed, pay_not_needed and late_cost must be finite numbers, late_cost at least 0.")

    def judge(attempt: Attempt, row: Row) -> Score:
        needed = row[gold]
        broken = _row_problem(row, needed, gold, note, answer)
        if broken:
            return invalid_task(broken)
        arguments, problem, before = _read(attempt, form, action, closing_words, failed)
        facts = {"needed": needed, "handed_off": arguments is not None}
        if arguments is None:
            if needed:
                return Score(0.0, reasons=("a person was needed",), evidence=facts)
            score = answer(attempt, row)
            return Score(score.value, score.status, score.reasons, {**score.evidence, **facts})
        if not needed:
            return Score(pay_not_needed, reasons=("no person was needed",), evidence=facts)
        problem = problem or note_problem(note, arguments, row)
        if problem:
            return Score(min(0.0, pay_not_needed), reasons=(problem,), evidence=facts)
        late = max(0, before - free_calls)
        value = max(0.0, pay_needed - late_cost * late)
        return Score(value, reasons=(f"{late} calls too late",) if late else (), evidence={**facts, "calls_before": before})

    least, most = answer.bounds
    bounds = (min(0.0, pay_not_needed, least), max(0.0, pay_needed, pay_not_needed, most))

    def outlook(rows: Sequence[Row]) -> list[str]:
        try:
            rate = needed_rate(rows, gold)
        except UserError as error:
            return [str(error)]
        pays = {"pay_needed": pay_needed, "pay_not_needed": pay_not_needed, "right": most, "wrong": answer.bounds[0]}
        return hand_off_values(rate, accuracy=GUESSED, **pays).table().splitlines()

    return Verifier(name, judge, (gold,), bounds, slow=answer.slow, opinion=answer.opinion, metrics=_rates, outlook=outlook)


def _rates(scores: Sequence[Score]) -> dict[str, float]:
    """How often a case was handed off, and how often one of those that need it."""
    told = [score.evidence for score in scores if "handed_off" in score.evidence]
    needing = [facts["handed_off"] for facts in told if facts["needed"]]
    shares = {"handed_off": [facts["handed_off"] for facts in told], "handed_off_when_needed": needing}
    return {key: sum(values) / len(values) for key, values in shares.items() if values}


def _row_problem(row: Row, needed: Any, gold: str, note: Note, answer: Verifier) -> str:
    """Why the row cannot be verified, whatever is done; "" where it can."""
    if not isinstance(needed, bool):
        return f"{gold} is neither true nor false"
    wanted = [*note.columns().values(), *note.mentions, *note.case] if needed else answer.columns
    lacking = [column for column in wanted if row.get(column) is None]
    return f"the row has no {' and no '.join(lacking)}" if lacking else ""


def _read(
    attempt: Attempt, form: str, action: str, closing_words: int, failed: Callable[[Any], bool] | None
) -> tuple[Mapping[str, Any] | None, str, int]:
    """The hand-off's arguments (None where there is none), what is wrong with it as an ending, and the calls before it."""
    calls, _ = calls_in(attempt, failed)
    if form == "json":
        value = parse_strict(attempt.text).value
        if not isinstance(value, dict) or action not in value:
            return None, "", 0
        arguments = value[action] if isinstance(value[action], dict) else {}
        return arguments, "hands off and answers" if len(value) > 1 else "", sum(call.answered for call in calls)
    mine = [(place, call) for place, call in enumerate(calls) if call.ran and call.name == action]
    if not mine:
        return None, "", 0
    place, call = mine[0]
    return call.arguments or {}, _ending_problem(attempt, calls[place + 1 :], call, closing_words), sum(c.answered for c in calls[:place])


def _ending_problem(attempt: Attempt, later: Sequence[ToolCall], call: ToolCall, closing_words: int) -> str:
    if any(other.name == call.name and other.ran for other in later):
        return "handed off more than once"
    if later:
        return "went on after handing off"
    said = [m.get("content") for m in attempt.messages[call.turn + 1 :] if isinstance(m, Mapping) and m.get("role") == "assistant"]
    if any(content and not isinstance(content, str) for content in said):
        return "went on after handing off"
    if sum(len((content or "").split()) for content in said) > closing_words:
        return "hands off and answers"
    return ""


def note_problem(note: Note, arguments: Mapping[str, Any], row: Row) -> str:
    """What is wrong with a note, "" where it is good.

    Args:
        note: What it must say.
        arguments: What the hand-off said.
        row: The case.
    """
    columns = note.columns()
    for argument, column in columns.items():
        if fits(Column(column), arguments.get(argument, ABSENT), row) is not True:
            return f"the note has another {argument}" if argument in arguments else f"the note has no {argument}"
    if arguments.keys() - columns.keys() - {note.text}:
        return "the note has fields that nobody asked for"
    if note.text is None:
        return ""
    text = arguments.get(note.text)
    if not isinstance(text, str) or not text.strip():
        return "the note is empty"
    words = _words(text)
    if len(words) > note.most_words:
        return f"the note has more than {note.most_words} words"
    for column in note.mentions:
        if not all(mentions(text, value) for value in _listed(row[column])):
            return f"the note does not mention the {column}"
    if most_others(text, [value for column in note.mentions for value in _listed(row[column])]) > note.most_others:
        return "the note names many things beside what it must mention"
    own = set(words) - {word for column in note.mentions for value in _listed(row[column]) for word in _words(str(value))}
    if len(own) < note.least_words:
        return f"the note has fewer than {note.least_words} words of its own"
    if _copied(words, [_words(str(row[column])) for column in note.case]) > note.most_copied:
        return "the note is a copy of the case"
    return ""


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _copied(words: Sequence[str], case: Sequence[Sequence[str]]) -> float:
    """Share of the words that stand in any text of the case too, in runs of `RUN` or more."""
    runs = {tuple(text[place : place + RUN]) for text in case for place in range(len(text) - RUN + 1)}
    covered: set[int] = set()
    for place in range(len(words) - RUN + 1):
        if tuple(words[place : place + RUN]) in runs:
            covered.update(range(place, place + RUN))
    return len(covered) / len(words) if words else 0.0


@dataclass(frozen=True)
class HandOffValues:
    """Mean reward of simple policies, a row.

    Attributes:
        needed_rate: Share of rows that need a person.
        accuracy: Of the answerers below, on rows that need none.
        always: Hands every case off, with a good note.
        never: Answers every case.
        honest: Hands off exactly what needs it, and answers the rest.
        oracle: The same, and every answer is right.
        break_even: Accuracy at which `never` earns what `always` does; above 1 no answerer does, and None where there is nothing to answer.
        warnings: What is wrong with these pays; empty when an honest answerer is better off than both who do not decide.
    """

    needed_rate: float
    accuracy: float
    always: float
    never: float
    honest: float
    oracle: float
    break_even: float | None
    warnings: tuple[str, ...] = field(default=())

    def table(self) -> str:
        """The numbers and the warnings, to be printed before training."""
        rows = [
            ("always hands off", self.always),
            (f"never hands off, accuracy {self.accuracy:g}", self.never),
            (f"hands off when needed, accuracy {self.accuracy:g}", self.honest),
            ("hands off when needed, always right", self.oracle),
        ]
        width = max(len(label) for label, _ in rows)
        even = "never" if self.break_even is None or self.break_even > 1 else f"above accuracy {max(0.0, self.break_even):.3f}"
        lines = [f"mean reward, {self.needed_rate:.1%} of rows need a person"]
        lines += [f"  {label:<{width}}  {value:+.3f}" for label, value in rows]
        lines += [f"answering everything beats handing off everything: {even}", *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join(lines)


def needed_rate(rows: Iterable[Row], gold: str = "needs_human") -> float:
    """Share of rows that need a person, among those that say.

    Raises:
        UserError: No row says.
    """
    told = [row[gold] for row in rows if isinstance(row.get(gold), bool)]
    if not told:
        raise UserError(f"No row has true or false in '{gold}', so nothing can be said of handing off. Fill that column.")
    return sum(told) / len(told)


def hand_off_values(
    needed_rate: float,
    *,
    accuracy: float,
    pay_needed: float = 1.0,
    pay_not_needed: float = -0.1,
    right: float = 1.0,
    wrong: float = 0.0,
) -> HandOffValues:
    """What handing off always, never and honestly earns in the mean.

    With q the rate, a the accuracy, and v = a right + (1 - a) wrong:

        always   q pay_needed + (1 - q) pay_not_needed         never    (1 - q) v
        honest   q pay_needed + (1 - q) v                      oracle   q pay_needed + (1 - q) right

    Args:
        needed_rate: Share of rows that need a person, 0 to 1; see the function of that name.
        accuracy: Share of right answers on the other rows, 0 to 1: that of the model as it is.
        pay_needed: As in `hand_off`.
        pay_not_needed: As in `hand_off`.
        right: What a right answer earns.
        wrong: What a wrong answer earns.

    Raises:
        UserError: A share outside 0 to 1, a number that is not finite, or an answer that pays no more for being right.
    """
    numbers = (needed_rate, pay_needed, pay_not_needed, accuracy, right, wrong)
    if not all(map(math.isfinite, numbers)) or not (0 <= needed_rate <= 1 and 0 <= accuracy <= 1 and wrong < right):
        raise UserError("needed_rate and accuracy are shares from 0 to 1, pays are finite numbers, and right pays more than wrong.")
    rest = 1 - needed_rate
    answers = accuracy * right + (1 - accuracy) * wrong
    always, never = needed_rate * pay_needed + rest * pay_not_needed, rest * answers
    honest, oracle = needed_rate * pay_needed + rest * answers, needed_rate * pay_needed + rest * right
    break_even = (always - rest * wrong) / (rest * (right - wrong)) if rest else None
    warnings = []
    if rest and always >= honest:
        warnings.append(
            f"always handing off ({always:.3f}) beats an honest answerer of accuracy {accuracy:g} ({honest:.3f}): pay_not_needed must be "
            f"below {answers:.3f}"
        )
    elif rest and always >= never:
        warnings.append(
            f"always handing off ({always:.3f}) beats answering everything at accuracy {accuracy:g} ({never:.3f}): a model below accuracy "
            f"{break_even:.3f} drifts to handing everything off first"
        )
    if needed_rate and pay_needed <= 0:
        warnings.append("a hand-off that is needed pays no more than an answer to it (0), so nobody learns to hand off")
    if needed_rate in (0, 1):
        warnings.append(f"{'every' if needed_rate else 'no'} row needs a person, so there is nothing to decide")
    return HandOffValues(needed_rate, accuracy, always, never, honest, oracle, break_even, tuple(warnings))
