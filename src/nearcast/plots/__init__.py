"""Pictures, as PNG files: maps of matches, statistics, streams, and what benchmarks draw."""
