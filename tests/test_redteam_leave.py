"""What prompts were read to allow is said, so that people can correct it."""

import pytest
from test_redteam_vacant import target

from earnest.redteam.leave import leave_of


@pytest.mark.parametrize(
    ("gold", "prompt", "said"),
    [
        ("a, b", "Names separated by commas, in any order. Capitals do not matter.",
         ("the order is free", "an answer may name several", "capitals are free")),
        ("a, b", "List them from best to worst.", ("an order is asked for",)),
        ("200", "How many? Within 1% is fine.", ("numbers may be off, 200 by 2",)),
        ("1.2.3", "Which version? 1.2.3 or later.", ("any later version will do",)),
        ("yes", "Answer yes or no. You may explain your reasoning before the answer.", ("words may stand before the answer",)),
        ("yes", "Answer yes or no.", ()),
        ("7", "Count those of at least 3 words, or above 18.", ()),
    ],
)  # fmt: skip
def test_what_a_prompt_allows_is_said_in_words(gold, prompt, said):
    assert leave_of([target(gold, prompt=prompt)] * 3) == said


def test_what_only_some_prompts_allow_is_not_said():
    made = [target("a, b", prompt="Name them in any order."), target("a, b", prompt="Name them.")]
    assert leave_of(made) == ()
