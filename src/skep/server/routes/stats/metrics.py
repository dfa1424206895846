"""The metrics of this instance, all its workers together: for Prometheus, and as brief JSON."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from skep.broker.stats.scrape import ScrapeFacts, queen_families
from skep.server.auth.access import Level, needs
from skep.server.routes.section import Section
from skep.telemetry.exposition import expose
from skep.telemetry.snapshots import Counts, Publisher, Snapshot, sum_counts

_UNCACHED: Final = {"cache-control": "no-cache"}
TEXT_FORMAT: Final = "text/plain; version=0.0.4"


class Volume(msgspec.Struct, frozen=True):
    """How many there were, and per second in the last minute."""

    total: int
    rate: float


class PoolFigures(msgspec.Struct, rename="camel", frozen=True):
    """Connections to PostgreSQL."""

    pool_size: int
    idle_connections: int
    waiting_requests: int


class MemoryFigures(msgspec.Struct, rename="camel", frozen=True):
    """Memory in bytes. Only `rss` means something here; the others are Node's."""

    rss: int
    heap_total: int = 0
    heap_used: int = 0
    external: int = 0
    array_buffers: int = 0


class CpuFigures(msgspec.Struct, frozen=True):
    """Processor time in microseconds."""

    user: int
    system: int


class InstanceMetrics(msgspec.Struct, frozen=True):
    """All workers of the instance together."""

    uptime: float
    """Seconds since the oldest worker began."""
    requests: Volume
    messages: Volume
    """Messages pushed and delivered."""
    database: PoolFigures
    memory: MemoryFigures
    cpu: CpuFigures


def metrics_routes(publisher: Publisher, facts: ScrapeFacts) -> list[HTTPRouteHandler]:
    """Declare the routes of metrics."""
    section, read = Section("Metrics"), needs(Level.READ_ONLY)

    @section.get("/metrics", read, response_headers=_UNCACHED)
    async def show_metrics() -> InstanceMetrics:
        """Summarize the metrics of this instance as JSON."""
        return summarize(publisher.gather(), now=datetime.now(UTC).timestamp())

    @section.get("/metrics/prometheus", read, media_type=TEXT_FORMAT)
    async def scrape_metrics() -> Response[bytes]:
        """Expose the metrics of this instance to Prometheus.

        Text exposition format 0.0.4. Names that begin with `skep_` are of this instance; of those
        with `queen_`, which Queen's dashboards know, `queen_cluster_`, `queen_queue_` and
        `queen_dlq_` are of the whole installation.
        """
        snapshots = publisher.gather()
        further = queen_families(snapshots, await facts.read())
        # Thousands of lines would block the event loop for too long.
        text = await asyncio.to_thread(expose, snapshots, further)
        return Response(text, headers=_UNCACHED)

    return section.routes


def summarize(snapshots: Sequence[Snapshot], *, now: float) -> InstanceMetrics:
    """Put the workers of an instance together."""
    counters = sum_counts(each.counters for each in snapshots)
    gauges = sum_counts(each.gauges for each in snapshots)
    cpu = counters.get("skep_process_cpu_seconds", {})
    connections = gauges.get("skep_db_connections", {})
    idle = sum(count for labels, count in connections.items() if labels[1] == "idle")
    return InstanceMetrics(
        uptime=round(now - min(each.started_at for each in snapshots), 3),
        requests=Volume(
            _total(counters, "skep_http_requests"),
            round(sum(each.requests_per_s for each in snapshots), 3),
        ),
        messages=Volume(
            _total(counters, "skep_pushed_messages") + _total(counters, "skep_popped_messages"),
            round(sum(each.messages_per_s for each in snapshots), 3),
        ),
        database=PoolFigures(
            int(sum(connections.values())), int(idle), _total(gauges, "skep_db_waiting_calls")
        ),
        memory=MemoryFigures(_total(gauges, "skep_process_resident_memory_bytes")),
        cpu=CpuFigures(int(cpu[("user",)] * 1e6), int(cpu[("system",)] * 1e6)),
    )


def _total(counts: Counts, family: str) -> int:
    return int(sum(counts.get(family, {}).values()))
