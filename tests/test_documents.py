"""The documents: links lead somewhere, tables of options are complete, commands run."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from mkdocs_hooks import command_reference
from nearcast import indexes
from nearcast.indexes import moving, registry
from pages import PAGES, ROOT, is_about_kafka, is_about_spark, read_blocks, run_page

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
COMMANDS = ROOT / "docs/reference/commands.md"
"""A page that only the site has."""
PLAIN = [
    page
    for page in PAGES
    if not is_about_spark(page)
    and not is_about_kafka(page)
    and any(not b.skip and ">>>" not in b.code for b in read_blocks(page))
]
"""Pages with blocks that need neither Spark nor Kafka; tests/spark and tests/kafka have others."""

RANKED_PAGES = {
    "ranked-pyramid": "ranked-pyramid",
    "stamp": "stamp",
    "ir-tree-1": "ir-tree-1",
    "ir-tree-100": "ir-tree-1",
    "rt-tree": "rt-trees-ranked",
    "rt+-tree": "rt-trees-ranked",
    "rt++-tree": "rt-trees-ranked",
    "scan": "scan",
}
"""The pages of ranked indexes; others have a page with their own name."""


def index_pages() -> dict[str, list[type]]:
    """Return the pages of all indexes with the classes of options that each describes."""
    pages: dict[str, list[type]] = {}
    for name in indexes.names("boolean"):
        pages.setdefault(page_of(name), []).append(indexes.get(name).Options)
    for name in sorted({*indexes.names("proximity"), *indexes.names("overlap")}):
        form = indexes.get(name).ranked_form or indexes.get(name)
        pages.setdefault(RANKED_PAGES[name], []).append(form.Options)
    for name in sorted({*moving.names()} - {"moving-scan"}):
        pages.setdefault(page_of(name), []).append(moving.get(name).Options)
    return pages


def page_of(name: str) -> str:
    """Return the name of a page: rt++-tree is rt-plus-plus-tree, ap+k-tree is ap-plus-k-tree."""
    return re.sub(r"\+(?=[a-z])", "-plus-", name).replace("+", "-plus")


def sources(folder: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")]


def without_code(page: Path) -> str:
    text = command_reference() if page == COMMANDS else page.read_text()
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


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
        assert linked.exists() or linked == COMMANDS, target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_in_the_text_exist(name: str) -> None:
    text = (ROOT / name).read_text().partition("## Add an index")[0]  # files of an index to be
    paths = {path.as_posix() for folder in ("src", "tests", "tools") for path in sources(folder)}
    paths |= {path.name for path in ROOT.glob("*.py")}
    for file in re.findall(r"`([\w/]+\.py)`", text):
        assert any(f"/{path}".endswith(f"/{file}") for path in paths), file


def test_the_table_of_extras_has_all_that_are_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for_users = {*project["optional-dependencies"]} - {"dev", "docs"}
    table = (ROOT / "docs/index.md").read_text().partition("| extra | adds | for |")[2]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(listed) == len({*listed})
    assert {*listed} == for_users


def test_every_index_has_a_page_and_a_line_in_the_overview() -> None:
    overview = (ROOT / "docs/indexes/index.md").read_text()
    boolean, rest = overview.split("\n## Indexes of ranked subscriptions\n")
    ranked, moved = rest.split("\n## Indexes of what moves\n")
    for name in indexes.names("boolean"):
        assert f"\n| [`{name}`]({page_of(name)}.md) |" in boolean
    for name in sorted({*indexes.names("proximity"), *indexes.names("overlap")}):
        assert re.search(rf"\| \[[^]]*`{re.escape(name)}`.*\]\({RANKED_PAGES[name]}\.md\)", ranked)
    for name in sorted({*moving.names()} - {"moving-scan"}):
        assert f"\n| [`{name}`]({page_of(name)}.md) |" in moved
    written = {page.stem for page in (ROOT / "docs/indexes").glob("*.md")} - {"index"}
    assert written == {*index_pages()}


@pytest.mark.parametrize("page", index_pages())
def test_the_page_of_an_index_has_all_options(page: str) -> None:
    options = [field for form in index_pages()[page] for field in fields(form)]
    text = (ROOT / f"docs/indexes/{page}.md").read_text()
    section = text.partition("## Options\n")[2].partition("\n## ")[0]
    if page in ("ap-plus-k-tree", "ap-plus-s-tree"):
        assert index_pages()[page] == index_pages()["ap-plus-tree"]
        assert all(f"`{field.name}`" in section for field in options)
        return
    table = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*?)`? ?\|", section, re.MULTILINE))
    assert table == {field.name: str(field.default) for field in options}


@pytest.mark.parametrize("name", indexes.names("boolean"))
def test_the_page_of_a_boolean_index_shows_its_picture(name: str) -> None:
    page = ROOT / f"docs/indexes/{page_of(name)}.md"
    assert f"](../images/index-{page_of(name)}.png)" in page.read_text()


def test_the_pictures_of_indexes_are_small_and_shown() -> None:
    texts = [page.read_text() for page in (ROOT / "docs/indexes").glob("*.md")]
    for picture in (ROOT / "docs/images").glob("index-*.png"):
        assert picture.stat().st_size < 120_000
        assert any(f"](../images/{picture.name})" in text for text in texts)


def named(page: Path) -> pytest.ParameterSet:
    """Return a page with its name; what pages of benchmarks run takes long."""
    marks = [pytest.mark.long] if page.parent.name == "benchmarks" else []
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", [named(page) for page in PLAIN])
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A page may bring an index of its own, which other tests should not see.
    monkeypatch.setattr(registry, "_registered", {**registry._registered})
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = {*sys.modules}
    assert run_page(page, tmp_path) > 0
    for name in {*sys.modules} - known:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]
