import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.rewards.json import Parsed, parse_strict

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
