"""Worker processes that can be killed: for work that whoever writes the input could make endless.

A thread can be left but not stopped, and a signal only reaches the main thread. Here each worker is a fresh interpreter, started
with `exec` and never by forking this process (torch and its threads do not survive a fork), which imports one module, without
anything that the module does not need. It is asked over pipes in frames of JSON, so that nothing a worker sends back is ever
executed here. A worker whose deadline passes is killed and another takes its place; one whose parent has gone reads the end of
its pipe and ends, or, if it is busy, is ended by an alarm the kernel keeps.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import struct
import subprocess
import sys
import threading
import time
from typing import Any

from earnest.errors import UserError

STARTING = 120.0  # seconds a worker may take to import its module; only a machine in trouble takes as long
GRACE = 2.0  # seconds past the deadline until the kernel ends a worker whose parent did not
MEMORY = 2 * 2**30  # bytes of address space; an interpreter with SymPy takes a fifth of it
LARGEST = 2**24  # bytes of one frame; a worker that announces more has gone astray
_HEADER = struct.Struct(">I")

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from earnest.rewards.process import _work; _work(*sys.argv[2:])"


class WorkerError(Exception):
    """The worker ended, or the function raised; says how. The input may well have caused it."""


class EndedError(WorkerError):
    """The process ended: killed from outside, or by what it was asked."""


class StartError(Exception):
    """No worker could be started, which no input can cause."""


class Pool:
    """Workers that all serve one function, from any number of threads.

    At most `size` run at a time; the first is started by the first call and each further one when all are busy. A call that finds
    none free waits, and its deadline begins when its worker begins.
    """

    def __init__(self, module: str, function: str, size: int = 2, memory: int = MEMORY) -> None:
        """Describe the workers; nothing is started yet.

        Args:
            module: Importable name of a module.
            function: A function in it, from JSON values to a JSON value.
            size: Most workers at a time.
            memory: Bytes of address space of each.

        Raises:
            UserError: `size` is no positive number.
        """
        if size < 1:
            raise UserError(f"A pool of {size} workers can do nothing. Give it at least one.")
        self._target = (module, function)
        self._memory = memory
        self._size = size
        self._changed = threading.Condition()
        self._reset()

    def call(self, *arguments: Any, deadline: float) -> Any:
        """Call the function in a worker.

        Args:
            arguments: JSON values.
            deadline: Seconds the worker may take, its start not counted.

        Raises:
            TimeoutError: The deadline passed; the worker is gone.
            WorkerError: The function raised, or two workers died of it: one may have been killed for something else.
            StartError: No worker could be started.
        """
        request = json.dumps([deadline, *arguments]).encode()
        try:
            return self._call(request, deadline)
        except EndedError:
            return self._call(request, deadline)

    def _call(self, request: bytes, deadline: float) -> Any:
        worker = self._take()
        kept = False
        try:
            worker.wait_until_ready()
            reply = worker.ask(request, deadline)
            kept = True
        finally:
            self._give_back(worker, kept)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["value"]

    def close(self) -> None:
        """End all workers. A later call starts new ones."""
        with self._changed:
            if self._owner == os.getpid():
                for worker in self._all:
                    worker.kill()
            self._reset()

    def pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        with self._changed:
            return [worker.pid for worker in self._all]

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()

    def _take(self) -> _Worker:
        """A worker for this thread alone: an idle one, or a new one, or the first that comes free."""
        with self._changed:
            if self._owner != os.getpid():  # forked since: the pipes belong to the parent, two readers would steal each other's replies
                self._reset()
            while True:
                while self._idle:
                    worker = self._idle.pop()
                    if worker.runs():
                        return worker
                    self._all.discard(worker)  # killed while idle, as where memory runs out
                    worker.kill()
                if len(self._all) < self._size:
                    break
                self._changed.wait()
            worker = _Worker(*self._target, self._memory)
            self._all.add(worker)
            return worker

    def _give_back(self, worker: _Worker, kept: bool) -> None:
        if not kept:
            worker.kill()
        with self._changed:
            if worker in self._all:  # else the pool was closed meanwhile
                if not kept:
                    self._all.discard(worker)
                    worker = self._replacement() if worker.ready else None
                if worker is not None:
                    self._idle.append(worker)
            self._changed.notify()

    def _replacement(self) -> _Worker | None:
        """A new worker at once, so that it has imported its module by the time it is wanted."""
        try:
            worker = _Worker(*self._target, self._memory)
        except StartError:
            return None  # the next call tries again, and says so
        self._all.add(worker)
        return worker


class _Worker:
    """One process, used by one thread at a time."""

    def __init__(self, module: str, function: str, memory: int) -> None:
        program = [sys.executable, "-I", "-c", _BOOT, json.dumps(sys.path), module, function, str(memory)]
        try:
            self._process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise StartError(f"no worker process: {error.strerror}") from error
        self.pid = self._process.pid
        self._owner = os.getpid()
        self.ready = False
        self._ending = self.kill
        atexit.register(self._ending)

    def wait_until_ready(self) -> None:
        """Wait for the module to be imported.

        Raises:
            StartError: It was not, or not in time.
        """
        if self.ready:
            return
        try:
            greeting = self._read(time.monotonic() + STARTING)
        except (WorkerError, TimeoutError) as error:
            raise StartError(f"a worker process did not start: {error}") from error
        if "error" in greeting:
            raise StartError(f"a worker process did not start: {greeting['error']}")
        self.ready = True

    def ask(self, request: bytes, deadline: float) -> dict[str, Any]:
        """Send a request and wait for its reply, at most until the deadline.

        Raises:
            TimeoutError: Not in time.
            EndedError: The process ended.
        """
        until = time.monotonic() + deadline
        self._write(request, until)
        return self._read(until)

    def runs(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process, whatever it does."""
        if self._owner != os.getpid():
            return  # a fork of the parent ends, not the parent
        atexit.unregister(self._ending)
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def _write(self, frame: bytes, until: float) -> None:
        data = memoryview(_HEADER.pack(len(frame)) + frame)
        while data:
            self._wait(self._process.stdin, select.POLLOUT, until)
            try:
                # no more than a pipe is sure to take once it is writable, so that writing never waits
                data = data[os.write(self._process.stdin.fileno(), data[: select.PIPE_BUF]) :]
            except BrokenPipeError as error:
                raise EndedError("the worker process ended") from error

    def _read(self, until: float) -> dict[str, Any]:
        (length,) = _HEADER.unpack(self._read_exactly(_HEADER.size, until))
        if length > LARGEST:
            raise WorkerError("the worker process went astray")
        return json.loads(self._read_exactly(length, until))

    def _read_exactly(self, count: int, until: float) -> bytes:
        data = b""
        while len(data) < count:
            self._wait(self._process.stdout, select.POLLIN, until)
            chunk = os.read(self._process.stdout.fileno(), count - len(data))
            if not chunk:
                raise EndedError("the worker process ended")
            data += chunk
        return data

    def _wait(self, pipe: Any, event: int, until: float) -> None:
        poll = select.poll()
        poll.register(pipe.fileno(), event)
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError("the deadline passed")


def _work(module: str, function: str, memory: str) -> None:
    """The worker's life: import, say so, answer until the pipe ends."""
    import importlib
    import resource
    import signal

    requests, replies = os.dup(0), os.dup(1)  # prints of whatever runs here must not get between the frames
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(requests, "rb") as incoming, os.fdopen(replies, "wb", buffering=0) as outgoing:

        def send(reply: dict[str, Any]) -> None:
            frame = json.dumps(reply).encode()
            outgoing.write(_HEADER.pack(len(frame)) + frame)

        try:
            call = getattr(importlib.import_module(module), function)
        except Exception as error:
            return send({"error": f"{type(error).__name__}: {error}"[:500]})
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
        send({"value": None})
        while header := incoming.read(_HEADER.size):
            deadline, *arguments = json.loads(incoming.read(_HEADER.unpack(header)[0]))
            signal.setitimer(signal.ITIMER_REAL, deadline + GRACE if math.isfinite(deadline) else 0)
            try:
                reply = {"value": call(*arguments)}
            except Exception as error:
                reply = {"error": type(error).__name__}
            signal.setitimer(signal.ITIMER_REAL, 0)
            send(reply)
