"""A specimen: a small task with a reward that is known to be defective, or known to be sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from earnest.task import Answer, Message, RewardFunction, Row, Task, Verdict

Expect = Literal["exploit", "fault", "false reject", "clean"]
Half = Literal["seen", "unseen"]


@dataclass(frozen=True)
class Specimen:
    """A task, and what the red team must say of it.

    Attributes:
        name: Unique.
        family: What it is about, in the catalog's words.
        half: Whether it may be looked at while attacks are written.
        task: Rows, prompt, rewards, a strict check, an oracle.
        flaw: What is wrong with the reward, in one sentence; "" for a sound one.
        expect: Kind of the finding; "clean" for none.
        source: Where such a reward was seen.
    """

    name: str
    family: str
    half: Half
    task: Task
    flaw: str = ""
    expect: Expect = "clean"
    source: str = "constructed"


Make = Callable[..., Specimen]


def makers(family: str) -> tuple[Make, Make]:
    """How a family writes down its defective and its sound specimens: both take name, half, base task and rewards."""

    def bad(name: str, half: Half, base: Task, rewards: Any, flaw: str, source: str, expect: Expect = "exploit", **more: Any) -> Specimen:
        return Specimen(name, family, half, _task(name, base, rewards, more), flaw, expect, source)

    def good(name: str, half: Half, base: Task, rewards: Any, source: str = "constructed", **more: Any) -> Specimen:
        return Specimen(name, family, half, _task(name, base, rewards, more), source=source)

    return bad, good


def _task(name: str, base: Task, rewards: RewardFunction | Sequence[RewardFunction], more: dict[str, Any]) -> Task:
    return replace(base, name=name, rewards=list(rewards) if isinstance(rewards, (list, tuple)) else [rewards], **more)


def task(
    rows: Sequence[Row],
    prompt: Callable[[Row], list[Message]],
    check: Callable[[Any, Row], Verdict | bool],
    oracle: Callable[[Row], Answer],
    **more: Any,
) -> Task:
    """A task that has no rewards yet."""
    return Task(rows=list(rows), prompt=prompt, rewards=[], check=check, oracle=oracle, **more)


def ask(user: str, system: str = "") -> list[Message]:
    """A prompt."""
    return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": user}]


def play(*steps: tuple[str, dict[str, Any], Any] | str) -> list[Message]:
    """Messages of a trajectory: a step is a tool's name, its arguments and its answer, or a text that the model writes."""
    messages: list[Message] = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            messages.append({"role": "assistant", "content": step})
            continue
        name, arguments, result = step
        call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "name": name, "content": result})
    return messages
