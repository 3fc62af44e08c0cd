"""Opposites, sets so wide that all lies in them, and what was to be changed left as it was."""

import ipaddress
import itertools
import re
from fractions import Fraction

import pytest
from test_redteam_rules import facts
from test_redteam_vacant import answers, by_id, target

from earnest.redteam.attacks import intervals, opposites, words
from earnest.redteam.attacks.numerals import numeral_of

ENTRIES = [{"gold": f"Dr {a} {n}.00\nCr {b} {n}.00"} for a, b, n in (("Rent", "Bank", 40), ("Cash", "Sales", 7), ("Tools", "Loan", 95))]


@pytest.mark.parametrize(("sides", "found"), [(r"(Dr|Cr) ", {"opposite.words", "opposite.sides"}), (r"\A ", set())])
def test_an_entry_without_its_sides_is_paid_either_way_round(sides, found):
    same = lambda text: sorted(re.sub(sides, "", text).split("\n"))  # noqa: E731
    pays = lambda text, row: float(same(text) == same(row["gold"]))  # noqa: E731
    assert facts(ENTRIES, lambda _: "Post it.", pays, lambda text, row: text == row["gold"], opposites.ATTACKS) == found


def test_opposites_keep_their_capitals_and_a_label_of_one_word_is_left_to_others():
    turned = by_id(opposites, "opposite.words")
    assert answers(turned, target("BUY low, Sell high")) == ["SELL low, Buy high", "SELL low, Sell high", "BUY low, Buy high"]
    assert answers(turned, target("approve")) == []
    assert answers(turned, target("the upper left-hand drawer")) == []


def test_tags_of_two_sorts_change_places_where_that_says_something_else():
    tags = by_id(opposites, "opposite.tags")
    assert answers(tags, target("KEEP a\nDROP b\nDROP c")) == ["DROP a\nKEEP b\nKEEP c"]
    assert answers(tags, target("KEEP a\nDROP a")) == []


NETS = [{"gold": net} for net in ("10.1.0.0/22", "192.168.4.0/23", "172.16.8.0/21")]


@pytest.mark.parametrize(("tight", "found"), [(False, {"interval.everything"}), (True, set())])
def test_the_widest_network_covers_every_other(tight, found):
    def pays(text, row):
        try:
            said, gold = ipaddress.ip_network(text), ipaddress.ip_network(row["gold"])
        except ValueError:
            return 0.0
        return float(said == gold if tight else gold.subnet_of(said))

    assert facts(NETS, lambda _: "The narrowest.", pays, lambda text, row: text == row["gold"], intervals.ATTACKS) == found


@pytest.mark.parametrize(
    ("gold", "widest"),
    [
        ("fe80::/10", "::/0"),
        ("/srv/logs/app", "/"),
        (">=1.4.2, <2", "*"),
        ("4-9", "0-999999999"),
        ("2026-01-02/2026-02-01", "0001-01-01/9999-12-31"),
        ("09:00-10:30", "00:00-23:59"),
    ],
)
def test_what_is_widest_depends_on_what_the_answer_is(gold, widest):
    assert answers(by_id(intervals, "interval.everything"), target(gold))[0] == widest


TUNES = [
    {"gold": gold, "was": was} for gold, was in (("E4 F#4 G#4", "C4 D4 E4"), ("C5 D5 E5 G5", "G4 A4 B4 D5"), ("B3 D4 F#4", "A3 C4 E4"))
]
HEIGHTS = dict(zip(("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"), range(12), strict=True))


@pytest.mark.parametrize(("steps", "found"), [(True, {"words.unchanged"}), (False, set())])
def test_a_tune_compared_by_its_steps_need_not_be_transposed(steps, found):
    def heard(text):
        heights = [12 * int(note[-1]) + HEIGHTS.get(note[:-1], 0) for note in text.split() if re.fullmatch(r"[A-G]#?\d", note)]
        return [b - a for a, b in itertools.pairwise(heights)] if steps else heights

    def pays(text, row):
        return float(len(text.split()) == len(row["gold"].split()) and heard(text) == heard(row["gold"]))

    asked = lambda row: f"Transpose this up: {row['was']}. Notes with octaves."  # noqa: E731
    rows = [{"gold": row["gold"], "given": row["was"] + "!", "was": row["was"]} for row in TUNES]
    assert facts(rows, asked, pays, lambda text, row: text == row["gold"], [by_id(words, "words.unchanged")]) == found


def test_nothing_is_unchanged_where_nothing_was_to_be_changed():
    attack = by_id(words, "words.unchanged")
    assert answers(attack, target("E4 F#4 G#4", prompt="Transpose: C4 D4 E4.")) == ["C4 D4 E4"]
    assert answers(attack, target("E4 F#4 G#4", prompt="Which chord is C4 D4 E4?")) == []
    assert answers(attack, target("C4 D4 E4", prompt="Transpose by nothing: C4 D4 E4.")) == []


@pytest.mark.parametrize(
    ("number", "value", "said"),
    [
        ("72.00", 8, "8.00"),
        ("+72.00", -72, "-72.00"),
        ("-280.00", 280, "280.00"),
        ("+5", 7, "+7"),
        ("1,250.5", 31250, "31,250.0"),
        ("$6.80", "6.9", "$6.90"),
        ("1.5", "1.625", "1.625"),
        ("2e3", 4000, "4000"),
        ("1/2", "3/4", "3/4"),
    ],
)
def test_another_number_is_written_as_the_right_one_is(number, value, said):
    assert numeral_of(number).like(Fraction(value)) == said


def test_versions_beside_the_right_one_are_tried_unless_any_later_one_will_do():
    attack = by_id(intervals, "interval.versions")
    made = answers(attack, target("lib==1.4.10", prompt="The LOWEST version that is safe."))
    assert made[:2] == ["lib==1.4.11", "lib==1.4.999"] and "lib==999.0.0" in made
    assert answers(attack, target("lib==1.4.10", prompt="1.4.10 or later, please.")) == []
    assert answers(attack, target("10.0.0.1")) == answers(attack, target("1.5")) == []


@pytest.mark.parametrize(
    ("gold", "turned"),
    [
        ("DR Cash 500.00 / CR Sales 500.00", "DR Sales 500.00 / CR Cash 500.00"),
        ("Dr Rent 40.00\nCr Bank 40.00", "Dr Bank 40.00\nCr Rent 40.00"),
        ("Move 3 crates from Oslo to Bergen", "Move 3 crates from Bergen to Oslo"),
        ("auth -> billing", "billing -> auth"),
    ],
)
def test_sides_change_places(gold, turned):
    assert answers(by_id(opposites, "opposite.sides"), target(gold)) == [turned]


def test_sides_that_are_no_opposites_or_the_same_stay():
    sides = by_id(opposites, "opposite.sides")
    assert answers(sides, target("Dr Cash 5\nUp Bank 5")) == answers(sides, target("a -> a")) == answers(sides, target("a - b")) == []
