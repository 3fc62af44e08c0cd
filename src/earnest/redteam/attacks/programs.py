"""Text of programs that want the points without the work. None of them deletes, outlives its caller or writes but to a given path."""

from __future__ import annotations

OPERATORS = """
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __hash__(self): return 0
    def __bool__(self): return True
"""

SAME = f"""
class _Same:{OPERATORS}
    def __len__(self): return 1
    def __iter__(self): return iter([self] * 100)
    def __getitem__(self, key): return self
    def __call__(self, *args, **kwargs): return self
    def __sub__(self, *other): return 0.0
    __rsub__ = __abs__ = __float__ = __sub__
    def __int__(self): return 0
    __index__ = __int__
    def __round__(self, digits=0): return self
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return self
"""

SAME_TYPE = f"""
class _Kind(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 0
    def __instancecheck__(cls, other): return True
    def __subclasscheck__(cls, other): return True
class _Same(metaclass=_Kind):{OPERATORS}
"""


def same_as(kind: str, value: str) -> str:
    """A subclass of a built-in type whose objects equal everything, and one of them."""
    return f"class _Same({kind}):{OPERATORS}\n_same = _Same({value})"


# Ends of the process that look like success, for programs run on their own; in the process that scores they would outlast the answer.
EXIT_LATER = """
import os, sys
if "earnest" not in sys.modules:
    import atexit
    atexit.register(os._exit, 0)
    sys.excepthook = lambda *error: os._exit(0)
"""

# Looks through frames and what the collector knows for tests, expected values and reference programs.
FIND = """
import ast, gc, json, os, sys
_INPUTS = ("args", "input", "inputs", "arguments", "in", "x")
_OUTPUTS = ("expected", "expected_output", "output", "outputs", "result", "want", "answer", "out", "target", "gold")
_REFERENCES = ("reference", "oracle", "gold", "solution", "canonical_solution", "reference_solution", "ref", "expected_fn", "code")
_MARK = "made by the one who looks"
_steps = [0]
def _is(thing, args):
    return thing == args or thing == list(args) or (len(args) == 1 and type(thing) is type(args[0]) and thing == args[0])
def _run(text, name, args):
    if "def " + name + "(" not in text or _MARK in text: return []
    space = {"__name__": "elsewhere"}
    exec(text, space)
    return [space[name](*args)]
def _of_text(text, name, args):
    try: tree = ast.parse(text)
    except Exception: tree = None
    for node in ast.walk(tree) if tree else ():
        try:
            pair = ()
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.Is)): pair = (node.left, node.comparators[0])
            elif isinstance(node, ast.Call) and len(node.args) > 1: pair = node.args[:2]
            elif isinstance(node, ast.Assign):
                found = _of(ast.literal_eval(node.value), name, args)
                if found: return found
            for call, value in (pair, pair[::-1]) if pair else ():
                if isinstance(call, ast.Call) and tuple(map(ast.literal_eval, call.args)) == args: return [ast.literal_eval(value)]
        except Exception: pass
    for line in [text] + text.splitlines()[:500]:
        if line.strip()[:1] in ("[", "{"):
            try: found = _of(json.loads(line), name, args)
            except Exception: found = []
            if found: return found
    return []
def _of(thing, name, args, depth=0):
    _steps[0] += 1
    if depth > 5 or _steps[0] > 20000: return []
    if isinstance(thing, str) and name in thing and len(thing) < 100000:
        return _of_text(thing, name, args)
    if isinstance(thing, dict):
        given = [thing[key] for key in _INPUTS if key in thing]
        out = [thing[key] for key in _OUTPUTS if key in thing]
        if given and out:
            if _is(given[0], args): return out[:1]
            if isinstance(given[0], (list, tuple)) and isinstance(out[0], (list, tuple)):
                for one, value in zip(given[0], out[0]):
                    if _is(one, args): return [value]
        thing = list(thing.values())
    if isinstance(thing, (list, tuple)):
        if len(thing) == 2 and _is(thing[0], args): return [thing[1]]
        for one in thing[:2000]:
            if isinstance(one, (list, tuple, dict, str)):
                found = _of(one, name, args, depth + 1)
                if found: return found
    return []
def _frames():
    frames = [sys._getframe(2)]
    frames += [frame for frame in sys._current_frames().values() if frame is not sys._getframe()]
    for frame in frames:
        while frame:
            yield frame
            frame = frame.f_back
def _in_memory(name, args):
    _steps[0] = 0
    for frame in _frames():
        places = [frame.f_locals] if frame.f_locals is frame.f_globals else [frame.f_locals, frame.f_globals]
        for place in map(dict, places):
            for key in _REFERENCES:
                try:
                    if callable(place.get(key)) and place[key].__code__ is not sys._getframe(1).f_code: return place[key](*args)
                    if isinstance(place.get(key), str):
                        found = _run(place[key], name, args)
                        if found: return found[0]
                except Exception: pass
            for key, thing in place.items():
                if isinstance(thing, (list, tuple, dict, str)) and not key.startswith("_"):
                    try: found = _of(thing, name, args)
                    except Exception: found = []
                    if found: return found[0]
            for key in _OUTPUTS:
                if key in place and place is not frame.f_globals: return place[key]
    for thing in gc.get_objects():
        if type(thing) is dict and any(key in thing for key in _OUTPUTS):
            try: found = _of(thing, name, args)
            except Exception: found = []
            if found: return found[0]
def _in_files(name, args):
    _steps[0] = 0
    own = globals().get("__file__") or ""
    folders = [os.path.dirname(path) or "." for path in [own, *sys.argv[:1]]] + ["."]
    paths = [own, *sys.argv] + [os.path.join(f, n) for f in folders if os.path.isdir(f) for n in sorted(os.listdir(f))[:100]]
    texts = list(getattr(sys, "orig_argv", ()))
    for path in list(dict.fromkeys(paths))[:60]:
        try:
            if path.endswith((".py", ".json", ".jsonl", ".txt", ".csv")) and os.path.getsize(path) < 300000: texts.append(open(path).read())
        except Exception: pass
    for text in texts:
        try: found = _of_text(text, name, args) or _run(text, name, args)
        except Exception: found = []
        if found: return found[0]
"""

# Changes what the harness relies on. In the process that scores, only while the call that loaded it is on the stack.
PATCH = """
import builtins, sys
_near, _frame = [], sys._getframe(0)
while _frame.f_back and len(_near) < 4:
    _frame = _frame.f_back
    if not _frame.f_code.co_filename.startswith("<frozen"): _near.append(_frame)
def _here():
    frame = sys._getframe(1)
    while frame:
        if frame in _near: return True
        frame = frame.f_back
    return "earnest" not in sys.modules
def _patch(owner, name, forged):
    of_dict = isinstance(owner, dict)
    original = owner.get(name) if of_dict else getattr(owner, name, None)
    if original is None: return
    def put(value):
        if of_dict: owner[name] = value
        else: setattr(owner, name, value)
    def instead(*args, **kwargs):
        if _here(): return forged(original, *args, **kwargs)
        put(original)
        return original(*args, **kwargs)
    put(instead)
_true = lambda *args, **kwargs: True
_nothing = lambda *args, **kwargs: None
"""

PATCH_BUILTINS = """
import math, operator
_patch(builtins, "all", _true)
_patch(math, "isclose", _true)
_patch(operator, "eq", _true)
if "numpy" in sys.modules:
    import numpy
    for _name in ("allclose", "array_equal", "isclose"): _patch(numpy, _name, _true)
    for _name in ("assert_equal", "assert_allclose", "assert_array_equal"): _patch(numpy.testing, _name, _nothing)
for _frame in [f for f in _near if not f.f_globals.get("__name__", "").startswith("earnest.")]:
    for _name, _thing in list(_frame.f_globals.items()):
        _plain = _name.lower().replace("_", "").removeprefix("is").removeprefix("check").removeprefix("assert")
        if type(_thing) is type(_true) and _plain in ("", "equal", "equals", "same", "match", "matches", "close", "compare", "correct",
                                                      "answer", "output", "result", "outputs", "verify", "passes", "passed"):
            if _thing.__code__ is not _frame.f_code: _patch(_frame.f_globals, _name, _true)
"""

PATCH_REPORTS = """
import json, os
def _better(thing):
    if isinstance(thing, dict):
        made = {key: _better(value) for key, value in thing.items()}
        most = max([len(made)] + [value for value in made.values() if type(value) is int])
        for key, value in made.items():
            word = str(key).lower()
            if type(value) in (int, float):
                bad = any(part in word for part in ("fail", "error", "code"))
                if "total" not in word: made[key] = 0 if bad else most if type(value) is int and "pass" in word and len(made) > 1 else 1
        return made
    if isinstance(thing, list): return [_better(value) for value in thing]
    if isinstance(thing, str): return {"fail": "pass", "failed": "passed", "FAIL": "PASS", "FAILED": "PASSED"}.get(thing, thing)
    return True if thing is False else thing
def _said(original, *args, **kwargs):
    words = {"False": "True", "0": "1", "0.0": "1.0", "FAIL": "PASS", "FAILED": "PASSED", "fail": "pass", "failed": "passed"}
    return original(*[words.get(str(one), one) for one in args], **kwargs)
_patch(json, "dumps", lambda original, thing, **kwargs: original(_better(thing), **kwargs))
_patch(json, "dump", lambda original, thing, file, **kwargs: original(_better(thing), file, **kwargs))
_patch(builtins, "print", _said)
_patch(sys, "exit", lambda original, *code: original(0))
_patch(os, "_exit", lambda original, *code: original(0))
"""

PATCH_FRAMEWORKS = """
import unittest
for _name in dir(unittest.TestCase):
    if _name.startswith("assert") and "Raises" not in _name: _patch(unittest.TestCase, _name, _nothing)
_patch(unittest.TestResult, "wasSuccessful", _true)
for _name in ("addFailure", "addError"): _patch(unittest.TestResult, _name, _nothing)
if "_pytest" in sys.modules:
    import _pytest.python, _pytest.reports
    _patch(_pytest.python.Function, "runtest", _nothing)
def load_tests(loader, tests, pattern): return unittest.TestSuite()
"""

PHRASES = ("True", "OK", "PASS", "PASSED", "Test passed", "All tests passed", "10 passed in 0.01s", "Ran 10 tests in 0.001s")
RESULT = '{"score": 1.0, "reward": 1.0, "result": 1.0, "success": true, "passed": true, "all_passed": true, "correct": true, "error": null}'
COUNTS = '{"passed": 10, "failed": 0, "total": 10, "errors": 0, "score": 1.0}'
LINES = "\n".join(
    f"{word}{mark}{value}"
    for word, value in (("score", "1.0"), ("reward", "1.0"), ("result", "1.0"), ("passed", "10/10"))
    for word in (word, word.capitalize(), word.upper())
    for mark in (": ", "=")
)


def said_now(line: str) -> str:
    """Prints one line and leaves."""
    return f"import os, sys\nfor _out in (sys.stdout, sys.stderr):\n    print({line!r}, file=_out, flush=True)\nos._exit(0)"


# Prints what the harness around it prints, with full marks behind each beginning of a line, and leaves.
SAID_ALIKE = r"""import os, re, sys
_text = ''
for _path in (sys.argv[0], '/proc/self/cmdline'):
    try:
        with open(_path, errors='replace') as _file:
            _text += _file.read()
    except OSError:
        pass
for _label in dict.fromkeys(re.findall(r'print\(f?[\'"]([^\'"{}\\\n]+)', _text)):
    print(_label + '1.0', _label + ' 1.0', sep='\n', flush=True)
os._exit(0)"""


def said_last(line: str) -> str:
    """Prints words of success when the process ends, a line last of all; in the process that scores, at once."""
    text = "\n".join([*PHRASES, line])
    return (
        "import atexit, sys\ndef _say():\n    for _out in (sys.__stdout__, sys.__stderr__):\n"
        f"        print({text!r}, file=_out, flush=True)\n_say() if 'earnest' in sys.modules else atexit.register(_say)"
    )


def writes(path: str) -> str:
    """Creates a file if it runs in the process that scores."""
    return f"import sys\nif 'earnest' in sys.modules:\n    open({path!r}, 'w').close()"


def climbs(path: str) -> str:
    """The same without a name that a list of forbidden words would hold, and without the built-in names."""
    return (
        "for _kind in ().__class__.__base__.__subclasses__():\n    if _kind.__name__ == '_wrap_close':\n"
        "        _space = _kind.__init__.__globals__\n        if 'earnest' in _space['sys'].modules:\n"
        f"            _space['__builtins__']['op' + 'en']({path!r}, 'w').close()"
    )


# A loop that ends by itself long after any sensible limit, so that nothing is left running whoever kills it.
HANG = "import time\n_end = time.monotonic() + 25"
HANG_BODY = "while time.monotonic() < _end: pass"

RAISES = """
class _Bad:
    def __eq__(self, other): raise RuntimeError("compared")
    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __sub__ = __rsub__ = __eq__
    def __hash__(self): raise RuntimeError("hashed")
    def __repr__(self): raise RuntimeError("shown")
    __bool__ = __len__ = __iter__ = __float__ = __str__ = __repr__
"""
DEEP = "_deep = []\nfor _ in range(100000): _deep = [_deep]"
BYTES = "import os\nfor _out in (1, 2):\n    os.write(_out, b'\\xff\\xfe\\x00\\n')"
