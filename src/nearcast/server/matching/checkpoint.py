"""Checkpoints: everything that matching knows after a record, so that restarting is quick.

::

    checkpoint/00000000000000120000/engine/      the engine
                                    registry/    the registry, and updates that wait
                                    tail/        postings that are not in events/ yet

A checkpoint is complete when its folder has its name. The log and an older checkpoint, or the log
alone if nothing was trimmed, give the same again, so a damaged one can be skipped.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from nearcast.engine import Engine
from nearcast.errors import StorageError
from nearcast.server.log.clocks import Clocks, Step
from nearcast.server.matching.dwell import Dwelling
from nearcast.server.matching.matcher import Matcher
from nearcast.server.matching.registry import Registry
from nearcast.server.matching.remote import RemoteEngine
from nearcast.storage import nested, prefixed, read_arrays, write_arrays
from nearcast.storage.temporary import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nearcast.server.matching.events import EventStore

__all__ = ["Checkpoints", "Loaded", "clocks_in"]

_KIND = "server-registry"
_PARTIAL = ".part"
_MIN_FREE_BYTES = 16 << 20
_BETWEEN = 4


class Loaded(NamedTuple):
    """What a checkpoint held: matching after a record, its number and time, and where it is."""

    matcher: Matcher
    seq: int
    time_us: int
    folder: Path


def clocks_in(meta: dict[str, Any]) -> Clocks:
    """Return what the log had told of its time; older checkpoints do not have it."""
    lead_us, steps = meta.get("clocks", (0, ()))
    return Clocks(lead_us, tuple(Step(*step) for step in steps))


class Checkpoints:
    """The checkpoints in a folder.

    Parameters
    ----------
    folder
        Where they are; it is made if it is not there.

    Attributes
    ----------
    read_only
        Whether nothing may be written, neither checkpoints nor what would lead to them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.read_only = False
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(f"*{_PARTIAL}"):
            shutil.rmtree(path)

    def has_space(self) -> bool:
        """Return whether the disk has space, for checkpoints and all else that can be derived."""
        return not self.read_only and shutil.disk_usage(self._folder).free >= _MIN_FREE_BYTES

    def seqs(self) -> list[int]:
        """Return the numbers of the records after which there is a checkpoint."""
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def load(self, seq: int) -> Loaded:
        """Read the checkpoint after a record.

        Raises
        ------
        StorageError
            If it is damaged.
        """
        try:
            return self._read(seq)
        except (StorageError, KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{self._path(seq)}: cannot be read: {error}") from error

    def remove_after(self, seq: int) -> None:
        """Remove the checkpoints after a record."""
        for other in self.seqs():
            if other > seq:
                shutil.rmtree(self._path(other))

    def _read(self, seq: int) -> Loaded:
        folder = self._path(seq)
        arrays, meta = read_arrays(folder / "registry", _KIND)
        remote = nested("remote", arrays)
        engine = RemoteEngine.from_arrays(remote) if remote else Engine.open(folder / "engine")
        matcher = Matcher(
            engine,
            Registry.from_arrays(nested("registry", arrays)),
            Dwelling.from_arrays(nested("dwelling", arrays)),
            dict(meta["tenants"]),
            int(meta["counted"]),
            clocks_in(meta),
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
        if isinstance(matcher.engine, RemoteEngine):
            arrays |= prefixed("remote", matcher.engine.arrays())
        meta: dict[str, Any] = {
            "tenants": dict(matcher.tenants),
            "counted": matcher.counted,
            "time_us": time_us,
            "clocks": matcher.clocks,
        }
        tail = events.tail()

        def write() -> None:
            target = self._path(seq)
            if target.exists():
                return
            partial = target.with_name(target.name + _PARTIAL)
            shutil.rmtree(partial, ignore_errors=True)  # of one that could not be written
            partial.mkdir()
            snapshot.write(partial / "engine")
            write_arrays(partial / "registry", _KIND, arrays, meta)
            tail.save(partial / "tail")
            sync_folder(partial)
            partial.rename(target)
            sync_folder(self._folder)

        return write

    def keep(self, first_seq: int) -> None:
        """Remove checkpoints that nobody needs.

        What stays: the newest two; the newest from which everything from ``first_seq`` on can be
        computed again, or the oldest; and a few between them, so that the log can be trimmed to one
        of them later.

        Parameters
        ----------
        first_seq
            The first record that must still be there.
        """
        seqs = self.seqs()
        base = ([seq for seq in seqs if seq < first_seq] or seqs[:1])[-1:]
        kept = {*base, *seqs[-2:]}
        previous, distance = sum(base), (sum(seqs[-1:]) - sum(base)) / _BETWEEN
        for seq in seqs:
            if seq >= previous + distance:
                kept.add(seq)
                previous = seq
        for seq in seqs:
            if seq not in kept:
                shutil.rmtree(self._path(seq))

    def _path(self, seq: int) -> Path:
        return self._folder / f"{seq:020d}"
