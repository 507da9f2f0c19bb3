"""The option ``--tokenizer``, which several commands share."""

from typing import Annotated

import typer

from nearcast.cli.commands import WORDS

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
        rich_help_panel=WORDS,
        help="How text is split into words: words, stem:LANGUAGE (word stems), cjk (Chinese, "
        "Japanese, Korean) or your own MODULE:FUNCTION.",
    ),
]
IndexTokenizer = Annotated[
    str | None,
    typer.Option(
        callback=_checked,
        metavar="NAME",
        rich_help_panel=WORDS,
        show_default="that of the index",
        help="Tokenizer of the index; it is an error if the index was built with another one.",
    ),
]
