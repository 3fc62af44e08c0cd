"""CloudLedger's billing desk: a customer writes, the model looks things up, refunds, changes plans or passes the case to a person."""

from __future__ import annotations

import json
from collections.abc import Sequence

from earnest.errors import UserError
from earnest.task import Limits, Message, Row, Task
from earnest.tasks.billing_agent.check import check
from earnest.tasks.billing_agent.families import DATA, FAMILIES, SPLITS
from earnest.tasks.billing_agent.policies import POLICIES, oracle
from earnest.tasks.billing_agent.rewards import billing
from earnest.tasks.billing_agent.tools import BillingDesk, Lookup

LOOKUP = ("unpaid", "paid")  # find the customer, list something, answer: the least that a small model has to learn

DOING = ("random", "always hand off", "never hand off", "refund everything")  # policies for which looking is not enough

SYSTEM = (
    'CloudLedger billing desk. Find the customer, use the tools, end with {"answer": "49.00"}, {"answer": "INV-104"} or '
    '{"answer": "seats 9.00"}; "0.00" for nothing. Months are in the customer\'s time zone. Of two charges refund the later, and only '
    "what is asked. Refunds above 50.00 need approval first; refused, refund nothing. Legal threats, fraud and deletion of data: hand off, "
    'then {"answer": "handed off"}.'
)
SHORT = 'CloudLedger billing desk. Find the customer, list, end with {"answer": "49.00"} or {"answer": "INV-104"}.'


def billing_task(families: Sequence[str] = FAMILIES, name: str = "billing_agent") -> Task:
    """The task with some of its families.

    Where all of them only look things up, the model gets no other tools, and a shorter prompt.

    Args:
        families: Which; see `FAMILIES`.
        name: Name in reports.

    Raises:
        UserError: A family that there is not.
    """
    if unknown := [family for family in families if family not in FAMILIES] or not families:
        raise UserError(f"There is no family {unknown!r}. Give one or more of: {', '.join(FAMILIES)}.")
    only_looks = set(families) <= {"unpaid", "paid", "double"}

    def prompt(row: Row) -> list[Message]:
        """The rules, the same for every row so that all rollouts share them, with the tools behind them; then the mail."""
        mail = f"{row['email']}, {row['today']}: {row['question']}"
        return [{"role": "system", "content": SHORT if only_looks else SYSTEM}, {"role": "user", "content": mail}]

    return Task(
        name=name,
        rows={split: rows_in(split, families) for split in SPLITS},
        prompt=prompt,
        rewards=[billing],
        check=check,
        oracle=oracle,
        environment=Lookup if only_looks else BillingDesk,
        limits=Limits(turns=8, calls=10, seconds=5.0),
        policies={name: policy for name, policy in POLICIES.items() if not (only_looks and name in DOING)},
        needs_human=lambda row: row["needs_human"],
        slices={"family": lambda row: row["family"]},
    )


def rows_in(split: str, families: Sequence[str] = FAMILIES) -> list[Row]:
    """The rows of a split that belong to these families."""
    rows = [json.loads(line) for line in (DATA / f"{split}.jsonl").read_text().splitlines()]
    return [row for row in rows if row["family"] in families]


task = billing_task()
lookup = billing_task(LOOKUP, "lookup")
