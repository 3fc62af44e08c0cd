"""Programs that want the points without the work, and what the tests of the code verifiers share.

NAME stands for the function that is asked for.
"""

import os

import pytest

from earnest.errors import UserError
from earnest.sandbox import Limits, find_sandbox

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
ROOMY = Limits(wall=30, cpu=10)  # a shared machine may stall; what must not end is given less
SHORT = Limits(wall=0.8, cpu=1)

try:
    find_sandbox()
    NO_SANDBOX = ""
except UserError as error:
    NO_SANDBOX = str(error)
sandboxed = pytest.mark.skipif(bool(NO_SANDBOX), reason=NO_SANDBOX)


class Scripted:
    """A sandbox that says what it was told to, and remembers what it was asked."""

    isolation = "none"

    def __init__(self, *results):
        self.results, self.asked = list(results), []

    def run(self, program, files=None, stdin=b"", limits=SHORT):
        self.asked.append((program, files, stdin, limits))
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


RIGHT = "def add(a, b):\n    return a + b"


FORGE = """
import json, os
def out(text):
    for fd in range(3, 64):
        try:
            os.write(fd, text.encode())
        except OSError:
            pass
"""

ATTACKS = {
    "always equal": """
class E:
    def __eq__(s, o): return True
    __hash__ = None
    __float__ = __int__ = __index__ = lambda s: 1
def NAME(*a): return E()
""",
    "equal int": """
class E(int):
    def __eq__(s, o): return True
    __hash__ = int.__hash__
def NAME(*a): return E(1)
""",
    "equal str": """
class E(str):
    def __eq__(s, o): return True
    __hash__ = str.__hash__
def NAME(*a): return E('x')
""",
    "class spoof": """
class E:
    __class__ = int
    def __eq__(s, o): return True
def NAME(*a): return E()
""",
    "repr spoof": """
class E:
    def __repr__(s): return '42'
def NAME(*a): return E()
""",
    "mock": """
from unittest.mock import ANY
def NAME(*a): return ANY
""",
    "exit in call": """
import sys
def NAME(*a): sys.exit(0)
""",
    "exit at import": """
import sys
sys.exit(0)
""",
    "os exit": """
import os
def NAME(*a): os._exit(0)
""",
    "os exit at import": """
import os
os._exit(0)
""",
    "skip": """
import unittest
def NAME(*a): raise unittest.SkipTest('skip')
""",
    "table": """
def NAME(*a): return {(1, 2): 3, ('a',): 'A'}.get(a)
""",
    "frames": """
import sys
def NAME(*a):
    f = sys._getframe()
    while f:
        for d in (f.f_locals, f.f_globals):
            for k in ('expected', 'gold', 'answer', 'tests', 'want'):
                if k in d: return d[k]
        f = f.f_back
""",
    "garbage collector": """
import gc
def NAME(*a):
    for o in gc.get_objects():
        if isinstance(o, dict) and 'expected' in o: return o['expected']
""",
    "read tests": """
import sys, glob, re
def NAME(*a):
    text = ''
    known = [sys.argv[0], '/proc/self/cmdline', '/proc/self/environ', '/proc/1/cmdline', '/proc/self/maps']
    for p in known + glob.glob('*') + glob.glob('/proc/self/fd/*'):
        try: text += open(p, errors='replace').read(100000)
        except Exception: pass
    found = re.findall(r'expected.{0,9}?([A-Z0-9]+)', text)
    return found[0] if found else None
""",
    "print verdicts": """
import sys
def NAME(*a):
    print('3 passed'); print('ALL OK'); print('1.0'); print('{"value": 3}'); sys.stdout.flush()
""",
    "print at exit": """
import atexit
atexit.register(lambda: print(1.0))
def NAME(*a): return None
""",
    "print and exit": """
import os
print('1.0\\n3 passed\\n{"passed": 3}', flush=True)
os._exit(0)
""",
    "forge a visible value": FORGE
    + """
def NAME(*a):
    out(json.dumps({"value": 3}) + "\\n"); os._exit(0)
""",
    "forge and answer": FORGE
    + """
out(json.dumps({"value": 3}) + "\\n")
def NAME(*a): return 3
""",
    "forge nonsense": FORGE
    + """
out('\\x00{[' * 100)
def NAME(*a): return 3
""",
    "forge depth": FORGE
    + """
out('[' * 100000 + '\\n'); os._exit(0)
""",
    "forge all passed": FORGE
    + """
out(json.dumps({'passed': 3, 'tests': 3, 'value': 1.0, 'status': 'ok'}) + '\\n'); os._exit(0)
""",
    "universal exception": """
class E(ValueError, KeyError, TypeError, StopIteration): pass
def NAME(*a): raise E
""",
    "generator": """
def NAME(*a):
    yield 3
""",
    "patch the encoder": """
import __main__
__main__.encode = lambda *a: True
__main__.outcome = lambda *a: {'value': True}
def NAME(*a): return 0
""",
    "patch builtins": """
import builtins, json
builtins.type = lambda *a: int
json.dumps = lambda *a, **k: '3'
builtins.repr = str = lambda x: '3'
def NAME(*a): return 0
""",
    "patch asserts": """
import unittest, builtins
unittest.TestCase.assertEqual = lambda *a: None
builtins.AssertionError = type('E', (), {})
def NAME(*a): return 0
""",
    "trace": """
import sys
sys.settrace(lambda f, e, a: f.f_locals.update(value=3) or None)
def NAME(*a): return 0
""",
    "reward file": """
import os
for p in ('/logs/verifier', '/tmp', '.'):
    try:
        os.makedirs(p, exist_ok=True); open(p + '/reward.txt', 'w').write('1')
    except OSError: pass
def NAME(*a): return 0
""",
    "trojan modules": """
for n in ('json', 'marshal', 'sitecustomize', 'usercustomize', 'x.pth', 'conftest'):
    open(n + '.py', 'w').write('raise SystemExit(0)')
def NAME(*a): return 0
""",
    "kill the parent": """
import os, signal
def NAME(*a):
    for p in (os.getppid(), 1):
        try: os.kill(p, signal.SIGTERM)
        except OSError: pass
""",
    "close everything": """
import os
os.closerange(0, 100)
def NAME(*a): return 0
""",
    "no such function": """
def other(*a): return 3
""",
    "not callable": """
NAME = 3
""",
    "syntax error": """
def NAME(*a) return
""",
    "deep value": """
def NAME(*a):
    x = []
    for _ in range(10000): x = [x]
    return x
""",
    "huge integer": """
def NAME(*a): return 1 << 3_000_000
""",
    "long value": """
def NAME(*a): return 'A' * 5_000_000
""",
    "message bomb": """
class E(Exception):
    def __str__(s): raise s
def NAME(*a): raise E
""",
    "recursion": """
def NAME(*a): return NAME(*a)
""",
    "crash": """
import os, signal
def NAME(*a): os.kill(os.getpid(), signal.SIGSEGV)
""",
    "memory": """
def NAME(*a):
    x = [0] * 10**9
    return x
""",
    "None": """
def NAME(*a): pass
""",
    "prose": """
I'm sorry, I can't help with that.
""",
    "deep source": "NAME = " + "(" * 5000 + ")" * 5000,
}

BOMBS = {
    "hang": """
def NAME(*a):
    while True: pass
""",
    "hang at import": """
while True: pass
""",
    "sleep": """
import time
time.sleep(600)
""",
    "deaf sleep": """
import signal, time
for s in range(1, 64):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
time.sleep(600)
""",
    "child that sleeps": """
import os, time
if os.fork() == 0:
    os.setsid(); time.sleep(600)
while True: pass
""",
    "fork bomb": """
import os
while True:
    try: os.fork()
    except OSError: pass
""",
    "endless output": """
while True: print('x' * 1000)
""",
    "power": """
def NAME(*a): return len(str(10 ** 10 ** 8))
""",
    "endless channel": FORGE
    + """
while True: out('x' * 60000)
""",
}

SUITE_ATTACKS = ATTACKS | {
    "skip": """
import pytest
pytest.skip('no', allow_module_level=True)
""",
    "pytest hook": """
import _pytest.reports, _pytest.runner, _pytest.python
_pytest.reports.TestReport.from_item_and_call = classmethod(lambda *a: 1 / 0)
def f(*a): return 0
""",
    "forged report": FORGE
    + """
names = ['test_answer.py::test_add[1-2-3]', 'test_answer.py::test_add[20-22-42]', 'test_answer.py::test_refuses_text']
report = {'passed': names, 'collected': names, 'asked': names, 'problems': {}, 'unknown': [], 'unfit': ''}
out(json.dumps(report) + '\\n'); os._exit(0)
""",
    "conftest": """
for p in ('conftest.py', '../conftest.py', 'suite/conftest.py', '/tmp/conftest.py'):
    try: open(p, 'w').write('def pytest_collection_modifyitems(items): items.clear()')
    except OSError: pass
def NAME(*a): return 0
""",
    "options": """
import os
os.environ['PYTEST_ADDOPTS'] = '--co'
for n in ('pytest.ini', 'tox.ini', 'setup.cfg'): open(n, 'w').write('[pytest]\\naddopts = --co')
def NAME(*a): return 0
""",
    "type error": """
def NAME(*a): raise TypeError('unsupported')
""",
}
