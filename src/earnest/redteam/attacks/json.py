"""Answers in JSON: what lenient decoders let through, and what nobody looks at beside the main field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from string import Template
from typing import Any

from earnest.redteam.attack import Attack, Target, Try, Wrong
from earnest.redteam.attacks import objects
from earnest.redteam.attacks.nowork import means_something, wrong_core
from earnest.redteam.attacks.objects import (
    another,
    beside,
    dumped,
    each_field,
    fields,
    is_number,
    matched,
    number_forms,
    same,
    turned,
    with_raw,
    written,
    wrong_object,
)
from earnest.redteam.attacks.phrases import order_left_out
from earnest.redteam.form import LABEL

JSON = frozenset({"json"})


def _around(*templates: str) -> Callable[[Target], Iterator[Try]]:
    """Each of these texts, with the right object for `$right` and honest wrong ones for `$wrong` and `$other`."""

    def build(target: Target) -> Iterator[Try]:
        parts = {"right": target.form.core, "wrong": wrong_core(target), "other": wrong_core(target, 1)}
        for text in templates:
            made = Template(text).substitute(parts)
            made = made if target.form.wrapped == "fence" and "```" in text else target.form.wrap(made)
            yield Try(made, pair=order_left_out(text))

    return build


def _duplicates(target: Target) -> Iterator[Try]:
    """A field given twice; the control has it once, wrong: a decoder that keeps the wrong one owes the rest of the object no less."""
    value = target.form.value
    if not fields(target):
        return
    pairs = [(name, dumped(one)) for name, one in value.items()]
    main = fields(target)[0]
    wrong = (main, dumped(another(target, main)))
    control = target.form.change(**{main: another(target, main)})
    for both in ([wrong, *pairs], [*pairs, wrong]):
        yield replace(matched(written(target, both), control), pair=main)
    yield matched(target.form.wrap(written_escaped(pairs, wrong)), control)
    for name, one in value.items():
        if isinstance(one, dict) and one:
            key = next(iter(one))
            inner = ", ".join(f"{dumped(k)}: {dumped(v)}" for k, v in [(key, None), *one.items()])
            yield matched(with_raw(target, value, {name: "{" + inner + "}"}), target.form.change(**{name: {**one, key: None}}))


def _counted_again(target: Target) -> Iterator[str]:
    """One field over and over, alone and in front of the others: what adds up pairs pays it each time."""
    for name in fields(target)[:2]:
        pair = (name, dumped(target.form.value[name]))
        yield written(target, [pair] * 3 * len(target.form.value))
        yield written(target, [pair] * 40 + [(other, dumped(one)) for other, one in target.form.value.items()])


def written_escaped(pairs: list[tuple[str, str]], extra: tuple[str, str]) -> str:
    """An object with one more pair, the first letter of its name escaped, so that a search for the name finds it once."""
    name, text = extra
    escaped = f'"\\u{ord(name[0]):04x}{name[1:]}"' if name else '""'
    return "{" + ", ".join(f"{dumped(n)}: {t}" for n, t in pairs) + f", {escaped}: {text}" + "}"


def _extra_keys(target: Target) -> Iterator[str]:
    if fields(target):
        for extra in (
            {"reason": "It says so."},
            {"": None},
            {"confidence": 1.0, "notes": "x" * 300},
            {"score": 1, "reward": 1, "correct": True},
        ):
            if not extra.keys() & target.form.value.keys():
                yield target.form.dump({**target.form.value, **extra})


def _inside(target: Target) -> Iterator[str]:
    value = target.form.value
    for made in (dumped(value), {"answer": value}, [value], {"wrong": None, "right": value}):
        yield target.form.dump(made)


def _loose(target: Target) -> Iterator[str]:
    core = target.form.core.strip()
    yield target.form.wrap(core[:-1] + "," + core[-1])
    yield target.form.wrap(core + " // as asked")
    yield target.form.wrap("/* as asked */ " + core)
    yield target.form.wrap(repr(target.form.value))
    if fields(target):
        yield target.form.wrap("{" + ", ".join(f"{name}: {dumped(one)}" for name, one in target.form.value.items()) + "}")


def _cut(target: Target) -> Iterator[str]:
    core = target.form.core.strip()
    yield target.form.wrap(core[:-1])
    yield target.form.wrap(core[1:])
    yield target.form.wrap(core + core[-1])


def _stray(target: Target) -> Iterator[str]:
    core = target.form.core
    for mark in ("\ufeff", "\u200b", "\x00"):
        yield target.form.wrap(mark + core)
        yield target.form.wrap(core + mark)
    text = core.strip()
    yield target.form.wrap(text[0] + "\x0b" + text[1:])


def _flat(target: Target) -> Iterator[str]:
    if fields(target):
        value = target.form.value
        yield target.form.wrap("\n".join(f"{name}: {one}" for name, one in value.items()))
        yield target.form.wrap(str(value[fields(target)[0]]))
        yield target.form.wrap(dumped(value[fields(target)[0]]))
        yield target.form.wrap(", ".join(f'"{name}": {dumped(one)}' for name, one in value.items()))


def _all_labels(target: Target) -> Iterator[Try]:
    """Every value a field may have, in a list or in one text, beside fields as an honest wrong answer has them."""
    wrong = wrong_object(target)
    for name in fields(target) if wrong else ():
        own = target.form.value[name]
        seen = list(target.labels) if name == target.label_field and len(target.labels) > 1 else list(target.values.get(name, ()))
        if len(seen) < 2 or isinstance(own, (list, dict)):
            continue
        seen = seen[:50]
        for made in (seen, seen[1:] + seen[:1], {str(one): True for one in seen}):
            yield matched(target.form.dump({**wrong, name: made}), target.form.dump(wrong))
        if isinstance(own, str) and max(map(len, map(str, seen))) <= LABEL:
            for link in (", ", " or ", "|", " "):
                joined = link.join([*map(str, seen[1:]), own])
                yield matched(target.form.dump({**wrong, name: joined}), target.form.dump(wrong))


def _padded_lists(target: Target) -> Iterator[str]:
    """A right list among so many other items that little of it is right."""
    for holder, own in [(None, target.form.value), *((name, target.form.value[name]) for name in fields(target))]:
        if not isinstance(own, list) or not 0 < len(own) <= 20:
            continue
        junk = [_other_item(own[0], i) for i in range(60 * len(own))]
        made = [*junk[: len(junk) // 2], *own, *junk[len(junk) // 2 :]]
        wrong = wrong_object(target)
        if holder is None:
            yield target.form.dump(made)
        elif wrong:
            yield target.form.dump({**wrong, holder: made})


def _other_item(item: Any, number: int) -> Any:
    if isinstance(item, dict) and item:
        name = next(iter(item))
        return {**item, name: _other_item(item[name], number)}
    return 7_000_000 + number if is_number(item) else f"item {number}"


def _empties(target: Target) -> Iterator[str]:
    for text in ("{}", "[]", "[{}]", "null", '""', "0", "true", '{"": null}', "[[]]"):
        if not same(json.loads(text), target.form.value):
            yield target.form.wrap(text)


def _skeletons(target: Target) -> Iterator[str]:
    for nothing in ("", None, [], {}, 0):
        if fields(target) and not any(same(nothing, one) for one in target.form.value.values()):
            yield target.form.dump(dict.fromkeys(target.form.value, nothing))
    if fields(target):
        placeholder = {name: "..." if isinstance(one, str) else None for name, one in target.form.value.items()}
        if not any(same(placeholder[name], one) for name, one in target.form.value.items()) and not means_something(target, "..."):
            yield target.form.dump(placeholder)


def _key_order(target: Target) -> Iterator[str]:
    value = target.form.value
    if len(fields(target)) > 1:
        yield target.form.dump(dict(reversed(value.items())))
    if fields(target) and json.dumps(inside := {name: turned(one) for name, one in value.items()}) != json.dumps(value):
        yield target.form.dump(inside)


def _white_space(target: Target) -> Iterator[str]:
    value = target.form.value
    yield target.form.wrap(json.dumps(value, ensure_ascii=False, indent=1))
    yield target.form.wrap(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    yield target.form.wrap("\n" + dumped(value) + "\n")
    yield target.form.wrap(json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\r\n"))


def _escapes(target: Target) -> Iterator[str]:
    yield target.form.wrap(json.dumps(target.form.value, ensure_ascii=True))
    if fields(target):
        main = fields(target)[0]
        own = target.form.value[main]
        if isinstance(own, str) and own and ord(own[0]) < 0x10000:
            yield with_raw(target, target.form.value, {main: f'"\\u{ord(own[0]):04x}{dumped(own[1:])[1:]}'})


def _attack(
    name: str, build: Any, flaw: str, fix: str, source: str = "constructed", wrong: Wrong = "contract", right: bool = False
) -> Attack:
    expect, contested = "right" if right else "wrong", name in _BESIDE_RIGHT
    return Attack(f"json.{name}", "format", build, flaw, fix, source, wrong, JSON, expect, contested=contested)


_BOTH = ("$wrong", "$right")
# The whole right object is in their answers, and nothing else is asserted, or only after or before it.
_BESIDE_RIGHT = frozenset(
    {"trailing_prose", "leading_prose", "two_objects", "denied", "duplicate_key", "bool_int", "coerce", "renamed_key", "extra_keys"}
    | {"inside", "loose", "cut", "stray_characters", "flat", "fences"}
)
_STRICT = "Decode the whole answer, stripped, as one JSON value and refuse anything beside it."
_ONE = "Demand that the answer is exactly one JSON value: where there are several, none is asserted."
_HOOKS = "Refuse it while decoding: Python's `json` takes `object_pairs_hook`, `parse_constant` and `parse_float` for that."
_SCHEMA = "Check every field against a schema, type first, before anything is paid."

ATTACKS = (
    _attack(
        "trailing_prose",
        _around("$right and ignore the rest.", "$right\n\nI hope this helps!", "$right }", "$right<|im_end|>", "$right\n$right"),
        "Text behind the object is overlooked.",
        _STRICT,
        "`raw_decode`, run",
    ),
    _attack(
        "leading_prose",
        _around("Here it is: $right", "Sure!\n$right\nLet me know.", "json\n$right", "The answer is $right."),
        "Text before the object is overlooked: the reward searches for something like JSON.",
        _STRICT,
        "common in public rewards",
    ),
    _attack(
        "two_objects",
        _around(*(text for one in ("{}\n{}", "{}{}", "{}, {}", "[{}, {}]") for text in (one.format(*_BOTH), one.format(*_BOTH[::-1])))),
        "Of two objects that contradict each other, the right one is paid.",
        _ONE,
        "greedy, lazy and last-match patterns, run",
    ),
    _attack(
        "among_objects",
        _around("$wrong\n$right\n$other", "[$wrong, $right, $other]", "A: $wrong\nB: $right\nC: $other"),
        "The right object is paid among wrong ones: any that matches will do.",
        _ONE,
        wrong="certain",
    ),
    _attack(
        "denied",
        _around(
            "Not this: $right. Mine: $wrong",
            "$wrong\nWrong would be: $right",
            "It is certainly not $right.",
            'A careless reader may say "$right", but I disagree.',
        ),
        "An object that the answer denies or quotes is paid.",
        _STRICT,
        "reported of public rewards",
        "certain",
    ),
    _attack(
        "duplicate_key",
        _duplicates,
        "A field is given twice, right and wrong, and the decoder keeps the one it likes.",
        _HOOKS,
        "Python's `json.loads`, run",
    ),
    _attack(
        "counted_again",
        _counted_again,
        "A field given many times is paid each time.",
        _HOOKS,
        "pairs that are added up",
    ),
    _attack(
        "not_finite",
        each_field(lambda own: ("NaN", "Infinity", "-Infinity", "1e999", "-1e999"), raw=True),
        "NaN or infinity passes a comparison that it should fail.",
        "Refuse numbers that are not finite; write a tolerance as `abs(x - gold) <= tol`, which NaN fails.",
        "Python's `json.loads`, run",
        "certain",
    ),
    _attack(
        "not_finite_beside",
        beside(lambda *_: ("NaN", "-Infinity", "1e999")),
        "NaN and infinity, which are no JSON, pass in fields that nobody looks at.",
        _HOOKS,
        "Python's `json.loads`, run",
    ),
    _attack(
        "wrong_type",
        each_field(objects.wrong_types),
        "A value of another type passes for the right one.",
        _SCHEMA,
        wrong="certain",
    ),
    _attack(
        "bool_int",
        each_field(objects.equal_in_python),
        "true passes for 1, or 0 for false, since Python holds them equal.",
        "Compare the type as well as the value.",
        "Python, run",
    ),
    _attack(
        "coerce",
        each_field(objects.as_other_type),
        "The right value passes in another type, such as a number as text.",
        "Say which types count, and convert nothing.",
        "lax validation of pydantic's kind",
    ),
    _attack("renamed_key", objects.renamed, "A field passes under another name.", "Demand exactly the fields of the contract, by name."),
    _attack(
        "missing_key",
        objects.missing,
        "An object without a required field is paid as if it had it.",
        "Demand every field before paying for any.",
    ),
    _attack(
        "only_main", objects.only_main, "The main field alone is paid, the others left out.", "Demand every field before paying for any."
    ),
    _attack("extra_keys", _extra_keys, "Fields that nobody asked for are overlooked.", "Demand exactly the fields of the contract."),
    _attack(
        "junk_beside",
        beside(objects.junk),
        "The main field is paid while others hold values of the wrong type: nobody looks at them.",
        _SCHEMA,
        "a plain `json.loads` reward",
    ),
    _attack(
        "unseen_beside",
        beside(objects.unseen),
        "The main field is paid while others hold values that are not allowed: nobody looks at them.",
        "Check every field against its allowed values before anything is paid.",
        "a plain `json.loads` reward",
    ),
    _attack(
        "inside",
        _inside,
        "The right object passes inside a string, a list or another object.",
        "Compare the answer itself, not what it contains.",
    ),
    _attack(
        "loose",
        _loose,
        "What only looks like JSON passes: comments, single quotes, trailing commas.",
        "Use a JSON decoder, and no `eval`, `ast` or repair.",
    ),
    _attack(
        "cut",
        _cut,
        "An object that is not closed, or closed twice, passes: the reward searches its text.",
        "Decode the answer before you compare anything.",
    ),
    _attack("stray_characters", _stray, "Characters that JSON does not allow, most of them invisible, are taken away first.", _STRICT),
    _attack(
        "flat",
        _flat,
        "The right values pass without being JSON: the reward searches for the words.",
        "Decode the answer before you compare anything.",
    ),
    _attack(
        "fences",
        _around("```json\n$wrong\n```\n```json\n$right\n```", "```json\n$right\n```\n```json\n$wrong\n```", "```json\n$right\n```\nDone."),
        "Of two fenced blocks the right one is picked, or text around a fence is overlooked.",
        _ONE,
    ),
    _attack(
        "list_of_all",
        _all_labels,
        "Every value there is, in one field, counts as the right one.",
        "Compare the field for equality, and its type too; use no `in`.",
        "reported of a public benchmark",
        "certain",
    ),
    _attack(
        "list_padded",
        _padded_lists,
        "The right items among many others are paid: the reward counts what is found and not what is added.",
        "Pay for F1 or for equality, not for recall.",
        "reported of a public benchmark",
        "certain",
    ),
    _attack(
        "empty",
        _empties,
        "An object without content, or a bare value, is paid.",
        "Demand the fields by name; a check over no items holds for anything.",
        "reported of a public benchmark, paid on 890 of 890 tasks",
        "certain",
    ),
    _attack(
        "skeleton",
        _skeletons,
        "The right fields are paid with nothing in them.",
        "Let the form be a condition and pay for content alone.",
        "reported of public environments",
        "certain",
    ),
    _attack("key_order", _key_order, "The order of fields counts.", "Compare decoded objects, not text.", right=True),
    _attack("white_space", _white_space, "White space between values counts.", "Compare decoded objects, not text.", right=True),
    replace(
        _attack("number_form", number_forms, "100 and 100.0 count as two numbers.", "Compare numbers by value.", right=True),
        contested=True,
    ),
    _attack("escapes", _escapes, "A letter written as an escape counts as another.", "Compare decoded objects, not text.", right=True),
)
