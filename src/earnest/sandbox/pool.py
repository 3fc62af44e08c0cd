"""Jails started ahead of time.

Most of a short run is the start of its jail. So a few wait, each with its interpreter up and its orders not yet given, and each
serves one program: nothing is used twice, so it is as safe as one started when asked. Only jails that need no folder of the machine's
are kept, and only of the plan asked for last.
"""

from __future__ import annotations

import atexit
import os
import threading

from earnest.sandbox.jail import CORES, Jail, Plan, start

SPARES = min(4, CORES)
IDLE = 30.0  # seconds after the last program when the waiting ones are let go


class Pool:
    """Spare jails, and a thread that starts them while there is demand."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.plan: Plan | None = None
        self.spares: list[Jail] = []
        self.filling = False

    def take(self, plan: Plan) -> Jail:
        """A jail that has served nobody.

        Raises:
            OSError: The machine has no room for one.
        """
        if plan.folder is None:
            return start(plan)
        with self.condition:
            stale = [] if plan is self.plan else self._all()
            self.plan = plan
            spare = self.spares.pop() if self.spares else None
            if not self.filling:
                self.filling = True
                threading.Thread(target=self._fill, name="earnest-sandbox", daemon=True).start()
            self.condition.notify()
        for jail in stale:
            jail.drop()
        return spare or start(plan)

    def drop(self) -> None:
        """Let all waiting jails go, until the next program."""
        with self.condition:
            stale, self.plan = self._all(), None
        for jail in stale:
            jail.drop()

    def _wanted(self) -> bool:
        return self.plan is not None and len(self.spares) < SPARES

    def _all(self) -> list[Jail]:
        taken, self.spares = self.spares, []
        return taken

    def _fill(self) -> None:
        """Until nobody has asked for a while."""
        while True:
            with self.condition:
                if not self.condition.wait_for(self._wanted, IDLE):
                    stale, self.plan, self.filling = self._all(), None, False
                    break
                plan = self.plan
            try:
                jail = start(plan)
            except OSError:  # no room: whoever asks next will see it for itself
                with self.condition:
                    stale, self.filling = self._all(), False
                break
            with self.condition:
                fits = self.plan is plan
                if fits:
                    self.spares.insert(0, jail)
            if not fits:
                jail.drop()
        for jail in stale:
            jail.drop()


POOL = Pool()


def _start_anew() -> None:
    """In a forked copy of this process: the jails are the other's."""
    global POOL
    POOL = Pool()


os.register_at_fork(after_in_child=_start_anew)
atexit.register(lambda: POOL.drop())
