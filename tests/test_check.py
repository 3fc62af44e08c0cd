"""Each rule of `earnest check` fires on the smallest defective task and is silent on a healthy one."""

import io
import itertools
import json
import random
import subprocess
import sys
import time

import pytest
from rich.console import Console

from earnest import Task, UserError, Verdict
from earnest.check import check_task, print_report, usable_rows
from earnest.evidence import repeats
from earnest.rewards.compose import compose
from earnest.rewards.handoff import Note, hand_off
from earnest.rewards.text import text_answer
from earnest.rewards.verifier import Verifier, as_reward, right, wrong
from earnest.rows import load_rows

QUESTIONS = {
    "train": ["Which planet is known as the red one?", "How many legs does a spider have?", "What gas do plants breathe in?"],
    "dev": ["Who wrote the play about Hamlet, prince of Denmark?"],
    "test": ["At what temperature does water boil at sea level?"],
}
ROWS = [
    {"id": f"{split}{n}", "split": split, "question": text, "gold": f"answer {split} {n}"}
    for split, texts in QUESTIONS.items()
    for n, text in enumerate(texts)
]


def texts_of(completions):
    return [c[0]["content"] for c in completions]


def exact(completions, gold, **kwargs):
    return [float(text == g) for text, g in zip(texts_of(completions), gold, strict=True)]


def healthy(**changes):
    parts = {
        "rows": ROWS,
        "prompt": lambda row: [{"role": "user", "content": row["question"]}],
        "rewards": [exact],
        "check": lambda text, row: text == row["gold"],
        "oracle": lambda row: row["gold"],
        "name": "quiz",
    }
    return Task(**(parts | changes))


def report_of(**changes):
    task = healthy(**changes)
    return check_task(task, load_rows(task))


def only(report, rule, level="error"):
    """The findings of a rule; nothing else may have been found."""
    assert {f.rule for f in report.findings} == {rule}, report.findings
    assert report.ok == (level == "warning")
    assert all(f.level == level for f in report.findings)
    return report.findings


def changed(position, **columns):
    return [row | columns if i == position else row for i, row in enumerate(ROWS)]


def test_a_healthy_task_has_no_findings_and_says_what_held():
    report = report_of()
    assert report.findings == () and report.ok
    assert len(report.passed) == 12
    assert report.counts == {"train": 3, "dev": 1, "test": 1}
    assert report.ceiling == 1.0


def test_ceiling_is_weighted_and_the_lowest_over_rows():
    def partial(completions, gold, **kwargs):
        return [0.5 * (text == g) for text, g in zip(texts_of(completions), gold, strict=True)]

    assert report_of(rewards=[exact, partial], reward_weights=[2.0, 1.0]).ceiling == 2.5


def test_an_empty_train_is_an_error_and_an_empty_dev_or_test_a_warning():
    found = only(report_of(rows=[r for r in ROWS if r["split"] == "train"]), "splits", "warning")
    assert ["'dev'" in f.message for f in found] == [True, False]
    (found,) = only(report_of(rows=[r for r in ROWS if r["split"] != "train"]), "splits")
    assert "'train' has no rows" in found.message


def test_a_missing_column_names_reward_column_and_the_columns_there_are():
    def needs_label(completions, label):
        return [0.0 for _ in completions]

    (found,) = only(report_of(rewards=[exact, needs_label]), "columns")
    assert "'needs_label'" in found.message and "'label'" in found.message and "question" in found.message and "5 of 5" in found.message
    rows = [{k: v for k, v in row.items() if k != "gold" or i != 1} for i, row in enumerate(ROWS)]
    found = [f for f in report_of(rows=rows).findings if f.rule == "columns"]
    assert found[0].places == ("row 2 (row train1)",)


def test_a_shared_id_is_found_across_splits_with_both_places():
    (found,) = only(report_of(rows=changed(4, id="train0")), "ids")
    assert found.places == ("row 1 (row train0)", "row 5 (row train0)")


@pytest.mark.parametrize("identity", [None, "", 1.5, ["a"], {"a": 1}])
def test_an_id_must_be_text_or_a_whole_number(identity):
    only(report_of(rows=changed(0, id=identity)), "ids")


def test_the_number_and_the_text_of_an_id_are_the_same_id():
    rows = [row | {"id": 1 if i == 0 else "1" if i == 1 else row["id"]} for i, row in enumerate(ROWS)]
    only(report_of(rows=rows), "ids")


def test_an_exact_copy_in_another_split_is_a_leak_with_both_places():
    (found,) = only(report_of(rows=changed(4, question="how many  legs does a SPIDER have?")), "leaks")
    assert "1 row of one split also in another, 1 word for word" in found.message
    assert found.places == ("row 5 (row test0) repeats row 2 (row train1)",)


def test_a_near_copy_in_another_split_is_a_leak():
    (found,) = only(report_of(rows=changed(3, question="How many legs does any spider have?")), "leaks")
    assert "0 word for word and 1 nearly" in found.message


def test_a_copy_within_a_split_is_no_leak():
    assert report_of(rows=changed(1, question=ROWS[0]["question"])).ok


def test_short_equal_questions_are_a_leak_too():
    assert repeats(["ab", "cd", "ab"], ["train", "train", "dev"]) == {2: 0}


def test_only_the_last_user_message_is_compared():
    def prompt(row):
        turns = [{"role": "user", "content": "A long opening that every conversation of this task has in common."}]
        return [*turns, {"role": "assistant", "content": "Go on."}, {"role": "user", "content": row["question"]}]

    assert report_of(prompt=prompt).ok


def test_near_copies_are_the_pairs_of_jaccard_at_least_six_tenths():
    rng = random.Random(0)
    base = "the quick brown fox jumps over the lazy dog"
    texts = [base[: rng.randint(2, 43)][rng.randint(0, 9) :].strip() or "x" for _ in range(40)]
    splits = ["train"] * 25 + ["dev"] * 10 + ["test"] * 5
    pieces = [{text[i : i + 4] for i in range(len(text) - 3)} for text in texts]
    expected = set()
    for a, b in itertools.product(range(40), range(40)):
        union = pieces[a] | pieces[b]
        near = bool(union) and len(pieces[a] & pieces[b]) >= 0.6 * len(union)
        if b < a and splits[a] != splits[b] and (near or texts[a] == texts[b]):
            expected.add(a)
    found = repeats(texts, splits)
    assert set(found) == expected and 0 < len(expected) < 15
    assert all(splits[a] != splits[b] for a, b in found.items())


def test_a_template_that_every_message_shares_is_no_likeness():
    rng = random.Random(1)
    template = "Read the complaint below and answer with one label out of cards, loans, accounts and nothing else. Complaint: "
    texts = [template + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=40)) for _ in range(60)]
    assert repeats(texts, ["train"] * 40 + ["test"] * 20) == {}


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (lambda row: None, "NoneType"),
        (lambda row: [], "no messages"),
        (lambda row: "text", "str"),
        (lambda row: [{"role": "user", "content": None}], "without content"),
        (lambda row: [{"role": "user", "content": "  "}], "says nothing"),
        (lambda row: [{"role": "user", "content": 3}], "int"),
        (lambda row: [{"content": "hi"}], "without a role"),
        (lambda row: ["hi"], "without a role"),
        (lambda row: row["absent"], "KeyError ('absent')"),
    ],
)
def test_a_prompt_that_cannot_be_asked_is_found_with_its_place(prompt, words):
    def broken_once(row):
        return prompt(row) if row["id"] == "train1" else [{"role": "user", "content": row["question"]}]

    (found,) = only(report_of(prompt=broken_once), "prompts")
    assert words in found.message and found.places == ("row 2 (row train1)",)


def test_a_turn_that_only_calls_tools_needs_no_content():
    def prompt(row):
        call = {"role": "assistant", "content": None, "tool_calls": [{"name": "look"}]}
        return [{"role": "user", "content": row["question"]}, call, {"role": "tool", "content": "found"}]

    assert report_of(prompt=prompt).ok


def test_a_task_without_an_oracle_is_a_warning_and_has_no_ceiling():
    report = report_of(oracle=None)
    (found,) = only(report, "gold", "warning")
    assert "could not be verified" in found.message and report.ceiling is None


def numeric(tmp_path):
    golds = [{"gold": ""}, {"gold": None}, {}, {"gold": "n/a"}, {"gold": "12"}, {"gold": "7", "question": None}]
    lines = [
        {"question": q, **gold} for q, gold in zip(["a cat", "my dog", "one cow", "two pigs", "six hens", "no ox"], golds, strict=True)
    ]
    lines = [{**row, "question": gold.get("question", row["question"])} for row, gold in zip(lines, golds, strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def number(completions, gold, **kwargs):
        return [float(text == g) for text, g in zip(texts_of(completions), gold, strict=True)]

    return healthy(
        rows=tmp_path / "rows.jsonl", rewards=[number], check=lambda text, row: text.isdigit() and float(text) == float(row["gold"])
    )


def test_unusable_gold_is_listed_with_file_and_line(tmp_path):  # case S-DL-03
    task = numeric(tmp_path)
    report = check_task(task, load_rows(task))
    assert not report.ok
    errors = [f for f in report.findings if f.level == "error"]
    lines = sorted({place.split("rows.jsonl:")[1] for f in errors for place in f.places})
    assert lines == ["1 (row train-1)", "2 (row train-2)", "3 (row train-3)", "4 (row train-4)", "6 (row train-6)"]
    assert {f.rule for f in errors} == {"columns", "gold", "check", "prompts"}


def test_usable_rows_keeps_the_sound_ones_and_says_why_the_others_went(tmp_path):
    task = numeric(tmp_path)
    kept, dropped = usable_rows(task, load_rows(task))
    assert [row["gold"] for row in kept.split("train")] == ["12"]
    assert [place for place, _ in kept.everything()] == [f"{tmp_path / 'rows.jsonl'}:5"]
    assert [reason.split(" (")[0] for _, reason in dropped] == [
        "the oracle returned an empty answer",
        "the oracle returned NoneType, neither text nor messages",
        "the oracle raised KeyError",
        "the check calls the oracle's answer wrong",
        "prompt(row) returned a user message without content",
    ]


def test_usable_rows_of_a_healthy_task_are_all_rows():
    task = healthy()
    rows = load_rows(task)
    kept, dropped = usable_rows(task, rows)
    assert kept == rows and dropped == []


def test_usable_rows_refuses_to_leave_none():
    task = healthy(check=lambda text, row: False)
    with pytest.raises(UserError, match="No row of task 'quiz' can be used; the first, row 1"):
        usable_rows(task, load_rows(task))


def test_a_reward_that_raises_is_one_finding_and_the_other_rules_go_on():
    def broken(completions, **kwargs):
        return [1 / len(text) for text in texts_of(completions)]

    report = report_of(rewards=[exact, broken], rows=changed(4, id="train0"))
    assert {f.rule for f in report.findings} == {"rewards", "ids"}
    (found,) = [f for f in report.findings if f.rule == "rewards"]
    assert "'broken' raised ZeroDivisionError" in found.message and "row 'train0'" in found.message
    assert report.ceiling is None
    assert not any(words in sentence for sentence in report.passed for words in ("full marks", "earns less", "say the same", "pays"))


def test_a_reward_of_the_wrong_length_is_a_finding():
    (found,) = only(report_of(rewards=[lambda completions, **kwargs: [1.0]]), "rewards")
    assert "expected 5, got 1" in found.message


def test_two_rewards_of_one_name_are_a_finding():
    (found,) = only(report_of(rewards=[exact, exact]), "rewards")
    assert "'exact'" in found.message


def test_an_oracle_short_of_full_marks_is_found_where_it_falls_short():
    def stingy(completions, gold, id, **kwargs):
        return [(text == g) * (0.5 if i == "dev0" else 1.0) for text, g, i in zip(texts_of(completions), gold, id, strict=True)]

    report = report_of(rewards=[stingy])
    (found,) = only(report, "full marks")
    assert "'stingy'" in found.message and found.places == ("row 4 (row dev0)",) and report.ceiling == 0.5


def test_full_marks_of_a_penalty_are_the_fewest_points():
    def length(completions, **kwargs):
        return [0.001 * (len(text) > 40) for text in texts_of(completions)]

    report = report_of(rewards=[exact, length], reward_weights=[1, -1])
    assert report.ok and not report.findings  # and a penalty pays an empty answer nothing


def test_an_oracle_that_earns_nothing_is_found():
    rules = {f.rule for f in report_of(rewards=[lambda completions, **kwargs: [0.0] * len(completions)]).findings}
    assert rules == {"full marks", "empty answer"}


def test_a_lone_reward_without_a_verdict_on_the_oracle_is_an_error():
    def silent(completions, gold, id, **kwargs):
        return [None if i == "test0" else float(t == g) for t, g, i in zip(texts_of(completions), gold, id, strict=True)]

    report = report_of(rewards=[silent])
    assert not report.ok and "(None)" in report.findings[0].message and report.findings[0].places == ("row 5 (row test0)",)


def test_a_reward_that_speaks_on_some_rows_only_is_a_warning_while_another_speaks():
    def mixed(completions, gold, id, **kwargs):
        return [None if i == "test0" else float(t == g) for t, g, i in zip(texts_of(completions), gold, id, strict=True)]

    only(report_of(rewards=[exact, mixed]), "full marks", "warning")


def test_a_reward_that_never_speaks_is_an_error():
    only(report_of(rewards=[exact, lambda completions, **kwargs: [None] * len(completions)]), "full marks")


def test_a_check_that_refuses_the_oracle_is_found_with_the_wrong_field():
    def check(text, row):
        return Verdict(text == row["gold"], {"team": row["id"] != "train2"})

    (found,) = only(report_of(check=check), "check")
    assert "in team" in found.message and found.places == ("row 3 (row train2)",)


def test_a_check_that_raises_is_a_finding():
    def check(text, row):
        return text[0] == row["gold"][0]

    (found,) = only(report_of(check=check), "empty answer")
    assert "IndexError" in found.message and "5 rows" in found.message


def test_an_empty_answer_that_passes_the_check_is_found():
    (found,) = only(report_of(check=lambda text, row: row["gold"].startswith(text)), "empty answer")
    assert "accepts an empty answer on 5 rows" in found.message


def test_an_empty_answer_that_earns_as_much_in_total_is_found_and_the_reward_named():
    def generous(completions, gold, **kwargs):
        return [float(g.startswith(text)) for text, g in zip(texts_of(completions), gold, strict=True)]

    found = report_of(rewards=[generous]).findings
    assert [f.rule for f in found] == ["empty answer", "idle pay"] and "'generous'" in found[1].message


def test_a_reward_that_changes_from_call_to_call_is_found():
    rng = random.Random(0)

    def moody(completions, **kwargs):
        return [(text != "") * 1.0 + (len(text) > 5 and text.endswith("a")) * rng.random() for text in texts_of(completions)]

    found = only(report_of(rewards=[moody]), "steady")
    assert len(found) == 1 and "scored 5 times" in found[0].message


def test_a_reward_that_looks_at_its_neighbours_is_found():
    def ranked(completions, gold, **kwargs):
        right = [text == g for text, g in zip(texts_of(completions), gold, strict=True)]
        return [float(r) + 0.1 * (i == 0 and not r) for i, r in enumerate(right)]

    found = report_of(rewards=[ranked]).findings
    assert {f.rule for f in found} == {"steady"}
    assert any("scored alone" in f.message for f in found)


def test_a_reward_that_depends_on_the_order_of_the_batch_is_found():
    def first_wins(completions, gold, **kwargs):
        seen = set()
        values = []
        for text, g in zip(texts_of(completions), gold, strict=True):
            values.append(float(text == g) - 0.1 * (text in seen and text == ""))
            seen.add(text)
        return values

    assert any("reverse order" in f.message for f in report_of(rewards=[first_wins]).findings if f.rule == "steady")


def test_a_check_that_changes_its_mind_is_found():
    calls = itertools.count()

    def check(text, row):
        return text == row["gold"] or (text != "" and next(calls) % 2 == 0)

    (found,) = only(report_of(check=check), "steady")
    assert "check changed its verdict" in found.message


def test_an_async_reward_is_checked_like_any_other():
    async def later(completions, gold):
        return exact(completions, gold)

    assert report_of(rewards=[later]).ok


def test_places_are_few_and_the_message_counts_all():
    rows = [{"id": f"r{i}", "split": "train", "question": f"q{i}", "gold": ""} for i in range(20)]
    (found,) = [f for f in report_of(rows=rows).findings if f.rule == "gold"]
    assert "20 rows" in found.message and len(found.places) == 5


def test_rules_without_anything_to_look_at_do_not_count_as_passed():
    report = report_of(oracle=lambda row: "")
    assert not any("right answer" in sentence or "say the same" in sentence for sentence in report.passed)


def printed(report, encoding="utf-8"):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_report(report, Console(file=stream, width=60))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_the_printed_report_has_one_line_a_rule_and_a_verdict():
    lines = printed(report_of()).splitlines()
    assert lines[0] == "quiz: 3 train, 1 dev, 1 test rows"
    assert len(lines) == 14 and all(line.startswith("✓ ") for line in lines[1:-1])
    assert lines[-1] == "Sound: a right answer earns at least 1 on every row."


def test_the_printed_report_shows_places_and_keeps_brackets_in_messages():
    def broken(completions, **kwargs):
        raise ValueError("[bold]no[/bold]")

    text = printed(report_of(rewards=[broken], rows=changed(4, id="train0")))
    assert "✗ 2 rows share their id" in text and "    row 1 (row train0)" in text and "[bold]no[/bold]" in text
    assert text.splitlines()[-1] == "Not sound yet: mend the 2 errors above and check again."


def test_the_report_prints_on_a_terminal_without_unicode():
    assert "+ Every row has an id of its own." in printed(report_of(), "ascii")


def test_warnings_alone_do_not_spoil_the_verdict():
    last = printed(report_of(rows=[r for r in ROWS if r["split"] == "train"])).splitlines()[-1]
    assert last.startswith("Sound:") and "read the 2 warnings above" in last


def test_five_thousand_rows_take_under_ten_seconds():
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(2000)]
    rows = [
        {
            "id": i,
            "split": ("train", "train", "train", "dev", "test")[i % 5],
            "question": " ".join(rng.choices(words, k=50)),
            "gold": str(i),
        }
        for i in range(5000)
    ]
    rows[4]["question"] = rows[0]["question"] + " indeed"
    task = healthy(rows=rows)
    loaded = load_rows(task)
    start = time.perf_counter()
    (found,) = only(check_task(task, loaded), "leaks")
    assert time.perf_counter() - start < 10
    assert found.places == ("row 5 (row 4) repeats row 1 (row 0)",)


def test_check_needs_no_torch_and_imports_scikit_learn_late():
    code = "import sys, earnest.check; print([m for m in ('torch', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# --- rewards made of verifiers


def test_a_healthy_verifier_is_sound():
    report = report_of(rewards=[as_reward(text_answer("gold"))])
    assert report.ok and not report.findings
    assert "Gates leave right and wrong apart, and no model's opinion is the main reward." in report.passed


def test_a_row_that_cannot_be_verified_stops_the_check():
    rows = [*ROWS[:-1], {**ROWS[-1], "gold": ""}]
    report = report_of(rows=rows, rewards=[as_reward(text_answer("gold"))], oracle=lambda row: row["gold"] or "none")
    assert not report.ok
    assert any(ROWS[-1]["id"] in f.message and "cannot be verified" in f.message for f in report.findings)


def test_a_column_that_is_no_identifier_is_found_missing_too():
    verifier = Verifier("free", lambda attempt, row: right(), columns=("Right Answer",))
    report = report_of(rewards=[as_reward(verifier)])
    assert any("Right Answer" in f.message for f in report.findings) and not report.ok


def test_a_gate_that_the_right_answer_loses_is_told():  # S-RC-08
    gate = Verifier("short", lambda attempt, row: right() if len(attempt.text) < 3 else wrong("too long"))
    report = report_of(rewards=[as_reward(compose(gates=[gate], correct=text_answer("gold")))])
    (told,) = [f for f in report.findings if f.rule == "pays"]
    assert "'short'" in told.message and "right and wrong equal" in told.message


def test_an_opinion_as_the_only_reward_is_told():
    opinion = Verifier("taste", lambda attempt, row: right() if attempt.text == row["gold"] else wrong("no"), opinion=True)
    only(report_of(rewards=[as_reward(opinion)]), "pays", "warning")


def test_what_handing_everything_off_earns_is_printed_before_training():
    rows = [{**row, "needs_human": n == 0} for n, row in enumerate(ROWS)]  # 1 of 5 needs a person
    handing = hand_off(text_answer("gold"), note=Note(text=None, fields={"id": "id"}), form="json")

    def oracle(row):
        return json.dumps({"hand_off": {"id": row["id"]}}) if row["needs_human"] else row["gold"]

    report = report_of(rows=rows, rewards=[as_reward(handing)], oracle=oracle, check=lambda text, row: text == oracle(row))
    assert report.ok, report.findings
    always = 0.2 * 1.0 + 0.8 * -0.1
    assert any("always hands off" in line and f"{always:+.3f}" in line for line in report.outlook)
    printed = io.StringIO()
    print_report(report, Console(file=printed, width=200))
    assert "always hands off" in printed.getvalue()
