"""The red team on itself: does it find what is known to be wrong, and leave alone what is known to be sound?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from earnest.errors import UserError
from earnest.redteam.audit import audit
from earnest.redteam.findings import Finding
from earnest.redteam.zoo import SPECIMENS, Half, Specimen
from earnest.rows import load_rows

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE = {True: 10.0, False: 2.0}  # seconds an answer may take: sound rewards bound their own work, the others need not be waited for
CALLS = 400  # of the searcher: it is tested elsewhere, and the catalog alone should find these


@dataclass(frozen=True)
class Result:
    """What became of one specimen.

    Attributes:
        specimen: Which.
        facts: What was reported as proven.
        seconds: How long it took.
        error: Why it could not be audited; "" where it could.
    """

    specimen: Specimen
    facts: tuple[Finding, ...]
    seconds: float
    error: str = ""

    @property
    def as_expected(self) -> bool:
        """Whether a defective reward was found out by a fact of the right kind, or a sound one left alone."""
        if self.error:
            return False
        return not self.facts if self.specimen.expect == "clean" else any(f.kind == self.specimen.expect for f in self.facts)

    @property
    def says(self) -> str:
        """What was reported, in a line."""
        return self.error or "; ".join(f"{f.kind} {f.attack}" for f in self.facts[:3]) or "nothing"


@dataclass(frozen=True)
class SelfTest:
    """All results.

    Attributes:
        results: One for each specimen.
        seconds: How long it took.
    """

    results: tuple[Result, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether everything came out as expected."""
        return all(result.as_expected for result in self.results)

    @property
    def missed(self) -> tuple[Result, ...]:
        """Defective rewards that were not found out."""
        return tuple(r for r in self.results if r.specimen.expect != "clean" and not r.as_expected)

    @property
    def accused(self) -> tuple[Result, ...]:
        """Sound rewards that something was reported of."""
        return tuple(r for r in self.results if r.specimen.expect == "clean" and not r.as_expected)

    def by_family(self) -> dict[str, tuple[int, int, int, int]]:
        """By family: defective rewards, those found out, sound rewards, those accused."""
        counts: dict[str, list[int]] = {}
        for result in self.results:
            row = counts.setdefault(result.specimen.family, [0, 0, 0, 0])
            if result.specimen.expect == "clean":
                row[2] += 1
                row[3] += not result.as_expected
            else:
                row[0] += 1
                row[1] += result.as_expected
        return {family: (a, b, c, d) for family, (a, b, c, d) in counts.items()}


def examine(specimen: Specimen, search_calls: int = CALLS) -> Result:
    """Audit one specimen."""
    began = time.monotonic()
    try:
        deadline = PATIENCE[specimen.expect == "clean"]
        found = audit(specimen.task, load_rows(specimen.task), search_calls=search_calls, deadline=deadline).findings
        error = ""
    except UserError as problem:
        found, error = (), str(problem)
    return Result(specimen, tuple(f for f in found if f.certainty == "fact"), time.monotonic() - began, error)


def selftest(
    halves: Sequence[Half] = ("seen", "unseen"),
    *,
    search_calls: int = CALLS,
    progress: Callable[[Result], object] = lambda result: None,
) -> SelfTest:
    """Audit every specimen of the given halves.

    Args:
        halves: Which.
        search_calls: Reward calls of the searcher, for each specimen.
        progress: Called with each result as it comes.
    """
    began = time.monotonic()
    results = []
    for specimen in SPECIMENS:
        if specimen.half in halves:
            results.append(examine(specimen, search_calls))
            progress(results[-1])
    return SelfTest(tuple(results), time.monotonic() - began)


def print_selftest(console: Console, halves: Sequence[Half] = ("seen", "unseen")) -> bool:
    """Run the self-test and print recall and false alarms by family, then whatever was missed or accused.

    Returns:
        Whether everything came out as expected.
    """
    count = sum(specimen.half in halves for specimen in SPECIMENS)
    with console.status(f"0 of {count} rewards") as status:
        done: list[Result] = []

        def tell(result: Result) -> None:
            done.append(result)
            status.update(f"{len(done)} of {count} rewards, last: {result.specimen.name}")

        test = selftest(halves, progress=tell)
    console.print(_table(test))
    for title, results in (("Missed", test.missed), ("Accused", test.accused)):
        for result in results:
            one = result.specimen
            console.print(f"{title}: {one.name} ({one.family}). {one.flaw or 'A sound reward.'} Reported: {result.says}", markup=False)
    return test.passed


def _table(test: SelfTest):
    from rich.table import Table

    table = Table(title="Self-test of the red team")
    for name in ("family", "defective", "found", "recall", "sound", "false alarms"):
        table.add_column(name, justify="left" if name == "family" else "right")
    families = test.by_family()
    total = [sum(column) for column in zip(*families.values(), strict=True)] if families else [0, 0, 0, 0]
    for family, (defective, found, sound, accused) in [*families.items(), ("all", total)]:
        if family == "all":
            table.add_section()
        table.add_row(family, str(defective), str(found), f"{found / defective:.0%}" if defective else "", str(sound), str(accused))
    table.caption = f"{test.seconds:.0f} s"
    return table
