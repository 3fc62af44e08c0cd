"""One letter, asserted."""

import os
import random
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.errors import UserError
from earnest.rewards.choice import choice
from earnest.rewards.verifier import Attempt

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
ABCD = choice(letters="ABCD")
TEN = choice()

ASSERTED = [  # text, the one letter it asserts, letters
    ("The answer is B because a dog barks.", "B", "ABCD"),  # S-RP-09
    ("I would pick C, a safe choice.", "C", "ABCD"),
    ("d", "D", "ABCD"),
    ("b. 4", "B", "ABCD"),
    ("The answer is B. Note that A is a common trap.", "B", "ABCD"),  # S-RP-10
    ("The answer is C because I did the integral.", "C", "ABCDEFGHIJ"),
    (r"\boxed{\text{E}}", "E", "ABCDEFGHIJ"),  # S-RP-11
    (r"\boxed{E: a long option text}", "E", "ABCDEFGHIJ"),
    (r"\boxed{C} ... finally \boxed{E}", "E", "ABCDEFGHIJ"),
    (r"First \boxed{C}. Wait, let me recheck. Finally \boxed{E}.", "E", "ABCDEFGHIJ"),
    (r"so \boxed{\textbf{(E)}}", "E", "ABCDEFGHIJ"),
    (r"The answer is $\boxed{\mathrm{E}}$.", "E", "ABCDEFGHIJ"),
    (r"\[ \boxed{E} \]", "E", "ABCDEFGHIJ"),
    (r"Therefore we get \boxed{E}", "E", "ABCDEFGHIJ"),
    ("The answer is (C)", "C", "ABCDEFGHIJ"),
    ("The answer is (C).", "C", "ABCDEFGHIJ"),
    ("C", "C", "ABCDEFGHIJ"),
    (" \r\nC\r\n", "C", "ABCDEFGHIJ"),
    ("C.", "C", "ABCDEFGHIJ"),
    ("(C)", "C", "ABCDEFGHIJ"),
    ("[C]", "C", "ABCDEFGHIJ"),
    ("C)", "C", "ABCDEFGHIJ"),
    ("**C**", "C", "ABCDEFGHIJ"),
    ("__C__", "C", "ABCDEFGHIJ"),
    ("`C`", "C", "ABCDEFGHIJ"),
    ('The answer is "C".', "C", "ABCDEFGHIJ"),
    ("The answer is ‘C’.", "C", "ABCDEFGHIJ"),
    ("Answer: C.", "C", "ABCDEFGHIJ"),
    ("**Answer:** C", "C", "ABCDEFGHIJ"),
    ("**Answer: C**", "C", "ABCDEFGHIJ"),
    ("### Final answer\nC", "C", "ABCDEFGHIJ"),
    ("The answer is:\n\nC", "C", "ABCDEFGHIJ"),
    ("Final Answer: (C) Paris", "C", "ABCDEFGHIJ"),
    ("answer: c", "C", "ABCDEFGHIJ"),
    ("The correct answer is option C.", "C", "ABCDEFGHIJ"),
    ("The best choice is C, since it is cheap.", "C", "ABCDEFGHIJ"),
    ("The correct option is: C", "C", "ABCDEFGHIJ"),
    ("My final answer would be C", "C", "ABCDEFGHIJ"),
    ("So, the answer must be C!", "C", "ABCDEFGHIJ"),
    ("The answer to this question is C", "C", "ABCDEFGHIJ"),
    ("I choose C", "C", "ABCDEFGHIJ"),
    ("I'd go with C because it is shortest", "C", "ABCDEFGHIJ"),
    ("I think the answer is C.", "C", "ABCDEFGHIJ"),
    ("I think it's C.", "C", "ABCDEFGHIJ"),
    ("It is C.", "C", "ABCDEFGHIJ"),
    ("Option C is correct.", "C", "ABCDEFGHIJ"),
    ("C is the correct answer, as shown.", "C", "ABCDEFGHIJ"),
    ("(C) is right.", "C", "ABCDEFGHIJ"),
    ("The answer is A", "A", "ABCD"),
    ("The answer is A because a dog barks.", "A", "ABCD"),
    ("the answer is a", "A", "ABCD"),
    ("A", "A", "ABCD"),
    ("The answer is I.", "I", "ABCDEFGHIJ"),
    ("I", "I", "ABCDEFGHIJ"),
    ("The answer is B, I think.", "B", "ABCDEFGHIJ"),
    ("The answer is B, which I derived.", "B", "ABCDEFGHIJ"),
    ("The answer is B. A dog barks, and I agree.", "B", "ABCDEFGHIJ"),
    ("Let us see. 2 + 2 = 4, so the answer is B.", "B", "ABCD"),
    ("Since 3 is not even, the answer is B.", "B", "ABCD"),
    ("As an AI model, I would pick B.", "B", "ABCD"),
    ("Since A is wrong and C too, the answer is B.", "B", "ABCD"),
    ("A is wrong. C is too small. The answer is B.", "B", "ABCD"),
    ("A is incorrect, so the answer is C.", "C", "ABCD"),
    ("The answer is not A. The answer is C.", "C", "ABCD"),
    ("The answer is C, not A.", "C", "ABCD"),
    ("The answer is C rather than A.", "C", "ABCD"),
    ("The answer is C because A and B are false.", "C", "ABCD"),
    ("A. Paris\nB. London\nC. Rome\n\nThe answer is B.", "B", "ABCD"),
    ("A) 3\nB) 4\nAnswer: B", "B", "ABCD"),
    ("B\nBecause it is larger.", "B", "ABCD"),
    ("B. It is larger than the others.", "B", "ABCD"),
    ("The answer is B. Wait, I made a mistake. The answer is C.", "C", "ABCD"),
    ("The answer is B. Actually, it is C.", "C", "ABCD"),
    ("B. No, it is C.", "C", "ABCD"),
    ("At first: the answer is B. The final answer is C.", "C", "ABCD"),
    ("The answer is C. I hope this helps!", "C", "ABCD"),
    ("The answer is C. The answer is C.", "C", "ABCD"),
    ("The answer is C.\n\nC", "C", "ABCD"),
    ("I believe B is the answer.", "B", "ABCD"),
    ("I'm going with B.", "B", "ABCD"),
    ("Answer - B", "B", "ABCD"),
    ("Option B: 4", "B", "ABCD"),
    ("Selected option: B", "B", "ABCD"),
    ("Definitely B.", "B", "ABCD"),
    ("Looking at the options, B is the best answer.", "B", "ABCD"),
    ("Among these, only B is correct.", "B", "ABCD"),
    ("It can't be A, C, or D, so it must be B.", "B", "ABCD"),
    ("Initially I thought C, but the answer is B.", "B", "ABCD"),
    ("Is it A? No. Is it B? Yes. The answer is B.", "B", "ABCD"),
    ("The answer is B. If you have questions, ask.", "B", "ABCD"),
    ("The answer is B. I hope it is not wrong.", "B", "ABCD"),
    ("It's not hard. The answer is C.\n", "C", "ABCD"),
    ("A. Paris\nB. London\nC. Rome\n\nThe correct answer is:\n\nB. London", "B", "ABCD"),
    ("Choose B", "B", "ABCD"),
    ("Correct: B", "B", "ABCD"),
    ("Final answer B", "B", "ABCD"),
    ("This matches option B", "B", "ABCD"),
    ("Final answer: (B)", "B", "ABCD"),
    ("**Final answer**\n\nB", "B", "ABCD"),
    ("The answer is:\n**B**", "B", "ABCD"),
    ("Pick B.", "B", "ABCD"),
    ("Select option B", "B", "ABCD"),
    ("This corresponds to option B.", "B", "ABCD"),
    ("The answer is B. I made an error. The answer is C.", "C", "ABCD"),
    ("The final choice is:\n\n(C) Rome", "C", "ABCD"),
    ("Which corresponds to C.", "C", "ABCD"),
]

REFUSED = [
    "Do not choose B",
    "Choose B or C",
    "Final answer B or C",
    "This does not match option B",
    "The wrong answer is:\n\nB. London",
    "The answer is not:\nB",
    "Correct: B, C",
    "Incorrect: B",
    "Do not pick:\nB. London",
    "Choose B?",
    "A. Paris\nB. London\n",
    "The answer is:\n\nA. Paris\nB. London\nC. Rome",
    "Some choose B",
    "Never pick B",
    "It isn't:\nB. London",
    "",
    " \n\t ",
    "I'm sorry, I can't help with that.",
    "A dog barks.",
    "I did the integral.",
    "A B C D",
    "ABCD",
    "A, B, C, D",
    "A. B. C. D.",
    "A) Paris B) London",
    "A. Paris\nB. London\nC. Rome\nD. Oslo",
    "(A) (B) (C) (D)",
    "A/B",
    "A or B",
    "The answer is A or B.",
    "The answer is A and C.",
    "The answer is A, B.",
    "the answer is a, b or c",
    "The answer is either A or B.",
    "Answer: A B C D",
    "Answer: (A) (B)",
    "The answer is B, as well as C.",
    "The answer is B, but it could be C; the answer is C.",
    "Answer: B\nAnswer: C",
    "Answer: B\nC",
    "Final answer: B. Final answer: C.",
    "The answer is B. The answer is C.",
    r"\boxed{B}\boxed{C}",
    r"\boxed{C}\boxed{B}",
    r"\boxed{B, C}",
    r"\boxed{B} or \boxed{C}",
    r"\boxed{}",
    r"\boxed{The answer}",
    "The answer is not B.",
    "The answer isn't B.",
    "The answer is definitely not B.",
    "It's not B.",
    "Not B.",
    "I don't think the answer is B.",
    "I doubt that the answer is B.",
    "It is false that the answer is B.",
    "The answer is never B.",
    "I would not pick B.",
    "I would never choose B",
    "B is wrong.",
    "B is not correct.",
    "B is incorrect",
    "Neither A nor B is correct.",
    r"It is not \boxed{B}.",
    r"A user might write \boxed{B}, but I disagree.",
    r"Some would write \boxed{B}.",
    "The answer is B. That is wrong.",
    "The answer is B, which is wrong.",
    "The answer is B, but I disagree.",
    "The answer is B. Just kidding.",
    "The answer is B. B is wrong.",
    "The answer is B or not.",
    "Is the answer B?",
    "The answer is B?",
    "Could the answer be B",
    "The answer might be B.",
    "The answer could be B.",
    "If x is 3, the answer is B.",
    "People say the answer is B.",
    "Some people say that the answer is B.",
    "The user claims: the answer is B",
    'The text reads "The answer is B".',
    '"The answer is B"',
    "He wrote 'The answer is B.'",
    "“The answer is B”",
    "`The answer is B`",
    "> The answer is B",
    "```\nThe answer is B\n```",
    '"The answer is B',
    "The answer is B-flat.",
    "The answer is Boron.",
    "The answer is B2.",
    "B2B",
    "vitamin B",
    "The answer is Β.",  # a Greek capital beta
    "The answer is Ｂ.",  # full width
    "The answer is B\u200b.",
    "The answer is ı.",  # a Turkish i without dot
    "İ",
    "ı) 4",
    r"\boxed{ı}",
    "The answer is C if you ignore the rest.",
    "The answer is C, unless it is wrong.",
    "The answer is C. Not!",
    "The answer is C - not.",
    "Answer: (C) is wrong.",
    "Answer: not C",
    "The answer is anything but C.",
    "The answer cannot be C.",
    "The answer is far from C.",
    "C? No.",
    "Everything except C",
    "Maybe C.",
    "The answer is C, maybe.\nThe answer is D, maybe.",
    "The wrong answer is B.",
    "The least likely answer is B",
    "The second best answer is B",
    "The trap answer is B.",
    "The answer to the previous question is B.",
    "Nobody would answer B.",
    "Don't choose B.",
    "B must be wrong.",
    "The answer is the opposite of B.",
    "One could argue the answer is B.",
    "The answer is B. Alternatively C.",
    "The answer is B. Or C.",
    "The answer is B (or C).",
    "The answer is B/C.",
    "The answer is B + C",
    "Answers: B, C",
    "Answer: BC",
    "Answer: B; C",
    "Answer: B. C",
    "Answer: B. C. D.",
    "I pick B. I pick C.",
    "none of the above",
    "All of the above",
    "The answer is dog B.",
    "<answer>B</answer>",
]


@pytest.mark.parametrize(("text", "letter", "letters"), ASSERTED)
def test_a_text_that_asserts_one_letter_is_right_for_it_and_wrong_for_every_other(text, letter, letters):
    verifier = choice(letters=letters)
    assert {gold: verifier(text, answer=gold).value for gold in letters} == {gold: float(gold == letter) for gold in letters}


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("letters", ["ABCD", "ABCDEFGHIJ"])
def test_a_text_that_asserts_no_one_letter_is_right_for_none(text, letters):
    verifier = choice(letters=letters)
    assert {verifier(text, answer=gold).value for gold in letters} == {0.0}


def test_the_letters_that_exist_are_the_ones_that_count():
    assert ABCD("The answer is E.", answer="B").value == TEN("The answer is K.", answer="B").value == 0.0
    assert TEN("The answer is E.", answer="E").value == 1.0
    assert choice(letters="XYZ")("Answer: Y", answer="Y").value == 1.0


def test_several_letters_may_be_acceptable():
    assert [ABCD(f"The answer is {letter}.", answer=["B", "C"]).value for letter in "ABCD"] == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("gold", ["", "E", "AB", "(A)", 1, [], ["A", "x"], ["A", 1], list("ABCD"), {"A": 1}, 0, False])
def test_a_row_without_a_usable_letter_is_invalid_whatever_is_answered(gold):
    assert {ABCD(text, answer=gold).status for text in ("", "A", "The answer is A.")} == {"invalid_task"}


def test_a_row_without_the_column_is_invalid():
    assert ABCD("A").status == ABCD("A", answer=None).status == "invalid_task"
    assert choice("key", letters="ABCD")("A", key="a").value == 1.0


@pytest.mark.parametrize("letters", ["", "A", "AA", "ab", "A1", "ÄB"])
def test_letters_are_two_or_more_different_capitals(letters):
    with pytest.raises(UserError, match="letters="):
        choice(letters=letters)


def test_the_reason_says_what_was_wrong():
    assert ABCD("B", answer="A").reasons == ("another option",)
    assert ABCD("Answer: A\nAnswer: B", answer="A").reasons == ("several options are asserted",)
    assert ABCD("who knows", answer="A").reasons == ("no option is asserted",)
    assert ABCD("A" + " " * 20_000, answer="A").reasons == ("too long",)
    assert ABCD("A", answer="A").evidence == {"answer": "A"}


def test_no_answer_scores_what_a_wrong_one_scores():  # S-RC-06: not answering is never better
    nothing = [
        Attempt(()),
        Attempt.of(""),
        Attempt(({"role": "tool", "content": "A"},)),
        Attempt(({"role": "assistant", "content": None},)),
    ]
    assert {ABCD(attempt, answer="A").value for attempt in nothing} == {ABCD("B", answer="A").value} == {0.0}


WORDS = [
    *"ABdIa,.?{}'>-:…`\"\n\x00\ud800",
    *("(C)", "or", "and", "wait", "final", "because", "is", "not", "wrong", "correct", "```", "**", "it", "this", "the"),
    "the answer is",
    "answer:",
    "i think",
    r"\boxed{B}",
]


@settings(max_examples=500 * FUZZ)
@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join) | st.text(max_size=80))
def test_no_text_raises_and_at_most_one_letter_is_paid(text):
    paid = [gold for gold in "ABCD" if ABCD(text, answer=gold).value == 1.0]
    assert len(paid) <= 1


def test_mutated_answers_are_scored():
    dice = random.Random(0)
    for _ in range(1_000 * FUZZ):
        text = list(dice.choice(ASSERTED)[0])
        for _ in range(dice.randint(1, 4)):
            text.insert(dice.randint(0, len(text)), dice.choice(string.printable))
        assert TEN("".join(text), answer="A").status == "scored"


PIECES = [
    "the answer is ",
    "answer: ",
    "the final ",
    "the answer for ",
    "i would ",
    "this is ",
    "let me re",
    "wait ",
    "not ",
    "is ",
    "so, ",
]
PIECES += [r"\boxed{", r"\text{", *"AaIx '\"`*_({,…$>\\\n", "A ", "A. ", "a-", "B'", "> ", "- ", "# ", "the answer is B. ", "'a 'b' "]


@pytest.mark.parametrize("piece", PIECES)
def test_repetition_takes_little_time(piece):
    text = (piece * 20_000)[:20_000]
    start = time.process_time()
    assert TEN(text, answer="B").value in (0.0, 1.0)
    assert time.process_time() - start < 2.0
