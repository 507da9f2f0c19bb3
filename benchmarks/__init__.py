"""Benchmarks and the experiments of the papers. Not part of the installed package.

`compare`, `churn`, `calls`, `text`, `start` and `spark` measure the library; `paper` has the
experiments of the papers. Each returns dictionaries, which `report` writes as JSON and to the
README. `commands` has the commands of ``nearcast bench``.
"""
