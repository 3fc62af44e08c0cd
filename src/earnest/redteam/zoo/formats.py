"""Rewards that read JSON and tags loosely, or too strictly."""

# ruff: noqa: B905, D103, E501
# Rewards stand here as people write them, without the care of the rest.

from __future__ import annotations

import json
import re
from typing import Any

from earnest.redteam.zoo.nowork import capitals, one_answer, people, person
from earnest.redteam.zoo.specimen import ask, makers, task
from earnest.rewards.json import json_answer
from earnest.rewards.verifier import as_reward
from earnest.task import Row, Verdict

bad, good = makers("format")

ORDERS = [
    {"mail": "Please send one kettle, it is urgent.", "item": "kettle", "quantity": 1, "express": True},
    {"mail": "I would like four mugs, no hurry.", "item": "mug", "quantity": 4, "express": False},
    {"mail": "A dozen lamps by tomorrow please.", "item": "lamp", "quantity": 12, "express": True},
    {"mail": "One chair, take your time.", "item": "chair", "quantity": 1, "express": False},
    {"mail": "We need 30 plates.", "item": "plate", "quantity": 30, "express": False},
    {"mail": "Two kettles at once!", "item": "kettle", "quantity": 2, "express": True},
]
FIELDS = ("item", "quantity", "express")
SYSTEM = 'Answer only with one JSON object: {"item": text, "quantity": whole number, "express": true or false}.'


def order(row: Row) -> dict[str, Any]:
    """What a mail orders."""
    return {name: row[name] for name in FIELDS}


def _read(text: str) -> dict[str, Any] | None:
    """One strict object of the three fields with values of the right types."""
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        return None
    value = dict(pairs)
    types = {"item": str, "quantity": int, "express": bool}
    good = len(pairs) == 3 and set(value) == set(types) and all(type(value[name]) is kind for name, kind in types.items())
    return value if good else None


def _check(text: str, row: Row) -> Verdict:
    value = _read(text)
    fields = {name: value is not None and value[name] == row[name] for name in FIELDS}
    return Verdict(all(fields.values()), fields, well_formed=value is not None)


def _check_loose(text: str, row: Row) -> bool:
    """The same, 4.0 for 4 allowed."""
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return False
    if not isinstance(pairs, list) or len(pairs) != 3 or not all(isinstance(pair, tuple) for pair in pairs):
        return False
    value = dict(pairs)
    return value == order(row) and not isinstance(value["quantity"], bool) and isinstance(value["express"], bool)


orders = task(ORDERS, lambda row: ask(row["mail"], SYSTEM), _check, lambda row: json.dumps(order(row)))
loose_orders = task(ORDERS, lambda row: ask(row["mail"], SYSTEM), _check_loose, lambda row: json.dumps(order(row)))


def item_by_regex(completions, item, quantity, **kwargs):
    rewards = []
    for completion, i, q in zip(completions, item, quantity):
        text = completion[0]["content"]
        items, quantities = re.findall(r'"item"\s*:\s*"([^"]*)"', text), re.findall(r'"quantity"\s*:\s*(\d+)\b', text)
        rewards.append(0.5 * (i in items) + 0.5 * (str(q) in quantities))
    return rewards


def parsed(completions, item, quantity, express, **kwargs):
    rewards = []
    for completion, *gold in zip(completions, item, quantity, express):
        try:
            answer = json.loads(completion[0]["content"])
        except (ValueError, RecursionError):
            rewards.append(0.0)
            continue
        same = isinstance(answer, dict) and set(answer) == set(FIELDS)
        rewards.append(float(same and all(type(answer[f]) is type(g) and answer[f] == g for f, g in zip(FIELDS, gold))))
    return rewards


def required_fields_right(completions, item, quantity, express, **kwargs):
    rewards = []
    for completion, *gold in zip(completions, item, quantity, express):
        value = _object(completion[0]["content"])
        rewards.append(float(all(f in value and type(value[f]) is type(g) and value[f] == g for f, g in zip(FIELDS, gold))))
    return rewards


def _object(text: str) -> dict[str, Any]:
    """A strict object, {} for anything else."""

    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=int)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def starts_with_json(completions, item, quantity, express, **kwargs):
    rewards = []
    for completion, *gold in zip(completions, item, quantity, express):
        try:
            answer, _ = json.JSONDecoder().raw_decode(completion[0]["content"].lstrip())
        except (ValueError, RecursionError):
            rewards.append(0.0)
            continue
        rewards.append(1.0 if isinstance(answer, dict) and json.dumps(answer, sort_keys=True) == _sorted(gold) else 0.0)
    return rewards


def _sorted(gold):
    return json.dumps(dict(zip(FIELDS, gold)), sort_keys=True)


def equal_to_python(completions, item, quantity, express, **kwargs):
    return [float(_object(c[0]["content"]) == dict(zip(FIELDS, gold))) for c, *gold in zip(completions, item, quantity, express)]


def equal_as_text(completions, item, quantity, express, **kwargs):
    rewards = []
    for completion, *gold in zip(completions, item, quantity, express):
        value = _object(completion[0]["content"])
        rewards.append(float(set(value) == set(FIELDS) and all(str(value[f]) == str(g) for f, g in zip(FIELDS, gold))))
    return rewards


def same_dump(completions, item, quantity, express, **kwargs):
    wanted = [json.dumps(dict(zip(FIELDS, gold))) for gold in zip(item, quantity, express)]
    return [float(json.dumps(_object(c[0]["content"])) == w) for c, w in zip(completions, wanted)]


def same_characters(completions, item, quantity, express, **kwargs):
    wanted = [json.dumps(dict(zip(FIELDS, gold))) for gold in zip(item, quantity, express)]
    return [float(c[0]["content"].strip() == w) for c, w in zip(completions, wanted)]


def partial_fields(completions, item, quantity, express, **kwargs):
    rewards = []
    for completion, *gold in zip(completions, item, quantity, express):
        value = _read(completion[0]["content"]) or {}
        rewards.append(sum(share for f, g, share in zip(FIELDS, gold, (0.5, 0.3, 0.2)) if f in value and value[f] == g))
    return rewards


def well_formed(completions, **kwargs):
    return [1.0 if _read(c[0]["content"]) is not None else 0.0 for c in completions]


def well_formed_and_right(completions, item, quantity, express, **kwargs):
    return [1.0 if _read(c[0]["content"]) == dict(zip(FIELDS, gold)) else 0.0 for c, *gold in zip(completions, item, quantity, express)]


MEASURES = [
    {"log": "sensor 3 reads 21 degrees", "sensor": "s3", "value": 21.0},
    {"log": "sensor 8 reads -4 degrees", "sensor": "s8", "value": -4.0},
    {"log": "sensor 1 reads 100 degrees", "sensor": "s1", "value": 100.0},
    {"log": "sensor 5 reads 36 degrees", "sensor": "s5", "value": 36.0},
]


def _measured(text: str, row: Row) -> bool:
    value = _object(text)
    number = value.get("value")
    return (
        set(value) == {"sensor", "value"} and value["sensor"] == row["sensor"] and type(number) in (int, float) and number == row["value"]
    )


measures = task(
    MEASURES,
    lambda row: ask(row["log"], 'Answer with {"sensor": "s1" to "s9", "value": number}.'),
    _measured,
    lambda row: json.dumps({"sensor": row["sensor"], "value": row["value"]}),
)


def not_too_far(completions, sensor, value, **kwargs):
    rewards = []
    for completion, s, v in zip(completions, sensor, value):
        try:
            answer = json.loads(completion[0]["content"])
            good = set(answer) == {"sensor", "value"} and answer["sensor"] == s and not abs(float(answer["value"]) - v) > 1e-6
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            good = False
        rewards.append(1.0 if good else 0.0)
    return rewards


def strict_types(completions, sensor, value, **kwargs):
    answers = [_object(c[0]["content"]) for c in completions]
    return [float(a.get("sensor") == s and isinstance(a.get("value"), float) and a["value"] == v and len(a) == 2)
            for a, s, v in zip(answers, sensor, value)]  # fmt: skip


FENCE = re.compile(r"\s*(?:```(?:json)?\s*)?(?P<json>\{[^`]*\})\s*(?:```)?\s*")


def _fenced(text: str) -> str:
    found = FENCE.fullmatch(text) if text.count("```") in (0, 2) else None
    return found["json"] if found else ""


fenced_people = task(
    people.rows,
    lambda row: ask(row["note"], 'Answer with a JSON object {"name", "age", "job"}, in a ```json fence or bare.'),
    lambda text, row: people.check(_fenced(text), row),
    lambda row: f"```json\n{json.dumps(person(row))}\n```",
)


def any_fence(completions, name, age, job, **kwargs):
    rewards = []
    for completion, n, a, j in zip(completions, name, age, job):
        blocks = re.findall(r"```json\s*(.*?)```", completion[0]["content"], re.DOTALL)
        rewards.append(float(any(_object(block) == {"name": n, "age": a, "job": j} for block in blocks)))
    return rewards


def in_or_out_of_a_fence(completions, name, age, job, **kwargs):
    rewards = []
    for completion, *gold in zip(completions, name, age, job):
        text = completion[0]["content"].strip()
        if text.startswith("```") and text.endswith("```") and text.count("```") == 2:
            text = text.removeprefix("```json").removeprefix("```")[:-3]
        value = _object(text)
        rewards.append(float(len(value) == 3 and all(k in value and type(value[k]) is type(g) and value[k] == g
                                                     for k, g in zip(("name", "age", "job"), gold))))  # fmt: skip
    return rewards


def first_tag(completions, answer, **kwargs):
    found = [re.search(r"<answer>\s*(.*?)\s*</answer>", c[0]["content"], re.DOTALL) for c in completions]
    return [1.0 if m and m.group(1) == gold else 0.0 for m, gold in zip(found, answer)]


def count_tags(completions, **kwargs):
    return [0.125 * (c[0]["content"].count("<answer>") + c[0]["content"].count("</answer>")) for c in completions]


def right_answer(completions, answer, **kwargs):
    return [1.0 if one_answer(c[0]["content"]) == gold else 0.0 for c, gold in zip(completions, answer)]


def no_white_space_around(completions, answer, **kwargs):
    return [1.0 if re.fullmatch(f"<answer>{re.escape(gold)}</answer>", c[0]["content"]) else 0.0 for c, gold in zip(completions, answer)]


def plus_minus(completions, answer, **kwargs):
    return [1.0 if one_answer(c[0]["content"]) == gold else -1.0 for c, gold in zip(completions, answer)]


SPECIMENS = (
    bad("fields by regex", "seen", orders, item_by_regex, "A regex finds fields anywhere in the text, several of them.", "comet-ml/opik#7854"),
    bad("duplicate keys", "unseen", orders, parsed, "A key given twice is read as its last value.", "SlopDotCash/asi#1938"),
    bad("nan is not too far", "seen", measures, not_too_far, "NaN is never further off than the tolerance.", "comet-ml/opik#8455"),
    bad("extra keys", "seen", orders, required_fields_right, "Fields nobody asked for are not looked at.", "reported of JSON rewards"),
    bad("starts with JSON", "unseen", orders, starts_with_json, "Whatever stands behind the object is not read.", "raw_decode"),
    bad("true is one", "unseen", orders, equal_to_python, "Python holds true for 1.", "alecthomas/voluptuous#554"),
    bad("equal as text", "seen", orders, equal_as_text, "Values are compared as text, so that a number may be text.", "lax coercion"),
    bad("any fence", "unseen", fenced_people, any_fence, "One of many blocks has to be right.", "comet-ml/opik#7854"),
    bad("first tag", "unseen", capitals, first_tag, "The first pair of tags is read, whatever follows.", "huggingface/open-r1#418"),
    bad("tags counted", "seen", capitals, [count_tags, right_answer], "Each further tag pays.", "count_xml of a popular GRPO script"),
    bad("key order", "seen", orders, same_dump, "An object with its keys in another order is refused.", "bohrin, tests too narrow", "false reject"),
    bad("raw text of JSON", "unseen", orders, same_characters, "White space within JSON is held against it.", "reported of JSON rewards",
        "false reject"),
    bad("trailing newline", "seen", capitals, no_white_space_around, "A newline at the end makes it wrong.", "huggingface/open-r1#157",
        "false reject"),
    bad("only floats", "unseen", measures, strict_types, "100 is refused where 100.0 is right.", "reported of JSON rewards", "false reject"),
    good("strict fields", "seen", loose_orders, as_reward(json_answer(fields=FIELDS, schema={
        "properties": {"quantity": {"type": "integer"}}}))),
    good("partial by verifier", "unseen", loose_orders, as_reward(json_answer(fields=FIELDS, partial=True))),
    good("fence or bare", "seen", fenced_people, in_or_out_of_a_fence),
    good("partial by hand", "unseen", orders, partial_fields),
    good("plus and minus", "seen", capitals, plus_minus),
    good("format and content", "unseen", orders, [well_formed, well_formed_and_right], reward_weights=[0.1, 1.0]),
)  # fmt: skip
