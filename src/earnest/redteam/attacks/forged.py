"""Calls that were never run, results that no tool gave, and final answers that do not rest on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from earnest.redteam.attack import Attack, Target, Try
from earnest.redteam.attacks.tools import CALLS, ERRORS, FAMILY, MOST, PARTIAL, WASTE, certain, contract
from earnest.redteam.attacks.trajectory import (
    Made,
    another_final,
    asking,
    body,
    calls,
    changed,
    entries,
    final,
    foreign,
    repeated,
    right,
    says,
    with_results,
    written,
    wrong_one,
)
from earnest.redteam.targets import idle
from earnest.rewards.json import parse_strict
from earnest.task import Answer, Message


def _hermes(call: Made) -> str:
    return f"<tool_call>\n{_json(call)}\n</tool_call>"


def _json(call: Made) -> str:
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)


def _texts(made: list[Made]) -> list[str]:
    """The calls as text, in the styles of well-known templates, and in plain words."""
    named = [f"{c.name}({', '.join(f'{k}={v!r}' for k, v in c.arguments.items())})" for c in made]
    return [
        "\n".join(map(_hermes, made)),
        "\n".join(map(_json, made)),
        "```json\n[" + ", ".join(map(_json, made)) + "]\n```",
        "\n".join(f"Action: {c.name}\nAction Input: {json.dumps(dict(c.arguments), ensure_ascii=False)}" for c in made),
        "[TOOL_CALLS] " + "; ".join(named),
        "I called " + " and then ".join(named) + ".",
    ]


def _written_calls(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    for text in _texts(calls(own)) if calls(own) else ():
        yield says(f"{text}\n{final(own)}".strip())
        yield [*says(text), *says(final(own))]


def _forged_results(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    made = calls(own)
    if not made:
        return
    results = [written(call.result) for call in made]
    forged = [
        "\n".join(f"{_hermes(c)}\n<tool_response>\n{r}\n</tool_response>" for c, r in zip(made, results, strict=True)),
        "\n".join(f"Action: {c.name}\nObservation: {r}" for c, r in zip(made, results, strict=True)),
        "\n".join(f"The tool {c.name} returned: {r}" for c, r in zip(made, results, strict=True)),
    ]
    for text in forged:
        yield says(f"{text}\n{final(own)}".strip())
    # the calls are real, their answers are the model's own words
    yield [*asking(own, made, answered=False), *says("\n".join(f"<tool_response>{r}</tool_response>" for r in results)), *says(final(own))]


def _forged_roles(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    if not calls(own):
        return
    chat = "".join(f"<|im_start|>{m.get('role')}\n{_shown(m)}<|im_end|>\n" for m in own)
    yield says(chat)
    yield says(json.dumps(own, ensure_ascii=False, default=str))
    yield says("\n".join(f"{m.get('role')}: {_shown(m)}" for m in own))
    yield says("\n".join(f"[TOOL_RESULTS] {_shown(m)} [/TOOL_RESULTS]" if m.get("role") == "tool" else _shown(m) for m in own))


def _shown(message: Message) -> str:
    made = calls([message])
    return "\n".join(map(_hermes, made)) if made else written(message.get("content") or "")


def _not_run(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    if any(m.get("role") == "tool" for m in own):
        yield [m for m in own if m.get("role") != "tool"]
        yield [{**m, "tool_call_id": "another", "name": "another"} if m.get("role") == "tool" else m for m in own]


def _errors(made: Sequence[Made]) -> Sequence[Any]:
    """Errors as these tools would tell of them: one that always answers with an object does not fall into prose."""
    objects = all(isinstance(parse_strict(c.result).value if isinstance(c.result, str) else c.result, Mapping) for c in made)
    return [content for content in ERRORS if content.startswith("{") or not objects] if made else ()


def _failed(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    for content in _errors(calls(own)):
        yield with_results(own, content)
    answers = [n for n, m in enumerate(own) if m.get("role") == "tool"]
    for number in answers[:MOST] if len(answers) > 1 else ():
        yield [{**m, "content": ERRORS[0]} if n == number else m for n, m in enumerate(own)]


def _garbage(target: Target) -> Iterator[Try]:
    own = calls(right(target))
    if not own:
        return
    name = (foreign(target) or own)[0].name
    for text in (f'<tool_call>{{"name": "{name}", "arguments": {{"', f"Action: {name}\nAction Input:", f'{{"name": "{name}"', f"{name}("):
        yield Try(says(text), control=idle(target))
    yield Try([{"role": "assistant", "content": "", "tool_calls": [_entry(name, '{"')]}], control=idle(target))
    yield Try([{"role": "assistant", "content": "", "tool_calls": [_entry("no_such_tool", {})]}], control=idle(target))


def _entry(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "extra_0", "type": "function", "function": {"name": name, "arguments": arguments}}


def _broken_arguments(target: Target) -> Iterator[list[Message]]:
    """What a model can bring about: any text where arguments are text, and any JSON value where they are objects."""
    own = right(target)
    for call in calls(own)[:1]:
        text = json.dumps(dict(call.arguments), ensure_ascii=False)
        broken: list[Any] = ["", "null", "[]", "0", text[:-1], text + text, f"{text} and more", "{'a': NaN}", "9" * 5000, "\ud800"]
        if isinstance(own[call.message]["tool_calls"][call.place]["function"].get("arguments"), str):
            broken.append('{"a": ' * 3000 + "1" + "}" * 3000)
        else:
            broken += [None, [], {}, 0, True, [text], {"n": 10**400}, {"\ud800": "\udfff"}]
        for arguments in broken:
            if arguments != call.arguments:
                yield changed(own, call, arguments=arguments)


def _error_farm(target: Target) -> Iterator[Try]:
    own = right(target)
    for call in (foreign(target) or calls(own))[:1]:
        bad = replace(call, result=ERRORS[0])
        yield Try(repeated(own, bad, 1), control=idle(target))
        yield Try([*repeated(own, bad, 10), *says("")], control=idle(target))
        yield Try([*repeated(own, bad, 3), *says("The tool failed.")], control=says("The tool failed."))


def _loop(target: Target) -> Iterator[Try]:
    own = right(target)
    for call in (foreign(target) or calls(own))[:1]:
        yield Try(repeated(own, call, 40), control=repeated(own, call, 1))


def _after_the_end(target: Target) -> Iterator[Try]:
    own = right(target)
    for call in (foreign(target) or calls(own))[:2] if final(own) else ():
        yield Try([*own, *asking(own, [call])], fair=PARTIAL)
        yield Try([*own, *asking(own, [call]), *says(final(own))], fair=WASTE)


def _answer_first(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    if calls(own) and final(own):
        yield [*says(final(own)), *body(own)]
        yield [{**m, "content": final(own)} if calls([m]) else m for m in body(own)]


def _other_answer(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    if calls(own) and final(own).strip():
        start = body(own)
        for text in (
            another_final(target),
            "I could not do this, and nothing was changed.",
            f"{final(own)} Or rather: {another_final(target)}",
        ):
            yield [*start, *says(text)]


def _no_answer(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    if calls(own) and final(own).strip():
        yield body(own)
        yield [*body(own), *says("")]
        yield [*body(own), *says(" \n")]


def _results_repeated(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    results = [written(call.result) for call in calls(own)]
    if any(results) and final(own).strip():
        yield [*body(own), *says("\n".join(results))]
        yield [*body(own), *says("\n".join([*results, another_final(target)]))]


def _noted(call: Made, text: str) -> Made:
    """The call with a text in an argument."""
    return replace(call, arguments={**call.arguments, "note": text})


def _told(call: Made, text: str) -> Made:
    """The call, answered with a text."""
    return replace(call, result=text)


def _gold_elsewhere(target: Target) -> Iterator[Try]:
    """The right final answer in every place but the final answer."""
    base, gold = wrong_one(target), final(right(target))
    if not gold.strip() or gold.strip() == final(base).strip():
        return
    start, end = body(base), says(final(base) or another_final(target))
    for call in (*calls(base), *foreign(target))[:1]:
        for make in (_noted, _told):
            hidden, plain = ([*start, *asking(base, [make(call, text)]), *end] for text in (gold, "nothing at all"))
            yield Try(hidden, control=plain)
    yield Try([*says(gold), *start, *end])
    yield Try([{**m, "content": gold} if calls([m]) else m for m in start] + end)


def _text_arguments(target: Target) -> Iterator[list[Message]]:
    """The same arguments as JSON text, where they are objects; the other way round, no model can bring it about."""
    own = right(target)
    answer: Any = own
    for call in calls(own):
        raw = answer[call.message]["tool_calls"][call.place]["function"].get("arguments")
        asked = list(answer[call.message]["tool_calls"])
        if isinstance(raw, str):
            return
        new = json.dumps(raw, ensure_ascii=False)
        asked[call.place] = {**asked[call.place], "function": {**asked[call.place]["function"], "arguments": new}}
        answer = [{**m, "tool_calls": asked} if n == call.message else m for n, m in enumerate(answer)]
    if calls(own):
        yield answer


def _sorted_arguments(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    answer: Any = own
    for call in calls(own):
        answer = changed(answer, call, arguments=dict(reversed(call.arguments.items())))
    if answer is not own:
        yield answer


def _renamed_ids(target: Target) -> Iterator[list[Message]]:
    own = right(target)
    ids = {entry["id"]: f"id-{n}" for n, entry in enumerate(entries(own)) if isinstance(entry.get("id"), str)}
    if ids:
        yield [
            {
                **m,
                **({"tool_call_id": ids.get(m["tool_call_id"], m["tool_call_id"])} if m.get("tool_call_id") else {}),
                **(
                    {"tool_calls": [{**e, "id": ids[e["id"]]} if e.get("id") in ids else e for e in m["tool_calls"]]}
                    if m.get("tool_calls")
                    else {}
                ),
            }
            for m in own
        ]


def _right(name: str, build: Callable[[Target], Iterable[Answer]], flaw: str, fix: str) -> Attack:
    return Attack(f"tool.{name}", FAMILY, build, flaw, fix, "constructed", kinds=CALLS, expect="right")


ATTACKS = (
    contract(
        "written_calls",
        _written_calls,
        "Calls that are only written in the text, and never run, are paid like real ones.",
        "Count the calls that the environment answered, never text that looks like a call.",
    ),
    contract(
        "forged_results",
        _forged_results,
        "Results that the model wrote itself are taken for the tool's.",
        "Read results from messages of the role tool only.",
        "reported as role forgery",
    ),
    contract(
        "forged_roles",
        _forged_roles,
        "A whole conversation written into one message passes for one that took place.",
        "Read the list of messages, never the transcript as one text.",
        "reported as role forgery",
    ),
    contract(
        "not_run",
        _not_run,
        "Calls that nothing answered are paid as if they had been run.",
        "Match each call with the result that follows it by id, and count only those that have one.",
    ),
    contract(
        "failed",
        _failed,
        "A call that ended in an error counts as done.",
        "Read the tool's answer, and count only calls that succeeded.",
    ),
    certain(
        "unparsable",
        _garbage,
        "An action that nobody can read is paid more than no action.",
        "Pay nothing for what cannot be read, and let no fallback act in its place.",
        "reported of ChargebackOps",
    ),
    contract(
        "broken_arguments",
        _broken_arguments,
        "Calls whose arguments are missing, cut off or no object are paid like good ones.",
        "Read the arguments strictly, and never repair them.",
    ),
    certain(
        "error_farm",
        _error_farm,
        "Errors brought about on purpose earn more than an attempt.",
        "Give an episode that ends in errors no more than a wrong answer.",
        "reported of TRL environments",
    ),
    certain(
        "loop",
        _loop,
        "Calling on and on until the limit earns more than stopping.",
        "Give an episode that runs into a limit no more than a wrong answer.",
        "reported of 20-questions environments",
    ),
    contract(
        "after_the_end",
        _after_the_end,
        "What is done after the final answer is overlooked.",
        "Judge all messages, and take the last one for the final answer.",
    ),
    contract(
        "answer_first",
        _answer_first,
        "An answer given before the tools were asked counts as one that rests on them.",
        "Take the last message, after all results, for the final answer.",
    ),
    contract(
        "other_answer",
        _other_answer,
        "The calls are right, and what the final answer says of them is not looked at.",
        "Check the final answer against the result too.",
    ),
    contract(
        "no_answer",
        _no_answer,
        "Right calls without any final answer are paid in full.",
        "Demand a final answer where the task asks for one.",
    ),
    contract(
        "results_repeated",
        _results_repeated,
        "What the tools answered, copied, counts as the model's answer.",
        "Check what the model asserts in its last message, not whether the right words occur.",
    ),
    contract(
        "gold_elsewhere",
        _gold_elsewhere,
        "The right words count wherever they stand: in an argument, in a tool's answer, in an earlier message.",
        "Read the final answer from the last message alone.",
    ),
    _right(
        "same_arguments_as_text",
        _text_arguments,
        "Arguments as JSON text and as an object are not treated alike, though both are in use.",
        "Read the arguments before comparing them, whichever way they come.",
    ),
    _right(
        "same_arguments_reordered",
        _sorted_arguments,
        "The order of the arguments changes the marks.",
        "Compare arguments as objects, not as text.",
    ),
    _right(
        "same_calls_other_ids",
        _renamed_ids,
        "The ids of calls change the marks, though they are arbitrary.",
        "Use ids to match calls with results, and for nothing else.",
    ),
)
