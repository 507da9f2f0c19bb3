"""Measures what the figures of an experiment need.

Every index is built once for a data set and measured on all groups of messages. As many indexes
as fit into memory are held at once and take turns, round by round; together they are a *heat*.
Within a heat all get the same messages: as many as the slowest of them has time for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.compare import spread
from benchmarks.paper.figures import Group
from benchmarks.paper.mixed import MixedLoad
from benchmarks.paper.runner import Runner, check_sample
from nearcast import indexes
from nearcast.errors import NearcastError
from nearcast.indexes import UpdatableIndex
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from benchmarks.compare import Step
    from benchmarks.paper.experiment import Experiment, Plan
    from nearcast.columns import Clauses, Messages

__all__ = ["measure"]

_FEWEST = 50
"""So many messages are matched even by the slowest index."""


def measure(
    experiment: Experiment, plan: Plan, step: Step = lambda what, done, total: None
) -> dict[str, Any]:
    """Build and measure everything; return all figures.

    Raises
    ------
    NearcastError
        When an index does not agree with the scan.
    """
    progress = _Progress(experiment, step)
    runs = [_DatasetRun(experiment, plan, name, progress) for name in experiment.datasets]
    for run in runs:
        run.measure()
    progress.say("done")
    return {
        "experiment": f"paper-{experiment.name}",
        "paper": experiment.name,
        "subscriptions": plan.subscriptions,
        "messages": plan.messages,
        "seed": plan.seed,
        "rounds": plan.rounds,
        "range_share": plan.range_share,
        "machine": describe_machine(),
        "builds": [build for run in runs for build in run.builds],
        "points": [point for run in runs for point in run.points],
        "mixed": [point for run in runs for point in run.mixed],
    }


class _Progress:
    """Counts builds and points."""

    def __init__(self, experiment: Experiment, step: Step) -> None:
        self._step = step
        self.done = 0
        self._total = 0
        for dataset in experiment.datasets:
            for label in experiment.series:
                needed = experiment.needed(dataset, label)
                mixed = experiment.needed(dataset, label, mixed=True)
                self._total += bool(needed) + len(needed) + len(mixed)

    def say(self, what: str, steps: int = 0) -> None:
        """Say what is done now; ``steps`` were done before."""
        self.done += steps
        self._step(what, self.done, self._total)


class _DatasetRun:
    """All builds and points over one data set."""

    def __init__(
        self, experiment: Experiment, plan: Plan, dataset: str, progress: _Progress
    ) -> None:
        self.experiment = experiment
        self.plan = plan
        self.dataset = dataset
        self.workload = experiment.workload(dataset, plan.seed)
        self.progress = progress
        self.builds: list[dict[str, Any]] = []
        self.points: list[dict[str, Any]] = []
        self.mixed: list[dict[str, Any]] = []
        self._heat = 0
        self._messages: dict[str, Messages] = {}
        self._expected: dict[str, set[tuple[int, int]]] = {}

    def measure(self) -> None:
        """Build the indexes one after the other, and let those that fit into memory take turns."""
        self.progress.say(f"drawing {self.dataset}")
        clauses = self.workload.subscriptions(self.plan.subscriptions)
        heat: list[Runner] = []
        held = largest = 0
        for label, series in self.experiment.series.items():
            needed = self.experiment.needed(self.dataset, label)
            if not needed:
                continue
            self.progress.say(f"{self.dataset}: building {label}")
            runner = Runner(label, series, needed)
            build = runner.build(clauses)
            self.builds.append({"dataset": self.dataset, **build})
            self.progress.say(f"{self.dataset}: built {label}", 1)
            heat.append(runner)
            own = self._held(runner, clauses)
            held, largest = held + own, max(largest, own)
            # The next one may be as large as any so far, and need as much again while it is built.
            if held + 2 * largest > self.plan.memory_bytes:
                self._run(heat, clauses)
                heat, held = [], 0
                del runner
        if heat:
            self._run(heat, clauses)

    def _held(self, runner: Runner, clauses: Clauses) -> int:
        """Return the bytes that an index takes, with clauses of its own where it takes changes."""
        changes = bool(self.experiment.needed(self.dataset, runner.label, mixed=True))
        shared = runner.series.share == runner.series.built == 1.0 and not changes
        # An index that grows has spare capacity.
        return runner.index.nbytes + (0 if shared else clauses.nbytes * 3 // 2)

    def _run(self, heat: list[Runner], clauses: Clauses) -> None:
        self._heat += 1
        for group in dict.fromkeys(group for runner in heat for group in runner.groups):
            takers = [runner for runner in heat if group in runner.groups]
            self.progress.say(f"{self.dataset}: {group}, heat {self._heat}")
            self._take_turns(group, takers, clauses)
            self.progress.say(f"{self.dataset}: {group} done", len(takers))
        self._mix(heat, clauses)

    def _take_turns(self, group: str, takers: list[Runner], clauses: Clauses) -> None:
        messages = self._drawn(group)
        sample = messages.take(_sample_rows(len(messages), self.plan.sample))
        if group not in self._expected:
            scan = indexes.create("scan").build(clauses)
            self._expected[group] = scan.match(sample).pairs()
        few = messages.take(np.arange(min(20, len(messages))))
        verified = [runner.verify(sample, self._expected[group]) for runner in takers]
        slowest_us = max(runner.match(few) for runner in takers)
        count = int(self.plan.point_s / self.plan.rounds * 1e6 / max(slowest_us, 1e-3))
        messages = messages.take(np.arange(min(max(count, _FEWEST), len(messages))))
        points = [self._first(runner, group, messages) for runner in takers]
        for turn in range(self.plan.rounds):
            for i in range(len(takers)):
                runner = takers[(turn + i) % len(takers)]
                runner.rounds_us.append(runner.match(messages))
        for runner, point, checked in zip(takers, points, verified, strict=True):
            point |= checked
            point["us_per_message"] = spread(runner.rounds_us)
            point["rounds_us"] = runner.rounds_us
        self.points += points

    def _first(self, runner: Runner, group: str, messages: Messages) -> dict[str, Any]:
        """Match all messages once, for the counts and to have everything warm."""
        runner.rounds_us = []
        found = runner.index.match(messages)
        return {
            "dataset": self.dataset,
            "series": runner.label,
            "group": group,
            "heat": self._heat,
            "messages": len(messages),
            "matches_per_message": len(found) / len(messages),
            "examined_per_message": found.examined / len(messages),
            "visited_per_message": found.visited / len(messages),
        }

    def _mix(self, heat: list[Runner], clauses: Clauses) -> None:
        """Let subscriptions change while messages are matched; the indexes are of no use after."""
        wanted = {
            runner.label: self.experiment.needed(self.dataset, runner.label, mixed=True)
            for runner in heat
        }
        takers: dict[str, UpdatableIndex] = {}
        for runner in heat:
            if wanted[runner.label]:
                if not isinstance(runner.index, UpdatableIndex):
                    raise NearcastError(f"{runner.label} takes no changes; leave it out of the mix")
                takers[runner.label] = runner.index
        if not takers:
            return
        groups = list(dict.fromkeys(group for names in wanted.values() for group in names))
        load = MixedLoad(self.workload, clauses, self.plan, groups)
        load.begin(takers, self._drawn(groups[0]))
        for group in groups:
            own = {label: index for label, index in takers.items() if group in wanted[label]}
            self.progress.say(f"{self.dataset}: changes and {group}, heat {self._heat}")
            points = load.run(group, own, self._drawn(group), self._slowest_us(group, own))
            self.mixed += [{"dataset": self.dataset, "heat": self._heat, **p} for p in points]
            self.progress.say(f"{self.dataset}: changes and {group} done", len(own))
        sample = self._drawn(groups[-1])
        sample = sample.take(_sample_rows(len(sample), self.plan.sample))
        for label, index in takers.items():
            check_sample(label, index, sample, load.scan(label).match(sample).pairs())

    def _slowest_us(self, group: str, takers: dict[str, UpdatableIndex]) -> float:
        return max(
            float(point["us_per_message"]["median"])
            for point in self.points
            if point["group"] == group and point["series"] in takers
        )

    def _drawn(self, group: str) -> Messages:
        if group not in self._messages:
            chosen = Group.named(group)
            self._messages[group] = self.workload.messages(
                self.plan.messages,
                tokens=chosen.tokens,
                range_share=self.plan.range_share if chosen.ranges else 0.0,
            )
        return self._messages[group]


def _sample_rows(count: int, sample: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.unique(np.linspace(0, count - 1, min(sample, count)).astype(np.int64))
