"""Which Python runs in a sandbox, and which folders it needs there.

A virtual environment is no more than links to the Python it was made from, so it is that one which is shown, at the place where it
is: pyenv, uv and conda build theirs to be found by the place of the binary. Its installed packages are not part of it.
"""

from __future__ import annotations

import glob
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Python:
    """An interpreter.

    Attributes:
        binary: Its real path.
        shown: Folders outside /usr that it needs.
        hidden: Folders within what is shown that it must not see: installed packages, and the data of this project with them.
        packages: Folders of installed packages that it may see.
    """

    binary: str
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    packages: tuple[str, ...] = ()


@cache
def candidates(packages: bool) -> tuple[Python, ...]:
    """Interpreters to try, best first: the one that runs this, then the system's, which every user can read.

    Args:
        packages: Whether it is to import what is installed here; then only a Python of this very version will do.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = os.path.realpath(sys.base_prefix)
    found = [f"{own}/bin/python{version}", f"{own}/bin/python3", f"/usr/bin/python{version}"]
    found += [] if packages else [os.path.realpath("/usr/bin/python3")]
    binaries = dict.fromkeys(os.path.realpath(path) for path in found if os.access(path, os.X_OK))
    return tuple(_python(binary, _installed() if packages else ()) for binary in binaries)


def _installed() -> tuple[str, ...]:
    ends = ("site-packages", "dist-packages")
    return tuple(dict.fromkeys(os.path.realpath(path) for path in sys.path if path.endswith(ends) and os.path.isdir(path)))


def _python(binary: str, packages: tuple[str, ...]) -> Python:
    prefix = Path(binary).parent.parent
    shown = [] if str(prefix) == "/usr" else [str(prefix / name) for name in ("bin", "lib", "lib64") if (prefix / name).is_dir()]
    hidden = [
        path
        for folder in {str(prefix), "/usr"}
        for lib in ("lib", "lib64")
        for path in glob.glob(f"{folder}/{lib}/python3*/site-packages") + glob.glob(f"{folder}/{lib}/python3*/dist-packages")
        if not os.path.islink(path) and path not in packages
    ]
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # its tasks come with the gold answers
    hidden += [own] if any(own.startswith(path + "/") for path in packages) else []
    return Python(binary, tuple(shown), tuple(sorted(hidden)), packages)
