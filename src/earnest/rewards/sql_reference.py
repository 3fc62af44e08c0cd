"""What a reference query asks for: its order, its limit, and the values it compares columns with.

Only the author's reference is parsed (by sqlglot). What the model writes is never parsed here, only run: any parser but the database's own
would refuse queries that are right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

RANK = "earnest_rank"


@dataclass(frozen=True)
class Shape:
    """How the result of a reference is to be read.

    Attributes:
        ordered: Whether the outermost query sorts. What subqueries, window functions and aggregates sort says nothing about the result.
        offset: Rows its limit leaves out at the beginning.
        whole: For a reference with a limit and no order: the query without the limit.
        ranked: For one that sorts: the query without the limit, sorted, with a last column that is equal where the sorting keys are; None
            where that could not be written.
        compared: (column, operator, value) of each comparison of a column with a constant.
    """

    ordered: bool
    offset: int = 0
    whole: str | None = None
    ranked: str | None = None
    compared: tuple[tuple[str, str, Any], ...] = ()


def shape_of(reference: str, width: int, dialect: str = "sqlite") -> Shape:
    """Read a reference that the database has already accepted.

    Args:
        reference: The query.
        width: Columns of its result.
        dialect: "sqlite" or "postgres", as sqlglot calls them.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        (tree,) = [part for part in sqlglot.parse(reference, dialect=dialect) if part is not None and not isinstance(part, exp.Semicolon)]
    except (SqlglotError, ValueError, RecursionError):
        return Shape(_sorts(reference, dialect))
    if not isinstance(tree, exp.Query):
        return Shape(_sorts(reference, dialect))
    try:
        offset = _offset(tree)
        bare = _bare(tree)
        order = tree.args.get("order")
        limited = any(tree.args.get(part) for part in ("limit", "offset"))
        whole = bare.sql(dialect) if limited and not order else None
        ranked = _ranked(tree, bare, width) if order else None
        return Shape(bool(order), offset, whole, ranked and ranked.sql(dialect), tuple(_compared(tree)))
    except (SqlglotError, ValueError, RecursionError):
        return Shape(_sorts(reference, dialect))


def _sorts(reference: str, dialect: str) -> bool:
    """Whether ORDER BY stands outside of all brackets, which only the outermost query's can. Without a parse."""
    from sqlglot import tokenize
    from sqlglot.errors import SqlglotError
    from sqlglot.tokens import TokenType

    depth = 0
    try:
        for token in tokenize(reference, read=dialect):
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0 and token.token_type == TokenType.ORDER_BY:
                return True
    except SqlglotError:
        return True
    return False


def _bare(tree: Any) -> Any:
    """The query without its outermost order and limit."""
    bare = tree.copy()
    for part in ("order", "limit", "offset"):
        bare.set(part, None)
    return bare


def _offset(tree: Any) -> int:
    """Rows left out.

    Raises:
        ValueError: It is no plain number.
    """
    offset = tree.args.get("offset") or (tree.args["limit"].args.get("offset") if tree.args.get("limit") else None)
    if offset is None:
        return 0
    return int((offset.args.get("expression") or offset.this).name)


def _ranked(tree: Any, bare: Any, width: int) -> Any:
    """The query with the rank of each row's sorting keys as a last column, sorted by it; None where that cannot be written."""
    from sqlglot import exp

    select = tree
    while not isinstance(select, exp.Select):  # the names of a union are those of its first part
        select = select.this
    terms = [term.copy() for term in tree.args["order"].expressions]
    places = [_place(term.this, select) for term in terms]
    star = any(item.is_star for item in select.expressions)
    if not star and all(place is not None for place in places) and len(select.expressions) == width:
        for term, place in zip(terms, places, strict=True):
            term.set("this", exp.column(f"c{place}", quoted=False))
        names = [f"c{i}" for i in range(width)]
        rows = exp.CTE(
            this=bare, alias=exp.TableAlias(this=exp.to_identifier("earnest_rows"), columns=[exp.to_identifier(n) for n in names])
        )
        query = exp.select(*names, _rank(terms)).from_("earnest_rows")
        query.set("with_", exp.With(expressions=[rows]))
        return query.order_by(RANK)
    if tree is not select or select.args.get("distinct"):
        return None
    for term, place in zip(terms, places, strict=True):
        if place is not None and not star:
            term.set("this", select.expressions[place].unalias().copy())
        elif isinstance(term.this, exp.Literal):
            return None
        else:
            term.set("this", _without_aliases(term.this, select))
    return bare.select(_rank(terms)).order_by(RANK)


def _rank(terms: list[Any]) -> Any:
    from sqlglot import exp

    window = exp.Window(this=exp.Anonymous(this="dense_rank"), order=exp.Order(expressions=terms))
    return exp.alias_(window, RANK)


def _place(term: Any, select: Any) -> int | None:
    """Which column of the result a sorting term means: by number, by name, or by being the same expression."""
    from sqlglot import exp

    items = select.expressions
    if isinstance(term, exp.Literal) and not term.is_string:
        return int(term.name) - 1 if 0 < int(term.name) <= len(items) else None
    if isinstance(term, exp.Column) and not term.table:
        named = [i for i, item in enumerate(items) if item.alias.lower() == term.name.lower()]
        named = named or [i for i, item in enumerate(items) if item.alias_or_name.lower() == term.name.lower()]
        if named:
            return named[0]
    text = term.sql().lower()
    return next((i for i, item in enumerate(items) if item.unalias().sql().lower() == text), None)


def _without_aliases(term: Any, select: Any) -> Any:
    """The term with names given in the select list replaced by what they stand for."""
    from sqlglot import exp

    meaning = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}

    def replaced(node: Any) -> Any:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in meaning:
            return exp.paren(meaning[node.name.lower()].copy())
        return node

    return term.transform(replaced)


def _compared(tree: Any) -> Iterator[tuple[str, str, Any]]:
    """Comparisons of a plain column with a constant."""
    from sqlglot import exp

    def constant(node: Any) -> Any:
        if isinstance(node, exp.Neg):
            value = constant(node.this)
            return -value if isinstance(value, (int, float)) else None
        if isinstance(node, exp.Literal):
            return node.name if node.is_string else (int(node.name) if re.fullmatch(r"\d+", node.name) else float(node.name))
        if isinstance(node, exp.Column) and node.this.quoted and not node.table:  # a string in SQLite where no such column exists
            return node.name
        return None

    for node in tree.find_all(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Between, exp.In):
        sides = [node.this, *(node.args.get(name) for name in ("expression", "low", "high")), *node.args.get("expressions", [])]
        columns = [side.name for side in sides if isinstance(side, exp.Column) and (side.table or not side.this.quoted)]
        values = [value for value in map(constant, sides) if value is not None]
        yield from ((column.lower(), type(node).__name__, value) for column in columns for value in values)
