"""The option ``--tokenizer``, which several commands share."""

from typing import Annotated

import typer

__all__ = ["IndexTokenizer", "Tokenizer"]


def _checked(name: str | None) -> str | None:
    """Return the name of a tokenizer that can be loaded."""
    if name is None or name == "words":
        return name
    from nearcast.text import tokenizer

    tokenizer(name)
    return name


Tokenizer = Annotated[
    str,
    typer.Option(
        callback=_checked,
        metavar="NAME",
        help="What makes words: words, stem:LANGUAGE, cjk or MODULE:FUNCTION.",
    ),
]
IndexTokenizer = Annotated[
    str | None,
    typer.Option(
        callback=_checked,
        metavar="NAME",
        help="Tokenizer that the index must have.  [default: its own]",
    ),
]
