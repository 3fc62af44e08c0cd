"""The verifier that comes with earnest."""

from tickets import ROWS, check, oracle, prompt

from earnest import Task
from earnest.rewards.json import json_answer
from earnest.rewards.verifier import as_reward

task = Task(
    rows=ROWS,
    prompt=prompt,
    rewards=[as_reward(json_answer(fields=["category", "urgent"]))],
    check=check,
    oracle=oracle,
)
