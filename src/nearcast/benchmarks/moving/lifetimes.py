"""The memory of moving indexes over many lifetimes of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.errors import NearcastError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from nearcast.benchmarks.moving.load import MovingLoad
    from nearcast.columns import Messages
    from nearcast.datasets.roads import Moves
    from nearcast.indexes.moving.contract import MovingIndex
    from nearcast.indexes.moving.registry import MovingBuilder

__all__ = ["measure_lifetimes"]


def measure_lifetimes(
    series: Mapping[str, MovingBuilder], load: MovingLoad, noted: Sequence[int]
) -> list[dict[str, Any]]:
    """Run a load for many lifetimes of messages, and note the bytes after some of them.

    The size of an index rises and falls, as lists are swept every few lifetimes: its largest size
    since the last note counts, at the end of each lifetime.

    Raises
    ------
    NearcastError
        If two indexes have another number of updates in a tick.
    """
    workload = load.workload()
    clauses = workload.subscriptions()
    indexes = {label: builder.build(clauses) for label, builder in series.items()}
    alive: dict[str, list[NDArray[Any]]] = {label: [] for label in indexes}
    largest = dict.fromkeys(indexes, 0)
    results = []
    for tick in range(max(noted) * load.ticks_of_life):
        messages = workload.messages(tick * load.arriving, (tick + 1) * load.arriving, 0)
        moves = workload.movers.tick()
        full = tick >= load.ticks_of_life
        found = {
            label: _run(index, alive[label], moves, messages, full=full)
            for label, index in indexes.items()
        }
        if len({*found.values()}) > 1:
            raise NearcastError(f"numbers of updates differ in tick {tick}: {found}")
        lifetimes, part = divmod(tick + 1, load.ticks_of_life)
        if part == 0:
            largest = {label: max(largest[label], index.nbytes) for label, index in indexes.items()}
        if part == 0 and lifetimes in noted:
            results += [
                {
                    "series": label,
                    "index": index.name,
                    "group": str(lifetimes),
                    "subscriptions": load.subscriptions,
                    "build_s": 0.0,
                    "bytes": largest[label],
                    "bytes_per_subscription": largest[label] / load.subscriptions,
                }
                for label, index in indexes.items()
            ]
            largest = dict.fromkeys(indexes, 0)
    return results


def _run(
    index: MovingIndex,
    alive: list[NDArray[Any]],
    moves: Moves,
    messages: Messages,
    *,
    full: bool,
) -> tuple[int, int, int]:
    """Run a tick; return the numbers of updates of its three parts."""
    ended = len(index.expire(alive.pop(0))) if full else 0
    moved = len(index.move(moves.mover, moves.box))
    numbers, matched = index.publish(messages)
    alive.append(numbers)
    return ended, moved, len(matched)
