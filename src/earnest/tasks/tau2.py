"""Domains of tau2-bench as environments and tasks: retail whole, and what an agent does itself in telecom.

`tau2(folder)` reads a folder of the benchmark (`db.json`, `tasks.json`, `policy.md`, `split_tasks.json`; each may be gzipped). Nothing of
the benchmark ships here. Its data holds no code of the tools: what they do is written here from the policy's text, from the form of the
database (its cancelled orders show how a refund is booked) and from the gold actions.

The benchmark plays the customer with a model. Here the customer has said everything and agreed to everything beforehand, so that an
attempt is the agent's calls and one last message.
"""

from __future__ import annotations

import gzip
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from earnest.errors import UserError
from earnest.rewards.calls import as_messages, no_leaked_tags
from earnest.rewards.compose import compose
from earnest.rewards.policy import tool_policy
from earnest.rewards.state import final_state
from earnest.rewards.verifier import Attempt, Verifier, as_reward
from earnest.task import Limits, Message, Row, Task, Verdict
from earnest.tasks import tau2_retail, tau2_telecom
from earnest.tasks.tau2_retail import Retail
from earnest.tasks.tau2_telecom import Telecom

NOTE = "\n\nThe customer has said everything below, agrees to what follows from it and answers no questions. Act, then answer once."


def tau2(folder: str | Path) -> Task:
    """A task out of one of the benchmark's folders: retail, or telecom.

    Its rows are the tasks in which the agent has something to do or to say, and whose gold writes the policy allows, with their split; the
    end state that these lead to is what is expected.

    Args:
        folder: With `db.json`, `tasks.json`, `policy.md`, `split_tasks.json`; or with `db.toml`, `tasks_small.json`, `main_policy.md`.

    Raises:
        UserError: A file is missing, or the folder is of another domain.
    """
    folder = Path(folder)
    telecom = (folder / "db.toml").is_file()
    if telecom:
        database = tomllib.loads(_read(folder, "db.toml"))
        entries, policy = json.loads(_read(folder, "tasks_small.json")), _read(folder, "main_policy.md")
        domain, world = tau2_telecom, lambda: Telecom(database)
    else:
        database, entries = json.loads(_read(folder, "db.json")), json.loads(_read(folder, "tasks.json"))
        policy = _read(folder, "policy.md")
        domain, world = tau2_retail, lambda: Retail(database)
    if not database.keys() >= ({"lines", "bills"} if telecom else {"users", "orders", "products"}):
        raise UserError(f"'{folder}' holds neither the retail nor the telecom database. Other domains of tau2-bench are not supported.")
    held_out = set(json.loads(_read(folder, "split_tasks.json", "{}")).get("test", ()))
    rows = [row for entry in entries if (row := _row(world(), domain.WRITES, entry, entry["id"] in held_out)) is not None]

    def prompt(row: Row) -> list[Message]:
        return [{"role": "system", "content": policy + NOTE}, {"role": "user", "content": row["request"]}]

    return Task(
        name=f"tau2_{'telecom' if telecom else 'retail'}",
        rows=rows,
        prompt=prompt,
        rewards=[as_reward(reward(domain.READS))],
        check=check,
        oracle=oracle,
        environment=world,
        limits=Limits(turns=32, calls=32),
    )


def reward(reads: Sequence[str]) -> Verifier:
    """The end state and what must be said; every write a gold one and no other; an answer after the last call. Reading is free."""
    state = final_state("after", final=final, start="before", says="says", unchanged=True, name="state")
    writes = tool_policy("writes", allowed=reads, duplicates="allow", at_most=32, name="policy")
    return compose(correct=state, gates=[writes, no_leaked_tags("answered")], name="tau2")


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


def check(messages: Sequence[Message], row: Row, environment: Retail | Telecom) -> Verdict:
    """Whether the database is what the gold actions make of it, the customer was handed over where they should be, and was told all."""
    last = messages[-1] if messages else {}
    said = last.get("content") if last.get("role") == "assistant" else ""
    said = said if isinstance(said, str) else ""
    handed_off = bool(environment.handed_off)
    state = json.dumps(environment.changed, sort_keys=True) == json.dumps(row["after"], sort_keys=True)
    told = bool(said.strip()) and all(part.replace(",", "") in said.replace(",", "") for part in row["says"])
    return Verdict(state and told and handed_off == row["hands_off"], {"state": state, "told": told}, None, handed_off)


def _row(world: Any, writes: Sequence[str], entry: Mapping[str, Any], held_out: bool) -> Row | None:
    """A task of the benchmark as a row; None where no end state tells right from wrong, or the policy refuses one of its writes.

    Where the agent must only refuse, nothing tells a refusal from an agent who sleeps; the benchmark asks a model there. What customers
    do with their phones is no business of the agent; that they pay a bill is.
    """
    criteria, given = entry["evaluation_criteria"], (entry.get("initial_state") or {}).get("initialization_actions") or ()
    listed = criteria.get("actions") or ()
    actions = [{"name": a["name"], "arguments": a["arguments"]} for a in listed if a.get("requestor") != "user"]
    if listed and not actions:
        return None
    setting = {
        "initial": [{"name": a["func_name"], "arguments": a["arguments"]} for a in given if a["env_type"] == "assistant"],
        "customer_pays": any(a["name"] == "make_payment" for a in listed),
    }
    world.reset(**setting)
    for action in actions:
        try:
            getattr(world, action["name"])(**action["arguments"])
        except ValueError:  # a look-up that finds nothing is a part of some stories
            if action["name"] in writes:
                return None
    after, says = world.changed, list(criteria.get("communicate_info") or ())
    if not any(after.values()) and not says:
        return None
    told = entry["user_scenario"]["instructions"]
    parts = (told.get(part) for part in ("reason_for_call", "known_info", "unknown_info", "task_instructions"))
    return {
        "id": entry["id"],
        "split": "test" if held_out else "train",
        "request": "\n".join(part for part in parts if part),
        **setting,
        "actions": actions,
        "writes": [action for action in actions if action["name"] in writes],
        "before": {name: {key: world.start[name][key] for key in table if key in world.start[name]} for name, table in after.items()},
        "after": after,
        "says": says,
        "hands_off": bool(world.handed_off),
    }


def _read(folder: Path, name: str, default: str | None = None) -> str:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            data = file.read_bytes()
            return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    if default is not None:
        return default
    raise UserError(f"There is no {name} in '{folder}'. Give the folder of a domain of tau2-bench.")
