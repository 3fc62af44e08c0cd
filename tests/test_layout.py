"""Imports go one way, and the part without a model needs no torch."""

import ast
from pathlib import Path

import pytest

import earnest

ROOT = Path(earnest.__file__).parent
LEVELS = (  # a module may import from its own line and from those above it
    ("errors",),
    ("task", "config"),
    ("text", "rows", "score", "rundir"),
    ("sandbox",),
    ("rewards", "environment", "tools", "evidence", "check", "trackers", "canaries"),
    ("redteam",),
    ("engine",),
    ("lab",),
    ("tasks",),
    ("session",),
    ("stages",),
    ("cli", "pytest_plugin"),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Parts of earnest that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "earnest":
            found |= {alias.name for alias in node.names if alias.name in LEVEL}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("earnest."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("earnest.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_stands_above_it(path):
    assert {name for name in imported(path) if LEVEL[name] > LEVEL[part(path)]} == set()


def test_every_part_has_its_place():
    assert {part(path) for path in FILES} == set(LEVEL)
