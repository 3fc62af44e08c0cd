import json

import pytest

from earnest import Task
from earnest.redteam.audit import audit
from earnest.rows import load_rows

LABELS = ["bill", "order", "other"]
TEXTS = [
    "the sum is wrong",
    "where is my parcel",
    "I like your shop",
    "charged twice",
    "it never came",
    "hello there",
    "a refund, please",
    "late again",
]
EVEN = [{"id": n, "text": text, "label": LABELS[n % 3]} for n, text in enumerate(TEXTS)]
SKEWED = [{"id": n, "text": text, "label": "order" if n == 3 else "bill"} for n, text in enumerate(TEXTS)]


@pytest.fixture(autouse=True)
def every_row(monkeypatch):
    """However busy the machine is: fewer rows are attacked where asking is slow."""
    monkeypatch.setattr("earnest.redteam.audit.AFFORDABLE", ((16, float("inf")),))


def exact(completions, label, **_):
    return [float(c[-1]["content"] == gold) for c, gold in zip(completions, label, strict=True)]


def audited(rows=EVEN, reward=exact, **options):
    task = {
        "prompt": lambda row: [{"role": "user", "content": f"bill, order or other? {row['text']}"}],
        "check": lambda text, row: text == row["label"],
        "oracle": lambda row: row["label"],
        "name": "desk",
    } | options
    made = Task(rows=rows, rewards=[reward], **task)
    return audit(made, load_rows(made), search_calls=0, catalog=())


def board(**options):
    return {played.name: played for played in audited(**options).board}


def test_the_scoreboard_of_an_honest_reward():
    played = board()
    assert (played["oracle"].mean, played["oracle"].share, played["oracle"].accepted) == (1.0, 1.0, 1.0)
    zero = ("honest wrong", "empty", "echo", "refusal", "claims", "every label")
    assert {name: played[name].mean for name in zero} == dict.fromkeys(zero, 0.0)
    assert played["most common answer"].mean == 3 / 8  # bill and order are three rows each, other two
    assert (played["longest"].mean, played["shortest"].mean) == (3 / 8, 3 / 8)  # "order", "bill"
    assert played["random"].mean < 0.75
    assert (played["always hand off"].rows, played["no calls"].rows) == (0, 0)


def test_the_scoreboard_is_the_same_each_time():
    assert audited().board[-1] == audited().board[-1]


def test_policies_of_hand_off_need_rows_that_need_a_person():
    rows = [{"id": n, "text": text, "label": "human" if n < 2 else LABELS[n % 2]} for n, text in enumerate(TEXTS)]
    played = board(rows=rows, needs_human=lambda row: row["label"] == "human")
    assert (played["always hand off"].mean, played["never hand off"].mean) == (2 / 8, 6 / 8)
    assert played["never hand off"].cheat is False and played["always hand off"].cheat is True


def test_a_label_that_calls_a_person_is_found_without_being_told():
    rows = [{"id": n, "text": text, "label": "escalate" if n < 2 else LABELS[n % 2]} for n, text in enumerate(TEXTS)]

    def easy(completions, label, **_):
        return [
            1.0 if c[-1]["content"] == gold else 0.7 * (c[-1]["content"] == "escalate") for c, gold in zip(completions, label, strict=True)
        ]

    found = {f.attack: f.certainty for f in audited(rows=rows, reward=easy).findings}
    assert found["policy.always_hand_off"] == "fact"
    assert "policy.always_hand_off" not in {f.attack for f in audited(rows=rows).findings}


def test_one_answer_paid_where_the_check_refuses_it_is_found():
    def fond_of_bills(completions, label, **_):
        return [float(c[-1]["content"] in (gold, "bill")) for c, gold in zip(completions, label, strict=True)]

    found = {f.attack: f for f in audited(reward=fond_of_bills).findings}
    assert found["policy.constant"].certainty == "fact"
    assert found["policy.constant"].hits == 5  # all rows but the three that are about a bill
    assert "policy.constant" not in {f.attack for f in audited().findings}


def test_skewed_labels_are_a_lead():
    leads = [(f.attack, f.certainty, f.detail) for f in audited(rows=SKEWED).findings]
    assert leads == [("policy.skewed_labels", "lead", "it is the right answer of 88% of all rows")]
    assert not audited().findings


def test_a_constant_json_answer_with_a_few_right_fields_is_no_finding():
    rows = [{"id": n, "text": text, "label": LABELS[n % 3], "urgent": n > 5} for n, text in enumerate(TEXTS)]

    def answer(row):
        return json.dumps({"label": row["label"], "urgent": row["urgent"]})

    def by_field(completions, label, urgent, **_):
        marks = []
        for completion, *gold in zip(completions, label, urgent, strict=True):
            try:
                said = json.loads(completion[-1]["content"])
                marks.append(0.5 * (said["label"] == gold[0]) + 0.5 * (said["urgent"] is gold[1]))
            except (ValueError, TypeError, KeyError):
                marks.append(0.0)
        return marks

    result = audited(rows=rows, reward=by_field, oracle=answer, check=lambda text, row: text == answer(row))
    assert not [f for f in result.findings if f.attack.startswith("policy.")]
