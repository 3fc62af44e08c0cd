"""Makes the corpus and the questions: `python src/earnest/tasks/search/make.py` writes `corpus/` and `data/` anew, always the same.

A world of invented towns, rivers, bridges, works and products. Each split has a world of its own and wordings of its own; all documents
stand in one corpus. A document tells of one thing only and names the next one, so that a question over two things needs two look-ups.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earnest.task import Row

DATA = Path(__file__).parent / "data"
SEED = 4
TOWNS = {"train": 60, "dev": 12, "test": 24}  # with as many bridges, works and products, and half as many rivers
COUNTS = {"train": 24, "dev": 5, "test": 11}  # questions of each kind
STARTS = [
    "B", "Br", "C", "D", "Dr", "F", "G", "Gl", "H", "J", "K", "L", "M", "N", "P", "Pr", "Qu", "R", "S", "Sk", "St", "T", "Tr", "V",
    "W", "Z",
]  # fmt: skip
MIDDLES = [
    "al", "an", "ar", "el", "en", "er", "il", "in", "ir", "ol", "on", "or", "ul", "un", "ur", "av", "ev", "ov", "am", "em", "om",
]  # fmt: skip
ENDS = [
    "da", "do", "ga", "ka", "ko", "la", "lo", "ma", "mo", "na", "no", "ra", "ro", "sa", "ta", "to", "va", "vo", "za",
]  # fmt: skip
GOODS = ("kettle", "lamp", "saddle", "clock", "stove", "whistle", "plough", "lantern")


@dataclass(frozen=True)
class Thing:
    """One invented thing.

    Attributes:
        kind: "town", "river", "bridge", "works" or "product".
        name: As it is called everywhere.
        facts: What its document says of it: numbers, and names of other things.
    """

    kind: str
    name: str
    facts: dict[str, Any]


TEXTS = {
    "town": "{name} is a town of {people} people on the river {river}.",
    "river": "The river {name} is {km} km long.",
    "bridge": "The {name} Bridge, open since {year}, is {metres} m long. It stands in {town}.",
    "works": "The {name} Works in {town} began in {year} and has {staff} workers.",
    "product": "The {name} is a {good} of {grams} g, made by the {works} Works.",
}

# Of each kind of question: the first thing, the fact that leads on ("" for one look-up), the fact that is asked for.
KINDS = {
    "people of a town": ("town", "", "people"),
    "length of a river": ("river", "", "km"),
    "town of a bridge": ("bridge", "", "town"),
    "age of a works": ("works", "", "year"),
    "maker of a product": ("product", "", "works"),
    "people of a bridge's town": ("bridge", "town", "people"),
    "river of a works": ("works", "town", "river"),
    "people of a works' town": ("works", "town", "people"),
    "age of a product's works": ("product", "works", "year"),
    "town of a product": ("product", "works", "town"),
}

WORDS: dict[str, dict[str, list[str]]] = {
    "people of a town": {
        "train": ["How many people live in {name}?", "What is the number of people in the town {name}?"],
        "dev": ["{name} counts how many heads?"],
        "test": ["Tell the population of {name}.", "The inhabitants of {name} are how many?"],
    },
    "length of a river": {
        "train": ["How many km long is the river {name}?", "What is the length of the river {name} in km?"],
        "dev": ["From source to mouth, the {name} runs for how many km?"],
        "test": ["Give the km that the {name} flows.", "Over which distance, in km, does the {name} stretch?"],
    },
    "town of a bridge": {
        "train": ["In which town is the {name} Bridge?", "Which town has the {name} Bridge?"],
        "dev": ["Name the place where one can walk over the {name} Bridge."],
        "test": ["The {name} Bridge belongs to what place?", "Where would you look for the {name} Bridge?"],
    },
    "age of a works": {
        "train": ["In which year did the {name} Works begin?", "Since which year is there a {name} Works?"],
        "dev": ["The {name} Works dates from when?"],
        "test": ["Tell the founding year of the {name} Works.", "How far back, to what year, does the {name} Works go?"],
    },
    "maker of a product": {
        "train": ["Which works makes the {name}?", "Who is the maker of the {name}?"],
        "dev": ["The {name} comes out of what factory?"],
        "test": ["Name the producer of the {name}.", "By whom is the {name} manufactured?"],
    },
    "people of a bridge's town": {
        "train": [
            "How many people live in the town of the {name} Bridge?",
            "What is the number of people in the town with the {name} Bridge?",
        ],
        "dev": ["The place around the {name} Bridge counts how many heads?"],
        "test": [
            "Tell the population of the place to which the {name} Bridge belongs.",
            "Where the {name} Bridge is, how many inhabitants are there?",
        ],
    },
    "river of a works": {
        "train": ["On which river is the town of the {name} Works?", "Which river flows through the town of the {name} Works?"],
        "dev": ["Name the water beside the place that houses the {name} Works."],
        "test": ["What stream runs by the home of the {name} Works?", "The {name} Works is in a place; whose banks is it on?"],
    },
    "people of a works' town": {
        "train": ["How many people live in the town of the {name} Works?", "How big, in people, is the town that has the {name} Works?"],
        "dev": ["The place that houses the {name} Works counts how many heads?"],
        "test": ["Tell the population around the {name} Works.", "Home of the {name} Works: with how many inhabitants?"],
    },
    "age of a product's works": {
        "train": ["In which year did the maker of the {name} begin?", "Since which year is there the works that makes the {name}?"],
        "dev": ["The factory behind the {name} dates from when?"],
        "test": [
            "Tell the founding year of the producer of the {name}.",
            "How far back, to what year, goes whoever manufactures the {name}?",
        ],
    },
    "town of a product": {
        "train": ["In which town is the {name} made?", "Which town is home to the maker of the {name}?"],
        "dev": ["Name the place whose factory turns out the {name}."],
        "test": ["The producer of the {name} sits where?", "From what place does the {name} come?"],
    },
}


def names(rng: random.Random) -> Iterator[str]:
    """Invented names, none twice, none a part of another."""
    seen: set[str] = set()
    while True:
        name = (
            rng.choice(STARTS) + rng.choice(MIDDLES) + rng.choice(["", rng.choice("bdgklmnprstv") + rng.choice(MIDDLES)]) + rng.choice(ENDS)
        )
        if not any(name.lower() in other or other in name.lower() for other in seen):
            seen.add(name.lower())
            yield name


def world(towns: int, name: Iterator[str], number: Iterator[int], year: Iterator[int], rng: random.Random) -> list[Thing]:
    """Rivers, towns, bridges, works and products of one split. Each bridge and works stands in a town of its own."""
    rivers = [Thing("river", next(name), {"km": next(number)}) for _ in range(towns // 2)]
    places = [Thing("town", next(name), {"people": next(number), "river": rng.choice(rivers).name}) for _ in range(towns)]

    def shuffled(things: list[Thing]) -> list[Thing]:
        return rng.sample(things, len(things))

    bridges = [Thing("bridge", next(name), {"year": next(year), "metres": next(number), "town": town.name}) for town in shuffled(places)]
    works = [Thing("works", next(name), {"year": next(year), "staff": next(number), "town": town.name}) for town in shuffled(places)]
    products = [
        Thing("product", next(name), {"good": rng.choice(GOODS), "grams": next(number), "works": maker.name}) for maker in shuffled(works)
    ]
    return [*rivers, *places, *bridges, *works, *products]


def questions(split: str, things: list[Thing], rng: random.Random) -> Iterator[Row]:
    """Rows of one split. The documents of the first and, if there is one, the second thing are their evidence."""
    by_name = {thing.name: thing for thing in things}
    for kind, (start, via, asked) in KINDS.items():
        firsts = rng.sample([thing for thing in things if thing.kind == start], COUNTS[split])
        for number, first in enumerate(firsts):
            last = by_name[first.facts[via]] if via else first
            answer = last.facts[asked]
            yield {
                "id": f"{split}-{kind.replace(' ', '-').replace(chr(39), '')}-{number}",
                "question": WORDS[kind][split][number % len(WORDS[kind][split])].format(name=first.name),
                "answer": f"{answer} Works" if asked == "works" else str(answer),
                "number": isinstance(answer, int),
                "hops": 2 if via else 1,
                "queries": [_called(first)] + ([_called(last)] if via else []),
                "kind": kind,
            }


def _called(thing: Thing) -> str:
    """A thing's name as a query: with its kind, where that belongs to the name."""
    return thing.name + {"bridge": " Bridge", "works": " Works"}.get(thing.kind, "")


def make() -> tuple[list[dict[str, str]], dict[str, list[Row]]]:
    """The corpus, and all rows by split."""
    rng = random.Random(SEED)
    name = names(rng)
    # no number twice in all worlds: a number is found in one document only
    number, year = iter(rng.sample(range(2_101, 9_990), 1_000)), iter(rng.sample(range(1_400, 2_000), 400))
    worlds = {split: world(towns, name, number, year, rng) for split, towns in TOWNS.items()}
    rows = {split: list(questions(split, things, rng)) for split, things in worlds.items()}
    for found in rows.values():
        rng.shuffle(found)
    things = [thing for found in worlds.values() for thing in found]
    corpus = [{"text": TEXTS[thing.kind].format(name=thing.name, **thing.facts)} for thing in things]
    rng.shuffle(corpus)
    return corpus, rows


def main() -> None:
    """Write the files."""
    corpus, rows = make()
    for path, found in {"corpus/documents.jsonl": corpus, **{f"data/{split}.jsonl": rows[split] for split in rows}}.items():
        lines = [json.dumps(one, ensure_ascii=False) for one in found]
        (DATA.parent / path).parent.mkdir(exist_ok=True)
        (DATA.parent / path).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
