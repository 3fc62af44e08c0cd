"""What training climbs: the right number, a tenth of it for writing nothing else, a tenth for not calling on and on."""

from __future__ import annotations

import re

from earnest.rewards.calls import no_leaked_tags
from earnest.rewards.compose import compose
from earnest.rewards.length import length
from earnest.rewards.number import number
from earnest.rewards.verifier import Attempt, Score, Verifier, right, wrong
from earnest.task import Row

_PLAIN = re.compile(r"-?[0-9]+")
_BARE = re.compile(r"[-+]?[0-9][0-9,]*(?:\.0+)?\.?")


def _bare(attempt: Attempt, row: Row) -> Score:
    return right() if _BARE.fullmatch(attempt.text.strip()) else wrong("more than a whole number")


def _plain(attempt: Attempt, row: Row) -> Score:
    return right() if _PLAIN.fullmatch(attempt.text.strip()) else wrong("more than digits")


# The final answer is one number and nothing else, so what a tool printed, copied whole, is no answer unless it is that number. How it was
# found is left free: a product that is right in the head is right. One call is free, five more cost the whole tenth.
reward = compose(
    correct=number("answer", place="whole", currency=()),
    gates=[no_leaked_tags(), Verifier("bare", _bare)],
    shaped={Verifier("plain", _plain): 0.1, length(1, 6, unit="calls", name="few_calls"): 0.1},
)
