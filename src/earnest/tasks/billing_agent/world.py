"""CloudLedger's billing database, made by a seed.

Two seeds that differ only in their last bit are twins: the same people on the same day, with other plans, invoices and payments. So one
question has two right answers, and remembering an answer is worth nothing. Money is whole cents, payments are in UTC, invoices carry the
customer's local day. Nothing is ever changed or removed: whatever the desk does adds rows, so what it did can be read off the end of each
table.
"""

from __future__ import annotations

import calendar
import sqlite3
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any

LIMIT = 5_000  # cents; a refund above it needs approval
MONTHS = 4  # of history, the current one included
WRITTEN = ("refunds", "subscriptions", "invoices", "lines", "credits", "approvals", "handoffs")  # tables that the desk's tools add to

SCHEMA = """
CREATE TABLE desk (today TEXT);
CREATE TABLE customers (id TEXT PRIMARY KEY, email TEXT, utc INTEGER, tax INTEGER, approves INTEGER, bill_day INTEGER);
CREATE TABLE plans (name TEXT PRIMARY KEY, size INTEGER, cents INTEGER);
CREATE TABLE subscriptions (customer TEXT, plan TEXT, since TEXT);
CREATE TABLE invoices (id TEXT PRIMARY KEY, customer TEXT, day TEXT, status TEXT);
CREATE TABLE lines (invoice TEXT, kind TEXT, cents INTEGER);
CREATE TABLE payments (id TEXT PRIMARY KEY, invoice TEXT, at TEXT, cents INTEGER, status TEXT);
CREATE TABLE refunds (payment TEXT, cents INTEGER, day TEXT);
CREATE TABLE credits (customer TEXT, cents INTEGER, day TEXT);
CREATE TABLE approvals (payment TEXT, cents INTEGER, granted INTEGER);
CREATE TABLE handoffs (customer TEXT, reason TEXT);
"""

PEOPLE = (
    "mara", "jonas", "priya", "tomas", "elif", "hugo", "nadia", "owen", "yuki", "lena", "karim", "sofia",
    "ivan", "ruth", "diego", "amara", "felix", "greta", "samir", "helga", "pablo", "wendy", "boris", "chloe",
)  # fmt: skip
FIRMS = (
    "oakline", "brightpay", "nordvik", "teapot", "kilnworks", "harbour", "quillery", "vantage", "meadow", "zenbau", "copperby", "lumen",
    "fjordly", "sunmill", "trellis", "paperjet", "wickford", "almanac", "bluefin", "grovely", "inkwell", "marlow", "pebble", "saltern",
)  # fmt: skip
ENDS = ("com", "net", "org")


@dataclass
class _Pens:
    """The two sources of chance, and the next free numbers."""

    same: Random  # alike for twins
    own: Random
    payment: int
    invoices: list[dict[str, Any]]
    payments: list[dict[str, Any]]


def build(seed: int) -> sqlite3.Connection:
    """The database of a seed, in memory; every call gives one of its own."""
    db = sqlite3.connect(":memory:", check_same_thread=False)  # every call of a tool has a thread of its own
    db.deserialize(_image(seed))
    return db


def marks(db: sqlite3.Connection) -> dict[str, int]:
    """Where each table ends."""
    return {table: db.execute(f"SELECT COALESCE(MAX(rowid), 0) FROM {table}").fetchone()[0] for table in WRITTEN}


def added(db: sqlite3.Connection, since: dict[str, int]) -> dict[str, list[dict[str, Any]]]:
    """The rows that were added to each table since its end was marked."""
    found: dict[str, list[dict[str, Any]]] = {}
    for table in WRITTEN:
        cursor = db.execute(f"SELECT * FROM {table} WHERE rowid > ? ORDER BY rowid", (since[table],))
        names = [column[0] for column in cursor.description]
        found[table] = [dict(zip(names, row, strict=True)) for row in cursor]
    return found


def money(cents: int) -> str:
    """4900 as "49.00"."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def share(cents: int, part: int, whole: int) -> int:
    """cents * part / whole in whole cents, halves away from zero."""
    size = (2 * abs(cents) * part + whole) // (2 * whole)
    return -size if cents < 0 else size


def period(today: date, bill_day: int) -> tuple[int, int]:
    """Days that are left of the running month of a subscription, and the days that it has."""
    start = today.replace(day=bill_day)
    end = month_after(start)
    return (end - today).days, (end - start).days


def month_after(day: date, months: int = 1) -> date:
    """The same day of a later (or earlier) month; it must exist there."""
    number = day.year * 12 + day.month - 1 + months
    return day.replace(year=number // 12, month=number % 12 + 1)


@lru_cache(maxsize=640)  # 64 KiB each; fewer than the test rows have would be of no use to whoever goes through them again
def _image(seed: int) -> bytes:
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    same, own = Random(f"people {seed // 2}"), Random(f"facts {seed}")
    today = date(2026, same.randint(4, 11), same.randint(9, 24))
    db.execute("INSERT INTO desk VALUES (?)", (today.isoformat(),))
    small = own.randrange(900, 2900, 100)
    prices = {"Solo": small, "Team": small + own.randrange(1500, 4000, 100), "Pro": small + own.randrange(6000, 14000, 100)}
    db.executemany("INSERT INTO plans VALUES (?, ?, ?)", [(name, n, cents) for n, (name, cents) in enumerate(prices.items())])
    pens = _Pens(same, own, own.randint(11, 60), [], [])
    numbers = own.sample(range(10 + seed % 2, 99, 2), 5)  # no twin has the id of another
    for number, email in zip(numbers, _emails(same), strict=True):
        _customer(db, pens, f"C{number}", email, today, prices)
    _number(db, pens)
    db.commit()
    return db.serialize()


def _emails(same: Random) -> list[str]:
    """Five people; the second is easily taken for the first."""
    people, firms = same.sample(PEOPLE, 4), same.sample(FIRMS, 4)
    ends = [same.choice(ENDS) for _ in range(4)]
    emails = [f"{p}@{f}.{e}" for p, f, e in zip(people, firms, ends, strict=True)]
    other_end = same.choice([end for end in ENDS if end != ends[0]])
    return [emails[0], f"{people[0]}@{firms[0]}.{other_end}", *emails[1:]]


def _customer(db: sqlite3.Connection, pens: _Pens, name: str, email: str, today: date, prices: dict[str, int]) -> None:
    own, bill_day = pens.own, pens.same.randint(1, 5)
    utc = pens.same.choice((-8, -5, 0, 0, 1, 2, 5, 9))
    tax = own.choice((0, 0, 700, 1900, 2000))
    db.execute("INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)", (name, email, utc, tax, int(own.random() < 0.6), bill_day))
    plan = own.choice(list(prices))
    first = month_after(today.replace(day=bill_day), 1 - MONTHS)
    db.execute("INSERT INTO subscriptions VALUES (?, ?, ?)", (name, plan, first.isoformat()))
    items = {"seats": 900 * own.randint(1, 5)} if own.random() < 0.6 else {}
    slow = own.random() < 0.5  # pays late: several invoices are open
    for month in range(MONTHS):
        day = month_after(first, month)
        credit = 0
        if month and own.random() < 0.65:
            plan, credit = _event(db, own, name, plan, items, day, prices)
        lines = [("plan", prices[plan]), *items.items(), *([("credit", -credit)] if credit else [])]
        status = own.choices(("paid", "open", "void"), (5, 4, 1) if slow else (12, 1, 1))[0]
        _invoice(pens, name, day, lines, tax, status, utc)
        if own.random() < 0.35:  # a second invoice of the month: often of the same amount, often on the same day, and no duplicate
            again = lines if own.random() < 0.5 else [("storage", 500 * own.randint(1, 9))]
            later = day + timedelta(days=own.choice((0, 0, 1, 3)))
            _invoice(pens, name, min(later, today), again, tax, own.choices(("paid", "open"), (3, 1))[0], utc)


def _event(
    db: sqlite3.Connection, own: Random, name: str, plan: str, items: dict[str, int], day: date, prices: dict[str, int]
) -> tuple[str, int]:
    """What is new in a month: at most one line. The plan, and a credit of this month only."""
    kind = own.choice(("seats", "storage", "support", "plan", "credit"))
    if kind == "plan":
        plan = own.choice([other for other in prices if other != plan])
        db.execute("INSERT INTO subscriptions VALUES (?, ?, ?)", (name, plan, day.isoformat()))
    elif kind == "credit":
        return plan, 100 * own.randint(2, min(12, prices[plan] // 200))
    elif kind in items and own.random() < 0.4:
        del items[kind]
    else:
        step = {"seats": 900, "storage": 500, "support": 1200}[kind]
        items[kind] = items.get(kind, 0) + step * own.randint(1, 4)
    return plan, 0


def _invoice(pens: _Pens, customer: str, day: date, lines: list[tuple[str, int]], tax: int, status: str, utc: int) -> None:
    net = sum(cents for _, cents in lines)
    lines = [*lines, ("tax", share(net, tax, 10_000))] if tax else list(lines)
    total = sum(cents for _, cents in lines)
    own = pens.own
    invoice = {"customer": customer, "day": day, "lines": lines, "status": status, "order": (day, own.random())}
    pens.invoices.append(invoice)
    paid = datetime(day.year, day.month, day.day, own.randint(9, 16), own.randint(0, 59)) + timedelta(days=own.randint(0, 2))

    def pay(local: datetime, state: str, back: int = 0) -> None:
        pens.payments.append({"invoice": invoice, "at": local - timedelta(hours=utc), "cents": total, "status": state, "back": back})

    if status != "void" and own.random() < 0.2:
        pay(paid - timedelta(hours=own.randint(1, 6)), "failed")
    if status != "paid":
        return
    pay(paid, "ok")
    if own.random() < 0.4:
        again = paid + own.choice((timedelta(minutes=3), timedelta(hours=2), timedelta(days=1)))
        if utc and own.random() < 0.3:  # near the month's end here, already or still another month there
            last = calendar.monthrange(day.year, day.month)[1]
            again = datetime(day.year, day.month, last, 23, 20) + (timedelta(hours=1) if utc > 0 else timedelta())
        pay(again, "ok", own.choices((0, total, total // 2), (6, 3, 1))[0])


def _number(db: sqlite3.Connection, pens: _Pens) -> None:
    """Give numbers in the order of time, over all customers, and write everything down. What lies after today has not happened."""
    today = date.fromisoformat(db.execute("SELECT today FROM desk").fetchone()[0])
    number = pens.own.randint(101, 850)
    for step, invoice in enumerate(sorted(pens.invoices, key=lambda i: i["order"])):
        invoice["id"] = f"INV-{number + step}"
        db.execute(
            "INSERT INTO invoices VALUES (?, ?, ?, ?)", (invoice["id"], invoice["customer"], invoice["day"].isoformat(), invoice["status"])
        )
        db.executemany("INSERT INTO lines VALUES (?, ?, ?)", [(invoice["id"], kind, cents) for kind, cents in invoice["lines"]])
    happened = [payment for payment in pens.payments if payment["at"].date() < today]
    for step, payment in enumerate(sorted(happened, key=lambda p: p["at"])):
        name = f"P{pens.payment + step}"
        at = payment["at"].strftime("%Y-%m-%d %H:%M")
        db.execute("INSERT INTO payments VALUES (?, ?, ?, ?, ?)", (name, payment["invoice"]["id"], at, payment["cents"], payment["status"]))
        if payment["back"]:
            day = (payment["at"] + timedelta(days=2)).date()
            db.execute("INSERT INTO refunds VALUES (?, ?, ?)", (name, payment["back"], min(day, today).isoformat()))
