"""Serve before the database is available: pushes go to disk, all other requests fail.

Only for an external database; the supervisor starts and revives the embedded one. When the database
is reachable and its schema current, the broker takes over without closing a connection.
"""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

from litestar.types import ASGIApp, Receive, Scope, Send

from skep import __version__
from skep.app.parts.broker import Broker
from skep.app.parts.interface import hot_routes
from skep.app.processes.assignment import WorkerAssignment
from skep.app.processes.database import make_current, may_wait
from skep.db.access.sessions import WrongDatabase, is_reachable
from skep.model.errors import SkepError
from skep.server.app import build_waiting_app
from skep.server.edge.heads import answering_heads
from skep.server.hot.asgi import HotGate
from skep.server.hot.exchange import HotRoutes
from skep.server.routes.health import Vitals
from skep.server.routes.maintenance import maintenance_routes

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
REMIND_S: Final = 30.0
PUSH: Final = (b"POST", b"/api/v1/push")


async def must_wait(assignment: WorkerAssignment) -> bool:
    """Return whether the database is unreachable and pushes can be stored meanwhile.

    The supervisor refuses a wrong database at startup; a worker that ends would only be restarted.
    """
    if not may_wait(assignment.settings):
        return False
    try:
        return not await is_reachable(assignment.dsn)
    except WrongDatabase:
        return True


class Stage:
    """The routes and the application of a server, which `enter` replaces."""

    def __init__(self, assignment: WorkerAssignment, broker: Broker) -> None:
        settings, failover = assignment.settings, broker.failover
        later = hot_routes(broker, settings)
        push = later.find(*PUSH)
        assert push is not None
        self.routes: Final = HotRoutes(preview=later.preview)
        self.routes.add(*PUSH, push)
        app = build_waiting_app(
            WaitingProbe(assignment.index),
            maintenance_routes(failover.maintenance, failover.diversion, worker=assignment.index),
            guard=broker.security.guard,
        )
        self._app: ASGIApp = HotGate(
            self.routes, answering_heads(app), body_bytes_max=settings.body_bytes_max
        )

    def enter(self, routes: HotRoutes, app: ASGIApp) -> None:
        """Replace routes and application."""
        self.routes.replace(routes)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        await self._app(scope, receive, send)


class WaitingProbe:
    """Answers the health routes of a worker without a database."""

    def __init__(self, index: int) -> None:
        self._index: Final = index

    async def vitals(self) -> Vitals:
        """Describe the worker."""
        return Vitals(
            is_database_connected=False,
            server=socket.gethostname(),
            worker_id=self._index,
            version=__version__,
            shared_state={"enabled": False},
        )

    async def why_not_ready(self) -> str | None:
        """Say why this process should receive no traffic but pushes."""
        return "the database is not reachable"


async def start_when_possible(
    broker: Broker, assignment: WorkerAssignment, take_over: "Callable[[], None]"
) -> None:
    """Start the broker as soon as its database is available, and let it take over."""
    await _until_usable(assignment)
    await broker.start()
    # No await in between: the parts that lack the seed may serve no request that is not stored on
    # disk.
    take_over()
    _log.warning("the database is available; this worker serves all routes")


async def _until_usable(assignment: WorkerAssignment) -> None:
    loop = asyncio.get_running_loop()
    reminded_at, reason = loop.time(), ""
    while True:
        try:
            if await is_reachable(assignment.dsn):
                await make_current(assignment.settings, assignment.dsn)
                return
        except SkepError as error:
            if error.message != reason:
                reason = error.message
                _log.error("the database cannot be used: %s", reason)
        if loop.time() - reminded_at > REMIND_S:
            reminded_at = loop.time()
            _log.warning("the database is still unavailable; pushes are stored on disk")
        await asyncio.sleep(RETRY_S)
