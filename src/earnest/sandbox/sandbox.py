"""The words of the sandbox: limits, a result, and what a backend is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Status = Literal["ok", "nonzero", "timeout", "memory", "output", "killed", "infra_error"]
Isolation = Literal["bubblewrap", "landlock", "none"]


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Attributes:
        wall: Seconds from start to end. While more programs run here than there are cores, the clock runs slower by that ratio, so that
            no program pays for its neighbours.
        cpu: Seconds of processor time, of all its processes together.
        memory: Bytes, of address space of each process, of memory of all together, and of its own temporary folder, each.
        processes: Processes and threads at a time.
        output: Bytes of stdout, and of stderr.
        file: Bytes of a file it writes.
    """

    wall: float = 5.0
    cpu: float = 5.0
    memory: int = 512 * 2**20
    processes: int = 32
    output: int = 2**20
    file: int = 16 * 2**20


DEFAULT = Limits()


@dataclass(frozen=True)
class Result:
    """What became of a program.

    Attributes:
        status: "ok" ended with 0, "nonzero" with anything else; "timeout" (wall or cpu), "memory", "output" ran into a limit; "killed" by a
            signal of another kind; "infra_error" when the sandbox itself could not start it, which no program can cause.
        stdout: Its output, cut at the limit; undecodable bytes replaced.
        stderr: Likewise; for "infra_error" what went wrong.
        seconds: Wall time.
        charged: Seconds of `Limits.wall` that it used up: fewer than `seconds` while it shared the cores with others.
        peak_memory: Bytes of the largest process, 0 where unknown.
        returncode: Exit status, negative for a signal; None where it never ran.
        isolation: How it was run.
    """

    status: Status
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    charged: float = 0.0
    peak_memory: int = 0
    returncode: int | None = None
    isolation: Isolation = "none"


class Sandbox(Protocol):
    """Runs programs, each in a jail of its own that is gone afterwards. Any number of threads may share one."""

    isolation: Isolation

    def run(
        self,
        program: Sequence[str] | str,
        files: Mapping[str, str | bytes] | None = None,
        stdin: str | bytes = b"",
        limits: Limits = DEFAULT,
    ) -> Result:
        """Run a program.

        Args:
            program: An argv, in which `python3` is the sandbox's Python; or Python source, which an isolated interpreter runs.
            files: Relative path to content, put into its working folder before it starts.
            stdin: What it reads.
            limits: What it may use.

        Returns:
            What became of it; never raises for what a program does.

        Raises:
            ValueError: A file's path leaves the working folder, or the program is an empty argv.
        """
        ...
