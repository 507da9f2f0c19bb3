"""The wheel and the sdist: built, checked, and complete."""

from __future__ import annotations

import shutil
import sys
import zipfile
from email.parser import Parser
from typing import TYPE_CHECKING

import pytest

from .environments import EXTRAS, run

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path


def test_the_files_are_well_made(files: list[Path], wheel: Path) -> None:
    assert len(files) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    run(sys.executable, "-m", "check_wheel_contents", wheel)


def test_the_small_install_needs_six_packages(wheel: Path) -> None:
    head, names = read_wheel(wheel)
    assert "nearcast/py.typed" in names
    plain = [line for line in head.get_all("Requires-Dist", []) if "extra ==" not in line]
    needed = {line.split(">")[0].strip() for line in plain}
    assert needed == {"numba", "numpy", "pyarrow", "rich", "shapely", "typer"}
    assert {*head.get_all("Provides-Extra", [])} == {*EXTRAS, "dev", "docs"}


@pytest.mark.skipif(shutil.which("npm") is None, reason="without Node.js the map is not built")
def test_the_map_is_in_the_wheel(wheel: Path) -> None:
    assert "nearcast/server/http/web/index.html" in read_wheel(wheel)[1]


def read_wheel(wheel: Path) -> tuple[Message, list[str]]:
    """Return the metadata of a wheel, and the names of its files."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(metadata).decode()), names
