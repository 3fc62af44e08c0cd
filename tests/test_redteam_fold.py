"""One flaw is told once: which findings stand under which, and that none is lost."""

import json

from earnest.redteam.audit import audit
from earnest.redteam.baseline import Comparison, Entry, compare
from earnest.redteam.findings import Finding
from earnest.redteam.fold import grouped
from earnest.redteam.sarif import audit_json, sarif
from earnest.rows import load_rows
from earnest.task import Task

LABELS = ("billing", "refund", "account", "bug")
ROWS = [{"id": f"r{k}", "text": f"Ticket {k}", "label": label} for k, label in enumerate(LABELS * 2)]


def prompt(row):
    return [{"role": "user", "content": f"{row['text']}\nOne of billing, refund, account, bug, and nothing else."}]


def mentioned(completions, label, **kwargs):
    return [float(gold in c[0]["content"]) for c, gold in zip(completions, label, strict=True)]


def anything(completions, label, **kwargs):
    """Whatever is no other label is paid."""
    return [float(c[0]["content"] not in set(LABELS) - {gold}) for c, gold in zip(completions, label, strict=True)]


def strict(completions, label, **kwargs):
    return [float(c[0]["content"] == gold) for c, gold in zip(completions, label, strict=True)]


def audited(reward):
    task = Task(
        rows=ROWS, prompt=prompt, rewards=[reward], check=lambda text, row: text == row["label"], oracle=lambda row: row["label"], name="t"
    )
    return task, audit(task, load_rows(task), search_calls=0)


def made(attack, under="", certainty="fact", rewards=("reward",)):
    return Finding(
        "exploit", certainty, attack, "f", rewards, "x", "row 1", 1.0, 0.0, 1.0, 1, 1, (0.2, 1.0), 1.0, "Flaw.", "Fix.", under=under
    )


def heads(found):
    return [first for first, _ in grouped(found.findings) if first.certainty == "fact"]


def test_a_reward_that_pays_anything_has_one_flaw_and_the_shortest_worthless_answer_shows_it():
    _, found = audited(anything)
    (head,) = heads(found)
    assert (head.reason, head.example, head.hits) == ("worthless", "", 8)
    assert sum(f.certainty == "fact" for f in found.findings) > 10


def test_a_reward_that_looks_for_the_label_anywhere_is_told_in_two_findings_at_most():
    _, found = audited(mentioned)
    assert 1 <= len(heads(found)) <= 2
    assert {"label.denied", "label.two"} <= {f.attack for f in found.findings if f.certainty == "fact"}


def test_a_sound_reward_asks_two_questions_at_most():
    _, found = audited(strict)
    asked = [(first, others) for first, others in grouped(found.findings) if first.certainty == "question"]
    assert len(asked) <= 2 and not heads(found)


def test_every_finding_stands_under_one_that_stands_for_itself():
    for reward in (mentioned, anything, strict):
        _, found = audited(reward)
        own = {f.fingerprint for f in found.findings if not f.under}
        assert all(f.under in own for f in found.findings if f.under)
        assert sum(1 + len(others) for _, others in grouped(found.findings)) == len(found.findings)


def test_a_finding_whose_better_one_is_accepted_stands_for_itself():
    head = made("a.head")
    first, second = (made(name, head.fingerprint) for name in ("a.one", "a.two"))
    assert grouped([second, head, first]) == [(head, [second, first])]
    assert grouped([second, first]) == [(second, [first])]


def test_findings_with_one_fingerprint_that_stand_for_themselves_are_both_told():
    fact, lead = made("a.same"), made("a.same", certainty="lead")
    assert grouped([fact, lead]) == [(fact, []), (lead, [])]


def test_json_has_every_finding_and_sarif_every_name():
    task, found = audited(mentioned)
    compared = Comparison(found.findings)
    held = audit_json(found, compared)
    assert [f["attack"] for f in held["findings"]] == [f.attack for f in found.findings]
    results = sarif(found, compared, task)["runs"][0]["results"]
    named = {r["ruleId"] for r in results} | {one["attack"] for r in results for one in r["properties"].get("also", ())}
    assert named == {f.attack for f in found.findings} and len(results) == len(grouped(found.findings))
    json.dumps(held)


def test_a_baseline_accepts_one_attack_and_leaves_what_stood_under_it():
    _, found = audited(anything)
    (head,) = heads(found)
    compared = compare(found, [Entry(head.fingerprint, "fact", "read")])
    assert compared.accepted == (head,) and compared.fails
    assert len([f for f, _ in grouped(compared.new) if f.certainty == "fact"]) == 1
