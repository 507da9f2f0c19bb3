"""What all tests, doctests among them, have in common."""

from hypothesis import settings

# Kernels are compiled at their first call, for which no deadline allows.
settings.register_profile("nearcast", deadline=None)
settings.load_profile("nearcast")
