"""The same environment on TRL's own trainer: tools, prompts, messages, states, rewards and loss mask, against ours for the same turns.

TRL's trainer is the real one, and so are its tool loop, its parser and its template. Only the sampling is scripted, here and there: token
ids of texts in place of those a model would draw.
"""

import copy
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from transformers.utils import get_json_schema

from earnest import Limits, Task, UserError
from earnest.engine import turns
from earnest.engine.dialect import Dialect, schemas_of
from earnest.engine.rollouts import Sampled, _last, make_prompts, score_batch
from earnest.engine.sampler import Completion, Sampling
from earnest.engine.turns import acting_metrics, converse
from earnest.environment import begin, load_task, play, with_own_reward
from earnest.rewards.calls import answer_object, as_messages, calls_in
from earnest.rewards.verifier import Attempt
from earnest.rows import load_rows
from earnest.score import reward_names, score
from earnest.task import load_task as task_from
from earnest.task import messages_of
from earnest.tasks.billing_agent import billing_task, policies

trl = pytest.importorskip("trl")
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
GUIDE = Path(__file__).parents[1] / "docs" / "environments.md"
WORLD = {"__name__": "guide"}
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
for block in (BLOCKS[0], *(block for block in BLOCKS if "def on_trl" in block)):
    exec(block, WORLD)
STORE, Store, on_trl = WORLD["task"], WORLD["Store"], WORLD["on_trl"]


# ---- the same turns, there and here


def tokenizer_of(template):
    tokenizer = tiny.make_tokenizer(template if "{" in template else (TEMPLATES / f"{template}.jinja").read_text())
    if template.startswith("llama"):
        names = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>"]
        tokenizer.add_special_tokens({"additional_special_tokens": names, "eos_token": "<|eot_id|>", "bos_token": "<s>"})
    return tokenizer


def loaded_of(template):
    return tiny.make(
        "llama", tokenizer=tokenizer_of(template), vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16384,
    )  # fmt: skip


def dialect_of(task, tokenizer):
    return Dialect(tokenizer, schemas_of(begin(task, load_rows(task).split("train")[0]).tools.values()))


def said_by(task, template, messages):
    """The texts of the model's turns."""
    dialect = dialect_of(task, tokenizer_of(template))
    return [dialect.turn(message) for message in messages if message["role"] == "assistant"]


def state_of(environment):
    """All there is to know of an environment."""
    if hasattr(environment, "db"):
        return hashlib.sha256("\n".join(environment.db.iterdump()).encode()).hexdigest()
    return None if environment is None else copy.deepcopy(vars(environment))


def watched(task):
    """The task with a reward function that pays nothing, and the list of what it is shown."""
    shown = []

    def seen(prompts, completions, environments=None, **columns):
        states = [state_of(environment) for environment in environments or [None] * len(prompts)]
        shown.append(SimpleNamespace(prompts=copy.deepcopy(prompts), messages=copy.deepcopy(completions), states=states, columns=columns))
        return [None] * len(prompts)

    weights = None if task.reward_weights is None else [*task.reward_weights, 1.0]
    return replace(task, rewards=[*task.rewards, seen], reward_weights=weights), shown


def encoded(tokenizer, end, text):
    """The tokens of a turn; one that ends in '...' is cut off."""
    return tokenizer.encode(text.removesuffix("..."), add_special_tokens=False) + ([] if text.endswith("...") else [end])


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A function that plays scripts on TRL's trainer: for each train row of a task, G lists of turns."""
    monkeypatch.setattr(trl.GRPOTrainer, "_send_telemetry", lambda self: None)  # the suite stays offline
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    def play_there(task, scripts, template="qwen2_5", steps=0, times=1, **settings):
        task, shown = watched(task)
        loaded, flat = loaded_of(template), [script for group in scripts for script in group]
        settings = {
            "output_dir": str(tmp_path), "per_device_train_batch_size": len(flat), "num_generations": len(scripts[0]),
            "max_completion_length": 8000, "max_steps": max(steps, 1), "logging_steps": 1, "shuffle_dataset": False, "use_cpu": True,
            "bf16": False, "save_strategy": "no", "report_to": [], "disable_tqdm": True, **settings,
        }  # fmt: skip
        trainer = on_trl(task, loaded.model, settings, processing_class=loaded.tokenizer)
        score, outputs = trainer._generate_and_score_completions, []

        def keep(inputs):
            left, history = [list(script) for script in flat], [[] for _ in flat]

            def generate(prompt_ids, *others, **more):
                places, drawn = iter(range(len(flat))), []
                for ids in prompt_ids:  # those that go on, in their order
                    place = next(place for place in places if ids[: len(history[place])] == history[place])
                    drawn.append(encoded(loaded.tokenizer, loaded.tokenizer.eos_token_id, left[place].pop(0)))
                    history[place] = ids + drawn[-1]
                return drawn, None

            monkeypatch.setattr(trainer, "_generate_single_turn", generate)
            outputs.append(score(inputs))
            return outputs[-1]

        monkeypatch.setattr(trainer, "_generate_and_score_completions", keep)
        trainer.model.train()
        if steps:
            trainer.train()
        for _ in range(0 if steps else times):
            keep([row for row in trainer.train_dataset for _ in scripts[0]])
        rewards = {name: list(values) for name, values in trainer._logs["rewards"].items() if name != "seen"}
        return SimpleNamespace(trainer=trainer, outputs=outputs, shown=shown, rewards=rewards, **vars(shown[-1]))

    return play_there


@pytest.fixture
def ours(monkeypatch):
    """A function that plays the same scripts through our rollouts."""

    def play_here(task, scripts, template="qwen2_5", max_tokens=8000):
        loaded, rows = loaded_of(template), load_rows(task).split("train")
        task, shown = watched(task)
        said = [[list(script) for script in group] for group in scripts]

        def sample(loaded, decoder, histories, seeds, samples, sampling, rows=64, advance=None, drafts=None, rooms=None):
            def turn(text):
                ids = tuple(encoded(loaded.tokenizer, loaded.tokenizer.eos_token_id, text))
                return Completion(ids, not text.endswith("..."), 0.0, (-1.0,) * len(ids))

            if rooms is None:
                return [[turn(script.pop(0)) for script in group] for group in said]
            return [[turn(said[seed[-3]][seed[-2] - 1].pop(0))] for seed in seeds]

        monkeypatch.setattr(turns, "sample", sample)
        prompts = make_prompts(task, loaded, rows, False, 10)
        policy = SimpleNamespace(loaded=loaded, decoder=lambda remember: None, drafts=None)
        groups = converse(policy, task, prompts, len(scripts[0]), Sampling(1.0, max_tokens=max_tokens), [0], False)
        flat = [rollout for group in groups for rollout in group]
        samples = [[Sampled(r.completion, _last(r.episode.messages), r) for r in group] for group in groups]
        batch = score_batch(task, prompts, samples, 0)
        rewards = dict(zip(batch.scores.names, batch.scores.values.T.tolist(), strict=True))
        del rewards["seen"]
        return SimpleNamespace(rollouts=flat, rewards=rewards, total=batch.scores.total.tolist(), **vars(shown[-1]))

    return play_here


def unpadded(output, name):
    """The rows of a batch of TRL's, without padding."""
    return [ids[mask.bool()].tolist() for ids, mask in zip(output[f"{name}_ids"], output[f"{name}_mask"], strict=True)]


def plain(messages):
    """Messages without ids of calls, and with what tools answered as the value it stands for; of errors only that they are."""

    def one(message):
        message = {key: value for key, value in message.items() if key != "tool_call_id"}
        if message["role"] == "tool":
            answer = answer_object(message["content"]) or message["content"]
            message["content"] = {"error": True} if isinstance(answer, dict) and "error" in answer else answer
        if "tool_calls" in message:
            message["tool_calls"] = [{key: value for key, value in call.items() if key != "id"} for call in message["tool_calls"]]
        return message

    return [[one(message) for message in conversation] for conversation in messages]


def parts(ids, own):
    """Runs of tokens of the model's, and of others, in turn."""
    made = []
    for token, mine in zip(ids, own, strict=True):
        if not made or made[-1][0] != bool(mine):
            made.append((bool(mine), []))
        made[-1][1].append(token)
    return made


# ---- tasks and scripts


class Talking(Store):
    """A store whose tools answer with text."""

    def reset(self, shelves, pair, **row):
        super().reset(shelves, **row)
        return f" There are {len(shelves)} things."

    def find(self, thing: str) -> str:
        """Tell the shelf of a thing.

        Args:
            thing: Its name.
        """
        return json.dumps(super().find(thing))

    def move(self, thing: str, shelf: int) -> str:
        """Put a thing on a shelf.

        Args:
            thing: Its name.
            shelf: Its number.
        """
        return json.dumps(super().move(thing, shelf))


def shout(text: str, times: int | None = None) -> str:
    """Write a text in capitals.

    Args:
        text: What.
        times: How often.
    """
    return text.upper() * (times or 1)


def shouted(completions, thing, **columns):
    return [float(messages[-1]["content"] == one.upper()) for messages, one in zip(completions, thing, strict=True)]


TALKING = replace(STORE, environment=Talking)
SHOUTING = Task(
    rows=[{"id": name, "split": "train", "thing": name} for name in ("lamp", "rope")],
    prompt=lambda row: [{"role": "system", "content": "Be loud."}, {"role": "user", "content": row["thing"]}],
    tools=[shout],
    rewards=[shouted],
    check=lambda messages, row: True,
)
DESK = billing_task()
TASKS = {"store": STORE, "talking": TALKING, "plain tools": SHOUTING, "desk": DESK}


def of_rows(task, count):
    """The task with its first train rows only; of the desk, with one of each family."""
    rows = load_rows(task).split("train")
    if "family" in rows[0]:
        rows = list({row["family"]: row for row in reversed(rows)}.values())
    return replace(task, rows={"train": rows[:count]})


def store_scripts(row):
    """The perfect attempt, two calls in one turn, one that does nothing, and one that puts the thing in the wrong place."""
    (find, move), (thing, other) = (
        [m["tool_calls"][0] for m in STORE.oracle(row) if m["role"] == "assistant" and m.get("tool_calls")],
        row["pair"],
    )
    both = [{"role": "assistant", "content": "At once.", "tool_calls": [find, move]}, {"role": "assistant", "content": "It is done."}]
    wrong = as_messages([("move", {"thing": other, "shelf": row["shelves"][thing]}), ("find", {"thing": "nothing"})], answer="ok")
    return [STORE.oracle(row), both, [{"role": "assistant", "content": "I moved it."}], wrong]


def scripts_of(task, template, make):
    """For each row, the texts of each of its scripts."""
    return [[said_by(task, template, script) for script in make(row)] for row in load_rows(task).split("train")]


def desk_scripts(row):
    """What each scripted policy does, and a perfect attempt after a call too many."""
    made = [policy(row) for policy in policies.POLICIES.values()]
    made.append([*as_messages([("find_customer", {"email": row["email"]})]), *policies.oracle(row)])
    return [messages_of(script) for script in made]


# ---- what is the same


@pytest.mark.parametrize("template", ["qwen2_5", "qwen3", "llama3_2"])
@pytest.mark.parametrize("name", TASKS)
def test_tools_their_descriptions_and_the_prompt_with_them(name, template, theirs):
    task = of_rows(TASKS[name], 2)
    there = theirs(task, [[["ok"]] * 2] * 2, template)
    row = load_rows(task).split("train")[1]
    episode, tools = begin(task, row), there.trainer._env_tools[None] if task.environment else there.trainer.tools
    assert [tool.__name__ for tool in tools] == list(episode.tools) and len(tools) == {"plain tools": 1, "desk": 9}.get(name, 2)
    assert [get_json_schema(tool) for tool in tools] == schemas_of(episode.tools.values())
    (prompt,) = make_prompts(task, loaded_of(template), [row], False, 10)
    assert there.prompts[2] == prompt.messages
    assert unpadded(there.outputs[0], "prompt")[2] == list(prompt.ids)
    assert all(column[2] == row[key] for key, column in there.columns.items() if key in row and key != "prompt")


@pytest.mark.parametrize("template", ["qwen2_5", "qwen3"])
@pytest.mark.parametrize("name", ["store", "talking"])
def test_messages_states_rewards_tokens_and_loss_mask(name, template, theirs, ours):
    task = of_rows(TASKS[name], 2)
    scripts = scripts_of(task, template, store_scripts)
    there, here = theirs(task, scripts, template), ours(task, scripts, template)
    assert plain(there.messages) == plain(here.messages)
    assert there.states == here.states
    assert there.rewards == here.rewards == {"moved": [1.0, 1.0, 0.0, 0.0] * 2}
    tokenizer = tokenizer_of(template)
    for ids, mask, rollout in zip(unpadded(there.outputs[0], "completion"), there.outputs[0]["tool_mask"], here.rollouts, strict=True):
        mask = mask.tolist()[: len(ids)]
        if name == "talking" and "nothing" not in tokenizer.decode(ids):  # the text of an error is another there
            assert (ids, mask) == (rollout.ids, [int(own) for own in rollout.own])
        mine, its = parts(rollout.ids, rollout.own), parts(ids, mask)
        assert [own for own, _ in mine] == [own for own, _ in its] and len(its) in (1, 3, 5)
        assert [run for own, run in mine if own] == [run for own, run in its if own]


def test_a_template_that_takes_one_call_a_turn(theirs, ours):
    task = of_rows(TALKING, 2)
    scripts = scripts_of(task, "llama3_2", lambda row: [store_scripts(row)[0], store_scripts(row)[2]])
    there, here = theirs(task, scripts, "llama3_2"), ours(task, scripts, "llama3_2")
    assert plain(there.messages) == plain(here.messages) and there.rewards == here.rewards == {"moved": [1.0, 0.0] * 2}
    assert unpadded(there.outputs[0], "completion") == [r.ids for r in here.rollouts]
    assert [mask.tolist()[: len(r.ids)] for mask, r in zip(there.outputs[0]["tool_mask"], here.rollouts, strict=True)] == [
        [int(own) for own in r.own] for r in here.rollouts
    ]


def test_every_policy_of_the_billing_desk_earns_the_same_in_every_family(theirs, ours):
    task = replace(of_rows(DESK, 99), limits=Limits(turns=30, calls=40))  # room for those that refund everything
    scripts = scripts_of(task, "qwen2_5", desk_scripts)
    there, here = theirs(task, scripts, max_completion_length=14_000), ours(task, scripts, max_tokens=14_000)
    assert there.states == here.states and len(scripts) >= 6
    assert plain(there.messages) == plain(here.messages)
    np.testing.assert_allclose(there.rewards["billing"], here.rewards["billing"], atol=1e-6)  # TRL's are float32
    paid = np.reshape(there.rewards["billing"], (len(scripts), -1))
    assert (paid[:, 0] == 1.0).all() and len(np.unique(paid.round(3))) >= 4  # the oracle is the first, and the policies differ
    rows = load_rows(task).split("train")
    played, asked = [play(task, row, script) for row in rows for script in desk_scripts(row)], [row for row in rows for _ in scripts[0]]
    messages, environments = [e.messages for e in played], [e.environment for e in played]
    by_play = score(task.rewards, task.weights, [task.prompt(row) for row in asked], messages, asked, environments=environments)
    np.testing.assert_allclose(there.rewards["billing"], by_play.values[:, 0], atol=1e-6)
    assert [state_of(e.environment) for e in played] == there.states


def test_the_guides_trainer_takes_a_step(theirs, ours):
    task = of_rows(STORE, 1)
    scripts = scripts_of(task, "qwen2_5", store_scripts)
    there, here = theirs(task, scripts, steps=1, max_completion_length=1200), ours(task, scripts)
    logged, row = there.trainer.state.log_history[0], acting_metrics(here.rollouts)
    assert there.rewards == here.rewards
    assert logged["loss"] != 0 and logged["grad_norm"] > 0 and logged["rewards/moved/mean"] == 0.5
    for name in ("call_frequency", "failure_frequency"):
        assert logged[f"tools/{name}"] == pytest.approx(row[f"tools/{name}"]) and row[f"tools/{name}"] > 0
    own = sum(sum(r.own) for r in here.rollouts)
    assert there.outputs[0]["num_items_in_batch"] == own
    assert logged["completions/mean_length"] == own / 4


def test_objects_that_trl_uses_again_start_every_rollout_alike(theirs, ours):
    task = of_rows(STORE, 2)
    scripts = scripts_of(task, "qwen2_5", store_scripts)
    there, here = theirs(task, scripts, times=3), ours(task, scripts)
    assert len(there.shown) == 3 and len(there.trainer._environment_pool[None]) == 8  # made once, reset for each rollout
    assert [shown.states for shown in there.shown] == [here.states] * 3


class Scoring(Store):
    """A store that scores itself, and waits."""

    def reset(self, shelves, pair, **row):
        super().reset(shelves)
        self.pair, self.start = pair, dict(shelves)

    async def find(self, thing: str) -> dict:
        """Tell the shelf of a thing.

        Args:
            thing: Its name.
        """
        return super().find(thing)

    async def get_reward(self) -> float:
        return 0.25 * sum(self.shelves[name] != self.start[name] for name in self.shelves)


async def patient(environments, shelves, pair, **columns):
    return WORLD["moved"](environments, shelves, pair)


@pytest.mark.parametrize("rewards", [[WORLD["moved"]], [patient], []], ids=["plain", "async", "none"])
def test_an_environment_that_scores_itself(rewards, theirs, ours):
    weights = [2.0] * len(rewards)
    task = of_rows(replace(STORE, environment=Scoring, rewards=rewards, reward_weights=weights), 2)
    scripts = scripts_of(task, "qwen2_5", lambda row: [store_scripts(row)[0], store_scripts(row)[3]])
    own = with_own_reward(task)
    there, here = theirs(task, scripts), ours(own, scripts)
    names = [name for name in there.trainer.reward_func_names if name != "seen"]
    assert names == list(reward_names(own.rewards)) and names[-1] == "Scoring"
    assert there.rewards == here.rewards and here.rewards["Scoring"] == [0.25] * 4
    assert [w for w, name in zip(there.trainer.reward_weights, there.trainer.reward_func_names, strict=True) if name != "seen"] == [
        *own.weights
    ]
    assert here.total == [2.0 * len(rewards) + 0.25, 0.25] * 2


def test_an_environment_that_scores_itself_needs_no_other_reward(tmp_path, monkeypatch):
    monkeypatch.setattr(trl.GRPOTrainer, "_send_telemetry", lambda self: None)
    file = tmp_path / "alone_store.py"
    scored = BLOCKS[0].replace("rewards=[moved]", "rewards=[]")
    method = "    def get_reward(self) -> float:\n        return 1.0\n\n    def find("
    file.write_text(scored.replace("    def find(", method))
    loaded, settings = loaded_of("qwen2_5"), {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False, "report_to": []}
    trainer = on_trl(task_from(str(file)), loaded.model, settings, processing_class=loaded.tokenizer)
    assert trainer.reward_func_names == [reward.__name__ for reward in load_task(str(file)).rewards] == ["Store"]
    assert trainer.reward_weights.tolist() == list(load_task(str(file)).weights) == [1.0]
    file.write_text(scored)
    with pytest.raises(ValueError, match="No reward source"):
        on_trl(task_from(str(file)), loaded.model, settings, processing_class=loaded.tokenizer)
    with pytest.raises(UserError, match=r"has no rewards, and its environment has no get_reward\(\)"):
        load_task(str(file))


def test_rows_whose_objects_have_other_keys_stay_as_they_are(theirs):  # S-DL-02
    rows = [{**row, "split": "train"} for row in (STORE.rows[0], STORE.rows[-1])]
    assert rows[0]["shelves"].keys() != rows[1]["shelves"].keys()
    task = replace(STORE, rows=rows, prompt=lambda row: [{"role": "user", "content": "Move it."}])
    there = theirs(task, [[["ok"]] * 2] * 2)
    assert [state["shelves"] for state in there.states] == [row["shelves"] for row in rows for _ in range(2)]


def test_the_limit_on_turns_is_the_same(theirs, ours):
    task = replace(of_rows(STORE, 1), limits=Limits(turns=3))
    row = load_rows(task).split("train")[0]
    again = said_by(task, "qwen2_5", as_messages([("move", {"thing": name, "shelf": 10 + n}) for n, name in enumerate(row["shelves"])]))
    there, here = theirs(task, [[again[:4]] * 2]), ours(task, [[again[:4]] * 2])
    assert there.states == here.states and plain(there.messages) == plain(here.messages)
    assert [m["role"] for m in there.messages[0]] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert here.rollouts[0].ended == "turn limit"


# ---- where TRL does otherwise (the guide's table)


def test_an_answer_that_is_no_text_is_python_there_and_json_here(theirs, ours):
    class Odd(Store):
        """Answers with what JSON and Python write differently."""

        def find(self, thing: str) -> dict:
            """Tell the shelf of a thing.

            Args:
                thing: Its name.
            """
            return {"here": True, "by": None, "shelf": 7}

    task = of_rows(replace(STORE, environment=Odd), 1)
    scripts = scripts_of(
        task, "qwen2_5", lambda row: [as_messages([("find", {"thing": "lamp"}), ("move", {"thing": "no", "shelf": 1})], answer="ok")] * 2
    )
    there, here = theirs(task, scripts), ours(task, scripts)
    assert there.messages[0][1]["content"] == "{'here': True, 'by': None, 'shelf': 7}"
    assert here.messages[0][1]["content"] == '{"here": true, "by": null, "shelf": 7}'
    assert plain(there.messages) == plain(here.messages)  # as `answer_object` reads both


def test_an_error_has_the_name_of_its_kind_only_here(theirs, ours):
    task = of_rows(STORE, 1)
    scripts = scripts_of(task, "qwen2_5", lambda row: [as_messages([("move", {"thing": "lamp", "shelf": 500})], answer="ok")] * 2)
    there, here = theirs(task, scripts), ours(task, scripts)
    assert answer_object(there.messages[0][1]["content"]) == {"error": "no such thing or shelf"}
    assert answer_object(here.messages[0][1]["content"]) == {"error": "ValueError: no such thing or shelf"}


def test_a_call_that_cannot_be_read_ends_the_rollout_there_and_is_answered_here(theirs, ours):
    task = of_rows(STORE, 1)
    scripts = [[['<tool_call>\n{"name": "find", "argum\n</tool_call>', "sorry"]] * 2]
    there, here = theirs(task, scripts), ours(task, scripts)
    assert [m["role"] for m in there.messages[0]] == ["assistant"] and "tool_calls" not in there.messages[0][0]
    assert [m["role"] for m in here.messages[0]] == ["assistant", "tool", "assistant"]


def test_arguments_of_a_wrong_type_reach_the_tool_only_there(theirs, ours):
    task = of_rows(STORE, 1)
    scripts = [[['<tool_call>\n{"name": "find", "arguments": {"thing": 7}}\n</tool_call>', "sorry"]] * 2]
    there, here = theirs(task, scripts), ours(task, scripts)
    assert answer_object(there.messages[0][1]["content"]) == {"error": "7"}  # a KeyError's text
    assert here.rollouts[0].episode.counts.malformed == 1 and "7 is not of type" in here.messages[0][1]["content"]


def test_async_tools_of_a_turn_come_last_there_and_in_their_order_here(theirs, ours):
    task = of_rows(replace(STORE, environment=Scoring, rewards=[]), 1)
    scripts = scripts_of(task, "qwen2_5", lambda row: [store_scripts(row)[1]] * 2)  # finds, and moves
    there, here = theirs(task, scripts), ours(task, scripts)
    assert [m.get("name") for m in there.messages[0]] == [None, "move", "find", None]
    assert [m.get("name") for m in here.messages[0]] == [None, "find", "move", None]
    pairs = [[(call.name, dict(answer_object(call.result))) for call in calls_in(Attempt(tuple(s.messages[0])))[0]] for s in (there, here)]
    assert pairs[0] == pairs[1] and there.states == here.states  # answers are told apart by name


def test_a_reward_function_must_take_everything_only_there(theirs, ours):
    def named(environments):
        return [1.0 for _ in environments]

    task = of_rows(replace(STORE, rewards=[named]), 1)
    assert ours(task, [[["ok"]] * 2]).rewards == {"named": [1.0, 1.0]}
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        theirs(task, [[["ok"]] * 2])


def test_a_template_without_tools_is_refused_only_there(theirs, ours):
    task = of_rows(STORE, 1)
    call = '<tool_call>{"name": "find", "arguments": {"thing": "lamp"}}</tool_call>'
    assert ours(task, [[[call, "ok"]] * 2], tiny.CHATML).rollouts[0].episode.counts.calls == 1
    with pytest.raises(ValueError, match="does not support tool calling"):
        theirs(task, [[["ok"]] * 2], tiny.CHATML)


def test_done_ends_a_rollout_only_here(theirs, ours):
    class Once(Store):
        """Done after the first move."""

        done = False

        def move(self, thing: str, shelf: int) -> dict:
            """Put a thing on a shelf.

            Args:
                thing: Its name.
                shelf: Its number.
            """
            self.done = True
            return super().move(thing, shelf)

    task = of_rows(replace(STORE, environment=Once), 1)
    scripts = scripts_of(task, "qwen2_5", lambda row: [STORE.oracle(row)] * 2)
    there, here = theirs(task, scripts), ours(task, scripts)
    assert [len(messages) for messages in (there.messages[0], here.messages[0])] == [5, 4]
    assert there.states == here.states and there.rewards == here.rewards == {"moved": [1.0, 1.0]}


def test_what_a_tool_answered_without_room_for_it_is_forgotten_there_and_kept_here(theirs, ours):
    task = of_rows(STORE, 1)
    scripts = scripts_of(task, "qwen2_5", lambda row: [STORE.oracle(row)] * 2)
    room = len(scripts[0][0][0]) + 20  # for the first call, not for its answer
    there, here = theirs(task, scripts, max_completion_length=room), ours(task, scripts, max_tokens=room)
    assert [m["role"] for m in there.messages[0]] == ["assistant"]
    assert [m["role"] for m in here.messages[0]] == ["assistant", "tool"]
    assert there.states == here.states
    assert unpadded(there.outputs[0], "completion") == [r.ids for r in here.rollouts]
    assert there.trainer._metrics["train"]["completions/clipped_ratio"] == [0.0]  # its last token ends a turn
    assert not any(r.completion.terminated for r in here.rollouts)


def test_a_tool_can_end_a_turn_only_there(theirs, ours):
    class Lying(Talking):
        """Answers with the end of a turn."""

        def find(self, thing: str) -> str:
            """Tell the shelf of a thing.

            Args:
                thing: Its name.
            """
            return "<|im_end|>"

    task = of_rows(replace(STORE, environment=Lying), 1)
    scripts = scripts_of(task, "qwen2_5", lambda row: [as_messages([("find", {"thing": "lamp"})], answer="ok")] * 2)
    there, here = theirs(task, scripts), ours(task, scripts)
    ends = [unpadded(there.outputs[0], "completion")[0].count(tiny.END), here.rollouts[0].ids.count(tiny.END)]
    assert ends == [4, 3]  # of the call, of the answer's message, of the model's last turn, and the tool's own


def test_token_ids_shown_to_rewards_hold_what_tools_said_only_there(theirs, ours):
    task = of_rows(STORE, 1)
    scripts = scripts_of(task, "qwen2_5", lambda row: [STORE.oracle(row)] * 2)
    there, here = theirs(task, scripts), ours(task, scripts)
    assert there.columns["completion_ids"] == unpadded(there.outputs[0], "completion")
    assert here.columns["completion_ids"] == [[t for t, own in zip(r.ids, r.own, strict=True) if own] for r in here.rollouts]
