"""An environment of chosen versions, with the package and what its tests need."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from package.environments import EXTRAS, PROJECT, ROOT, Environment, run

if TYPE_CHECKING:
    from pathlib import Path

    from package.environments import Uv

__all__ = ["TestedVersions", "promised"]

TOOLS = ("cloudevents", "geopandas", "httpx-sse", "polars", "pytest", "standardwebhooks")
"""What the chosen tests import beside the package and its extras, of the extra ``dev``."""

TESTS_S = 3600


def promised() -> dict[str, Requirement]:
    """Return the requirements by name: of the package, its extras, and `TOOLS`."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    found = {(one := Requirement(line)).name: one for line in lines}
    tools = {(one := Requirement(line)).name: one for line in extras["dev"]}
    del found["nearcast"]
    return found | {name: tools[name] for name in TOOLS}


@dataclass(frozen=True)
class TestedVersions(Environment):
    """An environment whose versions are tested.

    Parameters
    ----------
    uv
        What made it.
    """

    __test__ = False

    uv: Uv

    @classmethod
    def make(cls, uv: Uv, folder: Path, python: Path, resolution: str) -> TestedVersions:
        """Install the package, all its extras and `TOOLS`; uv chooses versions by a resolution."""
        made = cls(",".join(EXTRAS), folder, uv)
        needed = promised()
        uv("venv", "--quiet", "--python", python, folder)
        words = ("--quiet", "--python", made.python, "--resolution", resolution)
        wanted = (f"{ROOT}[{made.extras}]", *(str(needed[name]) for name in TOOLS))
        uv("pip", "install", *words, *wanted)
        return made

    def versions(self) -> dict[str, str]:
        """Return the versions of all packages by name."""
        listed = self.uv("pip", "list", "--quiet", "--format", "json", "--python", self.python)
        return {package["name"]: package["version"] for package in json.loads(listed)}

    def pytest(self, *words: str) -> None:
        """Run tests of the checkout, with kernels and examples of their own."""
        settings = {
            "NEARCAST_CACHE_DIR": str(self.folder / "kernels"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "examples"),
        }
        own = ("-p", "no:cacheprovider", "--basetemp", str(self.folder / "tmp"))
        # PySpark 4.0 leaves sockets to the garbage collector.
        quiet = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
        command = ("-m", "pytest", *own, *quiet, *words)
        try:
            run(self.python, *command, settings=settings, seconds=TESTS_S)
        except AssertionError as error:
            error.add_note(f"with {self.versions()}")
            raise
