"""A jail seen from outside: how it is started, what it is told, and how everything in it ends."""

from __future__ import annotations

import contextlib
import marshal
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from earnest.sandbox.sandbox import Isolation, Limits

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
LAST = 10.0  # seconds after its longest time at which a jail ends by itself, should nobody be left to end it
FILES = 128  # open files of a process, which bounds what the kernel holds for it
FOLDER, USER, FILTER = "{folder}", "{user}", "{filter}"  # stand in an argv or environment for what is known at the start only
USERS = range(61184, 65520)  # ids that systemd keeps for services of the moment: nobody owns files of theirs
INSIDE = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Plan:
    """How jails of one kind are made.

    Attributes:
        argv: What starts Python inside.
        environment: All its variables.
        isolation: What it is called.
        folder: Where programs work, as seen inside; None makes a temporary folder for each jail.
        user: Whether jails get a user id of their own, and who changes to it: the first process inside, or the argv.
        filter: System calls to refuse; set by the argv where it says so, else inside.
        landlock: What Landlock is told, if it is.
        namespace: Whether the end of the first process is the end of all.
        path: Folders of installed packages.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    isolation: Isolation
    folder: str | None = None
    user: Literal["inside", "argv"] | None = None
    filter: bytes = b""
    landlock: tuple[bytes, tuple[tuple[int, str], ...]] | None = None
    namespace: bool = False
    path: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Jail:
    """A started jail that waits for its orders.

    Attributes:
        plan: How it was made.
        process: Its outermost process, our child.
        control: Socket to the process inside that serves us.
        outputs: Read ends of stdout and stderr.
        folder: Where the program works, as seen inside.
        user: Its own user id, 0 if it has none.
        held: What is to be let go at the end.
    """

    plan: Plan
    process: subprocess.Popen[bytes]
    control: socket.socket
    outputs: tuple[int, int]
    folder: str
    user: int
    held: contextlib.ExitStack

    def end(self) -> None:
        """End everything in it, wait until it has ended, and let go of all but the outputs."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)  # the first process inside sees it and ends, with all the others
        if self.plan.namespace:
            for first in children(self.process.pid):
                with contextlib.suppress(OSError):
                    os.kill(first, signal.SIGKILL)
        if not ended(self.process, LAST):
            for pid in [*descendants(self.process.pid), self.process.pid]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if not self.plan.namespace and self.user:
            kill_user(self.user)
        self.held.close()

    def drop(self) -> None:
        """End a jail that nobody will read from."""
        self.end()
        self.close_outputs()

    def close_outputs(self) -> None:
        """Let go of the outputs, once."""
        for output in self.outputs:
            os.close(output)
        LIVE.discard(self)


LIVE: set[Jail] = set()


def _forget() -> None:
    """A forked copy of this process must not hold on to jails, or they would outlive the one that they belong to."""
    for jail in list(LIVE):
        jail.control.close()
        for output in jail.outputs:
            with contextlib.suppress(OSError):
                os.close(output)
    LIVE.clear()


os.register_at_fork(after_in_child=_forget)


def start(plan: Plan) -> Jail:
    """Start a jail.

    Raises:
        OSError: The machine has no room for it.
    """
    with contextlib.ExitStack() as held, contextlib.ExitStack() as passed:
        user = claim(held) if plan.user else 0
        folder = plan.folder or temporary(held, user)
        ours, theirs = socket.socketpair()
        held.callback(ours.close)
        passed.callback(theirs.close)
        outputs = os.pipe(), os.pipe()
        with contextlib.ExitStack() as reading:
            for read, write in outputs:
                reading.callback(os.close, read)
                passed.callback(os.close, write)
            filter = memory_file(plan.filter, passed)
            known = {FOLDER: folder, USER: str(user), FILTER: str(filter)}
            bootstrap = f"{INSIDE}\nprogram = main({theirs.fileno()}, {user if plan.user == 'inside' else 0})\nprogram()\n"
            process = subprocess.Popen(
                [*(known.get(word, word) for word in plan.argv), "-X", "utf8", "-I", "-S", "-c", bootstrap],
                stdin=subprocess.DEVNULL,
                stdout=outputs[0][1],
                stderr=outputs[1][1],
                env={name: known.get(value, value) for name, value in plan.environment},
                cwd="/",
                pass_fds=[theirs.fileno(), filter],
                start_new_session=True,
            )
            reading.pop_all()
        for read, _ in outputs:
            os.set_blocking(read, False)
        ours.setblocking(False)
        jail = Jail(plan, process, ours, (outputs[0][0], outputs[1][0]), folder, user, held.pop_all())
        LIVE.add(jail)
        return jail


def claim(held: contextlib.ExitStack) -> int:
    """A user id that no other jail on this machine has; an abstract socket of its name is the lock, and goes with its holder."""
    for user in USERS:
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0earnest-sandbox-{user}")
        except OSError:
            lock.close()
            continue
        held.callback(lock.close)
        return user
    raise OSError("all user ids for sandboxes are taken")


def temporary(held: contextlib.ExitStack, user: int) -> str:
    """A folder for one program, gone at the end."""
    top = tempfile.mkdtemp(prefix="earnest-")
    held.callback(shutil.rmtree, top, ignore_errors=True)
    folder = os.path.join(top, "work")
    os.mkdir(folder)
    if user:
        os.chmod(top, 0o711)
        os.chown(folder, user, user)
    return folder


def memory_file(content: bytes, passed: contextlib.ExitStack) -> int:
    """A file descriptor from which a child can read this."""
    file = os.memfd_create("earnest")
    passed.callback(os.close, file)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def orders(
    jail: Jail, program: Sequence[str] | str, files: Mapping[str, str | bytes], stdin: str | bytes, limits: Limits, longest: float
) -> bytes:
    """What a jail is told, once.

    Args:
        jail: That jail.
        program: As in `Sandbox.run`, and so are the next three.
        files: Files.
        stdin: Input.
        limits: Limits.
        longest: Seconds after which it ends by itself.
    """
    cpu = max(1, -int(-limits.cpu // 1))
    processes = limits.processes + others(jail)
    plan, landlock = jail.plan, jail.plan.landlock
    body = marshal.dumps(
        {
            "program": to_bytes(program) if isinstance(program, str) else list(program),
            "files": [(name, to_bytes(content)) for name, content in files.items()],
            "stdin": to_bytes(stdin),
            "folder": jail.folder,
            "path": list(plan.path),
            "rlimits": [
                ("RLIMIT_CORE", 0, 0),
                ("RLIMIT_MSGQUEUE", 0, 0),
                ("RLIMIT_MEMLOCK", 2**16, 2**16),
                ("RLIMIT_SIGPENDING", 1024, 1024),
                ("RLIMIT_NOFILE", FILES, FILES),
                ("RLIMIT_CPU", cpu, cpu + 1),
                ("RLIMIT_FSIZE", limits.file, limits.file),
                ("RLIMIT_NPROC", processes, processes),
                ("RLIMIT_AS", limits.memory, limits.memory),
            ],
            "landlock": landlock and (landlock[0], [(rights, path.replace(FOLDER, jail.folder)) for rights, path in landlock[1]]),
            "filter": b"" if FILTER in plan.argv else plan.filter,
            "namespace": plan.namespace,
            "alone": bool(jail.user),
            "last": longest + LAST,
        },
        4,
    )
    return len(body).to_bytes(8, "big") + body


def to_bytes(text: str | bytes) -> bytes:
    """UTF-8, lone surrogates too: what is wrong with a text is for the program to find."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a child's end without taking turns with it; whether it came in time."""
    try:
        end = os.pidfd_open(process.pid)
    except OSError:  # it has been waited for, or the kernel is older than 5.3
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.returncode is not None
    try:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(end)


def check_names(files: Mapping[str, str | bytes]) -> None:
    """Every path stays in the working folder.

    Raises:
        ValueError: One does not.
    """
    for name in files:
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or name.startswith("/") or name.endswith("/") or "\0" in name:
            raise ValueError(f"The file name {name!r} is no path inside the working folder.")


def others(jail: Jail) -> int:
    """Processes and threads that count against the jail's number of processes and are not the program's.

    The number belongs to a user id, since Linux 5.14 to a user id in a user namespace. A jail that shares its user's has to allow for
    everything else that the user runs.
    """
    release = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    if jail.user or (jail.plan.namespace and release >= (5, 14)):
        return 1
    return 1 + sum(threads_of(os.getuid()))


def threads_of(user: int) -> list[int]:
    """How many threads each process of a user has."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == user:
                found.append(len(list((folder / "task").iterdir())))
    return found


def children(pid: int) -> list[int]:
    """Process ids whose parent is this one."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """Process ids below this one."""
    return [below for child in children(pid) for below in (child, *descendants(child))]


def kill_user(user: int) -> None:
    """Kill what still runs under a user id that is a jail's alone."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == user:
                os.kill(int(folder.name), signal.SIGKILL)
