"""Every attack there is, family by family."""

from __future__ import annotations

from earnest.redteam.attack import Attack
from earnest.redteam.attacks import nowork

CATALOG: tuple[Attack, ...] = (*nowork.ATTACKS,)
