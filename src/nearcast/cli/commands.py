"""Commands with help texts: docstrings as paragraphs, examples at the end, flags without types."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

__all__ = [
    "FILE",
    "FILES",
    "FOLDER",
    "INDEX",
    "INPUT",
    "NUMBER",
    "OUTPUT",
    "READING",
    "SPARK",
    "WORDS",
    "Command",
    "Group",
    "add_command",
    "examples",
]

FILE = "FILE"
FILES = "FILE|FOLDER|PATTERN"
FOLDER = "FOLDER"
NUMBER = "N"

INPUT = "Input"
OUTPUT = "Output"
INDEX = "Index"
READING = "Reading files"
SPARK = "Spark"
WORDS = "Words"


class Command(TyperCommand):
    """A command whose help shows no type for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags with an empty type."""
        return _without_flag_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose help shows no type for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags with an empty type."""
        return _without_flag_types(super().get_params(ctx))


def add_command(
    app: typer.Typer, name: str, run: Callable[..., None], *lines: str, help: str = ""
) -> None:
    """Add a command to an app.

    Parameters
    ----------
    app, name, run
        The app, the name of the command and its function.
    lines
        Command lines that the help shows at its end, as examples.
    help
        The help; the docstring of the function if left out.
    """
    text = help or inspect.getdoc(run) or ""
    paragraphs = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    epilog = examples(*lines) if lines else None
    app.command(name, cls=Command, help=paragraphs, epilog=epilog)(run)


def examples(*lines: str) -> str:
    r"""Return the last part of a help text: command lines as examples.

    Examples
    --------
    >>> examples("nearcast indexes")
    'Example:\n  nearcast indexes'
    """
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join([heading, *(f"  {line}" for line in lines)])


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    bare = [param for param in params if getattr(param, "rich_help_panel", None) is None]
    if len(params) > 1 and [param.name for param in bare] == ["help"]:
        params[-1].rich_help_panel = OUTPUT  # instead of a panel of its own, which comes first
    return params
