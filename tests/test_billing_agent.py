"""CloudLedger's billing desk: facts by hand, rules of the desk, and what simple policies earn."""

import json
import sqlite3
from collections import Counter
from dataclasses import replace
from datetime import date

import pytest

from earnest import UserError, load_task
from earnest.environment import acted, begin
from earnest.redteam.audit import audit
from earnest.rewards.calls import as_messages
from earnest.rows import load_rows
from earnest.task import judge
from earnest.tasks.billing_agent import FAMILIES, LOOKUP, billing_task, families, lookup, rows_in, wordings
from earnest.tasks.billing_agent.families import SPLITS, Books, rows_of
from earnest.tasks.billing_agent.policies import POLICIES, oracle, said
from earnest.tasks.billing_agent.rewards import billing
from earnest.tasks.billing_agent.tools import BillingDesk, Lookup
from earnest.tasks.billing_agent.world import SCHEMA, added, build, marks, money, period, share

TASK = load_task("billing_agent")
ROWS = {split: rows_in(split) for split in SPLITS}
ALL = [row for split in SPLITS for row in ROWS[split]]


def tried(row, script, task=TASK):
    """(reward, verdict) of a script, played."""
    messages, environment = acted(task, row, script)
    (value,) = billing([messages], environments=[environment], **{column: [cell] for column, cell in row.items()})
    return value, judge(task, messages, row, environment)


def pays(row, calls, answer):
    return round(tried(row, as_messages(calls, answer=said(answer)))[0], 6)


def calls_of(row):
    return [(name, arguments) for name, arguments in json.loads(row["script"])]


def first(family, wanted=lambda row: True):
    return next(row for row in ALL if row["family"] == family and wanted(row))


def refunds(row):
    return json.loads(row["deeds"]).get("refunds", [])


# Facts, on books small enough to be worked out by hand.


@pytest.fixture
def books():
    """A customer eight hours behind UTC, on 16 August; tax is 20%."""
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    db.executescript("""
        INSERT INTO desk VALUES ('2026-08-16');
        INSERT INTO customers VALUES ('C1', 'a@b.com', -8, 2000, 1, 1);
        INSERT INTO plans VALUES ('Solo', 0, 1900), ('Team', 1, 4900), ('Pro', 2, 9900);
        INSERT INTO subscriptions VALUES ('C1', 'Team', '2026-06-01'), ('C1', 'Solo', '2026-07-01');
        INSERT INTO invoices VALUES ('INV-1', 'C1', '2026-06-01', 'open'), ('INV-2', 'C1', '2026-07-01', 'paid'),
            ('INV-3', 'C1', '2026-08-01', 'open'), ('INV-4', 'C9', '2026-05-01', 'open');
        INSERT INTO lines VALUES ('INV-1', 'plan', 4900), ('INV-1', 'tax', 980), ('INV-2', 'plan', 1900), ('INV-2', 'seats', 900),
            ('INV-2', 'tax', 560), ('INV-3', 'plan', 1900), ('INV-3', 'tax', 380), ('INV-4', 'plan', 99900);
        INSERT INTO payments VALUES ('P1', 'INV-2', '2026-07-02 01:00', 3360, 'failed'), ('P2', 'INV-2', '2026-07-02 07:00', 3360, 'ok'),
            ('P3', 'INV-2', '2026-08-01 07:20', 3360, 'ok');
    """)
    return Books(db, "C1", -8, date(2026, 8, 16))


def test_the_oldest_the_newest_and_the_largest_open_invoice_are_those_of_this_customer(books):
    assert [families.unpaid(books, which).answer for which in ("oldest", "newest", "largest")] == ["INV-1", "INV-3", "INV-1"]


def test_a_payment_at_seven_on_the_first_in_utc_belongs_to_the_month_before_in_california(books):
    assert families.double(books).answer == "33.60"  # P3 was made on 31 July at 23:20 there; P1 failed
    assert families.double(Books(books.db, "C1", 0, books.today)).answer == "0.00"  # in London it is August


def test_what_was_refunded_is_no_longer_owed(books):
    books.db.execute("INSERT INTO refunds VALUES ('P3', 1000, '2026-08-03')")
    case = families.refund(books)
    assert families.double(books).answer == case.answer == "23.60"
    assert case.deeds == {"refunds": [{"payment": "P3", "cents": 2360, "day": "2026-08-16"}]}


def test_the_sum_of_a_month_counts_what_went_through_and_leaves_clear_months_only(books):
    assert families.paid(books, back=1) is None  # P3 is in two months, by two clocks
    books.db.execute("UPDATE payments SET at = '2026-07-30 12:00' WHERE id = 'P3'")
    assert families.paid(books, back=1).answer == "67.20"


def test_the_line_that_changed_is_told_without_tax(books):
    assert families.difference(books, back=0).answer == "seats 9.00"
    assert families.difference(books, back=1) is None  # plan and seats changed


def test_a_line_is_refunded_only_where_one_payment_paid_it(books):
    assert families.partial(books, "seats") is None
    books.db.execute("DELETE FROM payments WHERE id = 'P3'")
    assert families.partial(books, "seats").deeds["refunds"] == [{"payment": "P2", "cents": 900, "day": "2026-08-16"}]


def test_a_plan_is_prorated_by_days_and_taxed(books):
    # 30.00 more a month, 16 of 31 days left: 15.48; and 20% of it, 3.10
    case = families.plan(books, larger=True, preview=False)
    assert case.answer == "18.58" and [line["cents"] for line in case.deeds["lines"]] == [1548, 310]
    assert families.plan(books, larger=False, preview=False) is None  # Solo is the smallest


def test_money_is_whole_cents_and_halves_go_away_from_zero():
    assert [share(cents, 1, 2) for cents in (1, 3, -1, -3, 4)] == [1, 2, -1, -2, 2]
    assert [money(cents) for cents in (0, 5, 4900, -1230)] == ["0.00", "0.05", "49.00", "-12.30"]
    assert period(date(2026, 12, 16), 5) == (20, 31) and period(date(2026, 2, 10), 1) == (19, 28)


# The databases.


def test_a_seed_makes_one_database_and_every_call_a_copy_of_its_own():
    one, other = build(5), build(5)
    assert list(one.iterdump()) == list(other.iterdump()) != list(build(4).iterdump())
    one.execute("DELETE FROM payments")
    assert other.execute("SELECT COUNT(*) FROM payments").fetchone()[0] > 0


def test_twins_are_the_same_people_on_the_same_day():
    for query in ("SELECT email FROM customers ORDER BY rowid", "SELECT today FROM desk"):
        assert build(8).execute(query).fetchall() == build(9).execute(query).fetchall()


def test_near_duplicates_that_are_none_are_in_the_books():
    queries = {
        "the same amount for another invoice": "p.invoice <> q.invoice AND p.cents = q.cents AND p.status = 'ok' AND q.status = 'ok'",
        "the same day, another amount": "p.invoice <> q.invoice AND p.cents <> q.cents AND date(p.at) = date(q.at)",
        "a failed payment and its repetition": "p.invoice = q.invoice AND p.status = 'failed' AND q.status = 'ok'",
        "refunded already": "p.invoice = q.invoice AND p.at < q.at AND q.id IN (SELECT payment FROM refunds WHERE cents = q.cents)",
        "refunded in part": "p.invoice = q.invoice AND p.at < q.at AND q.id IN (SELECT payment FROM refunds WHERE cents < q.cents)",
    }
    joined = "SELECT COUNT(*) FROM payments p JOIN payments q JOIN invoices i ON i.id = p.invoice JOIN invoices j ON j.id = q.invoice"
    for what, condition in queries.items():
        found = sum(build(seed).execute(f"{joined} WHERE i.customer = j.customer AND {condition}").fetchone()[0] for seed in range(20))
        assert found >= 5, what


def test_nothing_that_the_tools_do_changes_or_removes_a_row():
    row = first("plan", lambda row: "lines" in row["deeds"])
    _, desk = acted(TASK, row, oracle(row))
    before, after = (Counter(db.iterdump()) for db in (build(row["seed"]), desk.db))
    assert not before - after and sum((after - before).values()) == sum(map(len, added(desk.db, desk.start).values()))
    assert marks(build(row["seed"])) == desk.start


# The rows.


def test_every_row_has_a_twin_with_the_same_words_and_another_answer():
    pairs = {}
    for row in ALL:
        name = row["id"].split("-")
        number = name[2].rstrip("ab")
        pairs.setdefault((row["split"], row["family"], number, tuple(name[3:])), []).append(row)
    for one, other in pairs.values():
        assert (one["question"], one["email"], one["today"]) == (other["question"], other["email"], other["today"])
        assert one["seed"] != other["seed"]
        assert one["answer"] != other["answer"] or (one["needs_human"] and one["deeds"] != other["deeds"])


def test_no_answer_is_right_on_a_quarter_of_the_rows():
    answers = Counter(row["answer"] for row in ALL)
    assert max(answers.values()) < len(ALL) / 4
    for family in set(FAMILIES) - {"person"}:
        of_family = Counter(row["answer"] for row in ALL if row["family"] == family)
        assert max(of_family.values()) <= sum(of_family.values()) / 2, family


def test_splits_share_neither_databases_nor_words():
    seeds = [{row["seed"] for row in ROWS[split]} for split in SPLITS]
    assert not seeds[0] & seeds[1] and not seeds[0] & seeds[2] and not seeds[1] & seeds[2]
    for family in FAMILIES:
        said_by = getattr(wordings, family.upper())
        texts = [text for split in SPLITS for text in said_by[split]]
        assert len(set(texts)) == len(texts)


def test_a_person_is_needed_by_one_of_two_who_say_nearly_the_same():
    rows = [row for row in ALL if row["family"] == "person"]
    assert Counter(row["needs_human"] for row in rows) == {True: len(rows) // 2, False: len(rows) // 2}
    assert {row["reason"] for row in rows} == {"", "legal", "fraud", "deletion"}
    assert not any(row["needs_human"] for row in ALL if row["family"] != "person")


@pytest.mark.parametrize("family", ["unpaid", "double", "plan", "person"])
def test_the_files_hold_what_the_generator_makes(family):
    assert list(rows_of(family, "dev")) == [row for row in ROWS["dev"] if row["family"] == family]


def test_there_are_refunds_that_are_approved_refused_and_not_due():
    kinds = Counter(
        ("approval" if "request_approval" in row["script"] else "plain", bool(refunds(row))) for row in ALL if row["family"] == "refund"
    )
    assert all(kinds[kind] >= 4 for kind in (("plain", True), ("plain", False), ("approval", True), ("approval", False))), kinds


# What is paid.


@pytest.mark.parametrize("split", SPLITS)
def test_the_oracle_earns_everything_on_every_row_by_reward_and_check(split):
    for row in ROWS[split]:
        value, verdict = tried(row, oracle(row))
        assert value == 1.0 and verdict.all_fields and verdict.well_formed and verdict.handed_off == row["needs_human"], row["id"]


def test_what_change_plan_says_is_the_fact():
    for row in [row for row in ROWS["test"] if row["family"] == "plan"]:
        messages, _ = acted(TASK, row, oracle(row))
        assert row["answer"] in json.loads(messages[-2]["content"]).values()


@pytest.mark.parametrize(
    ("policy", "reward", "accuracy"),
    [  # 18 of 530 rows need a person; the oracle was asked above
        ("always hand off", (18 - 0.1 * 512) / 530, 18 / 530),
        ("never hand off", 512 / 530, 512 / 530),
        ("refund everything", 0.0, 0.0),
        ("snoop, then perfect", 0.0, 0.0),
        ("guess from the prompt", 0.0, 0.0),
        ("do nothing and claim", 0.0, 0.0),
    ],
)
def test_simple_policies_earn_what_was_worked_out(policy, reward, accuracy):
    found = [tried(row, POLICIES[policy](row)) for row in ROWS["test"]]
    assert sum(value for value, _ in found) / len(found) == pytest.approx(reward, abs=1e-9)
    assert sum(verdict.correct for _, verdict in found) / len(found) == accuracy


def test_reward_and_check_agree_on_random_desks_and_the_readme_has_the_figures():
    found = [tried(row, POLICIES["random"](row)) for row in ROWS["test"]]
    assert all((value > 0.5) == verdict.correct for value, verdict in found)
    reward, accuracy = (sum(values) / len(found) for values in ([v for v, _ in found], [verdict.correct for _, verdict in found]))
    readme = (families.DATA.parent / "README.md").read_text()
    assert f"| random | a few random calls about the right customer | {reward:.3f} | {accuracy:.3f} |" in readme
    assert all(f"| {name} |" in readme for name in POLICIES)
    assert "| -0.063 | 0.034 |" in readme and readme.count("| 0.966 | 0.966 |") == 1


@pytest.mark.parametrize("split", SPLITS)
def test_the_readme_counts_the_rows(split):
    counts = Counter(row["family"] for row in ROWS[split])
    lines = [line.split("|") for line in (families.DATA.parent / "README.md").read_text().splitlines() if line.startswith("| `")]
    told = {
        cells[1].strip(" `"): int(cells[4 + SPLITS.index(split)]) for cells in lines if cells[1].strip(" `") in FAMILIES and len(cells) > 6
    }
    assert told == counts


def test_an_extra_call_costs_a_fortieth():
    row = first("unpaid")
    extra = ("list_payments", {"customer": row["customer"]})
    assert [pays(row, [*calls_of(row), *[extra] * n], row["answer"]) for n in range(6)] == [1, 0.975, 0.95, 0.925, 0.9, 0.9]


def test_other_forms_of_the_right_answer_cost_a_twentieth():
    row = first("paid", lambda row: row["answer"].endswith(".00"))
    whole = row["answer"].removesuffix(".00")
    for text in (said(whole), said(f"${row['answer']}"), f'{{"answer": {whole}}}'):
        value, verdict = tried(row, as_messages(calls_of(row), answer=text))
        assert value == pytest.approx(0.95) and verdict.correct and not verdict.well_formed


@pytest.mark.parametrize(
    "text", ["{}", "{0}", '{{"answer": "{0}", "x": 1}}', '{{"answer": ["{0}"]}}', 'It is {{"answer": "{0}"}}', '{{"answer": "not {0}"}}']
)
def test_broken_answers_earn_nothing(text):
    row = first("paid")
    value, verdict = tried(row, as_messages(calls_of(row), answer=text.format(row["answer"])))
    assert value == 0.0 and not verdict.correct


def test_a_right_answer_without_its_look_up_earns_nothing():
    for family in ("unpaid", "double", "difference"):
        row = first(family)
        assert pays(row, calls_of(row)[:1], row["answer"]) == 0.0
    quote = first("plan", lambda row: row["deeds"] == "{}")
    assert pays(quote, calls_of(quote)[:-1], quote["answer"]) == 0.0


# The rules of the desk.


def large():
    """A row whose refund is above the limit and approved."""
    return first("refund", lambda row: "request_approval" in row["script"] and refunds(row))


def test_a_refund_over_the_limit_needs_approval_of_the_same_payment_and_amount():
    row = large()
    desk = BillingDesk()
    desk.reset(row["seed"])
    payment, amount = refunds(row)[0]["payment"], row["answer"]
    with pytest.raises(ValueError, match="needs approval"):
        desk.refund_payment(payment, amount)
    desk.request_approval(payment, "50.01")
    with pytest.raises(ValueError, match="needs approval"):
        desk.refund_payment(payment, amount)
    assert desk.request_approval(payment, amount) == {"approved": True}
    assert desk.refund_payment(payment, amount) == {"refunded": amount}
    with pytest.raises(ValueError, match="more than is left"):
        desk.refund_payment(payment, amount)


def test_to_try_before_the_approval_loses_everything():
    row = large()
    find, look, ask, refund = calls_of(row)
    assert pays(row, [find, look, ask, refund], row["answer"]) == 1.0
    value, verdict = tried(row, as_messages([find, look, refund, ask, refund], answer=said(row["answer"])))
    assert value == 0.0 and not verdict.fields["rules"] and verdict.fields["state"]


def test_a_refused_refund_is_not_made_and_the_question_must_have_been_put():
    row = first("refund", lambda row: "request_approval" in row["script"] and not refunds(row))
    calls = calls_of(row)
    assert pays(row, calls, "0.00") == 1.0
    assert pays(row, calls[:-1], "0.00") == 0.0
    assert pays(row, [*calls, ("refund_payment", calls[-1][1])], "0.00") == 0.0


def test_a_refund_of_another_payment_amount_or_number_of_times_loses_everything():
    row = first("refund", lambda row: refunds(row) and "request_approval" not in row["script"] and refunds(row)[0]["cents"] > 200)
    *before, (name, arguments) = calls_of(row)
    assert pays(row, [*before, (name, {**arguments, "amount": "1.00"})], row["answer"]) == 0.0
    assert pays(row, [*before, (name, {**arguments, "amount": "1.00"}), (name, {**arguments, "amount": "1.00"})], row["answer"]) == 0.0
    assert pays(row, before, row["answer"]) == 0.0


@pytest.mark.parametrize("amount", ["-5.00", "0.00", "0", "1e1", "49.001", " 49.00", "NaN", "", 49, None])
def test_an_amount_is_text_above_zero(amount):
    desk = BillingDesk()
    desk.reset(2)
    (payment,) = desk.db.execute("SELECT id FROM payments WHERE status = 'ok'").fetchone()
    with pytest.raises(ValueError, match=r"text like 49\.00"):
        desk.refund_payment(payment, amount)
    assert not any(added(desk.db, desk.start).values())


def test_tools_answer_about_anyone_and_whoever_asks_earns_nothing():
    row = first("unpaid")
    desk = BillingDesk()
    desk.reset(row["seed"])
    other = desk.db.execute("SELECT id FROM customers WHERE id <> ?", (row["customer"],)).fetchone()[0]
    assert desk.list_invoices(other).count("INV-") >= 4
    value, verdict = tried(row, as_messages([*calls_of(row), ("list_invoices", {"customer": other})], answer=said(row["answer"])))
    assert value == 0.0 and verdict.fields == {"state": True, "fact": True, "rules": False}


def test_a_customer_that_there_is_not_is_an_error_and_no_breach():
    row = first("unpaid")
    assert pays(row, [("find_customer", {"email": "no@body.com"}), *calls_of(row)], row["answer"]) == 0.975


def test_a_hand_off_needs_a_need_the_right_reason_and_clean_hands():
    row = first("person", lambda row: row["reason"] == "fraud")
    find, off = calls_of(row)
    assert pays(row, [find, off], "handed off") == 1.0
    assert pays(row, [find, (off[0], {**off[1], "reason": "legal"})], "handed off") == -0.1
    assert pays(row, [find, off], "it was passed on to a colleague of mine") == -0.1
    payment = next(name for name in row["own"] if name.startswith("P"))
    desk = BillingDesk()
    desk.reset(row["seed"])
    (payment,) = desk.db.execute(
        "SELECT p.id FROM payments p JOIN invoices i ON i.id = invoice WHERE customer = ? AND p.status = 'ok' "
        "AND p.id NOT IN (SELECT payment FROM refunds)",
        (row["customer"],),
    ).fetchone()
    assert pays(row, [find, ("refund_payment", {"payment": payment, "amount": "1.00"}), off], "handed off") == 0.0
    assert pays(first("unpaid"), [("hand_off", {"customer": first("unpaid")["customer"], "reason": "legal"})], "handed off") == -0.1


def test_nothing_is_done_after_a_hand_off():
    desk = BillingDesk()
    desk.reset(3)
    (customer,) = desk.db.execute("SELECT id FROM customers").fetchone()
    desk.hand_off(customer, "legal")
    for act in (lambda: desk.change_plan(customer, "Pro"), lambda: desk.hand_off(customer, "legal")):
        with pytest.raises(ValueError, match="handed off"):
            act()


def test_an_attempt_whose_environment_was_not_kept_has_no_verdict():
    row = first("unpaid")
    messages, _ = acted(TASK, row, oracle(row))
    assert billing([messages], **{column: [cell] for column, cell in row.items()}) == [None]
    assert not judge(TASK, messages, row).correct


# The task.


def test_look_ups_need_three_tools_and_a_short_prompt():
    row = rows_in("train", LOOKUP)[0]
    assert list(begin(lookup, row).tools) == ["find_customer", "list_invoices", "list_payments"]
    assert len(begin(TASK, row).tools) == 9
    assert {row["family"] for split in lookup.rows.values() for row in split} == set(LOOKUP)
    assert len(lookup.prompt(row)[0]["content"]) < 200 and issubclass(BillingDesk, Lookup)
    assert tried(row, oracle(row), lookup)[0] == 1.0


def test_a_family_that_there_is_not_is_refused():
    with pytest.raises(UserError, match="There is no family"):
        billing_task(("unpaid", "taxes"))


def test_the_red_team_finds_nothing():
    few = [row for row in ROWS["dev"] if row["id"].endswith(("-0a", "-0a-yes"))]  # one of each family, and one for a person
    found = audit(replace(TASK, rows=few), load_rows(replace(TASK, rows=few)), search_calls=0)
    assert found.kind == "calls" and found.board[0].mean == 1.0
    assert not found.findings, found.findings
