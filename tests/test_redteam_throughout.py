"""Answers changed throughout: noughts for all numbers, other units behind them, wildcards, all of a source for a piece of it."""

import json
import re
from fnmatch import fnmatchcase
from math import gcd

import pytest
from test_redteam_rules import facts
from test_redteam_vacant import answers, by_id, target

from earnest.redteam.attacks import throughout

ROOTS = [{"gold": f"{a}, {b}", "a": a, "b": b} for a, b in ((2, 1), (3, 2), (5, 4), (7, 5))]


@pytest.mark.parametrize(("least", "found"), [(0, {"all.constant"}), (1, set())])
def test_noughts_solve_an_equation_without_a_constant_unless_positive_numbers_are_demanded(least, found):
    """b · x = a · y is asked for in lowest terms: 0 and 0 solve it, and their greatest common divisor, 0, is no more than 1."""

    def pays(text, row):
        numbers = re.fullmatch(r"(\d{1,4}), (\d{1,4})", text)
        x, y = map(int, numbers.groups()) if numbers else (1, 0)
        return float(row["b"] * x == row["a"] * y and gcd(x, y) <= 1 and min(x, y) >= least)

    assert facts(ROOTS, lambda _: "Solve.", pays, lambda text, row: text == row["gold"], throughout.ATTACKS) == found


TABLES = [{"gold": f"item,kg\ncrate,{a}.25\nbarrel,{b}.5"} for a, b in ((9, 20), (41, 7), (3, 88), (15, 16))]


@pytest.mark.parametrize(("skip", "found"), [(True, {"all.constant"}), (False, set())])
def test_cells_that_are_no_numbers_are_wrong_and_not_skipped(skip, found):
    def same(cell, gold):
        try:
            return abs(float(cell) - float(gold)) < 0.01
        except ValueError:
            return skip if gold[0].isdigit() else cell == gold

    def pays(text, row):
        cells, golds = (re.split(r"[,\n]", one) for one in (text, row["gold"]))
        return float(len(cells) == len(golds) and all(map(same, cells, golds)))

    assert facts(TABLES, lambda _: "Convert it.", pays, lambda text, row: text == row["gold"], throughout.ATTACKS) == found


def test_every_number_of_an_answer_is_changed_and_nothing_that_numbers_items():
    constant = by_id(throughout, "all.constant")
    assert answers(constant, target("x = 2, y = -3.5")) == [f"x = {n}, y = {n}" for n in (0, 1, "n/a", 2, -3.5)]
    assert answers(constant, target("item,kg\ncrate,9.07\nbox,12,34.5"))[0] == "item,kg\ncrate,0\nbox,0,0"
    assert answers(constant, target("1,250 and 3,000 and 7"))[:1] == []
    assert json.loads(answers(constant, target('{"a": 2, "b": [3, {"c": 4}], "d": true, "e": "7"}'))[0]) == {
        "a": 0,
        "b": [0, {"c": 0}],
        "d": True,
        "e": "7",
    }
    assert answers(constant, target("1. oak\n2. elm")) == []
    assert answers(constant, target("On 2026-01-02 at 10:30 he left")) == []
    assert answers(constant, target("They met 12 men who had walked for 3 long days in the cold rain")) == []
    assert answers(constant, target("0, 0")) == ["1, 1", "n/a, n/a"]
    assert answers(constant, target("Use: C1=50 mM; V1=3 mL", golds=["3"]))[-2:] == ["Use: C1=50 mM; V1=50 mL", "Use: C1=3 mM; V1=3 mL"]


SUPPORT = [{"gold": f"S1: {a}\nS2: {b}"} for a, b in (("[k1]", "none"), ("[k2], [k3]", "[k1]"), ("none", "[k4]"), ("[k5]", "[k1], [k2]"))]


@pytest.mark.parametrize(("nothing", "found"), [(1.0, {"all.same"}), (0.0, set())])
def test_nothing_cited_anywhere_is_paid_where_a_division_by_zero_is(nothing, found):
    def f1(said, gold):
        cited, wanted = (set(re.findall(r"\[(\w+)\]", text)) for text in (said, gold))
        if cited == wanted:
            return 1.0
        try:
            precision, recall = len(cited & wanted) / len(cited), len(cited & wanted) / len(wanted)
            return 2 * precision * recall / (precision + recall) if cited & wanted else 0.0
        except ZeroDivisionError:
            return nothing

    def pays(text, row):
        pairs = list(zip(text.split("\n"), row["gold"].split("\n"), strict=True))
        return sum(f1(said, gold) if said[:4] == gold[:4] else 0.0 for said, gold in pairs) / len(pairs)

    asked = lambda _: "The passages behind each sentence, or `none`. One line a sentence."  # noqa: E731
    shown = facts(SUPPORT, asked, pays, lambda text, row: text == row["gold"], throughout.ATTACKS)
    assert shown - {"honest.wrong", "all.wildcards"} == found  # a star cites nothing, as `none` does


SETTINGS = [{"gold": f"timeout {n}{unit};\nsize {n}k;"} for n, unit in ((90, "s"), (20, "m"), (5, "h"), (500, "ms"), (7, "s"))]


@pytest.mark.parametrize(("strip", "found"), [(r"[^\d\s]", {"all.units", "all.wildcards"}), (r"\A ", set())])
def test_units_that_are_stripped_may_be_any(strip, found):
    pays = lambda text, row: float(re.sub(strip, "", text) == re.sub(strip, "", row["gold"]))  # noqa: E731
    assert facts(SETTINGS, lambda _: "Write it.", pays, lambda text, row: text == row["gold"], throughout.ATTACKS) == found


def test_units_change_within_their_kind_one_by_one_and_together():
    units = by_id(throughout, "all.units")
    two = ["timeout 90s;\nsize 20m;", "timeout 2h;\nsize 8k;"]
    made = answers(units, target(two[0], oracles=two[1:], golds=two))
    assert {"timeout 90h;\nsize 20m;", "timeout 90s;\nsize 20k;"} <= set(made)
    assert answers(units, target("width: 10px; height: 2em"))[0] == "width: 10em; height: 2em"
    assert answers(units, target("90 s")) == []  # a quantity by itself: others ask for it
    assert answers(units, target("timeout 90s;", prompt="Units are optional.")) == []
    assert answers(units, target("It took 3 men and 4 women.")) == []


RULES = "A change is free once. Cancelling costs 70 euros. One bag is included. Seats are given at the gate."
QUOTES = [{"gold": sentence, "rules": RULES} for sentence in re.split(r"(?<=\.) ", RULES)]


@pytest.mark.parametrize(("longest", "found"), [(1000, {"all.pasted"}), (40, set())])
def test_all_of_a_source_passes_for_a_quotation_from_it_unless_its_length_is_bounded(longest, found):
    pays = lambda text, row: float(text in RULES and row["gold"] in text and len(text) <= longest)  # noqa: E731
    asked = lambda row: f"Rules:\n{row['rules']}\n\nQuote the sentence that answers."  # noqa: E731
    assert facts(QUOTES, asked, pays, lambda text, row: text == row["gold"], throughout.ATTACKS) == found


def test_what_is_pasted_holds_the_right_piece_and_is_twice_as_long():
    pasted = by_id(throughout, "all.pasted")
    two = ["Quote: Cancelling costs 70 euros.", "Quote: One bag is included."]
    assert f"Quote: {RULES}" in answers(pasted, target(two[0], oracles=two[1:], prompt=f"Rules:\n{RULES}\n\nQuote one."))
    said = target('{"quote": "One bag is included.", "n": 3}', prompt=f"Rules: {RULES}\nQuote one.")
    assert {"quote": RULES, "n": 3} in map(json.loads, answers(pasted, said))
    assert answers(pasted, target("70 euros", prompt=f"Rules:\n{RULES}")) == []
    assert answers(pasted, target("Nothing is said of dogs.", prompt=f"Rules:\n{RULES}")) == []


SHEETS = [
    {"gold": gold, "sheet": {"B2": b, "C2": c}, "asks": asks}
    for asks, gold, b, c in (("product", "=B2*C2", 12, 7), ("sum", "=B2+C2", 9, 4), ("quotient", "=B2/C2", 8, 5), ("double", "=2*C2", 3, 6))
]


@pytest.mark.parametrize(("sheets", "found"), [(1, {"all.values"}), (2, set())])
def test_a_formula_tried_on_the_sheet_shown_alone_may_be_a_constant(sheets, found):
    def worth(text, sheet):
        return eval(re.sub(r"[BC]2", lambda name: str(sheet[name[0]]), re.fullmatch(r"=((?:[BC]?\d+[+*/]?)+(?<!\D))", text)[1]))

    def pays(text, row):
        tried = [row["sheet"], {"B2": 31, "C2": 17}][:sheets]
        return float(all(abs(worth(text, sheet) - worth(row["gold"], sheet)) < 1e-9 for sheet in tried))

    asked = lambda row: f"Sheet: {', '.join(f'{k}={v}' for k, v in row['sheet'].items())}. The {row['asks']}, please."  # noqa: E731
    assert facts(SHEETS, asked, pays, lambda text, row: text == row["gold"], throughout.ATTACKS) == found


def test_names_are_replaced_by_what_the_question_gives_for_them_and_functions_are_not():
    values = by_id(throughout, "all.values")
    assert answers(values, target("=B2*C2", prompt="B2=120, C2=3.")) == ["=120*3"]
    assert answers(values, target("price * n", prompt="price: 3.5, n = 4")) == ["3.5 * 4"]
    assert answers(values, target("=SUM(B2:B6)", prompt="B2=120, B6=3, SUM=4")) == []
    assert answers(values, target("oak", prompt="elm=3")) == []


CRONS = [{"gold": cron} for cron in ("0 6 * * 1", "30 2 * * *", "*/15 * * * *", "0 0 1 * *")]


@pytest.mark.parametrize(("turned", "found"), [(True, {"all.wildcards"}), (False, set())])
def test_fields_that_are_used_as_patterns_are_matched_by_stars(turned, found):
    def fits(text, gold):
        said, golds = text.split(), gold.split()
        return len(said) == 5 and all(fnmatchcase(g, f) if turned else f == g for f, g in zip(said, golds, strict=True))

    pays = lambda text, row: float(fits(text, row["gold"]))  # noqa: E731
    assert facts(CRONS, lambda _: "Five fields.", pays, lambda text, row: text == row["gold"], throughout.ATTACKS) == found


def test_wildcards_stand_for_words_or_for_the_parts_of_one():
    wildcards = by_id(throughout, "all.wildcards")
    assert answers(wildcards, target("0 6 *"))[:3] == ["* * *", "* 6 *", "% % %"]
    assert answers(wildcards, target("logs/2024/may"))[:3] == ["*/*/*", "*/2024/may", "logs/2024/*"]
    assert answers(wildcards, target("may")) == []
