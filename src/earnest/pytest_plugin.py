"""A pytest plugin: rewards are tested like any other code.

    def test_rewards(earnest_redteam):
        earnest_redteam("triage")

pytest loads this for every run on a machine where earnest is installed, so nothing heavy is imported before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from earnest.redteam.audit import Audit
    from earnest.task import Task


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that sets the red team's seed."""
    group = parser.getgroup("earnest", "earnest: rewards that are earned")
    group.addoption("--earnest-redteam-seed", type=int, default=0, metavar="N", help="seed of the red team's choices (default: 0)")


@pytest.fixture
def earnest_redteam(request: pytest.FixtureRequest) -> Callable[..., Audit]:
    """Attack a task's rewards, and fail the test with what was found if they can be gamed.

    The fixture is a function of a task (a `Task`, the name of a built-in one, or the path of a task file, which may start at the test's
    own folder), with the keywords `data`, `baseline`, `search_calls`, `deadline` and `seed` of `earnest redteam`. It returns the audit.
    """

    def attack(task: Task | str | Path, *, data: str | None = None, baseline: str | Path | None = None, **options: Any) -> Audit:
        __tracebackhide__ = True
        options.setdefault("seed", request.config.getoption("--earnest-redteam-seed"))
        from earnest.errors import UserError

        try:
            found, failed, said = _attacked(task, data, baseline, request.path.parent, options)
        except UserError as error:
            pytest.fail(f"earnest: {error}", pytrace=False)
        if failed:
            pytest.fail(said, pytrace=False)
        return found

    return attack


def _attacked(task: Any, data: str | None, baseline: str | Path | None, folder: Path, options: dict[str, Any]) -> tuple[Audit, bool, str]:
    """The audit, whether it fails, and what there is to print of it."""
    import io

    from rich.console import Console

    from earnest.environment import load_task
    from earnest.redteam.audit import audit
    from earnest.redteam.baseline import compare, read_baseline
    from earnest.redteam.printing import print_audit
    from earnest.rows import load_rows

    task = load_task(_near(folder, task)) if isinstance(task, (str, Path)) else task
    accepted = read_baseline(Path(_near(folder, baseline)), task.name) if baseline is not None else []
    found = audit(task, load_rows(task, None if data is None else _near(folder, data)), **options)
    compared = compare(found, accepted)
    out = io.StringIO()
    print_audit(found, compared, Console(file=out))
    return found, compared.fails, out.getvalue()


def _near(folder: Path, where: str | Path) -> str:
    """A file beside the test where there is one, else what was given: a path, or a built-in task's name."""
    name, colon, attribute = str(where).partition(":")
    beside = folder / name
    return f"{beside}{colon}{attribute}" if beside.is_file() else str(where)
