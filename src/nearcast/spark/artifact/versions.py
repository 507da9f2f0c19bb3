"""The artifact: an index in a folder, version by version.

::

    versions/00000007.json    what version 7 consists of; the highest number is in force
    data/...                  stored folders (segments, dead rows, routers, weights), which never
                              change
    work/...                  temporary folders of running builds and changes
    clock/...                 which times have been asked about, see `nearcast.spark.artifact.clock`
    leases/...                versions that streams hold, see `nearcast.spark.artifact.leases`

A version comes into force when its complete file appears, in one step: a reader finds the old
version or the new one. A version names each of its stored folders with the digest of the folder's
manifest, which has the checksums of the arrays. `nearcast.spark.compact` removes stored folders
that no version names.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nearcast.columns import Scoring
from nearcast.errors import StorageError
from nearcast.spark.artifact.clock import Clock, wait_until
from nearcast.spark.artifact.folders import Folder, open_folder
from nearcast.spark.artifact.leases import leased_from
from nearcast.spark.artifact.locks import shared_lock, try_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Artifact", "SegmentRef", "ShardRef", "Stored", "Version"]

MAGIC = "nearcast-index"
FORMAT = 1
"""The version of the file format; this library reads no other."""

_VERSION_NAME = re.compile(r"(\d{8})\.json")
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
    """A segment: its subscriptions and index, which never change, and its deleted rows."""

    data: Stored
    rows: int
    dead: Stored | None = None
    dead_rows: int = 0


@dataclass(frozen=True)
class ShardRef:
    """A shard: the segment that was built, and perhaps one with the changes since then."""

    segments: tuple[SegmentRef, ...]

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return sum(segment.rows - segment.dead_rows for segment in self.segments)

    def to_json(self) -> str:
        """Return the shard as JSON, to send it to the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ShardRef:
        """Return the shard that `to_json` wrote."""
        return cls(tuple(_segment(segment) for segment in json.loads(text)["segments"]))


@dataclass(frozen=True)
class Version:
    """What a version consists of, and where it comes from.

    ``ids`` is ``integer`` or ``string``. ``source`` names the command that made the version, with
    its counts. Only versions with several shards have a router. ``weights`` is the table of weights
    with which ``scoring`` scores ranked subscriptions; None if there have been none so far.
    ``tokenizer`` is the name of what makes tokens of keywords and texts.
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
    weights: Stored | None = None
    scoring: Scoring = field(default_factory=Scoring)
    tokenizer: str = "words"

    @property
    def mode(self) -> str:
        """``replicated`` (one index) or ``sharded``."""
        return "replicated" if self.router is None else "sharded"

    @property
    def nbytes(self) -> int:
        """The bytes of all stored folders."""
        return sum(stored.nbytes for stored in self.stored())

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted; a row in several shards counts in each."""
        return sum(shard.rows for shard in self.shards)

    @property
    def deltas(self) -> int:
        """How many shards have changes that have not been merged."""
        return sum(
            len(shard.segments) > 1 or any(s.dead_rows for s in shard.segments)
            for shard in self.shards
        )

    def stored(self) -> list[Stored]:
        """Return all stored folders that the version names."""
        found = [one for one in (self.router, self.weights) if one is not None]
        for shard in self.shards:
            for segment in shard.segments:
                found += [segment.data] if segment.dead is None else [segment.data, segment.dead]
        return found

    def render(self) -> bytes:
        """Return the bytes of the version's file."""
        body = {"magic": MAGIC, "format": FORMAT, **self._fields()}
        text = json.dumps(body, sort_keys=True)
        check = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps({**body, "sha256": check}, sort_keys=True, indent=1).encode()

    def _fields(self) -> dict[str, Any]:
        """Return the fields for JSON, without those that came later if they are defaults.

        So the files of versions that were written before there were such fields stay valid.
        """
        fields = asdict(self)
        if self.weights is None and self.scoring == Scoring():
            del fields["weights"], fields["scoring"]
        if self.tokenizer == "words":
            del fields["tokenizer"]
        return fields

    @classmethod
    def parse(cls, raw: bytes, where: str) -> Version:
        """Read what `render` wrote; anything wrong with it is a `StorageError`."""
        try:
            body = json.loads(raw)
            magic, found = body.pop("magic"), body.pop("format")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise StorageError(f"{where}: is not a version of an index; build it again") from None
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
            raise StorageError(f"{where}: does not match its checksum; build it again")
        return version


def _version(body: dict[str, Any]) -> Version:
    shards = tuple(
        ShardRef(tuple(_segment(segment) for segment in shard["segments"]))
        for shard in body.pop("shards")
    )
    router, weights = body.pop("router"), body.pop("weights", None)
    return Version(
        shards=shards,
        router=None if router is None else _stored(router),
        weights=None if weights is None else _stored(weights),
        scoring=Scoring(**body.pop("scoring", {})),
        **body,
    )


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
        self.clock = Clock(self.folder)
        self._last_answer: tuple[int, Version] | None = None

    def __repr__(self) -> str:
        return f"Artifact({self.folder.uri!r})"

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        names = (_VERSION_NAME.fullmatch(name) for name in self.folder.names("versions"))
        return sorted(int(found[1]) for found in names if found)

    def read(self, number: int) -> Version:
        """Return a version."""
        name = version_file(number)
        try:
            raw = self.folder.read(name)
        except StorageError:
            numbers = self.numbers()
            if number in numbers:
                raise
            there = ", ".join(map(str, numbers)) or "none"
            raise StorageError(
                f"{self.folder.uri}: there is no version {number} (found: {there}); it may have "
                "been compacted: use the latest"
            ) from None
        version = Version.parse(raw, f"{self.folder.uri}/{name}")
        if version.number != number:
            raise StorageError(
                f"{self.folder.uri}/{name}: contains version {version.number} instead; build the "
                "index again"
            )
        return version

    def latest(self) -> Version:
        """Return the version in force."""
        numbers = self.numbers()
        if not numbers:
            raise StorageError(
                f"{self.folder.uri}: contains no index; build one with: nearcast spark build"
            )
        return self.read(numbers[-1])

    def at(self, time_ms: int) -> Version:
        """Return the version that was in force at a time, the oldest there is for earlier times.

        The answer for a time is always the same, whoever asks and whatever is committed meanwhile:
        see `nearcast.spark.artifact.clock`. Only `drop` changes it, for versions that nobody holds.
        """
        if self._last_answer is None or self._last_answer[0] != time_ms:
            if self.latest().created_ms <= time_ms:
                self.clock.close_until(time_ms)
            self._last_answer = time_ms, self._found_at(time_ms)
        return self._last_answer[1]

    def number_at(self, time_ms: int) -> int:
        """Return a number that is at most that of the version which `at` returns."""
        return self._found_at(time_ms).number

    def _found_at(self, time_ms: int) -> Version:
        while True:
            numbers = self.numbers()
            found = None
            for number in reversed(numbers):
                try:
                    found = self.read(number)
                except StorageError:
                    if number in self.numbers():
                        raise
                    continue  # dropped meanwhile
                if found.created_ms <= time_ms:
                    return found
            if found is not None or not numbers:
                return found or self.latest()

    @contextmanager
    def reading(self, version: Version) -> Iterator[None]:
        """Hold a version while it is read, so that `drop` leaves it alone.

        That works where files can be locked; elsewhere, `nearcast.spark.compact` keeps versions
        for a time.
        """
        with shared_lock(self.version_path(version.number)):
            yield

    def drop(self, number: int) -> bool:
        """Remove the file of a version unless somebody holds it; return whether it is gone."""
        with self.clock.committing():
            first = leased_from(self)
            if first is not None and first <= number:
                return False
            with try_lock(self.version_path(number)) as unread:
                if unread:
                    self.folder.remove(version_file(number))
            return unread

    def version_path(self, number: int) -> Path | None:
        """Return where the file of a version is on this machine's disks, None if it is not."""
        local = self.folder.local
        return None if local is None else local / version_file(number)

    def commit(self, version: Version, *, after: int | None = None) -> Version:
        """Bring a new version into force and return it with its number.

        Parameters
        ----------
        version
            The version; it gets the next number and a time later than that of all others.
        after
            The number of the version that it was made from: if another one has been committed
            meanwhile, that is an error, and the artifact stays as it is. If left out, the new
            version replaces whatever is there.
        """
        try:
            with self.clock.committing():
                made = self._commit(version, after)
        except OSError as error:
            raise StorageError(f"{self.folder.uri}: cannot be written ({error})") from error
        wait_until(made.created_ms)
        return made

    def _commit(self, version: Version, after: int | None) -> Version:
        while True:
            last = max(self.numbers(), default=0)
            if after is not None and after != last:
                raise _overtaken(self.folder, after, last)
            created_ms = self.clock.next_time(self._created_ms(last))
            made = replace(version, number=last + 1, created_ms=created_ms)
            try:
                self.folder.create(version_file(made.number), made.render())
            except FileExistsError:  # another one was faster, where files cannot be locked
                continue
            return made

    def _created_ms(self, number: int) -> int:
        try:
            return self.read(number).created_ms if number else 0
        except StorageError:  # it is damaged, which is why a new one is built
            return 0


def version_file(number: int) -> str:
    """Return the name of the file of a version."""
    return f"versions/{number:08d}.json"


def _overtaken(folder: Folder, after: int, last: int) -> StorageError:
    return StorageError(
        f"{folder.uri}: version {last} was committed while changes to version {after} were made; "
        "nothing was changed: run it again"
    )
