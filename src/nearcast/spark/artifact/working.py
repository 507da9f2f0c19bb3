"""Work on an artifact: a folder for what is written on the way, and what is left of dead work.

Whoever builds or changes holds a lock on a folder of its own below ``work``. Where the process
dies, the lock is gone and the folder stays: it is rubbish then, like stored folders that no version
names.
"""

from __future__ import annotations

import re
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nearcast.errors import StorageError
from nearcast.spark.artifact.locks import LOCKS, claimed, held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nearcast.spark.artifact.versions import Artifact

__all__ = ["remove_rubbish", "working"]

_LOCK = "lock"
_HALF = re.compile(r"\.?\d{8}\.json\.[0-9a-f]+(\.part)?")


@contextmanager
def working(artifact: Artifact) -> Iterator[str]:
    """Give a folder to work in, which is removed at the end."""
    local = artifact.folder.local
    while True:
        work = _begin(artifact)
        lock = None if local is None else local / work / _LOCK
        with held(lock, alone=True):
            if lock is not None and not lock.exists():
                continue  # before it was held, somebody took it for dead
            try:
                yield work
            finally:
                artifact.folder.remove(work)
            return


def _begin(artifact: Artifact) -> str:
    work = f"work/{secrets.token_hex(8)}"
    began = str(time.time_ns() // 1_000_000).encode()
    try:
        artifact.folder.create(f"{work}/{_LOCK}", began)
    except OSError as error:
        raise StorageError(
            f"{artifact.folder.uri}: cannot be written ({error.strerror or error}); "
            "check the path and its permissions"
        ) from error
    return work


def remove_rubbish(artifact: Artifact, keep_s: float) -> list[str]:
    """Remove dead work and stored folders that no version names; return their names.

    Where somebody works, stored folders stay: a version may be about to name them.
    """
    folder = artifact.folder
    # Before the work: who wrote these and is not seen to work any more is done, or dead.
    stored = [f"data/{name}" for name in folder.names("data")]
    halves = [f"versions/{name}" for name in folder.names("versions") if _HALF.fullmatch(name)]
    works = [f"work/{name}" for name in folder.names("work")]
    removed = [work for work in works if _remove_dead(artifact, work, keep_s)]
    if len(removed) == len(works):
        named = {s.name for number in artifact.numbers() for s in artifact.read(number).stored()}
        rubbish = [name for name in (*stored, *halves) if name not in named]
        for name in rubbish:
            folder.remove(name)
        removed += rubbish
    return removed


def _remove_dead(artifact: Artifact, work: str, keep_s: float) -> bool:
    """Remove a folder of work that nobody holds any more; return whether that is so."""
    folder = artifact.folder
    if folder.local is not None and LOCKS:
        with claimed(folder.local / work / _LOCK) as dead:
            if dead:
                folder.remove(work)
        return dead
    dead = _LOCK not in folder.names(work) or _age_s(folder.read(f"{work}/{_LOCK}")) >= keep_s
    if dead:
        folder.remove(work)
    return dead


def _age_s(began: bytes) -> float:
    return time.time() - int(began or 0) / 1000
