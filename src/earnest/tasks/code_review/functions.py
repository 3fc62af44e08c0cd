"""The functions under review, and what is done with one: read, tried, compared.

Those of the standard library are read from the Python that runs, never stored; where this Python has no such function, it is left out.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import random
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from earnest.tasks.code_review import own
from earnest.tasks.code_review.mutate import Tree

MOST_LINES, MOST_CHARACTERS = 13, 420  # of a function: every rollout pays for it
STEPS = 500  # rounds of loops in one call, after which it counts as endless
TRIES = 60

LIBRARY = {
    "calendar": {
        "isleap": "year", "leapdays": "year year", "_monthlen": "year month", "_prevmonth": "year month", "_nextmonth": "year month",
    },
    "colorsys": {"rgb_to_yiq": "share share share", "_v": "share share share"},
    "difflib": {"_format_range_unified": "nat nat", "_format_range_context": "nat nat", "_calculate_ratio": "nat nat"},
    "email.base64mime": {"header_length": "data"},
    "email.quoprimime": {"unquote": "hexes", "quote": "letter"},
    "fnmatch": {"fnmatchcase": "word word"},
    "genericpath": {"commonprefix": "words"},
    "getopt": {"short_has_arg": "letter options"},
    "glob": {"has_magic": "path", "escape": "path"},
    "heapq": {
        "_siftdown": "ints zero index", "heappush": "heap int", "heappop": "heap", "heappushpop": "heap int", "heapreplace": "heap int",
    },
    "html": {"escape": "markup bool"},
    "http.cookiejar": {"escape_path": "path", "is_HDN": "host", "reach": "host", "time2netscape": "nat"},
    "http.cookies": {"_quote": "path"},
    "imaplib": {"Int2AP": "int"},
    "inspect": {"indentsize": "sentence"},
    "ipaddress": {"_count_righthand_zero_bits": "nat bits"},
    "operator": {"countOf": "ints int", "indexOf": "ints int"},
    "posixpath": {"split": "path", "isabs": "path", "basename": "path", "dirname": "path"},
    "_pydecimal": {"_div_nearest": "int pos", "_rshift_nearest": "int bits", "_sqrt_nearest": "pos pos"},
    "shlex": {"quote": "path", "join": "words"},
    "statistics": {"median": "ints", "median_low": "ints", "median_high": "ints", "multimode": "ints"},
    "string": {"capwords": "sentence"},
    "urllib.parse": {
        "_splittype": "url", "_splithost": "url", "_splituser": "url", "_splitpasswd": "url", "_splitport": "url", "_splitnport": "url",
        "_splitquery": "url", "_splittag": "url", "_splitattr": "url", "_splitvalue": "url", "quote_plus": "path",
    },
    "xml.sax.saxutils": {"escape": "markup", "unescape": "markup", "quoteattr": "markup"},
}  # fmt: skip

_ALPHABETS = {
    "word": "aab", "letter": "ab(", "sentence": "ab  \t", "numeral": "01-x", "brackets": "(())a", "path": "aB./\\ *'[", "markup": "a<&>\"'",
    "host": "ab.1-", "url": "ab:/@?#=;1", "options": "ab:", "hexes": "=4A",
}  # fmt: skip
_RANGES = {"int": (-4, 9), "nat": (0, 12), "pos": (1, 5), "month": (1, 12), "bits": (1, 4), "zero": (0, 0), "index": (0, 1)}


class EndlessError(BaseException):
    """A call that goes on and on; no `except Exception` of the function itself catches it."""


@dataclass(frozen=True)
class Subject:
    """A function under review.

    Attributes:
        module: Where it stands.
        name: Its name.
        source: Without docstring, comments and annotations.
        inputs: Argument lists it is tried on.
    """

    module: str
    name: str
    source: str
    inputs: Sequence[tuple[Any, ...]]


@lru_cache(maxsize=1)
def subjects() -> tuple[Subject, ...]:
    """Every function that this Python has and that is short enough."""
    kinds = {
        own.__name__: {name: " ".join(f.__annotations__.values()) for name, f in vars(own).items() if getattr(f, "__annotations__", None)}
    }
    found = []
    for module, functions in (kinds | LIBRARY).items():
        sources = _sources(module, functions)
        for name, kind in functions.items():
            if name in sources and sources[name].count("\n") < MOST_LINES and len(sources[name]) <= MOST_CHARACTERS:
                rng = random.Random(f"{module}.{name}")
                found.append(Subject(module, name, sources[name], tuple(_arguments(kind, rng) for _ in range(TRIES))))
    return tuple(found)


def _sources(module: str, names: Collection[str]) -> dict[str, str]:
    """Functions of a module, without docstring, comments and annotations; of two with one name the first."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    except (ImportError, OSError, TypeError):
        return {}
    return {node.name: _bare(node) for node in reversed(body) if getattr(node, "name", "") in names}


def _bare(tree: Tree) -> str:
    if ast.get_docstring(tree) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    for argument in (node for node in ast.walk(tree) if isinstance(node, ast.arg)):
        argument.annotation = None
    tree.returns = None
    return ast.unparse(tree)


def _arguments(kinds: str, rng: random.Random) -> tuple[Any, ...]:
    return tuple(_value(kind, rng) for kind in kinds.split() if not kind.startswith("maybe_"))


def _value(kind: str, rng: random.Random) -> Any:
    """A random value of a kind."""
    if kind in _RANGES:
        return rng.randint(*_RANGES[kind]) if rng.random() < 0.9 or kind not in ("int", "nat") else rng.randint(13, 150)
    if kind in _ALPHABETS:
        length = 1 if kind == "letter" else 3 if kind == "hexes" else rng.randint(0, 8)
        return "".join(rng.choice(_ALPHABETS[kind]) for _ in range(length))
    makers = {
        "ints": lambda: [rng.randint(-2, 6) for _ in range(rng.randint(0, 6))],
        "sorted_ints": lambda: sorted(rng.randint(-2, 6) for _ in range(rng.randint(0, 6))),
        "heap": lambda: sorted(rng.randint(-2, 6) for _ in range(rng.randint(1, 6))),
        "span": lambda: tuple(sorted(rng.randint(0, 9) for _ in range(2))),
        "words": lambda: [_value("word", rng) for _ in range(rng.randint(0, 3))],
        "table": lambda: {rng.choice("abc"): rng.randint(0, 3) for _ in range(rng.randint(0, 3))},
        "bool": lambda: rng.random() < 0.5,
        "share": lambda: rng.choice((0.0, 0.25, 0.5, 0.75, 1.0)),
        "year": lambda: rng.choice((1899, 1900, 1996, 1999, 2000, 2001, 2023, 2024, 2100)),
        "data": lambda: bytes(rng.randint(0, 5) for _ in range(rng.randint(0, 8))),
    }
    return makers[kind]()


class Running:
    """A function that can be called, again and again, as one that lives on: what a default keeps, it keeps."""

    def __init__(self, module: str, name: str, source: str) -> None:
        namespace = {**vars(importlib.import_module(module)), "_step": self._step}
        exec(_compiled(name, source), namespace)  # ours or the library's, with one place changed: no text of a model
        self.function, self.steps = namespace[name], 0

    def _step(self) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise EndlessError

    def call(self, arguments: Sequence[Any]) -> str:
        """What a call gives, as text; what it did to its arguments is a part of it."""
        given, self.steps = copy.deepcopy(list(arguments)), 0
        before = _shown(given)
        try:
            result = self.function(*given)
            told = _shown(_awaited(result) if inspect.iscoroutine(result) else result)
        except EndlessError:
            told = "endless"
        except Exception as error:
            told = type(error).__name__
        after = _shown(given)
        return told if after == before else f"{told}, arguments {after}"


def _awaited(coroutine: Any) -> Any:
    """What a coroutine gives that waits for nothing but its turn."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple, dict, set, str, int, float, bytes, type(None))):
        text = repr(value)
        return text if " at 0x" not in text else type(value).__name__
    return type(value).__name__


@lru_cache(maxsize=256)
def _compiled(name: str, source: str) -> Any:
    """The code of a function, with every round of its loops counted."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.While)):
            node.body.insert(0, ast.Expr(ast.Call(ast.Name("_step", ast.Load()), [], [])))
    return compile(ast.fix_missing_locations(tree), f"<{name}>", "exec")


def outcomes(subject: Subject, source: str) -> Iterator[str]:
    """What a version of a function gives on every input, each once, then on the first ones again."""
    running = Running(subject.module, subject.name, source)
    return (running.call(arguments) for arguments in (*subject.inputs, *subject.inputs[:10]))


def differs(subject: Subject, source: str, usual: Sequence[str]) -> bool:
    """Whether some input tells a version from what is usual."""
    return any(told != wanted for told, wanted in zip(outcomes(subject, source), usual, strict=True))


def calls(subject: Subject) -> list[tuple[Any, ...]]:
    """The inputs, the shortest first."""
    return sorted(subject.inputs, key=lambda arguments: (len(repr(arguments)), repr(arguments)))


def witness(subject: Subject, one: str, other: str) -> str:
    """The shortest call that tells two versions apart, made once or twice; "" where none does."""
    for arguments in calls(subject):
        left, right = (Running(subject.module, subject.name, source) for source in (one, other))
        if any(left.call(arguments) != right.call(arguments) for _ in range(2)):
            return written(subject, arguments)
    return ""


def written(subject: Subject, arguments: Sequence[Any]) -> str:
    """A call as text."""
    return f"{subject.name}({', '.join(map(repr, arguments))})"
