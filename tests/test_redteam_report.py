"""What an audit says on the console, in Markdown and HTML, in JSON and SARIF, and what a baseline remembers of it."""

import dataclasses
import functools
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from earnest import Task, UserError
from earnest.redteam.attack import Attack
from earnest.redteam.audit import Audit, Played
from earnest.redteam.baseline import Comparison, compare, read_baseline, write_baseline
from earnest.redteam.findings import Finding
from earnest.redteam.printing import print_audit
from earnest.redteam.report import attacks_tried, chapters, report_html, report_markdown, write_reports
from earnest.redteam.sarif import audit_json, sarif
from earnest.redteam.wording import as_text, described, quoted, shown, verdict, visible
from earnest.rewards.text import text_answer
from earnest.rewards.verifier import as_reward
from earnest.rundir import write_json


def exact(completions, gold, **kwargs):
    """One point for the gold.

    More that no summary needs.
    """
    return [float(c[0]["content"] == g) for c, g in zip(completions, gold, strict=True)]


def polite(completions, **kwargs):
    return [0.1 for _ in completions]


NO_WORK = Attack(
    "gen.empty", "no work", lambda t: (), "An empty answer is paid.", "Pay nothing for nothing.", "reported of four environments"
)
SPACE = Attack("gen.whitespace", "no work", lambda t: (), "White space is paid.", "Strip it.")
CASE = Attack("label.case", "label", lambda t: (), "Another case is refused.", "Compare without case.", expect="right")
UNUSED = Attack("sql.empty", "SQL", lambda t: (), "No rows are paid.", "Ask two databases.")
CATALOG = (NO_WORK, SPACE, CASE, UNUSED)


def finding(**changes):
    parts = {
        "kind": "exploit",
        "certainty": "fact",
        "attack": "gen.empty",
        "family": "no work",
        "rewards": ("exact",),
        "example": "",
        "place": "row 3 (row c)",
        "earned": 1.0,
        "wrong": 0.1,
        "right": 1.1,
        "hits": 4,
        "tried": 8,
        "interval": (0.22, 0.78),
        "share": 0.45,
        "flaw": NO_WORK.flaw,
        "fix": NO_WORK.fix,
        "detail": "the check refuses it",
        "source": NO_WORK.source,
    }
    return Finding(**(parts | changes))


LEAD = finding(
    certainty="lead",
    attack="gen.whitespace",
    flaw=SPACE.flaw,
    fix=SPACE.fix,
    example=" \n\t ",
    detail="only the other rewards hold it back",
)
FAULT = finding(
    kind="fault",
    attack="fault.raised",
    family="crash and time",
    earned=None,
    share=float("nan"),
    flaw="It raises.",
    fix="Catch it.",
    detail="raised KeyError: 'a'",
    source="",
)
QUESTION = finding(
    kind="false reject",
    certainty="question",
    attack="label.case",
    family="label",
    earned=0.1,
    share=0.0,
    example="SPAM",
    detail="Is 'SPAM' right for 'spam'?",
)
REJECT = finding(
    kind="false reject",
    attack="label.case",
    family="label",
    earned=0.1,
    share=0.0,
    example="Spam",
    flaw=CASE.flaw,
    fix=CASE.fix,
    detail="the check accepts it",
)
BOARD = (
    Played("oracle", "the right answer", 1.1, 1.0, 1.0, 8, False),
    Played("honest wrong", "a wrong answer in the right form", 0.1, 0.0, 0.0, 8, False),
    Played("empty", "nothing", 0.55, 0.45, 0.0, 8, True),
    Played("always hand off", "the same note to a person each time", float("nan"), float("nan"), float("nan"), 0, True),
)
TASK = Task(rows=[], prompt=lambda row: [], rewards=[exact, polite], check=lambda text, row: True, name="quiz")


def audit_of(*findings, **changes):
    parts = {
        "task": "quiz",
        "rewards": {"exact": 1.0, "polite": 0.5},
        "kind": "label",
        "rows": (8, 1200),
        "findings": findings,
        "board": BOARD,
        "families": {"no work": (2, len({f.attack for f in findings if f.family == "no work"})), "label": (1, 0)},
        "tried": {"gen.empty": 8, "gen.whitespace": 8, "label.case": 24, "sql.empty": 0},
        "calls": 2012,
        "seconds": 4.12,
        "seed": 7,
    }
    return Audit(**(parts | changes))


def alone(*findings):
    """An audit, and the same beside no baseline."""
    audit = audit_of(*findings)
    return audit, compare(audit)


def printed(audit, compared=None, encoding="utf-8", **console):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_audit(audit, compared or compare(audit), Console(file=out, **console))
    out.flush()
    return out.buffer.getvalue().decode(encoding)


# --- words


def test_what_cannot_be_seen_is_written_as_an_escape():
    assert visible("a\u200bb\u202ec\x00\ud800\u00a0d\ufe0f\u3164\n") == "a\\u200bb\\u202ec\\x00\\ud800\\xa0d\\ufe0f\\u3164\n"
    assert visible("caf\u00e9 \u4f60\u597d \u043c\u0438\u0440") == "caf\u00e9 \u4f60\u597d \u043c\u0438\u0440"
    assert visible("sp\u0430m") == "sp\\u0430m"  # a Cyrillic a
    assert visible("caf\u00e9", ascii_only=True) == "caf\\xe9"


def test_examples_are_shortened_to_a_few_lines():
    assert shown("") == ["(empty)"]
    assert shown(" \n\t ") == ['" \\n\\t " (white space)']
    assert shown("one\n\ntwo\n") == ["one", "", "two\\n"]
    assert shown("right  ") == ["right\\x20\\x20"]
    thirty = "abcdefghijklmnopqrstuvwxyz0123"
    assert shown(thirty * 1000) == [thirty * 8 + " [29,680 characters] " + thirty[-20:] + thirty * 2]
    letters = "abcdefghijklmnopqrstuvwxy"
    unseen = "\\u200b" + letters
    (line,) = shown(("\u200b" + letters) * 100)
    assert line == unseen * 7 + "\\u200b" + letters[:17] + " [2,330 characters] " + letters[-18:] + unseen * 2
    assert shown("\n".join("abcdefghij"), 5) == ["a", "b", "c", "[6 lines]", "j"]
    assert shown("a\nb\nc", 1) == ["a [2 more lines]"]


def test_a_run_of_one_character_is_told_in_place_of_shown():
    assert shown("\u200b" * 2000 + "42") == ["[2,000 times \\u200b]42"]
    assert shown("(" * 5000 + "1" + ")" * 5000) == ["[5,000 times (]1[5,000 times )]"]
    assert shown("a" + "\n" * 40 + "b") == ["a[40 times \\x0a]b"]
    assert shown(" " * 300) == ['"[300 times \\x20]" (white space)']
    assert shown("-" * 30) == ["-" * 30]


def test_a_run_of_one_phrase_is_told_in_place_of_shown():
    assert shown("not " * 8_000 + "so") == ['[8,000 times "not "]so']
    assert shown('{"a":' * 2_000 + "1" + "}" * 2_000) == ['[2,000 times "{"a":"]1[2,000 times }]']
    assert shown("<a>\n" * 3_000) == ['[3,000 times "<a>\\x0a"]']
    assert shown("no no no") == ["no no no"]


def test_what_an_exception_says_is_told_as_far_as_people_can_read_it():
    assert quoted("bad " + "9" * 100_000) == "bad [100,000 times 9]"
    assert quoted("\x1b[31mred\r\n\ud800") == "\\x1b[31mred\\r \\ud800"
    assert quoted("one\n  two") == "one two"
    assert len(quoted("".join(map(str, range(10_000))))) < 330


def test_json_has_an_example_as_it_is_up_to_what_people_read_and_told_beyond():
    for example, held in (("x y", "x y"), ("9" * 100_000, "[100,000 times 9]"), ("\ud800", "\ud800")):
        made = audit_json(*alone(finding(example=example)))
        assert made["findings"][0]["example"] == held


def test_a_trajectory_is_shown_a_message_a_line_with_its_calls():
    call = {"type": "function", "function": {"name": "refund", "arguments": {"id": 7}}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "refund", "content": "done"},
        {"role": "assistant", "content": "It is done."},
    ]
    assert as_text(messages) == 'assistant calls refund({"id": 7})\ntool refund: done\nassistant: It is done.'
    odd = [7, {"role": None, "content": None}, {"role": "assistant", "tool_calls": "refund"}, {"role": "tool", "content": {1: {2}}}]
    assert as_text(odd).splitlines()[0] == "7" and len(as_text(odd).splitlines()) == 4


def test_a_reward_is_described_by_what_somebody_wrote():
    partly = functools.partial(exact, more=1)
    verified = as_reward(text_answer(gold="gold"))
    one, two, three = described(dataclasses.replace(TASK, rewards=[partly, polite, verified], reward_weights=[1, 2, 3]))
    assert (one.name, one.weight, one.says, one.file) == ("exact", 1, "One point for the gold.", Path(__file__))
    assert one.line == exact.__code__.co_firstlineno and two.says == ""
    assert three.file.parent.name == "rewards" and three.file.name != "verifier.py"

    def adapted(completions, **kwargs):
        return exact(completions, **kwargs)

    adapted.written = exact
    assert described(dataclasses.replace(TASK, rewards=[adapted]))[0].line == one.line


def test_a_reward_without_source_is_described_by_its_name():
    made = eval("lambda completions, **kwargs: [0.0 for _ in completions]")
    (one,) = described(dataclasses.replace(TASK, rewards=[made]))
    assert one.file is None and one.name == "<lambda>"


def test_the_verdict_counts_what_is_new():
    assert verdict(*alone()) == "Clean: 3 attacks on 8 rows, none was paid for being wrong."
    assert verdict(*alone(finding(), FAULT, LEAD, QUESTION)) == (
        "Exploitable: 1 way to be paid without being right and 1 fault. Mend the rewards and run again; read the 1 lead and 1 question too."
    )
    known = Comparison((LEAD,), (finding(),))
    assert verdict(audit_of(finding(), LEAD), known) == (
        "Clean: 3 attacks on 8 rows, nothing new; read the 1 lead too. 1 finding in the baseline is left aside."
    )
    assert verdict(*alone(REJECT)) == "Not exploitable: 3 attacks on 8 rows, none was paid for being wrong; read the 1 false reject too."


# --- the console


def test_the_console_shows_board_findings_and_verdict_in_this_order():
    text = printed(audit_of(finding(), REJECT, LEAD, QUESTION))
    parts = ["Red team: quiz", "exact × 1, polite × 0.5", "8 of 1,200 rows attacked", "oracle", "honest wrong", "The best cheat, 'empty'"]
    parts += ["✗ Exploit: An empty answer", "✗ False reject", "Leads", "Questions", "Is 'SPAM' right", "Attacks by family", "Exploitable"]
    assert [text.find(part) for part in parts] == sorted(text.find(part) for part in parts) and -1 not in map(text.find, parts)


def test_a_fact_says_example_marks_hits_check_and_fix():
    block = printed(audit_of(finding())).partition("✗ Exploit")[2].partition("\n\n")[0]
    for part in (
        "gen.empty against exact",
        "answer    (empty)",
        "1, where an honest wrong answer earns 0.1 and the right one 1.1",
        "4 of 8 rows (95% interval 22% to 78%), 45% of the way to right on average",
        "seen      the check refuses it",
        "fix       Pay nothing for nothing.",
    ):
        assert part in block, block


def test_what_stands_under_a_finding_is_named_and_not_shown():
    same = finding(attack="gen.space", flaw="Nothing at all is paid.", under=finding().fingerprint)
    another = dataclasses.replace(LEAD, attack="len.short", flaw="Being short is paid.", example=".", under=LEAD.fingerprint)
    text = printed(audit_of(finding(), same, LEAD, another))
    assert text.count("    answer") == 2 and "    also by   gen.space\n" in text and "    also by   len.short\n" in text
    assert "Exploitable: 1 way to be paid" in text


def test_bars_run_from_honest_wrong_to_right():
    lines = {
        line.split("  ")[1]: line for line in printed(audit_of()).splitlines() if line.startswith("  ") and ("█" in line or "░" in line)
    }
    assert lines["oracle"].count("█") == 18 and lines["honest wrong"].count("░") == 18
    assert (lines["empty"].count("█"), lines["empty"].count("░")) == (8, 10)  # 0.45 of 18 is 8.1
    assert "always hand off" not in printed(audit_of())  # which no row allows
    above = Played("empty", "nothing", 2.0, 1.9, 0.0, 8, True)
    assert "▶ " in printed(audit_of(board=(BOARD[0], above))) and "nothing is gained by being right" in printed(
        audit_of(board=(BOARD[0], above))
    )


def test_piped_output_has_no_colours_and_fits_100_columns():
    long = finding(example="word " * 60, flaw="One long sentence " * 12, place="/a/very/long/path/" * 3, detail="refused " * 30)
    text = printed(audit_of(long, dataclasses.replace(long, certainty="lead"), QUESTION))
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 100
    assert "\x1b[" in printed(audit_of(long), force_terminal=True, color_system="standard", width=100)


def test_the_scoreboard_fits_a_terminal_of_60_columns():
    text = printed(audit_of(), force_terminal=True, color_system=None, width=60)
    board = text[text.index("policy") :].split("\n\n")[0].splitlines()
    assert len(board) == 1 + sum(policy.rows > 0 for policy in BOARD) and max(map(len, board)) <= 60
    assert any(line.split()[0] == "oracle" and line.count("█") == 7 for line in board)


def test_unsteady_marks_are_to_be_mended_first():
    unsteady = finding(kind="fault", attack="fault.unsteady")
    assert "Mend the unsteady marks first" in " ".join(printed(audit_of(finding(), unsteady)).split())
    assert "unsteady" not in printed(audit_of(finding()))


def test_an_ascii_console_gets_ascii():
    text = printed(audit_of(finding(example="caf\u00e9 \ud800", flaw="Paid \u2013 always."), LEAD, QUESTION), encoding="ascii")
    assert "caf\\xe9 \\ud800" in text and "x Exploit" in text and "####" in text


def test_what_the_rewards_let_through_together_is_printed_where_it_was_weighed():
    weighed = SimpleNamespace(sentences=("Two rewards tie.",))
    plain = audit_of()
    with_it = SimpleNamespace(**{f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)} | {"weighing": weighed})
    assert "Two rewards tie." in printed(with_it, compare(plain)) and "Two rewards tie." in report_markdown(
        with_it, compare(plain), TASK, CATALOG
    )
    assert "together" not in printed(plain)


# --- the baseline


def test_accepted_findings_do_not_fail_and_new_ones_do(tmp_path):
    first = audit_of(finding(), LEAD)
    assert compare(first).fails
    entries = write_baseline(tmp_path / "b.json", first)
    assert read_baseline(tmp_path / "b.json", "quiz") == entries and len(entries) == 2
    again = compare(first, entries)
    assert not again.fails and again.new == () and len(again.accepted) == 2
    more = compare(audit_of(finding(), finding(attack="gen.echo")), entries)
    assert more.fails and [f.attack for f in more.new] == ["gen.echo"]
    assert [entry.fingerprint for entry in more.stale] == [LEAD.fingerprint]


def test_a_lead_that_became_a_fact_is_new(tmp_path):
    entries = write_baseline(tmp_path / "b.json", audit_of(LEAD))
    assert compare(audit_of(dataclasses.replace(LEAD, certainty="fact")), entries).fails
    entries = write_baseline(tmp_path / "b.json", audit_of(dataclasses.replace(LEAD, certainty="fact")))
    assert compare(audit_of(LEAD), entries).new == ()  # and a fact that is only a lead now is not


def test_the_baseline_does_not_depend_on_order_rows_or_time(tmp_path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    write_baseline(one, audit_of(finding(), LEAD, QUESTION))
    write_baseline(two, audit_of(QUESTION, LEAD, finding(place="row 9", hits=1, example="other"), seconds=9.0, seed=1))
    assert one.read_bytes() == two.read_bytes()


def test_an_update_keeps_sentences_that_people_wrote_and_drops_what_is_gone(tmp_path):
    path = tmp_path / "b.json"
    write_baseline(path, audit_of(finding(), LEAD))
    path.write_text(path.read_text().replace("exploit gen.empty (exact): An empty answer is paid.", "meant so, see the minutes"))
    write_baseline(path, audit_of(finding(), QUESTION), read_baseline(path, "quiz"))
    said = [entry.finding for entry in read_baseline(path, "quiz")]
    assert sorted(said) == ["meant so, see the minutes", "question label.case (exact): Is 'SPAM' right for 'spam'?"]


ODD_ENTRY = '{"task": "quiz", "accepted": [{"fingerprint": "a", "certainty": "sure", "finding": "b"}]}'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"task": "quiz", "accepted": [{"fingerprint": 1}]}', ODD_ENTRY, "\xff"])
def test_a_broken_baseline_is_one_sentence(tmp_path, text):
    path = tmp_path / "b.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="is no baseline"):
        read_baseline(path, "quiz")


def test_a_baseline_belongs_to_one_task(tmp_path):
    write_baseline(tmp_path / "b.json", audit_of(finding()))
    with pytest.raises(UserError, match="baseline of task 'quiz', not of 'other'"):
        read_baseline(tmp_path / "b.json", "other")
    with pytest.raises(UserError, match="There is no baseline"):
        read_baseline(tmp_path / "none.json", "quiz")


def test_stale_entries_are_reported(tmp_path):
    entries = write_baseline(tmp_path / "b.json", audit_of(finding()))
    text = printed(audit_of(), compare(audit_of(), entries))
    assert "no longer found" in text and entries[0].fingerprint in text


# --- JSON and SARIF


def test_json_is_strict_and_holds_all_of_the_audit(tmp_path):
    odd = finding(example="half \ud800", share=float("nan"))
    audit = audit_of(odd, LEAD)
    write_json(tmp_path / "a.json", audit_json(audit, compare(audit)))
    held = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert {f.name for f in dataclasses.fields(audit)} <= set(held) and held["exploitable"] and held["fails"]
    first = held["findings"][0]
    assert (
        first["example"] == "half \ud800" and first["share"] is None and first["fingerprint"] == odd.fingerprint and not first["accepted"]
    )
    assert set(first) == {"fingerprint", "accepted", *(f.name for f in dataclasses.fields(odd))}
    assert held["board"][3]["mean"] is None and held["rows"] == [8, 1200]


def test_json_survives_answers_that_json_cannot_hold(tmp_path):
    deep = []
    for _ in range(5000):
        deep = [deep]
    for content in (deep, 10**5000):
        audit = audit_of(finding(example=[{"role": "tool", "content": content}]))
        write_json(tmp_path / "a.json", audit_json(audit, compare(audit)))
        assert "tool: (" in (tmp_path / "a.json").read_text()
        assert "tool: (" in printed(audit)


def _texts(message):
    assert isinstance(message["text"], str) and message["text"]


def test_sarif_has_what_version_2_1_0_requires(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    audit = audit_of(finding(example="\ud800"), FAULT, REJECT, LEAD, QUESTION, finding(attack="sum.of", rewards=()))
    compared = Comparison(audit.findings[1:], audit.findings[:1])
    write_json(tmp_path / "a.sarif", sarif(audit, compared, TASK))
    log = json.loads((tmp_path / "a.sarif").read_text(encoding="utf-8"))
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json") and set(log) == {"$schema", "version", "runs"}
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "earnest redteam" and run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    assert all(type(one["executionSuccessful"]) is bool for one in run["invocations"])
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules) == 5
    for rule in rules:
        _texts(rule["shortDescription"])
        _texts(rule["help"])
    assert len(run["results"]) == 6
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        _texts(result["message"])
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values()) and result["partialFingerprints"]
        for location in result["locations"]:
            assert location["physicalLocation"]["artifactLocation"] == {"uri": "test_redteam_report.py", "uriBaseId": "%SRCROOT%"}
            assert location["physicalLocation"]["region"]["startLine"] >= 1
    assert [result["level"] for result in run["results"]] == ["error", "error", "warning", "warning", "note", "error"]
    assert [len(result["locations"]) for result in run["results"]] == [1, 1, 1, 1, 1, 2]  # the sum points at every function
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == exact.__code__.co_firstlineno
    assert [result.get("suppressions", [{}])[0].get("kind") for result in run["results"]] == ["external"] + [None] * 5


def test_sarif_points_at_files_outside_the_folder_by_their_whole_address(tmp_path):
    log = sarif(*alone(finding()), TASK, root=tmp_path)
    (location,) = log["runs"][0]["results"][0]["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": Path(__file__).as_uri()}


# --- the analysis


def test_each_reward_has_a_chapter_with_ways_verdict_evidence_and_remedy():
    audit = audit_of(finding(), LEAD, finding(attack="sum.of", rewards=()))
    one, two, whole = chapters(audit, TASK)
    assert (one.title, two.title, whole.title) == ("exact", "polite", "The sum of the rewards")
    assert (one.tone, two.tone, whole.tone) == ("bad", "good", "bad")
    assert one.ways == [("no work", 2, 2), ("label", 1, 0)] and two.ways == [("no work", 2, 0), ("label", 1, 0)]
    assert one.stands == (
        "It does not resist: 1 proven way to be paid for a wrong answer in 3 attacks; the worst goes 45% of the way from an honest wrong "
        "answer to the right one."
    )
    assert chapters(audit_of(LEAD), TASK)[0].tone == "doubtful" and len(chapters(audit_of(), TASK)) == 2


def test_the_table_of_attacks_says_what_came_of_each():
    rows = attacks_tried(audit_of(finding(), QUESTION), CATALOG)
    assert [(row.attack.id, row.answers, row.outcome, row.tone) for row in rows] == [
        ("gen.empty", 8, "exploit on 4 of 8 rows", "bad"),
        ("gen.whitespace", 8, "resisted", "good"),
        ("label.case", 24, "question on 4 of 8 rows", "doubtful"),
    ]
    assert attacks_tried(audit_of(), CATALOG)[2].outcome == "paid in full"


def test_markdown_keeps_hostile_answers_inside_their_fence():
    text = report_markdown(*alone(finding(example="```\n# gone\n````\n<script>", flaw="A | B <b>, not `==`.")), TASK, CATALOG)
    assert "`````text\n```\n# gone\n````\n<script>\n`````\n" in text
    assert "### Exploit: A \\| B \\<b>, not `==`." in text
    assert "One point for the gold." in text and "**Remedy:** Pay nothing for nothing." in text


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_well_formed_self_contained_and_runs_nothing():
    hostile = finding(example="</pre><script>alert(1)</script>\u202e", detail="<img src=x onerror=alert(1)>", place="<b>")
    audit = audit_of(hostile, LEAD, QUESTION, FAULT)
    text = report_html(audit, Comparison(audit.findings[1:], audit.findings[:1]), TASK, CATALOG)
    page = _Page()
    page.feed(text)
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "b"} and "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=[\"'](?!#)", text)
    words = "".join(page.text)
    assert "</pre><script>alert(1)</script>\\u202e" in words
    anchors = {attrs["href"][1:] for tag, attrs in page.tags if tag == "a"}
    assert anchors <= {attrs.get("id") for _, attrs in page.tags} and {"board", "r1", "r2", "baseline", "tried"} <= anchors
    assert [attrs["width"] for tag, attrs in page.tags if tag == "rect" and attrs["class"] == "bar"] == ["100.0%", "0.0%", "45.0%"]


def test_reports_are_written_where_they_are_asked_for(tmp_path):
    paths = write_reports(*alone(finding(example="\ud800")), TASK, tmp_path / "new", CATALOG)
    assert [path.name for path in paths] == ["redteam.md", "redteam.html"] and all(path.stat().st_size > 1000 for path in paths)
