"""One worker process: an event loop with a broker behind an HTTP server."""

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Final, cast

import uvicorn
import uvloop

from skep.app.parts.broker import Broker
from skep.app.parts.interface import BrokerProbe, cold_app, hot_routes
from skep.app.processes.assignment import ReportReady, WorkerAssignment
from skep.app.processes.handover import Handover
from skep.app.processes.memory import calm_collector, keep_freed_memory
from skep.app.processes.stop_signals import ended_by_sigterm
from skep.app.processes.waiting import Stage, must_wait, start_when_possible
from skep.server.auth.browsers import BrowserGate, BrowserPolicy
from skep.server.edge.encodings import decoding_bodies
from skep.server.edge.heads import answering_heads
from skep.server.edge.metering import ending_with_client, metered
from skep.server.edge.protocol import ConnectionLimits, FastPathProtocol, build_protocol
from skep.server.hot.asgi import HotGate
from skep.server.hot.exchange import HotRoutes
from skep.settings import Settings
from skep.settings.keys import encryption_keys
from skep.settings.peers import peer_addresses
from skep.settings.security import listed
from skep.telemetry.logs import configure_logging

_log = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 75
"""Longer than the pause between a consumer's polls, so that connections are reused."""


def run_worker_process(assignment: WorkerAssignment, report_ready: ReportReady) -> None:
    """Serve until SIGTERM, then finish what is under way and return."""
    keep_freed_memory()
    with suppress(asyncio.CancelledError):  # SIGTERM before the server started
        uvloop.run(_serve(assignment, report_ready))


async def _serve(assignment: WorkerAssignment, report_ready: ReportReady) -> None:
    broker = Broker(assignment)
    _follow_settings(assignment, broker)
    try:
        with ended_by_sigterm():
            is_waiting = await must_wait(assignment)
            if not is_waiting:
                await broker.start()
        # From here on the server handles the signal.
        if is_waiting:
            await _serve_without_database(assignment, broker, report_ready)
        else:
            await _serve_with_database(assignment, broker, report_ready)
    finally:
        if assignment.updates is not None:
            assignment.updates.close()


async def _serve_with_database(
    assignment: WorkerAssignment, broker: Broker, report_ready: ReportReady
) -> None:
    """Serve with a broker that has started."""
    try:
        server = _Server(_config(assignment, broker), report_ready, assignment)
        calm_collector()
        await server.serve(sockets=[assignment.listener])
    finally:
        await broker.stop()


async def _serve_without_database(
    assignment: WorkerAssignment, broker: Broker, report_ready: ReportReady
) -> None:
    """Store pushes on disk until the database is available, then serve everything."""
    broker.wait_for_database()
    stage = Stage(assignment, broker)
    probe = BrokerProbe(broker, index=assignment.index)
    config = _edge(assignment, broker, probe, stage.routes, stage)
    server = _Server(config, report_ready, assignment)

    def take_over() -> None:
        routes = hot_routes(broker, assignment.settings)
        stage.enter(routes, _application(assignment, broker, probe, routes))

    starting = asyncio.get_running_loop().create_task(
        start_when_possible(broker, assignment, take_over)
    )
    # If it fails, the supervisor starts a worker that tries again.
    starting.add_done_callback(lambda task: _exit_if_failed(server, task))
    try:
        await server.serve(sockets=[assignment.listener])
    finally:
        starting.cancel()
        await asyncio.wait([starting])
        has_started = not starting.cancelled() and starting.exception() is None
        await (broker.stop() if has_started else broker.stop_waiting())


def _exit_if_failed(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("cannot start on the database: %s", error)
        server.should_exit = True


def _follow_settings(assignment: WorkerAssignment, broker: Broker) -> None:
    """Apply the settings that the supervisor reloads (`skep.settings.reload`)."""
    if assignment.updates is None:
        return
    loop, peers = asyncio.get_running_loop(), broker.core.neighbours.peers
    hears_peers = assignment.index > 0 or assignment.peer_socket is not None

    async def apply(settings: Settings) -> None:  # they were checked before they were sent
        configure_logging(level=settings.log_level, style=settings.log_format)
        broker.core.key_ring.replace(encryption_keys(settings))
        broker.security.reload()
        broker.settings_in_force.replace(settings)
        broker.pop.live.connections_max = settings.live_connections_max
        await peers.change(peer_addresses(settings), settings.peer_secret)
        if peers.is_enabled and not hears_peers:
            _log.warning("notifying peers; receiving their datagrams requires a restart")

    def hear(settings: Settings) -> None:
        asyncio.run_coroutine_threadsafe(apply(settings), loop)  # on another thread

    assignment.updates.listen(hear)


def _config(assignment: WorkerAssignment, broker: Broker) -> uvicorn.Config:
    routes = hot_routes(broker, assignment.settings)
    probe = BrokerProbe(broker, index=assignment.index)
    app = _application(assignment, broker, probe, routes)
    return _edge(assignment, broker, probe, routes, app)


def _application(
    assignment: WorkerAssignment, broker: Broker, probe: BrokerProbe, routes: HotRoutes
) -> HotGate:
    settings = assignment.settings
    app = metered(cold_app(broker, routes, probe, settings), broker.core.meters)
    cold = answering_heads(ending_with_client(app))
    return HotGate(routes, cold, body_bytes_max=settings.body_bytes_max)


def _edge(
    assignment: WorkerAssignment,
    broker: Broker,
    probe: BrokerProbe,
    routes: HotRoutes,
    app: HotGate | Stage,
) -> uvicorn.Config:
    settings = assignment.settings
    tls = broker.security.tls
    return uvicorn.Config(
        BrowserGate(
            decoding_bodies(app, bytes_max=settings.body_bytes_max),
            BrowserPolicy(
                listed(settings.cors_origins),
                hosts=(*listed(settings.allowed_hosts), settings.host, socket.gethostname()),
                asks_for_host=tls is None and not settings.jwt_enabled,
            ),
            consumes=lambda path: routes.find(b"GET", path) is not None,
            is_tls=tls is not None,
        ),
        http=build_protocol(
            routes,
            ConnectionLimits(
                body_bytes_max=settings.body_bytes_max,
                connections_max=settings.client_connections_max,
            ),
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
        ssl_context_factory=None if tls is None else lambda _config, _default: tls.context,
        timeout_graceful_shutdown=max(1, int(settings.shutdown_grace_s)),
    )


def _drain(broker: Broker, probe: BrokerProbe) -> None:
    probe.is_draining = True
    broker.drain()


class _Server(uvicorn.Server):
    """A server that reports when it listens, and shares connections with the other workers."""

    def __init__(
        self, config: uvicorn.Config, report_ready: ReportReady, assignment: WorkerAssignment
    ) -> None:
        super().__init__(config)
        self._report_ready = report_ready
        self._assignment = assignment
        self._handover: Handover | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        own = self._assignment.handover_socket
        if own is not None and self.config.ssl is None:
            protocol = cast("type[FastPathProtocol]", self.config.http_protocol_class)
            self._handover = Handover(
                self._assignment.index,
                own,
                self._assignment.handover_sockets,
                edge=protocol.edge,
                build=lambda: protocol(self.config, self.server_state, self.lifespan.state),
                connections=self.server_state.connections,
            )
        self._report_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._handover is not None:
            self._handover.stop()
        await super().shutdown(sockets)
