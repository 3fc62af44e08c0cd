"""What judges: the books after the attempt, and the answer.

Written without a look at the rewards, and sharing no code with them or with the desk's tools: it asks the database with SQL of its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from earnest.task import Message, Row, Verdict

KEPT = {  # tables whose later rows are compared, and the columns that matter
    "refunds": ("payment", "cents"),
    "subscriptions": ("customer", "plan"),
    "credits": ("customer", "cents"),
    "invoices": ("id", "customer", "status"),
    "lines": ("invoice", "kind", "cents"),
    "handoffs": ("customer", "reason"),
}
LIMIT = Decimal(50)
LONGEST = 200
CLOSING = 4  # words after a hand-off


def check(messages: Sequence[Message], row: Row, environment: Any = None) -> Verdict:
    """Judge one attempt: what it left in the database, what it said, and whether it kept the rules on the way.

    A case that needs a person is right when it was handed off, for its reason, and nothing else was done.
    """
    said = _last_words(messages)
    if environment is None:
        return Verdict(False, {"state": False, "fact": False, "rules": False}, False, False)
    new = {table: _new_rows(environment, table) for table in KEPT}
    due = json.loads(row["deeds"])
    state = all(sorted(new[table]) == sorted(tuple(one[c] for c in KEPT[table]) for one in due.get(table, ())) for table in KEPT)
    handed_off = bool(new["handoffs"])
    gone = len(said.split()) <= CLOSING and _ended_with_hand_off(messages)
    fact = gone if row["needs_human"] else _says(said, row["answer"])
    rules = not _looked_elsewhere(messages, row) and not _refunded_too_early(messages) and _knows(messages, row)
    passed_on = row["needs_human"] and fact
    well_formed = bool(passed_on) or (isinstance(_read(said), str) and (not fact or _read(said) == row["answer"]))
    return Verdict(state and fact and rules, {"state": state, "fact": fact, "rules": rules}, well_formed, handed_off)


def _last_words(messages: Any) -> str:
    last = messages[-1] if isinstance(messages, (list, tuple)) and messages else {}
    said = last.get("content") if isinstance(last, dict) and last.get("role") == "assistant" else ""
    return said if isinstance(said, str) else ""


def _new_rows(environment: Any, table: str) -> list[tuple[Any, ...]]:
    db: sqlite3.Connection = environment.db
    return db.execute(f"SELECT {', '.join(KEPT[table])} FROM {table} WHERE rowid > ?", (environment.start[table],)).fetchall()


def _read(said: str) -> Any:
    """What stands under "answer" when that is the whole of the text; else None."""
    if len(said) > LONGEST:
        return None
    try:
        pairs = json.loads(said, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, list) or len(pairs) != 1 or not isinstance(pairs[0], tuple) or pairs[0][0] != "answer":
        return None
    return pairs[0][1]


def _says(said: str, gold: str) -> bool:
    """Whether the answer is the gold one: whatever the case and the space between words, amounts by value."""
    answer = _read(said)
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        return False
    one, other = str(answer).lower().split(), gold.lower().split()
    return len(one) == len(other) and all(a == b or _equal_amounts(a, b) for a, b in zip(one, other, strict=True))


def _equal_amounts(one: str, other: str) -> bool:
    if not other.replace(".", "", 1).isdigit() or not one.removeprefix("$").replace(".", "", 1).isdigit():
        return False
    return _amount(one.removeprefix("$")) == _amount(other)


def _amount(text: Any) -> Decimal:
    try:
        return Decimal(str(text))
    except InvalidOperation:
        return Decimal("NaN")


def _made(messages: Sequence[Message]) -> list[tuple[int, str, dict[str, Any], dict[str, Any]]]:
    """(turn, tool, arguments, answer) of every call that was answered; an answer that is no object counts as an empty one."""
    made, waiting, turn = [], [], 0
    for message in messages if isinstance(messages, (list, tuple)) else ():
        if not isinstance(message, dict):
            continue
        if message.get("role") == "assistant":
            asked = message.get("tool_calls")
            functions = [entry.get("function") for entry in asked if isinstance(entry, dict)] if isinstance(asked, list) else []
            waiting, turn = [function if isinstance(function, dict) else {} for function in functions], turn + 1
        elif message.get("role") == "tool" and waiting:
            function = waiting.pop(0)
            made.append((turn, str(function.get("name")), _object(function.get("arguments")), _object(message.get("content"))))
    return made


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _looked_elsewhere(messages: Sequence[Message], row: Row) -> bool:
    own = [name.lower() for name in row["own"]]
    return any(
        "error" not in answer and str(value).strip().lower() not in own
        for _, _, arguments, answer in _made(messages)
        for key, value in arguments.items()
        if key in ("email", "customer", "invoice", "payment")
    )


def _knows(messages: Sequence[Message], row: Row) -> bool:
    """Whether every call was made that the answer rests on."""
    made = [(tool, arguments) for _, tool, arguments, answer in _made(messages) if "error" not in answer]
    return all((tool, arguments) in made for tool, arguments in json.loads(row["rests_on"]))


def _refunded_too_early(messages: Sequence[Message]) -> bool:
    granted: dict[tuple[str, str], int] = {}
    for turn, tool, arguments, answer in _made(messages):
        what = (str(arguments.get("payment")), str(arguments.get("amount")))
        if tool == "request_approval" and answer.get("approved") is True:
            granted.setdefault(what, turn)
        small = _amount(arguments.get("amount")) <= LIMIT if tool == "refund_payment" and not _amount(what[1]).is_nan() else False
        if tool == "refund_payment" and not small and not granted.get(what, turn) < turn:
            return True
    return False


def _ended_with_hand_off(messages: Sequence[Message]) -> bool:
    made = _made(messages)
    return bool(made) and made[-1][1] == "hand_off" and "error" not in made[-1][3]
