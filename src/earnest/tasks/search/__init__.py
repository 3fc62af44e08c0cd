"""Questions over a local corpus: the model searches once or twice, reads, and answers with a name or a number."""

from __future__ import annotations

from pathlib import Path

from earnest.rewards.calls import as_messages
from earnest.rewards.verifier import as_reward
from earnest.task import Limits, Message, Row, Task
from earnest.tasks.search.check import check
from earnest.tasks.search.rewards import reward
from earnest.tools import read_documents, search_tool

SYSTEM = (
    "Find the answer with the tool search. Where the first search only names what you need, search for that too. "
    "Answer with the name or number alone."
)


def prompt(row: Row) -> list[Message]:
    """The job, then the question."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}]


def oracle(row: Row) -> list[Message]:
    """The names that lead to the answer, searched one after the other."""
    return as_messages([("search", {"query": query}) for query in row["queries"]], answer=row["answer"])


task = Task(
    name="search",
    rows="data",
    prompt=prompt,
    rewards=[as_reward(reward)],
    check=check,
    oracle=oracle,
    tools=[search_tool(read_documents(Path(__file__).parent / "corpus" / "documents.jsonl"))],
    limits=Limits(turns=6, calls=6),
    slices={"hops": lambda row: str(row["hops"]), "kind": lambda row: row["kind"]},
)
