"""Segments in an artifact: tasks that build write them, tasks that match map them.

A segment is self-contained: it has subscriptions, their index and their own vocabulary. So shards
can be built independently of each other.
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

_MAX_CACHED = 64


class ShardSegment(Segment):
    """A segment of a shard, mapped from files.

    ``shards`` has the shards of each row as bits; None if every row is in this shard only.
    """

    shards: NDArray[np.uint64] | None = None

    @property
    def part(self) -> Part:
        """The subscriptions, including deleted ones, and their vocabulary."""
        return Part(self.subscriptions, self.vocabulary)


def write_segment(
    folder: Folder, name: str, part: Part, builder: Builder, shards: NDArray[np.uint64] | None
) -> SegmentRef:
    """Build the index of a part and store both."""
    index = builder.build(part.subscriptions.clauses)
    arrays = {**part_arrays(part), **prefixed("index", index.arrays())}
    if shards is not None:
        arrays["shards"] = shards
    meta = {"index": index.name, "options": vars(index.options)}
    stored = Stored(name, *folder.write_arrays(name, "segment", arrays, meta))
    return SegmentRef(stored, rows=len(part.subscriptions))


def write_dead(folder: Folder, name: str, rows: NDArray[np.int32]) -> Stored:
    """Store the deleted rows of a segment."""
    return Stored(name, *folder.write_arrays(name, "dead", {"row": rows}, {}))


def open_segment(folder: Folder, ref: SegmentRef) -> ShardSegment:
    """Map a segment; the process keeps it and returns it again."""

    def make() -> ShardSegment:
        part, index, shards = _map(folder, ref.data, "segment", _segment)
        segment = ShardSegment(part.subscriptions, index, part.vocabulary)
        segment.shards = shards
        if ref.dead is not None:
            segment.kill(_map(folder, ref.dead, "dead", _dead))
        return segment

    dead = None if ref.dead is None else ref.dead.digest
    key = ("alive", dead, *_stamp(folder, ref.data))
    return cast("ShardSegment", _cached(key, make))


def open_router(folder: Folder, version: Version) -> Router:
    """Map the router of a version; without one, return that of a single shard."""
    return Router.single() if version.router is None else read_router(folder, version.router)


def read_router(folder: Folder, stored: Stored) -> Router:
    """Map a router."""
    return cast("Router", _map(folder, stored, "router", _router))


def write_router(folder: Folder, name: str, router: Router) -> Stored:
    """Store a router."""
    return Stored(name, *folder.write_arrays(name, "router", router.arrays(), {}))


_cache: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_cache_lock = threading.RLock()


def _cached(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the cached value of a key, or make it: stored folders never change."""
    with _cache_lock:
        if key not in _cache:
            _cache[key] = make()
        _cache.move_to_end(key)
        while len(_cache) > _MAX_CACHED:
            _cache.popitem(last=False)
        return _cache[key]


def _map(
    folder: Folder, stored: Stored, kind: str, take: Callable[[dict[str, Any], Any], Any]
) -> Any:
    """Return the content of a stored folder, mapped and verified."""

    def make() -> Any:
        where = folder.fetch(stored.name, stored.digest)
        try:
            try:
                return take(*read_arrays(where, kind))
            except StorageError:
                # The copy may be damaged while the original is not.
                if not folder.forget(stored.digest):
                    raise
                return take(*read_arrays(folder.fetch(stored.name, stored.digest), kind))
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, NearcastError) as error:
            raise StorageError(
                f"{where}: cannot be read by this version ({error}); build it again"
            ) from error

    return _cached((kind, *_stamp(folder, stored)), make)


def _stamp(folder: Folder, stored: Stored) -> tuple[Any, ...]:
    """Return the path of a stored folder, and properties that change if somebody replaces it."""
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
