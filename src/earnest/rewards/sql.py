"""SQL: a query is right when it returns what the reference returns, on more than one database.

Queries are run, never compared as texts, and never parsed here. Each runs on private copies that nothing can be written to, under limits
of time, rows and memory (`sql_worker.py` for SQLite, a read-only transaction for PostgreSQL), alone in its text, and without functions
that depend on anything but their arguments. Results are bags of typed rows (`sql_compare.py`), ordered only where the reference sorts at
its outermost level (`sql_reference.py`). One database is never enough: `SELECT 30` would be right on it.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from earnest.errors import UserError
from earnest.rewards import sql_postgres
from earnest.rewards.sql_compare import TOLERANCE, Group, accepts, differ, fits
from earnest.rewards.sql_copies import copy_of
from earnest.rewards.sql_reference import Shape, shape_of
from earnest.rewards.sql_sqlite import LIMITS, Answer, Limits, key_of, run, snapshot
from earnest.rewards.verifier import Attempt, Score, Verifier, infra_error, invalid_task, right, wrong
from earnest.task import Row

Database = str | Path | bytes
Run = Callable[[str, Limits], Answer]

TRIES = 24  # seeds that are looked at for copies on which the reference's result differs
PREPARED = 4096  # references remembered
RANKED_ROWS = 100_000  # rows of a reference without its limit that are looked at for ties

_FENCE = re.compile(
    r"\s*```[ \t]*(?:sql|sqlite|postgres|postgresql)?[ \t]*\r?\n((?:(?!```).)*?)\r?\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True)
class _Instance:
    """A database, and what is right on it.

    Attributes:
        run: Runs a statement on it.
        groups: The rows of the reference.
        names: Their columns.
    """

    run: Run
    groups: tuple[Group, ...]
    names: tuple[str, ...]
    ordered: bool


@dataclass(frozen=True)
class _Prepared:
    """A reference on all its instances, or why it cannot be used."""

    instances: tuple[_Instance, ...] = ()
    invalid: str = ""
    infra: str = ""
    slow: bool = False


def sql(
    gold: str = "sql",
    *,
    database: Database | None = None,
    column: str = "database",
    instances: Sequence[Database] = (),
    copies: int = 5,
    seed: int = 0,
    fence: bool = False,
    names: bool = False,
    tolerance: float = TOLERANCE,
    limits: Limits = LIMITS,
    max_characters: int = 10_000,
) -> Verifier:
    """The answer is one SQL query that returns what the reference query returns, on every instance of the database.

    The whole text is one read-only statement. Rows are compared as bags, so duplicates count; in order where the reference sorts at its
    outermost level, with rows of equal sorting keys in any order. Where a limit cuts through equal keys (or there is no order to cut
    along), any of the rows that the limit could have kept are right. NULL is only NULL; text is exact; an integer and a float are the
    same when their values are (`2` and `2.0`), a number and a text never; floats may be `tolerance` apart. Columns count and have an
    order; their names do not matter.

    Args:
        gold: Column of the row with the reference query.
        database: The database: path of a SQLite file, its content as bytes, or a `postgresql://` address. None: each row names its own.
        column: Column of the row that names the database, when `database` is None.
        instances: Further databases of the same schema, on which the reference returns something else.
        copies: Perturbed copies of a SQLite database to make besides (`sql_copies.py`); 0 where `instances` are enough. PostgreSQL has
            none: give `instances`.
        seed: Which copies.
        fence: Whether the query may also stand in one code fence, with nothing outside it.
        names: Whether columns must have the reference's names (in any case).
        tolerance: How far apart numbers may be when at least one is a float: this much, or this much times the larger one if that is
            below 1; or a thousandth of it times the larger one, the noise of long sums.
        limits: What a query may use on one instance.
        max_characters: Longest text that is looked at.

    Returns:
        A verifier that gives 1 or 0. A row is an invalid task where the reference or the database is missing, where the reference fails, is
        not deterministic, returns no rows (or nothing but NULL), or returns the same on every instance that can be had.

    Raises:
        UserError: Copies of PostgreSQL, or no second instance at all.
    """
    if copies < 0 or (copies == 0 and not instances):
        raise UserError("sql() needs a second database: on a single one a literal answer is right. Give instances=[...] or copies=5.")
    if database is not None and sql_postgres.is_address(database) and not instances:
        raise UserError("sql() makes no copies of a PostgreSQL database. Give instances=[...], at least one, with other data.")
    prepare = _once(partial(_prepare, instances=tuple(instances), copies=copies, seed=seed, tolerance=tolerance, limits=limits))

    def judge(attempt: Attempt, row: Row) -> Score:
        reference, where = row[gold], database if database is not None else row[column]
        if not isinstance(reference, str) or not isinstance(where, (str, Path, bytes)):
            return invalid_task("the reference is no text, or the database no path")
        prepared = prepare(reference, where)
        if prepared.invalid:
            return invalid_task(prepared.invalid)
        if prepared.infra:
            return infra_error(prepared.infra)
        statement = _statement(attempt.text, fence, max_characters)
        if statement is None:
            return wrong("the answer is not one SQL statement")
        for number, instance in enumerate(prepared.instances):
            score = _compared(statement, instance, number, names, tolerance, limits)
            if score.value != 1.0:
                return score
        return right(sql=_printable(statement), instances=len(prepared.instances))

    columns = (gold,) if database is not None else (gold, column)
    return Verifier("sql", judge, columns, slow=True)


def _statement(text: str, fence: bool, max_characters: int) -> str | None:
    """The query in an answer; whether it is one, and only one, the database says."""
    if len(text) > max_characters or not text.strip():
        return None
    if fence and (match := _FENCE.fullmatch(text)):
        return match[1] if match[1].strip() else None
    return text


def _printable(text: str) -> str:
    """A text that any file takes, lone surrogates escaped."""
    return text[:2000].encode("utf-8", "backslashreplace").decode()


def _compared(statement: str, instance: _Instance, number: int, names: bool, tolerance: float, limits: Limits) -> Score:
    """The query on one instance."""
    expected = sum(group.take for group in instance.groups)
    answer = instance.run(statement, replace(limits, rows=min(limits.rows, expected)))
    shown = {"sql": _printable(statement), "instance": number, "rows_expected": expected}
    if answer.status == "infra":
        return infra_error(answer.reason, **shown)
    if answer.status != "rows":
        return wrong(answer.reason, **shown, **({"timeout": True} if answer.status == "timeout" else {}))
    shown["rows"] = len(answer.rows)
    if len(answer.names) != len(instance.names):
        return wrong(f"{len(answer.names)} columns in place of {len(instance.names)}", **shown)
    if names and [name.lower() for name in answer.names] != [name.lower() for name in instance.names]:
        return wrong("the columns have other names", **shown)
    if len(answer.rows) != expected:
        return wrong("too few rows", **shown)
    if accepts(instance.groups, answer.rows, tolerance):
        return right()
    everything = [row for group in instance.groups for row in group.rows]
    if instance.ordered and fits(everything, answer.rows, tolerance):
        return wrong("the rows are in another order, or not those the limit keeps", **shown)
    return wrong("other rows than the reference's" if number == 0 else "other rows than the reference's on another instance", **shown)


def _prepare(
    reference: str, where: Database, *, instances: tuple[Database, ...], copies: int, seed: int, tolerance: float, limits: Limits
) -> _Prepared:
    """Run the reference on the database and find instances on which its result differs."""
    found: list[_Instance] = []
    for database in (where, *instances):
        try:
            runner, dialect, image = _runner(database)
        except (OSError, ValueError, sqlite3.Error) as error:
            return _Prepared(invalid=f"the database cannot be read: {error}")
        made = _expected(reference, runner, dialect, tolerance, limits)
        if isinstance(made, _Prepared):
            return made
        found.append(made[0])
        if database is where:
            first, shape = image, made[1]
    if first is not None and copies:
        more = _copies(reference, first, shape, found[0], copies, seed, tolerance, limits)
        if isinstance(more, _Prepared):
            return more
        found += more
    if not any(differ(found[0].groups, other.groups, tolerance) for other in found[1:]):
        return _Prepared(invalid="the reference returns the same on every instance that was found, so a literal answer would be right")
    return _Prepared(tuple(found))


def _copies(
    reference: str, image: bytes, shape: Shape, original: _Instance, copies: int, seed: int, tolerance: float, limits: Limits
) -> list[_Instance] | _Prepared:
    """So many copies on which the reference runs and is not empty, at least one of them with another result, if there is one.

    Where no limit cuts through equal keys on the original, copies where one does are left aside: asking for the first row and asking for
    the rows with the largest value are then meant to be the same.
    """
    found: list[_Instance] = []
    aside: list[_Instance] = []
    told = False
    for number in range(TRIES):
        made = _expected(reference, partial(_run_copy, image, seed * TRIES + number, shape.compared), "sqlite", tolerance, limits)
        if isinstance(made, _Prepared):
            if made.infra:
                return made
            if made.slow:  # it would be as slow on the next
                break
            continue
        copy, other = made[0], differ(original.groups, made[0].groups, tolerance)
        if _cut(copy) and not _cut(original):
            aside += [copy] if other else []
        elif len(found) < copies:
            found.append(copy)
        elif other:
            found[-1] = copy
        told = told or (other and any(copy is kept for kept in found))
        if told and len(found) == copies:
            break
    return found if told else found[: copies - 1] + aside[:1]


def _cut(instance: _Instance) -> bool:
    """Whether the limit of the reference takes only some of the rows with equal sorting keys."""
    return any(group.take < len(group.rows) for group in instance.groups)


def _runner(database: Database) -> tuple[Run, str, bytes | None]:
    """How to run a query on a database, its dialect, and its content if it is SQLite."""
    if sql_postgres.is_address(database):
        return partial(sql_postgres.run, str(database)), "postgres", None
    image = database if isinstance(database, bytes) else _snapshot(str(Path(database).resolve()), Path(database).stat().st_mtime_ns)
    key = _key(image)
    return lambda statement, limits: run(image, key, statement, limits), "sqlite", image


@lru_cache(maxsize=16)
def _snapshot(path: str, _changed: int) -> bytes:
    return snapshot(path)


@lru_cache(maxsize=256)
def _key(image: bytes) -> str:
    return key_of(image)


def _run_copy(image: bytes, seed: int, compared: Any, statement: str, limits: Limits) -> Answer:
    """Run a query on a copy, which is made again when it is no longer kept."""
    copy = copy_of(image, seed, compared)
    return run(copy, _key(copy), statement, limits)


def _expected(reference: str, runner: Run, dialect: str, tolerance: float, limits: Limits) -> tuple[_Instance, Shape] | _Prepared:
    """What the reference returns on an instance, with the freedom an answer has."""
    answer = runner(reference, limits)
    if answer.status == "infra":
        return _Prepared(infra=answer.reason)
    if answer.status != "rows":
        return _Prepared(invalid=f"the reference does not run: {answer.reason}", slow=answer.status in ("timeout", "limit"))
    if all(cell is None for row in answer.rows for cell in row):
        return _Prepared(invalid="the reference returns no rows, or nothing but NULL")
    shape = shape_of(reference, len(answer.names), dialect)
    exact = tuple(Group((row,), 1) for row in answer.rows) if shape.ordered else (Group(answer.rows, len(answer.rows)),)
    wide = replace(limits, rows=max(limits.rows, RANKED_ROWS))
    groups = exact
    if shape.ranked is not None:
        groups = _ties(runner(shape.ranked, wide), shape.offset, len(answer.rows))
    elif shape.whole is not None:
        groups = (Group(runner(shape.whole, wide).rows, len(answer.rows)),)
    if not groups or not accepts(groups, answer.rows, tolerance):  # the query without its limit does not run: no freedom then
        groups = exact
    return _Instance(runner, groups, answer.names, shape.ordered), shape


def _ties(ranked: Answer, offset: int, take: int) -> tuple[Group, ...]:
    """Groups of equal sorting keys, as far as the limit takes from them."""
    groups: OrderedDict[Any, list[tuple[Any, ...]]] = OrderedDict()
    for row in ranked.rows:
        groups.setdefault(row[-1], []).append(row[:-1])
    result, start = [], 0
    for rows in groups.values():
        taken = min(start + len(rows), offset + take) - max(start, offset)
        if taken > 0:
            result.append(Group(tuple(rows), taken))
        start += len(rows)
    return tuple(result)


def _once(function: Callable[[str, Database], _Prepared]) -> Callable[[str, Database], _Prepared]:
    """Remember results, and let threads that ask for the same one wait for it. Failures of the infrastructure are not remembered."""
    lock, known = threading.Lock(), OrderedDict()

    def ask(reference: str, where: Database) -> _Prepared:
        key = (reference, where)
        with lock:
            future = known.get(key)
            mine = future is None
            if mine:
                future = known[key] = Future()
                if len(known) > PREPARED:
                    known.popitem(last=False)
        if mine:
            try:
                future.set_result(function(reference, where))
            except BaseException as error:
                future.set_exception(error)
            if future.exception() or future.result().infra:
                with lock:
                    known.pop(key, None)
        return future.result()

    return ask
