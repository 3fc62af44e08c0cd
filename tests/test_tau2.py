"""tau2-bench: gold actions through our state and policy verifiers, whole and spoilt, and what the shop must never do."""

import copy
import gzip
import json
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from earnest import UserError
from earnest.environment import acted, begin, play
from earnest.rewards.calls import as_messages
from earnest.rewards.verifier import Attempt
from earnest.task import judge
from earnest.tasks.tau2 import oracle, tau2
from earnest.tasks.tau2_retail import WRITES, Retail
from earnest.tasks.tau2_telecom import Telecom

TAU2 = Path(__file__).resolve().parents[2] / "shared" / "data" / "tau2_bench"


@lru_cache
def task(domain):
    if not (TAU2 / domain).is_dir():
        pytest.skip("no tau2-bench here")
    return tau2(TAU2 / domain)


@lru_cache
def retail():
    if not (TAU2 / "retail").is_dir():
        pytest.skip("no tau2-bench here")
    return json.loads(gzip.decompress((TAU2 / "retail" / "db.json.gz").read_bytes()))


def paid(domain, row, actions, answer):
    script = as_messages([(a["name"], a["arguments"]) for a in actions], answer=answer)
    messages, environment = acted(task(domain), row, script)
    verifier = task(domain).rewards[0].verifier
    return verifier(Attempt(tuple(messages), environment=environment), row).value, judge(task(domain), messages, row, environment).correct


def told(row):
    return oracle(row)[-1]["content"]


@pytest.mark.parametrize(("domain", "rows"), [("retail", 109), ("telecom", 6)])
def test_gold_actions_get_full_marks(domain, rows):
    assert len(task(domain).rows) == rows
    for row in task(domain).rows:
        assert paid(domain, row, row["actions"], told(row)) == (1.0, True), row["id"]


def spoilt(row):
    """The actions with a write left out, changed, or one more."""
    actions, writes = row["actions"], [n for n, a in enumerate(row["actions"]) if a in row["writes"]]
    for place in writes:
        yield "dropped", actions[:place] + actions[place + 1 :]
        for key, value in actions[place]["arguments"].items():
            changed = copy.deepcopy(actions)
            changed[place]["arguments"][key] = [*value[:-1], "1"] if isinstance(value, list) else 0.5 if value == 2.0 else f"{value}1"
            yield "argument", changed
    if row["hands_off"]:
        yield "dropped", [a for a in actions if a["name"] != "transfer_to_human_agents"]
    else:
        yield "extra", [*actions, {"name": "transfer_to_human_agents", "arguments": {"summary": "all of it"}}]


@pytest.mark.parametrize(
    ("domain", "counts", "unseen"),
    [("retail", {"dropped": 177, "argument": 704, "extra": 105}, 10), ("telecom", {"dropped": 7, "argument": 11, "extra": 4}, 0)],
)
def test_spoilt_actions_get_nothing(domain, counts, unseen):
    """In two retail tasks an address is changed to and fro, or to what it was: the check goes by the end state, the policy sees more."""
    tried, accepted = Counter(), Counter()
    for row in task(domain).rows:
        for kind, actions in spoilt(row):
            value, correct = paid(domain, row, actions, told(row))
            assert value == 0.0, (row["id"], kind, actions)
            tried[kind] += 1
            accepted[row["id"]] += correct
    assert dict(tried) == counts and accepted.total() == unseen and {i for i, n in accepted.items() if n} <= {"22", "110"}


def test_an_extra_write_to_another_order_takes_everything():
    """The first order that is pending and not the row's own is cancelled too."""
    tried = 0
    for row in task("retail").rows[:40]:
        other = next(key for key, order in retail()["orders"].items() if order["status"] == "pending" and key not in row["after"]["orders"])
        extra = {"name": "cancel_pending_order", "arguments": {"order_id": other, "reason": "no longer needed"}}
        assert paid("retail", row, [extra, *row["actions"]], told(row)) == (0.0, False)
        tried += 1
    assert tried == 40


def test_no_two_neighbouring_gold_writes_of_retail_depend_on_each_other():
    tried = 0
    for row in task("retail").rows:
        writes = row["writes"]
        reads = [action for action in row["actions"] if action not in writes]
        for place in range(len(writes) - 1):
            order = [*writes[:place], writes[place + 1], writes[place], *writes[place + 2 :]]
            assert paid("retail", row, [*reads, *order], told(row)) == (1.0, True)
            tried += 1
    assert tried == 71


def test_after_its_items_are_modified_an_order_can_be_sent_elsewhere_but_neither_modified_again_nor_cancelled():
    shop, products = Retail(retail()), retail()["products"]
    for order in retail()["orders"].values():
        item = order["items"][0]
        user = retail()["users"][order["user_id"]]
        cards = [m for m in user["payment_methods"] if not m.startswith("gift")]
        variants = products[item["product_id"]]["variants"].values()
        new = next((v["item_id"] for v in variants if v["available"] and v["item_id"] != item["item_id"]), None)
        if order["status"] == "pending" and cards and new and len(order["items"]) > 1:
            break
    key = order["order_id"]
    change = {"order_id": key, "item_ids": [item["item_id"]], "new_item_ids": [new], "payment_method_id": cards[0]}
    shop.modify_pending_order_items(**change)
    shop.modify_pending_order_address(key, **user["address"])
    for tool, arguments in [
        ("modify_pending_order_items", change),
        ("cancel_pending_order", {"order_id": key, "reason": "no longer needed"}),
    ]:
        with pytest.raises(ValueError, match="not pending"):
            getattr(shop, tool)(**arguments)


def test_a_suspended_line_is_resumed_only_after_the_bill_is_paid():
    row = next(row for row in task("telecom").rows if "overdue" in row["id"])
    assert paid("telecom", row, row["actions"][::-1], "Done.") == (0.0, False)


def test_an_answer_without_what_the_customer_must_be_told_gets_nothing():
    rows = [row for row in task("retail").rows if row["says"]]
    assert len(rows) == 36
    for row in rows:
        assert paid("retail", row, row["actions"], "All done.") == (0.0, False)


def test_an_answer_before_the_last_call_or_none_gets_nothing():
    row = next(row for row in task("retail").rows if row["writes"] and not row["says"])
    script = as_messages([(a["name"], a["arguments"]) for a in row["actions"]])
    for messages in (script, [{"role": "assistant", "content": "Done."}, *script]):
        played, environment = acted(task("retail"), row, messages)
        assert task("retail").rewards[0].verifier(Attempt(tuple(played), environment=environment), row).value == 0.0


def test_what_must_be_told_stands_in_what_the_tools_answer():
    """Of the numbers that the gold actions calculate, those that the benchmark expects to be told are equal to the letter."""
    found = []
    for row in task("retail").rows:
        messages = play(task("retail"), row, oracle(row)).messages
        results = {m["content"].lstrip("-") for m in messages if m.get("role") == "tool" and m["name"] == "calculate"}
        found += [value for value in row["says"] if value in results]
    assert len(found) == 9


def test_five_tasks_of_114_are_left_out():
    """One exchanges items of a pending order; one pays 21.10 with a gift card that holds 17.00; in three the agent must only refuse."""
    entries = json.loads((TAU2 / "retail" / "tasks.json").read_text()) if task("retail") else []
    kept = {row["id"] for row in task("retail").rows}
    assert {entry["id"] for entry in entries} - kept == {"64", "105"} | {"25", "57", "65"}
    shop = Retail(retail())
    for entry in entries:
        if entry["id"] in ("25", "57", "65"):
            assert not {a["name"] for a in entry["evaluation_criteria"]["actions"]} & set(WRITES)
        if entry["id"] in ("64", "105"):
            action = next(a for a in entry["evaluation_criteria"]["actions"] if a["name"] == "exchange_delivered_order_items")
            with pytest.raises(ValueError, match=r"pending, not delivered|not enough"):
                shop.exchange_delivered_order_items(**action["arguments"])


def test_fourteen_telecom_tasks_leave_the_agent_nothing_to_do():
    entries = json.loads((TAU2 / "telecom" / "tasks_small.json").read_text()) if task("telecom") else []
    own = [[a for a in entry["evaluation_criteria"]["actions"] if a["requestor"] == "assistant"] for entry in entries]
    assert len(entries) == 20 and sum(not actions for actions in own) == 14


def test_telecom_ends_as_the_benchmark_asserts():
    """The assertions on the agent's database that its tasks have: 2 GB added, the bill paid."""
    entries = {e["id"]: e for e in json.loads((TAU2 / "telecom" / "tasks_small.json").read_text())} if task("telecom") else {}
    seen = 0
    for row in task("telecom").rows:
        _, world = acted(task("telecom"), row, oracle(row))
        for claim in entries[row["id"]]["evaluation_criteria"]["env_assertions"]:
            given = claim["arguments"]
            if claim["func_name"] == "assert_data_refueling_amount":
                assert world.get_details_by_id(given["line_id"])["data_refueling_gb"] == given["expected_amount"]
                seen += 1
            elif claim["func_name"] == "assert_no_overdue_bill":
                assert world.get_details_by_id(given["overdue_bill_id"])["status"] == "Paid"
                seen += 1
    assert seen == 2


def test_a_cancelled_order_is_booked_as_the_databases_own_cancelled_orders_are():
    own = [order for order in retail()["orders"].values() if order["status"] == "cancelled"]
    shop = Retail(retail())
    pending = next(key for key, order in retail()["orders"].items() if order["status"] == "pending")
    made = shop.cancel_pending_order(pending, "ordered by mistake")
    assert len(own) == 102
    for order in [*own, made]:
        payment, refund = order["payment_history"]
        assert (payment["transaction_type"], refund["transaction_type"]) == ("payment", "refund")
        assert payment["amount"] == refund["amount"] and payment["payment_method_id"] == refund["payment_method_id"]


def test_money_is_conserved_by_every_gold_end_state():
    """What an order has been paid, less refunds, is what its items cost; a gift card holds what was booked from and to it."""
    checked = 0
    for row in task("retail").rows:
        booked = Counter()
        for key, order in row["after"]["orders"].items():
            signed = [p["amount"] * (1 if p["transaction_type"] == "payment" else -1) for p in order["payment_history"]]
            cost = 0 if order["status"] == "cancelled" else sum(item["price"] for item in order["items"])
            assert sum(signed) == pytest.approx(cost, abs=0.005), (row["id"], key)
            checked += 1
            before = len(row["before"]["orders"][key]["payment_history"])
            for payment, amount in list(zip(order["payment_history"], signed, strict=True))[before:]:
                booked[order["user_id"], payment["payment_method_id"]] += amount
        for key, user in row["after"]["users"].items():
            for method, now in user["payment_methods"].items():
                if "balance" in now:
                    was = row["before"]["users"][key]["payment_methods"][method]["balance"]
                    assert now["balance"] == pytest.approx(was - booked[key, method], abs=0.005) and now["balance"] >= 0
    assert checked == 148


def test_rollouts_share_nothing_and_leave_the_database_as_it_was():
    before = json.dumps(retail(), sort_keys=True)
    shop, other = Retail(retail()), Retail(retail())
    pending = next(key for key, order in retail()["orders"].items() if order["status"] == "pending")
    shop.cancel_pending_order(pending, "no longer needed")
    assert other.changed == {"users": {}, "orders": {}, "conversation": {}}
    assert json.dumps(retail(), sort_keys=True) == before
    shop.reset()
    assert shop.get_order_details(pending)["status"] == "pending"


@pytest.mark.parametrize(
    ("status", "tool", "arguments"),
    [
        ("delivered", "cancel_pending_order", {"reason": "no longer needed"}),
        ("processed", "cancel_pending_order", {"reason": "no longer needed"}),
        ("pending", "cancel_pending_order", {"reason": "found it cheaper"}),
        ("pending", "return_delivered_order_items", {"item_ids": ["1"], "payment_method_id": "x"}),
        ("delivered", "return_delivered_order_items", {"item_ids": ["1"], "payment_method_id": "x"}),
        ("delivered", "return_delivered_order_items", {"item_ids": [], "payment_method_id": "x"}),
        ("pending", "exchange_delivered_order_items", {"item_ids": ["1"], "new_item_ids": ["1"], "payment_method_id": "x"}),
        ("pending", "modify_pending_order_payment", {"payment_method_id": "nobody's"}),
    ],
)
def test_what_the_policy_forbids_is_refused_and_changes_nothing(status, tool, arguments):
    shop = Retail(retail())
    key = next(key for key, order in retail()["orders"].items() if order["status"] == status)
    with pytest.raises(ValueError):
        getattr(shop, tool)(order_id=key, **arguments)
    assert not shop.changed["orders"] and not shop.changed["users"]


def test_calculate_takes_arithmetic_and_nothing_else():
    shop = Retail({"users": {}, "orders": {}, "products": {}})
    assert shop.calculate("(1.5 + 2) * 3 - 1 / 2") == "10.0"
    for bad in ("__import__('os')", "2 ** 9", "a", "'a' * 3"):
        with pytest.raises(ValueError):
            shop.calculate(bad)


def test_the_tools_are_those_of_the_benchmark():
    tools = set(begin(task("retail"), task("retail").rows[0]).tools)
    entries = json.loads((TAU2 / "retail" / "tasks.json").read_text())
    assert {a["name"] for e in entries for a in e["evaluation_criteria"]["actions"]} <= tools and set(WRITES) <= tools
    assert "start" not in tools and "changed" not in tools


def test_a_folder_of_another_domain_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no db\.json"):
        tau2(tmp_path)
    for name, text in [("db.json", '{"flights": {}}'), ("tasks.json", "[]"), ("policy.md", "")]:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match="Other domains"):
        tau2(tmp_path)


def test_a_telephone_line_is_the_customers_own():
    world = Telecom({"customers": [{"customer_id": "a", "line_ids": [], "bill_ids": []}], "lines": [{"line_id": "l"}]})
    with pytest.raises(ValueError, match="no such record"):
        world.enable_roaming("a", "l")
