"""Benchmarks and the experiments of the papers.

`compare`, `churn`, `calls`, `text`, `start` and `spark` measure the library, `server` the live
server; `paper` has the experiments of the papers. Each returns dictionaries, which `report` writes
as JSON and to the documentation. ``nearcast bench`` runs them (`nearcast.cli.bench`); they need the
extra ``bench``.
"""

from nearcast.extras import require

require("bench", "nearcast bench")
