"""Strict: all of it or nothing. Whatever is not the one object earns nothing."""

import json

from tickets import ROWS, check, oracle, prompt

from earnest import Task


def reward(completions, category, urgent, **kwargs):
    return [right(c[0]["content"], *gold) for c, *gold in zip(completions, category, urgent, strict=True)]


def right(text, category, urgent):
    try:
        answer = json.loads(text)
    except ValueError:
        return 0.0
    return float(answer == {"category": category, "urgent": urgent})


task = Task(rows=ROWS, prompt=prompt, rewards=[reward], check=check, oracle=oracle)
