"""Expressions with phrases and beginnings of words, and what they mean, in plain Python.

Nothing of the parser or the tokenizers is used here, so that this can judge them. A message is a
list of texts, each a list of words; a phrase is one of a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

__all__ = ["WORDS", "draw_expression", "draw_text", "draw_texts", "is_true", "write"]

WORDS = ("a", "ab", "abc", "b", "ba", "bab", "c", "é", "éa")
"""Few words, many of which begin with another one: most phrases and beginnings are found."""

_BETWEEN = (" ", " ", "  ", ", ", "-", "! ", " & ", "\n")


def draw_expression(rng: Random, depth: int = 2) -> Any:
    """Return an expression as a tree: a kind, and words or operands."""
    kind = rng.choice(["word", "phrase", "phrase", "prefix"])
    if depth and rng.random() < 0.7:
        kind = rng.choice(["and", "or", "and", "not"])
    if kind == "word":
        return "word", rng.choice(WORDS)
    if kind == "phrase":
        return "phrase", rng.choices(WORDS, k=rng.randint(1, 4))
    if kind == "prefix":
        return "prefix", rng.choice(WORDS)
    if kind == "not":
        return "not", draw_expression(rng, 0)
    return kind, [draw_expression(rng, depth - 1) for _ in range(rng.randint(2, 3))]


def draw_text(rng: Random, most: int = 8) -> tuple[str, list[str]]:
    """Return a text as people write it, and its words."""
    words = rng.choices(WORDS, k=rng.randint(0, most))
    written = [word.upper() if rng.random() < 0.3 else word for word in words]
    return "".join(word + rng.choice(_BETWEEN) for word in written), words


def draw_texts(rng: Random, most: int = 3) -> tuple[list[str], list[list[str]]]:
    """Return the texts of a message, and their words."""
    pairs = [draw_text(rng, 3) for _ in range(rng.randint(0, most))]
    return [text for text, _ in pairs], [words for _, words in pairs]


def write(tree: Any) -> str:
    """Return an expression as a person would write it.

    Examples
    --------
    >>> write(("and", [("phrase", ["old", "town"]), ("not", ("prefix", "flood"))]))
    '"old town" AND NOT flood*'
    """
    kind, rest = tree
    if kind == "phrase":
        return f'"{" ".join(rest)}"'
    if kind in ("word", "prefix"):
        return f"{rest}*" if kind == "prefix" else f"{rest}"
    if kind == "not":
        return f"NOT {_enclosed(rest)}"
    return f" {str(kind).upper()} ".join(map(_enclosed, rest))


def _enclosed(tree: Any) -> str:
    return f"({write(tree)})" if tree[0] in ("and", "or") else write(tree)


def is_true(tree: Any, texts: Sequence[Sequence[str]]) -> bool:
    """Tell whether an expression is true of a message.

    Examples
    --------
    >>> is_true(("phrase", ["a", "b"]), [["a"], ["b"]]), is_true(("prefix", "a"), [["abc"]])
    (False, True)
    """
    kind, rest = tree
    if kind == "phrase":
        joined = [" " + " ".join(text) + " " for text in texts]
        return any(" " + " ".join(rest) + " " in text for text in joined)
    if kind == "prefix":
        return any(word.startswith(rest) for text in texts for word in text)
    if kind == "word":
        return any(rest in text for text in texts)
    if kind == "not":
        return not is_true(rest, texts)
    return (any if kind == "or" else all)(is_true(operand, texts) for operand in rest)
