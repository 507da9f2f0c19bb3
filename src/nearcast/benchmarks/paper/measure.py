"""Measure everything that the figures of an experiment need.

Each index is built once per data set and measured on all groups of messages. The indexes that fit
in memory at the same time are a *heat*: they run in rotation, round by round, and all get the same
messages, as many as the slowest of them can match in the time of a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast.benchmarks.answers import Answers
from nearcast.benchmarks.compare import spread
from nearcast.benchmarks.paper.figures import Group
from nearcast.benchmarks.paper.mixed import MixedLoad
from nearcast.benchmarks.paper.runner import Runner, check_sample, content_size
from nearcast.columns import Clauses
from nearcast.errors import NearcastError
from nearcast.indexes import UpdatableIndex
from nearcast.plots.machine import describe_machine

if TYPE_CHECKING:
    from nearcast.benchmarks.compare import Step
    from nearcast.benchmarks.paper.experiment import Experiment, Plan
    from nearcast.columns import Messages, Ranked

__all__ = ["measure"]

_MIN_MESSAGES = 50
"""Even the slowest index matches at least this number of messages."""

_MAX_SCORED_PAIRS = 5_000_000
"""The right answers of ranked subscriptions come from scoring every one, a microsecond each: as
many messages of the sample are compared as this allows, but at least two."""


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
        "range_share": experiment.range_share or plan.range_share,
        "figures": [figure.name for figure in experiment.figures],
        "rankings": {
            name: ranking.to_dict()
            for name in experiment.datasets
            if (ranking := experiment.data_of(name).ranking) is not None
        },
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
        self.data = experiment.data_of(dataset)
        self.workload = self.data.workload(plan.seed)
        self.progress = progress
        self.builds: list[dict[str, Any]] = []
        self.points: list[dict[str, Any]] = []
        self.mixed: list[dict[str, Any]] = []
        self._heat = 0
        self._messages: dict[str, Messages] = {}
        self._answers: dict[str, Answers] = {}

    def measure(self) -> None:
        """Build the indexes one after the other, and measure them in heats."""
        self.progress.report(f"drawing {self.dataset}")
        content = self.data.draw(self.workload, self.plan.subscriptions)
        heat: list[Runner] = []
        held = largest = 0
        for label, series in self.experiment.series.items():
            needed = self.experiment.needed(self.dataset, label)
            if not needed:
                continue
            self.progress.report(f"{self.dataset}: building {label}")
            runner = Runner(label, series, needed, self.data.kind)
            build = runner.build(content)
            self.builds.append({"dataset": self.dataset, **build})
            self.progress.report(f"{self.dataset}: built {label}", 1)
            heat.append(runner)
            size = self._memory_of(runner, content)
            held, largest = held + size, max(largest, size)
            # The next index may be as large as the largest, and need twice that during its build.
            if held + 2 * largest > self.plan.memory_bytes:
                self._run(heat, content)
                heat, held = [], 0
                del runner
        if heat:
            self._run(heat, content)

    def _memory_of(self, runner: Runner, content: Clauses | Ranked) -> int:
        """Return the size of an index in bytes, including its own clauses if it is changed."""
        changes = bool(self.experiment.needed(self.dataset, runner.label, mixed=True))
        shared = runner.series.share == runner.series.built == 1.0 and not changes
        # An index that grows has spare capacity. Ranked ones have columns for scoring besides.
        own = content.nbytes if not isinstance(content, Clauses) else 0
        return runner.index.nbytes + own + (0 if shared else content.nbytes * 3 // 2)

    def _run(self, heat: list[Runner], content: Clauses | Ranked) -> None:
        self._heat += 1
        for group in dict.fromkeys(group for runner in heat for group in runner.groups):
            runners = [runner for runner in heat if group in runner.groups]
            self.progress.report(f"{self.dataset}: {group}, heat {self._heat}")
            self._run_in_rotation(group, runners, content)
            self.progress.report(f"{self.dataset}: {group} done", len(runners))
        self._mix(heat, content)

    def _run_in_rotation(
        self, group: str, runners: list[Runner], content: Clauses | Ranked
    ) -> None:
        messages = self._messages_of(group, content)
        if group not in self._answers:
            sample = messages.take(_sample_rows(len(messages), self._sample_size(content)))
            self._answers[group] = Answers(content, sample)
        few = messages.take(np.arange(min(20, len(messages))))
        verified = [runner.verify(self._answers[group]) for runner in runners]
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
            "accessed_per_message": runner.accessed_per_message(messages),
        }

    def _sample_size(self, content: Clauses | Ranked) -> int:
        """Return how many messages are compared with the right answers."""
        if isinstance(content, Clauses):
            return self.plan.sample
        return min(self.plan.sample, max(2, _MAX_SCORED_PAIRS // content_size(content)))

    def _mix(self, heat: list[Runner], content: Clauses | Ranked) -> None:
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
        if not isinstance(content, Clauses):
            raise NearcastError("a mixed load needs boolean subscriptions; remove the figure")
        groups = list(dict.fromkeys(group for names in wanted.values() for group in names))
        load = MixedLoad(self.workload, content, self.plan, groups)
        load.begin(changing, self._messages_of(groups[0], content))
        for group in groups:
            chosen = {label: index for label, index in changing.items() if group in wanted[label]}
            self.progress.report(f"{self.dataset}: changes and {group}, heat {self._heat}")
            points = load.run(
                group, chosen, self._messages_of(group, content), self._slowest_us(group, chosen)
            )
            self.mixed += [{"dataset": self.dataset, "heat": self._heat, **p} for p in points]
            self.progress.report(f"{self.dataset}: changes and {group} done", len(chosen))
        sample = self._messages_of(groups[-1], content)
        sample = sample.take(_sample_rows(len(sample), self.plan.sample))
        for label, index in changing.items():
            check_sample(label, index, sample, load.scan(label).match(sample).pairs())

    def _slowest_us(self, group: str, changing: dict[str, UpdatableIndex]) -> float:
        return max(
            float(point["us_per_message"]["median"])
            for point in self.points
            if point["group"] == group and point["series"] in changing
        )

    def _messages_of(self, group: str, content: Clauses | Ranked) -> Messages:
        if group not in self._messages:
            chosen = Group.named(group)
            share = self.experiment.range_share or self.plan.range_share
            messages = self.workload.messages(
                self.plan.messages,
                tokens=chosen.tokens,
                range_share=share if chosen.ranges else 0.0,
            )
            if not isinstance(content, Clauses):
                messages = content.weigh(messages)
            self._messages[group] = messages
        return self._messages[group]


def _sample_rows(count: int, sample: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.unique(np.linspace(0, count - 1, min(sample, count)).astype(np.int64))
