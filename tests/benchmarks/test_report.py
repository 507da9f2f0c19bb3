"""Results as JSON files and on the pages of benchmarks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.benchmarks.report import read_result, rewrite_tables, tables_block, write_result
from nearcast.errors import UnsupportedFile
from pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = {"processor": "Toaster", "cores": 3, "memory_gb": 1.5, "python": "3.11", "numba": "1"}


def text_result(us: float) -> dict[str, Any]:
    return {
        "experiment": "text",
        "dataset": "tweets",
        "messages": 100,
        "rounds": 2,
        "seed": 0,
        "us_per_message": {"median": us, "least": us, "most": us},
        "tokens_per_message": 12.96,
        "bytes_per_message": 78.6,
        "vocabulary": 1_000_000,
        "machine": MACHINE,
    }


def test_only_the_block_is_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench:begin -->old<!-- bench:end -->\nafter\n")
    rewrite_tables(readme, [text_result(1.234)])
    once = readme.read_text()
    rewrite_tables(readme, [text_result(1.234)])
    assert readme.read_text() == once
    assert once.startswith("before\n<!-- bench:begin -->\n")
    assert once.endswith("<!-- bench:end -->\nafter\n")
    assert "old" not in once
    assert "\n## From text to token ids\n" in once
    assert "| 1.23 | 13 | 78.6 | 1,000,000 |" in once
    assert "`nearcast bench text --dataset tweets --messages 100 --rounds 2 --seed 0`" in once
    assert once.count("Toaster, 3 cores") == 1


def test_each_table_has_a_heading_of_its_own() -> None:
    headings = re.findall("^## (.*)$", tables_block([text_result(1.0)] * 3), re.MULTILINE)
    assert len(set(headings)) == len(headings) == 3


def test_the_summary_has_only_figures_of_the_other_pages() -> None:
    folder = ROOT / "docs" / "benchmarks"
    summary = (folder / "index.md").read_text().partition("## Summary\n")[2].partition("\n## ")[0]
    figures = re.findall(r"([\d.,]*\d) (?:µs|s\b|bytes)", summary)
    pages = [folder / f"{name}.md" for name in ("boolean", "ranked", "moving")]
    others = "".join(page.read_text() for page in pages)
    assert len(figures) >= 14
    for figure in figures:
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d.,]*\d)", others), figure


@pytest.mark.parametrize("text", ["", "<!-- bench:end --><!-- bench:begin -->", "bench:begin"])
def test_a_file_without_markers_is_not_changed(text: str, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(UnsupportedFile, match="bench:begin"):
        rewrite_tables(readme, [text_result(1.0)])
    assert readme.read_text() == text


def test_results_can_be_read_again_and_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "text.json"
    write_result(text_result(2.0), path)
    assert read_result(path) == text_result(2.0)
    assert [file.name for file in path.parent.iterdir()] == ["text.json"]
    for content, message in (("{", "not JSON"), ("[]", "experiments"), ("{}", "experiments")):
        path.write_text(content)
        with pytest.raises(UnsupportedFile, match=message):
            read_result(path)
    with pytest.raises(UnsupportedFile, match="no such file"):
        read_result(tmp_path / "other.json")
