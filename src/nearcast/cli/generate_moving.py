"""The files of ``nearcast generate --dataset moving``: subscriptions, moves and messages."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.moving_options import load_network, parse_speeds
from nearcast.cli.output import Advance
from nearcast.cli.writers import TableWriter, open_writer

if TYPE_CHECKING:
    from nearcast.datasets.roads import MovingWorkload

__all__ = ["describe_workload", "make_workload", "write_moving"]

_MOTION = (
    "route",
    "destinations",
    "goals",
    "velocity",
    "mobility",
    "interval",
    "tick_s",
    "capacity_per_km",
)


def make_workload(
    options: Mapping[str, Any],
    *,
    subscriptions: int,
    messages: int,
    ticks: int,
    seed: int,
    tokens: tuple[int, int] | None,
    keywords: tuple[int, int] | None,
    box_share: tuple[float, float] | None,
) -> "MovingWorkload":
    """Return the workload that users' options describe; options that are None have defaults."""
    from nearcast.datasets import Workload
    from nearcast.datasets.roads import Movers, MovingWorkload

    words = Workload(
        options["words"] or "tweets", seed, **({} if keywords is None else {"keywords": keywords})
    )
    motion = {name: options[name] for name in _MOTION if options[name] is not None}
    if options["speeds"] is not None:
        motion["speeds"] = parse_speeds(options["speeds"])
    if box_share is not None:
        motion["box_share"] = box_share
    network = load_network(options["roads"], options["lattice"], seed)
    return MovingWorkload(
        Movers(network, subscriptions, seed, **motion),
        words,
        arrivals=Fraction(messages, ticks),
        ttl_s=options["ttl_s"],
        tokens=tokens,
        message_places=options["message_places"] or "roads",
    )


def describe_workload(workload: "MovingWorkload", roads: str | None) -> dict[str, Any]:
    """Return what the manifest says about a workload."""
    from nearcast.columns import UNITS

    network, words = workload.movers.network, workload.words
    names = None if roads is None else [Path(part.strip()).name for part in roads.split(",")]
    return {
        "words": words.dataset,
        "tokens": list(workload.tokens),
        "keywords": list(words.profile.keywords),
        **asdict(workload.movers.motion),
        "ttl_s": workload.ttl_s,
        "message_places": workload.message_places,
        "roads": names or "lattice",
        "nodes": network.nodes,
        "arcs": network.arcs,
        "frame": [side / UNITS for side in network.frame],
    }


def write_moving(
    out: Path,
    workload: "MovingWorkload",
    *,
    ticks: int,
    format: str,
    chunk_rows: int,
    start: Callable[[str], Advance],
) -> dict[str, dict[str, Any]]:
    """Write the three files; return their entries for the manifest.

    Moves and messages are drawn together, tick by tick, so each file has its rows in order of time.
    """
    from nearcast.datasets.roads import arrival_table, move_table, mover_table

    files: dict[str, dict[str, Any]] = {}
    began = time.perf_counter()
    count = len(workload.movers)
    advance = start("subscriptions")
    with open_writer(out / f"subscriptions.{format}", mover_table(workload, 0, 0).schema) as file:
        for first in range(0, count, chunk_rows):
            file.write(mover_table(workload, first, first + chunk_rows))
            advance(min(first + chunk_rows, count), count)
    files["subscriptions"] = _entry(file, count, began)
    began = time.perf_counter()
    advance = start("moves and messages")
    moved = 0
    tick_0 = workload.no_events()
    with (
        open_writer(out / f"moves.{format}", move_table(workload, tick_0).schema) as moves,
        open_writer(
            out / f"messages.{format}", arrival_table(workload, tick_0.messages, 0).schema
        ) as messages,
    ):
        for number in range(ticks):
            tick = workload.tick()
            moves.write(move_table(workload, tick))
            messages.write(arrival_table(workload, tick.messages, workload.arrived(number)))
            moved += len(tick.mover)
            advance(number + 1, ticks)
    files["moves"] = _entry(moves, moved, began)
    files["messages"] = _entry(messages, workload.arrived(ticks), began)
    return files


def _entry(file: TableWriter, rows: int, began: float) -> dict[str, Any]:
    taken = time.perf_counter() - began
    return {
        "file": file.path.name,
        "rows": rows,
        "bytes": file.path.stat().st_size,
        "seconds": taken,
    }
