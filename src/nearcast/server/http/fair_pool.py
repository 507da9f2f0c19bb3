"""Threads that tenants share: nobody waits for all that another tenant has asked for.

A `FairPool` has a queue for each tenant and takes turns, and no tenant has more than its share of
the threads. There are two of them: one for parsing, which is bounded by the bytes of a request,
and one for reading and everything else (`asyncio.to_thread`). So reading never waits for parsing.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TENANT", "FairPool"]

P = ParamSpec("P")
T = TypeVar("T")

TENANT: ContextVar[int | None] = ContextVar("tenant", default=None)
"""For whom the current request is; None for the server itself."""


class _Job(NamedTuple):
    """Work that waits or is being done, for whom, and where its result goes."""

    tenant: int | None
    work: Callable[[], Any]
    future: Future[Any]


class FairPool(ThreadPoolExecutor):
    """Threads whose work is chosen in turns of tenants; whose it is says `TENANT`.

    Parameters
    ----------
    threads
        How many there are.
    share
        How many of them work for one tenant at a time, at most. The server's own work, without a
        tenant, may have all of them.
    name
        How the names of the threads begin.

    Examples
    --------
    >>> with FairPool(2, 1, "doing") as pool:
    ...     pool.submit(sum, [1, 2]).result()
    3
    """

    def __init__(self, threads: int, share: int, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._choosing = threading.Lock()
        self._free, self._share = threads, share
        self._waiting: dict[int | None, deque[_Job]] = {}  # the first one is next
        self._at_work: Counter[int | None] = Counter()
        self._closed = False

    def waiting(self, tenant: int | None) -> int:
        """Return how much work of a tenant waits for a thread."""
        return len(self._waiting.get(tenant, ()))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do some work for the tenant of the current request when it is its turn."""
        job = _Job(TENANT.get(), partial(fn, *args, **kwargs), Future())
        with self._choosing:
            if self._closed:
                raise RuntimeError("the pool is closed; no work can be submitted any more")
            self._waiting.setdefault(job.tenant, deque()).append(job)
            self._start()
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and do what waits, or cancel it."""
        with self._choosing:
            self._closed = True
            if cancel_futures:
                for job in (job for jobs in self._waiting.values() for job in jobs):
                    job.future.cancel()
            self._free = self._share = sys.maxsize  # the queue of the threads has no end
            self._start()
        super().shutdown(wait)

    def _start(self) -> None:
        """Give free threads the work of those who waited longest for their turn."""
        while self._free:
            allowed = (t for t in self._waiting if t is None or self._at_work[t] < self._share)
            tenant = next(allowed, -1)
            jobs = self._waiting.pop(tenant, None)
            if jobs is None:
                return
            job = jobs.popleft()
            if jobs:
                self._waiting[tenant] = jobs  # after all others
            if job.future.set_running_or_notify_cancel():  # otherwise nobody waits any more
                self._free -= 1
                self._at_work[tenant] += 1
                super().submit(self._do, [job])

    def _do(self, handed_over: list[_Job]) -> None:
        """Do the only job of a list, and forget it.

        An error knows all frames below it, and the job knows its future, which knows the error. A
        frame that still had the job would close a circle: the body of every refused request would
        be kept until the garbage collector comes.
        """
        job = handed_over.pop()
        try:
            result = job.work()
        except BaseException as error:
            self._done(job.tenant)
            job.future.set_exception(error)
        else:
            self._done(job.tenant)
            job.future.set_result(result)
        finally:
            del job

    def _done(self, tenant: int | None) -> None:
        with self._choosing:
            self._free += 1
            self._at_work[tenant] -= 1
            if not self._at_work[tenant]:
                del self._at_work[tenant]
            self._start()
