"""PostgreSQL for the SQL verifier: a query nobody trusts, as the body of a cursor in a read-only transaction that is rolled back.

The server enforces what matters. A cursor takes exactly one SELECT, VALUES or WITH that writes nothing; sent with the extended protocol
nothing can follow it; the transaction is read-only and cannot be made otherwise once it has run a query. Functions that the server declares
volatile (sleeping, settings, advisory locks, large objects, other connections, random numbers) are refused by name before.
Give the verifier a role that owns nothing and may only read: what a query may read from the server is decided by the role's rights.
"""

from __future__ import annotations

import datetime
import decimal
import math
import threading
from typing import Any

from earnest.rewards.sql_sqlite import LIMITS, Answer, Limits

CLOCK_WORDS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
CLOCK_FUNCTIONS = frozenset({"now", "statement_timestamp", "transaction_timestamp", "age"})  # stable, but different tomorrow
BROKEN = "the connection broke over the query, twice"
BATCH = 200  # rows fetched at a time, so that a long result ends at the limit and not in memory


def is_address(database: Any) -> bool:
    """Whether this names a PostgreSQL database."""
    return isinstance(database, str) and database.startswith(("postgresql://", "postgres://"))


def run(address: str, statement: str, limits: Limits = LIMITS) -> Answer:
    """Run one untrusted statement on a connection of its own; on a second one if the first breaks, which a query may or may not have done.

    Args:
        address: A `postgresql://` address.
        statement: What the model wrote.
        limits: What it may use; `seconds` by the clock.
    """
    try:
        import psycopg
    except ImportError:
        return Answer("infra", reason="psycopg is not installed: pip install 'earnest[postgres]'")
    return _once(psycopg, address, statement, limits) or _once(psycopg, address, statement, limits) or Answer("error", reason=BROKEN)


def _once(psycopg: Any, address: str, statement: str, limits: Limits) -> Answer | None:
    """Run a statement on a new connection; None if it breaks."""
    try:
        connection = psycopg.connect(address, autocommit=True, connect_timeout=10)
    except (psycopg.Error, OSError) as error:
        return Answer("infra", reason=f"no connection to PostgreSQL: {type(error).__name__}")
    watch = threading.Timer(limits.seconds + 1, connection.cancel)
    watch.daemon = True
    watch.start()
    try:
        return _run(connection, statement, limits)
    except psycopg.errors.QueryCanceled:
        return Answer("timeout", reason=f"timeout: more than {limits.seconds:g} s")
    except psycopg.errors.ReadOnlySqlTransaction:
        return Answer("refused", reason="not read-only")
    except psycopg.errors.InsufficientPrivilege as error:
        return Answer("refused", reason=f"no right to do that: {str(error).splitlines()[0][:200]}")
    except psycopg.OperationalError as error:
        if connection.broken:
            return None
        return Answer("error", reason=f"the database refused it: {str(error).splitlines()[0][:200]}")
    except (psycopg.Error, UnicodeError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0][:200]
        if "multiple commands" in first:
            return Answer("refused", reason="more than one statement")
        return Answer("error", reason=f"the database refused it: {first}")
    finally:
        watch.cancel()
        connection.close()


def _run(connection: Any, statement: str, limits: Limits) -> Answer:
    if reason := _refused(connection, statement):
        return Answer("refused", reason=reason)
    milliseconds = max(1, math.ceil(limits.seconds * 1000))
    with connection.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            cursor.execute(f"SET LOCAL statement_timeout = {milliseconds}")
            cursor.execute(f"SET LOCAL lock_timeout = {milliseconds}")
            cursor.execute("SELECT 1")  # from here on the transaction can no longer be made writable
            cursor.execute(b"DECLARE answer NO SCROLL CURSOR FOR " + statement.encode(), prepare=True)
            return _fetched(cursor, limits)
        finally:
            cursor.execute("ROLLBACK")


def _fetched(cursor: Any, limits: Limits) -> Answer:
    rows: list[tuple[Any, ...]] = []
    names: tuple[str, ...] = ()
    left = limits.size
    while True:
        cursor.execute(f"FETCH FORWARD {min(BATCH, limits.rows + 1 - len(rows))} FROM answer")
        names = tuple(column.name for column in cursor.description)
        batch = [tuple(map(_cell, row)) for row in cursor.fetchall()]
        if not batch:
            return Answer("rows", tuple(rows), names)
        rows += batch
        left -= sum(8 + sum(len(cell) if isinstance(cell, (str, bytes)) else 8 for cell in row) for row in batch)
        if len(rows) > limits.rows:
            return Answer("limit", reason=f"row limit: more than {limits.rows} rows")
        if left < 0:
            return Answer("limit", reason="memory limit: the result is too large")


def _cell(value: Any) -> Any:
    """A cell as `sql_compare` knows it: numbers by value; what is neither number, text nor bytes with the name of its type."""
    if isinstance(value, bool):
        return ("boolean", str(value))
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    if isinstance(value, decimal.Decimal):
        if value.is_nan():
            return math.nan
        integral = value == value.to_integral_value() if value.is_finite() else False
        return int(value) if integral and abs(value) < 2**63 else float(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return (type(value).__name__, value.isoformat())
    return (type(value).__name__, str(value))


def _refused(connection: Any, statement: str) -> str:
    """Why a statement is not run at all: it names a function that is volatile or reads the clock.

    Names are found by sqlglot's tokenizer, which knows strings and comments; which of them are volatile the server knows.
    """
    from sqlglot import tokenize
    from sqlglot.errors import SqlglotError
    from sqlglot.tokens import TokenType

    try:
        tokens = tokenize(statement, read="postgres")
    except (SqlglotError, ValueError) as error:
        return f"no SQL: {str(error).splitlines()[0][:100]}"
    called = set()
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        name = token.text if token.token_type == TokenType.IDENTIFIER else token.text.lower()
        if token.token_type != TokenType.IDENTIFIER and name in CLOCK_WORDS:
            return f"not deterministic: {name}"
        if token.token_type != TokenType.STRING and after is not None and after.token_type == TokenType.L_PAREN:
            called.add(name)
        if name == "u" and after is not None and after.token_type == TokenType.AMP and after.start == token.end + 1:
            return "names and strings with escapes (U&) are not allowed"
    if clock := called & CLOCK_FUNCTIONS:
        return f"not deterministic: {min(clock)}"
    query = "SELECT min(proname::text) FROM pg_proc WHERE provolatile = 'v' AND proname::text = ANY(%s)"
    (volatile,) = connection.execute(query, (sorted(called),)).fetchone()
    return f"not deterministic or not read-only: the function {volatile}" if volatile else ""
