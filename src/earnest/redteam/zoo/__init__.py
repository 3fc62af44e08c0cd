"""Rewards that are known to be defective, and ones that are known to be sound, of all families: what the red team is tested on.

Each specimen belongs to one of two halves. Attacks may be written with an eye on the seen half; the unseen one is looked at when they are
done, so that it tells how well the catalog does on rewards that nobody wrote it for.
"""

from __future__ import annotations

from earnest.redteam.zoo import (
    batches,
    crashes,
    exhibits,
    formats,
    handoffs,
    judges,
    labels,
    lengths,
    nowork,
    numbers,
    programs,
    queries,
    states,
    tools,
)
from earnest.redteam.zoo.specimen import Half, Specimen

SPECIMENS: tuple[Specimen, ...] = (
    *nowork.SPECIMENS,
    *formats.SPECIMENS,
    *labels.SPECIMENS,
    *numbers.SPECIMENS,
    *programs.SPECIMENS,
    *queries.SPECIMENS,
    *tools.SPECIMENS,
    *handoffs.SPECIMENS,
    *lengths.SPECIMENS,
    *judges.SPECIMENS,
    *states.SPECIMENS,
    *batches.SPECIMENS,
    *crashes.SPECIMENS,
    *exhibits.SPECIMENS,
)

__all__ = ["SPECIMENS", "Half", "Specimen"]
