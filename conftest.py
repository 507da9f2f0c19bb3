"""What all tests, doctests among them, have in common."""

import re

import pytest
from hypothesis import settings

# Kernels are compiled at their first call, for which no deadline allows.
settings.register_profile("nearcast", deadline=None)
settings.load_profile("nearcast")

FAMILIES = {
    "ap-tree": "ap-tree|ap_tree|test_ap_",
    "quadtrees": "[ir]q-tree|trie-quadtree|quadtrees|test_[ir]q_|test_trie_quadtree",
    "lfilter": "lfilter|mbr-trie|pt-quadtree|mbr_trie|pt_quadtree",
    "rtree": r"spatial-first|ir-tree|rt\+*-tree|rtree|test_rt_|test_tree_changes",
    "trie-pyramid": "trie-pyramid|keyword-first|trie_pyramid|keyword_first",
}
"""Indexes that share kernels, and how the names of their tests and modules are recognized."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run all tests of a family of indexes, or of a file.

    Two workers would otherwise wait for each other to compile the same kernels, and start a Spark
    session each for tests that could share one.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item.nodeid)))


def _group(test: str) -> str:
    path, _, name = test.partition("::")
    for where in (name, path) if "benchmarks" not in path else ():
        for family, pattern in FAMILIES.items():
            if re.search(pattern, where):
                return family
    return path
