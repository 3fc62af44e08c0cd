"""Reading a whole database, as rows that can be compared.

What is read was written by a policy, which may have had SQL to write it with: sizes and time are limited, computed columns are left alone,
only the schema "main" is read (a temporary table or view of the same name would otherwise stand before the real one), and what cannot be
read says why.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from earnest.rewards.json import parse_strict

MOST_ROWS = 100_000  # of all tables
MOST_BYTES = 64 * 2**20  # of all texts and blobs, and of a database that is JSON text
LONGEST_VALUE = 2**20  # bytes of one text or blob
MOST_SECONDS = 20.0
STEPS = 10_000  # instructions of SQLite between two looks at the clock
REMEMBERED = 16  # texts and files that need not be read again
BY_KEY = "@key"  # column that holds the key, where rows are given by key


class UnreadableError(ValueError):
    """A database that is none, or is too large."""


@dataclass(frozen=True)
class Table:
    """The rows of a table, by column, and the columns of its primary key."""

    rows: tuple[Mapping[str, Any], ...] = ()
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Database:
    """All tables; with SQLite, also the definition of everything in it, by "kind name"."""

    tables: Mapping[str, Table]
    schema: Mapping[str, str] = field(default_factory=dict)
    sqlite: bool = False


def read_database(source: Any) -> Database:
    """A database as rows.

    Args:
        source: An SQLite connection (a progress handler that it has is lost); the path of an SQLite file; a mapping of tables, or its JSON
            text (it starts with a brace). A table is a list of rows, or rows by key, which then stands in the column "@key". What is no
            object becomes a row with the one column "value".

    Raises:
        UnreadableError: It is none of these, or too large.
        sqlite3.Error: SQLite cannot read it.
    """
    if isinstance(source, sqlite3.Connection):
        return _whole(source)
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return _of_json(source)
    if isinstance(source, Mapping):
        return _of_tables(source)
    if isinstance(source, (str, Path)):
        if not Path(source).is_file():
            raise UnreadableError("there is no such file")
        return _of_file(str(source), _content(Path(source)))
    raise UnreadableError(f"a {type(source).__name__} is no database")


@lru_cache(maxsize=REMEMBERED)
def _of_json(text: str) -> Database:
    parsed = parse_strict(text, MOST_BYTES, 64)
    if parsed.reason:
        raise UnreadableError(f"the JSON of the database: {parsed.reason}")
    return _of_tables(parsed.value)


def _of_tables(tables: Mapping[Any, Any]) -> Database:
    return Database({str(name): _table(str(name), rows) for name, rows in tables.items()})


def _content(path: Path) -> str:
    """Hash of a database file with what its journals hold; all attempts of a row are compared with the same files."""
    hashed = hashlib.sha256()
    for part in (path, Path(f"{path}-wal"), Path(f"{path}-journal")):
        if part.is_file():
            with part.open("rb") as file:
                hashed.update(hashlib.file_digest(file, "sha256").digest())
        hashed.update(b"|")
    return hashed.hexdigest()


@lru_cache(maxsize=REMEMBERED)
def _of_file(path: str, _content: str) -> Database:
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as connection:
        return _whole(connection)


def _table(name: str, rows: Any) -> Table:
    if isinstance(rows, Mapping):
        return Table(tuple({BY_KEY: key, **_row(row)} for key, row in rows.items()), (BY_KEY,))
    if isinstance(rows, (list, tuple)):
        return Table(tuple(map(_row, rows)))
    raise UnreadableError(f"the table {name[:40]!a} is neither a list nor an object")


def _row(row: Any) -> Mapping[str, Any]:
    return row if isinstance(row, Mapping) else {"value": row}


def _whole(connection: sqlite3.Connection) -> Database:
    try:
        return _read_sqlite(connection)
    except UnicodeDecodeError as error:  # in the message of an error: it quotes what is damaged
        raise UnreadableError("a damaged database") from error
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise UnreadableError(f"reading the database takes more than {MOST_SECONDS:g} s") from error


def _read_sqlite(connection: sqlite3.Connection) -> Database:
    budget = _Budget()
    with _limited(connection, budget):
        cursor = connection.cursor()
        cursor.row_factory = None  # the environment may have set one of its own
        entries = cursor.execute("SELECT type, name, sql FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'").fetchall()
        if not all(isinstance(part, str) for kind, name, sql in entries for part in (kind, name, sql or "")):
            raise UnreadableError("a name or a definition that is no text")
        schema = {f"{kind} {name}": " ".join((sql or "").split()) for kind, name, sql in entries}
        tables = {name: _read_table(cursor, name, budget) for kind, name, _ in entries if kind == "table"}
    return Database(tables, schema, sqlite=True)


@contextmanager
def _limited(connection: sqlite3.Connection, budget: _Budget) -> Iterator[None]:
    """No value longer than the limit, no statement longer than the time, and text that is no UTF-8 comes as bytes instead of an error."""
    longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    factory, connection.text_factory = connection.text_factory, _text
    connection.set_progress_handler(lambda: time.monotonic() > budget.end, STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        connection.text_factory = factory
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _read_table(cursor: sqlite3.Cursor, name: str, budget: _Budget) -> Table:
    # the statement, not the function pragma_table_xinfo(): a table could have that name
    described = cursor.execute(f"PRAGMA main.table_xinfo({_quoted(name)})").fetchall()
    columns = [(column, place) for _, column, _, _, _, place, hidden in described if hidden in (0, 3)]
    if not columns:
        raise UnreadableError(f"the table {name[:40]!a} has no columns")
    names = [column for column, _ in columns]
    rows = cursor.execute(f"SELECT {', '.join(map(_quoted, names))} FROM main.{_quoted(name)}")
    read: list[Mapping[str, Any]] = []
    while batch := rows.fetchmany(100):
        budget.spend(batch)
        read += [dict(zip(names, values, strict=True)) for values in batch]
    return Table(tuple(read), tuple(column for column, place in sorted(columns, key=lambda c: c[1]) if place))


@dataclass
class _Budget:
    """What is left of the limits for one database."""

    rows: int = MOST_ROWS
    size: int = MOST_BYTES
    end: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS)

    def spend(self, batch: list[tuple[Any, ...]]) -> None:
        """Take off what was read.

        Raises:
            UnreadableError: It was too much.
        """
        self.rows -= len(batch)
        self.size -= sum(len(value) for values in batch for value in values if isinstance(value, (str, bytes)))
        if self.rows < 0 or self.size < 0 or time.monotonic() > self.end:
            raise UnreadableError("the database is too large")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
