"""Gold call sequences of BFCL's multi-turn tasks: full marks as they are, none when spoilt."""

import ast
import copy
import gzip
import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from earnest.rewards.calls import as_messages, parse_calls
from earnest.rewards.policy import Before, Call, tool_policy
from earnest.rewards.verifier import Attempt

BFCL = Path(__file__).resolve().parents[2] / "shared" / "data" / "bfcl"
SETS = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param")


def documents():
    """Names of the parameters of every function, in order, so that positional arguments can be read."""
    found = {}
    for file in sorted((BFCL / "multi_turn_func_doc").glob("*.json")):
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            found.setdefault(entry["name"], list(entry["parameters"]["properties"]))
    return found


def read_call(text, parameters):
    """A call written as Python, as a name and arguments."""
    node = ast.parse(text, mode="eval").body
    name = ast.unparse(node.func)
    arguments = dict(zip(parameters[name], map(ast.literal_eval, node.args), strict=False))
    return name, json.loads(json.dumps(arguments | {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}))


def sequences(name):
    path = BFCL / "possible_answer" / f"BFCL_v4_{name}.json.gz"
    if not path.is_file():
        pytest.skip("no BFCL here")
    parameters = documents()
    with gzip.open(path, "rt") as lines:
        entries = [json.loads(line) for line in lines]
    return [(e["id"], [read_call(text, parameters) for turn in e["ground_truth"] for text in turn]) for e in entries]


def row_of(calls):
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}


def chain(calls):
    """A policy that wants these calls, each after the one before it, as far as names and arguments tell them apart."""
    patterns = [Call(name, arguments, exact=True) for name, arguments in calls]
    different = [p for n, p in enumerate(patterns) if patterns.index(p) == n and patterns.count(p) == 1]
    return tool_policy("calls", order=[Before(first, then) for first, then in pairwise(different)])


def value(policy, calls, row):
    return policy(Attempt(tuple(as_messages(calls, answer="done"))), row).value


def spoilt(calls):
    """Each kind of perturbation, at every place."""
    for place, (name, arguments) in enumerate(calls):
        yield "missing", calls[:place] + calls[place + 1 :]
        yield "another tool", [*calls[:place], (f"{name}_x", arguments), *calls[place + 1 :]]
        yield "an argument more", [*calls[:place], (name, {**arguments, "unheard_of": 1}), *calls[place + 1 :]]
        for key in arguments:
            changed = copy.deepcopy(calls)
            changed[place][1][key] = ["no such value", 917_253]
            yield "argument", changed
            del changed[place][1][key]
            yield "argument left out", changed
        yield "twice", [*calls[: place + 1], (name, arguments), *calls[place + 1 :]]
    yield "extra", [*calls, ("another_tool", {})]


@pytest.mark.parametrize("name", SETS)
def test_gold_sequences_get_full_marks_and_spoilt_ones_nothing(name):
    policy, found = tool_policy("calls"), sequences(name)
    tried = 0
    for _, calls in found:
        row = row_of(calls)
        assert value(policy, calls, row) == 1.0
        for kind, made in spoilt(calls) if name == "multi_turn_base" else [("missing", calls[1:])]:
            tried += 1
            assert value(policy, made, row) == 0.0, kind
    assert len(found) == 200 and tried == {"multi_turn_base": BASE}.get(name, 200)


BASE = 8676  # four ways a call and two an argument, and one a sequence


def test_where_order_matters_any_two_steps_swapped_lose_everything():
    swapped = 0
    for _, calls in sequences("multi_turn_base"):
        policy, row = chain(calls), row_of(calls)
        assert value(policy, calls, row) == 1.0
        once = [n for n, call in enumerate(calls) if calls.count(call) == 1]
        for first, then in pairwise(once):
            made = list(calls)
            made[first], made[then] = made[then], made[first]
            swapped += 1
            assert value(policy, made, row) == 0.0
    assert swapped == SWAPS


SWAPS = 940


def test_gold_calls_written_as_text_are_read_back():
    for _, calls in sequences("multi_turn_base"):
        text = "\n".join(f"<tool_call>\n{json.dumps({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls)
        read, problems = parse_calls(text)
        assert [(call.name, call.arguments) for call in read] == calls and not problems


def test_the_order_of_the_calls_is_free_where_no_order_is_asked_for():
    policy = tool_policy("calls")
    for identity, calls in sequences("multi_turn_base")[:50]:
        assert value(policy, random.Random(identity).sample(calls, len(calls)), row_of(calls)) == 1.0
