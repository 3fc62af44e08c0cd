"""Every attack there is, family by family."""

from __future__ import annotations

from earnest.redteam.attack import Attack
from earnest.redteam.attacks import (
    code,
    crash,
    evaluated,
    forged,
    format,
    handoff,
    json,
    judge,
    label,
    length,
    nowork,
    number,
    right,
    sql,
    state,
    tools,
    words,
)

CATALOG: tuple[Attack, ...] = (
    *nowork.ATTACKS,
    *json.ATTACKS,
    *format.ATTACKS,
    *length.ATTACKS,
    *crash.ATTACKS,
    *label.ATTACKS,
    *words.ATTACKS,
    *number.ATTACKS,
    *evaluated.ATTACKS,
    *judge.ATTACKS,
    *right.ATTACKS,
    *tools.ATTACKS,
    *forged.ATTACKS,
    *handoff.ATTACKS,
    *state.ATTACKS,
    *code.ATTACKS,
    *sql.ATTACKS,
)
