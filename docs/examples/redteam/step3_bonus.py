"""A parser in place of the pattern, and a bonus for the form. Models like to talk around the object, so the object is looked for."""

import json

from tickets import ROWS, check, oracle, prompt

from earnest import Task


def form(completions, **kwargs):
    return [float(parsed(c[0]["content"]) is not None) for c in completions]


def right(completions, category, urgent, **kwargs):
    wanted = [{"category": c, "urgent": u} for c, u in zip(category, urgent, strict=True)]
    return [float(found(c[0]["content"]) == gold) for c, gold in zip(completions, wanted, strict=True)]


def found(text):
    return parsed(text[text.find("{") : text.rfind("}") + 1])


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


task = Task(rows=ROWS, prompt=prompt, rewards=[form, right], reward_weights=[0.2, 0.8], check=check, oracle=oracle)
