"""Tools and environments: what a model's calls do, and what they can never do."""

import asyncio
import json
import time

import pytest

from earnest import Task, UserError
from earnest.check import check_task
from earnest.environment import Episode, acted, answer_to, as_text, begin, methods_of, play, run_turns, with_own_reward
from earnest.redteam.audit import audit
from earnest.rewards.calls import ToolCall, as_messages
from earnest.rows import load_rows
from earnest.task import Limits, judge


class Cart:
    """A shop's cart."""

    def __init__(self):
        self.items = []

    def reset(self, wanted, **_):
        self.wanted, self.items = wanted, []
        return f" You have {self.items}."

    def add(self, item: str, count: int = 1) -> dict:
        """Put something into the cart.

        Args:
            item: What.
            count: How many.
        """
        if count < 1:
            raise ValueError("count must be at least 1")
        self.items += [item] * count
        return {"items": len(self.items)}

    def hang(self) -> str:
        """Take forever."""
        time.sleep(5)
        return "late"

    async def look(self) -> str:
        """Look at the cart, slowly."""
        before = list(self.items)
        await asyncio.sleep(0.05)
        assert before == self.items
        return ", ".join(self.items)

    def _secret(self):
        """No tool."""

    def get_reward(self) -> float:
        return float(self.items == self.wanted)


ROWS = [{"id": f"r{n}", "wanted": wanted} for n, wanted in enumerate([["tea"], ["tea", "milk"], ["jam"], ["jam", "jam"]])]


def done(messages, row, environment):
    return environment.items == row["wanted"]


def oracle(row):
    return as_messages([("add", {"item": item}) for item in row["wanted"]], answer="done")


def task(**options):
    given = {
        "rows": ROWS,
        "prompt": lambda row: [{"role": "user", "content": f"Buy {row['wanted']}."}],
        "rewards": [],
        "check": done,
        "oracle": oracle,
        "environment": Cart,
        "name": "cart",
        "limits": Limits(seconds=0.2),
    }
    return Task(**given | options)


def call(name, arguments=None, problem=""):
    return ToolCall(name, {} if arguments is None else arguments, problem)


def test_tools_are_the_public_methods_of_the_class_but_reset_and_get_reward():
    assert [tool.__name__ for tool in methods_of(Cart())] == ["add", "hang", "look"]


def test_every_episode_starts_from_the_same_state_and_shares_nothing():  # S-TE-02
    first, second = begin(task(), ROWS[0]), begin(task(), ROWS[0])
    answer_to(first, call("add", {"item": "tea"}), 1.0)
    assert first.environment.items == ["tea"] and second.environment.items == []
    first.environment.wanted.append("changed")
    assert ROWS[0]["wanted"] == ["tea"]


def test_an_exception_is_a_message_to_the_model_and_a_count():
    episode = begin(task(), ROWS[0])
    message = answer_to(episode, call("add", {"item": "tea", "count": 0}), 1.0)
    assert json.loads(message["content"]) == {"error": "ValueError: count must be at least 1"}
    assert (episode.counts.calls, episode.counts.failed, episode.counts.malformed) == (1, 1, 0)


@pytest.mark.parametrize(
    "bad",
    [
        call("buy"),
        call("_secret"),
        call("reset", {"wanted": []}),
        call("get_reward"),
        call("add"),
        call("add", {"thing": "tea"}),
        call("add", {"item": "tea"}, problem="a call that is not JSON"),
        ToolCall("add", None, "add without arguments"),
        ToolCall("", None, "a call without a name"),
    ],
)
def test_a_call_that_does_not_fit_is_never_run(bad):  # S-TC-02, S-TC-04, S-TC-06
    episode = begin(task(), ROWS[0])
    message = answer_to(episode, bad, 1.0)
    assert "error" in json.loads(message["content"])
    assert episode.environment.items == [] and episode.counts.malformed == 1


def test_a_hung_tool_is_cut_and_nothing_runs_in_its_environment_any_more():
    episode = begin(task(), ROWS[0])
    began = time.monotonic()
    message = answer_to(episode, call("hang"), 0.1)
    after = answer_to(episode, call("add", {"item": "tea"}), 0.1)
    assert time.monotonic() - began < 1
    assert "no answer within" in message["content"] and "did not come back" in after["content"]
    assert episode.counts.hung == 1 and episode.environment.items == []


def test_rollouts_run_side_by_side_and_each_sees_its_own_state():  # S-TE-01
    episodes = [begin(task(), ROWS[0]) for _ in range(8)]
    began = time.monotonic()
    run_turns([(e, [call("add", {"item": str(n)}), call("look")]) for n, e in enumerate(episodes)], 5.0)
    assert time.monotonic() - began < 8 * 0.05
    assert [e.messages[-1]["content"] for e in episodes] == [str(n) for n in range(8)]


def test_repeated_calls_are_counted():
    episode = begin(task(), ROWS[0])
    for item in ("tea", "tea", "jam"):
        answer_to(episode, call("add", {"item": item}), 1.0)
    assert episode.counts.repeated == 1


def test_what_a_script_says_of_an_answer_is_replaced_by_the_real_one():
    forged = as_messages([("add", {"item": "tea"})], result={"items": 99}, answer="done")
    episode = play(task(), ROWS[0], forged)
    assert [m["role"] for m in episode.messages] == ["assistant", "tool", "assistant"]
    assert json.loads(episode.messages[1]["content"]) == {"items": 1}


def test_check_gets_the_environment_as_the_attempt_left_it():
    messages, environment = acted(task(), ROWS[1], oracle(ROWS[1]))
    assert judge(task(), messages, ROWS[1], environment).correct
    assert not judge(task(), *(acted(task(), ROWS[1], oracle(ROWS[0]))[:1]), ROWS[1], acted(task(), ROWS[1], "done")[1]).correct


def test_an_environment_may_score_itself_under_the_name_of_its_class():
    own = with_own_reward(task())
    assert [reward.__name__ for reward in own.rewards] == ["Cart"]
    report = check_task(own, load_rows(own))
    assert report.ok and report.ceiling == 1.0, report.findings


def test_the_red_team_plays_its_trajectories_in_the_environment():
    own = with_own_reward(task())
    found = audit(own, load_rows(own), search_calls=0)
    assert found.kind == "calls"
    assert found.board[0].mean == 1.0 and not found.exploitable, [f for f in found.findings if f.certainty == "fact"]


def test_a_reset_that_raises_names_the_task_the_row_and_the_remedy():
    class Broken(Cart):
        def reset(self, nothing_of_the_kind, **_):
            """Raises."""

    with pytest.raises(UserError, match=r"'cart' cannot be reset to row 'r0': TypeError.*reset\(self, \*\*row\)"):
        begin(task(environment=Broken), ROWS[0])


@pytest.mark.parametrize(
    ("result", "text"),
    [("as it is", "as it is"), ({"a": None}, '{"a": null}'), (None, "null"), ([1, "é"], '[1, "é"]'), (object, str(object))],
)
def test_answers_are_text_or_json(result, text):
    assert as_text(result) in (text, json.dumps(text))


def test_a_long_answer_is_cut_and_says_so():
    assert as_text("x" * 5000) == "x" * 4000 + " ... (1000 more characters were left out)"


def test_plain_tools_need_no_environment():
    def double(number: int) -> int:
        """Twice a number."""
        return 2 * number

    plain = task(environment=None, tools=[double], check=lambda m, r: m[-1]["content"] == "6", oracle=None)
    assert isinstance(begin(plain, ROWS[0]), Episode)
    assert play(plain, ROWS[0], as_messages([("double", {"number": 3})])).messages[-1]["content"] == "6"
