"""The router: the shards that contain a subscription, and the shards that a message must visit.

It is the top of an adaptive partition tree (see `nearcast.spark.shards.tree`), as flat arrays that
are stored and pickled as they are. `nearcast.spark.shards.planner` makes one from samples. Whatever
the samples, a message visits at least one shard of every subscription that it matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, Messages, read_only
from nearcast.columns.arrays import Arrays, freeze
from nearcast.errors import InvalidInput, StorageError
from nearcast.spark.shards.tree import (
    LEAF,
    Pieces,
    Routes,
    Scratch,
    TreeArrays,
    first_invalid,
    route,
)
from nearcast.storage import nested, prefixed
from nearcast.text import Vocabulary
from nearcast.text.keys import keys_of, string_buffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["UNKNOWN_RANKS", "Router", "Routes"]

UNKNOWN_RANKS = 1024
"""The number of ranks for tokens that the router does not know, below those of known tokens."""

_TYPES: dict[str, type[np.generic]] = {
    "kind": np.uint8,
    "first": np.int32,
    "offset": np.int32,
    "columns": np.int32,
    "rows": np.int32,
    "dummy": np.uint8,
    "split_start": np.int64,
    "split": np.int32,
    "region": np.int32,
}


@dataclass(frozen=True, eq=False)
class Router(Arrays):
    """A tree of keyword and space nodes whose leaves are shards.

    The arrays are those of `nearcast.spark.shards.tree.TreeArrays`. ``vocabulary`` numbers tokens
    by rank, rarest first. Any other token gets one of the `UNKNOWN_RANKS` ranks before them, by a
    hash of its bytes. So every token of every message and subscription has a rank.

    Examples
    --------
    >>> router = Router.single()
    >>> messages = Messages.of([[0], [0, 1]], [[5, 5], [6, 6]])
    >>> router.route_messages(messages, router.ranks(Vocabulary(["latte", "mocha"])))
    Routes(start=array([0, 1, 2]), shard=array([0, 0], dtype=int32))
    """

    kind: NDArray[np.uint8]
    first: NDArray[np.int32]
    offset: NDArray[np.int32]
    columns: NDArray[np.int32]
    rows: NDArray[np.int32]
    dummy: NDArray[np.uint8]
    split_start: NDArray[np.int64]
    split: NDArray[np.int32]
    region: NDArray[np.int32]
    shards: int
    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        freeze(self, _TYPES)
        object.__setattr__(self, "region", read_only(self.region, np.int32, 4))
        object.__setattr__(self, "shards", int(self.shards))
        _check(self)

    @classmethod
    def single(cls) -> Self:
        """Return the router of a single shard."""
        none = np.zeros(1, np.int32)
        return cls(
            none.astype(np.uint8),
            none,
            none,
            none,
            none,
            none.astype(np.uint8),
            np.zeros(2, np.int64),
            np.empty(0, np.int32),
            np.array(WORLD, np.int32),
            1,
            Vocabulary(),
        )

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.kind)

    @property
    def leaves(self) -> NDArray[np.int64]:
        """The numbers of the leaves."""
        return np.flatnonzero(self.kind == LEAF)

    def ranks(
        self, vocabulary: Vocabulary, known: NDArray[np.int32] | None = None
    ) -> NDArray[np.int32]:
        """Return the rank of every token of a vocabulary, by the token's id.

        Parameters
        ----------
        vocabulary
            The vocabulary of the messages or clauses.
        known
            The ranks of the first tokens, from an earlier call: only newer tokens are looked up.

        Examples
        --------
        >>> local = Vocabulary(["latte"])
        >>> router = Router.single()
        >>> first = router.ranks(local)
        >>> bool(first[0] < UNKNOWN_RANKS), local.add(["mocha"]).tolist()
        (True, [1])
        >>> len(router.ranks(local, first))
        2
        """
        done: NDArray[np.int32] = np.empty(0, np.int32) if known is None else known
        if len(done) == len(vocabulary) and known is not None:
            return done
        keys = keys_of(*string_buffers(vocabulary.tokens().slice(len(done))))
        number = self.vocabulary.ids_of_keys(keys)
        guess = (np.uint64(UNKNOWN_RANKS) * keys.tag.astype(np.uint64)) >> np.uint64(32)
        fresh = np.where(number >= 0, number + UNKNOWN_RANKS, guess.astype(np.int32))
        return read_only(np.concatenate([done, fresh]), np.int32)

    def route_messages(self, messages: Messages, rank: NDArray[np.int32]) -> Routes:
        """Return the shards that each message must visit, ascending; there is at least one.

        Parameters
        ----------
        messages
            Messages with *all* their tokens: a subscription may have one that the router lacks.
        rank
            The `ranks` of the messages' vocabulary.
        """
        piece_start, pieces = np.arange(len(messages) + 1), messages
        if messages.wraps.any():
            pieces, message_of = messages.cut()
            piece_start = np.searchsorted(message_of, piece_start)
        return self._route(_pieces(piece_start, pieces, rank), True)

    def route_subscriptions(self, clauses: Clauses, rank: NDArray[np.int32]) -> Routes:
        """Return the shards that contain each subscription, ascending.

        These are the shards of its clauses. A subscription without clauses is in no shard.
        """
        clause_start = np.searchsorted(clauses.row, np.arange(clauses.subscriptions + 1))
        return self._route(_pieces(clause_start, clauses, rank), False)

    def _route(self, rows: Pieces, are_messages: bool) -> Routes:
        count = len(rows.piece_start) - 1
        longest = int(np.diff(rows.token_start).max(initial=0))
        scratch = Scratch(
            np.empty((len(self) + 1, 2), np.int32),
            np.empty(longest, np.int32),
            np.full(self.shards, -1, np.int64),
        )
        routes = Routes(
            np.zeros(count + 1, np.int64), np.empty(2 * count + 8 * self.shards, np.int32)
        )
        done = 0
        while done < count:
            done = route(self.tree(), rows, are_messages, done, scratch, routes)
            if done < count:
                larger = np.empty(2 * len(routes.shard), np.int32)
                larger[: routes.start[done]] = routes.shard[: routes.start[done]]
                routes = Routes(routes.start, larger)
        return Routes(routes.start, routes.shard[: routes.start[-1]])

    def tree(self) -> TreeArrays:
        """Return the arrays that kernels take."""
        return TreeArrays(*(getattr(self, name) for name in _TYPES))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the router as named arrays for storage, the inverse of `from_arrays`."""
        return {
            **self.tree()._asdict(),
            "shards": np.array([self.shards], np.int64),
            **prefixed("vocabulary", self.vocabulary.arrays()),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the router of these arrays, without copying (they may be memory-mapped).

        Examples
        --------
        >>> Router.from_arrays(Router.single().arrays()).shards
        1
        """
        missing = sorted((_TYPES.keys() | {"shards"}) - arrays.keys())
        if missing:
            raise StorageError(f"router: array {missing[0]!r} is missing; build the shards again")
        vocabulary = Vocabulary.from_arrays(nested("vocabulary", arrays))
        tree = {name: arrays[name] for name in _TYPES}
        return cls(**tree, shards=int(arrays["shards"][0]), vocabulary=vocabulary)


def _check(router: Router) -> None:
    """Raise an error unless the arrays form a tree, so that kernels stay within them."""
    tree, nodes = router.tree(), len(router.kind)
    lengths = {len(getattr(tree, name)) for name in _TYPES if name not in ("split_start", "split")}
    start = router.split_start
    consistent = (
        lengths == {nodes}
        and nodes > 0
        and router.shards > 0
        and len(start) == nodes + 1
        and int(start[0]) == 0
        and int(start[-1]) == len(router.split)
        and bool((np.diff(start) >= 0).all())
    )
    wrong = first_invalid(tree, router.shards, np.empty(nodes, np.int32)) if consistent else 0
    if wrong >= 0:
        raise StorageError(
            f"router: node {wrong} of {nodes} is damaged ({router.shards} shards, "
            f"{len(router.split)} splits); build the shards again"
        )


def _pieces(
    piece_start: NDArray[np.int64], pieces: Clauses | Messages, rank: NDArray[np.int32]
) -> Pieces:
    largest = int(pieces.token.max(initial=-1))
    if largest >= len(rank):
        problem = f"must have the rank of every token, up to {largest}; use Router.ranks"
        raise InvalidInput("rank", f"{len(rank)} ranks", problem)
    start, ranks = read_only(piece_start, np.int64), read_only(rank, np.int32)
    return Pieces(start, pieces.token_start, pieces.token, pieces.box, ranks)
