"""The tables of the coverage page, from a small report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import coverage_page
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def make_file(statements: int, covered: int, branches: int, taken: int) -> dict[str, Any]:
    summary = {
        "num_statements": statements,
        "covered_lines": covered,
        "num_branches": branches,
        "covered_branches": taken,
    }
    return {"summary": summary}


REPORT = {
    "meta": {"version": "7.10", "timestamp": "2026-01-02T03:04:05"},
    "files": {
        "src/nearcast/__init__.py": make_file(10, 10, 0, 0),
        "src/nearcast/text/__init__.py": make_file(5, 5, 0, 0),
        "src/nearcast/text/words.py": make_file(60, 40, 20, 10),
        "src/nearcast/text/small.py": make_file(4, 0, 0, 0),
        "src/nearcast/spark/match.py": make_file(100, 0, 20, 0),
    },
}


def test_packages_and_modules_are_counted() -> None:
    block = coverage_page.coverage_block(REPORT, ["tests/text", "tests/test_columns.py"], "A note.")
    assert "| `nearcast` | 10 | 0 | 100.0 % |" in block
    assert "| `text` | 69 | 20 | 61.8 % |" in block
    assert "| `spark` | 100 | 20 | 0.0 % |" in block
    assert "| **total** | 179 | 40 | 29.7 % |" in block
    assert "| `text.words` | 60 | 20 | 62.5 % |" in block
    assert "spark.match" not in block, "no measured suite is about it"
    assert "text.small" not in block
    assert "- `tests/test_columns.py`" in block
    assert "Measured on 2026-01-02, with coverage 7.10" in block
    assert "A note." in block


def test_only_the_text_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{coverage_page.BEGIN}\nold\n{coverage_page.END}\nafter\n")
    coverage_page.rewrite_page(page, "\nnew\n")
    coverage_page.rewrite_page(page, "\nnewer\n")
    assert page.read_text() == f"before\n{coverage_page.BEGIN}\nnewer\n{coverage_page.END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(SystemExit, match="must contain"):
        coverage_page.rewrite_page(page, "new")
