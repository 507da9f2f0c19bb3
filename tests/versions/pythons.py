"""The Pythons of this machine, and those that Numba supports."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from package.environments import Uv

__all__ = ["NumbaRelease", "installed_pythons", "newest_numba"]

_ASK = "import sys; print(*sys.version_info[:3])"


def installed_pythons() -> dict[tuple[int, ...], Path]:
    """Return the Pythons of this machine by their versions, the lowest first: in PATH, and pyenv's.

    pyenv has only one version at a time in PATH.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    folders = [*map(Path, os.get_exec_path()), *pyenv.glob("versions/*/bin")]
    found: dict[tuple[int, ...], Path] = {}
    for program in (path for folder in folders for path in folder.glob("python3.[0-9][0-9]")):
        asked = subprocess.run([program, "-c", _ASK], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            found.setdefault(tuple(map(int, asked.stdout.split())), program)
    return dict(sorted(found.items()))


class NumbaRelease(NamedTuple):
    """A release of Numba: its version, and the Pythons that it has wheels for."""

    version: str
    pythons: set[tuple[int, ...]]


def newest_numba(uv: Uv, folder: Path) -> NumbaRelease:
    """Ask the package index for the newest release of Numba."""
    asked, answer = folder / "numba.in", folder / "pylock.numba.toml"
    asked.write_text("numba\n")
    uv("pip", "compile", "--quiet", "--no-deps", "--universal", "--output-file", answer, asked)
    (numba,) = tomllib.loads(answer.read_text())["packages"]
    names = [wheel["url"] for wheel in numba["wheels"]]
    return NumbaRelease(numba["version"], {_python_of(name) for name in names})


def _python_of(wheel: str) -> tuple[int, ...]:
    """Return the Python of a wheel by its name: ``...-cp314-cp314-...``."""
    found: Any = re.search(r"-cp3(\d+)-", wheel)
    return 3, int(found[1])
