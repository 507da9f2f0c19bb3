"""The wheel and the sdist, as users get them: built, checked, installed and tried."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("user_script.py")

pytestmark = pytest.mark.skipif(
    not os.environ.get("NEARCAST_PACKAGE"),
    reason="installs packages into a new environment: make tests-package",
)


def run(*command: str | Path, folder: Path = ROOT, code: int = 0) -> str:
    """Run a command outside of the checkout's environment, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build the sdist, and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder)
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def wheel(files: list[Path]) -> Path:
    (found,) = (path for path in files if path.suffix == ".whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an empty environment with nothing but the wheel."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", folder)
    found = folder / "bin" / "python"
    run(found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    return found


def test_the_files_are_well_made(files: list[Path], wheel: Path) -> None:
    assert len(files) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    run(sys.executable, "-m", "check_wheel_contents", wheel)


def test_the_small_install_needs_six_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        head = Parser().parsestr(archive.read(metadata).decode())
    assert "nearcast/py.typed" in names
    plain = [line for line in head.get_all("Requires-Dist", []) if "extra ==" not in line]
    needed = {line.split(">")[0].strip() for line in plain}
    assert needed == {"numba", "numpy", "pyarrow", "rich", "shapely", "typer"}
    assert {"bench", "datasets", "plots", "spark"} <= {*head.get_all("Provides-Extra", [])}


def test_a_users_script_is_typed_and_runs(python: Path, tmp_path: Path) -> None:
    strict = ["--strict", "--python-executable", str(python), "--cache-dir", str(tmp_path / "c")]
    run(sys.executable, "-m", "mypy", *strict, "--config-file", "", SCRIPT, folder=tmp_path)
    printed = run(python, SCRIPT, folder=tmp_path).splitlines()
    assert printed == [
        "['ben', 'cid', 'dan']",
        "[('ben', -1)]",
        "['ann', 'cid', 'dan']",
        "4",
        "geometry",
    ]


def test_commands_run(python: Path, tmp_path: Path) -> None:
    nearcast = python.with_name("nearcast")
    assert "Usage: nearcast" in run(nearcast, "--help")
    run(nearcast, "generate", "--subscriptions", "1000", "--messages", "100", "--out", tmp_path)
    files = "--subscriptions subscriptions.parquet --messages messages.parquet --out matches.csv"
    assert "matches" in run(nearcast, "match", *files.split(), folder=tmp_path)
    assert (tmp_path / "matches.csv").exists()


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("plot moving --out moving.gif", "plots"),
        ("match --subscriptions s.csv --messages m.csv --out o.csv --map map.png", "plots"),
        ("generate --dataset places --out data", "datasets"),
        ("bench compare", "bench"),
        ("spark build --subscriptions s.csv --out index", "spark"),
        ("spark statistics --input s.csv --kind messages --out x --plot x.png", "plots"),
    ],
)
def test_a_missing_extra_is_named(python: Path, tmp_path: Path, command: str, extra: str) -> None:
    for name in ("s.csv", "m.csv"):
        (tmp_path / name).write_text("id,text,lon,lat,radius_m\n1,tea,0,0,10\n")
    said = run(python.with_name("nearcast"), *command.split(), folder=tmp_path, code=1)
    assert f"pip install 'nearcast[{extra}]'" in said
    assert len(said.strip().splitlines()) == 1
