"""Makes the problems: `python src/earnest/tasks/maths_tool/make.py` writes `data/` anew, always the same.

Every number is drawn, every answer computed here, apart from the code that the oracle runs. Splits share neither a wording nor a thing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from earnest.task import Row

DATA = Path(__file__).parent / "data"
COUNTS = {"train": 42, "dev": 7, "test": 14}  # problems of each family
SEED = 20

# (one of it, many, what holds many, many of those)
THINGS = {
    "train": [
        ("candle", "candles", "carton", "cartons"), ("tile", "tiles", "pallet", "pallets"), ("egg", "eggs", "tray", "trays"),
        ("bolt", "bolts", "tin", "tins"), ("tulip bulb", "tulip bulbs", "sack", "sacks"), ("pencil", "pencils", "case", "cases"),
        ("brick", "bricks", "stack", "stacks"), ("lemon", "lemons", "crate", "crates"),
    ],
    "dev": [("marble", "marbles", "jar", "jars"), ("envelope", "envelopes", "bundle", "bundles"), ("screw", "screws", "drum", "drums")],
    "test": [
        ("button", "buttons", "drawer", "drawers"), ("walnut", "walnuts", "basket", "baskets"), ("postcard", "postcards", "rack", "racks"),
        ("bead", "beads", "bag", "bags"), ("apple", "apples", "bin", "bins"),
    ],
}  # fmt: skip

WORDS: dict[str, dict[str, list[str]]] = {
    "product": {
        "train": [
            "A {box} holds {a} {many}. How many {many} are in {b} {boxes}?",
            "Each of {b} {boxes} is packed with {a} {many}. How many {many} is that?",
            "A shop ordered {b} {boxes} with {a} {many} in each. How many {many} did it order?",
        ],
        "dev": ["There are {a} {many} to a {box}. A ship loads {b} {boxes}. Give its number of {many}."],
        "test": [
            "Somebody filled {b} {boxes}, putting {a} {many} into every one. Count the {many}.",
            "If one {box} takes {a} {many}, what do {b} {boxes} take?",
        ],
    },
    "rest": {
        "train": [
            "A {box} holds {a} {many}. Of the {many} in {b} {boxes}, {c} are broken. How many are whole?",
            "A works made {b} {boxes} of {a} {many} each and sold {c} {many}. How many {many} are left?",
            "From {b} {boxes} with {a} {many} in each, {c} {many} were given away. How many remain?",
        ],
        "dev": ["A store has {b} {boxes}, {a} {many} to a {box}, less {c} {many} that were lost. What is its stock of {many}?"],
        "test": [
            "After {c} {many} went missing out of {b} {boxes} that held {a} apiece, what number of {many} was still there?",
            "Take {b} {boxes} of {a} {many} and throw {c} {many} away. What stays?",
        ],
    },
    "sum": {
        "train": [
            "A works made {list} {many} on five days. How many in all?",
            "Five shops hold {list} {many}. How many {many} do they hold together?",
            "The weekly sales were {list} {many}. How many {many} were sold?",
        ],
        "dev": ["Add up five deliveries of {many}: {list}."],
        "test": [
            "Counting {list}, what is the total of {many} in the five rooms?",
            "{list}: so many {many} came on five trains. Find their sum.",
        ],
    },
    "bill": {
        "train": [
            "{a} {boxes} at {p} coins each, {b} lamps at {q} coins each and {c} ropes at {r} coins each: what is the bill?",
            "A buyer takes {a} {boxes} for {p} coins each, {b} lamps for {q} and {c} ropes for {r} each. How many coins is that?",
            "What do {a} {boxes}, {b} lamps and {c} ropes cost, at {p}, {q} and {r} coins apiece?",
        ],
        "dev": ["Work out an invoice: {a} {boxes} ({p} crowns each), {b} chairs ({q} crowns each), {c} mats ({r} crowns each)."],
        "test": [
            "One {box} costs {p} marks, a kettle {q}, a shovel {r}. Somebody wants {a} {boxes}, {b} kettles, {c} shovels. How many marks?",
            "Pay {p} marks for every one of {a} {boxes}, {q} for every one of {b} kettles, {r} for every one of {c} shovels. The total?",
        ],
    },
    "left over": {
        "train": [
            "{n} {many} are packed into {boxes} of {a}. How many {many} are left over?",
            "A {box} takes {a} {many}. After filling all the {boxes} they can, how many of {n} {many} remain?",
            "Somebody fills {boxes} with {a} {many} each from a heap of {n}. How many {many} do not fill a {box}?",
        ],
        "dev": ["Share {n} {many} out, {a} to every {box}, till no full {box} can be made. What number stays outside?"],
        "test": [
            "Out of {n} {many}, as many full {boxes} as possible are made, at {a} apiece. Say what is unpacked.",
            "Which number of {many} is too few for one more {box}, when {n} are put up in lots of {a}?",
        ],
    },
    "days": {
        "train": [
            "A bridge was closed on {start} and opened again on {end}. How many days lie between the two dates?",
            "A ship left on {start} and came back on {end}. How many days was it away?",
            "How many days is it from {start} to {end}?",
        ],
        "dev": ["Work on a tunnel began on {start}; its end was on {end}. Give the days from the first date to the second."],
        "test": [
            "Count the days after {start} up to and with {end}.",
            "Seed was sown on {start}, the harvest was brought in on {end}. The time from one to the other, in days?",
        ],
    },
}


def problem(family: str, rng: random.Random) -> tuple[dict[str, Any], int, str]:
    """The numbers of one problem, its answer, and Python that finds it."""
    return FAMILIES[family](rng)


def _product(rng: random.Random) -> tuple[dict[str, Any], int, str]:
    a, b = rng.randint(113, 987), rng.randint(123, 2987)
    return {"a": a, "b": b}, a * b, f"{a}*{b}"


def _rest(rng: random.Random) -> tuple[dict[str, Any], int, str]:
    a, b, c = rng.randint(113, 987), rng.randint(112, 989), rng.randint(1_013, 9_987)
    return {"a": a, "b": b, "c": c}, a * b - c, f"{a}*{b}-{c}"


def _sum(rng: random.Random) -> tuple[dict[str, Any], int, str]:
    parts = [rng.randint(1_013, 9_987) for _ in range(5)]
    told = ", ".join(map(str, parts[:-1])) + f" and {parts[-1]}"
    return {"list": told}, sum(parts), "+".join(map(str, parts))


def _bill(rng: random.Random) -> tuple[dict[str, Any], int, str]:
    numbers = [rng.randint(12, 98) if place % 2 == 0 else rng.randint(113, 987) for place in range(6)]
    a, p, b, q, c, r = numbers
    return {"a": a, "p": p, "b": b, "q": q, "c": c, "r": r}, a * p + b * q + c * r, f"{a}*{p}+{b}*{q}+{c}*{r}"


def _left_over(rng: random.Random) -> tuple[dict[str, Any], int, str]:
    a = rng.randint(113, 487)
    rest = rng.randint(11, a - 1)
    n = a * rng.randint(113, 187) + rest
    return {"n": n, "a": a}, rest, f"{n}%{a}"


def _days(rng: random.Random) -> tuple[dict[str, Any], int, str]:
    start = date(1990, 1, 1) + timedelta(rng.randint(0, 9_000))
    days = rng.randint(213, 2_987)
    end = start + timedelta(days)
    code = f"from datetime import date\n(date({end.year},{end.month},{end.day})-date({start.year},{start.month},{start.day})).days"
    return {"start": _spelt(start), "end": _spelt(end)}, days, code


def _spelt(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


FAMILIES: dict[str, Callable[[random.Random], tuple[dict[str, Any], int, str]]] = {
    "product": _product, "rest": _rest, "sum": _sum, "bill": _bill, "left over": _left_over, "days": _days,
}  # fmt: skip


def rows() -> dict[str, list[Row]]:
    """All rows by split."""
    rng = random.Random(SEED)
    seen: set[int] = set()  # no answer twice, so that none is worth remembering
    made: dict[str, list[Row]] = {}
    for split, count in COUNTS.items():
        made[split] = []
        for family in FAMILIES:
            for number in range(count):
                _, many, box, boxes = rng.choice(THINGS[split])
                while True:
                    facts, answer, code = problem(family, rng)
                    wording = WORDS[family][split][number % len(WORDS[family][split])]
                    question = wording.format(many=many, box=box, boxes=boxes, **facts)
                    if answer not in seen and str(answer) not in question:
                        break
                seen.add(answer)
                row = {"id": f"{split}-{family.replace(' ', '-')}-{number}", "question": question[0].upper() + question[1:]}
                made[split].append({**row, "answer": answer, "family": family, "code": code})
        rng.shuffle(made[split])
    return made


def main() -> None:
    """Write the files."""
    for split, found in rows().items():
        lines = [json.dumps(row, ensure_ascii=False) for row in found]
        (DATA / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
