"""Changes to one function: a bug at one place, or an edit that changes nothing."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from functools import partial

CATEGORIES = ("comparison", "boundary", "operator", "variable", "return", "arguments", "dropped", "off_by_one", "default", "exception")

_COMPARED = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_COMPARED |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
_BOUNDED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv}
_MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}

Tree = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[ast.AST], ast.AST | list[ast.AST]]  # what comes in place of a node
Maker = Callable[[], str]  # makes the changed source


def bugs(source: str, rng: random.Random) -> list[tuple[str, Maker]]:
    """Every one-place bug, with its category; each is made when it is called."""
    tree = ast.parse(source).body[0]
    return [
        (category, partial(_changed, source, number, change))
        for category in CATEGORIES
        for number, node in enumerate(ast.walk(tree))
        for change in _CHANGES[category](node, tree, rng)
    ]


def edits(source: str, rng: random.Random) -> list[Maker]:
    """Changes that mean the same, or should: whoever uses them must try them, as they must the bugs."""
    tree = ast.parse(source).body[0]
    made = [partial(_changed, source, number, change) for number, node in enumerate(ast.walk(tree)) for change in _same(node)]
    for name in _locals(tree):
        new = rng.choice(("item", "value", "current", "entry", "result"))
        if new not in _names(tree):
            made.append(partial(_renamed, source, name, new))
    return made


def _changed(source: str, number: int, change: Change) -> str:
    """The source with the node at a place of its walk changed."""
    module = ast.parse(source)
    target = next(node for place, node in enumerate(ast.walk(module.body[0])) if place == number)
    replacement = change(target)
    if replacement is not target:
        module = _Replace(target, replacement).visit(module)
    return ast.unparse(ast.fix_missing_locations(module))


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST | list) -> None:
        self.target, self.replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST | list:
        return self.replacement if node is self.target else self.generic_visit(node)


def _set(**fields: object) -> Change:
    def change(node: ast.AST) -> ast.AST:
        for name, value in fields.items():
            setattr(node, name, value)
        return node

    return change


def _comparison(node: ast.AST, tree: Tree, rng: random.Random, table: dict = _COMPARED) -> Iterator[Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in table:
        yield _set(ops=[table[type(node.ops[0])]()])


def _boundary(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    yield from _comparison(node, tree, rng, _BOUNDED)


def _operator(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _COMPUTED:
        yield _set(op=_COMPUTED[type(node.op)]())
    if isinstance(node, ast.BoolOp):
        yield _set(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _variable(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        names = [*_arguments(tree), *_locals(tree)]
        if node.id in names and len(names) > 1:
            yield _set(id=rng.choice([name for name in names if name != node.id]))


def _return(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, (ast.Constant, ast.Name)):
        yield lambda found: ast.Expr(found.value)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield lambda found: ast.Pass()


def _arguments_swapped(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(arg, ast.Starred) for arg in node.args):
        yield lambda found: _set(args=[found.args[1], found.args[0], *found.args[2:]])(found)


def _dropped(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    if isinstance(node, (ast.Continue, ast.Break)):
        yield lambda found: ast.Pass()
    if isinstance(node, ast.Await):
        yield lambda found: found.value
    if (
        isinstance(node, (ast.If, ast.For, ast.While))
        and node.orelse
        and not (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If))
    ):
        yield _set(orelse=[])


def _off_by_one(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) <= 1000:
        yield _set(value=node.value + 1)
        if node.value > 0:
            yield _set(value=node.value - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) <= 2:
        yield lambda found: _set(args=[*found.args[:-1], ast.BinOp(found.args[-1], ast.Sub(), ast.Constant(1))])(found)


def _default(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    """`if a is None: a = []` folded into the default."""
    first = node.body[0] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.body else None
    if not isinstance(first, ast.If) or not node.args.defaults or not isinstance(first.body[0], ast.Assign) or first.orelse:
        return
    value, test = first.body[0].value, ast.unparse(first.test)
    if isinstance(value, (ast.List, ast.Dict)) and test == f"{node.args.args[-1].arg} is None":

        def change(found: Tree) -> Tree:
            found.args.defaults[-1] = value
            found.body = found.body[1:]
            return found

        yield change


def _exception(node: ast.AST, tree: Tree, rng: random.Random) -> Iterator[Change]:
    if isinstance(node, ast.Raise):
        yield lambda found: ast.Pass()
    if isinstance(node, ast.Return) and isinstance(node.value, (ast.BinOp, ast.Subscript, ast.Call)):
        swallowed = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Return(ast.Constant(None))])
        yield lambda found: ast.Try([found], [swallowed], [], [])


_CHANGES = {
    "comparison": _comparison,
    "boundary": _boundary,
    "operator": _operator,
    "variable": _variable,
    "return": _return,
    "arguments": _arguments_swapped,
    "dropped": _dropped,
    "off_by_one": _off_by_one,
    "default": _default,
    "exception": _exception,
}


def _same(node: ast.AST) -> Iterator[Change]:
    """Rewrites that mean the same, as long as operands have no effects and `+=` does not change a list in place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _MIRRORED:
        mirrored = _MIRRORED[type(node.ops[0])]
        yield lambda found: ast.Compare(found.comparators[0], [mirrored()], [found.left])
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in (ast.Eq, ast.Lt, ast.In, ast.Is):
        yield lambda found: ast.UnaryOp(ast.Not(), ast.Compare(found.left, [_COMPLEMENT[type(found.ops[0])]()], found.comparators))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield lambda found: ast.Assign([found.target], ast.BinOp(ast.Name(found.target.id, ast.Load()), found.op, found.value), lineno=1)
    if isinstance(node, ast.If) and node.orelse and not isinstance(node.orelse[0], ast.If) and not isinstance(node.body[-1], ast.Return):
        yield lambda found: ast.If(ast.UnaryOp(ast.Not(), found.test), found.orelse, found.body)
    if isinstance(node, ast.Return) and isinstance(node.value, (ast.BinOp, ast.Call, ast.Compare)):
        yield lambda found: [
            ast.Assign([ast.Name("answer", ast.Store())], found.value, lineno=1),
            ast.Return(ast.Name("answer", ast.Load())),
        ]


_COMPLEMENT = {ast.Eq: ast.NotEq, ast.Lt: ast.GtE, ast.In: ast.NotIn, ast.Is: ast.IsNot}


def _arguments(tree: Tree) -> list[str]:
    return [arg.arg for arg in tree.args.args]


def _locals(tree: Tree) -> list[str]:
    """Names that are assigned in the function, its arguments left out, in order of appearance."""
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return [name for name in dict.fromkeys(stored) if name not in _arguments(tree) and name != "_"]


def _names(tree: Tree) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | set(_arguments(tree))


def _renamed(source: str, old: str, new: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return ast.unparse(tree)
