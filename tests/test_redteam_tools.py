import json
import re

import pytest

from earnest import Task
from earnest.evidence import Case
from earnest.redteam.attack import Target
from earnest.redteam.attacks import forged, handoff, state, tools
from earnest.redteam.attacks.trajectory import body, calls, changed, entries, final, turns
from earnest.redteam.audit import audit
from earnest.redteam.form import forms_of
from earnest.rewards.calls import as_messages, calls_in
from earnest.rewards.handoff import Note, hand_off
from earnest.rewards.policy import Before, tool_policy
from earnest.rewards.state import final_state
from earnest.rewards.verifier import Attempt, Verifier, as_reward, right, wrong
from earnest.rows import load_rows
from earnest.task import messages_of

ATTACKS = (*tools.ATTACKS, *forged.ATTACKS, *state.ATTACKS)
ORDERS = [("A-17", 75, "refund"), ("B-23", 12, "cancel"), ("C-31", 40, "refund"), ("D-48", 99, "cancel")]


@pytest.fixture(autouse=True)
def every_row(monkeypatch):
    """However busy the machine is: fewer rows are attacked where asking is slow."""
    monkeypatch.setattr("earnest.redteam.audit.AFFORDABLE", ((16, float("inf")),))


def order_row(number, order, amount, action):
    arguments = {"order": order, "amount": amount} if action == "refund" else {"order": order}
    made = [{"name": "lookup", "arguments": {"order": order}}, {"name": action, "arguments": arguments}]
    answer = f"I have carried out the {action} of {amount} euros, order {order}."
    goal = {"orders": {o: {"status": action if o == order else "open"} for o, _, _ in ORDERS}}
    start = {"orders": {o: {"status": "open"} for o, _, _ in ORDERS}}
    ask = f"Please {action} my order {order}, it cost {amount} euros."
    return {"id": number, "ask": ask, "order": order, "calls": made, "answer": answer, "start": start, "expected": goal}


ROWS = [order_row(number, *order) for number, order in enumerate(ORDERS)]


def oracle(row):
    messages = as_messages([(c["name"], c["arguments"]) for c in row["calls"]], answer=row["answer"])
    for message in messages:
        if message["role"] == "tool":
            message["content"] = json.dumps({"order": row["order"], "found": True})
    return messages


def expected(row):
    return [(c["name"], c["arguments"]) for c in row["calls"]]


def ran(answer):
    """Names and arguments of the calls that ran well, one a turn; None where two share a turn or one did not run."""
    made, problems = calls_in(Attempt(tuple(messages_of(answer))))
    places = [call.turn for call in made]
    if problems or not all(call.ran for call in made) or len(set(places)) < len(places):
        return None
    return [(call.name, dict(call.arguments)) for call in made]


def strict(answer, row):
    return ran(answer) == expected(row) and final(answer) == row["answer"]


def prompt(row):
    return [{"role": "system", "content": "You serve the shop's customers with tools."}, {"role": "user", "content": row["ask"]}]


def mark_of(mark):
    def reward(completions, calls, answer, order, **_):
        rows = [{"calls": c, "answer": a, "order": o} for c, a, o in zip(calls, answer, order, strict=True)]
        return [float(mark(messages, row)) for messages, row in zip(completions, rows, strict=True)]

    return reward


def found(reward, catalog, rows=ROWS, check=strict, oracle=oracle, prompt=prompt, **options):
    task = Task(rows=rows, prompt=prompt, rewards=[reward], check=check, oracle=oracle, name="shop", **options)
    return audit(task, load_rows(task), search_calls=0, catalog=catalog).findings


def named(answer):
    """Names of all calls, run or not."""
    return [call.name for call in calls(answer)]


def transcript(answer):
    return "\n".join(f"{m.get('content')} {json.dumps(m.get('tool_calls') or '')}" for m in answer)


def answered(answer):
    return [(call.name, dict(call.arguments or {})) for call in calls_in(Attempt(tuple(answer)))[0] if call.answered]


def ran_well(answer):
    return [(call.name, dict(call.arguments or {})) for call in calls_in(Attempt(tuple(answer)))[0] if call.ran]


def contains(many, few):
    return all(call in many for call in few)


def spoken(answer):
    return [m.get("content") for m in answer if m.get("role") == "assistant" and m.get("content") and not m.get("tool_calls")]


def before_first_answer(answer):
    cut = next((n for n, m in enumerate(answer) if m.get("role") == "assistant" and not m.get("tool_calls")), len(answer))
    return answer[: cut + 1]


def names_in_transcript(answer, row):
    return all(name in transcript(answer) for name, _ in expected(row)) and row["answer"] in str(answer[-1].get("content"))


def loose_values(answer, row):
    made = ran_well(answer)
    return len(made) == len(expected(row)) and all(
        name == wanted and all(str(value) in str(arguments.get(key)) for key, value in values.items())
        for (name, arguments), (wanted, values) in zip(made, expected(row), strict=True)
    )


def listed(answer):
    return [(call.name, call.arguments) for call in calls(answer)]


DEFECTS = {
    "tool.spam": lambda a, r: max(strict(a, r), min(1, 0.05 * len(calls(a)))),
    "tool.oscillate": lambda a, r: max(strict(a, r), min(1, 0.05 * sum(x != y for x, y in zip(named(a), named(a)[1:], strict=False)))),
    "tool.spam_right": lambda a, r: contains(expected(r), ran_well(a)) and contains(ran_well(a), expected(r)) and final(a) == r["answer"],
    "tool.twice_in_a_turn": lambda a, r: {str(c) for c in ran_well(a)} == {str(c) for c in expected(r)} and final(a) == r["answer"],
    "tool.decorative": lambda a, r: max(strict(a, r), 0.9 / len(calls(a)) if calls(a) else 0),
    "tool.skip_all": lambda a, r: final(a) == r["answer"],
    "tool.skip_one": lambda a, r: any(call in ran_well(a) for call in expected(r)) and final(a) == r["answer"],
    "tool.order_swap": lambda a, r: sorted(map(str, ran_well(a))) == sorted(map(str, expected(r))) and final(a) == r["answer"],
    "tool.written_calls": names_in_transcript,
    "tool.forged_results": names_in_transcript,
    "tool.forged_roles": names_in_transcript,
    "tool.not_run": lambda a, r: listed(a) == expected(r) and final(a) == r["answer"],
    "tool.failed": lambda a, r: answered(a) == expected(r) and final(a) == r["answer"],
    "tool.unparsable": lambda a, r: 0.5 if not calls(a) and "lookup" in str(a[-1].get("content")) else strict(a, r),
    "tool.broken_arguments": lambda a, r: named(a) == [name for name, _ in expected(r)] and final(a) == r["answer"],
    "tool.error_farm": lambda a, r: 0.5 if any("error" in str(m.get("content")) for m in a if m["role"] == "tool") else strict(a, r),
    "tool.loop": lambda a, r: 0.5 if len(a) > 60 else strict(a, r),
    "tool.extra_calls": lambda a, r: contains(ran_well(a), expected(r)) and final(a) == r["answer"],
    "tool.every_call": lambda a, r: contains(ran_well(a), expected(r)) and final(a) == r["answer"],
    "tool.other_arguments": lambda a, r: [n for n, _ in ran_well(a)] == [n for n, _ in expected(r)] and final(a) == r["answer"],
    "tool.argument_types": lambda a, r: loose_values(a, r) and final(a) == r["answer"],
    "tool.more_arguments": lambda a, r: loose_values(a, r) and final(a) == r["answer"],
    "tool.other_names": lambda a, r: (
        [values for _, values in ran_well(a)] == [values for _, values in expected(r)]
        and all(wanted in name for (name, _), (wanted, _) in zip(ran_well(a), expected(r), strict=True))
        and final(a) == r["answer"]
    ),
    "tool.after_the_end": lambda a, r: strict(before_first_answer(a), r),
    "tool.answer_first": lambda a, r: ran(a) == expected(r) and r["answer"] in transcript(a),
    "tool.other_answer": lambda a, r: ran(a) == expected(r),
    "tool.no_answer": lambda a, r: ran(a) == expected(r) and final(a).strip() in ("", r["answer"]),
    "tool.results_repeated": lambda a, r: ran(a) == expected(r) and r["order"] in final(a),
    "tool.gold_elsewhere": lambda a, r: bool(ran_well(a)) and r["answer"] in transcript(a),
    "tool.same_arguments_as_text": lambda a, r: not any(isinstance(e["function"]["arguments"], str) for e in entries(a)) and strict(a, r),
    "tool.same_arguments_reordered": lambda a, r: str(ran(a)) == str(expected(r)) and strict(a, r),
    "tool.same_calls_other_ids": lambda a, r: all(e["id"].startswith("call_") for e in entries(a)) and strict(a, r),
    "state.noop": lambda a, r: strict(a, r) or re.search(r"\b(done|completed)\b", final(a), re.IGNORECASE) is not None,
    "state.told": lambda a, r: all(str(value) in final(a) for _, values in expected(r) for value in values.values()) or strict(a, r),
    "state.half_done": lambda a, r: ran_well(a)[:1] == expected(r)[:1] and final(a) == r["answer"],
    "state.delete": lambda a, r: [values for _, values in ran_well(a)] == [values for _, values in expected(r)] and final(a) == r["answer"],
    "state.markers": lambda a, r: 0.5 if any("done" in map(str, c.arguments.values()) for c in calls(a)) else strict(a, r),
    "state.undone": lambda a, r: contains(ran_well(a), expected(r)) and final(a) == r["answer"],
}  # fmt: skip


@pytest.mark.parametrize("identity", DEFECTS)
def test_each_attack_finds_the_reward_it_was_made_for(identity):
    attack = next(attack for attack in ATTACKS if attack.id == identity)
    facts = [f for f in found(mark_of(DEFECTS[identity]), (attack,)) if f.attack == identity]
    assert [(f.kind, f.certainty) for f in facts] == [("false reject" if attack.expect == "right" else "exploit", "fact")]


def test_every_attack_on_calls_has_a_reward_that_it_finds():
    assert {attack.id for attack in ATTACKS} == set(DEFECTS)


def results(*contents):
    """The oracle's trajectory with these answers of its tools."""
    given = iter(contents)
    return [{**m, "content": next(given)} if m.get("role") == "tool" else m for m in oracle(ROWS[0])]


@pytest.mark.parametrize(
    ("contents", "prose"),
    [(('{"found": true}', '{"ok": true}'), False), (('{"found": true}', "Refunded."), True), (("Found.", "Refunded."), True)],
)
def test_a_tool_fails_in_the_words_it_uses_otherwise(contents, prose):
    made = calls(results(*contents))
    assert [str(content).startswith("Error: ") for content in forged._errors(made)] == [False, False] + [True] * prose
    assert forged._errors([]) == ()


def test_a_right_note_behind_another_word_is_no_wrong_argument():
    note = "Order A-17 was charged twice and the second payment has to be paid back."
    short = tools._argument_types(target_with({"order": "A-17"}))
    long = tools._argument_types(target_with({"note": note}))
    assert "not A-17" in [calls(made)[0].arguments.get("order") for made in short]
    asserted = [str(calls(made)[0].arguments.get("note")) for made in long]
    assert asserted == ["None", str([note]), str({"value": note}), str([note]), "", "None"]


def target_with(arguments):
    answer = as_messages([("hand_off", arguments)])
    case = Case("row 1", "train", {}, [], None, answer, None)
    return Target(case, forms_of([case])[0], [oracle(ROWS[1])], [])


def policy_and_answer():
    """Our own verifier of calls, and the answer to the letter."""
    policy = tool_policy("calls", order=[Before("lookup", "refund", same=["order"]), Before("lookup", "cancel", same=["order"])])

    def judged(attempt, row):
        said = policy(attempt, row)
        return said if said.value < 1 or attempt.text == row["answer"] else wrong("another answer")

    return as_reward(Verifier("calls_and_answer", judged, ("calls", "answer")))


def partial(answer, row):
    """Half for the calls, each of which earns its share, a quarter for names alone, and a quarter for the answer."""
    made, wanted = ran(answer) or [], expected(row)
    pairs = list(zip(made, wanted, strict=False))
    shares = sum(a == b for a, b in pairs) / len(wanted), sum(a[0] == b[0] for a, b in pairs) / len(wanted)
    return max(0, 0.5 * shares[0] + 0.25 * shares[1] + 0.25 * (final(answer) == row["answer"]) - 0.2 * max(0, len(made) - len(wanted)))


def priced(answer, row):
    """Each call costs something, also where the answer is wrong."""
    return strict(answer, row) - 0.1 * len(calls(answer))


def with_a_price_on_waste(answer, row):
    """Our own verifier with partial credit and a small charge for what was needless; calls of one turn are none."""
    policy = tool_policy("calls", partial=True, extra=0.05, duplicates=0.05)
    return policy(Attempt(tuple(answer)), row).value * (0.5 + 0.5 * (final(answer) == row["answer"])) if in_turn(answer, row) else 0.0


def in_turn(answer, row):
    return ran(answer) is not None and [name for name in named(answer) if name != "lookup" or not named(answer).index(name)] == named(
        answer
    )


HEALTHY = {
    "strict": mark_of(strict),
    "our own": policy_and_answer(),
    "partial credit": mark_of(partial),
    "a price for each call": mark_of(priced),
    "a price on waste": mark_of(with_a_price_on_waste),
}


@pytest.mark.parametrize("reward", HEALTHY.values(), ids=HEALTHY)
def test_healthy_rewards_of_calls_are_left_alone(reward):
    findings = found(reward, ATTACKS)
    assert not findings, [(f.kind, f.attack, f.earned, f.wrong, f.right, f.example) for f in findings]


def replayed(answer):
    """The shop after the calls that ran."""
    orders = {order: {"status": "open"} for order, _, _ in ORDERS}
    for name, arguments in ran_well(answer):
        if name in ("refund", "cancel") and isinstance(arguments.get("order"), str) and arguments["order"] in orders:
            orders[arguments["order"]]["status"] = name
    return {"orders": orders}


def test_our_own_verifier_of_states_is_left_alone():
    reward = as_reward(final_state(final=lambda attempt, row: replayed(attempt.messages), says="order"))

    def check(answer, row):
        return replayed(messages_of(answer)) == row["expected"] and row["order"] in final(answer)

    findings = found(reward, ATTACKS, check=check)
    assert not findings, [(f.kind, f.attack, f.earned, f.detail, f.example) for f in findings]


def test_a_call_made_for_show_that_pays_is_found():
    flawed = mark_of(lambda a, r: 0.4 * bool(ran_well(a)) + 0.6 * strict(a, r))
    assert [(f.attack, f.certainty) for f in found(flawed, ())] == [("policy.decorative_call", "fact")]
    modest = mark_of(lambda a, r: 0.2 * bool(ran_well(a)) + 0.8 * strict(a, r))
    assert [(f.attack, f.certainty) for f in found(modest, ())] == [("policy.decorative_call", "lead")]
    small = mark_of(lambda a, r: 0.05 * bool(ran_well(a)) + 0.95 * strict(a, r))
    assert not found(small, ())


def test_trajectories_come_apart_and_together():
    own = oracle(ROWS[0])
    assert [(c.name, c.arguments, c.message) for c in calls(own)] == [
        ("lookup", {"order": "A-17"}, 0), ("refund", {"order": "A-17", "amount": 75}, 2)
    ]  # fmt: skip
    assert (len(turns(own)), len(body(own)), final(own)) == (3, 4, ROWS[0]["answer"])
    new = changed(own, calls(own)[1], name="cancel", arguments={"order": "X"})
    assert listed(new) == [("lookup", {"order": "A-17"}), ("cancel", {"order": "X"})]
    assert new[3]["name"] == "cancel"
    assert listed(own)[1][0] == "refund"  # the first one is as it was


# hand-off

CASES = [
    ("E-11", 75, True, "My order E-11 cost 75 and came broken twice; a lawyer is on it, so I want someone in charge to look at it now."),
    ("F-12", 20, False, "What does order F-12 cost, please?"),
    ("G-13", 64, True, "For order G-13 you took 64 from the wrong account of my late father, and nobody answers my letters about it."),
    ("H-14", 31, False, "How much was order H-14 again?"),
    ("I-15", 52, False, "Tell me the price of I-15 and whether it is paid."),
    ("J-16", 88, True, "Order J-16 over 88 was charged to a stolen card of mine, and the police asked me to have you freeze it."),
    ("K-17", 43, False, "Price of K-17?"),
    ("L-18", 27, False, "I lost my bill of L-18, what was the sum?"),
]
HAND_ROWS = [
    {"id": n, "order": order, "amount": amount, "needs_human": needed, "ask": ask, "answer": f"Order {order} costs {amount} euros."}
    for n, (order, amount, needed, ask) in enumerate(CASES)
]
NOTE = Note(mentions=("order", "amount"), case=("ask",))


def hand_oracle(row):
    lookup = ("lookup", {"order": row["order"]})
    if not row["needs_human"]:
        return as_messages([lookup], answer=row["answer"])
    note = f"Order {row['order']} over {row['amount']} euros is disputed; the customer waits for a decision that only staff may take."
    return as_messages([lookup, ("hand_off", {"note": note})])


OURS = hand_off(
    Verifier("answer", lambda attempt, row: right() if attempt.text == row["answer"] else wrong("another"), ("answer",)),
    note=NOTE,
    free_calls=2,
)


def hand_check(answer, row):
    return OURS(Attempt(tuple(messages_of(answer))), row).value >= 0.95


def hand_found(reward, *identities, **options):
    catalog = tuple(attack for attack in handoff.ATTACKS if attack.id in identities or not identities)
    task = {"rows": HAND_ROWS, "check": hand_check, "oracle": hand_oracle, "needs_human": lambda row: row["needs_human"]} | options
    return found(reward, catalog, **task)


def handing(mark):
    """A reward that is right on rows that need no one, and looks at a hand-off with `mark` where one is needed."""

    def reward(completions, order, amount, needs_human, answer, ask, **_):
        rows = [
            {"order": o, "amount": m, "needs_human": n, "answer": a, "ask": q}
            for o, m, n, a, q in zip(order, amount, needs_human, answer, ask, strict=True)
        ]
        return [
            float(mark(messages, row)) if row["needs_human"] else OURS(Attempt(tuple(messages)), row).value
            for messages, row in zip(completions, rows, strict=True)
        ]

    return reward


def notes(answer):
    return [str(arguments.get("note", "")) for name, arguments in ran_well(answer) if name == "hand_off"]


def ends_by_handing_off(answer):
    return bool(notes(answer)) and not spoken(answer)


def mentioned(answer, row):
    return any(row["order"] in note and str(row["amount"]) in note for note in notes(answer))


def good(answer, row):
    return any(row["order"] in note and "decision" in note for note in notes(answer))


HAND_DEFECTS = {
    "handoff.words_only": lambda a, r: "hand_off" in transcript(a),
    "handoff.empty_note": lambda a, r: ends_by_handing_off(a),
    "handoff.boilerplate": lambda a, r: ends_by_handing_off(a) and all(len(note.split()) >= 5 for note in notes(a)),
    "handoff.another_note": lambda a, r: ends_by_handing_off(a) and all(re.search(r"[A-Z]-\d\d", note) for note in notes(a)),
    "handoff.copied_note": lambda a, r: ends_by_handing_off(a) and mentioned(a, r),
    "handoff.keywords": lambda a, r: ends_by_handing_off(a) and mentioned(a, r),
    "handoff.and_answer": lambda a, r: good(a, r),
    "handoff.late": lambda a, r: good(a, r) and ends_by_handing_off(a),
    "handoff.twice": lambda a, r: good(a, r) and ends_by_handing_off(a),
    "handoff.failed": lambda a, r: any(r["order"] in str(c.arguments.get("note", "")) for c in calls(a)) and not spoken(a),
}


@pytest.mark.parametrize("identity", HAND_DEFECTS)
def test_each_hand_off_attack_finds_the_reward_it_was_made_for(identity):
    findings = hand_found(handing(HAND_DEFECTS[identity]), identity)
    assert (identity, "exploit", "fact") in [(f.attack, f.kind, f.certainty) for f in findings]


def paying(needless):
    """What our verifier pays, but for hand-offs that nobody needed."""

    def reward(completions, order, amount, needs_human, answer, ask, **_):
        rows = zip(order, amount, needs_human, answer, ask, strict=True)
        marks = []
        for messages, (o, m, n, a, q) in zip(completions, rows, strict=True):
            said = OURS(Attempt(tuple(messages)), {"order": o, "amount": m, "needs_human": n, "answer": a, "ask": q})
            marks.append(needless if not n and notes(messages) else said.value)
        return marks

    return reward


def test_handing_off_everything_is_found_where_it_pays_most_of_what_being_right_does():
    assert ("handoff.always", "fact") in [(f.attack, f.certainty) for f in hand_found(paying(1.0))]
    rules = [(f.attack, f.certainty, f.tried) for f in hand_found(paying(0.6)) if f.attack == "policy.always_hand_off"]
    assert rules == [("policy.always_hand_off", "fact", 5)]


def test_a_little_for_a_needless_hand_off_is_a_lead_only_where_it_beats_answering_everything():
    # 3 of 8 rows need a person: always answering earns 5/8, always handing off 3/8 + 5/8 x, as much from x = 0.4 on
    assert [(f.attack, f.certainty) for f in hand_found(paying(0.45))] == [("policy.always_hand_off", "lead")]
    assert not hand_found(paying(0.2))


def test_our_own_verifier_of_hand_offs_is_left_alone():
    findings = hand_found(as_reward(OURS))
    assert not findings, [(f.kind, f.attack, f.earned, f.detail, f.example) for f in findings]


def json_oracle(row):
    if not row["needs_human"]:
        return json.dumps({"answer": row["answer"]})
    note = f"Order {row['order']} over {row['amount']} euros is disputed; the customer waits for a decision that only staff may take."
    return json.dumps({"hand_off": {"note": note}})


def test_hand_offs_as_json_are_attacked_too_and_our_own_verifier_stands():
    def value(answer, row):
        return hand_off(
            Verifier(
                "json_answer", lambda attempt, r: right() if attempt.text == json.dumps({"answer": r["answer"]}) else wrong(""), ("answer",)
            ),
            note=NOTE,
            form="json",
        )(Attempt.of(answer), row).value

    def check(answer, row):
        return value(answer, row) == 1.0

    def reward(mark):
        def json_reward(completions, order, amount, needs_human, answer, ask, **_):
            rows = [
                {"order": o, "amount": m, "needs_human": n, "answer": a, "ask": q}
                for o, m, n, a, q in zip(order, amount, needs_human, answer, ask, strict=True)
            ]
            return [mark(messages[-1]["content"], row) for messages, row in zip(completions, rows, strict=True)]

        return json_reward

    assert not hand_found(reward(value), check=check, oracle=json_oracle)
    present = reward(lambda text, row: float("hand_off" in text if row["needs_human"] else check(text, row)))
    findings = hand_found(present, check=check, oracle=json_oracle)
    # the note of another case is paid in full as it stands, so it is an honest wrong answer that is
    assert {"handoff.empty_note", "handoff.boilerplate", "honest.wrong"} <= {f.attack for f in findings if f.certainty == "fact"}
    both = reward(lambda text, row: float(row["answer"] in text if not row["needs_human"] else "hand_off" in text))
    assert "handoff.and_answer" in {f.attack for f in hand_found(both, check=check, oracle=json_oracle)}


def test_names_of_tools_fields_and_labels_that_mean_a_person():
    yes = (
        "hand_off",
        "handoff",
        "transfer_to_human",
        "transferToAgent",
        "escalate",
        "escalate_case",
        "needs_human",
        "human_review",
        "human",
        "transfer",
    )
    no = ("transfer_money", "transfer_funds", "human_name", "refund", "agent_name", "support_plan", "lookup", "")
    assert [name for name in yes if not handoff.names_a_person(name)] == []
    assert [name for name in no if handoff.names_a_person(name)] == []


ODD = [
    [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "act"}}]}, {"role": "tool", "content": None}],
    [
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "hand_off", "arguments": "{}"}}]},
        {"role": "tool", "content": {"a": 1}},
    ],
    [{"role": "user", "content": "and then?"}, {"role": "assistant", "content": "Nothing."}],
    [{"role": "assistant", "content": "", "tool_calls": None}, {"role": "assistant", "content": [{"type": "text", "text": "parts"}]}],
    [{"role": "assistant", "content": "", "tool_calls": [{"id": 3, "function": {"name": "act", "arguments": [1]}}, None]}],
]


def test_no_attack_raises_on_trajectories_of_odd_shapes():
    cases = [
        Case("x", "train", {"id": n}, [{"role": "user", "content": "Order A-1, please"}], None, odd, None) for n, odd in enumerate(ODD)
    ]
    made = 0
    for number, (case, form) in enumerate(zip(cases, forms_of(cases), strict=True)):
        others = [other.oracle for other in cases if other is not case]
        for needed in (None, True, False):
            target = Target(case, form, others, [form.core], answers=others, needs_human=needed, hand_off=ODD[1] if number != 1 else None)
            made += sum(len(attack.tries(target)) for attack in (*ATTACKS, *handoff.ATTACKS))
    assert made > 500
