"""What every route needs: the service, who sends a request, and the limits of tenants."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import msgspec
from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection

from nearcast.errors import InvalidInput
from nearcast.server.delivery.addresses import SinkNetworks
from nearcast.server.delivery.paced import PacedFeed, Paces
from nearcast.server.delivery.posting import SinkClient
from nearcast.server.delivery.readers import Readers
from nearcast.server.delivery.sending import SinkChannels, StoredSinks
from nearcast.server.delivery.webhooks import WebhookSender
from nearcast.server.http.auth import Authenticator, Principal, principal_of
from nearcast.server.http.definitions import DefinitionLimits
from nearcast.server.http.door import ConnectionLimits
from nearcast.server.http.fair_pool import TENANT, FairPool
from nearcast.server.http.limits import RateLimiter, Rates
from nearcast.server.http.one_time import OneTimeCode
from nearcast.server.http.parameters import check_parameters
from nearcast.server.http.problems import FieldError, Problem
from nearcast.server.http.quotas import Quotas
from nearcast.server.log.messages import MessageLimits
from nearcast.server.matching.registry import Channel
from nearcast.server.state.keys import same_hash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nearcast.server.delivery.pacing import PacingSettings
    from nearcast.server.delivery.readers import Reader, ReaderKind
    from nearcast.server.delivery.rendering import Rendered
    from nearcast.server.delivery.sinks import Attempt
    from nearcast.server.http.metrics import Metrics
    from nearcast.server.matching.events import Block
    from nearcast.server.matching.postings import Position
    from nearcast.server.service import Gap, Service

__all__ = [
    "ROLES_OF",
    "Context",
    "Settings",
    "TenantLimits",
    "context_of",
    "may",
    "named_reader",
    "named_subscriber",
]

DEFAULT_SUBSCRIBER = "default"
WEB = Path(__file__).parent / "web"
"""Where ``make web`` puts the built page."""

_STREAM_KINDS = ("sse", "ndjson", "websocket", "poll")
_BODY_BYTES = 16 << 20
_PARSING_THREADS = max(2, min(4, os.cpu_count() or 1))
_READING_THREADS = 2 * min(32, (os.cpu_count() or 1) + 4)
_MAX_WAITING = 64
_MAX_HELD_BYTES = 128 << 20
"""How many requests of a tenant may wait to be parsed, and how large their bodies may be."""

_DOCUMENT_BYTES, _VERTEX_BYTES = 64 << 10, 128
_LIVE_S = 60.0
"""Older events were not delivered as they came."""

P = ParamSpec("P")
T = TypeVar("T")

_bearer = HTTPBearer(auto_error=False, description="A key (nc_...) or a token (nct_...).")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server was started, as far as routes care.

    Parameters
    ----------
    rates
        What a tenant may send a second, unless it has limits of its own.
    subscriptions
        How many subscriptions a tenant may have.
    allow_sinks
        Networks in which sinks may be although they are private, such as ``127.0.0.0/8``.
    allow_origins
        Origins whose pages may use the API from browsers, such as ``https://example.com``.
    demo
        Whether everybody on this machine may sign in without a key.
    tiles
        Where the map gets its background, with ``{z}``, ``{x}`` and ``{y}``; see
        `nearcast.server.http.tiles`.
    web
        The folder of the built page.
    connections
        What connections may cost.
    """

    rates: Rates = field(default_factory=Rates)
    subscriptions: int = 100_000_000
    allow_sinks: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    demo: bool = False
    tiles: str | None = None
    web: Path = WEB
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of a tenant.

    Parameters
    ----------
    rates, messages, definitions
        What it may send a second, in a request with messages, and as a subscription.
    subscriptions, subscribers
        How many there may be.
    cursors
        How many cursors the server keeps for one subscriber.
    """

    rates: Rates
    messages: MessageLimits
    definitions: DefinitionLimits
    subscriptions: int
    subscribers: int = 10_000_000
    cursors: int = 1_000

    @property
    def document_bytes(self) -> int:
        """The size of the document of one subscription: a region with all vertices, and more."""
        enough = _DOCUMENT_BYTES + _VERTEX_BYTES * self.definitions.vertices
        return min(self.messages.body_bytes, enough)

    @classmethod
    def of(cls, given: dict[str, Any], settings: Settings) -> TenantLimits:
        """Return limits as they were given, with the server's defaults for the others."""
        rates = settings.rates
        return cls(
            Rates(
                given.get("requestsPerS") or rates.requests_per_s,
                given.get("messagesPerS") or rates.messages_per_s,
                given.get("burstS") or rates.burst_s,
            ),
            MessageLimits(
                body_bytes=given.get("bodyBytes") or _BODY_BYTES,
                messages=given.get("messagesPerRequest") or 10_000,
            ),
            DefinitionLimits(
                clauses=given.get("clauses") or DefinitionLimits().clauses,
                vertices=given.get("vertices") or DefinitionLimits().vertices,
                keywords=given.get("keywords") or DefinitionLimits().keywords,
                expression_length=given.get("expressionLength")
                or DefinitionLimits().expression_length,
                word_length=given.get("wordLength") or DefinitionLimits().word_length,
                networks=SinkNetworks.of(settings.allow_sinks),
            ),
            settings.subscriptions if (n := given.get("subscriptions")) is None else n,
            **{name: n for name in ("subscribers", "cursors") if (n := given.get(name))},
        )


class Context:
    """What every route needs.

    Parameters
    ----------
    service
        The service.
    settings
        How the server was started.
    metrics
        Where everything is counted.
    """

    def __init__(self, service: Service, settings: Settings, metrics: Metrics) -> None:
        self.service, self.settings, self.metrics = service, settings, metrics
        self.stopping = False
        self._delivered = {kind: metrics.delivered.labels(kind) for kind in _STREAM_KINDS}
        self.token_secret = service.state.secret("tokens")
        self.authenticator = Authenticator(self._authenticate, self.token_secret)
        self.one_time_code = OneTimeCode()
        self.administering = asyncio.Lock()
        self.limiter = RateLimiter(lambda tenant: self.limits(tenant).rates)
        self.parsing = FairPool(_PARSING_THREADS, _PARSING_THREADS // 2, "parsing")
        self._held_bytes: Counter[int | None] = Counter()
        self.quotas = Quotas(service.registry, self.limits)
        self._limits: dict[int, TenantLimits] = {}
        self._paces = Paces(service.state, service.clock.now_us)
        self.readers = Readers(service.events, lambda: service.feeds.first_seq)
        self._cursors: dict[tuple[int, str, str], Reader] = {}
        self._saving_cursors: dict[int, asyncio.Lock] = {}
        self._counting: asyncio.Task[None] | None = None
        self._recounting: asyncio.Task[None] | None = None
        self.sinks = StoredSinks(
            service.state,
            service.feeds,
            self._attempted,
            lambda lost: self.lost(lost, "webhook"),
            readers=self.readers,
            end=self._end_sink,
        )
        self._client = SinkClient(SinkNetworks.of(settings.allow_sinks))
        self.webhooks = WebhookSender(
            self.sinks,
            self._client,
            clock=service.clock,
            delivered=metrics.delivered.labels("webhook").inc,
        )
        self._sink_channels = SinkChannels(service.registry)

    async def start(self) -> None:
        """Send what webhooks have not sent yet, and what comes from now on."""
        reading = FairPool(_READING_THREADS, _READING_THREADS // 2, "reading")
        asyncio.get_running_loop().set_default_executor(reading)
        self.service.on_block += [self.readers.put, self._wake_sinks]
        self.readers.on_damage = self.service.damaged
        self.service.on_rebuilt.append(self._recount)
        self._counting = asyncio.create_task(self._count_cursors())
        if self.service.read_only is None:  # otherwise nobody would know what was sent
            self.webhooks.start(await self.sinks.all())

    async def close(self) -> None:
        """Stop webhooks, and save how far they are and what streams have sent."""
        self.stopping = True
        if self._counting is not None:
            self._counting.cancel()
        await self._paces.close()
        await self.webhooks.close()
        await self.sinks.close()
        await self._client.close()
        self.parsing.shutdown(wait=False)

    async def parse(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work that takes as long as a request is large, beside the loop, when it is its turn.

        Raises
        ------
        Problem
            Of status 429, if too many requests of the tenant wait for this.
        """
        tenant = TENANT.get()
        held, size = self._held_bytes[tenant], sum(len(one) for one in args if type(one) is bytes)
        too_large = held and held + size > _MAX_HELD_BYTES
        if too_large or self.parsing.waiting(tenant) >= _MAX_WAITING:
            detail = "too many large requests of the tenant wait already; try again in 1 s"
            raise Problem(429, "TOO_MANY_REQUESTS", detail, headers={"Retry-After": "1"})
        self._held_bytes[tenant] += size
        try:
            return await asyncio.wrap_future(self.parsing.submit(work, *args, **kwargs))
        finally:
            self._held_bytes[tenant] -= size
            if not self._held_bytes[tenant]:
                del self._held_bytes[tenant]

    def _recount(self) -> None:
        self._recounting = asyncio.create_task(self.readers.recount())

    def _wake_sinks(self, block: Block) -> None:
        self.webhooks.wake(self._sink_channels.of_block(block))

    def _attempted(self, attempt: Attempt) -> None:
        """Count an attempt to call a sink."""
        self.metrics.webhook_attempts.labels("delivered" if attempt.delivered else "failed").inc()

    async def check_sink(self, url: str) -> None:
        """Raise a problem if a sink leads only to addresses that requests may not go to."""
        if not await self._client.may_reach(url):
            reason = "its host has no address that is allowed: private networks are refused"
            raise Problem.of_fields([FieldError("sink", reason)], "INVALID_SINK")

    def limits(self, tenant: int) -> TenantLimits:
        """Return the limits of a tenant."""
        found = self._limits.get(tenant)
        if found is None:
            given = {t.number: t.limits for t in self.service.state.tenants()}.get(tenant, {})
            found = self._limits[tenant] = TenantLimits.of(given, self.settings)
        return found

    async def feed(self, tenant: int, subscriber: str | None, after: Position) -> PacedFeed:
        """Return the events of a subscriber after a position, when it wants them.

        Without a subscriber, those of all subscribers of the tenant as they come. The feed must be
        closed.
        """
        if subscriber is not None:
            await self.make_subscriber(tenant, subscriber)
        feed = await self.service.feed(tenant, subscriber, after)
        try:
            pace = await self._paces.of(tenant, subscriber, feed.channel)
            reader = await self.readers.add("stream", feed.channel, after)
        except BaseException:  # also if the client is gone
            feed.close()
            raise
        feed.closed = lambda: self.readers.remove(reader)
        return PacedFeed(feed, pace, self.readers, reader)

    async def make_subscriber(self, tenant: int, subscriber: str) -> None:
        """Make a subscriber unless there is one, if the tenant may have another."""
        if not self.service.registry.channel_of(Channel(tenant, subscriber)):
            async with self.quotas.one_subscriber(tenant):
                await self.service.channel(tenant, subscriber)

    async def save_cursor(
        self, tenant: int, subscriber: str, name: str, value: str, time_us: int
    ) -> None:
        """Keep a cursor, unless it is new and the subscriber has as many as it may have."""
        await self.make_subscriber(tenant, subscriber)
        state, limit = self.service.state, self.limits(tenant).cursors
        # Otherwise several new ones could all be taken for the last one.
        async with self._saving_cursors.setdefault(tenant, asyncio.Lock()):
            if (tenant, subscriber, name) not in self._cursors:
                kept = await asyncio.to_thread(state.cursor_names, tenant, subscriber)
                if name not in kept and len(kept) >= limit:
                    detail = f"a subscriber may have {limit:,} cursors; use one of them again"
                    raise Problem(403, "PERMISSION_DENIED", detail)
            await asyncio.to_thread(state.save_cursor, tenant, subscriber, name, value, time_us)
        await self.keep_cursor(tenant, subscriber, name, value)

    async def change_pace(
        self, tenant: int, subscriber: str, channel: int, settings: PacingSettings
    ) -> None:
        """Deliver the events of a subscriber when it wants them now."""
        # Also if nobody reads yet: a stream may have loaded the settings of before just now.
        (await self._paces.of(tenant, subscriber, channel)).change(settings)
        self.service.feeds.wake(channel)
        for sink in await asyncio.to_thread(self.service.state.sinks, tenant):
            if sink.subscriber == subscriber:
                await self.webhooks.reload(sink.id)

    async def keep_cursor(self, tenant: int, subscriber: str, name: str, value: str) -> None:
        """Count what waits after a cursor that the server keeps."""
        whose = tenant, subscriber, name
        channel = await self.service.channel(tenant, subscriber)
        position, _ = self.service.position(value)
        reader = self._cursors.get(whose)
        if reader is None:
            reader = await self.readers.add("cursor", channel, position)
            other = self._cursors.setdefault(whose, reader)
            if other is reader:
                return
            self.readers.remove(reader)
            reader = other
        await self.readers.move(reader, position)

    async def pending(self) -> dict[ReaderKind, int]:
        """Return how many events wait for readers, by their kind."""
        if self._counting is not None:
            await asyncio.shield(self._counting)
        return await self.readers.pending()

    async def _count_cursors(self) -> None:
        """Count what waits after the cursors that were kept when the server started."""
        found = await asyncio.to_thread(self._stored_cursors)
        readers = await self.readers.add_all("cursor", [place for _, place in found])
        for (whose, _), reader in zip(found, readers, strict=True):
            if self._cursors.setdefault(whose, reader) is not reader:  # it was moved meanwhile
                self.readers.remove(reader)

    def _stored_cursors(self) -> list[tuple[tuple[int, str, str], tuple[int, Position]]]:
        """Return whose the kept cursors are, and their channels and positions."""
        service, found = self.service, []
        for row in service.state.cursors():
            channel = service.registry.channel_of(Channel(row.tenant, row.subscriber))
            if channel:
                place = channel, service.position(row.value)[0]
                found.append(((row.tenant, row.subscriber, row.name), place))
        return found

    async def _end_sink(self, sink_id: str, reason: str) -> None:
        """End the subscriptions of a sink whose receiver wants nothing any more."""
        await self.service.administer({"op": "sink-gone", "id": sink_id, "reason": reason})

    def delivered(self, events: list[Rendered], kind: str) -> None:
        """Count events that were handed to a connection."""
        gaps = [event for event in events if event.type == b"gap"]
        for gap in gaps:
            self.lost(msgspec.json.decode(gap.body)["lost"], kind)
        if len(events) > len(gaps):
            self._delivered[kind].inc(len(events) - len(gaps))
            delay_s = time.time() - events[-1].time_us / 1e6
            if 0 <= delay_s < _LIVE_S:
                self.metrics.write_s.observe(delay_s)

    def missing(self, gap: Gap | None, kind: str) -> None:
        """Count events that cannot be had any more."""
        if gap is not None:
            self.lost(gap.lost, kind)

    def lost(self, events: int | None, kind: str) -> None:
        """Count a gap, and the events in it if their number is known."""
        self.metrics.gaps.labels(kind).inc()
        self.metrics.lost.labels(kind).inc(events or 0)

    def forget(self) -> None:
        """Read keys and limits again: something about tenants has changed."""
        for tenant in self._limits:
            self.limiter.forget(tenant)
        self._limits.clear()
        self.authenticator.forget()
        self.service.feeds.check()

    def _authenticate(self, key_id: str, digest: bytes) -> Principal | None:
        key = self.service.state.key(key_id)
        known = key.sha256 if key is not None else b"\0" * len(digest)
        if not same_hash(digest, known) or key is None or key.revoked_us is not None:
            return None
        return Principal(key.tenant, key.id, frozenset(key.roles), key.subscriber)


ROLES_OF: dict[Callable[..., Any] | None, str] = {}
"""The roles of the dependencies that `may` returned, for the description of the API."""


def context_of(connection: HTTPConnection) -> Context:
    """Return the context of a request."""
    context: Context = connection.app.state.context
    return context


def may(*roles: str) -> Callable[..., Awaitable[Principal]]:
    """Return a dependency: who sends a request, if one of the roles allows it.

    The key itself, and the rate of its tenant, were checked at the `nearcast.server.http.gate`.
    """

    async def principal(
        connection: HTTPConnection, _: Annotated[object, Depends(_bearer)] = None
    ) -> Principal:
        found = principal_of(connection.scope)
        found.require(*roles)
        check_parameters(connection)
        return found

    ROLES_OF[principal] = " or ".join(roles)
    return principal


def named_subscriber(principal: Principal, given: str | None) -> str:
    """Return the subscriber that a request is about, if it may be."""
    name = given or principal.subscriber or DEFAULT_SUBSCRIBER
    if len(name) > 256 or not name.isprintable():
        raise InvalidInput("subscriber", name, "must have 1 to 256 printable characters")
    principal.require_subscriber(name)
    return name


def named_reader(principal: Principal, given: str | None, everyone: bool) -> str | None:
    """Return the subscriber whose events a request reads, if it may; None for all of the tenant."""
    if not everyone:
        return named_subscriber(principal, given)
    if given is not None:
        raise InvalidInput("subscriber", given, "cannot be given together with all=1")
    principal.require_subscriber(None)
    return None
