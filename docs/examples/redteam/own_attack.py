"""An attack of one's own: our router reads 'billing>refund' as a path and takes the last part, so we try paths."""

from tickets import ROWS, check, oracle, prompt

from earnest import Task
from earnest.redteam.attack import Attack
from earnest.redteam.audit import audit
from earnest.redteam.catalog import CATALOG
from earnest.rewards.json import parse_strict
from earnest.rows import load_rows


def reward(completions, category, urgent, **kwargs):
    return [routed(c[0]["content"], *gold) for c, *gold in zip(completions, category, urgent, strict=True)]


def routed(text, category, urgent):
    answer = parse_strict(text).value
    if not isinstance(answer, dict) or set(answer) != {"category", "urgent"} or not isinstance(answer["category"], str):
        return 0.0
    return float(answer["category"].split(">")[-1] == category and answer["urgent"] is urgent)


def paths(target):
    for other in target.labels[1:3]:
        yield target.form.change(category=f"{other}>{target.labels[0]}")


PATHS = Attack(
    id="mine.paths",
    family="label",
    build=paths,
    flaw="A path that ends in the right category is paid, wherever it begins.",
    fix="Compare the whole category.",
    kinds=frozenset({"json"}),
)

task = Task(rows=ROWS, prompt=prompt, rewards=[reward], check=check, oracle=oracle)

if __name__ == "__main__":
    found = audit(task, load_rows(task), catalog=(*CATALOG, PATHS), search_calls=0)
    for finding in found.findings:
        print(finding.certainty, finding.attack, finding.example)
