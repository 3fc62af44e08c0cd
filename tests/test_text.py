"""What a model reads and what it wrote."""

import pytest
import tiny
from transformers import GenerationConfig

from earnest import UserError, text

TOKENIZER = tiny.make_tokenizer()


def user(content):
    return [{"role": "user", "content": content}]


def shown(ids, tokenizer=TOKENIZER):
    return tokenizer.decode(ids, skip_special_tokens=False)


def test_a_prompt_is_rendered_up_to_where_the_model_starts_to_write():
    messages = [{"role": "system", "content": "Be brief."}, *user("Hé?")]
    ids = text.render(TOKENIZER, messages)
    assert isinstance(ids, list) and all(isinstance(i, int) for i in ids)
    assert shown(ids) == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHé?<|im_end|>\n<|im_start|>assistant\n"
    assert ids[0] == tiny.START and ids.count(tiny.START) == 3 and ids.count(tiny.END) == 2


def test_rendering_adds_no_second_beginning():
    ids = text.render(TOKENIZER, user("a"))
    rendered = TOKENIZER.apply_chat_template(user("a"), add_generation_prompt=True, tokenize=False)
    assert ids == TOKENIZER.encode(rendered, add_special_tokens=False)


@pytest.mark.parametrize(
    ("template", "thinking", "end"),
    [
        (tiny.THINKING, False, "assistant\n<think>\n\n</think>\n\n"),
        (tiny.THINKING, True, "assistant\n"),
        (tiny.OPENING, False, "assistant\n<think>\n\n</think>\n\n"),
        (tiny.OPENING, True, "assistant\n<think>\n"),
        (tiny.CHATML, True, "assistant\n"),
    ],
)
def test_enable_thinking_reaches_the_template(template, thinking, end):
    ids = text.render(tiny.make_tokenizer(template), user("a"), thinking)
    assert shown(ids).endswith(end)
    assert text.opens_thinking(shown(ids)) == end.endswith("<think>\n")


def test_thinking_is_off_unless_asked_for():
    tokenizer = tiny.make_tokenizer(tiny.THINKING)
    assert text.render(tokenizer, user("a")) == text.render(tokenizer, user("a"), thinking=False)


def test_a_tokenizer_without_chat_template_is_refused_with_what_to_do():
    with pytest.raises(UserError, match=r"no chat template.*[Uu]se an instruct"):
        text.render(tiny.make_tokenizer(None), user("a"))


def test_roles_a_template_refuses_are_named():
    refusing = tiny.make_tokenizer("{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role here') }}{% endif %}x")
    with pytest.raises(UserError, match=r"\['system', 'user'\]: no system role here"):
        text.render(refusing, [{"role": "system", "content": "b"}, *user("a")])


WRITTEN = [  # what the model wrote, prompt opened the block, thinking on -> what rewards read, the reasoning
    ("4", False, False, "4", None),
    ("<think>2+2</think>4", False, False, "<think>2+2</think>4", None),  # off: nothing is removed
    ("2+2</think>4", True, False, "2+2</think>4", None),
    ("<think>2+2</think>\n\n4\n", False, True, "4\n", "2+2"),
    (" \n<think>2+2</think>4", False, True, "4", "2+2"),
    ("2 and 2.\n</think>\nFour: 4", True, True, "Four: 4", "2 and 2.\n"),  # S-RP-08
    ("2 and 2.\n</think>\nFour: 4", False, True, "2 and 2.\n</think>\nFour: 4", ""),  # never opened: stays for rewards to refuse
    ("<think>2+2 is 4", False, True, "", "2+2 is 4"),  # never closed: no answer
    ("so it is 4", True, True, "", "so it is 4"),
    ("so <think>it</think> is</think>4", True, True, "so <think>it</think> is</think>4", ""),  # nested: stays
    ("<think>a<think>b</think>c</think>4", False, True, "<think>a<think>b</think>c</think>4", ""),
    ("<think>a</think><think>b</think>4", False, True, "<think>b</think>4", "a"),  # a second block is part of the answer
    ("<think>a</think>4</think>", False, True, "4</think>", "a"),
    ("I say <think>a</think>4", False, True, "I say <think>a</think>4", ""),  # only a leading block is thinking
    ("4", False, True, "4", ""),
    ("<think></think>4", False, True, "4", ""),
    ("</think>4", True, True, "4", ""),
    ("", False, True, "", ""),
    ("", True, True, "", ""),
    ("", False, False, "", None),
    ("<THINK>a</THINK>4", False, True, "<THINK>a</THINK>4", ""),
]


@pytest.mark.parametrize(("written", "opened", "thinking", "content", "reasoning"), WRITTEN)
def test_thinking_and_answer_are_told_apart(written, opened, thinking, content, reasoning):
    assert text.split_thinking(written, opened, thinking) == text.Answer(content, reasoning)


def test_rewards_get_the_answer_as_one_assistant_message():
    assert text.Answer("4").messages() == [{"role": "assistant", "content": "4"}]
    assert text.Answer("4", "2+2").messages() == [{"role": "assistant", "content": "4", "reasoning_content": "2+2"}]


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [("", False), ("<think>", True), ("<think>a</think>", False), ("<think>a</think><think>\n", True), ("</think>", False)],
)
def test_an_open_block_is_seen_at_the_end_of_the_prompt_only(prompt, opens):
    assert text.opens_thinking(prompt) is opens


def test_every_id_that_any_source_names_ends_a_turn():  # S-ME-02
    assert text.stop_ids(TOKENIZER) == {tiny.END}
    assert text.stop_ids(TOKENIZER, GenerationConfig(eos_token_id=7)) == {7, tiny.END}
    assert text.stop_ids(TOKENIZER, GenerationConfig(eos_token_id=[7, 2])) == {2, 7, tiny.END}
    assert text.stop_ids(TOKENIZER, GenerationConfig(eos_token_id=0)) == {0, tiny.END}  # 0 is an id like any other
    assert text.stop_ids(tiny.make_tokenizer(None), None) == {tiny.END}


def test_the_token_the_template_closes_with_ends_a_turn_also_where_it_has_no_role():
    # As Gemma: eos is the end of the text, and the turn ends with a special token that the tokenizer gives no role.
    tokenizer = tiny.make_tokenizer(eos="<|endoftext|>")
    assert text.stop_ids(tokenizer) == {tiny.PAD, tiny.END}
    assert text.end_of_turn(tokenizer) == tiny.END


def test_a_template_that_closes_with_nothing_falls_back_on_the_end_of_sequence():
    tokenizer = tiny.make_tokenizer("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")
    assert text.end_of_turn(tokenizer) == tiny.END
    tokenizer.eos_token = None
    with pytest.raises(UserError, match="end-of-sequence"):
        text.end_of_turn(tokenizer)


def test_a_template_that_refuses_the_probe_is_no_error():
    tokenizer = tiny.make_tokenizer("{{ raise_exception('system first') }}")
    assert text.stop_ids(tokenizer) == {tiny.END}
    assert text.end_of_turn(tokenizer) == tiny.END


def test_decoding_drops_the_one_token_that_ended_it_and_nothing_else():
    stops = frozenset({tiny.END})
    h, i = TOKENIZER.encode("hi")
    assert text.decode(TOKENIZER, [h, i, tiny.END], stops) == "hi"
    assert text.decode(TOKENIZER, [h, i], stops) == "hi"
    assert text.decode(TOKENIZER, [h, tiny.END, tiny.END], stops) == "h<|im_end|>"
    assert text.decode(TOKENIZER, [tiny.START, h, tiny.PAD, tiny.THINK, i, tiny.END], stops) == "<|im_start|>h<|endoftext|><think>i"
    assert text.decode(TOKENIZER, [], stops) == text.decode(TOKENIZER, [tiny.END], stops) == ""
    assert text.decode(TOKENIZER, (h, tiny.PAD), frozenset({tiny.PAD})) == "h"


@pytest.mark.parametrize("written", ["a , b . c ' s", "  two  spaces \n", "naïve 日本 🙂", "do n't ?"])
def test_decoding_tidies_no_spaces(written):
    assert text.decode(TOKENIZER, TOKENIZER.encode(written, add_special_tokens=False), frozenset()) == written
