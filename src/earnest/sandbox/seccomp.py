"""System calls that no program in a sandbox needs, refused by the kernel (seccomp).

Namespaces and Landlock leave gaps: memory that no limit counts, objects that all processes of a user share, system calls that reach
other processes of the same user, and large parts of the kernel that have often been broken into. Each group below says which gap
it closes. The numbers are those of Linux's system call tables, the filter is classic BPF as in Linux's Documentation/userspace-api/
seccomp_filter.rst.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH_*, column of the tables below
Numbers = dict[str, tuple[int | None, int | None]]

NAMESPACES: Numbers = {  # new namespaces would give it rights over them, and with these memory without limit
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
}
UNCOUNTED: Numbers = {  # memory and kernel objects that no limit of a process counts, some of them shared by the whole machine
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "vmsplice": (278, 75),  # a pipe that holds on to pages which no process has any more
    "landlock_create_ruleset": (444, 444),
    "io_setup": (206, 0),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
}
OTHERS: Numbers = {  # other processes of the same user: their memory, their pace
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
SOCKETS: Numbers = {  # only the two ends of a pair: what waits at an address, or in larger buffers, no limit counts
    "socket": (41, 198),
    "bind": (49, 200),
    "listen": (50, 201),
    "connect": (42, 203),
    "setsockopt": (54, 208),
}
KERNEL: Numbers = {  # parts of the kernel with a history of holes, its keys and its log
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
}
OWNED: Numbers = {  # rights, times and owners of files, which Landlock does not guard
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}
SIGNALS: Numbers = {  # signals to other processes, which Landlock guards from its ABI 6 on
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
ALWAYS = (NAMESPACES, UNCOUNTED, OTHERS, SOCKETS, KERNEL)
CLONE, CLONE3, PRLIMIT, PRCTL, MMAP, SOCKETPAIR = (56, 220), (435, 435), (302, 261), (157, 167), (9, 222), (53, 199)
NEW_NAMESPACE = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
THREAD_FILES, THREAD = 0x10400, 0x10000  # CLONE_THREAD and CLONE_FILES, and the one without the other
SHARED_ANONYMOUS = 0x21  # MAP_SHARED and MAP_ANONYMOUS: it outlives its mapping in a child that does not count as having it
HUGE = 0x40000  # MAP_HUGETLB: pages that the machine keeps for others
FUTEX_HASH = 78  # PR_FUTEX_HASH: a table of any size, in the kernel
AF_UNIX, SOCKET_TYPE, STREAM = 1, 0xF, 1

LOAD, MASK, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


@dataclass(frozen=True)
class Filter:
    """A filter in the making.

    Attributes:
        column: Of the tables, for this machine.
        code: Instructions so far.
    """

    column: int
    code: list[bytes]

    def add(self, code: int, k: int, then: int = 0, otherwise: int = 0) -> None:
        """One instruction; `then` and `otherwise` are how many to skip."""
        self.code.append(struct.pack("=HBBI", code, then, otherwise, k))

    def refuse(self, numbers: tuple[int | None, ...], error: int = errno.EPERM) -> None:
        """A call fails, whatever its arguments."""
        if numbers[self.column] is not None:
            self.add(EQUAL, numbers[self.column], 0, 1)
            self.add(RETURN, REFUSE | error)

    def refuse_argument(
        self, numbers: tuple[int | None, ...], place: int, test: int, value: int, when: bool, mask: int = 0xFFFFFFFF
    ) -> None:
        """A call fails when a test of one argument, or of those bits of it, comes out as `when`."""
        self.add(EQUAL, numbers[self.column], 0, 5)
        self.add(LOAD, ARGUMENTS + 8 * place)
        self.add(MASK, mask)
        self.add(test, value, 0 if when else 1, 1 if when else 0)
        self.add(RETURN, REFUSE | errno.EPERM)
        self.add(LOAD, NUMBER)


def build(groups: Sequence[Numbers] = ()) -> bytes | None:
    """The filter for this machine, None on one whose system calls are not known here.

    Args:
        groups: Tables to refuse beside those that are always refused.
    """
    if platform.machine() not in MACHINES:
        return None
    architecture, column = MACHINES[platform.machine()]
    made = Filter(column, [])
    made.add(LOAD, ARCHITECTURE)
    made.add(EQUAL, architecture, 1, 0)
    made.add(RETURN, REFUSE | errno.ENOSYS)
    made.add(LOAD, NUMBER)
    made.add(AT_LEAST, 0x40000000, 0, 1)  # the x32 numbers of x86_64 would go round all this
    made.add(RETURN, REFUSE | errno.ENOSYS)
    made.refuse(CLONE3, errno.ENOSYS)  # its flags are behind a pointer; libraries then use clone
    made.refuse_argument(CLONE, 0, ANY_BIT, NEW_NAMESPACE, True)
    made.refuse_argument(PRLIMIT, 0, EQUAL, 0, False)  # limits of other processes
    made.refuse_argument(CLONE, 0, EQUAL, THREAD, True, THREAD_FILES)  # a thread with open files of its own, which nobody would find
    made.refuse_argument(MMAP, 3, EQUAL, SHARED_ANONYMOUS, True, SHARED_ANONYMOUS)
    made.refuse_argument(MMAP, 3, ANY_BIT, HUGE, True)
    made.refuse_argument(PRCTL, 0, EQUAL, FUTEX_HASH, True)
    made.refuse_argument(SOCKETPAIR, 0, EQUAL, AF_UNIX, False)
    made.refuse_argument(SOCKETPAIR, 1, EQUAL, STREAM, False, SOCKET_TYPE)
    for group in (*ALWAYS, *groups):
        for numbers in group.values():
            made.refuse(numbers)
    made.add(RETURN, ALLOW)
    return b"".join(made.code)
