"""What watches one process, and tells people, scrapers and the tables of rollups of it."""

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

from skep import __version__
from skep.app.parts.instruments import UsageProbe
from skep.app.processes.assignment import WorkerAssignment
from skep.broker.pop.long_poll import LongPolls
from skep.broker.queues.catalog import QueueCatalog
from skep.broker.stats.pulse import Pulse
from skep.broker.stats.pulse_sample import PulseFigures
from skep.broker.stats.rollups import Reporter, WorkerIdentity
from skep.db.access.slots import Slots
from skep.settings import InvalidSettings, Settings
from skep.telemetry.loop_watch import LoopWatch
from skep.telemetry.meters import Meters
from skep.telemetry.publisher import Publisher
from skep.telemetry.snapshots import SnapshotBoard
from skep.telemetry.tracing import Propagation

if TYPE_CHECKING:
    from skep.telemetry.otel import OtelExport


class Observation:
    """The figures of a process, on their way to whoever looks."""

    def __init__(
        self,
        assignment: WorkerAssignment,
        meters: Meters,
        *,
        hot: Slots,
        query: Slots,
        long_polls: LongPolls,
    ) -> None:
        settings = assignment.settings
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
        figures = PulseFigures(
            QueueCatalog(query),
            self.publisher.gather,
            now=asyncio.get_running_loop().time,
        )
        self.pulse: Final = Pulse(figures.take)
        self._reporter: Final = Reporter(
            query,
            meters,
            _identity(assignment),
            read_gauges=UsageProbe(hot, long_polls, self._loop_watch).read,
            read_parked=long_polls.count_by_queue,
            interval_s=settings.metrics_interval_s,
        )

    def start(self) -> None:
        """Begin to measure and to tell."""
        self._loop_watch.start()
        self.publisher.start()
        self._reporter.start()

    async def stop(self) -> None:
        """Tell the last figures, and end."""
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
            f"tracing = otlp needs the packages of OpenTelemetry: {error.name} is missing"
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
        port = 0  # no socket that listens, as when the API is only described
    return WorkerIdentity(socket.gethostname(), port, assignment.index, os.getpid())
