"""Environments with the lowest and with the newest versions of all that the package needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from package.environments import PROJECT, Uv, remove, spark_requirement

from .pythons import installed_pythons, newest_numba
from .tested import TestedVersions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .pythons import NumbaRelease


@pytest.fixture(autouse=True, scope="session")
def asked_for() -> None:
    """Skip these tests unless they are asked for."""
    if not os.environ.get("NEARCAST_VERSIONS"):
        pytest.skip("installs old and new versions of packages: make tests-versions")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("versions")
    yield made
    remove(made)


@pytest.fixture(scope="session")
def uv(folder: Path) -> Uv:
    return Uv(folder)


@pytest.fixture(scope="session")
def pythons() -> dict[tuple[int, ...], Path]:
    """The Pythons of this machine that the package supports, the lowest first."""
    lowest = tuple(map(int, PROJECT["requires-python"].removeprefix(">=").split(".")))
    return {version: path for version, path in installed_pythons().items() if version >= lowest}


@pytest.fixture(scope="session")
def numba(uv: Uv, folder: Path) -> NumbaRelease:
    return newest_numba(uv, folder)


@pytest.fixture(scope="session")
def lowest(uv: Uv, folder: Path, pythons: dict[tuple[int, ...], Path]) -> TestedVersions:
    """The lowest Python with the lowest versions, which have no wheels for newer ones."""
    promised = PROJECT["requires-python"].removeprefix(">=")
    version, python = next(iter(pythons.items()), ((), None))
    if python is None or ".".join(map(str, version[:2])) != promised:
        pytest.skip(f"needs Python {promised}, which is neither in PATH nor pyenv's")
    uv.build(spark_requirement().replace(">=", "=="))
    return TestedVersions.make(uv, folder / "lowest", python, "lowest-direct")


@pytest.fixture(scope="session")
def newest(
    uv: Uv, folder: Path, pythons: dict[tuple[int, ...], Path], numba: NumbaRelease
) -> TestedVersions:
    """The newest Python of this machine that Numba supports, with the newest versions."""
    known = {version: path for version, path in pythons.items() if version[:2] in numba.pythons}
    if len({version[:2] for version in known}) < 2:
        pytest.skip("needs a Python that is newer than the lowest one, in PATH or pyenv's")
    uv.build(spark_requirement())
    return TestedVersions.make(uv, folder / "newest", known[max(known)], "highest")
