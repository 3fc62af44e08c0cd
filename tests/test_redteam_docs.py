"""docs/redteam.md tells the truth: each step is found out as it says, answers it shows earn what it says, and the last is clean."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from earnest.redteam.audit import audit
from earnest.redteam.catalog import CATALOG
from earnest.rows import load_rows
from earnest.score import score, weighted_total
from earnest.task import load_task, messages_of

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLES = DOCS / "examples" / "redteam"
TEXT = (DOCS / "redteam.md").read_text(encoding="utf-8")
STEPS = re.findall(r"```console\n\$ earnest redteam docs/examples/redteam/(\w+\.py)\n(.*?)```", TEXT, re.DOTALL)
FINDING = (
    r"✗ ([A-Z][a-z ]+): [^✗]*?by +(\S+) against[^✗]*?answer +(\S[^\n]*)\n    at +tickets.jsonl:(\d+)"
    r"[^✗]*?earned +([\d.]+), [^✗]*? earns ([\d.]+)"
)
BROKEN = [pytest.param(file, output, id=file) for file, output in STEPS[:-1]]
SHOWN = [pytest.param(file, *shown, id=f"{file} {shown[1]}") for file, output in STEPS for shown in re.findall(FINDING, output)]


@pytest.fixture(autouse=True)
def forget():
    """The examples' modules and path, which loading a task file leaves behind."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXAMPLES)):
            del sys.modules[name]


def audited(file):
    task = load_task(str(EXAMPLES / file))
    return audit(task, load_rows(task), search_calls=0)


def test_all_five_steps_are_told():
    assert [file for file, _ in STEPS] == sorted(path.name for path in EXAMPLES.glob("step*.py"))
    assert len(STEPS) == 5
    assert len(SHOWN) >= 7


@pytest.mark.parametrize(("file", "output"), BROKEN)
def test_what_the_text_names_is_found(file, output):
    named = {(kind.lower(), attack) for kind, attack in re.findall(r"✗ ([A-Z][a-z ]+): [^✗]*?by +(\S+) against", output)}
    facts = {(f.kind, f.attack) for f in audited(file).findings if f.certainty == "fact"}
    assert named
    assert named <= facts


@pytest.mark.parametrize(("file", "kind", "attack", "answer", "line", "earned", "wrong"), SHOWN)
def test_an_answer_shown_earns_what_it_says_and_the_check_judges_it_so(file, kind, attack, answer, line, earned, wrong):
    task = load_task(str(EXAMPLES / file))
    rows = [row for _, row in load_rows(task).everything()]
    row = rows[int(line) - 1]
    other = next(r for r in rows if r["category"] != row["category"] and r["urgent"] != row["urgent"])
    prompts = [task.prompt(row)] * 2
    values = score(task.rewards, task.weights, prompts, [messages_of(answer), messages_of(task.oracle(other))], [row, row]).values
    assert weighted_total(values, task.weights).tolist() == pytest.approx([float(earned), float(wrong)])
    assert task.check(answer, row) == (kind == "False reject")


def test_the_last_step_is_clean_with_the_searcher_as_well():
    task = load_task(str(EXAMPLES / STEPS[-1][0]))
    found = audit(task, load_rows(task), search_calls=300)
    assert not [f for f in found.findings if f.certainty == "fact"]
    assert found.board[0].mean == 1.0
    assert "none was paid for being wrong" in STEPS[-1][1]


def test_an_attack_of_ones_own_finds_what_the_catalog_does_not():
    spec = importlib.util.spec_from_file_location("own_attack", EXAMPLES / "own_attack.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(EXAMPLES))
    spec.loader.exec_module(module)
    rows = load_rows(module.task)
    assert not audit(module.task, rows, search_calls=0).exploitable
    found = audit(module.task, rows, search_calls=0, catalog=(*CATALOG, module.PATHS))
    assert [f.attack for f in found.findings if f.certainty == "fact"] == ["mine.paths"]
