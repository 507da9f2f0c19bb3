"""The table in the documentation says what the reader does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from format_table import CASES, Case, read_case, rows_of_document

if TYPE_CHECKING:
    from pathlib import Path


def test_the_document_has_all_cases() -> None:
    described = [row[:3] for row in rows_of_document()]
    assert described == [[case.source, case.column, case.value] for case in CASES]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n].source}")
def test_the_document_says_what_the_reader_does(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyproj", None)
    case: Case = CASES[number]
    assert rows_of_document()[number][3] == read_case(case, tmp_path)
