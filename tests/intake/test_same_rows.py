"""All formats of the same rows give the same accepted rows and the same rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from same_rows import FORMATS, KINDS, outcome, rows_of, write

from effort import examples

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), typed=st.booleans())
@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_format_of_the_same_rows_is_read_alike(
    tmp_path: Path, kind: str, data: st.DataObject, typed: bool
) -> None:
    rows = data.draw(rows_of(kind))
    first, *others = FORMATS
    expected = outcome(write(tmp_path, kind, rows, first, typed=typed), kind)
    assert len(expected.ids) + len(expected.rejects) == len(rows)
    for extension in others:
        found = outcome(write(tmp_path, kind, rows, extension, typed=typed), kind)
        assert found == expected, extension
