"""The process that runs untrusted queries on SQLite. Imports nothing of the package: it is started by its path, in an isolated interpreter.

SQLite can be told to stop only between the instructions of its own machine. One call of a string function, or the preparation of
a query with many nested parts, can take minutes and all memory in between. So queries run here, under limits of the operating system, and a
query that outstays its time takes this process along and nothing else.

Frames on stdin and stdout: four bytes of length, then JSON. A request whose `size` is not 0 is followed by that many bytes of a database.
"""

import functools
import json
import os
import resource
import signal
import sqlite3
import struct
import sys
import time

CELL_TEXT = "surrogateescape"  # text in a database need not be valid UTF-8; distinct bytes stay distinct
GRACE = 0.25  # seconds after which what does not heed the time limit is killed
WALL = 30  # times the time limit, in seconds by the clock: nothing here waits, so only a stalled machine gets there
HELPERS = ("bm25", "highlight", "match", "matchinfo", "offsets", "snippet")  # of full text search; deterministic, but not declared so
REFUSED = ("load_extension", "fts3_tokenizer", "sqlite_log", "readfile", "writefile", "edit")  # whatever they declare
CLOCKS = ("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff")
ALLOWED_ACTIONS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
_OBJECTS = ("INDEX", "TABLE", "TRIGGER", "VIEW", "TEMP_INDEX", "TEMP_TABLE", "TEMP_TRIGGER", "TEMP_VIEW", "VTABLE")
_OTHERS = ("ALTER_TABLE", "ANALYZE", "ATTACH", "DELETE", "DETACH", "INSERT", "PRAGMA", "REINDEX", "SAVEPOINT", "TRANSACTION", "UPDATE")
_NAMES = (*_OTHERS, *(f"{verb}_{noun}" for verb in ("CREATE", "DROP") for noun in _OBJECTS))
ACTIONS = {getattr(sqlite3, f"SQLITE_{name}"): name.replace("_", " ") for name in _NAMES}  # in the words of the reasons


class State:
    """What the hooks of one query note down."""

    refused = ""
    out_of_time = False


def allowed_functions() -> frozenset[str]:
    """Functions whose result depends on their arguments alone: declared deterministic, or aggregates and window functions."""
    rows = sqlite3.connect(":memory:").execute("SELECT lower(name), type, flags FROM pragma_function_list").fetchall()
    deterministic = 0x800
    odd = {name for name, kind, flags in rows if kind not in "aw" and not flags & deterministic}
    odd -= {name for name, kind, _ in rows if kind in "aw"}
    return frozenset({name for name, _, _ in rows} - odd - set(REFUSED) | set(HELPERS))


def uses_clock(name: str, arguments: tuple) -> bool:
    """Whether a date function would ask what time it is now: without a time, or with one of the words for it."""
    times = arguments[1:] if name == "strftime" else arguments
    times = times if name == "timediff" else times[:1]
    texts = [time.decode("utf-8", "replace") if isinstance(time, bytes) else time for time in times]
    return not times or any(
        isinstance(text, str) and text.split("\0")[0].strip().lower() in ("now", "subsec", "subsecond") for text in texts
    )


def without_clock(name: str, helper: sqlite3.Connection, state: State):
    """A date function as SQLite has it, which refuses to tell the present time."""

    @functools.lru_cache(maxsize=10_000, typed=True)
    def compute(*arguments):
        return helper.execute(f"SELECT {name}({', '.join('?' * len(arguments))})", arguments).fetchone()[0]

    def function(*arguments):
        if uses_clock(name, arguments):
            state.refused = state.refused or f"not deterministic: {name} reads the clock"
            raise ValueError("clock")
        return compute(*arguments)

    return function


def opened(image: bytes, state: State, cell: int) -> sqlite3.Connection:
    """A private copy in memory that allows nothing but reading."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(image)
    connection.text_factory = lambda raw: raw.decode("utf-8", CELL_TEXT)
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA query_only = ON")
    functions = allowed_functions()
    helper = sqlite3.connect(":memory:")
    for name in set(CLOCKS) & functions:
        connection.create_function(name, -1, without_clock(name, helper, state), deterministic=True)
    limits = {
        "LENGTH": cell, "SQL_LENGTH": 100_000, "COLUMN": 500, "EXPR_DEPTH": 500, "COMPOUND_SELECT": 100, "VDBE_OP": 1_000_000,
        "ATTACHED": 0, "LIKE_PATTERN_LENGTH": 1000, "VARIABLE_NUMBER": 100, "WORKER_THREADS": 0,
    }  # fmt: skip  # full text search uses some variables
    for name, value in limits.items():
        connection.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), value)

    warm(connection)

    def authorize(action, first, second, _database, _trigger):
        if action in ALLOWED_ACTIONS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            if second.lower() in functions:
                return sqlite3.SQLITE_OK
            state.refused = state.refused or f"not deterministic or not allowed: the function {second.lower()}"
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and first == "data_version":  # full text search asks for it
            return sqlite3.SQLITE_OK
        state.refused = state.refused or f"not read-only: {ACTIONS.get(action, action)}"
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    return connection


def warm(connection: sqlite3.Connection) -> None:
    """Connect virtual tables, which declare their columns at first use in a way that looks like writing."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'create virtual table%'")]
    for table in ["json_each", "json_tree", *tables]:
        try:
            connection.execute('SELECT * FROM "{}" LIMIT 0'.format(table.replace('"', '""'))).close()
        except sqlite3.Error:  # a module that this build of SQLite lacks
            continue


def cell_size(cell) -> int:
    """Bytes of a cell, about."""
    return len(cell) if isinstance(cell, (str, bytes)) else 8


def fetched(cursor: sqlite3.Cursor, rows: int, size: int) -> dict:
    """The rows of a running query, as long as they stay within the limits."""
    if cursor.description is None:
        return {"status": "refused", "reason": "not a query: it returns no rows"}
    result: list = []
    for row in cursor:
        result.append([{"blob": cell.hex()} if isinstance(cell, bytes) else cell for cell in row])
        size -= sum(map(cell_size, row)) + 8
        if len(result) > rows:
            return {"status": "limit", "reason": f"row limit: more than {rows} rows"}
        if size < 0:
            return {"status": "limit", "reason": "memory limit: the result is too large"}
    return {"status": "rows", "names": [column[0] for column in cursor.description], "rows": result}


def answer(connection: sqlite3.Connection, state: State, request: dict) -> dict:
    """Run one query under its limits."""
    state.refused, state.out_of_time = "", False
    end = time.process_time() + request["seconds"]

    def tick() -> bool:
        state.out_of_time = time.process_time() > end
        return state.out_of_time

    connection.set_progress_handler(tick, 1000)
    try:
        cursor = connection.execute(request["sql"])
        try:
            return fetched(cursor, request["rows"], request["size_limit"])
        finally:
            cursor.close()
    except MemoryError:
        return {"status": "limit", "reason": "memory limit"}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        if state.out_of_time:
            return {"status": "timeout", "reason": f"timeout: more than {request['seconds']:g} s"}
        if "one statement" in str(error):
            return {"status": "refused", "reason": "more than one statement"}
        if state.refused:
            return {"status": "refused", "reason": state.refused}
        return {"status": "error", "reason": f"the database refused it: {str(error)[:200]}"}


def limited(request: dict) -> None:
    """Alarms that end this process, and a ceiling for its memory, until the query is over."""
    signal.setitimer(signal.ITIMER_PROF, request["seconds"] + GRACE)
    signal.setitimer(signal.ITIMER_REAL, WALL * (request["seconds"] + GRACE))
    try:
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # no Linux: alarms and SQLite's own limits have to do
        return
    resource.setrlimit(resource.RLIMIT_AS, (now + request["memory"], resource.RLIM_INFINITY))


def unlimited() -> None:
    """Without alarms and ceiling."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def read(size: int) -> bytes:
    """So many bytes of the parent. Where it is gone there is nothing left to do."""
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        os._exit(0)
    return data


def main() -> None:
    """Answer until the parent closes the pipe."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file grows, whatever a query finds
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    databases: dict[str, tuple[sqlite3.Connection, State]] = {}
    while True:
        request = json.loads(read(struct.unpack("!I", read(4))[0]))
        for key in request["drop"]:
            databases.pop(key)[0].close()
        if request["size"]:
            state = State()
            databases[request["key"]] = (opened(read(request["size"]), state, request["cell"]), state)
        connection, state = databases[request["key"]]
        limited(request)
        try:
            reply = json.dumps(answer(connection, state, request))
        except MemoryError:
            reply = json.dumps({"status": "limit", "reason": "memory limit"})
        unlimited()
        data = reply.encode()
        sys.stdout.buffer.write(struct.pack("!I", len(data)) + data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
