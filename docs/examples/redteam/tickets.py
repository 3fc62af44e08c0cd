"""Tickets to sort: the rows, the prompt, a strict check and the right answer. What is missing is the reward: that is what the steps try."""

import json
from pathlib import Path

CATEGORIES = ("billing", "bug", "account", "refund", "other")
ROWS = Path(__file__).with_name("tickets.jsonl")
FORM = f'{{"category": one of {", ".join(CATEGORIES)}, "urgent": true or false}}'
ASKED = f"Sort the ticket. Answer with one JSON object and nothing else: {FORM}"


def prompt(row):
    return [{"role": "system", "content": ASKED}, {"role": "user", "content": row["ticket"]}]


def oracle(row):
    return json.dumps({"category": row["category"], "urgent": row["urgent"]})


def _once(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def check(text, row):  # judges and never trains
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(value, dict)
        and set(value) == {"category", "urgent"}
        and value["category"] == row["category"]
        and value["urgent"] is row["urgent"]
    )
