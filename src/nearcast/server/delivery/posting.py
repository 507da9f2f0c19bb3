"""Single requests to sinks: no redirects, little time, little to read, few at once to one host."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
from yarl import URL

from nearcast.errors import one_line
from nearcast.server.delivery.addresses import SinkNetworks, system_resolver
from nearcast.server.delivery.slots import Slots

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from types import SimpleNamespace

    from aiohttp.abc import AbstractResolver

__all__ = ["Answer", "SinkClient", "retry_after_s"]

TIMEOUT_S: Final = 15.0
MAX_ANSWER: Final = 64 * 1024
MAX_RETRY_AFTER_S: Final = 24 * 3600.0
RESOLVE_S: Final = 2.0
_MAX_ERROR = 200
_STALE_S = 1.0


class Answer(NamedTuple):
    """What became of a request: either ``status`` or ``error`` is given."""

    status: int | None
    error: str | None = None
    retry_after: str = ""

    @property
    def is_of_receiver(self) -> bool:
        """Whether the receiver answered in time, and its host is not in trouble."""
        return self.status is not None and self.status < 500


class SinkClient:
    """Sends requests to sinks. It is made and closed in a running event loop.

    Parameters
    ----------
    networks
        The networks that sinks may be in.
    timeout_s
        The time for a whole request: name, connection, request and answer.
    slots
        Who may send a request when.
    resolver
        Resolves names; by default with the name servers of the system.
    tls
        What to trust; by default what the system trusts.
    """

    def __init__(
        self,
        networks: SinkNetworks,
        *,
        timeout_s: float = TIMEOUT_S,
        slots: Slots | None = None,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.slots = slots or Slots()
        self._networks = networks
        self._timeout_s = timeout_s
        self._tls = tls
        self._resolver = resolver or system_resolver()
        # A connector of its own for each scheme: http is for allowed networks only.
        self._sessions = {
            scheme: aiohttp.ClientSession(
                connector=networks.connector(scheme, self._resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                auto_decompress=False,
                headers={"User-Agent": "Nearcast"},
                trace_configs=[_tracing()],
            )
            for scheme in ("https", "http")
        }

    async def may_reach(self, url: str) -> bool:
        """Return whether requests may go to an address that the host of a URL has now.

        A name that cannot be resolved at the moment may have one later.
        """
        parsed = URL(url)
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await self._resolver.resolve(
                    parsed.host or "", parsed.port or 0, socket.AF_UNSPEC
                )
        except (OSError, UnicodeError):  # a time-out is an OSError
            return True
        return any(self._networks.permits(one["host"], parsed.scheme) for one in found)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send one request in a slot, and return its status or what went wrong."""
        session = self._sessions["http" if url[:5].lower() == "http:" else "https"]
        give_up_s = time.monotonic() + _STALE_S
        while True:
            connection = _Connection()
            try:
                async with session.post(
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    ssl=self._tls or True,
                    trace_request_ctx=connection,
                ) as response:
                    await _discard(response)
                    return Answer(response.status, None, response.headers.get("Retry-After", ""))
            except TimeoutError:
                return Answer(None, f"no answer within {self._timeout_s:g} s")
            except Exception as error:  # whatever a receiver does is a failure of this sink only
                # A receiver may close a connection that is kept open, just before it is used.
                closed = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))
                if not (closed and connection.reused and time.monotonic() < give_up_s):
                    return Answer(None, _problem(error))

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        await self._resolver.close()


class _Connection:
    """Whether a request used a connection that an earlier one opened."""

    reused = False


async def _note_reuse(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.reused = True


def _tracing() -> aiohttp.TraceConfig:
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_reuse)
    return tracing


def _problem(error: Exception) -> str:
    """Return what went wrong, for the owner of a sink."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the receiver closed the connection before the end of its headers"
    return one_line(f"{type(error).__name__}: {error}", _MAX_ERROR)


async def _discard(response: aiohttp.ClientResponse) -> None:
    """Read an answer, so that the connection can be used again, unless it is long, slow or broken.

    The status decides whether an event was delivered, whatever follows it.
    """
    left = MAX_ANSWER
    try:
        while left and (chunk := await response.content.read(left)):
            left -= len(chunk)
    except (aiohttp.ClientError, OSError):
        left = 0
    if not left:
        response.close()


def retry_after_s(text: str, now_us: int) -> float:
    """Return how long a ``Retry-After`` header asks to wait: 0 to 24 hours; 0 if it is invalid.

    Examples
    --------
    >>> retry_after_s("120", 0), retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 0)
    (120.0, 60.0)
    >>> retry_after_s("soon", 0), retry_after_s("9" * 100, 0)
    (0.0, 86400.0)
    """
    text = text.strip()[:100]
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    wait_s = (until - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() - now_us / 1e6
    return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)
