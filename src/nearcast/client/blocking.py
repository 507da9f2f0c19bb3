"""The client for ordinary programs, which wait for answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
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

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from nearcast.client.events import Command, Reply
    from nearcast.client.publishing import AnyMessage
    from nearcast.model import Subscription
    from nearcast.model.checks import AnyTime

__all__ = ["Client", "EventStream"]

P = ParamSpec("P")
T = TypeVar("T")


def _method(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """Return the method of `Client` that makes a call and returns what its answer says."""

    @wraps(build)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(build(*args, **kwargs))

    return method


class Client:
    """A client of a Nearcast server. Several threads may use it.

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
        An ``httpx.Client`` with settings of your own, such as proxies and certificates; you close
        it yourself.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout_s: float = 30.0,
        retry_s: float = 60.0,
        http: httpx.Client | None = None,
    ) -> None:
        self._server = Server(url, key, timeout_s)
        self._retry_s = retry_s
        self._own = http is None
        self._http = http or httpx.Client()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._own:
            self._http.close()

    # --- messages --------------------------------------------------------------------------------

    def publish(
        self, messages: AnyMessage | Iterable[AnyMessage], *, strict: bool = False
    ) -> Published:
        """Publish a message, or any number of them; return when they are on the server's disk.

        Messages are sent in batches of up to 1,000 or 1 MiB. Each batch has a key of its own, so
        that it is stored once, however often the connection breaks.

        Parameters
        ----------
        messages
            A `nearcast.Message`, a mapping with the fields of one, or an iterable of them.
        strict
            All or nothing: if one is invalid, none is published. They are sent in one request.

        Raises
        ------
        NearcastClientError
            If the server refuses them or cannot be reached; ``published`` of the error tells what
            was acknowledged before.
        """
        return self._publish(messages, Publishing(strict=strict))

    def dry_run(self, messages: AnyMessage | Iterable[AnyMessage]) -> Published:
        """Return whom messages would reach now, without publishing them."""
        return self._publish(messages, Publishing(dry_run=True))

    def _publish(
        self, messages: AnyMessage | Iterable[AnyMessage], publishing: Publishing
    ) -> Published:
        every: Any = [messages] if is_one_message(messages) else messages
        try:
            for call in publishing.calls(every):
                self._call(call)
        except NearcastClientError as error:
            error.published = publishing.result()
            raise
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

    def list(
        self,
        *,
        subscriber: str | None = None,
        bbox: tuple[float, float, float, float] | None = None,
        status: str | None = None,
    ) -> Iterator[StoredSubscription]:
        """Yield subscriptions in the order of their creation.

        Parameters
        ----------
        subscriber
            Only those of a subscriber.
        bbox
            Only those near a box: west, south, east, north.
        status
            Only those with a status, such as ``ACTIVE``.
        """
        after: str | None = None
        while True:
            page = self._call(subscriptions.page(after, subscriber, bbox, status))
            yield from page.subscriptions
            after = page.next
            if after is None:
                return

    def import_(
        self,
        source: str | Path | Iterable[Subscription | Mapping[str, Any]],
        *,
        upsert: bool = False,
    ) -> Imported:
        """Create many subscriptions.

        Parameters
        ----------
        source
            A file with lines of JSON, or with a GeoJSON FeatureCollection (``.geojson``); or an
            iterable of `nearcast.Subscription` or of mappings like those lines.
        upsert
            Replace subscriptions whose id exists; otherwise they are rejected.
        """
        return self._import(
            Importing.of_subscriptions(source, upsert=upsert), subscriptions.records_of(source)
        )

    def move(self, id: str, region: Any, *, time: AnyTime | None = None) -> None:
        """Move a subscription.

        Parameters
        ----------
        id
            Its id.
        region
            Where it is now: what `Terms.region` may be.
        time
            When it was there; now if left out.
        """
        check_moved(self.move_many([(id, region) if time is None else (id, region, time)]))

    def move_many(self, moves: Iterable[tuple[str, Any] | tuple[str, Any, AnyTime]]) -> Imported:
        """Move subscriptions: pairs of an id and a region, or with a time as well."""
        records = (move_record(*one) for one in moves)
        return self._import(Importing.of_moves(), enumerate(records))

    def _import(
        self, importing: Importing, records: Iterable[tuple[int, subscriptions.AnyRecord]]
    ) -> Imported:
        for call in importing.calls(records):
            self._call(call)
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
    ) -> EventStream:
        """Receive events as they come, each once and in order, through breaks of the connection.

        Parameters
        ----------
        cursor
            After which event: an id; ``now``; ``earliest``; a time; or ``@name`` for a cursor that
            the server keeps, which starts now if there is none.
        subscriber
            Whose events; those of the key's own subscriber if left out.
        on_gap
            What happens when events are no longer available: ``yield`` a `Gap` as an event, or
            ``raise`` `EventsLost`.
        save
            Save how far you are. True: on the server, as ``@name``, at most once a second and at
            the end. A function: it is called with the cursor after each event. An event counts
            as handled when you ask for the next one, or leave the ``with`` block without an error.
        """
        return EventStream(self, Following(cursor, subscriber, on_gap, save))

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

    def _call(self, call: Call[T]) -> T:
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
                outcome = self._attempt(command.request)
            else:
                time.sleep(command.seconds)

    def _attempt(self, request: Request) -> Answer | Failure:
        try:
            built = self._http.build_request(**self._server.arguments(request))
            response = self._http.send(built)
        except httpx.RequestError as error:
            return failure_of(error)
        self._server.reached = True
        return answer_of(response, response.content)


class EventStream(Iterator[Event]):
    """The events of `Client.events`: an iterator without end, and a context manager.

    Use it in one thread. Attributes are those of the stream's state.
    """

    def __init__(self, client: Client, state: Following) -> None:
        self._client, self._state = client, state
        self._flow = events.follow(state, client._retry_s)
        self._command: Command | None = None
        self._reply: Reply = None
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())
        while not isinstance(self._step(), Ready):
            pass

    @property
    def cursor(self) -> str:
        """The cursor after the last event that was handled."""
        return self._state.consumed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        while True:
            command = self._step()
            if isinstance(command, Emit):
                return command.event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(handled=kind is None)

    def close(self) -> None:
        """End the stream; the last event counts as handled."""
        self._end(handled=True)

    def _end(self, *, handled: bool) -> None:
        self._flow.close()
        self._disconnect()
        if handled:
            self._state.consume()
        if (cursor := self._state.unsaved(now=True)) is not None:
            self._save(cursor)
            self._state.saved(cursor)

    def _step(self) -> Command:
        """Do the next thing; one that was interrupted is done again."""
        if self._command is None:
            self._command = self._flow.send(self._reply)
        command = self._command
        self._reply = self._perform(command)
        self._command = None
        return command

    def _perform(self, command: Command) -> Reply:
        match command:
            case Open(request):
                return self._open(request)
            case Read():
                return self._read()
            case Ask(call):
                return self._ask(call)
            case Save(cursor):
                self._save(cursor)
            case Sleep(seconds):
                time.sleep(seconds)
        return None

    def _open(self, request: Request) -> Answer | Failure:
        client = self._client
        self._disconnect()
        try:
            arguments = client._server.arguments(request, stream=True)
            response = client._http.send(client._http.build_request(**arguments), stream=True)
            if response.status_code != 200:
                return answer_of(response, response.read())
        except httpx.RequestError as error:
            return failure_of(error)
        self._response, self._chunks = response, response.iter_bytes()
        return answer_of(response)

    def _read(self) -> bytes | None:
        try:
            return next(self._chunks, None)
        except httpx.RequestError:
            return None

    def _ask(self, call: Call[str]) -> str | None:
        try:
            return self._client._call(call)
        except ProblemError as error:
            if error.status != 404:
                raise
            return None

    def _save(self, cursor: str) -> None:
        save, name = self._state.save, self._state.name
        if callable(save):
            save(cursor)
        elif name is not None:
            self._client.save_cursor(name, cursor, subscriber=self._state.subscriber)

    def _disconnect(self) -> None:
        self._chunks = iter(())
        if self._response is not None:
            self._response.close()
            self._response = None
