"""What other libraries hand to their rewards beside the answer, in the least form that their rewards read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from earnest.task import Message, Row


@dataclass(frozen=True)
class Sample:
    """One answer, and all that is known of its row.

    Attributes:
        prompt: The chat messages before it.
        completion: Its messages.
        text: What its last message says.
        row: The row's columns.
        gold: The right answer.
    """

    prompt: list[Message]
    completion: list[Message]
    text: str
    row: Row
    gold: Any


def state_of(s: Sample) -> dict[str, Any]:
    """The state of a verifiers rollout that has ended: the row, the messages, the right answer."""
    info = s.row.get("info")
    return {
        **s.row,
        "prompt": s.prompt,
        "completion": s.completion,
        "answer": s.gold if s.gold is not None else "",
        "info": info if info is not None else {},
        "task": s.row.get("task", "default"),
        "turn": 1,
        "trajectory": [],
        "responses": [],
        "is_completed": True,
    }


class Parser:
    """The little of a verifiers parser that reward functions use: what stands in the last <answer>, else what follows the thinking."""

    def parse(self, text: str) -> str:
        """The answer in a text."""
        found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
        return (found[-1] if found else text.rpartition("</think>")[2]).strip()

    def parse_answer(self, completion: Any) -> str:
        """The answer in a completion, text or messages."""
        if isinstance(completion, str):
            return self.parse(completion)
        said = self.get_assistant_messages(completion)
        return self.parse(said[-1].get("content") or "") if said else ""

    def get_assistant_messages(self, completion: Sequence[Message]) -> list[Message]:
        """What the model wrote."""
        return [m for m in completion if m.get("role") == "assistant"]


class Action(str):
    """An OpenEnv action that is a text, under each of the names that environments give it."""

    def __new__(cls, text: str) -> Action:
        """The text itself, with attributes."""
        made = super().__new__(cls, text)
        for name in ("content", "message", "text", "code", "answer", "response", "completion", "output", "query", "command"):
            setattr(made, name, text)
        made.metadata = {}
        return made


class Goal(tuple):
    """An Inspect target: a sequence of texts, and all of them as one."""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self)

    @property
    def target(self) -> list[str]:
        """The texts."""
        return list(self)


def observation_of(s: Sample) -> SimpleNamespace:
    """An OpenEnv observation after the only step: the row's columns as attributes."""
    own = {"done": True, "reward": None, "metadata": dict(s.row), "prompt": s.prompt, "text": s.text}
    return SimpleNamespace(**{**own, **{name: value for name, value in s.row.items() if name.isidentifier()}})


def inspect_state(s: Sample) -> SimpleNamespace:
    """The state of an Inspect sample that has ended."""
    messages = [SimpleNamespace(role=m.get("role"), content=m.get("content"), text=m.get("content")) for m in (*s.prompt, *s.completion)]
    asked = [m for m in messages if m.role == "user"]
    question = asked[-1].content if asked else ""
    metadata = s.row.get("metadata")
    return SimpleNamespace(
        output=SimpleNamespace(completion=s.text, message=messages[-1] if messages else None, choices=[], stop_reason="stop"),
        messages=messages,
        input=question,
        input_text=question,
        user_prompt=asked[-1] if asked else None,
        metadata=metadata if isinstance(metadata, Mapping) else dict(s.row),
        sample_id=s.row.get("id"),
        choices=s.row.get("choices") or [],
        store={},
        completed=True,
    )
