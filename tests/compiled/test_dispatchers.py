"""Kernels are compiled for Python when Python calls them, and otherwise only for other kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
from typing import NamedTuple
import numpy as np
from nearcast.compiled.jit import inlined_kernel, kernel

class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray

@kernel
def square(value):
    return value * value

@inlined_kernel
def twice(value):
    return value + value

@kernel
def total(pair):
    if len(pair.first) == 0:
        raise ValueError("nothing to add")
    found = 0
    for one in pair.first:
        found += square(one)
    for one in pair.second:
        found += twice(one)
    return found

@kernel
def outer(values):
    return total(Pair(values, values))
"""

PROGRAM = """
import json
import numpy as np
import sums
from nearcast.compiled.cache import compiled_kernels
values = np.arange(4)
found = []
for call in {calls!r}:
    try:
        found.append(int(eval(call)))
    except ValueError as error:
        found.append(str(error))
print(json.dumps([found, compiled_kernels()]))
"""


def run(folder: Path, *calls: str) -> tuple[list[int | str], int]:
    """Call kernels in a process of its own; return the answers, and how many it compiled."""
    (folder / "sums.py").write_text(MODULE)
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    cache = {"NEARCAST_CACHE_DIR": str(folder / "cache"), "NEARCAST_COMPILE": "at-once"}
    environment = {**os.environ, "PYTHONPATH": path, **cache}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(calls=calls)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers, compiled = json.loads(done.stdout)
    return answers, compiled


def forms(folder: Path) -> Counter[str]:
    """Count the files of each kernel and form."""
    names = (file.stem.split("-") for file in folder.glob("cache/kernels/*/*.nbc"))
    return Counter(f"{name} called" if called else name for name, _, *called, _ in names)


def test_kernels_have_machine_code_only_where_python_calls_them(tmp_path: Path) -> None:
    assert run(tmp_path, "sums.outer(values)") == ([26], 3)
    assert forms(tmp_path) == Counter(["outer", "total called", "square called"])
    # What is compiled is found by another process, also by kernels that it compiles.
    assert run(tmp_path, "sums.outer(values)") == ([26], 0)
    pair = "sums.Pair(values, values)"
    assert run(tmp_path, f"sums.total({pair})", "sums.outer(values)") == ([26, 26], 1)
    assert forms(tmp_path) == Counter(["outer", "total", "total called", "square called"])
    assert run(tmp_path, "sums.square(values[3])") == ([9], 1)


def test_errors_of_called_kernels_arrive(tmp_path: Path) -> None:
    for compiled in (3, 0):
        assert run(tmp_path, "sums.outer(values[:0])") == (["nothing to add"], compiled)
