"""Canaries: questions with the gold of another row, and the alarm when they earn."""

import json

import numpy as np
import pytest

from earnest import Task, UserError
from earnest.canaries import ALARM, Canary, Watch, make_canaries, watch_canaries

LABELS = ["billing", "refund", "technical"]
ROWS = [{"id": f"r{i}", "split": "train", "question": f"Question {i}?", "gold": LABELS[i % 3], "why": f"w{i}"} for i in range(12)]


def task_of(reward, prompt=lambda row: [{"role": "user", "content": row["question"]}], oracle=lambda row: row["gold"]):
    return Task(rows=ROWS, prompt=prompt, rewards=[reward], check=lambda text, row: text == row["gold"], oracle=oracle)


def exact(completions, gold, **kwargs):
    return [float(c[0]["content"] == g) for c, g in zip(completions, gold, strict=True)]


def any_label(completions, gold, **kwargs):
    return [float(c[0]["content"] in LABELS) for c in completions]


def test_a_canary_asks_one_rows_question_with_everything_else_of_another():
    task = task_of(exact)
    made = make_canaries(task, ROWS, count=5, seed=3)
    assert len(made) == 5
    for place, row in made:
        own = ROWS[place]
        donor = next(r for r in ROWS if r["why"] == row["why"])
        assert row["id"] == f"canary-{own['id']}"
        assert row["question"] == own["question"] and task.prompt(row) == task.prompt(own)
        assert (row["gold"], row["why"]) == (donor["gold"], donor["why"])
        assert row["gold"] != own["gold"]


def test_the_same_seed_makes_the_same_canaries():
    task = task_of(exact)
    assert make_canaries(task, ROWS, 4, seed=1) == make_canaries(task, ROWS, 4, seed=1)
    assert make_canaries(task, ROWS, 4, seed=1) != make_canaries(task, ROWS, 4, seed=2)


def test_the_rows_themselves_stay_as_they_are():
    before = json.dumps(ROWS)
    make_canaries(task_of(exact), ROWS, 12, seed=0)
    assert json.dumps(ROWS) == before


def test_a_prompt_that_holds_the_gold_gives_no_canary():
    told = task_of(exact, prompt=lambda row: [{"role": "user", "content": f"{row['question']} It is {row['gold']}."}])
    assert make_canaries(told, ROWS) == []
    with pytest.raises(UserError, match="No canaries can be made"):
        watch_canaries(told, ROWS)


def test_a_reward_that_never_reads_the_gold_gives_none_either():
    with pytest.raises(UserError, match="alike"):
        watch_canaries(task_of(any_label), ROWS)


def test_a_task_without_oracle_is_refused():
    with pytest.raises(UserError, match="no oracle"):
        watch_canaries(task_of(exact, oracle=None), ROWS)


def test_chance_is_what_the_best_constant_answer_gets_and_the_bar_lies_near_the_ceiling():
    watch = watch_canaries(task_of(exact), ROWS)
    golds = [canary.row["gold"] for canary in watch.canaries]
    assert len(golds) == 12
    assert watch.chance == pytest.approx(max(golds.count(label) for label in LABELS) / 12)
    assert {canary.bar for canary in watch.canaries} == {0.9}


def test_partial_credit_of_a_wrong_answer_is_not_paid():
    def half(completions, gold, **kwargs):
        return [1.0 if c[0]["content"] == g else 0.5 for c, g in zip(completions, gold, strict=True)]

    assert {canary.bar for canary in watch_canaries(task_of(half), ROWS).canaries} == {0.95}


def canaries(count):
    return [Canary({"id": f"canary-{n}"}, n, 0.9) for n in range(count)]


def test_as_many_are_asked_as_the_rate_says():
    watch = Watch(canaries(3), 0.3)
    asked = [[c.place for c in watch.due(step, prompts=8, rate=0.0625)] for step in range(1, 9)]
    assert asked == [[], [0], [], [1], [], [2], [], [0]]
    assert [c.place for c in watch.due(1, prompts=8, rate=0.5)] == [0, 1, 2, 0]


def test_metrics_of_a_step():
    watch = Watch(canaries(2), 0.25)
    row = watch.note(watch.canaries, np.array([[1.0, 0.9, 0.0, np.nan], [0.0, 0.0, 0.0, 0.5]]))
    assert row["canary/reward"] == pytest.approx(2.4 / 7)
    assert row["canary/share_paid"] == 0.25
    assert row["canary/p"] == pytest.approx(1 - 0.75**2)  # one of two by a chance of a quarter
    assert "canary/alarm" not in row


def test_paid_canaries_beyond_chance_raise_the_alarm():
    watch = Watch(canaries(6), 0.3)
    row = watch.note(watch.canaries, np.ones((6, 4)))
    assert row["canary/p"] == pytest.approx(0.3**6) and row["canary/p"] < ALARM
    assert row["canary/alarm"].startswith("Canaries earn: 6 of 6")


def test_a_canary_that_is_asked_again_counts_once():
    watch = Watch(canaries(2), 0.3)
    for _ in range(10):
        watch.note(watch.canaries, np.ones((2, 4)))
    assert watch.unlikely == pytest.approx(0.09) and watch.alarm == ""


def test_guessing_raises_no_alarm():
    watch = Watch(canaries(30), 1 / 3)
    rng = np.random.default_rng(0)
    for _ in range(20):
        watch.note(watch.canaries, np.repeat(rng.random((30, 1)) < 1 / 3, 8, axis=1).astype(float))
        assert watch.alarm == ""


def test_training_samples_and_keeps_canaries_and_learns_the_same_without_them(tmp_path):
    torch = pytest.importorskip("torch")
    import tiny

    from earnest.config import TrainConfig
    from earnest.engine.policy import Policy
    from earnest.engine.rollouts import make_prompts
    from earnest.engine.train import train

    def spread(completions, gold, **kwargs):
        texts = [c[0]["content"] for c in completions]
        return [1.0 if text == g else 0.01 * len(text) for text, g in zip(texts, gold, strict=True)]

    rows = [{"id": f"r{i}", "split": "train", "question": "abcdefgh"[i], "gold": "xyz"[i % 3]} for i in range(8)]
    task = task_of(spread)
    trained, records = [], []
    for rate in (0.0, 0.5):
        policy = Policy(tiny.make("llama"), rank=4)
        config = TrainConfig(
            steps=3,
            num_prompts=2,
            num_generations=4,
            max_completion_length=4,
            learning_rate=1e-3,
            save_steps=0,
            max_dead_steps=0,
            canary_rate=rate,
        )
        train(policy, task, make_prompts(task, policy.loaded, rows, False, 4), config, tmp_path / str(rate), 0, False, lambda row: None)
        trained.append(torch.cat([p.detach().flatten() for p in policy.trainable()]))
        files = [(tmp_path / str(rate) / name).read_text().splitlines() for name in ("rollouts.jsonl", "metrics.jsonl")]
        records.append([[json.loads(line) for line in lines] for lines in files])
    (plain, plain_metrics), (watched, metrics) = records
    canaries_ = [r for r in watched if r["id"].startswith("canary-")]
    assert [r for r in watched if not r["id"].startswith("canary-")] == plain
    assert len(canaries_) == 3 * 4 and {r["advantage"] for r in canaries_} == {0.0} and min(r["group"] for r in canaries_) == 1_000_000
    assert torch.equal(*trained)
    assert all({"canary/reward", "canary/share_paid", "canary/chance", "canary/p"} <= set(row) for row in metrics)
    assert not any(key.startswith("canary") for row in plain_metrics for key in row)
    assert [row["reward"] for row in metrics] == [row["reward"] for row in plain_metrics]
