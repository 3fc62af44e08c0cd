"""The fixture `earnest_redteam`, in a pytest of its own, as people use it."""

import os
import subprocess
import sys

import pytest
import test_redteam_cli

from earnest import load_task
from earnest.redteam.attacks import nowork
from earnest.redteam.audit import audit
from earnest.redteam.baseline import write_baseline
from earnest.rows import load_rows

CONFTEST = """
import functools, pytest
from earnest.redteam import audit
from earnest.redteam.attacks import nowork

audit.audit = functools.partial(audit.audit, catalog=nowork.ATTACKS)  # small and known
"""


@pytest.fixture
def suite(tmp_path):
    """Writes a test file and runs it in a process of its own, from another folder than its own."""
    below = tmp_path / "tests"
    below.mkdir()
    (below / "conftest.py").write_text(CONFTEST)
    for name in ("exact", "lazy"):
        (below / f"{name}_task.py").write_text(test_redteam_cli.TASK.format(reward=name))

    def run(body, *options):
        (below / "test_it.py").write_text(body)
        command = [sys.executable, "-m", "pytest", "-p", "earnest.pytest_plugin", "-p", "no:cacheprovider", "-q", "tests", *options]
        env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "COLUMNS": "200", "PYTHONUTF8": "1"}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", env=env)

    run.folder = below
    return run


def test_a_sound_task_passes_and_a_broken_one_fails_with_what_was_found(suite):
    done = suite(
        "import exact_task\n"
        "def test_sound(earnest_redteam):\n    assert earnest_redteam('exact_task.py', search_calls=0).findings == ()\n"
        "def test_object(earnest_redteam):\n    assert earnest_redteam(exact_task.task, search_calls=0).seed == 0\n"
        "def test_broken(earnest_redteam):\n    earnest_redteam('lazy_task.py:task', search_calls=0)\n"
    )
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout, done.stdout
    assert "✗ Exploit: An empty answer" in done.stdout and "Exploitable: " in done.stdout and "Traceback" not in done.stdout


def test_a_baseline_beside_the_test_is_used_and_the_seed_is_an_option(suite):
    task = load_task(str(suite.folder / "lazy_task.py"))
    write_baseline(suite.folder / "known.json", audit(task, load_rows(task), search_calls=0, catalog=nowork.ATTACKS))
    done = suite(
        "def test_known(earnest_redteam):\n    assert earnest_redteam('lazy_task.py', baseline='known.json', search_calls=0).seed == 5\n"
        "def test_missing(earnest_redteam):\n    earnest_redteam('lazy_task.py', baseline='none.json', search_calls=0)\n"
        "def test_own_seed(earnest_redteam):\n    assert earnest_redteam('exact_task.py', seed=6, search_calls=0).seed == 6\n",
        "--earnest-redteam-seed",
        "5",
    )
    assert "1 failed, 2 passed" in done.stdout and "earnest: There is no baseline 'none.json'" in done.stdout, done.stdout


def test_loading_the_plugin_imports_nothing_heavy():
    program = (
        "import sys, pytest; before = set(sys.modules); import earnest.pytest_plugin; "
        "print(sorted(name.split('.')[0] for name in set(sys.modules) - before if not name.startswith('earnest')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stdout))
    assert loaded <= set(sys.stdlib_module_names), loaded - set(sys.stdlib_module_names)
