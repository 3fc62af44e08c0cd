"""Whether an answer that nobody planned is provably wrong, and how much of the right answer it keeps.

The searcher makes answers without knowing what they say, so it takes the check's word that one is wrong, and only where the answer is not
simply the right one in another writing: a reward that reads those kindly does nothing wrong. How much an answer keeps decides what it may
earn: partial credit for part of the right answer is fair, and only (nearly) full marks for it are not.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping
from difflib import SequenceMatcher
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from earnest.redteam.attack import Target
from earnest.redteam.attacks.numerals import numeral_of, numerals_in, standing
from earnest.redteam.attacks.units import ends_with, quantity_of
from earnest.redteam.findings import SLACK, Outcome
from earnest.redteam.listed import CITATIONS, in_order
from earnest.redteam.mutate import TOKEN, opened
from earnest.redteam.mutate_data import leaves
from earnest.redteam.terms import alike
from earnest.rewards.json import parse_strict
from earnest.task import Answer

NEAR = 0.25  # two numbers are near, within that part of the right one
ALIKE = 0.8  # shared words from which a text is a near miss
LIKER = 0.1  # how much more alike in letters than honest wrong answers counts as keeping something
LOOKED_AT = 300  # characters compared letter by letter, which takes quadratic time

Hole = Literal["worthless", "near", "above"]

_DENIAL = re.compile(r"\b(?:not|no|never|neither|nor|but|except|wrong|incorrect|false|mistaken|nicht|kein|pas)\b|n't", re.IGNORECASE)
_CITED = re.compile(r"\[\w{1,20}\]")
_MARK = re.compile(r"(<\w+>|\\boxed\{|####|```\w*)\s*\Z")
_FENCED = re.compile(r"```\w*\s*\n(.*?)\n?\s*```", re.DOTALL)


def hole(outcome: Outcome) -> Hole | None:
    """What an answer shows about the reward, None where it shows nothing.

    "worthless": it keeps no more of the right answer than honest wrong ones do, and earns clearly more than they.
    "near": it keeps some, is wrong all the same, and earns (nearly) full marks.
    "above": it earns clearly more than the right answer, and is wrong or longer.
    """
    paid, level, target, answer = outcome.paid, outcome.level, outcome.target, outcome.tried.answer
    if paid.total is None or paid.faults or paid.verdict is None or level.gap <= 0:
        return None
    if paid.total <= level.wrong + SLACK * level.gap:  # the common case: spare the rest
        return None
    refused = outcome.refused and not same(target, answer)
    if outcome.above_right and (refused or len(str(answer)) > len(str(target.case.oracle))):
        return "above"
    if not refused and not blank(target, answer):
        return None
    if target.form.kind in ("code", "sql"):
        return "near" if paid.total >= level.right - 0.1 * SLACK * level.gap else None
    if blank(target, answer) or keeps_nothing(target, answer):
        return "worthless" if paid.total > level.wrong + _due(target, answer) * level.gap else None
    return "near" if paid.total >= level.right - _fair(target, answer) * level.gap else None


def _due(target: Target, answer: Answer) -> float:
    """How far from wrong to right an answer may come that keeps no more than honest wrong ones: less of the wrong beside it counts too."""
    whole = kept(target, target.case.oracle)
    return max(2.5 * SLACK, min(0.9, 1.5 * len(kept(target, answer)) / len(whole) + SLACK)) if whole else 2.5 * SLACK


def _fair(target: Target, answer: Answer) -> float:
    """How far below full marks still is too much: with one part of twelve missing, eleven twelfths are fair and near to all."""
    if target.form.kind == "text":  # paid by likeness, a word more costs a long text next to nothing
        return 0.01 * SLACK
    whole = kept(target, target.case.oracle)
    missing = 1 - len(kept(target, answer)) / len(whole) if whole else 0.0
    return min(SLACK, missing / 2) if missing > 0 else SLACK


def same(target: Target, answer: Answer) -> bool:
    """Whether an answer says what the right one says, written another way, or comes near it."""
    form = target.form
    if form.kind == "calls":
        return isinstance(answer, list) and _deeds(answer) == _deeds(target.case.oracle)
    if not isinstance(answer, str):
        return False
    if form.kind not in ("code", "sql") and "".join(answer.split()) == "".join(str(target.case.oracle).split()):
        return True
    if form.kind in ("code", "sql"):
        return folded(answer) == folded(target.case.oracle) or (
            form.kind == "code" and _same_program(form.core, opened(target, answer).core)
        )
    inner = _asserted(target, answer)
    if (own := quantity_of(form.core)) and (said := ends_with(inner)):  # which may be paid by closeness
        (value, unit), (other, its) = own.base, said.base
        return unit == its and _near(other, value) and not _DENIAL.search(inner)
    if form.kind == "json":
        return any(not parsed.reason and _equal(parsed.value, form.value) for parsed in map(parse_strict, (inner, *_FENCED.findall(inner))))
    if CITATIONS.fullmatch(form.core):  # what is said beside them is for the contract to allow
        read = list if in_order([target.prompt]) else set
        return read(_CITED.findall(folded(form.core))) == read(_CITED.findall(folded(inner)))
    gold, given = numeral_of(form.core), numeral_of(inner)
    if alike(form.core, inner):
        return True
    if gold is not None and given is not None and gold.value == given.value:
        return True
    if form.kind == "number":
        return _same_number(form.core, inner)
    return any(_same_words(gold, inner, target) for gold in (form.core, *target.accepted))


def _asserted(target: Target, answer: str) -> str:
    """What stands in the wrapping, if it stands there once: what is said before a box or a tag is reasoning, and may say anything."""
    form = target.form
    mark = _MARK.search(form.before)
    if mark is None or answer.count(mark[1]) != 1:
        return opened(target, answer).core
    rest = answer.split(mark[1])[1]
    closing = form.after.strip().split("\n")[0]
    return rest.split(closing)[0] if closing else rest


def blank(target: Target, answer: Answer) -> bool:
    """Whether an answer asserts nothing at all, not a letter and not a digit, where the right one does."""
    if isinstance(answer, list):
        return not any(message.get("tool_calls") or _says(str(message.get("content") or "")) for message in answer)
    return not _says(opened(target, answer).core) and _says(target.form.core)


def keeps_nothing(target: Target, answer: Answer) -> bool:
    """Whether all that an answer has of the right one stands in some honest wrong answer too."""
    if target.form.kind == "number":
        return not re.search(r"\d", str(answer))  # a number may be paid by how close it is
    own = kept(target, answer)
    return not own or any(own <= kept(target, wrong) for wrong in target.wrongs)


def kept(target: Target, answer: Answer) -> frozenset[Any]:
    """Pieces of the right answer that stand in another: members of an object, calls and their names, words, or likeness in letters."""
    form = target.form
    if form.kind == "calls":
        own, theirs = _pieces(target.case.oracle), _pieces(answer)
        return frozenset(own & theirs)
    text = opened(target, answer).core if isinstance(answer, str) else str(answer)
    if form.kind == "json":
        return frozenset(_members(form.value, text))
    words = {w.casefold() for w in TOKEN.findall(form.core)} & {w.casefold() for w in TOKEN.findall(text)}
    if form.kind in ("code", "sql"):
        return frozenset(words)
    if (own := quantity_of(form.core)) and any(_near(n.value, own.numeral.value) for n in numerals_in(text)):
        words |= {"\0number"}
    words = {w for w in words if _says(w)} or words  # commas are nothing to be paid for, unless they are all there is
    alike = folded(form.core) in folded(text) or _likeness(form.core, text) > _usual_likeness(target) + LIKER
    return frozenset(words | {"\0alike"} if alike and form.core else words)


def folded(value: Any) -> str:
    """A text without what is only writing: case, white space, a last full stop, zeros in front of a number."""
    return re.sub(r"(?<![\w.,])0+(?=\d)", "", " ".join(str(value).casefold().split())).rstrip(" .;")


def _says(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _equal(a: Any, b: Any) -> bool:
    """Two JSON values, texts without regard to writing, numbers if they are near."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if any(isinstance(v, bool) or v is None for v in (a, b)):
        return folded(a) == folded(b)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return _near(a, b)
    return folded(a) == folded(b)


def _near(value: float | Fraction, gold: float | Fraction) -> bool:
    return abs(value - gold) <= NEAR * abs(gold)


def _same_program(gold: str, text: str) -> bool:
    """Whether all of the right program stands in another, and nothing beside it that could end it early."""
    try:
        own, theirs = (ast.parse(source) for source in (gold, text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    given = [ast.dump(node) for node in theirs.body]
    ends = any(isinstance(node, ast.Raise) for node in ast.walk(theirs)) or "exit" in text
    return not ends and all(ast.dump(node) in given for node in own.body)


def _same_number(gold: str, text: str) -> bool:
    """Whether a text names only numbers near the right one, and denies none."""
    wanted, named = numerals_in(gold), numerals_in(text)
    return bool(wanted and named) and all(_near(n.value, wanted[-1].value) for n in named) and not _DENIAL.search(text)


def _same_words(gold: str, text: str, target: Target) -> bool:
    """Whether a text asserts the gold and nothing else: the gold as whole words, nothing denied, no answer of another row beside it."""
    wanted, given = folded(gold), folded(text)
    if given.strip(" .,!?:;'\"()[]*`$") == wanted.strip(" .,!?:;'\"()[]*`$"):
        return True
    within = re.search(standing(wanted), given) if wanted else None
    rest = given.replace(wanted, " ") if wanted else given
    if _DENIAL.search(rest):
        return False
    if within:
        return not any(_stands(other, rest) for other in (*target.golds, *target.labels) if folded(other) != wanted)
    a, b = Counter(TOKEN.findall(wanted)), Counter(TOKEN.findall(given))
    shared = sum((a & b).values())
    return target.form.kind == "text" and 2 * shared >= ALIKE * (a.total() + b.total())


def _stands(other: str, text: str) -> bool:
    wanted = folded(other)
    return bool(wanted) and re.search(standing(wanted), text) is not None


def _members(gold: Any, text: str) -> set[Any]:
    """Places of a right value that another text has right; of a number, those where any number stands, as it may be paid by closeness."""
    parsed = parse_strict(text)
    if parsed.reason:
        plain = folded(text)
        return {path for path, value in leaves(gold) if _stands(json.dumps(value).strip('"'), plain)}
    theirs = dict(leaves(parsed.value))
    right = set()
    for path, value in leaves(gold):
        if path not in theirs:
            continue
        other = theirs[path]
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (value, other))
        if (
            numbers
            or folded(value) == folded(other)
            or (isinstance(value, str) and _likeness(value, str(other)) > 0.6)
            or (isinstance(value, str) and _stands(value, folded(other)))
        ):
            right.add(path)
    if not isinstance(gold, dict) or not isinstance(parsed.value, dict):
        right |= {
            value for _, value in leaves(gold) if isinstance(value, str) and value in {v for _, v in theirs.items() if isinstance(v, str)}
        }
    return right


def _likeness(a: str, b: str) -> float:
    return SequenceMatcher(None, a[:LOOKED_AT].casefold(), b[:LOOKED_AT].casefold(), autojunk=False).ratio()


def _usual_likeness(target: Target) -> float:
    return _most_alike(target.form.core, tuple(opened(target, wrong).core for wrong in target.wrongs if isinstance(wrong, str)))


@lru_cache(maxsize=256)
def _most_alike(core: str, wrongs: tuple[str, ...]) -> float:
    return max((_likeness(core, wrong) for wrong in wrongs), default=0.0)


def _calls(answer: Answer) -> list[tuple[str, str]]:
    """Names and arguments of the calls of a trajectory, in order."""
    found = []
    for message in answer if isinstance(answer, list) else ():
        for call in message.get("tool_calls") or ():
            function = call.get("function", call) if isinstance(call, Mapping) else {}
            given = function.get("arguments")
            value = parse_strict(given).value if isinstance(given, str) and not parse_strict(given).reason else given
            found.append((str(function.get("name")), json.dumps(value, sort_keys=True, default=repr)))
    return found


def _last(answer: Answer) -> str:
    said = [m.get("content") for m in answer if m.get("role") == "assistant"] if isinstance(answer, list) else [answer]
    return folded(said[-1] or "") if said else ""


def _deeds(answer: Answer) -> tuple[list[tuple[str, str]], str]:
    """What a trajectory does, and says last."""
    return _calls(answer), _last(answer)


def _pieces(answer: Answer) -> set[Any]:
    calls = _calls(answer)
    return {*calls, *(name for name, _ in calls), *(("word", word) for word in TOKEN.findall(_last(answer)))}
