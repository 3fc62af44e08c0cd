"""Jails without namespaces: Landlock where there is one, and limits.

Landlock keeps a program from files, and from TCP, abstract sockets and signals as far as the kernel's version of it goes; the
filter of system calls keeps it from all sockets and from what Landlock leaves open. It does not hide which files exist and how
large they are, nor how the machine is called and loaded. Without Landlock a program may read and write whatever the user may, and
is called `isolation: none`.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from earnest.sandbox.bubblewrap import COMMON, DEVICES
from earnest.sandbox.jail import FOLDER, Plan
from earnest.sandbox.python import Python
from earnest.sandbox.run import run
from earnest.sandbox.sandbox import DEFAULT, Isolation, Limits, Result
from earnest.sandbox.seccomp import OWNED, SIGNALS, build

# Rights of linux/landlock.h, and the version of its interface (ABI) that brought them.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
RIGHTS = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
READ = EXECUTE | READ_FILE | READ_DIR
TCP, TCP_ABI = 0b11, 4  # bind and connect
SCOPES, SCOPES_ABI = 0b11, 6  # abstract Unix sockets and signals


def landlock_abi() -> int:
    """Version of the kernel's Landlock, 0 without one."""
    if platform.system() != "Linux":
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return max(0, call(444, None, ctypes.c_size_t(0), 1))  # landlock_create_ruleset, LANDLOCK_CREATE_RULESET_VERSION


@dataclass(frozen=True)
class Plain:
    """Runs each program as a process in a temporary folder.

    Attributes:
        python: The interpreter.
        isolation: "landlock" or "none".
        abi: Version of Landlock.
    """

    python: Python
    isolation: Isolation = "none"
    abi: int = 0

    def run(
        self,
        program: Sequence[str] | str,
        files: Mapping[str, str | bytes] | None = None,
        stdin: str | bytes = b"",
        limits: Limits = DEFAULT,
    ) -> Result:
        """Run a program; see `Sandbox.run`."""
        return run(plan(self), program, files, stdin, limits)


@lru_cache(maxsize=16)
def plan(sandbox: Plain) -> Plan:
    """How its jails are made."""
    alone = os.getuid() == 0
    groups = [] if alone else [OWNED] if sandbox.abi >= SCOPES_ABI else [OWNED, SIGNALS]
    environment = {
        "PATH": f"{os.path.dirname(sandbox.python.binary)}:/usr/bin:/bin",
        "HOME": FOLDER,
        "TMPDIR": FOLDER,
        **COMMON,
    }
    if sandbox.python.packages:
        environment["PYTHONPATH"] = ":".join(sandbox.python.packages)
    return Plan(
        argv=(sandbox.python.binary,),
        environment=tuple(environment.items()),
        isolation=sandbox.isolation,
        user="inside" if alone else None,
        filter=build(groups if sandbox.isolation == "landlock" else []) or b"",
        landlock=rules(sandbox.python, sandbox.abi) if sandbox.isolation == "landlock" else None,
        path=sandbox.python.packages,
    )


def rules(python: Python, abi: int) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    """What Landlock is told: the rights that need leave, and the files with the leave they give."""
    everything = sum(right for since, right in RIGHTS if abi >= since)
    parts = [everything] + [TCP] * (abi >= TCP_ABI) + [SCOPES] * (abi >= SCOPES_ABI)
    attributes = b"".join(part.to_bytes(8, "little") for part in parts)
    found = [(everything, FOLDER)]
    found += [(READ_FILE | WRITE_FILE, f"/dev/{device}") for device in DEVICES]
    roots = ["/usr", *(f"/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64") if not os.path.islink(f"/{name}"))]
    for root in (*roots, "/etc/ld.so.cache", "/etc/alternatives", *python.shown, *python.packages):
        found += allowed(root, (*python.hidden, "/usr/local"))
    return attributes, tuple(dict.fromkeys(found))


def allowed(path: str, hidden: Sequence[str]) -> list[tuple[int, str]]:
    """Leave to read a folder without what is hidden in it: Landlock can only add, so then each of its other entries gets leave."""
    if path in hidden or not os.path.exists(path):
        return []
    if not os.path.isdir(path):
        return [(READ & ~READ_DIR, path)]
    if not any(inner.startswith(path + "/") for inner in hidden):
        return [(READ, path)]
    below = [rule for name in os.listdir(path) for rule in allowed(os.path.join(path, name), hidden)]
    return [(READ_DIR, path), *below]
