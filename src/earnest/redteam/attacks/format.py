"""The wrapping of an answer: tags, boxes, fences and closing lines given twice, broken, drowned, or around the wrong part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from string import Template
from typing import Any

from earnest.redteam.attack import Attack, Target, Try, Wrong, text_kinds
from earnest.redteam.attacks.nowork import CHEAP, bare, filler, softened, wrap_bare, wrong_core
from earnest.redteam.attacks.objects import matched
from earnest.redteam.attacks.phrases import order_left_out
from earnest.redteam.form import Kind

_TOUCHING = re.compile(r"\$(?:Right|Wrong)\$")  # one answer directly behind another


def _wraps(*templates: str) -> Callable[[Target], Iterator[str]]:
    """Each of these texts, where there is a wrapping: `$right`, `$wrong`, `$other` are cores, `$Right`, `$Wrong`, `$Other` wrapped ones."""

    def build(target: Target) -> Iterator[str]:
        cores = {"right": target.form.core, "wrong": wrong_core(target), "other": wrong_core(target, 1)}
        if target.form.wrapped and not any(_wrapping_in(target, core) for core in cores.values()):
            wrapped = {name.capitalize(): wrap_bare(target.form, core) for name, core in cores.items()}
            for text in templates:
                if not _TOUCHING.search(text) or _ends_itself(target):
                    yield Try(Template(text).substitute(cores | wrapped), pair=order_left_out(text))

    return build


def _ends_itself(target: Target) -> bool:
    """Whether one answer can stand directly behind another: behind a closing tag, but not behind a bare word."""
    before, after = bare(target.form)
    return not (after or "x")[-1].isalnum() or not (before or "x")[0].isalnum()


def _wrapping_in(target: Target, core: str) -> bool:
    before = bare(target.form)[0].strip()
    return bool(before) and before in core


def _tags(target: Target) -> tuple[str, str, str] | None:
    """What stands before the last opening tag, and that tag and its end; None where the answer stands in no tags."""
    found = re.search(r"(<(\w+)>)\s*\Z", bare(target.form)[0]) if target.form.wrapped == "tag" else None
    return (bare(target.form)[0][: found.start()], found[1], f"</{found[2]}>") if found else None


def _denied(target: Target) -> Iterator[str]:
    if target.form.wrapped != "words":
        yield from _wraps(
            "It is certainly not $Right.\nIt is $Wrong",
            "Someone may write $Right but that is wrong. $Wrong",
            "$Wrong\nWrong would be $Right",
            "It is certainly not $Right.",
        )(target)


def _all_inside(target: Target) -> Iterator[str]:
    """Several answers in one wrapping, the right one neither first nor last."""
    if target.form.wrapped:
        cores = (wrong_core(target), target.form.core, wrong_core(target, 1))
        yield from (wrap_bare(target.form, link.join(cores)) for link in (", ", " or ", "\n", " "))


def _broken_tags(target: Target) -> Iterator[str]:
    """The right core between tags that are not one pair."""
    tags, core = _tags(target), target.form.core
    if tags:
        lead, start, end = tags
        yield f"{lead}{start}{core}{end}{end}"
        yield f"{lead}{start}{start}{core}{end}{end}"
        yield f"{lead}{start}{start}{core}{end}"
        yield f"{lead}{start}{core}"
        yield f"{lead}{core}{end}"
        yield f"{lead}{start}{core}{start}"
        yield f"{lead}{end}{core}{start}"
        yield f"{lead}{start}</x>{core}{end}"
        yield f"{lead}{start}{core}</x>"
        yield f"{lead}{start}{end}{core}"
        yield f"{core}{lead}{start}{end}"


def _no_wrapping(target: Target) -> Iterator[str]:
    """The right core without its wrapping, and without its reasoning parts."""
    if target.form.wrapped in ("tag", "box", "fence", "hashes"):
        yield target.form.core
        yield f"The answer is {target.form.core}."
    tags = _tags(target)
    if tags and tags[0].strip():
        yield tags[1] + target.form.core + tags[2]
        yield target.form.core + tags[0] + tags[1] + target.form.core + tags[2]


def _outside(target: Target) -> Iterator[str]:
    """The right core anywhere but in the place of the answer, which holds a wrong one."""
    core, wrong = target.form.core, wrong_core(target)
    if target.form.wrapped in ("tag", "box", "fence") and not _wrapping_in(target, core):
        inside = wrap_bare(target.form, wrong)
        yield f"{core}\n{inside}"
        yield f"{inside}\n{core}"
        tags = _tags(target)
        if tags and "</" in tags[0]:
            yield re.sub(r"(<\w+>\s*)[^<>]*(\s*</)", lambda m: m[1] + core + m[2], tags[0], count=1) + tags[1] + wrong + tags[2]


def _drowned(target: Target) -> Iterator[str]:
    """The right answer in its form, and pages of other text."""
    pages = filler(target, 6_000)
    whole = str(target.case.oracle)
    yield f"{whole}\n{pages}"
    yield f"{pages}\n{whole}"
    yield f"{pages}\n{whole}\n{pages}"


def _much(target: Target) -> list[Try]:
    """An honest wrong answer, given so often or at such length that anything is in it."""
    wrong, pages = str(target.wrong), filler(target, 6_000)
    return [matched(made, wrong) for made in ("\n".join([wrong] * 40), f"{wrong}\n{pages}", f"{pages}\n{wrong}")]


def _newlines(target: Target) -> Iterator[str]:
    whole = str(target.case.oracle)
    yield whole + "\n"
    yield "\n" + whole
    yield whole + "  "


def _space_within(target: Target) -> Iterator[str]:
    form = target.form
    if form.wrapped == "tag":
        before, after = form.before.rstrip(), form.after.lstrip()
        yield f"{before}{form.core}{after}"
        yield f"{before} {form.core} {after}"
        yield f"{before}\n{form.core}\n{after}"


def _attack(
    name: str,
    build: Any,
    flaw: str,
    fix: str,
    source: str = "constructed",
    wrong: Wrong = "contract",
    right: bool = False,
    kinds: frozenset[Kind] = text_kinds(),
) -> Attack:
    return Attack(
        f"fmt.{name}",
        "format",
        build if right else softened(build),
        flaw,
        fix,
        source,
        wrong,
        kinds,
        "right" if right else "wrong",
        contested=wrong == "contract"
        and not right,  # the right answer is all that they assert, and how it may be wrapped is for the contract to say
    )


_ONCE = "Demand that the wrapping stands there exactly once; where it stands more often, nothing is asserted."
_WHOLE = "Match the whole text from its first to its last character, with `re.fullmatch`."

ATTACKS = (
    _attack(
        "two_answers",
        _wraps("$Wrong\n$Right", "$Right\n$Wrong", "$Wrong$Right", "$Right$Wrong", "$Right or rather $Wrong", "$Wrong or rather $Right"),
        "Of two answers in the required form the right one is paid.",
        _ONCE,
        "first-match and last-match patterns, run",
    ),
    _attack(
        "among_answers",
        _wraps("$Wrong\n$Right\n$Other", "$Wrong$Right$Other", "1. $Wrong\n2. $Right\n3. $Other\n4. $Wrong"),
        "The right answer is paid among wrong ones: any that matches will do.",
        _ONCE,
        wrong="certain",
        kinds=CHEAP,
    ),
    _attack(
        "denied",
        _denied,
        "An answer that is denied or quoted is paid because it stands in the required form.",
        "Demand one answer in the required form, and nothing behind it.",
        "reported of public rewards",  # by a contract that reads nothing but the marks, what stands in them is asserted all the same
        kinds=CHEAP,
    ),
    _attack(
        "all_inside",
        _all_inside,
        "Several answers between one pair of marks count as the right one.",
        "Compare all that stands between the marks with the gold.",
        wrong="certain",
        kinds=CHEAP,
    ),
    _attack(
        "broken_tags",
        _broken_tags,
        "Tags that are nested, repeated, crossed or never closed pass.",
        "Demand each tag exactly once and in order, and nothing outside.",
        "TRL's `think_format_reward`, run",
    ),
    _attack(
        "no_wrapping", _no_wrapping, "The answer is paid without the required wrapping.", "Read only the place where the answer must stand."
    ),
    _attack(
        "outside",
        _outside,
        "The right answer is paid while the place of the answer holds a wrong one.",
        "Read only the place where the answer must stand.",
        wrong="certain",
        kinds=CHEAP,
    ),
    _attack(
        "unanchored",
        _drowned,
        "Pages of other text around the answer are overlooked.",
        _WHOLE,
        "patterns that end in `.*`, run",
    ),
    _attack(
        "much",
        _much,
        "A wrong answer is paid once there is enough of it.",
        "Let nothing but the one asserted answer count.",
        wrong="certain",
    ),
    _attack(
        "newlines",
        _newlines,
        "White space around the answer, or the kind of line ending, counts.",
        "Strip the text before you compare.",
        right=True,
    ),
    _attack("space_within", _space_within, "White space between tag and answer counts.", "Strip what stands between the tags.", right=True),
)
