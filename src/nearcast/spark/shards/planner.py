"""Plan shards: make a router from samples, and estimate the sizes and loads of its shards.

First a tree is built over the samples until its leaves are small (see
`nearcast.spark.shards.build_tree`). Then leaves are combined into shards of similar size and load,
preferably leaves that share subscriptions and messages. Routing the samples measures the plan.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nearcast.columns import Clauses, Messages
from nearcast.errors import InvalidInput
from nearcast.spark.shards.build_tree import Sample, build_tree
from nearcast.spark.shards.router import Router, Routes
from nearcast.spark.shards.tree import EVERYWHERE, KEYWORDS, LEAF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearcast.text import Vocabulary

__all__ = ["Plan", "Shard", "messages_like", "plan"]

LEAVES = 4
"""Leaves per shard: with fewer, shards would be uneven; more would cost visits."""

ATTEMPTS = 4

SLACK = 1.02
"""A shard takes leaves until it has this many times its fair load."""

COPIES = 0.02
"""Dummies are copied to every shard if the copies are at most this share of all clauses."""


@dataclass(frozen=True)
class Shard:
    """The expected size and load of a shard."""

    subscriptions: int
    message_share: float
    load_share: float


@dataclass(frozen=True)
class Plan:
    """The expected sizes and loads of shards.

    Parameters
    ----------
    shards
        For each shard: its subscriptions (copies included), the share of messages that visit it,
        and its share of the load (subscriptions times messages).
    subscriptions
        The number of subscriptions, each counted once.
    subscription_copies, message_copies
        The average number of shards that contain a subscription, and that a message visits.
    leaves, depth
        The size of the tree.
    """

    shards: tuple[Shard, ...]
    subscriptions: int
    subscription_copies: float
    message_copies: float
    leaves: int
    depth: int

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as values that JSON can represent."""
        return {**asdict(self), "shards": [asdict(shard) for shard in self.shards]}

    def __str__(self) -> str:
        """Return the plan as a table."""
        head = (
            f"{len(self.shards)} shards of {self.subscriptions:,} subscriptions: a subscription "
            f"lies in {self.subscription_copies:.2f} shards, a message visits "
            f"{self.message_copies:.2f} ({self.leaves} leaves, depth {self.depth})"
        )
        lines = [f"{'shard':>5} {'subscriptions':>14} {'messages':>9} {'load':>7}"]
        for number, shard in enumerate(self.shards):
            lines.append(
                f"{number:>5} {shard.subscriptions:>14,} {shard.message_share:>9.1%} "
                f"{shard.load_share:>7.1%}"
            )
        return "\n".join([head, *lines])


def plan(
    clauses: Clauses,
    messages: Messages,
    vocabulary: Vocabulary,
    *,
    total: int,
    shards: int | None = None,
    size: int | None = None,
) -> tuple[Router, Plan]:
    """Plan shards from samples of subscriptions and messages.

    Parameters
    ----------
    clauses, messages
        The samples; ten thousand of each are plenty for a hundred shards. Without messages, the
        planner assumes messages at the places and with the tokens of the subscriptions.
    vocabulary
        The vocabulary of both. Messages should have all their tokens.
    total
        The number of all subscriptions.
    shards
        The exact number of shards.
    size
        Instead, the number of subscriptions per shard, copies included.

    Examples
    --------
    >>> from nearcast.columns import UNITS
    >>> from nearcast.text import Vocabulary
    >>> corner = np.arange(0, 80, 2)[:, None].repeat(2, axis=1) * UNITS
    >>> clauses = Clauses.of([[0]] * 40, np.concatenate([corner, corner + UNITS], axis=1))
    >>> messages = Messages.of([[0]] * 40, corner)
    >>> router, planned = plan(clauses, messages, Vocabulary(["latte"]), total=1_000, shards=2)
    >>> print(planned)
    2 shards of 1,000 subscriptions: a subscription lies in 1.00 shards, a message visits 1.00 ...
    shard  subscriptions  messages    load
        0            500     50.0%   50.0%
        1            500     50.0%   50.0%
    """
    _check(total, shards, size, clauses)
    if shards == 1 or clauses.subscriptions == 0:
        number = shards or 1
        router = replace(Router.single(), shards=number)
        return router, _estimate(router, router, clauses, messages, vocabulary, total)
    if not len(messages):
        messages = messages_like(clauses)
    wanted = total / shards if shards is not None else float(size or total)
    sample = Sample.of(clauses, messages, vocabulary)
    tree = build_tree(sample, max(wanted / LEAVES * len(clauses) / total, 1.0))
    rank = tree.ranks(vocabulary)
    of_rows, of_messages = (
        tree.route_subscriptions(clauses, rank),
        tree.route_messages(messages, rank),
    )
    if shards is None:
        copies = len(of_rows.shard) / clauses.subscriptions
        shards = max(int(np.ceil(total * copies / wanted)), 1)
    leaf_shard = _pack(tree, of_rows, of_messages, shards)
    first = tree.first.copy()
    first[tree.leaves] = leaf_shard
    router = replace(tree, first=first, shards=shards)
    return router, _estimate(router, tree, clauses, messages, vocabulary, total)


def _check(total: int, shards: int | None, size: int | None, clauses: Clauses) -> None:
    if (shards is None) == (size is None):
        raise InvalidInput("shards", shards, "give either the number of shards or their size")
    for name, number in (("shards", shards), ("size", size)):
        if number is not None and number < 1:
            raise InvalidInput(name, number, "must be at least 1")
    if total < clauses.subscriptions:
        problem = f"must be at least the {clauses.subscriptions} subscriptions of the sample"
        raise InvalidInput("total", total, problem)


def messages_like(clauses: Clauses) -> Messages:
    """Return messages at the centers of the clauses, with their tokens."""
    box = clauses.box.astype(np.int64)
    center = ((box[:, :2] + box[:, 2:]) // 2).astype(np.int32)
    none = np.zeros(len(clauses), np.int64)
    place = np.concatenate([center, center], axis=1)
    return Messages(clauses.token_start, clauses.token, place, none, none)


def _pack(tree: Router, of_rows: Routes, of_messages: Routes, shards: int) -> NDArray[np.int32]:
    """Return the shard of each leaf.

    The load that a leaf adds to a shard depends on what the shard already has, so the fair load is
    only known afterwards. This makes several attempts and returns the most even one.
    """
    rows, visits = _Members.of(of_rows, tree.shards), _Members.of(of_messages, tree.shards)
    everywhere = _spread_dummies(tree, rows.count, shards)
    load = rows.count * rows.unit + visits.count * visits.unit
    load[everywhere] = 0
    order = np.argsort(-load, kind="stable")
    order = order[~everywhere[order]]
    best, fair, lowest = np.full(tree.shards, EVERYWHERE, np.int32), load.sum() / shards, np.inf
    for _ in range(ATTEMPTS):
        placed, used = _place(order, rows, visits, shards, SLACK * fair)
        fair = used.sum() / shards
        if used.max() < lowest:
            best, lowest = placed, used.max()
    return best


class _Members:
    """The rows or messages of each leaf; all leaves together weigh 1."""

    def __init__(self, member: list[NDArray[np.int64]], total: int) -> None:
        self.member = member
        self.total = total
        self.count = np.array([len(m) for m in member], np.float64)
        self.unit = 1 / max(float(self.count.sum()), 1)

    @classmethod
    def of(cls, routes: Routes, leaves: int) -> Self:
        row = np.repeat(np.arange(len(routes.start) - 1), np.diff(routes.start))
        order = np.argsort(routes.shard, kind="stable")
        end = np.cumsum(np.bincount(routes.shard, minlength=leaves))
        return cls(np.split(row[order], end[:-1]), len(routes.start) - 1)


def _place(
    order: NDArray[np.int64], rows: _Members, visits: _Members, shards: int, capacity: float
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Place leaves, heaviest first, where they fit and add least; return shards and loads."""
    placed = np.full(len(rows.member), EVERYWHERE, np.int32)
    used = np.zeros(shards)
    has_row = np.zeros((shards, rows.total), np.bool_)
    has_visit = np.zeros((shards, visits.total), np.bool_)
    for leaf in order.tolist():
        row, visit = rows.member[leaf], visits.member[leaf]
        there = has_row[:, row].sum(axis=1) * rows.unit
        there += has_visit[:, visit].sum(axis=1) * visits.unit
        after = used + len(row) * rows.unit + len(visit) * visits.unit - there
        fits = after <= capacity
        # Of the shards where it fits, the one that has most of it already; otherwise the emptiest.
        best = np.lexsort((after, -there * fits, ~fits)) if fits.any() else np.argsort(after)
        shard = int(best[0])
        placed[leaf] = shard
        used[shard] = after[shard]
        has_row[shard, row] = True
        has_visit[shard, visit] = True
    return placed, used


def _spread_dummies(tree: Router, weight: NDArray[np.float64], shards: int) -> NDArray[np.bool_]:
    """Return which leaves are copied to every shard: light dummies of keyword nodes.

    Every message that reaches a keyword node visits its dummy. If all shards have the few clauses
    of the dummy, that visit is not needed.
    """
    node = np.flatnonzero(tree.kind == KEYWORDS)
    dummy = tree.first[node] + tree.columns[node]
    leaf = tree.first[dummy[tree.kind[dummy] == LEAF]]
    light = leaf[np.argsort(weight[leaf], kind="stable")]
    copies = np.cumsum(weight[light]) * (shards - 1)
    chosen = np.zeros(len(weight), np.bool_)
    chosen[light[copies <= COPIES * weight.sum()]] = True
    return chosen


def _estimate(
    router: Router,
    tree: Router,
    clauses: Clauses,
    messages: Messages,
    vocabulary: Vocabulary,
    total: int,
) -> Plan:
    """Route the samples, and count."""
    rank = router.ranks(vocabulary)
    of_rows = router.route_subscriptions(clauses, rank).shard
    of_messages = router.route_messages(messages, rank).shard
    rows, visitors = max(clauses.subscriptions, 1), max(len(messages), 1)
    held = np.bincount(of_rows, minlength=router.shards) / rows
    visited = np.bincount(of_messages, minlength=router.shards) / visitors
    load = held * visited
    load /= max(float(load.sum()), 1e-12)
    found = tuple(
        Shard(round(float(h) * total), round(float(v), 6), round(float(part), 6))
        for h, v, part in zip(held, visited, load, strict=True)
    )
    return Plan(
        found,
        total,
        round(len(of_rows) / rows, 4),
        round(len(of_messages) / visitors, 4),
        len(tree.leaves),
        _depth(tree),
    )


def _depth(tree: Router) -> int:
    depth = np.zeros(len(tree), np.int64)
    for node in np.flatnonzero(tree.kind != LEAF).tolist():
        children = int(tree.columns[node]) * int(tree.rows[node]) + int(tree.dummy[node])
        begin = int(tree.first[node])
        depth[begin : begin + children] = depth[node] + 1
    return int(depth.max())
