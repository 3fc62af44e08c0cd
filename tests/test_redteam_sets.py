"""Lists of labels, citations, and the forms that prompts ask for: what is tried, what is granted, and how forms are read."""

import itertools
import json
import textwrap
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_redteam_vacant import target

from earnest.redteam.adapters import task_of
from earnest.redteam.asked import objects_in
from earnest.redteam.attacks import citations, label, sets
from earnest.redteam.audit import audit
from earnest.redteam.listed import in_order, joint, mark_of, parts
from earnest.redteam.shapes import gold_of
from earnest.rows import load_rows

ASKED = "Name all labels that apply, out of bug, cost, fast, vip. Write them comma-separated, in any order.\n\nTicket {}"
GOLDS = [["bug", "cost"], ["fast"], ["cost", "fast", "vip"], ["bug", "vip"], ["cost"], ["bug", "fast"]]
LISTS = [{"prompt": ASKED.format(i), "labels": gold} for i, gold in enumerate(GOLDS)]


def project(folder, source, rows):
    """A file with a reward and one with rows."""
    (folder / "r.py").write_text(textwrap.dedent(source))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "r.py"), folder / "rows.jsonl"


def overlap(body, read="{x.strip() for x in c.split(',')}"):
    """A reward on what an answer names (`said`) and what is right (`gold`), a list each."""
    return f"""
        import json, re

        def reward(completions, labels, **_):
            marks = []
            for c, gold in zip(completions, labels):
                said = {read}
                marks.append(float({body}) if c.strip() else 0.0)
            return marks
        """


def found(folder, source, rows, attacks):
    """The attacks that found something, and what the right answer of the first row is taken to be."""
    task = task_of(*project(folder, source, rows))
    return {(one.attack, one.certainty) for one in audit(task, load_rows(task), search_calls=0, catalog=attacks).findings}, task


SEEN = "[x.strip() for x in c.split(',')]"


@pytest.mark.parametrize(
    ("body", "read", "attack"),
    [
        ("len({*said} & {*gold}) / len(gold)", SEEN, "sets.all"),
        ("len({*said} & {*gold}) / len({*said})", SEEN, "sets.one"),
        ("min(1, sum(x in gold for x in said) / len(gold)) - 0.5 * sum(x not in gold for x in said)", SEEN, "sets.again"),
        ("said == list(gold)", SEEN, "sets.any_order"),
    ],
)
def test_a_list_is_paid_for_what_its_measure_forgets(body, read, attack, tmp_path):
    facts, task = found(tmp_path, overlap(body, read), LISTS, sets.ATTACKS)
    assert task.oracle(LISTS[0]) == "bug, cost"
    assert (attack, "fact") in facts


@pytest.mark.parametrize(
    "body",
    [
        "2 * len({*said} & {*gold}) / (len({*said}) + len(gold))",
        "len({*said} & {*gold}) / len({*said} | {*gold})",
        "len({*said}) == len(said) and max(0, sum(1 if x in gold else -1 for x in said) / len(gold))",
        "sum(1 if x in gold else -1 for x in {*said}) / len(gold)",
        "1 - len({*said} ^ {*gold}) / 4",
        "sorted(said) == sorted(gold)",
    ],
)
def test_measures_that_weigh_what_is_added_and_what_is_missing_pay_no_attack_on_lists(body, tmp_path):
    facts, _ = found(tmp_path, overlap(body, SEEN), LISTS, sets.ATTACKS)
    assert {attack for attack, certainty in facts if certainty == "fact" and attack.startswith("sets.")} == set()


@given(st.integers(1, 8), st.integers(0, 8), st.integers(0, 12))
def test_a_list_is_granted_what_f1_and_right_minus_wrong_would_pay_it(whole, right, wrong):
    right = min(whole, right)
    listing = sets.Listing(tuple(range(whole)), tuple(range(100, 112)), whole, str)
    said = [*range(right), *range(100, 100 + wrong)]
    due = listing.due(said)
    assert due <= sets.NEARLY
    f1 = 2 * right / (whole + len(said))
    assert due >= min(sets.NEARLY, f1) and due >= min(sets.NEARLY, (right - wrong) / whole)


def test_a_field_with_a_list_is_attacked_beside_right_fields(tmp_path):
    rows = [{"prompt": 'JSON: {"labels": ["..."], "reason": "<why>"}', "labels": gold} for gold in GOLDS]
    read = "(json.loads(c) if c[:1] == '{' else {}).get('labels', [])"
    facts, task = found(tmp_path, overlap("len({*said} & {*gold}) / len(gold)", read), rows, sets.ATTACKS)
    assert json.loads(task.oracle(rows[0]))["labels"] == ["bug", "cost"]
    assert ("sets.all", "fact") in facts
    assert task.check('{"labels": ["cost", "bug"], "reason": "I know."}', rows[0]).correct
    assert not task.check('{"labels": ["cost"], "reason": "I know."}', rows[0]).correct


def test_an_order_that_the_prompt_asks_for_is_to_be_kept(tmp_path):
    ranks = [["elephant", "horse", "mouse"], ["ocean", "lake"], ["year", "week", "day"], ["ton", "gram"]]
    rows = [{"prompt": f"Rank from largest to smallest, joined by >: {sorted(gold)}", "labels": " > ".join(gold)} for gold in ranks]
    loose = "sorted(c.split(' > ')) == sorted(gold.split(' > '))"
    assert ("sets.reversed", "fact") in found(tmp_path, overlap(loose), rows, sets.ATTACKS)[0]
    assert found(tmp_path, overlap("c == gold"), rows, sets.ATTACKS)[0] == set()


def test_a_ranking_of_another_row_that_ties_make_right_on_one_is_a_lead(tmp_path):
    """Two of ten rows share a ranking but for a tie, which the prompt lets stand either way: only the reward knows the marks."""
    ranks = [" > ".join(order) for order in itertools.islice(itertools.permutations("abcde"), 0, 90, 9)]
    rows = [
        {"prompt": f"{i}: rank from best to worst, joined by >; equals may stand in either order.", "labels": r}
        for i, r in enumerate(ranks)
    ]
    tied = ranks[1].split(" > ")
    loose = f"c == gold or (gold == {ranks[0]!r} and sorted(c.split(' > ')) == {sorted(tied)!r} and c == {ranks[1]!r})"
    facts, _ = found(tmp_path, overlap(loose), rows, ())
    assert ("honest.wrong", "lead") in facts


def test_an_alphabetical_order_says_nothing_so_that_its_lack_is_a_question(tmp_path):
    pairs = [["billing", "refund"], ["login", "sso"], ["cost", "bug"], ["outage", "speed"], ["access", "mobile"]]
    rows = [{"prompt": f"All labels that apply to {i}, separated by commas, in alphabetical order.", "labels": ", ".join(sorted(gold))}
            for i, gold in enumerate(pairs)]  # fmt: skip
    facts, _ = found(tmp_path, overlap("sorted(c.split(', ')) == sorted(gold.split(', '))"), rows, sets.ATTACKS)
    assert ("sets.order", "lead") in facts and not [one for one in facts if one[1] == "fact"]


@pytest.mark.parametrize(
    ("prompt", "order"),
    [
        ("Give them in any order.", False),
        ("The order does not matter.", False),
        ("List them in alphabetical order.", True),
        ("Order these from heaviest to lightest.", True),
        ("Sort the words by length.", True),
        ("How do I sort my rubbish?", None),
        ("What is the rank of a captain in the army?", None),
        ("In order to help, read the text.", None),
        ("Give its two factors in either order.", False),
        ("Rank from best to worst; equal scores may stand in either order.", True),
        ("Where the query has an ORDER BY the order of the rows counts, otherwise it does not.", None),
        ("The order counts only if the list is ranked.", None),
        ("Capitals and order do not matter.", False),
        ("Order, in which you name them, is free.", False),
        ("The order of the names is not scored.", False),
        ("Names are compared as a set.", False),
        ("Ignoring case and order, all names must be there.", False),
        ("The order number does not count.", None),
        ("Keep them in alphabetical order, do not count twice.", True),
    ],
)
def test_an_order_is_that_of_the_items(prompt, order):
    assert in_order([prompt]) is order


WORD = st.text("abcdefg", min_size=1, max_size=6)


@given(st.lists(WORD, min_size=2, max_size=6), st.sampled_from([", ", "; ", "\n", " | ", " > ", "\n- ", " and "]))
def test_a_list_is_read_as_it_was_joined(items, between):
    mark = mark_of([between.join(items)])
    assert parts(between.join(items), mark) == items
    assert joint(between.join(items), mark) == between


@given(st.lists(st.integers(1, 20), min_size=2, max_size=5), st.sampled_from(["", " ", ", "]))
def test_citations_alone_are_a_list_however_they_are_joined(numbers, between):
    items = [f"[{number}]" for number in numbers]
    text = between.join(items)
    mark = mark_of([text, "[3]"])
    assert (parts(text, mark), joint(text, mark)) == (items, between)
    assert mark_of([f"{text} say so", "[3]"]) in ("", ",")  # with words beside them they are a text


def test_a_number_is_no_list():
    assert mark_of(["1,000", "25,300"]) == ""


# citations

PASSAGES = "[1] The tower is 330 m tall.\n[2] The bridge opened in 1931.\n[3] The canal is 82 km long.\n[4] The dam is old."
CITED = [
    {"prompt": f"{PASSAGES}\n\nCite what you used. Question {i}", "answer": a} for i, a in enumerate(["330 m [1]", "1931 [2]", "82 km [3]"])
]
CITES = """
    import re

    def reward(completions, answer, **_):
        def apart(text):
            return re.sub(r"\\[\\d+\\]", "", text).strip(), set(re.findall(r"\\[(\\d+)\\]", text))
        pairs = [(apart(c), apart(a)) for c, a in zip(completions, answer)]
        return [float(said == words and PAID) for (said, cited), (words, need) in pairs]
    """


ALONE = """
    import re

    def reward(completions, cited, **_):
        found = [[int(n) for n in re.findall(r"\\[(\\d+)\\]", c)] for c in completions]
        assert all(0 < n < 5 for cites in found for n in cites) or not %s
        return [float(set(cites) == set(gold)) for cites, gold in zip(found, cited)]
    """


@pytest.mark.parametrize(("breaks", "facts"), [(True, {"fault.raised"}), (False, set())])
@pytest.mark.parametrize("beside", ["You may add a short explanation.", "You may say why in a sentence."])
def test_citations_that_stand_alone_are_passages_and_no_words(breaks, facts, beside, tmp_path):
    prompt = f"{PASSAGES}\n\nCite the sources as in [2] or [1][3], in any order. {beside} Question %d."
    rows = [{"prompt": prompt % i, "cited": cited} for i, cited in enumerate([[1], [2, 3], [1, 4], [3]])]
    attacks = (*citations.ATTACKS, *label.ATTACKS, *sets.ATTACKS)
    assert {attack for attack, certainty in found(tmp_path, ALONE % breaks, rows, attacks)[0] if certainty == "fact"} == facts


@pytest.mark.parametrize(
    ("paid", "attacks"),
    [
        ("need <= cited", {"cites.all", "cites.unreal"}),
        ("bool(cited)", {"cites.all", "cites.unreal", "cites.other"}),
        ("True", {"cites.all", "cites.unreal", "cites.other", "cites.none"}),
        ("need == cited", set()),
    ],
)
def test_citations_count_as_they_are_looked_at(paid, attacks, tmp_path):
    facts, _ = found(tmp_path, CITES.replace("PAID", paid), CITED, citations.ATTACKS)
    assert {attack for attack, certainty in facts if certainty == "fact" and attack.startswith("cites.")} == attacks


# forms


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ('{"reasoning": "<why>", "answer": "a|b", "confidence": 0.0-1.0}', ["reasoning", "answer", "confidence"]),
        ("{answer: <number>, steps: [..]}", ["answer", "steps"]),
        ('```json\n{\n  "ok": true/false,\n  "at": {"x": 1}\n}\n```', ["ok", "at"]),
        ("A JSON object with the keys label (one of a, b) and why.", ["label", "why"]),
        ('JSON with "label" and "why".', ["label", "why"]),
        ("Write \\boxed{}, and no set {x | x > 3}.", []),
        ('Open brackets {{{{ and "keys": are no object', []),
    ],
)
def test_the_fields_of_an_object_that_a_prompt_asks_for(prompt, fields):
    assert [list(one) for one in objects_in([prompt])] == ([fields] if fields else [])


def test_what_prompts_do_not_share_is_no_form():
    assert objects_in(['{"a": 1}', '{"b": 1}']) == []


KINDS = ["bug", "cost", "bug", "idea", "cost", "idea"]
LEVELS = ["low", "high", "high", "low", "low", "high"]
TRIAGE = [{"kind": kind, "level": level} for kind, level in zip(KINDS, LEVELS, strict=True)]


@pytest.mark.parametrize(
    ("says", "read", "oracle"),
    [
        ('JSON with the keys "kind", "level" and "why".', "json.loads(c)", None),
        (
            "Two lines:\nKind: <bug, cost or idea>\nLevel: <low or high>",
            "dict(l.lower().split(': ') for l in c.split('\\n'))",
            "Kind: bug\nLevel: low",
        ),
        ("<kind>bug</kind>\n<level>low</level>", "dict(re.findall(r'<(\\w+)>(.*?)</', c))", "<kind>bug</kind>\n<level>low</level>"),
    ],
)
def test_a_right_answer_may_stand_in_several_columns(says, read, oracle, tmp_path):
    source = f"""
        import json, re

        def reward(completions, kind, level, **_):
            marks = []
            for c, k, l_ in zip(completions, kind, level):
                try:
                    said = {read}
                    marks.append(0.5 * (said["kind"] == k) + 0.5 * (said["level"] == l_))
                except Exception:
                    marks.append(0.0)
            return marks
        """
    rows = [{"prompt": f"{says}\nTicket {i}", **row} for i, row in enumerate(TRIAGE)]
    task = task_of(*project(tmp_path, source, rows))
    right, wrong = task.oracle(rows[0]), task.oracle(rows[1])
    assert right == oracle or (oracle is None and json.loads(right).items() >= {"kind": "bug", "level": "low"}.items())
    assert task.check(right, rows[0]).correct and not task.check(wrong, rows[0]).correct


def test_columns_and_fields_of_a_right_answer_are_named_in_one():
    row = {"kind": "bug", "is_urgent": True, "info": {"label": "x"}}
    assert gold_of(row, "kind,urgent=is_urgent") == {"kind": "bug", "urgent": True}
    assert gold_of(row, "label=info.label") == {"label": "x"}


FORMED = [
    (
        '{"why": "...", "result": <integer>}',
        "type(json.loads(c)['result']) is int and json.loads(c)['result'] == int(a) and json.loads(c)['why']",
    ),
    (
        '<answer>{"result": 12}</answer>',
        "json.loads(c.removeprefix('<answer>').removesuffix('</answer>')) == {'result': int(a)} and c[0] == '<'",
    ),
    ("<label>a number</label>\n<reason>why</reason>", "re.fullmatch(r'<label>(.*)</label>\\s*<reason>[^<]+</reason>', c)[1] == a"),
    ("Number: <n>\nReason: <one sentence>", "re.fullmatch(r'Number: (.*)\\nReason: .+', c)[1] == a"),
    ("Finish with the number in brackets, like [[7]].", "c.endswith(f'[[{a}]]')"),
]


@pytest.mark.parametrize(("says", "paid"), FORMED)
def test_a_form_is_read_from_the_prompt_with_what_may_be_said_beside_the_answer(says, paid, tmp_path):
    source = f"""
        import json, re

        def reward(completions, solution, **_):
            marks = []
            for c, a in zip(completions, solution):
                try:
                    marks.append(float(bool({paid})))
                except Exception:
                    marks.append(0.0)
            return marks
        """
    rows = [{"prompt": f"What is {i} + 4?\n{says}", "solution": str(i + 4)} for i in range(6)]
    task = task_of(*project(tmp_path, source, rows))
    for row, other in itertools.pairwise(rows):
        assert task.check(task.oracle(row), row).correct and not task.check(task.oracle(other), row).correct


def test_reasons_beside_an_answer_may_be_worded_in_any_way(tmp_path):
    source = """
        def reward(completions, solution, **_):
            return [float(f"<label>{a}</label>" in c and "<reason>" in c) for c, a in zip(completions, solution)]
        """
    rows = [{"prompt": f"{i} + 4?\n<label>number</label>\n<reason>why</reason>", "solution": str(i + 4)} for i in range(6)]
    task = task_of(*project(tmp_path, source, rows))
    assert task.check("<label>4</label> <reason>I count.</reason>", rows[0]).correct
    assert not task.check("<label>4</label> <reason></reason>", rows[0]).correct
    assert not task.check("<label>5</label> <reason>I count to 4.</reason>", rows[0]).correct


def test_marks_that_are_relative_to_the_batch_are_audited_and_found_unsteady(tmp_path):
    source = """
        def reward(completions, solution, **_):
            raw = [float(c == a) for c, a in zip(completions, solution)]
            mean = sum(raw) / len(raw)
            return [r - mean for r in raw]
        """
    rows = [{"prompt": f"{i} + 4?", "solution": str(i + 4)} for i in range(6)]
    assert ("fault.unsteady", "fact") in found(tmp_path, source, rows, ())[0]


def test_a_label_in_a_dictionary_of_the_row_is_the_right_answer(tmp_path):
    source = "def reward(completion, info, **_):\n    return float(completion[-1]['content'] == info['label'])\n"
    rows = [{"question": f"Ticket {i}", "info": {"label": kind, "from": "x"}} for i, kind in enumerate(KINDS)]
    assert task_of(*project(tmp_path, source, rows)).oracle(rows[0]) == "bug"


HEADED = [f"|sku|n|\n|---|---|\n{rows}" for rows in ("|AB-1|4|\n|AB-3|2|", "|CD-1|9|", "|EF-7|1|\n|EF-8|3|\n|EF-9|5|")]


def test_the_head_of_a_table_is_no_item_of_it():
    made = replace(target(HEADED[0], prompt="A table, rows in any order."), golds=HEADED)
    listing = sets.listings_of(replace(made, form=replace(made.form, core=HEADED[0], before="")))[0]
    assert listing.items == ("|AB-1|4|", "|AB-3|2|") and listing.wrong[0] == "|CD-1|9|"
    assert listing.put(listing.items[::-1]) == "|sku|n|\n|---|---|\n|AB-3|2|\n|AB-1|4|"


def test_what_all_lists_begin_with_is_an_item_where_nothing_would_be_left():
    lists = ["oak\nelm", "oak\nash", "oak"]
    assert sets.listings_of(target(lists[0], oracles=lists[1:], golds=lists, prompt="In any order."))[0].items == ("oak", "elm")


@pytest.mark.parametrize(("said", "certainty"), [("from first place to last place", "fact"), ("in alphabetical order", "lead")])
def test_standings_the_other_way_round_are_wrong_also_where_nobody_speaks_of_ranks(tmp_path, said, certainty):
    teams = [["Mink", "Vole", "Stoat"], ["Heron", "Dove", "Teal"], ["Otter", "Crane", "Swift"], ["Lynx", "Bear", "Wolf"]]
    rows = [{"prompt": f"Heat {i}. The crews {said}, separated by commas.", "labels": ", ".join(gold)} for i, gold in enumerate(teams)]
    facts, _ = found(tmp_path, overlap("c.split(', ') in (gold.split(', '), gold.split(', ')[::-1])"), rows, sets.ATTACKS)
    assert {one for one in facts if one[0] in ("sets.reversed", "sets.order")} == {
        ("sets.reversed" if certainty == "fact" else "sets.order", certainty)
    }
