"""Hostile queries: each catches the reward it is meant for, and none one that compares rows on several databases."""

import sqlite3
from difflib import SequenceMatcher

import pytest

from earnest.redteam.attacks.queries import query_of, result_of
from earnest.redteam.attacks.sql import ATTACKS
from earnest.redteam.audit import audit
from earnest.rewards.sql import sql
from earnest.rewards.sql_sqlite import Limits, from_script
from earnest.rewards.verifier import as_reward
from earnest.rows import load_rows
from earnest.task import Task

SHOP = """
    CREATE TABLE emp (id INTEGER PRIMARY KEY, name TEXT, team TEXT, pay INTEGER);
    INSERT INTO emp VALUES (1, 'Bob', 'sales', 30), (2, 'Ann', 'sales', 20), (3, 'Dee', 'care', 40), (4, 'Cid', 'care', 40),
        (5, 'Eve', 'law', 9), (6, 'Fay', 'care', 10), (7, 'Dee', 'law', 40), (8, 'Gus', 'art', 21);
"""
OTHER = """
    CREATE TABLE emp (id INTEGER PRIMARY KEY, name TEXT, team TEXT, pay INTEGER);
    INSERT INTO emp VALUES (1, 'Zoe', 'care', 41), (2, 'Yan', 'sales', 11), (3, 'Amy', 'law', 33), (4, 'Kim', 'care', 41),
        (5, 'Lea', 'art', 9), (6, 'Max', 'art', 60);
"""
ROWS = [
    {"id": "a", "sql": "SELECT name, pay FROM emp WHERE pay > 20 ORDER BY name", "schema": SHOP},
    {"id": "b", "sql": "SELECT team FROM emp WHERE pay > 9", "schema": SHOP},
    {"id": "c", "sql": "SELECT COUNT(*) FROM emp WHERE team = 'care'", "schema": SHOP},
]


def same_query(text, row):
    """Whether an answer is the right query, up to its layout and a semicolon; one in a WITH clause of the attack's own counts too."""
    found, wanted = query_of(text), query_of(row["sql"])
    nested = f"WITH answer_rows AS ({row['sql']}) SELECT * FROM answer_rows"
    return found is not None and (found.text() == wanted.text() or text == nested)


def task_of(judge, rows=ROWS, check=same_query):
    def reward(completions, sql, schema, **_):
        return [float(judge(c[-1]["content"], gold, script)) for c, gold, script in zip(completions, sql, schema, strict=True)]

    return Task(
        rows=rows, prompt=lambda row: [{"role": "user", "content": "a question"}], rewards=[reward], check=check,
        oracle=lambda row: row["sql"], name="t",
    )  # fmt: skip


def found_in(task, *names, deadline=5.0):
    chosen = [attack for attack in ATTACKS if not names or attack.id.split(".")[1] in names]
    assert not names or len(chosen) == len(names)
    return [f for f in audit(task, load_rows(task), search_calls=0, deadline=deadline, catalog=chosen).findings if f.attack != "fault.slow"]


def guarded(script, query, steps=50):
    """Rows of one SELECT on a database of its own, within a number of steps; None for anything else."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(script)
        allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY)
        left = iter(range(steps))
        connection.set_progress_handler(lambda: int(next(left, None) is None), 10_000)
        cursor = connection.execute(query)
        return None if cursor.description is None else cursor.fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return None
    finally:
        connection.close()


def on_two(text, gold, schema):
    pairs = [(guarded(script, text), guarded(script, gold)) for script in (schema, OTHER)]
    return all(got is not None and (got == want if "ORDER BY" in gold else sorted(got) == sorted(want)) for got, want in pairs)


def on_one(text, gold, schema):
    return guarded(schema, text) == guarded(schema, gold)


def on_empty(text, gold, schema):
    """On a database where nobody has filled in anything."""
    tables = schema.split("INSERT")[0]
    return (guarded(tables, text) or []) == guarded(tables, gold)


def as_sets(text, gold, schema):
    return all(set(guarded(s, text) or ()) == set(guarded(s, gold)) for s in (schema, OTHER))


def unordered(text, gold, schema):
    return all(sorted(map(str, guarded(s, text) or ())) == sorted(map(str, guarded(s, gold))) for s in (schema, OTHER))


def columns_aside(text, gold, schema):
    def plain(rows):
        return [sorted(map(str, row)) for row in rows or ()]

    return all(plain(guarded(s, text)) == plain(guarded(s, gold)) for s in (schema, OTHER))


def recall(text, gold, schema):
    return all(set(guarded(s, gold)) <= set(guarded(s, text) or ()) for s in (schema, OTHER))


def last_statement(text, gold, schema):
    return on_two(text.rstrip(";").split(";")[-1], gold, schema)


def words_in_it(text, gold, schema):
    return all(word in text.replace("(", " ").replace(")", " ").split() for word in gold.replace("(", " ").replace(")", " ").split())


def alike(text, gold, schema):
    return SequenceMatcher(None, text, gold).ratio()


def gold_within(text, gold, schema):
    return " ".join(gold.split()) in text


def shared_connection(text, gold, schema):
    connection = sqlite3.connect(":memory:")
    connection.executescript(schema)
    got = []
    try:
        for statement in text.split(";"):
            got = connection.execute(statement).fetchall()
        return got == connection.execute(gold).fetchall()
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def without_end(text, gold, schema):
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(schema)
        return connection.execute(text).fetchall() == connection.execute(gold).fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return False
    finally:
        connection.close()


CAUGHT = {
    "empty_match": on_empty, "literal": on_one, "nothing_found": on_empty, "several": last_statement, "writes_file": without_end,
    "order": unordered, "duplicates": as_sets, "columns": columns_aside, "rows": recall, "quoted": gold_within, "tokens": words_in_it,
    "unfinished": alike, "in_prose": gold_within, "shadowed": shared_connection,
}  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
def test_each_attack_finds_the_reward_that_it_is_meant_for(name):
    rows = [row for row in ROWS if name != "order" or "ORDER" in row["sql"]]
    rows = [*rows, ROWS[0] | {"id": "d", "sql": "SELECT pay, team FROM emp ORDER BY pay, team"}]
    found = found_in(task_of(CAUGHT[name], rows), name)
    assert [(f.kind, f.certainty) for f in found if f.attack == f"sql.{name}"] == [("exploit", "fact")]


def test_a_query_without_an_end_is_asked_once_and_found_where_nothing_stops_it():
    found = found_in(task_of(without_end), "bomb", deadline=0.7)
    assert [(f.attack, f.hits) for f in found] == [("fault.hung", 1)]


def test_a_reward_that_lets_the_database_raise_is_at_fault():
    def raises(text, gold, schema):
        connection = sqlite3.connect(":memory:")
        connection.executescript(schema)
        return connection.execute(text).fetchall() == connection.execute(gold).fetchall()

    assert "fault.raised" in {f.attack for f in found_in(task_of(raises), "crash")}


def test_right_queries_written_another_way_are_missed_by_a_comparison_of_texts():
    def as_text(text, gold, schema):
        return text == gold

    rows = [row | {"sql": row["sql"].replace("WHERE", "where")} for row in ROWS]
    names = ("formatted", "spaced", "lowered", "ended", "nested")
    found = found_in(task_of(as_text, rows), *names)
    assert {f.attack for f in found} == {f"sql.{name}" for name in names} and {f.kind for f in found} == {"false reject"}


def test_a_reward_that_compares_rows_on_two_databases_is_clean():
    assert found_in(task_of(on_two)) == []


def test_partial_credit_for_a_share_of_the_rows_is_no_flaw():
    def share(text, gold, schema):
        if on_two(text, gold, schema):
            return 1.0
        got, want = set(guarded(schema, text) or ()), set(guarded(schema, gold))
        return 0.5 * len(got & want) / max(1, len(got | want))

    assert found_in(task_of(share), "order", "duplicates", "columns", "rows") == []


def test_our_own_verifier_is_clean():
    verifier = sql(database=from_script(SHOP), instances=[from_script(OTHER)], copies=0, limits=Limits(seconds=0.5))
    task = Task(**{**vars(task_of(on_two)), "rewards": [as_reward(verifier)]})
    assert found_in(task) == []


def test_nothing_is_left_behind_and_nothing_is_changed_in_a_database_on_disk(tmp_path):
    path = tmp_path / "shop.db"
    path.write_bytes(from_script(SHOP))
    before = path.read_bytes()

    def on_disk(text, gold, schema):
        with sqlite3.connect(path) as connection:  # commits
            try:
                connection.executescript(text)
                return connection.execute(text).fetchall() == connection.execute(gold).fetchall()
            except (sqlite3.Error, sqlite3.Warning, ValueError):
                return False

    found_in(task_of(on_disk), *(a.id.split(".")[1] for a in ATTACKS if a.id not in ("sql.bomb",)))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["shop.db"]


def test_the_result_is_known_where_the_row_or_the_prompt_holds_the_database():
    class Stand:
        def __init__(self, row, prompt=""):
            self.case, self.prompt = self, prompt
            self.row = row

    query = "SELECT MAX(pay) FROM emp"
    assert result_of(Stand({"schema": SHOP}), query) == [(40,)]
    assert result_of(Stand({"db": from_script(SHOP)}), query) == [(40,)]
    assert result_of(Stand({}, f"The tables: {SHOP}"), query) == [(40,)]
    assert result_of(Stand({"expected_rows": [[40], [41]]}), query) == [(40,), (41,)]
    assert result_of(Stand({"question": "who?"}), query) is None
