"""Observation of one process: metrics, traces, and its reports to the statistics tables."""

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from skep import __version__
from skep.app.parts.core import Core
from skep.app.processes.assignment import WorkerAssignment
from skep.broker.attention.read import AttentionReader
from skep.broker.groups.progress import Groups
from skep.broker.pop.long_poll import LongPolls
from skep.broker.queues.catalog import QueueCatalog
from skep.broker.stats.pulse import Pulse, PulseFigures
from skep.broker.stats.rollups import Reporter, WorkerIdentity
from skep.db.access.functions import Functions
from skep.db.access.slots import Slots
from skep.settings import InvalidSettings, Settings
from skep.telemetry.process import LoopWatch, read_process_stats
from skep.telemetry.snapshots import Publisher, SnapshotBoard
from skep.telemetry.tracing import Propagation

if TYPE_CHECKING:
    from skep.telemetry.otel import OtelExport


class Observation:
    """Measures a process and publishes the figures."""

    def __init__(self, assignment: WorkerAssignment, core: Core, long_polls: LongPolls) -> None:
        settings, meters = core.settings, core.meters
        self.queues_max: Final = settings.metrics_queues_max
        self._export: Final = _otel_export(assignment)
        self.tracing: Final = _tracing(settings, self._export)
        self._loop_watch: Final = LoopWatch(meters.loop_lag)
        self.publisher: Final = Publisher(
            meters,
            SnapshotBoard(assignment.runtime_dir, assignment.index),
            worker=assignment.index,
            version=__version__,
        )
        self.attention: Final = AttentionReader(
            Functions(core.query),
            Groups(core.query),
            QueueCatalog(core.query),
            self.publisher.gather,
            stuck_after_s=settings.operation_timeout_s,
            now=core.now,
        )
        figures = PulseFigures(QueueCatalog(core.query), self.publisher.gather, now=core.now)
        self.pulse: Final = Pulse(figures.take)
        self._reporter: Final = Reporter(
            Functions(core.query),
            meters,
            _identity(assignment),
            read_gauges=UsageProbe(core.hot, long_polls, self._loop_watch).read,
            read_parked=long_polls.count_by_group,
            interval_s=settings.metrics_interval_s,
        )

    def start(self) -> None:
        """Start measuring and publishing."""
        self._loop_watch.start()
        self.publisher.start()
        self._reporter.start()

    async def stop(self) -> None:
        """Publish the last figures, and stop."""
        await self._reporter.stop()
        await self.publisher.stop()
        self._loop_watch.stop()
        if self._export is not None:
            await asyncio.to_thread(self._export.close)


def _otel_export(assignment: WorkerAssignment) -> "OtelExport | None":
    settings = assignment.settings
    if settings.tracing != "otlp":
        return None
    try:
        from skep.telemetry.otel import OtelExport  # noqa: PLC0415 (an extra, only where wanted)
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"tracing = otlp requires the OpenTelemetry packages: {error.name} is not installed"
        ) from error
    return OtelExport(
        settings.otlp_endpoint,
        version=__version__,
        worker=assignment.index,
        sample_ratio=settings.trace_sample_ratio,
    )


def _tracing(settings: Settings, export: "OtelExport | None") -> Propagation | None:
    if export is not None:
        return export.tracing
    return Propagation() if settings.tracing == "propagate" else None


def _identity(assignment: WorkerAssignment) -> WorkerIdentity:
    try:
        port: int = assignment.listener.getsockname()[1]
    except OSError:
        port = 0  # not listening: the API is only described
    return WorkerIdentity(socket.gethostname(), port, assignment.index, os.getpid())


class UsageProbe:
    """Reads the resource usage of a worker since the last reading."""

    def __init__(self, slots: Slots, long_polls: LongPolls, watch: LoopWatch) -> None:
        self._slots: Final = slots
        self._long_polls: Final = long_polls
        self._watch: Final = watch
        self._loop: Final = asyncio.get_running_loop()
        self._then = self._loop.time()
        self._before = read_process_stats()

    def read(self) -> Mapping[str, Iterable[float]]:
        """Return the gauges of a sample."""
        now, stats = self._loop.time(), read_process_stats()
        before, percent = self._before, 100 / max(now - self._then, 1e-3)  # of one core
        self._then, self._before = now, stats
        busy = self._slots.busy_count
        return {
            "cpu_user_pct": [percent * (stats.cpu_user_s - before.cpu_user_s)],
            "cpu_system_pct": [percent * (stats.cpu_system_s - before.cpu_system_s)],
            "rss_bytes": [stats.rss_bytes],
            "virtual_bytes": [stats.virtual_bytes],
            "pool_size": [self._slots.size],
            "pool_active": [busy],
            "pool_idle": [self._slots.connected_count - busy],
            "waiting_calls": [self._slots.waiting_count],
            "parked": [len(self._long_polls)],
            "loop_lag_ms": [lag_s * 1000 for lag_s in self._watch.take_recent()],
        }
