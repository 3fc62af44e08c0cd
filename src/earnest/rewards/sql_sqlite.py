"""SQLite for the SQL verifier: snapshots of databases, private copies, and queries nobody trusts.

A snapshot is the content of a database file as bytes. The file itself is only read, once; every query runs on a copy in the memory of
another process (`sql_worker.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import queue
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

WORKERS = max(1, min(4, os.cpu_count() or 1))  # processes at a time
KEPT = 32  # databases a process holds


@dataclass(frozen=True)
class Limits:
    """What a query may use.

    Attributes:
        seconds: Processor time on one database instance.
        rows: Rows it may return.
        cell: Bytes of one value, also of one that only comes up on the way.
        size: Bytes of the whole result.
        memory: Bytes of working memory.
    """

    seconds: float = 2.0
    rows: int = 10_000
    cell: int = 1_000_000
    size: int = 16 * 2**20
    memory: int = 256 * 2**20


LIMITS = Limits()


@dataclass(frozen=True)
class Answer:
    """What became of a query.

    Attributes:
        status: "rows"; else "refused" (not one read-only, deterministic query), "error" (the database says so), "timeout", "limit"; "infra"
            when it could not be run at all.
        rows: The rows in their order.
        names: Names of the columns.
        reason: Why there are no rows.
    """

    status: Literal["rows", "refused", "error", "timeout", "limit", "infra"]
    rows: tuple[tuple[Any, ...], ...] = ()
    names: tuple[str, ...] = ()
    reason: str = ""


def snapshot(path: str | Path) -> bytes:
    """The content of a SQLite database file, what is still in its write-ahead log included. The file is opened for reading only.

    Raises:
        sqlite3.Error: It is no database.
        OSError: It cannot be read.
    """
    path = Path(path).resolve()
    with open(path, "rb"):  # says clearly what is wrong
        pass
    source = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return _image(source)
    finally:
        source.close()


def from_script(script: str) -> bytes:
    """The snapshot of a database that a trusted script of SQL statements makes.

    Raises:
        sqlite3.Error: A statement failed.
    """
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(script)
        return _image(connection)
    finally:
        connection.close()


def private_copy(image: bytes) -> sqlite3.Connection:
    """A database of one's own in memory, to be written to at will: an environment gives one to each rollout.

    Nothing that is done to it, DDL included, reaches the snapshot or another copy.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(image)
    return connection


def _image(connection: sqlite3.Connection) -> bytes:
    memory = sqlite3.connect(":memory:")
    try:
        connection.backup(memory)
        image = bytearray(memory.serialize())
    finally:
        memory.close()
    image[18:20] = b"\x01\x01"  # a copy in memory has no write-ahead log, whatever the file had
    return bytes(image)


def key_of(image: bytes) -> str:
    """A name for a snapshot."""
    return hashlib.sha256(image).hexdigest()


def run(image: bytes, key: str, statement: str, limits: Limits = LIMITS) -> Answer:
    """Run one untrusted statement on a copy of a snapshot.

    Args:
        image: The snapshot.
        key: Its name, `key_of(image)`.
        statement: What the model wrote.
        limits: What it may use.
    """
    request = {"sql": statement, "rows": limits.rows, "size_limit": limits.size, "seconds": limits.seconds}
    try:
        with _slots:
            worker = _idle()
            answer = worker.ask(image, key, request | {"memory": limits.memory, "cell": limits.cell})
            if answer is None:
                return _post_mortem(worker.process, limits)
            _waiting.put(worker)
            return answer
    except OSError as error:
        return Answer("infra", reason=f"no process for the query: {error}")


class _Worker:
    """A process that answers queries, and which databases it has."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("sql_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd="/", env={"TZ": "UTC"},
        )  # fmt: skip
        self.has: OrderedDict[tuple[str, int], None] = OrderedDict()

    def ask(self, image: bytes, key: str, request: dict[str, Any]) -> Answer | None:
        """The answer; None when the process died over the query."""
        known = (key, request["cell"])
        new = known not in self.has
        self.has[known] = None
        self.has.move_to_end(known)
        drop = [self.has.popitem(last=False)[0] for _ in range(len(self.has) - KEPT)]
        names = ["/".join(map(str, pair)) for pair in (known, *drop)]
        head = json.dumps(request | {"key": names[0], "drop": names[1:], "size": len(image) if new else 0}).encode()
        try:
            self.process.stdin.write(struct.pack("!I", len(head)) + head + (image if new else b""))
            self.process.stdin.flush()
            reply = json.loads(self._read(struct.unpack("!I", self._read(4))[0]))
        except (BrokenPipeError, EOFError):  # by a signal: the limits of the operating system
            return None
        rows = tuple(
            tuple(bytes.fromhex(cell["blob"]) if isinstance(cell, dict) else cell for cell in row) for row in reply.get("rows", ())
        )
        return Answer(reply["status"], rows, tuple(reply.get("names", ())), reply.get("reason", ""))

    def _read(self, size: int) -> bytes:
        data = self.process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data


def _post_mortem(process: subprocess.Popen, limits: Limits) -> Answer:
    """What a query did that took its process along."""
    _end(process)
    if process.returncode in (-signal.SIGPROF, -signal.SIGALRM):
        return Answer("timeout", reason=f"timeout: more than {limits.seconds:g} s")
    return Answer("limit", reason="the query ended its process")


def _end(process: subprocess.Popen, kill: bool = False) -> None:
    if kill:
        process.kill()
    process.wait()
    process.stdout.close()
    with contextlib.suppress(OSError):  # it still holds what the process did not read
        process.stdin.close()


_slots = threading.BoundedSemaphore(WORKERS)
_waiting: queue.LifoQueue[_Worker] = queue.LifoQueue()


def _idle() -> _Worker:
    try:
        worker = _waiting.get_nowait()
    except queue.Empty:
        return _Worker()
    return worker if worker.process.poll() is None else _Worker()


@atexit.register
def _stop() -> None:
    while not _waiting.empty():
        _end(_waiting.get_nowait().process, kill=True)


def _forget() -> None:
    """A forked process has pipes in common with its parent, and must start workers of its own."""
    global _slots, _waiting
    _slots, _waiting = threading.BoundedSemaphore(WORKERS), queue.LifoQueue()


os.register_at_fork(after_in_child=_forget)
