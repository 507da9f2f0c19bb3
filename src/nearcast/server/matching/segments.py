"""Sealed segments: the postings of a range of seqs, in a folder that never changes.

The same log gives the same bytes: a segment ends where the log says, and its folder contains only
its postings and the version of Nearcast.

The columns have a checksum for each 16,384 rows, which are compared when the rows are first read.
So the first read after a start does not wait for the checksum of the whole segment.
"""

from __future__ import annotations

import shutil
import threading
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.errors import StorageError, Unavailable
from nearcast.server.matching.runs import Run
from nearcast.storage import read_arrays, write_arrays
from nearcast.storage.scarce import is_scarce

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "DamagedEvents",
    "Segment",
    "read_run",
    "segment_last_seq",
    "segment_path",
    "unpacked_reach",
    "write_run",
]

_KIND = "postings"
_DIRECTORY = ("channels", "start", "event_start", "checksums", "reach", "reach_seq")
_PIECE_ROWS = 1 << 14


class DamagedEvents(StorageError):
    """The file of a sealed segment is missing or damaged; the log can rebuild it.

    Attributes
    ----------
    first_seq, last_seq
        The seqs whose postings the file has or had.
    """

    def __init__(self, first_seq: int, last_seq: int, problem: object) -> None:
        super().__init__(
            f"the events of seqs {first_seq} to {last_seq} cannot be read ({problem}); "
            "rebuild them from the log"
        )
        self.first_seq = first_seq
        self.last_seq = last_seq


def segment_path(folder: Path, first_seq: int) -> Path:
    """Return the folder of the segment that starts with a seq."""
    return folder / f"{first_seq:020d}.post"


def segment_last_seq(path: Path) -> int | None:
    """Return the last seq of a segment from its manifest; None if that cannot be read."""
    try:
        return int(read_arrays(path, _KIND, verify=False)[1]["last_seq"])
    except StorageError:
        return None


def write_run(
    path: Path, first_seq: int, last_seq: int, runs: Sequence[Run], reach: NDArray[np.uint32]
) -> None:
    """Write runs as one, and the reach of each seq from ``first_seq`` to ``last_seq``."""
    arrays: dict[str, NDArray[Any]] = {}
    if runs:
        run = Run.merge(runs)
        arrays = run.arrays() | {"checksums": _checksums(run)}
    meta = {"first_seq": first_seq, "last_seq": last_seq}
    write_arrays(path, _KIND, arrays | _packed_reach(reach), meta)


def read_run(
    path: Path, *, lazy: bool
) -> tuple[int, int, tuple[Run, ...], dict[str, NDArray[Any]]]:
    """Read first seq, last seq, the run (none if there are no postings) and the packed reach.

    A lazy one is mapped into memory, and its rows are verified when they are first read.
    """
    arrays, meta = read_arrays(path, _KIND, verify=_DIRECTORY if lazy else True, mmap=lazy)
    first_seq, last_seq = int(meta["first_seq"]), int(meta["last_seq"])
    runs: tuple[Run, ...] = ()
    if "seq" in arrays:
        runs = (Run(first_seq, last_seq, arrays),)
        if lazy:
            runs[0].check = _Check(runs[0], arrays["checksums"])
    return first_seq, last_seq, runs, arrays


def unpacked_reach(arrays: dict[str, NDArray[Any]], size: int) -> NDArray[np.uint32]:
    """Return the reach of each seq as `write_run` got it."""
    if "reach_seq" not in arrays:
        return arrays["reach"].astype(np.uint32)
    reach = np.zeros(size, np.uint32)
    reach[arrays["reach_seq"]] = arrays["reach"]
    return reach


def _packed_reach(reach: NDArray[np.uint32]) -> dict[str, NDArray[Any]]:
    """Return the reach in the smallest type; only the seqs that have any if they are few."""
    dtype = np.min_scalar_type(int(reach.max(initial=0)))
    some = np.flatnonzero(reach)
    if len(some) * (4 + dtype.itemsize) < len(reach) * dtype.itemsize:
        return {"reach_seq": some.astype(np.uint32), "reach": reach[some].astype(dtype)}
    return {"reach": reach.astype(dtype)}


def _checksums(run: Run) -> NDArray[np.uint32]:
    """Return the checksum of each piece of each column."""
    pieces = range(-(-run.rows // _PIECE_ROWS))
    columns = run.columns().values()
    return np.array([[_checksum(column, i) for i in pieces] for column in columns], np.uint32)


def _checksum(column: NDArray[Any], piece: int) -> int:
    return zlib.crc32(column[piece * _PIECE_ROWS : (piece + 1) * _PIECE_ROWS].view(np.uint8).data)


class _Check:
    """Compares the checksums of the pieces that are about to be read, once."""

    def __init__(self, run: Run, checksums: NDArray[np.uint32]) -> None:
        self._seqs = run.base, run.last_seq
        self._columns = run.columns()
        self._checksums = checksums
        self._verified = np.zeros(checksums.shape[1], np.bool_)

    def __call__(self, first: int, stop: int) -> None:
        low, high = first // _PIECE_ROWS, -(-stop // _PIECE_ROWS)
        if self._verified[low:high].all():
            return
        for piece in range(low, high):
            if not self._verified[piece]:
                self._verify(piece)

    def _verify(self, piece: int) -> None:
        columns = zip(self._columns.items(), self._checksums, strict=True)
        for (name, column), checksums in columns:
            if _checksum(column, piece) != checksums[piece]:
                problem = f"rows from {piece * _PIECE_ROWS} of {name!r} do not match their checksum"
                raise DamagedEvents(*self._seqs, problem)
        self._verified[piece] = True


class _Loaded:
    """The arrays of a segment's folder, verified and mapped."""

    def __init__(self, runs: tuple[Run, ...], arrays: dict[str, NDArray[Any]]) -> None:
        self.runs = runs
        self._reach = arrays["reach"]
        self._reach_seq = arrays.get("reach_seq")

    def reach(self, offset: int) -> int:
        if self._reach_seq is None:
            return int(self._reach[offset])
        at = int(self._reach_seq.searchsorted(np.uint32(offset)))
        found = at < len(self._reach_seq) and self._reach_seq[at] == offset
        return int(self._reach[at]) if found else 0


class Segment:
    """A sealed segment: in memory until it is written, then mapped on first use.

    Parameters
    ----------
    folder
        The folder of the store.
    first_seq, last_seq
        The seqs that it covers.
    runs, reach
        The postings and the reach of each seq; None if they are on disk.
    """

    def __init__(
        self,
        folder: Path,
        first_seq: int,
        last_seq: int,
        runs: tuple[Run, ...] | None = None,
        reach: NDArray[np.uint32] | None = None,
    ) -> None:
        self.path = segment_path(folder, first_seq)
        self.first_seq = first_seq
        self.last_seq = last_seq
        self._memory = None if runs is None or reach is None else (runs, reach)
        self._loaded: _Loaded | None = None
        self._loading = threading.Lock()
        self._trimmed = False

    @property
    def written(self) -> bool:
        """Whether the segment is on disk."""
        return self._memory is None

    def write(self) -> None:
        """Write the segment to the disk and let go of the copy in memory."""
        memory = self._memory
        if memory is None or self._trimmed:
            return
        write_run(self.path, self.first_seq, self.last_seq, *memory)
        self._load()
        self._memory = None

    def remove(self) -> None:
        """Remove the folder. Readers that have mapped it keep what they have."""
        self._trimmed = True
        shutil.rmtree(self.path, ignore_errors=True)

    def runs(self) -> tuple[Run, ...]:
        """Return the postings: several runs in the order of seqs while they are in memory."""
        memory = self._memory
        return memory[0] if memory is not None else self._load().runs

    def reach(self, seq: int) -> int:
        """Return how many subscriptions the message ``seq`` matched when it was published."""
        memory = self._memory
        offset = seq - self.first_seq
        return int(memory[1][offset]) if memory is not None else self._load().reach(offset)

    def _load(self) -> _Loaded:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> _Loaded:
        try:
            first_seq, last_seq, runs, arrays = read_run(self.path, lazy=True)
        except StorageError as error:
            if self._trimmed:
                return _Loaded((), {"reach": np.zeros(self.last_seq - self.first_seq + 1)})
            if is_scarce(error):  # nothing is wrong with the file
                raise Unavailable(f"{self.path}: cannot be opened now: {error}") from error
            raise DamagedEvents(self.first_seq, self.last_seq, error) from error
        if (first_seq, last_seq) != (self.first_seq, self.last_seq):
            problem = f"{self.path} has seqs {first_seq} to {last_seq}"
            raise DamagedEvents(self.first_seq, self.last_seq, problem)
        return _Loaded(runs, arrays)
