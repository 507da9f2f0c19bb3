"""The state of a stream of updates, micro-batch by micro-batch.

A stream of updates remembers subscriptions and living messages. Each of its partitions has a folder
in the checkpoint, and a file for each micro-batch::

    nearcast/stream.json       how many partitions the stream has, and of which index
    nearcast/0003/00000007.log     the events that partition 3 got in batch 7
    nearcast/0003/00000007.json    names the snapshot after batch 7 by its digest
    nearcast/0003/00000007/        that snapshot: a saved engine

The state after a batch is a snapshot and the events since then, applied again: they always give the
same state. Spark begins a batch when the one before it is done, and after a crash repeats the last
batch that was not. A batch starts from the state after the batch before it, whatever an earlier
attempt left, and replaces what that wrote. So every attempt gives the same updates. What the batch
before needs is kept, everything older is removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from nearcast.errors import InvalidInput, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nearcast.spark.artifact.folders import Folder

__all__ = ["PartitionStates", "Snapshot", "StreamSettings", "open_settings"]

FORMAT = 1
"""The version of these files; this library reads no other."""

_SETTINGS = "stream.json"
_NUMBERED = re.compile(r"\.?(\d{8})\b.*")
_DIGEST_BYTES = 32


class StreamSettings(NamedTuple):
    """What stays the same as long as a stream of updates continues."""

    artifact: str
    partitions: int
    ids: str


def open_settings(folder: Folder, wanted: StreamSettings, *, begun: bool) -> StreamSettings:
    """Return the settings of a stream; write them if the stream is new.

    Parameters
    ----------
    folder
        The folder of the stream.
    wanted
        The settings as the caller has them; 0 partitions stand for any number.
    begun
        Whether the checkpoint has batches.

    Raises
    ------
    InvalidInput
        When the stream was begun with other settings, or is of another kind.
    """
    if _SETTINGS not in folder.names():
        if begun:
            problem = "belongs to a stream without moves; use another checkpoint"
            raise InvalidInput("checkpoint", folder.uri, problem)
        folder.put(_SETTINGS, json.dumps({"format": FORMAT, **wanted._asdict()}).encode())
        return wanted
    try:
        body = json.loads(folder.read(_SETTINGS))
        found = body.pop("format")
        settings = StreamSettings(**body)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StorageError(f"{folder.uri}/{_SETTINGS}: is damaged; use a new checkpoint") from None
    if found != FORMAT:
        problem = f"has the format {found}, this library reads {FORMAT}; use a new checkpoint"
        raise StorageError(f"{folder.uri}/{_SETTINGS}: {problem}")
    for name, before, now in zip(settings._fields, settings, wanted, strict=True):
        if now and before != now:
            problem = f"must be {before!r}, as when the stream began; or use a new checkpoint"
            raise InvalidInput(name, now, problem)
    return settings


class Snapshot(NamedTuple):
    """A saved engine: its digest, and what belongs to it and is not in the engine."""

    digest: str
    meta: dict[str, Any]


class PartitionStates:
    """The files of one partition.

    Examples
    --------
    >>> import tempfile
    >>> from nearcast.spark.artifact.folders import open_folder
    >>> states = PartitionStates(open_folder(tempfile.mkdtemp()), 3)
    >>> for batch in range(3):
    ...     states.write_log(batch, pa.table({"event": [batch]}))
    >>> [table["event"].to_pylist() for _, table in states.logs(0, 2)]
    [[1], [2]]
    """

    def __init__(self, folder: Folder, partition: int) -> None:
        self._folder = folder
        self._own = f"{partition:04d}"

    def last_snapshot(self, until: int) -> int:
        """Return the batch of the last snapshot up to one, -1 if there is none."""
        names = [name for name in self._folder.names(self._own) if name.endswith(".json")]
        batches = [int(found[1]) for name in names if (found := _NUMBERED.fullmatch(name))]
        return max((batch for batch in batches if batch <= until), default=-1)

    def logs(self, after: int, until: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the events of the batches after one up to another.

        Raises
        ------
        StorageError
            When those of a batch are missing or damaged.
        """
        for batch in range(after + 1, until + 1):
            name = f"{self._at(batch)}.log"
            try:
                content = self._folder.read(name)
            except StorageError as error:
                problem = (
                    "the state of the stream is incomplete; restore it, or use a new checkpoint"
                )
                raise StorageError(f"{error}: {problem}") from None
            digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(body).digest() != digest:
                problem = "does not match its checksum; restore it, or use a new checkpoint"
                raise StorageError(f"{self._folder.uri}/{name}: {problem}")
            yield batch, pa.ipc.open_stream(pa.py_buffer(body)).read_all()

    def write_log(self, batch: int, events: pa.Table) -> None:
        """Write the events of a batch."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, events.schema, options=options) as writer:
            writer.write_table(events)
        body = sink.getvalue().to_pybytes()
        self._folder.put(f"{self._at(batch)}.log", hashlib.sha256(body).digest() + body)

    def open_snapshot(self, batch: int) -> tuple[Path, Snapshot]:
        """Return where the snapshot after a batch is on the local disk."""
        name = f"{self._at(batch)}.json"
        try:
            snapshot = Snapshot(**json.loads(self._folder.read(name)))
        except (ValueError, TypeError):
            problem = "is damaged; restore it, or use a new checkpoint"
            raise StorageError(f"{self._folder.uri}/{name}: {problem}") from None
        return self._folder.fetch(self._at(batch), snapshot.digest), snapshot

    def close_snapshot(self, snapshot: Snapshot) -> None:
        """Forget the copy of a snapshot that was fetched from elsewhere; who maps it keeps it."""
        self._folder.forget(snapshot.digest)

    def write_snapshot(
        self, batch: int, write: Callable[[Path], None], meta: dict[str, Any]
    ) -> None:
        """Write a snapshot by a function that is given a path, and then its name."""
        digest, _ = self._folder.write_with(self._at(batch), write)
        body = json.dumps(Snapshot(digest, meta)._asdict())
        self._folder.put(f"{self._at(batch)}.json", body.encode())

    def remove_before(self, batch: int) -> None:
        """Remove everything of earlier batches, and what killed writers left of it."""
        for name in self._folder.names(self._own):
            found = _NUMBERED.fullmatch(name)
            if found and int(found[1]) < batch:
                self._folder.remove(f"{self._own}/{name}")

    def _at(self, batch: int) -> str:
        return f"{self._own}/{batch:08d}"
