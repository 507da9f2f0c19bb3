"""The contract of an index: built from clauses, it answers which subscriptions match.

An index has one thing to say: which *clauses* have all their tokens in a message and a box that
meets it (`Index.find`). What a match yields is the same for every index and lives here: messages
cut at the antimeridian, forbidden tokens, exact shapes, one match per subscription. An index is
arrays: it is saved, memory-mapped, pickled and shipped as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from nearcast.columns import Clauses, Matches, Messages
from nearcast.compiled.messages import MessageArrays
from nearcast.compiled.shapes import ShapeArrays
from nearcast.errors import InvalidInput, StorageError
from nearcast.indexes.verification import ClauseArrays, finish_matches, join_pieces
from nearcast.storage import (
    clauses_from_arrays,
    clauses_to_arrays,
    nested,
    prefixed,
    read_arrays,
    write_arrays,
)
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Builder", "Found", "Index", "NoOptions", "UpdatableIndex"]


class Found(NamedTuple):
    """The clauses found: those of message ``m`` are ``clause[start[m]:start[m + 1]]``.

    ``examined`` counts the candidates that had to be verified, ``visited`` the nodes that had to be
    opened, where the index is a tree.
    """

    start: NDArray[np.int64]
    clause: NDArray[np.int32]
    examined: int
    visited: int = 0


@dataclass(frozen=True)
class NoOptions:
    """The options of an index that has none."""


class Index(ABC):
    """An index over clauses. See `nearcast.testing.check_index` for what every one must pass."""

    name: ClassVar[str]
    """What the registry calls it."""

    summary: ClassVar[str]
    """One line for people who choose an index."""

    Options: ClassVar[type[Any]] = NoOptions
    """A frozen dataclass of its options, which checks them."""

    clauses: Clauses
    options: Any

    @classmethod
    @abstractmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Build the index over clauses, with an instance of `Options`."""

    @abstractmethod
    def find(self, messages: Messages, threads: int) -> Found:
        """Find the clauses whose tokens all occur in, and whose box meets, each message.

        No message crosses the antimeridian here.
        """

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself, without its clauses."""

    @classmethod
    @abstractmethod
    def from_arrays(
        cls, clauses: Clauses, options: Any, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from what `arrays` gave."""

    @classmethod
    def vocabulary(cls, options: Any) -> Vocabulary:
        """Return the vocabulary to read subscriptions with: empty unless the options name one."""
        return Vocabulary()

    @property
    def nbytes(self) -> int:
        """The bytes of the index itself, without its clauses."""
        return sum(array.nbytes for array in self.arrays().values())

    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions that match each message, each once."""
        if threads < 1:
            raise InvalidInput("threads", threads, "must be at least 1")
        if not len(messages) or not len(self.clauses):
            return Matches(np.zeros(len(messages) + 1, np.int64), np.empty(0, np.int32), 0)
        if not messages.wraps.any():
            return self._finish(messages, None, self.find(messages, threads))
        pieces, message_of = messages.cut()
        piece_start = np.searchsorted(message_of, np.arange(len(messages) + 1))
        return self._finish(pieces, piece_start, self.find(pieces, threads))

    def _finish(
        self, pieces: Messages, piece_start: NDArray[np.int64] | None, found: Found
    ) -> Matches:
        clauses = self.clauses
        if piece_start is None and clauses.plain:
            return Matches(found.start, found.clause, found.examined, visited=found.visited)
        if piece_start is None:
            piece_start = np.arange(len(pieces) + 1)
        start = np.zeros(len(piece_start), np.int64)
        if clauses.plain:
            join_pieces(piece_start, found.start, found.clause, start)
            matched = found.clause[: start[-1]]
            return Matches(start, matched, found.examined, visited=found.visited)
        finish_matches(
            ClauseArrays(clauses.negative_start, clauses.negative, clauses.row, clauses.shape),
            shape_arrays(clauses),
            message_arrays(pieces),
            piece_start,
            found.start,
            found.clause,
            start,
        )
        return Matches(start, found.clause[: start[-1]], found.examined, visited=found.visited)

    def save(self, folder: str | Path) -> None:
        """Write the index and its clauses into a folder, replacing what was there."""
        write_arrays(
            folder,
            "index",
            {
                **prefixed("index", self.arrays()),
                **prefixed("clauses", clauses_to_arrays(self.clauses)),
            },
            {"index": self.name, "options": vars(self.options)},
        )

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Open a saved index, memory-mapped read-only; ``verify`` checks every byte first."""
        arrays, meta = read_arrays(folder, "index", verify=verify)
        if meta.get("index") != cls.name:
            raise StorageError(
                f"{folder} holds an index {meta.get('index')!r}, expected {cls.name!r}; "
                "open it with nearcast.indexes.load"
            )
        return cls.from_stored(arrays, meta)

    @classmethod
    def from_stored(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """Make the index from what was read of its folder."""
        clauses = clauses_from_arrays(nested("clauses", arrays))
        try:
            return cls.from_arrays(clauses, cls.Options(**meta["options"]), nested("index", arrays))
        except (KeyError, TypeError) as missing:
            raise StorageError(
                f"this {cls.name} was saved by another version of nearcast ({missing}); "
                "build it again from its subscriptions"
            ) from missing


class UpdatableIndex(Index):
    """An index that takes and drops subscriptions in place."""

    @abstractmethod
    def insert(self, clauses: Clauses) -> None:
        """Add subscriptions; their rows follow those that are there."""

    @abstractmethod
    def delete(self, rows: NDArray[Any]) -> None:
        """Drop the subscriptions of these rows; the other rows keep their numbers."""


@dataclass(frozen=True)
class Builder:
    """An index that is chosen but not built: its class and options."""

    index: type[Index]
    options: Any

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary to read subscriptions with."""
        return self.index.vocabulary(self.options)

    def build(self, clauses: Clauses) -> Index:
        """Build the index over clauses."""
        return self.index.build(clauses, self.options)


def message_arrays(messages: Messages) -> MessageArrays:
    """Return what kernels see of messages."""
    return MessageArrays(messages.token_start, messages.token, messages.box)


def shape_arrays(clauses: Clauses) -> ShapeArrays:
    """Return what kernels see of exact shapes."""
    shapes = clauses.shapes
    return ShapeArrays(shapes.radius_m, shapes.ring_start, shapes.point_start, shapes.point)
