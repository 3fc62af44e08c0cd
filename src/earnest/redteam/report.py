"""The analysis a reviewer can read, as Markdown and as one HTML page that opens offline.

For each reward function: how it could be gamed, whether this one resists, the evidence, the remedy; then what the rewards let through
together, what scripted policies would earn, and every attack that was tried. Answers are hostile text: they reach the page escaped, with
nothing invisible in them, and the page runs no script at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from earnest.redteam.attack import Attack
from earnest.redteam.catalog import CATALOG
from earnest.redteam.fold import grouped
from earnest.redteam.wording import (
    FORMS,
    Described,
    asks,
    count,
    described,
    earned,
    examples,
    gap,
    hits,
    kind_of,
    number,
    percent,
    played,
    sentence,
    title,
    together,
    verdict,
    visible,
    who,
)
from earnest.rundir import write_text
from earnest.task import Task

if TYPE_CHECKING:
    from markupsafe import Markup

    from earnest.redteam.audit import Audit
    from earnest.redteam.baseline import Comparison
    from earnest.redteam.findings import Finding

ALSO = "The same is shown by:"
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Chapter:
    """What there is to say of one reward function, or of the sum of several.

    Attributes:
        title: Its name.
        function: What is known of it; None for the sum.
        ways: By family of attacks: how many were tried, and how many found something in this function.
        stands: Whether it resists, in a sentence.
        findings: The evidence, facts first.
        tone: "good", "doubtful" or "bad".
    """

    title: str
    function: Described | None
    ways: Sequence[tuple[str, int, int]]
    stands: str
    findings: Sequence[Finding]
    tone: str


@dataclass(frozen=True)
class Tried:
    """A row of the table of attacks: the attack, how many answers it gave, and what came of it; tone as of a chapter."""

    attack: Attack
    answers: int
    outcome: str
    tone: str


def write_reports(audit: Audit, compared: Comparison, task: Task, folder: Path, catalog: Sequence[Attack] = CATALOG) -> list[Path]:
    """Write redteam.md and redteam.html into a folder.

    Returns:
        Their paths.

    Raises:
        UserError: The folder cannot be written.
    """
    pages = {"redteam.md": report_markdown, "redteam.html": report_html}
    for name, made in pages.items():
        write_text(folder / name, made(audit, compared, task, catalog))
    return [folder / name for name in pages]


def chapters(audit: Audit, task: Task) -> list[Chapter]:
    """A chapter for each reward function, and one for the sum of several where something is the fault of no single one."""
    functions, held = described(task), {f.fingerprint: f for f in audit.findings}
    own = {id(f): held.get(f.under, f).rewards or f.rewards for f in audit.findings}  # told where the one it stands under is told
    if len(functions) == 1:
        return [_chapter(functions[0].name, functions[0], audit.findings, audit)]
    made = [_chapter(function.name, function, [f for f in audit.findings if function.name in own[id(f)]], audit) for function in functions]
    shared = [f for f in audit.findings if not own[id(f)]]
    return [*made, _chapter("The sum of the rewards", None, shared, audit)] if shared else made


def _chapter(title: str, function: Described | None, findings: Sequence[Finding], audit: Audit) -> Chapter:
    told = [f for f in findings if f.certainty != "question"]
    families = dict.fromkeys([*audit.families, *(f.family for f in findings)])
    ways = [(name, audit.families.get(name, (0, 0))[0], len({f.attack for f in told if f.family == name})) for name in families]
    facts = [f for f, _ in grouped(findings) if f.certainty == "fact"]
    bad = [f for f in facts if f.kind != "false reject"]
    tried = count(sum(1 for answers in audit.tried.values() if answers), "attack")
    if bad:
        worst = max((f.share for f in bad if math.isfinite(f.share)), default=0.0)
        exploits, faults = (sum(f.kind == kind for f in bad) for kind in ("exploit", "fault"))
        parts = [f"{exploits} proven {'way' if exploits == 1 else 'ways'} to be paid for a wrong answer"] if exploits else []
        parts += [count(faults, "fault")] if faults else []
        far = f"; the worst goes {percent(worst)} of the way from an honest wrong answer to the right one" if worst > 0 else ""
        return Chapter(title, function, ways, f"It does not resist: {' and '.join(parts)} in {tried}{far}.", findings, "bad")
    if findings:
        rejects = f"; {count(len(facts), 'harmless variation')} of the right answer earned too little" if facts else ""
        stands = f"It resists as far as proven: {tried} tried{rejects}; what is below is for you to read."
        return Chapter(title, function, ways, stands, findings, "doubtful")
    return Chapter(
        title, function, ways, f"It resists: in {tried}, no wrong answer was paid through it and none broke it.", findings, "good"
    )


def attacks_tried(audit: Audit, catalog: Sequence[Attack] = CATALOG) -> list[Tried]:
    """Every attack of the catalog that applied, with what came of it."""
    found: dict[str, list[Finding]] = {}
    for finding in audit.findings:
        found.setdefault(finding.attack, []).append(finding)
    rows = []
    for attack in catalog:
        answers = audit.tried.get(attack.id, 0)
        if answers:
            outcomes = [f"{kind_of(f)} on {f.hits} of {count(f.tried, 'row')}" for f in found.get(attack.id, ())]
            held = "paid in full" if attack.expect == "right" else "resisted"
            proven = any(f.certainty == "fact" and f.kind != "false reject" for f in found.get(attack.id, ()))
            tone = "bad" if proven else "doubtful" if outcomes else "good"
            rows.append(Tried(attack, answers, "; ".join(outcomes) or held, tone))
    return rows


def report_markdown(audit: Audit, compared: Comparison, task: Task, catalog: Sequence[Attack] = CATALOG) -> str:
    """The analysis as Markdown."""
    lines = [f"# Red team: {_md(audit.task)}", "", f"**{_md(verdict(audit, compared))}**", "", _md(_asked(audit)), ""]
    for chapter in chapters(audit, task):
        lines += _md_chapter(chapter)
    if sentences := together(audit):
        lines += ["## The rewards together", "", *(f"- {_md(text)}" for text in sentences), ""]
    lines += ["## What a model would earn that always did one thing", ""]
    lines += [
        "| policy | what it does | mean reward | of the way from honest wrong to right | check accepts |",
        "| --- | --- | --: | --: | --: |",
    ]
    lines += [f"| {_md(p.name)} | {_md(p.says)} | {number(p.mean)} | {percent(p.share)} | {percent(p.accepted)} |" for p in played(audit)]
    lines += ["", _md(gap(audit)), ""]
    if compared.accepted or compared.stale:
        lines += ["## Baseline", ""]
        lines += [f"- accepted: {_md(sentence(f))}" for f in compared.accepted]
        lines += [f"- no longer found: {_md(entry.finding)} (`{entry.fingerprint}`)" for entry in compared.stale] + [""]
    lines += ["## Attacks tried", "", "| attack | family | what it would use | answers | outcome |", "| --- | --- | --- | --: | --- |"]
    lines += [
        f"| `{t.attack.id}` | {_md(t.attack.family)} | {_md(t.attack.flaw)} | {t.answers} | {_md(t.outcome)} |"
        for t in attacks_tried(audit, catalog)
    ]
    return "\n".join(lines) + "\n"


def _md_chapter(chapter: Chapter) -> list[str]:
    lines = [f"## {_code(chapter.title) if chapter.function else chapter.title}", ""]
    if chapter.function:
        place = f" `{_place(chapter.function)}`" if chapter.function.file else ""
        lines += [f"Weight {chapter.function.weight:g}.{' ' + _md(chapter.function.says) if chapter.function.says else ''}{place}", ""]
    tried = [f"{_md(name)} ({n} tried{f', {m} worked' if m else ''})" for name, n, m in chapter.ways]
    lines += [
        f"- **How it could be gamed:** {'; '.join(tried) or 'no attack applies'}.",
        f"- **Does it resist?** {_md(chapter.stands)}",
        "",
    ]
    for finding, others in grouped(chapter.findings):
        lines += _md_finding(finding, others)
        if others:
            lines += [ALSO, "", *(f"- {_md(f.flaw)} (`{f.attack}`) {_md(f.fix)}" for f in others), ""]
    return lines


def _md_finding(finding: Finding, others: Sequence[Finding]) -> list[str]:
    answer = examples(finding, others)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", "\n".join(answer))), default=0))
    seen = f" Seen: {_md(finding.detail)}." if finding.detail and not asks(finding) else ""
    remedy = [] if asks(finding) else ["", f"**Remedy:** {_md(finding.fix)}"]
    return [
        f"### {kind_of(finding).capitalize()}: {_md(title(finding, others))}",
        "",
        f"{fence}text",
        *answer,
        fence,
        "",
        f"Earns {earned(finding)}; at {_md(finding.place)}. On {hits(finding)}.{seen}"
        f" (`{finding.attack}`, {_md(who(finding))}{', ' + _md(finding.source) if finding.source else ''})",
        *remedy,
        "",
    ]


def _md(text: str) -> str:
    """Text as Markdown shows it: on one line, no markup in it but words set as code."""
    return re.sub(r"`[^`|]+`|[\\`*<|\[\]]", lambda m: m[0] if len(m[0]) > 1 else "\\" + m[0], " ".join(visible(text).split()))


def _prose(text: str) -> Markup:
    """The same for HTML."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(visible(text)))))


def _code(name: str) -> str:
    return f"`{name.replace('`', chr(39))}`"


def _place(function: Described) -> str:
    """File and line, as short as they can be told."""
    if function.file is None:
        return ""
    here = Path.cwd()
    file = function.file.resolve()
    return f"{file.relative_to(here) if file.is_relative_to(here) else file.name}:{function.line}"


def _asked(audit: Audit) -> str:
    rewards = ", ".join(f"{name} × {weight:g}" for name, weight in audit.rewards.items())
    leave = f" Prompts, as they were read: {'; '.join(audit.leave)}." if audit.leave else ""
    return (
        f"Rewards: {rewards}. Answers: {FORMS.get(audit.kind, audit.kind)}.{leave} "
        f"{audit.rows[0]:,} of {count(audit.rows[1], 'row')} attacked, "
        f"{count(audit.calls, 'answer')} scored in {audit.seconds:.1f} s, seed {audit.seed}."
    )


def report_html(audit: Audit, compared: Comparison, task: Task, catalog: Sequence[Attack] = CATALOG) -> str:
    """The analysis as one HTML page without scripts, everything in it."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        asks=asks, count=count, earned=earned, grouped=grouped, hits=hits, kind=kind_of, number=number, percent=percent, place=_place,
        prose=_prose, sentence=sentence, title=title,
        examples=lambda finding, others: "\n".join(examples(finding, others, 14, 1200)), visible=visible, who=who,
    )  # fmt: skip
    return environment.get_template("redteam.html.j2").render(
        audit=audit,
        compared=compared,
        style=Markup((TEMPLATES / "redteam.css").read_text(encoding="utf-8")),
        verdict=verdict(audit, compared),
        kind=FORMS.get(audit.kind, audit.kind),
        gap=gap(audit),
        together=together(audit),
        chapters=chapters(audit, task),
        tried=attacks_tried(audit, catalog),
        board=[(policy, _bar(policy.share)) for policy in played(audit)],
    )


def _bar(share: float) -> float | None:
    """Percent of the width from honest wrong to right that a policy gets, None where that says nothing."""
    return round(100 * min(1.0, max(0.0, share)), 1) if math.isfinite(share) else None
