"""What all tests, doctests among them, have in common."""

import gc
import os
import re
from typing import Any

import pytest
from hypothesis import settings

from effort import LONG, examples

# Tests are of compiled kernels, whatever the size of their arrays. The first calls as plain Python
# have tests of their own (tests/compiled/test_first_calls.py).
os.environ.setdefault("NEARCAST_COMPILE", "at-once")

# What is made while tests are collected stays. Looking for garbage in it, again and again, took a
# twelfth of the time of all tests (see `pytest_collection_finish`).
gc.disable()

# Fixtures with a real PostgreSQL (tests/server/postgres.py), with a server and its clients, and
# with the page in a browser.
pytest_plugins = ["postgres", "client_fixtures", "web_fixtures"]

# Kernels are compiled at their first call, for which no deadline allows. Examples that failed are
# kept in .hypothesis, and tried first the next time.
settings.register_profile("nearcast", deadline=None, max_examples=examples(100))
settings.load_profile("nearcast")

FAMILIES = {
    "rtree": r"spatial-first|ir-tree|rt\+*-tree|rtree|test_rt_|test_tree_changes",
    "lfilter": "lfilter|mbr-trie|pt-quadtree|mbr_trie|pt_quadtree",
    "quadtrees": "[ir]q-tree|trie-quadtree|quadtrees|test_[ir]q_|test_trie_quadtree",
    "ap-tree": r"ap\+?[ks]?-tree|ap_tree|ap_plus|test_ap_",
    "trie-pyramid": "trie-pyramid|keyword-first|trie_pyramid|keyword_first",
    "stamp": "stamp",
    "ranked-pyramid": "ranked-pyramid|ranked_pyramid",
}
"""Indexes that share kernels, and how the names of their tests and modules are recognized."""

FIRST = [
    "tests/spark/test_stream_killed.py",
    "tests/spark/test_updates_killed.py",
    *FAMILIES,
    "tests/benchmarks/test_bench_server.py",
    "tests/server/faults/test_malformed_requests.py",
    "tests/server/faults/test_server_killed.py",
    "tests/server/faults/test_webhook_faults.py",
    "tests/server/test_state.py",
    "tests/server/matching/test_events.py",
    "tests/server/test_audit.py",
]
"""What takes longest, so that no worker is left with it at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests to the long form, and put first what takes longest."""
    if not LONG:
        long = [item for item in items if item.get_closest_marker("long")]
        if long:
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if not item.get_closest_marker("long")]
    rank = {group: number for number, group in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(_group(item.nodeid), len(rank)))


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among what was collected."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run all tests of a family of indexes, or of a file.

    Two workers would otherwise wait for each other to compile the same kernels, and make the same
    fixtures.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False  # ours is the order above
    return Scheduling(config, log)


def _group(test: str) -> str:
    path, _, name = test.partition("::")
    for where in (name, path) if "benchmarks" not in path else ():
        for family, pattern in FAMILIES.items():
            if re.search(pattern, where):
                return family
    return path
