"""The retail domain of tau2-bench as an environment and a task.

`tau2(folder)` reads a folder of the benchmark (`db.json`, `tasks.json`, `policy.md`, `split_tasks.json`; each may be gzipped). Nothing of the
benchmark ships here. Its data holds no code of the tools: what they do is written here from the policy's text, from the form of the
database (its cancelled orders show how a refund is booked) and from the gold actions.

The benchmark plays the customer with a model. Here the customer has said everything and agreed to everything beforehand, so that an
attempt is the agent's calls and one last message.
"""

from __future__ import annotations

import ast
import copy
import gzip
import json
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from earnest.errors import UserError
from earnest.rewards.calls import as_messages
from earnest.rewards.compose import compose
from earnest.rewards.policy import tool_policy
from earnest.rewards.state import final_state
from earnest.rewards.verifier import Attempt, as_reward
from earnest.task import Limits, Message, Row, Task, Verdict

WRITES = (
    "cancel_pending_order",
    "modify_pending_order_address",
    "modify_pending_order_items",
    "modify_pending_order_payment",
    "modify_user_address",
    "return_delivered_order_items",
    "exchange_delivered_order_items",
    "transfer_to_human_agents",
)
READS = (
    "find_user_id_by_email",
    "find_user_id_by_name_zip",
    "get_user_details",
    "get_order_details",
    "get_product_details",
    "get_item_details",
    "list_all_product_types",
    "calculate",
)
REASONS = ("no longer needed", "ordered by mistake")
NOTE = "\n\nThe customer has said everything below, agrees to what follows from it and answers no questions. Act, then answer once."


class RetailError(ValueError):
    """What a tool refuses, as the agent reads it."""


class Retail:
    """A shop: users, orders, products. Records are copied before they are changed, so that rollouts share what none of them touches."""

    def __init__(self, database: Mapping[str, Mapping[str, Any]]) -> None:
        self._base = database
        self.reset()

    def reset(self, **row: Any) -> None:
        """Back to the database as it was read."""
        self._users, self._orders = dict(self._base["users"]), dict(self._base["orders"])
        self._products = self._base["products"]
        self.handed_off = ""

    @property
    def changed(self) -> dict[str, dict[str, Any]]:
        """The records that are no longer what they were, by table and key."""
        now = {"users": self._users, "orders": self._orders}
        return {name: {k: v for k, v in table.items() if v != self._base[name].get(k)} for name, table in now.items()}

    def find_user_id_by_email(self, email: str) -> str:
        """Find a user id by email.

        Args:
            email: The user's email.
        """
        return self._find(lambda user: user["email"].lower() == email.lower())

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """Find a user id by name and zip code.

        Args:
            first_name: First name.
            last_name: Last name.
            zip: Zip code of the default address.
        """
        name = (first_name.lower(), last_name.lower(), zip)
        return self._find(
            lambda user: (user["name"]["first_name"].lower(), user["name"]["last_name"].lower(), user["address"]["zip"]) == name
        )

    def get_user_details(self, user_id: str) -> dict:
        """A user's profile, payment methods and order ids.

        Args:
            user_id: The user.
        """
        return self._user(user_id)

    def get_order_details(self, order_id: str) -> dict:
        """An order's status, items and payments.

        Args:
            order_id: The order, such as '#W0000000'.
        """
        return self._order(order_id)

    def get_product_details(self, product_id: str) -> dict:
        """A product and its variants.

        Args:
            product_id: The product (not an item).
        """
        if product_id not in self._products:
            raise RetailError("product not found")
        return self._products[product_id]

    def get_item_details(self, item_id: str) -> dict:
        """One variant of a product.

        Args:
            item_id: The item (not a product).
        """
        return self._variant(item_id)[1]

    def list_all_product_types(self) -> dict:
        """Names and ids of all products."""
        return {product["name"]: key for key, product in sorted(self._products.items(), key=lambda pair: pair[1]["name"])}

    def calculate(self, expression: str) -> str:
        """The value of an arithmetic expression.

        Args:
            expression: Numbers, + - * / and brackets.
        """
        return str(round(_value(ast.parse(expression.strip(), mode="eval").body), 2))

    def cancel_pending_order(self, order_id: str, reason: str) -> dict:
        """Cancel a pending order and refund it.

        Args:
            order_id: The order.
            reason: 'no longer needed' or 'ordered by mistake'.
        """
        self._pending(order_id)
        if reason not in REASONS:
            raise RetailError("invalid reason")
        order = self._change(self._orders, order_id)
        for payment in [p for p in order["payment_history"] if p["transaction_type"] == "payment"]:
            self._book(order, "refund", payment["amount"], payment["payment_method_id"])
        order |= {"status": "cancelled", "cancel_reason": reason}
        return order

    def modify_pending_order_address(
        self, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> dict:
        """Change where a pending order is sent.

        Args:
            order_id: The order.
            address1: First line.
            address2: Second line.
            city: City.
            state: State.
            country: Country.
            zip: Zip code.
        """
        self._pending(order_id, modified=True)
        order = self._change(self._orders, order_id)
        order["address"] = {"address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip}
        return order

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> dict:
        """Pay a pending order by another method.

        Args:
            order_id: The order.
            payment_method_id: One of the user's methods.
        """
        order = self._pending(order_id)
        paid = order["payment_history"]
        self._method(order, payment_method_id)
        if len(paid) != 1 or paid[0]["payment_method_id"] == payment_method_id:
            raise RetailError("the new payment method must differ from the one payment there is")
        self._afford(order, payment_method_id, paid[0]["amount"])
        order = self._change(self._orders, order_id)
        self._book(order, "payment", paid[0]["amount"], payment_method_id)
        self._book(order, "refund", paid[0]["amount"], paid[0]["payment_method_id"])
        return order

    def modify_pending_order_items(self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str) -> dict:
        """Swap items of a pending order for other variants of the same products; once an order.

        Args:
            order_id: The order.
            item_ids: Items to swap.
            new_item_ids: What to get for each, in the same order.
            payment_method_id: Pays or receives the difference.
        """
        order = self._pending(order_id)
        difference = self._swap(order, item_ids, new_item_ids, payment_method_id)
        order = self._change(self._orders, order_id)
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = next(item for item in order["items"] if item["item_id"] == old)
            variant = self._variant(new)[1]
            item |= {"item_id": new, "price": variant["price"], "options": dict(variant["options"])}
        if difference:
            self._book(order, "payment" if difference > 0 else "refund", abs(difference), payment_method_id)
        order["status"] = "pending (items modified)"
        return order

    def modify_user_address(self, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str) -> dict:
        """Change a user's default address.

        Args:
            user_id: The user.
            address1: First line.
            address2: Second line.
            city: City.
            state: State.
            country: Country.
            zip: Zip code.
        """
        self._user(user_id)
        user = self._change(self._users, user_id)
        user["address"] = {"address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip}
        return user

    def return_delivered_order_items(self, order_id: str, item_ids: list[str], payment_method_id: str) -> dict:
        """Ask for the return of items of a delivered order.

        Args:
            order_id: The order.
            item_ids: Items to return.
            payment_method_id: Receives the refund: the original method or a gift card.
        """
        order = self._delivered(order_id)
        self._holds(order, item_ids)
        method = self._method(order, payment_method_id)
        if method["source"] != "gift_card" and payment_method_id != order["payment_history"][0]["payment_method_id"]:
            raise RetailError("refunds go to the original payment method or a gift card")
        order = self._change(self._orders, order_id)
        order |= {"status": "return requested", "return_items": sorted(item_ids), "return_payment_method_id": payment_method_id}
        return order

    def exchange_delivered_order_items(self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str) -> dict:
        """Ask for the exchange of items of a delivered order for other variants; once an order.

        Args:
            order_id: The order.
            item_ids: Items to give back.
            new_item_ids: What to get for each, in the same order.
            payment_method_id: Pays or receives the difference.
        """
        order = self._delivered(order_id)
        difference = self._swap(order, item_ids, new_item_ids, payment_method_id)
        order = self._change(self._orders, order_id)
        pairs = sorted([old, new] for old, new in zip(item_ids, new_item_ids, strict=True))
        order |= {
            "status": "exchange requested",
            "exchanged": pairs,
            "exchange_payment_method_id": payment_method_id,
            "exchange_price_difference": difference,
        }
        return order

    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the customer over to a person.

        Args:
            summary: What it is about.
        """
        self.handed_off = summary or "-"
        return "Transfer successful"

    def _find(self, wanted: Any) -> str:
        found = next((key for key, user in self._users.items() if wanted(user)), None)
        if found is None:
            raise RetailError("user not found")
        return found

    def _user(self, user_id: str) -> dict:
        if user_id not in self._users:
            raise RetailError("user not found")
        return self._users[user_id]

    def _order(self, order_id: str) -> dict:
        if order_id not in self._orders:
            raise RetailError("order not found")
        return self._orders[order_id]

    def _pending(self, order_id: str, modified: bool = False) -> dict:
        order = self._order(order_id)
        if order["status"] != "pending" and not (modified and order["status"].startswith("pending")):
            raise RetailError(f"the order is {order['status']}, not pending")
        return order

    def _delivered(self, order_id: str) -> dict:
        order = self._order(order_id)
        if order["status"] != "delivered":
            raise RetailError(f"the order is {order['status']}, not delivered")
        return order

    def _variant(self, item_id: str) -> tuple[str, dict]:
        for product_id, product in self._products.items():
            if item_id in product["variants"]:
                return product_id, product["variants"][item_id]
        raise RetailError("item not found")

    def _method(self, order: Mapping[str, Any], payment_method_id: str) -> dict:
        methods = self._user(order["user_id"])["payment_methods"]
        if payment_method_id not in methods:
            raise RetailError("payment method not found")
        return methods[payment_method_id]

    def _holds(self, order: Mapping[str, Any], item_ids: Sequence[str]) -> None:
        if not item_ids or Counter(item_ids) - Counter(item["item_id"] for item in order["items"]):
            raise RetailError("the order does not hold these items")

    def _afford(self, order: Mapping[str, Any], payment_method_id: str, amount: float) -> None:
        method = self._method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise RetailError("the gift card has not enough on it")

    def _swap(self, order: Mapping[str, Any], item_ids: Sequence[str], new_item_ids: Sequence[str], payment_method_id: str) -> float:
        """What a swap costs, once it is known to be allowed."""
        self._holds(order, item_ids)
        if len(item_ids) != len(new_item_ids):
            raise RetailError("each item needs one new item")
        difference = 0.0
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = next(item for item in order["items"] if item["item_id"] == old)
            product_id, variant = self._variant(new)
            if product_id != item["product_id"]:
                raise RetailError("the new item is another product")
            if not variant["available"]:
                raise RetailError(f"item {new} is not available")
            difference += variant["price"] - item["price"]
        self._afford(order, payment_method_id, round(difference, 2))
        return round(difference, 2)

    def _book(self, order: dict, kind: str, amount: float, payment_method_id: str) -> None:
        """A payment or a refund; a gift card has its new balance at once."""
        order["payment_history"].append({"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id})
        if self._method(order, payment_method_id)["source"] == "gift_card":
            method = self._change(self._users, order["user_id"])["payment_methods"][payment_method_id]
            method["balance"] = round(method["balance"] + (amount if kind == "refund" else -amount), 2)

    @staticmethod
    def _change(table: dict[str, Any], key: str) -> dict:
        table[key] = copy.deepcopy(table[key])
        return table[key]


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise RetailError("invalid expression")


def tau2(folder: str | Path) -> Task:
    """A task out of the benchmark's retail folder.

    Its rows are the tasks whose gold writes the policy allows, with their split; the end state they lead to is what is expected.

    Args:
        folder: With `db.json`, `tasks.json`, `policy.md` and, where there is one, `split_tasks.json`; gzipped or not.

    Raises:
        UserError: A file is missing, or the folder is of another domain.
    """
    folder = Path(folder)
    database, entries = json.loads(_read(folder, "db.json")), json.loads(_read(folder, "tasks.json"))
    if not isinstance(database, dict) or not {"users", "orders", "products"} <= database.keys():
        raise UserError(f"'{folder}' holds no retail database (users, orders, products). Only that domain of tau2-bench is supported.")
    policy = _read(folder, "policy.md")
    splits = json.loads(_read(folder, "split_tasks.json", "{}"))
    held_out = set(splits.get("test", ()))
    rows = [row for entry in entries if (row := _row(database, entry, entry["id"] in held_out)) is not None]

    def prompt(row: Row) -> list[Message]:
        return [{"role": "system", "content": policy + NOTE}, {"role": "user", "content": row["request"]}]

    return Task(
        name="tau2_retail",
        rows=rows,
        prompt=prompt,
        rewards=[as_reward(reward())],
        check=check,
        oracle=oracle,
        environment=lambda: Retail(database),
        limits=Limits(turns=32, calls=32),
    )


def reward() -> Any:
    """The end state and what must be said; every write a gold one and no other. What is read is free, however often."""
    state = final_state("after", final=final, start="before", says="says", unchanged=True, name="state")
    writes = tool_policy("writes", allowed=READS, duplicates="allow", at_most=32, name="policy")
    return compose(correct=state, gates=[writes], name="tau2")


def final(attempt: Attempt, row: Row) -> Any:
    """The records that the gold actions change, and those that the attempt changed, as they are in the end."""
    if attempt.environment is None:
        return None
    changed = attempt.environment.changed
    return {name: {**row["before"][name], **changed[name]} for name in changed}


def oracle(row: Row) -> list[Message]:
    """The gold actions, then what must be said."""
    told = ", ".join(row["says"]) or ("YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON." if row["hands_off"] else "Done.")
    return as_messages([(action["name"], action["arguments"]) for action in row["actions"]], answer=told)


def check(messages: Sequence[Message], row: Row, environment: Retail) -> Verdict:
    """Whether the database is what the gold actions make of it, the customer was handed over where they should be, and was told all."""
    last = messages[-1] if messages else {}
    said = last.get("content") if last.get("role") == "assistant" else ""
    said = said if isinstance(said, str) else ""
    handed_off = bool(environment.handed_off)
    state = json.dumps(environment.changed, sort_keys=True) == json.dumps(row["after"], sort_keys=True)
    told = bool(said.strip()) and all(part.replace(",", "") in said.replace(",", "") for part in row["says"])
    return Verdict(state and told and handed_off == row["hands_off"], {"state": state, "told": told}, None, handed_off)


def _row(database: Mapping[str, Any], entry: Mapping[str, Any], held_out: bool) -> Row | None:
    """A task of the benchmark as a row; None where the policy refuses one of its own writes."""
    criteria = entry["evaluation_criteria"]
    actions = [{"name": action["name"], "arguments": action["arguments"]} for action in criteria.get("actions") or ()]
    shop = Retail(database)
    for action in actions:
        try:
            getattr(shop, action["name"])(**action["arguments"])
        except RetailError:  # a look-up that finds nothing is a part of some stories
            if action["name"] in WRITES:
                return None
    after = shop.changed
    told = entry["user_scenario"]["instructions"]
    parts = (told.get(part) for part in ("reason_for_call", "known_info", "unknown_info", "task_instructions"))
    return {
        "id": entry["id"],
        "split": "test" if held_out else "train",
        "request": "\n".join(part for part in parts if part),
        "actions": actions,
        "writes": [action for action in actions if action["name"] in WRITES],
        "before": {name: {key: database[name][key] for key in table} for name, table in after.items()},
        "after": after,
        "says": list(criteria.get("communicate_info") or ()),
        "hands_off": bool(shop.handed_off),
    }


def _read(folder: Path, name: str, default: str | None = None) -> str:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            data = file.read_bytes()
            return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    if default is not None:
        return default
    raise UserError(f"There is no {name} in '{folder}'. Give the folder of a domain of tau2-bench.")
