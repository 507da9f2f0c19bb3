"""The exceptions of Nearcast, one tree.

::

    NearcastError
    ├── InvalidInput (also ValueError)      a field holds a value that cannot be taken
    │   ├── ExpressionError                 ... and the text of an expression says where
    │   └── RegionError                     ... and it is a place
    ├── DuplicateId (also ValueError)       a subscription with this id is registered already
    ├── UnknownId (also KeyError)           no subscription with this id is registered
    ├── UnknownName (also ValueError)       no index, option or dataset of this name
    ├── UnsupportedFile (also ValueError)   a file that cannot be read as what it should be
    └── StorageError (also OSError)         a stored artifact is damaged, or of another version

Every message names what was expected, what came and what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "DuplicateId",
    "ExpressionError",
    "InvalidInput",
    "NearcastError",
    "RegionError",
    "StorageError",
    "UnknownId",
    "UnknownName",
    "UnsupportedFile",
]


class NearcastError(Exception):
    """The root of everything that Nearcast raises on purpose."""


class InvalidInput(NearcastError, ValueError):
    """A field holds a value that cannot be taken.

    Parameters
    ----------
    field
        The name of the field, as the user wrote or would write it.
    value
        What came. Long values are shortened in the message.
    problem
        What is wrong, and what would be right.
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        self.field = field
        self.value = value
        self.problem = problem
        super().__init__(f"{field}: {problem} (got {shorten(value)})")

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.problem)


class RegionError(InvalidInput):
    """A place that is no region: coordinates out of range, a broken polygon, unreadable text."""


class ExpressionError(InvalidInput):
    """An expression that cannot be read, with the position of the offending character.

    The message shows the expression with a caret below that character.
    """

    def __init__(self, expression: str, position: int, problem: str) -> None:
        self.position = position
        shown, caret = _window(expression, position)
        super().__init__("expression", expression, problem)
        self.args = (f"expression: {problem} (at character {position})\n  {shown}\n  {caret}^",)

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, int, str]]:
        return type(self), (str(self.value), self.position, self.problem)


class DuplicateId(NearcastError, ValueError):
    """A subscription with this id is registered already."""


class UnknownId(NearcastError, KeyError):
    """No subscription with this id is registered."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownName(NearcastError, ValueError):
    """A name that is not on the list; the message gives the list."""

    def __init__(self, kind: str, name: object, choices: Iterable[str]) -> None:
        self.choices = sorted(choices)
        listed = ", ".join(self.choices) or "none"
        super().__init__(f"unknown {kind} {name!r}; choose from: {listed}")


class UnsupportedFile(NearcastError, ValueError):
    """A file that cannot be read as what it should be."""


class StorageError(NearcastError, OSError):
    """A stored artifact is damaged, incomplete or of another version."""


def shorten(value: object, limit: int = 80) -> str:
    """Return ``repr(value)``, cut in the middle where it is longer than ``limit``."""
    text = repr(value)
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]} … {text[-limit // 4 :]}"


def _window(expression: str, position: int, width: int = 72) -> tuple[str, str]:
    """Cut the expression to a line around the position; return it and the spaces before it."""
    start = max(0, min(position - width // 2, len(expression) - width))
    shown = expression[start : start + width]
    printable = "".join(c if c.isprintable() else " " for c in shown)
    return printable, " " * (position - start)
