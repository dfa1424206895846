"""One worker process: an event loop with a broker behind an HTTP server."""

import asyncio
import gc
import socket
from typing import Final

import uvicorn
import uvloop

from skep import __version__
from skep.app.assignment import ReportReady, WorkerAssignment
from skep.app.broker import Broker
from skep.app.interface import cold_app, hot_routes
from skep.model.errors import SkepError
from skep.server.asgi import HotGate
from skep.server.fastpath import ConnectionLimits, build_protocol
from skep.server.metering import MeteredApp
from skep.server.routes.health import Vitals

GC_ALLOCATIONS: Final = 100_000
"""Surviving allocations between two looks at the youngest objects."""

KEEP_ALIVE_S: Final = 75
"""Longer than the pauses between a consumer's polls, so that connections are reused."""


def run_worker_process(assignment: WorkerAssignment, report_ready: ReportReady) -> None:
    """Serve until SIGTERM, then finish what is under way and return."""
    uvloop.run(_serve(assignment, report_ready))


async def _serve(assignment: WorkerAssignment, report_ready: ReportReady) -> None:
    broker = Broker(assignment)
    await broker.start()
    try:
        server = _Server(_config(assignment, broker), report_ready)
        _calm_collector()
        await server.serve(sockets=[assignment.listener])
    finally:
        await broker.stop()


def _calm_collector() -> None:
    """Make the cycle collector rare.

    What a request allocates is freed by reference counts; the collector would only walk the many
    objects in flight again and again. What exists by now stays for good and is left out for ever.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 50, 100)


def _config(assignment: WorkerAssignment, broker: Broker) -> uvicorn.Config:
    settings = assignment.settings
    routes = hot_routes(broker, settings)
    probe = BrokerProbe(broker, index=assignment.index)
    return uvicorn.Config(
        HotGate(
            routes,
            MeteredApp(cold_app(broker, routes, probe, settings), broker.meters),
            body_bytes_max=settings.body_bytes_max,
        ),
        http=build_protocol(
            routes,
            ConnectionLimits(body_bytes_max=settings.body_bytes_max),
            on_drain=lambda: _drain(broker, probe),
        ),
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        ws="websockets-sansio",
        ws_max_size=settings.body_bytes_max,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=max(1, int(settings.shutdown_grace_s)),
    )


def _drain(broker: Broker, probe: "BrokerProbe") -> None:
    probe.is_draining = True
    broker.discovery.stop()
    broker.lounge.stop()
    broker.tails.stop()


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, report_ready: ReportReady) -> None:
        super().__init__(config)
        self._report_ready = report_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._report_ready()


class BrokerProbe:
    """Answers the health routes for one worker process."""

    def __init__(self, broker: Broker, *, index: int) -> None:
        self._broker: Final = broker
        self._index: Final = index
        self.is_draining = False

    async def vitals(self) -> Vitals:
        """Ask the database for a sign of life."""
        return Vitals(
            is_database_connected=await self._is_connected(),
            server=socket.gethostname(),
            worker_id=self._index,
            version=__version__,
            shared_state={"enabled": False},
        )

    async def why_not_ready(self) -> str | None:
        """Say why this process should get no traffic."""
        if self.is_draining:
            return "shutting down"
        return None if await self._is_connected() else "the database is not reachable"

    async def _is_connected(self) -> bool:
        try:
            async with asyncio.timeout(2):
                await self._broker.query_slots.call("select 1")
        except (SkepError, TimeoutError):
            return False
        return True
