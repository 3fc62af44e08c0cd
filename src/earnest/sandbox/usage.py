"""What a jail holds while it runs, for the limits that the kernel does not set on many processes together."""

from __future__ import annotations

import contextlib
import os
import stat

from earnest.sandbox.jail import Jail, children, descendants
from earnest.sandbox.sandbox import Limits, Status

TICKS = os.sysconf("SC_CLK_TCK")
ENTRIES = 2**14  # files and folders it may make: each costs the kernel memory that no limit counts
WAITING = 212_992  # bytes that may wait in a socket, where the kernel does not tell
with contextlib.suppress(OSError), open("/proc/sys/net/core/wmem_default") as _file:
    WAITING = int(_file.read())
SOCKET = 2 * WAITING  # the last message may go beyond


def over(jail: Jail, limits: Limits) -> tuple[Status | None, int]:
    """Which limit all its processes together have passed, if any; and bytes of memory of the largest."""
    first = children(jail.process.pid) if jail.plan.namespace else [jail.process.pid]
    pids = [pid for top in first for pid in (top, *descendants(top))]
    sizes = [resident(pid) for pid in pids]
    peak = max(sizes, default=0)
    if sum(map(processor_time, pids)) > limits.cpu:
        return "timeout", peak
    if sum(sizes) > limits.memory and sum(map(share, pids)) > limits.memory:
        return "memory", peak
    held: dict[tuple[int, int], int] = {}
    for pid in [] if jail.plan.namespace else pids:  # elsewhere the temporary folder has a size of its own
        held.update(dict.fromkeys(mapped_files(pid), limits.file))
    for pid in pids:
        held.update({} if pid in first else open_files(pid))
    if sum(held.values()) > limits.memory:
        return "memory", peak
    if first and over_folder(jail, first[0], limits.memory):
        return "memory", peak
    return None, peak


def resident(pid: int) -> int:
    """Bytes of memory of its own; what it shares with a process it was forked from counts in both."""
    found = 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith((b"RssAnon:", b"RssShmem:", b"VmSwap:")):
                found += int(line.split()[1]) * 1024
    return found


def share(pid: int) -> int:
    """Bytes of memory, what is shared divided among those who share it; `resident` where the kernel does not tell."""
    found = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith((b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")):
                    found += int(line.split()[1]) * 1024
    except OSError:
        return resident(pid)
    return found


def open_files(pid: int) -> dict[tuple[int, int], int]:
    """Bytes that may be held by each of its sockets and of its files without a name, by device and inode."""
    found = {}
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                file = os.stat(f"/proc/{pid}/fd/{name}")
                if stat.S_ISSOCK(file.st_mode):
                    found[file.st_dev, file.st_ino] = SOCKET
                elif stat.S_ISREG(file.st_mode) and file.st_nlink == 0:
                    found[file.st_dev, file.st_ino] = file.st_blocks * 512
    except PermissionError:  # it hides them: then each may be a socket
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:
            found[0, pid] = sum(int(line.split()[1]) * SOCKET for line in status if line.startswith(b"FDSize:"))
    except OSError:
        pass
    return found


def mapped_files(pid: int) -> set[tuple[int, int]]:
    """Files without a name that it has mapped, by device and inode; how large they are nobody tells."""
    found = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            if line.endswith(b" (deleted)\n"):
                device, inode = line.split()[3:5]
                major, minor = (int(part, 16) for part in device.split(b":"))
                found.add((os.makedev(major, minor), int(inode)))
    return found


def processor_time(pid: int) -> float:
    """Seconds of processor time, of it and of those of its children that it has waited for."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    return 0.0


def over_folder(jail: Jail, first: int, size: int) -> bool:
    """Whether its temporary folder holds too much: too many entries, or too many bytes where nothing else limits these."""
    if jail.plan.folder is not None:
        with contextlib.suppress(OSError):
            held = os.statvfs(f"/proc/{first}/root/tmp")
            return held.f_files - held.f_ffree > ENTRIES
        return False
    entries = total = 0
    for folder, names, files in os.walk(jail.folder):
        entries += len(names) + len(files)
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
        if entries > ENTRIES or total > size:
            return True
    return False
