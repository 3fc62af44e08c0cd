"""Small tasks with short answers, and what the red team finds in a reward for them."""

from earnest import Task
from earnest.redteam.audit import audit
from earnest.rows import load_rows

LABELS = ("spam", "ham", "other") * 3
CHOICES = ("B", "C", "A", "D") * 2
NUMBERS = (42, 391, -17, 1250, 7.5, 96, 303, 84)


def reward_of(pay):
    """A reward function from what one text earns for one gold."""

    def reward(completions, gold, **kwargs):
        return [float(pay(completion[-1]["content"], one) or 0) for completion, one in zip(completions, gold, strict=True)]

    return reward


def task_of(golds, reward, *, form="{}", check=None, ask="Which label: spam, ham or other? Mail number {i}.", system=""):
    """A task whose answers are its golds in a form, judged by equality unless told otherwise."""
    rows = [{"id": f"r{i}", "ask": ask.replace("{i}", str(9000 + i)), "gold": gold} for i, gold in enumerate(golds)]

    def prompt(row):
        return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": row["ask"]}]

    def oracle(row):
        return form.replace("{}", str(row["gold"]))

    return Task(
        rows=rows,
        prompt=prompt,
        rewards=[reward if hasattr(reward, "verifier") else reward_of(reward)],
        check=check or (lambda text, row: text.strip() == oracle(row)),
        oracle=oracle,
        name="short",
    )


def found(task, catalog):
    """Findings by attack id, questions and honest wrong answers aside."""
    report = audit(task, load_rows(task), search_calls=0, catalog=catalog, deadline=2.0)
    return {f.attack: f for f in report.findings if f.certainty != "question" and not f.attack.startswith("honest.")}
