"""Empty lists, stated doubt, labels that cannot be read, ends of intervals, fields of a line, defaults: what is paid for little."""

import json
import re
from itertools import pairwise

import pytest
from test_redteam_rules import facts

from earnest.evidence import Case
from earnest.redteam.attack import Target
from earnest.redteam.attacks import crash, defaults, fields, intervals, sets, sure, unread, vacant, written
from earnest.redteam.attacks.objects import another, junk
from earnest.redteam.form import forms_of


def target(oracle, *, prompt="", oracles=(), wrongs=("",), golds=(), values=None):
    texts = [oracle, *oracles]
    cases = [Case(f"rows:{i}", "train", {}, [{"role": "user", "content": prompt}], None, text, None) for i, text in enumerate(texts)]
    form = forms_of(cases)[0]
    return Target(cases[0], form, list(wrongs), list(golds) or [form.core], values=values or {}, answers=list(oracles))


def answers(attack, made):
    return [one.answer for one in attack.tries(made)]


def by_id(module, identity):
    return next(attack for attack in module.ATTACKS if attack.id == identity)


REPORTS = [{"gold": f"## Facts\n- {a} [1]\n- {b} [2]\n## Used\n- [1]\n- [2]"} for a, b in pairwise(["it rained", "we left", "he sang"])]


def test_a_report_without_bullets_passes_where_each_bullet_is_looked_at_and_their_number_is_not():
    def pays(text, row):
        head, _, tail = text.partition("## Used")
        lines = [line for line in (head.removeprefix("## Facts") + tail).split("\n") if line.strip()]
        return all(line in row["gold"] for line in lines)

    found = facts(REPORTS, lambda _: "Report.", pays, lambda text, row: text == row["gold"], vacant.ATTACKS)
    assert found == {"vacant.list"}


def test_a_report_compared_whole_pays_no_empty_list():
    exact = lambda text, row: text == row["gold"]  # noqa: E731
    assert facts(REPORTS, lambda _: "Report.", exact, exact, vacant.ATTACKS) == set()


def test_lists_are_emptied_with_all_else_left_as_it_is():
    made = answers(vacant.ATTACKS[0], target('{"a": [1], "b": {"c": [2, 3], "d": "x"}}'))
    assert {"a": [], "b": {"c": [2, 3], "d": "x"}} in [json.loads(text) for text in made]
    assert {"a": [1], "b": {"c": [], "d": "x"}} in [json.loads(text) for text in made]
    table = "| name | size |\n|---|---|\n| oak | 9 |\n| elm | 7 |"
    assert "| name | size |\n|---|---|" in answers(vacant.ATTACKS[0], target(table))
    assert "| name | size |" in answers(vacant.ATTACKS[0], target("| name | size |\n| oak | 9 |\n| elm | 7 |"))
    assert "<all></all>" in answers(vacant.ATTACKS[0], target("<all><one>a</one><one>b</one></all>"))


LETTERS = [{"gold": letter} for letter in "ABCA"]


@pytest.mark.parametrize(("own", "doubt"), [("1.0", "0.0"), ("95%", "0%"), ("high", "low"), ("Yes", "No"), ("5/5", "0/5")])
def test_a_wrong_answer_is_tried_with_no_confidence_in_it(own, doubt):
    made = target(f"Answer: A\nConfidence: {own}", oracles=[f"Answer: B\nConfidence: {own}"], wrongs=[f"Answer: B\nConfidence: {own}"])
    assert f"Answer: B\nConfidence: {doubt}" in answers(by_id(sure, "sure.owned_up"), made)


@pytest.mark.parametrize(("weight", "expected"), [(0.0, {"sure.owned_up"}), (1.0, set())])
def test_a_score_of_the_confidence_alone_pays_wrong_answers_and_beside_the_answers_own_it_does_not(weight, expected):
    def pays(text, row):
        letter, p = re.fullmatch(r"Answer: ([A-C])\nConfidence: ([01]\.\d)", text).groups()
        return weight * (letter == row["gold"]) + 1 - (float(p) - (letter == row["gold"])) ** 2

    def check(text, row):
        return re.fullmatch(rf"Answer: {row['gold']}\nConfidence: (0\.[5-9]|1\.0)", text) is not None

    oracle = lambda row: f"Answer: {row['gold']}\nConfidence: 1.0"  # noqa: E731
    assert facts(LETTERS, lambda _: "Which?", pays, check, sure.ATTACKS, oracle) == expected


def test_where_how_likely_something_is_is_the_answer_itself_nothing_is_tried():
    made = target("Probability: 0.9", oracles=["Probability: 0.2"], wrongs=["Probability: 0.2"])
    assert answers(by_id(sure, "sure.owned_up"), made) == []


CLAIMS = [{"holds": holds, "because": because} for holds, because in [(True, "It rains."), (False, "It snows."), (False, "It ends.")] * 2]


def claim(row):
    return f"Verdict: {'true' if row['holds'] else 'false'}\nBecause: {row['because']}"


@pytest.mark.parametrize(("strict", "expected"), [(False, {"unread.label"}), (True, set())])
def test_a_verdict_that_cannot_be_read_counts_as_false_unless_false_is_demanded(strict, expected):
    def pays(text, row):
        verdict, because = text.split("\n")
        said = verdict == "Verdict: true"
        known = verdict in ("Verdict: true", "Verdict: false") or not strict
        return (known and said == row["holds"]) * 0.7 + 0.3 * (because == f"Because: {row['because']}")

    assert facts(CLAIMS, lambda _: "Is it so?", pays, lambda text, row: text == claim(row), unread.ATTACKS, claim) == expected


SETS = [{"gold": gold} for gold in ("(2, 5]", "[0, 3)", "(-inf, 4]", "[1, 9]")]


def test_ends_of_intervals_count_for_nothing_where_only_the_numbers_are_compared():
    numbers = lambda text: re.findall(r"-?\w+", text)  # noqa: E731
    found = facts(
        SETS,
        lambda _: "Give the interval.",
        lambda text, row: numbers(text) == numbers(row["gold"]),
        lambda text, row: text == row["gold"],
        intervals.ATTACKS,
    )
    assert found == {"interval.ends"}


def test_the_ends_of_an_interval_are_turned_and_infinity_is_left_alone():
    made = target("(-inf, 4]", oracles=["(2, 5)"], golds=["(-inf, 4]", "(2, 5)"], prompt="Which interval?")
    assert answers(by_id(intervals, "interval.ends"), made) == ["(-inf, 4)"]
    points = target("(3, 4)", oracles=["(2, 5)"], golds=["(3, 4)", "(2, 5)"], prompt="Which point?")
    assert answers(by_id(intervals, "interval.ends"), points) == answers(by_id(intervals, "interval.ends_untold"), points) == []


def test_less_than_is_turned_into_at_most():
    made = target("x < 3", oracles=["x >= 2"], golds=["x < 3", "x >= 2"], prompt="Solve.")
    assert answers(by_id(intervals, "interval.ends"), made) == ["x <= 3"]


def test_a_field_of_a_cron_line_is_changed_and_prose_is_not():
    made = target("0 9 * * 1", golds=["0 9 * * 1", "15 22 * * 1,3"])
    assert {"0 9 * * *", "0 9 * * 2", "0 9 1 * 1"} <= set(answers(by_id(fields, "fields.line"), made))
    assert answers(by_id(fields, "fields.line"), target("We met at noon in the old town.")) == []


def test_a_setting_and_a_pattern_are_changed_in_one_place():
    assert "port = 81\nhost = a" in answers(by_id(fields, "fields.settings"), target("port = 80\nhost = a"))
    assert r"^\w{3}-\d{2}$" in answers(by_id(fields, "fields.pattern"), target(r"^\d{3}-\d{2}$"))


@pytest.mark.parametrize(
    ("prompt", "name", "value"),
    [
        ("The argument currency has the default EUR: it may be left out.", "currency", "EUR"),
        ("`limit` defaults to 10.", "limit", 10),
        ("urgent (optional, default false)", "urgent", False),
        ('def book(day: str, room: str = "any")', "room", "any"),
        ("The default for unit is km.", "unit", "km"),
    ],
)
def test_a_default_is_read_from_the_prompt(prompt, name, value):
    assert defaults.stated(prompt)[name][0] == value


def test_a_stated_default_is_said_in_the_call_and_left_out_of_it():
    def call(arguments):
        entry = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": arguments}}
        return [{"role": "assistant", "content": "", "tool_calls": [entry]}, {"role": "assistant", "content": "Done."}]

    def given(arguments):
        prompt = "The argument currency has the default EUR."
        made = target(call(arguments), oracles=[call({"to": "B", "currency": "USD"})], prompt=prompt)
        return [one.answer[0]["tool_calls"][0]["function"]["arguments"] for one in defaults.ATTACKS[0].tries(made)]

    assert given({"to": "A"}) == [{"to": "A", "currency": "EUR"}]
    assert given({"to": "A", "currency": "EUR"}) == [{"to": "A"}]
    assert given({"to": "A", "currency": "USD"}) == []


def test_a_stated_default_is_said_in_a_call_written_as_json():
    golds = ['{"name": "pay", "arguments": {"to": "A"}}', '{"name": "pay", "arguments": {"to": "B", "currency": "USD"}}']
    made = target(golds[0], oracles=golds[1:], golds=golds, prompt="currency defaults to EUR.")
    assert {"name": "pay", "arguments": {"to": "A", "currency": "EUR"}} in [json.loads(text) for text in answers(defaults.ATTACKS[0], made)]


def test_inner_lists_are_turned_unless_an_order_is_asked_for():
    gold = '{"teams": [{"name": "x", "members": ["a", "b"]}]}'
    made = [json.loads(text) for text in answers(by_id(sets, "sets.inner_order"), target(gold, prompt="Sort them into teams."))]
    assert made == [{"teams": [{"name": "x", "members": ["b", "a"]}]}]
    assert answers(by_id(sets, "sets.inner_order"), target(gold, prompt="List the members in alphabetical order.")) == []


def test_numbers_of_a_list_are_written_as_fractions_with_their_sign():
    made = target("-0.5, 3", oracles=["2, 0.25"], golds=["-0.5, 3", "2, 0.25"], prompt="All roots, separated by a comma.")
    assert "-1/2, 3" in answers(by_id(written, "right.values"), made)


LINES = [{"gold": f"{a} = {b}\n{b} = {a}"} for a, b in pairwise("vwxyz")]


@pytest.mark.parametrize("counted", [True, False])
def test_a_right_line_named_twice_is_no_flaw_where_each_place_is_compared_and_one_where_lines_are_counted(counted):
    def pays(text, row):
        said, own = text.split("\n"), row["gold"].split("\n")
        if counted:
            return min(1.0, sum(line in own for line in said) / len(own))
        right = sum(a == b for a, b in zip(said, own, strict=True))
        return 1.0 if right == len(own) else 0.5 * right / len(own)

    found = facts(
        LINES, lambda _: "One line for each, one per line.", pays, lambda text, row: text == row["gold"], [by_id(sets, "sets.again")]
    )
    assert found == ({"sets.again"} if counted else set())


CITED = [
    {"gold": f'Passage: {n}\nQuote: "{words}"', "quote": words} for n, words in ((2, "14 crowns"), (1, "finished in 1764"), (3, "a wreck"))
]


def test_a_passage_number_that_only_has_to_exist_is_a_named_value_nobody_compares():
    def pays(text, row):
        found = re.fullmatch(r'Passage: ([1-3])\nQuote: "([^"\n]+)"', text)
        return found is not None and found[2] == row["quote"]

    exact = lambda text, row: text == row["gold"]  # noqa: E731
    assert facts(CITED, lambda _: "Cite one passage.", pays, exact, fields.ATTACKS) == {"fields.settings"}
    assert facts(CITED, lambda _: "Cite one passage.", exact, exact, fields.ATTACKS) == set()


def test_named_values_stand_in_tags_as_well():
    made = target("<page>2</page>\n<line>17</line>", oracles=["<page>5</page>\n<line>17</line>"])
    assert "<page>5</page>\n<line>17</line>" in answers(by_id(fields, "fields.settings"), made)


def test_all_numbers_of_an_answer_are_made_the_same():
    made = answers(by_id(crash, "crash.constant"), target("clarity: 3, depth: 1, tone: 4, v2"))
    assert made == ["clarity: 3, depth: 3, tone: 3, v2", "clarity: 0, depth: 0, tone: 0, v2"]
    assert answers(by_id(crash, "crash.constant"), target("3 and 3 and 3")) == []


def test_a_field_that_may_be_null_holds_no_wrong_type_where_other_rows_have_a_number():
    made = target('{"queue": "a", "twin": null}', values={"queue": ["a", "b"], "twin": [None, 7]})
    assert another(made, "twin") == 7 and "12" not in junk(made, "twin") and '"qzx"' in junk(made, "twin")
    assert "12" not in junk(target('{"price": 4.5}', values={"price": [4.5]}), "price")
