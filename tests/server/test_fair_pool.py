"""Threads that tenants share: whose work is done next, and what happens at the end."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from nearcast.server.http.fair_pool import TENANT, FairPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WAIT_S = 60


@contextmanager
def tenant(number: int | None) -> Iterator[None]:
    token = TENANT.set(number)
    try:
        yield
    finally:
        TENANT.reset(token)


class Gate:
    """Work that begins, says so, and ends when it may."""

    def __init__(self, pool: FairPool, whose: int | None) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        with tenant(whose):
            self.future: Future[bool] = pool.submit(self._wait)

    def _wait(self) -> bool:
        self.begun.set()
        return self.may_end.wait(_WAIT_S)


def submit(pool: FairPool, whose: int | None, work: Callable[..., Any], *args: Any) -> Future[Any]:
    with tenant(whose):
        return pool.submit(work, *args)


def test_one_tenant_never_has_all_threads() -> None:
    with FairPool(2, 1, "test") as pool:
        first, second = Gate(pool, 1), Gate(pool, 1)
        assert first.begun.wait(_WAIT_S)
        assert pool.waiting(1) == 1
        # Another one is served at once, however much the first one has asked for.
        assert submit(pool, 2, int, "7").result(_WAIT_S) == 7
        assert not second.begun.is_set()
        first.may_end.set()
        assert second.begun.wait(_WAIT_S)
        second.may_end.set()
        assert first.future.result(_WAIT_S) is second.future.result(_WAIT_S) is True


def test_tenants_take_turns() -> None:
    order: list[str] = []
    with FairPool(1, 1, "test") as pool:
        gate = Gate(pool, None)
        assert gate.begun.wait(_WAIT_S)
        for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
            submit(pool, ord(name[0]), order.append, name)
        gate.may_end.set()
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_the_server_itself_may_have_all_threads() -> None:
    with FairPool(2, 1, "test") as pool:
        gates = [Gate(pool, None), Gate(pool, None)]
        for gate in gates:
            assert gate.begun.wait(_WAIT_S)
            gate.may_end.set()


def test_errors_arrive_and_threads_go_on() -> None:
    with FairPool(1, 1, "test") as pool:
        with pytest.raises(ValueError, match="invalid literal"):
            submit(pool, 1, int, "x").result(_WAIT_S)
        assert submit(pool, 1, int, "1").result(_WAIT_S) == 1


def test_work_that_nobody_waits_for_is_not_done() -> None:
    done: list[int] = []
    with FairPool(1, 1, "test") as pool:
        gate = Gate(pool, 1)
        assert gate.begun.wait(_WAIT_S)
        dropped, kept = submit(pool, 1, done.append, 1), submit(pool, 1, done.append, 2)
        assert dropped.cancel()
        gate.may_end.set()
        kept.result(_WAIT_S)
    assert done == [2]


@pytest.mark.parametrize("cancel", [False, True])
def test_what_waits_at_the_end_is_done_or_cancelled(cancel: bool) -> None:
    pool = FairPool(1, 1, "test")
    gate = Gate(pool, 1)
    assert gate.begun.wait(_WAIT_S)
    waiting = [submit(pool, number, int, number) for number in (1, 1, 2)]
    pool.shutdown(wait=False, cancel_futures=cancel)
    gate.may_end.set()
    for number, future in zip((1, 1, 2), waiting, strict=True):
        if cancel:
            with pytest.raises(CancelledError):
                future.result(_WAIT_S)
        else:
            assert future.result(_WAIT_S) == number
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(int)


class Body:
    """What a request sent."""


def refuse(body: Body) -> None:
    raise ValueError(f"{body} is refused")


def test_what_was_refused_is_forgotten_at_once() -> None:
    body = Body()
    kept = weakref.ref(body)
    gc.disable()
    try:
        with FairPool(2, 1, "test") as pool:
            refused = submit(pool, 1, refuse, body)
            with pytest.raises(ValueError, match="is refused"):
                refused.result(_WAIT_S)
            del body, refused
        assert kept() is None
    finally:
        gc.enable()
