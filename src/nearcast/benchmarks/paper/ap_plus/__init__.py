"""The experiments of the ap-tree paper with moving subscriptions: the ap+-tree.

Wang, Zhang, Zhang, Lin, Wang: "AP-Tree: efficiently support location-aware Publish/Subscribe", VLDB
Journal 2015, section 5.2. `series` has the scenes, the series and the figures, `statements` what
the text says. The plots are not available. The safe-region system of figures 26 and 27 is not
rebuilt: we show our own time, and how many moves need no update.
"""

from nearcast.benchmarks.paper.ap_plus.series import AP, FIGURES, NOTE, SCENES, SERIES
from nearcast.benchmarks.paper.ap_plus.statements import STATEMENTS
from nearcast.benchmarks.paper.moving import MovingExperiment

__all__ = ["AP_PLUS"]

AP_PLUS = MovingExperiment(
    "ap-plus",
    "Moving subscriptions: the ap+-tree",
    AP,
    SERIES,
    FIGURES,
    STATEMENTS,
    note=NOTE,
    scenes=SCENES,
)
"""The experiment of section 5.2 of the ap-tree paper."""
