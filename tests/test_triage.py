import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from earnest import Verdict, load_task
from earnest.errors import UserError
from earnest.rows import load_rows
from earnest.score import missing_columns, score
from earnest.task import judge
from earnest.tasks.triage import check as check_function
from earnest.tasks.triage import rewards as R
from earnest.tasks.triage.check import ALLOWED

TASK = load_task("triage")
ROWS = load_rows(TASK)
ALL = [row for _, row in ROWS.everything()]
REAL = Path(__file__).parents[2] / "shared" / "data" / "triage_real"

ROW = {"id": "x", "subject": "twice??", "body": "24 quid, two times", "gold": ["billing", "refund"], "needs_account_data": True,
       "needs_human": False, "urgency": "medium", "language": "en"}  # fmt: skip
GOOD = '{"category": "billing", "needs_account_data": true, "needs_human": false, "urgency": "medium"}'
FIELDS = json.loads(GOOD)


def said(text):
    return [{"role": "assistant", "content": text}]


def pays(text, gold=("billing", "refund")):
    """(format, category, length) of one text."""
    one = {"completions": [said(text)], "gold": [list(gold)]}
    return R.format_reward(**one)[0], R.category_reward(**one)[0], R.length_penalty(**one)[0]


def answer(**changes):
    return json.dumps({k: v for k, v in (FIELDS | changes).items() if v is not ...})


def raw(field, text):
    """GOOD with one value replaced by raw text, which need not be JSON."""
    return GOOD.replace(f'"{field}": {json.dumps(FIELDS[field])}', f'"{field}": {text}')


WRONG_VALUES = [
    "null", "[]", "{}", "0", "1", "1.0", "-1", "True", "NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000,
    '""', '"true"', '"false"', '"True"', "[true]", '{"a": true}', '["billing"]', '["low"]', '{"billing": 1}', '["billing", "refund"]',
    '[["billing"]]', '"BILLING"', '" billing"', '"billing\\n"', '"billing|refund"', '"billing or refund"', '"LOW"', '"critical"',
    '"unknown"', '"\\ud800"', '{"x": 1, "x": 2}', "[" * 5_000 + "]" * 5_000,
]  # fmt: skip

BAD = {
    "empty": "",
    "whitespace": " \n\t ",
    "byte-order mark": "\ufeff" + GOOD,
    "byte-order mark at the end": GOOD + "\ufeff",
    "no-break space": "\u00a0" + GOOD,
    "not JSON": "It is a billing question.",
    "only the label": '"billing"',
    "empty object": "{}",
    "empty list": "[]",
    "null": "null",
    "a number": "1",
    "list of one": f"[{GOOD}]",
    "wrapped": f'{{"answer": {GOOD}}}',
    "a string of JSON": json.dumps(GOOD),
    "extra field": answer(reason="charged twice"),
    "empty extra field": answer(**{"": None}),
    "extra field nested": answer(extra={"category": "billing"}),
    "field in another case": GOOD.replace("category", "Category"),
    "field with a space": GOOD.replace('"category"', '"category "'),
    **{f"missing {field}": answer(**{field: ...}) for field in FIELDS},
    **{f"renamed {field}": GOOD.replace(field, field + "s") for field in FIELDS},
    "duplicate key, right first": GOOD.replace("}", ', "category": "api"}'),
    "duplicate key, right last": GOOD.replace("{", '{"category": "api", '),
    "duplicate key, both right": GOOD.replace("{", '{"category": "billing", '),
    "duplicate key in place of another": '{"category": "billing", "category": "billing", "needs_human": false, "urgency": "low"}',
    "duplicate key escaped": GOOD.replace("}", ', "c\\u0061tegory": "api"}'),
    "duplicate bool": GOOD.replace("}", ', "needs_human": true}'),
    "duplicate nested": GOOD.replace("}", ', "a": {"x": 1, "x": 2}}'),
    "trailing prose": GOOD + " I hope this helps.",
    "trailing comma": GOOD.replace("}", ",}"),
    "trailing bracket": GOOD + "}",
    "trailing end mark": GOOD + "<|im_end|>",
    "leading prose": "Here it is: " + GOOD,
    "code fence": f"```json\n{GOOD}\n```",
    "comment": GOOD + " // sure",
    "two objects": GOOD + answer(category="api"),
    "two equal objects": GOOD + GOOD,
    "two lines": GOOD + "\n" + GOOD,
    "single quotes": GOOD.replace('"', "'"),
    "Python literals": GOOD.replace("true", "True").replace("false", "False"),
    "cut off": GOOD[:-1],
    "thinking before": "<think>hm</think>" + GOOD,
    "a NUL inside": GOOD.replace("billing", "billing\x00"),
    "raw lone surrogate": GOOD.replace("billing", "billing\ud800"),
    "100k brackets": "[" * 100_000,
    "100k brackets closed": "[" * 100_000 + "]" * 100_000,
    "100k objects": '{"category":' * 100_000,
    "deep in a field": raw("urgency", "[" * 100_000 + "]" * 100_000),
    "very long number": "9" * 100_000,
    "padded beyond the limit": GOOD + " " * 20_000,
    "filler": "billing " * 5_000,
    **{f"{field} = {value[:20]}": raw(field, value) for field in FIELDS for value in WRONG_VALUES},
}  # fmt: skip


@pytest.mark.parametrize("text", BAD.values(), ids=[ascii(name)[1:-1] for name in BAD])
def test_a_malformed_answer_earns_nothing_and_is_judged_malformed(text):
    kind, category, length = pays(text, gold=R.CATEGORIES)
    assert (kind, category) == (0.0, 0.0)
    assert -0.5 <= length <= 0.0
    verdict = check_function(text, ROW)
    assert verdict == Verdict(False, dict.fromkeys(FIELDS, False), well_formed=False, handed_off=False)


def test_the_battery_says_what_it_means():
    assert all(text != GOOD for text in BAD.values())
    assert len([name for name in BAD if "=" in name]) == 4 * len(WRONG_VALUES)


def test_a_right_answer_earns_everything():
    assert pays(GOOD) == (0.2, 1.0, 0.0)
    assert check_function(GOOD, ROW) == Verdict(True, dict.fromkeys(FIELDS, True), well_formed=True, handed_off=False)


def test_every_accepted_label_counts_and_no_other():
    assert [c for c in R.CATEGORIES if pays(answer(category=c))[1] == 1.0] == ["billing", "refund"]
    assert [c for c in R.CATEGORIES if check_function(answer(category=c), ROW).correct] == ["billing", "refund"]


def test_a_wrong_answer_in_the_right_format_earns_the_format_only():
    assert pays(answer(category="api")) == (0.2, 0.0, 0.0)
    verdict = check_function(answer(category="api", urgency="low", needs_human=True), ROW)
    assert verdict.fields == {"category": False, "needs_account_data": True, "needs_human": False, "urgency": False}
    assert (verdict.correct, verdict.well_formed, verdict.handed_off, verdict.all_fields) == (False, True, True, False)


def test_the_other_fields_are_judged_but_not_paid():
    other = answer(needs_account_data=False, urgency="high")
    assert pays(other) == pays(GOOD)
    assert check_function(other, ROW).correct and not check_function(other, ROW).all_fields


@pytest.mark.parametrize("change", [
    lambda t: json.dumps(dict(reversed(json.loads(t).items()))),  # no order of keys is asked for
    lambda t: json.dumps(json.loads(t), indent=2),
    lambda t: json.dumps(json.loads(t), separators=(",", ":")),
    lambda t: f"\r\n\t {t} \n",
    lambda t: t.replace("billing", "\\u0062illing"),
])  # fmt: skip
def test_another_spelling_of_the_same_json_is_as_good(change):
    assert pays(change(GOOD)) == (0.2, 1.0, 0.0)
    assert check_function(change(GOOD), ROW).all_fields


@pytest.mark.parametrize(
    ("characters", "penalty"), [(0, 0), (199, 0), (200, 0), (202, -0.005), (300, -0.25), (400, -0.5), (401, -0.5), (10**6, -0.5)]
)
def test_length_costs_from_200_to_400_characters(characters, penalty):
    for letter in "x字":
        assert R.length_penalty([said(letter * characters)]) == [pytest.approx(penalty)]


@pytest.mark.parametrize("completion", [
    None, [], {}, "", GOOD, 7, [None], [[]], [7], [GOOD], [{}], [{"role": "assistant"}],
    said(None), said(7), said([GOOD]), said({"text": GOOD}),
    said([{"type": "text", "text": GOOD}]), said(GOOD.encode()), said(json.loads(GOOD)),
])  # fmt: skip
def test_a_completion_without_text_is_wrong_and_no_crash(completion):
    assert R.format_reward([completion]) == [0.0]
    assert R.category_reward([completion], gold=[["billing"]]) == [0.0]
    assert R.length_penalty([completion]) == [0.0]


@pytest.mark.parametrize("text", [None, 7, b"", [GOOD], {}])
def test_the_check_takes_what_is_no_text_as_malformed(text):
    assert check_function(text, ROW).well_formed is False


ODD_GOLDS = [
    None, [], (), {}, "", "spam", ["spam"], ["billing", "spam"], ["billing", None], [None], [["billing"]], [{}],
    7, True, math.nan, b"billing",
]  # fmt: skip


@pytest.mark.parametrize("gold", ODD_GOLDS, ids=repr)
def test_a_row_without_usable_gold_gives_no_verdict(gold):
    for text in ("", GOOD, "[" * 100_000):
        assert R.category_reward([said(text)], gold=[gold]) == [None]
    row = ROW | {"gold": gold}
    verdict = check_function(GOOD, row)
    assert (verdict.correct, verdict.well_formed, verdict.fields["category"]) == (False, True, None)
    assert TASK.slices["category"](row) == "unknown" and TASK.baseline_text(row)[1] == []
    with pytest.raises(UserError, match="'x' has no usable gold"):
        TASK.oracle(row)


def test_one_label_as_text_is_usable_gold():
    assert R.category_reward([said(GOOD)] * 2, gold=["billing", "api"]) == [1.0, 0.0]
    assert check_function(GOOD, ROW | {"gold": "billing"}).correct
    assert json.loads(TASK.oracle(ROW | {"gold": "billing"}))["category"] == "billing"


@pytest.mark.parametrize("field", ["needs_account_data", "needs_human", "urgency"])
@pytest.mark.parametrize("value", [..., None, 1, 0, "true", "urgent", [], {}, math.nan])
def test_a_field_without_gold_is_not_judged(field, value):
    row = {k: v for k, v in (ROW | {field: value}).items() if v is not ...}
    verdict = check_function(GOOD, row)
    assert verdict.fields[field] is None and verdict.all_fields
    assert json.loads(TASK.oracle(row))[field] == ("low" if field == "urgency" else False)
    if field == "needs_human":
        assert TASK.needs_human(row) is None


def test_rewards_and_check_name_the_same_fields_and_values():
    assert tuple(ALLOWED) == R.FIELDS
    assert (ALLOWED["category"], ALLOWED["urgency"]) == (R.CATEGORIES, R.URGENCIES)


def test_check_and_rewards_share_no_code():
    source = Path(R.__file__).with_name("check.py").read_text(encoding="utf-8")
    imported = {line.split()[1] for line in source.splitlines() if line.startswith(("import", "from"))}
    assert imported == {"__future__", "json", "typing", "earnest.task"}


# Any text, any JSON, and answers that are almost right.
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([*R.CATEGORIES, *R.URGENCIES]),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(R.FIELDS) | st.text(max_size=5), v, max_size=5),
    max_leaves=8,
)
VALUE = st.sampled_from([json.dumps(v) for v in (*R.CATEGORIES, *R.URGENCIES, True, False)]) | st.sampled_from(WRONG_VALUES)
RIGHT = [st.sampled_from([json.dumps(v) for v in ALLOWED[field]]) for field in R.FIELDS]
RIGHT_PAIRS = st.tuples(*RIGHT).map(lambda values: list(zip(R.FIELDS, values, strict=True))).flatmap(st.permutations)
LOOSE_PAIRS = st.lists(st.tuples(st.sampled_from([*R.FIELDS, "x"]), VALUE), min_size=3, max_size=5)
PAIRS = RIGHT_PAIRS | st.tuples(RIGHT_PAIRS, LOOSE_PAIRS.map(lambda p: p[:1])).map(lambda both: both[0] + both[1]) | LOOSE_PAIRS
OBJECTS = PAIRS.map(lambda pairs: "{" + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}")
AROUND = st.sampled_from(["", "", "", " ", "\n", "x", "\ufeff", "```", "[", "}", "{}", "\u00a0"])
ANSWERS = st.text() | JSON_VALUES.map(json.dumps) | st.tuples(AROUND, OBJECTS, AROUND).map("".join)


@settings(deadline=None)  # a shared machine may stall
@given(st.lists(ANSWERS, min_size=1, max_size=4), st.lists(st.sampled_from(R.CATEGORIES), max_size=3))
def test_rewards_are_finite_and_pay_only_what_the_check_calls_right(texts, gold):
    rows = [ROW | {"gold": gold}] * len(texts)
    scores = score(TASK.rewards, TASK.weights, [TASK.prompt(r) for r in rows], [said(t) for t in texts], rows)
    assert np.isfinite(scores.total).all()
    for text, row, (kind, category, length) in zip(texts, rows, scores.values, strict=True):
        verdict = judge(TASK, text, row)
        assert (kind > 0) == verdict.well_formed
        assert (category > 0) == (verdict.fields["category"] is True) == verdict.correct
        assert np.isnan(category) == (not gold)
        assert -0.5 <= length <= 0


# The data.


def grams(text):
    text = " ".join(text.lower().split())
    return {text[i : i + 4] for i in range(max(1, len(text) - 3))}


def largest_similarity(left, right):
    """Largest Jaccard similarity of character 4-grams between two lists of texts."""
    counter = CountVectorizer(analyzer=grams, dtype=np.float32).fit(left + right)
    a, b = counter.transform(left), counter.transform(right)
    both = (a @ b.T).toarray()
    return (both / (a.sum(axis=1) + b.sum(axis=1).T - both)).max()


def test_counts():
    languages = Counter(row["language"] for row in ALL)
    assert languages["en"] >= 480 and languages["zh"] >= 240
    assert sum(len(row["gold"]) == 2 for row in ALL) >= 0.15 * len(ALL)
    shares = {name: len(rows) / len(ALL) for name, rows in ROWS.by_split.items()}
    assert shares == pytest.approx({"train": 0.79, "dev": 0.06, "test": 0.15}, abs=0.01)


def test_rows_have_exactly_the_documented_fields():
    for row in ALL:
        assert set(row) == set(ROW) | {"split"}
        assert isinstance(row["subject"], str) and isinstance(row["body"], str) and TASK.baseline_text(row)[0].strip()
        assert 1 <= len(row["gold"]) == len(set(row["gold"])) <= 2 and set(row["gold"]) <= set(R.CATEGORIES)
        assert type(row["needs_human"]) is bool and type(row["needs_account_data"]) is bool and row["urgency"] in R.URGENCIES
        assert row["id"].startswith(row["language"] + "-")


def test_ids_are_unique():
    assert len({row["id"] for row in ALL}) == len(ALL)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_each_split_has_every_category_in_every_language(split):
    rows = ROWS.split(split)
    assert {(row["language"], row["gold"][0]) for row in rows} == {(lang, c) for lang in ("en", "zh") for c in R.CATEGORIES}
    assert {row["urgency"] for row in rows} == set(R.URGENCIES) and {row["needs_human"] for row in rows} == {True, False}


@pytest.mark.parametrize(("one", "other"), [("train", "dev"), ("train", "test"), ("dev", "test")])
def test_no_near_duplicate_across_splits(one, other):
    assert largest_similarity(*([TASK.baseline_text(r)[0] for r in ROWS.split(s)] for s in (one, other))) < 0.6


def test_the_similarity_measure_sees_a_near_duplicate():
    text = "why have you lot taken 24 quid out twice on the same day"
    assert largest_similarity([text, "什么"], [text.upper() + "!", "hm"]) > 0.9


def test_the_oracle_earns_all_there_is_and_passes_the_check():
    texts = [TASK.oracle(row) for row in ALL]
    scores = score(TASK.rewards, TASK.weights, [TASK.prompt(r) for r in ALL], [said(t) for t in texts], ALL)
    assert scores.total == pytest.approx(1.2)
    for text, row in zip(texts, ALL, strict=True):
        verdict = judge(TASK, text, row)
        assert verdict.all_fields and verdict.well_formed and None not in verdict.fields.values()
        assert verdict.handed_off == row["needs_human"] == TASK.needs_human(row)


def test_an_empty_answer_earns_nothing():
    scores = score(TASK.rewards, TASK.weights, [TASK.prompt(r) for r in ALL], [said("")] * len(ALL), ALL)
    assert (scores.total <= 0).all()


def test_the_oracle_writes_fields_in_the_order_of_the_prompt():
    assert TASK.oracle(ROW) == GOOD


def test_the_prompt_is_a_shared_system_message_and_the_ticket():
    first, second = TASK.prompt(ROW), TASK.prompt(ROW | {"subject": ""})
    assert [m["role"] for m in first] == ["system", "user"]
    assert first[0] == second[0] and len(first[0]["content"]) < 300
    assert first[1]["content"] == "twice??\n24 quid, two times"
    assert second[1]["content"] == "24 quid, two times"
    assert TASK.prompt({"body": "hi"})[1]["content"] == TASK.prompt({"subject": None, "body": "hi"})[1]["content"] == "hi"
    for word in (*R.FIELDS, *R.CATEGORIES, *R.URGENCIES, "true", "false"):
        assert word in first[0]["content"]


def test_the_task_loads_whole():
    assert TASK.name == "triage" and set(TASK.slices) == {"language", "category"}
    assert TASK.slices["language"](ROW) == "en" and TASK.slices["category"](ROW) == "billing"
    assert TASK.slices["language"]({}) == "unknown"
    assert TASK.baseline_text(ROW) == ("twice??\n24 quid, two times", ["billing", "refund"])
    assert not any(missing_columns(f, list(ROW)) for f in TASK.rewards)


def test_real_tickets_with_only_a_category_load_and_score():
    if not REAL.is_dir():
        pytest.skip("the real tickets are not beside this checkout")
    rows = [row for _, row in load_rows(TASK, data=REAL).everything()]
    texts = [TASK.oracle(row) for row in rows]
    scores = score(TASK.rewards, TASK.weights, [TASK.prompt(r) for r in rows], [said(t) for t in texts], rows)
    assert len(rows) > 1_000 and scores.total == pytest.approx(1.2)
    for text, row in zip(texts, rows, strict=True):
        verdict = judge(TASK, text, row)
        assert verdict.all_fields and verdict.fields["needs_human"] is None is TASK.needs_human(row)
