"""Programs that try to do harm, each with what would show that it did. `earnest sandbox` runs them all, and so do the tests."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from earnest.sandbox.sandbox import Limits, Result

LIMITS = Limits(wall=1.0, cpu=0.5, memory=96 * 2**20, processes=12, output=2**16, file=2**20)

# What every one of them begins with: where things are that it could harm. It says HARM when it has managed what it tried.
PRELUDE = """\
import json, os, signal, socket, subprocess, sys, threading, time
facts = json.load(sys.stdin)
limits = facts["limits"]
intel = os.uname().machine == "x86_64"
def harm(): print("HARM", flush=True)
def libc():
    import ctypes
    return ctypes.CDLL(None, use_errno=True)
def parallel(work, count):
    for _ in range(count):
        if os.fork() == 0:
            work()
            os._exit(0)
    while True:
        try: os.wait()
        except ChildProcessError: return
"""


class Outside(Protocol):
    """What is outside and could be harmed."""

    secret: str

    def changed(self) -> bool:
        """Whether a file was made, changed or lost."""

    def reached(self) -> bool:
        """Whether anything came in over a network or a socket, or went out to the program."""

    def killed(self) -> bool:
        """Whether a process is gone."""

    def survivors(self) -> list[int]:
        """Processes of the program's that still run."""


Harmed = Callable[[Result, Outside], bool]


@dataclass(frozen=True)
class Deed:
    """A hostile program.

    Attributes:
        tries: What it tries.
        source: Python, to follow `PRELUDE`.
        harmed: Whether it did it, from how it ended and what is outside; None believes its own word.
        control: Whether the same program is safe to be shown doing it outside a sandbox.
    """

    tries: str
    source: str
    harmed: Harmed | None = None
    control: bool = False

    @property
    def program(self) -> str:
        """The whole source."""
        return PRELUDE + textwrap.dedent(self.source)

    def did_harm(self, result: Result, outside: Outside) -> bool:
        """Whether it did it: by its own word, by telling a secret, by what is outside, or by passing its failure off as the sandbox's."""
        said = "HARM" in result.stdout or outside.secret in result.stdout + result.stderr
        return said or result.status == "infra_error" or (self.harmed is not None and self.harmed(result, outside))


def unless(*statuses: str) -> Harmed:
    """Harm is any other end."""
    return lambda result, outside: result.status not in statuses


def changed(result: Result, outside: Outside) -> bool:
    """Harm to files."""
    return outside.changed()


def reached(result: Result, outside: Outside) -> bool:
    """Harm by network."""
    return outside.reached()


FILES = (
    Deed("read a file of yours", "print(open(facts['secret_file']).read())", control=True),
    Deed("read the list of users", "if 'root:' in open('/etc/passwd').read(): harm()", control=True),
    Deed("look into your home folder", "if set(os.listdir(facts['home'])) & set(facts['home_names']): harm()", control=True),
    Deed("list the machine's temporary files", "if facts['name'] in os.listdir(facts['temporary']): harm()", control=True),
    Deed("read through the root of a process", "print(open('/proc/1/root' + facts['secret_file']).read())"),
    Deed("read through a link", "os.symlink(facts['secret_file'], 'x'); print(open('x').read())", control=True),
    Deed("read through a hard link", "os.link(facts['secret_file'], 'x'); print(open('x').read())"),
    Deed("climb out of its folder", "print(open('../' * 30 + facts['secret_file']).read())", control=True),
    Deed("overwrite a file", "open(facts['file'], 'w').write('x')", changed, True),
    Deed("make a file", "open(facts['new_file'], 'w').write('x')", changed, True),
    Deed("delete a file", "os.unlink(facts['file'])", changed, True),
    Deed("cut a file short", "os.truncate(facts['file'], 0)", changed, True),
    Deed("move a file", "os.rename(facts['file'], facts['new_file'])", changed, True),
    Deed("change the rights of a file", "os.chmod(facts['file'], 0o600)", changed, True),
    Deed("change the interpreter", "open(os.path.dirname(os.__file__) + '/x.py', 'w'); harm()"),
    Deed("import what is installed", "import earnest; harm()"),
    Deed(
        "read memory and disks as files",
        """
        for name in ("mem", "kmsg", "kcore", "port", "sda", "vda", "nvme0n1"):
            for folder in ("/dev/", "/proc/"):
                try: open(folder + name, "rb").read(1); harm()
                except OSError: pass
        """,
    ),
)

NETWORK = (
    Deed("connect by TCP", "socket.create_connection(('127.0.0.1', facts['tcp']), 1)", reached, True),
    Deed("send by UDP", "socket.socket(2, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', facts['udp']))", reached, True),
    Deed("connect to an abstract socket", "socket.socket(socket.AF_UNIX).connect(chr(0) + facts['abstract'])", reached, True),
    Deed("connect to a socket among files", "socket.socket(socket.AF_UNIX).connect(facts['unix'])", reached, True),
    Deed("be reached from outside", "socket.create_server(('127.0.0.1', facts['free_port'])).accept()", reached, True),
    Deed("list the network's devices", "os.listdir('/sys/class/net'); harm()", control=True),
    Deed("ask the kernel about the network", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); harm()", control=True),
)

PROCESSES = (
    Deed("kill a process", "os.kill(facts['victim'], 9)", lambda result, outside: outside.killed(), True),
    Deed("see your processes", "open(f\"/proc/{facts['victim']}/environ\").close(); harm()", control=True),
    Deed("read a process's environment", "print(open(f\"/proc/{facts['parent']}/environ\").read())", control=True),
    Deed("read a process's memory", "open(f\"/proc/{facts['victim']}/mem\", 'rb').close(); harm()", control=True),
    Deed("copy a process's memory", "if libc().process_vm_readv(facts['victim'], 0, 0, 0, 0, 0) == 0: harm()", control=True),
    Deed("trace a process", "if libc().ptrace(0x4206, facts['victim'], 0, 0) == 0: harm()", control=True),
    Deed("slow a process down", "os.setpriority(os.PRIO_PROCESS, facts['victim'], 19); harm()", control=True),
    Deed("limit a process", "import resource; resource.prlimit(facts['victim'], resource.RLIMIT_CORE, (0, 0)); harm()", control=True),
    Deed("bind a process to a core", "os.sched_setaffinity(facts['victim'], os.sched_getaffinity(0)); harm()", control=True),
    Deed(
        "outlive its end as a daemon",
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for fd in range(3): os.close(fd)
                os.execv("/bin/sh", ["sh", "-c", f"sleep 20; : {facts['marker']}"])
            os._exit(0)
        time.sleep(0.2)
        """,
        lambda result, outside: bool(outside.survivors()),
        True,
    ),
    Deed(
        "leave a child that ignores signals",
        """
        subprocess.Popen(["/bin/sh", "-c", f"trap '' 1 2 3 15; while :; do sleep 1; : {facts['marker']}; done"])
        for number in (1, 2, 3, 15, 24): signal.signal(number, signal.SIG_IGN)
        while True: time.sleep(1)
        """,
        lambda result, outside: bool(outside.survivors()) or result.status != "timeout",
    ),
)

PRIVILEGES = (
    Deed("become root", "os.setresuid(0, 0, 0); harm()"),
    Deed("make a user namespace", "if libc().unshare(0x10000000) == 0: harm()", control=True),
    Deed("fork into a user namespace", "if libc().syscall(56 if intel else 220, 0x10000011, 0, 0, 0, 0) >= 0: harm()", control=True),
    Deed("mount a file system", "if libc().mount(b'none', b'/tmp', b'tmpfs', 0, b'') == 0: harm()"),
    Deed("raise its own limits", "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); harm()"),
    Deed("use the kernel's keys", "if libc().syscall(250 if intel else 219, 0, -3, 1) != -1: harm()"),
    Deed("read the kernel's log", "if libc().klogctl(10, 0, 0) >= 0: harm()"),
    Deed("find your environment variables", "print(dict(os.environ)); subprocess.run(['/usr/bin/env'])", control=True),
)

RESOURCES = (
    Deed(
        "fork without end",
        """
        for made in range(limits["processes"] + 1):
            try: child = os.fork()
            except OSError: sys.exit()
            if child == 0:
                time.sleep(5)
                os._exit(0)
        harm()
        """,
    ),
    Deed(
        "start threads without end",
        """
        for made in range(limits["processes"] + 1):
            threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        harm()
        """,
        control=True,
    ),
    Deed("take more memory than allowed", "x = bytearray(limits['memory']); harm()", unless("memory"), True),
    Deed(
        "take memory by many processes",
        """
        def work():
            x = b"x" * (limits["memory"] // 2)
            time.sleep(1)
            harm()
        parallel(work, 6)
        """,
        unless("memory"),
        True,
    ),
    Deed(
        "take memory that no limit counts",
        """
        import ctypes
        if libc().syscall(319 if intel else 279, b"x", 0) >= 0: harm()
        if libc().shmget(0, 4096, 0o1600) >= 0: harm()
        if libc().prctl(78, 1, 1 << 16, 0, 0) == 0: harm()
        if libc().syscall(444, b"\\1" + bytes(7), ctypes.c_size_t(8), 0) >= 0: harm()
        """,
    ),
    Deed(
        "leave shared memory to its children",
        """
        import mmap
        for size in range(2 * limits["memory"] >> 24):
            shared = mmap.mmap(-1, 1 << 24)
            shared.write(bytes(1 << 24))
            if os.fork() == 0:
                time.sleep(2)
                os._exit(0)
            shared.close()
        harm()
        """,
        control=True,
    ),
    Deed(
        "leave shared memory of a device to its children",
        """
        import mmap
        for size in range(2 * limits["memory"] >> 24):
            shared = mmap.mmap(os.open("/dev/zero", os.O_RDWR), 1 << 24)
            shared.write(bytes(1 << 24))
            if os.fork() == 0:
                time.sleep(2)
                os._exit(0)
            shared.close()
        harm()
        """,
        control=True,
    ),
    Deed("keep memory in a large socket", "a, b = socket.socketpair(); a.setsockopt(1, 7, 1 << 20); harm()", control=True),
    Deed("queue at a socket of its own", "a = socket.socket(socket.AF_UNIX); a.bind('q'); a.listen(99); harm()", control=True),
    Deed("queue at a socket without a place", "a, b = socket.socketpair(1, socket.SOCK_DGRAM); harm()", control=True),
    Deed(
        "keep memory in many sockets",
        """
        def work():
            held = [end for _ in range(60) for end in socket.socketpair()]
            for end in held:
                end.setblocking(False)
                try:
                    while True: end.send(b"x" * 8192)
                except BlockingIOError: pass
            time.sleep(1)
            harm()
        parallel(work, 8)
        """,
        unless("memory"),
        True,
    ),
    Deed(
        "keep memory in a pipe",
        """
        import ctypes
        class Piece(ctypes.Structure): _fields_ = [("start", ctypes.c_char_p), ("size", ctypes.c_size_t)]
        if libc().vmsplice(os.pipe()[1], ctypes.byref(Piece(b"x" * 4096, 4096)), ctypes.c_size_t(1), 0) > 0: harm()
        """,
        control=True,
    ),
    Deed(
        "keep files without a name",
        """
        held = []
        for number in range(limits["memory"] // limits["file"] + 20):
            held.append(open("x", "wb"))
            os.unlink("x")
            held[-1].write(b"x" * limits["file"])
        time.sleep(0.3)
        harm()
        """,
    ),
    Deed(
        "keep files that are mapped alone",
        """
        import ctypes
        mapped = libc()
        for number in range(2 * limits["memory"] // limits["file"]):
            file = os.open("x", os.O_RDWR | os.O_CREAT)
            os.unlink("x")
            os.write(file, b"x" * limits["file"])
            mapped.mmap(None, ctypes.c_size_t(4096), 1, 1, file, ctypes.c_long(0))
            os.close(file)
        time.sleep(0.3)
        harm()
        """,
    ),
    Deed(
        "fill the disk",
        """
        for number in range(2 * limits["memory"] // limits["file"]):
            open(f"x{number}", "wb").write(b"x" * limits["file"])
            time.sleep(0.002)
        time.sleep(0.2)
        harm()
        """,
    ),
    Deed(
        "write a large file",
        """
        file = open("x", "wb", 0)
        for _ in range(4): file.write(b"x" * (limits["file"] // 3 + 1))
        if file.tell() > limits["file"]: harm()
        """,
        control=True,
    ),
    Deed("make files without end", "for number in range(10**9): os.mknod(str(number))", unless("memory", "timeout", "nonzero")),
    Deed("write without end", "while True: print('x' * 1000)", unless("output")),
    Deed("complain without end", "while True: os.write(2, b'x' * 1000)", unless("output")),
    Deed("run without end", "while True: pass", unless("timeout")),
    Deed("wait without end", "time.sleep(1000)", unless("timeout")),
    Deed("stop itself", "os.kill(os.getpid(), signal.SIGSTOP)", unless("timeout")),
    Deed("take all cores", "def work():\n    while True: pass\nparallel(work, 8)", unless("timeout")),
    Deed("ignore the end of its time", "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", unless("timeout")),
)

# Harm would be that a failure of the program's counts as one of the sandbox, and so as no verdict.
VERDICTS = (
    Deed("speak for the sandbox", "for fd in range(3, 64):\n    try: os.write(fd, b'X\\n' * 99)\n    except OSError: pass", unless("ok")),
    Deed("kill what watches it", "for number in (19, 2, 15, 9): os.kill(os.getppid(), number)"),
    Deed("rewrite what watches it", "open(f'/proc/{os.getppid()}/mem', 'r+b', 0).seek(4096)"),
    Deed("take the watcher's socket", "os.listdir(f'/proc/{os.getppid()}/fd'); open(f'/proc/{os.getppid()}/fd/3', 'r+b', 0)"),
    Deed("crash", "import ctypes; ctypes.string_at(0)", unless("killed")),
    Deed("kill itself", "os.kill(os.getpid(), 9)", unless("killed")),
)

GROUPS = {
    "files": FILES,
    "network": NETWORK,
    "processes": PROCESSES,
    "privileges": PRIVILEGES,
    "resources": RESOURCES,
    "verdicts": VERDICTS,
}
DEEDS = tuple(deed for deeds in GROUPS.values() for deed in deeds)
