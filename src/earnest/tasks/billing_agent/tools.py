"""The billing desk: an environment by TRL's contract. Its public methods are the tools.

Answers are short, since a small model pays for every token of them. A tool answers what it is asked, about anyone: whether the desk may ask
is a rule that the rewards hold, and a rule that cannot be broken teaches nothing.
"""

from __future__ import annotations

import re
import sqlite3
from datetime import date, datetime
from typing import Any

from earnest.tasks.billing_agent.world import LIMIT, build, marks, money, period, share

REASONS = ("legal", "fraud", "deletion")
_AMOUNT = re.compile(r"([0-9]{1,7})(?:\.([0-9]{1,2}))?")


class Lookup:
    """A desk that can only look: the tools that need no permission."""

    db: sqlite3.Connection
    start: dict[str, int]

    def reset(self, seed: int, **_: Any) -> None:
        """Open the database of a seed, as it was before anyone did anything.

        Args:
            seed: Of the database.
        """
        self.db = build(seed)
        self.start = marks(self.db)
        self._closed = False

    def find_customer(self, email: str) -> dict:
        """Find a customer.

        Args:
            email: Email address.
        """
        name, utc = self._one("SELECT id, utc FROM customers WHERE email = ?", email.strip().lower(), what="customer")
        return {"customer": name, "time_zone": f"UTC{utc:+d}"}

    def list_invoices(self, customer: str) -> str:
        """List a customer's invoices: number, day, total, status.

        Args:
            customer: Customer id.
        """
        self._one("SELECT id FROM customers WHERE id = ?", customer, what="customer")
        rows = self.db.execute(
            "SELECT id, day, (SELECT SUM(cents) FROM lines WHERE invoice = i.id), status FROM invoices i WHERE customer = ? "
            "ORDER BY day, rowid",
            (customer,),
        )
        return "\n".join(f"{name} {_day(date.fromisoformat(day))} {money(total)} {status}" for name, day, total, status in rows)

    def list_payments(self, customer: str) -> str:
        """List a customer's payments: id, invoice, time in UTC, amount, status.

        Args:
            customer: Customer id.
        """
        self._one("SELECT id FROM customers WHERE id = ?", customer, what="customer")
        rows = self.db.execute(
            "SELECT p.id, p.invoice, p.at, p.cents, p.status, (SELECT SUM(cents) FROM refunds WHERE payment = p.id) "
            "FROM payments p JOIN invoices i ON p.invoice = i.id WHERE i.customer = ? ORDER BY p.at, p.rowid",
            (customer,),
        )
        lines = []
        for name, invoice, at, cents, status, back in rows:
            when = datetime.fromisoformat(at)
            lines.append(
                f"{name} {invoice} {_day(when)} {when:%H:%M} {money(cents)} {status}" + (f", refunded {money(back)}" if back else "")
            )
        return "\n".join(lines) or "none"

    def _one(self, query: str, *values: Any, what: str) -> tuple[Any, ...]:
        row = self.db.execute(query, values).fetchone()
        if row is None:
            raise ValueError(f"no such {what}")
        return row

    @property
    def _today(self) -> date:
        return date.fromisoformat(self.db.execute("SELECT today FROM desk").fetchone()[0])


class BillingDesk(Lookup):
    """The whole desk."""

    def get_invoice(self, invoice: str) -> dict:
        """Get the lines of an invoice.

        Args:
            invoice: Invoice number.
        """
        self._one("SELECT id FROM invoices WHERE id = ?", invoice, what="invoice")
        rows = self.db.execute("SELECT kind, cents FROM lines WHERE invoice = ? ORDER BY rowid", (invoice,))
        return {kind: money(cents) for kind, cents in rows}

    def get_subscription(self, customer: str) -> dict:
        """Get a customer's plan, and the price of each plan.

        Args:
            customer: Customer id.
        """
        (plan,) = self._one("SELECT plan FROM subscriptions WHERE customer = ? ORDER BY rowid DESC", customer, what="customer")
        return {"plan": plan} | {name: money(cents) for name, cents in self.db.execute("SELECT name, cents FROM plans ORDER BY size")}

    def change_plan(self, customer: str, plan: str, preview: bool = False) -> dict:
        """Change a plan from today on; the rest of the month is due, or becomes a credit.

        Args:
            customer: Customer id.
            plan: New plan.
            preview: Only tell what it would cost.
        """
        self._open()
        tax, bill_day = self._one("SELECT tax, bill_day FROM customers WHERE id = ?", customer, what="customer")
        (old, before) = self._one(
            "SELECT plan, cents FROM subscriptions JOIN plans ON plan = name WHERE customer = ? ORDER BY subscriptions.rowid DESC",
            customer,
            what="subscription",
        )
        (after,) = self._one("SELECT cents FROM plans WHERE name = ?", plan, what="plan")
        if not isinstance(preview, bool):
            raise ValueError("preview is true or false")
        if plan == old:
            raise ValueError(f"the plan is {old} already")
        net = share(after - before, *period(self._today, bill_day))
        added = share(net, tax, 10_000)
        if not preview:
            self._book(customer, plan, net, added)
        return {"due": money(net + added)} if net >= 0 else {"credit": money(-net - added)}

    def refund_payment(self, payment: str, amount: str) -> dict:
        """Refund a payment, or a part of it.

        Args:
            payment: Payment id.
            amount: Amount, as 49.00.
        """
        self._open()
        cents = _cents(amount)
        if cents > self._left(payment):
            raise ValueError("more than is left of the payment")
        granted = self.db.execute("SELECT 1 FROM approvals WHERE payment = ? AND cents = ? AND granted", (payment, cents)).fetchone()
        if cents > LIMIT and granted is None:
            raise ValueError("needs approval")
        self.db.execute("INSERT INTO refunds VALUES (?, ?, ?)", (payment, cents, self._today.isoformat()))
        return {"refunded": money(cents)}

    def request_approval(self, payment: str, amount: str) -> dict:
        """Ask for approval of a refund.

        Args:
            payment: Payment id.
            amount: Amount, as 149.00.
        """
        self._open()
        cents = _cents(amount)
        self._left(payment)
        (granted,) = self._one(
            "SELECT approves FROM customers c JOIN invoices i ON i.customer = c.id JOIN payments p ON p.invoice = i.id WHERE p.id = ?",
            payment,
            what="payment",
        )
        self.db.execute("INSERT INTO approvals VALUES (?, ?, ?)", (payment, cents, granted))
        return {"approved": bool(granted)}

    def hand_off(self, customer: str, reason: str) -> dict:
        """Hand the case to a person.

        Args:
            customer: Customer id.
            reason: legal, fraud or deletion.
        """
        self._open()
        self._one("SELECT id FROM customers WHERE id = ?", customer, what="customer")
        if reason not in REASONS:
            raise ValueError(f"the reason is one of {', '.join(REASONS)}")
        self.db.execute("INSERT INTO handoffs VALUES (?, ?)", (customer, reason))
        self._closed = True
        return {"handed_off": True}

    def _open(self) -> None:
        if self._closed:
            raise ValueError("the case was handed off")

    def _left(self, payment: str) -> int:
        """Cents of a payment that can still be refunded."""
        cents, status = self._one("SELECT cents, status FROM payments WHERE id = ?", payment, what="payment")
        if status != "ok":
            raise ValueError("the payment failed, so there is nothing to refund")
        (back,) = self.db.execute("SELECT COALESCE(SUM(cents), 0) FROM refunds WHERE payment = ?", (payment,)).fetchone()
        return cents - back

    def _book(self, customer: str, plan: str, net: int, tax: int) -> None:
        today = self._today.isoformat()
        self.db.execute("INSERT INTO subscriptions VALUES (?, ?, ?)", (customer, plan, today))
        if net < 0:
            self.db.execute("INSERT INTO credits VALUES (?, ?, ?)", (customer, -net - tax, today))
        elif net > 0:
            (last,) = self.db.execute("SELECT MAX(CAST(SUBSTR(id, 5) AS INTEGER)) FROM invoices").fetchone()
            name = f"INV-{last + 1}"
            self.db.execute("INSERT INTO invoices VALUES (?, ?, ?, 'open')", (name, customer, today))
            self.db.executemany("INSERT INTO lines VALUES (?, ?, ?)", [(name, "proration", net), *([(name, "tax", tax)] if tax else [])])


def _day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _cents(amount: Any) -> int:
    """An amount in cents; it must be text, above zero, with at most two decimals."""
    found = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    cents = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")) if found else 0
    if cents == 0:
        raise ValueError("the amount must be text like 49.00")
    return cents
