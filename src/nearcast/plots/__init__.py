"""Plots as PNG files: maps of matches, statistics, streams, and the style of all figures."""
