"""Segments in an artifact: tasks that build write them, tasks that match map them.

A segment is self-contained: it has subscriptions, their index and their own vocabulary. So shards
can be built independently of each other. Only the weights of ranked subscriptions are elsewhere:
all segments of a version share one table, and a segment notes which one it was built with.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from nearcast import indexes
from nearcast.columns import BOOLEAN
from nearcast.errors import NearcastError, StorageError
from nearcast.segments import Scorer, Segment
from nearcast.segments.parts import Part, part_arrays, part_from_arrays
from nearcast.spark.artifact.versions import SegmentRef, Stored
from nearcast.spark.shards.router import Router
from nearcast.storage import nested, prefixed, read_arrays
from nearcast.text import Vocabulary, Weights

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from nearcast.columns import Scoring, Subscriptions
    from nearcast.indexes import Builder
    from nearcast.spark.artifact.folders import Folder
    from nearcast.spark.artifact.versions import Version

__all__ = [
    "ShardSegment",
    "StoredScorer",
    "open_router",
    "open_scorer",
    "open_segment",
    "read_router",
    "read_scorer",
    "write_dead",
    "write_router",
    "write_segment",
    "write_weights",
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


@dataclass(frozen=True, eq=False)
class StoredScorer(Scorer):
    """A scorer whose table of weights is stored; ``digest`` is that of the stored folder."""

    digest: str

    @property
    def key(self) -> dict[str, str]:
        """What scores depend on, for JSON."""
        return {"weights": self.digest, **asdict(self.scoring)}


def write_segment(
    folder: Folder,
    name: str,
    part: Part,
    builder: Builder,
    shards: NDArray[np.uint64] | None,
    scorer: StoredScorer | None = None,
) -> SegmentRef:
    """Build the index of a part and store both; ranked subscriptions need a scorer."""
    subscriptions = _without_needless_rankings(part.subscriptions)
    meta: dict[str, Any] = {"index": builder.index.name, "options": builder.stored_options()}
    if subscriptions.rankings is not None:
        meta["scorer"] = _required(scorer, name).key
    part = Part(subscriptions, part.vocabulary)
    index = builder.build(_content(part, scorer))
    arrays = {**part_arrays(part), **prefixed("index", index.arrays())}
    if shards is not None:
        arrays["shards"] = shards
    stored = Stored(name, *folder.write_arrays(name, "segment", arrays, meta))
    return SegmentRef(stored, rows=len(subscriptions))


def _without_needless_rankings(subscriptions: Subscriptions) -> Subscriptions:
    """Return the same subscriptions; if all of them are boolean, without columns for scores."""
    rankings = subscriptions.rankings
    if rankings is None or bool((rankings.kind != BOOLEAN).any()):
        return subscriptions
    return replace(subscriptions, rankings=None)


def _content(part: Part, scorer: Scorer | None) -> Any:
    """Return what the index of a part is built over."""
    return part.subscriptions.clauses if scorer is None else scorer.content(*part)


def _required(scorer: StoredScorer | None, name: str) -> StoredScorer:
    if scorer is None:
        raise StorageError(f"{name}: has ranked subscriptions but no weights; build it again")
    return scorer


def write_dead(folder: Folder, name: str, rows: NDArray[np.int32]) -> Stored:
    """Store the deleted rows of a segment."""
    return Stored(name, *folder.write_arrays(name, "dead", {"row": rows}, {}))


def open_segment(
    folder: Folder, ref: SegmentRef, scorer: StoredScorer | None = None
) -> ShardSegment:
    """Map a segment; the process keeps it and returns it again.

    Parameters
    ----------
    folder, ref
        The artifact, and which segment.
    scorer
        The scorer of the version; a segment without ranked subscriptions needs none.
    """
    scored = () if scorer is None else tuple(scorer.key.values())

    def take(arrays: dict[str, Any], meta: dict[str, Any]) -> Any:
        return _segment(arrays, meta, scorer, ref.data.name)

    def make() -> ShardSegment:
        part, index, shards = _map(folder, ref.data, "segment", take, scored)
        own = None if part.subscriptions.rankings is None else scorer
        segment = ShardSegment(part.subscriptions, index, part.vocabulary, own)
        segment.shards = shards
        if ref.dead is not None:
            segment.kill(_map(folder, ref.dead, "dead", _dead))
        return segment

    dead = None if ref.dead is None else ref.dead.digest
    key = ("alive", dead, scored, *_stamp(folder, ref.data))
    return cast("ShardSegment", _cached(key, make))


def write_weights(folder: Folder, name: str, weights: Weights) -> Stored:
    """Store a table of weights, which has a vocabulary of its own."""
    arrays = {**prefixed("vocabulary", weights.vocabulary.arrays()), **weights.arrays()}
    return Stored(name, *folder.write_arrays(name, "weights", arrays, {}))


def open_scorer(folder: Folder, version: Version) -> StoredScorer | None:
    """Map the weights of a version; None if it has none."""
    return read_scorer(folder, version.weights, version.scoring)


def read_scorer(folder: Folder, stored: Stored | None, scoring: Scoring) -> StoredScorer | None:
    """Map a table of weights for a way of scoring; None without a table."""
    if stored is None:
        return None
    return StoredScorer(_map(folder, stored, "weights", _weights), scoring, stored.digest)


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
    folder: Folder,
    stored: Stored,
    kind: str,
    take: Callable[[dict[str, Any], Any], Any],
    depends: tuple[Any, ...] = (),
) -> Any:
    """Return the content of a stored folder, mapped and verified.

    ``depends`` is what the content depends on apart from the folder.
    """

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

    return _cached((kind, depends, *_stamp(folder, stored)), make)


def _stamp(folder: Folder, stored: Stored) -> tuple[Any, ...]:
    """Return the path of a stored folder, and properties that change if somebody replaces it."""
    where = folder.fetch(stored.name, stored.digest)
    try:
        stats = [(where / name).stat() for name in ("manifest.json", "arrays.bin")]
    except OSError as error:
        raise StorageError(f"{where}: is damaged ({error.strerror}); build it again") from error
    return str(where), *(n for one in stats for n in (one.st_ino, one.st_size, one.st_mtime_ns))


def _segment(
    arrays: dict[str, Any], meta: dict[str, Any], scorer: StoredScorer | None, name: str
) -> Any:
    part = part_from_arrays(arrays)
    if part.subscriptions.rankings is not None:
        expected, found = meta["scorer"], _required(scorer, name).key
        if found != expected:
            raise StorageError(
                f"{name}: was built with the weights {expected}, but its version has {found}; "
                "build it again"
            )
    builder = indexes.create(meta["index"], **meta["options"])
    index = builder.restore(_content(part, scorer), nested("index", arrays))
    index.check_structure()
    return part, index, arrays.get("shards")


def _weights(arrays: dict[str, Any], meta: dict[str, Any]) -> Any:
    vocabulary = Vocabulary.from_arrays(nested("vocabulary", arrays))
    return Weights.from_arrays(vocabulary, arrays)


def _dead(arrays: dict[str, Any], meta: dict[str, Any]) -> Any:
    return arrays["row"]


def _router(arrays: dict[str, Any], meta: dict[str, Any]) -> Any:
    return Router.from_arrays(arrays)
