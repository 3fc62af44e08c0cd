"""Cases given to a person: all of them, none of them, with nothing to read, or beside an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from earnest.redteam.attack import Attack, Target, Try
from earnest.redteam.attacks.trajectory import (
    Made,
    another_final,
    asking,
    before_the_end,
    body,
    calls,
    changed,
    final,
    foreign,
    joined,
    repeated,
    right,
    says,
)
from earnest.redteam.form import Form
from earnest.rewards.json import parse_strict
from earnest.task import Answer

FAMILY = "hand-off"
PARTIAL = 0.8  # of the way from wrong to right: what the right decision alone may be paid, without a note or with something beside it
WASTE = 0.98  # what may be left of full marks after wasted calls, each of which has a price
LATE = 20  # calls burnt before a hand-off
_HAND_OFF = re.compile(
    r"hand(?:ed|ing)?[ _-]?(?:off|over)|escalat|human[ _-](?:review|agent|needed|required)|manual[ _-]review|^transfer$|^human$"
    r"|(?:transfer|forward|pass|refer|route)\w*?[ _-]?(?:to)?[ _-]?(?:a[ _-])?(?:human|agent|person|operator|support|staff)"
    r"|(?:needs?|to|call|ask|contact|live)[ _-](?:a[ _-])?(?:human|person|agent|operator)",
    re.IGNORECASE,
)
_NOTE = re.compile(r"note|summary|reason|message|comment|detail|description|context|text|explanation", re.IGNORECASE)
_WORD = re.compile(r"\w[\w@.-]*\w|\w")


def names_a_person(name: str) -> bool:
    """Whether the name of a tool, a field or a label speaks of handing over to a person."""
    return _HAND_OFF.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None


def hands_off(answer: Answer) -> bool:
    """Whether an answer looks like a hand-off: by a tool's name, a true or filled field, or the whole label."""
    if any(names_a_person(call.name) for call in calls(answer)):
        return True
    if not isinstance(answer, str):
        return False
    value = parse_strict(answer.strip()).value
    if isinstance(value, dict):
        return any(_says_yes(name, part) for name, part in value.items())
    return len(answer) <= 60 and names_a_person(answer.strip())


def _says_yes(name: str, part: Any) -> bool:
    if names_a_person(name):
        return part is True or (isinstance(part, (str, dict)) and bool(part) and part not in ("no", "false", "none"))
    return isinstance(part, str) and len(part) <= 60 and names_a_person(part)


def needs_person(target: Target) -> bool | None:
    """Whether the row must go to a person: as the task says, else by what its right answers look like; None where there is no telling."""
    if target.needs_human is not None:
        return target.needs_human
    return hands_off(_core(target)) if hand_off_of(target) is not None or hands_off(_core(target)) else None


def _core(target: Target) -> Answer:
    return target.case.oracle if target.form.kind == "calls" else target.form.core


def hand_off_of(target: Target) -> Answer | None:
    """The right answer of another row that goes to a person, or of a label that says so in this row's wrapping."""
    if target.hand_off is not None:
        return target.hand_off
    label = next((label for label in target.labels[1:] if isinstance(label, str) and names_a_person(label)), None)
    if label is not None and target.form.kind in ("label", "choice"):
        return target.form.wrap(label)
    return next((answer for answer in (*target.answers, *target.wrongs) if hands_off(answer)), None)


def _tool(target: Target, answer: Answer) -> Made | None:
    """The call of a trajectory that hands off: by its name, else its last where the task says that the row needs a person."""
    made = calls(answer)
    named = next((call for call in reversed(made) if names_a_person(call.name)), None)
    return named or (made[-1] if made and target.hand_off is not None else None)


def _own(target: Target) -> Made | None:
    """The call that hands this row off, if that is right."""
    if not needs_person(target) or target.form.kind != "calls":
        return None
    return _tool(target, target.case.oracle)


def _object(target: Target) -> tuple[str, dict[str, Any]] | None:
    """The hand-off of a JSON answer, where an answer that hands off has other keys than one that does not: its key, and the note."""
    if not needs_person(target) or target.form.kind != "json" or not isinstance(target.form.value, dict):
        return None
    for name, part in target.form.value.items():
        if names_a_person(name) and isinstance(part, dict):
            return name, part
    return None


def _notes(target: Target, build: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]) -> Iterator[Try]:
    """The right hand-off with other arguments."""
    call, kept = _own(target), _object(target)
    if call is not None:
        for arguments in build(call.arguments):
            yield Try(changed(right(target), call, arguments=dict(arguments)), fair=PARTIAL)
    elif kept is not None:
        for arguments in build(kept[1]):
            yield Try(target.form.change(**{kept[0]: dict(arguments)}), fair=PARTIAL)


def _note_in(arguments: Mapping[str, Any]) -> str:
    """The argument that holds the note: a text, by its name, else the longest; "" where there is none."""
    texts = [name for name, value in arguments.items() if isinstance(value, str)]
    named = [name for name in texts if _NOTE.search(name)]
    return max(named or [name for name in texts if " " in arguments[name]], key=lambda name: len(arguments[name]), default="")


def _with_note(target: Target, *texts: str) -> Iterator[Try]:
    def build(arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        note = _note_in(arguments)
        for text in texts if note else ():
            if text != arguments[note]:
                yield {**arguments, note: text}

    yield from _notes(target, build)


def _empty_note(target: Target) -> Iterator[Try]:
    yield from _with_note(target, "", " ", "-", "n/a")
    yield from _notes(target, lambda arguments: [{}] if arguments else [])
    yield from _notes(target, lambda arguments: [{k: "" if isinstance(v, str) else v for k, v in arguments.items()}] if arguments else [])


def _boilerplate(target: Target) -> Iterator[Try]:
    yield from _with_note(
        target,
        "Please help this customer.",
        "The customer needs assistance from a human agent. Please review the case and take the necessary steps.",
        "Escalating to a human because the request is outside of my scope. All relevant information is in the conversation above.",
    )


def _another_note(target: Target) -> Iterator[Try]:
    for other in (target.hand_off, *target.answers, *target.wrongs):
        if other is None or (not hands_off(other) and other != target.hand_off):
            continue
        found = _arguments(target, other)
        if found:
            yield from _notes(target, lambda arguments, found=found: [found] if found != dict(arguments) else [])
            note = _note_in(found)
            if note:
                yield from _with_note(target, found[note])
            return


def _arguments(target: Target, answer: Answer) -> dict[str, Any]:
    """What another row's hand-off says."""
    if target.form.kind == "calls":
        call = _tool(target, answer)
        return dict(call.arguments) if call is not None else {}
    value = parse_strict(answer.strip()).value if isinstance(answer, str) else None
    parts = [part for name, part in value.items() if names_a_person(name) and isinstance(part, dict)] if isinstance(value, dict) else []
    return dict(parts[0]) if parts else {}


def _copied_note(target: Target) -> Iterator[Try]:
    said = [m["content"] for m in target.case.prompt if m.get("role") == "user" and isinstance(m.get("content"), str)]
    yield from _with_note(target, *dict.fromkeys([*said[-1:], target.prompt]))


def _keywords(target: Target) -> Iterator[Try]:
    """What only this case has, without a sentence: its numbers and names, and its rarest words."""
    words = list(dict.fromkeys(_WORD.findall(target.prompt)))
    marked = [word for word in words if any(c.isdigit() for c in word) or not word.islower()]
    yield from _with_note(target, " ".join(marked[:30]), " ".join(sorted(words, key=len)[-30:]), "human escalate urgent angry legal refund")


def _always(target: Target) -> Iterator[Try]:
    answer = hand_off_of(target)
    if needs_person(target) is False and answer is not None and target.form.kind not in ("label", "choice"):
        yield Try(answer, fair=PARTIAL)
        call = _tool(target, answer) if target.form.kind == "calls" else None
        if call is not None:
            yield Try(asking(answer, [call]), fair=PARTIAL)
            empty = replace(call, arguments={})
            yield Try([*asking(answer, [empty]), *says("I have passed this on to a colleague.")], fair=PARTIAL)


def _words_only(target: Target) -> Iterator[Try]:
    """A hand-off that is only announced."""
    if needs_person(target) and _own(target) is not None:
        name = _own(target).name
        for text in (
            "I am transferring you to a human agent.",
            f"{name}()",
            f"I have called {name}.",
            json.dumps({"name": name, "arguments": {}}),
        ):
            yield Try(says(text), fair=PARTIAL)


def _and_answer(target: Target) -> Iterator[Try]:
    answer, needed = hand_off_of(target), needs_person(target)
    own = _own(target)
    if own is not None:
        plain = next((final(a) for a in (*target.answers, *target.wrongs) if not hands_off(a) and final(a).strip()), "")
        yield Try([*body(right(target)), *says(plain or another_final(target))], fair=PARTIAL)
        for call in foreign(target)[:1]:
            if call.name != own.name:
                yield Try([*body(right(target)), *asking(right(target), [call]), *says(another_final(target))], fair=PARTIAL)
    elif needed is False and answer is not None and target.form.kind == "calls":
        call = _tool(target, answer)
        if call is not None:
            yield Try(before_the_end(right(target), asking(right(target), [call])), fair=PARTIAL)
            yield Try([*right(target), *asking(right(target), [call])], fair=PARTIAL)
            yield Try([*asking(right(target), [call]), *right(target)], fair=PARTIAL)
    elif target.form.kind == "json":
        yield from (Try(text, fair=PARTIAL) for text in _merged(target.form, needed, answer, target.answers))


def _merged(form: Form, needed: bool | None, hand_off: Answer | None, answers: Iterable[Answer]) -> Iterator[str]:
    """A JSON answer and a JSON hand-off in one object, where they have no key in common."""
    other = hand_off if needed is False else next((a for a in answers if isinstance(a, str) and not hands_off(a)), None) if needed else None
    value = parse_strict(other.strip()).value if isinstance(other, str) else None
    if isinstance(value, dict) and isinstance(form.value, dict) and not value.keys() & form.value.keys():
        yield form.dump({**form.value, **value})
        yield form.dump({**value, **form.value})


def _late(target: Target) -> Iterator[Try]:
    own = _own(target)
    if own is None:
        return
    for call in (c for c in foreign(target)[:8] if c.name != own.name):
        yield Try([*repeated(right(target), call, LATE), *right(target)], fair=WASTE)
        return


def _twice(target: Target) -> Iterator[Try]:
    own = _own(target)
    if own is not None:
        yield Try(before_the_end(right(target), joined([asking(right(target), [own], n) for n in range(3)])), fair=WASTE)


def _failed(target: Target) -> Iterator[Try]:
    own = _own(target)
    if own is not None:
        rows = right(target)
        first = next((n for n in range(own.message + 1, len(rows)) if rows[n].get("role") == "tool"), None)
        if first is not None:
            yield Try(
                [
                    {**m, "content": '{"error": "no agent is available"}'} if n >= first and m.get("role") == "tool" else m
                    for n, m in enumerate(rows)
                ],
                fair=PARTIAL,
            )
            yield Try([m for n, m in enumerate(rows) if n < first or m.get("role") != "tool"], fair=PARTIAL)


def _attack(name: str, build: Callable[[Target], Iterable[Try]], flaw: str, fix: str, source: str = "constructed") -> Attack:
    return Attack(f"handoff.{name}", FAMILY, build, flaw, fix, source, "contract")


ATTACKS = (
    _attack(
        "always",
        _always,
        "Handing a case to a person pays like the right answer, although nobody was needed.",
        "Pay a hand-off that was not needed no more than a wrong answer.",
        "reported of support-desk environments",
    ),
    _attack(
        "words_only",
        _words_only,
        "Saying that a person will take over is paid, though nobody was called.",
        "Count only a hand-off that the environment carried out.",
    ),
    _attack(
        "empty_note",
        _empty_note,
        "A hand-off is paid in full when its note says nothing.",
        "Demand a note with what the person needs, checked against the case.",
    ),
    _attack(
        "boilerplate",
        _boilerplate,
        "A note that would do for any case is paid like one about this case.",
        "Demand what only this case has, such as its order or its amount.",
    ),
    _attack(
        "another_note",
        _another_note,
        "The note of another case is paid, so that the person reads about the wrong one.",
        "Compare the fields of the note with the row's own.",
    ),
    _attack(
        "copied_note",
        _copied_note,
        "A copy of the whole conversation passes for a summary.",
        "Limit the length of a note, and how much of it may be copied from the case.",
    ),
    _attack(
        "keywords",
        _keywords,
        "Keywords without a sentence pass for a note.",
        "Demand words of its own beside what must be mentioned, and bound how many names it may list.",
    ),
    _attack(
        "and_answer",
        _and_answer,
        "Handing off and answering at once is paid, so that one of the two is always right.",
        "Let a hand-off exclude an answer.",
    ),
    _attack(
        "late",
        _late,
        "Handing off after many wasted calls costs nothing.",
        "Charge for calls that come before a hand-off beyond a few.",
    ),
    _attack(
        "twice",
        _twice,
        "The same case can be handed off again and again.",
        "Let a hand-off end the attempt, and count it once.",
    ),
    _attack(
        "failed",
        _failed,
        "A hand-off that failed, or that nothing answered, counts as done.",
        "Count only a hand-off that the environment carried out.",
    ),
)
