"""Kernels that run as plain Python until they are loaded or compiled by a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from nearcast.benchmarks.start import EXAMPLE

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "1"
needs_jit = pytest.mark.skipif(not JIT, reason="kernels are not compiled in this run")

KERNELS = """
import time
import numpy as np
from nearcast.compiled.jit import bit_count, borrow, kernel, lowest_bit

@kernel
def inner(value):
    return bit_count(value) + lowest_bit(value)

@kernel
def mixed(array, rounds):
    array = borrow(array)
    total = 0
    for _ in range(rounds):
        for i in range(len(array)):
            total += inner(array[i])
    return total
"""

PREPARE = """
import json, sys, time
import numpy as np
import kernels
from nearcast.compiled import background
array = np.arange(1, 101, dtype=np.uint64)
expected = sum(int(v).bit_count() + (int(v) & -int(v)).bit_length() - 1 for v in range(1, 101))
def is_compiled():
    return bool(kernels.mixed.overloads)
"""


def run(folder: Path, program: str, **environment: str) -> Any:
    """Run a program in a new process, and return what it printed as JSON at its end."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PREPARE + textwrap.dedent(program)],
        env=given(folder, **environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


def given(folder: Path, **environment: str) -> dict[str, str]:
    (folder / "kernels.py").write_text(KERNELS)
    inherited = {k: v for k, v in os.environ.items() if k != "NEARCAST_COMPILE"}
    path = os.pathsep.join([str(folder), *sys.path])
    cache = str(folder / "cache")
    return {**inherited, "NEARCAST_CACHE_DIR": cache, "PYTHONPATH": path, **environment}


def compiled(folder: Path) -> list[str]:
    return sorted(file.name.split("-")[0] for file in folder.rglob("*.nbc"))


def test_the_example_is_that_of_the_readme() -> None:
    readme = Path(__file__).parents[2].joinpath("README.md").read_text()
    wanted = [line[4:] for line in readme.splitlines() if line.startswith(">>> ")][:5]
    joined = EXAMPLE.replace("message = ", "print(engine.publish(").splitlines()
    assert joined[:4] == wanted[:4]
    assert wanted[4] == f"engine.publish({EXAMPLE.splitlines()[4].removeprefix('message = ')})"


@needs_jit
def test_the_first_example_compiles_nothing_and_has_no_child(tmp_path: Path) -> None:
    program = f"{EXAMPLE}\nprint(json.dumps(background._child is None))"
    assert run(tmp_path, program) is True
    assert compiled(tmp_path) == []


@needs_jit
def test_the_first_example_does_not_import_what_it_does_not_need(tmp_path: Path) -> None:
    program = f"""
{textwrap.indent(EXAMPLE, "")}
unwanted = {{"numba", "pandas", "ssl", "pyarrow.fs", "pyarrow.parquet", "nearcast.indexes.rtree",
            "nearcast.indexes.ap_tree", "nearcast.indexes.stamp", "nearcast.indexes.lfilter"}}
print(json.dumps(sorted(unwanted & set(sys.modules))))
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{program}"],
        env=given(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


@needs_jit
def test_plain_python_answers_until_the_child_has_compiled(tmp_path: Path) -> None:
    program = """
    kinds = []
    deadline = time.monotonic() + 120
    while not is_compiled() and time.monotonic() < deadline:
        assert kernels.mixed(array, 1) == expected
        kinds.append(background._child is not None)
        time.sleep(0.02)
    assert kernels.mixed(array, 3) == 3 * expected
    print(json.dumps([is_compiled(), kinds[0], kinds[-1]]))
    """
    assert run(tmp_path, program) == [True, False, True]
    assert set(compiled(tmp_path)) == {"inner", "mixed"}
    # The next process loads: nothing is compiled, and there is no child. Numba is imported when
    # plain Python has taken as long as that takes.
    program = """
    calls = 0
    while "numba" not in sys.modules:
        assert kernels.mixed(array, 1) == expected
        calls += 1
    for _ in range(100):
        assert kernels.mixed(array, 1) == expected
    print(json.dumps([calls > 10, is_compiled(), background._child is None]))
    """
    assert run(tmp_path, program) == [True, True, True]


@needs_jit
def test_large_arrays_and_impatient_processes_compile_at_once(tmp_path: Path) -> None:
    program = """
    many = np.ones(200_000, np.uint64)
    assert kernels.mixed(many, 1) == 200_000
    print(json.dumps([is_compiled(), background._child is None]))
    """
    assert run(tmp_path, program) == [True, True]
    small = """
    assert kernels.mixed(array, 1) == expected
    print(json.dumps([is_compiled(), background._child is None]))
    """
    (tmp_path / "other").mkdir()
    assert run(tmp_path / "other", small, NEARCAST_COMPILE="at-once") == [True, True]
    said = "from nearcast.compiled.first_calls import compile_at_once; compile_at_once()\n"
    (tmp_path / "third").mkdir()
    assert run(tmp_path / "third", said + textwrap.dedent(small)) == [True, True]


@needs_jit
def test_there_is_one_child_for_all_processes(tmp_path: Path) -> None:
    program = """
    from nearcast.compiled.cache import lasting_folder
    from nearcast.locks import lock_file
    other = open(lasting_folder("kernels") / "background.lock", "ab")
    assert lock_file(other)  # another process has a child
    for _ in range(200):
        assert kernels.mixed(array, 1) == expected
    first = [is_compiled(), background._child is None]
    other.close()
    deadline = time.monotonic() + 120
    while not is_compiled() and time.monotonic() < deadline:
        assert kernels.mixed(array, 1) == expected
    print(json.dumps([first, is_compiled()]))
    """
    assert run(tmp_path, program) == [[False, True], True]


@needs_jit
def test_a_child_that_dies_leaves_the_work_to_its_parent(tmp_path: Path) -> None:
    program = """
    while background._child is None:
        assert kernels.mixed(array, 1) == expected
    background._child._process.kill()
    deadline = time.monotonic() + 120
    while not is_compiled() and time.monotonic() < deadline:
        assert kernels.mixed(array, 1) == expected
    print(json.dumps(is_compiled()))
    """
    assert run(tmp_path, program) is True


@needs_jit
def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    program = PREPARE + textwrap.dedent(
        """
        while background._child is None:
            kernels.mixed(array, 1)
        print(background._child._process.pid, flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], env=given(tmp_path), stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@needs_jit
def test_what_was_deferred_is_replaced_wherever_it_is_named(tmp_path: Path) -> None:
    """Kernels that were imported before Numba call others of their own and of other modules."""
    (tmp_path / "callers.py").write_text(
        "from kernels import inner, kernel, mixed\n"
        "table = {'mixed': mixed}\n"
        "def closed(function):\n"
        "    @kernel\n"
        "    def call(value):\n"
        "        return function(value) + inner(value)\n"
        "    return call\n"
        "twice = closed(inner)\n"
    )
    program = """
    import callers
    from nearcast.compiled.deferred import Deferred, load_numba
    value = np.uint64(12)
    assert callers.twice(value) == 8
    before = [type(one) is Deferred for one in (callers.inner, kernels.inner, callers.twice)]
    load_numba()
    after = [type(one) is Deferred for one in (callers.inner, kernels.inner, callers.twice)]
    assert callers.table["mixed"](array, 1) == expected
    for _ in range(50_000):  # until it is compiled
        assert callers.twice(value) == 8
        if callers.twice.overloads:
            break
    print(json.dumps([before, after]))
    """
    assert run(tmp_path, program) == [[True] * 3, [False] * 3]


@needs_jit
@pytest.mark.parametrize("at_once", [False, True])
def test_many_threads_may_need_numba_at_the_same_time(tmp_path: Path, at_once: bool) -> None:
    program = f"""
import json, sys, threading
from nearcast.compiled import deferred
from nearcast.compiled.first_calls import compile_at_once
deferred.IMPORTING_S = 0.0
found, start = [], threading.Barrier(8)

def example():
    start.wait()
    if {at_once}:
        compile_at_once()
    from nearcast import Engine, Message, Rect, Subscription
    engine = Engine()
    engine.subscribe(Subscription("s", Rect(0, 0, 1, 1), ["tea"]))
    found.append(len(engine.publish(Message("m", (0.5, 0.5), "tea"))))

threads = [threading.Thread(target=example) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps([found, "numba" in sys.modules]))
"""
    environment = given(tmp_path)
    del environment["NEARCAST_CACHE_DIR"]  # what is compiled here is compiled for all tests
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[1] * 8, True]


@needs_jit
def test_a_terminal_is_told_why_the_first_large_call_takes_a_while(tmp_path: Path) -> None:
    program = """
    kernels.mixed(np.ones(200_000, np.uint64), 1)
    kernels.inner(np.uint64(3))
    kernels.mixed(np.ones(200_000, np.uint8), 1)
    """
    screen, terminal = os.openpty()
    command = [sys.executable, "-c", PREPARE + textwrap.dedent(program)]
    subprocess.run(command, env=given(tmp_path), stderr=terminal, check=True)
    os.close(terminal)
    with open(screen, "rb", buffering=0) as shown:
        said = shown.read(1000).decode()
    assert said.strip() == "Compiling for this machine, once: up to half a minute."
