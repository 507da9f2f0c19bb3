"""Checkpoints: everything that matching knows after a record, so that restarting is quick.

::

    checkpoint/00000000000000120000/engine/      the engine
                                    registry/    the registry, and updates that wait
                                    tail/        postings that are not in events/ yet

A checkpoint is complete when its folder has its name. The log and an older checkpoint, or the log
alone if nothing was trimmed, give the same again: a damaged one is skipped.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.engine import Engine
from nearcast.errors import StorageError
from nearcast.server.matching.dwell import Dwelling
from nearcast.server.matching.matcher import Matcher
from nearcast.server.matching.registry import Registry
from nearcast.storage import nested, prefixed, read_arrays, write_arrays
from nearcast.storage.temporary import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nearcast.server.matching.events import EventStore

__all__ = ["Checkpoints", "Loaded"]

_KIND = "server-registry"
_PARTIAL = ".part"


class Loaded(NamedTuple):
    """What a checkpoint held: matching after a record, its number and time, and where it is."""

    matcher: Matcher
    seq: int
    time_us: int
    folder: Path


class Checkpoints:
    """The checkpoints in a folder.

    Parameters
    ----------
    folder
        Where they are; it is made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(f"*{_PARTIAL}"):
            shutil.rmtree(path)

    def seqs(self) -> list[int]:
        """Return the numbers of the records after which there is a checkpoint."""
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def load(self, at_most: int, damaged: Callable[[StorageError], None]) -> Loaded | None:
        """Return the newest checkpoint that is whole, not after a record; None if there is none.

        Parameters
        ----------
        at_most
            The number of the record.
        damaged
            Is called for every checkpoint that cannot be read. It is removed.
        """
        for seq in reversed(self.seqs()):
            if seq > at_most:
                shutil.rmtree(self._path(seq))
                continue
            try:
                return self._read(seq)
            except (StorageError, KeyError, ValueError) as error:
                damaged(StorageError(f"{self._path(seq)}: {error}; an older one is used"))
                shutil.rmtree(self._path(seq))
        return None

    def _read(self, seq: int) -> Loaded:
        folder = self._path(seq)
        arrays, meta = read_arrays(folder / "registry", _KIND)
        engine = Engine.open(folder / "engine")
        matcher = Matcher(
            engine,
            Registry.from_arrays(nested("registry", arrays)),
            Dwelling.from_arrays(nested("dwelling", arrays)),
            dict(meta["tenants"]),
            int(meta["counted"]),
        )
        return Loaded(matcher, seq, int(meta["time_us"]), folder)

    def take(
        self, matcher: Matcher, events: EventStore, seq: int, time_us: int
    ) -> Callable[[], None]:
        """Copy what matching knows now; return what writes it.

        Nothing may be matched while this runs. What it returns may run meanwhile.
        """
        snapshot = matcher.engine.snapshot()
        arrays = {
            **prefixed("registry", matcher.registry.arrays()),
            **prefixed("dwelling", matcher.dwelling.arrays()),
        }
        meta: dict[str, Any] = {
            "tenants": dict(matcher.tenants),
            "counted": matcher.counted,
            "time_us": time_us,
        }
        tail = events.tail()

        def write() -> None:
            target = self._path(seq)
            if target.exists():
                return
            partial = target.with_name(target.name + _PARTIAL)
            partial.mkdir()
            snapshot.write(partial / "engine")
            write_arrays(partial / "registry", _KIND, arrays, meta)
            tail.save(partial / "tail")
            partial.rename(target)
            sync_folder(self._folder)

        return write

    def keep(self, oldest: int) -> int:
        """Remove checkpoints that nobody needs; return the number of the oldest one that is left.

        Two stay: the newest, and the newest that is not after ``oldest``. What the log has from
        there on can be computed again.

        Parameters
        ----------
        oldest
            The first record that must still be there.
        """
        seqs = self.seqs()
        before = [seq for seq in seqs if seq < oldest]
        kept = {*seqs[-1:], *before[-1:], *(seq for seq in seqs if seq >= oldest)}
        for seq in seqs:
            if seq not in kept:
                shutil.rmtree(self._path(seq))
        return min(kept, default=0)

    def _path(self, seq: int) -> Path:
        return self._folder / f"{seq:020d}"
