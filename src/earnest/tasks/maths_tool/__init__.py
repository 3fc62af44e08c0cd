"""Word problems with a calculator: the model writes a line of Python, reads what it prints, and answers with the number."""

from __future__ import annotations

from earnest.rewards.calls import as_messages
from earnest.rewards.verifier import as_reward
from earnest.task import Limits, Message, Row, Task
from earnest.tasks.maths_tool.check import check
from earnest.tasks.maths_tool.rewards import reward
from earnest.tools import python_tool

SYSTEM = "Solve the problem. Let the tool python do the arithmetic, then answer with the number alone."


def prompt(row: Row) -> list[Message]:
    """The job, then the problem."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}]


def oracle(row: Row) -> list[Message]:
    """One line of Python, then the answer as the row has it, so that a wrong code or a wrong answer shows."""
    return as_messages([("python", {"code": row["code"]})], answer=str(row["answer"]))


task = Task(
    name="maths_tool",
    rows="data",
    prompt=prompt,
    rewards=[as_reward(reward)],
    check=check,
    oracle=oracle,
    tools=[python_tool()],
    limits=Limits(turns=5, calls=6, seconds=30.0),  # of a call, while many programs share few cores; alone it is cut after 2 s
    slices={"family": lambda row: row["family"]},
)
