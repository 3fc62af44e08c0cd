"""Scripted policies: what a perfect desk does, and what lazy or greedy ones would earn."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from earnest.rewards.calls import as_messages
from earnest.task import Message, Row
from earnest.tasks.billing_agent.tools import REASONS, BillingDesk

Call = tuple[str, dict[str, Any]]


def said(answer: str) -> str:
    """An answer in the required form."""
    return json.dumps({"answer": answer})


def oracle(row: Row) -> list[Message]:
    """Exactly the calls that are needed, and the right answer."""
    return as_messages([(name, arguments) for name, arguments in json.loads(row["script"])], answer=said(row["answer"]))


def always_hand_off(row: Row) -> list[Message]:
    """Finds the customer and hands off, for the row's reason or a legal one."""
    reason = {"customer": row["customer"], "reason": row["reason"] or "legal"}
    return as_messages([_find(row), ("hand_off", reason)], answer=said("handed off"))


def never_hand_off(row: Row) -> list[Message]:
    """Perfect, but answers what should go to a person."""
    if not row["needs_human"]:
        return oracle(row)
    return as_messages([_find(row), ("list_invoices", {"customer": row["customer"]})], answer=said("0.00"))


def refund_everything(row: Row) -> list[Message]:
    """Refunds whatever it can, then says the right answer.

    It refunds in full, and asks for approval where that is needed.
    """
    desk = BillingDesk()
    desk.reset(row["seed"])
    calls: list[Call] = [_find(row), ("list_payments", {"customer": row["customer"]})]
    rows = desk.db.execute(
        "SELECT p.id, printf('%.2f', p.cents / 100.0), p.cents > 5000 FROM payments p JOIN invoices i ON i.id = p.invoice "
        "WHERE i.customer = ? AND p.status = 'ok' ORDER BY p.rowid",
        (row["customer"],),
    )
    for payment, amount, large in rows:
        arguments = {"payment": payment, "amount": amount}
        calls += [("request_approval", arguments), ("refund_payment", arguments)] if large else [("refund_payment", arguments)]
    return as_messages(calls, answer=said(row["answer"]))


def claim(row: Row) -> str:
    """Makes no call, and says that it did what was asked for."""
    return said(row["answer"] if row["deeds"] != "{}" else "done")


def guess(row: Row) -> str:
    """Makes no call, and gives an answer that is frequent in the family."""
    guesses = {"unpaid": "INV-500", "paid": "49.00", "difference": "seats 9.00", "plan": "30.00", "person": "INV-500"}
    return said(guesses.get(row["family"], "0.00"))


def snoop(row: Row) -> list[Message]:
    """Perfect, after a look at another customer."""
    desk = BillingDesk()
    desk.reset(row["seed"])
    (email,) = desk.db.execute("SELECT email FROM customers WHERE id <> ? ORDER BY rowid", (row["customer"],)).fetchone()
    return [*as_messages([("find_customer", {"email": email})]), *oracle(row)]


def random_desk(row: Row) -> list[Message]:
    """A few random calls about the right customer, a random answer."""
    chance = Random(f"random {row['id']}")
    mine = {"customer": row["customer"]}
    payments = [name for name in row["own"] if name.startswith("P")] or ["P1"]
    invoices = [name for name in row["own"] if name.startswith("INV")]
    options: list[Call] = [
        ("list_invoices", mine), ("list_payments", mine), ("get_subscription", mine), ("get_invoice", {"invoice": chance.choice(invoices)}),
        ("change_plan", {**mine, "plan": chance.choice(("Solo", "Team", "Pro"))}),
        ("refund_payment", {"payment": chance.choice(payments), "amount": f"{chance.randint(1, 150)}.00"}),
        ("hand_off", {**mine, "reason": chance.choice(REASONS)}),
    ]  # fmt: skip
    answer = chance.choice([*invoices, f"{chance.randint(0, 150)}.00", "seats 9.00"])
    return as_messages([_find(row), *chance.sample(options, chance.randint(0, 3))], answer=said(answer))


def _find(row: Row) -> Call:
    return "find_customer", {"email": row["email"]}


POLICIES: dict[str, Callable[[Row], Any]] = {
    "oracle": oracle,
    "random": random_desk,
    "always hand off": always_hand_off,
    "never hand off": never_hand_off,
    "refund everything": refund_everything,
    "snoop, then perfect": snoop,
    "guess from the prompt": guess,
    "do nothing and claim": claim,
}
