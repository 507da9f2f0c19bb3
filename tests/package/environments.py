"""Environments with nothing but the wheel and some of its extras, made by uv."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "EXTRAS",
    "PROJECT",
    "ROOT",
    "RUN_S",
    "SCRIPTS",
    "Environment",
    "Environments",
    "MakeEnvironment",
    "Uv",
    "remove",
    "run",
    "spark_requirement",
    "user_variables",
]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCRIPTS = Path(__file__).with_name("scripts")
EXTRAS = (
    "bench",
    "client",
    "datasets",
    "geo",
    "kafka",
    "plots",
    "postgres",
    "server",
    "spark",
    "stem",
    "testing",
)
"""The extras for users: all but ``dev`` and ``docs``."""

RUN_S = 900

_NOT_A_USERS = re.compile(
    r"MAKE|MFLAGS$|PYTEST|VIRTUAL_ENV|PYTHON(PATH|DONTWRITEBYTECODE)$|NEARCAST_(?!CACHE_DIR$)"
)
"""Variables of make, of the tests and of the checkout's environment. Kernels stay cached."""

_UV_NAMES = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""Settings of pip, and the variables with which uv does the same."""


def user_variables() -> dict[str, str]:
    """Return the environment variables as a user has them in a terminal."""
    return {name: value for name, value in os.environ.items() if not _NOT_A_USERS.match(name)}


def run(
    *command: str | Path,
    folder: Path = ROOT,
    code: int = 0,
    settings: dict[str, str] | None = None,
    seconds: int = RUN_S,
) -> str:
    """Run a command outside of the checkout's environment, and return what it printed.

    Parameters
    ----------
    command
        The command and its arguments.
    folder
        Where to run it.
    code
        The exit code that is expected.
    settings
        Further environment variables.
    seconds
        How long it may take.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=user_variables() | (settings or {}),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def remove(folder: Path) -> None:
    """Remove a folder in the background: some disks take minutes to free thousands of files."""
    run("sh", "-c", 'rm -rf "$0" > /dev/null 2>&1 &', folder)


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel and some of its extras.

    Parameters
    ----------
    extras
        The extras, with commas between them.
    folder
        Where it is.
    """

    extras: str
    folder: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        """Its command ``nearcast``."""
        return self.folder / "bin" / "nearcast"

    def nearcast(self, *words: str | Path, folder: Path, code: int = 0) -> str:
        """Run a command of ``nearcast`` in a folder, and return what it printed."""
        return run(self.command, *words, folder=folder, code=code)

    def script(self, path: Path, *words: str | Path, folder: Path) -> str:
        """Run a script in a folder, and return what it printed."""
        return run(self.python, path, *words, folder=folder)

    def code(self, text: str, *, folder: Path) -> str:
        """Run a few lines of Python in a folder, and return what they printed."""
        return run(self.python, "-c", text, folder=folder)

    def import_all(self, *, folder: Path) -> dict[str, str]:
        """Return what the import of each module says; see `scripts/import_all.py`."""
        found: dict[str, str] = json.loads(self.script(SCRIPTS / "import_all.py", folder=folder))
        return found


MakeEnvironment = Callable[[str], Environment]
"""Returns the environment with some extras: ``""`` for none, ``"server,postgres"`` for two."""


class Uv:
    """Runs uv with pip's settings, and with a cache and wheels of its own.

    Parameters
    ----------
    folder
        Where the cache and the wheels will be.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built = folder / "built"
        self._settings = _pip_settings()
        found = [self._settings.get("UV_FIND_LINKS", ""), str(self._built)]
        self._settings["UV_FIND_LINKS"] = ",".join(filter(None, found))
        self._settings["UV_CACHE_DIR"] = str(folder / "cache")
        self._settings["UV_PYTHON_DOWNLOADS"] = "never"

    def __call__(self, *words: str | Path) -> str:
        """Run a command of uv, and return what it printed."""
        command = (sys.executable, "-m", "uv", *words)
        return run(*command, folder=self._folder, settings=self._settings)

    def build(self, requirement: str) -> None:
        """Build a package that is only there as source, such as PySpark.

        pip keeps the wheels that it builds, whatever the index says about caching; uv would build
        them again.
        """
        quiet = ("--quiet", "--disable-pip-version-check", "--no-deps")
        run(sys.executable, "-m", "pip", "wheel", *quiet, "--wheel-dir", self._built, requirement)

    def go_offline(self) -> None:
        """Use only what is in the cache from now on."""
        self._settings["UV_OFFLINE"] = "1"


class Environments:
    """Makes environments of a wheel with uv; what they need is fetched once, for all of them.

    Parameters
    ----------
    wheel
        The wheel.
    folder
        Where the environments will be, and all that uv keeps for them.
    """

    def __init__(self, wheel: Path, folder: Path) -> None:
        self._wheel = wheel
        self._folder = folder
        self._made: dict[str, Environment] = {}
        self._imported: dict[str, dict[str, str]] = {}
        self.uv = Uv(folder)
        # All packages go into uv's cache, from where it links them into environments.
        self.uv.build(spark_requirement())
        self._make(",".join(EXTRAS))
        self.lowest = self._make_lowest()
        """Without extras, and with the lowest versions that are promised; None on other Pythons."""
        self.uv.go_offline()

    def get(self, extras: str) -> Environment:
        """Return the environment with some extras; it is made when it is first asked for."""
        return self._made.get(extras) or self._make(extras)

    def _make(self, extras: str) -> Environment:
        """Make an environment with the wheel and the extras, and nothing else: not even pip."""
        wanted = f"{self._wheel}[{extras}]" if extras else str(self._wheel)
        self._made[extras] = self._install(extras or "plain", wanted)
        return self._made[extras]

    def _make_lowest(self) -> Environment | None:
        """Make the environment of the lowest versions, whose wheels are for the lowest Python."""
        if PROJECT["requires-python"] != f">={sys.version_info[0]}.{sys.version_info[1]}":
            return None
        wanted = (str(self._wheel), *PROJECT["dependencies"])  # named, they are "direct"
        return self._install("lowest", "--resolution", "lowest-direct", *wanted)

    def _install(self, name: str, *wanted: str) -> Environment:
        made = Environment(name, self._folder / name)
        self.uv("venv", "--quiet", "--python", sys.executable, made.folder)
        self.uv("pip", "install", "--quiet", "--python", made.python, *wanted)
        return made

    def import_all(self, extras: str) -> dict[str, str]:
        """Return what the import of each module says there; see `scripts/import_all.py`."""
        if extras not in self._imported:
            self._imported[extras] = self.get(extras).import_all(folder=self._folder)
        return self._imported[extras]


def spark_requirement() -> str:
    """Return which PySpark the package needs."""
    (line,) = (line for line in PROJECT["optional-dependencies"]["spark"] if "pyspark" in line)
    return str(line)


def _pip_settings() -> dict[str, str]:
    """Return what pip is told about where packages are, as uv's variables; uv ignores pip's."""
    listed = run(sys.executable, "-m", "pip", "config", "list")
    given: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # the last one counts
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listed, re.MULTILINE):
            given[name] = ast.literal_eval(value)
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # all indexes are equal, as for pip
    for name, variable in _UV_NAMES.items():
        if name in given:
            between = "," if variable == "UV_FIND_LINKS" else " "
            settings[variable] = os.environ.get(variable, between.join(given[name].split()))
    return settings
