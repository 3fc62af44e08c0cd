"""The families of tasks, and their rows: questions, and facts computed from the database by SQL, without the desk's tools.

Every row has a twin: the same words from the same person about a database with another right answer. `write()` makes the files in `data/`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from earnest.task import Row
from earnest.tasks.billing_agent import wordings
from earnest.tasks.billing_agent.world import LIMIT, build, money, month_after, period, share

DATA = Path(__file__).parent / "data"
SPLITS = ("train", "dev", "test")
PAIRS = {  # pairs of twins by family and split; of "person", pairs of pairs: a person is needed, and none is
    "unpaid": (240, 20, 100),
    "paid": (240, 20, 100),
    "double": (24, 4, 10),
    "refund": (24, 4, 12),
    "partial": (18, 4, 8),
    "difference": (18, 4, 8),
    "plan": (24, 4, 9),
    "person": (18, 3, 9),
}
FAMILIES = tuple(PAIRS)
TRIES = 400
LONGEST = 5  # lines that a list has in the families that only look things up: a small model reads them all on a small machine

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """What is right for one question about one database.

    Attributes:
        answer: The final answer.
        calls: What a perfect desk calls after it has found the customer.
        deeds: The rows that this adds, by table.
    """

    answer: str
    calls: list[Call]
    deeds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Books:
    """One customer's side of a database."""

    db: sqlite3.Connection
    customer: str
    utc: int
    today: date

    @classmethod
    def of(cls, seed: int, email: str) -> Books:
        """Open the books of a customer."""
        db = build(seed)
        name, utc = db.execute("SELECT id, utc FROM customers WHERE email = ?", (email,)).fetchone()
        return cls(db, name, utc, date.fromisoformat(db.execute("SELECT today FROM desk").fetchone()[0]))

    def month(self, back: int) -> str:
        """A month before this one, as 2026-03."""
        return month_after(self.today.replace(day=1), -back).isoformat()[:7]

    def payments(self) -> list[dict[str, Any]]:
        """All payments in the order of time, each with its local month and what was refunded."""
        rows = self.db.execute(
            "SELECT p.id, p.invoice, p.at, p.cents, p.status, COALESCE((SELECT SUM(cents) FROM refunds WHERE payment = p.id), 0) "
            "FROM payments p JOIN invoices i ON i.id = p.invoice WHERE i.customer = ? ORDER BY p.at, p.rowid",
            (self.customer,),
        )
        names = ("id", "invoice", "at", "cents", "status", "back")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for payment in found:
            local = datetime.fromisoformat(payment["at"]) + timedelta(hours=self.utc)
            payment["month"] = local.isoformat()[:7]
        return found

    def invoices(self, month: str = "") -> list[dict[str, Any]]:
        """Invoices in the order of time, of one month or all, each with its lines."""
        rows = self.db.execute(
            "SELECT id, day, status FROM invoices WHERE customer = ? AND day LIKE ? ORDER BY day, rowid", (self.customer, f"{month}%")
        ).fetchall()
        return [
            {"id": name, "day": day, "status": status}
            | {"lines": dict(self.db.execute("SELECT kind, cents FROM lines WHERE invoice = ?", (name,)).fetchall())}
            for name, day, status in rows
        ]

    def doubles(self) -> list[dict[str, Any]]:
        """Last month's payments of invoices that were paid before in that month already."""
        paid = [p for p in self.payments() if p["status"] == "ok" and p["month"] == self.month(1)]
        return [p for n, p in enumerate(paid) if any(q["invoice"] == p["invoice"] for q in paid[:n])]

    def own(self) -> list[str]:
        """Every number that belongs to the customer."""
        return [self.customer, *(i["id"] for i in self.invoices()), *(p["id"] for p in self.payments())]


def unpaid(books: Books, which: str, least: int = 1, **_: Any) -> Case | None:
    """The oldest, newest or largest open invoice."""
    invoices = books.invoices()
    found = [i for i in invoices if i["status"] == "open"]
    if len(found) < least or len(invoices) > LONGEST:
        return None
    place = {"oldest": lambda i: i["day"], "newest": lambda i: i["day"], "largest": lambda i: sum(i["lines"].values())}[which]
    found.sort(key=place, reverse=which != "oldest")
    if len(found) > 1 and place(found[0]) == place(found[1]):
        return None  # nobody could say which
    return Case(found[0]["id"], [("list_invoices", {"customer": books.customer})])


def paid(books: Books, back: int, most: int = 2, **_: Any) -> Case | None:
    """The sum of the payments of a month that went through."""
    payments = books.payments()
    if any(p["month"] != p["at"][:7] for p in payments) or len(payments) > LONGEST:
        return None  # months in two time zones are for the other families
    good = [p for p in payments if p["status"] == "ok" and p["month"] == books.month(back)]
    if not 1 <= len(good) <= most:
        return None
    return Case(money(sum(p["cents"] for p in good)), [("list_payments", {"customer": books.customer})])


def double(books: Books, **_: Any) -> Case | None:
    """What was charged twice last month and not yet refunded."""
    left = sum(p["cents"] - p["back"] for p in books.doubles())
    return Case(money(left), [("list_payments", {"customer": books.customer})])


def refund(books: Books, over: bool = False, **_: Any) -> Case | None:
    """The refund of a double charge, if there was one, and if it is approved where that is needed."""
    left = [p for p in books.doubles() if p["cents"] > p["back"]]
    look: list[Call] = [("list_payments", {"customer": books.customer})]
    if len(left) > 1 or (over and not any(p["cents"] - p["back"] > LIMIT for p in left)):
        return None
    return _refunded(books, look, left[0]["id"], left[0]["cents"] - left[0]["back"]) if left else Case("0.00", look)


def partial(books: Books, kind: str, **_: Any) -> Case | None:
    """The refund of one line of an invoice that was paid once."""
    invoices = books.invoices(books.month(1))
    if len(invoices) != 1 or kind not in invoices[0]["lines"]:
        return None
    name = invoices[0]["id"]
    payments = [p for p in books.payments() if p["invoice"] == name and p["status"] == "ok"]
    if len(payments) != 1:
        return None
    arguments = {"customer": books.customer}
    look: list[Call] = [("list_invoices", arguments), ("get_invoice", {"invoice": name}), ("list_payments", arguments)]
    return _refunded(books, look, payments[0]["id"], invoices[0]["lines"][kind])


def _refunded(books: Books, look: list[Call], payment: str, cents: int) -> Case:
    arguments = {"payment": payment, "amount": money(cents)}
    deeds = {"refunds": [{"payment": payment, "cents": cents, "day": books.today.isoformat()}]}
    if cents <= LIMIT:
        return Case(money(cents), [*look, ("refund_payment", arguments)], deeds)
    asked: list[Call] = [*look, ("request_approval", arguments)]
    (granted,) = books.db.execute("SELECT approves FROM customers WHERE id = ?", (books.customer,)).fetchone()
    return Case(money(cents), [*asked, ("refund_payment", arguments)], deeds) if granted else Case("0.00", asked)


def difference(books: Books, back: int, **_: Any) -> Case | None:
    """The one line in which two invoices differ, and by how much."""
    one, other = (books.invoices(books.month(back + n)) for n in (1, 0))
    if len(one) != 1 or len(other) != 1:
        return None
    before, after = one[0]["lines"], other[0]["lines"]
    kinds = [kind for kind in {**before, **after} if kind != "tax" and before.get(kind) != after.get(kind)]
    if len(kinds) != 1:
        return None
    amount = abs(after.get(kinds[0], 0) - before.get(kinds[0], 0))
    look = [("get_invoice", {"invoice": invoice["id"]}) for invoice in (one[0], other[0])]
    return Case(f"{kinds[0]} {money(amount)}", [("list_invoices", {"customer": books.customer}), *look])


def plan(books: Books, larger: bool, preview: bool, **_: Any) -> Case | None:
    """What a change of plan costs for the rest of the month, done or only asked about."""
    plans = books.db.execute("SELECT name, cents FROM plans ORDER BY size").fetchall()
    (name,) = books.db.execute("SELECT plan FROM subscriptions WHERE customer = ? ORDER BY rowid DESC", (books.customer,)).fetchone()
    place = [plan for plan, _ in plans].index(name)
    to = place + (1 if larger else -1)
    if not 0 <= to < len(plans):
        return None
    tax, bill_day = books.db.execute("SELECT tax, bill_day FROM customers WHERE id = ?", (books.customer,)).fetchone()
    net = share(plans[to][1] - plans[place][1], *period(books.today, bill_day))
    added = share(net, tax, 10_000)
    arguments = {"customer": books.customer, "plan": plans[to][0]} | ({"preview": True} if preview else {})
    calls = [("get_subscription", {"customer": books.customer}), ("change_plan", arguments)]
    answer, today = money(abs(net + added)), books.today.isoformat()
    if preview:
        return Case(answer, calls)
    deeds: dict[str, list[dict[str, Any]]] = {"subscriptions": [{"customer": books.customer, "plan": plans[to][0], "since": today}]}
    if net < 0:
        return Case(answer, calls, deeds | {"credits": [{"customer": books.customer, "cents": -net - added, "day": today}]})
    (last,) = books.db.execute("SELECT MAX(CAST(SUBSTR(id, 5) AS INTEGER)) FROM invoices").fetchone()
    number = f"INV-{last + 1}"
    lines = [{"invoice": number, "kind": kind, "cents": cents} for kind, cents in (("proration", net), ("tax", added)) if cents]
    invoice = {"id": number, "customer": books.customer, "day": today, "status": "open"}
    return Case(answer, calls, deeds | {"invoices": [invoice], "lines": lines})


def handed_off(books: Books, reason: str) -> Case:
    """A case that must go to a person."""
    arguments = {"customer": books.customer, "reason": reason}
    return Case("handed off", [("hand_off", arguments)], {"handoffs": [arguments]})


FACTS: dict[str, Callable[..., Case | None]] = {
    "unpaid": unpaid, "paid": paid, "double": double, "refund": refund, "partial": partial, "difference": difference, "plan": plan,
}  # fmt: skip


def rows_of(family: str, split: str) -> Iterator[Row]:
    """The rows of a family, twin after twin.

    Args:
        family: One of `FAMILIES`.
        split: train, dev or test.
    """
    first = 1_000_000 * SPLITS.index(split) + 100_000 * FAMILIES.index(family)
    for number in range(PAIRS[family][SPLITS.index(split)]):
        chance = Random(f"{family} {split} {number}")
        asked = FAMILIES[number % 2] if family == "person" else family
        seed, email, words, twins = _pair(asked, split, chance, first + TRIES * number, number)
        if family != "person":
            for twin, case in enumerate(twins):
                yield _row(f"{family}-{split}-{number}{'ab'[twin]}", family, split, seed + twin, email, words, case)
            continue
        reason, needing, harmless = wordings.PERSON[split][number % len(wordings.PERSON[split])]
        for twin, case in enumerate(twins):
            name = f"{family}-{split}-{number}{'ab'[twin]}"
            yield _row(f"{name}-no", family, split, seed + twin, email, f"{words} {harmless}", case)
            passed = handed_off(Books.of(seed + twin, email), reason)
            yield _row(f"{name}-yes", family, split, seed + twin, email, f"{words} {needing}", passed, reason)


def _pair(family: str, split: str, chance: Random, first: int, number: int) -> tuple[int, str, str, list[Case]]:
    """The first two databases from a seed on in which somebody can ask the question, with two answers."""
    words, options = _asked(family, split, chance, number)
    for seed in range(first + first % 2, first + TRIES, 2):
        emails = [email for (email,) in build(seed).execute("SELECT email FROM customers")]
        for email in chance.sample(emails, len(emails)):
            cases = [FACTS[family](Books.of(seed + twin, email), **options) for twin in range(2)]
            if None not in cases and cases[0].answer != cases[1].answer:
                months = {key: f"{month_after(Books.of(seed, email).today.replace(day=1), -back):%B}" for key, back in _months(options)}
                return seed, email, words.format(**options | months), cases
    raise RuntimeError(f"no databases for {family} from seed {first} on")


def _months(options: dict[str, Any]) -> list[tuple[str, int]]:
    return [("month", options["back"]), ("before", options["back"] + 1)] if "back" in options else []


def _asked(family: str, split: str, chance: Random, number: int) -> tuple[str, dict[str, Any]]:
    """The words of a question, and what they leave open."""
    said = getattr(wordings, family.upper())[split]
    words = said[number % len(said)]
    if family == "plan":
        return words[0], {"larger": words[1], "preview": words[2]}
    if family == "unpaid":
        return words, {"which": chance.choice(("oldest", "newest", "largest")), "least": 2 if number % 3 else 1}
    if family == "paid":
        return words, {"back": chance.choice((1, 2, 3)), "most": chance.choice((1, 2, 2, 3))}
    if family == "refund":
        return words, {"over": number % 3 == 0}
    if family == "difference":
        return words, {"back": chance.choice((0, 1, 2))}
    return words, {"kind": chance.choice(("seats", "storage", "support"))} if family == "partial" else {}


def _row(name: str, family: str, split: str, seed: int, email: str, words: str, case: Case, reason: str = "") -> Row:
    """One row. What differs in shape from row to row is JSON text, so that any table of rows can hold it."""
    books = Books.of(seed, email)
    calls = [("find_customer", {"email": email}), *case.calls]
    own = [email, *books.own(), *(invoice["id"] for invoice in case.deeds.get("invoices", ()))]
    return {
        "id": name, "split": split, "family": family, "seed": seed, "today": f"{books.today.day} {books.today:%b %Y}", "email": email,
        "question": words, "needs_human": bool(reason), "reason": reason, "customer": books.customer, "own": own,
        "answer": case.answer, "deeds": json.dumps(case.deeds), "rests_on": json.dumps(_rests_on(case)), "script": json.dumps(calls),
    }  # fmt: skip


def _rests_on(case: Case) -> list[Call]:
    """The calls without which nobody can know the answer; those that do something are seen in the database."""
    doing = () if case.deeds else ("request_approval", "change_plan")
    closest = [call for call in case.calls if call[0] in ("list_payments", "get_invoice", *doing)]
    return closest or [call for call in case.calls if call[0] == "list_invoices"]


def write(folder: Path = DATA) -> None:
    """Write all rows, one file a split."""
    for split in SPLITS:
        rows = [row for family in FAMILIES for row in rows_of(family, split)]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
