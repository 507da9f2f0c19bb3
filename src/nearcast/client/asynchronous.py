"""The client for programs with asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from nearcast.client import administration, delivery, events, publishing, subscriptions
from nearcast.client.errors import NearcastClientError, ProblemError
from nearcast.client.events import (
    Ask,
    Emit,
    Event,
    Following,
    OnGap,
    Open,
    Read,
    Ready,
    Save,
    SaveWith,
)
from nearcast.client.exchange import (
    Answer,
    Attempt,
    Call,
    Failure,
    Request,
    Sleep,
    read_answer,
    retrying,
)
from nearcast.client.publishing import Published, Publishing, is_one_message
from nearcast.client.subscriptions import (
    Imported,
    Importing,
    StoredSubscription,
    check_moved,
    move_record,
)
from nearcast.client.transport import Server, answer_of, failure_of
from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from nearcast.client.events import Command, Reply
    from nearcast.client.publishing import AnyMessage
    from nearcast.model import Subscription
    from nearcast.model.checks import AnyTime

__all__ = ["AsyncClient", "AsyncEventStream"]

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    build: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return the method of `AsyncClient` that makes a call and returns what its answer says."""

    @wraps(build)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._call(build(*args, **kwargs))

    return method


class AsyncClient:
    """A client of a Nearcast server, for asyncio. Its methods are those of `Client`.

    Parameters
    ----------
    url
        The address of the server, such as ``https://nearcast.example.com``.
    key
        A key (``nc_...``) or a token (``nct_...``).
    timeout_s
        How long a connection or an answer may take.
    retry_s
        How long a request that fails for a passing reason is sent again; at most five seconds if
        the server cannot be reached and never was.
    http
        An ``httpx.AsyncClient`` with settings of your own, such as proxies and certificates; you
        close it yourself.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout_s: float = 30.0,
        retry_s: float = 60.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._server = Server(url, key, timeout_s)
        self._retry_s = retry_s
        self._own = http is None
        self._http = http or httpx.AsyncClient()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._own:
            await self._http.aclose()

    # --- messages --------------------------------------------------------------------------------

    async def publish(
        self,
        messages: AnyMessage | Iterable[AnyMessage] | AsyncIterable[AnyMessage],
        *,
        strict: bool = False,
        in_flight: int = 4,
    ) -> Published:
        """Publish a message, or any number of them; return when they are on the server's disk.

        Parameters
        ----------
        messages
            As for `Client.publish`; asynchronous iterables too.
        strict
            All or nothing: if one is invalid, none is published. They are sent in one request.
        in_flight
            How many batches are sent at the same time. With more than one, messages of different
            batches may be stored in another order.
        """
        return await self._publish(messages, Publishing(strict=strict), in_flight)

    async def dry_run(
        self, messages: AnyMessage | Iterable[AnyMessage] | AsyncIterable[AnyMessage]
    ) -> Published:
        """Return whom messages would reach now, without publishing them."""
        return await self._publish(messages, Publishing(dry_run=True), 1)

    async def _publish(
        self,
        messages: AnyMessage | Iterable[AnyMessage] | AsyncIterable[AnyMessage],
        publishing: Publishing,
        in_flight: int,
    ) -> Published:
        if in_flight < 1:
            raise InvalidInput("in_flight", in_flight, "must be at least 1")
        sending: set[asyncio.Task[None]] = set()
        try:
            async for call in _calls(publishing, messages):
                if len(sending) >= in_flight:
                    sending = await _wait(sending, asyncio.FIRST_COMPLETED)
                sending.add(asyncio.create_task(self._call(call)))
            while sending:
                sending = await _wait(sending, asyncio.FIRST_COMPLETED)
        except NearcastClientError as error:
            await asyncio.gather(*sending, return_exceptions=True)
            error.published = publishing.result()
            raise
        finally:
            for task in sending:
                task.cancel()
        return publishing.result()

    message = _method(publishing.message)

    # --- subscriptions ---------------------------------------------------------------------------

    subscribe = _method(subscriptions.subscribe)
    get = _method(subscriptions.get)
    preview = _method(subscriptions.preview)
    replace = _method(subscriptions.replace)
    update = _method(subscriptions.update)
    pause = _method(subscriptions.pause)
    resume = _method(subscriptions.resume)
    delete = _method(subscriptions.delete)

    async def list(
        self,
        *,
        subscriber: str | None = None,
        bbox: tuple[float, float, float, float] | None = None,
        status: str | None = None,
    ) -> AsyncIterator[StoredSubscription]:
        """Yield subscriptions in the order of their creation; see `Client.list`."""
        after: str | None = None
        while True:
            page = await self._call(subscriptions.page(after, subscriber, bbox, status))
            for one in page.subscriptions:
                yield one
            after = page.next
            if after is None:
                return

    async def import_(
        self,
        source: str | Path | Iterable[Subscription | Mapping[str, Any]],
        *,
        upsert: bool = False,
    ) -> Imported:
        """Create many subscriptions; see `Client.import_`."""
        return await self._import(
            Importing.of_subscriptions(source, upsert=upsert), subscriptions.records_of(source)
        )

    async def move(self, id: str, region: Any, *, time: AnyTime | None = None) -> None:
        """Move a subscription; see `Client.move`."""
        moved = await self.move_many([(id, region) if time is None else (id, region, time)])
        check_moved(moved)

    async def move_many(
        self, moves: Iterable[tuple[str, Any] | tuple[str, Any, AnyTime]]
    ) -> Imported:
        """Move subscriptions: pairs of an id and a region, or with a time as well."""
        records = (move_record(*one) for one in moves)
        return await self._import(Importing.of_moves(), enumerate(records))

    async def _import(
        self, importing: Importing, records: Iterable[tuple[int, subscriptions.AnyRecord]]
    ) -> Imported:
        for call in importing.calls(records):
            await self._call(call)
        return importing.result()

    # --- events ----------------------------------------------------------------------------------

    poll = _method(events.poll)
    explain = _method(events.explain)

    def events(
        self,
        cursor: str = "now",
        *,
        subscriber: str | None = None,
        on_gap: OnGap = "yield",
        save: SaveWith = False,
    ) -> AsyncEventStream:
        """Receive events as they come, each once and in order, through breaks of the connection.

        The parameters are those of `Client.events`; the function ``save`` may be asynchronous.
        ``now`` is when ``async with`` begins, or when the first event is asked for.
        """
        return AsyncEventStream(self, Following(cursor, subscriber, on_gap, save))

    # --- keys, tokens, tenants -------------------------------------------------------------------

    create_token = _method(administration.create_token)
    create_key = _method(administration.create_key)
    keys = _method(administration.keys)
    revoke_key = _method(administration.revoke_key)
    create_tenant = _method(administration.create_tenant)
    tenants = _method(administration.tenants)
    limits = _method(administration.limits)
    set_limits = _method(administration.set_limits)

    # --- delivery --------------------------------------------------------------------------------

    cursor = _method(delivery.cursor)
    save_cursor = _method(delivery.save_cursor)
    subscriber = _method(delivery.subscriber)
    set_delivery = _method(delivery.set_delivery)
    sinks = _method(delivery.sinks)
    sink = _method(delivery.sink)
    remove_sink = _method(delivery.remove_sink)
    sink_attempts = _method(delivery.sink_attempts)
    sink_dead = _method(delivery.sink_dead)
    test_sink = _method(delivery.test_sink)
    replay_sink = _method(delivery.replay_sink)
    enable_sink = _method(delivery.enable_sink)

    # --- transport -------------------------------------------------------------------------------

    async def _call(self, call: Call[T]) -> T:
        flow = retrying(call.request, self._retry_s, reached=self._server.reached)
        outcome: Answer | Failure | None = None
        while True:
            try:
                command = flow.send(outcome)
            except StopIteration as done:
                answer: Answer = done.value
                return read_answer(call, answer)
            outcome = None
            if isinstance(command, Attempt):
                outcome = await self._attempt(command.request)
            else:
                await asyncio.sleep(command.seconds)

    async def _attempt(self, request: Request) -> Answer | Failure:
        try:
            built = self._http.build_request(**self._server.arguments(request))
            response = await self._http.send(built)
        except httpx.RequestError as error:
            return failure_of(error)
        self._server.reached = True
        return answer_of(response, response.content)


class AsyncEventStream(AsyncIterator[Event]):
    """The events of `AsyncClient.events`: an asynchronous iterator and context manager.

    Waiting for the next event can be canceled, for example by ``asyncio.timeout``; nothing is lost.
    """

    def __init__(self, client: AsyncClient, state: Following) -> None:
        self._client, self._state = client, state
        self._flow = events.follow(state, client._retry_s)
        self._command: Command | None = None
        self._reply: Reply = None
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    @property
    def cursor(self) -> str:
        """The cursor after the last event that was handled."""
        return self._state.consumed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            command = await self._step()
            if isinstance(command, Emit):
                return command.event

    async def __aenter__(self) -> Self:
        while not isinstance(await self._step(), Ready):
            pass
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end(handled=kind is None)

    async def close(self) -> None:
        """End the stream; the last event counts as handled."""
        await self._end(handled=True)

    async def _end(self, *, handled: bool) -> None:
        self._flow.close()
        await self._disconnect()
        if handled:
            self._state.consume()
        if (cursor := self._state.unsaved(now=True)) is not None:
            await self._save(cursor)
            self._state.saved(cursor)

    async def _step(self) -> Command:
        """Do the next thing; one that was interrupted is done again."""
        if self._command is None:
            try:
                self._command = self._flow.send(self._reply)
            except StopIteration:
                raise StopAsyncIteration from None
        command = self._command
        self._reply = await self._perform(command)
        self._command = None
        return command

    async def _perform(self, command: Command) -> Reply:
        match command:
            case Open(request):
                return await self._open(request)
            case Read():
                return await self._read()
            case Ask(call):
                return await self._ask(call)
            case Save(cursor):
                await self._save(cursor)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
        return None

    async def _open(self, request: Request) -> Answer | Failure:
        client = self._client
        await self._disconnect()
        try:
            arguments = client._server.arguments(request, stream=True)
            built = client._http.build_request(**arguments)
            response = await client._http.send(built, stream=True)
            if response.status_code != 200:
                return answer_of(response, await response.aread())
        except httpx.RequestError as error:
            return failure_of(error)
        self._response, self._chunks = response, response.aiter_bytes()
        return answer_of(response)

    async def _read(self) -> bytes | None:
        if self._chunks is None:
            return None
        try:
            return await anext(self._chunks, None)
        except httpx.RequestError:
            return None

    async def _ask(self, call: Call[str]) -> str | None:
        try:
            return await self._client._call(call)
        except ProblemError as error:
            if error.status != 404:
                raise
            return None

    async def _save(self, cursor: str) -> None:
        save, name = self._state.save, self._state.name
        if callable(save):
            done = save(cursor)
            if inspect.isawaitable(done):
                await done
        elif name is not None:
            await self._client.save_cursor(name, cursor, subscriber=self._state.subscriber)

    async def _disconnect(self) -> None:
        self._chunks = None
        if self._response is not None:
            response, self._response = self._response, None
            await response.aclose()


async def _calls(
    publishing: Publishing,
    messages: AnyMessage | Iterable[AnyMessage] | AsyncIterable[AnyMessage],
) -> AsyncIterator[Call[None]]:
    if not isinstance(messages, AsyncIterable):
        every: Any = [messages] if is_one_message(messages) else messages
        for call in publishing.calls(every):
            yield call
        return
    async for message in messages:
        if (found := publishing.add(message)) is not None:
            yield found
    if (found := publishing.end()) is not None:
        yield found


async def _wait(tasks: set[asyncio.Task[None]], when: str) -> set[asyncio.Task[None]]:
    """Wait for tasks; return those that are not done, or raise the error of one."""
    done, rest = await asyncio.wait(tasks, return_when=when)
    for task in done:
        task.result()
    return rest
