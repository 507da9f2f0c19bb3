"""Experiments with moving subscriptions: scenes, series, and how they are measured.

A scene is a data set of such an experiment: words, roads, sizes relative to those of the plan, and
how subscriptions move. All series of a scene run the same recorded ticks, in rotation.

- IMM: an arrival in full (`publish`: matching, and storing the message).
- MSP: a move in full.
- MI: storing a message. Indexes do that while they publish, so it is the time of `publish` minus
  that of `match` for the same messages, at the start of the same tick.
- SLU: updating the location. It is the time of moves before any message is published: an index
  then finds and changes the places of a subscription, and has no messages to compare.

All times are CPU time of one process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.benchmarks.moving.lifetimes import measure_lifetimes
from nearcast.benchmarks.moving.load import CITY, COUNTY, MovingLoad, Roads
from nearcast.benchmarks.moving.runs import MovingPlan, check_with_scan, measure_ticks
from nearcast.benchmarks.paper.experiment import Experiment, Series
from nearcast.errors import InvalidInput
from nearcast.indexes.moving import registry
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nearcast.benchmarks.compare import Step
    from nearcast.indexes.moving.registry import MovingBuilder

__all__ = ["TICK", "MovingExperiment", "MovingPaperPlan", "MovingSeries", "Scene", "measure_moving"]

TICK = "tick"
"""The group of all points but those of lifetimes, whose groups are numbers of lifetimes."""

_SMALLEST = 10


@dataclass(frozen=True)
class MovingSeries(Series):
    """A moving index with options."""

    def moving_builder(self) -> MovingBuilder:
        """Return the builder of the index; unknown names are an error."""
        return registry.create(self.index, **self.options)


@dataclass(frozen=True)
class Scene:
    """A data set: words, roads, and what moves how. Sizes are relative to those of the plan.

    Parameters
    ----------
    dataset, changes
        The data set of the words, and parameters of its profile to change.
    county
        Whether the roads are those of a county instead of a city.
    subscriptions, messages
        Factors of the numbers of subscriptions and living messages.
    arrivals
        Messages that arrive and expire in a tick, as a share of the living ones.
    velocity, mobility, box_share, circles
        See `MovingLoad`.
    apart
        Whether MI and SLU are measured too.
    lifetimes
        If not empty, the scene is run for many lifetimes of messages, and the largest size is noted
        after these numbers of them.
    """

    dataset: str = "tweets"
    changes: Mapping[str, Any] = field(default_factory=dict)
    county: bool = False
    subscriptions: float = 1.0
    messages: float = 1.0
    arrivals: float = 0.1
    velocity: float = 1.0
    mobility: float = 0.4
    box_share: tuple[float, float] = (0.0001, 0.01)
    circles: bool = False
    apart: bool = False
    lifetimes: tuple[int, ...] = ()

    def load(self, plan: MovingPaperPlan) -> MovingLoad:
        """Return the load of the scene in the sizes of a plan."""
        messages = max(_SMALLEST, round(plan.messages * self.messages))
        return MovingLoad(
            max(_SMALLEST, round(plan.subscriptions * self.subscriptions)),
            messages,
            max(1, round(messages * self.arrivals)),
            self.dataset,
            self.changes,
            roads=plan.county if self.county else plan.city,
            velocity=self.velocity,
            mobility=self.mobility,
            box_share=self.box_share,
            circles=self.circles,
            seed=plan.seed,
        )


@dataclass(frozen=True)
class MovingExperiment(Experiment):
    """A paper's experiments with moving subscriptions; ``scenes`` has the data sets by name."""

    scenes: Mapping[str, Scene] = field(default_factory=dict)

    def builders(self, dataset: str) -> dict[str, MovingBuilder]:
        """Return the builders of all series that are measured on a data set, by label."""
        return {
            label: one.moving_builder()
            for label, one in self.series.items()
            if isinstance(one, MovingSeries) and self.needed(dataset, label)
        }


@dataclass(frozen=True)
class MovingPaperPlan:
    """The size of an experiment with moving subscriptions.

    Parameters
    ----------
    subscriptions, messages
        Their numbers in the paper's default setting; other settings are relative to them.
    ticks
        Measured ticks, after one to warm up.
    seed
        The same seed gives the same events.
    memory_bytes
        Maximum size of the indexes in memory.
    city, county
        The two road maps.
    """

    subscriptions: int = 1_000_000
    messages: int = 500_000
    ticks: int = 3
    seed: int = 0
    memory_bytes: float = 8e9
    city: Roads = CITY
    county: Roads = COUNTY

    def __post_init__(self) -> None:
        for name in ("subscriptions", "messages"):
            if getattr(self, name) < _SMALLEST:
                raise InvalidInput(name, getattr(self, name), f"must be at least {_SMALLEST}")


def measure_moving(
    experiment: MovingExperiment,
    plan: MovingPaperPlan,
    step: Step = lambda name, done, total: None,
) -> dict[str, Any]:
    """Measure everything that the figures need; return all measurements.

    Raises
    ------
    NearcastError
        If the updates of an index differ from those of another or, on a small load, of the scan.
    """
    names = experiment.datasets
    builds, points, loads = [], [], {}
    for number, name in enumerate(names):
        step(name, number, len(names))
        scene, series = experiment.scenes[name], experiment.builders(name)
        load = scene.load(plan)
        loads[name] = load.to_dict()
        check_with_scan(series, load, apart=scene.apart)
        part = MovingPlan(plan.ticks, memory_bytes=plan.memory_bytes, apart=scene.apart)

        def within(what: str, _done: int, _total: int, at: int = number, name: str = name) -> None:
            step(f"{name}: {what}", at, len(names))

        if scene.lifetimes:
            results = measure_lifetimes(series, load, scene.lifetimes)
            points += [_lifetime_point(name, one) for one in results]
            first = str(scene.lifetimes[0])
            builds += [_build(name, one) for one in results if one["group"] == first]
        else:
            results = measure_ticks(series, part.record(load), part, within)
            points += [_point(name, one) for one in results]
            builds += [_build(name, one) for one in results]
    step("done", len(names), len(names))
    return {
        "experiment": f"paper-{experiment.name}",
        "paper": experiment.name,
        "subscriptions": plan.subscriptions,
        "messages": plan.messages,
        "seed": plan.seed,
        "rounds": plan.ticks,
        "rounds_are": "ticks",
        "options": f"--subscriptions {plan.subscriptions} --messages {plan.messages} "
        f"--ticks {plan.ticks} --seed {plan.seed}",
        "figures": [figure.name for figure in experiment.figures],
        "loads": loads,
        "machine": describe_machine(),
        "builds": builds,
        "points": points,
        "mixed": [],
    }


def _build(dataset: str, result: dict[str, Any]) -> dict[str, Any]:
    names = ("series", "index", "subscriptions", "build_s", "bytes_per_subscription")
    return {
        "dataset": dataset,
        **{name: result[name] for name in names},
        "built": result["subscriptions"],
    }


def _lifetime_point(dataset: str, result: dict[str, Any]) -> dict[str, Any]:
    quantities = {"total_bytes": [result["bytes"] / 1e6]}
    names = ("series", "group")
    return {
        "dataset": dataset,
        **{name: result[name] for name in names},
        "quantities": quantities,
    }


def _point(dataset: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the quantities of a series, one value for each tick or a single one."""
    moves = result["moves_per_tick"]
    quantities = {
        "imm": result["us_per_publish"],
        "msp": result["us_per_move"],
        "expire": result["us_per_expire"],
        "total_msp": [us * moves / 1e6 for us in result["us_per_move"]],
        "tick": result["tick_s"],
        "ticks": [1 / seconds for seconds in result["tick_s"]],
        "total_bytes": [result["bytes"] / 1e6],
        "message_bytes": [result["bytes_per_message"]],
        "copies": [result["copies_per_message"]],
        "quiet": [100 * result["quiet_moves"]],
    }
    if result["us_per_still_move"]:
        stored = np.subtract(result["us_per_publish"], result["us_per_match"])
        quantities |= {"mi": stored.tolist(), "slu": result["us_per_still_move"]}
    return {
        "dataset": dataset,
        "series": result["series"],
        "group": TICK,
        "heat": result["heat"],
        "quantities": quantities,
        "updates_per_move": result["updates_per_move"],
        "matches_per_message": result["matches_per_message"],
        "digests": result["digests"],
    }
