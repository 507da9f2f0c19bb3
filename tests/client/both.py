"""Both clients behind one blocking surface, so that every test runs with each of them."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nearcast.client import AsyncClient, Client, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CLIENTS", "AnyClient", "opened"]

AnyClient = Any
CLIENTS = ["blocking", "asyncio"]
_WAIT_S = 60


class _Stream:
    """A blocking view of an asynchronous stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: Any) -> None:
        self._loop, self._stream = loop, stream
        self._run(stream.__aenter__())

    @property
    def cursor(self) -> str:
        return str(self._stream.cursor)

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Event:
        try:
            found: Event = self._run(anext(self._stream))
        except StopAsyncIteration:
            raise StopIteration from None
        return found

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        self._run(self._stream.__aexit__(*error))

    def close(self) -> None:
        self._run(self._stream.close())

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, _WAIT_S))


class _Blocking:
    """A blocking view of an `AsyncClient`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> None:
        self._loop, self._client = loop, client

    def events(self, *args: Any, **kwargs: Any) -> _Stream:
        return _Stream(self._loop, self._client.events(*args, **kwargs))

    def list(self, **kwargs: Any) -> list[Any]:
        async def collect() -> list[Any]:
            return [one async for one in self._client.list(**kwargs)]

        return list(self._loop.run_until_complete(collect()))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        assert inspect.iscoroutinefunction(method)

        def blocking(*args: Any, **kwargs: Any) -> Any:
            work = asyncio.wait_for(method(*args, **kwargs), _WAIT_S)
            return self._loop.run_until_complete(work)

        return blocking


@contextmanager
def opened(kind: str, url: str, key: str, **options: Any) -> Iterator[AnyClient]:
    """Open a client of a kind; close it at the end of the block."""
    if kind == "blocking":
        with Client(url, key, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        asynchronous = AsyncClient(url, key, **options)
        try:
            yield _Blocking(loop, asynchronous)
        finally:
            loop.run_until_complete(asynchronous.close())
