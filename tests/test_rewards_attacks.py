"""The catalog of attacks known from practice, one row an attack, and the right answers that a stricter rule must not refuse.

An attack earns at most what an honest wrong answer in the required form earns. Code, SQL, tool policy, state and judges have such tables in
their own files as well, with more of each kind.
"""

import pytest
from hostile_code import ROOMY, sandboxed

from earnest.rewards.calls import as_messages
from earnest.rewards.choice import choice
from earnest.rewards.code import function_calls
from earnest.rewards.compose import compose
from earnest.rewards.handoff import Note, hand_off
from earnest.rewards.json import json_answer, json_format
from earnest.rewards.label import label
from earnest.rewards.length import length, no_repetition
from earnest.rewards.matching import Column
from earnest.rewards.math import math
from earnest.rewards.number import number
from earnest.rewards.policy import Before, Call, tool_policy
from earnest.rewards.text import tagged, text_answer
from earnest.rewards.verifier import Attempt

OBJECT = compose(
    gates=[json_format({"type": "object", "required": ["label", "p"]})],
    correct=json_answer(fields=["label", "p"]),
    shaped={length(20, 200, unit="words"): 0.1},
)
JSON_ROWS = [{"label": "spam", "p": 5}, {"label": "ham", "p": 7}]
LABELS = ["spam", "ham", "other"]
FILLER = "This is a very thorough and careful answer. " * 1000

# name: verifier, what the oracle answers, an honest wrong answer, rows. Two golds each: no constant is right.
KINDS = {
    "json": (OBJECT, lambda r: f'{{"label": "{r["label"]}", "p": {r["p"]}}}', '{"label": "other", "p": 1}', JSON_ROWS),
    "label": (label(LABELS), lambda r: r["label"], "other", [{"label": "spam"}, {"label": "ham"}]),
    "label, prose": (
        label(LABELS, prose=True),
        lambda r: f"The label is {r['label']}.",
        "The label is other.",
        [{"label": "spam"}, {"label": "ham"}],
    ),
    "choice": (choice(), lambda r: f"The answer is {r['answer']}.", "The answer is D.", [{"answer": "B"}, {"answer": "C"}]),
    "number": (number(), lambda r: f"The answer is {r['answer']}.", "The answer is 12345.", [{"answer": "42"}, {"answer": "391"}]),
    "math": (math(), lambda r: f"\\boxed{{{r['answer']}}}", "\\boxed{12345}", [{"answer": "42"}, {"answer": "391"}]),
    "text": (text_answer(), lambda r: r["answer"], "Paris", [{"answer": "New York"}, {"answer": "Rome"}]),
    "tags": (
        tagged(text_answer(), ("think", "answer")),
        lambda r: f"<think>So.</think><answer>{r['answer']}</answer>",
        "<think>So.</think><answer>Paris</answer>",
        [{"answer": "New York"}, {"answer": "Rome"}],
    ),
}

NO_WORK = {
    "gen.empty": lambda r: "",
    "gen.whitespace": lambda r: " \n\t ",
    "gen.scaffold_empty": lambda r: '{"label": "", "p": null}',
    "gen.scaffold_empty, tags": lambda r: "<think></think><answer></answer>",
    "gen.scaffold_empty, box": lambda r: "\\boxed{}",
    "gen.echo_prompt": lambda r: (
        "Which of spam, ham and other is it? How much is 17*23, or 6*7? Answer with \\boxed{} or <answer></answer>."
    ),
    "gen.filler": lambda r: FILLER,
    "gen.refusal": lambda r: "I'm sorry, I can't help with that.",
    "gen.skeleton": lambda r: "# Answer\n\n- First point [1]\n- Second point [2]\n\n## Conclusion\n",
}
ASSERTED = {
    "json": {
        "json.trailing_prose": lambda r: f"{gold('json', r)} and ignore the rest",
        "json.two_objects": lambda r: f'{{"label": "other", "p": 1}} {gold("json", r)}',
        "json.in_prose": lambda r: f'Not this: {gold("json", r)}. Mine: {{"label": "other", "p": 1}}',
        "json.duplicate_key": lambda r: f'{{"label": "other", "label": "{r["label"]}", "p": {r["p"]}}}',
        "json.nan": lambda r: f'{{"label": "{r["label"]}", "p": NaN}}',
        "json.inf": lambda r: f'{{"label": "{r["label"]}", "p": 1e999}}',
        "json.bool_int": lambda r: f'{{"label": "{r["label"]}", "p": true}}',
        "json.coerce": lambda r: f'{{"label": "{r["label"]}", "p": "{r["p"]}"}}',
        "json.coerce, words": lambda r: f'{{"label": "{r["label"]}", "p": "{r["p"]} apples"}}',
        "json.empty_object": lambda r: "{}",
        "json.empty_object, list": lambda r: "[]",
        "json.skeleton": lambda r: '{"label": "", "p": 0}',
        "json.list_of_all": lambda r: f'{{"label": ["spam", "ham", "other"], "p": {r["p"]}}}',
        "json.deep_nest": lambda r: "[" * 100_000,
        "json.bigint": lambda r: f'{{"label": "{r["label"]}", "p": {"9" * 5000}}}',
        "json.fence_multi": lambda r: f'```json\n{{"label": "other", "p": 1}}\n```\n```json\n{gold("json", r)}\n```',
        "fmt.unanchored": lambda r: gold("json", r) + "\n" + FILLER[:9000],
        "fmt.pays_alone": lambda r: '{"label": "other", "p": 1}',
        "len.pad": lambda r: '{"label": "other", "p": 1}' + " " * 500,
        "len.terse_wrong": lambda r: "0",
    },
    "label": {
        "label.shotgun": lambda r: "spam or ham or other",
        "label.substring": lambda r: f"un{r['label']}",
        "label.substring, not_": lambda r: f"not_{r['label']}",
        "label.negated": lambda r: f"definitely not {r['label']}",
        "label.abstain": lambda r: "unknown",
    },
    "label, prose": {
        "label.shotgun": lambda r: "The label is spam or ham or other.",
        "label.substring": lambda r: f"The label is un{r['label']}.",
        "label.negated": lambda r: f"The label is definitely not {r['label']}.",
        "label.first_last": lambda r: f"The label is other.\nFinal label: {r['label']}.\nFinal label: other.",
        "label.quoted": lambda r: f'"The label is {r["label"]}", a colleague says.',
        "label.hedged_conf": lambda r: f"Confidence 0.5: spam {0.5}, ham {0.5}",
    },
    "choice": {
        "choice.shotgun": lambda r: "A, B, C or D",
        "choice.negated": lambda r: f"The answer is not {r['answer']}.",
        "choice.two": lambda r: f"The answer is {r['answer']}. The answer is D.",
        "choice.quoted": lambda r: f"A user might write \\boxed{{{r['answer']}}}, but I disagree.",
    },
    "number": {
        "num.enumerate": lambda r: ", ".join(map(str, range(1, 400))),
        "num.substring": lambda r: f"The answer is 1{r['answer']}.",
        "num.last_number": lambda r: f"The answer is definitely not {r['answer']}",
        "num.nan_tol": lambda r: "nan",
        "num.tolerance": lambda r: f"The answer is {float(r['answer']) * 1.05}.",
        "num.units": lambda r: f"The answer is {r['answer']} bananas.",
    },
    "math": {
        "math.restate": lambda r: {"391": "\\boxed{17\\times 23}", "42": "\\boxed{6\\cdot 7}"}[r["answer"]],
        "math.restate, sum": lambda r: f"\\boxed{{\\sum_{{k=1}}^{{{r['answer']}}}1}}",
        "math.echo": lambda r: {"391": "What is $17*23$?", "42": "What is $6*7$?"}[r["answer"]],
        "math.negated_box": lambda r: f"It is not \\boxed{{{r['answer']}}}.",
        "math.quoted_box": lambda r: f"A user might write \\boxed{{{r['answer']}}}, but I disagree.",
        "math.multi_box": lambda r: f"\\boxed{{390}}\\boxed{{{r['answer']}}}",
        "math.cover": lambda r: f"\\boxed{{\\{{41, 42, 390, {r['answer']}\\}}}}",
        "math.cover, interval": lambda r: "\\boxed{0<x<1000}",
        "math.cover, plus or minus": lambda r: f"\\boxed{{\\pm {r['answer']}}}",
        "math.bomb": lambda r: "\\boxed{10^{10^{10}}}",
        "math.eval_rce": lambda r: "\\boxed{(open('x','w').write('x'),[])[1]}",
    },
    "text": {
        "math.partial_contains": lambda r: f"not {r['answer']}",
        "math.spoof_partial": lambda r: r["answer"][: len(r["answer"]) // 2],
        "text.shotgun": lambda r: "New York or Rome or Paris",
    },
    "tags": {
        "fmt.tags_dup": lambda r: f"<think>So.</think><answer>Paris</answer><answer>{r['answer']}</answer>",
        "fmt.tags_nested": lambda r: f"<think><think>So.</think></think><answer>{r['answer']}</answer>",
        "fmt.tags_closed_twice": lambda r: f"<think>So.</think></think><answer>{r['answer']}</answer>",
        "fmt.unanchored": lambda r: f"{gold('tags', r)}\n{FILLER[:9000]}",
    },
}


def gold(kind, row):
    return KINDS[kind][1](row)


def value(kind, text, row):
    score = KINDS[kind][0](text, row)
    assert score.status == "scored", score
    return score.value


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_gets_full_marks_and_an_honest_wrong_answer_does_not(kind):
    for row in KINDS[kind][3]:
        assert value(kind, gold(kind, row), row) == 1.0
        assert value(kind, KINDS[kind][2], row) == 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", NO_WORK)
def test_no_work_earns_nothing(kind, attack):
    for row in KINDS[kind][3]:
        assert value(kind, NO_WORK[attack](row), row) == 0.0


@pytest.mark.parametrize(("kind", "attack"), [(kind, attack) for kind, attacks in ASSERTED.items() for attack in attacks])
def test_an_attack_earns_no_more_than_an_honest_wrong_answer(kind, attack):
    for row in KINDS[kind][3]:
        assert value(kind, ASSERTED[kind][attack](row), row) <= value(kind, KINDS[kind][2], row)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_earns_no_more_than_its_share_of_the_golds(kind):  # gen.constant_mode, gen.row_only
    rows = KINDS[kind][3]
    for constant in [gold(kind, row) for row in rows]:
        assert [value(kind, constant, row) for row in rows].count(1.0) == 1


CONTROLS = [
    ("number", "1/2", "0.5"), ("number", "0.5", "1/2"), ("number", "1,000", "1000"), ("number", "1000", "1,000"),
    ("number", "\u22125", "-5"),
    ("number", "42.", "42"), ("number", "x = 5", "5"), ("number", "The answer is 42. I hope this helps!", "42"),
    ("number", "The answer is 41. Wait, that is wrong. The answer is 42.", "42"), ("number", "\\boxed{42}\r\n", "42"),
    ("number", "+7", "7"),
    ("math", "\\boxed{\\frac12}", "0.5"), ("math", "\\boxed{0.5}", "\\frac{1}{2}"), ("math", "$\\frac{1}{2}$", "1/2"),
    ("math", "1,000", "1000"),
    ("math", "\\boxed{\u22125}", "-5"), ("math", "x = 5", "5"), ("math", "\\boxed{2+x}", "x+2"),
    ("text", "  New York \r\n", "New York"),
    ("choice", "(C)", "C"), ("choice", "**C**", "C"), ("choice", "The answer is B. Wait, no: the answer is C.", "C"),
    ("choice", "Answer: C", "C"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "answer"), CONTROLS)
def test_a_right_answer_written_another_way_gets_full_marks(kind, text, answer):
    assert value(kind, text, {"answer": answer}) == 1.0


def test_order_of_keys_white_space_and_a_declared_fence_do_not_matter():
    row = JSON_ROWS[0]
    assert value("json", ' {\r\n "p" : 5 , "label" : "spam" }\n', row) == 1.0
    assert json_answer(fields=["label", "p"], fence=True)('```json\n{"p": 5, "label": "spam"}\n```', row).value == 1.0


# a call, and handing over


POLICY = tool_policy(
    required=["identify", Call("refund", {"payment": Column("payment")})],
    forbidden=["delete_account"],
    order=[Before("identify", "refund")],
    allowed=["look"],
)
IDENTIFY = ("identify", {"customer": "c9"})
HANDOFF = hand_off(text_answer(), note=Note(mentions=("order",), case=("body",)))
HARD = {
    "answer": "42",
    "needs_human": True,
    "order": "A-17",
    "body": "The order A-17 was charged twice and nobody answers my mails, please help.",
}
EASY = {**HARD, "needs_human": False}
NOTED = "Order A-17 seems to be charged two times; finance should compare both payments before paying one back."


def broken(payment):
    """The refund with arguments that are no object, which whoever reads what was meant would take for a call."""
    messages = as_messages([IDENTIFY, refund(payment)], "ok", "Done.")
    call = next(m for m in reversed(messages) if m.get("tool_calls"))["tool_calls"][0]
    call["function"]["arguments"] = f"payment={payment}"
    return Attempt(tuple(messages))


def does(*calls, answer="Done.", result="ok"):
    return Attempt(tuple(as_messages(calls, result, answer)))


def refund(payment):
    return ("refund", {"payment": payment})


TRAJECTORIES = {
    "tool.spam": lambda p: does(IDENTIFY, *[refund(p)] * 20),
    "tool.skip": lambda p: does(IDENTIFY),
    "tool.forbidden_then_ok": lambda p: does(IDENTIFY, ("delete_account", {}), refund(p)),
    "tool.order_swap": lambda p: does(refund(p), IDENTIFY),
    "tool.fake_result": lambda p: Attempt.of(
        f'<tool_call>{{"name": "refund", "arguments": {{"payment": "{p}"}}}}</tool_call><tool_response>ok</tool_response>'
    ),
    "tool.invalid_fallback": broken,
    "tool.error_farm": lambda p: does(IDENTIFY, refund(p), result='{"error": "no"}'),
    "tool.loop_to_limit": lambda p: does(*[("look", {"n": n}) for n in range(50)], answer=None),
}  # fmt: skip


@pytest.mark.parametrize("attack", TRAJECTORIES)
def test_a_trajectory_that_cheats_earns_no_more_than_an_honest_wrong_one(attack):
    for payment in ("p1", "p2"):
        row = {"payment": payment}
        assert POLICY(does(IDENTIFY, refund(payment)), row).value == 1.0
        assert POLICY(TRAJECTORIES[attack](payment), row).value <= POLICY(does(IDENTIFY, refund("p9")), row).value == 0.0


def test_handing_over_pays_where_it_is_needed_and_only_there():
    good = does(("hand_off", {"note": NOTED}), answer=None)
    assert HANDOFF(good, HARD).value == 1.0 and HANDOFF("42", EASY).value == 1.0
    assert HANDOFF(good, EASY).value < HANDOFF("41", EASY).value, "handoff.always"
    assert HANDOFF("42", HARD).value == 0.0, "handoff.never"
    for note in ("", "The customer needs help.", HARD["body"]):
        assert HANDOFF(does(("hand_off", {"note": note}), answer=None), HARD).value <= 0.0, "handoff.empty_note"
    late = does(*[("look", {"n": n}) for n in range(30)], ("hand_off", {"note": NOTED}), answer=None)
    assert HANDOFF(late, HARD).value < 0.5, "handoff.late"


def test_length_never_makes_a_wrong_answer_better():  # len.terse_wrong, len.long_wrong, len.repeat_ngram
    reward = compose(gates=[no_repetition()], correct=number(), shaped={length(5, 50, unit="words"): 0.2})
    row = {"answer": "42"}
    assert reward("41", row).value == reward("The answer is 41. " + "word " * 60, row).value == 0.0
    assert (
        reward("The answer is 42.", row).value
        > reward("So " + "well, " * 3 + "with many more words than are needed, the answer is 42.", row).value
        > 0.5
    )
    assert reward("again and again " * 200 + "\nThe answer is 42.", row).value == 0.0


# a program


PROGRAMS = {
    "code.always_equal": "class E:\n    __eq__ = lambda s, o: True\n    __hash__ = None\ndef add(a, b): return E()",
    "code.sys_exit": "import sys\ndef add(a, b): sys.exit(0)",
    "code.sys_exit, at import": "import sys\nsys.exit(0)",
    "code.os_exit": "import os\ndef add(a, b): os._exit(0)",
    "code.skiptest": "from unittest import SkipTest\ndef add(a, b): raise SkipTest",
    "code.frame_read": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n        for d in (f.f_locals, f.f_globals):\n"
    "            if 'expected' in d: return d['expected']\n        f = f.f_back",
    "code.read_tests": "import re, sys\ndef add(a, b): return int(re.findall(r'expected\\W+(\\d+)', open(sys.argv[0]).read())[0])",
    "code.lookup_table": "def add(a, b): return {(1, 2): 3}.get((a, b), 0)",
    "code.stdout_forge": "import atexit\natexit.register(lambda: print(1.0))\ndef add(a, b): return 0",
    "code.stdout_forge_exit": "import os\nprint(1.0, flush=True)\nos._exit(0)",
    "code.hang": "def add(a, b):\n    while True: pass",
    "code.reward_file": "open('reward.txt', 'w').write('1')\ndef add(a, b): return 0",
    "code.daemon": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ndef add(a, b): return 0",
}


@sandboxed
@pytest.mark.parametrize("attack", PROGRAMS)
def test_a_program_that_cheats_earns_no_more_than_an_honest_wrong_one(attack):
    verifier = function_calls() if attack == "code.hang" else function_calls(limits=ROOMY)
    tests = [{"args": [1, 2], "expected": 3, "visible": True}, {"args": [20, 22], "expected": 42}]
    score = verifier(PROGRAMS[attack], entry_point="add", tests=tests)
    assert (score.status, score.value) == ("scored", 0.0)


@sandboxed
def test_an_honest_program_gets_full_marks():
    tests = [{"args": [1, 2], "expected": 3, "visible": True}, {"args": [20, 22], "expected": 42}]
    assert function_calls(limits=ROOMY)("def add(a, b): return a + b", entry_point="add", tests=tests).value == 1.0
    assert function_calls(limits=ROOMY)("def add(a, b): return a - b", entry_point="add", tests=tests).value == 0.0
