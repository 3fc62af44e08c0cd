"""Getting a program out of an answer, and calling its functions in a jail.

Why no answer can forge its way to full marks: the process in which it runs is sent a function's name and its arguments and nothing
else. Whatever it does there (print a verdict, leave early, patch a module, walk frames, write to the parent's pipe), all it can
change is which value the parent reads; the parent then compares that value, as data, with one that never left it. Every test has
to be answered with its right value; no answer, two answers and an answer of another type are wrong ones. So full marks need the
right value for each input, and saying the right value for an input nobody was shown is what the task asked for.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from earnest.errors import UserError
from earnest.rewards.code_child import READY, encode
from earnest.rewards.code_compare import canonical
from earnest.rewards.json import parse_strict
from earnest.rewards.verifier import Score, infra_error, wrong
from earnest.sandbox import Limits, Result, Sandbox, find_sandbox

CHILD = Path(__file__).with_name("code_child.py").read_text(encoding="utf-8")
READY_LINE = f'"{READY}"\n'
MARSHAL = 4  # the version that every Python a jail may have can read
LIMITS = Limits()
RAISED = ("raised", "message", "module", "base")  # what is said of an exception
MAX_DEPTH = 200  # brackets: an encoded mapping takes three for each of its levels
Fence = Literal["none", "only", "anywhere"]
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
PYTHON = ("", "python", "python3", "py")

# How a run that gave no answer is named, for those statuses that an answer can cause.
ENDINGS = {
    "timeout": "timeout: it ran out of time",
    "memory": "memory: it used more than allowed",
    "output": "output: it wrote more than allowed",
    "killed": "killed: it crashed or was stopped",
}


@dataclass(frozen=True)
class Program:
    """The source in an answer, or why there is none."""

    source: str
    reason: str = ""


def extract_code(text: str, fence: Fence = "none", max_characters: int = 50_000) -> Program:
    """The one program in an answer.

    Args:
        text: What the model wrote.
        fence: "none": the whole text is the program. "only": the whole text is one fenced block. "anywhere": there may be prose
            around it. More than one block is refused, since nobody can say which is the answer; so is one that is never closed,
            or is marked as another language. An answer that ends with its only fence is the inside of a block that the prompt opened.
            Fences are those of CommonMark: three or more backticks or tildes.
        max_characters: Longest text that is looked at.

    Returns:
        The source, or an empty one and the reason.
    """
    if len(text) > max_characters:
        return Program("", "the answer is too long")
    if fence != "none":
        program = _fenced(text, fence)
        if program.reason:
            return program
        text = program.source
    if not text.strip():
        return Program("", "the answer holds no code")
    try:
        text.encode()
    except UnicodeEncodeError:
        return Program("", "the answer is no Unicode text")
    return Program("", "the answer holds a null character") if "\0" in text else Program(text)


def _fenced(text: str, fence: Fence) -> Program:
    blocks: list[tuple[str, list[str]]] = []
    outside: list[str] = []
    mark = ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line.rstrip("\r\n"))
        if mark:
            if found and found[1].startswith(mark) and not found[2].strip():
                mark = ""
            else:
                blocks[-1][1].append(line)
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            mark = found[1]
            blocks.append((found[2].strip().lower(), []))
        else:
            outside.append(line)
    if len(blocks) != 1:
        return Program("", "the answer has no fenced block" if not blocks else "the answer has more than one fenced block")
    language, lines = blocks[0]
    if mark and not language and not lines and "".join(outside).strip():
        return Program("".join(outside))  # the prompt had opened the block, and the answer closes it
    if mark:
        return Program("", "the fenced block is never closed")
    if language not in PYTHON:
        return Program("", "the fenced block is not marked as Python")
    if fence == "only" and "".join(outside).strip():
        return Program("", "there is text around the fenced block")
    return Program("".join(lines))


@dataclass(frozen=True)
class Call:
    """One call of an answer's function: its name, and its arguments as encoded trees (a list, and a dict with names as keys)."""

    function: str
    args: Any
    kwargs: Any

    @staticmethod
    def of(function: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = MappingProxyType({})) -> Call:
        """A call with plain arguments.

        Raises:
            NotPlainError: An argument is no plain data.
        """
        return Call(function, encode(list(args)), encode(dict(kwargs)))

    @property
    def key(self) -> str:
        """The same for the same call."""
        return canonical([self.function, self.args, self.kwargs])


@dataclass(frozen=True)
class Outcome:
    """What a call came to.

    Attributes:
        kind: "value", "raised" (an exception of its own), "failed" (anything else that the answer caused) or "infra_error".
        value: The encoded value, for "value".
        detail: The exception's name, or what failed.
        message: What the exception said.
        module: Where the exception's class says that it is defined.
        base: The first of Python's own classes that it derives from.
        truth: What a value that is no plain data counts as in a condition, for "failed".
    """

    kind: Literal["value", "raised", "failed", "infra_error"]
    value: Any = None
    detail: str = ""
    message: str = ""
    module: str = ""
    base: str = ""
    truth: bool | None = None

    @property
    def problem(self) -> str:
        """Why there is no value."""
        if self.kind == "raised":
            return f"ran out of memory ({self.detail})" if self.detail == "MemoryError" else f"raised {self.detail}"
        return self.detail


@dataclass
class Runner:
    """A sandbox and what one attempt may use of it.

    Attributes:
        sandbox: Where programs run.
        limits: What each process may use.
        left: Seconds that the attempt's processes may still run, all together; waiting for a place is nobody's fault.
    """

    sandbox: Sandbox
    limits: Limits
    left: float

    def run(self, program: str, files: Mapping[str, str | bytes] | None = None, stdin: str | bytes = b"") -> Result:
        """Run one process within what is left of the attempt's time."""
        late = Result("timeout", stdout=READY_LINE, stderr=READY_LINE, isolation=self.sandbox.isolation)
        left = self.left
        if left <= 0:
            return late
        try:
            result = self.sandbox.run(program, files=files, stdin=stdin, limits=replace(self.limits, wall=min(left, self.limits.wall)))
        except OSError as error:
            return Result("infra_error", stderr=str(error), isolation=self.sandbox.isolation)
        self.left -= result.charged  # not `seconds`: beside many others a process takes longer, which is not its fault
        # An answer that leaves its last process too little time to start has caused that itself.
        return late if result.status == "timeout" and left < self.limits.wall else result

    def calls(self, source: str, calls: Sequence[Call]) -> list[Outcome]:
        """Call an answer's functions, one after another, in one process of its own."""
        request = {"source": source, "calls": [(call.function, call.args, call.kwargs) for call in calls]}
        result = self.run(f"{CHILD}\ncall()\n", stdin=marshal.dumps(request, MARSHAL))
        if unstarted(result, result.stdout):
            return [Outcome("infra_error", detail=unstarted(result, result.stdout))] * len(calls)
        ending = Outcome("failed", detail="it ended before it answered")
        lines = [line for line in result.stdout[len(READY_LINE) :].split("\n") if line]
        if result.status != "ok":  # the call in which it ended has no outcome, and a line cut off in the middle is none
            ending = Outcome("failed", detail=ENDINGS.get(result.status, "it ended with an error"))
            lines = lines[: -1 if not result.stdout.endswith("\n") else None][: len(calls) - 1]
        outcomes = [_outcome(line, self.limits.output) for line in lines]
        if result.status == "ok" and len(lines) == 1 and outcomes[0].kind == "failed":  # one for all when the program cannot be loaded
            return outcomes * len(calls)
        if len(lines) > len(calls):
            return [Outcome("failed", detail="it wrote more than one answer")] * len(calls)
        return outcomes + [ending] * (len(calls) - len(lines))


def unstarted(result: Result, said: str) -> str:
    """Why the answer never began to run, which it cannot have caused; "" when it did.

    Args:
        result: What the sandbox says.
        said: The stream on which the process says that it is ready before it loads the answer.
    """
    if result.status == "infra_error":
        return f"the sandbox failed: {result.stderr.strip()[-200:] or 'no reason given'}"
    return "" if said.startswith(READY_LINE) else f"the sandbox did not start Python ({result.status}): {result.stderr.strip()[-200:]}"


def _outcome(line: str, max_characters: int) -> Outcome:
    parsed = parse_strict(line, max_characters, MAX_DEPTH)
    said = parsed.value if isinstance(parsed.value, dict) else {}
    texts = {name: str(said[name])[:200] for name in (*RAISED, "failed", "unloadable") if isinstance(said.get(name), str)}
    if said.keys() == {"value"}:
        return Outcome("value", said["value"])
    if said.keys() == set(RAISED) == texts.keys():
        module, base = printable(texts["module"]), printable(texts["base"])
        return Outcome("raised", detail=printable(texts["raised"]), message=texts["message"], module=module, base=base)
    if said.keys() in ({"failed"}, {"failed", "truth"}) and texts:
        truth = said.get("truth")
        return Outcome("failed", detail=printable(texts["failed"]), truth=truth if isinstance(truth, bool) else None)
    if said.keys() == {"unloadable"} and texts:
        return Outcome("failed", detail=f"the program cannot be loaded ({printable(texts['unloadable'])})")
    return Outcome("failed", detail="what it sent back cannot be read")


def printable(text: str) -> str:
    """A text from the jail, fit for one line of a log."""
    return "".join(c if c.isprintable() else "?" for c in text)[:120]


@dataclass(frozen=True)
class Setting:
    """What the verifiers of this kind have in common.

    Attributes:
        sandbox: Where programs run; None looks for the best there is when the first answer comes.
        limits: What each process may use.
        seconds: How long all processes of one attempt may take together, as the sandbox charges it.
        fence: Where the program stands in the answer.
        max_characters: Longest answer that is looked at.
    """

    sandbox: Sandbox | None
    limits: Limits
    seconds: float
    fence: Fence
    max_characters: int

    def judge(self, text: str, rule: Callable[[str, Runner], Score]) -> Score:
        """Extract the program and score it; without a sandbox or without a program the rule is never asked."""
        try:
            sandbox = self.sandbox or find_sandbox()
        except (UserError, OSError) as error:
            return infra_error(f"there is no sandbox: {error}")
        program = extract_code(text, self.fence, self.max_characters)
        if program.reason:
            return wrong(program.reason, isolation=sandbox.isolation)
        score = rule(program.source, Runner(sandbox, self.limits, self.seconds))
        return replace(score, evidence={**score.evidence, "isolation": sandbox.isolation})
