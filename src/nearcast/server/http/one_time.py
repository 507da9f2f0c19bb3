"""The code in the link that ``nearcast serve`` prints: it lets a browser in, once."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from nearcast.server.http.door import source_of
from nearcast.server.http.limits import TokenBucket
from nearcast.server.state.keys import hash_secret, same_hash

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VALID_S", "OneTimeCode"]

VALID_S = 900.0
"""How long a code is valid."""

_BYTES = 24
_NONE = b"\0" * 32
_ATTEMPTS_PER_S, _ATTEMPTS_AT_ONCE = 1.0, 20.0
_MAX_COUNTED = 4_096


class OneTimeCode:
    """A code that is valid once, and for a quarter of an hour. Only its hash is kept, in memory.

    Parameters
    ----------
    monotonic
        Seconds of a clock that never jumps.

    Examples
    --------
    >>> codes = OneTimeCode()
    >>> code = codes.make()
    >>> codes.take("guess"), codes.take(code), codes.take(code)
    (False, True, False)
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._hash, self._until = _NONE, 0.0
        self._attempts: dict[str | bytes, TokenBucket] = {}

    def make(self) -> str:
        """Return a new code; the one before is not valid any more."""
        code = secrets.token_urlsafe(_BYTES)
        self._hash, self._until = hash_secret(code), self._monotonic() + VALID_S
        return code

    def take(self, code: str) -> bool:
        """Return whether a code is valid; from then on it is not."""
        same = same_hash(hash_secret(code), self._hash)
        if not same or self._monotonic() >= self._until:
            return False
        self._hash, self._until = _NONE, 0.0
        return True

    def wait_s(self, address: str, code: str | None) -> float:
        """Count an attempt to sign in; return 0, or after how many seconds to try again.

        Attempts are counted for each address and for each code that is tried. So neither can one
        address try many codes, nor can others use up the attempts of who has the right one.
        """
        wait_s = self._take(source_of(address))
        if wait_s == 0 and code is not None:
            wait_s = self._take(hash_secret(code))
        return wait_s

    def _take(self, whose: str | bytes) -> float:
        now = self._monotonic()
        bucket = self._attempts.pop(whose, None)
        if bucket is None:
            bucket = TokenBucket(_ATTEMPTS_PER_S, _ATTEMPTS_AT_ONCE, now)
        self._attempts[whose] = bucket  # at the end: what was not tried for the longest goes first
        if len(self._attempts) > _MAX_COUNTED:
            del self._attempts[next(iter(self._attempts))]
        return bucket.take(1, now)
