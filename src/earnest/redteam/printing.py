"""An audit on the console: who would earn what at a glance, then what was found, then what held."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console

from earnest.redteam.fold import grouped
from earnest.redteam.wording import (
    FORMS,
    count,
    earned,
    gap,
    hits,
    number,
    percent,
    played,
    sentence,
    shown,
    title,
    together,
    verdict,
    visible,
    who,
)

if TYPE_CHECKING:
    from earnest.redteam.audit import Audit
    from earnest.redteam.baseline import Comparison
    from earnest.redteam.findings import Finding
    from earnest.redteam.policies import Played

WIDTH = 100  # columns, also where nobody says how many there are
BAR, NARROW = 18, 7  # characters from honest wrong to right; the latter where lines are short
FEW, NAMES = 3, 8  # leads or questions shown at length, and names in a row
LABEL = 10  # characters of the words in front of what a finding says
STYLES = {"exploit": "red", "fault": "red", "false reject": "yellow"}


@dataclass(frozen=True)
class _Page:
    """Lines of a width that is right for people, on a console that may know no colours and no Unicode."""

    console: Console

    @property
    def ascii_only(self) -> bool:
        return not self.console.encoding.lower().startswith("utf")

    @property
    def width(self) -> int:
        return min(self.console.width, WIDTH) if self.console.is_terminal else WIDTH

    def mark(self, fine: str, plain: str) -> str:
        return plain if self.ascii_only else fine

    def line(self, text: str = "", style: str = "", lead: str = "") -> None:
        """A paragraph; `lead` stands in front, and further lines are indented by as much."""
        text = visible(text, self.ascii_only)
        room = max(30, self.width - cell_len(lead))
        parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
        for index, part in enumerate(parts):
            self.put(((lead if index == 0 else " " * cell_len(lead)) + part).rstrip(), style)

    def verbatim(self, lines: Sequence[str], lead: str, style: str = "") -> None:
        """Lines to look at, broken where they end and nowhere else if they can be."""
        room = max(30, self.width - cell_len(lead))
        parts = [line[start : start + room] for line in lines for start in range(0, max(1, len(line)), room)]
        for index, part in enumerate(parts):
            self.put((lead if index == 0 else " " * cell_len(lead)) + part, style)

    def put(self, text: str, style: str = "") -> None:
        """One line as it is."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_audit(audit: Audit, compared: Comparison, console: Console) -> None:
    """Print an audit: a scoreboard, findings, what was resisted, and a verdict in one sentence."""
    page = _Page(console)
    _header(audit, page)
    _board(audit, page)
    if audit.late:
        page.line()
        page.line("The rewards are slow: there was no time for every attack of the catalog.", "yellow")
    groups = grouped(compared.new)
    for finding, others in groups:
        if finding.certainty == "fact":
            page.line()
            _fact(finding, page)
            _also(others, page)
    for heading, certainty, one in (
        ("Leads: may be meant, so look", "lead", _lead),
        ("Questions: your contract decides", "question", _question),
    ):
        some = [group for group in groups if group[0].certainty == certainty]
        if some:
            page.line()
            page.line(heading, "bold")
        for finding, others in some[:FEW]:
            one(finding, others, page)
        for finding, others in some[FEW:]:
            page.line(f"{title(finding, others)} ({finding.attack}, {who(finding)})", lead="? ")
    if sentences := together(audit):
        page.line()
        page.line("The rewards together", "bold")
        for text in sentences:
            page.line(text, lead="  ")
    _families(audit, page)
    _baseline(compared, page)
    page.line()
    page.line(verdict(audit, compared), "bold red" if compared.fails else "bold green")


def _header(audit: Audit, page: _Page) -> None:
    times = page.mark("×", "x")
    page.line(f"Red team: {audit.task or 'a task without a name'}", "bold")
    page.line(", ".join(f"{name} {times} {weight:g}" for name, weight in audit.rewards.items()), lead="  rewards  ")
    attacked = (
        f"{audit.rows[0]:,} of {count(audit.rows[1], 'row')} attacked, {count(audit.calls, 'answer')} scored in {audit.seconds:.1f} s"
    )
    page.line(f"{FORMS.get(audit.kind, audit.kind)}; {attacked}, seed {audit.seed}", lead="  answers  ")
    if audit.leave:
        page.line(f"{'; '.join(audit.leave)} (as they were read)", lead="  prompts  ")


def _board(audit: Audit, page: _Page) -> None:
    board = played(audit)
    if not board:
        return
    page.line()
    page.line("What a model would earn that always did one thing", "bold")
    page.line()
    names = max(len("policy"), *(cell_len(p.name) for p in board))
    wide = 2 + names + 2 + 2 + 8 + 2 + BAR + 6 + 2 + 7  # all but what a policy does
    narrow = page.width < wide + 16
    says = 0 if narrow else min(36, max(16, max(cell_len(p.says) for p in board)), page.width - wide)
    room = NARROW if narrow else BAR
    does = "" if narrow else f"{'what it does':<{says}}  "
    far = "to the oracle" if narrow else "of the way to the oracle"
    page.put(f"  {'policy':<{names}}  {does}{'reward':>8}  {far:<{room + 6}}  {'check':>7}", "dim")
    for one in board:
        style = "green" if one.name == "oracle" else "" if not one.cheat else _alarm(one)
        doing = [] if narrow else textwrap.wrap(visible(one.says, page.ascii_only), says) or [""]
        share = "< 0%" if one.share < -0.005 else percent(one.share)
        bar = f"{_bar(one.share, page, room)} {share:>5}"
        does = "".join(f"{_fill(line, says)}  " for line in doing[:1])
        page.put(f"  {_fill(one.name, names)}  {does}{number(one.mean):>8}  {bar}  {percent(one.accepted):>7}", style)
        for more in doing[1:]:
            page.put(f"  {' ' * names}  {more}", style)
    page.line()
    page.line(gap(audit), lead="  ")


def _alarm(cheat: Played) -> str:
    return "red" if cheat.share > 0.5 else "yellow" if cheat.share > 0.1 else ""


def _fill(text: str, width: int) -> str:
    return text + " " * max(0, width - cell_len(text))


def _bar(share: float, page: _Page, room: int) -> str:
    """From honest wrong (empty) to right (full); more than right runs over."""
    full, empty = page.mark("█", "#"), page.mark("░", ".")
    if not math.isfinite(share):
        return " " * room
    filled = round(room * min(1.0, max(0.0, share)))
    bar = full * filled + empty * (room - filled)
    return bar[:-1] + page.mark("▶", ">") if share > 1.005 else bar


def _fact(finding: Finding, page: _Page) -> None:
    style = STYLES[finding.kind]
    cross = page.mark("✗", "x")
    page.line(finding.flaw, f"bold {style}", lead=f"{cross} {finding.kind[0].upper()}{finding.kind[1:]}: ")
    _said("by", f"{finding.attack} against {who(finding)}", page)
    page.verbatim(shown(finding.example, ascii_only=page.ascii_only), _label("answer"), "cyan")
    _said("at", finding.place, page)
    if finding.earned is not None:
        _said("earned", earned(finding), page)
    _said("worked on", hits(finding), page)
    if finding.detail:
        _said("seen", finding.detail, page)
    _said("fix", finding.fix, page)


def _also(others: Sequence[Finding], page: _Page) -> None:
    """Findings of which nothing more is to be shown than of the one before: the reports say more of them."""
    names = [f.attack for f in others]
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    if names:
        _said("also by", ", ".join(names[:NAMES]) + more, page)


def _label(word: str) -> str:
    return f"    {word:<{LABEL}}"


def _said(word: str, text: str, page: _Page) -> None:
    page.line(text, lead=_label(word))


def _lead(finding: Finding, others: Sequence[Finding], page: _Page) -> None:
    page.line(f"{finding.flaw} ({finding.attack}, {who(finding)})", "yellow", lead="? ")
    page.verbatim(shown(finding.example, 2, 160, page.ascii_only), _label("answer"), "cyan")
    seen = f"; {finding.detail}" if finding.detail else ""
    _said("earned", f"{earned(finding)}; on {finding.hits} of {count(finding.tried, 'row')}{seen}", page)
    _said("fix", finding.fix, page)
    _also(others, page)


def _question(finding: Finding, others: Sequence[Finding], page: _Page) -> None:
    page.line(title(finding, others), "", lead="? ")
    asked = [finding, *others]
    for one in asked[:FEW]:
        (example, *_) = shown(one.example, 1, 60, page.ascii_only)
        page.verbatim([f"{example}  ({one.attack}, {one.hits} of {count(one.tried, 'row')})"], "    ", "cyan")
    _also(asked[FEW:], page)


def _families(audit: Audit, page: _Page) -> None:
    if not audit.families:
        return
    page.line()
    page.line("Attacks by family", "bold")
    width = max(map(cell_len, audit.families))
    tick, cross = page.mark("✓", "+"), page.mark("✗", "x")
    for family, (tried, worked) in audit.families.items():
        outcome = f"{worked} found something" if worked else "resisted"
        page.put(f"  {cross if worked else tick} {_fill(family, width)}  {tried:>4} tried  {outcome}", "yellow" if worked else "green")


def _baseline(compared: Comparison, page: _Page) -> None:
    if compared.accepted:
        page.line()
        page.line("In the baseline", "bold")
        for finding, others in grouped(compared.accepted):
            page.line(sentence(finding), "dim", lead="  ")
            _also(others, page)
    if compared.stale:
        page.line()
        page.line("In the baseline, but no longer found: take them out with --update-baseline", "bold yellow")
        for entry in compared.stale:
            page.line(f"{entry.finding} [{entry.fingerprint}]", "dim", lead="  ")
