"""The experiments of the papers, run again: what is printed, and what is measured here.

An `Experiment` is data: series (indexes with options), figures (which series are measured on which
data and groups of messages) and the paper's statements about them. `measure` measures all that the
figures need, each index built once; `judge` holds the statements against it; `plots` draws the
figures. One module for each paper: `rt`, `lfilter`, `ap_tree`.
"""

from benchmarks.paper.ap_tree import AP_TREE
from benchmarks.paper.data import Boolean, Data, Drifting
from benchmarks.paper.experiment import Experiment, Plan, Series
from benchmarks.paper.figures import Figure, Group, Spot, Sweep
from benchmarks.paper.lfilter import LFILTER
from benchmarks.paper.measure import measure
from benchmarks.paper.plots import plot_figures
from benchmarks.paper.rt import RT
from benchmarks.paper.statements import Case, Statement, Verdict, judge
from benchmarks.paper.table import NOTE, statement_table

__all__ = [
    "NOTE",
    "PAPERS",
    "Boolean",
    "Case",
    "Data",
    "Drifting",
    "Experiment",
    "Figure",
    "Group",
    "Plan",
    "Series",
    "Spot",
    "Statement",
    "Sweep",
    "Verdict",
    "judge",
    "measure",
    "plot_figures",
    "statement_table",
]

PAPERS: dict[str, Experiment] = {one.name: one for one in (RT, LFILTER, AP_TREE)}
"""The experiments by the names of the papers' indexes."""
