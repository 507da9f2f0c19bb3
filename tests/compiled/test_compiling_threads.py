"""Two threads that compile at the same time: Numba's lock and those of the cache, in one order.

Compiling needs two locks: Numba's own, for the process, and that of the module's folder. Numba has
taken its own before the cache is asked, if somebody's function calls a kernel. So a thread that
took them the other way round could wait for one that waits for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearcast

PACKAGE = Path(nearcast.__file__).parent
STUCK_S = 240
"""Compiling takes seconds; a process that takes longer than this never ends."""

# Each of two threads, when it has its first lock, waits until the other one has a lock too, or
# until it is clear that it gets none. Locks that are taken in both orders are held crosswise then.
PROGRAM = """
import sys, threading, types
sys.modules["nearcast"] = types.ModuleType("nearcast")
sys.modules["nearcast"].__path__ = [{package!r}]
import numba
import numpy as np
from numba.core.compiler_lock import _CompilerLock
from nearcast.compiled import cache
from nearcast.compiled.messages import contains, known_tokens
from nearcast.compiled.token_filter import FILTER_WORDS, occurs

cache.LOCK_TIMEOUT_S = 10 * {stuck_s}
has_lock = {{"first": threading.Event(), "second": threading.Event()}}
lock_file, acquire = cache.lock_file, _CompilerLock.acquire

def meet():
    name = threading.current_thread().name
    if name in has_lock and not has_lock[name].is_set():
        has_lock[name].set()
        has_lock["second" if name == "first" else "first"].wait(1)

def lock_and_meet(file, **options):
    locked = lock_file(file, **options)
    meet()
    return locked

def acquire_and_meet(lock):
    acquire(lock)
    meet()

cache.lock_file, _CompilerLock.acquire = lock_and_meet, acquire_and_meet
tokens = np.arange(5, dtype=np.int32)
full_filter = np.full(FILTER_WORDS, ~np.uint64(0))
results = {{}}

def run(name, call):
    results[name] = call()

@numba.njit
def function_of_somebody(values):
    return known_tokens(values) + 1

calls = {{
    "kernel": lambda: bool(contains(tokens, 3)),
    "other kernel": lambda: int(known_tokens(tokens)),
    "function": lambda: int(function_of_somebody(tokens)),
    "kernel of another module": lambda: bool(occurs(full_filter, tokens, 3)),
}}
expected = {{"kernel": True, "other kernel": 5, "function": 6, "kernel of another module": True}}
pair = {pair!r}
threads = [
    threading.Thread(target=run, args=(one, calls[one]), name=name, daemon=True)
    for name, one in zip(has_lock, pair, strict=True)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == {{one: expected[one] for one in pair}}, results
assert all(event.is_set() for event in has_lock.values())
print("done")
"""

PAIRS = [
    ("kernel", "function"),
    ("function", "kernel"),
    ("kernel", "other kernel"),
    ("kernel of another module", "kernel"),
    ("kernel", "kernel of another module"),
    ("kernel of another module", "function"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_threads_compile_at_the_same_time(tmp_path: Path, pair: tuple[str, str]) -> None:
    environment = {**os.environ, "NEARCAST_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("NUMBA_DISABLE_JIT", None)
    program = PROGRAM.format(package=str(PACKAGE), pair=pair, stuck_s=STUCK_S)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=STUCK_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
