"""Compare moving indexes on one load, and measure an engine on it: ``nearcast bench moving``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.benchmarks.compare import spread
from nearcast.benchmarks.moving.calls import measure_engine
from nearcast.benchmarks.moving.runs import check_with_scan, measure_ticks
from nearcast.benchmarks.moving.targets import PRINTED_LABEL, judge_targets
from nearcast.indexes.moving import registry
from nearcast.indexes.moving.ap_plus import PRINTED
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nearcast.benchmarks.compare import Step
    from nearcast.benchmarks.moving.load import MovingLoad
    from nearcast.benchmarks.moving.runs import MovingPlan
    from nearcast.indexes.moving.registry import MovingBuilder

__all__ = ["COMPARED", "builders", "compare_moving", "moving_table"]

COMPARED = (
    "twin-lists",
    "ap+-tree",
    "ap+k-tree",
    "ap+s-tree",
    PRINTED_LABEL,
    "ss-index",
    "kk-index",
    "iq+-tree",
    "rq+-tree",
)
"""All moving indexes but the scan; the default comes first."""

_TIMES = ("us_per_move", "us_per_publish", "us_per_expire", "tick_s")


def builders(names: Sequence[str]) -> dict[str, MovingBuilder]:
    """Return the builders of indexes by label; `PRINTED_LABEL` has the options of the paper.

    Examples
    --------
    >>> builders(["ap+-tree as printed"])["ap+-tree as printed"].options.fanout
    200
    """
    return {
        name: registry.create("ap+-tree", **PRINTED)
        if name == PRINTED_LABEL
        else registry.create(name)
        for name in names
    }


def compare_moving(
    load: MovingLoad,
    series: Mapping[str, MovingBuilder],
    plan: MovingPlan,
    *,
    calls: int = 1_000,
    step: Step = lambda name, done, total: None,
) -> dict[str, Any]:
    """Measure indexes on the ticks of a load, and whole calls of an engine.

    ``calls`` is the number of single calls of the engine; with 0, no engine is measured.

    Raises
    ------
    NearcastError
        If the updates of an index differ from those of another or, on a small load, of the scan.
    """
    step("comparing with the scan", 0, 1)
    compared = check_with_scan(series, load)
    step("drawing", 0, 1)
    recording = plan.record(load)
    results = measure_ticks(series, recording, plan, step)
    engine = None
    if calls:
        engine = measure_engine(load, plan, moving=registry.DEFAULT, calls=calls, step=step)
    return {
        "experiment": "moving",
        "load": load.to_dict(),
        "ticks": plan.ticks,
        "warm_up": plan.warm_up,
        "mean_step": recording.step,
        "updates_compared_with_scan": compared,
        "heats": max(result["heat"] for result in results),
        "results": [_summarize(result, load) for result in results],
        "engine": engine,
        "targets": [target._asdict() for target in judge_targets(results, engine)],
        "machine": describe_machine(),
    }


def _summarize(result: dict[str, Any], load: MovingLoad) -> dict[str, Any]:
    """Add medians and rates to the measurements of an index."""
    tick_s = float(np.median(result["tick_s"]))
    per_tick = result["updates_per_move"] * result["moves_per_tick"]
    per_tick += (result["matches_per_message"] + result["ended_per_message"]) * load.arriving
    return result | {
        "median": {name: spread(result[name]) for name in _TIMES},
        "moves_per_second": 1e6 / float(np.median(result["us_per_move"])),
        "ticks_per_second": 1 / tick_s,
        "mean_ticks_per_second": 1 / float(np.mean(result["tick_s"])),
        "updates_per_second": per_tick / tick_s,
    }


def moving_table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a comparison; ratios are relative to the first index."""
    first = result["results"][0]["median"]
    rows = []
    for one in result["results"]:
        median = one["median"]
        move, tick = (
            median[name]["median"] / first[name]["median"] for name in ("us_per_move", "tick_s")
        )
        rows.append(
            [
                one["series"],
                *(f"{median[name]['median']:.3g}" for name in _TIMES[:3]),
                f"{move:.3g} / {tick:.3g}",
                f"{one['ticks_per_second']:.3g} / {one['mean_ticks_per_second']:.3g}",
                f"{one['moves_per_second']:,.0f}",
                f"{one['updates_per_second']:,.0f}",
                f"{one['bytes_per_subscription']:,.0f} / {one['bytes_per_message']:,.0f}",
                f"{one['copies_per_message']:.3g}",
            ]
        )
    header = ["index", "µs/move", "µs/publish", "µs/expire", "x: move / tick"]
    header += ["ticks/s: median / mean", "moves/s", "updates/s", "bytes/sub / message", "copies"]
    return header, rows
