"""The SQL verifier: what is right on more than one database, and nothing else."""

import hashlib
import json
import os
import random
import re
import sqlite3
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_tasks import CHINOOK_QUERIES, advising_database, advising_queries, mutants

from earnest.errors import UserError
from earnest.rewards import sql_postgres
from earnest.rewards.sql import sql
from earnest.rewards.sql_compare import Group, accepts, close, differ, fits
from earnest.rewards.sql_copies import copy_of
from earnest.rewards.sql_reference import shape_of
from earnest.rewards.sql_sqlite import Limits, from_script, key_of, private_copy, run, snapshot
from earnest.rewards.verifier import Attempt, as_reward

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CHINOOK = DATA / "chinook" / "Chinook_Sqlite.sqlite"
ADVISING = DATA / "advising_text2sql"
FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
PATIENT = Limits(seconds=5.0)  # of processor time; what is meant to be quick is far below

SHOP = """
    CREATE TABLE dept (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE emp (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, dept_id INTEGER REFERENCES dept (id),
        pay REAL NOT NULL, level INTEGER NOT NULL, note TEXT
    );
    INSERT INTO dept VALUES (1, 'sales'), (2, 'support'), (3, 'legal');
    INSERT INTO emp VALUES
        (1, 'Ann', 1, 30.5, 1, NULL), (2, 'Bob', 1, 20.0, 1, 'new'), (3, 'Cid', 2, 30.5, 2, NULL), (4, 'Dee', 2, 41.0, 3, 'Brazil'),
        (5, 'Eve', NULL, 12.25, 1, ''), (6, 'Fay', 1, 55.0, 3, NULL), (7, 'Gus', 2, 18.0, 2, 'new'), (8, 'Hal', 1, 20.0, 2, 'old');
"""
IMAGE = from_script(SHOP)
KEY = key_of(IMAGE)
SQL = sql(database=IMAGE, limits=PATIENT)


def value(answer, reference, **options):
    score = (sql(database=IMAGE, limits=PATIENT, **options) if options else SQL)(answer, sql=reference)
    assert score.status == "scored", score
    assert score.value in (0.0, 1.0)
    return score.value


def reason(answer, reference="SELECT name FROM emp WHERE pay > 20", **options):
    score = sql(database=IMAGE, **{"limits": PATIENT, **options})(answer, sql=reference)
    assert (score.status, score.value) == ("scored", 0.0), score
    return score.reasons[0]


# --- the cases people reported


def two(a, b, reference, answer, **options):
    """Verdict on two small databases given as scripts, with no copies of their own."""
    score = sql(database=from_script(a), instances=[from_script(b)], copies=0, limits=PATIENT, **options)(answer, sql=reference)
    assert score.status == "scored", score
    return score.value


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("SELECT DISTINCT level FROM emp", "SELECT level FROM emp", 0),  # S-SQ-01
        ("SELECT level FROM emp", "SELECT DISTINCT level FROM emp", 0),
        ("SELECT level FROM emp", "SELECT level FROM emp UNION ALL SELECT level FROM emp", 0),
        ("SELECT name, pay FROM emp ORDER BY pay DESC", "SELECT name, pay FROM emp ORDER BY pay", 0),  # S-SQ-02
        ("SELECT name, pay FROM emp ORDER BY pay DESC", "SELECT name, pay FROM emp ORDER BY pay DESC, name DESC", 1),
        ("SELECT name FROM emp ORDER BY pay DESC", "SELECT name FROM emp ORDER BY pay DESC, name DESC", 1),
        ("SELECT name FROM emp ORDER BY pay DESC, name", "SELECT name FROM emp ORDER BY pay DESC, name DESC", 0),
        ("SELECT name, level FROM emp", "SELECT name, level FROM emp ORDER BY level DESC", 1),  # S-SQ-03
        ("SELECT name, count(*) FROM emp GROUP BY id", "SELECT name, count(*) FROM emp GROUP BY name", 1),
        ("SELECT name, note FROM emp ORDER BY id", "SELECT name, note FROM emp ORDER BY id", 1),  # S-SQ-06
        ("SELECT name, note FROM emp", "SELECT name, coalesce(note, '') FROM emp", 0),
        ("SELECT name, note FROM emp", "SELECT name, coalesce(note, 0) FROM emp", 0),
        ("SELECT name, level FROM emp", "SELECT name, CAST(level AS TEXT) FROM emp", 0),
        ("SELECT count(*) FROM emp", "SELECT count(id) FROM emp", 1),  # S-SQ-09
        ("SELECT count(*) FROM emp", "SELECT count(note) FROM emp", 0),
        ("SELECT name, level FROM emp", "SELECT name, level * 1.0 FROM emp", 1),
        ("SELECT avg(level) FROM emp", "SELECT sum(level) / count(*) FROM emp", 0),  # integer division
        ("SELECT avg(level) FROM emp", "SELECT sum(level) * 1.0 / count(*) FROM emp", 1),
        ("SELECT avg(pay) FROM emp", "SELECT avg(pay) + 0.01 FROM emp", 0),
    ],
)
def test_reported_comparisons(reference, answer, right):
    assert value(answer, reference) == right


def test_float_noise_is_no_difference_and_a_hundredth_is():  # S-SQ-09
    make = "CREATE TABLE t (a REAL, b REAL); INSERT INTO t VALUES ({}, {});"
    a, b = make.format(0.1, 0.2), make.format(1.5, 2.25)
    assert two(a, b, "SELECT a + b FROM t", "SELECT round(a + b, 10) FROM t") == 1  # 0.30000000000000004 and 0.3
    assert two(a, b, "SELECT a + b FROM t", "SELECT a + b + 0.01 FROM t") == 0


def test_rows_with_null_and_mixed_types_are_compared_in_any_order():  # S-SQ-06
    make = "CREATE TABLE t (a, b); INSERT INTO t VALUES (NULL, 1), (2, 'x'), ('y', NULL), (x'00', 2.5), (1, '1'){};"
    a, b = make.format(""), make.format(", (7, 7)")
    assert two(a, b, "SELECT a, b FROM t", "SELECT a, b FROM t ORDER BY typeof(a), b DESC") == 1
    assert two(a, b, "SELECT a, b FROM t", "SELECT a, iif(b = 1, '1', b) FROM t") == 0


@pytest.mark.parametrize(
    "answer",
    [
        "WITH r AS (SELECT name, pay, rank() OVER (ORDER BY pay DESC) AS place FROM emp)\nSELECT CASE WHEN 1 THEN name END FROM r\n"
        "WHERE place = 1; -- the best paid",
        "select name from emp order by pay desc limit 1 ; /* ok */ ",
        'SELECT `name` FROM [emp] AS "e" WHERE NOT EXISTS (SELECT 1 FROM emp x WHERE x.pay > e.pay)',
        "\r\nSELECT name\r\nFROM emp\r\nWHERE pay = (SELECT max(pay) FROM emp)\r\n",
        "SELECT max(name) FROM emp GROUP BY pay HAVING pay > (SELECT avg(pay) FROM emp) ORDER BY pay DESC LIMIT 1",
    ],
)
def test_whatever_the_database_can_run_is_judged_by_its_result(answer):  # S-SQ-07
    assert value(answer, "SELECT name FROM emp ORDER BY pay DESC LIMIT 1") == 1


WRITES = [
    "DROP TABLE emp",
    "INSERT INTO emp VALUES (9, 'Ida', 1, 1.0, 1, NULL)",
    "PRAGMA writable_schema=1",
    "PRAGMA journal_mode=DELETE",
    "ATTACH DATABASE '{folder}/x.db' AS y",
    "VACUUM INTO '{folder}/y.db'",
    "VACUUM",
    "DELETE FROM emp",
    "DELETE FROM emp RETURNING name",
    "INSERT INTO emp (name, pay, level) SELECT name, pay, level FROM emp RETURNING name",
    "UPDATE emp SET pay = 0 RETURNING name",
    "WITH a AS (SELECT 1) DELETE FROM emp",
    "CREATE TABLE x AS SELECT * FROM emp",
    "CREATE TEMP TABLE x (a)",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE VIRTUAL TABLE x USING fts5 (a)",
    "ALTER TABLE emp RENAME TO x",
    "BEGIN",
    "COMMIT",
    "SAVEPOINT a",
    "ANALYZE",
    "DETACH DATABASE main",
    "SELECT * FROM pragma_table_info('emp')",
    "REPLACE INTO dept VALUES (1, 'x')",
    "EXPLAIN DELETE FROM emp",
]


def test_nothing_can_be_written_anywhere(tmp_path):  # S-SQ-04
    path = tmp_path / "shop.db"
    path.write_bytes(IMAGE)
    before, files = hashlib.sha256(path.read_bytes()).hexdigest(), sorted(tmp_path.iterdir())
    verifier = sql(database=path, limits=PATIENT)
    for statement in WRITES:
        score = verifier(statement.format(folder=tmp_path), sql="SELECT name FROM emp WHERE pay > 20")
        assert score.value == 0.0 and score.reasons[0].startswith("not read-only"), (statement, score)
    for statement in ("SELECT 1; DELETE FROM emp", "SELECT name FROM emp WHERE pay > 20; SELECT 1", "SELECT 1;;SELECT 2"):
        score = verifier(statement, sql="SELECT name FROM emp WHERE pay > 20")
        assert (score.value, score.reasons) == (0.0, ("more than one statement",))
    assert verifier("SELECT name FROM emp WHERE pay > 20", sql="SELECT name FROM emp WHERE pay > 20").value == 1.0
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("first", ["UPDATE emp SET pay = 99", "ALTER TABLE emp ADD COLUMN x", "DROP TABLE dept", "PRAGMA user_version = 7"])
def test_what_one_rollout_writes_another_does_not_see(first):  # S-SQ-05
    one, other = private_copy(IMAGE), private_copy(IMAGE)
    before = key_of(IMAGE)
    one.execute(first)
    one.execute("UPDATE emp SET pay = 99 WHERE id = 1")
    assert one.execute("SELECT pay FROM emp WHERE id = 1").fetchone() == (99.0,)
    for copy in (other, private_copy(IMAGE)):
        assert copy.execute("SELECT pay FROM emp WHERE id = 1").fetchone() == (30.5,)
        assert copy.execute("SELECT count(*) FROM dept").fetchone() == (3,)
    assert key_of(IMAGE) == before


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT "
BOMBS = {
    "endless recursion": ENDLESS + "count(*) FROM c",
    "endless rows": ENDLESS + "x FROM c",
    "cross join": "SELECT a.name FROM " + ", ".join(f"emp {c}" for c in "abcdefghijkl"),
    "cross join counted": "SELECT count(*) FROM " + ", ".join(f"emp {c}" for c in "abcdefghijkl"),
    "huge text": "SELECT printf('%.*c', 1000000000, 'x')",
    "huge blob": "SELECT hex(zeroblob(1000000000))",
    "text in one slow call": "SELECT replace(hex(zeroblob(499000)), hex(zeroblob(240000)) || '1', '')",
    "doubling": "WITH "
    + ", ".join(f"c{i}(x) AS (SELECT a.x FROM c{i - 1} a, c{i - 1} b)" if i else "c0(x) AS (SELECT 1)" for i in range(30))
    + " SELECT count(*) FROM c29",
    "memory": ENDLESS + "count(*) FROM (SELECT DISTINCT x, hex(zeroblob(100000)) FROM c)",
    "joined text": ENDLESS + "length(group_concat(hex(zeroblob(1000)))) FROM c",
    "many columns": "SELECT " + ", ".join(["1"] * 900),
    "deep": "SELECT " + "(" * 4000 + "1" + ")" * 4000,
    "long pattern": "SELECT hex(zeroblob(400000)) LIKE replace(hex(zeroblob(900)), '00', '%0_')",
    "many unions": " UNION ALL ".join(["SELECT 1"] * 400),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_within_their_limits_and_the_next_query_is_fine(name):  # S-SQ-08
    limits = Limits(seconds=0.2, memory=64 * 2**20)
    answer = run(IMAGE, KEY, BOMBS[name], limits)
    assert answer.status in ("timeout", "limit", "error") and answer.reason and not answer.rows
    assert run(IMAGE, KEY, "SELECT count(*) FROM emp", PATIENT).rows == ((8,),)


def test_time_and_row_limits_are_named():  # S-SQ-08
    assert reason(BOMBS["endless recursion"], limits=Limits(seconds=0.2)).startswith("timeout")
    assert reason(BOMBS["endless rows"]).startswith("row limit")
    assert reason(BOMBS["text in one slow call"], limits=Limits(seconds=0.2)).startswith("timeout")
    slow = sql(database=IMAGE, limits=Limits(seconds=0.2))
    assert slow(BOMBS["endless recursion"], sql="SELECT count(*) FROM emp").evidence["timeout"] is True


# --- attacks


LITERALS = [
    ("SELECT count(*) FROM emp WHERE pay > 20", "SELECT 4"),
    ("SELECT max(pay) FROM emp", "SELECT 55.0"),
    ("SELECT name FROM emp WHERE level = 3", "VALUES ('Dee'), ('Fay')"),
    ("SELECT name FROM emp WHERE level = 3", "SELECT name FROM emp WHERE id IN (4, 6)"),
    ("SELECT name FROM emp WHERE level = 3", "SELECT name FROM emp WHERE name IN ('Dee', 'Fay')"),
    ("SELECT count(*) > 0 FROM emp WHERE note = 'new'", "SELECT 1"),
    ("SELECT name FROM dept WHERE id = 2", "SELECT 'support'"),
    ("SELECT name FROM emp ORDER BY pay DESC LIMIT 1", "SELECT name FROM emp WHERE id = 6"),  # sql.limit1_order
    ("SELECT name FROM emp ORDER BY pay DESC LIMIT 1", "SELECT name FROM emp ORDER BY level DESC, pay DESC LIMIT 1"),
    ("SELECT name FROM emp ORDER BY pay DESC LIMIT 1", "SELECT name FROM emp LIMIT 1 OFFSET 5"),
    ("SELECT DISTINCT level FROM emp", "VALUES (1), (2), (3)"),
    ("SELECT name FROM emp WHERE pay > 20 AND level < 3", "SELECT name FROM emp WHERE pay > 21 AND level <= 2"),
]


@pytest.mark.parametrize(("reference", "answer"), LITERALS)
def test_what_is_right_on_one_database_only_is_wrong(reference, answer):  # sql.literal
    connection = private_copy(IMAGE)
    want, got = (sorted(connection.execute(query).fetchall()) for query in (reference, answer))
    assert want == got, "the attack is right on the first database"
    assert value(answer, reference) == 0
    assert value(reference, reference) == 1


@pytest.mark.parametrize(
    "reference",
    [
        "SELECT name FROM emp WHERE pay > 1000",  # sql.empty_match
        "SELECT max(pay) FROM emp WHERE pay > 1000",  # nothing but NULL
        "SELECT 1 WHERE 0",
        "SELECT nothing FROM emp WHERE",
        "SELECT name FROM nowhere",
        "DELETE FROM emp",
        "SELECT 1; SELECT 2",
        "SELECT random()",
        "SELECT date('now')",
        "SELECT 30",  # the same everywhere
        "SELECT name FROM emp WHERE id = random()",
        "",
        "   ",
        7,
        None,
    ],
)
@pytest.mark.parametrize("answer", ["SELECT 1 WHERE 0", "SELECT 30", "", "no"])
def test_a_reference_that_proves_nothing_is_an_invalid_task_whatever_is_answered(reference, answer):
    score = SQL(answer, sql=reference)
    assert (score.value, score.status) == (None, "invalid_task") and score.reasons


@pytest.mark.parametrize("where", ["/nowhere/at/all.db", __file__, b"no database", 7, "", "/"])
def test_a_database_that_is_none_is_an_invalid_task(where):
    assert sql()("SELECT 1", sql="SELECT 1", database=where).status == "invalid_task"


@pytest.mark.parametrize(
    "answer",
    [
        "SELECT random()",
        "SELECT abs(random())",
        "SELECT randomblob(2)",
        "SELECT date('now')",
        "SELECT date('NOW')",
        "SELECT date('no' || 'w')",
        "SELECT datetime()",
        "SELECT strftime('%Y')",
        "SELECT strftime('%Y', x) FROM (SELECT 'now' AS x)",
        "SELECT julianday(x'6e6f77')",
        "SELECT CURRENT_TIMESTAMP",
        "SELECT current_date",
        "SELECT changes()",
        "SELECT last_insert_rowid()",
        "SELECT unixepoch('now')",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT sqlite_version()",
        "SELECT name FROM emp ORDER BY random()",
    ],
)
def test_what_depends_on_chance_or_the_clock_is_refused_and_said(answer):  # sql.nondeterministic
    why = reason(answer, "SELECT name FROM emp")
    assert "not deterministic" in why or "no such function" in why


def test_dates_that_are_given_are_no_clock():
    make = "CREATE TABLE t (d TEXT); INSERT INTO t VALUES ('2021-03-31 10:00:00'), ('{}');"
    a, b = make.format("1999-12-31 08:00"), make.format("2000-01-01 09:00")
    for query in ("strftime('%Y-%m', d)", "date(d, '+1 month')", "julianday(d)", "time(d)", "CAST(strftime('%s', d) AS INTEGER)"):
        assert two(a, b, f"SELECT {query} FROM t", f"SELECT {query} FROM t") == 1
    plain = sqlite3.connect(":memory:")
    answer = run(IMAGE, KEY, "SELECT date('2021-01-31', '+1 month'), julianday('2021-01-01'), strftime('%W', '2021-05-05')", PATIENT)
    assert (
        answer.rows[0]
        == plain.execute("SELECT date('2021-01-31', '+1 month'), julianday('2021-01-01'), strftime('%W', '2021-05-05')").fetchone()
    )


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " \n\t ",
        "SELECT",
        "SELECT name FROM emp WHERE",
        "I'm sorry, I can't help.",
        "name emp pay level dept",
        "-- nothing",
        ";",
        "SELECT name",
        "Which employees earn more than 20?",
        "SELECT name FROM emp WHERE pay > ?",
        "SELECT name FROM emp WHERE pay > :x",
        "emp.name, emp.pay",
        "Here it is: SELECT name FROM emp WHERE pay > 20",
        "SELECT name FROM emp WHERE pay > 20 -- or\n SELECT 1",
        "SELECT '\ud800'",
        "SELECT 1\0",
        "```sql\nSELECT name FROM emp WHERE pay > 20\n```",
        "SELECT name FROM emp WHERE pay > 20" + " " * 10_000,
        "EXPLAIN SELECT name FROM emp",
        "SELECT id FROM emp WHERE pay > 20",
        "SELECT name, id FROM emp WHERE pay > 20",
        "SELECT NULL FROM emp WHERE pay > 20",
        "SELECT upper(name) FROM emp WHERE pay > 20",
        "SELECT name || ' ' FROM emp WHERE pay > 20",
        "SELECT CAST(name AS BLOB) FROM emp WHERE pay > 20",
    ],
)
def test_no_work_and_half_work_get_nothing(answer):  # gen.*, sql.partial_ngram
    assert reason(answer)


def test_a_query_that_changes_the_database_first_changes_nothing():  # sql.mutate_first
    assert value("DELETE FROM emp", "SELECT name FROM emp WHERE pay > 20") == 0
    assert value("SELECT name FROM emp WHERE pay > 20", "SELECT name FROM emp WHERE pay > 20") == 1


# --- options


FENCED = "```sql\nSELECT name FROM emp WHERE pay > 20\n```"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (FENCED, 1),
        ("\n```\r\nSELECT name FROM emp WHERE pay > 20;\r\n```\n", 1),
        ("```SQLite\nSELECT name FROM emp\nWHERE pay > 20 ```", 1),
        ("SELECT name FROM emp WHERE pay > 20", 1),
        (FENCED + "\nThat is it.", 0),
        ("Here:\n" + FENCED, 0),
        (FENCED + "\n" + FENCED, 0),
        ("```sql\n```", 0),
        ("```python\nSELECT name FROM emp WHERE pay > 20\n```", 0),
        ("```sql\nSELECT name FROM emp WHERE pay > 20", 0),
        ("```sql\nSELECT 1; SELECT name FROM emp WHERE pay > 20\n```", 0),
    ],
)
def test_one_fence_with_nothing_outside_it_by_option_only(text, right):
    assert value(text, "SELECT name FROM emp WHERE pay > 20", fence=True) == right
    if "```" in text:
        assert value(text, "SELECT name FROM emp WHERE pay > 20") == 0


def test_names_of_columns_matter_by_option_only():
    reference = "SELECT name AS Who, pay FROM emp"
    for answer, right in (
        ("SELECT name, pay FROM emp", 0),
        ("SELECT name AS who, pay FROM emp", 1),
        ("SELECT pay, name AS who FROM emp", 0),
    ):
        assert value(answer, reference, names=True) == right
    assert value("SELECT name, pay FROM emp", reference) == 1
    assert value("SELECT pay, name FROM emp", reference) == 0


def test_each_row_may_name_its_database(tmp_path):
    for name, extra in (("a", ""), ("b", "INSERT INTO emp VALUES (9, 'Ida', 1, 99.0, 1, NULL);")):
        (tmp_path / f"{name}.db").write_bytes(from_script(SHOP + extra))
    verifier, query = sql(limits=PATIENT), "SELECT count(*) FROM emp"
    assert verifier.columns == ("sql", "database")
    assert [verifier(query, sql=query, database=str(tmp_path / f"{name}.db")).value for name in "ab"] == [1.0, 1.0]


def test_a_write_ahead_log_is_part_of_the_database(tmp_path):
    writer = sqlite3.connect(tmp_path / "wal.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2);")
    image = snapshot(tmp_path / "wal.db")
    assert run(image, key_of(image), "SELECT a FROM t", PATIENT).rows == ((1,), (2,))
    writer.close()


def test_one_database_alone_is_refused_when_the_verifier_is_made():
    with pytest.raises(UserError, match="second database"):
        sql(database=IMAGE, copies=0)
    with pytest.raises(UserError, match="PostgreSQL"):
        sql(database="postgresql://localhost/x")


def test_given_instances_on_which_nothing_differs_are_refused():
    assert sql(database=IMAGE, instances=[IMAGE], copies=0)("SELECT 1", sql="SELECT name FROM emp").status == "invalid_task"


def test_json_functions_full_text_search_and_windows_can_be_used():
    make = "CREATE TABLE t (j TEXT); INSERT INTO t VALUES ('[1, 2, {0}]');"
    make += "CREATE VIRTUAL TABLE f USING fts5 (x); INSERT INTO f VALUES ('cat {0}'), ('dog');"
    a, b = make.format(3), make.format(4)
    for query in (
        "SELECT value FROM t, json_each(t.j)",
        "SELECT json_extract(j, '$[2]') FROM t",
        "SELECT x FROM f WHERE f MATCH 'cat'",
        "SELECT sum(value) OVER (ORDER BY value) FROM t, json_each(t.j)",
        "SELECT group_concat(value) FROM t, json_tree(t.j)",
    ):
        assert two(a, b, query, query) == 1, query


def test_a_batch_is_scored_through_the_reward():
    import asyncio

    reward = as_reward(SQL)
    answers = ["SELECT name FROM emp WHERE pay > 20", "SELECT 1", BOMBS["endless rows"], "DROP TABLE emp"] * 3
    values = asyncio.run(reward(answers, sql=["SELECT name FROM emp WHERE pay > 20"] * 12))
    assert values == [1.0, 0.0, 0.0, 0.0] * 3


# --- order and ties


TIES = """
    CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, price INTEGER);
    INSERT INTO t VALUES (1, 'a', 5), (2, 'b', 5), (3, 'c', 3), (4, 'd', 3), (5, 'e', {});
"""


@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("SELECT name FROM t ORDER BY price DESC", "SELECT name FROM t ORDER BY price DESC, id DESC", 1),
        ("SELECT name FROM t ORDER BY price DESC", "SELECT name FROM t ORDER BY id DESC", 0),
        ("SELECT name FROM t ORDER BY price DESC LIMIT 1", "SELECT name FROM t ORDER BY price DESC, id DESC LIMIT 1", 1),
        ("SELECT name FROM t ORDER BY price DESC LIMIT 3", "SELECT name FROM t ORDER BY price DESC, id DESC LIMIT 3", 1),
        ("SELECT name FROM t ORDER BY price DESC LIMIT 3", "SELECT name FROM t ORDER BY price DESC LIMIT 2", 0),
        ("SELECT name FROM t ORDER BY price DESC LIMIT 2 OFFSET 1", "SELECT name FROM t ORDER BY price DESC, id DESC LIMIT 2 OFFSET 1", 1),
        ("SELECT name FROM t ORDER BY price DESC LIMIT 2 OFFSET 1", "SELECT name FROM t ORDER BY price DESC LIMIT 2", 0),
        ("SELECT DISTINCT price FROM t ORDER BY price", "SELECT DISTINCT price FROM t ORDER BY price", 1),
        ("SELECT DISTINCT price FROM t ORDER BY price", "SELECT DISTINCT price FROM t ORDER BY price DESC", 0),
        ("SELECT name FROM (SELECT name FROM t ORDER BY price)", "SELECT name FROM t ORDER BY id DESC", 1),  # subquery order does not count
        ("SELECT name, row_number() OVER (ORDER BY id) FROM t", "SELECT name, row_number() OVER (ORDER BY id) FROM t ORDER BY 2 DESC", 1),
        (
            "SELECT name, price FROM t UNION ALL SELECT name, id FROM t ORDER BY 2",
            "SELECT name, price FROM t UNION ALL SELECT name, id FROM t",
            0,
        ),
        ("SELECT name FROM t ORDER BY -price", "SELECT name FROM t ORDER BY price DESC, name DESC", 1),
        ("SELECT price * 2 AS p, name FROM t ORDER BY p + 1", "SELECT price * 2, name FROM t ORDER BY price, name DESC", 1),
        (
            "SELECT price, count(*) AS n FROM t GROUP BY price ORDER BY n DESC",
            "SELECT price, count(*) FROM t GROUP BY 1 ORDER BY 2 DESC, 1 DESC",
            1,
        ),
        ("SELECT * FROM t ORDER BY price", "SELECT * FROM t ORDER BY price, id DESC", 1),
        ("SELECT * FROM t ORDER BY 3", "SELECT * FROM t ORDER BY price", 1),
        ("SELECT name FROM t ORDER BY price NULLS LAST", "SELECT name FROM t ORDER BY price NULLS LAST, id DESC", 1),
        ("SELECT name FROM t LIMIT 2", "SELECT name FROM t ORDER BY id DESC LIMIT 2", 1),  # any two
        ("SELECT name FROM t LIMIT 2", "SELECT max(name) FROM t UNION ALL SELECT max(name) FROM t", 0),  # one row twice
    ],
)
def test_order_counts_where_the_reference_sorts_and_ties_may_stand_in_any_order(reference, answer, right):
    other = re.sub("'(.)'", r"'x\1'", TIES.format(4))  # other names, or no result would differ
    assert two(TIES.format(1), other.replace(", 3)", ", 2)"), reference, answer) == right


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("(SELECT a FROM t) ORDER BY 1", True),
        ("WITH c AS (SELECT a FROM t ORDER BY a) SELECT a FROM c", False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)", False),
        ("SELECT 'ORDER BY a' FROM t -- ORDER BY a", False),
        ('SELECT a AS "ORDER BY" FROM t', False),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT rank() OVER w FROM t WINDOW w AS (ORDER BY a)", False),
        ("SELECT a FROM t WHERE a IN (SELECT b FROM u ORDER BY b LIMIT 2)", False),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("VALUES (1), (2) ORDER BY 1", True),
    ],
)
def test_only_the_outermost_order_is_the_order_of_the_result(query, ordered):
    assert shape_of(query, 1).ordered is ordered


# --- comparing rows


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (2, 2.0, True),
        (0.1 + 0.2, 0.3, True),
        (0.3, 0.31, False),
        (10**9, 10**9 + 1, False),  # integers are exact
        (1e9, 1e9 + 0.5, True),
        (1e9, 1e9 + 2, False),  # a thousandth of a millionth, for large sums
        (1.0, 1.0000009, True),
        (1.0, 1.000002, False),
        (1e-8, 2e-8, False),  # small numbers are not all the same
        (0.0, 1e-8, False),
        (float("inf"), float("inf"), True),
        (float("inf"), 1e308, False),
        (float("inf"), float("-inf"), False),
        (float("nan"), float("nan"), True),
        (float("nan"), 0.0, False),
        (-0.0, 0, True),
        (2**63 - 1, float(2**63), True),
    ],
)
def test_when_numbers_are_the_same(a, b, same):
    assert close(a, b) is close(b, a) is same
    assert fits([(a,)], [(b,)]) is same


def test_cells_of_different_types_are_never_the_same():
    cells = [None, 1, "1", b"1", "", b"", 0, "NULL", ("boolean", "True"), ("date", "1")]
    for i, a in enumerate(cells):
        for j, b in enumerate(cells):
            assert fits([(a,)], [(b,)]) is (i == j), (a, b)


def slowly(want, got, tolerance):
    """By trying every pairing."""

    def same(a, b):
        numbers = (int, float)
        if isinstance(a, numbers) and isinstance(b, numbers):
            return close(a, b, tolerance)
        return type(a) is type(b) and a == b

    return any(
        all(len(a) == len(b) and all(map(same, a, b)) for a, b in zip(got, chosen, strict=True)) for chosen in permutations(want, len(got))
    )


CELLS = st.sampled_from([None, "x", "1", 0, 1, 2, 0.0, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 1.0])
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=5)


@settings(max_examples=600 * FUZZ)
@given(ROWS, ROWS)
def test_pairing_rows_agrees_with_trying_every_pairing(want, got):
    assert fits(want, got, 0.4) == slowly(want, got, 0.4)


def test_a_pairing_exists_that_neither_sorting_nor_greed_finds():
    want, got = [(1.0, 0.0), (1.3, 0.3)], [(1.3, 0.0), (1.0, 0.3)]
    assert fits(want, got, 0.4)
    assert not fits([(1.0,), (1.0,), (2.0,)], [(1.0,), (2.0,), (2.0,)], 0.4)
    chain, shifted = [(0.9 + 0.3 * i,) for i in range(40)], [(1.2 + 0.3 * i,) for i in range(40)]
    assert fits(chain, shifted, 0.4)
    assert not fits(chain, [*shifted[:-1], shifted[0]], 0.2)


def test_values_on_both_sides_of_a_rounding_boundary_are_the_same():
    for edge in (0.5, 0.0000005, 2.675, 1234.5678905):
        assert fits([("x", edge - edge * 1e-10)], [("x", edge + edge * 1e-10)])


def test_large_results_are_compared_quickly_and_rightly():
    rows = [(i, f"name {i % 97}", i / 7, None) for i in range(10_000)]
    shuffled = random.Random(0).sample(rows, len(rows))
    noisy = [(a, b, c * (1 + 1e-12), d) for a, b, c, d in shuffled]
    assert fits(rows, noisy)
    assert not fits(rows, [*noisy[:-1], noisy[0]])
    equal = [(0.5,)] * 5000
    assert fits(equal, [(0.5 + 1e-9,)] * 5000) is True


def test_a_group_may_be_taken_in_part():
    groups = [Group((("a",), ("b",)), 2), Group((("c",), ("d",), ("c",)), 2)]
    assert accepts(groups, [("b",), ("a",), ("c",), ("c",)]) and accepts(groups, [("a",), ("b",), ("d",), ("c",)])
    for rows in (
        [("a",), ("c",), ("b",), ("c",)],
        [("a",), ("b",), ("d",), ("d",)],
        [("a",), ("b",), ("c",)],
        [("a",), ("a",), ("c",), ("d",)],
    ):
        assert not accepts(groups, rows)


def test_results_differ_only_when_nothing_is_right_for_both():
    one = [Group((("a",), ("b",)), 1)]
    assert not differ(one, [Group((("b",), ("c",)), 1)])
    assert differ(one, [Group((("c",), ("d",)), 1)])
    assert differ(one, [Group((("a",), ("b",)), 2)])
    assert differ([Group(((1,),), 1), Group(((2,),), 1)], [Group(((2,),), 1), Group(((1,),), 1)])
    assert not differ([Group(((1,), (2,)), 2)], [Group(((2,), (1,)), 2)])


# --- copies


RULED = """
    CREATE TABLE city (name TEXT PRIMARY KEY, country TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE person (id INTEGER PRIMARY KEY, mail TEXT UNIQUE, city TEXT NOT NULL REFERENCES city (name), age INTEGER CHECK (age > 17),
                         zip TEXT, boss INTEGER REFERENCES person (id), born TEXT, double_age INTEGER AS (age * 2));
    CREATE TABLE knows (a INTEGER REFERENCES person, b INTEGER REFERENCES person, since INTEGER, PRIMARY KEY (a, b));
    CREATE TABLE log (what TEXT);
    CREATE TRIGGER told AFTER INSERT ON person BEGIN INSERT INTO log VALUES (new.mail); END;
    CREATE INDEX by_age ON person (age);
"""


def ruled():
    rng = random.Random(1)
    cities = [(f"c{i}", f"land {i % 3}") for i in range(6)]
    people = [
        (
            i,
            f"{i}@x",
            f"c{(c := rng.randrange(6))}",
            rng.randint(18, 60),
            f"zip {c}",
            rng.randint(1, i) if i > 1 else None,
            f"19{60 + i % 40}-01-02",
        )
        for i in range(1, 81)
    ]
    knows = sorted({(rng.randint(1, 80), rng.randint(1, 80)) for _ in range(150)})
    script = RULED + "".join(f"INSERT INTO city VALUES {row!r};" for row in cities)
    script += "".join(
        f"INSERT INTO person (id, mail, city, age, zip, boss, born) VALUES {row!r};".replace("None", "NULL") for row in people
    )
    return from_script(script + "".join(f"INSERT INTO knows VALUES ({a}, {b}, {2000 + a % 9});" for a, b in knows))


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE b (y); CREATE TABLE a (x REFERENCES b)",
        "CREATE TABLE b (y); CREATE TABLE a (x REFERENCES b (no_such))",
        "CREATE TABLE b (y, z AS (y)); CREATE TABLE a (x REFERENCES b (z))",
        "CREATE TABLE b (y PRIMARY KEY); CREATE TABLE a (x, w AS (x) REFERENCES b)",
        "CREATE TABLE b (y PRIMARY KEY, z); CREATE TABLE a (x, w, FOREIGN KEY (x, w) REFERENCES b)",
        "CREATE TABLE b (y PRIMARY KEY, z); CREATE TABLE a (x, w AS (x), FOREIGN KEY (x, w) REFERENCES b (y, z))",
        "CREATE TABLE b (y); CREATE TABLE a (x REFERENCES a)",
        "CREATE TABLE b (y); CREATE VIEW v AS SELECT y FROM b; CREATE TABLE a (x REFERENCES v (y))",
        "CREATE TABLE b (y); CREATE TABLE a (x REFERENCES nowhere (y))",
    ],
)
def test_a_foreign_key_that_points_nowhere_is_no_crash(script):
    connection = sqlite3.connect(":memory:")
    connection.executescript(f"{script}; ALTER TABLE a ADD COLUMN pay INT;")
    connection.executemany("INSERT INTO a (x, pay) VALUES (?, ?)", [(i % 3, i) for i in range(20)])
    connection.execute("INSERT INTO b (y) VALUES (1)")
    connection.commit()
    verifier = sql("sql", database=connection.serialize())
    assert verifier("SELECT x FROM a WHERE pay > 9", sql="SELECT x FROM a WHERE pay >= 10").value == 1.0
    assert verifier("SELECT x FROM a WHERE pay > 8", sql="SELECT x FROM a WHERE pay >= 10").value == 0.0


def test_an_implied_key_is_the_primary_key_in_its_order():
    connection = sqlite3.connect(":memory:")
    connection.executescript("CREATE TABLE b (y, z, PRIMARY KEY (z, y)); CREATE TABLE a (p, q, FOREIGN KEY (p, q) REFERENCES b);")
    connection.executescript("INSERT INTO b VALUES (1, 10), (2, 20), (3, 30), (4, 40); INSERT INTO a VALUES (10, 1), (20, 2), (40, 4);")
    for seed in range(20):
        copy = sqlite3.connect(":memory:")
        copy.deserialize(copy_of(connection.serialize(), seed))
        assert copy.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_keeps_the_rules_and_changes_the_data(seed):
    image = ruled()
    copy = copy_of(image, seed, (("age", "GT", 30), ("city", "EQ", "Rome"), ("mail", "EQ", "nobody@x")))
    assert copy == copy_of.__wrapped__(image, seed, (("age", "GT", 30), ("city", "EQ", "Rome"), ("mail", "EQ", "nobody@x")))
    a, b = private_copy(image), private_copy(copy)
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"
    assert a.execute(schema).fetchall() == b.execute(schema).fetchall()
    assert b.execute("PRAGMA foreign_key_check").fetchall() == []
    assert b.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    one = "SELECT {} FROM person"
    assert b.execute(one.format("count(*) = count(DISTINCT mail) AND count(*) = count(mail) AND count(*) = count(zip)")).fetchone() == (1,)
    assert b.execute("SELECT max(n) FROM (SELECT count(DISTINCT zip) n FROM person GROUP BY city)").fetchone() == (
        1,
    )  # zip follows from city
    assert {row[0] for row in b.execute("SELECT DISTINCT typeof(age) FROM person")} == {"integer"}
    assert b.execute(one.format("count(*)")).fetchone()[0] > 10
    assert (
        a.execute("SELECT city, age FROM person ORDER BY id").fetchall() != b.execute("SELECT city, age FROM person ORDER BY id").fetchall()
    )
    assert a.execute("SELECT count(*) FROM log").fetchone() >= b.execute("SELECT count(*) FROM log").fetchone()


def test_a_copy_has_the_values_a_reference_asks_for_most_of_the_time():
    compared = (("city", "EQ", "Rome"), ("age", "GT", 99), ("id", "EQ", 1000))
    copies = [private_copy(copy_of(ruled(), seed, compared)) for seed in range(8)]
    for query in ("city = 'Rome'", "age = 100", "age = 99", "age = 98", "id = 1000"):
        assert sum(bool(copy.execute(f"SELECT count(*) FROM person WHERE {query}").fetchone()[0]) for copy in copies) >= 4, query


# --- whatever text


_SQL = "SELECT name FROM emp WHERE pay > 20 ( ) , ; * ' -- /* */ UNION ORDER BY LIMIT 1 NULL ``` WITH RECURSIVE x AS"
WORDS = [*re.split(" ", _SQL), '"', "random()", "\0"]
TEXTS = st.text(max_size=60) | st.lists(
    st.sampled_from(WORDS),
    max_size=14,
).map(" ".join)


@settings(max_examples=700 * FUZZ)
@given(TEXTS)
def test_no_text_crashes_the_verifier(text):
    score = SQL(Attempt.of(text), sql="SELECT name FROM emp WHERE pay > 20")
    assert score.status == "scored" and score.value in (0.0, 1.0)
    json.dumps([score.reasons, dict(score.evidence)], ensure_ascii=False, allow_nan=False).encode("utf-8")


@settings(max_examples=700 * FUZZ)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), min_size=1, max_size=4))
def test_no_broken_bytes_of_a_right_answer_crash_the_verifier(edits):
    raw = bytearray(b"SELECT e.name, d.name FROM emp AS e JOIN dept AS d ON d.id = e.dept_id WHERE pay > 20 ORDER BY e.id")
    reference = raw.decode()
    for place, byte in edits:
        raw[place] = byte
    score = SQL(raw.decode("utf-8", "surrogateescape"), sql=reference)
    assert score.status == "scored" and score.value in (0.0, 1.0)
    json.dumps([score.reasons, dict(score.evidence)], ensure_ascii=False, allow_nan=False).encode("utf-8")


# --- real data


chinook = pytest.mark.skipif(not CHINOOK.exists(), reason="no Chinook database here")
advising = pytest.mark.skipif(not ADVISING.exists(), reason="no advising questions here")
SAME_HERE = {  # mutants that are no mistakes, or that no data of these tables could show
    "SELECT g.Name, COUNT(*) FROM Genre AS g JOIN Track AS t ON t.GenreId = g.GenreId GROUP BY g.GenreId HAVING COUNT(*) > 101",
}


@chinook
def test_chinook_references_are_right_and_their_mutants_are_not():
    verifier, survivors, seen = sql(database=CHINOOK, limits=PATIENT), [], set()
    for question, reference in CHINOOK_QUERIES.items():
        score = verifier(reference, sql=reference)
        assert score.value == 1.0 and score.evidence["instances"] == 6, (question, score)
        for what, mutant in mutants(reference):
            seen.add(what)
            if verifier(mutant, sql=reference).value and mutant not in SAME_HERE:
                survivors.append((what, mutant))
    assert not survivors
    assert len(seen) == 9


BROKEN = ("wrong number of arguments", "no such column", "syntax error")  # queries written for another database


@advising
def test_every_advising_reference_finds_rows_but_eight_that_sqlite_refuses():
    connection = sqlite3.connect(":memory:")
    connection.deserialize(advising_database(ADVISING))
    refused, empty = [], []
    for reference in advising_queries(ADVISING):
        try:
            if not any(value is not None for row in connection.execute(reference) for value in row):
                empty.append(reference)
        except sqlite3.Error as error:
            refused.append(str(error))
    assert not empty
    assert len(refused) == 8 and all(any(why in error for why in BROKEN) for error in refused)


@advising
def test_a_sample_of_advising_references_is_right_and_their_mutants_mostly_are_not():
    """Of every twentieth; of all with EARNEST_ALL set, which takes minutes."""
    full, other, bare, poor = (
        advising_database(ADVISING, **options)
        for options in ({}, {"seed": 1}, {"seed": 1, "variants": 0}, {"seed": 1, "variants": 0, "share": 0.02})
    )
    for_rows, for_yes_or_no = (sql(database=full, instances=more, limits=Limits(seconds=2.0)) for more in ([other], [bare, poor]))
    caught = total = 0
    for reference in advising_queries(ADVISING)[:: 1 if os.environ.get("EARNEST_ALL") else 20]:
        verifier = for_yes_or_no if reference.startswith(("SELECT COUNT( * ) > 0", "SELECT COUNT( * ) = 0")) else for_rows
        score = verifier(reference, sql=reference)
        if score.status == "invalid_task":
            assert any(why in score.reasons[0] for why in BROKEN), score
            continue
        assert score.value == 1.0, (score, reference)
        for _, mutant in mutants(reference):
            total += 1
            caught += verifier(mutant, sql=reference).value == 0.0
    assert caught >= 0.7 * total, (caught, total)  # many ask only whether there is any, or for one of few years: little to tell them by


# --- PostgreSQL, where EARNEST_TEST_PG_DSN names a database in which schemas may be made


PG = os.environ.get("EARNEST_TEST_PG_DSN", "")
postgres = pytest.mark.skipif(not PG, reason="EARNEST_TEST_PG_DSN is not set")


@pytest.fixture(scope="module")
def addresses():
    psycopg = pytest.importorskip("psycopg")
    made = []
    with psycopg.connect(PG, autocommit=True) as connection:
        for schema, extra in (("earnest_one", ""), ("earnest_two", "INSERT INTO emp VALUES (9, 'Ida', 1, 99.5, 3, 'late');")):
            connection.execute(
                f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; SET search_path = {schema}; {SHOP} {extra}"
            )
            made.append(f"{PG}{'&' if '?' in PG else '?'}options=-csearch_path%3D{schema}")
        yield made
        for schema in ("earnest_one", "earnest_two"):
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def on_postgres(addresses, answer, reference, **options):
    return sql(database=addresses[0], instances=addresses[1:], **{"limits": PATIENT, **options})(answer, sql=reference)


@postgres
@pytest.mark.parametrize(
    ("reference", "answer", "right"),
    [
        ("SELECT name FROM emp WHERE pay > 20", "SELECT e.name FROM emp e WHERE NOT e.pay <= 20; -- all", 1),
        ("SELECT count(*) FROM emp", "SELECT count(id) FROM emp", 1),
        ("SELECT count(*) FROM emp", "SELECT 8", 0),
        ("SELECT avg(level) FROM emp", "SELECT sum(level)::float8 / count(*) FROM emp", 1),  # numeric and double precision
        ("SELECT name FROM emp ORDER BY pay DESC", "SELECT name FROM emp ORDER BY pay DESC, name DESC", 1),
        ("SELECT name FROM emp ORDER BY pay DESC", "SELECT name FROM emp ORDER BY pay", 0),
        ("SELECT name FROM emp ORDER BY pay DESC LIMIT 1", "SELECT DISTINCT ON (1) first_value(name) OVER (ORDER BY pay DESC) FROM emp", 1),
        ("SELECT pay > 20 FROM emp", "SELECT (pay > 20)::int FROM emp", 0),  # a truth value is no number
        ("SELECT level FROM emp", "SELECT DISTINCT level FROM emp", 0),
        ("SELECT name, note FROM emp", "SELECT name, coalesce(note, '') FROM emp", 0),
    ],
)
def test_postgres_compares_like_sqlite(addresses, reference, answer, right):
    score = on_postgres(addresses, answer, reference)
    assert (score.status, score.value) == ("scored", right), score


@postgres
@pytest.mark.parametrize(
    "answer",
    [
        "DELETE FROM emp",
        "DROP TABLE emp",
        "SELECT 1; DROP TABLE emp",
        "SELECT name FROM emp; COMMIT; DROP TABLE emp",
        "COMMIT",
        "",
        "WITH d AS (DELETE FROM emp RETURNING name) SELECT name FROM d",
        "SELECT name INTO x FROM emp",
        "COPY emp TO '/tmp/x'",
        "SELECT nextval('s')",
        "COPY emp TO PROGRAM 'id'",
        "DO $$ BEGIN END $$",
        "SELECT set_config('statement_timeout', '0', false)",
        "SELECT pg_sleep(60)",
        'SELECT "pg_sleep"(60)',
        "SELECT pg_catalog.pg_sleep(60)",
        'SELECT U&"pg\\005fsleep"(60)',
        "SELECT pg_advisory_lock(1)",
        "SELECT random()",
        "SELECT now()",
        "SELECT CURRENT_DATE",
        "SELECT lo_create(0)",
        "SELECT lo_import('/etc/passwd')",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SELECT query_to_xml('DELETE FROM emp', true, true, '')",
        "SELECT name FROM emp FOR UPDATE",
        "EXPLAIN ANALYZE DELETE FROM emp",
        "PREPARE x AS SELECT 1",
        "SET statement_timeout = 0",
        "LISTEN x",
        "NOTIFY x",
        "LOCK TABLE emp",
        "SHOW server_version",
        "SELECT $1",
        "no",
        "SELECT name FROM emp -- ' \n; DROP TABLE emp",
        "SELECT 'a\0b'",
        "SELECT '\ud800'",
    ],
)
def test_postgres_lets_nothing_be_written_or_waited_for(addresses, answer):
    score = on_postgres(addresses, answer, "SELECT name FROM emp WHERE pay > 20")
    assert (score.status, score.value) == ("scored", 0.0) and score.reasons, score
    assert on_postgres(addresses, "SELECT count(*) FROM emp", "SELECT count(*) FROM emp").value == 1.0


@postgres
def test_postgres_has_limits_of_time_and_rows(addresses):
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT {} FROM c"
    for answer, why in (
        (endless.format("count(*)"), "timeout"),
        ("SELECT a.id FROM emp a, emp b, emp c, emp d, emp e, emp f, emp g, emp h", "row limit"),
    ):
        score = on_postgres(addresses, answer, "SELECT count(*) FROM emp", limits=Limits(seconds=0.5))
        assert score.value == 0.0 and score.reasons[0].startswith(why)


def test_a_server_that_cannot_be_reached_is_no_verdict():
    pytest.importorskip("psycopg")
    nowhere = [f"postgresql://127.0.0.1:1/{name}?connect_timeout=1" for name in "ab"]
    assert on_postgres(nowhere, "SELECT 1", "SELECT 1").status == "infra_error"


@pytest.mark.parametrize(("breaks", "status"), [(1, "rows"), (2, "error"), ("then away", "infra")])
def test_a_connection_that_breaks_is_made_once_more(monkeypatch, breaks, status):
    psycopg = pytest.importorskip("psycopg")
    made = []

    class Connection:
        broken = False

        def cancel(self):
            pass

        close = cancel

    def connect(*args, **options):
        made.append(Connection())
        if breaks == "then away" and len(made) > 1:
            raise psycopg.OperationalError("nobody there")
        return made[-1]

    def ran(connection, statement, limits):
        if breaks == "then away" or len(made) <= breaks:
            connection.broken = True
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return sql_postgres.Answer("rows", ((1,),), ("x",))

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.setattr(sql_postgres, "_run", ran)
    assert sql_postgres.run("postgresql://localhost/x", "SELECT 1").status == status
    assert len(made) == 2
