"""How a model's chat template writes tools, calls and their answers, found by asking the template.

Sampled tokens are never made again from text. What a tool answered is appended to them as the template would write it, from the token that
ended the turn on. So a template that writes earlier turns differently once another follows (many drop thinking) does no harm: the model
goes on from what it really wrote, and what the template makes of that afterwards is never read. What does matter is that a call can be told
apart from what follows it, and read back; where it cannot, the template is not asked to write tools.

A template that knows no tools, or writes calls in a form that is not known here, gets all of it in words (see `earnest.engine.words`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from earnest import text
from earnest.engine import words
from earnest.engine.words import schemas_of as schemas_of
from earnest.errors import UserError
from earnest.rewards.calls import STYLES, ToolCall, Turn, parse_turn
from earnest.rewards.written import READERS
from earnest.task import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARK = "zqx"  # stands in no template
ASKED: Message = {"role": "user", "content": f"{MARK}u"}
_THOUGHT = re.compile(rf"\s*(?:{text.OPEN})?\s*{text.CLOSE}\s*")  # an empty one, at the start of a turn
_ROOM = re.compile(rf"(?:{text.OPEN}\s*(?:{text.CLOSE}\s*)?|<\|channel>thought\s*<channel\|>)\Z")  # for it, at the end of a prompt


@dataclass(frozen=True)
class Form:
    """What was found out about a template.

    Attributes:
        native: Whether it writes tools, calls and answers itself.
        style: How calls are written (see `earnest.rewards.calls.parse_calls`).
        several: Whether it writes more than one call a turn.
        call_end: Id of the token that ends a turn with calls.
        answer_end: Id of the token that ends any other turn.
        lead: White space that stands before an answer.
    """

    native: bool
    style: str
    several: bool
    call_end: int
    answer_end: int
    lead: str


class _UnfitError(Exception):
    """The template cannot be used in this way; its text says why."""


@dataclass(frozen=True)
class Dialect:
    """A tokenizer's chat template with some tools.

    Attributes:
        tokenizer: With a chat template.
        schemas: Descriptions of the tools (see `schemas_of`).
        thinking: Whether the model gets room to think.

    Raises:
        UserError: The template can be used neither with its own tools nor with tools in words.
    """

    tokenizer: PreTrainedTokenizerBase
    schemas: Sequence[Mapping[str, Any]]
    thinking: bool = False

    def __post_init__(self) -> None:
        self.form  # noqa: B018 - a template is refused at the start, not at the first call

    @cached_property
    def form(self) -> Form:
        """How the template does it."""
        text.render(self.tokenizer, [ASKED], self.thinking)  # says what is wrong with a template that takes no user at all
        try:
            return self._native()
        except _UnfitError:
            pass
        try:
            return self._in_words()
        except _UnfitError as why:
            raise UserError(
                f"The chat template of '{self.tokenizer.name_or_path}' cannot be used with tools: {why}. Set tokenizer.chat_template to "
                "one that writes tool calls (as those of Qwen do) or to plain ChatML, and save the model again."
            ) from None

    @property
    def ends(self) -> frozenset[int]:
        """Ids that end a turn by this template: sampling must stop at them."""
        return frozenset({self.form.call_end, self.form.answer_end})

    def render(self, messages: Sequence[Message], tools: bool = True) -> list[int]:
        """Token ids of a prompt with the tools in it, up to where the model starts to write.

        Raises:
            UserError: The template refuses the messages.
        """
        if any(message.get("role") == "system" for message in messages) and not self._knows_system:
            raise UserError(
                f"The chat template of '{self.tokenizer.name_or_path}' knows no system role. Put what it says into the user's message."
            )
        if not self.form.native:
            made = words.in_words(messages)
            return text.render(
                self.tokenizer, words.with_tools(made, self.schemas, self._knows_system) if tools and self.schemas else made, self.thinking
            )
        try:
            return self._encode(self._text(messages, generate=True, tools=self.schemas if tools else None))
        except _UnfitError as error:
            text.render(self.tokenizer, messages, self.thinking)  # says what is wrong, if it is not the tools
            raise UserError(f"The chat template of '{self.tokenizer.name_or_path}' refused the tools: {error}.") from error

    def parse(self, written: str) -> Turn:
        """What a finished turn says: the text around its calls, and the calls in order, each with an id.

        Args:
            written: The turn without its last token and without thinking (see `earnest.text.split_thinking`).
        """
        turn = parse_turn(written, self.form.style, self.schemas)
        if not turn.calls:
            return Turn(written.removeprefix(self.form.lead), (), turn.problems)
        return replace(turn, calls=tuple(replace(call, id=f"call_{number}") for number, call in enumerate(turn.calls)))

    def message(self, turn: Turn) -> Message:
        """A turn as TRL has it. A call whose arguments could not be read has None in their place."""
        message: Message = {"role": "assistant", "content": turn.content}
        if turn.calls:
            message["tool_calls"] = [words.entry(call.name, call.arguments, call.id) for call in turn.calls]
        return message

    def after(self, calls: Sequence[ToolCall], results: Sequence[Message], ended: int | None = None) -> list[int]:
        """Token ids between the one that ended a turn and the point where the model writes again: what the tools answered.

        The text of a special token in an answer is broken by a space: no tool can end a turn or begin one.

        Args:
            calls: The turn's calls.
            results: The tools' messages, one a call, in the same order.
            ended: The token that ended the turn, if it was another than the template's: then that one follows too.
        """
        names = [call.name if call.name.isidentifier() else "unknown" for call in calls]
        texts = [self._harmless(str(result.get("content") or "")) for result in results]
        following = self._following(names, texts, self.form)
        ids = self._encode(following.lstrip())
        return ids[1:] if ids[0] == (self.form.call_end if ended is None else ended) else self._encode(following)

    def turn(self, message: Message) -> str:
        """Text of an assistant turn without its last token and without thinking, such that `parse` gives it back; for imitation.

        Raises:
            UserError: The template cannot write it so that it can be read back.
        """
        content, calls = str(message.get("content") or ""), words.calls_of(message)
        if calls:
            content = content.strip()
        try:
            written = self.form.lead + content if not calls else self._calling(content, calls)
        except _UnfitError as error:
            raise self._unwritable(message, str(error)) from error
        read = self.parse(written)  # a call that would be refused has a problem, and the others none
        if read.content != content or [(c.name, c.arguments, c.problem) for c in read.calls] != [(c.name, c.arguments, "") for c in calls]:
            raise self._unwritable(message, "what it writes reads differently: " + ("; ".join(read.problems) or f"{written[:200]!r}"))
        return written

    def trajectory(
        self, prompt: Sequence[Message], messages: Sequence[Message]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]:
        """A whole trajectory as sampling would have made it.

        Args:
            prompt: What was asked.
            messages: The model's turns and, after each that calls tools, their answers.

        Returns:
            Ids of the prompt, ids after it, and which of those the model wrote. Answers after the last turn are left out.

        Raises:
            UserError: The model has no turn, or its turns are not those of a rollout.
        """
        ids: list[int] = []
        own: list[bool] = []
        turns = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
        if not turns:
            raise UserError(
                f"There are no trainable tokens in the trajectory {str(list(messages))[:100]}: it has no message of the role 'assistant'. "
                "Give the model's turns, or leave the row out."
            )
        for place, following in zip(turns, [*turns[1:], None], strict=True):
            message, between = messages[place], messages[place + 1 : following]
            calls = words.calls_of(message)
            written = self._encode(self._thinking_of(message) + self.turn(message))
            ids += [*written, self.form.call_end if calls else self.form.answer_end]
            own += [True] * (len(written) + 1)
            if following is not None:
                if not calls or [other.get("role") for other in between] != ["tool"] * len(calls):
                    raise UserError(
                        f"The trajectory {str(list(messages))[:100]} cannot come about: after message {place}, which has {len(calls)} "
                        f"calls, stand {len(between)} others before the model's next turn. Each call needs one message with the role "
                        "'tool', and only a turn with calls goes on."
                    )
                given = self.after(calls, between)
                ids += given
                own += [False] * len(given)
        return tuple(self.render(prompt)), tuple(ids), tuple(own)

    def problems(self) -> tuple[str, ...]:
        """What is worth knowing about the template, a sentence each. None of it changes what is sampled and trained."""
        found = []
        if not self.form.native:
            found.append("the chat template writes no tools that can be read back, so they are described in words, in the style of Hermes")
        elif not self.form.several:
            found.append("the chat template writes at most one call a turn: turns with several can be sampled, not imitated")
        thought = {"role": "assistant", "content": f"{text.OPEN}\n{MARK}t\n{text.CLOSE}\n\n{MARK}c", "reasoning_content": f"{MARK}t"}
        with suppress(_UnfitError):
            if f"{MARK}t" not in self._text([ASKED, thought, ASKED]):
                found.append("the chat template drops the thinking of earlier turns; in a rollout it stays, as the model wrote it")
        if self.form.native:
            called = [ASKED, _called(["a"])]
            alone = self._text(called, tools=self.schemas)
            kept = alone[: alone.rfind(f"{MARK}v")]
            if not self._text([*called, *words.answered(["a"], [MARK])], tools=self.schemas).startswith(kept):
                found.append("the chat template writes a turn differently once tools have answered it; in a rollout it stays as sampled")
        if not self.thinking and text.opens_thinking(self._text([ASKED], generate=True)):
            found.append("the chat template opens a thinking block although thinking is off; set thinking = true")
        if self.thinking and text.OPEN not in str(self.tokenizer.chat_template):
            found.append(
                f"thinking is on, but the chat template knows no {text.OPEN}: what a model thinks in another form counts as its answer"
            )
        return tuple(found)

    # what the template can do

    def _native(self) -> Form:
        """The template with its own tools, if what it writes can be read back."""
        tool = {"name": f"{MARK}t", "description": f"{MARK}d", "parameters": {"type": "object", "properties": {}}}
        if f"{MARK}t" not in self._text([ASKED], generate=True, tools=[{"type": "function", "function": tool}]):
            raise _UnfitError("it names no tools")
        style, several = self._style()
        form = Form(True, style, several, -1, *self._answer())
        following = self._following(["a", "b"], [f"{MARK}1", f"{MARK}2"], form)
        if not 0 <= following.find(f"{MARK}1") < following.find(f"{MARK}2"):
            raise _UnfitError("it leaves out what tools answer")
        return replace(form, call_end=self._first(following))

    def _style(self) -> tuple[str, bool]:
        """The style that reads what the template writes, and whether it writes several calls a turn."""
        for names in (["a", "b"], ["a"]):
            try:
                _, written = self._split([ASKED, _called(names)], self.schemas)
            except _UnfitError:
                continue
            for style in STYLES:
                calls = parse_turn(written, style).calls
                if [(call.name, call.arguments) for call in calls] == [(name, {f"{MARK}a": f"{MARK}v"}) for name in names]:
                    return style, len(names) > 1
        raise _UnfitError("its calls cannot be read back")

    def _in_words(self) -> Form:
        """The template with tools in words: it must pass on what user and assistant say."""
        form = Form(False, "hermes", True, -1, *self._answer())
        following = self._following(["a"], [f"{MARK}1"], form)
        if f"{MARK}1" not in following:
            raise _UnfitError("it leaves out what a user says after the model")
        return replace(form, call_end=form.answer_end)

    def _answer(self) -> tuple[int, str]:
        """The end of a plain answer, and the white space before it."""
        if ASKED["content"] not in self._text([ASKED], generate=True):
            raise _UnfitError("it leaves out what the user says, as templates do that take lists of parts and no text")
        _, written = self._split([ASKED, {"role": "assistant", "content": f"{MARK}c"}], None)
        before, said, following = _without_thought(written).partition(f"{MARK}c")
        if not said:
            raise _UnfitError("it leaves out what the model says")
        if before.strip():
            raise _UnfitError(f"the model would have to write {before.strip()[:60]!r} before each answer")
        # where nothing closes an answer, the end of the text or the next role does
        return self._first(following) if following.strip() else text.end_of_turn(self.tokenizer), before

    def _first(self, following: str) -> int:
        """The token that a turn ends with."""
        ids = self._encode(following.lstrip())
        if not ids or ids[0] not in self._special:
            raise _UnfitError(f"no special token ends the model's turns (they go on with {following[:20]!r})")
        return ids[0]

    # what the template writes

    def _calling(self, content: str, calls: Sequence[ToolCall]) -> str:
        """A turn with calls."""
        if not self.form.native:
            return words.turn(content, calls)
        entries = [words.entry(call.name, call.arguments, f"call_{number}") for number, call in enumerate(calls)]
        _, written = self._split([ASKED, {"role": "assistant", "content": content, "tool_calls": entries}], self.schemas)
        _, dummy = self._split([ASKED, _called(["a"])], self.schemas)
        ending = dummy[_span(dummy, self.form.style)[1] :].lstrip()
        return _without_thought(written.removesuffix(ending))

    def _following(self, names: Sequence[str], results: Sequence[str], form: Form) -> str:
        """What stands from the token that ends a turn with calls up to where the model writes again."""
        if form.native:
            turn, tools = _called(names if form.several else names[:1]), self.schemas
            _, written = self._split([ASKED, turn], tools)
            start, end = _span(written, form.style)
            said, answers = written[start:end], words.answered(names, results)
        else:
            said, tools, answers = f"{MARK}c", None, [words.answers(results)]
            turn = {"role": "assistant", "content": said}
        whole = self._text([ASKED, turn, *answers], generate=True, tools=tools)
        asked = whole.find(ASKED["content"])
        place = whole.find(said, asked)
        if asked < 0 or place < 0:
            raise _UnfitError("it writes a turn differently once something follows, so that no prefix is kept")
        return whole[place + len(said) :]

    def _split(self, conversation: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> tuple[str, str]:
        """A conversation's text before and after the point where the model starts to write its last turn."""
        whole = self._text(conversation, tools=tools)
        prompt = self._text(conversation[:-1], generate=True, tools=tools)
        for head in (prompt, _ROOM.sub("", prompt)):
            if whole.startswith(head):
                return head, whole[len(head) :]
        raise _UnfitError(f"the model's turns do not begin as it lets the model begin ({prompt[-40:]!r})")

    def _thinking_of(self, message: Message) -> str:
        """The thinking before a turn; an empty one only where the prompt opens it."""
        if not self.thinking:
            return ""
        opened = text.opens_thinking(self._text([ASKED], generate=True))
        reasoning = str(message.get("reasoning_content") or "").strip()
        return f"{'' if opened else text.OPEN + chr(10)}{reasoning}\n{text.CLOSE}\n\n" if opened or reasoning else ""

    @cached_property
    def _knows_system(self) -> bool:
        try:
            return f"{MARK}s" in self._text([{"role": "system", "content": f"{MARK}s"}, ASKED], generate=True)
        except _UnfitError:
            return False

    @cached_property
    def _special(self) -> Mapping[int, str]:
        """Special tokens; `all_special_ids` holds only those with a role."""
        named = dict(zip(self.tokenizer.all_special_ids, self.tokenizer.all_special_tokens, strict=True))
        return named | {i: token.content for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}

    def _harmless(self, result: str) -> str:
        """A tool's answer in which no special token stands."""
        tokens = sorted(self._special.values(), key=len, reverse=True)
        return re.sub("|".join(map(re.escape, tokens)) or r"(?!)", lambda found: f"{found.group()[0]} {found.group()[1:]}", result)

    def _unwritable(self, message: Message, why: str) -> UserError:
        return UserError(
            f"The chat template of '{self.tokenizer.name_or_path}' cannot write the turn {str(message)[:200]}: {why}. Write it otherwise: "
            "arguments that fit, one call a turn, no words beside a call, or no tags of calls inside texts."
        )

    def _encode(self, written: str) -> list[int]:
        return self.tokenizer.encode(written, add_special_tokens=False)

    def _text(self, messages: Sequence[Message], generate: bool = False, tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) if tools else None,
                add_generation_prompt=generate,
                tokenize=False,
                enable_thinking=self.thinking,
            )
        except Exception as error:  # templates raise what they like
            raise _UnfitError(str(error)) from error


def _called(names: Sequence[str]) -> Message:
    """A turn that calls these tools."""
    entries = [words.entry(name, {f"{MARK}a": f"{MARK}v"}, f"call_{number}") for number, name in enumerate(names)]
    return {"role": "assistant", "content": "", "tool_calls": entries}


def _span(written: str, style: str) -> tuple[int, int]:
    """Where the first call of a text starts and the last one ends."""
    calls, _ = READERS[style](written)
    return calls[0].start, calls[-1].end


def _without_thought(written: str) -> str:
    """A turn without the empty thinking that some templates put before it."""
    empty = _THOUGHT.match(written)
    return written[empty.end() :] if empty else written
