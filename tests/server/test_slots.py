"""Who may send to a sink when: shares of tenants and hosts, and lanes for hosts that fail."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from effort import examples
from nearcast.server.delivery import slots as slots_module
from nearcast.server.delivery.addresses import SinkNetworks
from nearcast.server.delivery.posting import Answer, SinkClient
from nearcast.server.delivery.sinks import Sink
from nearcast.server.delivery.slots import FAILING, PER_HOST, UNPROVEN, Slots
from nearcast.server.delivery.webhooks import Retries, WebhookSender
from webhook_world import MemoryEvents, VirtualClock, receiving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import pytest


class Senders:
    """Requests that are in flight, or wait, until a test ends them."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.held: list[tuple[int, str, asyncio.Event]] = []
        self._answered: dict[asyncio.Event, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, tenant: int, *hosts: str) -> None:
        """Send a request to each host; it is in flight, or waits, on return."""
        for host in hosts:
            task = asyncio.create_task(self._request(tenant, host))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await settle()

    async def _request(self, tenant: int, host: str) -> None:
        async with self.slots.take(tenant, host):
            end = asyncio.Event()
            self.held.append((tenant, host, end))
            await end.wait()
            self.slots.note(tenant, host, answered=self._answered[end])

    async def end(self, *, answered: bool, tenant: int | None = None, most: int = 1 << 30) -> int:
        """End requests that are in flight, and return how many."""
        ending = [one for one in self.held if tenant in (None, one[0])][:most]
        for one in ending:
            self.held.remove(one)
            self._answered[one[2]] = answered
            one[2].set()
        await settle()
        return len(ending)

    async def teach(self, tenant: int, host: str, *, answered: bool, times: int = 1) -> None:
        """Let some requests to a host end, one after the other."""
        for _ in range(times):
            await self.send(tenant, host)
            await self.end(answered=answered, tenant=tenant)

    def count(self, tenant: int, host: str | None = None) -> int:
        """Return how many requests of a tenant are in flight."""
        return sum(one[0] == tenant and host in (None, one[1]) for one in self.held)

    async def close(self) -> None:
        """Give everything up."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert (self.slots.in_flight, self.slots.waiting) == (0, 0)


async def settle() -> None:
    """Let tasks go on that can."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def sending(**limits: int) -> AsyncIterator[Senders]:
    senders = Senders(Slots(**limits))
    try:
        yield senders
    finally:
        await senders.close()


def hosts(count: int, name: str = "tarpit") -> list[str]:
    return [f"{name}-{number}.example" for number in range(count)]


def test_a_thousand_tarpits_leave_slots_for_every_other_tenant() -> None:
    async def run() -> None:
        async with sending() as senders:
            await senders.send(1, *hosts(1000))
            assert senders.count(1) == UNPROVEN // 2
            for tenant in range(2, 6):  # however many tenants do the same
                await senders.send(tenant, *hosts(1000))
                assert senders.count(tenant) > 0
            await senders.send(9, "healthy.example")
            assert senders.count(9) == 1

    asyncio.run(run())


def test_tarpits_of_a_tenant_leave_slots_for_its_hosts_that_answer() -> None:
    async def run() -> None:
        async with sending() as senders:
            for host in hosts(100, "good"):
                await senders.teach(1, host, answered=True)
            await senders.send(1, *hosts(1000))
            await senders.send(1, *hosts(100, "good"))
            assert sum(one[1].startswith("good") for one in senders.held) == 100

    asyncio.run(run())


def test_hosts_that_fail_again_have_few_slots_and_one_success_ends_that() -> None:
    async def run() -> None:
        async with sending() as senders:
            tarpits = hosts(100)
            for host in tarpits:
                await senders.teach(1, host, answered=False)
            await senders.send(1, *tarpits)
            assert senders.count(1) == FAILING // 2
            back = [host for _, host, _ in senders.held]
            await senders.send(2, *back)  # these are new for the other tenant
            assert senders.count(2) == len(back)
            assert await senders.end(answered=True, tenant=1) == len(back)
            await senders.send(1, *back)
            assert senders.count(1) == FAILING // 2 + len(back)

    asyncio.run(run())


def test_a_host_that_failed_once_more_often_comes_later() -> None:
    async def run() -> None:
        async with sending(failing=2) as senders:
            for host in hosts(5):
                await senders.teach(1, host, answered=False, times=5)
            await senders.teach(1, "recovered.example", answered=False, times=2)
            await senders.send(1, *hosts(5), "recovered.example")
            assert senders.count(1) == 1
            await senders.end(answered=False, tenant=1)
            assert [one[1] for one in senders.held] == ["recovered.example"]

    asyncio.run(run())


def test_a_host_has_eight_slots_and_tenants_share_them() -> None:
    async def run() -> None:
        async with sending() as senders:
            await senders.send(1, *["one.example"] * 20)
            assert senders.count(1) == PER_HOST
            await senders.send(2, "one.example")
            assert senders.count(2) == 0  # nobody knew that it would come
            await senders.end(answered=True, tenant=1, most=8)
            assert senders.count(2) == 1
            # From now on each tenant leaves some of them free.
            assert senders.count(1) == 4
            await senders.end(answered=True, tenant=2)
            await senders.send(2, *["one.example"] * 20)
            assert senders.count(2) > 1
            assert senders.count(1) + senders.count(2) <= PER_HOST

    asyncio.run(run())


def test_hosts_of_a_tenant_take_turns() -> None:
    async def run() -> None:
        async with sending(per_host=1, answering=2, unproven=2) as senders:
            for host in ("a.example", "b.example"):
                await senders.teach(1, host, answered=True)
            await senders.send(1, *["a.example"] * 3, *["b.example"] * 3)
            order = []
            while senders.held:
                order.append(senders.held[0][1][0])
                await senders.end(answered=True, most=1)
            assert order == ["a", "a", "b", "a", "b", "b"]  # the first did not wait

    asyncio.run(run())


def test_requests_that_are_given_up_while_they_wait() -> None:
    async def run() -> None:
        async with sending(per_host=1) as senders:
            await senders.send(1, "a.example")
            waiting = [asyncio.create_task(senders._request(1, "a.example")) for _ in range(3)]
            await settle()
            assert senders.slots.waiting == 3
            # The slot is free before the task of the first knows that it was given up.
            senders._answered[senders.held[0][2]] = True
            senders.held.pop()[2].set()
            waiting[0].cancel()
            await settle()
            assert (len(senders.held), senders.slots.waiting) == (1, 1)
            waiting[2].cancel()
            await settle()
            assert (senders.slots.in_flight, senders.slots.waiting) == (1, 0)
            # One that gets its slot just when it is given up gives it back.
            last = asyncio.create_task(senders._request(1, "a.example"))
            await settle()
            senders._answered[senders.held[0][2]] = True
            senders.held.pop()[2].set()
            while senders.slots.waiting:
                await asyncio.sleep(0)
            last.cancel()
            await settle()
            assert (senders.slots.in_flight, senders.slots.waiting) == (0, 0)

    asyncio.run(run())


def test_what_is_known_of_hosts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_module, "_REMEMBERED_HOSTS", 10)

    async def run() -> None:
        async with sending() as senders:
            for number in range(50):
                for host in (f"{number}.example", "used.example"):
                    await senders.teach(1, host, answered=True)
            assert len(senders.slots._hosts) == 10
            assert "used.example" in senders.slots._hosts

    asyncio.run(run())


class _Machine(RuleBasedStateMachine):
    """Requests of some tenants to some hosts, in any order of events, within all limits."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()

    @initialize()
    def begin(self) -> None:
        self.senders = Senders(Slots(per_host=3, answering=6, unproven=4, failing=2))

    @rule(tenant=st.integers(1, 3), host=st.sampled_from("abcd"), count=st.integers(1, 4))
    def send(self, tenant: int, host: str, count: int) -> None:
        self.loop.run_until_complete(self.senders.send(tenant, *[host] * count))

    @precondition(lambda self: self.senders.held)
    @rule(data=st.data(), answered=st.booleans())
    def end(self, data: st.DataObject, answered: bool) -> None:
        one = data.draw(st.sampled_from(self.senders.held))
        self.senders.held.remove(one)
        self.senders._answered[one[2]] = answered
        one[2].set()
        self.loop.run_until_complete(settle())

    @precondition(lambda self: self.senders._tasks)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        tasks = sorted(self.senders._tasks, key=lambda task: int(task.get_name().split("-")[-1]))
        held = len(self.senders.held)
        task = data.draw(st.sampled_from(tasks))
        task.cancel()
        self.loop.run_until_complete(settle())
        assert len(self.senders.held) >= held - 1

    @invariant()
    def limits_hold(self) -> None:
        slots = self.senders.slots
        by_host: dict[str, int] = {}
        for host, tenants in slots._hosts.items():
            by_host[host] = sum(target.in_flight for target in tenants.values())
        assert max(by_host.values(), default=0) <= 3
        assert sum(by_host.values()) == slots.in_flight <= 12
        assert [lane.taken <= lane._slots for lane in slots._lanes] == [True] * 3
        # Whoever waits could not be sent; with nothing in flight, nobody waits.
        assert all(slots._next(lane) is None for lane in slots._lanes)
        assert slots.in_flight or not slots.waiting

    def teardown(self) -> None:
        self.loop.run_until_complete(self.senders.close())
        self.loop.close()


def test_limits_hold_and_nobody_is_forgotten() -> None:
    run_state_machine_as_test(
        _Machine, settings=settings(max_examples=examples(60), stateful_step_count=40)
    )


class _Hosts(SinkClient):
    """Sends nothing: hosts named tarpit never answer, until their time is over; others do."""

    def __init__(self) -> None:
        super().__init__(SinkNetworks())
        self.hanging: list[asyncio.Future[Answer]] = []

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if "tarpit" not in url:
            return Answer(200)
        self.hanging.append(asyncio.get_running_loop().create_future())
        return await self.hanging[-1]

    def time_out(self) -> None:
        """End all requests that hang."""
        hanging, self.hanging = self.hanging, []
        for one in hanging:
            if not one.done():
                one.set_result(Answer(None, "no answer within 15 s"))


def test_a_healthy_sink_never_waits_for_tarpits_of_others() -> None:
    async def run() -> None:
        events, client = MemoryEvents(), _Hosts()
        sender = WebhookSender(
            events, client, clock=VirtualClock(), retries=Retries((5.0, 300.0), jitter=0.0)
        )
        tarpits = [
            events.add(Sink(host, f"https://{host}/", (), (0, 0), tenant=1), events=5).id
            for host in hosts(1000)
        ]
        events.add(Sink("healthy", "https://healthy.example/", (), (0, 0), tenant=2))
        # The same holds for a receiver of the same tenant that has answered before.
        events.add(Sink("neighbor", "https://neighbor.example/", (), (0, 0), tenant=1), events=1)
        sender.wake(["neighbor"])
        await sender.settled()
        sender.wake(tarpits)
        await settle()
        for _ in range(5):
            assert client.hanging
            for sink in ("healthy", "neighbor"):
                events.publish(sink)
                sender.wake([sink])
            # Not one of the requests that hang has to end for that.
            while len(events.events["healthy"]) > events.sinks["healthy"].position[0]:
                await asyncio.sleep(0)
            while len(events.events["neighbor"]) > events.sinks["neighbor"].position[0]:
                await asyncio.sleep(0)
            client.time_out()
            await settle()
        await sender.close(grace_s=0.0)
        await client.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_real_tarpits_delay_no_other_tenant() -> None:
    async def run() -> None:
        events = MemoryEvents()
        accepted: set[str] = set()
        writers = []

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)  # and never answer
            accepted.add(writer.get_extra_info("sockname")[0])

        tarpit = await asyncio.start_server(accept, "0.0.0.0", 0)
        port = tarpit.sockets[0].getsockname()[1]
        client = SinkClient(SinkNetworks.of(["127.0.0.0/8"]), timeout_s=3600)
        sender = WebhookSender(events, client)
        async with receiving() as receiver:
            slow = []
            for number in range(600):
                url = f"http://127.1.{number // 250}.{number % 250 + 1}:{port}/"
                slow.append(events.add(Sink(f"t{number}", url, (), (0, 0), tenant=1), events=1).id)
            events.add(Sink("good", receiver.url, (), (0, 0), tenant=2), events=20)
            sender.wake(slow)
            while len(accepted) < UNPROVEN // 2:
                await asyncio.sleep(0.01)
            sender.wake(["good"])
            await events.attempted(20)
            assert len(receiver.got) == 20
            assert client.slots.in_flight == UNPROVEN // 2
            await sender.close(grace_s=0.0)
            await client.close()
        tarpit.close()
        for writer in writers:
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 120))
