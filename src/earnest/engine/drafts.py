"""Drafts: what usually follows in the answers of this run.

Structured answers repeat themselves: after `"urgency": "lo` comes `w"`. The sampler lets the model read such likely tokens in one pass
with the token that was drawn, and then draws as it always does; where the draw is another token than the draft, the rest of the draft is
dropped. So drafts save passes and change no answer (speculative decoding, Leviathan et al. 2023, with the draw fixed by the
sample's own uniform number, which makes it exact token for token, up to rounding in the model's logits, and not only in distribution).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

CONTEXT = 3  # tokens that a guess looks back on
SURE = 0.7  # least share of (times this followed) / (times anything followed + 1)
LONGEST = 12  # tokens of a draft
MOST = 500_000  # pairs of context and token kept; beyond, all are forgotten


@dataclass
class Drafts:
    """Counts of what followed the last `CONTEXT` tokens."""

    counts: dict[tuple[int, ...], dict[int, int]] = field(default_factory=dict)
    known: int = 0

    def learn(self, ids: Sequence[int]) -> None:
        """Take note of an answer."""
        if self.known > MOST:
            self.counts.clear()
            self.known = 0
        for position, token in enumerate(ids):
            after = self.counts.setdefault(tuple(ids[max(0, position - CONTEXT) : position]), {})
            self.known += token not in after
            after[token] = after.get(token, 0) + 1

    def guess(self, ids: Sequence[int], most: int) -> list[int]:
        """What will follow, as far as it is likely enough, at most `most` tokens."""
        recent, guessed = list(ids[-CONTEXT:]), []
        for _ in range(min(most, LONGEST)):
            after = self.counts.get(tuple(recent))
            if not after:
                break
            token, times = max(after.items(), key=lambda pair: pair[1])
            if times < SURE * (sum(after.values()) + 1):
                break
            guessed.append(token)
            recent = [*recent, token][-CONTEXT:]
        return guessed
