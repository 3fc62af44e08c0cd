import copy
import gzip
import json
import os
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest import UserError
from earnest.rewards import database
from earnest.rewards.database import UnreadableError, read_database
from earnest.rewards.state import Change, Effect, differences, digest, final_state
from earnest.rewards.verifier import Attempt, as_reward

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SCHEMA = """
CREATE TABLE payments (id INTEGER PRIMARY KEY, customer TEXT, amount REAL, status TEXT, updated_at TEXT);
CREATE TABLE refunds (id INTEGER PRIMARY KEY AUTOINCREMENT, payment INTEGER, amount REAL);
CREATE TABLE log (line TEXT);
CREATE INDEX by_customer ON payments (customer);
INSERT INTO payments VALUES (1, 'ann', 10.0, 'paid', 't0'), (2, 'bob', 20.0, 'paid', 't0');
INSERT INTO log VALUES ('opened');
"""
REFUND = "INSERT INTO refunds (payment, amount) VALUES (1, 10.0); UPDATE payments SET status = 'refunded' WHERE id = 1;"
START = {"payments": [{"id": 1, "amount": 10.0, "status": "paid"}, {"id": 2, "amount": 20.0, "status": "paid"}], "refunds": []}
GOAL = {
    "payments": [{"id": 1, "amount": 10.0, "status": "refunded"}, {"id": 2, "amount": 20.0, "status": "paid"}],
    "refunds": [{"payment": 1, "amount": 10.0}],
}
KEYS = {"payments": ["id"]}


def shop(*scripts):
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    for script in scripts:
        connection.executescript(script)
    return connection


def score(final, text="done", start=START, goal=GOAL, **options):
    verifier = final_state(**({"keys": KEYS} | options))
    return verifier(Attempt.of(text), {"expected": goal, "start": start, "final": final, "outputs": options.get("says") and [10]})


def value(*args, **options):
    said = score(*args, **options)
    assert said.status == "scored", said
    assert (said.value == 1.0) is (said.reasons == ())
    json.dumps(dict(said.evidence))
    return said.value


def sql_value(*scripts, goal=REFUND, **options):
    return value(shop(*scripts), start=shop(), goal=shop(goal), keys={}, **options)


def changed(path, new):
    """The goal with one place changed."""
    state = copy.deepcopy(GOAL)
    *parents, last = path
    place = state
    for step in parents:
        place = place[step]
    if new is None:
        del place[last]
    elif isinstance(place, list):
        place.insert(last, new)
    else:
        place[last] = new
    return state


# the whole difference


def test_the_expected_state_gets_full_marks_whatever_the_order_of_rows_and_keys():
    shuffled = {"refunds": [{"amount": 10, "payment": 1}], "payments": list(reversed(GOAL["payments"]))}
    assert value(GOAL) == value(shuffled) == value(json.dumps(GOAL)) == sql_value(REFUND) == 1.0


@pytest.mark.parametrize(
    "final",
    [
        START, {}, {"payments": GOAL["payments"]}, changed(["payments", 0, "status"], "paid"),
        changed(["payments", 0, "status"], "Refunded"),
        changed(["payments", 1, "status"], "refunded"), changed(["payments", 0, "amount"], "10.0"),
        changed(["payments", 0, "amount"], True),
        changed(["payments", 0, "amount"], 10.01), changed(["payments", 0, "amount"], float("nan")), changed(["payments", 0, "note"], ""),
        changed(["payments", 0, "status"], None), changed(["payments", 1], None), changed(["refunds", 0], None),
        changed(["refunds", 0], {"payment": 1, "amount": 10.0}), changed(["refunds", 0, "payment"], 2), changed(["extra"], []),
        changed(["extra"], [{}]), changed(["payments", 0], {"id": 1, "amount": 10.0, "status": "refunded"}),
        changed(["payments", 0, "id"], 3),
    ],
)  # fmt: skip
def test_any_difference_takes_everything(final):
    assert value(final) == 0.0


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE payments SET amount = 10.01 WHERE id = 1", "UPDATE payments SET amount = '10.0x' WHERE id = 1", "DELETE FROM payments",
        "UPDATE payments SET id = 9 WHERE id = 2", "INSERT INTO log VALUES ('opened')", "DELETE FROM log", "DROP TABLE log",
        "CREATE TABLE done (x)", "CREATE VIEW v AS SELECT 1", "DROP INDEX by_customer", "CREATE INDEX other ON log (line)",
        "CREATE TRIGGER t AFTER DELETE ON log BEGIN DELETE FROM refunds; END", "ALTER TABLE log ADD COLUMN x", "DELETE FROM refunds",
        "UPDATE refunds SET id = 2", "INSERT INTO refunds (payment, amount) VALUES (1, 10.0)", "UPDATE payments SET customer = NULL",
        "ALTER TABLE log RENAME TO log2", "UPDATE log SET line = x'6f70656e6564'", "PRAGMA writable_schema=ON; DELETE FROM sqlite_schema",
    ],
)  # fmt: skip
def test_any_difference_of_an_sqlite_database_takes_everything(spoil):  # state.delete_tickets, state.touch_marker
    assert sql_value(REFUND, spoil) == 0.0


def test_going_to_and_fro_is_no_difference():  # state.oscillate
    assert sql_value(REFUND, "INSERT INTO log VALUES ('x'); DELETE FROM log WHERE line = 'x'") == 1.0
    assert sql_value(*[f"UPDATE payments SET status = '{status}' WHERE id = 1" for status in ("a", "b", "a")], REFUND) == 1.0


def test_doing_nothing_earns_nothing():  # state.noop
    assert value(START) == sql_value() == 0.0
    assert value(START, partial=True) == sql_value(partial=True) == 0.0


def test_each_change_is_named():
    said = score(changed(["payments", 1, "status"], "refunded"))
    assert said.evidence["changes"] == ["changed payments.status 2"] and said.reasons == ("differs from the goal: changed payments.status",)
    assert [str(c) for c in differences(read_database(START), read_database(GOAL))] == [
        "removed payments {'id': 1, 'amount': 10.0, 'status': 'paid'}",
        "added payments {'id': 1, 'amount': 10.0, 'status': 'refunded'}",
        "added refunds {'payment': 1, 'amount': 10.0}",
    ]
    assert differences(read_database(shop()), read_database(shop(REFUND))) == [
        Change("changed", "payments", "1", "status"),
        Change("added", "refunds", "1"),
    ]


# what may differ


@pytest.mark.parametrize(
    ("may_differ", "script", "expected"),
    [
        (["payments.updated_at"], "UPDATE payments SET updated_at = 't1'", 1.0),
        (["*.updated_at"], "UPDATE payments SET updated_at = NULL", 1.0),
        (["payments.updated_at"], "UPDATE payments SET updated_at = 't1', amount = 0", 0.0),
        (["payments.updated_at"], "DELETE FROM payments WHERE id = 2", 0.0),
        (["refunds.id"], "UPDATE refunds SET id = 17", 1.0),
        (["refunds.id"], "UPDATE refunds SET id = 17, amount = 11", 0.0),
        (["refunds.id"], "INSERT INTO refunds (payment, amount) VALUES (1, 10.0)", 0.0),
        (["log"], "DELETE FROM log", 1.0),
        (["log"], "DROP TABLE log", 1.0),
        (["log"], "UPDATE payments SET status = 'log'", 0.0),
        (["audit"], "CREATE TABLE audit (x)", 1.0),
        (["lo"], "DELETE FROM log", 0.0),
        (["sqlite_schema"], "CREATE VIEW v AS SELECT 1", 1.0),
        (["sqlite_schema"], "CREATE TABLE t (x)", 0.0),
    ],
)
def test_only_what_the_list_names_may_differ(may_differ, script, expected):
    assert sql_value(REFUND, script, may_differ=may_differ) == expected


@pytest.mark.parametrize(
    ("tolerance", "amount", "expected"),
    [
        (0.0, 10.0, 1.0), (0.01, 10.005, 1.0), (0.01, 10.02, 0.0), ({"payments.amount": 0.01, "refunds.amount": 0.01}, 10.005, 1.0),
        ({"payments.amount": 0.01}, 10.005, 0.0), (0.01, float("nan"), 0.0), (0.01, float("inf"), 0.0), (0.01, True, 0.0),
        (0.01, "10", 0.0),
        (0.01, 10**400, 0.0), (5.0, True, 0.0), (0.01, None, 0.0),
    ],
)  # fmt: skip
def test_numbers_are_equal_within_the_tolerance_of_their_column(tolerance, amount, expected):
    final = copy.deepcopy(GOAL)
    final["payments"][0]["amount"] = final["refunds"][0]["amount"] = amount
    assert value(final, tolerance=tolerance) == expected


def test_rows_without_a_key_are_paired_one_to_one_within_the_tolerance():
    goal = {"t": [{"x": 1.0}, {"x": 1.4}]}
    for rows, expected in (
        ([1.4, 0.9], 1.0),
        ([1.2, 1.0], 1.0),
        ([1.2, 1.2], 1.0),
        ([1.2, 1.6], 1.0),
        ([1.6, 1.6], 0.0),
        ([1.0, 1.0], 0.0),
    ):
        assert value({"t": [{"x": x} for x in rows]}, start={"t": []}, goal=goal, tolerance=0.25) == expected


@pytest.mark.parametrize(
    ("forbidden", "script"),
    [
        (Effect("removed", "log"), "DELETE FROM log"),
        (Effect("changed", "payments", "customer"), "UPDATE payments SET customer = 'eve'"),
        (Effect("added", "log"), "INSERT INTO log VALUES ('x')"),
        (Effect("removed"), "DELETE FROM payments WHERE id = 2"),
        (Effect("added", "sqlite_schema"), "CREATE TRIGGER t AFTER DELETE ON log BEGIN SELECT 1; END"),
    ],
)
def test_a_forbidden_effect_takes_everything_also_where_much_may_differ(forbidden, script):
    free = {"may_differ": ["log", "payments", "sqlite_schema"], "partial": True}
    assert sql_value(REFUND, script, **free) == 1.0
    said = score(shop(REFUND, script), start=shop(), goal=shop(REFUND), forbidden=[forbidden], **free)
    assert said.value == 0.0 and said.reasons[0] == f"forbidden: {forbidden}"


def test_a_goal_with_a_forbidden_effect_is_an_invalid_task():  # S-TE-05
    assert score(GOAL, forbidden=[Effect("added", "refunds")]).status == "invalid_task"


# parts


@pytest.mark.parametrize(
    ("scripts", "expected"),
    [
        ([], 0.0),
        ([REFUND], 1.0),
        ([REFUND.split(";")[0]], 0.5),
        ([REFUND.split(";")[1]], 0.5),
        ([REFUND, "UPDATE payments SET amount = 0 WHERE id = 2"], 0.5),
        ([REFUND, "DELETE FROM payments"], 0.0),
        (["UPDATE payments SET amount = 0 WHERE id = 2"], 0.0),
    ],
)
def test_a_part_earns_what_was_done_less_what_was_spoilt(scripts, expected):
    assert sql_value(*scripts, partial=True) == expected
    assert sql_value(*scripts) == (1.0 if expected == 1.0 else 0.0)


# rows that cannot be verified, states that cannot be read


def test_a_goal_that_holds_at_the_start_is_an_invalid_task():  # state.noop
    for final in (START, GOAL, {}):
        assert score(final, goal=START).status == "invalid_task"
    assert (
        score(shop(), start=shop("UPDATE payments SET updated_at = 't1'"), goal=shop(), may_differ=["*.updated_at"]).status
        == "invalid_task"
    )


@pytest.mark.parametrize(("final", "text", "expected"), [(START, "That is not refundable.", 1.0), (START, " ", 0.0), (GOAL, "Done.", 0.0)])
def test_where_nothing_is_to_be_done_an_answer_is_needed(final, text, expected):
    assert value(final, text, goal=START, unchanged=True) == expected


@pytest.mark.parametrize("goal", [3, [], "no/such/file.db", {"payments": 3}, '{"payments": ', '{"a": [], "a": []}', None])
def test_an_expected_state_that_cannot_be_read_is_an_invalid_task(goal):
    assert score(GOAL, goal=goal).status == "invalid_task"


def test_a_row_without_a_start_or_a_final_state_is_invalid():
    assert final_state()(Attempt.of(""), {"expected": GOAL, "final": GOAL}).status == "invalid_task"
    assert final_state()(Attempt.of(""), {"expected": GOAL, "start": START}).status == "invalid_task"
    assert final_state(start=None)(Attempt.of(""), {"expected": GOAL, "final": GOAL}).value == 1.0


def test_a_state_that_the_environment_did_not_keep_is_no_verdict():
    closed = shop(REFUND)
    closed.close()
    assert score(None).status == "infra_error"
    assert score(closed, start=shop(), goal=shop(REFUND)).status == "infra_error"


@pytest.mark.parametrize("final", [3, [], "no/such/file.db", {"payments": 3}, "{", b"", '{"payments": NaN}'])
def test_a_final_state_that_cannot_be_read_earns_nothing(final):
    assert value(final) == 0.0


def test_a_file_that_is_no_database_or_was_damaged_earns_nothing(tmp_path):
    path = tmp_path / "shop.db"
    file = sqlite3.connect(path)
    file.execute("PRAGMA synchronous=OFF")
    shop(REFUND).backup(file)
    file.close()
    options = {"start": shop(), "goal": shop(REFUND)}
    assert value(path, **options) == value(str(path), **options) == 1.0
    honest, dice = path.read_bytes(), random.Random(0)
    for _ in range(100 * FUZZ):
        data = bytearray(honest)
        for _ in range(dice.randint(1, 30)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data[: dice.choice([len(data), dice.randrange(len(data))])])
        assert value(path, **options) in (0.0, 1.0)
    path.write_bytes(b"SQLite format 3\0 and nothing more")
    assert value(path, **options) == 0.0


def test_a_database_too_large_to_read_earns_nothing(monkeypatch):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) INSERT INTO log SELECT {} FROM n"
    monkeypatch.setattr(database._Budget.__init__, "__defaults__", (1_000, 100_000, *database._Budget.__init__.__defaults__[2:]))
    assert sql_value(REFUND, numbers.format(900, "i"), may_differ=["log"]) == 1.0
    assert sql_value(REFUND, numbers.format(1_100, "i"), may_differ=["log"]) == 0.0
    assert sql_value(REFUND, numbers.format(100, "hex(zeroblob(1000))"), may_differ=["log"]) == 0.0
    assert sql_value(REFUND, "INSERT INTO log VALUES (zeroblob(3000000))", may_differ=["log"]) == 0.0


def test_a_computed_column_is_never_computed():
    slow = "ALTER TABLE log ADD COLUMN slow AS (hex(zeroblob(900000)) GLOB '*0*0*0*0*0*0*0*0*1')"
    assert sql_value(REFUND, slow, may_differ=["log"]) == 1.0


def test_the_environments_connection_is_left_as_it_was():
    connection = shop(REFUND)
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    limit = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    assert value(connection, start=shop(), goal=shop(REFUND), keys={}) == 1.0
    assert (connection.row_factory, connection.text_factory) == (sqlite3.Row, bytes)
    assert connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) == limit
    connection.execute("SELECT * FROM payments").fetchone()["customer"]


SHADOW = "CREATE TEMP VIEW payments AS SELECT id, customer, amount, iif(id = 1, 'refunded', status) status, updated_at FROM main.payments;"
TEMP_REFUNDS = "CREATE TEMP TABLE refunds (id INTEGER PRIMARY KEY, payment, amount); INSERT INTO temp.refunds VALUES (1, 1, 10.0);"


@pytest.mark.parametrize(
    "script",
    [
        SHADOW + TEMP_REFUNDS,
        SHADOW + "INSERT INTO refunds (payment, amount) VALUES (1, 10.0)",
        "UPDATE payments SET status = 'refunded' WHERE id = 1;" + TEMP_REFUNDS,
        "ATTACH ':memory:' AS other; CREATE TABLE other.refunds (id, payment, amount); INSERT INTO other.refunds VALUES (1, 1, 10.0);"
        + SHADOW,
    ],
)
def test_what_is_temporary_is_no_part_of_the_state(script):
    assert sql_value(script) == 0.0


def test_what_is_temporary_spoils_nothing():
    assert sql_value(REFUND, "CREATE TEMP TABLE payments (x); CREATE TEMP TABLE notes (x)") == 1.0
    assert digest(shop("CREATE TEMP TABLE log (line)")) == digest(shop())


def test_a_temporary_copy_hides_no_forbidden_removal():
    hidden = "CREATE TEMP TABLE log AS SELECT * FROM main.log; DELETE FROM main.log;"
    said = score(shop(hidden, REFUND), start=shop(), goal=shop(REFUND), keys={}, forbidden=[Effect("removed", "log")], may_differ=["log"])
    assert said.value == 0.0 and said.reasons == ("forbidden: removed log",)


@pytest.mark.parametrize("table", ["payments", "log"])
def test_a_view_without_end_is_never_asked(table):
    endless = f"CREATE TEMP VIEW {table} AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r WHERE x < 0"
    assert sql_value(REFUND, endless) == 1.0


def test_a_statement_that_takes_too_long_is_broken_off(monkeypatch):
    monkeypatch.setattr(database, "MOST_SECONDS", -1.0)  # over before it began
    monkeypatch.setattr(database, "STEPS", 10)
    rows = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 5000) INSERT INTO log SELECT x FROM r"
    connection = shop(rows)
    with pytest.raises(UnreadableError, match="takes more than"):
        read_database(connection)
    assert connection.execute("SELECT count(*) FROM log").fetchone() == (5001,), "and the connection works as before"


def test_a_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA)
        first = read_database(path)
        assert read_database(str(path)) is first
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO log VALUES ('later')")
        connection.commit()
        assert len(read_database(path).tables["log"].rows) == 2
    text = json.dumps(GOAL)
    assert read_database(text) is read_database(text) and read_database(text) == read_database(GOAL)


def test_uncommitted_changes_count_in_a_connection_and_not_in_a_file(tmp_path):
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA synchronous=OFF;" + SCHEMA)
    connection.execute("BEGIN")
    for statement in REFUND.split(";")[:2]:
        connection.execute(statement)
    options = {"start": shop(), "goal": shop(REFUND)}
    assert value(connection, **options) == 1.0 and value(path, **options) == 0.0
    connection.execute("COMMIT")
    assert value(path, **options) == 1.0


def test_deep_nesting_is_a_score():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert value({"payments": [{"id": 1, "x": deep}]}) == 0.0


def test_tables_may_be_objects_by_key():
    start, goal = {"orders": {"o1": {"status": "open"}, "o2": {"status": "open"}}, "config": {"dark": False}}, None
    goal = {"orders": {"o1": {"status": "closed"}, "o2": {"status": "open"}}, "config": {"dark": False}}
    assert value(goal, start=start, goal=goal) == 1.0
    for spoilt in (
        {**goal, "config": {"dark": 0}},
        {**goal, "orders": {"o1": {"status": "closed"}}},
        {**goal, "orders": list(goal["orders"].values())},
    ):
        assert value(spoilt, start=start, goal=goal) == 0.0
    assert differences(read_database(start), read_database(goal)) == [Change("changed", "orders", "o1", "status")]


def test_sqlite_keeps_booleans_as_numbers_and_json_does_not():
    goal, start = {"t": [{"on": True}]}, {"t": []}
    connection = sqlite3.connect(":memory:")
    connection.executescript('CREATE TABLE t ("on"); INSERT INTO t VALUES (1)')
    assert value(connection, start=start, goal=goal) == 1.0
    assert value({"t": [{"on": 1}]}, start=start, goal=goal) == 0.0


def test_names_that_need_quoting_are_read():
    connection = sqlite3.connect(":memory:")
    connection.executescript('CREATE TABLE "a ""b"";--" ("x y" PRIMARY KEY, "select", "é"); INSERT INTO "a ""b"";--" VALUES (1, 2, 3)')
    table = read_database(connection).tables['a "b";--']
    assert table.rows == ({"x y": 1, "select": 2, "é": 3},) and table.key == ("x y",)


def test_text_that_is_no_unicode_is_a_difference_and_no_crash():
    assert sql_value(REFUND, "UPDATE payments SET customer = CAST(x'ff61' AS TEXT) WHERE id = 1") == 0.0


# answers


@pytest.mark.parametrize(
    ("final", "text", "expected"),
    [
        (GOAL, "You get 10 back.", 1.0), (GOAL, "You get $10.00 back.", 1.0), (START, "Call me at 10", 0.0),
        (GOAL, "You get 2100 back.", 0.0),
        (GOAL, "Done.", 0.0), (GOAL, "", 0.0), (GOAL, "10.5", 0.0), (GOAL, "at 10:30", 0.0),
    ],
)  # fmt: skip
def test_state_and_answer_must_both_hold(final, text, expected):  # S-TE-03
    assert value(final, text, says="outputs") == expected


@pytest.mark.parametrize(
    ("wanted", "text", "expected"),
    [
        ([10], " ".join(map(str, range(1000))), 0.0),
        ([10], "It is one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10.", 0.0),
        ([10], "$1.00 $2.00 $3.00 $4.00 $5.00 $6.00 $7.00 $8.00 $9.00 $10.00", 0.0),
        ([10, 20], "Payments 1 and 2: 10 and 20 of 30, so 0 is left. Ask again in 5 days.", 1.0),
        ([10], "10 back, 10 once more: 10, 10, 10, 10, 10, 10, 10, 10, 10 are the same.", 1.0),
        (["A-17"], " ".join(f"A-{n}" for n in range(30)), 0.0),
        (["A-17"], " ".join(f"{letter}-17" for letter in "ABCDEFGHIJKL"), 0.0),
        (["#W17a"], " ".join(f"#w{n}a" for n in range(30)), 0.0),
        (["16-17"], "-".join(map(str, range(10, 30))), 0.0),
        (["A-17"], "Order A-17 was refunded; A-18 was not.", 1.0),
        (["Bern"], "It goes to Bern.", 1.0),
    ],
)
def test_a_list_of_guesses_says_nothing(wanted, text, expected):
    row = {"expected": GOAL, "start": START, "final": GOAL, "outputs": wanted}
    assert final_state(keys=KEYS, says="outputs")(Attempt.of(text), row).value == expected
    assert final_state(keys=KEYS, says="outputs", most_besides=10**6)(Attempt.of(text), row).value == 1.0


# environments


def test_the_final_state_may_come_from_a_function():
    verifier = final_state(
        final=lambda attempt, row: json.loads(attempt.messages[0]["content"]), start=lambda attempt, row: START, keys=KEYS
    )
    attempt = Attempt(({"role": "tool", "content": json.dumps(GOAL)}, {"role": "assistant", "content": "ok"}))
    assert verifier(attempt, expected=GOAL).value == 1.0 and verifier.columns == ("expected",)


def test_the_digest_tells_whether_the_environment_was_reset():  # S-TE-02
    assert digest(shop()) == digest(shop()) != digest(shop(REFUND))
    assert digest({"cart": []}) != digest({"cart": [{"item": 1}]}) != digest({"cart": [{"item": "1"}]})
    assert digest({"a": [{"x": 1}, {"y": 2}]}) == digest({"a": [{"y": 2}, {"x": 1.0}]})
    assert digest({"a": [], "b": []}) != digest({"a": []})
    with pytest.raises(UnreadableError):
        digest(3)


def test_what_needs_a_start_says_so():
    for options in ({"partial": True}, {"forbidden": [Effect("removed")]}):
        with pytest.raises(UserError, match="start="):
            final_state(start=None, **options)


def test_it_is_a_reward_function():
    values = as_reward(final_state(keys=KEYS))(completions=["a", "b"], expected=[GOAL] * 2, start=[START] * 2, final=[GOAL, START])
    assert values == [1.0, 0.0]


# against something slow and obvious


CELLS = st.none() | st.integers(0, 2) | st.booleans() | st.sampled_from(["a", "1", 1.0, 0.5])
ROWS = st.lists(st.fixed_dictionaries({"x": CELLS}, optional={"y": CELLS}), max_size=4)


def slow_equal(one, other):
    """Rows taken away one by one; types kept apart except for numbers."""
    left = [json.dumps(row, sort_keys=True).replace("1.0", "1") for row in other]
    for row in one:
        text = json.dumps(row, sort_keys=True).replace("1.0", "1")
        if text not in left:
            return False
        left.remove(text)
    return not left


@settings(max_examples=200 * FUZZ)
@given(ROWS, ROWS)
def test_bags_are_equal_when_rows_can_be_taken_away_one_by_one(one, other):
    found = differences(read_database({"t": one}), read_database({"t": other}))
    assert (not found) is slow_equal(one, other)
    assert sum(c.kind == "added" for c in found) - sum(c.kind == "removed" for c in found) == len(other) - len(one)


@settings(max_examples=150 * FUZZ)
@given(st.dictionaries(st.integers(0, 5), CELLS, max_size=4), st.dictionaries(st.integers(0, 5), CELLS, max_size=4))
def test_by_key_the_difference_is_what_has_to_be_changed(one, other):
    sides = [{"t": {str(key): {"x": cell} for key, cell in side.items()}} for side in (one, other)]
    found = differences(*map(read_database, sides))
    mended = {str(key): cell for key, cell in one.items()}
    for change in found:
        mended.pop(change.row, None)
        if change.kind != "removed":
            mended[change.row] = other[int(change.row)]
    assert slow_equal([{"k": k, "x": v} for k, v in mended.items()], [{"k": str(k), "x": v} for k, v in other.items()])
    same = sum(key in other and slow_equal([{"x": one[key]}], [{"x": other[key]}]) for key in one)
    assert len(found) == len({*one, *other}) - same, "and nothing else is named"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["payments", "refunds", "id", "x"]), v, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200 * FUZZ)
@given(JUNK)
def test_no_final_state_crashes(final):
    said = score(final, tolerance=0.1, partial=True, forbidden=[Effect("changed", "payments", "amount")])
    assert said.status == ("infra_error" if final is None else "scored") and (final is None or 0.0 <= said.value < 1.0)
    json.dumps(dict(said.evidence))


# real databases


def test_chinook_equals_itself_and_no_change_of_it_passes(tmp_path):
    source = SHARED / "chinook" / "Chinook_Sqlite.sqlite"
    if not source.is_file():
        pytest.skip("no Chinook here")
    path = tmp_path / "chinook.db"
    path.write_bytes(source.read_bytes())
    start = read_database(str(source))
    assert sum(len(table.rows) for table in start.tables.values()) > 10_000 and differences(start, read_database(path)) == []
    connection = sqlite3.connect(path)
    for statement, change in (
        ("UPDATE Invoice SET Total = Total + 0.01 WHERE InvoiceId = 7", Change("changed", "Invoice", "7", "Total")),
        ("DELETE FROM PlaylistTrack WHERE PlaylistId = 1 AND TrackId = 3402", Change("removed", "PlaylistTrack", "1, 3402")),
        ("INSERT INTO Genre VALUES (99, 'Fado')", Change("added", "Genre", "99")),
    ):
        connection.execute(statement)
        assert differences(start, read_database(connection)) == [change]
        connection.rollback()


def test_an_order_of_the_retail_shop_is_one_change():
    source = SHARED / "tau2_bench" / "retail" / "db.json.gz"
    if not source.is_file():
        pytest.skip("no tau2 here")
    with gzip.open(source, "rt") as lines:
        start = json.load(lines)
    goal = copy.deepcopy(start)
    order = next(key for key, order in goal["orders"].items() if order["status"] == "pending")
    goal["orders"][order]["status"] = "cancelled"
    other = next(key for key in goal["orders"] if key != order)
    spoilt = copy.deepcopy(goal)
    spoilt["orders"][other]["items"] = spoilt["orders"][other]["items"][1:]
    assert differences(read_database(start), read_database(goal)) == [Change("changed", "orders", order, "status")]
    assert (value(goal, start=start, goal=goal), value(start, start=start, goal=goal), value(spoilt, start=start, goal=goal)) == (
        1.0,
        0.0,
        0.0,
    )
