"""What the prompts of a task were read to allow and to ask for, in words, for people to correct.

Attacks keep to it: what a prompt allows is not called wrong. Where a line here is wrong, say it in the prompt in other words, or give the
task a `check`.
"""

from __future__ import annotations

from collections.abc import Sequence

from earnest.redteam.attack import Target
from earnest.redteam.attacks.intervals import any_later
from earnest.redteam.attacks.numerals import decimal, numeral_of
from earnest.redteam.attacks.permitted import any_case, words_after, words_before
from earnest.redteam.leeway import leeway
from earnest.redteam.listed import asks_for_several, in_order


def leave_of(targets: Sequence[Target]) -> tuple[str, ...]:
    """A phrase each, such as "capitals are free"; those of the rows under attack, if all or (of numbers) any say so."""
    prompts = [target.prompt for target in targets]
    order = in_order(prompts)
    offs = [(leeway(target.prompt, number.value), number) for target in targets if (number := numeral_of(target.form.core))]
    off = next(((off, number) for off, number in offs if off), None)
    several = sum(bool(target.accepted) for target in targets)
    phrases = {
        "an order is asked for": order is True,
        "the order is free": order is False,
        "an answer may name several": asks_for_several(prompts),
        "capitals are free": all(map(any_case, prompts)),
        "words may stand before the answer": all(map(words_before, prompts)),
        "words may stand behind the answer": all(map(words_after, prompts)),
        "any later version will do": all(map(any_later, targets)),
        f"further right answers are known of {several} of {len(targets)} rows": several > 0,
    }
    said = [phrase for phrase, holds in phrases.items() if holds and prompts]
    return (*said, *([f"numbers may be off, {decimal(off[1].value)} by {decimal(off[0])}"] if off else ()))
