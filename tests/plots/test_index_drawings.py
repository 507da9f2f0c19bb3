"""Drawings of indexes: what they show is what was built, and the command writes a picture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from nearcast import indexes
from nearcast.cli import app
from nearcast.errors import NearcastError, UnknownName
from nearcast.indexes import moving
from nearcast.plots.index_drawings import Node, draw_index, read_structure
from nearcast.plots.index_drawings.example import BOOLEAN, MOVING_OPTIONS, OPTIONS
from nearcast.plots.index_drawings.moving_structures import read_moving_structure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def all_lines(node: Node) -> Iterator[str]:
    yield from node.lines
    for child in node.children:
        yield from all_lines(child)


def test_every_boolean_index_has_a_drawing() -> None:
    assert {*OPTIONS} == {*indexes.names("boolean")}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_drawing_shows_every_clause(name: str) -> None:
    structure = read_structure(name)
    is_cell = re.compile(r"-?\d+ -?\d+ -?\d+ -?\d+")
    lines = [line for line in all_lines(structure.tree) if not is_cell.fullmatch(line)]
    numbers = {int(number) for line in lines for number in re.findall(r"\b\d\b", line)}
    assert numbers >= {*range(len(BOOLEAN.boxes))}
    for area in structure.areas:
        west, south, east, north = area.box
        assert west < east
        assert south < north


def test_the_boxes_of_nodes_contain_their_clauses() -> None:
    structure = read_structure("rt-tree")
    boxes = {area.label: area.box for area in structure.areas}
    leaves = [leaf for node in structure.tree.children for leaf in node.children]
    for leaf in leaves:
        clauses = [int(line[0]) for line in leaf.lines if line[0].isdigit()]
        sides = np.array([BOOLEAN.boxes[clause] for clause in clauses])
        around = (*sides[:, :2].min(axis=0), *sides[:, 2:].max(axis=0))
        assert boxes[leaf.lines[0]] == pytest.approx(around)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_of_a_drawing_change_no_match(name: str) -> None:
    index = indexes.create(name, **OPTIONS[name]).build(BOOLEAN.clauses())
    scan = indexes.create("scan").build(BOOLEAN.clauses())
    messages = BOOLEAN.message_columns()
    assert index.match(messages).pairs() == scan.match(messages).pairs()


def test_drawings_of_grids_show_clauses_and_messages_of_cells() -> None:
    by_cell, by_token = (read_moving_structure(name).tree for name in ("ss-index", "kk-index"))
    cells = {node.lines[0]: node.lines[1:] for node in by_cell.children}
    assert cells["1,1"] == ["tea: 0 1 m0", "milk: 3 m0", "cake: 2"]
    assert cells["2,0"] == ["tea: m2", "milk: 3"]
    tokens = {node.lines[0]: node.lines[1:] for node in by_token.children}
    assert "1,1: 0 1 m0" in tokens["tea"]
    assert "0,2: 2 m1" in tokens["cake"]


def test_a_drawing_of_twin_lists_shows_both_lists_of_a_token() -> None:
    tree = read_moving_structure("twin-lists").tree
    lists = {node.lines[0]: [child.lines[0] for child in node.children] for node in tree.children}
    assert lists == {
        "tea": ["clauses: 0 1", "messages: m0 m2"],
        "milk": ["clauses: 3", "messages: m0"],
        "cake": ["clauses: 2", "messages: m1"],
    }


@pytest.mark.parametrize("name", MOVING_OPTIONS)
def test_a_drawing_of_a_moving_index_shows_every_clause_and_message(name: str) -> None:
    lines = all_lines(read_moving_structure(name).tree)
    items = {item for line in lines for item in line.replace(":", " ").split()}
    assert items >= {*"0123", "m0", "m1", "m2"}
    assert name in moving.names()


@pytest.mark.parametrize("name", ["rt-tree", "ap-tree", "ss-index"])
def test_the_command_draws_an_index(name: str, tmp_path: Path) -> None:
    out = tmp_path / "index.png"
    done = CliRunner().invoke(app, ["plot", "index", name, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "nodes" in done.output
    with Image.open(out) as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000


def test_an_index_without_a_drawing_is_known(tmp_path: Path) -> None:
    with pytest.raises(NearcastError, match=r"stamp has no drawing; there are drawings of: ap\+-"):
        draw_index("stamp", tmp_path / "x.png")
    with pytest.raises(UnknownName, match="unknown index 'stamps'"):
        draw_index("stamps", tmp_path / "x.png")
    page = CliRunner().invoke(app, ["plot", "index", "--help"]).output
    for name in {*indexes.names("boolean"), *moving.names()} - {*OPTIONS, *MOVING_OPTIONS}:
        assert name in page, name


def test_the_command_knows_no_other_index(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plot", "index", "rt-tre", "--out", str(tmp_path / "x.png")])
    assert done.exit_code != 0
    done = CliRunner().invoke(app, ["plot", "index", "rt-tree", "--out", str(tmp_path / "x.gif")])
    assert done.exit_code != 0
