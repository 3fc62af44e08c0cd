"""Workers that are killed when a deadline passes, and replaced; asked from any thread."""

import atexit
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from earnest import UserError
from earnest.rewards.process import Pool, StartError, WorkerError

LIMIT = 1.0
WORK = """
    import os, sys, time

    def work(what, value=None):
        if what == "echo":
            return value
        if what == "spin":
            while True:
                pass
        if what == "power":  # one operation of the interpreter, in which no Python signal handler gets its turn
            return 9 ** 9 ** 9 ** 9
        if what == "print":
            print("x" * 100_000)
            sys.stdout.flush()
            os.write(1, b"junk")
            return value
        if what == "raise":
            raise KeyError(value)
        if what == "sleep":
            time.sleep(value)
            return value
        if what == "count and die":
            with open(value, "a") as file:
                file.write("x")
            os._exit(3)
        if what == "die":
            os._exit(3)
        if what == "memory":
            return len(bytearray(2 ** 40))
        if what == "modules":
            return sorted(sys.modules)
        if what == "pid":
            return os.getpid()
"""


@pytest.fixture
def pool(tmp_path, monkeypatch):
    (tmp_path / "worked.py").write_text(textwrap.dedent(WORK))
    monkeypatch.syspath_prepend(str(tmp_path))
    pool = Pool("worked", "work", size=2)
    yield pool
    pool.close()


def gone(pid, within=10.0):
    """Whether a process ends, or is a mere entry that its parent has not collected."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_json_values_come_back_as_they_were(pool):
    values = [None, True, 1, 1.5, "ü\n\x00", [1, [2, {"a": None}]], "x" * 300_000]
    assert [pool.call("echo", value, deadline=20) for value in values] == values


def test_a_worker_is_used_again(pool):
    assert pool.call("pid", deadline=20) == pool.call("pid", deadline=20) == pool.pids()[0]


@pytest.mark.parametrize("what", ["spin", "power"])
def test_what_does_not_end_is_killed_when_its_deadline_passes(pool, what):
    pid = pool.call("pid", deadline=20)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        pool.call(what, deadline=LIMIT)
    assert time.monotonic() - began < LIMIT + 5
    assert gone(pid)
    assert pool.call("echo", "still here", deadline=20) == "still here"


def test_hanging_calls_take_their_own_time_only(pool):  # S-CC-02
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: pool.call("echo", n, deadline=60), range(2)))  # started
        began = time.monotonic()
        hanging = [threads.submit(pool.call, "spin", deadline=LIMIT) for _ in range(4)]
        time.sleep(0.1)
        normal = [threads.submit(pool.call, "echo", n, deadline=LIMIT) for n in range(4)]
        assert [type(future.exception()) for future in hanging] == [TimeoutError] * 4
        assert [future.result() for future in normal] == [0, 1, 2, 3]
        assert time.monotonic() - began < 2 * LIMIT + 10, "two rounds of two, and new workers"
    assert len(pool.pids()) == 2


def test_eight_threads_at_once_each_get_their_own_reply(pool):  # S-CC-01
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: pool.call("echo", n, deadline=60), range(200))) == list(range(200))
    assert len(pool.pids()) <= 2


def test_prints_do_not_get_between_the_frames(pool):
    assert pool.call("print", "value", deadline=20) == "value"


def test_an_exception_is_named_and_the_worker_stays(pool):
    pid = pool.call("pid", deadline=20)
    with pytest.raises(WorkerError, match="KeyError"):
        pool.call("raise", "x", deadline=20)
    with pytest.raises(WorkerError, match="MemoryError"):
        pool.call("memory", deadline=20)
    assert pool.call("pid", deadline=20) == pid


def test_a_worker_that_dies_is_replaced(pool):
    with pytest.raises(WorkerError, match="ended"):
        pool.call("die", deadline=20)
    assert pool.call("echo", 1, deadline=20) == 1


def test_workers_that_were_killed_while_idle_cost_no_call_its_reply(pool):
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda n: pool.call("sleep", 0.5, deadline=60), range(2)))
    killed = pool.pids()
    assert len(killed) == 2
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)
    assert [pool.call("echo", n, deadline=20) for n in range(4)] == [0, 1, 2, 3]
    assert not set(killed) & set(pool.pids()) and 1 <= len(pool.pids()) <= 2


def test_a_call_whose_worker_is_killed_from_outside_is_made_again(pool):
    pid = pool.call("pid", deadline=20)
    with ThreadPoolExecutor(1) as threads:
        reply = threads.submit(pool.call, "sleep", 1.0, deadline=60)
        time.sleep(0.5)
        os.kill(pid, signal.SIGKILL)
        assert reply.result() == 1.0
    assert pid not in pool.pids()


def test_what_kills_every_worker_is_asked_twice_and_no_more(pool, tmp_path):
    with pytest.raises(WorkerError, match="ended"):
        pool.call("count and die", str(tmp_path / "deaths"), deadline=20)
    assert (tmp_path / "deaths").read_text() == "xx"


def test_a_module_that_does_not_import_is_no_fault_of_the_input(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import a_module_that_nobody_has")
    monkeypatch.syspath_prepend(str(tmp_path))
    pool = Pool("broken", "work")
    for _ in range(2):
        with pytest.raises(StartError, match="a_module_that_nobody_has"):
            pool.call("x", deadline=1)
    assert pool.pids() == []


def test_a_pool_of_none_is_refused():
    with pytest.raises(UserError, match="at least one"):
        Pool("worked", "work", size=0)


def test_a_worker_has_neither_torch_nor_anything_else_heavy(pool):
    assert {"torch", "numpy", "sympy"} & set(pool.call("modules", deadline=20)) == set()


def test_a_closed_pool_has_no_processes_and_starts_again(pool):
    pid = pool.call("pid", deadline=20)
    pool.close()
    assert gone(pid) and pool.pids() == []
    assert pool.call("echo", 2, deadline=20) == 2


PARENT = """
    import os, signal, sys, threading
    sys.path.insert(0, sys.argv[1])
    from earnest.rewards.process import Pool

    pool = Pool("worked", "work")
    print(pool.call("pid", deadline=30), flush=True)
    if sys.argv[2] == "busy":
        threading.Thread(target=lambda: pool.call("power", deadline=1.0), daemon=True).start()
        import time; time.sleep(0.3)
    if sys.argv[2] != "exit":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["exit", "killed while idle", "busy"])
def test_no_worker_outlives_its_parent(pool, tmp_path, end):
    program = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path), end]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert ran.returncode == (0 if end == "exit" else -signal.SIGKILL), ran.stderr
    assert gone(int(ran.stdout), within=20)


def test_a_fork_of_the_parent_does_not_read_its_replies(pool):
    before = pool.call("pid", deadline=20)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = pool.call("pid", deadline=60) != before
            pool.close()
            atexit._run_exitfuncs()  # as where the fork ends of itself
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.call("pid", deadline=20) == before


def test_the_deadline_holds_on_a_thread_that_is_not_the_main_one(pool):  # S-CC-01
    raised = []

    def ask():
        try:
            pool.call("spin", deadline=LIMIT)
        except TimeoutError as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(60)
    assert len(raised) == 1
