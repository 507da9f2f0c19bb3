"""The contract of every index: subscriptions in, matches out, arrays to save.

`Index` is what an index of any kind does. `nearcast.indexes.boolean.BooleanIndex` is the subclass
for boolean subscriptions: an index of that kind only says which clauses have all their tokens in a
message and a box that overlaps it. `nearcast.indexes.ranked.RankedIndex` is the subclass for ranked
ones. The *content* of an index is what it was built over: `Clauses`, or `Ranked`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nearcast.errors import StorageError
from nearcast.indexes.statistics import Statistics
from nearcast.storage import (
    content_from_arrays,
    content_to_arrays,
    nested,
    prefixed,
    read_arrays,
    write_arrays,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Matches, Messages
    from nearcast.indexes.tracing import TracedNode

__all__ = ["Index", "NoOptions", "UpdatableIndex", "stored_options"]


@dataclass(frozen=True)
class NoOptions:
    """The options of an index that has none."""


class Index(ABC):
    """An index over subscriptions. See `nearcast.testing.check_index` for what every one must pass.

    An index is arrays: `arrays` and `from_arrays` are all that saving, memory-mapping, pickling and
    shipping need. Extend `nearcast.indexes.BooleanIndex` or `nearcast.indexes.RankedIndex`, which
    do most of the work.
    """

    name: ClassVar[str]
    """The name in the registry."""

    summary: ClassVar[str]
    """One line for people who choose an index."""

    Options: ClassVar[type[Any]] = NoOptions
    """A frozen dataclass of its options, which checks them."""

    statistics_option: ClassVar[str] = ""
    """The option that names a folder of statistics (or is a `Statistics`), if there is one."""

    kinds: ClassVar[tuple[str, ...]] = ("boolean",)
    """The kinds of subscriptions that it takes: some of `nearcast.columns.KINDS`."""

    ranked_form: ClassVar[type[Index] | None] = None
    """The index of the same name for ranked subscriptions, if there is one."""

    clauses: Clauses
    options: Any

    @property
    def content(self) -> Any:
        """What the index was built over: clauses, or ranked subscriptions."""
        return self.clauses

    @classmethod
    @abstractmethod
    def build(cls, content: Any, options: Any) -> Self:
        """Build the index over clauses or ranked subscriptions, with an instance of `Options`."""

    @classmethod
    @abstractmethod
    def build_small(cls, content: Any) -> Index:
        """Return an index of the same kind for a few subscriptions that costs nothing to build."""

    @abstractmethod
    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions that match each message, each once.

        Parameters
        ----------
        messages
            Token ids and boxes.
        threads
            How many threads match at the same time.
        """

    def trace(self, messages: Messages) -> list[TracedNode] | None:
        """Tell how the index finds the clauses of one message; None if it cannot tell.

        It is for people who want to see what an index does, and may be slow. An index implements it
        or not.

        Parameters
        ----------
        messages
            One message, which may cross the antimeridian.
        """
        return None

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself, without its clauses."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, content: Any, options: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make the index from what `arrays` gave."""

    @abstractmethod
    def check_structure(self) -> None:
        """Raise `StorageError` unless every offset, size and level in the arrays is in range.

        Called for arrays that were read from disk: kernels do not check bounds.
        """

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return type(self).from_arrays, (self.content, self.options, dict(self.arrays()))

    @property
    def nbytes(self) -> int:
        """The bytes of the index itself, without its clauses."""
        return sum(array.nbytes for array in self.arrays().values())

    def save(self, folder: str | Path) -> None:
        """Write the index and its content into a folder, replacing what was there."""
        write_arrays(
            folder,
            "index",
            {**prefixed("index", self.arrays()), **content_to_arrays(self.content)},
            {"index": self.name, "options": stored_options(self.options)},
        )

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Return a saved index of this class, memory-mapped read-only.

        Parameters
        ----------
        folder
            What `save` wrote.
        verify
            Whether to compare every byte with its checksum first, and to check the structure.

        Raises
        ------
        StorageError
            When the folder is damaged, of another version, or holds another index.
        """
        arrays, meta = read_arrays(folder, "index", verify=verify)
        if meta.get("index") != cls.name:
            raise StorageError(
                f"{folder} contains the index {meta.get('index')!r}, expected {cls.name!r}; "
                "open it with nearcast.indexes.load"
            )
        return cls.from_stored(arrays, meta, verify=verify)

    @classmethod
    def from_stored(
        cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, verify: bool = True
    ) -> Self:
        """Make the index from what was read of its folder."""
        content = content_from_arrays(arrays)
        try:
            options = cls.Options(**meta["options"])
            index = cls.from_arrays(content, options, nested("index", arrays))
        except (KeyError, TypeError) as missing:
            raise StorageError(
                f"this {cls.name} was saved by another version of nearcast ({missing}); "
                "build it again from its subscriptions"
            ) from missing
        if verify:
            index.check_structure()
        return index


class UpdatableIndex(Index):
    """An index that takes and drops subscriptions in place."""

    @abstractmethod
    def insert(self, content: Any) -> None:
        """Add clauses or ranked subscriptions; their rows follow those that are there."""

    @abstractmethod
    def delete(self, rows: NDArray[Any]) -> None:
        """Drop the subscriptions of these rows; the other rows keep their numbers."""


def stored_options(options: Any) -> dict[str, Any]:
    """Return the options of an index for JSON; loaded statistics are left out."""
    return {k: "" if isinstance(v, Statistics) else v for k, v in vars(options).items()}
