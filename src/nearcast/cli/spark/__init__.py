"""``nearcast spark``: the data pipeline, one file per command."""
