"""How many subscriptions and subscribers a tenant may have, also if many come at the same time.

A number is reserved before a change is written and given back when it has been applied. In between
it may count twice, as reserved and as there. So a request that only fails because of what is
reserved waits until the others are done: a limit of 5 means exactly 5.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from nearcast.server.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nearcast.server.http.context import TenantLimits
    from nearcast.server.matching.registry import Registry

__all__ = ["Quotas"]


class Quotas:
    """Counts what tenants have, and what they are about to get.

    Parameters
    ----------
    registry
        Knows what there is.
    limits_of
        Returns the limits of a tenant.
    """

    def __init__(self, registry: Registry, limits_of: Callable[[int], TenantLimits]) -> None:
        self._registry = registry
        self._limits_of = limits_of
        self._subscriptions = _Reserved()
        self._subscribers = _Reserved()

    @asynccontextmanager
    async def new_subscriptions(self, tenant: int, wanted: int) -> AsyncIterator[int]:
        """Reserve subscriptions; return how many of those that are wanted may be made."""

        def left() -> int:
            there = self._registry.per_tenant.get(tenant, 0)
            return self._limits_of(tenant).subscriptions - there

        async with self._subscriptions.some(tenant, wanted, left) as granted:
            yield granted

    @asynccontextmanager
    async def new_subscribers(self, tenant: int, wanted: int) -> AsyncIterator[int]:
        """Reserve subscribers; return how many of those that are wanted may be made."""

        def left() -> int:
            there = self._registry.subscribers_per_tenant.get(tenant, 0)
            return self._limits_of(tenant).subscribers - there

        async with self._subscribers.some(tenant, wanted, left) as granted:
            yield granted

    @asynccontextmanager
    async def one_subscription(self, tenant: int) -> AsyncIterator[None]:
        """Reserve a subscription, or raise a problem of status 403 if there may not be another."""
        async with self.new_subscriptions(tenant, 1) as granted:
            if not granted:
                limit = self._limits_of(tenant).subscriptions
                detail = (
                    f"the tenant may have {limit:,} subscriptions; delete some, or ask for more"
                )
                raise Problem(403, "PERMISSION_DENIED", detail)
            yield

    @asynccontextmanager
    async def one_subscriber(self, tenant: int) -> AsyncIterator[None]:
        """Reserve a subscriber, or raise a problem of status 403 if there may not be another."""
        async with self.new_subscribers(tenant, 1) as granted:
            if not granted:
                raise Problem(403, "PERMISSION_DENIED", self.too_many_subscribers(tenant))
            yield

    def too_many_subscribers(self, tenant: int) -> str:
        """Return what to tell a tenant that has all the subscribers it may have."""
        limit = self._limits_of(tenant).subscribers
        return f"the tenant may have {limit:,} subscribers; use one of them, or ask for more"


class _Reserved:
    """What is reserved, by tenant."""

    def __init__(self) -> None:
        self._count: Counter[int] = Counter()
        self._given_back: dict[int, asyncio.Event] = {}

    @asynccontextmanager
    async def some(self, tenant: int, wanted: int, left: Callable[[], int]) -> AsyncIterator[int]:
        while 0 < left() < self._count[tenant] + wanted and self._count[tenant]:
            await self._given_back.setdefault(tenant, asyncio.Event()).wait()
        granted = max(0, min(wanted, left() - self._count[tenant]))
        self._count[tenant] += granted
        try:
            yield granted
        finally:
            self._count[tenant] -= granted
            if not self._count[tenant]:
                del self._count[tenant]
            waiting = self._given_back.pop(tenant, None)
            if waiting is not None:
                waiting.set()
