"""The experiments of the ap-tree paper, with subscriptions that do not move.

Wang, Zhang, Zhang, Lin, Wang: "AP-Tree: efficiently support location-aware Publish/Subscribe", VLDB
Journal 2015, section 5.1. `series` has the series, the figures and the replacements of the paper's
data; `matching` and `growth` have the statements. They are from the text; the plots are not
available.
"""

from nearcast.benchmarks.paper.ap_tree.growth import GROWTH
from nearcast.benchmarks.paper.ap_tree.matching import MATCHING
from nearcast.benchmarks.paper.ap_tree.series import AP, DATA, FIGURES, SERIES
from nearcast.benchmarks.paper.experiment import Experiment

__all__ = ["AP_TREE"]

AP_TREE = Experiment(
    "ap-tree",
    "Adaptive partitions: the ap-tree",
    AP,
    SERIES,
    FIGURES,
    (*MATCHING, *GROWTH),
    DATA,
)
"""The experiment of the ap-tree paper."""
