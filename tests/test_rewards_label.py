"""One label out of a set: the whole text, or by option what sentences assert."""

import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.errors import UserError
from earnest.rewards.label import label
from earnest.rewards.verifier import Attempt, as_reward

FUZZ = int(os.environ.get("EARNEST_FUZZ", "1"))
MAIL = ("spam", "ham", "other")
STRICT = label(MAIL)
PROSE = label(MAIL, prose=True)
SAFE = ("safe", "unsafe")
SPAM = ("spam", "not spam", "not_spam")


def paid(verifier, text, labels=MAIL):
    return [one for one in labels if verifier(text, label=one).value == 1.0]


@pytest.mark.parametrize("text", ["spam", "spam\n", "  spam\r\n", "\tspam "])
def test_the_whole_text_is_the_label(text):
    assert paid(STRICT, text) == ["spam"]


NO_LABEL = [
    "",
    " \n\t ",
    "spam or ham or other",
    "spam ham other",
    "spam, ham",
    "spam/ham",
    "spam\nham",
    "spam spam",
    "unspam",
    "spammy",
    "spa",
    "not spam",
    "definitely not spam",
    "ham … final: spam. final: ham",
    "I'm sorry, I can't help with that.",
    "spam" * 2_000,
    "sp\u200bam",
    "ѕpam",
    "spam\x00",
    "unknown",
    "None",
    "null",
    "0",
    '{"label": "spam"}',
    "label",
    "spam|ham",
    "*",
    ".*",
    "spam is not it",
    "both spam and ham",
]


@pytest.mark.parametrize("text", NO_LABEL)
@pytest.mark.parametrize("verifier", [STRICT, PROSE], ids=["strict", "prose"])
def test_no_work_a_shotgun_a_substring_and_a_negation_are_paid_for_no_label(verifier, text):
    assert paid(verifier, text) == []


@pytest.mark.parametrize(
    "text", ["Spam", "SPAM", "spam.", '"spam"', "**spam**", "Label: spam", "The label is spam", "(spam)", "`spam`", '["spam"]']
)
def test_strict_is_the_label_and_nothing_around_it(text):
    assert paid(STRICT, text) == []


def test_what_may_be_ignored_is_declared():
    assert paid(label(MAIL, ignore=["case"]), "SPAM") == ["spam"]
    assert paid(label(MAIL, ignore="case"), "Spam") == ["spam"]
    assert paid(label(MAIL, ignore=["punctuation"]), '**"spam".**') == ["spam"]
    assert paid(label(("plan change", "other"), ignore=["space"]), "plan \n change", ("plan change", "other")) == ["plan change"]
    assert paid(label(MAIL, ignore=["compatibility"]), "ｓｐａｍ") == ["spam"]
    assert paid(label(MAIL, ignore=["case", "punctuation", "space"]), "spam, ham") == []


@pytest.mark.parametrize(
    ("text", "labels", "said"),
    [
        ("unsafe", SAFE, "unsafe"),
        ("This is unsafe.", SAFE, "unsafe"),
        ("The label is safe.", SAFE, "safe"),
        ("not spam", SPAM, "not spam"),
        ("not_spam", SPAM, "not_spam"),
        ("It is not spam.", SPAM, "not spam"),
        ("The label is not_spam.", SPAM, "not_spam"),
        ("It is spam.", SPAM, "spam"),
        ("The urgency is high.", ("low", "medium", "high"), "high"),
        ("Category: plan_change", ("plan_change", "other"), "plan_change"),
        ("Category: plan  change", ("plan change", "other"), "plan change"),
        ("The language is C++.", ("C", "C++", "C#"), "C++"),
        ("The language is C#.", ("C", "C++", "C#"), "C#"),
        ("The answer is C.", ("C", "C++", "C#"), "C"),
        ("Je dirais: été", ("été", "hiver"), None),
        ("été", ("été", "hiver"), "été"),
        ("e\u0301te\u0301", ("été", "hiver"), "été"),
    ],
)
def test_a_label_inside_another_is_not_that_one(text, labels, said):
    assert paid(label(labels, prose=True), text, labels) == ([said] if said else [])


@pytest.mark.parametrize(
    "text",
    [
        "spam",
        "spam is the right label.",
        "**spam**",
        "Label: spam",
        "**Label:** spam",
        "The label is spam.",
        'The label is "spam".',
        "The label is `spam`",
        "This is spam.",
        "It's spam.",
        "This email is spam because it asks for money.",
        "The message is clearly spam, since it is not from a friend.",
        "I would classify this as spam.",
        "I'd label this email as spam.",
        "Classification: spam",
        "label = spam",
        "The sender is unknown. It asks for money. So the label is spam.",
        "spam\n\nIt asks for money.",
        "spam. It asks for money.",
        "The label is ham. Wait, I made a mistake. The label is spam.",
        "ham … final: spam",
        "It is not ham. It is spam.",
        "The label is spam, not ham.",
        "The label is spam because ham does not ask for money.",
        "Answer: spam\r\n",
        r"\boxed{spam}",
        r"\boxed{\text{spam}}",
        "The label is spam.\nThe label is spam.",
    ],
)
def test_sentences_that_assert_one_label_are_paid_for_it_alone(text):
    assert paid(PROSE, text) == ["spam"]
    assert paid(STRICT, text) == (["spam"] if text == "spam" else [])


@pytest.mark.parametrize(
    "text",
    [
        "The label is spam or ham.",
        "The label is either spam or ham.",
        "The label is spam, ham.",
        "The label is spam and ham.",
        "Label: spam ham other",
        "The label is spam. The label is ham.",
        "Final: ham. Final: spam.",
        "label: spam\nlabel: ham",
        "spam\nham",
        "The label is not spam.",
        "It isn't spam.",
        "This is definitely not spam.",
        "This is never spam.",
        "I would not call this spam.",
        "I don't think this is spam.",
        "It is wrong that this is spam.",
        "Is it spam?",
        "It may be spam.",
        "It could be spam.",
        "If it asks for money, it is spam.",
        "People say it is spam.",
        'A user wrote "it is spam".',
        '"This is spam"',
        "> This is spam",
        "```\nspam\n```",
        "The label is spammy.",
        "The label is spam-free.",
        "The label is non-spam.",
        "The label is spam/ham.",
        "The label is spam. That is wrong.",
        "The label is spam. Just kidding.",
        "The label is spam, but I disagree.",
        "The label is spam if ham is not.",
        "We get a lot of spam.",
        "Options: A. spam B. ham C. other.",
        "Choose: A. ham, B. spam.",
        "Labels. spam. ham. other.",
        "I like ham sandwiches and other food.",
        "The label is SPAM.",
        "The label is spam?",
        "neither spam nor ham",
        "The label is spam, or maybe ham.",
        r"A user might write \boxed{spam}, but I disagree.",
        r"\boxed{spam}\boxed{ham}",
        "anything but spam",
    ],
)
def test_what_asserts_no_one_label_is_paid_for_none(text):
    assert paid(PROSE, text) == []


def test_prose_can_ignore_case_and_needs_no_other():
    assert paid(label(MAIL, prose=True, ignore=["case"]), "The label is SPAM.") == ["spam"]
    with pytest.raises(UserError, match="in prose only 'case'"):
        label(MAIL, prose=True, ignore=["punctuation"])


@pytest.mark.parametrize("verifier", [STRICT, PROSE], ids=["strict", "prose"])
def test_several_golds_may_be_acceptable_but_not_all_there_are(verifier):
    assert [verifier(text, label=["spam", "other"]).value for text in MAIL] == [1.0, 0.0, 1.0]
    assert verifier("spam", label=("spam", "spam")).value == 1.0
    assert verifier("spam", label=list(MAIL)).status == "invalid_task"


@pytest.mark.parametrize("gold", ["", "Spam", "unknown", "spam ham", [], ["spam", "unknown"], ["spam", 1], 1, True, {"spam": 1}])
def test_a_row_whose_gold_is_no_label_is_invalid_whatever_is_answered(gold):
    assert {STRICT(text, label=gold).status for text in ("", "spam", str(gold))} == {"invalid_task"}


@pytest.mark.parametrize(
    ("labels", "ignore", "why"),
    [
        ((), (), "two or more"),
        (("spam",), (), "two or more"),
        ("spam", (), "two or more"),
        (("spam", ""), (), "two or more"),
        (("spam", " \n"), (), "two or more"),
        (("spam", 1), (), "two or more"),
        (("spam", "spam "), (), "are the same"),
        (("spam", "Spam"), ("case",), "are the same"),
        (("spam", "..."), ("punctuation",), "two or more"),
        (MAIL, ("accents",), "not known what to ignore"),
    ],
)
def test_labels_are_two_or_more_different_texts(labels, ignore, why):
    with pytest.raises(UserError, match=why):
        label(labels, ignore=ignore)


def test_the_reason_says_what_was_wrong():
    assert STRICT("ham", label="spam").reasons == ("another label",)
    assert STRICT("eggs", label="spam").reasons == ("not one of the labels",)
    assert STRICT("spam" + " " * 20_000, label="spam").reasons == ("too long",)
    assert PROSE("label: spam\nlabel: ham", label="spam").reasons == ("several options are asserted",)


def test_no_answer_scores_what_a_wrong_one_scores():  # S-RC-06: not answering is never better
    nothing = [
        Attempt(()),
        Attempt.of(""),
        Attempt(({"role": "tool", "content": "spam"},)),
        Attempt(({"role": "user", "content": "spam"},)),
    ]
    attempts = [list(attempt.messages) for attempt in nothing] + [[{"role": "assistant", "content": "ham"}]] * 2
    for verifier in (STRICT, PROSE):
        assert as_reward(verifier)(attempts, label=["spam"] * 6) == [0.0] * 6


@settings(max_examples=500 * FUZZ)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["spam", "ham", "not", "is", "the label", "or", ".", "\n", '"', "it", "\ud800"])).map(" ".join)
)
def test_no_text_raises_and_at_most_one_label_is_paid(text):
    for verifier in (STRICT, PROSE, label(MAIL, ignore=("case", "space", "punctuation", "articles", "compatibility"))):
        assert len(paid(verifier, text)) <= 1


@given(st.text(max_size=30))
def test_strict_is_plain_equality(text):
    assert paid(STRICT, text) == [one for one in MAIL if one == text.strip()]


def test_thousands_of_labels_are_checked_in_a_second_of_work():
    start = time.process_time()
    for index in range(2_000):
        STRICT("spam" if index % 2 else "no label at all", label="spam")
    assert time.process_time() - start < 1.0
