"""Multiple choice: the one letter that a text in prose asserts."""

from __future__ import annotations

from earnest.errors import UserError
from earnest.rewards.prose import reader
from earnest.rewards.text import MAX_CHARACTERS, accepted, shown
from earnest.rewards.verifier import Attempt, Score, Verifier, invalid_task, right, wrong
from earnest.task import Row


def choice(gold: str = "answer", *, letters: str = "ABCDEFGHIJ", name: str = "choice", max_characters: int = MAX_CHARACTERS) -> Verifier:
    r"""The answer asserts one letter, and it is the right one.

    Rule: 1.0 when the text asserts exactly one of the letters and the row accepts it, else 0.0. Forms that assert: a lone "C", "(C)",
    "**C**", "c. with its text"; "The answer is (C)", "Answer: C", "I would pick C, because ...", "C is correct"; `\boxed{C}`. Several
    letters, a negation, a question, a quotation, the article A and the pronoun I assert nothing. A later assertion replaces an earlier
    one only after a correction ("wait", "actually") or as the final answer ("finally", "the final answer is").

    Args:
        gold: Column with the letter, or a list of letters that are all acceptable.
        letters: The options there are, at least two different capital letters.
        name: Name in metrics.
        max_characters: Longest answer that is looked at.

    Returns:
        A verifier.

    Raises:
        UserError: `letters` is something else.
    """
    if len(set(letters)) < max(2, len(letters)) or not all("A" <= letter <= "Z" for letter in letters):
        raise UserError(f"letters={letters!r} must be two or more different capital letters, such as 'ABCD'.")
    read = reader(letters, letters=True)

    def judge(attempt: Attempt, row: Row) -> Score:
        golds = {letter.strip().upper() for letter in accepted(row, gold)}
        if not golds or not golds < set(letters):
            return invalid_task(f"'{gold}' is not one of the letters {letters}")
        if len(attempt.text) > max_characters:
            return wrong("too long")
        reading = read(attempt.text)
        if reading.option is None:
            return wrong(reading.reason, text=shown(attempt.text))
        return right(answer=reading.option) if reading.option in golds else wrong("another option", answer=reading.option)

    return Verifier(name, judge, columns=(gold,))
