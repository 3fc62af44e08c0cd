"""What a model reads and what it wrote: chat template in, final answer out.

The only place that knows of thinking. A thinking model gets either `enable_thinking=False` (the template then closes the thinking
block itself) or room to think, and then rewards and check read only what follows the thinking. The template and the raw ids
stay as they are: sampled ids are never re-tokenised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from earnest.errors import UserError
from earnest.task import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Answer:
    """A completion, split at the end of its thinking.

    Attributes:
        content: What rewards and check read.
        reasoning: The thinking before it; None for a model that does not think.
    """

    content: str
    reasoning: str | None = None

    def messages(self) -> list[Message]:
        """The completion as TRL hands it to rewards: a list with one assistant message."""
        message: Message = {"role": "assistant", "content": self.content}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        return [message]


def render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], thinking: bool = False) -> list[int]:
    """Token ids of a prompt, up to where the model starts to write.

    Raises:
        UserError: The tokenizer has no chat template, or the template refuses the messages.
    """
    if not tokenizer.chat_template:
        raise UserError(
            f"The tokenizer of '{tokenizer.name_or_path}' has no chat template, so earnest cannot ask it anything. "
            "Use an instruct (chat) version of the model, or set tokenizer.chat_template and save the model again."
        )
    try:
        ids = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=True, enable_thinking=thinking
        )["input_ids"]
    except Exception as error:
        roles = [message.get("role") for message in messages]
        raise UserError(
            f"The chat template of '{tokenizer.name_or_path}' refused messages with the roles {roles}: {error}. "
            "Change the task's prompt(row) to roles the template knows (some models know no system role)."
        ) from error
    return list(ids)


def opens_thinking(prompt_text: str) -> bool:
    """Whether the rendered prompt already ends inside an open thinking block, as some templates do."""
    return prompt_text.rfind(OPEN) > prompt_text.rfind(CLOSE)


def split_thinking(text: str, opened: bool, thinking: bool) -> Answer:
    """Separate thinking from answer.

    Rule: with `thinking` on, one leading block is thinking and what follows is the answer. The block starts with `<think>` or,
    where the prompt has opened it already, at once. A block never closed leaves no answer. A second opening tag inside, or
    any tag after the block, stays in the text for the rewards to refuse. With `thinking` off nothing is removed.

    Args:
        text: What the model wrote, end-of-turn token removed.
        opened: Whether the prompt ends inside an open thinking block.
        thinking: Whether the model was given room to think.
    """
    if not thinking:
        return Answer(text)
    body = text
    if not opened:
        start = re.match(r"\s*" + re.escape(OPEN), text)
        if start is None:
            return Answer(text, reasoning="")
        body = text[start.end() :]
    reasoning, closed, rest = body.partition(CLOSE)
    if not closed:
        return Answer("", reasoning=reasoning)
    if OPEN in reasoning:
        return Answer(text, reasoning="")
    return Answer(rest.lstrip(), reasoning=reasoning)


def stop_ids(tokenizer: PreTrainedTokenizerBase, generation_config: Any | None = None) -> frozenset[int]:
    """Ids that end a turn: the tokenizer's, every one of the generation config's, and the one the chat template closes with.

    The union matters: a model that ends on a token only one of the three names would look truncated.
    """
    ids: set[int] = set()
    for source in (tokenizer.eos_token_id, getattr(generation_config, "eos_token_id", None)):
        if source is not None:
            ids.update(source if isinstance(source, (list, tuple)) else [source])
    if tokenizer.chat_template:
        ids.update(_closing_ids(tokenizer))
    return frozenset(ids)


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id a well-behaved answer ends with: what the template closes with, else the tokenizer's end of sequence."""
    closing = _closing_ids(tokenizer) if tokenizer.chat_template else []
    if closing:
        return closing[0]
    if tokenizer.eos_token_id is None:
        raise UserError(f"The tokenizer of '{tokenizer.name_or_path}' names no end-of-sequence token. Set tokenizer.eos_token.")
    return tokenizer.eos_token_id


def _closing_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The special token the template puts right after an assistant's words, if any."""
    mark = "zq"
    try:
        whole = tokenizer.apply_chat_template([{"role": "user", "content": "a"}, {"role": "assistant", "content": mark}], tokenize=False)
    except Exception:  # a template with demands of its own: the tokenizer's and the config's ids have to do
        return []
    after = tokenizer.encode(whole[whole.rfind(mark) + len(mark) :], add_special_tokens=False)
    # `all_special_ids` holds only the tokens with a role (eos, pad, ...); an end-of-turn token often has none
    special = {*tokenizer.all_special_ids, *(i for i, token in tokenizer.added_tokens_decoder.items() if token.special)}
    return after[:1] if after and after[0] in special else []


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stops: frozenset[int]) -> str:
    """The written text, without the one token that ended it. Other special tokens stay visible, so that rewards can refuse them."""
    body = ids[:-1] if ids and ids[-1] in stops else ids
    return tokenizer.decode(list(body), skip_special_tokens=False, clean_up_tokenization_spaces=False)
