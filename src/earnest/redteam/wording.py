"""What an audit has to say, in words: the same on the console, in reports, in SARIF and in a test's failure."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earnest.redteam.fold import grouped
from earnest.score import reward_names
from earnest.task import Answer, Task

if TYPE_CHECKING:
    from earnest.redteam.audit import Audit
    from earnest.redteam.baseline import Comparison
    from earnest.redteam.findings import Finding
    from earnest.redteam.policies import Played

CHARACTERS, LINES = 320, 7  # of an example, before its middle is left out
FORMS = {
    "json": "JSON", "label": "a label", "choice": "a letter of choice", "number": "a number", "math": "a formula", "code": "code",
    "sql": "SQL", "text": "free text", "calls": "tool calls and messages",
}  # fmt: skip
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols that look like nothing
_WORD = re.compile(r"\w+")
_BREAKS = frozenset("\n\r\v\f\x85\u2028\u2029")
_RUN = re.compile(r"(.{1,24}?)\1{7,}", re.DOTALL)  # the shortest unit first: "((((" is four brackets, not two pairs
RUN = 32  # characters from which a run is told and not written out
SEARCHED = 400_000  # characters in which runs are looked for
_UNIT = re.compile(r"\[[\d,]+ times [^\]\n]+\]|\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})|.", re.DOTALL)


@dataclass(frozen=True)
class Described:
    """A reward function, as a reader knows it.

    Attributes:
        name: Its name.
        weight: Its weight in the sum.
        says: The first line of its docstring, "" where it has none.
        file: Where it is written; None where nobody can tell.
        line: Its first line there.
    """

    name: str
    weight: float
    says: str
    file: Path | None
    line: int


def described(task: Task) -> list[Described]:
    """A task's reward functions, in order."""
    found = []
    for function, name, weight in zip(task.rewards, reward_names(task.rewards), task.weights, strict=True):
        written = _written(function)
        says = getattr(function, "__doc__", None) if written is function else getattr(written, "__doc__", None)
        try:
            file, line = inspect.getsourcefile(written), inspect.getsourcelines(written)[1]
        except (TypeError, OSError):
            file, line = None, 1
        found.append(Described(name, weight, (says or "").strip().split("\n")[0], Path(file) if file else None, max(1, line)))
    return found


def _written(function: Any) -> Any:
    """What somebody wrote behind a reward: inside partials, decorators, verifiers and objects that can be called."""
    for _ in range(20):  # a decorator may point at itself
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "verifier"):
            function = function.verifier.judge
        elif callable(getattr(function, "written", None)):  # an adapter's, which must not pass for the function by __wrapped__
            function = function.written
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def visible(text: str, ascii_only: bool = False) -> str:
    """Text with everything a reader would not see written as an escape; line breaks stay.

    That is control and format characters, odd spaces, half surrogate pairs, and letters of another script within a Latin word.
    """

    def word(found: re.Match[str]) -> str:
        letters = found.group()
        mixed = any("a" <= c <= "z" or "A" <= c <= "Z" for c in letters)
        return "".join(_escape(c) if mixed and "\u0370" <= c <= "\u052f" else c for c in letters)

    text = _WORD.sub(word, text.replace("\r\n", "\\r\n").replace("\t", "\\t"))
    return "".join(c if c == "\n" or _is_visible(c, ascii_only) else _escape(c) for c in text)


def _is_visible(character: str, ascii_only: bool) -> bool:
    if " " <= character <= "~":
        return True
    kind = unicodedata.category(character)
    selects_variant = kind == "Mn" and unicodedata.name(character, "").startswith("VARIATION SELECTOR")
    return not (ascii_only or kind[0] in "CZ" or selects_variant or character in _BLANKS)


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode("ascii") if character > "~" else f"\\x{ord(character):02x}"


def as_text(answer: Answer) -> str:
    """An answer as one text: a message a line, with its calls, where it is a trajectory."""
    return answer if isinstance(answer, str) else "\n".join(line for message in answer for line in _message(message))


def _message(message: Any) -> list[str]:
    if not isinstance(message, Mapping):
        return [_dumped(message)]
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    who = f"{role} {message['name']}" if isinstance(message.get("name"), str) else f"{role}"
    lines = [f"{who}: {content if isinstance(content, str) else _dumped(content)}"] if content or not calls else []
    for call in calls if isinstance(calls, (list, tuple)) else [calls] if calls else []:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and "name" in function:
            arguments = function.get("arguments")
            lines.append(f"{who} calls {function['name']}({arguments if isinstance(arguments, str) else _dumped(arguments)})")
        else:
            lines.append(f"{who} calls {_dumped(call)}")
    return lines


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, TypeError, RecursionError):
        return f"({type(value).__name__})"  # too deep or too long to be written


def shown(answer: Answer, lines: int = LINES, characters: int = CHARACTERS, ascii_only: bool = False) -> list[str]:
    """An answer as a few lines to look at: runs of one character told, shortened in the middle, nothing invisible in it."""
    text = as_text(answer)
    if not text:
        return ["(empty)"]
    if not text.strip():
        inner = _shorter(visible(_runs_told(text), ascii_only).replace("\n", "\\n"), characters)
        return [f'"{inner}" (white space)']
    text = _runs_told(text)
    bare = text.rstrip("\n")
    found = [_ends(line) for line in _shorter(visible(bare, ascii_only), characters).split("\n")]
    found[-1] += "\\n" * min(3, len(text) - len(bare))
    if len(found) > lines >= 3:
        return [*found[: lines - 2], f"[{len(found) - lines + 1:,} lines]", found[-1]]
    if len(found) > lines:
        return [*found[: lines - 1], f"{found[lines - 1]} [{count(len(found) - lines, 'more line')}]"]
    return found


def _runs_told(text: str) -> str:
    """The same with "[5,000 times (]" in place of as many brackets, and `[2,000 times "not "]` in place of as many words."""

    def told(found: re.Match[str]) -> str:
        run, unit = found.group(), found.group(1)
        if len(run) < RUN:
            return run
        one = "".join(_escape(c) if c in _BREAKS or unit.isspace() else c for c in unit)
        return f"[{len(run) // len(unit):,} times {one if len(unit) == 1 else chr(34) + one + chr(34)}]"

    whole = re.sub(r"(.)\1{99,}", told, text, flags=re.DOTALL)  # the long ones at once, whatever the length
    return _RUN.sub(told, whole[:SEARCHED]) + whole[SEARCHED:]


def quoted(text: str, most: int = 300) -> str:
    """What a reward or its exception said, on one line and as far as a person can read it."""
    return _shorter(" ".join(visible(_runs_told(text)).split()), most)


def _shorter(shown: str, most: int) -> str:
    """Visible text without its middle; an escape counts as it is written, and is never cut."""
    if len(shown) <= most:
        return shown
    units = _UNIT.findall(shown)
    head, tail = _fitting(units, most - most // 4), _fitting(units[::-1], most // 4)
    return f"{''.join(units[:head])} [{len(units) - head - tail:,} characters] {''.join(units[len(units) - tail :])}"


def _fitting(units: Sequence[str], room: int) -> int:
    """How many of the first go into that many characters."""
    return sum(width <= room for width in itertools.accumulate(map(len, units)))


def _ends(line: str) -> str:
    """Spaces at the end of a line, made visible."""
    bare = line.rstrip(" ")
    return bare + "\\x20" * min(3, len(line) - len(bare))


def number(value: float | None) -> str:
    """A reward."""
    if value is None:
        return "no verdict"
    return f"{value:.3g}" if math.isfinite(value) else "-"


def percent(value: float) -> str:
    """A share, "-" where there is none."""
    return f"{value:.0%}".replace("-0%", "0%") if math.isfinite(value) else "-"


def count(many: int, noun: str) -> str:
    """'1 row', '1,200 rows'."""
    return f"{many:,} {noun}" + ("" if many == 1 else "s")


def kind_of(finding: Finding) -> str:
    """What a reader calls it."""
    return {"fact": finding.kind, "lead": "lead", "question": "question"}[finding.certainty]


def who(finding: Finding) -> str:
    """The functions behind it."""
    return ", ".join(finding.rewards) or "the sum"


def earned(finding: Finding) -> str:
    """What the example earned, beside what honest answers do."""
    return f"{number(finding.earned)}, where an honest wrong answer earns {number(finding.wrong)} and the right one {number(finding.right)}"


def hits(finding: Finding) -> str:
    """On how many rows, with the interval, and how far it went."""
    low, high = finding.interval
    text = f"{finding.hits} of {count(finding.tried, 'row')} (95% interval {percent(low)} to {percent(high)})"
    if finding.kind == "exploit" and math.isfinite(finding.share) and finding.share > 0:
        text += f", {percent(finding.share)} of the way to right on average"
    return text


def sentence(finding: Finding) -> str:
    """A finding in one line, for baselines and lists."""
    return f"{kind_of(finding)} {finding.attack} ({who(finding)}): {visible(finding.detail if asks(finding) else finding.flaw)}"


def asks(finding: Finding) -> bool:
    """Whether it is a question to the reader."""
    return finding.certainty == "question" and bool(finding.detail)


def title(finding: Finding, others: Sequence[Finding] = ()) -> str:
    """What a reader is told or asked first, of a finding and those that stand under it."""
    if not asks(finding):
        return finding.flaw
    if not others:
        return finding.detail[:1].upper() + finding.detail[1:]
    how = "with something around them" if finding.reason == "beside" else "written another way"
    return f"Right answers {how} earn too little. Does your contract forbid that?"


def examples(finding: Finding, others: Sequence[Finding] = (), lines: int = LINES, characters: int = CHARACTERS) -> list[str]:
    """What a reader looks at: the example, and of a question that several attacks ask, one of each."""
    if asks(finding) and others:
        return [shown(one.example, 1, 80)[0] for one in (finding, *others)]
    return shown(finding.example, lines, characters)


def played(audit: Audit) -> list[Played]:
    """The scripted policies that this task has a use for."""
    return [policy for policy in audit.board if policy.rows]


def best_cheat(audit: Audit) -> Played | None:
    """The scripted policy without knowledge of the answer that gets furthest; None where none could be played."""
    cheats = [policy for policy in audit.board if policy.cheat and math.isfinite(policy.share)]
    return max(cheats, key=lambda policy: policy.share, default=None)


def gap(audit: Audit) -> str:
    """The distance between the best cheat and the oracle, in a sentence; "" where there is nothing to compare."""
    cheat, oracle = best_cheat(audit), next((policy for policy in audit.board if policy.name == "oracle"), None)
    if cheat is None or oracle is None:
        return ""
    where = f"The best cheat, '{cheat.name}', earns {number(cheat.mean)} where the oracle earns {number(oracle.mean)}"
    if cheat.share >= 1:
        return f"{where}: nothing is gained by being right."
    if cheat.share <= 0:
        return f"{where}: no more than an honest wrong answer, so the whole gap is left to be earned."
    return f"{where}: {percent(cheat.share)} of the way from honest wrong to right, so {percent(1 - cheat.share)} is left to be earned."


def together(audit: Audit) -> Sequence[str]:
    """What the set of rewards lets through, as sentences; none where it was not weighed."""
    return tuple(getattr(getattr(audit, "weighing", None), "sentences", ()) or ())


def verdict(audit: Audit, compared: Comparison) -> str:
    """The whole of it in one sentence."""
    groups = grouped(compared.new)
    new = [first for first, _ in groups]  # the others show nothing that these do not
    attacks = count(len([1 for answers in audit.tried.values() if answers]), "attack")
    exploits = sum(f.certainty == "fact" and f.kind == "exploit" for f in new)
    faults = sum(f.certainty == "fact" and f.kind == "fault" for f in new)
    rejects = sum(f.certainty == "fact" and f.kind == "false reject" for f in new)
    leads, questions = (sum(f.certainty == certainty for f in new) for certainty in ("lead", "question"))
    others = [count(n, noun) for n, noun in ((rejects, "false reject"), (leads, "lead"), (questions, "question")) if n]
    read = f"; read the {_listed(others)} too" if others else ""
    accepted = len(compared.accepted)
    known = f" {count(accepted, 'finding')} in the baseline {'is' if accepted == 1 else 'are'} left aside." if accepted else ""
    if exploits or faults:
        bad = [
            text
            for n, text in ((exploits, f"{count(exploits, 'way')} to be paid without being right"), (faults, count(faults, "fault")))
            if n
        ]
        chance = (
            " Mend the unsteady marks first: what else was found may be chance." if any(f.attack == "fault.unsteady" for f in new) else ""
        )
        return f"Exploitable: {_listed(bad)}. Mend the rewards and run again{read}.{chance}{known}"
    held = "nothing new" if compared.accepted else "nothing proven" if leads else "none was paid for being wrong"
    return f"{'Not exploitable' if rejects else 'Clean'}: {attacks} on {count(audit.rows[0], 'row')}, {held}{read}.{known}"


def _listed(texts: Sequence[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
