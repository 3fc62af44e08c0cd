"""Only what stands behind the key counts: a regular expression."""

import re

from tickets import ROWS, check, oracle, prompt

from earnest import Task


def reward(completions, category, urgent, **kwargs):
    return [right(c[0]["content"], *gold) for c, *gold in zip(completions, category, urgent, strict=True)]


def right(text, category, urgent):
    found = re.search(r'"category":\s*"(\w+)".*"urgent":\s*(true|false)', text)
    return float(found is not None and found.groups() == (category, str(urgent).lower()))


task = Task(rows=ROWS, prompt=prompt, rewards=[reward], check=check, oracle=oracle)
