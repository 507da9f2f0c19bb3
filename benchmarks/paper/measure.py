"""Measure everything that the figures of an experiment need.

Each index is built once per data set and measured on all groups of messages. The indexes that fit
in memory at the same time are a *heat*: they run in rotation, round by round, and all get the same
messages, as many as the slowest of them can match in the time of a round.
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

_MIN_MESSAGES = 50
"""Even the slowest index matches at least this number of messages."""


def measure(
    experiment: Experiment, plan: Plan, step: Step = lambda name, done, total: None
) -> dict[str, Any]:
    """Build and measure everything; return all measurements.

    Raises
    ------
    NearcastError
        If the matches of an index differ from the scan's.
    """
    progress = _Progress(experiment, step)
    runs = [_DatasetRun(experiment, plan, name, progress) for name in experiment.datasets]
    for run in runs:
        run.measure()
    progress.report("done")
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
    """Counts finished builds and points."""

    def __init__(self, experiment: Experiment, step: Step) -> None:
        self._step = step
        self.done = 0
        self._total = 0
        for dataset in experiment.datasets:
            for label in experiment.series:
                needed = experiment.needed(dataset, label)
                mixed = experiment.needed(dataset, label, mixed=True)
                self._total += bool(needed) + len(needed) + len(mixed)

    def report(self, name: str, finished: int = 0) -> None:
        """Report the current step, after ``finished`` more steps were finished."""
        self.done += finished
        self._step(name, self.done, self._total)


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
        """Build the indexes one after the other, and measure them in heats."""
        self.progress.report(f"drawing {self.dataset}")
        clauses = self.workload.subscriptions(self.plan.subscriptions)
        heat: list[Runner] = []
        held = largest = 0
        for label, series in self.experiment.series.items():
            needed = self.experiment.needed(self.dataset, label)
            if not needed:
                continue
            self.progress.report(f"{self.dataset}: building {label}")
            runner = Runner(label, series, needed)
            build = runner.build(clauses)
            self.builds.append({"dataset": self.dataset, **build})
            self.progress.report(f"{self.dataset}: built {label}", 1)
            heat.append(runner)
            size = self._memory_of(runner, clauses)
            held, largest = held + size, max(largest, size)
            # The next index may be as large as the largest, and need twice that during its build.
            if held + 2 * largest > self.plan.memory_bytes:
                self._run(heat, clauses)
                heat, held = [], 0
                del runner
        if heat:
            self._run(heat, clauses)

    def _memory_of(self, runner: Runner, clauses: Clauses) -> int:
        """Return the size of an index in bytes, including its own clauses if it is changed."""
        changes = bool(self.experiment.needed(self.dataset, runner.label, mixed=True))
        shared = runner.series.share == runner.series.built == 1.0 and not changes
        # An index that grows has spare capacity.
        return runner.index.nbytes + (0 if shared else clauses.nbytes * 3 // 2)

    def _run(self, heat: list[Runner], clauses: Clauses) -> None:
        self._heat += 1
        for group in dict.fromkeys(group for runner in heat for group in runner.groups):
            runners = [runner for runner in heat if group in runner.groups]
            self.progress.report(f"{self.dataset}: {group}, heat {self._heat}")
            self._run_in_rotation(group, runners, clauses)
            self.progress.report(f"{self.dataset}: {group} done", len(runners))
        self._mix(heat, clauses)

    def _run_in_rotation(self, group: str, runners: list[Runner], clauses: Clauses) -> None:
        messages = self._messages_of(group)
        sample = messages.take(_sample_rows(len(messages), self.plan.sample))
        if group not in self._expected:
            scan = indexes.create("scan").build(clauses)
            self._expected[group] = scan.match(sample).pairs()
        few = messages.take(np.arange(min(20, len(messages))))
        verified = [runner.verify(sample, self._expected[group]) for runner in runners]
        slowest_us = max(runner.match(few) for runner in runners)
        count = int(self.plan.point_s / self.plan.rounds * 1e6 / max(slowest_us, 1e-3))
        messages = messages.take(np.arange(min(max(count, _MIN_MESSAGES), len(messages))))
        points = [self._match_once(runner, group, messages) for runner in runners]
        for turn in range(self.plan.rounds):
            for i in range(len(runners)):
                runner = runners[(turn + i) % len(runners)]
                runner.rounds_us.append(runner.match(messages))
        for runner, point, checked in zip(runners, points, verified, strict=True):
            point |= checked
            point["us_per_message"] = spread(runner.rounds_us)
            point["rounds_us"] = runner.rounds_us
        self.points += points

    def _match_once(self, runner: Runner, group: str, messages: Messages) -> dict[str, Any]:
        """Match all messages once, to warm up and to get the counts."""
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
        """Run the mixed load. It changes the indexes, so they cannot be used afterwards."""
        wanted = {
            runner.label: self.experiment.needed(self.dataset, runner.label, mixed=True)
            for runner in heat
        }
        changing: dict[str, UpdatableIndex] = {}
        for runner in heat:
            if wanted[runner.label]:
                if not isinstance(runner.index, UpdatableIndex):
                    raise NearcastError(
                        f"{runner.label} cannot be changed in place; remove it from the mixed load"
                    )
                changing[runner.label] = runner.index
        if not changing:
            return
        groups = list(dict.fromkeys(group for names in wanted.values() for group in names))
        load = MixedLoad(self.workload, clauses, self.plan, groups)
        load.begin(changing, self._messages_of(groups[0]))
        for group in groups:
            chosen = {label: index for label, index in changing.items() if group in wanted[label]}
            self.progress.report(f"{self.dataset}: changes and {group}, heat {self._heat}")
            points = load.run(
                group, chosen, self._messages_of(group), self._slowest_us(group, chosen)
            )
            self.mixed += [{"dataset": self.dataset, "heat": self._heat, **p} for p in points]
            self.progress.report(f"{self.dataset}: changes and {group} done", len(chosen))
        sample = self._messages_of(groups[-1])
        sample = sample.take(_sample_rows(len(sample), self.plan.sample))
        for label, index in changing.items():
            check_sample(label, index, sample, load.scan(label).match(sample).pairs())

    def _slowest_us(self, group: str, changing: dict[str, UpdatableIndex]) -> float:
        return max(
            float(point["us_per_message"]["median"])
            for point in self.points
            if point["group"] == group and point["series"] in changing
        )

    def _messages_of(self, group: str) -> Messages:
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
