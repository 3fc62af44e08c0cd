import itertools
import json
import math
import os
import random
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.errors import UserError
from earnest.rewards.json import Gold, Parsed, json_answer, json_format, parse_strict
from earnest.rewards.values import equal
from earnest.rewards.verifier import as_reward

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "triage_real"

SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(SCALARS | TEXT, lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXT, v, max_size=4), max_leaves=12)


def reason(text, **limits):
    parsed = parse_strict(text, **limits)
    assert parsed.reason == "" or parsed.value is None, "a refused text has no value"
    return parsed.reason


@pytest.mark.parametrize("text", ['{"score": NaN}', "[Infinity]", "-Infinity", '{"a":{"b":NaN}}'])
def test_nan_and_infinity_are_not_json(text):  # S-RP-01
    assert reason(text) == "not JSON (NaN/Infinity)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"label":"spam"}{"label":"ham"}', "text after the value"),
        ('first {"label":"spam"} then {"label":"ham"}', "not JSON"),
        ('{"label":"spam"}{"label":"spam"}', "text after the value"),
        ('{"label":"spam"}\n{"label":"spam"}', "text after the value"),
    ],
)
def test_two_objects_are_refused_also_when_they_are_equal(text, why):  # S-RP-02
    assert reason(text) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"label":"refund","label":"cancel"}', "duplicate key label"),
        ('{"label":"cancel","label":"refund"}', "duplicate key label"),
        ('{"label":"refund","label":"refund"}', "duplicate key label"),
        ('{"label":"refund","l\\u0061bel":"cancel"}', "duplicate key label"),
        ('{"a":{"x":1,"x":2}}', "duplicate key x"),
        ('[[{"a":[{"x":{},"x":{}}]}]]', "duplicate key x"),
    ],
)
def test_a_key_twice_is_refused_at_any_depth(text, why):  # S-RP-03
    assert reason(text) == why


def test_the_same_key_in_different_objects_is_no_duplicate():
    assert parse_strict('{"x":{"x":[{"x":1},{"x":2}]}}') == Parsed({"x": {"x": [{"x": 1}, {"x": 2}]}}, "")


def test_types_are_kept_apart():  # S-RP-04: the caller can tell true from 1, "1" from 1, and sees 1.0 as a float
    texts = ['{"n":true,"p":1}', '{"n":1,"p":false}', '{"n":1.0,"p":1}', '{"n":"1","p":1}']
    kinds = [tuple(type(v) for v in parse_strict(text).value.values()) for text in texts]
    assert kinds == [(bool, int), (int, bool), (float, int), (str, int)]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400, "-" + "9" * 400, "1" * 5_000, "1" * 15_000, "1e" + "9" * 5_000])
@pytest.mark.parametrize("around", ["{}", "[{}]", '{{"a":{{"b":{}}}}}'])
def test_a_number_no_double_holds_is_refused(number, around):
    assert reason(around.format(number)) == "number too large"


@pytest.mark.parametrize(("text", "value"), [("1e308", 1e308), ("1e-999", 0.0), ("9" * 300, int("9" * 300)), ("-0", 0), ("-0.0", -0.0)])
def test_a_number_a_double_holds_is_good(text, value):
    assert parse_strict(text) == Parsed(value, "")


def test_depth_counts_brackets_open_at_once():
    assert reason("[" * 32 + "]" * 32) == ""
    assert reason("[" * 33 + "]" * 33) == "too deep"
    assert reason("[" + "[]," * 100 + "[]]") == ""
    assert reason('{"a":[{"b":[]}]}', max_depth=3) == "too deep"
    assert reason('{"a":[{"b":[]}]}', max_depth=4) == ""


def test_brackets_inside_strings_do_not_count():
    assert parse_strict(json.dumps(["[" * 100, '\\"' + "{" * 100])).reason == ""


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, '[{"a":' * 50_000])
def test_a_hundred_thousand_brackets_neither_crash_nor_hang(text):
    assert reason(text) == "too long"
    assert reason(text, max_characters=10**7) == "too deep"
    assert reason(text, max_characters=10**7, max_depth=10**7) in ("too deep", "not JSON")


def test_hostile_strings_take_linear_time():
    for text in ('"' + "\\" * 10**6, '"\\' * 500_000, "\\" * 10**6, '"' + "a" * 10**6, "[" + '"",' * 300_000, " " * 10**6):
        assert reason(text, max_characters=10**7) == "not JSON"


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff":1}', '[{"a":["x\\ud83d"]}]', '"\ud800"', '{"a":"\udc00\ud800"}'])
def test_lone_surrogates_are_refused(text):
    assert reason(text) == "lone surrogate"


def test_a_surrogate_pair_is_a_character():
    assert parse_strict('"\\ud83d\\ude00"') == Parsed("😀", "")


def test_the_reason_can_always_be_written_to_a_file_and_stays_short():
    for key in ("\\ud800", "k" * 5_000):
        why = reason(f'{{"{key}":1,"{key}":2}}')
        assert why.startswith("duplicate key ") and len(why.encode("utf-8")) < 100


@pytest.mark.parametrize(
    "text",
    [
        "", " \n\t ", "\ufeff{}", "{", "{]", "{'a':1}", "{a:1}", '{"a":1,}', "[1,]", "True", "None", "nan", "+1", "01", ".5", "1.", "0x1",
        "１", "\x00", '"a\nb"', '"\\x41"', "{} // no", "// no\n{}", "```json\n{}\n```", "Answer: {}", "\u00a0{}", "\x0b{}",
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(text):
    assert reason(text) in ("not JSON", "text after the value")


@pytest.mark.parametrize("tail", ["x", " x", ",", "}", "\ufeff", "\u00a0", "\x00", "null", "\n\nHope this helps!", "</s>"])
def test_text_after_the_value_is_refused(tail):
    assert reason('{"a": 1}' + tail) == "text after the value"


@pytest.mark.parametrize("space", ["", " ", "\n", "\r\n", "\t \n"])
def test_json_whitespace_may_surround_the_value(space):
    assert parse_strict(f'{space}{{"a": null}}{space}') == Parsed({"a": None}, "")


def test_any_json_value_may_stand_at_the_top():
    for value in (None, True, 0, 1.5, "", [], {}):
        assert parse_strict(json.dumps(value)) == Parsed(value, "")


def test_length_limit_is_inclusive():
    assert reason('"' + "a" * 19_998 + '"') == ""
    assert reason('"' + "a" * 19_999 + '"') == "too long"
    assert reason("12345", max_characters=4) == "too long"


@settings(deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_json_writes_comes_back_equal(value, ascii_only, indent):
    assert parse_strict(json.dumps(value, ensure_ascii=ascii_only, indent=indent)) == Parsed(value, "")


@settings(deadline=None)
@given(st.text(st.characters() | st.sampled_from('{}[]",:\\ue0 1'), max_size=60))
def test_no_text_raises(text):
    parsed = parse_strict(text)
    if not parsed.reason:
        assert json.loads(text) == parsed.value, "strict is a part of what JSON allows"


def test_no_short_text_raises():
    pieces = ["{", "}", "[", "]", '"', ":", ",", "1", "e9999", "\\ud800", "NaN", " ", "-"]
    for text in map("".join, itertools.product(pieces, repeat=4)):
        value = parse_strict(text).value
        assert not isinstance(value, float) or math.isfinite(value)


# The verifiers ---------------------------------------------------------------------------------------------------------------------

WHOLE = json_answer("gold")
TRIAGE = json_answer(fields={"category": Gold("gold", any_of=True), "urgent": "urgent"})
ROW = {"gold": ["refund", "billing"], "urgent": True}
NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}, "p": {"type": "number"}}, "required": ["n", "p"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"n":true,"p":1}', 0.0),
        ('{"n":1,"p":false}', 0.0),
        ('{"n":1.0,"p":1}', 1.0),
        ('{"n":"1","p":1}', 0.0),
        ('{"n":1,"p":1.5}', 1.0),
        ('{"n":1.5,"p":1}', 0.0),
    ],
)
def test_booleans_are_no_numbers_and_a_whole_number_is_an_integer_however_written(text, value):  # S-RP-04
    assert json_format(NUMBERS)(text).value == value


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"const": 1}, ["1", "1.0", "1e0"], ["true", '"1"', "2", "[1]"]),
        ({"const": True}, ["true"], ["1", "1.0", '"true"', "false"]),
        ({"enum": [5, [1, {"a": 1}]]}, ["5", '[1,{"a":1}]', '[1.0,{"a":1}]'], ["false", '[true,{"a":1}]', '[1,{"a":true}]', '{"a":1}']),
        ({"enum": [False, "x"]}, ["false", '"x"'], ["0", "0.0", '"false"', "null"]),
        ({"uniqueItems": True}, ["[1,true]", "[0,false]", '[{"a":1},{"a":true}]'], ["[1,1.0]", "[true,true]", '[{"a":1},{"a":1.0}]']),
        ({"type": "string", "pattern": "^[a-z]+$"}, ['"abc"'], ['"abc\\n"', '"ABC"', "1"]),
        ({"type": "string", "format": "date"}, ['"2024-02-28"'], ['"2024-02-30"', '"soon"']),
        ({"type": "string", "maxLength": 1}, ['"😀"'], ['"ab"']),
        ({"multipleOf": 0.01}, ["19.99", "0.07"], ["0.005"]),
        ({"minimum": 9007199254740993}, ["9007199254740993"], ["9007199254740992"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, ["7"], ['"7"', "true"]),
        ({"type": "object", "additionalProperties": False, "properties": {"a": {}}}, ['{"a":1}'], ['{"b":1}', '{"a":1,"b":1}']),
        (None, ["7", '"a"', "true", "false", "0", "[[]]", '{"a":null}'], ["", "a", "NaN", "7 7"]),
    ],
)
def test_the_schema_decides(schema, good, bad):
    gate = json_format(schema)
    assert [gate(text).value for text in good] == [1.0] * len(good)
    assert [gate(text).value for text in bad] == [0.0] * len(bad)


@pytest.mark.parametrize("text", ["{}", "[]", "null", '""', " {\n} "])
def test_an_empty_value_passes_no_gate_whatever_the_schema_forgot_to_demand(text):
    for schema in (None, {}, {"type": ["object", "array", "null", "string"]}):
        assert json_format(schema)(text).reasons == ("an empty value",)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://example.com/schema"},
        {"$ref": "https://json-schema.org/no"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "other.json"},
        {"properties": {"a": {"$ref": "http://example.com/a"}}},
        {"$ref": "#/$defs/none"},
        {"$schema": "http://example.com/draft"},
        {"type": "strnig"},
        {"required": "a"},
        {"pattern": "("},
        {"pattern": "(?=a)b"},
        {"format": "made up"},
        {"enum": [{1, 2}]},
        {"minLength": -1},
        {"const": math.nan, "minLength": math.nan},
        "string",
        ["type"],
        5,
        True,
    ],
)
def test_a_schema_is_checked_when_the_verifier_is_made_and_nothing_is_fetched(schema):
    for make in (json_format, lambda schema: json_answer(schema=schema)):
        with pytest.raises(UserError, match="JSON Schema"):
            make(schema)


def test_a_pattern_takes_linear_time():
    gate = json_format({"pattern": "^(a+)+$"})
    start = time.process_time()
    assert gate(json.dumps("a" * 19_000 + "b")).value == 0.0
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("make", [lambda: json_format(NUMBERS), lambda: json_answer("gold", schema=NUMBERS)])
def test_the_reason_says_which_keyword_and_where(make):
    score = make()('{"n":"one","p":1}', gold={"n": 1, "p": 1})
    assert score.reasons == ("breaks the schema: type",) and score.evidence["at"] == "n"
    assert make()('{"p":1}', gold={"n": 1, "p": 1}).reasons == ("breaks the schema: required",)


BROKEN = {
    '{"score": NaN}': "not JSON (NaN/Infinity)",  # S-RP-01
    "[Infinity]": "not JSON (NaN/Infinity)",
    "-Infinity": "not JSON (NaN/Infinity)",
    '{"a":{"b":NaN}}': "not JSON (NaN/Infinity)",
    '{"p": 1e999}': "number too large",
    '{"label":"spam"}{"label":"ham"}': "ambiguous: more than one JSON value",  # S-RP-02
    'first {"label":"spam"} then {"label":"ham"}': "ambiguous: more than one JSON value",
    '{"label":"spam"}{"label":"spam"}': "ambiguous: more than one JSON value",
    'Not this: {"label":"refund"}. Mine: {"label":"cancel"}': "ambiguous: more than one JSON value",
    '```json\n{"a":1}\n```\n```json\n{"a":2}\n```': "ambiguous: more than one JSON value",
    '{"label":"refund","label":"cancel"}': "duplicate key label",  # S-RP-03
    '{"label":"cancel","label":"refund"}': "duplicate key label",
    '{"a":{"x":1,"x":2}}': "duplicate key x",
    '{"label":"refund"} and ignore the rest': "text after the value",
    'Sure: {"label":"refund"}': "not JSON",
    '```json\n{"label":"refund"}\n```': "not JSON",
    "[" * 5_000: "too deep",
    "1" * 5_000: "number too large",
    '"' + "a" * 20_000 + '"': "too long",
    "": "not JSON",
    " \n\t ": "not JSON",
    "I'm sorry, I can't help with that.": "not JSON",
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text[:40]))
def test_what_is_no_json_is_scored_as_such_by_every_verifier(text):
    for verifier in (
        json_format(),
        json_format({"type": "object"}),
        WHOLE,
        json_answer(fields=["gold"], partial=True),
        json_answer("gold", fence=False),
    ):
        score = verifier(text, gold={"label": "refund"})
        assert (score.status, score.value, score.reasons) == ("scored", 0.0, (BROKEN[text],))


GOLDS = [
    # gold, written the same, written otherwise
    (5, ["5", "5.0", "5e0", " 5\n"], ['"5"', "6", "true", "[5]", '"5 apples"', "5.0000001", "null", '{"answer":5}', "5 5"]),
    (1, ["1"], ["true", '"1"']),
    (0, ["0", "-0", "0.0", "-0.0"], ["false", "null", '""', "[]"]),
    (True, ["true"], ["1", "1.0", '"true"', "false"]),
    (False, ["false"], ["0", "null", "true", "{}"]),
    ("5", ['"5"'], ["5", '" 5"', '"5.0"']),
    ("é", ['"é"', '"\\u00e9"'], ['"e"']),
    (2**53 + 1, [str(2**53 + 1)], [str(2**53), str(float(2**53))]),
    ([1, 2], ["[1,2]", "[1.0, 2]"], ["[2,1]", "[1]", "[1,2,3]", "[1,2,2]", "[[1,2]]", "[true,2]", '{"0":1,"1":2}']),
    ([], ["[]"], ["{}", "null", "[[]]"]),
    ({}, ["{}"], ["[]", "null", '{"a":1}']),
    (
        {"a": 1, "b": None},
        ['{"a":1,"b":null}', '{"b":null,"a":1}'],
        ['{"a":1}', '{"a":1,"b":0}', '{"a":1,"b":null,"c":1}', '{"A":1,"b":null}', "[]"],
    ),
    (
        {"a": {"x": [True, {"y": "z"}]}},
        ['{"a":{"x":[true,{"y":"z"}]}}'],
        ['{"a":{"x":[1,{"y":"z"}]}}', '{"a":{"x":[true,{"y":"Z"}]}}', '{"a":{"x":[{"y":"z"},true]}}'],
    ),
    ("spam", ['"spam"'], ['["spam","ham"]', '"spam or ham"', '"unspam"', '["spam"]', "spam"]),
    (("a", "b"), ['["a","b"]'], ['["b","a"]']),
]


@pytest.mark.parametrize(("gold", "same", "other"), GOLDS)
def test_equal_means_the_same_type_and_value(gold, same, other):
    for verifier in (WHOLE, json_answer(Gold("gold"), schema={})):
        assert [verifier(text, gold=gold).value for text in same] == [1.0] * len(same)
        assert [verifier(text, gold=gold).value for text in other] == [0.0] * len(other)
    inside = json_answer(fields={"x": "gold"}, partial=True)
    assert [inside(f'{{"x":{text}}}', gold=gold).value for text in same] == [1.0] * len(same)
    assert [inside(f'{{"x":{text}}}', gold=gold).value for text in other] == [0.0] * len(other)


def test_crlf_and_key_order_make_no_difference():
    assert TRIAGE('{\r\n  "urgent": true,\r\n  "category": "refund"\r\n}\r\n', ROW).value == 1.0


def test_fields_are_compared_each_with_its_column():
    assert TRIAGE.columns == ("gold", "urgent")
    assert TRIAGE('{"category":"refund","urgent":true}', ROW).value == TRIAGE('{"category":"billing","urgent":true}', ROW).value == 1.0
    assert TRIAGE('{"category":"other","urgent":true}', ROW).reasons == ("wrong: category",)
    assert TRIAGE('{"category":"other","urgent":false}', ROW).reasons == ("wrong: category, urgent",)
    assert TRIAGE('{"category":"other","urgent":false}', ROW).evidence["fields"] == {"category": False, "urgent": False}
    assert TRIAGE('{"category":"refund","urgent":true}', gold="refund", urgent=True).value == 1.0  # a single value in place of the list
    assert json_answer(fields=["gold"])('{"gold":1}', gold=1).value == json_answer(fields="gold")('{"gold":1}', gold=1).value == 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "no field category"),
        ('{"category":"refund"}', "no field urgent"),
        ('{"category":"refund","urgent":true,"note":"x"}', "a field too many"),
        ('[{"category":"refund","urgent":true}]', "not an object"),
        ('"refund"', "not an object"),
        ("null", "not an object"),
        ('{"category":["refund","billing","other"],"urgent":true}', "wrong: category"),
        ('{"category":"refund","urgent":1}', "wrong: urgent"),
        ('{"category":"refund","urgent":"true"}', "wrong: urgent"),
        ('{"category":"","urgent":null}', "wrong: category, urgent"),
        ('{"category":"refund or billing","urgent":true}', "wrong: category"),
        ('{"Category":"refund","urgent":true}', "no field category"),
    ],
)
def test_an_object_of_other_fields_or_values_is_wrong_also_in_part(text, why):
    part = json_answer(fields={"category": Gold("gold", any_of=True), "urgent": "urgent"}, partial=True)
    assert (TRIAGE(text, ROW).value, TRIAGE(text, ROW).reasons) == (0.0, (why,))
    assert part(text, ROW).value == (0.5 if why in ("wrong: category", "wrong: urgent") else 0.0)


def test_other_fields_are_allowed_by_option_and_never_pay():
    verifier = json_answer(fields=["a"], extra=True, partial=True)
    assert verifier('{"a":1,"note":"x"}', a=1).value == 1.0
    assert verifier('{"a":2,"note":"x"}', a=1).value == verifier('{"note":1}', a=1).value == 0.0


def test_partial_credit_is_the_share_of_right_fields():
    golds = {"a": 1, "b": 2, "c": 3}
    some = '{"a":1,"b":2,"c":0}'
    assert json_answer(fields=list("abc"))(some, golds).value == 0.0
    assert json_answer(fields=list("abc"), partial=True)(some, golds).value == pytest.approx(2 / 3)
    assert json_answer(fields=list("abc"), partial={"a": 3, "b": 1, "c": 1})(some, golds).value == pytest.approx(0.8)
    assert json_answer("gold", partial=True)(some, gold=golds).value == pytest.approx(2 / 3)
    assert json_answer("gold", partial={"a": 1, "b": 1, "c": 2})(some, gold=golds).value == pytest.approx(0.5)
    assert json_answer("gold", partial=True)('{"a":1,"b":2}', gold=golds).reasons == ("no field c",)
    assert json_answer("gold", partial=True)('{"a":1,"b":2,"c":3}', gold=golds).value == 1.0


def test_a_valid_form_with_wrong_content_is_worth_nothing():
    schema = {"type": "object", "properties": {"label": {"type": "string"}, "n": {"type": "integer"}}, "required": ["label", "n"]}
    skeleton = '{"label":"","n":0}'
    assert json_format(schema)(skeleton).value == 1.0, "the form is right, which is why a gate must not be paid for"
    for verifier in (json_answer("gold", schema=schema), json_answer("gold", schema=schema, partial=True)):
        for gold in ({"label": "spam", "n": 3}, {"label": "ham", "n": 1}):
            assert verifier(skeleton, gold=gold).value == verifier("{}", gold=gold).value == 0.0
            assert verifier(json.dumps(gold), gold=gold).value == 1.0
    assert json_answer("gold", schema={"required": ["x"]})('{"a":1}', gold={"a": 1}).value == 0.0, "the schema must hold too"


def test_lists_without_order_by_option():
    bag = json_answer(Gold("gold", unordered=True))
    assert [bag(text, gold=[1, 2, 2]).value for text in ("[2,1,2]", "[1,2,2]", "[2,2.0,1]")] == [1.0] * 3
    assert [bag(text, gold=[1, 2, 2]).value for text in ("[1,2]", "[1,1,2]", "[1,2,2,2]", "[true,2,2]", '["1",2,2]', "{}")] == [0.0] * 6
    assert bag('[{"b":[2,1]},{"a":0}]', gold=[{"a": 0}, {"b": [1, 2]}]).value == 1.0
    assert bag('{"x":["b","a"]}', gold={"x": ["a", "b"]}).value == 1.0
    assert bag("[true,0]", gold=[False, 1]).value == bag("[null]", gold=[0]).value == 0.0
    assert json_answer(Gold("gold"))("[2,1]", gold=[1, 2]).value == 0.0


def test_list_of_everything_is_not_the_list_asked_for():
    for unordered in (False, True):
        verifier = json_answer(fields={"tags": Gold("gold", unordered=unordered)}, partial=True)
        assert verifier('{"tags":["a","b","c","d","e"]}', gold=["b"]).value == 0.0
        assert verifier('{"tags":["b","b"]}', gold=["b"]).value == 0.0


def test_numbers_within_the_tolerance_by_option():
    near = json_answer(Gold("gold", tolerance=0.5))
    assert [near(text, gold=10).value for text in ("9.5", "10.5", "10", "9.499", "10.51", '"10"', "true")] == [
        1.0,
        1.0,
        1.0,
        0.0,
        0.0,
        0.0,
        0.0,
    ]
    share = json_answer(Gold("gold", relative=0.01))
    assert [share(text, gold=1000).value for text in ("990", "1010", "989", "1011", "1050")] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert share("1", gold=0).value == share("-1000", gold=1000).value == 0.0
    assert near('{"a":[10.2,"x"]}', gold={"a": [10, "x"]}).value == 1.0
    assert near("true", gold=1).value == near("1", gold=True).value == 0.0
    assert near("1e308", gold=-1e308).value == near("9" * 300, gold=1).value == 0.0


def test_a_tolerance_without_order_needs_one_partner_each():
    loose = json_answer(Gold("gold", unordered=True, tolerance=1))
    assert loose("[1,0]", gold=[2, 1]).value == 1.0  # 1-2 and 0-1: taking 1 for 1 first would leave 0 without a partner
    assert loose("[0,0]", gold=[0, 2]).value == loose("[1,1,1]", gold=[1, 2, 3]).value == 0.0
    assert loose("[]", gold=[]).value == 1.0
    assert loose('[{"a":2.5},{"a":1}]', gold=[{"a": 1}, {"a": 2}]).value == 1.0
    assert loose("[1]", gold=list(range(2_000))).status == "invalid_task"  # every pair would be looked at


@given(st.lists(st.integers(0, 6), max_size=5), st.lists(st.integers(0, 6), max_size=5))
def test_a_bag_with_tolerance_is_what_trying_all_orders_says(values, golds):
    slow = (
        any(all(abs(a - b) <= 1 for a, b in zip(order, golds, strict=True)) for order in itertools.permutations(values))
        if len(values) == len(golds)
        else False
    )
    assert equal(values, golds, Gold("x", unordered=True, tolerance=1)) == slow
    assert equal(values, golds, Gold("x", unordered=True)) == (sorted(values) == sorted(golds))


@settings(max_examples=200 * FUZZ)
@given(VALUES, VALUES)
def test_equality_is_what_tagged_json_text_says(value, gold):
    def tagged(value):
        if isinstance(value, dict):
            return {key: tagged(member) for key, member in value.items()}
        if isinstance(value, list):
            return [tagged(member) for member in value]
        return f"n{Fraction(value)}" if isinstance(value, (int, float)) and not isinstance(value, bool) else repr(value)

    assert equal(value, gold, Gold("x")) == (tagged(value) == tagged(gold))
    assert (
        equal(value, value, Gold("x"))
        and equal(value, value, Gold("x", unordered=True))
        and equal(value, value, Gold("x", unordered=True, tolerance=0.1))
    )
    assert WHOLE(json.dumps(value), gold=value).value == 1.0 or value is None  # None as a column is no gold


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"a":1}\n```',
        '```\n{"a":1}\n```',
        '\n```JSON \r\n{"a":1}\r\n```\n',
        '```json\n{\n "a": 1\n}\n```',
        '{"a":1}',
        '```json\n\n{"a":1}\n\n```',
    ],
)
def test_one_fence_that_is_the_whole_text_is_allowed_by_option(text):
    assert json_answer("gold", fence=True)(text, gold={"a": 1}).value == json_format(fence=True)(text).value == 1.0
    assert WHOLE(text, gold={"a": 1}).value == float("```" not in text)


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"a":1}\n```\n```json\n{"a":1}\n```',
        '```json\n{"a":2}\n```\n```json\n{"a":1}\n```',
        'Here:\n```json\n{"a":1}\n```',
        '```json\n{"a":1}\n```\nDone.',
        '```json\n{"a":1}',
        '{"a":1}\n```',
        '```json {"a":1} ```',
        '```{"a":1}```',
        '```python\n{"a":1}\n```',
        "```json\n```",
        "```json\n\n```",
        '````json\n{"a":1}\n````',
        '```json\n```json\n{"a":1}\n```\n```',
        '~~~json\n{"a":1}\n~~~',
        '```json\n{"a":1}\n{"a":1}\n```',
        '```json\n{"a":1,"a":1}\n```',
    ],
)
def test_any_other_fence_is_refused_also_with_the_option(text):
    assert json_answer("gold", fence=True)(text, gold={"a": 1}).value == json_format(fence=True)(text).value == 0.0


def test_backticks_inside_a_string_are_part_of_it():
    assert json_answer("gold", fence=True)('```json\n{"a":"```\\n```"}\n```', gold={"a": "```\n```"}).value == 1.0


def test_a_column_may_hold_json_text():
    verifier = json_answer(Gold("gold", text=True))
    assert verifier('{"a":1}', gold='{"a": 1.0}').value == verifier("null", gold="null").value == 1.0
    assert (
        verifier("{}", gold='{"a":1,"a":1}').status == verifier("{}", gold="{").status == verifier("{}", gold={}).status == "invalid_task"
    )
    assert WHOLE('"{}"', gold="{}").value == 1.0 and WHOLE("{}", gold="{}").value == 0.0, "text is text unless it is said to be JSON"
    several = json_answer(Gold("gold", text=True, any_of=True))
    assert [several(text, gold='["a","b"]').value for text in ('"a"', '"b"', '["a","b"]')] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("gold", [math.nan, math.inf, {"a": math.nan}, {1, 2}, object(), b"a", {"a": {1}}, [[[object()]]]])
def test_a_gold_that_is_no_json_is_invalid_whatever_is_answered(gold):
    assert {WHOLE(text, gold=gold).status for text in ("", "1", "NaN", "{}")} == {"invalid_task"}


def test_other_unusable_golds_are_invalid():
    assert TRIAGE("{}", gold=[], urgent=True).status == "invalid_task"  # no acceptable value
    assert TRIAGE("{}", gold=["refund"]).status == TRIAGE("{}", gold=["refund"], urgent=None).status == "invalid_task"
    part = json_answer("gold", partial=True)
    assert {part("{}", gold=gold).status for gold in ([1], "a", {}, 1)} == {"invalid_task"}
    assert json_answer("gold", partial={"a": 1})("{}", gold={"b": 1}).status == "invalid_task"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"gold": "a", "fields": ["a"]}, "not both"),
        ({"fields": []}, "names no field"),
        ({"fields": {}}, "names no field"),
        ({"gold": Gold("a", any_of=True), "partial": True}, "any_of"),
        ({"gold": "a", "extra": True}, "extra=True"),
        ({"fields": ["a"], "partial": {"b": 1}}, "partial="),
        ({"fields": ["a"], "partial": {"a": 0}}, "partial="),
        ({"fields": ["a"], "partial": {"a": math.nan}}, "partial="),
        ({"fields": ["a"], "partial": {"a": True}}, "partial="),
        ({"max_depth": 10**6}, "max_depth="),
    ],
)
def test_options_that_contradict_each_other_are_an_error(options, why):
    with pytest.raises(UserError, match=why):
        json_answer(**options)


@pytest.mark.parametrize(
    "option", [{"tolerance": -1}, {"tolerance": math.nan}, {"tolerance": math.inf}, {"relative": 1}, {"tolerance": "1"}, {"relative": True}]
)
def test_a_tolerance_is_a_small_number(option):
    with pytest.raises(UserError, match="must be a number"):
        Gold("a", **option)


def test_no_answer_scores_what_a_wrong_one_scores():  # S-RC-06: not answering is never better
    said = {"role": "assistant", "content": '{"gold":2}'}
    nothing = [
        [],
        [{"role": "assistant", "content": ""}],
        [{"role": "tool", "content": '{"gold":1}'}],
        [said, {"role": "tool", "content": '{"gold":1}'}],
    ]
    reward = as_reward(json_answer(fields=["gold"]))
    assert reward([*nothing, [said], [said | {"content": '{"gold":1}'}]], gold=[1] * 6) == [0.0] * 5 + [1.0]


@settings(max_examples=300 * FUZZ)
@given(st.text(st.characters() | st.sampled_from('{}[]",:\\ue0 1`\n'), max_size=60))
def test_no_text_raises_in_a_verifier(text):
    for verifier in (json_format(NUMBERS, fence=True), WHOLE, json_answer(Gold("gold", unordered=True, tolerance=1), fence=True)):
        score = verifier(text, gold=[1, {"a": "x"}])
        assert score.value in (0.0, 1.0)
        json.dumps(dict(score.evidence), ensure_ascii=False).encode("utf-8")


def test_mutated_answers_are_scored_and_at_most_right_where_they_still_say_the_same():
    dice = random.Random(0)
    gold = {"category": "refund", "n": [1, 2.5, True, None], "s": "é\n"}
    verifier = json_answer("gold", partial=True, fence=True)
    for _ in range(2_000 * FUZZ):
        data = bytearray(json.dumps(gold, ensure_ascii=dice.random() < 0.5).encode())
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(len(data))
            data[place : place + dice.randint(0, 2)] = dice.choice([bytes([dice.randrange(256)]), b'"', b"{", b",", b"\\", b""])
        text = data.decode("utf-8", dice.choice(["replace", "surrogateescape"]))
        score = verifier(text, gold=gold)
        assert score.status == "scored" and (score.value < 1.0 or json.loads(text) == gold)


def test_thousands_of_answers_are_checked_in_a_second_of_work():
    verifier = json_answer(fields={"category": "gold"}, schema={"type": "object", "required": ["category"]})
    start = time.process_time()
    for index in range(2_000):
        verifier('{"category":"refund"}' if index % 2 else "no JSON at all", gold="refund")
    assert time.process_time() - start < 1.0


@pytest.mark.skipif(not REAL.exists(), reason="the real tickets are not here")
def test_real_tickets_are_right_with_their_own_golds_and_wrong_with_others():
    rows = [json.loads(line) for line in (REAL / "dev.jsonl").read_text().splitlines()]
    verifier = json_answer(fields={"category": Gold("gold", any_of=True)})
    for row in rows[:300]:
        for label in row["gold"]:
            assert verifier(json.dumps({"category": label}), row).value == 1.0
        for text in ('{"category":"no such"}', "{}", row["body"], json.dumps({"category": row["gold"]}), json.dumps(row["gold"][0])):
            assert verifier(text, row).value == 0.0
