"""As one would write it first: is the category in the answer?"""

from tickets import ROWS, check, oracle, prompt

from earnest import Task


def reward(completions, category, **kwargs):
    return [float(gold in c[0]["content"]) for c, gold in zip(completions, category, strict=True)]


task = Task(rows=ROWS, prompt=prompt, rewards=[reward], check=check, oracle=oracle)
