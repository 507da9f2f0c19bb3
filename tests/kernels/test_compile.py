"""The cache of compiled kernels: shared by processes, renewed when any kernel changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nearcast
from nearcast.compiled.jit import JIT

PROGRAM = """
import numpy as np
from nearcast.compiled.messages import contains
assert contains(np.arange(5, dtype=np.int32), 3)
hits = sum(contains.stats.cache_hits.values()) if hasattr(contains, "stats") else -1
print(hits)
"""


def _start(cache: Path, package: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"NEARCAST_CACHE_DIR": str(cache), "PYTHONPATH": str(package)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    package = Path(nearcast.__file__).parents[1]
    started = [_start(tmp_path, package) for _ in range(3)]
    hits = sorted(int(process.communicate()[0]) for process in started)
    assert all(process.returncode == 0 for process in started)
    assert hits == ([0, 1, 1] if JIT else [-1, -1, -1])


@pytest.mark.parametrize("changed", ["kernels/shapes.py", "columns/arrays.py"])
def test_a_change_that_kernels_may_see_renews_the_cache(tmp_path: Path, changed: str) -> None:
    package = tmp_path / "package"
    shutil.copytree(Path(nearcast.__file__).parent, package / "nearcast")
    cache = tmp_path / "cache"
    outputs = []
    for _ in range(2):
        outputs.append(_start(cache, package).communicate()[0])
        with open(package / "nearcast" / changed, "a") as file:
            file.write("# changed\n")
    assert outputs == (["0\n", "0\n"] if JIT else ["-1\n", "-1\n"])
