"""Public checks for indexes: whoever writes an index can hold it against the scan.

`check_index` runs every check of `CHECKS` over an index, by name or as a `Builder`; each check
raises `AssertionError` with the first difference. `cases` makes the data (a coarse lattice of
places, so that ties and borders are common). `nearcast.testing.strategies` has the same for
Hypothesis, where ``hypothesis`` is installed.

>>> from nearcast.testing import check_index
>>> check_index("scan", rounds=1)
"""

from nearcast.testing.cases import CASES, Case, draw
from nearcast.testing.checks import CHECKS, check_index

__all__ = ["CASES", "CHECKS", "Case", "check_index", "draw"]
