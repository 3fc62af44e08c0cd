"""Equality of text, and blocks in tags."""

import os
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.errors import UserError
from earnest.rewards.choice import choice
from earnest.rewards.json import json_answer
from earnest.rewards.label import label
from earnest.rewards.text import IGNORABLE, normaliser, shown, tagged, text_answer
from earnest.rewards.verifier import Attempt, Verifier, infra_error, right
from earnest.text import split_thinking

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
EXACT = text_answer()
LOOSE = text_answer(ignore=IGNORABLE)


def value(answer, gold, *ignore):
    return text_answer(ignore=ignore)(answer, answer=gold).value


@pytest.mark.parametrize("answer", ["New York", " New York\n", "New York\r\n", "\tNew York"])
def test_white_space_around_the_text_never_counts(answer):
    assert value(answer, "New York") == 1.0


def test_line_endings_and_the_unicode_form_never_count():
    assert value("a\r\nb\rc", "a\nb\nc") == 1.0
    assert value("cafe\u0301", "café") == value("café", "cafe\u0301") == 1.0


@pytest.mark.parametrize(
    ("answer", "gold", "ignore"),
    [
        ("new york", "New York", "case"),
        ("STRASSE", "straße", "case"),
        ("New  \n York", "New York", "space"),
        ("New York.", "New York", "punctuation"),
        ("**New York**", "New York", "punctuation"),
        ('"New York"!', "New York", "punctuation"),
        ("New-York", "New York", "punctuation"),
        ("U.S.", "US", "punctuation"),
        ("don’t", "don't", "punctuation"),
        ("“Yes”, (he said)…", "Yes he said", "punctuation"),
        ("42.", "42", "punctuation"),
        ('"5"', "5", "punctuation"),
        ("the answer", "answer", "articles"),
        ("A dog and an owl", "dog and owl", "articles"),
        ("ＮＹ １２", "NY 12", "compatibility"),
        ("① dog", "1 dog", "compatibility"),
    ],
)
def test_a_difference_counts_until_it_is_declared_not_to(answer, gold, ignore):
    assert value(answer, gold) == 0.0
    assert value(answer, gold, ignore) == value(gold, answer, ignore) == 1.0
    assert value(answer, gold, *(name for name in IGNORABLE if name != ignore)) == 0.0 or ignore == "space"  # punctuation leaves spaces
    assert LOOSE(answer, answer=gold).value == 1.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("-5", "5"),
        ("1.5", "15"),
        ("1,5", "15"),
        (".5", "5"),
        ("3:00", "300"),
        ("5%", "5"),
        ("C#", "C"),
        ("C++", "C"),
        ("a@b", "a b"),
        ("yes/no", "yes no"),
        ("plan_change", "plan change"),
        ("not yes", "yes"),
        ("yes yes", "yes"),
        ("yes or no", "yes"),
        ("yes, no", "yes"),
        ("yesterday", "yes"),
        ("ye", "yes"),
        ("sp\u200bam", "spam"),
        ("ѕpam", "spam"),
        ("café", "cafe"),
        ("x²", "x"),
        ("5 apples", "5"),
        ("Answer: yes", "yes"),
        ("yes\x00", "yes"),
        ("yes I hope this helps", "yes"),
        ("The answer is not yes", "yes"),
        ("yes " * 3, "yes"),
        ("I'm sorry, I can't help with that.", "yes"),
    ],
)
def test_what_means_something_else_is_another_text_whatever_is_ignored(answer, gold):
    assert value(answer, gold) == LOOSE(answer, answer=gold).value == 0.0


@pytest.mark.parametrize("gold", ["", " \n", [], [""], ["yes", ""], ["yes", 1], 1, 1.5, True, {"a": 1}, [["yes"]]])
def test_a_row_without_usable_text_is_invalid_whatever_is_answered(gold):
    assert {EXACT(answer, answer=gold).status for answer in ("", "yes", str(gold))} == {"invalid_task"}


@pytest.mark.parametrize("gold", ["...", '""', "the", "A", "- -", "*"])
def test_a_gold_of_which_the_normalisation_leaves_nothing_is_invalid(gold):
    assert EXACT(gold, answer=gold).value == 1.0
    assert LOOSE("", answer=gold).status == LOOSE(gold, answer=gold).status == "invalid_task"


@pytest.mark.parametrize("answer", ["", " \n\t ", "...", "the", '""', "**", "\u00a0"])
def test_an_empty_answer_is_wrong(answer):
    assert LOOSE(answer, answer="yes").value == 0.0
    assert LOOSE(answer, answer="yes").reasons == ("no answer",)


def test_several_golds_may_be_acceptable():
    assert [EXACT(text, answer=["yes", "y"]).value for text in ("yes", "y", "no", "yes y")] == [1.0, 1.0, 0.0, 0.0]
    assert text_answer("gold")("y", gold=("yes", "y")).value == 1.0


def test_an_unknown_word_in_ignore_is_an_error():
    with pytest.raises(UserError, match=r"\['accents'\].*case, space, punctuation, articles, compatibility"):
        text_answer(ignore=["case", "accents"])
    assert value("YES", "yes", "case") == text_answer(ignore="case")("YES", answer="yes").value == 1.0


def test_no_answer_scores_what_a_wrong_one_scores():  # S-RC-06
    nothing = [Attempt(()), Attempt.of(""), Attempt(({"role": "tool", "content": "yes"},)), Attempt(({"role": "assistant"},))]
    assert {EXACT(attempt, answer="yes").value for attempt in nothing} == {EXACT("no", answer="yes").value} == {0.0}


def test_a_long_answer_is_not_looked_at():
    assert EXACT("a" * 20_000, answer="a" * 20_000).value == 1.0
    assert EXACT("a" * 20_001, answer="a" * 20_001).reasons == ("too long",)


def test_the_evidence_can_be_written_to_any_file():
    assert shown("\ud800" + "a" * 500) == "\\ud800" + "a" * 199
    assert EXACT("\ud800", answer="yes").evidence["answer"].encode("utf-8")


@settings(max_examples=300 * FUZZ)
@given(st.text(max_size=40), st.sets(st.sampled_from(IGNORABLE)))
def test_normalising_twice_changes_nothing_more_and_equal_texts_stay_equal(text, ignore):
    normal = normaliser(ignore)
    once = normal(text)
    assert normal(unicodedata.normalize("NFD", text)) == once or not ignore  # the form never counts
    assert value(text, text, *ignore) in (1.0, None)
    if not ignore:
        assert once == unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").strip()


# No work, whatever the kind ------------------------------------------------------------------------------------------------------

QUESTION = (
    "Which label fits: refund, billing or other? Options: A. refund B. billing C. other. Reply with JSON, with a label or with a letter."
)
EVERY = [  # a verifier and two golds with a right answer each
    (EXACT, [("refund", "refund"), ("other", "other")]),
    (LOOSE, [("refund", "Refund."), ("other", "The other")]),
    (label(("refund", "billing", "other"), "answer"), [("refund", "refund"), ("other", "other")]),
    (label(("refund", "billing", "other"), "answer", prose=True), [("refund", "The label is refund."), ("other", "Label: other")]),
    (choice(letters="ABC"), [("A", "A"), ("C", "The answer is (C).")]),
    (json_answer(), [({"label": "refund"}, '{"label":"refund"}'), ({"label": "other"}, '{"label": "other"}')]),
    (
        json_answer(partial=True, fence=True),
        [({"label": "refund"}, '{"label":"refund"}'), ({"label": "other"}, '```json\n{"label":"other"}\n```')],
    ),
    (json_answer(fields={"label": "answer"}, extra=True), [("refund", '{"label":"refund","x":1}'), ("other", '{"x":1,"label":"other"}')]),
    (tagged(EXACT), [("refund", "<answer>refund</answer>"), ("other", "<answer> other </answer>\n")]),
]
NO_WORK = {
    "gen.empty": "",
    "gen.whitespace": " \n\t ",
    "gen.scaffold_empty": "<answer></answer>",
    "gen.scaffold_empty json": '{"label": ""}',
    "gen.scaffold_empty object": "{}",
    "gen.scaffold_empty list": "[]",
    "gen.scaffold_empty fence": "```json\n\n```",
    "gen.scaffold_empty prose": "The answer is",
    "gen.scaffold_empty box": r"\boxed{}",
    "gen.echo_prompt": QUESTION,
    "gen.filler": "lorem ipsum " * 8_000,
    "gen.filler short": "lorem ipsum " * 1_000,
    "gen.refusal": "I'm sorry, I can't help with that.",
    "gen.skeleton": "# Summary\n\n- Point [1]\n- Point [2]\n\n## Conclusion\n\n- [3]",
    "label.shotgun": "refund or billing or other",
    "json.list_of_all": '{"label": ["refund", "billing", "other"]}',
    "label.abstain": "unknown",
}


@pytest.mark.parametrize(("verifier", "golds"), EVERY)
@pytest.mark.parametrize("attack", NO_WORK)
def test_no_work_is_paid_as_a_wrong_answer_is(verifier, golds, attack):
    wrong_answers = [golds[1][1], golds[0][1]]
    for (gold, right_answer), wrong_answer in zip(golds, wrong_answers, strict=True):
        assert verifier(right_answer, answer=gold).value == 1.0
        assert verifier(wrong_answer, answer=gold).value == verifier(NO_WORK[attack], answer=gold).value == 0.0


# Blocks in tags ------------------------------------------------------------------------------------------------------------------

BOTH = tagged(text_answer("gold"), ("think", "answer"))


def raw(text, gold="4"):
    return BOTH(text, gold=gold).value


def after_thinking(text, gold="4", opened=False):
    """As a thinking model is scored: earnest takes the thinking away, the verifier reads what is left."""
    return tagged(text_answer("gold"))(split_thinking(text, opened=opened, thinking=True).content, gold=gold).value


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("<think>\nstep 1\nstep 2\n</think>\n<answer>9</answer>", "9"),  # S-RP-05
        ("<think>\nstep 1\nstep 2\n</think> <answer>9</answer>", "9"),
        ("<think>\nstep 1\nstep 2\n</think>\n\n<answer>9</answer>", "9"),
        ("<think>\r\nstep 1\r\nstep 2\r\n</think>\r\n<answer>9</answer>\r\n", "9"),
        ("<think>a</think>   <answer>4</answer>\n", "4"),  # S-RP-15
        ("\n<think>1 < 2 <b>bold</b> <tool>x</tool></think><answer>\n4\n</answer>", "4"),
    ],
)
def test_blocks_that_are_the_whole_text_are_good(text, gold):
    assert raw(text, gold) == after_thinking(text, gold) == 1.0
    assert raw(text, "another") == after_thinking(text, "another") == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think>\n<think>b</think>\n<answer>4</answer>",  # S-RP-06
        "<think>a</think><answer>3</answer><answer>4</answer>",
        "<think>a</think><answer>4</answer><answer>3</answer>",
        "<think>a</think><answer>4</answer><answer>4</answer>",
        "<think>hm</answer><answer>4</answer>",  # S-RP-07: closed by another tag
        "Sure! <think>a</think>\n\n<answer>4</answer> Hope this helps",  # S-RP-15
        "Sure! <think>a</think><answer>4</answer>",
        "<think>a</think><answer>4</answer> Hope this helps",
        "<think>a</think> so <answer>4</answer>",
        "<think>a</think></think><answer>4</answer>",
        "<think><think>a</think></think><answer>4</answer>",
        "<think>a</think><answer><answer>4</answer></answer>",
        "<think>a</think><answer>4",
        "<think>a</think>4</answer>",
        "<think>a</think><answer>4<answer>",
        "<think>a</think><Answer>4</Answer>",
        "<think>a</think><answer >4</answer>",
        "<think>a</think><answer></answer>",
        "<think>a</think><answer/>",
        "<answer>4</answer><think>a</think>",
        "<think>a<answer>3</think>4</answer>",
        "<think>a</think>4",
        "4",
        "",
    ],
)
def test_anything_but_the_blocks_is_worth_nothing(text):
    assert raw(text) == after_thinking(text) == 0.0


def test_a_block_closed_by_a_tag_of_another_kind_is_open():  # S-RP-07
    text = "<think>hm</tool><answer>hm</answer>"
    assert tagged(text_answer("gold"), ("think", "tool", "answer"))(text, gold="hm").value == 0.0
    assert raw(text, "hm") == after_thinking(text, "hm") == 0.0


def test_an_answer_inside_the_thinking_is_refused_raw_and_not_read_when_thinking_is_taken_away():
    text = "<think>first <answer>3</answer></think><answer>4</answer>"
    assert raw(text) == raw(text, "3") == 0.0
    assert after_thinking(text) == 1.0 and after_thinking(text, "3") == 0.0


def test_thinking_that_the_prompt_has_opened():  # S-RP-08
    text = "2 and 2.\n</think>\n<answer>4</answer>"
    assert after_thinking(text, opened=True) == 1.0
    assert after_thinking(text, opened=False) == 0.0
    assert after_thinking("<think>" + text, opened=True) == after_thinking("2 and 2.\n<answer>4</answer>", opened=True) == 0.0


@pytest.mark.parametrize("text", ["<think></think><answer>4</answer>", "<think> \n</think><answer>4</answer>", "<answer>4</answer>"])
def test_the_thinking_block_must_be_there_and_hold_something(text):
    assert raw(text) == 0.0
    assert after_thinking(text) == 1.0, "a thinking model that did not think has answered all the same"


def test_any_verifier_can_stand_inside():
    assert tagged(json_answer("gold"))('<answer>{"a": 1}</answer>', gold={"a": 1}).value == 1.0
    assert tagged(choice("gold"))("<answer>(C)</answer>", gold="C").value == 1.0
    assert tagged(label(("x", "y"), "gold"))("<answer>x</answer>", gold="y").value == 0.0
    assert tagged(label(("x", "y"), "gold"))("<answer>x</answer>", gold="z").status == "invalid_task"
    assert (BOTH.name, BOTH.columns, BOTH.bounds) == ("text", ("gold",), (0.0, 1.0))
    assert tagged(Verifier("v", lambda attempt, row: right(), bounds=(-1.0, 1.0)))("no block").value == -1.0
    assert tagged(Verifier("v", lambda attempt, row: infra_error("away")))("<answer>4</answer>").status == "infra_error"


def test_what_came_before_the_last_message_stays():
    seen = []
    verifier = tagged(Verifier("v", lambda attempt, row: (seen.append(attempt), right())[1]))
    before = {"role": "assistant", "content": "<answer>1</answer>"}
    verifier(Attempt((before, {"role": "assistant", "content": "<answer>2</answer>", "name": "n"}), (1, 2)))
    assert seen == [Attempt((before, {"role": "assistant", "content": "2", "name": "n"}), (1, 2))]


@pytest.mark.parametrize("tags", [(), "answer", ("a", "a"), ("a>",), ("",), ("(",)])
def test_tags_are_plain_names(tags):
    with pytest.raises(UserError, match="tags="):
        tagged(EXACT, tags)


TAGS = ["<think>", "</think>", "<answer>", "</answer>", "4", " ", "\n", "<tool>"]


@settings(max_examples=500 * FUZZ)
@given(st.lists(st.sampled_from(TAGS), max_size=12) | st.permutations([*TAGS[:4], "4", "4", " "]))
def test_blocks_are_read_as_the_slow_reference_reads_them(pieces):
    marks = [piece for piece in pieces if piece in TAGS[:4]]
    good = marks == TAGS[:4]
    if good:
        first, second, third, fourth = (pieces.index(mark) for mark in TAGS[:4])
        around = pieces[:first] + pieces[second + 1 : third] + pieces[fourth + 1 :]
        good = not "".join(around).strip() and bool("".join(pieces[first + 1 : second]).strip())
        good = good and "".join(pieces[third + 1 : fourth]).strip() == "4"
    assert raw("".join(pieces)) == float(good)


@settings(max_examples=300 * FUZZ)
@given(st.lists(st.sampled_from([*TAGS, "<", ">", "/", "\ud800", "answer", "\x00"]), max_size=20).map("".join) | st.text(max_size=40))
def test_no_text_raises(text):
    assert raw(text) in (0.0, 1.0) and LOOSE(text, answer="4").value in (0.0, 1.0)


@pytest.mark.parametrize("answer", ["<answer>x</answer>", "x", "", "<answer>x</answer><answer>x</answer>"])
def test_a_row_that_is_invalid_is_so_inside_tags_whatever_is_answered(answer):
    assert tagged(label(("x", "y"), "gold"))(answer, gold="z").status == "invalid_task"
    assert tagged(text_answer("gold"))(answer, gold=" ").status == "invalid_task"
    assert tagged(text_answer("gold"))(answer, gold="y").value == 0.0
