"""Benchmarks and the experiments of the papers.

`compare`, `churn`, `calls`, `text`, `start` and `spark` measure the library, `server` the live
server; `paper` has the experiments of the papers. Each returns dictionaries, which `report` writes
as JSON and to the documentation. ``nearcast bench`` runs them (`nearcast.cli.bench`); they need the
extra ``bench``.
"""

from nearcast.extras import require

require("bench", "nearcast bench")

from nearcast.compiled.first_calls import compile_at_once

compile_at_once()  # what is measured is compiled, whatever the size of its arrays
