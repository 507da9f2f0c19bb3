"""What checks of arrays from disk say; used by all indexes and `nearcast.indexes.token_order`."""

from __future__ import annotations

from nearcast.errors import StorageError

__all__ = ["damaged", "require"]


def damaged(index: str, problem: str) -> StorageError:
    """Return the error for an index whose arrays are not sound.

    Examples
    --------
    >>> raise damaged("scan", "alive is empty")
    Traceback (most recent call last):
    nearcast.errors.StorageError: scan: alive is empty; build it again from its subscriptions
    """
    return StorageError(f"{index}: {problem}; build it again from its subscriptions")


def require(index: str, holds: object, *problem: str) -> None:
    """Raise `StorageError`, with the words of the problem, unless what has to hold does."""
    if not holds:
        raise damaged(index, " ".join(problem))
