"""The log of the server: one order of everything that happens, in files or in PostgreSQL.

`Log` is the contract. `nearcast.storage.log.Log` keeps it in a folder, and
`nearcast.server.log.postgres.PostgresLog` in a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nearcast.storage.log import Entry, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Entry", "Log", "Record"]


class Log(Protocol):
    """An append-only sequence of records; a record of count n has n consecutive numbers.

    All methods may be called by several threads at a time.

    Attributes
    ----------
    epoch
        The number of this opening: larger than all before, and at least the time in seconds.
    """

    epoch: int

    @property
    def away(self) -> bool:
        """Whether what is being written has waited for some seconds for a database to return."""

    @property
    def first_seq(self) -> int:
        """The first record that is still there, or the next one if there is none."""

    @property
    def last_seq(self) -> int:
        """The last number that is on disk, 0 if there never was one."""

    @property
    def size_bytes(self) -> int:
        """What the log takes on the disk."""

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The ranges of numbers, first and last, that repairs gave up."""

    def append(self, entries: Sequence[Entry]) -> int:
        """Write entries as one group, and return the last number when all of them are on disk.

        Raises
        ------
        NoSpace, Unavailable
            If the disk is full, or files or memory have run out; nothing was written.
        StorageError
            If writing failed: the log takes nothing any more.
        """

    def read(self, first: int = 1) -> Iterator[Record]:
        """Yield the records that have a number from ``first`` on, and are on disk now.

        Raises
        ------
        Trimmed
            If records are gone.
        StorageError
            If one is damaged.
        """

    def find(self, seq: int) -> Record:
        """Return the record that has a number.

        Raises
        ------
        Trimmed
            If it is gone.
        StorageError
            If it is damaged.
        InvalidInput
            If no record has the number yet.
        """

    def epoch_of(self, seq: int) -> int:
        """Return the epoch that a number was, or will be, written in."""

    def trim(self, before: int) -> None:
        """Remove records with smaller numbers, as far as that is cheap."""

    def stop_waiting(self) -> None:
        """Wait no longer than readers do for a database that is away: the server ends."""

    def close(self) -> None:
        """Close the log; what was appended is on disk."""
