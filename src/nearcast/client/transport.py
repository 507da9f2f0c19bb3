"""Between the client's requests and those of httpx."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import httpx

from nearcast import __version__
from nearcast.client.events import SILENCE_S
from nearcast.client.exchange import Answer, Failure, Request
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Server", "answer_of", "failure_of"]


class Arguments(TypedDict):
    """Arguments of ``httpx.Client.build_request``."""

    method: str
    url: str
    params: dict[str, str]
    headers: dict[str, str]
    content: bytes | None
    timeout: httpx.Timeout


class Server:
    """Where a server is, and how requests are sent to it.

    Parameters
    ----------
    url
        Its address.
    key
        A key or a token.
    timeout_s
        How long a connection or an answer may take.

    Attributes
    ----------
    reached
        Whether it has answered a request.
    """

    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        try:
            parts = httpx.URL(url)
        except httpx.InvalidURL:
            parts = httpx.URL("")
        if parts.scheme not in ("http", "https") or not parts.host or parts.query:
            problem = "must be the address of a server, such as https://nearcast.example.com"
            raise InvalidInput("url", url, problem)
        if not isinstance(key, str) or not key.isascii() or not key.isprintable() or " " in key:
            raise InvalidInput("key", "...", "must be a key (nc_...) or a token (nct_...)")
        self._url = url.rstrip("/")
        self._headers = {
            "authorization": f"Bearer {key}",
            "user-agent": f"nearcast-client/{__version__}",
        }
        self._timeout_s = timeout_s
        self.reached = False

    def arguments(self, request: Request, *, stream: bool = False) -> Arguments:
        """Return the arguments that make httpx's request of a request."""
        timeout = httpx.Timeout(self._timeout_s, read=SILENCE_S if stream else self._timeout_s)
        return {
            "method": request.method,
            "url": self._url + request.path,
            "params": dict(request.query),
            "headers": {**self._headers, **request.headers},
            "content": request.body,
            "timeout": timeout,
        }


def answer_of(response: httpx.Response, body: bytes = b"") -> Answer:
    """Return an answer of httpx."""
    headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, headers, body)


def failure_of(error: httpx.RequestError) -> Failure:
    """Return why there was no answer."""
    unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    reason = str(error) or type(error).__name__
    return Failure(reason, sent=not isinstance(error, unsent))
