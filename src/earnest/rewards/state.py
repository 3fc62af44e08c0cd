"""State: what the database is in the end, against what it should be.

The whole database is compared, so that what was not asked for shows as well as what was. Only what an allow list names may differ, and the
state the attempt began with is needed too: where nothing had to be done, doing nothing must not earn anything.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from earnest.errors import UserError
from earnest.rewards.database import Database, Table, UnreadableError, read_database
from earnest.rewards.matching import equal, frozen, mentions, most_others, pair_up
from earnest.rewards.verifier import Attempt, Score, Verifier, infra_error, invalid_task, right
from earnest.task import Row

Kind = Literal["added", "removed", "changed"]
MOST_PAIRED = 200  # rows without a key that are compared within a tolerance, each with each
SHOWN = 10  # changes in the evidence


@dataclass(frozen=True)
class Change:
    """One difference between two databases.

    Attributes:
        kind: A row that only the second has, or only the first, or a value that is another.
        table: Its table; "sqlite_schema" for a view, a trigger, an index or the definition of a table.
        row: Its key, or its values where it has none.
        column: The column that changed; "" for a whole row.
    """

    kind: Kind
    table: str
    row: str
    column: str = ""

    def __str__(self) -> str:
        place = f"{self.table}.{self.column}" if self.column else self.table
        return f"{self.kind} {place} {self.row}".encode("unicode_escape").decode("ascii")[:120]


@dataclass(frozen=True)
class Effect:
    """Changes that must not happen, "*" for any: `Effect("removed", "tickets")`, `Effect("changed", "accounts", "owner")`."""

    kind: Kind
    table: str = "*"
    column: str = "*"

    def __str__(self) -> str:
        return f"{self.kind} {self.table}" + (f".{self.column}" if self.column != "*" else "")

    def covers(self, change: Change) -> bool:
        """Whether a change is one of these."""
        return change.kind == self.kind and self.table in ("*", change.table) and self.column in ("*", change.column)


def final_state(
    gold: str = "expected",
    *,
    final: str | Callable[[Attempt, Row], Any] = "final",
    start: str | Callable[[Attempt, Row], Any] | None = "start",
    keys: Mapping[str, Sequence[str]] | None = None,
    may_differ: Sequence[str] = (),
    tolerance: float | Mapping[str, float] = 0.0,
    forbidden: Sequence[Effect] = (),
    says: str | None = None,
    most_besides: int = 8,
    partial: bool = False,
    unchanged: bool = False,
    name: str = "final_state",
) -> Verifier:
    """The final database is the expected one, all of it.

    A database is an SQLite connection, the path of an SQLite file, or a mapping of tables (also as JSON text): a table is a list of rows,
    or rows by key; a row is an object. Rows with a key (the primary key, or `keys`) are compared value by value, others as a bag. Numbers
    are equal by value within the tolerance, text to the letter; a boolean is no number, except that SQLite has none and keeps 0 and 1.
    Between SQLite databases the definitions of tables, views, triggers and indexes count too, as the table "sqlite_schema".

    With D the differences between expected and final, and T those between start and expected:

        0                      when a forbidden effect lies between start and final, or the answer does not say what it must
        1                      when D is empty
        max(0, 1 - |D|/|T|)    otherwise with `partial`, else 0: what was done, less what was spoilt; going to and fro earns nothing

    A row whose start is its goal is an invalid task. A final state that cannot be read earns 0, for the attempt may have spoilt it; one
    that the environment did not keep (None, a closed connection) is an infrastructure error. The connection is read as it is, uncommitted
    changes included, and on the thread of the caller.

    Args:
        gold: Column with the expected database.
        final: Column with the final one, or a function of attempt and row that returns it.
        start: Likewise the one that the attempt began with. None gives up the check that something had to be done.
        keys: Key columns by table, where the database declares none.
        may_differ: What may differ: "table", "table.column" or "*.column". Of a column's table there must still be as many rows.
        tolerance: Largest absolute difference of numbers, in the unit of the column; for all, or by "table.column".
        forbidden: Changes against the start that take everything, also where `may_differ` would let them pass.
        says: Column with a value or values that the final answer must hold, as whole words or numbers. It cannot tell an answer from its
            denial; where the answer itself is the task, use `number` or `label` for it.
        most_besides: Other values of the same form (numbers, or names with digits in them) that the final answer may hold with `says`:
            more are a list of guesses.
        partial: Whether a part of the changes earns a part.
        unchanged: Whether rows whose goal is the start are scored: then doing nothing is right, but an empty answer is not.
        name: As it appears in metrics.

    Raises:
        UserError: An option needs a start that is not given.
    """
    if start is None and (forbidden or partial):
        raise UserError(f"{name}: forbidden= and partial= are about changes since the start. Give start= too.")
    rules = _Rules(keys or {}, tuple(may_differ), tolerance)

    def judge(attempt: Attempt, row: Row) -> Score:
        try:
            expected = read_database(row[gold])
            began = None if start is None else read_database(_taken(start, attempt, row))
        except (UnreadableError, sqlite3.Error) as error:
            return invalid_task(f"the expected or the first database cannot be read: {error}")
        todo = None if began is None else differences(began, expected, rules)
        if todo == [] and not unchanged:
            return invalid_task("the goal is the start, so that doing nothing would earn full marks")
        lost = _gates(began, expected, forbidden, rules)
        if lost:
            return invalid_task(f"the goal itself has an effect that is {lost[0]}")
        if isinstance(final, str) and final not in row:
            return invalid_task(f"the row has no {final}")
        given = _taken(final, attempt, row)
        if given is None:
            return infra_error("the environment kept no final state")
        try:
            ended = read_database(given)
        except sqlite3.ProgrammingError as error:  # closed, or of another thread: nothing that SQL can do
            return infra_error(f"the final database cannot be asked: {error}")
        except (UnreadableError, sqlite3.Error) as error:
            return Score(0.0, reasons=("the final database cannot be read",), evidence={"error": str(error)[:200]})
        try:
            gates = _gates(began, ended, forbidden, rules)
            left = differences(expected, ended, rules, began)
        except RecursionError:
            return Score(0.0, reasons=("the final database is nested too deeply",))
        if says is not None and not all(mentions(attempt.text, value) for value in _listed(row[says])):
            gates.append("the answer does not say what it must")
        if says is not None and most_others(attempt.text, _listed(row[says])) > most_besides:
            gates.append("the answer says many things beside what it must")
        if todo == [] and not attempt.text.strip():
            gates.append("nothing had to be changed, and there is no answer either")
        return _scored(left, todo, gates, partial)

    # not `final`: that one is the environment's, and its lack no fault of the row
    columns = (gold, *(source for source in (start, says) if isinstance(source, str)))
    return Verifier(name, judge, tuple(dict.fromkeys(columns)))


def digest(database: Any) -> str:
    """A fingerprint of all rows of a database, whatever their order: equal before two rollouts when the environment was reset.

    Args:
        database: As in `final_state`.

    Raises:
        UnreadableError: It cannot be read.
    """
    read = read_database(database)
    rows = sorted(_written([name, row], read.sqlite) for name, table in read.tables.items() for row in table.rows)
    return hashlib.sha256("\n".join([*sorted(read.tables), *rows]).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class _Rules:
    """What counts as equal."""

    keys: Mapping[str, Sequence[str]]
    may_differ: tuple[str, ...] = ()
    tolerance: float | Mapping[str, float] = 0.0

    def free(self, table: str, column: str | None = None) -> bool:
        """Whether a table, or one of its columns, may differ."""
        names = (table,) if column is None else (f"{table}.{column}", f"*.{column}")
        return any(name in self.may_differ for name in names)

    def same(self, table: str, column: str, one: Any, other: Any) -> bool:
        """Whether two values of a column are equal."""
        if equal(one, other) or frozen(one) == frozen(other):
            return True
        within = self.tolerance if isinstance(self.tolerance, (int, float)) else self.tolerance.get(f"{table}.{column}", 0.0)
        if within <= 0 or any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in (one, other)):
            return False
        try:
            return abs(one - other) <= within  # False for NaN
        except OverflowError:
            return False


def differences(one: Database, other: Database, rules: _Rules = _Rules({}), schema_of: Database | None = None) -> list[Change]:
    """Every difference between two databases, seen from the first.

    Args:
        one: The first.
        other: The second.
        rules: What counts as equal.
        schema_of: Whose schema the second must have, where the first has none.
    """
    loose = one.sqlite or other.sqlite  # SQLite keeps a boolean as 0 or 1
    found: list[Change] = []
    for name in sorted({*one.tables, *other.tables}):
        if rules.free(name):
            continue
        if name not in one.tables or name not in other.tables:
            found.append(Change("added" if name in other.tables else "removed", name, "(the table)"))
        before, after = (_compared(database.tables.get(name, Table()), name, rules, loose) for database in (one, other))
        key = tuple(rules.keys.get(name) or (one.tables.get(name) or other.tables[name]).key)
        found += _by_key(name, key, before, after, rules) if _is_key(key, before, after) else _as_bags(name, before, after, rules)
    schema = one if one.sqlite else schema_of
    if other.sqlite and schema is not None and schema.sqlite and not rules.free("sqlite_schema"):
        found += _schema_changes(schema, other, rules)
    return found


def _schema_changes(one: Database, other: Database, rules: _Rules) -> list[Change]:
    names = sorted({*one.schema, *other.schema})
    kinds = [(name, "added" if name not in one.schema else "removed" if name not in other.schema else "changed") for name in names]
    return [
        Change(kind, "sqlite_schema", name, "sql" if kind == "changed" else "")
        for name, kind in kinds
        if one.schema.get(name) != other.schema.get(name) and not rules.free(name.split(" ", 1)[1])
    ]


def _compared(table: Table, name: str, rules: _Rules, loose: bool) -> list[dict[str, Any]]:
    """The rows, without the columns that may differ."""
    return [
        {
            column: int(value) if loose and isinstance(value, bool) else value
            for column, value in row.items()
            if not rules.free(name, column)
        }
        for row in table.rows
    ]


def _is_key(key: Sequence[str], *sides: list[dict[str, Any]]) -> bool:
    """Whether the columns tell the rows of each side apart."""
    if not key or any(row.get(column) is None for rows in sides for row in rows for column in key):
        return False
    return all(len({_key(row, key) for row in rows}) == len(rows) for rows in sides)


def _key(row: Mapping[str, Any], key: Sequence[str]) -> Any:
    return tuple(frozen(row[column]) for column in key)


def _by_key(name: str, key: Sequence[str], before: list[dict[str, Any]], after: list[dict[str, Any]], rules: _Rules) -> list[Change]:
    old, new = ({_key(row, key): row for row in rows} for rows in (before, after))

    def label(row: Mapping[str, Any]) -> str:
        return ", ".join(str(row[column])[:40] for column in key)

    found = [Change("removed", name, label(row)) for place, row in old.items() if place not in new]
    found += [Change("added", name, label(row)) for place, row in new.items() if place not in old]
    for place, row in old.items():
        if place in new:
            now = new[place]
            columns = [c for c in {**row, **now} if c not in row or c not in now or not rules.same(name, c, row[c], now[c])]
            found += [Change("changed", name, label(row), column) for column in columns]
    return found


def _as_bags(name: str, before: list[dict[str, Any]], after: list[dict[str, Any]], rules: _Rules) -> list[Change]:
    old, new = Counter(map(frozen, before)), Counter(map(frozen, after))
    gone, come = list((old - new).elements()), list((new - old).elements())
    kept = ({frozen(row): row for row in before}, {frozen(row): row for row in after})
    rows = [kept[0][place] for place in gone], [kept[1][place] for place in come]
    paired: dict[int, int] = {}
    if rules.tolerance and len(gone) <= MOST_PAIRED and len(come) <= MOST_PAIRED:
        paired = pair_up([[_alike(name, a, b, rules) for b in rows[1]] for a in rows[0]])
    left = (
        [row for index, row in enumerate(rows[0]) if index not in paired],
        [row for index, row in enumerate(rows[1]) if index not in paired.values()],
    )
    return [Change("removed", name, str(row)[:120]) for row in left[0]] + [Change("added", name, str(row)[:120]) for row in left[1]]


def _alike(name: str, one: Mapping[str, Any], other: Mapping[str, Any], rules: _Rules) -> bool:
    return one.keys() == other.keys() and all(rules.same(name, column, one[column], other[column]) for column in one)


def _gates(began: Database | None, ended: Database, forbidden: Sequence[Effect], rules: _Rules) -> list[str]:
    """The forbidden effects that happened, nothing being free to differ."""
    if not forbidden or began is None:
        return []
    changes = differences(began, ended, replace(rules, may_differ=(), tolerance=0.0))
    return [f"forbidden: {effect}" for effect in forbidden if any(effect.covers(change) for change in changes)]


def _scored(left: list[Change], todo: list[Change] | None, gates: list[str], partial: bool) -> Score:
    counts = Counter(change.kind for change in left)
    evidence = {kind: counts[kind] for kind in ("added", "removed", "changed")} | {"changes": [str(change) for change in left[:SHOWN]]}
    if not left and not gates:
        return right(**evidence)
    places = sorted({(change.kind, f"{change.table}.{change.column}" if change.column else change.table) for change in left})
    reasons = (*gates, *(f"differs from the goal: {kind} {place}"[:120] for kind, place in places[:SHOWN]))
    value = max(0.0, 1 - len(left) / len(todo)) if partial and todo and not gates else 0.0
    return Score(value, reasons=reasons, evidence=evidence)


def _taken(source: str | Callable[[Attempt, Row], Any], attempt: Attempt, row: Row) -> Any:
    return row[source] if isinstance(source, str) else source(attempt, row)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _written(value: Any, loose: bool) -> str:
    """The same text for equal values, in every process."""
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{key!r}:{_written(member, loose)}" for key, member in value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_written(member, loose) for member in value) + "]"
    if (loose and isinstance(value, bool)) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return repr(value)
