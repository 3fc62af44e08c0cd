"""What training climbs: the right answer, read in this very attempt; a tenth of it for the exact form, a tenth for few calls."""

from __future__ import annotations

import re

from earnest.rewards.calls import calls_in, no_leaked_tags
from earnest.rewards.compose import compose
from earnest.rewards.number import number
from earnest.rewards.text import text_answer
from earnest.rewards.verifier import Attempt, Score, Verifier, right, wrong
from earnest.task import Row

_BARE = re.compile(r"(?:[A-Za-z ]+|[1-9][0-9,]*)\.?")  # every name of this world is made of these letters
SPARE = 4  # calls beyond those needed, until nothing is left of the tenth

_NUMBER = number("answer", place="whole", currency=())
_NAME = text_answer("answer", ignore=["case", "space", "punctuation", "articles"])


def _bare(attempt: Attempt, row: Row) -> Score:
    return right() if _BARE.fullmatch(attempt.text.strip()) else wrong("more than a name or a number")


def _answer(attempt: Attempt, row: Row) -> Score:
    return (_NUMBER if row["number"] else _NAME).judge(attempt, row)


def _exact(attempt: Attempt, row: Row) -> Score:
    return right() if attempt.text == row["answer"] else wrong("not to the letter")


def _read(attempt: Attempt, row: Row) -> Score:
    """Whether a search that was really run showed the answer before it was given. A lucky guess is no finding."""
    told = [call.result for call in calls_in(attempt)[0] if call.ran and call.name == "search" and isinstance(call.result, str)]
    word = re.compile(rf"(?<!\w){re.escape(row['answer'])}(?!\w)")
    return right() if any(word.search(text) for text in told) else wrong("the answer stands in nothing that was found")


def _few_calls(attempt: Attempt, row: Row) -> Score:
    """Full marks for as many calls as the question needs, less in a straight line for each call more."""
    made = len(calls_in(attempt)[0])
    return Score(min(1.0, max(0.0, 1 - (made - row["hops"]) / SPARE)), evidence={"calls": made})


# Nothing is paid for retrieved text as such: the last message has to be the answer and nothing else. The task says to look it up, so an
# answer that no search showed is not paid either; which searches, and in which order, is left free.
reward = compose(
    correct=Verifier("answer", _answer, ("answer", "number")),
    gates=[no_leaked_tags(), Verifier("bare", _bare), Verifier("read", _read, ("answer",))],
    shaped={Verifier("exact", _exact, ("answer",)): 0.1, Verifier("few_calls", _few_calls, ("hops",)): 0.1},
)
