"""Errors that pass by themselves: too many open files, too little memory."""

from __future__ import annotations

import errno

__all__ = ["is_scarce"]

_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_scarce(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, says that files or memory have run out.

    Examples
    --------
    >>> is_scarce(OSError(errno.EMFILE, "Too many open files")), is_scarce(OSError(errno.EIO, "?"))
    (True, False)
    """
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, OSError) and error.errno in _SCARCE:
            return True
        error = error.__cause__
    return False
