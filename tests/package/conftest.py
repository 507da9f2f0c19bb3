"""What tests of the package share: its files, and environments with some of its extras."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .environments import ROOT, Environments, remove, run
from .processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .environments import MakeEnvironment


@pytest.fixture(autouse=True, scope="session")
def asked_for() -> None:
    """Skip these tests unless they are asked for, and let what they start hear Ctrl-C."""
    if not os.environ.get("NEARCAST_PACKAGE"):
        pytest.skip("installs packages into new environments: make tests-package")
    # A shell's background jobs ignore SIGINT, and so would all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put ``make run`` last, which runs beside all other tests."""
    items.sort(key=_is_make_run)


def _is_make_run(item: pytest.Item) -> bool:
    return item.path.name == "test_make_run.py"


@pytest.fixture(autouse=True, scope="session")
def runs_beside(request: pytest.FixtureRequest, asked_for: None) -> None:
    """Start ``make run`` at once, if it is tested: half of its time it waits for packages."""
    if any(_is_make_run(item) for item in request.session.items):
        request.getfixturevalue("first_run")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Copy what git knows, with changes that are not committed, but nothing that was built."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    yield folder
    remove(folder)


@pytest.fixture(scope="session")
def first_run(checkout: Path) -> Iterator[Process]:
    """Run ``make run ONCE=1`` as it is after a clone: it makes its own environment."""
    process = Process("make", "run", "ONCE=1", "RUN_SECONDS=10", "PORT=0", folder=checkout)
    yield process
    process.kill()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build the sdist, and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder)
    return sorted(folder.iterdir())


@pytest.fixture(scope="session")
def wheel(files: list[Path]) -> Path:
    (found,) = (path for path in files if path.suffix == ".whl")
    return found


@pytest.fixture(scope="session")
def environments(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environments]:
    folder = tmp_path_factory.mktemp("environments")
    yield Environments(wheel, folder)
    remove(folder)


@pytest.fixture(scope="session")
def environment(environments: Environments) -> MakeEnvironment:
    return environments.get
