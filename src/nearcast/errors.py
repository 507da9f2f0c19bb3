"""The exceptions of Nearcast, one tree.

::

    NearcastError
    ├── InvalidInput (also ValueError)      a field has an invalid value
    │   ├── ExpressionError                 ... in an expression; shows the position
    │   └── RegionError                     ... in a place
    ├── DuplicateId (also ValueError)       a subscription with this id already exists
    ├── UnknownId (also KeyError)           no subscription has this id
    ├── UnknownName (also ValueError)       no index, option or dataset has this name
    ├── UnsupportedFile (also ValueError)   a file is missing, unreadable or lacks columns
    ├── MissingExtra (also ImportError)     an optional package is not installed
    └── StorageError (also OSError)         stored data is damaged or of another version
        ├── NoSpace                         the disk is full, and nothing was written
        ├── Trimmed                         a record of a log is gone
        └── Unavailable                     it works again by itself, try again

    ExpressionWarning (a UserWarning)       an expression probably means something else

Every message says what was expected, what was found and what to do about it. Messages may quote
data from files, so they are safe to print: control characters are escaped, and long texts are
shortened in the middle (`one_line`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "DuplicateId",
    "ExpressionError",
    "ExpressionWarning",
    "InvalidInput",
    "MissingExtra",
    "NearcastError",
    "NoSpace",
    "RegionError",
    "StorageError",
    "Trimmed",
    "Unavailable",
    "UnknownId",
    "UnknownName",
    "UnsupportedFile",
]

_MAX_MESSAGE = 2_000
_MAX_PROBLEM = 500


class NearcastError(Exception):
    """The base class of all exceptions that Nearcast raises on purpose."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(str(message), _MAX_MESSAGE))


class InvalidInput(NearcastError, ValueError):
    """A field has an invalid value.

    Parameters
    ----------
    field
        The name of the field, as the user wrote or would write it.
    value
        The invalid value. The message shows a shortened form of it.
    problem
        What is wrong, and what a valid value looks like.
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        self.field = field
        self.value = value
        self.problem = one_line(problem, _MAX_PROBLEM)
        super().__init__(f"{field}: {self.problem}{self.got()}")

    def got(self) -> str:
        """Return the value in parentheses, to follow the problem; empty if there is no value."""
        if self.value is None and self.problem.startswith("is missing"):
            return ""
        return f" (got {shorten(self.value)})"

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.problem)


class RegionError(InvalidInput):
    """A place is invalid: coordinates out of range, a broken polygon, unreadable text."""


class ExpressionError(InvalidInput):
    """An expression is invalid.

    The message shows the expression with a caret below the character at fault.
    """

    def __init__(self, expression: str, position: int, problem: str) -> None:
        super().__init__("expression", expression, problem)
        self.position = position
        shown, caret = _window(expression, position)
        message = f"expression: {self.problem} (at character {position + 1})\n  {shown}\n  {caret}^"
        self.args = (message,)

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, int, str]]:
        return type(self), (str(self.value), self.position, self.problem)


class ExpressionWarning(UserWarning):
    """An expression is valid, and probably means something else, as ``tea or milk``."""


class DuplicateId(NearcastError, ValueError):
    """A subscription with this id already exists."""


class UnknownId(NearcastError, KeyError):
    """No subscription has this id."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownName(NearcastError, ValueError):
    """A name is not one of the valid ones, which the message lists.

    Parameters
    ----------
    kind, name
        What has no such name, such as "index", and the name.
    choices
        The valid names.
    of
        What the names belong to, such as the index of an option.
    """

    def __init__(self, kind: str, name: object, choices: Iterable[str], of: str = "") -> None:
        self.kind = kind
        self.name = name
        self.choices = sorted(choices)
        self.of = of
        listed = f"choose from: {', '.join(self.choices)}" if self.choices else "there are none"
        owner = f" of {of}" if of else ""
        super().__init__(f"unknown {kind} {shorten(name)}{owner}; {listed}")

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, object, list[str], str]]:
        return type(self), (self.kind, self.name, self.choices, self.of)


class UnsupportedFile(NearcastError, ValueError):
    """A file is missing, cannot be read, or lacks required columns."""


class MissingExtra(NearcastError, ImportError):
    """An optional package is not installed; the message says how to install it.

    Parameters
    ----------
    purpose
        What needs the package, such as "nearcast.plots".
    package
        The missing package.
    extra
        The extra of Nearcast that installs it.
    """

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        self.purpose = purpose
        self.package = package
        self.extra = extra
        super().__init__(
            f"{purpose} needs {package}, which is not installed; "
            f"install it with: pip install 'nearcast[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:
        return type(self), (self.purpose, self.package, self.extra)


class StorageError(NearcastError, OSError):
    """Stored data is damaged, incomplete or of another version."""


class NoSpace(StorageError):
    """The disk is full; nothing was written, and writing works again when there is space."""


class Trimmed(StorageError):
    """A record of a log is gone: it was trimmed, or given up by a repair."""


class Unavailable(StorageError):
    """Storage cannot be used now, and will be again: a database is away, or memory is short."""


def one_line(text: str, limit: int = _MAX_MESSAGE) -> str:
    r"""Return text that is safe to print: one line, no control characters, at most ``limit`` long.

    Examples
    --------
    >>> one_line("name\x1b[31m, lon\n")
    'name\\x1b[31m, lon\\n'
    """
    if len(text) <= limit and text.isprintable():
        return text
    head, tail = _escaped(text[:limit]), _escaped(text[-limit:])
    if len(text) <= limit and len(head) <= limit:
        return head
    return f"{head[: limit * 2 // 3]} … {tail[-limit // 4 :]}"


def shorten(value: object, limit: int = 80) -> str:
    """Return ``repr(value)``, cut in the middle if it is longer than ``limit``.

    Examples
    --------
    >>> shorten("x" * 1000, limit=20)
    "'xxxxxxxxxxxx … xxxx'"
    """
    if isinstance(value, (str, bytes)) and len(value) > 2 * limit:
        head, tail = repr(value[:limit]), repr(value[-limit:])
        return f"{head[: limit * 2 // 3]} … {tail[-limit // 4 :]}"
    try:
        return one_line(repr(value), limit)
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _window(expression: str, position: int, width: int = 72) -> tuple[str, str]:
    """Return the part of the expression around a position, and spaces up to that position."""
    start = max(0, min(position - width // 2, len(expression) - width))
    shown = expression[start : start + width]
    printable = "".join(c if c.isprintable() else " " for c in shown)
    return printable, " " * (position - start)
