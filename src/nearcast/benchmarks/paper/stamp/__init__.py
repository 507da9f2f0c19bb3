"""The experiments of the stamp paper, with proximity subscriptions.

Hu, Liu, Li, Feng, Tan: "A Location-Aware Publish/Subscribe Framework for Parameterized
Spatio-Textual Subscriptions", ICDE 2015, section VII. `series` has the data, the series and the
figures, `statements` what the text says. The plots are not available, and the user study (table
II) cannot be repeated.
"""

from nearcast.benchmarks.paper.experiment import Experiment
from nearcast.benchmarks.paper.stamp.series import DATA, FIGURES, NOTE, SERIES, STAMP_LABEL, SUMMARY
from nearcast.benchmarks.paper.stamp.statements import STATEMENTS

__all__ = ["STAMP"]

STAMP = Experiment(
    "stamp",
    "Parameterized subscriptions by proximity: stamp",
    STAMP_LABEL,
    SERIES,
    FIGURES,
    STATEMENTS,
    DATA,
    note=NOTE,
    summary=SUMMARY,
)
"""The experiment of the stamp paper."""
