"""Every index, every check; then whatever Hypothesis thinks of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from nearcast import indexes
from nearcast.testing import CHECKS, Case
from nearcast.testing import strategies as draw
from nearcast.testing.checks import Check, agrees

if TYPE_CHECKING:
    from nearcast.columns import Clauses, Messages
    from nearcast.indexes import Builder

SEED = int(os.environ.get("NEARCAST_TEST_SEED", "0"))

BUILDERS = {
    **{name: indexes.create(name) for name in indexes.names()},
    "trie-pyramid, all nodes": indexes.create(
        "trie-pyramid", list_size=1, child_size=1, level_size=1
    ),
    "trie-pyramid, all lists": indexes.create("trie-pyramid", list_size=10**6),
    "trie-pyramid, flat nodes": indexes.create(
        "trie-pyramid", list_size=1, child_size=3, level_size=10**6
    ),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
def test_check(builder: Builder, check: Check) -> None:
    check(builder, SEED)


@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
@settings(max_examples=60, deadline=None)
@given(clauses=draw.clauses(), messages=draw.messages())
def test_agrees_on_anything(builder: Builder, clauses: Clauses, messages: Messages) -> None:
    agrees(builder, Case("drawn", clauses, messages))
