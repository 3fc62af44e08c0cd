"""One program in one jail: fed, watched, ended, and what became of it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from earnest.sandbox import jail as jails
from earnest.sandbox import pool
from earnest.sandbox.jail import CORES, Jail, Plan
from earnest.sandbox.sandbox import Limits, Result, Status
from earnest.sandbox.usage import over

START = 60.0  # seconds a jail may take to start the program: a busy machine is no fault of the program's
TICK = 0.05  # seconds between two looks at what a program holds
MOST = 4 * max(2, CORES)  # programs at a time: more would only take memory
ENDED = re.compile(rb"E (\d{1,9}) (\d{1,15}) (\d{1,15})\n")
SAID = 4096  # most bytes that a jail has to say


class Running:
    """How many programs run, for the pace of their clocks."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = threading.Lock()
        self.places = threading.BoundedSemaphore(MOST)

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """While a program runs, as soon as there is a place."""
        with self.places:
            with self.lock:
                self.count += 1
            try:
                yield
            finally:
                with self.lock:
                    self.count -= 1

    @property
    def pace(self) -> float:
        """Seconds that a program is charged for each second."""
        return min(1.0, CORES / max(1, self.count))


RUNNING = Running()
os.register_at_fork(after_in_child=RUNNING.__init__)  # in a copy of this process none of them runs


def run(plan: Plan, program: Sequence[str] | str, files: Mapping[str, str | bytes] | None, stdin: str | bytes, limits: Limits) -> Result:
    """Run one program; see `Sandbox.run`."""
    files = files or {}
    jails.check_names(files)
    if not isinstance(program, str) and not program:
        raise ValueError("An empty argv is no program.")
    if sum(len(jails.to_bytes(content)) for content in [*files.values(), stdin]) > limits.memory:
        return Result("memory", stderr="its files and its input are larger than its memory", isolation=plan.isolation)
    with RUNNING.one_more():
        for make in (pool.POOL.take, jails.start):  # anew should a jail die before the program begins, which is not the program's fault
            try:
                jail = make(plan)
            except (OSError, MemoryError) as error:
                result = Result("infra_error", stderr=f"{type(error).__name__}: {error}", isolation=plan.isolation)
                continue
            order = jails.orders(jail, program, files, stdin, limits, limits.wall * MOST / CORES)
            result = Run(jail, order, limits).result()
            if result.status != "infra_error":
                break
    return result


class Run:
    """The state of one run."""

    def __init__(self, jail: Jail, order: bytes, limits: Limits) -> None:
        self.jail, self.order, self.limits = jail, memoryview(order), limits
        self.outputs = {fd: bytearray() for fd in jail.outputs}
        self.said = bytearray()
        self.clock = 0.0  # seconds charged
        self.counted = 0.0  # until when
        self.started: float | None = None  # when the program began
        self.peak = 0

    def result(self) -> Result:
        """See it through to its end."""
        begun = time.monotonic()
        try:
            verdict = self._watch(begun)
            seconds = self._charge() - (self.started or begun)
            self.jail.end()
            self._drain()
        finally:
            if self.jail.process.returncode is None:
                self.jail.end()
            self.jail.close_outputs()
        result = self._never_began(verdict) if self.started is None else self._became(verdict)
        charged = min(self.clock, self.limits.wall)
        return replace(result, seconds=seconds, charged=charged, isolation=self.jail.plan.isolation)

    def _charge(self) -> float:
        """Charge the program for the time since it was last charged; the time now."""
        now = time.monotonic()
        if self.started is not None:
            self.clock += (now - self.counted) * RUNNING.pace
        self.counted = now
        return now

    def _watch(self, begun: float) -> Status | None:
        """Pump until the program has ended by itself (None) or must be ended, and why."""
        poll = select.poll()
        control = self.jail.control.fileno()
        poll.register(control, select.POLLIN | select.POLLOUT)
        for fd in self.outputs:
            poll.register(fd, select.POLLIN)
        looked = begun
        while True:
            for fd, _ in poll.poll(TICK * 1000):
                if fd != control:
                    if not self._read(fd):
                        poll.unregister(fd)
                    if len(self.outputs[fd]) > self.limits.output:
                        return "output"
                    continue
                if self.order and not self._send():
                    poll.modify(control, select.POLLIN)
                if not self._listen():
                    return None
            now = self._charge()
            if self.started is None:
                if now > begun + START:
                    return "infra_error"
                continue
            if self.clock > self.limits.wall:
                return "timeout"
            if now > looked + TICK:
                looked = now
                verdict, peak = over(self.jail, self.limits)
                self.peak = max(self.peak, peak)
                if verdict is not None:
                    return verdict

    def _send(self) -> bool:
        """Give the jail more of its orders; whether there are still more."""
        try:
            self.order = self.order[self.jail.control.send(self.order[: 1 << 18]) :]
        except BlockingIOError:
            pass
        except OSError:  # it has died, and the socket will say so
            self.order = memoryview(b"")
        return bool(self.order)

    def _listen(self) -> bool:
        """Take in what the jail says; whether there is more to come."""
        try:
            data = self.jail.control.recv(SAID)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.said += data[: SAID - len(self.said)]
        if self.started is None and self.said[:1] == b"R":
            self.started = self.counted = time.monotonic()
        return bool(data) and b"\n" not in self.said

    def _read(self, fd: int) -> bool:
        """Take in output; whether there may be more."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        self.outputs[fd] += data
        return bool(data)

    def _drain(self) -> None:
        """Take in what was written before the end."""
        for fd, data in self.outputs.items():
            size = -1
            while size < len(data) <= self.limits.output:
                size = len(data)
                self._read(fd)

    def _texts(self) -> list[str]:
        return [bytes(data[: self.limits.output]).decode("utf-8", "replace") for data in self.outputs.values()]

    def _never_began(self, verdict: Status | None) -> Result:
        said = bytes(self.said).split(b"\n")[0][1:].decode("utf-8", "replace")
        late = f"the sandbox did not start within {START:g} s" if verdict else ""
        return Result("infra_error", stderr=late or said or self._texts()[1].strip() or "the sandbox did not start")

    def _became(self, verdict: Status | None) -> Result:
        """What became of a program that began. Whatever it did to the process that reports, this is its own fault, never ours."""
        result = Result("killed", *self._texts(), peak_memory=self.peak, returncode=-signal.SIGKILL)
        if verdict is None and any(len(data) > self.limits.output for data in self.outputs.values()):
            verdict = "output"
        if verdict is not None:
            return replace(result, status=verdict)
        match = ENDED.search(self.said)
        if match is None:
            return result
        code, peak, cpu = (int(number) for number in match.groups())
        with contextlib.suppress(ValueError):
            result = replace(result, returncode=os.waitstatus_to_exitcode(code), peak_memory=max(self.peak, peak))
        return replace(result, status=self._named(result, cpu / 1e6))

    def _named(self, result: Result, cpu: float) -> Status:
        if result.returncode == 0:
            return "ok"
        if result.returncode == -signal.SIGXCPU or (result.returncode == -signal.SIGKILL and cpu >= self.limits.cpu):
            return "timeout"
        if result.stderr.rstrip().rpartition("\n")[2].startswith("MemoryError"):
            return "memory"
        return "nonzero" if result.returncode > 0 else "killed"
