"""What operators ask: metrics, and whether the server is alive and ready."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from nearcast.server.http.context import Context, context_of
from nearcast.server.http.metrics import CONTENT_TYPE
from nearcast.server.http.problems import Problem
from nearcast.server.log.clocks import MAX_LEAD_US, as_duration

if TYPE_CHECKING:
    from nearcast.server.http.metrics import Metrics
    from nearcast.server.matching.events import Block
    from nearcast.server.matching.matcher import Processed

__all__ = ["MAX_READY_BACKLOG", "MetricsObserver", "router"]

router = APIRouter(tags=["monitoring"])
MAX_READY_BACKLOG = 100_000
"""With more messages and changes waiting to be matched, the server is not ready."""


class MetricsObserver:
    """Counts what the service does; see `nearcast.server.service.Observer`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def committed(self, messages: int, waited_s: float) -> None:
        """Count messages on disk."""
        self._metrics.published.inc(messages)
        self._metrics.commit_s.observe(waited_s)

    def matched(self, processed: Processed, block: Block, delay_s: float) -> None:
        """Count matches and events."""
        metrics = self._metrics
        metrics.matched.inc(processed.matches)
        metrics.recorded.inc(int(block.counts.sum()))
        if processed.messages:
            metrics.match_s.observe(delay_s)
            metrics.examined.observe(processed.examined / processed.messages)


@router.get("/healthz", response_class=PlainTextResponse)
async def health() -> str:
    """Tell that the process answers."""
    return "ok\n"


@router.get("/metrics", response_class=PlainTextResponse)
async def read_metrics(request: Request) -> Response:
    """Return the metrics of the server in the text format of Prometheus. It needs no key."""
    context = context_of(request)
    await asyncio.to_thread(_measure, context)
    for kind, events in (await context.pending()).items():
        context.metrics.pending.labels(kind).set(events)
    context.metrics.retries.set(context.sinks.retrying)
    return Response(context.metrics.render(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/readyz", response_class=PlainTextResponse)
async def read_readiness(request: Request) -> PlainTextResponse:
    """Answer `ready` if requests can be served without long waits. It needs no key."""
    context = context_of(request)
    if context.stopping:
        raise Problem(503, "UNAVAILABLE", "the server is stopping")
    backlog = context.service.pipeline.backlog
    if backlog > MAX_READY_BACKLOG:
        detail = f"{backlog:,} messages and changes wait to be matched"
        raise Problem(503, "UNAVAILABLE", detail, headers={"Retry-After": "1"})
    return PlainTextResponse("\n".join(["ready", *_notes(context)]) + "\n")


def _notes(context: Context) -> list[str]:
    """Return what an operator should know of a server that can serve."""
    notes = []
    service = context.service
    if service.read_only is not None:
        notes.append(
            f"read only: {service.read_only}; what has to be stored is refused, and webhooks are "
            "not sent, until the server is started again with a disk that can be written"
        )
    if service.lead_us > MAX_LEAD_US:
        notes.append(
            f"the log is {as_duration(service.lead_us)} ahead of the clock of the machine; if the "
            "clock is right, stop the server and run: nearcast clock --repair"
        )
    return notes


def _measure(context: Context) -> None:
    """Set what is measured when somebody asks for it."""
    metrics, service = context.metrics, context.service
    stats = service.engine.stats()
    metrics.segments.set(len(stats.segments))
    metrics.subscriptions.set(stats.subscriptions)
    metrics.log_bytes.set(service.log.size_bytes)
    metrics.last_seq.set(service.log.last_seq)
    metrics.matched_seq.set(service.pipeline.matched_seq)
    metrics.clock_lead_s.set(service.lead_us / 1e6)
