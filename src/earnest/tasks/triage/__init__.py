"""Triage of support tickets: read a ticket, answer with a category, two yes-or-no questions and an urgency, as JSON."""

from __future__ import annotations

import json

from earnest.errors import UserError
from earnest.task import Message, Row, Task
from earnest.tasks.triage.check import check
from earnest.tasks.triage.rewards import CATEGORIES, URGENCIES, category_reward, format_reward, length_penalty

# Short on purpose: every rollout pays for it, and a 135M model on a laptop gains nothing from a longer one.
SYSTEM = (
    "Sort the support ticket. Answer only with one JSON object of four fields: "
    '"category" (billing, refund, invoice, account, technical, plan_change, api or other), "needs_account_data" (true or false), '
    '"needs_human" (true or false), "urgency" (low, medium or high).'
)


def prompt(row: Row) -> list[Message]:
    """The format and the allowed values, the same for every row, then the ticket."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ticket(row)}]


def ticket(row: Row) -> str:
    """Subject, if there is one, and body."""
    return "\n".join(part for part in (row.get("subject"), row.get("body")) if part)


def labels(row: Row) -> list[str]:
    """The acceptable categories, best first; empty when the row has no usable gold."""
    gold = row.get("gold")
    gold = [gold] if isinstance(gold, str) else gold
    return list(gold) if isinstance(gold, (list, tuple)) and all(label in CATEGORIES for label in gold) else []


def oracle(row: Row) -> str:
    """The gold answer as a perfect model would write it. A field without gold is filled with false, false or "low".

    Raises:
        UserError: The row has no gold category.
    """
    if not labels(row):
        raise UserError(f"Row {row.get('id')!r} has no usable gold category. Give gold one or more of: {', '.join(CATEGORIES)}.")
    answer = {
        "category": labels(row)[0],
        "needs_account_data": row.get("needs_account_data") is True,
        "needs_human": row.get("needs_human") is True,
        "urgency": row["urgency"] if row.get("urgency") in URGENCIES else "low",
    }
    return json.dumps(answer)


def needs_human(row: Row) -> bool | None:
    """Whether a person must take the ticket; None where the row does not say."""
    value = row.get("needs_human")
    return value if isinstance(value, bool) else None


def language(row: Row) -> str:
    """Language of the ticket."""
    return str(row.get("language") or "unknown")


def category(row: Row) -> str:
    """The best category."""
    return (labels(row) or ["unknown"])[0]


task = Task(
    name="triage",
    rows="data",
    prompt=prompt,
    rewards=[format_reward, category_reward, length_penalty],
    check=check,
    oracle=oracle,
    needs_human=needs_human,
    slices={"language": language, "category": category},
    baseline_text=lambda row: (ticket(row), labels(row)),
)
