import contextlib

import pytest

from earnest.evidence import cases_of
from earnest.redteam.aggregate import analyse
from earnest.redteam.ask import Asker
from earnest.redteam.audit import ground_of
from earnest.redteam.targets import targets_of
from earnest.rows import load_rows
from earnest.task import Task

ROWS = [{"id": "a", "label": "amber"}, {"id": "b", "label": "teal"}]


def reward(judge, name):
    def function(completions, label, **_):
        return [judge(c[-1]["content"], gold) for c, gold in zip(completions, label, strict=True)]

    function.__name__ = name
    return function


RIGHT = reward(lambda text, gold: float(text == gold), "right")
FORM = reward(lambda text, gold: float(text in ("amber", "teal")), "form")


def weighed(tmp_path, functions, weights=None, rows=ROWS):
    task = Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": "amber or teal?"}],
        rewards=functions,
        reward_weights=weights,
        check=lambda text, row: text == row["label"],
        oracle=lambda row: row["label"],
        name="t",
    )
    cases = cases_of(task, load_rows(task))
    with contextlib.closing(Asker(task, cases, 3.0)) as asker:
        return analyse(ground_of(targets_of(task, cases, range(len(cases)), asker, tmp_path), asker), asker, [])


def ids(weighing):
    return [lead.attack for lead in weighing.leads]


def test_one_reward_for_being_right_is_clean_and_has_all_the_variance(tmp_path):
    found = weighed(tmp_path, [RIGHT])
    assert found.leads == ()
    assert [term.variance for term in found.terms] == [pytest.approx(1.0)]
    assert (found.right, found.wrong, found.nothing, found.worth) == (1.0, 0.0, 0.0, 1.0)
    assert found.sentences[0] == "On the median row the right answer earns 1, an honest wrong one 0, no answer 0."


def test_shares_of_variance_are_those_worked_out_by_hand(tmp_path):
    # Row a: right, wrong, none earn 2, 1, 0. Row b has the most common answer (amber, wrong there) besides: 2, 1, 0, 1.
    # Distances from the row's mean: total 1, 0, -1 and 1, 0, -1, 0. Products with it: form 1 and 1, right 1 and 1. Half each.
    even = weighed(tmp_path, [FORM, RIGHT])
    assert [term.variance for term in even.terms] == [pytest.approx(0.5), pytest.approx(0.5)]
    assert even.leads == ()
    # Form times 3: 7 + 7.5 of the products are the form's, 5/3 + 3/2 are those of being right.
    heavy = weighed(tmp_path, [FORM, RIGHT], [3.0, 1.0])
    assert heavy.terms[0].variance == pytest.approx(14.5 / (14.5 + 19 / 6))
    assert sum(term.variance for term in heavy.terms) == pytest.approx(1.0)


def test_a_form_that_pays_three_times_being_right_is_an_easy_and_a_dear_term(tmp_path):
    found = weighed(tmp_path, [FORM, RIGHT], [3.0, 1.0])
    assert ids(found) == ["agg.form_over_content", "agg.easy_term"]
    assert all(lead.certainty == "lead" and lead.rewards == ("form",) and lead.hits == 2 for lead in found.leads)
    assert "'form' pays 3 for any well-formed answer, being right pays 1 more." in found.sentences


def test_a_tenth_for_the_form_is_clean(tmp_path):
    assert weighed(tmp_path, [FORM, RIGHT], [0.1, 1.0]).leads == ()


def test_ties_are_counted_within_rows(tmp_path):
    both = weighed(tmp_path, [reward(lambda text, gold: float(bool(text)), "any")])
    assert both.ties == 1.0 and both.level == 1.0  # right and wrong, one pair a row, equal
    assert weighed(tmp_path, [RIGHT]).ties == weighed(tmp_path, [RIGHT]).level == 0.0


def test_terms_that_outweigh_each_other_leave_right_and_wrong_equal(tmp_path):
    spite = reward(lambda text, gold: float(bool(text) and text != gold), "spite")
    found = weighed(tmp_path, [RIGHT, spite])
    assert "agg.level" in ids(found)
    lead = next(f for f in found.leads if f.attack == "agg.level")
    assert (lead.hits, lead.tried, lead.earned) == (2, 2, 1.0)


def test_a_penalty_on_right_answers_beyond_what_being_right_leaves_is_named(tmp_path):
    charge = reward(lambda text, gold: -0.75 * (text == gold), "charge")
    found = weighed(tmp_path, [RIGHT, charge])  # being right is worth 0.25, and 'charge' takes 0.75
    assert ids(found) == ["agg.cancel"]
    assert found.leads[0].kind == "false reject" and found.leads[0].rewards == ("charge",)
    small = reward(lambda text, gold: -0.2 * (text == gold), "charge")
    assert weighed(tmp_path, [RIGHT, small]).leads == ()


def test_penalties_that_make_silence_better_than_trying_are_named(tmp_path):
    harsh = reward(lambda text, gold: 1.0 if text == gold else -1.0 if text else 0.0, "harsh")
    assert ids(weighed(tmp_path, [harsh])) == ["agg.silence"]
    even = reward(lambda text, gold: 1.0 if text == gold else -1.0, "even")
    assert weighed(tmp_path, [even]).leads == ()


def test_a_row_whose_right_answer_cannot_earn_full_marks_is_named(tmp_path):
    rows = [{"id": str(i), "label": label} for i, label in enumerate(("amber", "teal", "violet", "ochre"))]
    short = reward(lambda text, gold: float(text == gold and len(text) < 6), "short")
    found = weighed(tmp_path, [short], rows=rows)
    assert ids(found) == ["agg.ceiling"]
    assert found.leads[0].place.endswith("(2)") or "2" in found.leads[0].place
    assert (found.leads[0].earned, found.leads[0].hits, found.leads[0].tried) == (0.0, 1, 4)
    assert weighed(tmp_path, [RIGHT], rows=rows).leads == ()


def test_a_term_that_is_silent_on_wrong_answers_is_named(tmp_path):
    silent = reward(lambda text, gold: 0.5 if text == gold else None, "silent")
    found = weighed(tmp_path, [RIGHT, silent])
    assert "agg.escape" in ids(found)
    assert any(sentence.startswith("silent gives no verdict on") for sentence in found.sentences)


def test_the_built_in_task_is_clean(tmp_path):
    from earnest import load_task
    from earnest.redteam.targets import spread_by_gold

    triage = load_task("triage")
    cases = cases_of(triage, load_rows(triage))
    chosen = spread_by_gold(cases, 8)
    with Asker(triage, [cases[i] for i in chosen]) as asker:
        found = analyse(ground_of(targets_of(triage, cases, chosen, asker, tmp_path), asker), asker, [])
    assert found.leads == ()
    assert max(found.terms, key=lambda term: term.variance).name == "category_reward"
