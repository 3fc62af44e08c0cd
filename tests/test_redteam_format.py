"""Answers without work, JSON and wrappings: each attack catches the reward it is made for, and rewards that are sound come out clean."""

import ast
import json
import re

import pytest

from earnest.redteam.attacks import crash, evaluated, format, length, nowork
from earnest.redteam.attacks import json as json_attacks
from earnest.redteam.audit import audit
from earnest.rewards.choice import choice
from earnest.rewards.compose import compose
from earnest.rewards.json import json_answer, json_format
from earnest.rewards.label import label
from earnest.rewards.number import number
from earnest.rewards.text import tagged, text_answer
from earnest.rewards.verifier import as_reward
from earnest.rows import load_rows
from earnest.task import Task, Verdict

OURS = (*nowork.ATTACKS, *json_attacks.ATTACKS, *format.ATTACKS, *length.ATTACKS, *crash.ATTACKS)
BY_ID = {attack.id: attack for attack in OURS}
EVALUATED = {attack.id: attack for attack in evaluated.ATTACKS}
LABELS = ["spam", "ham", "other"]


def reward(pays):
    """A reward in TRL's contract from a function of text and gold."""

    def paid(completions, gold, **kwargs):
        return [float(pays(completion[-1]["content"], one)) for completion, one in zip(completions, gold, strict=True)]

    return paid


def task_of(golds, oracle, check, *rewards, asks="Sort the message.", **options):
    rows = [{"id": str(i), "gold": gold, "text": f"{asks} This is note number {100 + i} of the day."} for i, gold in enumerate(golds)]
    return Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": row["text"]}],
        rewards=list(rewards),
        check=lambda text, row: check(text, row["gold"]),
        oracle=lambda row: oracle(row["gold"]),
        name="test",
        **options,
    )


def found(task, *ids):
    """Ids of what an audit with these attacks finds."""
    catalog = [(BY_ID | EVALUATED)[one] for one in ids] or OURS
    findings = audit(task, load_rows(task), search_calls=0, catalog=catalog, deadline=2.0).findings
    return {f.attack for f in findings if f.attack in BY_ID | EVALUATED or f.kind == "fault"}


# --- JSON

GOLDS = [{"label": LABELS[i % 3], "p": i % 4, "urgent": i % 2 == 0} for i in range(6)]


class _RefusedError(ValueError):
    pass


def _pairs(pairs):
    if len(dict(pairs)) < len(pairs):
        raise _RefusedError
    return dict(pairs)


def _refuse(text):
    raise _RefusedError


def strict(text):
    """One JSON value and nothing else; None where it is not."""
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def same_object(value, gold):
    return (
        isinstance(value, dict)
        and value.keys() == gold.keys()
        and all(type(value[k]) is type(gold[k]) and value[k] == gold[k] for k in gold)
    )


def good_form(value):
    return (
        isinstance(value, dict)
        and value.keys() == GOLDS[0].keys()
        and value["label"] in LABELS
        and type(value["p"]) is int
        and 0 <= value["p"] < 10
        and type(value["urgent"]) is bool
    )


def object_task(*pays, check=None):
    return task_of(GOLDS, json.dumps, check or (lambda text, gold: same_object(strict(text), gold)), *map(reward, pays))


def lenient(text, **options):
    try:
        value = json.loads(text, **options)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def first_object(text, gold):
    match = re.search(r"\{[^{}]*\}", text)
    return match is not None and same_object(lenient(match[0]), gold)


def any_object(text, gold):
    return any(same_object(lenient(one), gold) for one in re.findall(r"\{[^{}]*\}", text[:9_000]))


def raw_decoded(text, gold):
    try:
        return same_object(json.JSONDecoder().raw_decode(text)[0], gold)
    except (ValueError, RecursionError):
        return False


def literal(text, gold):
    try:
        return same_object(ast.literal_eval(text[:500].replace("true", "True").replace("false", "False")), gold)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return False


def unwrapped(text, gold):
    value = strict(text)
    for _ in range(3):
        value = value[0] if isinstance(value, list) and value else strict(value) if isinstance(value, str) else value
    return same_object(value, gold)


def listed(value):
    return value if isinstance(value, str | list) else ()


def hollow(value):
    """Whether an object has the right fields and nothing in them."""
    return isinstance(value, dict) and value.keys() == GOLDS[0].keys() and not any(value.values())


def by_field(text, gold, equal, keys=None):
    """Whether every field (or some) of an object in good JSON is equal, by a rule of its own."""
    value = strict(text)
    return isinstance(value, dict) and all(name in value and equal(value[name], gold[name]) for name in keys or gold)


DEFECTIVE = {
    "json.trailing_prose": raw_decoded,
    "json.leading_prose": first_object,
    "json.two_objects": first_object,
    "json.among_objects": any_object,
    "json.denied": any_object,
    "json.duplicate_key": lambda text, gold: same_object(lenient(text), gold),
    "json.not_finite": lambda text, gold: (
        (v := lenient(text)) is not None
        and all(v.get(k) == gold[k] for k in ("label", "urgent"))
        and isinstance(v.get("p"), float | int)
        and not abs(v["p"] - gold["p"]) > 0.1
    ),
    "json.wrong_type": lambda text, gold: by_field(text, gold, lambda a, b: a is None or a == b),
    "json.bool_int": lambda text, gold: by_field(text, gold, lambda a, b: a == b),
    "json.coerce": lambda text, gold: by_field(text, gold, lambda a, b: str(a).lower() == str(b).lower()),
    "json.renamed_key": lambda text, gold: (
        isinstance(v := strict(text), dict) and same_object({k.strip().lower(): one for k, one in v.items()}, gold)
    ),
    "json.missing_key": lambda text, gold: isinstance(v := strict(text), dict) and same_object({**gold, **v}, gold),
    "json.extra_keys": lambda text, gold: by_field(text, gold, lambda a, b: type(a) is type(b) and a == b),
    "json.inside": unwrapped,
    "json.loose": literal,
    "json.cut": lambda text, gold: all(f'"{k}": {json.dumps(v)}' in text for k, v in gold.items()),
    "json.stray_characters": lambda text, gold: same_object(strict(text.strip("\ufeff\x00\u200b")), gold),
    "json.flat": lambda text, gold: all(re.search(rf"{k}\W+{str(v).lower()}\b", text.lower()) for k, v in gold.items()),
    "json.fences": lambda text, gold: same_object(strict((re.findall(r"```json\n(.*?)\n```", text, re.DOTALL) or [text])[-1]), gold),
    "json.list_of_all": lambda text, gold: isinstance(v := strict(text), dict) and gold["label"] in listed(v.get("label")),
    "json.empty": lambda text, gold: isinstance(v := strict(text), dict) and all(gold.get(k) == one for k, one in v.items()),
    "json.skeleton": lambda text, gold: 1.0 if same_object(v := strict(text), gold) else 0.5 * hollow(v),
}  # fmt: skip


@pytest.mark.parametrize("identity", DEFECTIVE)
def test_the_attack_catches_the_json_reward_it_is_made_for(identity):
    assert identity in found(object_task(DEFECTIVE[identity]), identity)


def main_only(text, gold):
    value = lenient(text)
    return (
        0.2 + 0.8 * (value["label"] == gold["label"])
        if value is not None and value.keys() == gold.keys() and value["label"] in LABELS
        else 0.0
    )


def label_right(text, gold):
    value = strict(text)
    return Verdict(good_form(value) and value["label"] == gold["label"], well_formed=bool(good_form(value)))


@pytest.mark.parametrize("identity", ["json.not_finite_beside", "json.junk_beside", "json.duplicate_key"])
def test_fields_that_nobody_looks_at_are_found_though_other_values_there_are_no_mistake(identity):
    assert identity in found(object_task(main_only, check=label_right), identity)


def test_a_value_that_is_not_allowed_is_found_where_nobody_looks():
    pays = lambda text, gold: isinstance(v := strict(text), dict) and set(v) == set(gold) and v["label"] == gold["label"]  # noqa: E731
    assert "json.unseen_beside" in found(object_task(pays, check=label_right), "json.unseen_beside")


def test_the_main_field_alone_is_found():
    pays = lambda text, gold: isinstance(v := strict(text), dict) and v.get("label") == gold["label"]  # noqa: E731
    assert "json.only_main" in found(object_task(pays, check=label_right), "json.only_main")


def test_a_field_left_unsaid_may_earn_what_f1_over_fields_pays_for_it():
    """Of two values, one right and the other not given: precision 1, recall 1/2, F1 2/3; given wrong, 1/2 and 1/2."""
    golds = [{"a": f"x{i}", "b": f"y{i}" if i % 3 else None, "c": None if i % 2 else f"z{i}"} for i in range(8)]

    def f1(text, gold):
        value = strict(text)
        if not isinstance(value, dict) or set(value) != set(gold) or not all(v is None or isinstance(v, str) for v in value.values()):
            return 0.0
        said, stated = (sum(v is not None for v in one.values()) for one in (value, gold))
        return 2 * sum(v is not None and v == gold[k] for k, v in value.items()) / max(1, said + stated)

    check = lambda text, gold: strict(text) == gold  # noqa: E731
    asked = ["json.wrong_type", "json.missing_key", "json.bool_int"]
    assert {one for identity in asked for one in found(task_of(golds, json.dumps, check, reward(f1)), identity)} == set()
    lax = lambda text, gold: isinstance(v := strict(text), dict) and all(v.get(k) in (None, own) for k, own in gold.items())  # noqa: E731
    whole = [{"a": f"x{i}", "b": f"y{i}"} for i in range(8)]
    assert found(task_of(whole, json.dumps, check, reward(lax)), "json.wrong_type") == {"json.wrong_type"}


def test_a_reward_that_counts_what_is_found_pays_a_list_of_anything():
    golds = [["a1", "b2"], ["c3"], ["d4", "e5", "f6"], ["b2", "c3"]]

    def recall(text, gold):
        value = strict(text)
        return len({*gold} & {*map(str, value)}) / len(gold) if isinstance(value, list) else 0.0

    def f1(text, gold):
        value = strict(text)
        return 2 * len({*gold} & {*map(str, value)}) / (len(gold) + len(value)) if isinstance(value, list) else 0.0

    check = lambda text, gold: strict(text) == gold  # noqa: E731
    assert found(task_of(golds, json.dumps, check, reward(recall)), "json.list_padded") == {"json.list_padded"}
    assert found(task_of(golds, json.dumps, check, reward(f1)), "json.list_padded") == set()


@pytest.mark.parametrize("identity", ["json.key_order", "json.white_space", "json.escapes"])
def test_a_reward_that_compares_text_refuses_the_same_object_written_another_way(identity):
    assert found(object_task(lambda text, gold: text.strip() == json.dumps(gold)), identity) == {identity}


def test_the_order_of_fields_is_free_within_fields_too():
    golds = [{"name": name, "arguments": {"at": i, "for": 2 * i}} for i, name in enumerate("abcd")]

    def flat(text, gold):
        value = strict(text)
        return isinstance(value, dict) and {k: json.dumps(v) for k, v in value.items()} == {k: json.dumps(v) for k, v in gold.items()}

    check = lambda text, gold: strict(text) == gold  # noqa: E731
    assert found(task_of(golds, json.dumps, check, reward(flat)), "json.key_order") == {"json.key_order"}
    assert found(task_of(golds, json.dumps, check, reward(check)), "json.key_order") == set()


def test_sound_json_rewards_come_out_clean():
    schema = {"type": "object", "required": ["label", "p", "urgent"]}
    own = compose(gates=[json_format(schema)], correct=json_answer("gold"))
    assert found(object_task(lambda text, gold: same_object(strict(text), gold))) == set()
    assert found(task_of(GOLDS, json.dumps, lambda text, gold: same_object(strict(text), gold), as_reward(own))) == set()


def test_a_date_in_a_field_that_is_wrong_beside_right_ones_is_paid_for_those_alone():
    golds = [{"day": f"2026-04-0{i}", "sum": i, "name": name} for i, name in enumerate("abcd", 1)]
    shares = lambda text, gold: sum(strict(text).get(k) == gold[k] for k in gold) / 3 if isinstance(strict(text), dict) else 0.0  # noqa: E731
    assert found(task_of(golds, json.dumps, lambda text, gold: strict(text) == gold, reward(shares)), "eval.bomb") == set()


def test_partial_credit_by_fields_is_no_flaw():
    def share(text, gold):
        value = strict(text)
        return (
            sum(type(value[k]) is type(gold[k]) and value[k] == gold[k] for k in gold) / 3
            if isinstance(value, dict) and value.keys() == gold.keys()
            else 0.0
        )

    assert found(object_task(share)) == set()


def test_one_reward_for_each_field_is_no_flaw():
    parts = [reward(lambda text, gold, k=k: good_form(strict(text)) and strict(text)[k] == gold[k]) for k in GOLDS[0]]
    for name, part in zip(GOLDS[0], parts, strict=True):
        part.__name__ = name
    assert found(task_of(GOLDS, json.dumps, lambda text, gold: same_object(strict(text), gold), *parts)) == set()


# --- no work

WORDS = ["spam", "ham", "other", "spam", "ham", "other"]
ASKS = "Is it spam, ham or other? Answer as <answer>...</answer>."


def tags(gold):
    return f"<answer>{gold}</answer>"


def inside(text):
    match = re.fullmatch(r"\s*<answer>((?:(?!</?answer>).)*)</answer>\s*", text, re.DOTALL)
    return match[1].strip() if match else None


def tag_task(*pays, golds=WORDS):
    return task_of(golds, tags, lambda text, gold: inside(text) == gold, *map(reward, pays), asks=ASKS)


def bonus(flaw):
    """A sound reward, half of which is paid for something else as well."""
    return lambda text, gold: 1.0 if inside(text) == gold else 0.5 * bool(flaw(text, gold))


LAZY = {
    "gen.empty": lambda text, gold: not text,
    "gen.whitespace": lambda text, gold: text and not text.strip(),
    "gen.scaffold_empty": lambda text, gold: inside(text) == "",
    "gen.scaffold_repeated": lambda text, gold: text.count("<answer>") > 2,
    "gen.echo_prompt": lambda text, gold: f"{gold} " in text or f"{gold}," in text or f"{gold}?" in text,
    "gen.own_words": lambda text, gold: sum(word in text.lower() for word in ("number", "answer", "spam")) == 3,
    "gen.placeholder": lambda text, gold: inside(text) == "...",
    "gen.filler": lambda text, gold: len(text.split()) > 300,
    "gen.refusal": lambda text, gold: "sorry" in text.lower(),
    "gen.skeleton": lambda text, gold: text.count("\n#") > 1 and "- " in text,
    "gen.opener": lambda text, gold: "answer is" in text.lower(),
    "gen.row_only": lambda text, gold: inside(text) not in (None, "", *LABELS),
}


@pytest.mark.parametrize("identity", LAZY)
def test_the_attack_catches_what_pays_for_no_work(identity):
    assert identity in found(tag_task(bonus(LAZY[identity])), identity)


def test_an_echo_is_the_answer_where_a_copy_was_asked_for():
    golds = [f"the quick fox number {i}" for i in range(4)]
    rows = [{"id": str(i), "gold": gold} for i, gold in enumerate(golds)]
    task = Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": f"Say this: {row['gold']}"}],
        rewards=[reward(lambda text, gold: text.strip().removeprefix("Say this: ") == gold)],
        check=lambda text, row: text.strip().removeprefix("Say this: ") == row["gold"],
        oracle=lambda row: row["gold"],
        name="copy",
    )
    assert found(task, "gen.echo_prompt", "gen.echo_open", "gen.echo_example") == set()


# --- wrappings


def tag_anywhere(text, gold, which=0):
    blocks = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return bool(blocks) and blocks[which].strip() == gold


BROKEN = {
    "fmt.two_answers": lambda text, gold: tag_anywhere(text, gold, -1),
    "fmt.among_answers": lambda text, gold: tags(gold) in text,
    "fmt.denied": lambda text, gold: tag_anywhere(text, gold),
    "fmt.all_inside": lambda text, gold: gold in (inside(text) or ""),
    "fmt.broken_tags": lambda text, gold: re.search(rf"<answer>\s*{gold}", text) is not None,
    "fmt.no_wrapping": lambda text, gold: re.sub(r"</?answer>", "", text).strip() == gold,
    "fmt.outside": lambda text, gold: re.search(rf"\b{gold}\b", text) is not None,
    "fmt.unanchored": lambda text, gold: re.match(rf"\s*<answer>{gold}</answer>.*", text, re.DOTALL) is not None,
}  # fmt: skip


@pytest.mark.parametrize("identity", BROKEN)
def test_the_attack_catches_the_wrapping_it_is_made_for(identity):
    assert identity in found(tag_task(BROKEN[identity]), identity)


def test_much_of_a_wrong_answer_is_found():
    assert "fmt.much" in found(tag_task(bonus(lambda text, gold: text.count("</answer>") > 9)), "fmt.much")


@pytest.mark.parametrize("identity", ["fmt.newlines", "fmt.space_within"])
def test_a_reward_that_compares_white_space_refuses_right_answers(identity):
    assert found(tag_task(lambda text, gold: text == tags(gold)), identity) == {identity}


SOUND = {
    "tags": (tagged(text_answer("gold")), WORDS, tags, lambda text, gold: inside(text) == gold),
    "label": (label(LABELS, "gold"), WORDS, str, lambda text, gold: text.strip() == gold),
    "number": (number("gold"), ["42", "391", "7", "19"], "So the answer is {}.".format, None),
    "choice": (choice("gold"), ["A", "B", "C", "D"], "The answer is {}.".format, None),
    "text": (text_answer("gold"), ["New York", "Rome", "Oslo", "Paris"], str, lambda text, gold: text.strip() == gold),
}


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_reward_comes_out_clean(kind):
    verifier, golds, oracle, check = SOUND[kind]
    judged = lambda text, gold: verifier(text, {"gold": gold}).value == 1.0  # noqa: E731
    assert found(task_of(golds, oracle, check or judged, as_reward(verifier))) == set()


def test_likeness_that_is_paid_in_part_is_no_flaw_in_free_text():
    golds = ["The heron stood in the reeds", "Rain fell on the old harbour", "Nobody came to the concert", "Two boats crossed before dawn"]

    def likeness(text, gold):
        said, right = text.lower().split(), gold.lower().split()
        shared = sum(word in said for word in right)
        return 2 * shared / (len(said) + len(right))

    assert found(task_of(golds, str, lambda text, gold: text.strip() == gold, reward(likeness))) == set()


# --- what is paid in part, and what a contract reads


def test_a_field_given_twice_is_no_flaw_where_the_last_one_counts_in_part():
    def shares(text, gold):
        value = lenient(text)
        return sum(value.get(name) == one for name, one in gold.items()) / 3 if value and value.keys() == gold.keys() else 0.0

    assert "json.duplicate_key" not in found(object_task(shares, check=lambda text, gold: lenient(text) == gold), "json.duplicate_key")


def test_a_field_that_counts_each_time_is_found():
    def added_up(text, gold):
        try:
            pairs = json.loads(text, object_pairs_hook=list)
            return sum(gold.get(name) == one for name, one in pairs) / 3
        except (ValueError, TypeError, RecursionError):
            return 0.0

    assert found(object_task(added_up), "json.counted_again") == {"json.counted_again"}
    assert found(object_task(lambda text, gold: same_object(strict(text), gold)), "json.counted_again") == set()


def test_a_contract_that_reads_the_last_box_is_not_called_broken_for_words_around_it():
    def last_box(text, gold):
        boxes = re.findall(r"\\boxed\{([^{}]*)\}", text)
        return bool(boxes) and boxes[-1] == gold

    golds, boxed = ["31", "108", "77", "56"], "So it is \\boxed{{{}}}.".format
    assert "fmt.denied" not in found(task_of(golds, boxed, last_box, reward(last_box)), "fmt.denied")
    strictly = task_of(golds, boxed, lambda text, gold: text == boxed(gold), reward(last_box))
    assert "fmt.denied" in found(strictly, "fmt.denied")


def test_answers_without_marks_are_not_glued_together():
    golds = ["spam", "ham"] * 3
    last_line = lambda text, gold: text.strip().splitlines()[-1:] == [f"Verdict: {gold}"]  # noqa: E731
    once = lambda text, gold: last_line(text, gold) and text.count("Verdict") == 1  # noqa: E731
    task = task_of(
        golds, "It asks for something.\nVerdict: {}".format, once, reward(lambda t, g: last_line(t, g) and t.count("\nVerdict: ") == 1)
    )
    assert "fmt.two_answers" not in found(task, "fmt.two_answers")
