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
    program = "import nearcast, sys; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = {"pyspark", "fastapi", "typer", "rich", "matplotlib", "hypothesis", "pandas"}
    ours = {"nearcast.datasets", "nearcast.cli", "nearcast.spark", "nearcast.server"}
    assert not (heavy | ours) & set(run.stdout.split())


def test_errors_form_one_tree() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.NearcastError)


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidInput("lat", 91, "must be at most 90"),
        errors.RegionError("geometry", {}, "has no type"),
        errors.ExpressionError("a AND", 5, "a keyword must follow AND"),
    ],
)
def test_errors_survive_pickling(error: errors.InvalidInput) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_an_expression_error_points_at_the_character() -> None:
    text = str(errors.ExpressionError("tea AND )", 8, "unexpected )"))
    *_, shown, caret = text.splitlines()
    assert shown[caret.index("^")] == ")"


def test_long_values_are_shortened() -> None:
    assert len(str(errors.InvalidInput("id", "x" * 10_000, "is too long"))) < 200
