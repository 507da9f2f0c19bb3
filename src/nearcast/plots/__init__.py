"""Plots: maps of matches, statistics, streams, and the style of all figures.

`draw_map` draws messages and their matches, in a notebook or as a PNG file.
"""

from nearcast.extras import require

require("plots", "nearcast.plots")

from nearcast.plots.match_map import draw_map

__all__ = ["draw_map"]
