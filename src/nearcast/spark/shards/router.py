"""The router: to which shards a subscription belongs, and which shards a message has to visit.

The top of an adaptive partition tree (see `nearcast.spark.shards.routing`), as flat arrays: it is stored,
broadcast and pickled as it is. `nearcast.spark.shards.planner` makes one from samples. However good
or bad the samples were, a message visits at least one shard of every subscription that it matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import WORLD, Clauses, Matches, Messages, read_only
from nearcast.columns.arrays import Arrays, freeze
from nearcast.errors import InvalidInput, StorageError
from nearcast.spark.shards.routing import (
    LEAF,
    Routed,
    Routes,
    Scratch,
    TreeArrays,
    first_unsound,
    route,
)
from nearcast.spark.shards.shard_dedup import Pairs, ShardBits, keep_owned, set_shards
from nearcast.storage import nested, prefixed
from nearcast.text import Vocabulary
from nearcast.text.keys import keys_of, string_buffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["UNKNOWN_RANKS", "Router", "Routes", "owned_matches", "pack_shards"]

UNKNOWN_RANKS = 1024
"""Tokens that the router does not know share so many ranks, below those of all that it knows."""

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

    The arrays are those of `nearcast.spark.shards.routing.TreeArrays`. The tokens of ``vocabulary`` are
    numbered by their rank, rarest first; any other token takes one of `UNKNOWN_RANKS` ranks before
    them, by a hash of its bytes: so every token of every message and subscription has a rank.

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
        freeze(self, **_TYPES)
        object.__setattr__(self, "region", read_only(self.region, np.int32, 4))
        object.__setattr__(self, "shards", int(self.shards))
        _check(self)

    @classmethod
    def single(cls) -> Self:
        """Return the router of one shard, which takes everything."""
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
        """The numbers of the nodes that are leaves."""
        return np.flatnonzero(self.kind == LEAF)

    def ranks(
        self, vocabulary: Vocabulary, known: NDArray[np.int32] | None = None
    ) -> NDArray[np.int32]:
        """Return the rank of every token of a vocabulary, by its id there.

        Parameters
        ----------
        vocabulary
            Whose ids the messages or clauses have.
        known
            The ranks that were returned before its latest tokens were added: only theirs are
            looked up then.

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
        """Return the shards that every message has to visit, ascending; there is at least one.

        Parameters
        ----------
        messages
            With *all* their tokens: one that is unknown here may be known to a subscription.
        rank
            What `ranks` gave for the vocabulary of the messages.
        """
        piece_start, pieces = np.arange(len(messages) + 1), messages
        if messages.wraps.any():
            pieces, message_of = messages.cut()
            piece_start = np.searchsorted(message_of, piece_start)
        rows = _rows(piece_start, pieces.token_start, pieces.token, pieces.box, rank)
        return self._route(rows, True)

    def route_subscriptions(self, clauses: Clauses, rank: NDArray[np.int32]) -> Routes:
        """Return the shards in which every subscription lies, ascending.

        A subscription lies where one of its clauses does; one without clauses lies nowhere.
        """
        clause_start = np.searchsorted(clauses.row, np.arange(clauses.subscriptions + 1))
        rows = _rows(clause_start, clauses.token_start, clauses.token, clauses.box, rank)
        return self._route(rows, False)

    def _route(self, rows: Routed, are_messages: bool) -> Routes:
        count = len(rows.piece_start) - 1
        most = int(np.diff(rows.token_start).max(initial=0))
        scratch = Scratch(
            np.empty((len(self) + 1, 2), np.int32),
            np.empty(most, np.int32),
            np.full(self.shards, -1, np.int64),
        )
        routes = Routes(
            np.zeros(count + 1, np.int64), np.empty(2 * count + 8 * self.shards, np.int32)
        )
        done = 0
        while done < count:
            done = route(self.tree(), rows, are_messages, done, scratch, routes)
            if done < count:
                room = np.empty(2 * len(routes.shard), np.int32)
                room[: routes.start[done]] = routes.shard[: routes.start[done]]
                routes = Routes(routes.start, room)
        return Routes(routes.start, routes.shard[: routes.start[-1]])

    def tree(self) -> TreeArrays:
        """Return what kernels see of the router."""
        return TreeArrays(*(getattr(self, name) for name in _TYPES))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is as named arrays, to be stored; `from_arrays` takes them back."""
        return {
            **self.tree()._asdict(),
            "shards": np.array([self.shards], np.int64),
            **prefixed("vocabulary", self.vocabulary.arrays()),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Take a router from its arrays, as they are (they may be memory-mapped).

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
    """Refuse arrays that are no tree, before a kernel walks beyond them."""
    tree, nodes = router.tree(), len(router.kind)
    lengths = {len(getattr(tree, name)) for name in _TYPES if name not in ("split_start", "split")}
    start = router.split_start
    sound = (
        lengths == {nodes}
        and nodes > 0
        and router.shards > 0
        and len(start) == nodes + 1
        and int(start[0]) == 0
        and int(start[-1]) == len(router.split)
        and bool((np.diff(start) >= 0).all())
    )
    wrong = first_unsound(tree, router.shards, np.empty(nodes, np.int32)) if sound else 0
    if wrong >= 0:
        raise StorageError(
            f"router: node {wrong} of {nodes} is damaged ({router.shards} shards, "
            f"{len(router.split)} splits); build the shards again"
        )


def _rows(
    piece_start: NDArray[np.int64],
    token_start: NDArray[np.int64],
    token: NDArray[np.int32],
    box: NDArray[np.int32],
    rank: NDArray[np.int32],
) -> Routed:
    most = int(token.max(initial=-1))
    if most >= len(rank):
        problem = f"must have the rank of every token, up to number {most}; take Router.ranks"
        raise InvalidInput("rank", f"{len(rank)} ranks", problem)
    return Routed(
        read_only(piece_start, np.int64), token_start, token, box, read_only(rank, np.int32)
    )


def pack_shards(
    start: NDArray[np.int64], shard: NDArray[np.int32], shards: int
) -> NDArray[np.uint64]:
    """Return the shards of every row as bits: uint64[rows, words], shard ``s`` as bit ``s``.

    Examples
    --------
    >>> pack_shards(np.array([0, 2, 3]), np.array([0, 3, 64]), 65).tolist()
    [[9, 0], [0, 1]]
    """
    if len(shard) and not 0 <= int(shard.min()) <= int(shard.max()) < shards:
        raise InvalidInput("shard", int(shard.max()), f"must be from 0 to {shards - 1}")
    bits = np.zeros((len(start) - 1, -(-shards // 64)), np.uint64)
    set_shards(read_only(start, np.int64), read_only(shard, np.int32), bits)
    return read_only(bits, np.uint64, bits.shape[1])


def owned_matches(
    matches: Matches,
    row_shards: NDArray[np.uint64],
    message_shards: NDArray[np.uint64],
    shard: int,
) -> Matches:
    """Return the matches of a shard that it reports: no lower shard has both sides of them.

    Parameters
    ----------
    matches
        What the shard found: rows of its own subscriptions.
    row_shards, message_shards
        The shards of its subscriptions and of the messages, as `pack_shards` gives them.
    shard
        Its number.

    Examples
    --------
    >>> found = Matches(np.array([0, 2]), np.array([0, 1], np.int32), 2)
    >>> rows = pack_shards(np.array([0, 2, 3]), np.array([0, 1, 1]), 2)
    >>> visited = pack_shards(np.array([0, 2]), np.array([0, 1]), 2)
    >>> owned_matches(found, rows, visited, 1).pairs()
    {(0, 1)}
    """
    start = np.empty(len(matches.start), np.int64)
    kept = np.empty(len(matches), np.int64)
    keep_owned(
        Pairs(read_only(matches.start, np.int64), read_only(matches.subscription, np.int32)),
        ShardBits(read_only(row_shards, np.uint64), read_only(message_shards, np.uint64)),
        shard,
        start,
        kept,
    )
    return matches.keep(start, kept[: start[-1]])
