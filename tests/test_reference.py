"""The reference: every public name has a place on a page, and a docstring."""

from __future__ import annotations

import importlib
import re

import pytest
from typer.testing import CliRunner

from nearcast import errors
from nearcast.cli import app
from pages import ROOT

PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
PACKAGES = [
    "nearcast",
    "nearcast.client",
    "nearcast.datasets",
    "nearcast.datasets.roads",
    "nearcast.errors",
    "nearcast.indexes",
    "nearcast.indexes.moving",
    "nearcast.intake",
    "nearcast.spark",
    "nearcast.testing",
]
"""The packages whose public names are all in the reference."""

PACKAGES_THEMSELVES = {"__version__", "errors", "indexes"}
"""Public names of `nearcast` that pages mention without an entry of their own."""


def documented() -> list[str]:
    found = [re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE) for page in PAGES]
    return [name for names in found for name in names]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_on_a_reference_page(package: str) -> None:
    if package == "nearcast.spark":
        pytest.importorskip("pyspark")
    public = set(importlib.import_module(package).__all__)
    # A function with the name of its module stands on its page as package.module.function.
    listed = {
        name.removeprefix(f"{package}.").partition(".")[0]
        for name in documented()
        if name.startswith(f"{package}.")
    }
    missing = public - listed - (PACKAGES_THEMSELVES if package == "nearcast" else set())
    assert not missing, f"add ::: {package}.NAME to a page of docs/reference"


def test_names_on_reference_pages_exist_and_stand_there_once() -> None:
    pytest.importorskip("pyspark")
    names = documented()
    assert len(names) == len(set(names))
    for name in names:
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), name


def test_the_page_of_errors_has_a_section_for_each_with_an_example() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL))
    for name in errors.__all__:
        if name != "NearcastError":
            assert ">>>" in sections[name], name


def test_the_page_of_errors_draws_the_tree_of_the_module() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()
    line = r"^ {4}([│ ]*[├└]─.*|NearcastError|ExpressionWarning .*)$"
    tree = re.findall(line, errors.__doc__ or "", re.MULTILINE)
    assert len(tree) == len(errors.__all__)
    assert all(f"\n    {line}\n" in text for line in tree)


def test_entries_of_docstrings_are_split_and_names_are_linked() -> None:
    griffe = pytest.importorskip("griffe")
    from mkdocs_griffe import Reference, split_entries

    assert (
        split_entries("lon, lat\n    In degrees.") == "lon\n    In degrees.\nlat\n    In degrees."
    )
    loaded = griffe.load(
        "nearcast.model.regions",
        search_paths=[ROOT / "src"],
        extensions=griffe.Extensions(Reference()),
    )
    assert "[`Rect`][nearcast.Rect]" in loaded["Region"].docstring.value


def test_methods_of_the_clients_that_are_made_of_functions_are_methods() -> None:
    griffe = pytest.importorskip("griffe")
    from mkdocs_griffe import Reference

    loaded = griffe.load(
        "nearcast", search_paths=[ROOT / "src"], extensions=griffe.Extensions(Reference())
    )
    for where in ("client.blocking.Client", "client.asynchronous.AsyncClient"):
        method = loaded[f"{where}.pause"]
        assert method.is_function
        assert [one.name for one in method.parameters] == ["self", "id"]
        assert str(method.returns) == "StoredSubscription"
        assert method.docstring.value.startswith("Make a subscription match nothing")


def test_both_clients_have_the_same_methods() -> None:
    client = importlib.import_module("nearcast.client")
    names = [
        {name for name in vars(kind) if not name.startswith("_")}
        for kind in (client.Client, client.AsyncClient)
    ]
    assert names[0] == names[1]
    for kind in (client.Client, client.AsyncClient):
        assert all(getattr(kind, name).__doc__ for name in names[0])


def test_the_page_of_http_has_all_routes_and_no_others() -> None:
    pytest.importorskip("fastapi")
    from nearcast.server.http.app import create_app
    from nearcast.server.http.problems import CODES
    from nearcast.server.service import Service  # noqa: TC001

    def never() -> Service:
        raise AssertionError

    paths = create_app(never).openapi()["paths"]
    known = {f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs}
    text = (ROOT / "docs/reference/http.md").read_text()
    shown = {*re.findall(r"^### ([A-Z]+ /[^?\n]*)$", text, re.MULTILINE)}
    assert shown == {one for one in known if "/v1/" in one}
    others = {*re.findall(r"^\| `(GET /\S*)` \|", text, re.MULTILINE)}
    assert {one for one in known if "/v1/" not in one} <= others
    for code, (status, about) in CODES.items():
        assert f"| `{code}` | {status} | {about} |" in text


def test_metrics_in_the_guide_exist() -> None:
    pytest.importorskip("prometheus_client")
    from nearcast.server.http.metrics import Metrics

    text = (ROOT / "docs/guides/server.md").read_text()
    rendered = Metrics().render().decode()
    known = {*re.findall(r"^# HELP (\w+) ", rendered, re.MULTILINE)}
    named = {*re.findall(r"`(nearcast_\w+)`", text)}
    assert named
    assert named <= known


def test_a_command_prints_the_error_that_the_page_shows() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()
    arguments = re.search(r"`nearcast (match --subscriptions nothing.*?)`", text)
    assert arguments is not None
    result = CliRunner().invoke(app, arguments[1].split())
    assert result.exit_code == 1
    assert f"\n    {result.stderr}\n" in text
