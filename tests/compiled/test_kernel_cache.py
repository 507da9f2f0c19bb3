"""The cache of compiled kernels: shared by processes, and never the reason for a failed call."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nearcast

PACKAGE = Path(nearcast.__file__).parent

# Calls one kernel, and says what the cache did. {before} runs before the call. What the package
# imports by itself, PyArrow and Shapely among it, is left out: that takes longer than all the rest.
PROGRAM = """
import json, sys, types, warnings
sys.modules["nearcast"] = types.ModuleType("nearcast")
sys.modules["nearcast"].__path__ = [{package!r}]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from nearcast.compiled import cache
    from nearcast.compiled.messages import contains
    {before}
    results = [bool(contains(np.arange(5, dtype=np.int32), 3))]
    {after}
print(json.dumps({{
    "results": results,
    "hits": sum(contains.stats.cache_hits.values()),
    "warnings": [str(w.message) for w in caught if w.category is RuntimeWarning],
}}))
"""


def start(
    cache: Path, *, before: str = "pass", after: str = "pass", package: Path = PACKAGE, **more: str
) -> subprocess.Popen[str]:
    environment = {**os.environ, "NEARCAST_CACHE_DIR": str(cache), **more}
    environment.pop("NUMBA_DISABLE_JIT", None)
    program = PROGRAM.format(before=before, after=after, package=str(package))
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    # A process that waits for a lock that is never released fails here.
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(out)
    assert all(found["results"])
    return {**found, "stderr": errors}


def run(cache: Path, **settings: Any) -> dict[str, Any]:
    return finish(start(cache, **settings))


def cache_files(cache: Path) -> list[Path]:
    return sorted(cache.glob("kernels/*/*.nbc"))


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the kernel is compiled."""
    cache = tmp_path_factory.mktemp("warm") / "cache"
    found = run(cache)
    assert (found["hits"], found["warnings"]) == (0, [])
    return cache


@pytest.fixture
def cache(warm: Path, tmp_path: Path) -> Path:
    """A copy of the warm cache."""
    return Path(shutil.copytree(warm, tmp_path / "cache"))


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    started = [start(tmp_path / "cache") for _ in range(3)]
    found = [finish(process) for process in started]
    assert sorted(each["hits"] for each in found) == [0, 1, 1]
    assert [each["warnings"] for each in found] == [[], [], []]


def test_a_change_of_code_renews_the_cache_and_one_of_documentation_does_not(
    cache: Path, tmp_path: Path
) -> None:
    package = Path(shutil.copytree(PACKAGE, tmp_path / "package" / "nearcast"))
    file = package / "compiled" / "messages.py"
    source = file.read_text()

    def change(old: str, new: str) -> str:
        assert source.count(old) == 1
        return source.replace(old, new)

    file.write_text("# changed\n" + source)
    assert run(cache, package=package)["hits"] == 1
    # What a process has imported counts, also if the file changes before a kernel is compiled.
    changed = change("tokens[low] == token", "token == tokens[low]")
    write = f"open({str(file)!r}, 'w').write({changed!r})"
    assert run(cache, package=package, before=write)["hits"] == 1
    assert run(cache, package=package)["hits"] == 0
    assert run(cache, package=package)["hits"] == 1


def checked(content: bytes) -> bytes:
    return hashlib.sha256(content).digest() + content


# Damages the file in one way after the other, each time as if the process had just begun.
DAMAGED = """
    import hashlib, importlib, pickle
    from pathlib import Path
    from nearcast.compiled import messages

    def checked(content):
        return hashlib.sha256(content).digest() + content

    def call():
        cache._warned = False
        caught.clear()
        importlib.reload(messages)
        results.append(bool(messages.contains(np.arange(5, dtype=np.int32), 3)))
        return [sum(messages.contains.stats.cache_hits.values()), len(caught)]

    [file] = Path(r"{cache}").glob("kernels/*/*.nbc")
    sound = file.read_bytes()
    seen = {{}}
    for name, damaged in {{
        "empty": b"",
        "truncated": sound[: len(sound) // 2],
        "one byte short": sound[:-1],
        "flipped bit": sound[:5000] + bytes([sound[5000] ^ 1]) + sound[5001:],
        "garbage": b"garbage" * 100,
        "garbage with a checksum": checked(b"garbage" * 100),
        "half a pickle with a checksum": checked(sound[32 : len(sound) // 2]),
        "another pickle with a checksum": checked(pickle.dumps(7)),
    }}.items():
        file.write_bytes(damaged)
        seen[name] = [call(), call()]
    caught.clear()
    warnings.warn(json.dumps(seen), RuntimeWarning)
"""


def test_a_damaged_file_is_compiled_again(cache: Path) -> None:
    seen = json.loads(run(cache, after=DAMAGED.format(cache=cache))["warnings"][0])
    assert len(seen) == 8
    for name, (damaged, repaired) in seen.items():
        assert damaged == [0, 1], name  # no hit, one warning
        assert repaired == [1, 0], name  # the new file replaced the damaged one


def test_a_warning_that_is_an_error_does_not_stop_a_kernel(cache: Path) -> None:
    [file] = cache_files(cache)
    file.write_bytes(b"")
    found = run(cache, before="warnings.simplefilter('error')")
    assert "is damaged" in found["stderr"]


OTHER_TYPE = "results.append(bool(contains(np.arange(5, dtype=np.int64), 3)))"


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    found = run(tmp_path / "cache", before=full, after=OTHER_TYPE)
    assert len(found["warnings"]) == 1
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert left == ["lock"]


def test_a_cache_deleted_while_running_is_created_again(cache: Path) -> None:
    gone = f"import shutil; shutil.rmtree({str(cache)!r}); {OTHER_TYPE}"
    assert run(cache, after=gone)["warnings"] == []
    assert len(cache_files(cache)) == 1


def test_a_cache_replaced_by_a_file_while_running_is_no_error(cache: Path) -> None:
    path = repr(str(cache))
    gone = f"import shutil; shutil.rmtree({path}); open({path}, 'w').close(); {OTHER_TYPE}"
    assert len(run(cache, after=gone)["warnings"]) == 1


def test_an_unwritable_home_is_no_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    # Others know the id of the user: no folder is used that they can create before.
    planted = tmp_path / "tmp" / f"nearcast-{os.getuid()}" / "kernels"
    planted.mkdir(parents=True)
    home = {"NEARCAST_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": str(tmp_path / "file")}
    found = run(tmp_path, after=OTHER_TYPE, TMPDIR=str(tmp_path / "tmp"), **home)
    assert len(found["warnings"]) == 1
    assert "set NEARCAST_CACHE_DIR" in found["warnings"][0]
    assert list((tmp_path / "tmp").rglob("*")) == [planted.parent, planted]


def test_a_lock_that_cannot_be_opened_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "kernels" / "compiled.messages" / "lock").mkdir(parents=True)
    assert len(run(tmp_path)["warnings"]) == 1
    assert run(tmp_path)["hits"] == 1


def test_a_lock_that_is_never_released_is_not_waited_for_forever(tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "compiled.messages"
    folder.mkdir(parents=True)
    with open(folder / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = run(tmp_path, before="cache.LOCK_TIMEOUT_S = 0.0")
        assert len(found["warnings"]) == 1
        # What is compiled is loaded without the lock.
        found = run(tmp_path)
        assert (found["hits"], found["warnings"]) == (1, [])


def test_modules_are_locked_separately(tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "compiled.shapes"
    folder.mkdir(parents=True)
    with open(folder / "lock", "wb") as lock, open(tmp_path / "kernels" / "lock", "wb") as whole:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fcntl.flock(whole, fcntl.LOCK_EX)
        assert run(tmp_path)["warnings"] == []


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize(
    ("mode", "user", "loaded"),
    [
        (0o700, "os.geteuid()", True),  # the attack works where nothing forbids it
        (0o775, "os.geteuid()", False),
        (0o1777, "os.geteuid()", False),
        (0o700, "12345", False),
    ],
)
def test_files_of_other_users_are_not_loaded(
    cache: Path, tmp_path: Path, mode: int, user: str, loaded: bool
) -> None:
    [file] = cache_files(cache)
    file.write_bytes(checked(pickle.dumps(Attack(tmp_path / "attacked"))))
    cache.chmod(mode)
    found = run(cache, before=f"import os; user = {user}; os.geteuid = lambda: user")
    assert (tmp_path / "attacked").exists() == loaded
    assert len(found["warnings"]) == 1
