"""Plots as PNG files: maps of matches, statistics, streams, and the style of all figures."""

from nearcast.extras import require

require("plots", "nearcast.plots")
