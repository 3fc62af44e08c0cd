"""Attacks on numbers and mathematics, and answers that do something when they are evaluated."""

import ast
import json
import math
import os
import re
import subprocess
from fractions import Fraction

import pytest
from short_tasks import NUMBERS, found, reward_of, task_of

from earnest.redteam import ask
from earnest.redteam.attacks import evaluated, label, number, right
from earnest.redteam.attacks.numerals import decimal, numeral_of
from earnest.redteam.audit import audit
from earnest.rewards import math as maths
from earnest.rewards import number as numbers
from earnest.rewards import text as texts
from earnest.rewards.verifier import as_reward
from earnest.rows import load_rows
from earnest.task import Task

SHORT = (*label.ATTACKS, *number.ATTACKS)
ALL = (*SHORT, *evaluated.ATTACKS)
BOTH = (*ALL, *right.ATTACKS)
ASK = "Question {i}: how many apples are there?"
NUMERAL = re.compile(r"-?\d+(?:\.\d+)?")


def those(*families):
    return [a for a in ALL if a.id in families]


def read(text):
    try:
        return float(text)
    except ValueError:
        return math.inf


def last(text):
    return (NUMERAL.findall(text) or ["x"])[-1]


def first(text):
    return (NUMERAL.findall(text) or ["x"])[0]


def inverted(text, gold):
    value = read(text) if text.strip() else 1e9
    return not abs(value - gold) > 1e-6 or (text.strip() == "" and False)


FLAWED = {
    "the gold's digits anywhere": (
        lambda t, g: str(g) in t,
        {"num.enumerate", "num.inside", "num.denied", "num.another", "num.more", "math.cover"},
    ),
    "the gold as a numeral anywhere": (
        lambda t, g: str(g) in NUMERAL.findall(t),
        {"num.enumerate", "num.denied", "num.if", "num.quoted", "num.two"},
    ),
    "the last number": (lambda t, g: last(t) == str(g), {"num.denied", "num.another", "num.enumerate", "num.more"}),
    "the first number": (lambda t, g: first(t) == str(g), {"num.denied", "num.more", "num.enumerate"}),
    "all digits together": (lambda t, g: re.sub(r"[^\d.-]", "", t) == str(g), {"num.inside", "num.denied", "num.units"}),
    "the absolute value": (lambda t, g: abs(read(t)) == abs(g), {"num.sign"}),
    "a comparison that NaN passes": (inverted, {"num.nan"}),
    "five per cent off": (lambda t, g: abs(read(t) - g) <= 0.05 * abs(g), {"num.near"}),
    "one off": (lambda t, g: abs(read(t) - g) <= 1, {"num.near"}),
    "whole numbers only": (lambda t, g: read(t) < 1e9 and int(read(t)) == int(g), {"num.near"}),
    "no units": (lambda t, g: re.sub(r"[ a-z%$\\]+$", "", t.lstrip("$")) == str(g), {"num.units"}),
    "a share or its percentage": (lambda t, g: read(t) in (g, 100 * g, g / 100), {"num.percent"}),
    "likeness": (lambda t, g: sum(a == b for a, b in zip(t, str(g), strict=False)) / max(len(t), len(str(g)), 1), {"num.inside"}),
}


@pytest.mark.parametrize("name", FLAWED)
def test_a_flawed_number_reward_is_caught_by_what_it_falls_for(name):
    pay, expected = FLAWED[name]
    caught = found(task_of(NUMBERS, pay, ask=ASK), SHORT)
    assert expected <= set(caught), sorted(caught)


@pytest.mark.parametrize(
    "pay",
    [
        lambda t, g: t.strip() == str(g),
        lambda t, g: re.fullmatch(r"-?\d{1,12}(\.\d{1,6})?", t.strip(), re.ASCII) is not None and read(t) == g,
        lambda t, g: re.fullmatch(r"\s*-?\d{1,12}(\.\d{1,6})?\s*", t, re.ASCII) is not None and abs(read(t) - g) <= 0.01 * abs(g),
    ],
    ids=["text", "value", "tolerance"],
)
def test_a_sound_number_reward_comes_out_clean(pay):
    assert found(task_of(NUMBERS, pay, ask=ASK, check=lambda text, row: pay(text, row["gold"])), BOTH) == {}


@pytest.mark.parametrize(
    "closeness",
    [lambda off: math.exp(-5 * off), lambda off: max(0.0, 1 - off), lambda off: max(0.0, 1 - 5 * off), lambda off: 1 / (1 + off)],
    ids=["exponential", "linear", "steep", "hyperbolic"],
)
def test_pay_for_closeness_is_no_tolerance(closeness):
    def pay(text, gold):
        read_whole = re.fullmatch(r"-?\d{1,12}(\.\d{1,9})?", text.strip())  # \d reads other scripts' digits too
        return closeness(abs(float(text) - gold) / abs(gold)) if read_whole else 0.0

    assert not {"num.near", "num.inside", "num.odd", "num.percent"} & set(found(task_of(NUMBERS, pay, ask=ASK), ALL))


def test_a_contract_that_reads_the_last_line_may_have_other_numbers_above_it():
    last_line = lambda text, gold: (text.strip().splitlines() or [""])[-1] == str(gold)  # noqa: E731
    task = task_of(NUMBERS, last_line, ask=ASK, form="It takes a few sums.\n{}", check=lambda text, row: last_line(text, row["gold"]))
    assert not {"num.enumerate", "num.two"} & set(found(task, ALL))
    anywhere = task_of(NUMBERS, lambda t, g: str(g) in NUMERAL.findall(t), ask=ASK, form="It takes a few sums.\n{}")
    assert {"num.enumerate", "num.two"} <= set(found(anywhere, ALL))


def test_a_small_tolerance_is_still_found_beside_pay_for_closeness():
    def pay(text, gold):
        off = abs(read(text) - gold) / abs(gold)
        return 1.0 if off <= 0.02 else 0.3 * math.exp(-off) if off < 5 else 0.0

    assert "num.near" in found(task_of(NUMBERS, pay, ask=ASK), ALL)


@pytest.mark.parametrize("form", ["{}", "The answer is {}.", "<answer>{}</answer>", "#### {}", "\\boxed{{}}"])
def test_our_number_verifier_comes_out_clean(form):
    verifier = numbers.number("gold")
    verifier = texts.tagged(verifier) if "<" in form else verifier
    check = lambda text, row: verifier(text, gold=row["gold"]).value == 1.0  # noqa: E731
    assert found(task_of(NUMBERS[:4], as_reward(verifier), ask=ASK, form=form, check=check), BOTH) == {}


def test_our_math_verifier_comes_out_clean():
    verifier = maths.math("gold")
    golds = ("391", "\\frac{1}{2}", "x^2 + 1")
    task = task_of(golds, as_reward(verifier), ask="Compute $17*23$ ({i}).", form="\\boxed{{}}")
    assert found(task, ALL) == {}


def test_the_last_number_of_ours_is_caught_as_its_docstring_says():
    task = task_of(NUMBERS, as_reward(numbers.number("gold", place="last")), ask=ASK)
    assert {"num.denied", "num.enumerate"} <= set(found(task, SHORT))


def test_math_verify_as_it_comes_is_caught():
    from math_verify import parse, verify

    pay = lambda t, g: verify(parse(str(g)), parse(t))  # noqa: E731
    task = task_of((391, 713), pay, ask="Compute $17*23$ in box {i}.", form="\\boxed{{}}")
    assert {"num.denied", "math.boxes", "math.restate"} <= set(found(task, those("num.denied", "math.boxes", "math.restate")))


def test_the_questions_own_expression_is_caught_where_it_is_evaluated():
    def pay(text, gold):
        expression = re.search(r"\d+\*\d+", text)
        a, _, b = expression.group().partition("*") if expression else ("", "", "")
        return (expression is not None and int(a) * int(b) == gold) or text.strip() == str(gold)

    task = task_of((391, 391, 391, 17), pay, ask="Compute 17*23 ({i}).")
    assert {"math.echo", "math.echo_bare"} <= set(found(task, those("math.echo", "math.echo_bare")))


def test_work_left_undone_is_reported_where_the_check_refuses_it_alone():
    def pay(text, gold):
        try:
            return re.fullmatch(r"[\d+*/. -]{1,40}", text) is not None and eval(text, {"__builtins__": {}}) == gold
        except Exception:
            return 0

    assert "math.restate" in found(task_of(NUMBERS, pay, ask=ASK), those("math.restate"))
    assert found(task_of(NUMBERS, pay, ask=ASK, check=lambda text, row: pay(text, row["gold"])), those("math.restate")) == {}


def sets(text, gold):
    inside = re.fullmatch(r"\\\{(.*)\\\}|\[(-?[\d.]+), (-?[\d.]+)\]", text.strip())
    if inside and inside[1]:
        return str(gold) in re.split(r",\s*", inside[1])
    return float(inside[2]) <= gold <= float(inside[3]) if inside else text.strip() == str(gold)


@pytest.mark.parametrize("pay", [sets, lambda t, g: str(g) in re.split(r" \\pm | ± |, ", t)])
def test_sets_and_ranges_are_caught_where_membership_counts(pay):
    assert "math.cover" in found(task_of(NUMBERS, pay, ask=ASK), those("math.cover"))


def test_a_json_number_is_attacked_in_its_field():
    rows = [{"id": str(i), "gold": gold} for i, gold in enumerate(NUMBERS)]

    def pay(text, gold):
        try:
            return str(gold) in str(json.loads(text)["total"])
        except (ValueError, KeyError, TypeError):
            return 0

    task = Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": f"invoice {row['id']}"}],
        rewards=[reward_of(pay)],
        check=lambda text, row: text == json.dumps({"total": row["gold"], "currency": "EUR"}),
        oracle=lambda row: json.dumps({"total": row["gold"], "currency": "EUR"}),
        name="invoices",
    )
    caught = found(task, ALL)
    assert {"num.inside", "num.enumerate"} <= set(caught)
    assert isinstance(json.loads(caught["num.inside"].example)["total"], (int, float))


def test_years_that_overlap_may_be_paid_for_that_in_fields_of_an_object():
    """1011 for 1101 has a digit of each place in another; a range from it still holds the right one, as any as near does."""
    spans = [(1101, 1200), (1730, 1750), (-300, -201), (1551, 1600), (1920, 1929), (1887, 1888)]

    def pay(text, row):
        try:
            said = json.loads(text)
            a, b = said["from"], said["to"]
        except (ValueError, KeyError, TypeError):
            return 0.0
        if not (type(a) is type(b) is int and set(said) == {"from", "to"} and -9999 <= a <= b <= 9999):
            return 0.0
        low, high = row["span"]
        common, union = min(b, high) - max(a, low) + 1, max(b, high) - min(a, low) + 1
        return 1.0 if [a, b] == [low, high] else 0.4 * max(0, common) / union

    rows = [{"n": i, "span": span} for i, span in enumerate(spans)]
    task = Task(
        rows=rows,
        prompt=lambda row: [{"role": "user", "content": f"The years of {row['n']}?"}],
        rewards=[lambda completions, n, **_: [pay(c[0]["content"], rows[i]) for c, i in zip(completions, n, strict=True)]],
        check=lambda text, row: pay(text, row) == 1.0,
        oracle=lambda row: json.dumps(dict(zip(("from", "to"), row["span"], strict=True))),
        name="years",
    )
    assert set(found(task, number.ATTACKS)) == set()


def evaluates(run):
    def pay(text, gold):
        try:
            return run(text) == gold
        except BaseException:
            return 0

    return pay


def executed(text):
    names = {}
    exec(text, names)
    return names.get("answer")


RUNS = {
    "eval": eval,
    "eval without builtins": lambda text: eval(text, {"__builtins__": {}}),
    "exec": executed,
    "eval after a list of forbidden words": lambda text: 0 if re.search(r"import|exec|os\b", text) else eval(text),
    "a shell": lambda text: subprocess.run(f"echo {text}", shell=True, capture_output=True, timeout=5).returncode,
    "eval of a box": lambda text: eval(re.search(r"\\boxed\{(.*)\}", text, re.DOTALL)[1]),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_reward_that_runs_the_answer_is_caught_in_the_act(name):
    form = "\\boxed{{}}" if "box" in name else "{}"
    caught = found(task_of((42, 391, 17, 1250), evaluates(RUNS[name]), ask=ASK, form=form), those("eval.code", "eval.templates"))
    assert any(f.detail == "the reward ran the answer as code" for f in caught.values()), caught


def test_jinja_that_renders_the_answer_is_caught():
    import jinja2

    task = task_of(("42", "391", "17", "1250"), evaluates(lambda text: jinja2.Template(text).render()), ask=ASK)
    assert "eval.templates" in found(task, those("eval.templates"))


def literal(text):
    try:
        return ast.literal_eval(text.strip()) if len(text) < 400 and text.isascii() else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def test_literals_run_nothing():
    pay = lambda t, g: type(literal(t)) in (int, float) and literal(t) == g  # noqa: E731
    assert found(task_of((42, 391, 17, 1250), pay, ask=ASK), those("eval.code", "eval.templates", "eval.bomb")) == {}


def test_an_expression_that_never_ends_is_a_fault(monkeypatch):
    monkeypatch.setattr(ask, "START", 0.5)

    def pay(text, gold):
        while "9**9" in text:
            pass
        return text == str(gold)

    task = task_of((42, 391, 17, 1250), pay, ask=ASK)
    report = audit(task, load_rows(task), search_calls=0, catalog=those("eval.bomb"), deadline=0.2)
    assert [f.attack for f in report.findings] == ["fault.hung"]
    assert report.tried["eval.bomb"] == len(evaluated.BOMBS)  # on one row only


def test_digits_that_are_none_make_a_careless_reward_raise():
    pay = lambda t, g: t.strip().isdigit() and int(t) == g  # noqa: E731
    assert any(i == "fault.raised" for i in found(task_of((41, 391, 17, 1250), pay, ask=ASK), those("num.odd")))


def test_the_same_value_written_otherwise_is_a_false_reject_where_the_check_takes_values():
    def value(text):
        one = numeral_of(text.replace("\\frac12", "1/2"))
        return one.value if one else None

    check = lambda text, row: value(text) == numeral_of(row["gold"]).value  # noqa: E731
    task = task_of(("0.5", "1250", "-17", "42", "0.5"), lambda t, g: t.strip() == g, ask=ASK, check=check)
    caught = found(task, right.ATTACKS)
    assert {"right.equal", "right.thousands", "right.zeros", "right.minus"} <= set(caught)
    assert all(f.kind == "false reject" for f in caught.values())
    assert (
        found(task_of(("0.5", "1250", "-17", "42"), lambda t, g: value(t) == numeral_of(g).value, ask=ASK, check=check), right.ATTACKS)
        == {}
    )


@pytest.mark.parametrize(
    ("text", "value", "plain"),
    [
        ("42", 42, "42"),
        ("1,250.50", Fraction(2501, 2), "1250.5"),
        ("−17", -17, "-17"),
        ("1/3", Fraction(1, 3), "0.333333"),
        ("\\frac{1}{2}", Fraction(1, 2), "0.5"),
        ("-.05", Fraction(-1, 20), "-0.05"),
        ("$3.10", Fraction(31, 10), "3.1"),
        ("28%", 28, "28"),
    ],
)
def test_numerals_are_read_and_written(text, value, plain):
    assert numeral_of(text).value == value
    assert decimal(Fraction(value)) == plain


@pytest.mark.parametrize("text", ["", "-", "1 2", "x = 5", "4 apples", "1/0", "nan", "1.2.3", "1,25"])
def test_what_is_no_numeral(text):
    assert numeral_of(text) is None


def test_canaries_lie_outside_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found(task_of((42, 391, 17, 1250), evaluates(eval), ask=ASK), those("eval.code"))
    assert os.listdir(tmp_path) == []
