"""What runs in a jail before the program: takes its orders, sets the limits, starts the program, says how it ended.

This file is sent as text to whichever Python is in the jail, from 3.8 on. It imports only what is built in or tiny, and nothing of
earnest. Its own process is never the program's: it forks, waits, and takes everything with it when it goes. Up to the message "R"
everything is our doing; from then on everything is the program's, so that a program cannot pass its failure off as ours.
"""

import _signal
import _thread
import marshal
import os
import resource
import sys


def main(control, user):
    """Serve one program; returns in the process that is to run Python source, with a function that runs it.

    Args:
        control: File descriptor of a stream socket to whoever ordered this jail.
        user: User and group id to become, 0 to stay.
    """
    os.dup2(control, 3)
    os.closerange(4, control + 64)
    control = 3
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    orders = read_orders(control)
    try:
        if not orders["namespace"]:
            adopt_orphans()
        source = place(orders)
        child = os.fork()
        if child == 0:
            return become(control, orders, source)
    except Exception as error:
        os.write(control, f"X{type(error).__name__}: {error}\n".encode("utf-8", "replace")[:1000])
        os._exit(1)
    wait(control, child, orders)


def read_orders(control):
    """One marshalled dictionary behind its length. No orders, no jail."""
    data = b""
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "big"):
        chunk = os.read(control, 1 << 20)
        if not chunk:
            os._exit(1)
        data += chunk
    return marshal.loads(data[8:])


def place(orders):
    """Write the program's stdin and its files, change to its folder; file descriptor of the stdin."""
    folder = orders["folder"]
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    with open(".stdin", "wb") as file:  # a file, not a pipe: it has an end whoever else holds it, and nobody has to feed it
        file.write(orders["stdin"])
    stdin = os.open(".stdin", os.O_RDONLY)
    os.unlink(".stdin")
    for name, content in orders["files"]:
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(content)
    return stdin


def become(control, orders, stdin):
    """In the child: take the limits on, say "R", and turn into the program."""
    program = orders["program"]
    if not isinstance(program, bytes):
        check_exists(program[0], orders["files"])
    os.dup2(stdin, 0)
    os.closerange(control + 1, 64)
    for name, soft, hard in orders["rlimits"]:
        resource.setrlimit(getattr(resource, name), (soft, hard))
    if orders["landlock"]:
        restrict(*orders["landlock"])
    if orders["filter"]:
        refuse(orders["filter"])
    os.set_inheritable(control, False)
    os.write(control, b"R")
    if isinstance(program, bytes):
        os.close(control)
        return lambda: run_source(program, orders["path"])
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    try:
        os.execvp(program[0], program)
    except (OSError, ValueError) as error:
        os.write(2, f"{program[0]}: {error}\n".encode("utf-8", "replace"))
        os._exit(127)


def check_exists(name, files):
    """A program that is nowhere is our mistake, one among its own files that will not start is its own."""
    if os.path.normpath(name) in [os.path.normpath(own) for own, _ in files]:
        return
    places = [""] if "/" in name else [folder + "/" for folder in os.environ["PATH"].split(":")]
    if not any(os.access(place + name, os.X_OK) for place in places):
        raise FileNotFoundError(f"there is no program {name!r} in the sandbox")


def run_source(source, path):
    """Run Python source as the main module, with nothing of this file in its tracebacks."""
    import builtins

    main = type(sys)("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    sys.argv = ["program"]
    sys.path[:0] = [os.getcwd()]
    sys.path += path
    builtins.exit = builtins.quit = sys.exit  # what site adds, and programs use

    def hook(kind, error, trace):
        own = trace
        while own is not None and own.tb_frame.f_code.co_filename != "<program>":
            own = own.tb_next
        sys.__excepthook__(kind, error.with_traceback(own), own)

    sys.excepthook = hook
    exec(compile(source, "<program>", "exec", dont_inherit=True), main.__dict__)


def wait(control, child, orders):
    """Until the program has ended, or whoever ordered it is gone or has let go; then end everything."""

    def watch():
        os.read(control, 1)  # nothing is ever sent: the end of the stream is the end of the jail
        end(orders)

    def alarm(*_):
        end(orders)

    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the only one that Python handles, and so that could reach a first process
    _signal.signal(_signal.SIGALRM, alarm)
    _signal.setitimer(_signal.ITIMER_REAL, orders["last"])
    _thread.start_new_thread(watch, ())
    while True:
        try:
            done, status, usage = os.wait4(-1, 0)
        except ChildProcessError:  # the other thread has ended them
            end(orders)
        if done == child:
            try:
                own = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = int((usage.ru_utime + usage.ru_stime) * 1e6)
                os.write(control, b"E %d %d %d\n" % (status, max(own.ru_maxrss, usage.ru_maxrss) * 1024, cpu))
            except OSError:  # nobody listens any more
                pass
            end(orders)


def end(orders):
    """Everything of this jail ends: with the first process of its namespace, or one by one."""
    if not orders["namespace"]:
        kill_all(orders["alone"])
    os._exit(0)


def adopt_orphans():
    """Become the parent of every descendant whose own parent dies (PR_SET_CHILD_SUBREAPER)."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def kill_all(alone):
    """Kill descendants until none is left; at one stroke where the user id is this jail's alone."""
    while True:
        for target in [-1] * alone + descendants(os.getpid()):
            try:  # noqa: SIM105  contextlib is not tiny
                os.kill(target, _signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def descendants(pid):
    """Process ids below one, the nearest first."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found + [below for child in found for below in descendants(child)]


def restrict(attributes, rules):
    """Landlock: of all files only these may be touched, each with its rights.

    Args:
        attributes: struct landlock_ruleset_attr.
        rules: Pairs of rights and path.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.syscall
    call.restype = ctypes.c_long
    ruleset = call(444, attributes, ctypes.c_size_t(len(attributes)), 0)  # landlock_create_ruleset
    for rights, path in rules:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = rights.to_bytes(8, sys.byteorder) + file.to_bytes(4, sys.byteorder)
        if call(445, ruleset, 1, rule, 0):  # landlock_add_rule, LANDLOCK_RULE_PATH_BENEATH
            raise OSError(ctypes.get_errno(), f"Landlock refuses a rule for {path}")
        os.close(file)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if ruleset < 0 or call(446, ruleset, 0):  # landlock_restrict_self
        raise OSError(ctypes.get_errno(), "Landlock does not work")
    os.close(ruleset)


def refuse(code):
    """seccomp: the system calls that a filter refuses fail from here on."""
    import ctypes

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)
    if libc.prctl(22, 2, ctypes.byref(Filter(len(code) // 8, code)), 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "seccomp does not work")
