"""A query taken apart: its tables, the same with one thing wrong or written another way, and its result where the row has a database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from earnest.redteam.attack import Target

DIALECTS = ("sqlite", "postgres", "mysql")
LITERAL_ROWS = 40  # rows of a result that are written out
_EXPECTED = re.compile(r"(expected|result|rows?|answer|output|gold)", re.IGNORECASE)


@dataclass(frozen=True)
class Query:
    """A parsed query.

    Attributes:
        tree: As sqlglot has it.
        dialect: In which it was read, and is written.
    """

    tree: Any
    dialect: str

    def text(self, tree: Any = None, **options: Any) -> str:
        """The query, or another tree, as text."""
        return (self.tree if tree is None else tree).sql(self.dialect, **options)

    def changed(self, change: Callable[[Any], Any]) -> list[str]:
        """The query after a change to a copy of it; empty where the change says False, fails or changes nothing."""
        copy = self.tree.copy()
        try:
            if change(copy) is False:
                return []
            text = self.text(copy)
        except (ValueError, AttributeError, TypeError, KeyError):
            return []
        return [text] if text != self.text() else []

    @property
    def tables(self) -> list[str]:
        """Names of the tables it reads, those defined in it aside."""
        from sqlglot import exp

        own = {cte.alias_or_name for cte in self.tree.find_all(exp.CTE)}
        return list(dict.fromkeys(table.name for table in self.tree.find_all(exp.Table) if table.name and table.name not in own))

    @property
    def one_row(self) -> bool:
        """Whether it always returns one row: an aggregate of everything."""
        from sqlglot import exp

        select = select_of(self.tree)
        plain = self.tree is select and not any(select.args.get(part) for part in ("group", "having", "limit"))
        return plain and any(isinstance(item.unalias(), exp.AggFunc) for item in select.expressions)

    @property
    def columns(self) -> list[str]:
        """Names of the columns it speaks of."""
        from sqlglot import exp

        return list(dict.fromkeys(column.name for column in self.tree.find_all(exp.Column) if column.name))


@lru_cache(maxsize=512)
def query_of(text: str) -> Query | None:
    """A text as one query; None where no dialect reads it."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    for dialect in DIALECTS:
        try:
            trees = [tree for tree in sqlglot.parse(text, dialect=dialect) if tree is not None and not isinstance(tree, exp.Semicolon)]
        except (SqlglotError, ValueError, RecursionError):
            continue
        if len(trees) == 1 and isinstance(trees[0], exp.Query):
            return Query(trees[0], dialect)
    return None


def select_of(tree: Any) -> Any:
    """The outermost SELECT, of a union the first."""
    from sqlglot import exp

    while not isinstance(tree, exp.Select):
        tree = tree.this
    return tree


def without(part: str) -> Callable[[Any], Any]:
    """Drops a part of the outermost query: "order", "limit", "distinct", "where", "having", "group"."""

    def change(tree: Any) -> Any:
        holder = tree if part in ("order", "limit") else select_of(tree)
        if not holder.args.get(part):
            return False
        holder.set(part, None)
        return True

    return change


def order_turned(tree: Any) -> Any:
    """Turns the order round."""
    if not tree.args.get("order"):
        return False
    for term in tree.args["order"].expressions:
        term.set("desc", not term.args.get("desc"))
        term.set("nulls_first", None)
    return True


def limit_changed(by: int) -> Callable[[Any], Any]:
    """Another number of rows."""

    def change(tree: Any) -> Any:
        from sqlglot import exp

        limit = tree.args.get("limit")
        if limit is None or not limit.expression or int(limit.expression.name) + by < 1:
            return False
        limit.set("expression", exp.Literal.number(int(limit.expression.name) + by))
        return True

    return change


def joins_dropped(tree: Any) -> Any:
    """Takes the conditions off joins."""
    from sqlglot import exp

    joins = [join for join in tree.find_all(exp.Join) if join.args.get("on") or join.args.get("using")]
    for join in joins:
        for part in ("on", "using", "side"):
            join.set(part, None)
        join.set("kind", "CROSS")
    return bool(joins)


def condition_dropped(tree: Any) -> Any:
    """Half of the first AND."""
    from sqlglot import exp

    found = tree.find(exp.And)
    if found is None:
        return False
    found.replace(found.this.copy())
    return True


def comparison_changed(tree: Any) -> Any:
    """Another operator in the first comparison of a condition."""
    from sqlglot import exp

    other = {exp.GT: exp.GTE, exp.GTE: exp.GT, exp.LT: exp.LTE, exp.LTE: exp.LT, exp.EQ: exp.NEQ, exp.NEQ: exp.EQ}
    where = tree.find(exp.Where, exp.Having)
    found = where.find(*other) if where is not None else None
    if found is None:
        return False
    found.replace(other[type(found)](this=found.this.copy(), expression=found.expression.copy()))
    return True


def literal_changed(tree: Any) -> Any:
    """Another constant in a condition."""
    from sqlglot import exp

    where = tree.find(exp.Where, exp.Having)
    found = where.find(exp.Literal) if where is not None else None
    if found is None:
        return False
    found.replace(exp.Literal.string(f"{found.name}x") if found.is_string else exp.Literal.number(float(found.name) + 1))
    return True


def aggregate_changed(tree: Any) -> Any:
    """Another aggregate of the same column."""
    from sqlglot import exp

    other = {exp.Sum: exp.Max, exp.Avg: exp.Sum, exp.Max: exp.Min, exp.Min: exp.Max}
    found = tree.find(*other)
    if found is None:
        return False
    found.replace(other[type(found)](this=found.this.copy()))
    return True


def columns_changed(how: str) -> Callable[[Any], Any]:
    """Columns in another order, one more, one less, all of them."""

    def change(tree: Any) -> Any:
        from sqlglot import exp

        select = select_of(tree)
        items = select.expressions
        if tree is not select or (how != "more" and any(item.is_star for item in items)):
            return False
        if how in ("turned", "less") and len(items) < 2:
            return False
        made = {"turned": items[::-1], "less": items[:-1], "more": [*items, exp.Literal.number(1)], "all": [exp.Star()]}
        select.set("expressions", [item.copy() for item in made[how]])
        return True

    return change


def distinct_added(tree: Any) -> Any:
    """DISTINCT where there is none."""
    select = select_of(tree)
    if select.args.get("distinct"):
        return False
    select.distinct(copy=False)
    return True


def result_of(target: Target, text: str) -> list[tuple[Any, ...]] | None:
    """What a query returns: from a database that the row or prompt holds, else from a column with the expected rows; None if unknown."""
    for image in _databases(target):
        if (rows := _run(image, text)) is not None:
            return rows
    for name, value in target.case.row.items():
        if _EXPECTED.search(name) and isinstance(value, (int, float)) and not isinstance(value, bool):
            return [(value,)]
        if _EXPECTED.search(name) and isinstance(value, (list, tuple)) and value and all(isinstance(row, (list, tuple)) for row in value):
            return [tuple(row) for row in value]
    return None


def _databases(target: Target) -> Iterator[str | bytes]:
    """Content of SQLite files, and scripts."""
    scripts = [value for value in target.case.row.values() if isinstance(value, str) and re.search(r"create\s+table", value, re.IGNORECASE)]
    for value in target.case.row.values():
        if isinstance(value, bytes) and value.startswith(b"SQLite format 3"):
            yield value
        elif isinstance(value, (str, Path)) and 0 < len(str(value)) < 1000 and "\n" not in str(value) and (content := _file(str(value))):
            yield content
    yield "\n;\n".join(scripts) if scripts else ""
    statements = re.findall(r"(?:create\s+table|insert\s+into)\b[^;]*;", target.prompt, re.IGNORECASE)
    yield "\n".join(statements)


def _file(path: str) -> bytes:
    """A database file's content, b"" where there is none."""
    try:
        with open(path, "rb") as file:
            content = file.read(50_000_000)
    except (OSError, ValueError):
        return b""
    return content if content.startswith(b"SQLite format 3") else b""


def _run(database: str | bytes, text: str) -> list[tuple[Any, ...]] | None:
    """The rows, on a copy in memory; None where it does not run, or there are many."""
    if not database:
        return None
    connection = sqlite3.connect(":memory:")
    try:
        if isinstance(database, bytes):
            connection.deserialize(database[:18] + b"\x01\x01" + database[20:])  # without a write-ahead log
        else:
            connection.executescript(database)
        steps = iter(range(200))
        connection.set_progress_handler(lambda: int(next(steps, None) is None), 100_000)
        rows = connection.execute(text).fetchmany(LITERAL_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):
        return None
    finally:
        connection.close()
    return rows if len(rows) <= LITERAL_ROWS else None


def written(value: Any) -> str:
    """A value as a literal of SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return "'" + str(value).replace("'", "''") + "'"
