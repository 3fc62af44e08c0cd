"""Answers that break rewards: deep, huge, of odd types or characters, or made for slow patterns.

None of them is right. What matters is whether the reward raises, hangs, dies or says nothing; that is looked for in every answer of every
attack, and most are not asked what they earn: families of their own do that. One row is enough, and costs time where a reward is slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from earnest.redteam.attack import Attack, Target, Try, text_kinds
from earnest.redteam.attacks.nowork import CHEAP, bare, both, means_something, wrap_bare
from earnest.redteam.attacks.objects import dumped, fields, matched, same, with_raw, wrong_object
from earnest.redteam.findings import SLACK
from earnest.redteam.form import Kind
from earnest.task import Answer, Message

_SHAPES = (
    (re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)"), ("2023-02-30", "2023-13-01", "0000-00-00", "9999-99-99")),
    (re.compile(r"\b\d{1,2}[/.]\d{1,2}[/.]\d{4}\b"), ("30/02/2023", "02/30/2023", "99/99/9999", "0/0/0000")),
    (re.compile(r"\b\d{1,2}:\d\d\b"), ("25:61", "99:99")),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), ("999.999.999.999", "0.0.0.0")),
)
DEEP = 100_000  # brackets
LONG = 4_000  # characters of what a slow pattern runs over: enough for cubic time to hang, not for quadratic, which many sound rewards have


def _in_fields(target: Target, *raws: str) -> Iterator[Try]:
    """An honest wrong object with raw text as the value of one field, for each field."""
    wrong = wrong_object(target)
    for name in fields(target) if wrong else ():
        for raw in raws:
            if raw != dumped(target.form.value[name]):
                yield matched(with_raw(target, wrong, {name: raw}), target.form.dump(wrong))


def _deep(target: Target) -> Iterator[Try | str]:
    yield from both(target, "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * (DEEP // 5), "(" * DEEP, "<a>" * (DEEP // 3))
    if target.form.kind in ("math", "number"):
        yield from both(
            target, "\\frac{" * 10_000, "\\sqrt{" * 5_000 + "2" + "}" * 5_000, "-" * 20_000 + "1", "(" * 5_000 + "1" + ")" * 5_000
        )
    if target.form.kind == "code":
        yield from both(
            target,
            "x = " + "(" * 5_000 + ")" * 5_000,
            "x = " + "-" * 20_000 + "1",
            "if 1:\n" + "".join(" " * i + "if 1:\n" for i in range(1, 150)),
        )
    if target.form.kind == "sql":
        yield from both(target, "SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "SELECT 1" + " UNION SELECT 1" * 2_000)
    yield from _in_fields(target, "[" * 2_000 + "]" * 2_000, '{"a":' * 2_000 + "1" + "}" * 2_000)


def _huge_numbers(target: Target) -> Iterator[Try | str]:
    yield from both(
        target, "9" * 5_000, "-" + "9" * 5_000 + ".5", "1e99999", "1" + ",000" * 1_500, "1/" + "9" * 5_000, "1/0", "0x" + "f" * 5_000
    )
    yield from _in_fields(target, "9" * 5_000, "1" + "0" * 400, "-1" + "0" * 400, "1e-99999")


def _surrogates(target: Target) -> Iterator[Try | str]:
    yield from both(target, "\ud800", "so\udfff", "\ud83d \ude00")
    yield str(target.wrong) + "\udc80"
    yield from _in_fields(target, '"\\ud800"', '"\udfff"')


def _controls(target: Target) -> Iterator[Try | str]:
    yield from both(target, "\x00", "\x00" * 1_000, "\x1b[2J\x07\x08", "\r\r\n", "\x85\u2028\u2029", "\ufffe\uffff", "%s%n%d{0}{}{x!r}")
    yield str(target.wrong) + "\x00"
    yield "\x00" + str(target.wrong)
    yield from _in_fields(target, '"\\u0000"', '"a\\u0000b\\u001f"')


def _long(target: Target) -> Iterator[str]:
    yield "x" * 1_000_000
    yield "word " * 40_000
    yield "\n" * 100_000
    yield wrap_bare(target.form, "lorem " * 20_000)


def _slow_patterns(target: Target) -> Iterator[str]:
    before, after = (part.strip() for part in bare(target.form))
    opening, closing = before or "<answer>", after or "</answer>"
    yield from ((opening + "\n") * (LONG // len(opening)), opening * (LONG // len(opening)) + "x", closing * (LONG // len(closing)))
    yield from (opening + " " * LONG + "x", "```\n" * 8_000, " " * LONG + "x")
    if target.form.kind not in CHEAP:
        return
    yield from both(target, "a" * 40 + "!", "a " * 40 + "!", "1" * 40 + "x", "a" * 20_000 + "!", "1," * 10_000 + "x", "(a" * 5_000 + "!")
    yield from both(target, " " * LONG + "x", "x" + " " * LONG + "x", "x" + "\n" * LONG + "x", "\t \n" * (LONG // 3) + "x")
    yield from ("\\" * LONG, "<" * LONG, '"' * LONG, "{" * LONG, "1" * LONG, "-" * LONG, "`" * LONG, "#" * LONG, "." * LONG)
    yield from (opening + "x " * (LONG // 2), (opening + closing) * (LONG // 20) + "x")
    yield from ("\\boxed{" * 5_000, "not " * 8_000, "The answer is " * 3_000, "x@" * 10_000, "{}" * 20_000)


def _unclosed(target: Target) -> Iterator[str]:
    """The form up to one of its opening tags and much behind it that closes none: short for patterns of exponential time, else long."""
    before = bare(target.form)[0]
    runs = ("a" * 40, "a " * 40, "a\n" * 40, "word " * 5_000, " " * LONG, "\n" * LONG, "a" * LONG, "1" * LONG, "- a\n" * (LONG // 4))
    for opening in re.finditer(r"<\w+>", before):
        head = before[: opening.end()]
        yield from (head + run for run in runs)
        yield from (head + run + opening.group() + "x" for run in runs[:4])
        yield head * 3 + "a " * 40
    tail = bare(target.form)[1].strip()
    if tail.startswith("</"):
        yield from (before + run + tail + "x" for run in runs)


_APART = r"(?<![\w.-])\d{1,6}(?:\.\d{1,6})?(?![\w.]*\d|\w)"  # a number on its own


def _odd_letters(target: Target) -> Iterator[str]:
    texts = [
        "²",
        "½",
        "٧٧٧٧٧",
        "𝟗𝟕𝟑𝟏",
        "Ⅻ",
        "९७३१",
        "\u202e7319\u202c",
        "\u200f.",
        "\u0301" * 1_000,
        "ﷺ" * 2_000,
        "İ" * 500,
        "👩‍👩‍👧" * 200,
        "\U0010ffff",
    ]
    yield from both(target, *(text for text in texts if not means_something(target, text)))


def _odd_beside(target: Target) -> Iterator[str]:
    """The right answer with no number, or one beyond all bounds, where its form has one beside it: a confidence, a score."""
    form = target.form
    for before, after in ((form.before, form.after), (form.after, form.before)):
        for found in re.finditer(r"(?<=[:=>] )\d+(?:\.\d+)?(?=\s|<|\Z)|(?<=[:=>])\d+(?:\.\d+)?(?=\s|<|\Z)", before):
            for odd in ("nan", "inf", "-inf", "1e999", "-1", "9" * 400):
                changed = before[: found.start()] + odd + before[found.end() :]
                yield changed + form.core + after if before is form.before else after + form.core + changed


def _constant(target: Target) -> Iterator[str]:
    """All numbers of an answer the same: no correlation is defined of them, and their spread is nought."""
    text = target.case.oracle if isinstance(target.case.oracle, str) else ""
    numbers = re.findall(_APART, text) if len(text) <= 2_000 else []
    if len(numbers) > 2 and len(set(numbers)) > 1:
        yield from (re.sub(_APART, same, text) for same in (numbers[0], "0"))


def _odd_items(target: Target) -> Iterator[str]:
    """Lists whose items have types that nobody expects."""
    items = ([None], [1, "a", None], [{}], [[]], [[[]]], [True], [{"a": []}])
    if isinstance(target.form.value, list):
        yield from (target.form.dump(item) for item in items if not same(item, target.form.value))
    wrong = wrong_object(target)
    for name in fields(target) if wrong else ():
        yield from (target.form.dump({**wrong, name: item}) for item in items if not same(item, target.form.value[name]))


# --- trajectories


def _call(name: Any, arguments: Any) -> list[Message]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": str(name), "content": '{"error": "invalid call"}'},
        {"role": "assistant", "content": ""},
    ]


def _tools(target: Target) -> list[str]:
    """Names of the tools that the right answer calls."""
    calls = [call for message in target.form.value for call in message.get("tool_calls") or ()]
    names = [call.get("function", call).get("name") for call in calls if isinstance(call, dict)]
    return [*dict.fromkeys(name for name in names if isinstance(name, str))][:3]


def _odd_calls(target: Target) -> Iterator[Try]:
    """Calls as a model may write them: of no tool, with arguments that are none."""
    arguments = (
        "not JSON",
        "",
        "{",
        "null",
        "[]",
        "5",
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        "[" * 50_000,
        None,
        [],
        5,
        True,
        {"": {}},
        {"a": [[]]},
    )
    tools = _tools(target)
    for name in [*tools, "no_such_tool"]:
        yield from (Try(_call(name, made), fair=1.0) for made in arguments)
        yield Try(_call(name, {"x": "9" * 5_000, "y": 10**400, "z": "\ud800"}), fair=1.0)
    yield from (Try(_call(name, {}), fair=1.0) for name in ("", None, 5, [], {"name": "x"}))


def _odd_messages(target: Target) -> Iterator[Try]:
    """Messages with nothing, or less, where words or calls should be."""
    answers: list[Answer] = [
        [{"role": "assistant"}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": None, "tool_calls": None}],
        [{"role": "assistant", "content": "", "tool_calls": []}],
        [{"role": "assistant", "content": "\ud800\x00"}],
        [{"role": "assistant", "content": "x" * 200_000}],
        [{"role": "tool", "content": ""}],
        [{"role": "tool", "content": None}, {"role": "assistant", "content": ""}],
        [{"role": "assistant", "content": ""}] * 200,
    ]
    yield from (Try(answer, fair=1.0) for answer in answers)


def _odd_envelopes(target: Target) -> Iterator[Try]:
    """What only a broken environment makes."""
    answers: list[Answer] = [
        [{"role": "assistant", "content": [{"type": "text", "text": ""}]}],
        [],
        [{}],
        [{"role": "nobody", "content": ""}],
        [{"role": None, "content": 5}],
        [{"role": "assistant", "content": {}}],
        *(
            [{"role": "assistant", "content": "", "tool_calls": made}]
            for made in ("text", 5, {}, [None], ["x"], [{}], [{"function": None}], [[]])
        ),
    ]
    yield from (Try(answer, fair=1.0) for answer in answers)


def _impossible(target: Target) -> Iterator[Try]:
    """Dates, times and addresses of the right shape that cannot be."""
    core = target.form.core
    for shape, values in _SHAPES:
        fair = SLACK if shape.fullmatch(core) else 1.0  # the rest of the answer is right, and may be paid
        yield from (Try(target.form.wrap(shape.sub(value, core)), fair=fair) for value in values if shape.search(core))
    for name in fields(target):
        own = target.form.value[name]
        if isinstance(own, str) and _SHAPES[0][0].match(own):
            yield from (
                Try(target.form.change(**{name: odd}), fair=1.0) for odd in (f"{own[:10]}T10:00:00Z", own[:10], "10000-01-01", "9" * 25)
            )


def _attack(name: str, build: Any, flaw: str, fix: str, source: str, kinds: frozenset[Kind], fair: float = 1.0) -> Attack:
    def once(target: Target) -> Iterator[Try]:
        for made in build(target) if target.first else ():
            yield made if isinstance(made, Try) else Try(made, fair=fair)

    return Attack(f"crash.{name}", "crash and time", once, flaw, fix, source, kinds=kinds)


_LIMIT = "Refuse texts beyond a length and a depth before anything is parsed."
_ANY = "Score any text and any type: what cannot be read is a wrong answer."
_CALLS: frozenset[Kind] = frozenset({"calls"})

ATTACKS = (
    _attack("deep", _deep, "Brackets without end are paid.", _LIMIT, "RecursionError in Python's `json`, run", text_kinds()),
    _attack(
        "huge_numbers", _huge_numbers, "A number beyond all bounds is paid.", _LIMIT, "ValueError in Python's `int`, run", CHEAP, SLACK
    ),
    _attack("surrogates", _surrogates, "Half a character is paid.", _ANY, "constructed", text_kinds()),
    _attack("controls", _controls, "Control characters are paid.", _ANY, "constructed", text_kinds()),
    _attack("long", _long, "A text of enormous length is paid.", _LIMIT, "constructed", text_kinds()),
    _attack("slow_patterns", _slow_patterns, "A text made for slow patterns is paid.", _LIMIT, "patterns that backtrack", text_kinds()),
    _attack(
        "unclosed",
        _unclosed,
        "A text whose tags are never closed is paid.",
        _LIMIT,
        "patterns that backtrack",
        text_kinds() - {"code", "sql"},
    ),
    _attack(
        "odd_letters",
        _odd_letters,
        "Digits and letters of other scripts, which are no answer, are paid.",
        _ANY,
        "`str.isdigit`, run",
        CHEAP,
        SLACK,
    ),
    _attack(
        "impossible",
        _impossible,
        "A date, time or address that cannot be is paid.",
        "Catch what reading it may raise, and pay nothing.",
        "constructed",
        text_kinds() - {"code", "sql"},
        SLACK,
    ),
    _attack(
        "odd_beside",
        _odd_beside,
        "What is no number pays more than the one beside the answer.",
        _ANY,
        "constructed",
        CHEAP,
    ),
    _attack(
        "constant",
        _constant,
        "Numbers that are all the same are paid for what they have in common with any others.",
        _ANY,
        "`statistics.correlation`, run",
        CHEAP,
    ),
    _attack("odd_items", _odd_items, "Lists of anything are paid.", _ANY, "constructed", frozenset({"json"})),
    _attack("odd_calls", _odd_calls, "A call that could not be run earns more than the right one.", _ANY, "constructed", _CALLS),
    _attack("odd_messages", _odd_messages, "Messages without content earn more than the right ones.", _ANY, "constructed", _CALLS),
    _attack("odd_envelopes", _odd_envelopes, "Messages that are none earn more than the right ones.", _ANY, "constructed", _CALLS),
)
