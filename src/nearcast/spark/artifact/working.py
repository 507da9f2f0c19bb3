"""Temporary folders of running jobs, and the removal of what dead jobs left.

A build or a change writes into its own folder in ``work`` and locks it. If its process dies, the
lock is gone and the folder stays: it is garbage then, like stored folders that no version names.
"""

from __future__ import annotations

import re
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nearcast.errors import StorageError
from nearcast.spark.artifact.locks import exclusive_lock, supports_locks, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nearcast.spark.artifact.versions import Artifact

__all__ = ["remove_garbage", "working"]

_LOCK = "lock"
_INCOMPLETE = re.compile(r"\.?\d{8}\.json\.[0-9a-f]+(\.part)?")


@contextmanager
def working(artifact: Artifact) -> Iterator[str]:
    """Create a temporary folder, and remove it at the end."""
    local = artifact.folder.local
    while True:
        work = _begin(artifact)
        lock = None if local is None else local / work / _LOCK
        with exclusive_lock(lock):
            if lock is not None and not lock.exists():
                continue  # somebody took it for dead before it was locked
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


def remove_garbage(artifact: Artifact, keep_s: float) -> list[str]:
    """Remove folders of dead jobs and stored folders that no version names; return their names.

    While a job runs, all stored folders stay: its version may be about to name them.
    """
    folder = artifact.folder
    # List these before the running jobs: a job that wrote them and is not listed then has ended.
    stored = [f"data/{name}" for name in folder.names("data")]
    incomplete = [
        f"versions/{name}" for name in folder.names("versions") if _INCOMPLETE.fullmatch(name)
    ]
    jobs = [f"work/{name}" for name in folder.names("work")]
    removed = [work for work in jobs if _remove_dead(artifact, work, keep_s)]
    if len(removed) == len(jobs):
        named = {s.name for number in artifact.numbers() for s in artifact.read(number).stored()}
        garbage = [name for name in (*stored, *incomplete) if name not in named]
        for name in garbage:
            folder.remove(name)
        removed += garbage
    return removed


def _remove_dead(artifact: Artifact, work: str, keep_s: float) -> bool:
    """Remove the folder of a job if the job is dead; return whether it is."""
    folder = artifact.folder
    lock = None if folder.local is None else folder.local / work / _LOCK
    if supports_locks(lock):
        with try_lock(lock) as dead:
            if dead:
                folder.remove(work)
        return dead
    dead = _LOCK not in folder.names(work) or _age_s(folder.read(f"{work}/{_LOCK}")) >= keep_s
    if dead:
        folder.remove(work)
    return dead


def _age_s(began: bytes) -> float:
    return time.time() - int(began or 0) / 1000
