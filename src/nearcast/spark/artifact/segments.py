"""Segments in an artifact: written by the tasks that build them, mapped by those that match.

A segment is complete in itself: subscriptions, their index and the vocabulary that numbers their
tokens. So shards are built without anything that all of them would have to agree on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, cast

from nearcast import indexes
from nearcast.errors import NearcastError, StorageError
from nearcast.segments import Segment
from nearcast.segments.parts import Part, part_arrays, part_from_arrays
from nearcast.spark.artifact.versions import SegmentRef, Stored
from nearcast.spark.shards.router import Router
from nearcast.storage import nested, prefixed, read_arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from nearcast.indexes import Builder
    from nearcast.spark.artifact.folders import Folder
    from nearcast.spark.artifact.versions import Version

__all__ = [
    "ShardSegment",
    "open_router",
    "open_segment",
    "read_router",
    "write_dead",
    "write_router",
    "write_segment",
]

_KEPT = 64


class ShardSegment(Segment):
    """A segment of a shard, mapped from files.

    ``shards`` are the shards of each row as bits, None where every row lies in this one only.
    """

    shards: NDArray[np.uint64] | None = None

    @property
    def part(self) -> Part:
        """The subscriptions, dead ones included, and their vocabulary."""
        return Part(self.subscriptions, self.vocabulary)


def write_segment(
    folder: Folder, name: str, part: Part, builder: Builder, shards: NDArray[np.uint64] | None
) -> SegmentRef:
    """Build the index of a part, and store both."""
    index = builder.build(part.subscriptions.clauses)
    arrays = {**part_arrays(part), **prefixed("index", index.arrays())}
    if shards is not None:
        arrays["shards"] = shards
    meta = {"index": index.name, "options": vars(index.options)}
    stored = Stored(name, *folder.write_arrays(name, "segment", arrays, meta))
    return SegmentRef(stored, rows=len(part.subscriptions))


def write_dead(folder: Folder, name: str, rows: NDArray[np.int32]) -> Stored:
    """Store which rows of a segment are gone."""
    return Stored(name, *folder.write_arrays(name, "dead", {"row": rows}, {}))


def open_segment(folder: Folder, ref: SegmentRef) -> ShardSegment:
    """Map a segment; a process that did so before gives the same one again."""

    def make() -> ShardSegment:
        part, index, shards = _map(folder, ref.data, "segment", _segment)
        segment = ShardSegment(part.subscriptions, index, part.vocabulary)
        segment.shards = shards
        if ref.dead is not None:
            segment.kill(_map(folder, ref.dead, "dead", _dead))
        return segment

    dead = None if ref.dead is None else ref.dead.digest
    key = ("alive", dead, *_stamp(folder, ref.data))
    return cast("ShardSegment", _remembered(key, make))


def open_router(folder: Folder, version: Version) -> Router:
    """Map the router of a version; the one of a single shard where it has none."""
    return Router.single() if version.router is None else read_router(folder, version.router)


def read_router(folder: Folder, stored: Stored) -> Router:
    """Map a router."""
    return cast("Router", _map(folder, stored, "router", _router))


def write_router(folder: Folder, name: str, router: Router) -> Stored:
    """Store a router."""
    return Stored(name, *folder.write_arrays(name, "router", router.arrays(), {}))


_opened: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_opening = threading.RLock()


def _remembered(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return what was made under this key before, or make it: stored folders never change."""
    with _opening:
        if key not in _opened:
            _opened[key] = make()
        _opened.move_to_end(key)
        while len(_opened) > _KEPT:
            _opened.popitem(last=False)
        return _opened[key]


def _map(
    folder: Folder, stored: Stored, kind: str, take: Callable[[dict[str, Any], Any], Any]
) -> Any:
    """Return what a stored folder holds, mapped and verified."""

    def make() -> Any:
        where = folder.fetch(stored.name, stored.digest)
        try:
            try:
                return take(*read_arrays(where, kind))
            except StorageError:
                # A copy may be damaged where the original is not.
                if not folder.forget(stored.digest):
                    raise
                return take(*read_arrays(folder.fetch(stored.name, stored.digest), kind))
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, NearcastError) as error:
            raise StorageError(
                f"{where}: cannot be read by this version ({error}); build it again"
            ) from error

    return _remembered((kind, *_stamp(folder, stored)), make)


def _stamp(folder: Folder, stored: Stored) -> tuple[Any, ...]:
    """Return where a stored folder lies, and what changes when somebody replaces or damages it."""
    where = folder.fetch(stored.name, stored.digest)
    try:
        stats = [(where / name).stat() for name in ("manifest.json", "arrays.bin")]
    except OSError as error:
        raise StorageError(f"{where}: is damaged ({error.strerror}); build it again") from error
    return str(where), *(n for one in stats for n in (one.st_ino, one.st_size, one.st_mtime_ns))


def _segment(arrays: dict[str, Any], meta: dict[str, Any]) -> Any:
    part = part_from_arrays(arrays)
    builder = indexes.create(meta["index"], **meta["options"])
    own = nested("index", arrays)
    index = builder.index.from_arrays(part.subscriptions.clauses, builder.options, own)
    index.check_structure()
    return part, index, arrays.get("shards")


def _dead(arrays: dict[str, Any], meta: dict[str, Any]) -> Any:
    return arrays["row"]


def _router(arrays: dict[str, Any], meta: dict[str, Any]) -> Any:
    return Router.from_arrays(arrays)
