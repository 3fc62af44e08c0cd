"""The agent's side of tau2-bench's telecom domain: its tools, written from its policy, the form of its database and its gold actions."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

TODAY = "2025-02-25"  # the policy's
MOST_REFUELLED = 2.0  # GB
KEYS = {"plans": "plan_id", "lines": "line_id", "customers": "customer_id", "bills": "bill_id", "devices": "device_id"}
WRITES = ("send_payment_request", "resume_line", "enable_roaming", "disable_roaming", "refuel_data")
READS = ("get_customer_by_phone", "get_details_by_id", "transfer_to_human_agents")


class Telecom:
    """A telephone company: customers, lines, plans, bills. Records are copied before they are changed."""

    def __init__(self, database: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._base = {name: {record[key]: record for record in database.get(name, ())} for name, key in KEYS.items()}
        self.reset()

    def reset(self, initial: Sequence[Mapping[str, Any]] = (), customer_pays: bool = False, **row: Any) -> None:
        """The database as it was read, then what happened before the conversation."""
        self._tables = {name: dict(table) for name, table in self._base.items()}
        self._pays, self.handed_off = customer_pays, ""
        for event in initial:
            known = event["name"] in WRITES
            getattr(self, event["name"] if known else f"_{event['name']}")(**event["arguments"])
        self.start = {name: dict(table) for name, table in self._tables.items()} | {"conversation": {}}

    @property
    def changed(self) -> dict[str, dict[str, Any]]:
        """The records that are no longer what they were, by table and key; a hand-off is one of the conversation."""
        now = self._tables | {"conversation": {"hand_off": {"done": True}} if self.handed_off else {}}
        return {name: {k: v for k, v in now[name].items() if v != table.get(k)} for name, table in self.start.items()}

    def get_customer_by_phone(self, phone_number: str) -> dict:
        """Find a customer by the phone number of the account or of a line.

        Args:
            phone_number: The number.
        """
        for customer in self._tables["customers"].values():
            if phone_number in (customer["phone_number"], *(self._tables["lines"][line]["phone_number"] for line in customer["line_ids"])):
                return customer
        raise ValueError("customer not found")

    def get_details_by_id(self, id: str) -> dict:
        """A customer, line, plan, device or bill.

        Args:
            id: Its id.
        """
        for table in self._tables.values():
            if id in table:
                return table[id]
        raise ValueError("not found")

    def send_payment_request(self, customer_id: str, bill_id: str) -> str:
        """Ask the customer to pay an overdue bill.

        Args:
            customer_id: The customer.
            bill_id: The bill.
        """
        bill = self._of(customer_id, "bills", bill_id)
        if bill["status"] != "Overdue":
            raise ValueError(f"the bill is {bill['status']}, not Overdue")
        if any(self._tables["bills"][key]["status"] == "Awaiting Payment" for key in self._tables["customers"][customer_id]["bill_ids"]):
            raise ValueError("another bill is awaiting payment")
        self._change("bills", bill_id)["status"] = "Paid" if self._pays else "Awaiting Payment"
        return "sent, and paid" if self._pays else "sent"

    def resume_line(self, customer_id: str, line_id: str) -> dict:
        """Lift the suspension of a line.

        Args:
            customer_id: The customer.
            line_id: The line.
        """
        line = self._of(customer_id, "lines", line_id)
        if line["status"] != "Suspended":
            raise ValueError("the line is not suspended")
        if line["contract_end_date"] < TODAY:
            raise ValueError("the line's contract has ended")
        if any(self._tables["bills"][key]["status"] == "Overdue" for key in self._tables["customers"][customer_id]["bill_ids"]):
            raise ValueError("there is an overdue bill")
        line = self._change("lines", line_id)
        line["status"] = "Active"
        line.pop("suspension_start_date", None)
        return line

    def enable_roaming(self, customer_id: str, line_id: str) -> dict:
        """Turn data roaming on for a line.

        Args:
            customer_id: The customer.
            line_id: The line.
        """
        return self._roam(customer_id, line_id, True)

    def disable_roaming(self, customer_id: str, line_id: str) -> dict:
        """Turn data roaming off for a line.

        Args:
            customer_id: The customer.
            line_id: The line.
        """
        return self._roam(customer_id, line_id, False)

    def refuel_data(self, customer_id: str, line_id: str, gb_amount: float) -> dict:
        """Add data to a line, at the plan's price.

        Args:
            customer_id: The customer.
            line_id: The line.
            gb_amount: How much; 2 GB at most.
        """
        line = self._of(customer_id, "lines", line_id)
        if not 0 < gb_amount <= MOST_REFUELLED:
            raise ValueError("from more than 0 to 2 GB can be added")
        price = self._tables["plans"][line["plan_id"]]["data_refueling_price_per_gb"]
        line = self._change("lines", line_id)
        line["data_refueling_gb"] = round(line["data_refueling_gb"] + gb_amount, 3)
        return {"data_refueling_gb": line["data_refueling_gb"], "charge": round(gb_amount * price, 2)}

    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the customer over to a person.

        Args:
            summary: What it is about.
        """
        self.handed_off = summary or "-"
        return "Transfer successful"

    def _set_data_usage(self, customer_id: str, line_id: str, data_used_gb: float) -> None:
        self._of(customer_id, "lines", line_id)
        self._change("lines", line_id)["data_used_gb"] = data_used_gb

    def _suspend_line_for_overdue_bill(self, customer_id: str, line_id: str, new_bill_id: str, contract_ended: bool) -> None:
        line = self._of(customer_id, "lines", line_id)
        due = self._tables["plans"][line["plan_id"]]["price_per_month"]
        self._tables["bills"][new_bill_id] = {
            "bill_id": new_bill_id, "customer_id": customer_id, "total_due": due, "due_date": "2025-01-31", "status": "Overdue",
        }  # fmt: skip
        self._change("customers", customer_id)["bill_ids"].append(new_bill_id)
        line = self._change("lines", line_id)
        line |= {"status": "Suspended", "suspension_start_date": "2025-02-15"}
        line |= {"contract_end_date": "2025-01-31"} if contract_ended else {}

    def _roam(self, customer_id: str, line_id: str, on: bool) -> dict:
        self._of(customer_id, "lines", line_id)
        line = self._change("lines", line_id)
        line["roaming_enabled"] = on
        return {"line_id": line_id, "roaming_enabled": on}

    def _of(self, customer_id: str, table: str, key: str) -> dict:
        """A record that belongs to a customer."""
        customer = self._tables["customers"].get(customer_id)
        if customer is None or key not in customer[f"{table[:-1]}_ids"] or key not in self._tables[table]:
            raise ValueError("the customer has no such record")
        return self._tables[table][key]

    def _change(self, table: str, key: str) -> dict:
        self._tables[table][key] = copy.deepcopy(self._tables[table][key])
        return self._tables[table][key]
