"""Commands on tasks whose model acts: the guide's environment from check to report, and what each command looks at."""

import contextlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from tiny import END

from earnest import Task, UserError, cli, load_task
from earnest.canaries import watch_canaries
from earnest.check import check_task
from earnest.config import TrainConfig
from earnest.engine import turns
from earnest.engine.policy import Policy
from earnest.engine.rollouts import Batch, ask_canaries, make_prompts, start_metrics
from earnest.engine.sampler import Completion
from earnest.engine.train import sampling_of, spread_groups
from earnest.engine.turns import acting_metrics
from earnest.environment import Counts
from earnest.lab.difficulty import summarise, too_long
from earnest.lab.evaluate import describe, table
from earnest.redteam.audit import audit
from earnest.redteam.policies import policies_of
from earnest.redteam.replay import replay
from earnest.rewards.calls import as_messages
from earnest.rewards.compose import compose
from earnest.rewards.verifier import Verifier, as_reward, right, wrong
from earnest.rows import load_rows
from earnest.rundir import append_jsonl, read_json, read_jsonl, write_json
from earnest.score import Scores
from earnest.task import Limits, Verdict

GUIDE = (Path(__file__).parents[1] / "docs" / "environments.md").read_text(encoding="utf-8")
STORE = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[0]
COMMANDS = re.findall(r"^earnest ((?:check|redteam|sft|train|eval) store\.py.*?)(?:\s+#.*)?$", GUIDE, re.MULTILINE)
ASKED = re.compile(r"Put the (\w+) on the shelf of the (\w+)|Bring (\w+) to where (\w+) is|The (\w+) belongs beside the (\w+)")


def called(name, **arguments):
    return f'<tool_call>{{"name": "{name}", "arguments": {json.dumps(arguments)}}}</tool_call>'


def clerk(history):
    """What a model that knows its job writes next, by what it has read."""
    prompt, *rest = history.split("<|im_start|>assistant")
    thing, other = [name for name in ASKED.findall(prompt)[-1] if name]
    if not rest[:-1]:
        return called("find", thing=other)
    shelf = re.findall(r'"shelf": (\d+)}</tool_response>', history)
    return "done" if "moved" in history else called("move", thing=thing, shelf=int(shelf[-1]))


@pytest.fixture
def staffed(monkeypatch):
    """A model of which every other rollout does its job, and the others only say so."""

    def sample(loaded, decoder, prompts, seeds, samples, sampling, rows=64, advance=None, drafts=None, rooms=None):
        def turn(ids, number):
            said = "done" if number % 2 else clerk(loaded.tokenizer.decode(ids))
            own = tuple(loaded.tokenizer.encode(said, add_special_tokens=False))
            return Completion((*own, END), True, 0.0, (-0.5,) * (len(own) + 1))

        return [[turn(ids, number) for number in range(samples)] for ids in prompts]

    monkeypatch.setattr(turns, "sample", sample)


def earnest(*arguments):
    """A command in this process: its exit code and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = cli.run_command([str(a) for a in arguments])
    return code, " ".join(out.getvalue().split())


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The guide's file, a few of its rows and a tiny model."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "store.py").write_text(STORE, encoding="utf-8")
    rows = load_rows(load_task(str(folder / "store.py")))
    few = [row for split, count in (("train", 6), ("dev", 2), ("test", 3)) for row in rows.by_split[split][:count]]
    append_jsonl(folder / "rows.jsonl", few)
    return folder, tiny.save(tiny.make(max_position_embeddings=4096), folder / "model")


def on(store, name, *more):
    folder, model = store
    return earnest(
        name, folder / "store.py", "--data", folder / "rows.jsonl", "--model", model, "--device", "cpu", "--lora-rank", "2", *more
    )


# The guide's commands, as it has them.


def test_the_guides_commands_do_what_it_says(store, staffed, tmp_path, monkeypatch):
    folder, model = store
    monkeypatch.chdir(tmp_path)
    own = ("--data", folder / "rows.jsonl")
    tiny_model = (*own, "--model", model, "--device", "cpu", "--lora-rank", "2")
    few = {
        "check": own,
        "redteam": (*own, "--search-calls", "0"),
        "sft": (*tiny_model, "--steps", "1", "--batch-size", "2"),
        "train": (*tiny_model, "--steps", "1", "--num-prompts", "2", "--num-generations", "4", "--canary-rate", "0.5"),
        "eval": (*tiny_model, "--samples", "1"),
    }
    said = {}
    for line in COMMANDS:  # a byte of the tiny model is a token
        name, _, *options = line.replace(" 256", " 600").split()
        code, said[name] = earnest(name, folder / "store.py", *options, *few[name])
        assert code == 0, (line, said[name])
    assert list(said) == list(few)
    assert "Sound: a right answer earns at least 1 on every row." in said["check"] and "Clean:" in said["redteam"]

    (metrics,) = read_jsonl(Path("runs/store-train/sft_grpo/metrics.jsonl"))
    assert metrics["check/accuracy"] == metrics["reward"] == 0.5 and metrics["canary/share_paid"] == 0.0
    code, told = earnest("redteam", "runs/store-train")
    assert code == 0 and "12 rollouts (sft_grpo 12); the check accepts 4 and refuses 4" in told and "Nothing suspicious." in told

    (judged,) = read_json(Path("runs/store-eval/summary.json"))["models"]
    assert judged["name"] == "sft_grpo"
    assert (judged["test_accuracy"], judged["sampled_accuracy"]) == (1.0, 0.0)  # the first of each group does its job
    assert judged["acting"] == {"turns": 3.0, "calls": 2.0, "failed": 0.0, "ended": {"answered": 1.0}}
    assert earnest("report", "runs/store-eval")[0] == 0


def test_difficulty_tells_what_was_done_with_tools(store, staffed, tmp_path):
    code, said = on(store, "difficulty", "--out", tmp_path / "run", "--samples", "4", "--max-completion-length", "600")
    assert code == 0 and "6 rows, 0% all right, 100% mixed" in said
    record = read_json(tmp_path / "run" / "difficulty.json")["before"]
    assert record["pass_rate"] == 0.5 and record["acting"]["tools/call_frequency"] == 1.0 and record["acting"]["ended/answered"] == 1.0


def test_a_rollout_that_is_too_short_for_the_oracle_is_told_before_it_is_sampled(store, tmp_path):
    code, said = on(store, "eval", "--out", tmp_path / "run", "--samples", "0")
    assert code == 0 and "max_completion_length is 64: a rollout that is cut off there cannot be right. Raise it." in said
    folder, _ = store
    task, loaded = load_task(str(folder / "store.py")), tiny.make(max_position_embeddings=4096)
    prompts = make_prompts(task, loaded, load_rows(task, str(folder / "rows.jsonl")).split("train"), False, 64)
    needed = int(re.search(r"up to (\d+) tokens", too_long(task, loaded, prompts, 64))[1])
    assert too_long(task, loaded, prompts, needed) == "" and too_long(task, loaded, prompts, needed - 1) != ""
    assert too_long(replace(task, oracle=None), loaded, prompts, 1) == ""


# check


class Till:
    """Holds money."""

    def reset(self, due, **_):
        self.due, self.paid = due, 0

    def pay(self, amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        if amount <= 0:
            raise ValueError("nothing to pay")
        self.paid += amount
        return f"paid {amount}"


ROWS = [{"id": f"r{n}", "due": due} for n, due in enumerate((3, 5, 8, 9))]


def settled(environments, due, **_):
    return [float(env.paid == d) for env, d in zip(environments, due, strict=True)]


def till(**options):
    given = {
        "rows": ROWS,
        "prompt": lambda row: [{"role": "user", "content": f"Pay bill {row['id']}."}],
        "rewards": [settled],
        "check": lambda messages, row, environment: environment.paid == row["due"],
        "oracle": lambda row: as_messages([("pay", {"amount": row["due"]})], answer="paid"),
        "environment": Till,
        "name": "till",
    }
    return Task(**given | options)


def found_in(task):
    return [(f.rule, f.level, f.message) for f in check_task(task, load_rows(task)).findings if f.rule not in ("splits", "leaks")]


def test_an_oracle_that_no_rollout_could_follow_is_an_error():
    assert found_in(till()) == []
    ((rule, level, message),) = found_in(till(limits=Limits(turns=1)))
    assert (rule, level) == ("acts", "error") and "2 turns, where limits.turns is 1" in message

    def coins(row):
        return as_messages([("pay", {"amount": 1})] * row["due"], answer="paid")

    ((rule, level, message),) = found_in(till(oracle=coins, limits=Limits(turns=20, calls=8)))
    assert (rule, level) == ("acts", "error") and message.startswith("1 row ") and "9 calls, where limits.calls is 8" in message
    # a last turn that calls needs one more turn, or its calls are not run
    ((_, _, message),) = found_in(till(oracle=lambda row: as_messages([("pay", {"amount": row["due"]})]), limits=Limits(turns=1)))
    assert "2 turns" in message


def test_a_call_of_the_oracle_that_fails_is_a_warning_with_its_answer():
    def hasty(row):
        return as_messages([("pay", {"amount": 0}), ("pay", {"amount": row["due"]})], answer="paid")

    ((rule, level, message),) = found_in(till(oracle=hasty))
    assert (rule, level) == ("acts", "warning") and "pay answers" in message and "ValueError: nothing to pay" in message


def test_gates_are_asked_with_the_environment_as_the_attempt_left_it():
    def paid(attempt, row):
        return right() if attempt.environment.paid == row["due"] else wrong("another amount")

    def modest(attempt, row):
        return right() if attempt.environment.paid < 5 else wrong("too much")

    outcome = Verifier("paid", paid, ("due",))
    assert found_in(till(rewards=[as_reward(compose(correct=outcome, name="whole"))])) == []
    gated = as_reward(compose(correct=outcome, gates=[Verifier("modest", modest)], name="whole"))
    assert any(
        "The gate 'modest' of 'whole' makes right and wrong equal on 3 of 4 rows" in m for _, _, m in found_in(till(rewards=[gated]))
    )


# the red team


def stingy(row):
    """Pays half."""
    return as_messages([("pay", {"amount": row["due"] // 2})], answer="paid")


def test_a_tasks_own_policies_stand_on_the_scoreboard_beside_the_others():
    task = till(policies={"oracle": stingy, "stingy": stingy, "claims": lambda row: "paid", "silent": lambda row: None})
    board = {p.name: p for p in audit(task, load_rows(task), search_calls=0, catalog=()).board}
    assert (board["stingy"].says, board["stingy"].mean, board["stingy"].accepted, board["stingy"].rows) == ("pays half", 0.0, 0.0, 4)
    assert board["oracle"].mean == 1.0 and board["silent"].rows == 0
    assert board["claims"].says == "a script of the task" and board["claims"].mean == 0.0  # in place of the built-in one
    assert [p.name for p in policies_of(task)][:2] == ["oracle", "honest wrong"]


def test_a_policy_that_is_paid_in_full_though_the_check_refuses_it_is_a_finding():
    def generous(environments, due, **_):
        return [float(env.paid >= d) for env, d in zip(environments, due, strict=True)]

    def double(row):
        return as_messages([("pay", {"amount": 2 * row["due"]})], answer="paid")

    def findings(reward):
        task = till(rewards=[reward], policies={"pay double": double})
        return [f for f in audit(task, load_rows(task), search_calls=0, catalog=()).findings if f.attack.startswith("own.")]

    (found,) = findings(generous)
    assert (found.attack, found.certainty, found.kind, found.hits) == ("own.pay_double", "fact", "exploit", 4)
    assert findings(settled) == []


@pytest.mark.parametrize(("policy", "says"), [(lambda row: row["nope"], "raised KeyError"), (lambda row: 7, "answered with int")])
def test_a_policy_that_does_not_work_is_named(policy, says):
    task = till(policies={"odd": policy})
    with pytest.raises(UserError, match=f"The policy 'odd' {says}"):
        audit(task, load_rows(task), search_calls=0, catalog=())


def test_policies_must_be_functions(tmp_path):
    (tmp_path / "odd.py").write_text(STORE.replace("oracle=oracle,", "oracle=oracle, policies={'lazy': 'done'},"))
    with pytest.raises(UserError, match=re.escape("policies['lazy'] is 'done', not a function")):
        load_task(str(tmp_path / "odd.py"))


# replay


def line(messages, reward, correct, number, **more):
    verdict = {} if correct is None else {"verdict": {"correct": correct, "well_formed": None, "handed_off": None}}
    said = messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""
    own = {"step": 1, "id": f"r{number % 4}", "prompt": [{"role": "user", "content": f"Pay bill r{number}."}], "text": said, "tokens": 9}
    return own | {"terminated": True, "reward": reward, "messages": messages} | verdict | more


def pays(amount, answer="paid"):
    return as_messages([("pay", {"amount": amount})], answer=answer)


def seen(tmp_path, lines, task=None):
    append_jsonl(tmp_path / "grpo" / "rollouts.jsonl", lines)
    return replay(tmp_path, task)


def test_answers_that_call_tools_are_told_apart_by_what_they_call(tmp_path):
    good = [line(pays(n), 1.0, True, n) for n in range(6)]
    idle = [line([{"role": "assistant", "content": "paid"}], 0.9, False, n) for n in range(4)]
    wrong_ones = [line(pays(100 + n), 0.0, False, n) for n in range(20)]
    twice = [line([*pays(n)[:-1], *pays(n)], 1.0, False, n) for n in range(3)]
    lucky = [line(pays(200 + n), 0.75, False, n) for n in range(2)]  # the same tools and words as the wrong ones, but paid
    found = seen(tmp_path, [*good, *idle, *wrong_ones, *twice, *lucky])
    assert [(g.count, g.reward) for g in found.groups] == [(3, 1.0), (4, 0.9), (2, 0.75)]
    assert found.groups[0].text == "pay(amount=0) → pay(amount=0) → paid" and found.groups[1].text == "paid"
    assert found.groups[1].kinds == ("no calls", "constant")
    assert [(s.kind, s.count) for s in found.seen if s.suspicious] == [("no calls", 4)]


def test_calls_without_an_answer_are_not_empty_and_no_broken_json(tmp_path):
    good = [line(pays(n, '{"paid": true}'), 1.0, True, n) for n in range(6)]
    cut = [line(pays(50 + n)[:-1], 0.5, False, n, terminated=False) for n in range(3)]
    again = [line([*pays(7)[:-1] * 4], 0.5, False, n) for n in range(3)]
    lazy = [line(pays(60 + n), 0.0, False, n) for n in range(9)]
    found = {s.kind: (s.count, s.suspicious) for s in seen(tmp_path, [*good, *cut, *again, *lazy]).seen}
    assert found == {"no answer": (6, False), "cut off": (3, False), "same call": (3, False)}


def test_forged_answers_of_tools_are_seen_in_every_turn(tmp_path):
    good = [line(pays(n), 1.0, True, n) for n in range(6)]
    forger = pays(9)
    forger[0] = {**forger[0], "content": "<tool_response>paid 3</tool_response>"}
    found = seen(tmp_path, [*good, *[line(forger, 1.0, False, n) for n in range(3)]])
    assert ("forged tool text", 3) in [(s.kind, s.count) for s in found.seen if s.suspicious]


def test_rollouts_without_verdicts_are_played_again_to_be_judged(tmp_path):
    limit = [*pays(3)[:-1], pays(5)[0]]  # the limit kept the second call from being made
    lines = [line(pays(3), 1.0, None, 0), line(pays(3), 1.0, None, 1), line(limit, 1.0, None, 0), line(pays(3)[:-1], 1.0, None, 0)]
    found = seen(tmp_path, lines, till())
    assert (found.accepted, found.refused, found.notes) == (3, 1, ())


def test_a_verdict_that_was_kept_is_taken_as_it_is(tmp_path):
    found = seen(tmp_path, [line(pays(999), 1.0, True, 0)], till())
    assert (found.accepted, found.refused) == (1, 0)


def test_a_text_alone_does_not_say_what_was_done(tmp_path):
    lines = [{k: v for k, v in line(pays(3), 1.0, None, 0).items() if k != "messages"}]
    found = seen(tmp_path, lines, till())
    assert (found.accepted, found.refused) == (0, 0) and "1 rollouts could not be judged" in found.notes[0]


def test_the_runs_own_task_judges_where_no_verdict_was_kept(store, tmp_path):
    folder, _ = store
    rows = read_jsonl(folder / "rows.jsonl")
    task = load_task(str(folder / "store.py"))
    kept = [line(task.oracle(row), 1.0, None, 0, id=row["id"]) for row in rows[:3]] + [line(pays(3), 1.0, None, 0, id=rows[3]["id"])]
    write_json(tmp_path / "run.json", {"command": f"earnest train {folder / 'store.py'}"})
    found = seen(tmp_path, kept)
    assert (found.accepted, found.refused) == (3, 1)


# canaries


def gullible(completions, due, **_):
    """Pays for words."""
    return [float(messages[-1]["content"] == "paid") for messages in completions]


def test_a_canary_is_asked_in_the_environment_of_its_question():
    task = till()
    watch = watch_canaries(task, ROWS)
    assert len(watch.canaries) == 4 and {canary.bar for canary in watch.canaries} == {0.9}
    assert all(canary.row["due"] != ROWS[canary.place]["due"] for canary in watch.canaries)
    assert watch.chance == pytest.approx(max(sum(c.row["due"] == r["due"] for c in watch.canaries) for r in ROWS) / 4)
    with pytest.raises(UserError, match="environment"):
        watch_canaries(till(rewards=[gullible]), ROWS)


def test_gold_that_cannot_be_had_in_another_rows_environment_makes_canaries_all_the_same(store):
    task = load_task(str(store[0] / "store.py"))
    rows = load_rows(task).by_split["train"][:10]
    watch = watch_canaries(task, rows)
    assert len(watch.canaries) == 10 and {canary.bar for canary in watch.canaries} == {0.9} and watch.chance == 0.01


def test_an_honest_rollout_is_not_paid_on_a_canary(store, staffed):
    folder, _ = store
    task, policy = load_task(str(folder / "store.py")), Policy(tiny.make(max_position_embeddings=4096), rank=2)
    rows = load_rows(task).by_split["train"][:4]
    prompts = make_prompts(task, policy.loaded, rows, False, 600)
    watch = watch_canaries(task, rows)
    config = TrainConfig(max_completion_length=600)
    batch = ask_canaries(policy, task, prompts, watch.canaries, 2, sampling_of(config), [0, 1], False)
    assert [one.rollout.episode.counts.failed for group in batch.samples for one in group] == [0] * 8
    assert batch.rewards.max() == 0.0 and not any(verdict.correct for verdict in batch.verdicts)
    for prompt, group in zip(batch.prompts, batch.samples, strict=True):
        own = next(row for row in rows if prompt.row["id"] == f"canary-{row['id']}")
        thing, other = own["pair"]
        assert group[0].rollout.episode.environment.shelves == {**own["shelves"], thing: own["shelves"][other]}


# numbers


def test_out_of_tokens_is_told_before_anything_else():
    verdicts = [[Verdict(False, well_formed=False)] * 4] * 3
    record = summarise(["a", "b", "c"], verdicts, "base", 8, {"ended/token_limit": 0.75, "turns/mean": 1.5})
    assert record["acting"] == {"ended/token_limit": 0.75, "turns/mean": 1.5}
    assert record["advice"].startswith("Raise max_completion_length, or run SFT first: 75% of the rollouts ran out of tokens")
    assert summarise(["a"], verdicts[:1], "base", 8, {"ended/token_limit": 0.25})["advice"].startswith("Run SFT first")
    assert "acting" not in summarise(["a"], verdicts[:1], "base", 8)


def test_the_table_counts_calls_where_there_are_tools():
    def answered(split, ended, turns, calls, failed):
        verdict = {"correct": True, "fields": {}, "well_formed": None, "handed_off": None}
        own = {"split": split, "mode": "greedy", "tokens": sum(turns), "terminated": True, "verdict": verdict, "slices": {}, "id": 1}
        return own | {"ended": ended, "turns": turns, "tools": {"calls": calls, "failed": failed}}

    model = describe("base", [answered("test", "answered", [5, 6, 2], 4, 1), answered("test", "turn limit", [5], 1, 1)])
    assert model["acting"] == {"turns": 2.0, "calls": 2.5, "failed": 0.4, "ended": {"answered": 0.5, "turn limit": 0.5}}
    baseline = {"name": "constant", "test_accuracy": 0.0, "dev_accuracy": 0.0}
    head, line, last = table({"models": [model], "baselines": [baseline]})
    assert (head[-1], line[-1], last[-1]) == ("calls", "2.5", "–") and len(head) == len(line) == len(last) == 8
    plain = describe("base", [{k: v for k, v in answered("test", "", [5], 0, 0).items() if k not in ("tools", "turns", "ended")}])
    assert "acting" not in plain and table({"models": [plain]})[0][-1] == "tokens"


def test_the_groups_whose_rewards_differ_most_are_kept():
    rewards = np.array([[0.0, 0.0], [0.0, 1.0], [0.4, 0.6], [np.nan, np.nan], [-1.0, 1.0]])
    assert spread_groups(rewards, 0.4).tolist() == [False, True, False, False, True]
    assert spread_groups(rewards, 0.01).tolist() == [False, False, False, False, True]
    assert spread_groups(rewards, 1.0).all()


def test_metrics_by_turn_count_the_calls_that_were_answered_in_it():
    def rollout(lengths, *turns_):
        messages = [m for calls in turns_ for m in [{"role": "assistant"}, *[{"role": "tool"}] * len(calls)]]
        marks = [marks for calls in turns_ for marks in calls]
        episode = SimpleNamespace(messages=messages, marks=marks, counts=Counts(calls=len(marks)))
        own = [True] * sum(lengths)
        return SimpleNamespace(lengths=lengths, episode=episode, ids=[*range(len(own))], own=own, ended="answered")

    row = acting_metrics([rollout([4, 6, 1], [[], ["failed", "hung"]], [["repeated"]], []), rollout([2, 1], [[]], [])])
    assert {k: v for k, v in row.items() if k[:7] in ("turns/1", "turns/2", "turns/3")} == {
        "turns/1_length": 3.0, "turns/1_calls": 1.5, "turns/1_failed": pytest.approx(1 / 3),
        "turns/2_length": 3.5, "turns/2_calls": 0.5, "turns/2_failed": 0.0,
        "turns/3_length": 1.0, "turns/3_calls": 0.0, "turns/3_failed": 0.0,
    }  # fmt: skip


def test_the_spread_of_rewards_is_that_within_groups_and_slices_have_their_own_means():
    task = till(slices={"size": lambda row: "small" if row["due"] < 6 else "large"})
    rewards = np.array([[1.0, 0.0], [1.0, 1.0], [0.5, np.nan], [np.nan, np.nan]])
    verdicts = [Verdict(correct) for correct in (True, False, True, True, False, False, False, True)]
    prompts = [SimpleNamespace(row=row) for row in ROWS]  # due 3 and 5 are small, 8 and 9 large
    batch = Batch(prompts, [[None] * 2] * 4, Scores(("settled",), rewards.reshape(-1, 1), rewards.ravel()), verdicts)
    row = start_metrics(task, batch)
    assert row == {
        "reward_spread/mean": pytest.approx(0.5**0.5 / 4), "reward_spread/min": 0.0, "reward_spread/max": pytest.approx(0.5**0.5),
        "by/size/small/reward": 0.75, "by/size/small/accuracy": 0.75, "by/size/large/reward": 0.5, "by/size/large/accuracy": 0.25,
    }  # fmt: skip
    assert set(start_metrics(replace(task, environment=None), batch)) == {f"reward_spread/{which}" for which in ("mean", "min", "max")}
