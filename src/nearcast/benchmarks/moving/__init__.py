"""Subscriptions that move and messages that live for a while, in ticks: what an index costs.

`MovingLoad` says how many subscriptions and messages there are and how they move; `record` draws
them once, so that all indexes run the same ticks, even those that do not fit in memory together.
`measure_ticks` runs moving indexes in rotation, tick by tick, and compares all of their updates.
`measure_engine` measures whole calls of an engine on the same load. `judge_targets` compares the
figures with what the design asks for.
"""

from nearcast.benchmarks.moving.calls import measure_engine
from nearcast.benchmarks.moving.load import MovingLoad, RecordedTick, Recording
from nearcast.benchmarks.moving.runs import MovingPlan, check_with_scan, measure_ticks
from nearcast.benchmarks.moving.targets import judge_targets

__all__ = [
    "MovingLoad",
    "MovingPlan",
    "RecordedTick",
    "Recording",
    "check_with_scan",
    "judge_targets",
    "measure_engine",
    "measure_ticks",
]
