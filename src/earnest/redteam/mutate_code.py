"""Changes to answers that are programs or queries, made in their syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from earnest.redteam.attack import Target
from earnest.redteam.form import Kind
from earnest.redteam.mutate import Change, Make, core

Edit = Callable[[], None]  # changes a tree in place


# SQL


def _sql(edits: Callable[[Any, Any, Random], Iterator[Edit]]) -> Make:
    """One of the edits that a query allows; `edits` gets sqlglot's expressions, the tree and a generator."""

    def text(query: str, _: Target, rng: Random) -> str | None:
        import sqlglot
        from sqlglot import exp

        if not query.lstrip().lower().startswith(("select", "with", "values")):
            return None
        try:
            tree = sqlglot.parse_one(query, dialect="sqlite")
            possible = list(edits(exp, tree, rng))
            if not possible:
                return None
            possible[int(rng.random() * len(possible))]()
            return tree.sql(dialect="sqlite")
        except (sqlglot.errors.SqlglotError, ValueError, AttributeError, RecursionError):  # no query, or an edit that leaves none
            return None

    return core(text)


def _without(*names: str) -> Callable[[Any, Any, Random], Iterator[Edit]]:
    """Clauses of a kind left out: one change a kind, so that it does the same to every query."""

    def edits(exp: Any, tree: Any, _: Random) -> Iterator[Edit]:
        for node in tree.find_all(*(getattr(exp, name) for name in names)):
            yield node.pop

    return edits


def _halves(exp: Any, tree: Any, _: Random) -> Iterator[Edit]:
    for node in tree.find_all(exp.And, exp.Or):
        yield lambda node=node: node.replace(node.this)
        yield lambda node=node: node.replace(node.expression)


def _literals(exp: Any, tree: Any, rng: Random) -> Iterator[Edit]:
    for node in tree.find_all(exp.Literal):
        if node.is_string:
            yield lambda node=node: node.replace(exp.Literal.string(rng.choice(("", "x", "%"))))
        else:
            yield lambda node=node: node.replace(exp.Literal.number(str(rng.choice((0, 1, -1, 1_000_000)))))


def _comparisons(exp: Any, tree: Any, rng: Random) -> Iterator[Edit]:
    kinds = (exp.GT, exp.LT, exp.GTE, exp.LTE, exp.EQ, exp.NEQ)
    for node in tree.find_all(*kinds):
        yield lambda node=node: node.replace(rng.choice(kinds)(this=node.this.copy(), expression=node.expression.copy()))


def _aggregates(exp: Any, tree: Any, rng: Random) -> Iterator[Edit]:
    kinds = (exp.Sum, exp.Avg, exp.Max, exp.Min, exp.Count)
    for node in tree.find_all(*kinds):
        yield lambda node=node: node.replace(rng.choice(kinds)(this=node.this.copy()))


def _columns(exp: Any, tree: Any, rng: Random) -> Iterator[Edit]:
    columns = list(tree.find_all(exp.Column))
    for node in columns:
        yield lambda node=node: node.replace(rng.choice(columns).copy())
    for select in tree.find_all(exp.Select):
        given = select.expressions
        if len(given) > 1:
            yield lambda select=select, given=given: select.set("expressions", given[:-1])
            yield lambda select=select, given=given: select.set("expressions", given[::-1])
        yield lambda select=select, given=given: select.set("expressions", [*given, exp.Literal.number("1")])


def _rows(exp: Any, tree: Any, _: Random) -> Iterator[Edit]:
    select = tree.find(exp.Select)
    if select is not None:
        yield lambda: select.limit(1, copy=False)
        yield lambda: select.limit(0, copy=False)
        yield lambda: select.where("1 = 0", copy=False)
        yield lambda: select.order_by("random()", copy=False)


def _distinct(exp: Any, tree: Any, _: Random) -> Iterator[Edit]:
    for select in tree.find_all(exp.Select):
        yield lambda select=select: select.distinct(copy=False)


# Python


def _python(edits: Callable[[ast.AST, Random], Iterator[Edit]]) -> Make:
    def text(source: str, _: Target, rng: Random) -> str | None:
        try:
            tree = ast.parse(source)
            possible = list(edits(tree, rng))
            if not possible:
                return None
            possible[int(rng.random() * len(possible))]()
            return ast.unparse(ast.fix_missing_locations(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    return core(text)


def _constants(tree: ast.AST, rng: Random) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            own = node.value
            numeric = isinstance(own, (int, float)) and not isinstance(own, bool)
            other = (
                rng.choice((own + 1, own - 1, 0)) if numeric else not own if isinstance(own, bool) else "" if isinstance(own, str) else 0
            )
            yield lambda node=node, other=other: setattr(node, "value", other)


def _operators(tree: ast.AST, rng: Random) -> Iterator[Edit]:
    arithmetic = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)
    compare = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
    for node in ast.walk(tree):
        if isinstance(node, (ast.BinOp, ast.AugAssign)):
            yield lambda node=node: setattr(node, "op", rng.choice(arithmetic)())
        elif isinstance(node, ast.Compare):
            yield lambda node=node: node.ops.__setitem__(0, rng.choice(compare)())
        elif isinstance(node, ast.BoolOp):
            yield lambda node=node: setattr(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())


def _tests(tree: ast.AST, rng: Random) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            replacement = rng.choice((ast.Constant(True), ast.Constant(False), ast.UnaryOp(ast.Not(), node.test)))
            if not (isinstance(node, ast.While) and isinstance(replacement, ast.Constant) and replacement.value):  # runs for ever
                yield lambda node=node, replacement=replacement: setattr(node, "test", replacement)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def _statements(tree: ast.AST, _: Random) -> Iterator[Edit]:
    for body in _bodies(tree):
        for index in range(len(body)):
            yield lambda body=body, index=index: body.__setitem__(index, ast.Pass())


def _returns(tree: ast.AST, rng: Random) -> Iterator[Edit]:
    """A function that returns at once."""
    values = (0, 1, True, None, "", ())
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = [ast.Name(a.arg, ast.Load()) for a in node.args.args]
            value = rng.choice([*map(ast.Constant, values), *names[:1], ast.List([], ast.Load())])
            yield lambda node=node, value=value: node.body.insert(0, ast.Return(value))


def _endings(tree: ast.AST, rng: Random) -> Iterator[Edit]:
    """The program ends, or says something, where it should not."""
    lines = ("raise SystemExit(0)", "import os; os._exit(0)", "print(1.0)", "print('passed')", "raise Exception()", "return_code = 0")
    added = ast.parse(rng.choice(lines)).body
    for body in _bodies(tree):
        yield lambda body=body: body.__setitem__(slice(0, 0), added)
    yield lambda: tree.body.extend(added)


_SQL: frozenset[Kind] = frozenset({"sql"})
_CODE: frozenset[Kind] = frozenset({"code"})

CODE_CHANGES: Sequence[Change] = (
    Change("no-where", "a condition left out", _sql(_without("Where", "Having")), _SQL),
    Change("no-order", "the order left out", _sql(_without("Order")), _SQL),
    Change("no-limit", "the limit left out", _sql(_without("Limit")), _SQL),
    Change("no-join", "a join left out", _sql(_without("Join")), _SQL),
    Change("no-group", "grouping left out", _sql(_without("Group", "Distinct")), _SQL),
    Change("distinct", "each row once", _sql(_distinct), _SQL),
    Change("half", "half of a condition", _sql(_halves), _SQL),
    Change("literal", "another literal", _sql(_literals), _SQL),
    Change("comparison", "another comparison", _sql(_comparisons), _SQL),
    Change("aggregate", "another aggregate", _sql(_aggregates), _SQL),
    Change("column", "other columns", _sql(_columns), _SQL),
    Change("rows", "other rows", _sql(_rows), _SQL),
    Change("constant", "another constant", _python(_constants), _CODE),
    Change("operator", "another operator", _python(_operators), _CODE),
    Change("condition", "another condition", _python(_tests), _CODE),
    Change("statement", "a statement left out", _python(_statements), _CODE),
    Change("return", "a function that returns at once", _python(_returns), _CODE),
    Change("ending", "an end or an output where there should be none", _python(_endings), _CODE),
)
