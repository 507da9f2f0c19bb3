"""Which connector is taken; nothing here needs the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
import pytest

from nearcast.spark.kafka import connector

from . import jars
from .jars import Unavailable, Wanted, connectors, fetch, fetch_first

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEARCAST_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def central(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A Maven Central that has what is on this list."""
    there: list[str] = []

    def resolve(wanted: Wanted, work: Path) -> None:
        if wanted.name not in there:
            raise Unavailable(f"{wanted.name}: not found")
        (work / "jars").mkdir()
        (work / "jars" / "one.jar").touch()

    monkeypatch.setattr(jars, "_resolve", resolve)
    return there


def test_the_connector_is_that_of_the_installed_pyspark() -> None:
    assert connector() == connector(pyspark.__version__)


def test_the_same_version_is_tried_first_and_a_foreign_provider_after_the_own() -> None:
    assert [wanted.name for wanted in connectors("4.3.0")] == [
        "connector-4.3.0",
        "connector-4.3.0-provider-4.0.0",
        "connector-4.2.0",
        "connector-4.2.0-provider-4.0.0",
    ]
    assert connectors("4.0.0")[0].name == "connector-4.0.0"
    assert connectors("4.0.0")[0].instead == ()


def test_the_first_choice_that_can_be_had_is_taken(central: list[str]) -> None:
    choices = [Wanted(name, ()) for name in "abc"]
    central += ["b", "c"]
    assert fetch_first(choices)[0].name == "b"


def test_the_first_choice_wins_over_what_is_here_already(central: list[str]) -> None:
    choices = [Wanted(name, ()) for name in "abc"]
    central += ["c"]
    assert fetch_first(choices)[0].name == "c"
    central += ["a", "b"]
    assert fetch_first(choices)[0].name == "a"
    central.clear()
    assert fetch_first([Wanted("x", ()), *choices])[0].name == "a"


def test_what_cannot_be_had_is_named(central: list[str]) -> None:
    with pytest.raises(Unavailable, match="a: not found; b: not found"):
        fetch_first([Wanted("a", ()), Wanted("b", ())])


def test_jars_are_fetched_once_and_nothing_is_left_beside_them(
    central: list[str], cache: Path
) -> None:
    central += ["a"]
    once = fetch(Wanted("a", ()))
    central.clear()
    assert fetch(Wanted("a", ())) == once == [cache / "jars" / "a" / "one.jar"]
    assert list((cache / "jars").iterdir()) == [cache / "jars" / "a"]


def test_what_ivy_did_not_find_is_unavailable_and_an_ivy_that_breaks_is_an_error() -> None:
    said = "\n\t\t::  UNRESOLVED  ::\n\t\t:: org.a#b;1: not found\n\t\t::::::::\n"
    missing = jars._failure(Wanted("a", ()), said)
    assert isinstance(missing, Unavailable)
    assert str(missing) == "a: org.a#b;1: not found"
    broken = jars._failure(Wanted("a", ()), "java.lang.Error\n")
    assert isinstance(broken, RuntimeError)
    assert "java.lang.Error" in str(broken)
