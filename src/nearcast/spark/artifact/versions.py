"""The artifact: an index in a folder, version by version.

::

    versions/00000007.json    what version 7 is made of; the highest number is in force
    data/...                  stored folders (segments, dead rows, routers), which never change
    work/...                  what a build or a change writes on its way, removed when it is done

A version comes into force when its file appears, complete, in one step: whoever reads finds the
old version or the new one. Every stored folder is named with the digest of its manifest, and that
has the checksums of its arrays. What no version names is rubbish, and `compact` removes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nearcast.errors import StorageError
from nearcast.spark.artifact.folders import Folder, open_folder
from nearcast.spark.artifact.locks import claimed, held

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Artifact", "SegmentRef", "ShardRef", "Stored", "Version"]

MAGIC = "nearcast-index"
FORMAT = 1
"""The version of the format; an artifact of another one is refused."""

_NAME = re.compile(r"(\d{8})\.json")
_STORED_NAME = re.compile(r"data/[A-Za-z0-9]+")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Stored:
    """A stored folder: its name in the artifact, the digest of its manifest, its size."""

    name: str
    digest: str
    nbytes: int


@dataclass(frozen=True)
class SegmentRef:
    """A segment: its subscriptions and index, which never change, and which rows are gone."""

    data: Stored
    rows: int
    dead: Stored | None = None
    dead_rows: int = 0


@dataclass(frozen=True)
class ShardRef:
    """A shard: what was built, and perhaps what changed since."""

    segments: tuple[SegmentRef, ...]

    @property
    def rows(self) -> int:
        """How many rows the shard has that are not gone."""
        return sum(segment.rows - segment.dead_rows for segment in self.segments)

    def to_json(self) -> str:
        """Return the shard as text, for a driver that waits for it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShardRef:
        """Return the shard that `to_json` made text of."""
        return cls(tuple(_segment(segment) for segment in json.loads(text)["segments"]))


@dataclass(frozen=True)
class Version:
    """What a version is made of, and how it came to be.

    ``ids`` is ``integer`` or ``string``. ``source`` says what made the version and in numbers
    what it did. The router is there where there are several shards.
    """

    index: str
    options: dict[str, Any]
    ids: str
    shards: tuple[ShardRef, ...]
    router: Stored | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    created_ms: int = 0

    @property
    def mode(self) -> str:
        """How it is spread: ``replicated`` (one index) or ``sharded``."""
        return "replicated" if self.router is None else "sharded"

    @property
    def nbytes(self) -> int:
        """The bytes of all that has to be mapped to match."""
        return sum(stored.nbytes for stored in self.stored())

    @property
    def rows(self) -> int:
        """How many rows the shards have that are not gone; one in several shards counts in each."""
        return sum(shard.rows for shard in self.shards)

    @property
    def deltas(self) -> int:
        """How many shards have changes that are not folded in."""
        return sum(
            len(shard.segments) > 1 or any(s.dead_rows for s in shard.segments)
            for shard in self.shards
        )

    def stored(self) -> list[Stored]:
        """Return all stored folders that the version names."""
        found = [] if self.router is None else [self.router]
        for shard in self.shards:
            for segment in shard.segments:
                found += [segment.data] if segment.dead is None else [segment.data, segment.dead]
        return found

    def render(self) -> bytes:
        """Return the bytes of the version's file."""
        body = {"magic": MAGIC, "format": FORMAT, **asdict(self)}
        text = json.dumps(body, sort_keys=True)
        check = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps({**body, "sha256": check}, sort_keys=True, indent=1).encode()

    @classmethod
    def parse(cls, raw: bytes, where: str) -> Version:
        """Read what `render` wrote; whatever is wrong with it is a `StorageError`."""
        try:
            body = json.loads(raw)
            magic, found = body.pop("magic"), body.pop("format")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise StorageError(f"{where}: is no version of an index; build it again") from None
        if magic != MAGIC or found != FORMAT:
            raise StorageError(
                f"{where}: has the format {found!r}, this library reads {FORMAT}; "
                "match with the library that built it, or build it again"
            )
        try:
            body.pop("sha256")
            version = _version(body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"{where}: is damaged ({error!r}); build it again") from None
        if version.render() != raw:
            raise StorageError(f"{where}: does not fit its checksum; build it again")
        return version


def _version(body: dict[str, Any]) -> Version:
    shards = tuple(
        ShardRef(tuple(_segment(segment) for segment in shard["segments"]))
        for shard in body.pop("shards")
    )
    router = body.pop("router")
    return Version(shards=shards, router=None if router is None else _stored(router), **body)


def _segment(body: dict[str, Any]) -> SegmentRef:
    data, dead = _stored(body.pop("data")), body.pop("dead")
    return SegmentRef(data, dead=None if dead is None else _stored(dead), **body)


def _stored(body: dict[str, Any]) -> Stored:
    stored = Stored(**body)
    if not _STORED_NAME.fullmatch(stored.name) or not _DIGEST.fullmatch(stored.digest):
        raise ValueError(f"no stored folder of an index has the name {stored.name!r}")
    return stored


class Artifact:
    """An index in a folder, with its versions.

    Examples
    --------
    >>> import tempfile
    >>> artifact = Artifact(tempfile.mkdtemp())
    >>> artifact.numbers()
    []
    >>> artifact.commit(Version("trie-pyramid", {}, "string", ())).number
    1
    >>> artifact.latest().index
    'trie-pyramid'
    """

    def __init__(self, folder: str | os.PathLike[str] | Folder) -> None:
        self.folder = folder if isinstance(folder, Folder) else open_folder(folder)

    def __repr__(self) -> str:
        return f"Artifact({self.folder.uri!r})"

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        names = (_NAME.fullmatch(name) for name in self.folder.names("versions"))
        return sorted(int(found[1]) for found in names if found)

    def read(self, number: int) -> Version:
        """Return a version."""
        name = version_file(number)
        if number not in self.numbers():
            there = ", ".join(map(str, self.numbers())) or "none"
            raise StorageError(
                f"{self.folder.uri}: there is no version {number} (found: {there}); it may have "
                "been compacted: take the latest"
            )
        version = Version.parse(self.folder.read(name), f"{self.folder.uri}/{name}")
        if version.number != number:
            raise StorageError(f"{self.folder.uri}/{name}: holds version {version.number}")
        return version

    def latest(self) -> Version:
        """Return the version in force."""
        numbers = self.numbers()
        if not numbers:
            raise StorageError(
                f"{self.folder.uri}: holds no index; make one with: nearcast spark build"
            )
        return self.read(numbers[-1])

    def at(self, time_ms: int) -> Version:
        """Return the version that was in force at a time, the oldest where none was yet."""
        numbers = self.numbers()
        for number in reversed(numbers[1:]):
            version = self.read(number)
            if version.created_ms <= time_ms:
                return version
        return self.read(numbers[0]) if numbers else self.latest()

    @contextmanager
    def reading(self, version: Version) -> Iterator[None]:
        """Hold a version while it is read: `compact` leaves it alone then.

        That works where the artifact lies on a disk whose files can be locked; elsewhere, versions
        are kept for as long as `compact` is told.
        """
        with held(self._lock_file(version.number), alone=False):
            yield

    def drop(self, number: int) -> bool:
        """Remove the file of a version, unless somebody reads it; return whether it is gone."""
        with claimed(self._lock_file(number)) as unread:
            if unread:
                self.folder.remove(version_file(number))
        return unread

    def _lock_file(self, number: int) -> Path | None:
        local = self.folder.local
        return None if local is None else local / version_file(number)

    def commit(self, version: Version, *, after: int | None = None) -> Version:
        """Bring a new version into force and return it with its number.

        ``after`` is the version that it was made from: where another came meanwhile, that is an
        error, and the artifact stays as it is. Left out, the new version replaces whatever is
        there.
        """
        while True:
            last = max(self.numbers(), default=0)
            if after is not None and after != last:
                raise _overtaken(self.folder, after, last)
            made = replace(version, number=last + 1, created_ms=time.time_ns() // 1_000_000)
            try:
                self.folder.create(version_file(made.number), made.render())
            except FileExistsError:
                continue
            except OSError as error:
                raise StorageError(f"{self.folder.uri}: cannot be written ({error})") from error
            return made


def version_file(number: int) -> str:
    """Return the name of the file of a version."""
    return f"versions/{number:08d}.json"


def _overtaken(folder: Folder, after: int, last: int) -> StorageError:
    return StorageError(
        f"{folder.uri}: version {last} came while changes to version {after} were made; "
        "nothing was changed: do it again"
    )
