"""The tables of the coverage page, from a small report."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

TOOL = Path(__file__).parents[1] / "tools" / "coverage_page.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_page", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


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


def test_packages_and_modules_are_counted(tool: ModuleType) -> None:
    block = tool.coverage_block(REPORT, ["tests/text", "tests/test_columns.py"], "A note.")
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


def test_only_the_text_between_the_markers_is_replaced(tool: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tool.BEGIN}\nold\n{tool.END}\nafter\n")
    tool.rewrite_page(page, "\nnew\n")
    tool.rewrite_page(page, "\nnewer\n")
    assert page.read_text() == f"before\n{tool.BEGIN}\nnewer\n{tool.END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(SystemExit, match="must contain"):
        tool.rewrite_page(page, "new")
