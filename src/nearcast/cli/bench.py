"""``nearcast bench``: commands of the `benchmarks` folder of a source checkout.

Benchmarks are not part of the installed package. Without a checkout, the command says so.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]

_CHECKOUT = Path(__file__).parents[3]


def register(app: typer.Typer) -> None:
    """Add the commands of the checkout, or one that says where they are."""
    if (_CHECKOUT / "benchmarks" / "commands").is_dir():
        if str(_CHECKOUT) not in sys.path:
            sys.path.append(str(_CHECKOUT))
        app.add_typer(import_module("benchmarks.commands").app, name="bench")
    else:
        app.command("bench", context_settings={"ignore_unknown_options": True})(_missing)


def _missing(
    arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Run benchmarks: only from a source checkout."""
    typer.echo(
        "nearcast bench is part of the source checkout: clone the repository, run make install, "
        "and call it there",
        err=True,
    )
    raise typer.Exit(1)
