"""When two results of SQL queries are the same: bags of typed rows, with numbers that may be a little apart.

"Almost equal" is not transitive, so rounding or sorting first and comparing afterwards goes wrong at some boundary. Here numbers are cut
into clusters where a gap is too wide to bridge; rows in different clusters cannot be the same; inside a cluster rows are paired by a
maximum matching. Cells are None, int, float, str, bytes, or a tuple (type, text) for the types of other databases.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Cells = tuple[Any, ...]

TOLERANCE = 1e-6
LARGEST_MATRIX = 250_000  # pairs of rows that are looked at in one cluster; beyond, rows are paired in sorted order


@dataclass(frozen=True)
class Group:
    """Rows that may stand in any order, of which an answer has to name some.

    A result without an order is one group. With an order it is a group for each value of the sorting key, and a limit can take only a
    part of the last one (or, with an offset, of the first).

    Attributes:
        rows: What may stand here.
        take: How many of them stand here.
    """

    rows: tuple[Cells, ...]
    take: int


def close(a: float, b: float, tolerance: float = TOLERANCE) -> bool:
    """Whether two numbers are the same.

    Integers are the same only when equal. Otherwise the distance may be `tolerance` (times the larger number where that is below 1, so
    that small numbers are kept apart), or a thousandth of `tolerance` times the larger number, which is the noise of long sums.
    """
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    size = max(abs(a), abs(b))
    return math.isfinite(size) and abs(a - b) <= tolerance * max(min(1.0, size), size / 1000)


def fits(want: Sequence[Cells], got: Sequence[Cells], tolerance: float = TOLERANCE) -> bool:
    """Whether every row of `got` has a row of `want` of its own. With as many rows on both sides: whether the bags are equal."""
    if len(got) > len(want):
        return False
    pairs: dict[Cells, tuple[list[Cells], list[Cells]]] = defaultdict(lambda: ([], []))
    keys = _keys([*want, *got], tolerance)
    for index, (key, row) in enumerate(zip(keys, [*want, *got], strict=True)):
        pairs[key][index >= len(want)].append(row)
    return all(_matched(ours, theirs, tolerance) for ours, theirs in pairs.values())


def accepts(groups: Sequence[Group], rows: Sequence[Cells], tolerance: float = TOLERANCE) -> bool:
    """Whether rows, in their order, are an answer that the groups allow."""
    if len(rows) != sum(group.take for group in groups):
        return False
    start = 0
    for group in groups:
        if not fits(group.rows, rows[start : start + group.take], tolerance):
            return False
        start += group.take
    return True


def differ(a: Sequence[Group], b: Sequence[Group], tolerance: float = TOLERANCE) -> bool:
    """Whether surely no rows at all are an answer to both. Where that cannot be seen quickly, False."""
    everything = [[row for group in groups for row in group.rows] for groups in (a, b)]
    if sum(group.take for group in a) != sum(group.take for group in b) or _widths(everything[0]) != _widths(everything[1]):
        return True
    whole = all(group.take == len(group.rows) for group in (*a, *b))
    if whole and not fits(everything[0], everything[1], tolerance):
        return True
    places = [[group for group in groups for _ in range(group.take)] for groups in (a, b)]
    seen = {(id(mine), id(other)): (mine, other) for mine, other in zip(*places, strict=True)}
    return any(not _share_a_row(mine.rows, other.rows, tolerance) for mine, other in seen.values())


def _widths(rows: Iterable[Cells]) -> set[int]:
    return {len(row) for row in rows}


def _share_a_row(a: Sequence[Cells], b: Sequence[Cells], tolerance: float) -> bool:
    keys = _keys([*a, *b], tolerance)
    return not set(keys[: len(a)]).isdisjoint(keys[len(a) :])


def _keys(rows: Sequence[Cells], tolerance: float) -> list[Cells]:
    """A key for each row. Rows that are the same have the same key; the reverse need not hold."""
    width = max(map(len, rows), default=0)
    clusters = [_clusters([row[i] for row in rows if i < len(row)], tolerance) for i in range(width)]
    return [tuple(_key(cell, clusters[i]) for i, cell in enumerate(row)) for row in rows]


def _key(cell: Any, clusters: dict[float, int] | None) -> Any:
    if isinstance(cell, float) and math.isnan(cell):
        return ("nan",)
    if isinstance(cell, (int, float)):
        return ("number", cell if clusters is None else clusters[cell])
    return (type(cell).__name__, cell)


def _clusters(cells: Sequence[Any], tolerance: float) -> dict[float, int] | None:
    """The numbers of a column by the cluster they are in; None when all are integers, which are exact."""
    numbers = {cell for cell in cells if isinstance(cell, (int, float)) and not math.isnan(cell)}
    if not any(isinstance(cell, float) for cell in cells):
        return None
    clusters: dict[float, int] = {}
    last = None
    for number in sorted(numbers):
        # by their distance alone: two integers that are near are in one cluster, since a float may lie between
        apart = last is None or not close(float(last), float(number), tolerance)
        clusters[number] = len(clusters) if apart else clusters[last]
        last = number
    return clusters


def _matched(want: Sequence[Cells], got: Sequence[Cells], tolerance: float) -> bool:
    """Whether each row of `got` finds a row of its own, all of them having one key."""
    if len(got) > len(want):
        return False
    if Counter(got) <= Counter(want):
        return True
    if not any(isinstance(cell, float) for row in (*want, *got) for cell in row):
        return False
    ours, theirs = set(want), set(got)
    if len(ours) * len(theirs) <= 1000 and all(_same(a, b, tolerance) for a in ours for b in theirs):
        return True
    if len(want) * len(got) > LARGEST_MATRIX:
        return len(want) == len(got) and all(_same(a, b, tolerance) for a, b in zip(_sorted(want), _sorted(got), strict=True))
    return _maximum_matching(want, got, tolerance) == len(got)


def _same(a: Cells, b: Cells, tolerance: float) -> bool:
    """Whether two rows of one key are the same; only their numbers can still differ."""
    return all(close(x, y, tolerance) for x, y in zip(a, b, strict=True) if isinstance(x, (int, float)))


def _sorted(rows: Sequence[Cells]) -> list[Cells]:
    return sorted(rows, key=lambda row: [cell for cell in row if isinstance(cell, (int, float))])


def _maximum_matching(want: Sequence[Cells], got: Sequence[Cells], tolerance: float) -> int:
    """The most pairs of same rows (Hopcroft and Karp, as SciPy has it)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    near = csr_array([[_same(a, b, tolerance) for a in want] for b in got])
    return int((maximum_bipartite_matching(near, perm_type="column") >= 0).sum())
