"""The documents: links lead somewhere, tables of options are complete, commands run."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from nearcast.indexes import moving
from pages import PAGES, ROOT, is_about_kafka, is_about_spark, read_blocks, run_page

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PLAIN = [
    page
    for page in PAGES
    if not is_about_spark(page)
    and not is_about_kafka(page)
    and any(b.skip is None and ">>>" not in b.code for b in read_blocks(page))
]
"""Pages with blocks that need neither Spark nor Kafka; tests/spark and tests/kafka have others."""

MOVING_PAGES = {
    "twin-lists": "twin-lists",
    "ap+-tree": "ap-plus-tree",
    "iq+-tree": "iq-plus-tree",
    "rq+-tree": "rq-plus-tree",
    "ss-index": "ss-index",
    "kk-index": "kk-index",
    "ap+k-tree": "ap-plus-k-tree",
    "ap+s-tree": "ap-plus-s-tree",
}


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_moving_index_has_a_page() -> None:
    overview = (ROOT / "docs/indexes/index.md").read_text()
    for name in moving.names():
        if name != "moving-scan":
            assert f"[`{name}`]({MOVING_PAGES[name]}.md)" in overview
    assert {*MOVING_PAGES} == {*moving.names()} - {"moving-scan"}


@pytest.mark.parametrize("name", MOVING_PAGES)
def test_the_page_of_a_moving_index_has_all_options(name: str) -> None:
    options = moving.get(name).Options
    page = (ROOT / f"docs/indexes/{MOVING_PAGES[name]}.md").read_text()
    section = page.partition("## Options\n")[2].partition("\n## ")[0]
    if name in ("ap+k-tree", "ap+s-tree"):
        assert options is moving.get("ap+-tree").Options
        assert all(f"`{field.name}`" in section for field in fields(options))
        return
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\|", section, re.MULTILINE))
    assert table == {field.name: str(field.default) for field in fields(options)}


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) > 0
