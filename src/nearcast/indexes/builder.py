"""Builders: indexes that are chosen but not built; the kind of the data decides which is built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from nearcast.columns import BOOLEAN, KINDS, Clauses, Ranked
from nearcast.errors import InvalidInput
from nearcast.indexes.contract import Index, stored_options
from nearcast.indexes.mixed import Mixed, MixedPart
from nearcast.indexes.statistics import Statistics
from nearcast.storage import nested
from nearcast.text import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray


__all__ = ["Builder"]


@dataclass(frozen=True)
class Builder:
    """An index that is chosen but not built: its class and options.

    Parameters
    ----------
    index, options
        The class of the index and an instance of its `Options`.
    others
        Builders for kinds of subscriptions that the index does not take.

    Examples
    --------
    >>> from nearcast.columns import Clauses, Messages
    >>> from nearcast.indexes import create
    >>> index = create("trie-pyramid").build(Clauses.of([[1]], [[0, 0, 9, 9]]))
    >>> index.match(Messages.of([[1, 5], [5]], [[9, 9], [0, 0]])).pairs()
    {(0, 0)}
    """

    index: type[Index]
    options: Any
    others: tuple[Builder, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of subscriptions that indexes of this name take; others get another index."""
        named = [b for b in (self, *self.others) if b.index.name == self.index.name]
        return tuple(kind for kind in KINDS if any(kind in b.index.kinds for b in named))

    def for_kind(self, kind: str) -> Builder:
        """Return the builder for one kind of subscriptions: this one, or one of the others."""
        for builder in (self, *self.others):
            if kind in builder.index.kinds:
                return builder
        takes = " and ".join(self.index.kinds)
        problem = f"{self.index.name} takes {takes} subscriptions; choose another index"
        raise InvalidInput("kind", kind, problem)

    def index_names(self, kinds: Iterable[str]) -> dict[str, str]:
        """Return the name of the index that each kind of subscriptions gets.

        Examples
        --------
        >>> from nearcast.indexes import create
        >>> create("ap-tree").index_names(["boolean", "proximity"])
        {'boolean': 'ap-tree', 'proximity': 'ranked-pyramid'}
        """
        return {kind: self.for_kind(kind).index.name for kind in kinds}

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
        """Return the options of all indexes of this name for JSON, without loaded statistics."""
        named = [b for b in (*self.others, self) if b.index.name == self.index.name]
        every = [stored_options(builder.options) for builder in named]
        return {name: value for options in every for name, value in options.items()}

    def build(self, content: Clauses | Ranked) -> Index:
        """Build an index over clauses or ranked subscriptions; their kind decides which one."""
        return self._made(content, lambda b, part, _: b.index.build(part, b.options))

    def build_small(self, content: Clauses | Ranked) -> Index:
        """Return an index for a few subscriptions that costs nothing to build."""
        return self._made(content, lambda b, part, _: b.index.build_small(part))

    def rebuild_ranked(self, index: Index, content: Clauses | Ranked) -> Index:
        """Build the ranked part of an index again, over the same rows with other weights."""
        same = index.boolean_part if isinstance(index, Mixed) else None

        def made(builder: Builder, part: Any, kind: str) -> Index:
            if kind == KINDS[BOOLEAN] and same is not None:
                return same
            return builder.index.build(part, builder.options)

        return self._made(content, made)

    def restore(self, content: Clauses | Ranked, arrays: Mapping[str, NDArray[Any]]) -> Index:
        """Make an index that `build` built from its `arrays`."""

        def restored(builder: Builder, part: Any, name: str) -> Index:
            own = nested(name, arrays) if name else arrays
            return builder.index.from_arrays(part, builder.options, own)

        return self._made(content, restored)

    def _made(self, content: Clauses | Ranked, make: Callable[[Builder, Any, str], Index]) -> Index:
        if isinstance(content, Clauses):
            return make(self.for_kind("boolean"), content, "")
        kinds = content.kinds
        if len(kinds) == 1:
            return make(self.for_kind(kinds[0]), content.of_kind(kinds[0]), "")
        parts = [
            MixedPart(kind, content.rows_of(kind), make(self.for_kind(kind), part, kind))
            for kind, part in ((kind, content.of_kind(kind)) for kind in kinds)
        ]
        return Mixed(self, content, parts)
