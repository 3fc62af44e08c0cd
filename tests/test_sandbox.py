"""Programs nobody trusts: what they cannot do, and that what becomes of them is told right."""

import contextlib
import errno
import io
import json
import os
import platform
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import earnest
from earnest.cli import run_command
from earnest.errors import UserError
from earnest.sandbox import Limits, Result, find, find_sandbox, jail, run, seccomp, trial, usage
from earnest.sandbox.bubblewrap import Bubblewrap
from earnest.sandbox.hostile import DEEDS, GROUPS
from earnest.sandbox.plain import Plain, rules
from earnest.sandbox.python import candidates

SHORT = Limits(wall=1.0)


def working(isolation):
    """A sandbox of one kind, if this machine can have one."""
    for sandbox in find._possible(False):
        if sandbox.isolation == isolation and not find.probe(sandbox):
            return sandbox
    return None


@pytest.fixture(scope="session")
def sandbox():
    try:
        return find_sandbox()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=["bubblewrap", "landlock"])
def backend(request):
    found = working(request.param)
    return found or pytest.skip(f"no {request.param} on this machine")


@pytest.fixture(scope="session")
def tried(backend):
    """How every hostile program ended in a sandbox."""
    return backend, trial.try_all(backend)


# --- what no program can do


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.tries)
def test_no_hostile_program_does_harm(tried, deed):
    held, result = tried[1][deed]
    assert held, result
    assert result.isolation == tried[0].isolation


@pytest.mark.parametrize("deed", [deed for deed in DEEDS if deed.control], ids=lambda deed: deed.tries)
def test_the_same_program_does_harm_outside(deed, tmp_path):
    with trial.outside() as around:
        if "home" in deed.tries and not around.facts["home_names"]:
            pytest.skip("there is nothing in the home folder")
        process = subprocess.run(
            [sys.executable, "-I", "-c", deed.program],
            input=json.dumps(around.facts),
            text=True,
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
        )
        assert deed.did_harm(Result("ok", process.stdout, process.stderr), around), process


def test_there_are_at_least_forty_hostile_programs_and_each_is_another():
    assert len(DEEDS) == len({deed.program for deed in DEEDS}) == sum(map(len, GROUPS.values())) >= 40


def test_a_walk_to_a_process_starter_leaves_no_file_outside(sandbox, tmp_path):  # S-CS-08
    tmp_path.chmod(0o777)
    path = tmp_path / "marker"
    source = f"""
import os
[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "_wrap_close"][0].__init__.__globals__["system"]("touch {path}")
"""
    sandbox.run(source)
    assert not list(tmp_path.iterdir())


def test_the_gold_answers_of_the_built_in_tasks_are_not_in_the_jail(sandbox):
    gold = Path(earnest.__file__).parent / "tasks" / "triage" / "data" / "test.jsonl"
    assert gold.is_file()
    assert sandbox.run(f"open({str(gold)!r})").status == "nonzero"


def test_the_environment_of_the_parent_is_not_in_the_jail(sandbox, monkeypatch):  # S-CS-13
    monkeypatch.setenv("DEMO_SECRET", "abc")
    result = sandbox.run("import os; print(sorted(os.environ)); print(open('/proc/self/environ').read())")
    assert "DEMO_SECRET" not in result.stdout and "PATH" in result.stdout


def test_a_jail_knows_nothing_of_the_one_before(sandbox):
    leave = "open('/tmp/left', 'w').write('x'); open('left', 'w').write('x'); import json; json.dumps = None; print(1)"
    look = "import os, json; print(os.listdir('.'), [n for n in os.listdir(os.environ['TMPDIR']) if n == 'left'], json.dumps(1))"
    for _ in range(3):
        sandbox.run(leave)
        assert sandbox.run(look).stdout == "[] [] 1\n"


def test_two_jails_at_a_time_do_not_see_each_other(sandbox):
    look = "import os, time; time.sleep(0.5); print(len([n for n in os.listdir('/proc') if n.isdigit()]))"
    with ThreadPoolExecutor(3) as threads:
        counts = [r.stdout for r in threads.map(sandbox.run, [look] * 3)]
    if sandbox.isolation == "bubblewrap":
        assert counts == ["2\n"] * 3
    else:
        assert counts == [""] * 3


# --- what programs need


@pytest.mark.parametrize(
    ("source", "stdout"),
    [
        ("print(6 * 7)", "42\n"),
        ("import sys; print(sys.stdin.read().upper())", "ÄÖ\n"),
        ("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", "äö"),  # S-CS-10
        ("print(input())", "äö\n"),
        ("print(open(0).read())", "äö\n"),
        ("print('before'); exit(); print('after')", "before\n"),
        ("print('before'); quit(0)", "before\n"),
        ("import sys; print(sys.argv, __name__)", "['program'] __main__\n"),
        ("import helper; print(helper.x)", "3\n"),
        ("from folder.inner import y; print(y)", "4\n"),
        ("print(open('data/1.txt').read())", "one\n"),
        ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)", "A\n"),
        ("import dataclasses\n@dataclasses.dataclass\nclass A:\n  x: int = 1\nprint(A())", "A(x=1)\n"),
        ("from __future__ import annotations\ndef f(x: nonsense): return 1\nprint(f(1))", "1\n"),
        ("def f(x): return f(x - 1) if x else 0\nprint(f(900))", "0\n"),
        ("import ctypes, hashlib, json, sqlite3, decimal, zlib, asyncio; print(hashlib.sha256(b'').hexdigest()[:8])", "e3b0c442\n"),
        ("import tempfile; f = tempfile.NamedTemporaryFile('w+'); f.write('x'); f.seek(0); print(f.read())", "x\n"),
        ("import subprocess; print(subprocess.run(['sh', '-c', 'echo hi'], capture_output=True).stdout)", "b'hi\\n'\n"),
        ("import asyncio\nasync def f(): await asyncio.sleep(0.01); print('ran')\nasyncio.run(f())", "ran\n"),
        ("import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))", "[1, 2]\n"),
        ("import atexit; atexit.register(print, 'end'); print('start')", "start\nend\n"),
        ("import threading; threading.Timer(0.1, print, ['late']).start()", "late\n"),
        ("import os; print('a'); os.write(1, b'\\xff\\n')", "\ufffd\na\n"),
        ("import mmap; m = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE); m.write(b'x'); print(m[:1])", "b'x'\n"),
        ("import mmap; f = open('m', 'w+b'); f.write(b'xy'); f.flush(); print(mmap.mmap(f.fileno(), 2)[:])", "b'xy'\n"),
        ("import multiprocessing as m; a, b = m.Pipe(); a.send([1]); print(b.recv())", "[1]\n"),
        ("import multiprocessing as m; print(list(m.Array('i', [1, 2], lock=False)))", "[1, 2]\n"),
        (
            "import asyncio\nasync def f():\n  p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)\n"
            "  print((await p.communicate(b'hi'))[0])\nasyncio.run(f())",
            "b'hi'\n",
        ),
        ("import concurrent.futures as c\nwith c.ThreadPoolExecutor(4) as t: print(list(t.map(abs, [-1, 2])))", "[1, 2]\n"),
    ],
    ids=range(29),
)
def test_a_program_finds_what_it_needs(sandbox, source, stdout):
    files = {"helper.py": "x = 3", "folder/inner.py": "y = 4", "data/1.txt": b"one"}
    result = sandbox.run(source, files, "äö", Limits(wall=60, cpu=60))
    if "Pool" in source and sandbox.isolation != "bubblewrap":
        pytest.skip("there are no semaphores without /dev/shm")
    assert (result.status, result.returncode, result.stdout) == ("ok", 0, stdout), result


def test_an_argv_runs_the_sandboxs_python(sandbox):
    result = sandbox.run(["python3", "-c", "import sys; print(sys.version_info[:2], sys.stdin.read())"], stdin="x")
    assert result.stdout == f"({sys.version_info.major}, {sys.version_info.minor}) x\n"
    assert sandbox.run(["sh", "-c", "cat a; exit 3"], {"a": "text"}).returncode == 3
    assert sandbox.run(["sh", "-c", "cat a"], {"a": "text"}).stdout == "text"


def test_four_threads_are_no_fork_bomb(sandbox):  # S-CS-04
    source = """
import threading
done = []
threads = [threading.Thread(target=done.append, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(done))
"""
    assert sandbox.run(source).stdout == "[0, 1, 2, 3]\n"


def test_input_and_output_larger_than_any_pipe_do_not_block_each_other(sandbox):
    text = "0123456789" * 400_000
    source = "import sys\nfor line in iter(lambda: sys.stdin.read(1000), ''): sys.stdout.write(line); sys.stderr.write(line)"
    result = sandbox.run(source, stdin=text, limits=Limits(wall=60, cpu=60, output=2**23))
    assert result.status == "ok" and result.stdout == result.stderr == text


def test_a_program_that_reads_nothing_does_not_block_its_input(sandbox):
    assert sandbox.run("print(1)", stdin="x" * 5_000_000).stdout == "1\n"


def test_packages_are_there_only_when_asked_for(sandbox):
    source = "import numpy; print(int(numpy.arange(4).sum()))"
    assert sandbox.run(source).status == "nonzero"
    try:
        with_packages = find_sandbox(packages=True)
    except UserError as error:
        pytest.skip(str(error))
    wide = Limits(wall=120, cpu=60, memory=2**30)
    result = with_packages.run(source, limits=wide)
    assert result.stdout == "6\n", result
    # this package's own plugin is not in there when the package is installed from its sources
    pytest_there = ["python3", "-m", "pytest", "-p", "no:earnest.pytest_plugin", "-q", "test_a.py"]
    tested = with_packages.run(pytest_there, {"test_a.py": "def test_a(): assert 1"}, limits=wide)
    assert "1 passed" in tested.stdout, tested


# --- what became of it


@pytest.mark.parametrize(
    ("source", "status", "returncode"),
    [
        ("raise SystemExit(3)", "nonzero", 3),
        ("import sys; sys.exit('why')", "nonzero", 1),
        ("import os; os._exit(0)", "ok", 0),
        ("import os; os._exit(137)", "nonzero", 137),
        ("import os; os._exit(255)", "nonzero", 255),
        ("1 / 0", "nonzero", 1),
        ("def f(:", "nonzero", 1),
        ("x = 1\0", "nonzero", 1),
        ("x = '\ud800'", "nonzero", 1),
        ("", "ok", 0),
        ("(" * 100_000, "nonzero", 1),
        ("def f(): f()\nf()", "nonzero", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "killed", -15),
        ("import os; os.abort()", "killed", -6),
        ("import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()", None, None),
        ("x = [0] * 10**9", "memory", 1),  # S-CS-03
        ("x = []\nwhile True: x.append(bytearray(2**20))", "memory", 1),
        ("import os; open('/proc/self/oom_score_adj', 'w').write('1000')", None, None),
        ("import sys; print('MemoryError', file=sys.stderr)", "ok", 0),
        ("import os, sys; os.close(0); os.close(1); os.close(2)", None, None),
        ("import os, signal; os.kill(1, 9); os.kill(os.getppid(), signal.SIGSTOP); print('went on')", None, None),
        ("import os\nfor fd in range(256):\n  try: os.close(fd)\n  except OSError: pass", None, None),
    ],
    ids=range(22),
)
def test_how_a_program_ends_is_its_own_doing(sandbox, source, status, returncode):
    result = sandbox.run(source, limits=Limits(wall=20, memory=2**27))
    assert result.status != "infra_error", result
    if status is not None:
        assert (result.status, result.returncode) == (status, returncode), result


@pytest.mark.parametrize("argv", [["./own"], ["own/own"], ["sh", "x" * 3_000_000], ["sh", "a\0b"], ["./own\0"]], ids=range(5))
def test_a_program_that_cannot_be_started_by_its_own_fault_is_no_failure_of_the_sandbox(sandbox, argv):
    result = sandbox.run(argv, {"own": "#!/nonexistent\n", "own2/own": "x"} if argv[0] != "own/own" else {"own/own": "\x7fELF"})
    if argv[0] == "./own\0":
        assert result.status == "infra_error"  # whoever asks for a program that is nowhere has asked wrongly
    else:
        assert result.status == "nonzero", result


def test_a_traceback_shows_the_program_only(sandbox):
    lines = sandbox.run("def f():\n    1 / 0\nf()").stderr.splitlines()
    assert lines == [
        "Traceback (most recent call last):",
        '  File "<program>", line 3, in <module>',
        '  File "<program>", line 2, in f',
        "ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize("size", [0, 999, 1000, 1001, 65_536, 300_000])
@pytest.mark.parametrize("stream", [1, 2])
def test_output_is_cut_at_its_limit(sandbox, size, stream):
    result = sandbox.run(
        f"import os\nleft = {size}\nwhile left: left -= os.write({stream}, b'x' * left)", limits=Limits(output=1000, wall=60)
    )
    assert len(result.stdout + result.stderr) == min(size, 1000)
    assert result.status == ("ok" if size <= 1000 else "output")


def test_time_is_limited_by_the_clock_and_by_the_processor(sandbox):
    waited = sandbox.run("import time; time.sleep(100)", limits=Limits(wall=0.5))
    assert waited.status == "timeout" and 0.5 <= waited.seconds < 60
    worked = sandbox.run("while True: pass", limits=Limits(wall=600, cpu=0.5))
    assert worked.status == "timeout" and worked.seconds < 600
    together = sandbox.run("import os\nfor _ in range(3): os.fork()\nwhile True: pass", limits=Limits(wall=600, cpu=0.75))
    assert together.status == "timeout"


def test_a_program_is_charged_from_its_first_to_its_last_moment(sandbox):
    short, long = (sandbox.run(f"import time; time.sleep({seconds})", limits=Limits(wall=60)) for seconds in (0.01, 0.3))
    assert 0.01 <= short.charged == pytest.approx(short.seconds)
    assert 0.3 <= long.charged == pytest.approx(long.seconds)
    assert sandbox.run("while True: pass", limits=Limits(wall=0.2)).charged == 0.2


def test_a_program_beside_others_is_charged_its_share_of_the_time(sandbox):
    with contextlib.ExitStack() as stack:
        for _ in range(2 * run.CORES - 1):
            stack.enter_context(run.RUNNING.one_more())
        result = sandbox.run("import time; time.sleep(0.3)", limits=Limits(wall=60))
    assert result.seconds >= 0.3 and result.charged == pytest.approx(result.seconds / 2)


def test_a_program_that_never_began_is_charged_nothing(sandbox):
    assert sandbox.run(["no-such-program"]).charged == 0


def test_a_program_that_ends_its_children_late_is_ended_with_them(sandbox):  # S-CS-02
    source = "import subprocess, time\nsubprocess.Popen(['sleep', '61.25'])\ntime.sleep(99)"
    assert sandbox.run(source, limits=SHORT).status == "timeout"
    assert not [pid for pid in trial._pids() if b"61.25" in trial._read(f"/proc/{pid}/cmdline")]


def test_one_that_hangs_does_not_hold_up_the_others(sandbox):  # S-CS-01
    sources = ["print(0)", "while True: pass", "print(2)", "print(3)"]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda source: sandbox.run(source, limits=Limits(wall=1)), sources))
    assert [r.status for r in results] == ["ok", "timeout", "ok", "ok"]
    assert [r.stdout for r in results] == ["0\n", "", "2\n", "3\n"]


def test_memory_is_taken_in_the_jail_and_not_here(sandbox):  # S-CS-03
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = sandbox.run("x = bytearray(150 * 2**20)\nprint(len(x))", limits=Limits(memory=2**28, wall=60))
    assert result.status == "ok" and 150 * 2**20 <= result.peak_memory < 2**28
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import mmap; mmap.mmap(-1, 4096)", "PermissionError"),
        ("import mmap; mmap.mmap(-1, 4096, mmap.MAP_SHARED | 0x8000)", "PermissionError"),  # MAP_POPULATE
        ("import mmap; mmap.mmap(-1, 4096, mmap.MAP_SHARED, mmap.PROT_READ)", "PermissionError"),
        ("import mmap; mmap.mmap(-1, 2**21, mmap.MAP_PRIVATE | 0x40000)", "PermissionError"),  # MAP_HUGETLB
        ("open('/dev/zero')", "Error"),
        ("import socket; socket.socketpair()[0].setsockopt(1, 7, 4096)", "PermissionError"),  # SO_SNDBUF
        ("import socket; socket.socketpair()[0].setsockopt(1, 8, 4096)", "PermissionError"),  # SO_RCVBUF
        ("import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)", "PermissionError"),
        ("import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)", "PermissionError"),
        ("import socket; socket.socketpair()[0].bind('x')", "PermissionError"),
    ],
    ids=range(10),
)
def test_memory_that_outlives_its_owner_is_refused_with_a_plain_error(backend, source, error):
    result = backend.run(source)
    assert result.status == "nonzero" and error in result.stderr.splitlines()[-1], result


def test_what_sockets_may_hold_counts_even_of_one_that_hides_its_files(backend):
    hide = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"  # PR_SET_DUMPABLE
    hold = "import socket, time; x = [socket.socketpair() for _ in range(50)]; time.sleep(0.3)"
    enough, few = Limits(memory=200 * usage.SOCKET), Limits(memory=90 * usage.SOCKET)
    for source in (hold, hide + hold):
        assert backend.run(source, limits=replace(enough, wall=60)).status == "ok"
        assert backend.run(source, limits=replace(few, wall=60)).status == "memory"


def test_memory_that_was_swapped_out_counts(monkeypatch):
    monkeypatch.setattr(usage, "open", lambda *_: io.BytesIO(b"VmSize: 9 kB\nRssAnon: 3 kB\nRssShmem: 1 kB\nVmSwap: 4 kB\n"), raising=False)
    assert usage.resident(1) == 8 * 1024
    monkeypatch.setattr(usage, "open", lambda *_: io.BytesIO(b"Pss: 9 kB\nPss_Anon: 3 kB\nPss_Shmem: 1 kB\nSwapPss: 4 kB\n"), raising=False)
    assert usage.share(1) == 8 * 1024


def test_a_file_may_be_as_large_as_its_limit_and_no_larger(sandbox):
    source = "import os\nf = os.open('x', os.O_WRONLY | os.O_CREAT)\nn = os.write(f, b'x' * 2000)\nprint(n)\nos.write(f, b'x')"
    result = sandbox.run(source, limits=Limits(file=1000))
    assert result.stdout == "1000\n" and "File too large" in result.stderr


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "", "a/../../x", "..", "a/", "a\0b"])
def test_a_file_name_outside_its_folder_is_refused(sandbox, name):
    with pytest.raises(ValueError, match="no path inside"):
        sandbox.run("", {name: ""})


def test_files_larger_than_the_memory_are_the_programs_own(sandbox):
    assert sandbox.run("", {"x": "x" * 2000}, limits=Limits(memory=1000)).status == "memory"


# --- many at a time, and nothing left


def test_a_waiting_jail_that_died_costs_nobody_a_verdict(sandbox):
    sandbox.run("")
    if sandbox.isolation != "bubblewrap":
        pytest.skip("only jails of bubblewrap are started ahead")
    assert eventually(lambda: len(run.pool.POOL.spares) == run.pool.SPARES)
    for spare in run.pool.POOL.spares:
        os.kill(jail.children(spare.process.pid)[0], signal.SIGKILL)
    assert sandbox.run("print(1)").stdout == "1\n"
    run.pool.POOL.drop()


def test_no_jail_serves_two_programs(sandbox, monkeypatch):
    served = []
    monkeypatch.setattr(run, "Run", lambda jail, *rest, make=run.Run: served.append(jail) or make(jail, *rest))
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(sandbox.run, [""] * 12))
    assert len(served) == len({id(jail) for jail in served}) == 12


def test_many_at_a_time_each_get_their_own_answer(sandbox):
    with ThreadPoolExecutor(12) as threads:
        results = list(threads.map(lambda n: sandbox.run(f"print({n} + int(input()))", stdin=str(n), limits=Limits(wall=60)), range(40)))
    assert [r.stdout for r in results] == [f"{2 * n}\n" for n in range(40)]


def test_fifty_timeouts_leave_no_zombies_and_no_open_files(sandbox):  # S-CS-14
    def ours():
        return {pid for pid in jail.children(os.getpid()) if b"sleep" not in trial._read(f"/proc/{pid}/cmdline")}

    sandbox.run("")
    run.pool.POOL.drop()
    before, files = ours(), len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(10) as threads:
        results = list(threads.map(lambda _: sandbox.run("while True: pass", limits=Limits(wall=0.04)), range(50)))
    assert {r.status for r in results} == {"timeout"}
    deadline = time.monotonic() + 30
    while (left := ours() - before) or len(os.listdir("/proc/self/fd")) > files:
        run.pool.POOL.drop()
        assert time.monotonic() < deadline, (left, os.listdir("/proc/self/fd"))
        time.sleep(0.05)
    assert not jail.LIVE


def test_jails_end_with_the_process_that_made_them(sandbox):
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    source = f"""
from earnest.sandbox import find_sandbox, Limits
find_sandbox().run("import subprocess; subprocess.run(['sh', '-c', 'sleep 300; : {mark}'])", limits=Limits(wall=300))
"""

    def marked():
        return [pid for pid in trial._pids() if pid != owner.pid and mark.encode() in trial._read(f"/proc/{pid}/cmdline")]

    owner = subprocess.Popen([sys.executable, "-c", source])
    try:
        assert eventually(marked)
    finally:
        owner.kill()
        owner.wait()
    assert eventually(lambda: not marked())


def eventually(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_forked_copy_of_this_process_holds_no_jail(sandbox):
    sandbox.run("print(1)")
    pid = os.fork()
    if pid == 0:
        os._exit(len(jail.LIVE) + len(run.pool.POOL.spares))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sandbox.run("print(1)").stdout == "1\n"


def test_programs_beyond_the_cores_are_charged_less_time():
    running = run.Running()
    assert running.pace == 1
    with contextlib.ExitStack() as stack:
        for _ in range(2 * run.CORES):
            stack.enter_context(running.one_more())
        assert running.pace == 0.5
    assert running.count == 0


# --- which sandbox


def test_a_sandbox_that_is_missing_is_an_error_that_says_what_to_install(monkeypatch):  # S-CS-12
    monkeypatch.setattr(find, "_possible", lambda packages: [])
    find._strongest.cache_clear()
    find._unsafe.cache_clear()
    try:
        with pytest.raises(UserError, match="apt-get install bubblewrap"):
            find_sandbox()
        with pytest.warns(UserWarning, match="isolation: none"):
            unsafe = find_sandbox(allow_unsafe=True)
        assert unsafe.isolation == unsafe.run("print(1)").isolation == "none"
        assert unsafe.run("import time; time.sleep(9)", limits=SHORT).status == "timeout"
    finally:
        find._strongest.cache_clear()
        find._unsafe.cache_clear()


def test_limits_alone_do_not_pass_the_probe():
    plain = next(s for s in map(Plain, candidates(False)) if s.run("print(1)").stdout == "1\n")
    assert "does not hold: read" in find.probe(plain)


def test_a_sandbox_that_breaks_is_no_verdict(sandbox, monkeypatch):  # S-CS-12
    gone = Bubblewrap("/nonexistent/bwrap", candidates(False)[0], seccomp.build())
    assert gone.run("print(1)").status == "infra_error"
    broken = Bubblewrap(shutil.which("false"), candidates(False)[0], seccomp.build())
    result = broken.run("print(1)")
    assert (result.status, result.returncode) == ("infra_error", None) and result.stderr

    def starved(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    run.pool.POOL.drop()
    monkeypatch.setattr(subprocess, "Popen", starved)
    assert sandbox.run("print(1)").status == "infra_error"


def test_a_jail_that_starts_too_late_is_no_verdict(monkeypatch):
    monkeypatch.setattr(run, "START", 0.2)
    monkeypatch.setattr(jail, "LAST", 0.2)
    late = Plain(candidates(False)[0])
    run.pool.POOL.drop()
    monkeypatch.setattr(jail, "INSIDE", "import time; time.sleep(9)\ndef main(*_): pass\n")
    result = late.run("print(1)")
    assert result.status == "infra_error" and "did not start within" in result.stderr


def test_a_program_that_nobody_has_is_no_verdict(sandbox):
    result = sandbox.run(["no-such-program"])
    assert result.status == "infra_error" and "no-such-program" in result.stderr
    with pytest.raises(ValueError, match="empty"):
        sandbox.run([])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("isolation", ["bubblewrap", "landlock"])
def test_it_holds_for_a_normal_user_too(isolation, tmp_path_factory):
    python = "/usr/bin/python3"
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, text=True).stdout
    if version != "True\n" or not working(isolation):
        pytest.skip("the system has no Python 3.11 that another user could run, or no such sandbox")
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(earnest.__file__).parent, copy / "earnest", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (copy, *(p for p in copy.parents if p.name.startswith(("pytest-", "popen-")))):
        folder.chmod(0o755)
    source = f"""
from earnest.sandbox import find, hostile, trial
sandbox = next(s for s in find._possible(False) if s.isolation == {isolation!r} and not find.probe(s))
deeds = hostile.FILES[::2] + hostile.NETWORK + hostile.PROCESSES[:9] + hostile.PRIVILEGES + hostile.VERDICTS
for deed, (held, result) in trial.try_all(sandbox, deeds).items():
    if not held: print(deed.tries, result)
print("tried")
"""
    become = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", python, "-B", "-c", source]
    done = subprocess.run(
        become, env={"PYTHONPATH": str(copy), "PATH": os.environ["PATH"], "HOME": str(copy)}, capture_output=True, text=True
    )
    assert done.stdout == "tried\n", done


def test_landlock_is_given_what_is_hidden_nowhere(tmp_path):
    for path in ("lib/python3/site-packages/secret", "lib/python3/os.py", "lib/libx.so", "bin/python3"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    hidden = str(tmp_path / "lib/python3/site-packages")
    python = candidates(False)[0].__class__("python3", (str(tmp_path / "lib"), str(tmp_path / "bin")), (hidden,))
    attributes, leave = rules(python, 7)
    assert len(attributes) == 24
    readable = {path for rights, path in leave if rights & 0b100 and path.startswith(str(tmp_path))}
    assert readable == {str(tmp_path / p) for p in ("lib/python3/os.py", "lib/libx.so", "bin")}


# --- the filter of system calls, run by a slow and obvious machine


def decide(code, number, arguments=(), architecture=None):
    """What a filter says of one system call."""
    own = seccomp.MACHINES[platform.machine()][0]
    data = struct.pack("=iIQ6Q", number, architecture or own, 0, *[*arguments, *[0] * 6][:6])
    steps, at, value = [struct.unpack("=HBBI", code[i : i + 8]) for i in range(0, len(code), 8)], 0, 0
    while True:
        kind, then, otherwise, k = steps[at]
        at += 1
        if kind == seccomp.LOAD:
            value = struct.unpack_from("=I", data, k)[0]
        elif kind == seccomp.RETURN:
            return k
        elif kind == seccomp.MASK:
            value &= k
        else:
            holds = {seccomp.EQUAL: value == k, seccomp.AT_LEAST: value >= k, seccomp.ANY_BIT: value & k}[kind]
            at += then if holds else otherwise


@pytest.mark.skipif(platform.machine() not in seccomp.MACHINES, reason="no filter for this machine")
@pytest.mark.parametrize("groups", [(), (seccomp.OWNED, seccomp.SIGNALS)], ids=["few", "all"])
def test_the_filter_refuses_what_is_listed_and_nothing_else(groups):
    column = seccomp.MACHINES[platform.machine()][1]
    code = seccomp.build(groups)
    refused = {numbers[column] for group in (*seccomp.ALWAYS, *groups) for numbers in group.values()} - {None}
    special = {pair[column] for pair in (seccomp.CLONE, seccomp.CLONE3, seccomp.PRLIMIT, seccomp.SOCKETPAIR)}
    for number in set(range(500)) - special:
        assert decide(code, number) == (seccomp.REFUSE | errno.EPERM if number in refused else seccomp.ALLOW)
    assert decide(code, seccomp.CLONE3[column]) == seccomp.REFUSE | errno.ENOSYS
    assert decide(code, 0x40000000) == seccomp.REFUSE | errno.ENOSYS
    assert decide(code, 1, architecture=0x40000003) == seccomp.REFUSE | errno.ENOSYS
    for flags, allowed in ((signal.SIGCHLD, True), (0x3D0F00, True), (0x10000000 | signal.SIGCHLD, False), (0x20000, False)):
        assert (decide(code, seccomp.CLONE[column], [flags]) == seccomp.ALLOW) is allowed
    assert decide(code, seccomp.PRLIMIT[column], [0]) == seccomp.ALLOW != decide(code, seccomp.PRLIMIT[column], [77])
    for family in (1, 2, 10, 16, 17, 38):
        assert decide(code, refused_number("socket"), [family]) != seccomp.ALLOW
    for family, kind, allowed in ((1, 1, True), (1, 0x80801, True), (1, 2, False), (1, 0x80005, False), (30, 1, False)):
        assert (decide(code, seccomp.SOCKETPAIR[column], [family, kind]) == seccomp.ALLOW) is allowed


def refused_number(name):
    return next(group[name] for group in seccomp.ALWAYS if name in group)[seccomp.MACHINES[platform.machine()][1]]


@pytest.mark.skipif(platform.machine() not in seccomp.MACHINES, reason="no filter for this machine")
@pytest.mark.parametrize("machine", list(seccomp.MACHINES))
@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("MMAP", [0, 4096, 3, 0x22], True),  # private, anonymous
        ("MMAP", [0, 4096, 3, 0x01], True),  # shared, of a file
        ("MMAP", [0, 4096, 3, 0x4022], True),
        ("MMAP", [0, 4096, 3, 0x20022], True),  # a thread's stack
        ("MMAP", [0, 4096, 3, 0x21], False),
        ("MMAP", [0, 4096, 3, 0x23], False),
        ("MMAP", [0, 4096, 1, 0x8021], False),
        ("MMAP", [0, 4096, 3, 0x4031], False),
        ("MMAP", [0, 4096, 3, 2**32 + 0x21], False),
        ("MMAP", [0, 4096, 3, 0x40022], False),
        ("PRCTL", [78, 1, 2**20], False),
        ("PRCTL", [15, 0], True),
        ("CLONE", [0x3D0F00], True),  # a thread, as libraries start it
        ("CLONE", [0x3D0B00], False),  # one with open files of its own
        ("CLONE", [0x4111], True),  # vfork
    ],
)
def test_the_filter_sees_memory_that_nobody_would_count(monkeypatch, machine, name, arguments, allowed):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    number = getattr(seccomp, name)[seccomp.MACHINES[machine][1]]
    assert (decide(seccomp.build(), number, arguments) == seccomp.ALLOW) is allowed


# --- the command


def test_the_command_prints_what_held_and_ends_well_only_if_all_did(tried, monkeypatch, capsys):
    backend, outcomes = tried
    monkeypatch.setattr(find, "find_sandbox", lambda allow_unsafe: backend)
    monkeypatch.setattr(trial, "try_all", lambda sandbox: outcomes)
    assert run_command(["sandbox"]) == 0
    said = capsys.readouterr().out
    assert all(deed.tries in said for deed in DEEDS) and backend.isolation in said and "Everything held" in said and "NO" not in said
    broken = {**outcomes, DEEDS[0]: (False, Result("ok"))}
    monkeypatch.setattr(trial, "try_all", lambda sandbox: broken)
    assert run_command(["sandbox"]) == 1
    assert "1 of" in capsys.readouterr().out


def test_the_command_says_what_to_install_where_there_is_no_sandbox(monkeypatch, capsys):
    monkeypatch.setattr(find, "_possible", lambda packages: [])
    find._strongest.cache_clear()
    try:
        assert run_command(["sandbox"]) == 2
    finally:
        find._strongest.cache_clear()
    assert "apt-get install bubblewrap" in capsys.readouterr().err


def test_a_trial_sees_harm_where_there_is_no_sandbox():
    plain = next(s for s in map(Plain, candidates(False)) if s.run("print(1)").stdout == "1\n")
    held, _ = trial.attempt(plain, DEEDS[0])
    assert not held
