"""The shop of tau2-bench's retail domain: its tools, written from its policy, the form of its database and its gold actions."""

from __future__ import annotations

import ast
import copy
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

WRITES = (
    "cancel_pending_order",
    "modify_pending_order_address",
    "modify_pending_order_items",
    "modify_pending_order_payment",
    "modify_user_address",
    "return_delivered_order_items",
    "exchange_delivered_order_items",
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
    "transfer_to_human_agents",  # changes no record; that it was made is a part of the end state
)
REASONS = ("no longer needed", "ordered by mistake")


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
    def start(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables that can change, as they were."""
        return {"users": self._base["users"], "orders": self._base["orders"], "conversation": {}}

    @property
    def changed(self) -> dict[str, dict[str, Any]]:
        """The records that are no longer what they were, by table and key; a hand-off is one of the conversation."""
        handed_off = {"hand_off": {"done": True}} if self.handed_off else {}
        now = {"users": self._users, "orders": self._orders, "conversation": handed_off}
        return {name: {k: v for k, v in now[name].items() if v != table.get(k)} for name, table in self.start.items()}

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
            raise ValueError("product not found")
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
            raise ValueError("invalid reason")
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
            raise ValueError("the new payment method must differ from the one payment there is")
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
            raise ValueError("refunds go to the original payment method or a gift card")
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
            raise ValueError("user not found")
        return found

    def _user(self, user_id: str) -> dict:
        if user_id not in self._users:
            raise ValueError("user not found")
        return self._users[user_id]

    def _order(self, order_id: str) -> dict:
        if order_id not in self._orders:
            raise ValueError("order not found")
        return self._orders[order_id]

    def _pending(self, order_id: str, modified: bool = False) -> dict:
        order = self._order(order_id)
        if order["status"] != "pending" and not (modified and order["status"].startswith("pending")):
            raise ValueError(f"the order is {order['status']}, not pending")
        return order

    def _delivered(self, order_id: str) -> dict:
        order = self._order(order_id)
        if order["status"] != "delivered":
            raise ValueError(f"the order is {order['status']}, not delivered")
        return order

    def _variant(self, item_id: str) -> tuple[str, dict]:
        for product_id, product in self._products.items():
            if item_id in product["variants"]:
                return product_id, product["variants"][item_id]
        raise ValueError("item not found")

    def _method(self, order: Mapping[str, Any], payment_method_id: str) -> dict:
        methods = self._user(order["user_id"])["payment_methods"]
        if payment_method_id not in methods:
            raise ValueError("payment method not found")
        return methods[payment_method_id]

    def _holds(self, order: Mapping[str, Any], item_ids: Sequence[str]) -> None:
        if not item_ids or Counter(item_ids) - Counter(item["item_id"] for item in order["items"]):
            raise ValueError("the order does not hold these items")

    def _afford(self, order: Mapping[str, Any], payment_method_id: str, amount: float) -> None:
        method = self._method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise ValueError("the gift card has not enough on it")

    def _swap(self, order: Mapping[str, Any], item_ids: Sequence[str], new_item_ids: Sequence[str], payment_method_id: str) -> float:
        """What a swap costs, once it is known to be allowed."""
        self._holds(order, item_ids)
        if len(item_ids) != len(new_item_ids):
            raise ValueError("each item needs one new item")
        difference = 0.0
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = next(item for item in order["items"] if item["item_id"] == old)
            product_id, variant = self._variant(new)
            if product_id != item["product_id"]:
                raise ValueError("the new item is another product")
            if not variant["available"]:
                raise ValueError(f"item {new} is not available")
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
    raise ValueError("invalid expression")
