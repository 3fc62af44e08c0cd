"""Further instances of a database, made from the first: other rows, the same rules.

A query that happens to be right on one database (a literal answer, a condition left out that changes nothing here) is told from one
that is right by running both where the data differ; see "distilled test suites", Zhong et al. 2020, arXiv:2010.02840. What the data
obey stays so, or queries that are equal on such data would come out different: schema, storage classes, keys, unique columns (declared
or only by the data), foreign keys, columns without NULL, and one column following from another in the same table.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from earnest.rewards.sql_sqlite import private_copy

EVIDENCE = 10  # repetitions after which it is no accident that one column follows from another
PLANTED, REMOVED = 0.65, 0.2  # shares of a reference's constants that a copy is made to contain, and not to contain
Compared = tuple[tuple[str, str, Any], ...]


@dataclass
class _Table:
    """A table being changed: its rows, and which columns are bound how."""

    name: str
    columns: list[str]
    rows: list[list[Any]]
    fixed: set[int]
    unique: set[int]
    links: list[tuple[list[int], str, list[str]]]  # own columns, parent, its columns
    key: list[str]  # columns of the primary key

    def column(self, index: int) -> list[Any]:
        return [row[index] for row in self.rows]


@functools.lru_cache(maxsize=32)
def copy_of(image: bytes, seed: int, compared: Compared = ()) -> bytes:
    """A perturbed copy in which the constants of a reference occur.

    Values the reference compares a column with, and one more and one less where it asks for more or less, are put in place of other values
    of that column wherever these occur, foreign keys included, so that `>` and `>=` part and a condition finds rows. Some are taken out
    in the same way, so that a condition finds none: "is there any" must not be answered yes everywhere.

    Args:
        image: The first database.
        seed: Which copy.
        compared: Comparisons of the reference, as `Shape.compared`.
    """
    base = _perturbed(image, seed)
    rng = random.Random(f"plant {seed}")
    wanted = [(comparison, chance) for comparison in compared if (chance := rng.random()) < PLANTED + REMOVED]
    if not wanted:
        return base
    connection = private_copy(base)
    try:
        tables = _tables(connection)
        triggers = _without_triggers(connection)
        taken: set[Any] = {value for _, _, value in compared}
        for (column, operator, value), chance in wanted:
            for table in tables.values():
                for index, name in enumerate(table.columns):
                    if name.lower() == column:
                        values = _distinct(connection, table, index)
                        plan = _planted(operator, value, values, taken, rng) if chance < PLANTED else _removed(operator, value, values)
                        _rename(connection, _class(tables, table.name.lower(), name.lower()), plan)
                        taken |= {new for _, new in plan}
        _with_triggers(connection, triggers)
        return connection.serialize()
    finally:
        connection.close()


@functools.lru_cache(maxsize=32)
def _perturbed(image: bytes, seed: int) -> bytes:
    """Some rows fewer, and the values of free columns drawn anew from those the column has."""
    rng = random.Random(f"perturb {seed}")
    connection = private_copy(image)
    try:
        tables = _tables(connection)
        original = {name: [tuple(row) for row in table.rows] for name, table in tables.items()}
        for name, table in tables.items():
            share = rng.choice((0.0, 0.1, 0.25))
            stay = _pointed_at(table, name)
            table.rows = [row for i, row in enumerate(table.rows) if i in stay or rng.random() >= share] or table.rows
        _cascade(tables, original)
        for table in tables.values():
            _redraw(table, tables, rng)
        triggers = _without_triggers(connection)
        connection.execute("BEGIN")
        for name, table in tables.items():
            _write(connection, table, original[name])
        connection.execute("COMMIT")
        _with_triggers(connection, triggers)
        return connection.serialize()
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _tables(connection: sqlite3.Connection) -> dict[str, _Table]:
    """Ordinary tables by their names in lower case, with their rows."""
    listed = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    tables = {}
    for (name,) in listed.fetchall():
        about = connection.execute("SELECT name, pk FROM pragma_table_xinfo(?) WHERE hidden = 0", (name,)).fetchall()
        columns = [column for column, _ in about]
        try:
            rows = connection.execute(f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(name)}").fetchall()
        except sqlite3.OperationalError:  # text that is no UTF-8: the table stays as it is
            continue
        key = [column for column, place in sorted(about, key=lambda part: part[1]) if place]
        fixed = {columns.index(column) for column in key}
        tables[name.lower()] = _Table(name, columns, [list(row) for row in rows], fixed, set(), [], key)
    for table in tables.values():
        _bind(connection, table, tables)
    return tables


def _bind(connection: sqlite3.Connection, table: _Table, tables: dict[str, _Table]) -> None:
    """Find out which columns are keys, unique, or point to other tables."""
    places = {column.lower(): i for i, column in enumerate(table.columns)}
    indexes = connection.execute('SELECT name FROM pragma_index_list(?) WHERE "unique"', (table.name,)).fetchall()
    for (index,) in indexes:
        members = [name for (name,) in connection.execute("SELECT name FROM pragma_index_info(?)", (index,))]
        own = {places[name.lower()] for name in members if name and name.lower() in places}
        if len(members) == 1:
            table.unique |= own
        else:
            table.fixed |= own
    for i in range(len(table.columns)):
        values = [value for value in table.column(i) if value is not None]
        if values and len(set(values)) == len(values):
            table.unique.add(i)
    links: dict[int, list[tuple[str, str, str | None]]] = {}
    for key, parent, own, other in connection.execute('SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?)', (table.name,)):
        links.setdefault(key, []).append((parent.lower(), own.lower(), other))
    for parts in links.values():
        parent, own = tables.get(parts[0][0]), [places[own] for _, own, _ in parts if own in places]
        keys = [] if parent is None else _keys_of(parent, [other for _, _, other in parts])
        if not keys or not len(keys) == len(own) == len(parts):  # a rule that no row could break or keep: SQLite takes it all the same
            table.fixed |= set(own)
            continue
        table.links.append((own, parts[0][0], keys))
        if len(own) > 1 or parent is table or own[0] in table.unique:  # a hierarchy drawn anew could run in a circle
            table.fixed |= set(own)
        parent.fixed |= {i for i, column in enumerate(parent.columns) if column.lower() in table.links[-1][2]}


def _keys_of(parent: _Table, named: Sequence[str | None]) -> list[str]:
    """The columns, in lower case, that a foreign key points to: those it names, else the primary key; none where they do not exist."""
    keys = [key.lower() for key in (parent.key if None in named else named) if key]
    return keys if {*keys} <= {column.lower() for column in parent.columns} else []


def _pointed_at(table: _Table, name: str) -> set[int]:
    """Rows that others of the same table point to: without the heads of a hierarchy little would be left of it."""
    found = set()
    for own, parent, keys in table.links:
        if parent == name:
            named = {tuple(row[i] for i in own) for row in table.rows}
            places = [[column.lower() for column in table.columns].index(key) for key in keys]
            found |= {i for i, row in enumerate(table.rows) if tuple(row[place] for place in places) in named}
    return found


def _keys(rows: Sequence[Sequence[Any]], places: Sequence[int]) -> set[tuple[Any, ...]]:
    return {tuple(row[i] for i in places) for row in rows}


def _cascade(tables: dict[str, _Table], original: dict[str, list[tuple[Any, ...]]]) -> None:
    """Take out rows that point to rows taken out, where they cannot point elsewhere."""
    changed = True
    while changed:
        changed = False
        for table in tables.values():
            for own, parent, keys in table.links:
                if not set(own) & table.fixed and len(tables[parent].rows):
                    continue
                places = [[column.lower() for column in tables[parent].columns].index(key) for key in keys]
                gone = _keys(original[parent], places) - _keys(tables[parent].rows, places)
                kept = [row for row in table.rows if tuple(row[i] for i in own) not in gone]
                changed |= len(kept) < len(table.rows)
                table.rows = kept


def _redraw(table: _Table, tables: dict[str, _Table], rng: random.Random) -> None:
    """Draw the values of free columns anew."""
    before = [list(row) for row in table.rows]
    allowed = {}
    for own, parent, keys in table.links:
        if len(own) == 1:
            place = [column.lower() for column in tables[parent].columns].index(keys[0])
            allowed[own[0]] = set(tables[parent].column(place)) | {None}
    settled = sorted(table.fixed - table.unique)
    for i in range(len(table.columns)):
        if i in table.fixed:
            continue
        values = [row[i] for row in before]
        if i in table.unique:
            rng.shuffle(values)
        elif (leader := next((j for j in settled if _follows(before, j, i)), None)) is not None and i not in allowed:
            values = _led(before, table, leader, i, rng)
        else:
            values = _drawn(values, allowed.get(i), rng)
            settled.append(i)
        for row, value in zip(table.rows, values, strict=True):
            row[i] = value


def _follows(rows: Sequence[Sequence[Any]], leader: int, follower: int) -> bool:
    """Whether one column follows from another, in rows enough for it to be a rule."""
    pairs = {(row[leader], row[follower]) for row in rows}
    leaders = {pair[0] for pair in pairs}
    return len(pairs) == len(leaders) and len(rows) - len(leaders) >= max(EVIDENCE, len(rows) // 10)


def _led(before: list[list[Any]], table: _Table, leader: int, follower: int, rng: random.Random) -> list[Any]:
    """Values that follow from the leading column as before; from a key, as in some other row."""
    rule = {row[leader]: row[follower] for row in before}
    if leader in table.fixed:
        values = list(rule.values())
        rng.shuffle(values)
        rule = dict(zip(rule, values, strict=True))
    return [rule[row[leader]] for row in table.rows]


def _drawn(values: list[Any], allowed: set[Any] | None, rng: random.Random) -> list[Any]:
    """As many values out of some of those there were; which of them are common is drawn too."""
    kinds = [value for value in dict.fromkeys(values) if allowed is None or value in allowed]
    if not kinds:
        return values if allowed is None else [rng.choice(sorted(allowed - {None}, key=repr)) for _ in values]
    share = rng.uniform(0.5, 1.0)
    pool = [kind for kind in kinds if rng.random() < share] or [rng.choice(kinds)]
    often = Counter(values)
    weights = [often[kind] * rng.expovariate(1.0) for kind in pool]  # or the commonest value would be the commonest everywhere
    return rng.choices(pool, weights, k=len(values))


def _write(connection: sqlite3.Connection, table: _Table, original: list[tuple[Any, ...]]) -> None:
    """Put the rows in place of the table's own; as they were where a constraint does not allow the new ones."""
    if [tuple(row) for row in table.rows] == original:
        return
    columns = ", ".join(map(_quoted, table.columns))
    insert = f"INSERT INTO {_quoted(table.name)} ({columns}) VALUES ({', '.join('?' * len(table.columns))})"
    connection.execute("SAVEPOINT one")
    try:
        connection.execute(f"DELETE FROM {_quoted(table.name)}")
        connection.executemany(insert, table.rows)
    except sqlite3.Error:
        connection.execute("ROLLBACK TO one")
    connection.execute("RELEASE one")


def _without_triggers(connection: sqlite3.Connection) -> list[str]:
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {_quoted(name)}")
    return [sql for _, sql in triggers]


def _with_triggers(connection: sqlite3.Connection, triggers: Sequence[str]) -> None:
    for sql in triggers:
        connection.execute(sql)


def _distinct(connection: sqlite3.Connection, table: _Table, index: int) -> list[Any]:
    place, column = _quoted(table.name), _quoted(table.columns[index])
    return [value for (value,) in connection.execute(f"SELECT DISTINCT {column} FROM {place} WHERE {column} IS NOT NULL ORDER BY 1")]


def _planted(operator: str, value: Any, values: list[Any], taken: set[Any], rng: random.Random) -> list[tuple[Any, Any]]:
    """Which values (old, new) to exchange so that those of a comparison occur."""
    free = [known for known in values if known not in taken]
    rng.shuffle(free)
    return list(zip(free, [target for target in _targets(operator, value, values) if target not in values], strict=False))


def _removed(operator: str, value: Any, values: list[Any]) -> list[tuple[Any, Any]]:
    """Which values (old, new) to exchange so that those of a comparison do not occur."""
    if operator not in ("EQ", "In", "Like"):
        return []
    found = str(value).strip("%").lower()
    plan = []
    for old in values:
        if isinstance(old, str) and (found in old.lower() if operator == "Like" else old == value) and not re.search(r"\d", old):
            plan.append((old, old[::-1]))
        elif type(old) is int and old == value:
            plan.append((old, max(known for known in values if isinstance(known, (int, float))) + 1))
    return [(old, new) for old, new in plan if new not in values]


def _rename(connection: sqlite3.Connection, places: set[tuple[str, str]], plan: Sequence[tuple[Any, Any]]) -> None:
    for old, new in plan:
        for table, column in sorted(places):
            with contextlib.suppress(sqlite3.Error):  # a constraint of its own: with the old value then
                connection.execute(f"UPDATE {_quoted(table)} SET {_quoted(column)} = ? WHERE {_quoted(column)} IS ?", (new, old))


def _targets(operator: str, value: Any, values: Sequence[Any]) -> list[Any]:
    """What should occur in a column with such values."""
    if not values:
        return []
    if all(isinstance(known, str) for known in values):
        text = str(value)
        if operator == "Like":
            text = text.strip("%").replace("%", " ").replace("_", "a")
            return [] if any(text.lower() in known.lower() for known in values) else [text]
        shapes = {_shape(known) for known in values}
        form = len(shapes) == 1 and "a" not in shapes.copy().pop()  # dates, times, telephone numbers
        return [] if form and _shape(text) not in shapes else [text]
    if not all(isinstance(known, (int, float)) for known in values):
        return []
    try:
        number = float(value)
    except (TypeError, ValueError):
        return []
    if all(isinstance(known, int) for known in values):
        if abs(number) >= 2**53 or number != int(number):
            return []
        number = int(number)
    return [number, number + 1, number - 1] if operator in ("GT", "GTE", "LT", "LTE", "Between") else [number]


def _shape(text: str) -> str:
    """A text with what it says taken out: dates of one form have one shape."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d", "9", text))


def _class(tables: dict[str, _Table], table: str, column: str) -> set[tuple[str, str]]:
    """A column and all that foreign keys tie it to, as (table, column)."""
    edges = [
        ((name, each.columns[mine].lower()), (parent, key))
        for name, each in tables.items()
        for own, parent, keys in each.links
        for mine, key in zip(own, keys, strict=False)
    ]
    found = {(table, column)}
    while more := {b for pair in edges for a, b in (pair, pair[::-1]) if a in found} - found:
        found |= more
    return found
