"""Attacks on values: quantities, terms, dates, and answers of several numbers; and how such values are read."""

import datetime
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from short_tasks import found, task_of

from earnest.redteam.attacks import arithmetic, dates, number, quantities, tuples
from earnest.redteam.attacks.dates import moment_of
from earnest.redteam.attacks.numerals import numeral_of, numerals_in, standing
from earnest.redteam.attacks.tuples import numbers_of
from earnest.redteam.attacks.units import ends_with, equal_to, others, quantity_of
from earnest.redteam.terms import alike, columns_first, made_of, solved, term_of

QUANTITIES = ("12 m/s", "2 kg", "300 Wh", "600 m", "15 J")
DATES = ("2026-03-04", "1998-07-11", "2023-08-01", "2019-10-09")
TIMES = ("14:30", "19:15", "08:50", "13:05")
POINTS = ("(3, 4)", "(4, -1)", "(2, 5)", "(1, -7)")
TERMS = ("3 * 5 + 7", "44 + 19 + 35", "2 * 6 + 9", "50 - 2 * 10")
VALUES = (*number.ATTACKS, *quantities.ATTACKS, *arithmetic.ATTACKS, *dates.ATTACKS, *tuples.ATTACKS)
UNIT = "Question {i}: how much? Give number and unit."
DATE = "Letter {i}: when was it? Answer with the date."
POINT = "Question {i}: where do they meet? Give the point (x, y)."


# how values are read


@pytest.mark.parametrize("text", ["15", "1.5", "-5", "5/7", "5 / 7", "2.5e3", "1,5", "5,6", "5^2", "5 × 10^3", "3-5", "5:30"])
def test_a_number_does_not_stand_in_another_number(text):
    assert not re.search(standing("5"), text)


@pytest.mark.parametrize("text", ["5", "x = 5.", "5, 6", "**5**", "(5)", "5!", "The answer: 5", "$5"])
def test_a_number_stands_where_it_is_whole(text):
    assert re.search(standing("5"), text)


def test_a_fraction_does_not_stand_in_its_negative_nor_a_unit_in_a_longer_one():
    assert not re.search(standing("3/4"), "-3/4") and not re.search(standing("3/4"), "13/4")
    assert not re.search(standing("5 km"), "5 km/h") and re.search(standing("5 km"), "5 km.")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("3/4 or -3/4", ["3/4", "-3/4"]),
        ("1,250 and 12,5", ["1250", "12", "5"]),
        ("y = -2.5e3", ["-2500"]),
        ("10-3", ["10", "3"]),
        ("²", []),
    ],
)
def test_numbers_in_a_text_are_read_whole(text, values):
    assert [n.value for n in numerals_in(text)] == [Fraction(v) for v in values]


@pytest.mark.parametrize(
    ("text", "value"), [("3.0e8", 300_000_000), ("6.02\\times 10^{2}", 602), ("1 1/2", Fraction(3, 2)), ("2e-1", Fraction(1, 5))]
)
def test_powers_of_ten_and_mixed_numbers_are_numerals(text, value):
    assert numeral_of(text).value == value


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("12 m/s", "12", "m/s"),
        ("3.5kg", "3.5", "kg"),
        ("5 apples", "5", "apples"),
        ("3.0 × 10^8 m/s", "3.0 × 10^8", "m/s"),
        ("40 €", "40", "€"),
    ],
)
def test_quantities_are_read(text, number, unit):
    own = quantity_of(text)
    assert (own.number, own.unit) == (number, unit) and own.of(number) == text


@pytest.mark.parametrize("text", ["12", "7th", "5 pm", "1990s", "5x", "10k", "14:30", "3 + 4", "12 Angry Men", "100%", "m/s", ""])
def test_what_is_no_quantity(text):
    assert quantity_of(text) is None


def test_quantities_are_equal_across_prefixes_and_spellings():
    assert quantity_of("2 km").base == quantity_of("2000 m").base == quantity_of("2 kilometres").base
    assert quantity_of("1.5 h").base == quantity_of("90 min").base != quantity_of("90 s").base
    assert equal_to(quantity_of("3.5 kg")) == "3500 g" and ends_with("So it is 3.5 kg.").unit == "kg"


@given(st.sampled_from(["km", "g", "mL", "min", "kJ", "V", "miles", "hours", "euros", "kJ/mol"]))
def test_other_units_are_others(unit):
    own = quantity_of(f"7 {unit}")
    assert others(unit) and all(quantity_of(f"7 {other}").base != own.base for other in others(unit))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), st.integers(1, 60))
def test_a_term_that_is_found_makes_the_goal_of_each_number_once(numbers, goal):
    text = made_of(tuple(numbers), goal)
    term = term_of(text)
    assert text == "" or (term.value == goal and Counter(term.operands) == Counter(numbers))


def test_terms_are_read_and_compared():
    assert term_of("3 × 4 − 1").value == 11 and term_of("98") is None and term_of("2**3") is None and term_of("1/0 + 1") is None
    assert alike("7 + 5 * 3", "3*5+7") and not alike("3 * 5 + 7", "22 + 0") and not alike("3 * 5 + 7", "3 + 5 * 7")
    assert term_of(solved({"nums": [3, 5, 7], "target": 22})).value == 22 and solved({"nums": [1, 1], "target": 9}) == ""


def test_of_a_puzzle_the_goal_is_not_taken_for_the_right_answer():
    row = {"nums": [3, 5, 7], "target": 22, "solution": "3 * 5 + 7"}
    assert columns_first(["target", "solution"], row) == ["solution", "target"]
    del row["solution"]
    assert columns_first(["target"], row) == ["nums,target", "target"]
    assert columns_first(["answer"], {"answer": "42"}) == ["answer"]


@given(st.dates(datetime.date(1000, 1, 1), datetime.date(9000, 1, 1)), st.sampled_from(["%Y-%m-%d", "%B %d, %Y", "%d %b %Y"]))
def test_dates_are_read_and_written_in_their_form(day, form):
    text = day.strftime(form)
    moment = moment_of(text)
    assert moment.day == day and moment.on(day) == text
    assert moment_of(moment.on(datetime.date(2001, 12, 31))).day == datetime.date(2001, 12, 31)


@given(st.integers(0, 1439))
def test_times_are_read_and_written_in_their_form(minutes):
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    half = f"{(minutes // 60 + 11) % 12 + 1}:{minutes % 60:02} {'pm' if minutes >= 720 else 'am'}"
    assert moment_of(text).minutes == moment_of(half).minutes == minutes
    assert moment_of(moment_of(half).at(minutes + 720)).minutes == (minutes + 720) % 1440


@pytest.mark.parametrize("text", ["2026-02-30", "25:10", "13:00 pm", "12", "soon", "2026-13-01"])
def test_what_is_no_date(text):
    assert moment_of(text) is None


def test_day_and_month_may_be_each_other_only_where_both_could():
    assert moment_of("04/03/2026").ambiguous and not moment_of("25/12/2026").ambiguous
    assert moment_of("12/25/2026").day == moment_of("25/12/2026").day


def test_answers_of_several_numbers():
    assert (
        [m.group() for m in numbers_of("(3, -4)")] == ["3", "-4"] and len(numbers_of("60-100")) == 2 and len(numbers_of("2 h 30 min")) == 2
    )
    assert not any(map(numbers_of, ("12", "3/4", "1,250", "2026-03-04", "3 + 4", "3 apples and 4 pears")))


# what is caught


def of_unit(text):
    read = re.fullmatch(r"\s*(-?\d{1,6}(?:\.\d{1,6})?)\s*(\S{1,9})\s*", text, re.ASCII)
    return (Fraction(read[1]), read[2]) if read else (None, None)


def of_date(text):
    read = re.fullmatch(r"\s*([0-9]{4})-([0-9]{2})-([0-9]{2})\s*", text)
    try:
        return datetime.date(*map(int, read.groups())) if read else None
    except ValueError:
        return None


def of_time(text):
    read = re.fullmatch(r"\s*([01]?[0-9]|2[0-3]):([0-5][0-9])\s*", text)
    return (int(read[1]), int(read[2])) if read else (None, None)


def of_half(text):
    hour, minute = of_time(text)
    return None if hour is None else (hour % 12, minute)


def of_point(text):
    read = re.fullmatch(r"\s*\(\s*(-?\d{1,3}),\s*(-?\d{1,3})\s*\)\s*", text, re.ASCII)
    return (int(read[1]), int(read[2])) if read else (None, None)


FLAWED = {
    "the unit is not read": (QUANTITIES, UNIT, lambda t, g: of_unit(t)[0] == of_unit(g)[0], "unit.other"),
    "the unit may be missing": (QUANTITIES, UNIT, lambda t, g: of_unit(t) == of_unit(g) or t.strip() == g.split()[0], "unit.missing"),
    "a quantity ten per cent off": (
        QUANTITIES,
        UNIT,
        lambda t, g: of_unit(t)[1] == of_unit(g)[1] and abs(of_unit(t)[0] / of_unit(g)[0] - 1) <= 0.1,
        "num.near",
    ),
    "the sign of a quantity": (QUANTITIES, UNIT, lambda t, g: of_unit(t.lstrip(" -")) == of_unit(g), "num.sign"),
    "day and month as a set": (DATES, DATE, lambda t, g: of_date(t) and set(re.findall(r"\d+", t)) == set(g.split("-")), "date.swapped"),
    "a day off": (DATES, DATE, lambda t, g: of_date(t) and abs((of_date(t) - of_date(g)).days) <= 1, "date.off"),
    "two digits of the year": (DATES, DATE, lambda t, g: of_date(t) and t.strip()[2:] == g[2:], "date.century"),
    "twelve hours": (TIMES, DATE, lambda t, g: of_half(t) == of_half(g), "date.half_day"),
    "the hour alone": (TIMES, DATE, lambda t, g: of_time(t)[0] == of_time(g)[0], "date.off"),
    "coordinates as a set": (POINTS, POINT, lambda t, g: set(of_point(t)) == set(of_point(g)), "tuple.exchanged"),
    "the first coordinate": (POINTS, POINT, lambda t, g: of_point(t)[0] == of_point(g)[0], "tuple.one_wrong"),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAWED)
def test_a_flawed_reward_for_values_is_caught(name):
    golds, ask, pay, expected = FLAWED[name]
    assert expected in found(task_of(golds, pay, ask=ask), VALUES)


SOUND = {
    "number and unit": (QUANTITIES, UNIT, lambda t, g: of_unit(t) == of_unit(g)),
    "most for the number": (QUANTITIES, UNIT, lambda t, g: 0.7 * (of_unit(t)[0] == of_unit(g)[0]) + 0.3 * (of_unit(t)[1] == of_unit(g)[1])),
    "closeness within a unit": (
        QUANTITIES,
        UNIT,
        lambda t, g: of_unit(t)[1] == of_unit(g)[1] and 1 / (1 + abs(float(of_unit(t)[0] / of_unit(g)[0]) - 1)),
    ),
    "parts of a date": (DATES, DATE, lambda t, g: of_date(t) and sum(map(str.__eq__, t.strip().split("-"), g.split("-"))) / 3),
    "closeness of dates": (DATES, DATE, lambda t, g: of_date(t) and 1 / (1 + abs((of_date(t) - of_date(g)).days) / 30)),
    "times": (TIMES, DATE, lambda t, g: of_time(t) == of_time(g)),
    "half a point": (POINTS, POINT, lambda t, g: sum(a == b for a, b in zip(of_point(t), of_point(g), strict=True)) / 2),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_reward_for_values_comes_out_clean(name):
    golds, ask, pay = SOUND[name]
    assert not [f for f in found(task_of(golds, pay, ask=ask), VALUES).values() if f.certainty == "fact"]


def test_a_unit_that_the_prompt_leaves_free_may_be_missing():
    loose = lambda t, g: of_unit(t) == of_unit(g) or t.strip() == g.split()[0]  # noqa: E731
    free = task_of(QUANTITIES, loose, ask="Question {i}: how much? The unit may be left out.", check=lambda t, row: loose(t, row["gold"]))
    assert found(free, quantities.ATTACKS) == {}


def puzzle(pay):
    """A task of terms, each out of its own numbers."""
    task = task_of(TERMS, lambda t, g: pay(t, term_of(g)), ask="{i}")
    rows = [{**row, "target": int(term_of(row["gold"]).value), "nums": list(term_of(row["gold"]).operands)} for row in task.rows]
    ask = "Make {} out of {}, using each number exactly once, with + - * / and brackets."
    return replace(task, rows=rows, prompt=lambda row: [{"role": "user", "content": ask.format(row["target"], row["nums"])}])


def evaluated(text):
    plain = re.fullmatch(r"[\d+\-*/() ]{1,100}", text, re.ASCII) and text.count("**") < 2
    try:
        return eval(text) if plain else None
    except Exception:
        return None


def integers(text):
    return [int(n) for n in re.findall(r"\d{1,9}", text)]


def digits(text):
    return sorted(re.findall(r"\d", text))


FLAWED_TERMS = {
    "a set of numbers": (lambda t, g: evaluated(t) == g.value and set(integers(t)) == set(g.operands), "term.again"),
    "only given numbers": (lambda t, g: evaluated(t) == g.value and set(integers(t)) <= set(g.operands), "term.again"),
    "the value alone": (lambda t, g: evaluated(t) == g.value, "term.foreign"),
    "the numbers alone": (lambda t, g: evaluated(t) is not None and sorted(integers(t)) == sorted(g.operands), "term.value"),
    "the digits": (lambda t, g: evaluated(t) == g.value and digits(t) == digits(str(g.operands)), "term.glued"),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAWED_TERMS)
def test_a_flawed_reward_for_terms_is_caught(name):
    pay, expected = FLAWED_TERMS[name]
    assert expected in found(puzzle(pay), arithmetic.ATTACKS)


@pytest.mark.parametrize("least", [0.0, 0.3])
def test_a_sound_reward_for_terms_comes_out_clean(least):
    def pay(text, gold):
        term = term_of(text)
        right = term is not None and Counter(term.operands) == Counter(gold.operands)
        return 0.0 if not right else 1.0 if term.value == gold.value else least

    assert found(puzzle(pay), VALUES) == {}
