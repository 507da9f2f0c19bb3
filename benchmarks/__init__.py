"""Benchmarks and the experiments of the papers; a part of the source checkout, not of the package.

`compare`, `churn`, `calls`, `text`, `start` and `spark` measure what the library does; `paper` has
the experiments of the papers. Each returns plain dictionaries, which `report` writes as JSON and
into the README. `commands` is ``nearcast bench``.
"""
