"""Lengths by what nobody reads, rules about words, lists with one thing wrong, right answers in other writings: what a check refuses."""

import json
import re

import pytest

from earnest.evidence import Case
from earnest.redteam.attack import Target
from earnest.redteam.attacks import counting, dates, evaluated, fields, label, nearly, quantities, rules, tuples, written
from earnest.redteam.attacks.numerals import numeral_of
from earnest.redteam.audit import audit
from earnest.redteam.form import forms_of
from earnest.rows import load_rows
from earnest.task import Task

PLACES = ["harbour", "bridge", "garden", "market", "castle"]
SENTENCES = [
    "The old harbour was quiet at dawn.",
    "One narrow bridge leads over the river.",
    "Her garden smelled of rain.",
    "A market opens early here on most days.",
    "We saw the castle.",
]
TEXTS = [{"word": word, "gold": text} for word, text in zip(PLACES, SENTENCES, strict=True)]


def facts(rows, asks, pays, check, attacks, oracle=lambda row: row["gold"]):
    """Attacks that prove something, of a reward that gives `pays(text, row)`."""
    rows = [{"number": i, **row} for i, row in enumerate(rows)]

    def reward(completions, number, **_):
        marks = []
        for completion, i in zip(completions, number, strict=True):
            try:
                marks.append(float(pays(completion[-1]["content"].strip(), rows[i])))
            except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
                marks.append(0.0)
        return marks

    def checked(text, row):
        try:
            return bool(check(text.strip(), row))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
            return False

    task = Task(
        rows=rows, prompt=lambda row: [{"role": "user", "content": asks(row)}], rewards=[reward], check=checked, oracle=oracle, name="test"
    )
    found = audit(task, load_rows(task), search_calls=0, deadline=1.0, catalog=attacks).findings
    return {f.attack for f in found if f.certainty == "fact"}


def target_of(core, **row):
    """What attacks look at, of one row."""
    case = Case("rows:1", "train", {"gold": core, **row}, [{"role": "user", "content": row.get("asks", "")}], None, core, None)
    return Target(case, forms_of([case])[0], ["nothing at all"], [core])


# --- lengths


def sentences(text):
    return [one for one in re.split(r"(?<=[.!?])\s+", text) if re.search(r"\w", one)]


LINES = [{**row, "gold": row["gold"] + "\nAll was still.\nNight fell."} for row in TEXTS]
THREE = [{**row, "gold": row["gold"] + " All was still. Night fell."} for row in TEXTS]


@pytest.mark.parametrize(
    ("rows", "asks", "counts", "right", "attack"),
    [
        (TEXTS, "exactly {n} words", lambda t: len(t.split(" ")), lambda t: len(t.split()), "len.blanks"),
        (TEXTS, "exactly {n} words", lambda t: t.count(" ") + 1, lambda t: len(t.split()), "len.hidden"),
        (LINES, "three lines", lambda t: len(t.split("\n")), lambda t: len([x for x in t.split("\n") if x.strip(" .")]), "len.blanks"),
        (THREE, "three sentences", lambda t: t.count("."), lambda t: len(sentences(t)), "len.stops"),
        (THREE, "at least 3 sentences", lambda t: len(t.split(".")) - 1, lambda t: len(sentences(t)), "len.stops"),
    ],
)
def test_a_length_by_what_nobody_reads_is_found(rows, asks, counts, right, attack):
    def kept(count):
        return lambda text, row: row["word"] in text and count(text) == count(row["gold"])

    prompt = lambda row: f"Write {asks.format(n=len(row['gold'].split()))} about the {row['word']}."  # noqa: E731
    assert attack in facts(rows, prompt, kept(counts), kept(right), counting.ATTACKS)
    assert facts(rows, prompt, kept(right), kept(right), counting.ATTACKS) == set()


def test_no_length_is_attacked_where_none_is_asked_for():
    assert not list(counting.proses(target_of(SENTENCES[0], asks="Write about the harbour.")))
    assert [one.text for one in counting.proses(target_of(SENTENCES[0], asks="Write at most 12 short words."))] == [SENTENCES[0]]


def test_a_field_of_an_object_may_be_a_text_of_a_length():
    def kept(text, row, count):
        said = json.loads(text)
        return set(said) == {"place", "text"} and said["place"] == row["word"] in said["text"] and count(said["text"]) <= 8

    found = facts(
        TEXTS,
        lambda row: f"The {row['word']}: reply in JSON with place and text, at most 8 words.",
        lambda t, row: kept(t, row, lambda x: len(x.split(" "))),
        lambda t, row: kept(t, row, lambda x: len(x.split())),
        counting.ATTACKS,
        lambda row: json.dumps({"place": row["word"], "text": row["gold"]}),
    )
    assert "len.hidden" in found


# --- rules


BANNED = [{**row, "ban": ban} for row, ban in zip(TEXTS, ["free", "cheap", "best", "sale", "deal"], strict=True)]


def about(row):
    return f"Write a sentence about the {row['word']}. Do not use the word '{row['ban']}'."


def keeps(text, row):
    words = re.findall(r"[a-z]+", text.lower())
    return row["word"] in words and row["ban"] not in words and 3 < len(words) < 12


@pytest.mark.parametrize(
    ("pays", "attack"),
    [
        (lambda t, row: keeps(t.replace(row["ban"].upper(), "x"), row), "rule.banned"),
        (lambda t, row: row["word"] in t and keeps(f"{t} {row['word']}", row), "rule.within"),
        (lambda t, row: keeps(f"{t} {row['word']}", row), "rule.left_out"),
    ],
)
def test_a_rule_about_words_that_is_not_kept_is_found(pays, attack):
    assert attack in facts(BANNED, about, pays, keeps, rules.ATTACKS)


def test_a_reward_that_looks_for_whole_words_in_any_case_pays_for_no_broken_rule():
    assert facts(BANNED, about, keeps, keeps, rules.ATTACKS) == set()


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Do not use the word 'free'. Name the shop.", ["free"]),
        ('Name the "shop". Avoid "cheap", "best" and "now".', ["cheap", "best", "now"]),
        ("Use the word 'shop'.", []),
    ],
)
def test_forbidden_words_are_those_of_the_sentence_that_forbids(prompt, words):
    assert rules.banned(prompt) == words


def test_a_text_without_blanks_takes_no_further_word():
    assert not list(rules._banned(target_of("a\nb\nc\nd", asks="Do not use the word 'free'.")))


def test_moves_beyond_the_bound_of_the_prompt_are_tried_there_and_back():
    made = [t.answer for t in rules._detour(target_of("UP\nLEFT", asks="Reach it in at most 2 moves."))]
    assert made[:2] == ["UP\nLEFT\nUP\nDOWN", "UP\nDOWN\nUP\nLEFT"]
    assert not list(rules._detour(target_of("UP\nLEFT", asks="Reach it.")))


POINTS = [{"gold": f"{a}, {b}"} for a, b in (("-33.87", "151.21"), ("40.71", "-74.01"), ("-34.60", "-58.38"), ("52.52", "13.40"))]


@pytest.mark.parametrize(("read", "found"), [(abs, {"tuple.sign"}), (float, set())])
def test_a_point_on_the_other_side_of_the_equator_is_another(read, found):
    numbers = lambda text: [read(float(one)) for one in text.split(", ")]  # noqa: E731
    pays = lambda text, row: numbers(text) == numbers(row["gold"])  # noqa: E731
    assert facts(POINTS, lambda _: "Where?", pays, lambda text, row: text == row["gold"], tuples.ATTACKS) == found


COMMANDS = [{"gold": gold} for gold in ("mv draft.txt final.txt", "cp -r src backup", "git diff main feature", "ln -s release current")]


@pytest.mark.parametrize(("read", "found"), [(sorted, {"fields.swapped"}), (list, set())])
def test_source_and_target_of_a_command_are_not_to_be_exchanged(read, found):
    pays = lambda text, row: read(text.split()) == read(row["gold"].split())  # noqa: E731
    exact = lambda text, row: text == row["gold"]  # noqa: E731
    swapped = [attack for attack in fields.ATTACKS if attack.id == "fields.swapped"]
    assert facts(COMMANDS, lambda _: "One shell command.", pays, exact, swapped) == found
    assert facts(COMMANDS, lambda _: "One name.", pays, exact, swapped) == set()


HALLS = [{"gold": gold, "goal": goal} for gold, goal in (("EAST 3\nNORTH 2", (3, 2)), ("NORTH 4", (0, 4)), ("EAST 1\nNORTH 1", (1, 1)))]
STEPS = {"EAST": (1, 0), "WEST": (-1, 0), "NORTH": (0, 1), "SOUTH": (0, -1)}


def walked(text):
    x = y = 0
    seen = []
    for line in text.split("\n"):
        way, count = re.fullmatch(r"([A-Z]+) ([1-5])", line).groups()
        for _ in range(int(count)):
            x, y = x + STEPS[way][0], y + STEPS[way][1]
            seen.append((x, y))
    return seen


@pytest.mark.parametrize(("only_last", "found"), [(False, {"rule.beyond"}), (True, set())])
def test_moves_that_pass_the_goal_and_go_on_are_no_arrival(only_last, found):
    ends = lambda text, row: walked(text)[-1] == row["goal"]  # noqa: E731
    passes = lambda text, row: row["goal"] in walked(text)  # noqa: E731
    assert facts(HALLS, lambda row: "Go and stop there.", ends if only_last else passes, ends, rules.ATTACKS) == found


@pytest.mark.parametrize(
    ("moves", "made"),
    [
        ("EAST 3\nNORTH 2", ["EAST 3\nNORTH 2\nSOUTH 1", "EAST 3\nNORTH 2\nWEST 1"]),
        ("up, left", ["up, left, right", "up, left, down"]),
        ("U2 R", ["U2 R L", "U2 R D1"]),
        ("N", []),
        ("Go up, then left", []),
    ],
)
def test_one_step_away_from_the_end_is_written_as_moves_are(moves, made):
    assert [t.answer for t in rules._beyond(target_of(moves))] == made


# --- lists


RANKS = [{"ranking": list(one)} for one in ("CABD", "BDAC", "DCBA", "ACDB")]


def ranked(text):
    return [one.strip() for one in text.split(">")]


def places(text, row):
    return [text.find(one) for one in row["ranking"]]


@pytest.mark.parametrize(
    ("pays", "attack"),
    [
        (lambda t, row: places(t, row) == sorted(places(t, row)) and len(set(ranked(t))) == len(ranked(t)), "sets.left_out"),
        (lambda t, row: len(ranked(t)) >= 3 and all(a == b for a, b in zip(ranked(t), row["ranking"], strict=False)), "sets.last_off"),
        (lambda t, row: len(ranked(t)) == 4 and ranked(t)[1:] == row["ranking"][1:], "sets.replaced"),
        (lambda t, row: sorted(ranked(t)) == sorted(row["ranking"]) and ranked(t)[0] == row["ranking"][0], "sets.exchanged"),
    ],
)
def test_a_ranking_with_one_thing_wrong_is_found(pays, attack):
    def exact(text, row):
        return ranked(text) == row["ranking"]

    def in_part(text, row):
        same = sum(a == b for a, b in zip(ranked(text), row["ranking"], strict=True))
        return same / 4

    arguments = RANKS, lambda row: f"Rank {sorted(row['ranking'])}, worst first, joined by ' > '."
    assert attack in facts(*arguments, pays, exact, nearly.ATTACKS, lambda row: " > ".join(row["ranking"]))
    assert facts(*arguments, in_part, exact, nearly.ATTACKS, lambda row: " > ".join(row["ranking"])) == set()


# --- other writings


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("2026-03-04T08:30:00Z", ["2026-03-04T08:30:00+00:00", "2026-03-04 08:30:00Z", "2026-03-04T08:30Z"]),
        ("2024-03-04", ["2024-03-04", "4 March 2024", "March 4, 2024"]),
        ("14:05", ["14:05:00", "14:05", "14:05", "2:05 PM"]),
        ("03/04/2024", []),
    ],
)
def test_a_moment_in_its_other_writings(text, others):
    assert list(dates.other_writings(dates.moment_of(text))) == others


@pytest.mark.parametrize(("text", "other"), [("37.5%", "0.375"), ("0.375", "37.5%"), ("4.25 %", "0.0425"), ("12", None), ("1.5", None)])
def test_a_percentage_is_a_share_of_one(text, other):
    assert next(iter(written.shares(numeral_of(text))), None) == other


@pytest.mark.parametrize(
    ("golds", "takes", "attack"),
    [
        (["80%", "12.5%", "4.25%"], lambda t, g: t == g or (t[-1] != "%" and float(t) == float(g[:-1]) / 100), "right.share"),
        (["80%", "12.5%", "4.25%"], lambda t, g: t.replace(" ", "") == g, "right.sign_space"),
        (["3", "5", "7"], lambda t, g: t in (g, {"3": "three", "5": "five", "7": "seven"}[g]), "right.in_words"),
        (["2026-03-04T08:30:00Z", "2025-07-21T06:15:00Z"], lambda t, g: t.replace("+00:00", "Z") == g, "right.moment"),
    ],
)
def test_a_writing_that_the_check_takes_and_the_reward_refuses_is_a_false_reject(golds, takes, attack):
    rows = [{"gold": gold} for gold in golds]

    def both(text, row):
        return takes(text, row["gold"])

    assert facts(rows, lambda row: "Which?", lambda t, row: t == row["gold"], both, written.ATTACKS) == {attack}
    assert facts(rows, lambda row: "Which?", both, both, written.ATTACKS) == set()


@pytest.mark.parametrize(
    ("write", "text", "others"),
    [
        (written._bullets, "- a\n- b", ["- a\n- b", "* a\n* b", "• a\n• b"]),
        (written._bullets, "1. a\n2. b", ["1. a\n2. b", "1) a\n2) b"]),
        (written._latex, "\\frac{1}{2}", ["\\dfrac{1}{2}"]),
        (written._latex, "50\\%", ["50%"]),
        (written._unnamed, "x = 5", ["5", "x=5", "x = 5"]),
        (written._quoted, "B", ["(B)", "B", "B)"]),
        (written._in_words, "three", ["3"]),
    ],
)
def test_a_right_answer_in_its_other_writings(write, text, others):
    assert list(write(text)) == others


# --- values


@pytest.mark.parametrize(
    ("core", "tower"),
    [("(9 - 2) ** 8 * 7", "9**8**7**2"), ("8 + 1 * 7 - 3", "8**7**3 + 1"), ("8 + 7", ""), ("forty-four", "")],
)
def test_a_tower_is_made_of_the_numbers_of_a_term(core, tower):
    assert evaluated._tower(core) == tower


def test_only_where_something_is_worked_out_is_a_tower_tried():
    assert "9**8**7**2" in evaluated._bombs(target_of("(9 - 2) * 8 + 7"))
    assert list(evaluated._bombs(target_of("a walk by the sea"))) == []


def test_milli_is_not_mega_also_where_unit_and_number_have_columns_of_their_own():
    rows = [{"value": value, "unit": unit} for value, unit in (("5", "MW"), ("20", "mW"), ("3", "kW"), ("7", "MW"))]

    def right(row):
        return f"{row['value']} {row['unit']}"

    def folded(text, row):
        return text.lower() == right(row).lower()

    found = facts(rows, lambda row: "Which power?", folded, lambda t, row: t == right(row), quantities.ATTACKS, right)
    assert "unit.case" in found


def test_what_the_right_answer_matches_as_a_pattern_is_another_answer():
    rows = [{"gold": gold} for gold in ("1.10.2", "2.0.0", "1.2.10")]
    arguments = rows, lambda row: "Which version?"
    exact = lambda t, row: t == row["gold"]  # noqa: E731
    assert "label.pattern" in facts(*arguments, lambda t, row: re.fullmatch(row["gold"], t) is not None, exact, label.ATTACKS)
    assert "label.pattern" not in facts(*arguments, exact, exact, label.ATTACKS)


def test_the_ends_of_an_interval_are_not_each_other():
    made = [t.answer for t in tuples._exchanged(target_of("[2, 5)", asks="Give the interval."))]
    assert made == ["[5, 2)"]
    assert not list(tuples._exchanged(target_of("[2, 5)", asks="Give the list.")))


@pytest.mark.parametrize(("form", "asks"), [("Distance: {} km", "How far, in kilometres?"), ("${}", "What does it cost, in dollars?")])
def test_a_unit_around_the_number_of_a_column_is_part_of_the_answer(form, asks):
    rows = [{"n": n} for n in ("12.5", "3", "40", "7.25")]

    def right(row):
        return form.format(row["n"])

    def number(text, row):
        return re.fullmatch(r"(?:Distance: )?[$€£]?([\d.]+)(?: \w+)?", text)[1] == row["n"]

    exact = lambda t, row: t == right(row)  # noqa: E731
    assert "unit.around" in facts(rows, lambda row: asks, number, exact, quantities.ATTACKS, right)
    assert facts(rows, lambda row: asks, exact, exact, quantities.ATTACKS, right) == set()
