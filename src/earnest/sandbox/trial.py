"""A sandbox on trial: hostile programs run in it, and what is outside is looked at afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earnest.sandbox.hostile import DEEDS, GROUPS, LIMITS, Deed
from earnest.sandbox.sandbox import Result, Sandbox

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Listener:
    """Sockets that wait for a program to come."""

    sockets: Sequence[socket.socket]
    knocked: threading.Event

    def reached(self) -> bool:
        """Whether one came, or could be come to."""
        return self.knocked.is_set() or any(_ready(listening) for listening in self.sockets)


@dataclass(frozen=True)
class Harmless:
    """Things to harm that nobody misses: files, sockets and a process. The fields of `hostile.Outside`."""

    secret: str
    folder: Path
    listener: Listener
    victim: subprocess.Popen[bytes]
    facts: dict[str, Any]

    def changed(self) -> bool:
        """Whether a file was made, changed or lost."""
        return snapshot(self.folder) != self.facts["before"]

    def reached(self) -> bool:
        """Whether a program came to a socket, or could be come to."""
        return self.listener.reached()

    def killed(self) -> bool:
        """Whether the process is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.victim.wait(0.05)
        return self.victim.returncode is not None

    def survivors(self) -> list[int]:
        """Processes of the program's that still run."""
        return [pid for pid in _pids() if self.facts["marker"].encode() in _read(f"/proc/{pid}/cmdline")]


@contextlib.contextmanager
def outside() -> Iterator[Harmless]:
    """Set things up that a program could harm, anybody's to read and write, so that only the sandbox protects them."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="earnest-outside-")))
        secret, marker = secrets.token_hex(12), secrets.token_hex(12)
        (folder / "secret").write_text(secret)
        (folder / "file").write_text("unchanged")
        folder.chmod(0o777)
        for name, rights in (("secret", 0o644), ("file", 0o666)):
            (folder / name).chmod(rights)
        listener, addresses = _listen(stack, folder)
        os.environ[f"EARNEST_{marker}"] = secret
        stack.callback(os.environ.pop, f"EARNEST_{marker}")
        victim = subprocess.Popen(["sleep", "60"])
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        facts = {
            "secret_file": str(folder / "secret"),
            "file": str(folder / "file"),
            "new_file": str(folder / "new"),
            "name": folder.name,
            "temporary": str(folder.parent),
            "home": str(Path.home()),
            "home_names": _names_at_home(),
            "victim": victim.pid,
            "parent": victim.pid,
            "marker": marker,
            "limits": asdict(LIMITS),
            "before": snapshot(folder),
            **addresses,
        }
        harmless = Harmless(secret, folder, listener, victim, facts)
        stack.callback(_kill_all, harmless)
        yield harmless


def _names_at_home() -> list[str]:
    """What is in the home folder, without the way to an interpreter there."""
    home = Path.home()
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(home) if not Path(sys.base_prefix).is_relative_to(home / name)]
    return []


def _kill_all(harmless: Harmless) -> None:
    for pid in harmless.survivors():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def snapshot(folder: Path) -> list[list[Any]]:
    """Names, rights and contents of the files in a folder."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return [[path.name, path.stat().st_mode, path.read_text()] for path in files]


def _listen(stack: contextlib.ExitStack, folder: Path) -> tuple[Listener, dict[str, Any]]:
    abstract = f"earnest-outside-{secrets.token_hex(8)}"
    tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    unnamed, named = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unnamed.bind(f"\0{abstract}")
    named.bind(str(folder / "socket"))
    (folder / "socket").chmod(0o777)
    for listening in (unnamed, named):
        listening.listen()
    sockets = (tcp, udp, unnamed, named)
    for listening in sockets:
        listening.setblocking(False)
        stack.callback(listening.close)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    knocked, over = threading.Event(), threading.Event()

    def knock() -> None:
        while not over.wait(0.02) and not knocked.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                knocked.set()

    knocker = threading.Thread(target=knock, daemon=True)
    knocker.start()
    stack.callback(knocker.join)
    stack.callback(over.set)
    addresses = {
        "tcp": tcp.getsockname()[1],
        "udp": udp.getsockname()[1],
        "unix": str(folder / "socket"),
        "abstract": abstract,
        "free_port": port,
    }
    return Listener(sockets, knocked), addresses


def _ready(listening: socket.socket) -> bool:
    try:
        if listening.type == socket.SOCK_DGRAM:
            listening.recv(16)
        else:
            listening.accept()[0].close()
    except OSError:
        return False
    return True


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    return b""


def attempt(sandbox: Sandbox, deed: Deed) -> tuple[bool, Result]:
    """Run one hostile program; whether the sandbox held, and how the program ended."""
    with outside() as around:
        result = sandbox.run(deed.program, stdin=json.dumps(around.facts), limits=LIMITS)
        return not deed.did_harm(result, around), result


def try_all(sandbox: Sandbox, deeds: Sequence[Deed] = DEEDS) -> dict[Deed, tuple[bool, Result]]:
    """Run hostile programs, a few at a time."""
    with ThreadPoolExecutor(4) as threads:
        return dict(zip(deeds, threads.map(lambda deed: attempt(sandbox, deed), deeds), strict=True))


def print_trial(sandbox: Sandbox, console: Console) -> bool:
    """Put a sandbox on trial and print a table of what held; whether all did."""
    from rich.table import Table

    with console.status("running hostile programs ..."):
        outcomes = try_all(sandbox)
    table = Table("a program may not", "held", "it ended", title=f"Sandbox: isolation {sandbox.isolation}", title_justify="left")
    for group, deeds in GROUPS.items():
        table.add_section()
        for deed in deeds:
            held, result = outcomes[deed]
            table.add_row(f"{group}: {deed.tries}", "[green]yes[/]" if held else "[bold red]NO[/]", result.status)
    console.print(table)
    broken = [deed.tries for deed, (held, _) in outcomes.items() if not held]
    verdict = "Everything held." if not broken else f"{len(broken)} of {len(outcomes)} did not hold: do not run code you do not trust here."
    console.print(f"{verdict} Programs share the machine's kernel: against people who write kernel exploits use a virtual machine.")
    return not broken
