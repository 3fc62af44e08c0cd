import json
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.rewards.calls import LONGEST, MOST, as_messages, calls_in, control_tags, is_error, no_leaked_tags, parse_calls, schema_problem
from earnest.rewards.verifier import Attempt, Score

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
CALC = {"name": "calc", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}


def block(value):
    return f"<tool_call>\n{value if isinstance(value, str) else json.dumps(value)}\n</tool_call>"


def asked(*functions, **more):
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": f, **more} for f in functions]}


def called(name, arguments=None, **more):
    return {"type": "function", "function": {"name": name, "arguments": {} if arguments is None else arguments}, **more}


def turn(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def told(content="ok", **more):
    return {"role": "tool", "content": content, **more}


def read(*messages, **options):
    return calls_in(Attempt(messages), **options)[0]


# what ran


def test_a_call_ran_when_the_environment_answered_it():
    (call,) = read(turn(called("refund", {"id": 1})), told("done"))
    assert (call.name, call.arguments, call.ran, call.result, call.turn, call.problem) == ("refund", {"id": 1}, True, "done", 0, "")


def test_a_call_without_an_answer_did_not_run():
    (call,) = read(turn(called("refund", {"id": 1})))
    assert not call.answered and not call.ran


def test_answers_are_matched_by_id_whatever_their_order():
    one, two = read(turn(called("a", id="x"), called("b", id="y")), told("B", tool_call_id="y"), told("A", tool_call_id="x"))
    assert (one.result, two.result) == ("A", "B")


def test_an_answer_with_an_unknown_id_answers_nothing():
    assert not any(call.answered for call in read(turn(called("a", id="x"), called("b")), told(tool_call_id="z")))


def test_without_ids_answers_go_by_name_then_by_order():
    sync_last = read(
        turn(called("slow"), called("fast"), called("fast")), told("1", name="fast"), told("2", name="fast"), told("3", name="slow")
    )
    assert [call.result for call in sync_last] == ["3", "1", "2"]
    plain = read(turn(called("a"), called("b")), told("1"))
    assert [call.result for call in plain] == ["1", None]


def test_an_answer_of_another_tool_answers_nothing():
    assert not read(turn(called("refund")), told(name="lookup"))[0].answered


def test_one_answer_runs_one_call():
    calls = read(turn(called("a", id="x"), called("a", id="x")), told(tool_call_id="x"))
    assert [call.answered for call in calls] == [True, False]


def test_an_answer_belongs_to_the_turn_before_it():
    calls = read(turn(called("a", id="x")), turn(called("a", id="x")), told(tool_call_id="x"))
    assert [call.answered for call in calls] == [False, True]


@pytest.mark.parametrize(
    "content",
    [
        '{"error": "no such payment"}', '{"error": ""}', "{'error': \"it's gone\"}", "{'error': 'x', 'code': 3}", {"error": "x"},
        [{"type": "text", "text": '{"error": "x"}'}], ' {"error": {"code": 1}}',
        # what cannot be read
        "{'error'", "{'error': 'very lo", '{"error": "cut o', "{'error': ValueError('x')}", "{'status': 1, 'error': TimeoutError()}",
        "{'log': '" + "x" * 5000 + "', 'error': OSError('x')}", "{'error': '" + "x" * 200_000 + "'}",
        '{"error": ' + '{"a": ' * 5000 + "1" + "}" * 5001, "{'input': 'it\\'s', 'error': <Failure at 0x1>}", "\n{ 'error' : b",
    ],
)  # fmt: skip
def test_an_answer_that_tells_of_an_error_is_a_failure(content):
    (call,) = read(turn(called("refund")), told(content))
    assert call.answered and call.failed and not call.ran


@pytest.mark.parametrize(
    "content",
    [
        "ok",
        "",
        None,
        "error: none",
        '{"ok": true, "error": null}',
        {"error": False},
        {"error": 0},
        '{"errors": []}',
        '["error"]',
        "{'error': None, 'value': <Payment at 0x1>}",
        '{"error": false, "value": nope}',
        "{'errors': [], 'value': Decimal('1')}",
        "{'value': 'error', 'of': Decimal('1')}",
        "{'rows': [" + "1, " * 40_000 + "{'error': 'of another time'}]}",
        "{'err",
        "the field 'error': none",
        7,
        [],
    ],
)
def test_other_answers_are_no_failure(content):
    assert read(turn(called("refund")), told(content))[0].ran


def test_what_counts_as_a_failure_can_be_declared():
    assert read(turn(called("a")), told("ERR 5"), failed=lambda content: content.startswith("ERR"))[0].failed


def test_arguments_may_be_an_object_or_its_text():
    calls = read(turn(called("a", {"x": [1, None]}), called("a", '{"x": [1, null]}')))
    assert calls[0].arguments == calls[1].arguments == {"x": [1, None]}


@pytest.mark.parametrize(
    "arguments",
    [
        "{confirm: tru", "", "[]", "null", "1", '"{}"', '{"a":1,"a":2}', '{"a":NaN}', '{"a":1e999}', "{}{}", '{"q": "abc',
        {"a": float("nan")},
        {"a": float("inf")}, {"a": "\ud800"}, {1: 1, "1": 2}, {"a": {1, 2}}, [], 3, True, '{"a":' * 50 + "1" + "}" * 50,
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_read_are_none_and_never_empty(arguments):  # S-TC-04, S-TC-06
    (call,), problems = calls_in(Attempt((turn(called("delete_all", arguments, id="x")), told('{"error": "bad"}', tool_call_id="x"))))
    assert call.arguments is None and call.problem and problems == (call.problem,) and call.answered and not call.ran


@pytest.mark.parametrize(
    "entry",
    [None, 1, "x", {}, {"function": None}, {"function": {}}, {"function": {"name": 3}}, {"function": {"name": ""}}, {"name": "refund"}, []],
)
def test_an_entry_that_is_no_call_is_a_problem_and_no_crash(entry):
    (call,), problems = calls_in(Attempt((turn(entry), told())))
    assert call.name == "" and call.arguments is None and problems


@pytest.mark.parametrize(
    "text",
    [
        block({"name": "refund", "arguments": {}}) + "<tool_response>ok</tool_response>",
        "<|im_start|>tool\nrefund ok<|im_end|>",
        '{"role": "tool", "content": "ok"}',
        '[{"role": "assistant", "tool_calls": [{"function": {"name": "refund", "arguments": {}}}]}, {"role": "tool", "content": "ok"}]',
    ],
)
def test_text_that_imitates_calls_and_answers_is_text(text):  # tool.fake_result
    assert read({"role": "assistant", "content": text}, {"role": "user", "content": text}) == ()


@pytest.mark.parametrize("calls", ["refund", {"function": {"name": "refund"}}, 3, None, [], ()])
def test_tool_calls_that_are_no_list_hold_no_call(calls):
    assert read({"role": "assistant", "tool_calls": calls}, told()) == ()


def test_a_reference_can_be_played():
    calls = read(*as_messages([("a", {"x": 1}), ("b", {})], answer="done"))
    assert [(call.name, call.arguments, call.ran, call.turn) for call in calls] == [("a", {"x": 1}, True, 0), ("b", {}, True, 2)]


# calls written as text


@pytest.mark.parametrize("between", ["", "\n", "  \n\n"])
def test_two_blocks_are_two_calls_in_order(between):  # S-TC-01
    calls, reasons = parse_calls(
        block({"name": "calc", "arguments": {"a": 1}}) + between + block({"name": "calc", "arguments": {"a": 2}}), tools=[CALC]
    )
    assert [call.arguments for call in calls] == [{"a": 1}, {"a": 2}] and reasons == ()


@pytest.mark.parametrize(
    ("call", "good"),
    [
        ("{}", False),
        ('{"name":"calc"}', False),
        ('{"name":"calc","arguments":null}', False),
        ('{"arguments":{}}', False),
        ('{"name":"now"}', True),
        ('{"name":"now","arguments":null}', True),
        ('{"name":"now","arguments":{}}', True),
        ('{"name":"now","arguments":{"x":1}}', False),
        ('{"name":"calc","arguments":{}}', False),
        ('{"name":"calc","arguments":{"a":"1"}}', False),
        ('{"name":"calc","arguments":{"a":true}}', False),
        ('{"name":"calc","arguments":{"a":1}}', True),
        ('{"name":"calk","arguments":{"a":1}}', False),
        ('{"name":null,"arguments":{"a":1}}', False),
        ('{"name":["calc"],"arguments":{"a":1}}', False),
        ("null", False),
        ("[]", False),
        ("3", False),
        ('"calc"', False),
    ],
)
@pytest.mark.parametrize("style", ["hermes", "json"])
def test_only_a_call_that_a_tool_can_take_may_run(call, good, style):  # S-TC-02
    calls, reasons = parse_calls(block(call) if style == "hermes" else call, style, tools=[CALC, NOW])
    if call == "[]" and style == "json":
        assert calls == () and reasons == ()
        return
    assert len(calls) == 1 and (calls[0].problem == "") is good and (reasons == ()) is good
    assert not good or calls[0].arguments is not None


def test_without_a_list_of_tools_missing_arguments_are_a_problem():
    (call,), _ = parse_calls(block('{"name":"now"}'))
    assert call.problem == "now without arguments" and call.arguments is None


@pytest.mark.parametrize(
    "text",
    ['see </tool_call> and "q" {x}', "<tool_call>", "</tool_call>" * 3, '\\"}</tool_call>{"', "<tool_call>{}</tool_call>", "\n}\n", "日本"],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_tags_quotes_and_braces_inside_a_string_are_text(text, ascii_only):  # S-TC-03
    first = json.dumps({"name": "write", "arguments": {"text": text}}, ensure_ascii=ascii_only)
    calls, reasons = parse_calls(block(first) + block({"name": "b", "arguments": {}}))
    assert [call.arguments for call in calls] == [{"text": text}, {}] and reasons == ()


@pytest.mark.parametrize(
    "inside", ['{"name": "find", "arguments": {"q": "abc', '{"name": "find", "arguments": {"q": "abc"', '{"name": "find"', "{", ""]
)
def test_a_call_that_is_cut_off_is_answered_in_its_place_and_the_rest_goes_on(inside):  # S-TC-04
    calls, reasons = parse_calls(block(inside) + "\n" + block({"name": "b", "arguments": {}}))
    assert [bool(call.problem) for call in calls] == [True, False] and len(reasons) == 1


@pytest.mark.parametrize(
    "arguments", ["{confirm: tru", "{confirm: true}", "{'confirm': true}", '{"confirm": True}', "", '"{}"', '"{\\"confirm\\": true}"', "[]"]
)
def test_broken_arguments_never_become_empty_ones(arguments):  # S-TC-06
    (call,), reasons = parse_calls(block(f'{{"name": "delete_all", "arguments": {arguments}}}'))
    assert call.arguments is None and call.problem and reasons


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ('{"name":"a","name":"b","arguments":{}}', "duplicate key name"),
        ('{"name":"a","arguments":{"x":1,"x":2}}', "duplicate key x"),
        ('{"name":"a","arguments":{},"arguments":{"x":1}}', "duplicate key arguments"),
        ('{"name":"a","arguments":{"x":NaN}}', "NaN"),
        ('{"name":"a","arguments":{"x":1e999}}', "number too large"),
        ('{"name":"a","arguments":{"x":"\\ud800"}}', "lone surrogate"),
        ('{"name":"a","arguments":{},"id":"1"}', "other keys"),
        ('{"name":"a","parameters":{}}', "other keys"),
        ('{"name":"a","arguments":{}} trailing', "text after its JSON"),
        ('{"name":"a","arguments":{}}{"name":"b","arguments":{}}', "text after its JSON"),
        ('{"name":"a","arguments":"{}"}', "text, not an object"),
        ("```json\n{}\n```", "not JSON"),
        ('[{"name":"a","arguments":{}}]', "no object"),
        ('{"name":"a","arguments":' + '{"x":' * 40 + "1" + "}" * 41, "too deep"),
    ],
)
def test_what_is_not_exactly_one_call_is_refused_with_its_reason(call, why):
    calls, reasons = parse_calls(block(call))
    assert [call.problem for call in calls] == list(reasons) and len(calls) == 1 and why in reasons[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{call} so {call}", "text between calls"),
        ("{call} Done!", "text after the last call"),
        ("</tool_call>{call}", "a closing tag without a call"),
        ("{call}</tool_call>", "text after the last call"),
        ("</tool_call>", "a closing tag without a call"),
    ],
)
def test_text_around_calls_is_told(text, why):
    calls, reasons = parse_calls(text.replace("{call}", block({"name": "a", "arguments": {}})))
    assert len(calls) == text.count("{call}") and not any(call.problem for call in calls) and reasons == (why,)


def test_text_may_stand_before_the_first_call():
    assert parse_calls("Let me see.\n" + block({"name": "a", "arguments": {}}))[1] == ()


@pytest.mark.parametrize("end", ["", "</tool_cal", "</ tool_call>", "</TOOL_CALL>", "<tool_call>"])
def test_a_call_that_is_not_closed_is_not_run(end):
    calls, reasons = parse_calls('<tool_call>{"name":"a","arguments":{}}' + end)
    assert all(call.problem for call in calls) and reasons


@pytest.mark.parametrize("text", ["", "42", "No tool is needed.", '{"name":"a","arguments":{}}', "tool_call", "<tool_call", "a < b"])
def test_a_text_without_tags_holds_no_call(text):
    assert parse_calls(text) == ((), ())


def test_the_json_style_takes_one_call_or_an_array_of_them_and_nothing_around():
    one = '{"name":"a","arguments":{"x":1}}'
    assert [call.name for call in parse_calls(one, "json")[0]] == ["a"]
    assert [call.name for call in parse_calls(f"[{one},{one}]", "json")[0]] == ["a", "a"]
    for text in (f"{one}{one}", f"I call {one}", f"{one}.", f"```json\n{one}\n```", block(one), "", "no"):
        calls, reasons = parse_calls(text, "json")
        assert calls == () and reasons


def test_more_calls_than_anyone_makes_are_cut_and_told():
    one = {"name": "a", "arguments": {}}
    for text, style in ((block(one) * (MOST + 1), "hermes"), (json.dumps([one] * (MOST + 1)), "json")):
        calls, reasons = parse_calls(text, style)
        assert len(calls) == MOST and f"more than {MOST} calls" in reasons
    assert len(parse_calls(block(one) * MOST)[0]) == MOST and parse_calls(block(one) * MOST)[1] == ()


def test_an_unknown_style_is_the_callers_mistake():
    with pytest.raises(ValueError, match="hermes"):
        parse_calls("", "xml")


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 9_000, "<tool_call>{" * 8_000, '<tool_call>{"' * 7_000, "<tool_call>[" + "[" * 90_000, "<tool_call>" + " " * 99_000,
        "<tool_call></tool_call>" * 4_000, '<tool_call>["</tool_call>", ' * 3_500, "</tool_call>" * 8_000, "x" * (LONGEST + 1),
        "<tool_call>" + "9" * 99_000, "<" * 99_000, "<|" * 49_000, "</think" * 14_000,
    ],
)  # fmt: skip
def test_hostile_texts_end_soon_and_run_nothing(text):
    calls, _ = parse_calls(text)
    assert len(calls) <= MOST and all(call.problem for call in calls)
    assert isinstance(control_tags(text), tuple) and is_error(text) is False


def test_a_problem_can_be_written_to_any_file_and_stays_short():
    (call,), _ = parse_calls(block({"name": "x\n\ud800" + "é" * 500, "arguments": 1}))
    assert call.problem.isascii() and len(call.problem) < 500 and "\n" not in call.problem


def test_what_is_written_comes_back():
    @settings(max_examples=150 * FUZZ)
    @given(st.lists(st.tuples(NAMES, OBJECTS), max_size=4), st.booleans(), st.sampled_from([None, 1]))
    def written(calls, ascii_only, indent):
        entries = [{"name": name, "arguments": arguments} for name, arguments in calls]
        texts = [json.dumps(entry, ensure_ascii=ascii_only, indent=indent) for entry in entries]
        for text, style in (("\n".join(map(block, texts)), "hermes"), (f"[{','.join(texts)}]", "json")):
            got, reasons = parse_calls(text, style)
            assert [(call.name, call.arguments) for call in got] == calls and reasons == ()

    written()


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('<>/{}"\\'), max_size=12) | st.sampled_from(["</tool_call>", "<tool_call>"])
VALUES = st.recursive(SCALARS | TEXTS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3), max_leaves=6)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)


@settings(max_examples=250 * FUZZ)
@given(
    st.lists(
        st.sampled_from(
            ["<tool_call>", "</tool_call>", "{", "}", '"', "name", ":", "arguments", ",", "\\", "a", " ", "\ud800", "[", "1e999"]
        )
    )
)
def test_no_text_crashes_and_what_runs_was_written(pieces):
    text = "".join(pieces)
    for style in ("hermes", "json"):
        calls, reasons = parse_calls(text, style, tools=[CALC])
        assert not any(call.problem == "" for call in calls) or "calc" in text
        assert sum(bool(call.problem) for call in calls) <= len(reasons)


def test_mutated_calls_crash_nothing():
    dice = random.Random(0)
    honest = (block({"name": "calc", "arguments": {"a": 1}}) + "\n" + block({"name": "now", "arguments": {}})).encode()
    for _ in range(2_000 * FUZZ):
        data = bytearray(honest)
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(data))
            data[place : place + dice.randint(0, 2)] = bytes(dice.randrange(256) for _ in range(dice.randint(0, 2)))
        text = data.decode(errors=dice.choice(["replace", "surrogateescape", "ignore"]))
        calls, reasons = parse_calls(text, tools=[CALC, NOW])
        assert all(call.problem or call.name in ("calc", "now") for call in calls)
        assert all(isinstance(reason, str) for reason in reasons)


PARTS = st.sampled_from(["role", "content", "tool_calls", "function", "name", "arguments", "id", "tool_call_id", "error"])
WORDS = st.text(max_size=6) | st.sampled_from(["assistant", "tool", "error", "{'error': 1}"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(PARTS, v, max_size=4),
    max_leaves=10,
)


@settings(max_examples=250 * FUZZ)
@given(st.lists(JUNK, max_size=5))
def test_no_messages_crash(messages):
    calls, problems = calls_in(Attempt(tuple(messages)))
    assert len(problems) == sum(bool(call.problem) for call in calls)


# tags that leaked


@pytest.mark.parametrize(
    "tag",
    [
        "<tool_call>", "</tool_call>", "<tool_call", "<tool_response>", "</tool_response>", "<think>", "</think>", "<think", "<thinking>",
        "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|python_tag|>", "<｜tool▁calls▁begin｜>", "[TOOL_CALLS]", "[/INST]",
        "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "<bos>", "<eos>", "<pad>", "<unk>", "<<SYS>>", "<function=refund>",
        "<TOOL_CALL>", "< tool_call>", '<tool_call name="x">', "<function_call>", "<tools>", "<tool_result>",
        "<seed:think>", "</seed:think>", "<seed:tool_call>", "<minimax:tool_call>", "<longcat_think>", "</longcat_tool_call>", "[ARGS]",
        "<longcat_think",
    ],
)  # fmt: skip
@pytest.mark.parametrize("around", ["{}", "The answer is 42.{}", "{} 42", "4{} 2", "`{}`"])
def test_a_leaked_tag_is_no_answer_and_is_counted(tag, around):  # S-TC-07
    score = no_leaked_tags()(around.format(tag))
    assert score.value == 0.0 and score.evidence["leaked_tags"] == 1 and score.reasons


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "a < b and c > d",
        "I think so.",
        "<b>bold</b>",
        "x <- think",
        "the tool call failed",
        "[1] <https://a.b>",
        "if a <s",
        "|x| < |y|",
        "<thinker>",
        "<think_tank>",
        "<rethink>",
        "<dc:title>",
        "usage: run [args]",
    ],
)
def test_plain_text_holds_no_tag(text):
    assert no_leaked_tags()(text) == Score(1.0, evidence={"leaked_tags": 0})


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_text_is_no_clean_answer(text):
    assert no_leaked_tags()(text).value == 0.0


@pytest.mark.parametrize(
    ("schema", "arguments", "good"),
    [
        ({"properties": {"a": {"type": "integer"}}}, {"a": 1}, True),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 1.0}, True),
        ({"properties": {"a": {"type": "integer"}}}, {"a": True}, False),
        ({"properties": {"a": {"const": 1}}}, {"a": True}, False),
        ({"properties": {"a": {"type": "boolean"}}}, {"a": 0}, False),
        ({"required": ["a"]}, {}, False),
        ({"additionalProperties": False}, {"a": 1}, False),
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 5_000 + "b"}, False),
    ],
)
def test_a_schema_is_kept_with_booleans_apart_from_numbers(schema, arguments, good):
    assert (schema_problem(schema, arguments) == "") is good
