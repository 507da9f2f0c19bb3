"""The package with the lowest versions that it promises, and with the newest ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

from .tested import promised

if TYPE_CHECKING:
    from pathlib import Path

    from .pythons import NumbaRelease
    from .tested import TestedVersions

PARTS = {
    "indexes": "tests/indexes/test_contract.py tests/indexes/moving/test_moving_contract.py",
    "engine": "tests/engine/test_engine_machine.py tests/engine/test_engine_calls.py",
    "files": "tests/intake/test_read_messages.py tests/intake/test_read_subscriptions.py",
    "server": "tests/server/test_service.py tests/server/test_http_requests.py tests/client",
    "Spark": "tests/spark/test_match.py",
}
"""Tests that together use every package that is promised, and take minutes."""


@pytest.fixture(params=["lowest", "newest"])
def tested(request: pytest.FixtureRequest) -> TestedVersions:
    chosen: TestedVersions = request.getfixturevalue(request.param)
    return chosen


def test_the_lowest_versions_are_those_of_pyproject(lowest: TestedVersions) -> None:
    installed = lowest.versions()
    for name, needed in promised().items():
        (bound,) = (one for one in needed.specifier if one.operator == ">=")
        assert installed[name.lower()] in SpecifierSet(f"=={bound.version}"), name


def test_the_newest_python_is_here(
    pythons: dict[tuple[int, ...], Path], numba: NumbaRelease
) -> None:
    newest = max(numba.pythons)
    if newest not in {version[:2] for version in pythons}:
        wanted, here = (".".join(map(str, version)) for version in (newest, max(pythons)))
        pytest.skip(f"Numba {numba.version} supports Python {wanted}; the newest here is {here}")


def test_all_modules_are_imported(tested: TestedVersions, tmp_path: Path) -> None:
    assert {*tested.import_all(folder=tmp_path).values()} == {""}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_our_tests(part: str, tested: TestedVersions) -> None:
    tested.pytest(*PARTS[part].split())
