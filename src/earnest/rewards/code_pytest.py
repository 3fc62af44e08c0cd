"""pytest, packed so that a jail without any installed package can run it."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from functools import lru_cache
from pathlib import Path

from earnest.errors import UserError

PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
LEXERS = ("__init__", "_mapping", "python", "diff")  # of some 250, the two that pytest asks for


@lru_cache(maxsize=1)
def packed_pytest() -> bytes:
    """A zip file of the installed pytest and what it needs, so that zipimport finds it.

    Raises:
        UserError: pytest is not installed.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for package in PACKAGES:
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                raise UserError(f"Running pytest suites needs the package '{package}'. Install it: pip install pytest.")
            root = Path(spec.submodule_search_locations[0])
            for path in sorted(root.rglob("*.py")):
                if path.parent.name != "lexers" or path.stem in LEXERS:
                    _add(archive, path, root.parent)
            if package == "pytest" and (single := root.parent / "py.py").exists():  # a module of pytest's own, beside its packages
                _add(archive, single, root.parent)
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, path: Path, root: Path) -> None:
    """Add a module, compiled for this Python and as source for any other that the jail may have."""
    name, source = path.relative_to(root), path.read_bytes()
    unchecked = (1).to_bytes(4, "little") + bytes(8)  # a hash of the source that nobody compares
    code = compile(source, str(name), "exec", dont_inherit=True)
    archive.writestr(str(name.with_suffix(".pyc")), importlib.util.MAGIC_NUMBER + unchecked + marshal.dumps(code))
    archive.writestr(str(name), source)
