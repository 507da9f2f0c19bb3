"""Workloads, experiments and pictures.

A `Workload` makes subscriptions and messages of a data set from a seed. Experiments (`compare`,
`churn`, `text`, `start`; those of the papers in `paper`) measure what the library does with them
and return plain dictionaries, which `report` writes as JSON and into the README; `plots` and
`match_map` draw. The command line is in `nearcast.cli`.
"""

from nearcast.bench.workloads import DATASETS, Workload

__all__ = ["DATASETS", "Workload"]
