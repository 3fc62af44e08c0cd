"""Findings that somebody has read and accepted, in a file of their own that belongs beside the task, under version control.

A finding is known by its fingerprint, and accepted as what it was: a lead that has become a fact since is new. Entries that no longer match
anything are reported, so that a baseline does not outlive what it excuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from earnest.errors import UserError
from earnest.redteam.wording import sentence
from earnest.rundir import write_json

if TYPE_CHECKING:
    from earnest.redteam.audit import Audit
    from earnest.redteam.findings import Finding

GRAVITY = {"question": 0, "lead": 1, "fact": 2}
ABOUT = "Findings of `earnest redteam` that were read and accepted. The sentences are for people: write the reason there; updates keep it."


@dataclass(frozen=True)
class Entry:
    """One accepted finding.

    Attributes:
        fingerprint: The finding's.
        certainty: What it was when it was accepted.
        finding: A sentence for people.
    """

    fingerprint: str
    certainty: str
    finding: str


@dataclass(frozen=True)
class Comparison:
    """An audit beside a baseline.

    Attributes:
        new: Findings that nobody accepted, in the audit's order.
        accepted: Findings in the baseline.
        stale: Entries of the baseline that nothing matches any more.
    """

    new: tuple[Finding, ...]
    accepted: tuple[Finding, ...] = ()
    stale: tuple[Entry, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether there is a proven exploit or fault that nobody accepted."""
        return any(f.certainty == "fact" and f.kind in ("exploit", "fault") for f in self.new)


def compare(audit: Audit, entries: Iterable[Entry] = ()) -> Comparison:
    """Tell new findings from accepted ones."""
    known = {entry.fingerprint: entry for entry in entries}
    found = {finding.fingerprint for finding in audit.findings}
    accepted = tuple(
        f for f in audit.findings if f.fingerprint in known and GRAVITY[f.certainty] <= GRAVITY[known[f.fingerprint].certainty]
    )
    return Comparison(
        tuple(f for f in audit.findings if f not in accepted), accepted, tuple(e for e in known.values() if e.fingerprint not in found)
    )


def read_baseline(path: Path, task: str) -> list[Entry]:
    """The accepted findings of a task.

    Raises:
        UserError: There is no such file, it is no baseline, or it is that of another task.
    """
    if not path.is_file():
        raise UserError(f"There is no baseline '{path}'. Write one with --baseline {path} --update-baseline, after reading what is found.")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        entries = [Entry(**entry) for entry in held["accepted"]]
        of = held["task"]
        if not all(isinstance(text, str) for entry in entries for text in (entry.fingerprint, entry.finding)):
            raise TypeError("texts are expected")
        if odd := [entry.certainty for entry in entries if entry.certainty not in GRAVITY]:
            raise ValueError(f"unknown certainty {odd[0]!r}")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(
            f"'{path}' is no baseline of `earnest redteam` ({type(error).__name__}: {error}). Mend it, or write it anew."
        ) from error
    if of != task:
        raise UserError(f"'{path}' is the baseline of task '{of}', not of '{task}'. Give each task a baseline of its own.")
    return entries


def write_baseline(path: Path, audit: Audit, before: Sequence[Entry] = ()) -> list[Entry]:
    """Accept everything an audit found, and nothing else.

    Args:
        path: The file, replaced.
        audit: What is accepted.
        before: What was accepted so far, whose sentences are kept.

    Returns:
        What stands in the file: an entry a fingerprint, in an order that does not depend on the run.
    """
    entries = {}
    for finding in sorted(audit.findings, key=lambda f: GRAVITY[f.certainty]):  # of two with one fingerprint the graver counts
        entries[finding.fingerprint] = Entry(finding.fingerprint, finding.certainty, sentence(finding))
    for entry in before:
        if entry.fingerprint in entries and entries[entry.fingerprint].certainty == entry.certainty:
            entries[entry.fingerprint] = entry
    ordered = sorted(entries.values(), key=lambda e: e.fingerprint)
    held: dict[str, Any] = {"about": ABOUT, "task": audit.task, "accepted": [asdict(entry) for entry in ordered]}
    write_json(path, held)
    return ordered
