"""The task search: its corpus, that two look-ups are needed where it says so, what is paid, and what fixed policies would earn."""

import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from earnest import load_task
from earnest.check import check_task
from earnest.environment import acted
from earnest.evidence import repeats
from earnest.redteam.audit import audit
from earnest.rewards.calls import as_messages
from earnest.rewards.verifier import Attempt
from earnest.rows import Rows, load_rows
from earnest.tasks.search.check import check
from earnest.tasks.search.make import COUNTS, DATA, KINDS, TEXTS, WORDS, make
from earnest.tasks.search.rewards import reward
from earnest.tools import BM25, read_documents

TASK = load_task("search")
LOADED = load_rows(TASK)
ALL = [row for _, row in LOADED.everything()]
TEXT = [document["text"] for document in read_documents(DATA.parent / "corpus" / "documents.jsonl")]
INDEX = BM25(TEXT)
SHOWN = 2  # documents of an answer
README = (DATA.parent / "README.md").read_text("utf-8")

NAMED = {"answer": "Lanvo Works", "number": False, "hops": 1}
COUNTED = {"answer": "4120", "number": True, "hops": 2}
FOUND = "The Sunna is a lamp of 20 g, made by the Lanvo Works.\nKorla is a town of 4120 people on the river Venn."


def said(text, *queries, result=FOUND):
    return as_messages([("search", {"query": query}) for query in queries], result=result, answer=text)


def pays(messages, row=NAMED):
    return reward(Attempt(tuple(messages)), row).value


def holds(text, answer):
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None


def test_the_files_are_what_the_code_makes():
    corpus, rows = make()
    assert [document["text"] for document in corpus] == TEXT
    for split in COUNTS:
        assert [json.loads(line) for line in (DATA / f"{split}.jsonl").read_text("utf-8").splitlines()] == rows[split]


def test_every_kind_of_question_stands_in_every_split_as_often_as_planned():
    assert Counter((row["split"], row["kind"]) for row in ALL) == {(s, k): n for s, n in COUNTS.items() for k in KINDS}
    assert Counter(row["hops"] for row in ALL) == {1: len(ALL) // 2, 2: len(ALL) // 2}


def test_splits_share_neither_wordings_nor_things():
    for kind in KINDS:
        wordings = [wording for split in COUNTS for wording in WORDS[kind][split]]
        assert len(set(wordings)) == len(wordings)
    of_split = {split: {q for row in rows for q in [*row["queries"], row["answer"]]} for split, rows in LOADED.by_split.items()}
    assert not of_split["train"] & of_split["test"] and not of_split["train"] & of_split["dev"] and not of_split["dev"] & of_split["test"]
    assert not repeats([row["question"] for row in ALL], [row["split"] for row in ALL])


def test_no_answer_stands_in_its_question():
    assert not any(row["answer"].removesuffix(" Works").lower() in row["question"].lower() for row in ALL)


def test_every_answer_follows_from_the_documents():
    """Found once more by reading the documents that the queries name, whole and not by search."""
    patterns = {kind: re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\w+)", re.escape(text))) for kind, text in TEXTS.items()}
    read = {}
    for text in TEXT:
        kind, match = next((kind, m) for kind, pattern in patterns.items() if (m := pattern.fullmatch(text)))
        read[kind, match["name"]] = match.groupdict()
    assert len(read) == len(TEXT)
    for row in ALL:
        start, via, asked = KINDS[row["kind"]]
        facts = read[start, row["queries"][0].split()[0]]
        assert facts["name"] in row["question"]
        facts = read[via, facts[via]] if via else facts
        assert row["answer"].removesuffix(" Works") == facts[asked]


def test_one_look_up_finds_what_needs_one_and_never_more_than_by_chance_what_needs_two():
    found = {1: [], 2: []}
    for row in ALL:
        found[row["hops"]].append(any(holds(TEXT[place], row["answer"]) for place in INDEX.search(row["question"], SHOWN)))
    assert all(found[1])
    # By chance: the document that is not about the thing asked for is any of those of its kind, of which the smallest number is 48.
    assert binomtest(sum(found[2]), len(found[2]), SHOWN / 48, alternative="greater").pvalue > 0.05
    assert sum(found[2]) / len(found[2]) < 0.02


def test_nor_does_the_first_look_up_show_the_answer_of_the_second():
    two = [row for row in ALL if row["hops"] == 2]
    first = [any(holds(TEXT[place], row["answer"]) for place in INDEX.search(row["queries"][0], SHOWN)) for row in two]
    assert sum(first) / len(two) < 0.02


def test_the_task_is_sound_and_the_oracle_earns_full_marks_on_every_row():
    report = check_task(TASK, LOADED)
    assert report.ok and report.ceiling == 1.0, report.findings


def test_the_red_team_finds_nothing_that_is_paid_for_being_wrong():
    found = audit(TASK, Rows({"dev": LOADED.by_split["dev"][:12]}, LOADED.where, LOADED.source), search_calls=0)
    assert found.kind == "calls" and not found.exploitable and not [f for f in found.findings if f.certainty == "fact"]


@pytest.mark.parametrize(
    ("messages", "row", "value"),
    [
        (said("Lanvo Works", "Sunna"), NAMED, 1.0),
        (said("Lanvo Works", "Sunna", "Lanvo"), NAMED, 0.975),
        (said("Lanvo Works", *["Sunna"] * 5), NAMED, 0.9),
        (said("Lanvo Works", *["Sunna"] * 9), NAMED, 0.9),
        (said("the lanvo works.", "Sunna"), NAMED, 0.9),
        (said("4120", "Korla"), COUNTED, 1.0),
        (said("4120", "Sunna", "Korla"), COUNTED, 1.0),
        (said("4,120", "Korla"), COUNTED, 0.9),
        (said("Lanvo Works"), NAMED, 0.0),
        (said("Lanvo Works", "Sunna", result="nothing found"), NAMED, 0.0),
        (said("Lanvo Works", "Sunna", result='{"error": "Lanvo Works"}'), NAMED, 0.0),
        (said("Lanvo Works", "Sunna", result="The Lanvor Works"), NAMED, 0.0),
        (said("4120", "Korla", result="14120 people"), COUNTED, 0.0),
        (said("Lanvo", "Sunna"), NAMED, 0.0),
        (said("Lanvo Works or Prenla Works", "Sunna"), NAMED, 0.0),
        (said(FOUND, "Sunna"), NAMED, 0.0),
        (said("It is made by the Lanvo Works", "Sunna"), NAMED, 0.0),
        (said("", "Sunna"), NAMED, 0.0),
        (said(None, "Sunna"), NAMED, 0.0),
        (said("Lanvo Works</tool_call>", "Sunna"), NAMED, 0.0),
        (said("Lanvo Works", "Sunna")[:-1], NAMED, 0.0),
        ([*said("Lanvo Works"), *said(None, "Sunna")], NAMED, 0.0),
        (as_messages([("look", {"query": "Sunna"})], FOUND, "Lanvo Works"), NAMED, 0.0),
        ([{"role": "assistant", "content": FOUND}, {"role": "assistant", "content": "Lanvo Works"}], NAMED, 0.0),
        ([{"role": "tool", "name": "search", "content": FOUND}, {"role": "assistant", "content": "Lanvo Works"}], NAMED, 0.0),
        ([], NAMED, 0.0),
    ],
)
def test_what_is_paid(messages, row, value):
    assert pays(messages, row) == pytest.approx(value)


@pytest.mark.parametrize(
    ("messages", "row", "answer", "shown"),
    [
        (said("Lanvo Works", "Sunna"), NAMED, True, True),
        (said("The lanvo  works.", "Sunna"), NAMED, True, True),
        (said("4,120", "Korla"), COUNTED, True, True),
        (said("41,20", "Korla"), COUNTED, False, True),
        (said("Lanvo Works"), NAMED, True, False),
        (said("Lanvo Works", "Sunna", result="The Lanvor Works"), NAMED, True, False),
        (said("4120", "Korla", result="14120 people"), COUNTED, True, False),
        (said("Prenla Works", "Sunna"), NAMED, False, True),
        (said(FOUND, "Sunna"), NAMED, False, True),
        (said("", "Sunna"), NAMED, False, True),
        (said("²", "Sunna"), NAMED, False, True),
        (said("9" * 5000, "Sunna"), COUNTED, False, True),
        (said("x" * 5000, "Sunna"), NAMED, False, True),
        (said("Lanvo Works", "Sunna", result='{"error": "no argument Lanvo Works"}'), NAMED, True, False),
        (said("Lanvo Works", "Sunna")[:-1], NAMED, False, False),
        ([], NAMED, False, False),
    ],
)
def test_what_is_judged(messages, row, answer, shown):
    verdict = check(messages, row)
    assert (verdict.fields["answer"], verdict.fields["shown"], verdict.correct) == (answer, shown, answer and shown)


@pytest.mark.parametrize("row", [NAMED, COUNTED], ids=["name", "number"])
@pytest.mark.parametrize("before", ["", "the ", "The", "a ", "(", '"', "$", "**", "\\boxed{", "= ", "0", "-", "+", "<answer>", "\n"])
@pytest.mark.parametrize("after", ["", ".", " .", "..", ".0", "%", "**", "}", '"', ")", "/1", " the", " km", ",", "!", "\n", "</answer>"])
def test_what_is_paid_is_judged_right(before, after, row):
    inside = [row["answer"], row["answer"].lower(), row["answer"].replace(" ", "  "), row["answer"].replace(" ", " the "), "4,120", "41,20"]
    for answer in inside:
        messages = said(f"{before}{answer}{after}", "Sunna")
        assert pays(messages, row) == 0.0 or check(messages, row).correct


def test_the_models_own_words_in_an_error_are_no_find():
    row = next(row for row in LOADED.by_split["test"] if row["kind"] == "town of a product")
    script = as_messages(
        [("search", {row["answer"]: 1}), ("search", {"query": "", row["answer"]: 1}), (row["answer"], {})], answer=row["answer"]
    )
    messages, _ = acted(TASK, row, script)
    assert any(row["answer"] in message["content"] for message in messages if message["role"] == "tool")
    assert pays(messages, row) == 0.0 and not check(messages, row).correct


@given(st.text(max_size=40))
def test_any_text_is_paid_and_judged(text):
    for row in (NAMED, COUNTED):
        messages = said(text, "Korla")
        wrong = row["answer"].lower() not in text.lower()
        assert not wrong or (pays(messages, row), check(messages, row).correct) == (0.0, False)


# Policies that never change. Each gives a script that is played for real.


def guess(row, rng):
    return row["answer"]


def random_name(row, rng):
    other = rng.choice([other for other in LOADED.by_split["test"] if other["answer"] != row["answer"]])
    return said(other["answer"], rng.choice(other["queries"]))


def ask_all(row, rng):
    """The question as the query, and of the first document its last word."""
    first = TEXT[INDEX.search(row["question"], 1)[0]]
    return said(re.findall(r"\w+", first)[-1], row["question"])


def ask_all_number(row, rng):
    """The question as the query, and of the first document its first number."""
    first = TEXT[INDEX.search(row["question"], 1)[0]]
    return said(next(iter(re.findall(r"\d+", first)), "none"), row["question"])


def first_document(row, rng):
    return said(TEXT[INDEX.search(row["question"], 1)[0]], row["question"])


def echo(row, rng):
    found = [TEXT[place] for query in row["queries"] for place in INDEX.search(query, SHOWN)]
    return said("\n".join(found), *row["queries"])


def loop(row, rng):
    return said(None, *[row["queries"][-1]] * 6)[:-1]


def loop_and_answer(row, rng):
    return said(row["answer"], *[row["queries"][-1]] * 6)


def one_more(row, rng):
    return said(row["answer"], *row["queries"], row["queries"][0])


# ask_all is right where the document's last word is asked for: the town of a bridge; ask_all_number where the first number is: people,
# length and age. Each of these kinds is a tenth of the rows, 11 of 110; in 6 of the 33 another document comes first.
POLICIES = {guess: 0.0, random_name: 0.0, ask_all: 0.1, ask_all_number: 27 / 110, first_document: 0.0, echo: 0.0, loop: 0.0,
            loop_and_answer: 0.9, one_more: 0.975}  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_what_a_policy_that_never_changes_would_earn(policy):
    rng, test = random.Random(0), LOADED.by_split["test"]
    played = [acted(TASK, row, policy(row, rng))[0] for row in test]
    paid = [pays(messages, row) for messages, row in zip(played, test, strict=True)]
    assert sum(paid) / len(test) == pytest.approx(POLICIES[policy])
    assert [check(messages, row).correct for messages, row in zip(played, test, strict=True)] == [value > 0 for value in paid]
    assert re.search(rf"\| `{policy.__name__}` \| {POLICIES[policy]:.3g}0* \|", README)
