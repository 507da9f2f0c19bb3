"""The experiments of the papers: their statements, compared with measurements of Nearcast.

An `Experiment` is data: series (indexes with options), figures (the series, data sets and groups of
messages to measure) and the statements of the paper. `measure` measures everything that the figures
need and builds each index once, `judge` compares the statements with the measurements, and `plots`
draws the figures. There is one module per paper: `rt`, `lfilter`, `ap_tree`, `stamp`, `rt_ranked`
for the ranked subscriptions of the rt-tree's, and `ap_plus` for the moving ones of the ap-tree's,
which `measure_moving` measures tick by tick.
"""

from nearcast.benchmarks.paper.ap_plus import AP_PLUS
from nearcast.benchmarks.paper.ap_tree import AP_TREE
from nearcast.benchmarks.paper.data import Boolean, Data, Drifting
from nearcast.benchmarks.paper.experiment import Experiment, Plan, Series
from nearcast.benchmarks.paper.figures import Figure, Group, Point, Sweep
from nearcast.benchmarks.paper.lfilter import LFILTER
from nearcast.benchmarks.paper.measure import measure
from nearcast.benchmarks.paper.moving import MovingExperiment, MovingPaperPlan, measure_moving
from nearcast.benchmarks.paper.plots import plot_figures
from nearcast.benchmarks.paper.rt import RT
from nearcast.benchmarks.paper.rt_ranked import RT_RANKED
from nearcast.benchmarks.paper.stamp import STAMP
from nearcast.benchmarks.paper.statements import Case, Statement, Verdict, judge
from nearcast.benchmarks.paper.table import NOTE, statement_table, summary_table

__all__ = [
    "MOVING_PAPERS",
    "NOTE",
    "PAPERS",
    "Boolean",
    "Case",
    "Data",
    "Drifting",
    "Experiment",
    "Figure",
    "Group",
    "MovingExperiment",
    "MovingPaperPlan",
    "Plan",
    "Point",
    "Series",
    "Statement",
    "Sweep",
    "Verdict",
    "find_paper",
    "judge",
    "measure",
    "measure_moving",
    "plot_figures",
    "statement_table",
    "summary_table",
]

PAPERS: dict[str, Experiment] = {one.name: one for one in (RT, LFILTER, AP_TREE, STAMP, RT_RANKED)}
"""The experiments with subscriptions that stay, by name."""

MOVING_PAPERS: dict[str, MovingExperiment] = {AP_PLUS.name: AP_PLUS}
"""The experiments with subscriptions that move, by name."""


def find_paper(name: str) -> Experiment:
    """Return the experiment of a name, with subscriptions that stay or that move."""
    return MOVING_PAPERS[name] if name in MOVING_PAPERS else PAPERS[name]
