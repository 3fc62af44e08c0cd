"""Classification: one label out of a given set, asserted and not merely mentioned."""

from __future__ import annotations

from collections.abc import Collection

from earnest.errors import UserError
from earnest.rewards.prose import Reading, reader
from earnest.rewards.text import MAX_CHARACTERS, accepted, normaliser, shown
from earnest.rewards.verifier import Attempt, Score, Verifier, invalid_task, right, wrong
from earnest.task import Row


def label(
    labels: Collection[str],
    gold: str = "label",
    *,
    ignore: Collection[str] = (),
    prose: bool = False,
    name: str = "label",
    max_characters: int = MAX_CHARACTERS,
) -> Verifier:
    """The answer is one of the labels, and the right one.

    Rule: 1.0 when the whole text is a label after `normaliser(ignore)` and the row accepts that label, else 0.0. With `prose`, the text
    may be sentences that assert one label ("The label is spam", "This ticket is spam because ..."); several labels, a negation, a
    question, a quotation, or a label inside another word assert nothing (see `prose.py` for the forms, English only).

    Where one label is much more frequent than the others, always giving it pays: balance the rows, and look at balanced accuracy.

    Args:
        labels: All labels there are, at least two.
        gold: Column with the label, or a list of labels that are all acceptable, though not every one there is.
        ignore: Differences that do not count, by the names of `normaliser`; with `prose` only "case".
        prose: Whether sentences are read.
        name: Name in metrics.
        max_characters: Longest answer that is looked at.

    Returns:
        A verifier.

    Raises:
        UserError: Fewer than two labels, or two that `ignore` makes the same.
    """
    ignore = {ignore} if isinstance(ignore, str) else set(ignore)
    normal = normaliser(ignore)
    if isinstance(labels, str) or len(labels) < 2 or not all(isinstance(one, str) and normal(one) for one in labels):
        raise UserError(f"labels={labels!r:.200} must be two or more texts.")
    known = {normal(one): one for one in labels}
    if len(known) < len(labels):
        raise UserError(f"Two of the labels {sorted(labels)!r:.200} are the same for ignore={sorted(ignore)}. Rename one or ignore less.")
    if prose and not ignore <= {"case"}:
        raise UserError(f"ignore={sorted(ignore)}: in prose only 'case' can be ignored; white space and marks are anyway.")
    read = reader(labels, ignore_case="case" in ignore) if prose else lambda text: _exactly(known.get(normal(text)))

    def judge(attempt: Attempt, row: Row) -> Score:
        golds = {known.get(normal(one)) for one in accepted(row, gold)}
        if not golds or None in golds or len(golds) == len(known):
            return invalid_task(f"'{gold}' is not one of the labels, or is all of them")
        if len(attempt.text) > max_characters:
            return wrong("too long")
        reading = read(attempt.text)
        if reading.option is None:
            return wrong(reading.reason, text=shown(attempt.text))
        return right(answer=reading.option) if reading.option in golds else wrong("another label", answer=reading.option)

    return Verifier(name, judge, columns=(gold,))


def _exactly(found: str | None) -> Reading:
    return Reading(found, "" if found else "not one of the labels")
