import ast
import contextlib
import difflib
import json
import sqlite3
from random import Random

import pytest

from earnest.evidence import cases_of
from earnest.redteam.ask import Asker
from earnest.redteam.attack import Attack, Try
from earnest.redteam.audit import ground_of
from earnest.redteam.findings import Outcome, finding
from earnest.redteam.minimise import smallest
from earnest.redteam.mutate import changes_for, starts
from earnest.redteam.mutate_data import leaves, put, turns_of
from earnest.redteam.search import grown, search
from earnest.redteam.targets import targets_of
from earnest.redteam.worth import blank, hole, keeps_nothing, same
from earnest.rewards.calls import as_messages
from earnest.rewards.json import parse_strict
from earnest.rows import load_rows
from earnest.task import Task

COLOURS = ("amber", "crimson", "teal", "violet")
LABELS = [{"id": f"c{i}", "item": f"item {i}", "label": COLOURS[i % 4]} for i in range(8)]
NUMBERS = [{"id": f"n{i}", "sum": f"{i} and some", "answer": str(value)} for i, value in enumerate((42, 391, 7, 1250, 88, 613))]
ORDERS = [
    {"id": f"o{i}", "note": f"note {i}", "kind": kind, "urgent": urgent, "place": place}
    for i, (kind, urgent, place) in enumerate(
        [("refund", True, "Ghent"), ("repair", False, "Lyon"), ("question", False, "Porto"), ("refund", False, "Turin")]
    )
]
TRIPS = [{"id": f"t{i}", "order": f"A{i}", "payment": f"p{i}"} for i in range(4)]
TEXTS = [
    {"id": "x0", "ask": "why?", "answer": "the pump lost its pressure because a seal had worn out"},
    {"id": "x1", "ask": "how?", "answer": "she opened the valve by hand and closed it again at noon"},
    {"id": "x2", "ask": "when?", "answer": "nobody saw the leak until the night shift came in on Friday"},
]


def text_of(completion):
    return str(completion[-1].get("content") or "")


def rewards(judge, *columns):
    """A reward function from a judgement of a text and a row."""

    def reward(completions, **rows):
        count = len(completions)
        return [
            float(judge(text_of(c), {k: v[i] for k, v in rows.items() if isinstance(v, list) and len(v) == count}))
            for i, c in enumerate(completions)
        ]

    return reward


def task(rows, reward, check, oracle, shown="item", system="Answer in the form."):
    def prompt(row):
        return [{"role": "system", "content": system}, {"role": "user", "content": str(row.get(shown))}]

    return Task(rows=rows, prompt=prompt, rewards=reward if isinstance(reward, list) else [reward], check=check, oracle=oracle, name="t")


@contextlib.contextmanager
def grounded(a_task, tmp_path, deadline=3.0):
    cases = cases_of(a_task, load_rows(a_task))
    with Asker(a_task, cases, deadline) as asker:
        yield ground_of(targets_of(a_task, cases, range(len(cases)), asker, tmp_path), asker), asker


def searched(a_task, tmp_path, calls=1500, seed=0, found=(), deadline=3.0):
    with grounded(a_task, tmp_path, deadline) as (ground, asker):
        return search(ground, asker, calls, seed, list(found))


def exploits(found):
    return [f for f in found if f.kind == "exploit"]


def labels(judge):
    return task(
        LABELS, rewards(judge), lambda text, row: text == row["label"], lambda row: row["label"], system="One of " + ", ".join(COLOURS)
    )


# labels and numbers


def test_a_label_looked_for_anywhere_in_the_text_is_found_out_and_the_example_is_small(tmp_path):
    found = exploits(searched(labels(lambda text, row: row["label"] in text), tmp_path))
    assert found and all(f.earned == 1.0 and f.right == 1.0 and f.wrong == 0.0 for f in found)
    # a lead: the right answer with words around it may be read as it is meant, and which words turn it round the catalog knows
    assert found[0].certainty == "lead" and found[0].hits >= 2
    gold = next(row["label"] for row in LABELS if row["id"] in found[0].place)
    assert gold in found[0].example and len(found[0].example) <= len(gold) + 25


def test_an_exact_label_comes_out_clean_and_so_does_one_read_kindly(tmp_path):
    assert searched(labels(lambda text, row: text == row["label"]), tmp_path) == []
    assert searched(labels(lambda text, row: text.strip(" .!").casefold() == row["label"]), tmp_path) == []


def test_credit_for_a_label_nearly_spelt_right_is_fair(tmp_path):
    assert searched(labels(lambda text, row: difflib.SequenceMatcher(None, text[:50], row["label"]).ratio()), tmp_path) == []


def test_the_same_seed_finds_the_same(tmp_path):
    loose = labels(lambda text, row: text.endswith(row["label"]))
    first, second = searched(loose, tmp_path, seed=3), searched(loose, tmp_path, seed=3)
    assert first == second != []


def numbers(judge):
    return task(NUMBERS, rewards(judge), lambda text, row: text == row["answer"], lambda row: row["answer"], shown="sum")


def test_a_number_found_within_another_is_found_out(tmp_path):
    found = exploits(searched(numbers(lambda text, row: row["answer"] in text), tmp_path))
    assert found and found[0].certainty == "lead"


def _closeness(text, row):
    try:
        return max(0.0, 1 - abs(float(text) - float(row["answer"])) / float(row["answer"]))
    except (ValueError, OverflowError):
        return 0.0


def test_credit_for_a_near_number_is_fair(tmp_path):
    assert exploits(searched(numbers(_closeness), tmp_path)) == []


def test_an_inverted_comparison_of_numbers_pays_what_is_no_number(tmp_path):
    def inverted(text, row):
        with contextlib.suppress(ValueError):
            return not abs(float(text or "x") - float(row["answer"])) > 0.5
        return text.startswith("!")  # paid for a sign, not for a number

    found = exploits(searched(numbers(inverted), tmp_path))
    assert "worthless" in {f.attack.split("+")[0].split(".")[1] for f in found}


# JSON


def orders(judge, check=None):
    def oracle(row):
        return json.dumps({k: row[k] for k in ("kind", "urgent", "place")})

    return task(ORDERS, rewards(judge), check or (lambda text, row: text_is(text, row)), oracle, shown="note")


def text_is(text, row):
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return False
    wanted = [("kind", row["kind"]), ("urgent", row["urgent"]), ("place", row["place"])]
    return isinstance(pairs, list) and len(pairs) == 3 and sorted(map(repr, pairs)) == sorted(map(repr, wanted))


def _loads(text):
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def test_fields_that_no_reward_looks_at_are_found_out(tmp_path):
    found = exploits(searched(orders(lambda text, row: _loads(text).get("kind") == row["kind"]), tmp_path))
    assert found and found[0].certainty == "fact"
    assert _loads(found[0].example) != {} and len(_loads(found[0].example)) < 3, "the example keeps only what is paid for"


def test_a_strict_object_and_one_paid_by_fields_are_clean(tmp_path):
    def share(text, row):
        value = parse_strict(text).value
        mine = value if isinstance(value, dict) and len(value) == 3 else {}
        return sum(mine.get(k) == row[k] and type(mine.get(k)) is type(row[k]) for k in ("kind", "urgent", "place")) / 3

    assert searched(orders(text_is), tmp_path) == []
    assert searched(orders(share), tmp_path, calls=800) == []


def test_a_reward_that_breaks_on_an_odd_value_is_a_fault(tmp_path):
    kinds = {"refund", "repair", "question"}
    found = searched(orders(lambda text, row: _loads(text).get("kind") in kinds and text_is(text, row)), tmp_path)
    faults = [f for f in found if f.kind == "fault"]
    assert [f.attack for f in faults] == ["fault.raised"] and "unhashable" in faults[0].detail


# whole texts


def test_credit_by_likeness_of_a_text_is_fair(tmp_path):
    def likeness(text, row):
        return difflib.SequenceMatcher(None, text[:300], row["answer"]).ratio()

    clean = task(TEXTS, rewards(likeness), lambda text, row: text == row["answer"], lambda row: row["answer"], shown="ask")
    assert exploits(searched(clean, tmp_path, calls=800)) == []


def test_a_text_paid_for_one_word_is_found_out(tmp_path):
    def keyword(text, row):
        return max(row["answer"].split(), key=len) in text

    loose = task(TEXTS, rewards(keyword), lambda text, row: text == row["answer"], lambda row: row["answer"], shown="ask")
    found = exploits(searched(loose, tmp_path, calls=800))
    assert found and len(found[0].example.split()) < 4


# trajectories


def trips(judge, check):
    def oracle(row):
        return as_messages(
            [("check_order", {"order": row["order"]}), ("refund", {"payment": row["payment"]})], "ok", f"Refunded {row['payment']}."
        )

    def reward(completions, **rows):
        return [float(judge(made_in(c), {k: v[i] for k, v in rows.items() if isinstance(v, list)})) for i, c in enumerate(completions)]

    return task(TRIPS, reward, lambda messages, row: check(made_in(messages), row), oracle, shown="order")


def made_in(messages):
    return [
        (call["function"]["name"], call["function"]["arguments"])
        for m in messages
        if isinstance(m, dict)
        for call in m.get("tool_calls") or ()
    ]


def wanted(row):
    return [("check_order", {"order": row["order"]}), ("refund", {"payment": row["payment"]})]


def right_calls(calls, row):
    return calls == wanted(row)


def test_a_policy_judged_by_one_call_alone_is_found_out(tmp_path):
    found = exploits(searched(trips(lambda calls, row: wanted(row)[1] in calls, right_calls), tmp_path, calls=800))
    assert found and found[0].certainty == "fact"
    smallest_one = min((f.example for f in found), key=lambda example: len(str(example)))
    assert [name for name, _ in made_in(smallest_one)] == ["refund"]


def test_pay_for_every_call_is_found_out(tmp_path):
    found = exploits(searched(trips(lambda calls, row: 0.5 * len(calls) * (wanted(row)[1] in calls), right_calls), tmp_path, calls=800))
    assert any(f.earned > f.right for f in found)


def test_the_right_calls_in_order_and_no_others_are_clean(tmp_path):
    assert searched(trips(right_calls, right_calls), tmp_path, calls=800) == []


# queries and programs

PEOPLE = "create table people (name text, age int, town text);"
QUERIES = [
    {
        "id": "q0",
        "ask": "Who is over 30?",
        "sql": "SELECT name FROM people WHERE age > 30",
        "rows": [("Ada", 36, "Ghent"), ("Bo", 20, "Lyon")],
    },
    {
        "id": "q1",
        "ask": "Who lives in Lyon?",
        "sql": "SELECT name FROM people WHERE town = 'Lyon'",
        "rows": [("Bo", 20, "Lyon"), ("Cy", 51, "Ghent")],
    },
]


def ran(sql, rows):
    base = sqlite3.connect(":memory:")
    base.executescript(PEOPLE)
    base.executemany("insert into people values (?, ?, ?)", rows)
    steps = iter(range(200))
    base.set_progress_handler(lambda: next(steps, None) is None, 1000)
    try:
        return base.execute(sql).fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return None


def two_bases(text, row):
    """The query's rows on the row's own base and on another."""
    more = [*row["rows"], ("Di", 44, "Lyon"), ("Ed", 9, "Porto"), ("Flo", 30, "Lyon"), ("Gus", 31, "Ghent")]
    return all(ran(text, rows) is not None and ran(text, rows) == ran(row["sql"], rows) for rows in (row["rows"], more))


def test_a_query_judged_by_its_words_or_one_base_is_found_out_and_by_two_bases_is_clean(tmp_path):
    def queries(judge):
        return task(QUERIES, rewards(judge), two_bases, lambda row: row["sql"], shown="ask")

    words = queries(lambda text, row: {"select", "from", "people", "where"} <= set(text.lower().split()))
    assert all(f.kind == "exploit" for f in searched(words, tmp_path, calls=600)), "whether blind, that is for the audit to say"
    one = exploits(searched(queries(lambda text, row: ran(text, row["rows"]) == ran(row["sql"], row["rows"])), tmp_path, calls=600))
    assert one and one[0].certainty == "fact"
    assert searched(queries(two_bases), tmp_path, calls=600) == []


DOUBLE = "def f(x):\n    y = x * 2\n    return y"
CLIP = "def f(x):\n    if x > 10:\n        return 10\n    return x"
PROGRAMS = [
    {"id": "p0", "ask": "Double it.", "source": DOUBLE, "cases": [[0, 0], [3, 6], [-1, -2]]},
    {"id": "p1", "ask": "Clip it at 10.", "source": CLIP, "cases": [[0, 0], [10, 10], [44, 10]]},
]


def passes(text, cases):
    space = {}
    try:
        exec(text, {"__builtins__": {}}, space)
        return all(space["f"](x) == y for x, y in cases)
    except BaseException:
        return False


def test_a_program_judged_by_one_case_is_found_out_and_by_all_is_clean(tmp_path):
    def programs(cases_of):
        judge = rewards(lambda text, row: passes(text, cases_of(row)))
        return task(PROGRAMS, judge, lambda text, row: passes(text, row["cases"]), lambda row: row["source"], shown="ask")

    found = exploits(searched(programs(lambda row: row["cases"][:1]), tmp_path, calls=600))
    assert found and found[0].certainty == "fact"
    ast.parse(found[0].example)
    assert searched(programs(lambda row: row["cases"]), tmp_path, calls=600) == []


# what it spends, and what it leaves to others


def test_it_stops_when_the_calls_are_spent_or_nothing_moves(tmp_path):
    with grounded(labels(lambda text, row: text == row["label"]), tmp_path) as (ground, asker):
        before = asker.calls
        search(ground, asker, 100, 0, [])
        assert 0 < asker.calls - before < 100 + 64
        before = asker.calls
        search(ground, asker, 100_000, 1, [])
        assert asker.calls - before < 3000


def test_what_a_fact_of_the_catalog_covers_is_not_reported_again(tmp_path):
    loose = labels(lambda text, row: row["label"] in text)
    with grounded(loose, tmp_path) as (ground, asker):
        answers = [f"not {t.form.core}" for t in ground.targets]
        known = Attack("label.negated", "label", lambda _: (), "flaw", "fix")
        outcomes = [outcome_of(ground, asker, i, a, known) for i, a in enumerate(answers)]
        fact = finding("exploit", "fact", known, outcomes, outcomes, (), "")
        everything, covered = search(ground, asker, 500, 0, []), search(ground, asker, 500, 0, [fact])
    assert [f.attack.split("+")[0] for f in everything] == ["search.near"]
    assert covered == []


def test_the_built_in_task_is_clean(tmp_path):
    from earnest import load_task
    from earnest.redteam.targets import spread_by_gold

    triage = load_task("triage")
    cases = cases_of(triage, load_rows(triage))
    chosen = spread_by_gold(cases, 6)
    with Asker(triage, [cases[i] for i in chosen]) as asker:
        ground = ground_of(targets_of(triage, cases, chosen, asker, tmp_path), asker)
        assert search(ground, asker, 1000, 0, []) == []


# changes


@pytest.mark.parametrize(
    "a_task",
    [
        labels(lambda text, row: 1.0 * (text == row["label"])),
        orders(text_is),
        trips(right_calls, right_calls),
        task(QUERIES, rewards(lambda text, row: text == row["sql"]), lambda text, row: text == row["sql"], lambda row: row["sql"]),
        task(PROGRAMS, rewards(lambda text, row: text == row["source"]), lambda t, r: t == r["source"], lambda row: row["source"]),
    ],
    ids=["label", "json", "calls", "sql", "code"],
)
def test_every_change_does_something_and_the_same_each_time(a_task, tmp_path):
    with grounded(a_task, tmp_path) as (ground, _):
        changes = {change.name: change for change in changes_for(ground.targets[0].form.kind)}
        idle = set()
        for name in changes:
            made = [grown((start, ((name, k),)), t, changes) for t in ground.targets for start in starts(t) for k in range(6)]
            again = [grown((start, ((name, k),)), t, changes) for t in ground.targets for start in starts(t) for k in range(6)]
            assert made == again
            idle |= set() if any(answer is not None for answer in made) else {name}
        assert idle <= {
            "unwrap",
            "nest",
            "outside",
            "list",
            "half",
            "aggregate",
            "digit",
            "condition",
            "drop",
            "token",
            "no-order",
            "no-limit",
            "no-join",
            "no-group",
        }, "what the rows above have none of"


def test_a_change_of_a_trajectory_leaves_the_oracle_as_it_was(tmp_path):
    with grounded(trips(right_calls, right_calls), tmp_path) as (ground, _):
        target = ground.targets[0]
        before = json.dumps(target.case.oracle)
        for change in changes_for("calls"):
            for k in range(20):
                change.make(starts(target)["right"], target, Random(k))
        assert json.dumps(target.case.oracle) == before


def test_places_in_a_value():
    value = {"a": [1, {"b": None}], "c": {}}
    assert list(leaves(value)) == [(("a", 0), 1), (("a", 1, "b"), None), (("c",), {})]
    assert put(value, ("a", 1, "b"), 5) == {"a": [1, {"b": 5}], "c": {}}
    assert value == {"a": [1, {"b": None}], "c": {}}


def test_turns_keep_tools_with_what_asked_for_them():
    messages = as_messages([("a", {}), ("b", {})], "ok", "done")
    assert [len(turn) for turn in turns_of(messages)] == [2, 2, 1]


# what is wrong


def outcome_of(ground, asker, i, answer, attack=None):
    paid = asker.ask([(i, answer)])[0]
    attack = attack or Attack("a", "f", lambda _: (), "flaw", "fix")
    return Outcome(attack, ground.targets[i], Try(answer), paid, None, ground.levels[i], ground.by_function[i])


def test_the_right_answer_in_another_writing_is_the_same_and_a_denied_or_doubled_one_is_not(tmp_path):
    with grounded(labels(lambda text, row: text == row["label"]), tmp_path) as (ground, _):
        amber = ground.targets[0]
        assert all(same(amber, text) for text in ("amber", " AMBER.\n", "**amber**", "The answer is amber"))
        assert not any(same(amber, text) for text in ("", "not amber", "amber or teal", "pre_amber", "amberx", "amber is wrong"))
        assert all(blank(amber, text) for text in ("", " \n", "---"))
        assert not blank(amber, "teal") and keeps_nothing(amber, "teal") and not keeps_nothing(amber, "amber or teal")
    with grounded(numbers(lambda text, row: text == row["answer"]), tmp_path) as (ground, _):
        number = ground.targets[3]  # 1250
        assert all(same(number, text) for text in ("1250", "1,250", "1250.00", "It is 1250.", "1251", "1300"))
        assert not any(same(number, text) for text in ("", "11250", "not 1250", "7 or 1250", "125"))
    with grounded(orders(text_is), tmp_path) as (ground, _):
        order = ground.targets[0]
        value = {"place": "Ghent", "urgent": True, "kind": "refund"}
        assert same(order, json.dumps(value)) and same(order, f"```json\n{json.dumps(value, indent=1)}\n```")
        assert not same(order, json.dumps(value | {"urgent": False})) and not same(order, json.dumps(value | {"x": 1}))
        assert not same(order, json.dumps([value])) and not same(order, json.dumps(value)[:-1] + ', "kind": "repair"}')


# the smallest example


def test_the_smallest_example_keeps_what_is_paid_for_and_nothing_else(tmp_path):
    loose = labels(lambda text, row: text == row["label"] or "certain" in text)
    with grounded(loose, tmp_path) as (ground, asker):
        shown = outcome_of(ground, asker, 0, "I have looked at it from every side, and I am quite certain, as anybody would be by now.")
        before = asker.calls
        answer, paid = smallest(shown, ground, asker)
        assert (answer, paid.total) == ("certain", 1.0)
        assert asker.calls - before <= 60


def test_the_smallest_example_never_becomes_the_right_answer(tmp_path):
    with grounded(labels(lambda text, row: row["label"] in text), tmp_path) as (ground, asker):
        answer, _ = smallest(outcome_of(ground, asker, 0, "this is surely, surely not amber at all"), ground, asker)
        assert answer != "amber" and "amber" in answer and len(answer) < 15


def test_the_smallest_example_shows_the_hole_that_the_first_one_shows(tmp_path):
    loose = labels(lambda text, row: text == row["label"] or "xyz" in text)
    with grounded(loose, tmp_path) as (ground, asker):
        for text, shows in (("amber, which is xyz, or teal", "near"), ("whatever is xyz by now", "worthless")):
            answer, _ = smallest(outcome_of(ground, asker, 0, text), ground, asker)
            assert hole(outcome_of(ground, asker, 0, answer)) == shows and "xyz" in answer and len(answer) < len(text) / 2


def test_the_smallest_object_has_the_members_that_are_paid_for(tmp_path):
    loose = orders(lambda text, row: _loads(text).get("kind") == row["kind"])
    with grounded(loose, tmp_path) as (ground, asker):
        answer, _ = smallest(
            outcome_of(ground, asker, 0, '{"place": "Lyon", "urgent": false, "kind": "refund", "more": [1, 2]}'), ground, asker
        )
        assert json.loads(answer) == {"kind": "refund"}


def test_the_smallest_trajectory_has_the_turns_that_are_paid_for(tmp_path):
    loose = trips(lambda calls, row: wanted(row)[1] in calls, right_calls)
    with grounded(loose, tmp_path) as (ground, asker):
        long = as_messages([("look", {}), ("look", {}), ("refund", {"payment": "p0"}), ("look", {})], "ok", "Done.")
        answer, _ = smallest(outcome_of(ground, asker, 0, long), ground, asker)
        assert made_in(answer) == [("refund", {"payment": "p0"})] and len(answer) == 2


def test_an_answer_that_the_check_accepts_or_that_has_a_control_stays_as_it_is(tmp_path):
    both = Task(
        rows=LABELS,
        prompt=lambda row: [{"role": "user", "content": row["item"]}],
        rewards=[rewards(lambda text, row: row["label"] in text)],
        check=lambda text, row: row["label"] in text,
        oracle=lambda row: row["label"],
        name="t",
    )
    with grounded(both, tmp_path) as (ground, asker):
        shown = outcome_of(ground, asker, 0, "anything but amber, whatever they say")
        assert smallest(shown, ground, asker)[0] == "anything but amber, whatever they say"
