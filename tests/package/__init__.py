"""The package as users get it: its files, each extra by itself, and ``make run``."""
