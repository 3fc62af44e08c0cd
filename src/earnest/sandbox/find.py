"""Which sandbox this machine can have: the strongest that a hostile program could not get out of."""

from __future__ import annotations

import os
import platform
import secrets
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import product

from earnest.errors import UserError
from earnest.sandbox.bubblewrap import Bubblewrap, binaries
from earnest.sandbox.plain import Plain, landlock_abi
from earnest.sandbox.python import candidates
from earnest.sandbox.sandbox import Limits, Sandbox
from earnest.sandbox.seccomp import build

INSTALL = "Install bubblewrap: apt-get install bubblewrap, or pip install 'earnest[sandbox]'"

PROBE = """
import os, socket, sys, threading, time
path, port = sys.stdin.read().split()
try:
    print(open(path).read())
except OSError:
    print("unread")
try:
    socket.create_connection(("127.0.0.1", int(port)), 1)
    print("connected")
except OSError:
    print("unconnected")
try:
    for _ in range(9):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
    print("unlimited")
except RuntimeError:
    print("limited")
"""
HELD = "unread\nunconnected\nlimited\n"
LOCK = threading.Lock()


def find_sandbox(allow_unsafe: bool = False, packages: bool = False) -> Sandbox:
    """The strongest sandbox of this machine: bubblewrap, else Landlock. The first call runs a program to find out; later ones know.

    Args:
        allow_unsafe: Whether limits alone will do where there is nothing better: such a program may read and write all that you may.
        packages: Whether programs may import what is installed beside this, such as numpy and pytest; else the standard library only.

    Returns:
        A sandbox, to be shared by any number of threads.

    Raises:
        UserError: There is none, and what to install.
    """
    with LOCK:
        sandbox, why = _strongest(packages)
        if sandbox is None and allow_unsafe:
            sandbox = _unsafe(packages)
    if sandbox is None:
        advice = INSTALL if platform.system() == "Linux" else "There is one for Linux only, where bubblewrap makes it"
        raise UserError(f"This machine has no sandbox for programs that nobody trusts. {advice}.", details=why)
    return sandbox


@cache
def _strongest(packages: bool) -> tuple[Sandbox | None, str]:
    """The first that holds, and what was wrong with the others."""
    reasons = []
    for sandbox in _possible(packages):
        wrong = probe(sandbox)
        if not wrong:
            return sandbox, ""
        reasons.append(f"{sandbox.isolation}, {sandbox.python.binary}: {wrong}")
    return None, "\n".join(reasons)


@cache
def _unsafe(packages: bool) -> Sandbox | None:
    for python in candidates(packages):
        sandbox = Plain(python)
        if sandbox.run("print(6 * 7)").stdout == "42\n":
            warnings.warn(f"Programs run without a sandbox, isolation: none. {INSTALL}.", stacklevel=3)
            return sandbox
    return None


def _possible(packages: bool) -> Iterator[Bubblewrap | Plain]:
    filter = build()
    if filter is None:
        return
    pythons, users = candidates(packages), ("inside", "argv") if os.getuid() == 0 else (None,)
    for user, proc, bwrap, python in product(users, (True, False), binaries(), pythons):
        yield Bubblewrap(bwrap, python, filter, user, proc)
    abi = landlock_abi()
    if abi:
        yield from (Plain(python, "landlock", abi) for python in pythons)


def probe(sandbox: Sandbox) -> str:
    """Try to read a file, to connect and to make too many threads; what went wrong, "" if nothing."""
    secret = secrets.token_hex(8)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file, socket.create_server(("127.0.0.1", 0)) as server:
        file.write(secret)
        file.flush()
        os.chmod(file.name, 0o644)
        task = f"{file.name} {server.getsockname()[1]}"
        result = sandbox.run(PROBE, stdin=task, limits=Limits(wall=20, processes=8))
    if result.stdout == HELD:
        return ""
    if result.status == "ok":
        return f"it does not hold: {' '.join(result.stdout.replace(secret, 'read').split())}"
    return result.stderr.strip() or result.status
