"""A program taken apart: its functions emptied, renamed inside or changed at one place, and the examples that a row shows of it."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INPUTS = ("args", "input", "inputs", "arguments", "in", "x")
OUTPUTS = ("expected", "expected_output", "output", "outputs", "result", "return", "out", "want")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DECORATORS = {"staticmethod", "classmethod", "property"}
_THEN = re.compile(
    r"\s*`?\s*(?:==?>|==|[-–]+>|→|⇒|,|#|(?:returns?|gives|yields|is|equals|(?:should|must) (?:return|be|give|equal))\b)\s*:?\s*`?(.+)"
)


def parsed(source: str) -> ast.Module | None:
    """The tree of a program; None where it is none."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined(source: str) -> list[str]:
    """Names of the functions of a program, outermost ones only."""
    tree = parsed(source)
    return [node.name for node in tree.body if isinstance(node, _FUNCTIONS)] if tree else []


def is_script(source: str) -> bool:
    """Whether a program does something by itself, and is not only called."""
    tree = parsed(source)
    doing = (ast.If, ast.For, ast.While, ast.With, ast.Try)
    return tree is not None and any(
        isinstance(node, doing) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) for node in tree.body
    )


def emptied(source: str, body: str = "return None", before: str = "", after: str = "") -> str:
    """The same functions and classes with the same signatures, each doing something else.

    Args:
        source: The program.
        body: What each function does instead. `__ARGS__` stands for a tuple of its arguments, `__FIRST__` for the first of them (None
            where there is none), `__NAME__` for its name in quotes.
        before: Program text in front of them.
        after: Program text behind them.
    """
    tree = parsed(source)
    if tree is None:
        return f"{before}\n{after}".strip() or "pass"
    known = set(dir(builtins)) | {alias.asname or alias.name.split(".")[0] for n in tree.body for alias in getattr(n, "names", ())}
    known |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, _FUNCTIONS):
            kept.append(_emptied(node, body, known, False))
        elif isinstance(node, ast.ClassDef):
            inside = [_emptied(n, body, known, True) if isinstance(n, _FUNCTIONS) else n for n in node.body]
            kept.append(ast.ClassDef(node.name, node.bases, node.keywords, inside, node.decorator_list))
        elif isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            kept.append(node)
    middle = ast.unparse(ast.fix_missing_locations(ast.Module(kept, [])))
    return "\n".join(part for part in (before.strip("\n"), middle, after.strip("\n")) if part) or "pass"


def _emptied(node: Any, body: str, known: set[str], method: bool) -> ast.stmt:
    given = copy.deepcopy(node)
    decorators = [d for d in given.decorator_list if isinstance(d, ast.Name) and d.id in _DECORATORS]
    names = [a.arg for a in (*given.args.posonlyargs, *given.args.args)]
    if method and not any(d.id == "staticmethod" for d in decorators):
        names = names[1:]
    several = [*names, *([f"*{given.args.vararg.arg}"] if given.args.vararg else []), *(a.arg for a in given.args.kwonlyargs)]
    text = body.replace("__ARGS__", "(" + "".join(f"{name}, " for name in several) + ")")
    text = text.replace("__FIRST__", names[0] if names else "None").replace("__NAME__", repr(given.name))
    given.body = ast.parse("pass" if given.name.startswith("__") else text).body
    given.decorator_list = decorators
    notes = [a for a in ast.walk(given.args) if isinstance(a, ast.arg)]
    if any(isinstance(n, ast.Name) and n.id not in known for a in (*notes, given) for n in _names(a)):
        given.returns = None
        for argument in notes:
            argument.annotation = None
    given.args.defaults = [_literal_or_none(d) for d in given.args.defaults]
    given.args.kw_defaults = [d and _literal_or_none(d) for d in given.args.kw_defaults]
    return given


def _names(node: Any) -> Iterator[ast.AST]:
    note = node.annotation if isinstance(node, ast.arg) else node.returns
    return ast.walk(note) if note is not None else iter(())


def _literal_or_none(node: ast.expr) -> ast.expr:
    return node if literal(ast.unparse(node)) else ast.Constant(None)


def literal(text: str) -> list[Any]:
    """The value of a literal, in a list; empty where the text is none."""
    try:
        return [ast.literal_eval(text.strip())]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []


_COMPARED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Add, ast.FloorDiv: ast.Sub}


def mutants(source: str, most: int = 4) -> list[str]:
    """The program with one thing changed, at places spread over it. It may still be right: only a check can say.

    None of a program with a loop that has no end of its own, or with recursion: a change there may keep it running.
    """
    tree = parsed(source)
    if tree is None or any(isinstance(node, ast.While) for node in ast.walk(tree)) or _recurs(tree):
        return []
    plain = ast.unparse(tree)
    sites = [place for place, node in enumerate(ast.walk(tree)) if _change(copy.deepcopy(node))]
    found = []
    for site in [sites[i * len(sites) // most] for i in range(most)] if len(sites) > most else sites:
        fresh = copy.deepcopy(tree)
        _change(list(ast.walk(fresh))[site])
        found.append(ast.unparse(ast.fix_missing_locations(fresh)))
    return [text for text in dict.fromkeys(found) if text != plain]


def _recurs(tree: ast.Module) -> bool:
    names = {node.name for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
    inside = [n for f in ast.walk(tree) if isinstance(f, _FUNCTIONS) for n in ast.walk(f) if isinstance(n, ast.Call)]
    return any(ast.unparse(call.func).split(".")[-1] in names for call in inside)


def _change(node: ast.AST) -> bool:
    """Change a node in place, if it is of a kind that can be."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        node.ops[0] = _COMPARED[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        node.op = _COMPUTED[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        node.value += 1
    else:
        return False
    return True


def renamed(source: str) -> str | None:
    """The program with other names for the variables of its functions; None where that is not plainly safe."""
    tree = parsed(source)
    if tree is None:
        return None
    done = False
    for function in [node for node in tree.body if isinstance(node, _FUNCTIONS)]:
        inner = [node for part in function.body for node in ast.walk(part)]
        scopes = (*_FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.ExceptHandler, ast.Match)
        if any(isinstance(node, scopes) for node in inner) or re.search(r"\b(locals|eval|exec|vars)\b", ast.unparse(function)):
            continue
        taken = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
        names = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - taken
        for node in inner:
            if isinstance(node, ast.Name) and node.id in names:
                node.id, done = f"{node.id}_here", True
    return ast.unparse(tree) if done else None


@dataclass(frozen=True)
class Example:
    """What a function gives for some arguments, and whether the prompt shows it."""

    args: tuple[Any, ...]
    expected: Any
    shown: bool


def examples_of(prompt: str, row: Any, names: Sequence[str]) -> list[Example]:
    """Examples of a function in the prompt and in the columns of a row, those that the prompt shows first."""
    found = [Example(args, value, True) for args, value in _in_text(prompt, names)]
    for column in row.values():
        for args, value, shown in _in_value(column, names):
            found.append(Example(args, value, shown or (_stands(args, prompt) and repr(value) in prompt)))
    first = {repr(e.args): e for e in sorted(found, key=lambda e: e.shown)}  # of equal ones, one that is shown
    return sorted(first.values(), key=lambda e: not e.shown)


def shown_texts(prompt: str, value: Any, depth: int = 0) -> dict[str, str]:
    """What a program reads and then writes, by what it reads: the examples of a row that the prompt shows."""
    found: dict[str, str] = {}
    if isinstance(value, Mapping) and depth <= 4:
        texts = {name: text.strip() for name, text in value.items() if isinstance(text, str) and text.strip() and text.strip() in prompt}
        given = next((text for name, text in texts.items() if re.search(r"(?:^|_|std)in", str(name))), None)
        wanted = next((text for name, text in texts.items() if re.search(r"out|expect|result|want", str(name))), None)
        if given is not None and wanted is not None:
            found[given] = wanted
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    for part in inside if depth <= 4 else ():
        found |= shown_texts(prompt, part, depth + 1)
    return found


def _stands(args: tuple[Any, ...], prompt: str) -> bool:
    return repr(args) in prompt or repr(args)[1:-1].rstrip(",") in prompt or repr(list(args)) in prompt


def _in_text(text: str, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Asserts, sessions (`>>>`) and phrases such as "add(1, 2) returns 3"."""
    for match in re.finditer(rf"\b(?:{'|'.join(map(re.escape, [*names, 'candidate']))})\(", text[:50_000]):
        call, stop = _call_at(text, match.start())
        if call is None or call.keywords:
            continue
        rest, _, following = text[stop:].partition("\n")
        then = _THEN.match(rest)
        said = then[1] if then else following.split("\n")[0] if not rest.strip() else ""
        args = [literal(ast.unparse(argument)) for argument in call.args]
        said = said.strip()[:200].rstrip(" .,;:`")
        ends = [end for end in range(len(said), 0, -1) if said[end - 1] != "."]
        value = next((v for end in ends if (v := literal(said[:end]))), [])
        if value and isinstance(value[0], tuple) and not said.startswith("("):  # what follows a comma is a message
            value = value[0][:1]
        if value and all(args):
            yield tuple(a[0] for a in args), value[0]


def _call_at(text: str, start: int) -> tuple[ast.Call | None, int]:
    for bracket in list(re.finditer(r"\)", text[start : start + 1000]))[:20]:
        stop = start + bracket.end()
        try:
            node = ast.parse(text[start:stop], mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return (node, stop) if isinstance(node, ast.Call) else (None, start)
    return None, start


def _in_value(value: Any, names: Sequence[str], depth: int = 0) -> Iterator[tuple[tuple[Any, ...], Any, bool]]:
    """Examples anywhere in a column: mappings with an input and an output, pairs, asserts, and JSON of these."""
    if depth > 4:
        return
    if isinstance(value, str):
        if value.lstrip()[:1] in ("[", "{"):
            with contextlib.suppress(ValueError, RecursionError):
                yield from _in_value(json.loads(value), names, depth + 1)
        yield from ((args, expected, False) for args, expected in _in_text(value, names))
    elif isinstance(value, dict):
        given = next((value[name] for name in INPUTS if name in value), None)
        out = [value[name] for name in OUTPUTS if name in value]
        if out and given is not None:
            yield tuple(given) if isinstance(given, (list, tuple)) else (given,), out[0], bool(value.get("visible"))
        else:
            for inner in value.values():
                yield from _in_value(inner, names, depth + 1)
    elif isinstance(value, (list, tuple)):
        for inner in value[:50]:
            if isinstance(inner, (list, tuple)) and len(inner) == 2 and isinstance(inner[0], (list, tuple)):
                yield tuple(inner[0]), inner[1], False
            else:
                yield from _in_value(inner, names, depth + 1)
