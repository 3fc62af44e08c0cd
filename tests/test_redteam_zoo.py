"""The zoo: each defective reward is found out, each sound one is left alone, and the exhibits are what they are said to be."""

import os
from collections import Counter
from dataclasses import replace

import pytest

from earnest.evidence import cases_of
from earnest.redteam import ask as asking
from earnest.redteam.audit import audit
from earnest.redteam.catalog import CATALOG
from earnest.redteam.zoo import SPECIMENS, exhibits
from earnest.redteam.zoo.nowork import capitals
from earnest.redteam.zoo.numbers import boxed
from earnest.redteam.zoo.selftest import PATIENCE, Result, SelfTest, examine, print_selftest
from earnest.redteam.zoo.specimen import ask, task
from earnest.rows import load_rows
from earnest.score import score
from earnest.task import judge, messages_of

FAMILIES = {
    "no work", "format", "label", "number", "code", "SQL", "tool policy", "hand-off", "length", "judge", "state", "aggregation",
    "crash and time",
}  # fmt: skip


# Those of code start processes by the hundred and take the longest; `earnest redteam --selftest` and EARNEST_ALL run them.
LONG = pytest.mark.skipif("EARNEST_ALL" not in os.environ, reason="long; EARNEST_ALL=1 runs it")


def long_if_code(specimen):
    return [LONG] if specimen.family == "code" else []


def of(half):
    chosen = [one for one in SPECIMENS if one.half == half and one not in exhibits.SPECIMENS]
    return [pytest.param(one, id=one.name, marks=long_if_code(one)) for one in chosen]


def paid(specimen, answer):
    """What an answer earns on each row."""
    rows = load_rows(specimen.task).split("train")
    prompts = [specimen.task.prompt(row) for row in rows]
    answers = [messages_of(answer(row)) for row in rows]
    return score(specimen.task.rewards, specimen.task.weights, prompts, answers, rows).total.tolist()


def test_the_zoo_is_large_and_covers_every_family():
    bad = [one for one in SPECIMENS if one.expect != "clean"]
    good = [one for one in SPECIMENS if one.expect == "clean"]
    assert len(bad) >= 40 and len(good) >= 30
    assert {one.family for one in bad} == {one.family for one in good} == FAMILIES
    assert sum(one.expect == "false reject" for one in bad) >= 4
    assert len({one.name for one in SPECIMENS}) == len(SPECIMENS)
    assert all(bool(one.flaw) == (one.expect != "clean") for one in SPECIMENS)


def test_the_halves_are_about_equal_by_family_and_verdict():
    counts = Counter((one.family, one.expect == "clean", one.half) for one in SPECIMENS if not one.name.startswith("exhibit"))
    for family in FAMILIES:
        for clean in (True, False):
            assert abs(counts[family, clean, "seen"] - counts[family, clean, "unseen"]) <= 2


@pytest.mark.parametrize("specimen", [pytest.param(one, id=one.name) for one in SPECIMENS])
def test_a_specimen_is_a_sound_task_but_for_its_reward(specimen):
    cases = cases_of(specimen.task, load_rows(specimen.task))
    assert 3 <= len(cases) <= 12
    assert len({str(case.oracle) for case in cases}) >= 2
    assert not any(case.prompt_problem or case.gold_problem for case in cases)
    for case in cases:
        verdict = judge(specimen.task, case.oracle, case.row)
        assert verdict.correct and verdict.well_formed is not False and all(verdict.fields.values())
        nothing = [{"role": "assistant", "content": ""}] if isinstance(case.oracle, list) else ""
        assert not judge(specimen.task, nothing, case.row).correct


@pytest.fixture
def hurried(specimen, monkeypatch):
    """A defective reward need not be waited for as long: to time out falsely does not hide its flaw."""
    if specimen.expect != "clean":
        monkeypatch.setitem(PATIENCE, False, 0.5)
        monkeypatch.setattr(asking, "GRACE", 0.2)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("specimen", of("seen"))
def test_the_seen_half_comes_out_as_it_should(specimen):
    result = examine(specimen, search_calls=0) if specimen.expect != "clean" else examine(specimen)
    if not result.as_expected:  # the catalog alone should find what is wrong, but it need not
        result = examine(specimen)
    assert result.as_expected, f"{specimen.flaw or 'sound'}; reported: {result.says}"


@pytest.mark.skipif("EARNEST_ZOO_UNSEEN" not in os.environ, reason="the unseen half is opened when the attacks are done")
@pytest.mark.parametrize("specimen", of("unseen"))
def test_the_unseen_half_comes_out_as_it_should(specimen):
    result = examine(specimen)
    assert result.as_expected, f"{specimen.flaw or 'sound'}; reported: {result.says}"


def exhibit(name):
    return next(one for one in exhibits.SPECIMENS if one.name == f"exhibit: {name}")


def test_the_triage_exhibit_has_the_flaws_it_is_said_to_have():
    triage = exhibit("plain json.loads triage")
    junk = paid(triage, lambda row: f'{{"category": "{row["category"]}", "needs_account_data": NaN, "needs_human": 7, "urgency": "soon"}}')
    assert junk == [pytest.approx(1.2)] * 7
    twice = paid(triage, lambda row: triage.task.oracle(row).replace("{", '{"category": "other", ', 1))
    assert twice == [pytest.approx(1.2)] * 7
    assert paid(triage, lambda row: f'{{"category": "{row["category"]}"}}') == [1.0] * 7


def test_the_exhibits_pay_for_what_they_are_said_to_pay_for():
    assert paid(exhibit("last line of stdout"), lambda row: "import os\nprint(1.0, flush=True)\nos._exit(0)") == [1.0] * 4
    assert paid(exhibit("substring label"), lambda row: "billing, shipping, returns or other") == [1.0] * 6
    assert paid(exhibit("puzzle scorer"), lambda row: "__import__('os').getpid()") == [0.05] * 4


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("specimen", [pytest.param(one, id=one.name, marks=long_if_code(one)) for one in exhibits.SPECIMENS])
def test_an_exhibit_is_reported(specimen):
    result = examine(specimen, search_calls=0)
    assert result.as_expected, f"reported: {result.says}"


def test_the_exhibit_that_runs_programs_is_reported_by_the_attacks_meant_for_it():
    assert proven(exhibit("last line of stdout").task, {"code.forged_output", "code.os_exit"}) == {"code.forged_output"}


def proven(base, attacks):
    """Ids of proven exploits by a few attacks."""
    few = [a for a in CATALOG if a.id in attacks or a.family in attacks]
    found = audit(base, load_rows(base), search_calls=0, deadline=5.0, catalog=few)
    return {f.attack for f in found.findings if f.kind == "exploit" and f.certainty == "fact"}


def reported(base, reward):
    """The others keep math-verify busy for minutes."""
    return proven(replace(base, rewards=[reward], name=reward.__name__), {"no work", "fmt.denied", "math.restate"})


def test_trl_accuracy_reward_is_reported():
    pytest.importorskip("trl")
    pytest.importorskip("math_verify")
    from trl.rewards import accuracy_reward

    rows = [{**row, "solution": f"$\\boxed{{{row['answer']}}}$"} for row in boxed.rows]
    assert reported(task(rows, boxed.prompt, boxed.check, boxed.oracle), accuracy_reward) >= {"fmt.denied", "math.restate"}


def test_trl_think_format_reward_is_reported():
    pytest.importorskip("trl")
    from trl.rewards import think_format_reward

    shipped = task(
        capitals.rows,
        lambda row: ask(row["question"], "Think between <think> and </think>, then answer."),
        lambda text, row: text.strip() == f"<think>I recall it.</think>\n{row['answer']}",
        lambda row: f"<think>I recall it.</think>\n{row['answer']}",
    )
    assert "honest.wrong" in reported(shipped, think_format_reward)


def test_results_are_counted_by_family():
    bad = next(one for one in SPECIMENS if one.expect == "exploit" and one.family == "label")
    good = next(one for one in SPECIMENS if one.expect == "clean" and one.family == "label")
    test = SelfTest((Result(bad, (), 1.0), Result(good, (), 1.0), Result(good, (), 1.0, "broke")), 3.0)
    assert test.by_family() == {"label": (1, 0, 2, 1)}
    assert [r.specimen for r in test.missed] == [bad]
    assert [r.error for r in test.accused] == ["broke"]
    assert not test.passed


def test_it_is_printed_with_recall_and_what_was_missed(monkeypatch):
    from rich.console import Console

    import earnest.redteam.zoo.selftest as module

    bad = next(one for one in SPECIMENS if one.expect == "exploit")
    monkeypatch.setattr(module, "SPECIMENS", (bad,))
    monkeypatch.setattr(module, "examine", lambda specimen, calls: Result(specimen, (), 0.1))
    console = Console(record=True, width=120)
    assert print_selftest(console) is False
    text = console.export_text()
    assert "0%" in text and f"Missed: {bad.name}" in text
