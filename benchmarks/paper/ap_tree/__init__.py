"""The experiments of the ap-tree paper, with subscriptions that stay where they are.

Wang, Zhang, Zhang, Lin, Wang: "AP-Tree: efficiently support location-aware Publish/Subscribe", VLDB
Journal 2015, section 5.1. `series` has what is measured, and what stands for the paper's data;
`matching` and `growth` the statements. These are those of the text; the pictures are lost.
"""

from benchmarks.paper.ap_tree.growth import GROWTH
from benchmarks.paper.ap_tree.matching import MATCHING
from benchmarks.paper.ap_tree.series import AP, DATA, FIGURES, SERIES
from benchmarks.paper.experiment import Experiment

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
"""All of it."""
