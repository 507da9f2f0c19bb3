"""The contract of every index: subscriptions in, matches out, arrays to save.

`Index` is what an index of any kind does. `nearcast.indexes.boolean.BooleanIndex` is the subclass
for boolean subscriptions: an index of that kind only says which clauses have all their tokens in a
message and a box that overlaps it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nearcast.errors import StorageError
from nearcast.indexes.statistics import Statistics
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
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.columns import Clauses, Matches, Messages

__all__ = ["Builder", "Index", "NoOptions", "UpdatableIndex"]


@dataclass(frozen=True)
class NoOptions:
    """The options of an index that has none."""


class Index(ABC):
    """An index over subscriptions. See `nearcast.testing.check_index` for what every one must pass.

    An index is arrays: `arrays` and `from_arrays` are all that saving, memory-mapping, pickling and
    shipping need.
    """

    name: ClassVar[str]
    """The name in the registry."""

    summary: ClassVar[str]
    """One line for people who choose an index."""

    Options: ClassVar[type[Any]] = NoOptions
    """A frozen dataclass of its options, which checks them."""

    statistics_option: ClassVar[str] = ""
    """The option that names a folder of statistics (or is a `Statistics`), if there is one."""

    clauses: Clauses
    options: Any

    @classmethod
    @abstractmethod
    def build(cls, clauses: Clauses, options: Any) -> Self:
        """Build the index over clauses, with an instance of `Options`."""

    @classmethod
    @abstractmethod
    def build_small(cls, clauses: Clauses) -> Index:
        """Return an index of the same kind for a few subscriptions that costs nothing to build."""

    @abstractmethod
    def match(self, messages: Messages, *, threads: int = 1) -> Matches:
        """Return the subscriptions that match each message, each once."""

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the index itself, without its clauses."""

    @classmethod
    @abstractmethod
    def from_arrays(
        cls, clauses: Clauses, options: Any, arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """Make the index from what `arrays` gave."""

    @abstractmethod
    def check_structure(self) -> None:
        """Raise `StorageError` unless every offset, size and level in the arrays is in range.

        Called for arrays that were read from disk: kernels do not check bounds.
        """

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[Any, ...]]:
        return type(self).from_arrays, (self.clauses, self.options, dict(self.arrays()))

    @property
    def nbytes(self) -> int:
        """The bytes of the index itself, without its clauses."""
        return sum(array.nbytes for array in self.arrays().values())

    def save(self, folder: str | Path) -> None:
        """Write the index and its clauses into a folder, replacing what was there."""
        write_arrays(
            folder,
            "index",
            {
                **prefixed("index", self.arrays()),
                **prefixed("clauses", clauses_to_arrays(self.clauses)),
            },
            {"index": self.name, "options": Builder(type(self), self.options).stored_options()},
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
        return cls.from_stored(arrays, meta, verify=verify)

    @classmethod
    def from_stored(
        cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, verify: bool = True
    ) -> Self:
        """Make the index from what was read of its folder."""
        clauses = clauses_from_arrays(nested("clauses", arrays))
        try:
            options = cls.Options(**meta["options"])
            index = cls.from_arrays(clauses, options, nested("index", arrays))
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

    def statistics(self) -> Statistics | None:
        """Return the statistics that the options name."""
        name = self.index.statistics_option
        given = getattr(self.options, name) if name else ""
        return Statistics.load(given) if given else None

    def with_statistics(self, statistics: Statistics) -> Self:
        """Return the same with loaded statistics instead of the name of their folder."""
        options = replace(self.options, **{self.index.statistics_option: statistics})
        return replace(self, options=options)

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary to read subscriptions with.

        It is empty unless the options name statistics: frequencies refer to their token ids.
        """
        statistics = self.statistics()
        return Vocabulary() if statistics is None else statistics.vocabulary

    def stored_options(self) -> dict[str, Any]:
        """Return the options for JSON; loaded statistics are left out."""
        given = vars(self.options)
        return {k: "" if isinstance(v, Statistics) else v for k, v in given.items()}

    def build(self, clauses: Clauses) -> Index:
        """Build the index over clauses."""
        return self.index.build(clauses, self.options)

    def build_small(self, clauses: Clauses) -> Index:
        """Return an index for a few subscriptions that costs nothing to build."""
        return self.index.build_small(clauses)
