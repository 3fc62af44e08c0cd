"""Material for the tests of the SQL verifier: questions with queries, mutants of queries, a database for the advising questions."""

import csv
import json
import random
from pathlib import Path

import sqlglot
from sqlglot import exp

from earnest.rewards.sql_reference import shape_of
from earnest.rewards.sql_sqlite import from_script

CHINOOK_QUERIES = {
    "customers in Brazil": "SELECT FirstName, LastName FROM Customer WHERE Country = 'Brazil'",
    "how many tracks are longer than five minutes": "SELECT COUNT(*) FROM Track WHERE Milliseconds > 300000",
    "revenue by billing country, best first": (
        "SELECT BillingCountry, SUM(Total) AS revenue FROM Invoice GROUP BY BillingCountry ORDER BY revenue DESC"
    ),
    "five best customers by what they spent": (
        "SELECT c.FirstName, c.LastName, SUM(i.Total) FROM Customer c JOIN Invoice i ON i.CustomerId = c.CustomerId "
        "GROUP BY c.CustomerId ORDER BY SUM(i.Total) DESC LIMIT 5"
    ),
    "countries customers come from": "SELECT DISTINCT Country FROM Customer",
    "albums by artist AC/DC": "SELECT Title FROM Album JOIN Artist ON Artist.ArtistId = Album.ArtistId WHERE Artist.Name = 'AC/DC'",
    "artists without an album": "SELECT a.Name FROM Artist a LEFT JOIN Album b ON b.ArtistId = a.ArtistId WHERE b.AlbumId IS NULL",
    "average length of a track by genre": (
        "SELECT g.Name, AVG(t.Milliseconds) FROM Genre g JOIN Track t ON t.GenreId = g.GenreId GROUP BY g.GenreId"
    ),
    "genres with more than 100 tracks": (
        "SELECT g.Name, COUNT(*) FROM Genre g JOIN Track t ON t.GenreId = g.GenreId GROUP BY g.GenreId HAVING COUNT(*) > 100"
    ),
    "dearest invoice": "SELECT MAX(Total) FROM Invoice",
    "invoices by year": "SELECT strftime('%Y', InvoiceDate) AS year, COUNT(*) FROM Invoice GROUP BY year ORDER BY year",
    "customers of each support representative": (
        "SELECT e.FirstName, e.LastName, COUNT(c.CustomerId) FROM Employee e LEFT JOIN Customer c ON c.SupportRepId = "
        "e.EmployeeId GROUP BY e.EmployeeId"
    ),
    "tracks never sold": "SELECT COUNT(*) FROM Track WHERE TrackId NOT IN (SELECT TrackId FROM InvoiceLine)",
    "customers without a company in the USA or Canada": (
        "SELECT Email FROM Customer WHERE Company IS NULL AND Country IN ('USA', 'Canada')"
    ),
    "number of different customers who bought something in 2022": (
        "SELECT COUNT(DISTINCT CustomerId) FROM Invoice WHERE InvoiceDate >= '2022-01-01' AND InvoiceDate < '2023-01-01'"
    ),
    "three longest tracks of the genre Rock": (
        "SELECT t.Name FROM Track t JOIN Genre g ON g.GenreId = t.GenreId WHERE g.Name = 'Rock' ORDER BY t.Milliseconds DESC LIMIT 3"
    ),
    "playlists with their number of tracks": (
        "SELECT p.Name, COUNT(pt.TrackId) FROM Playlist p LEFT JOIN PlaylistTrack pt ON pt.PlaylistId = p.PlaylistId GROUP BY p.PlaylistId"
    ),
    "managers and whom they manage": "SELECT m.LastName, e.LastName FROM Employee e JOIN Employee m ON m.EmployeeId = e.ReportsTo",
    "invoices above the average": "SELECT InvoiceId, Total FROM Invoice WHERE Total > (SELECT AVG(Total) FROM Invoice)",
    "composers of tracks that begin with A": (
        "SELECT DISTINCT Composer FROM Track WHERE Name LIKE 'A%' AND Composer IS NOT NULL ORDER BY Composer"
    ),
    "best selling artist": (
        "SELECT ar.Name FROM InvoiceLine il JOIN Track t ON t.TrackId = il.TrackId JOIN Album al ON al.AlbumId = "
        "t.AlbumId JOIN Artist ar ON ar.ArtistId = al.ArtistId GROUP BY ar.ArtistId ORDER BY SUM(il.UnitPrice * "
        "il.Quantity) DESC LIMIT 1"
    ),
    "each customer's first invoice": "SELECT CustomerId, MIN(InvoiceDate) FROM Invoice GROUP BY CustomerId",
    "running total of a customer": (
        "SELECT InvoiceId, SUM(Total) OVER (PARTITION BY CustomerId ORDER BY InvoiceDate, InvoiceId) FROM Invoice WHERE CustomerId = 5"
    ),
    "countries of customers that are no billing countries, and the other way round": (
        "SELECT Country FROM Customer WHERE City = 'Paris' UNION SELECT BillingCountry FROM Invoice WHERE Total > 20"
    ),
    "share of invoices under two dollars": "SELECT AVG(CASE WHEN Total < 2 THEN 1.0 ELSE 0.0 END) FROM Invoice",
}

OTHER_AGGREGATE = {exp.Count: exp.Max, exp.Sum: exp.Avg, exp.Avg: exp.Sum, exp.Max: exp.Min, exp.Min: exp.Max}


def mutants(query: str) -> list[tuple[str, str]]:
    """The query with one thing wrong, in every place where it can be: (what, query)."""
    tree, found = sqlglot.parse_one(query, dialect="sqlite"), []

    def each(what, kind, change):
        for index in range(len(list(tree.find_all(kind)))):
            copy = tree.copy()
            if change(list(copy.find_all(kind))[index]) is not False:
                found.append((what, copy.sql("sqlite")))

    def literal(node):
        if isinstance(node.parent, (exp.Limit, exp.Offset, exp.Ordered, exp.Group, exp.Anonymous, exp.TimeToStr)):
            return False
        text = node.name
        if not node.is_string:
            node.replace(exp.Literal.number(float(text) + 1 if "." in text else int(text) + 1))
        elif "%" in text:
            node.replace(exp.Literal.string("zq" + text))
        elif text[:2] == "20":
            node.replace(exp.Literal.string("2023" + text[4:] if text[:4] == "2022" else "2024" + text[4:]))
        else:
            node.replace(exp.Literal.string(text + "x"))

    def aggregate(node):
        if isinstance(node.this, (exp.Star, exp.Distinct)):
            return False
        node.replace(OTHER_AGGREGATE[type(node)](this=node.this.copy()))

    def distinct(node):
        if isinstance(node.parent, exp.Select):
            node.parent.set("distinct", None)
        else:
            node.replace(node.expressions[0].copy())

    def join(node):
        if not node.args.get("on"):
            return False
        node.set("on", None)
        node.set("side", None)
        node.set("kind", "CROSS")

    each("dropped WHERE", exp.Where, lambda node: node.pop() and None)
    each("dropped HAVING", exp.Having, lambda node: node.pop() and None)
    each("dropped condition", exp.And, lambda node: node.replace(node.this.copy()) and None)
    each("changed literal", exp.Literal, literal)
    each("changed aggregate", tuple(OTHER_AGGREGATE), aggregate)
    each("missing DISTINCT", exp.Distinct, distinct)
    each("wrong join", exp.Join, join)
    each("order turned round", exp.Ordered, lambda node: node.set("desc", not node.args.get("desc")))
    each("limit", exp.Limit, lambda node: node.set("expression", exp.Literal.number(int(node.expression.name) + 1)))
    return found


def advising_queries(folder: Path) -> list[str]:
    """The reference of each template, with the example values of its variables."""
    queries = []
    for template in json.loads((folder / "advising.json").read_text()):
        query = template["sql"][0]
        for variable in sorted(template["variables"], key=lambda v: -len(v["name"])):
            query = query.replace(variable["name"], variable["example"])
        queries.append(query)
    return queries


POINTS_TO = {"offering_id": "course_offering", "course_offering_id": "course_offering", "pre_course_id": "course"} | {
    f"{table}_id": table for table in ("course", "instructor", "student", "program")
}
ROWS = {
    "semester": 16, "program": 8, "instructor": 15, "student": 20, "course": 150, "course_offering": 600, "offering_instructor": 800,
    "program_course": 300, "student_record": 300, "course_prerequisite": 300, "area": 200,
}  # fmt: skip


def _schema(folder: Path) -> dict[str, list[tuple[str, str, bool]]]:
    """Columns of each table: name, type, whether part of the key."""
    tables: dict[str, list[tuple[str, str, bool]]] = {}
    for line in csv.reader((folder / "advising-schema.csv").read_text().splitlines()[1:]):
        cells = [cell.strip() for cell in line]
        if len(cells) > 4 and cells[0] != "-":
            kind = "INTEGER" if "int" in cells[2] else "REAL" if "float" in cells[2] else "TEXT"
            tables.setdefault(cells[0].lower(), []).append((cells[1].lower(), kind, cells[4] == "PRI"))
    for line in (folder / "advising-fields.txt").read_text().lower().splitlines():
        table, column = line.split()
        if column not in [name for name, _, _ in tables.setdefault(table, [])]:
            tables[table].append((column, "INTEGER" if column.endswith("_id") else "TEXT", False))
    return tables


def _target(table: str, column: str) -> str | None:
    target = "semester" if column == "semester" and table in ("course_offering", "student_record") else POINTS_TO.get(column)
    return None if target == table else target


def advising_database(folder: Path, seed: int = 0, variants: int = 3, share: float = 1.0) -> bytes:
    """A database of the advising schema: keys hold, what the references ask for is common in it, and for each of them there are `variants`
    sets of rows that it finds (`_witness`). With a small `share` of the usual rows and no variants, little is found."""
    rng, wanted = random.Random(seed), {}
    queries = advising_queries(folder)
    for query in queries:
        for column, _, value in shape_of(query, 1).compared:
            wanted.setdefault(column, []).append(value.strip("%") if isinstance(value, str) else value)
    tables = _schema(folder)
    keys = {table: [name for name, _, key in columns if key] for table, columns in tables.items()}

    def cell(table, column, kind, number):
        target, texts = _target(table, column), [str(value) for value in wanted.get(column, [])]
        numbers = [value for value in wanted.get(column, []) if isinstance(value, int)]
        if table == "semester" and column in ("semester", "year"):
            return ("FA", "WN", "SP", "SU")[number % 4] if column == "semester" else 2015 + (number - 1) // 4
        if target:
            return 1 if rng.random() < 0.1 else rng.randint(1, ROWS.get(target, 100))
        if keys[table] == [column]:
            return number
        if column == "department":
            return rng.choice(["EECS"] * 6 + texts)
        if column == "number":
            return rng.choice(sorted({text for text in texts if text.isdigit()}))
        if column.endswith("_time"):
            return rng.choice(["08:00", "09:30", "12:00", "13:30", "17:00"])
        if column == "workload":
            return rng.randint(2, 6)
        if column == "section_number":
            return f"{rng.randint(1, 40):03d}"
        if kind != "TEXT":
            return rng.choice(numbers) if numbers and rng.random() < 0.8 else rng.randint(0, 9)
        return rng.choice(texts) if texts and rng.random() < 0.85 else f"{rng.choice(['Y', 'N', 'alpha', 'beta', 'gamma'])}"

    filled: dict[str, dict[object, list]] = {table: {} for table in tables}

    def add(table, given):
        """A row with some of its cells given; where its key is taken, those cells are changed there."""
        columns, number = tables[table], len(filled[table]) + 1
        # what a reference does not ask of its own rows must not make them rows of another's
        free = [kind != "TEXT" or name.endswith("_time") or {*wanted.get(name, ["Y"])} <= {"Y", "N"} for name, kind, _ in columns]
        plain = [
            cell(table, name, kind, number) if known or not given else f"other {rng.randint(1, 9)}"
            for known, (name, kind, _) in zip(free, columns, strict=True)
        ]
        row = [given.get(name, value) for value, (name, _, _) in zip(plain, columns, strict=True)]
        key = tuple(value for value, (_, _, key) in zip(row, columns, strict=True) if key) or number
        if key in filled[table] and given:
            for i, (name, _, _) in enumerate(columns):
                filled[table][key][i] = given.get(name, filled[table][key][i])
        filled[table].setdefault(key, row)

    for table in tables:
        for _ in range(max(1, round(share * ROWS.get(table, 100)))):
            add(table, {})
    for query in queries:
        for variant in range(variants):
            for table, given in _witness(query, variant, tables, keys, lambda table: len(filled[table]) + 1):
                add(table, given)
    script = []
    for table, columns in tables.items():
        parts = [f'"{name}" {kind}' for name, kind, _ in columns]
        parts += [f"PRIMARY KEY ({', '.join(keys[table])})"] if keys[table] else []
        parts += [f"FOREIGN KEY ({name}) REFERENCES {to} ({keys[to][0]})" for name, _, _ in columns if (to := _target(table, name))]
        script.append(f'CREATE TABLE "{table}" ({", ".join(parts)});')
        for row in filled[table].values():
            values = ", ".join(str(value) if not isinstance(value, str) else "'" + value.replace("'", "''") + "'" for value in row)
            script.append(f'INSERT INTO "{table}" VALUES ({values});')
    return from_script("\n".join(script))


def _witness(query, variant, tables, keys, fresh):
    """Rows that together satisfy what a query demands, as (table, some cells): columns it equates get one value, those it compares with
    constants a value that passes. Of alternatives, the one number `variant`."""
    try:
        tree = sqlglot.parse_one(query, dialect="sqlite")
    except sqlglot.errors.SqlglotError:
        return []
    same: dict[tuple, tuple] = {}
    demands: dict[tuple, list] = {}

    def root(cell):
        while same.get(cell, cell) != cell:
            cell = same[cell]
        return cell

    def tables_of(select):
        parts = [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or [])]
        return {part.this.alias_or_name.lower(): part.this for part in parts if part is not None}

    def cell_of(node):
        """The cell a column stands for: (scope, alias, column)."""
        while isinstance(node, (exp.Lower, exp.Upper, exp.Paren, exp.Max, exp.Min)):
            node = node.this
        if not isinstance(node, exp.Column) or (not node.table and node.this.quoted):
            return None
        name, scope = node.name.lower(), node.find_ancestor(exp.Select)
        while scope is not None:
            for alias, source in tables_of(scope).items():
                if node.table and alias != node.table.lower():
                    continue
                if isinstance(source, exp.Subquery):
                    inner = [each for each in source.this.selects if each.alias_or_name.lower() == name]
                    return cell_of(inner[0].unalias()) if inner else None
                if name in [column for column, _, _ in tables.get(source.name.lower(), [])]:
                    return id(scope), alias, name
            scope = scope.find_ancestor(exp.Select)
        return None

    def demand(condition):
        condition = condition.unnest()
        if isinstance(condition, exp.And):
            demand(condition.left)
            demand(condition.right)
        elif isinstance(condition, exp.Or):
            choices = list(condition.flatten())
            demand(choices[variant % len(choices)])
        elif isinstance(condition, (exp.Between, exp.In, exp.Like, exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE)):
            mine, other = cell_of(condition.this), condition.args.get("expression") or condition.args.get("query")
            if mine is None:
                return
            inner = other.find(exp.Select) if isinstance(other, (exp.Subquery, exp.Select)) else None
            theirs = cell_of(inner.selects[0].unalias()) if inner is not None else cell_of(other) if other is not None else None
            if theirs is not None and inner is not None and isinstance(condition, exp.LT):
                demands.setdefault(mine, []).append(("Far", 1))  # less than the least there is by chance
            elif theirs is not None:
                same[root(mine)] = root(theirs)
                if inner is not None and isinstance(inner.selects[0].unalias(), (exp.Max, exp.Min)):
                    demands.setdefault(mine, []).append(("Far", 10_000 if isinstance(inner.selects[0].unalias(), exp.Max) else 1))
            elif isinstance(condition, exp.Between):
                demands.setdefault(mine, []).extend([("GTE", _constant(condition.args["low"])), ("LTE", _constant(condition.args["high"]))])
            elif isinstance(condition, exp.In):
                choices = condition.expressions
                demands.setdefault(mine, []).append(("EQ", _constant(choices[variant % len(choices)])) if choices else ("EQ", None))
            else:
                demands.setdefault(mine, []).append((type(condition).__name__, _constant(other)))

    rows: dict[tuple, tuple[str, set]] = {}
    for select in tree.find_all(exp.Select):
        for alias, source in tables_of(select).items():
            if isinstance(source, exp.Table) and source.name.lower() in tables:
                rows[id(select), alias] = (source.name.lower(), set())
        for clause in [select.args.get("where"), *(join.args.get("on") for join in select.args.get("joins") or [])]:
            if clause is not None:
                demand(clause.this if isinstance(clause, exp.Where) else clause)
    for column in tree.find_all(exp.Column):
        cell = cell_of(column)
        if cell is not None and cell[:2] in rows:
            rows[cell[:2]][1].add(cell[2])
    values: dict[tuple, object] = {}
    asked: dict[tuple, list] = {}
    for cell, them in demands.items():
        asked.setdefault(root(cell), []).extend(them)
    for cell, them in asked.items():
        values[cell] = _passing([(operator, value) for operator, value in them if value is not None])
    found, new = [], {}
    for (scope, alias), (table, columns) in rows.items():
        given = {}
        for column in sorted(columns | set(keys[table])):
            cell = root((scope, alias, column))
            if cell not in values and keys[table] == [column]:
                new[table] = new.get(table, 0) + 1
                values[cell] = fresh(table) + new[table] - 1
            if values.get(cell) is not None:
                given[column] = values[cell]
        found.append((scope, alias, table, given))
    for scope, alias, table, given in found:  # a key that was made for one row stands in those that are tied to it
        for column in [name for name, _, _ in tables[table]]:
            value = values.get(root((scope, alias, column)))
            if value is not None:
                given[column] = value
    return [(table, given) for _, _, table, given in found]


def _constant(node):
    if isinstance(node, exp.Column):  # a text in double quotes
        return node.name
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else float(node.this) if "." in node.this else int(node.this)
    if isinstance(node, exp.Add) and all(isinstance(part, exp.Literal) for part in (node.left, node.right)):
        return _constant(node.left) + _constant(node.right)
    return None


def _passing(demands):
    """A value that passes all comparisons; None where none of those tried does."""
    tests = {
        "EQ": lambda v, c: v == c, "GT": lambda v, c: v > c, "GTE": lambda v, c: v >= c, "LT": lambda v, c: v < c,
        "LTE": lambda v, c: v <= c, "Far": lambda v, c: True, "Like": lambda v, c: str(c).strip("%").lower() in str(v).lower(),
    }  # fmt: skip
    candidates = []
    for operator, constant in demands:
        plain = constant.strip("%") if isinstance(constant, str) else constant
        more = [plain + 1, plain - 1] if isinstance(plain, (int, float)) else [plain + "5", "10:00:00"]
        candidates += [plain, *more] if operator != "Far" else [constant]
    candidates.append(" ".join(str(constant).strip("%") for operator, constant in demands if operator == "Like"))
    for value in candidates:
        comparable = [(op, value, str(c) if isinstance(value, str) else c) for op, c in demands]
        try:
            if all(tests[op](v, c) for op, v, c in comparable):
                return value
        except TypeError:
            continue
    return None
