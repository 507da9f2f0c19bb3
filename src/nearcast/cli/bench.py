"""``nearcast bench``: the commands in the `benchmarks` folder of a source checkout.

Benchmarks are not part of the installed package. Without a checkout, the command is an error.
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
    """Add the commands of the checkout, or a command that reports that they are missing."""
    if (_CHECKOUT / "benchmarks" / "commands").is_dir():
        if str(_CHECKOUT) not in sys.path:
            sys.path.append(str(_CHECKOUT))
        app.add_typer(import_module("benchmarks.commands").app, name="bench")
    else:
        app.command("bench", context_settings={"ignore_unknown_options": True})(_no_checkout)


def _no_checkout(
    arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Run benchmarks (needs a source checkout)."""
    typer.echo(
        "nearcast bench needs a source checkout: clone the repository, run make install, and run "
        "the command there",
        err=True,
    )
    raise typer.Exit(1)
