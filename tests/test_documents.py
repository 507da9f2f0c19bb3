"""The documents: links lead somewhere, tables of options are complete, commands run."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearcast.cli import app
from nearcast.indexes import moving

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_moving_index_has_a_page() -> None:
    overview = (ROOT / "docs/indexes/README.md").read_text()
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


def test_commands_of_the_page_about_moving_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/guides/moving.md").read_text()
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) >= 3
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "nearcast"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (command, result.output)
    assert (tmp_path / "updates.parquet").exists()
    assert (tmp_path / "updates.csv").read_text().count("\n") > 1
