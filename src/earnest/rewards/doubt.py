"""Words around an answer that make it something else than an assertion: negations, conditions, hedges, words that take it back.

What counts is whether such a word is said of the answer: "the probability that it does not rain is 2/5" and "40 girls are not scouts"
deny nothing. Where that cannot be told, the answer is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

LONGEST_CLAUSE = 1_000  # characters of a clause whose grammar is looked at; in a longer one any word counts
LONGEST_SIGN_OFF = 200
NEARBY = 200  # characters before an answer that say of what it is
NUMERAL = re.compile(r"\d")

# Function words are a closed class: these are all that English turns an assertion into something else with.
_NEGATION = r"not|\w+n['’]t|cannot|never|no|nor|neither|wrong|incorrect|incorrectly|false|untrue|mistaken"
_CONDITION = r"if|unless|whether|either|suppose|supposing|assume|assuming|imagine"
# "would" and "should" tell of the task as often as of a doubt ("She would need 7"); they doubt what others would say
_MODAL = (
    r"might|(?-i:may)|could\s+(?:(?:also|well|just|even|as\s+well|possibly)\s+)*(?:be|have\s+been|equal)|"
    r"(?:users?|one|some|somebody|someone|people|others|many|fool)\s+(?:would|could|should)"
)
_HEDGE = r"maybe|perhaps|possibly|probably|presumably|likely|guess|guessing|unsure|uncertain|alternatively"
_ATTRIBUTION = (
    r"think|thinks|thought|believe|believes|say|says|said|claim|claims|claimed|suggest|suggests|suggested|"
    r"argue|argues|propose|proposes|disagree|disagrees|doubt|doubts|according|"
    r"(?:write|writes|wrote|written)(?!\s+(?:as|in)\b)(?!.{0,60}\d[^=]{0,20}=)"  # but not "written as", "she writes 2*3 = 6"
)
_CONTRAST = r"or|but|however|though|although|yet|except|instead|rather"
# A second look may come to the same answer; the other words cannot.
_SECOND_LOOK = (
    r"wait|actually|hmm|instead|redo|recheck|rechecking|recalculate|recalculating|recompute|recomputing|reconsider|reconsidering|"
    r"re-?examine|re-?read|double[- ]?check|on\s+second\s+thoughts?|i\s+mean"
)
_RETRACTION = (
    r"correction|correcting|oops|sorry|scratch|retract|disagree|mistake|mistaken|wrong|incorrect|misread|miscounted|miscalculated|"
    r"(?:made|is|was|found|see)\s+an\s+error|my\s+error|(?:ignore|disregard|forget)\s+(?:that|this|it|the\s+above)|never\s?mind"
)


def _words(*classes: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w\\])(?:{'|'.join(classes)})(?![\w])", re.IGNORECASE)


_LEFT = _words(_NEGATION, _CONDITION, _MODAL, _HEDGE, _ATTRIBUTION)  # in the same clause, before the answer
_RIGHT = _words(_NEGATION, _CONDITION, _MODAL, _HEDGE, _ATTRIBUTION, _CONTRAST)  # in the same sentence, after it
_OR_NOT = _words(r"or\s+not|but|however")
_HEDGED = _words(_HEDGE, r"not\s+(?:so\s+|quite\s+|entirely\s+|really\s+)?(?:sure|certain)")  # anywhere in the sentence
_CORRECTS = _words(_RETRACTION, _SECOND_LOOK, r"no|not")  # between two answers
_TAKES_BACK = _words(_RETRACTION, _HEDGE, r"not\s+(?:sure|certain|it|so|true|right|correct|the\s+\w*\s*answer)")  # in a later sentence
_LOOKS_AGAIN = _words(_SECOND_LOOK)
_LEAVES_OPEN = _words(_NEGATION, _CONTRAST, _MODAL, _HEDGE, r"would|could|should")  # in a later sentence about the answer that has a number
_ABOUT_IT = re.compile(
    r"\W*(?:or|alternatively|it|this|that|but|not|another|also|maybe|perhaps|"
    r"the\s+(?:\w+\s+)?(?:answer|solution|result|value|number)s?)\b",
    re.IGNORECASE,
)
_SAYS_NO = re.compile(
    r"\W*no(?:pe)?(?:\W*\Z|\s*[,;:!—–-]|\s+(?:it|its|it['’]s|that|that['’]s|this|wait|not|the|i|i['’]m|my|sorry|way|\d))", re.IGNORECASE
)
_JUST_OR = re.compile(r"\W*(?:or|alternatively)\W*", re.IGNORECASE)
# The subject of an answer may be described by what is not: "the probability that it does not rain is".
_RELATIVE = re.compile(r"\b(?:that|who|whom|which|whose|where)\b(.*)(?:\b(?:is|are|was|were|equals)\b|=|:)", re.IGNORECASE | re.DOTALL)
_NOT_BEING = re.compile(
    r"(?<!am)(?<!is)(?<!are)(?<!was)(?<!were)(?<!be)(?<!['’]m)(?<!['’]re)(?<!['’]s)\snot\s(?!being|equal)\w+ing\s", re.IGNORECASE
)
_OF_THE_ANSWER = re.compile(r"\b(?:it|this|that|answer|not|never|no)\s+\Z", re.IGNORECASE)
_TRUTH = _words(_HEDGE, _ATTRIBUTION, r"right|correct|true|wrong|incorrect|false|mistaken|answer|solution|agree|agrees|guess|remember|sure")
_NOUN_AFTER = re.compile(
    rf"[\s$]*(?:\\text\s*\{{\s*)?(?!(?:{_NEGATION}|\w+ly|is|are|was|were|be|and|but|or|if|would|could|should|can|does|do|did|has|must|"
    r"of|by|in|at|so|just|also|then|almost|quite)\b)[a-z]{2}"
)
_NOT_DOING = _words(
    r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|wo|would)(?:\s+not|n['’]t)(?=\s+[a-z])",
    r"(?:cannot|(?:with|has|have|had)\s+no)(?=\s+[a-z])",
)
_IF = _words(r"if")
_OF_ANOTHER_THING = re.compile(r"\b(?!(?:it|is|the|answer|this|that|so|thus|hence|then|would|be|my|final)\b)[A-Za-z]{2,}", re.IGNORECASE)
_CJK_DOUBT = re.compile("[不非没沒错錯否或吗嗎]|可能|也许|也許|如果|假设")
_SIGN_OFF = re.compile(
    r"(?<=[\s}$*.!?])(?=(?-i:[A-Z]))(?:please,?\s+)?(?:let\s+me\s+know|feel\s+free|do(?:\s+not|n['’]t)\s+hesitate|"
    r"(?:would|do)\s+you\s+(?:like|want|need)|please\s+ask|if\s+you(?:['’]d\s+like|\s+(?:would\s+like|have|need|want)))\b"
    r"(?P<rest>[^.!?\n\d\\]{0,300})[.!?]*\Z",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?")


def corrects(between: str) -> bool:
    """Whether the words between two answers correct the first."""
    return bool(_CORRECTS.search(between))


def without_sign_offs(text: str) -> str:
    """The text without the offers of more help it ends with, which are no condition and no question about the answer."""
    for _ in range(3):
        text = text.rstrip()
        found = _SIGN_OFF.search(text, max(0, len(text) - LONGEST_SIGN_OFF))
        if not found or _TRUTH.search(found["rest"]) or _OR_NOT.search(found["rest"]) or _TAKES_BACK.search(found["rest"]):
            break
        text = text[: found.start()]
    return text


def doubtful_before(sentence: str, clause: str) -> bool:
    """Whether what stands before an answer doubts it.

    Args:
        sentence: From the beginning of the sentence to the answer.
        clause: The last clause of that.
    """
    return bool(_LEFT.search(_without_relative(clause)) or _HEDGED.search(sentence) or _CJK_DOUBT.search(sentence))


def _without_relative(clause: str) -> str:
    """A clause without the description of its subject, unless that speaks of what is true or who says so."""
    clause = _NOT_BEING.sub(" ", clause)  # "the students not wearing hats"
    found = _RELATIVE.search(clause) if len(clause) <= LONGEST_CLAUSE else None
    if not found or _TRUTH.search(found[1]) or _OF_THE_ANSWER.search(found[1]):
        return clause
    return f"{clause[: found.start()]} {clause[found.end() :]}"


def doubtful(behind: str, before: str = "") -> bool:
    """Whether what stands behind an answer doubts it, and not the things that were counted ("40 girls are not scouts")."""
    if not _TRUTH.search(behind):
        if _NOUN_AFTER.match(behind):
            behind = _NOT_DOING.sub(" ", behind)
        if _OF_ANOTHER_THING.search(before[-NEARBY:]) and "answer" not in before.lower():
            behind = _IF.sub(" ", behind)
    return bool(_RIGHT.search(behind) or _CJK_DOUBT.search(behind))


def taken_back(rest: str, value: Any, read: Callable[[str], Any]) -> str:
    """Whether a later sentence takes the answer back or leaves it open. A second look that comes to the same answer confirms it."""
    sentences = re.split(r"[.!?](?:\s|$)|\n", rest)
    looked = False
    for index, sentence in enumerate(sentences):
        if _TAKES_BACK.search(sentence) or _SAYS_NO.match(sentence):
            return "later words take the answer back"
        if not looked and _LOOKS_AGAIN.search(sentence):
            looked, later = True, "\n".join(sentences[index:])
            numbers = _NUMBER.findall(later)
            if not numbers or read(numbers[-1]) != value or _LEAVES_OPEN.search(later):
                return "later words take the answer back"
        if _JUST_OR.fullmatch(sentence) or (_ABOUT_IT.match(sentence) and NUMERAL.search(sentence) and _LEAVES_OPEN.search(sentence)):
            return "later words leave the answer open"
    return ""
