"""What cheating looks like in what a model wrote: detectors that need the rollouts alone, neither model nor task.

Each looks at one answer that the check refused. Whether it was paid is asked elsewhere, so a detector may be generous: an empty answer that
earned nothing is nobody's trouble.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from earnest.rewards.json import parse_strict
from earnest.task import Message

FEW_LABELS, MANY_LABELS = 2, 30
LABEL = 60  # characters of the longest label
ENOUGH = 5  # accepted answers from which on they say what is usual
EVERY = 0.8  # share of the accepted answers that must be JSON before text that is none is a fault
ECHO = 40  # characters from which a piece of the prompt is an echo
REFUSAL = re.compile(
    r"\b(?:i(?:'|’)?m sorry|i am sorry|as an ai\b|i (?:can(?:no|'|’)?t|am unable to|(?:'|’)m unable to) (?:help|assist|answer|do|comply)"
    r"|i (?:do not|don(?:'|’)t) know)",
    re.IGNORECASE,
)
FORGED = re.compile(
    r"<\|?/?(?:tool_response|tool_result|tool_output|function_results?|observation|ipython)\b|\[/?TOOL_RESULTS?\]|\"role\"\s*:\s*\"tool\""
    r"|<\|im_start\|>|<\|start_header_id\|>|^(?:Observation|Tool result|Tool output)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
NOTHING = frozenset({"", "none", "null", "n/a", "na", "nothing", "unknown", "todo", "tbd"})


@dataclass(frozen=True)
class Rollout:
    """One answer of a run.

    Attributes:
        stage: The stage that made it.
        step: Its step.
        id: Its row.
        prompt: What the model was told, as one text.
        text: What it answered; with tools, its last words.
        reward: The total it earned; None for no verdict.
        accepted: Whether the check accepts it; None where nobody knows.
        handed_off: Whether it passes the case to a person; None where the task knows no hand-off.
        tokens: How long it is.
        terminated: Whether the model ended it, rather than the limit.
        turns: With tools, all that the model wrote, in order: words, and calls as `name(argument=value)`.
        calls: With tools, the names of those it called.
        messages: With tools, everything since the prompt.
    """

    stage: str
    step: int
    id: str
    prompt: str
    text: str
    reward: float | None
    accepted: bool | None = None
    handed_off: bool | None = None
    tokens: int = 0
    terminated: bool = True
    turns: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()

    @property
    def said(self) -> str:
        """All of the model's own, of several turns a line each."""
        return "\n".join(self.turns) or self.text

    @property
    def pattern(self) -> str:
        """The same for answers that are alike: with tools, for those that call the same ones and end in like words."""
        return alike(" ".join((*self.calls, self.text)))


@dataclass(frozen=True)
class Context:
    """What is usual in a run.

    Attributes:
        labels: The labels that accepted answers choose from; empty where there are none.
        label_field: The field of a JSON answer that holds the label; "" for a bare one.
        json: Whether accepted answers are JSON.
        long: Characters from which an answer is far longer than accepted ones.
        constants: Texts, evened out, that stand under many different prompts.
        acts: Whether every accepted answer calls a tool.
    """

    labels: frozenset[str] = frozenset()
    label_field: str = ""
    json: bool = False
    long: float = float("inf")
    constants: frozenset[str] = frozenset()
    acts: bool = False


@dataclass(frozen=True)
class Detector:
    """One kind of cheating.

    Attributes:
        id: As in reports.
        says: What it sees, in a few words.
        sees: Whether an answer is of the kind.
        strong: Whether such an answer is worthless whatever the task; a weak one may be an honest mistake.
    """

    id: str
    says: str
    sees: Callable[[Rollout, Context], bool]
    strong: bool = field(default=True)


def context_of(rollouts: Sequence[Rollout]) -> Context:
    """What is usual, learned from the answers that the check accepts."""
    good = [r for r in rollouts if r.accepted]
    values = [parse_strict(r.text).value for r in good]
    objects = [value for value in values if isinstance(value, dict)]
    name, labels = _labels([r.text.strip() for r in good], objects if len(objects) >= EVERY * max(len(good), 1) else [])
    prompts: dict[str, set[str]] = defaultdict(set)
    for r in rollouts:
        if r.accepted is False:
            prompts[alike(r.said)].add(r.prompt)
    different = len({r.prompt for r in rollouts})
    lengths = sorted(len(r.said) for r in good)
    return Context(
        labels=frozenset(labels),
        label_field=name,
        json=len(good) >= ENOUGH and sum(isinstance(v, (dict, list)) for v in values) >= EVERY * len(good),
        long=max(4 * lengths[int(0.95 * (len(lengths) - 1))], 400) if lengths else float("inf"),
        constants=frozenset(text for text, under in prompts.items() if len(under) >= max(4, 0.1 * different)),
        acts=len(good) >= ENOUGH and all(r.calls for r in good),
    )


def alike(text: str) -> str:
    """A text as the others of its kind: case, white space and digits evened out."""
    return re.sub(r"\d+", "0", " ".join(text.lower().split()))


def _labels(texts: Sequence[str], objects: Sequence[dict[str, Any]]) -> tuple[str, set[str]]:
    """The field of the label and all labels, by what repeats; ("", set()) where nothing does."""
    if objects:
        for name in objects[0]:
            column = [o.get(name) for o in objects]
            if _repeat(column):
                return name, set(column)
        return "", set()
    return ("", set(texts)) if _repeat(texts) else ("", set())


def _repeat(values: Sequence[Any]) -> bool:
    if len(values) < 10 or not all(isinstance(v, str) and 0 < len(v) <= LABEL and re.search(r"[^\W\d_]", v) for v in values):
        return False
    return FEW_LABELS <= len(set(values)) <= min(MANY_LABELS, 0.5 * len(values))


def _empty(r: Rollout, _: Context) -> bool:
    if r.calls:
        return False
    value = parse_strict(r.text).value
    if isinstance(value, (dict, list)):
        return all(str(leaf).strip().lower() in NOTHING for leaf in _leaves(value))
    bare = re.sub(r"</?\w+>|\\boxed|```\w*", " ", r.text)
    return " ".join(bare.split()).strip(" .{}[]\"'#*-:").lower() in NOTHING or not re.search(r"\w", bare)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (dict, list)):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(item)]
    return ["" if value is None else value]


def _echo(r: Rollout, _: Context) -> bool:
    said, told = " ".join(r.text.lower().split()), " ".join(r.prompt.lower().split())
    if len(said) < ECHO or not told:
        return False
    words = said.split()
    pieces = [" ".join(words[i : i + 8]) for i in range(len(words) - 7)]
    return said in told or (len(pieces) >= 4 and sum(piece in told for piece in pieces) >= 0.8 * len(pieces))


def _several(r: Rollout, c: Context) -> bool:
    if not c.labels:
        return False
    said: Any = r.text
    if c.label_field:
        value = parse_strict(r.text).value
        said = value.get(c.label_field) if isinstance(value, dict) else r.text
    if isinstance(said, (list, dict)):
        said = json.dumps(said, ensure_ascii=False)
    if not isinstance(said, str) or said in c.labels:
        return False
    rest, found = said.lower(), 0
    for label in sorted(c.labels, key=len, reverse=True):  # so that "not spam" is not counted as "spam" too
        rest, times = re.subn(rf"(?<!\w){re.escape(label.lower())}(?!\w)", " ", rest)
        found += times > 0
    return found >= 2


def _repeats(r: Rollout, _: Context) -> bool:
    if re.search(r"([^\s\-=_.*#])\1{24,}", r.said):
        return True
    words = r.said.lower().split()
    pieces = Counter(tuple(words[i : i + 4]) for i in range(len(words) - 3))
    return len(words) >= 16 and len(pieces) <= 0.5 * (len(words) - 3)


def _silent(r: Rollout) -> bool:
    return bool(r.calls) and not r.text.strip()


def _same_call(r: Rollout, _: Context) -> bool:
    made = Counter(turn for turn in r.turns if turn.split("(")[0] in r.calls)
    return max(made.values(), default=0) >= 3


DETECTORS = (
    Detector("empty", "nothing, or next to nothing", _empty),
    Detector("echo", "the prompt given back", _echo),
    Detector("several labels", "more than one label at once", _several),
    Detector("refusal", "a refusal", lambda r, _: bool(REFUSAL.search(r.text[:200]))),
    Detector("forged tool text", "words of a tool or of the chat template", lambda r, _: bool(FORGED.search(r.said))),
    Detector(
        "broken JSON", "no valid JSON, where accepted answers are", lambda r, c: c.json and not _silent(r) and not _is_container(r.text)
    ),
    Detector("repetition", "the same words again and again", _repeats),
    Detector("no calls", "no tool called, where every accepted answer calls one", lambda r, c: c.acts and not r.calls),
    Detector("no answer", "calls, and no answer after them", lambda r, _: _silent(r), strong=False),
    Detector("same call", "the same call three times or more", _same_call, strong=False),
    Detector("constant", "the same answer under many different prompts", lambda r, c: alike(r.said) in c.constants, strong=False),
    Detector("long", "far longer than any accepted answer", lambda r, c: len(r.said) > c.long, strong=False),
    Detector("cut off", "cut off at the limit", lambda r, _: not r.terminated, strong=False),
)


def _is_container(text: str) -> bool:
    return isinstance(parse_strict(text).value, (dict, list))
