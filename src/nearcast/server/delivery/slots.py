"""Who may send a request to a sink now: shares of hosts and tenants, and lanes for hosts that fail.

Requests to receivers that never answer last until their timeout. So that they delay nobody else:

- A host gets a few requests at once. If several tenants have sinks there, each leaves as many of
  its slots free as it takes.
- A host belongs to a lane by its last attempts, for each tenant apart: the receivers of one tenant
  cannot give the host of another a bad name. Most slots are for hosts that answer; some for those
  that are new or failed once; a few for those that failed more often.
- A tenant takes at most as many slots of a lane as it leaves free. However many tenants wait for
  answers that do not come, one more finds slots.

Within a lane, the tenant with the fewest requests in flight comes first, of its hosts those that
failed less often, and then those that wait longest.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["ANSWERING", "FAILING", "PER_HOST", "UNPROVEN", "Slots"]

PER_HOST: Final = 8
ANSWERING: Final = 384
UNPROVEN: Final = 96
FAILING: Final = 32

_NEW = 1
"""A host that nothing is known of counts as one that failed once."""

_MAX_FAILURES = 10
_REMEMBERED_HOSTS = 10_000


class Slots:
    """The slots of requests to sinks. All methods are called in the event loop.

    Parameters
    ----------
    per_host
        How many requests may be in flight to one host.
    answering, unproven, failing
        How many to hosts that answer, that are new or failed once, and that failed more often.
    """

    def __init__(
        self,
        *,
        per_host: int = PER_HOST,
        answering: int = ANSWERING,
        unproven: int = UNPROVEN,
        failing: int = FAILING,
    ) -> None:
        self._per_host = per_host
        self._lanes = (_Lane(answering), _Lane(unproven), _Lane(failing))
        self._hosts: dict[str, dict[int, _Target]] = {}
        self._idle: OrderedDict[_Target, None] = OrderedDict()
        self._waiting = 0

    @property
    def in_flight(self) -> int:
        """How many slots are taken."""
        return sum(lane.taken for lane in self._lanes)

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return self._waiting

    @asynccontextmanager
    async def take(self, tenant: int, host: str) -> AsyncIterator[None]:
        """Wait until a request of a tenant to a host may be sent, and count it as in flight."""
        target = self._target(tenant, host)
        lane = await self._take(target)
        try:
            yield
        finally:
            self._release(target, lane)

    def note(self, tenant: int, host: str, *, answered: bool) -> None:
        """Note what became of a request that was in flight.

        Parameters
        ----------
        tenant, host
            Of the request.
        answered
            Whether the host answered in time, and not that it is in trouble itself.
        """
        target = self._hosts[host][tenant]
        failures = 0 if answered else min(target.failures + 1, _MAX_FAILURES)
        if failures == target.failures:
            return
        if target.requests:
            self._lane(target).forget(target)
        target.failures = failures
        if target.requests:
            self._lane(target).add(target)

    def _lane(self, target: _Target) -> _Lane:
        return self._lanes[min(target.failures, len(self._lanes) - 1)]

    def _target(self, tenant: int, host: str) -> _Target:
        tenants = self._hosts.setdefault(host, {})
        target = tenants.get(tenant)
        if target is None:
            target = tenants[tenant] = _Target(tenant, host)
        return target

    async def _take(self, target: _Target) -> _Lane:
        """Take a slot, and return its lane."""
        self._idle.pop(target, None)
        lane = self._lane(target)
        if not target.requests and self._is_allowed(target, lane):
            target.in_flight += 1
            lane.count(target.tenant, 1)
            return lane
        request: asyncio.Future[_Lane] = asyncio.get_running_loop().create_future()
        if not target.requests:
            lane.add(target)
        target.requests[request] = None
        self._waiting += 1
        try:
            return await request
        except asyncio.CancelledError:
            if not request.cancelled():  # it got its slot just now
                self._release(target, request.result())
            elif request in target.requests:
                self._drop(target, request)
            raise

    def _drop(self, target: _Target, request: asyncio.Future[_Lane]) -> None:
        """Forget a request that was given up while it waited."""
        del target.requests[request]
        self._waiting -= 1
        if not target.requests:
            self._lane(target).forget(target)
        self._rest(target)

    def _is_allowed(self, target: _Target, lane: _Lane) -> bool:
        return lane.has_share(target.tenant) and self._host_has_share(target)

    def _host_has_share(self, target: _Target) -> bool:
        tenants = self._hosts[target.host].values()
        free = self._per_host - sum(other.in_flight for other in tenants)
        return free > 0 if len(tenants) == 1 else target.in_flight < free

    def _release(self, target: _Target, lane: _Lane) -> None:
        target.in_flight -= 1
        lane.count(target.tenant, -1)
        self._rest(target)
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        """Give slots to requests that wait, until nobody may have one."""
        for lane in self._lanes:
            while (target := self._next(lane)) is not None:
                request = next(iter(target.requests))
                if request.cancelled():  # its task does not know yet
                    self._drop(target, request)
                    continue
                target.in_flight += 1
                lane.count(target.tenant, 1)
                del target.requests[request]
                self._waiting -= 1
                lane.forget(target)
                if target.requests:
                    lane.add(target)  # after the other hosts of the tenant
                request.set_result(lane)

    def _next(self, lane: _Lane) -> _Target | None:
        """Return the target whose request comes next in a lane; None if none may be sent."""
        for tenant in lane.by_share():
            if not lane.has_share(tenant):
                return None  # and those after it have more
            # Only hosts with requests in flight are passed over, so these are few.
            for target in lane.targets(tenant):
                if self._host_has_share(target):
                    return target
        return None

    def _rest(self, target: _Target) -> None:
        """Keep what is known of a host that has no request; of too many, forget the oldest."""
        if target.in_flight or target.requests:
            return
        self._idle[target] = None
        self._idle.move_to_end(target)
        while len(self._idle) > _REMEMBERED_HOSTS:
            oldest, _ = self._idle.popitem(last=False)
            tenants = self._hosts[oldest.host]
            del tenants[oldest.tenant]
            if not tenants:
                del self._hosts[oldest.host]


class _Target:
    """A host to which a tenant sends: its requests, and how often the last ones failed."""

    __slots__ = ("failures", "host", "in_flight", "requests", "tenant")

    def __init__(self, tenant: int, host: str) -> None:
        self.tenant, self.host = tenant, host
        self.failures = _NEW
        self.in_flight = 0
        self.requests: OrderedDict[asyncio.Future[_Lane], None] = OrderedDict()


class _Lane:
    """Some slots, how many of them each tenant has, and the targets that wait for one."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.taken = 0
        self._taken_by: dict[int, int] = {}
        # By tenant and number of failures, in the order of their arrival.
        self._targets: dict[int, dict[int, OrderedDict[_Target, None]]] = {}

    def has_share(self, tenant: int) -> bool:
        """Return whether a tenant may have one more: it leaves as many free as it takes."""
        return self._taken_by.get(tenant, 0) < self._slots - self.taken

    def count(self, tenant: int, change: int) -> None:
        """Count slots that a tenant takes or gives back."""
        self.taken += change
        taken = self._taken_by.get(tenant, 0) + change
        if taken:
            self._taken_by[tenant] = taken
        else:
            del self._taken_by[tenant]

    def add(self, target: _Target) -> None:
        """Let a target wait, after the others of its tenant that failed as often."""
        by_failures = self._targets.setdefault(target.tenant, {})
        by_failures.setdefault(target.failures, OrderedDict())[target] = None

    def forget(self, target: _Target) -> None:
        """Let a target no longer wait."""
        by_failures = self._targets[target.tenant]
        del by_failures[target.failures][target]
        if not by_failures[target.failures]:
            del by_failures[target.failures]
            if not by_failures:
                del self._targets[target.tenant]

    def by_share(self) -> list[int]:
        """Return the tenants that wait; the one with the fewest slots first."""
        return sorted(self._targets, key=lambda tenant: self._taken_by.get(tenant, 0))

    def targets(self, tenant: int) -> Iterator[_Target]:
        """Return the targets of a tenant that wait, in the order of their turns."""
        by_failures = self._targets[tenant]
        for failures in sorted(by_failures):
            yield from by_failures[failures]
