"""The public surface: names, errors, and what an import brings along."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import nearcast
from nearcast import errors


def test_the_public_names_are_there() -> None:
    assert all(hasattr(nearcast, name) for name in nearcast.__all__)


def test_a_plain_import_stays_plain() -> None:
    """No Spark, server, command line, plots or test tools come along."""
    program = "from nearcast import *; import sys; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = {"pyspark", "fastapi", "typer", "rich", "matplotlib", "hypothesis", "pandas"}
    ours = {"nearcast.datasets", "nearcast.cli", "nearcast.spark", "nearcast.server"}
    assert not (heavy | ours) & set(run.stdout.split())


def test_names_are_listed_and_others_are_unknown() -> None:
    assert set(nearcast.__all__) <= set(dir(nearcast))
    with pytest.raises(AttributeError, match="no attribute 'Enigne'"):
        _ = nearcast.Enigne


def test_errors_form_one_tree() -> None:
    warning = {"ExpressionWarning"}
    for name in {*errors.__all__} - warning:
        assert issubclass(getattr(errors, name), errors.NearcastError)


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidInput("lat", 91, "must be at most 90"),
        errors.RegionError("geometry", {}, "has no type"),
        errors.ExpressionError("a AND", 5, "a keyword must follow AND"),
        errors.UnknownName("option", "b", ["list_size"], of="trie-pyramid"),
    ],
)
def test_errors_survive_pickling(error: errors.NearcastError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_an_expression_error_points_at_the_character() -> None:
    text = str(errors.ExpressionError("tea AND )", 8, "unexpected )"))
    *_, shown, caret = text.splitlines()
    assert shown[caret.index("^")] == ")"


def test_what_is_missing_has_no_value() -> None:
    assert (
        str(errors.InvalidInput("id", None, "is missing; give one")) == "id: is missing; give one"
    )
    assert str(errors.InvalidInput("id", None, "must be a string")).endswith("(got None)")


def test_a_name_may_belong_to_something() -> None:
    found = str(errors.UnknownName("option", "b", ["a"], of="scan"))
    assert found == "unknown option 'b' of scan; choose from: a"
    assert str(errors.UnknownName("option", "b", [])) == "unknown option 'b'; there are none"


def test_long_values_are_shortened() -> None:
    assert len(str(errors.InvalidInput("id", "x" * 10_000, "is too long"))) < 200
