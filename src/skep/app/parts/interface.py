"""The HTTP interface of a broker: its hot routes, the application behind them, its document.

It needs a broker that is wired, connected or not: a worker serves it, `skep openapi` describes it.
"""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec
from litestar import Litestar

from skep import __version__
from skep.app.parts.broker import Broker
from skep.app.parts.routes import api_routes
from skep.app.processes.assignment import WorkerAssignment
from skep.dashboard.site import read_site
from skep.model.errors import SkepError
from skep.server.api_document.openapi import document_of, operations_served
from skep.server.api_document.operations import Json
from skep.server.app import build_cold_app
from skep.server.hot.exchange import HotRoutes
from skep.server.hot.handlers import HotHandlers
from skep.server.routes.dashboard import dashboard_routes, lost_page
from skep.server.routes.health import Probe, Vitals
from skep.settings import Settings


def hot_routes(broker: Broker, settings: Settings) -> HotRoutes:
    """Return the table of the routes that are answered from the parser."""
    return HotHandlers(
        push=broker.push.push,
        pop=broker.pop.pop,
        ack=broker.pop.ack,
        transaction=broker.transaction.transaction,
        discovery=broker.pop.discovery,
        renew=broker.pop.renew,
        kv=broker.kv.kv,
        locks=broker.kv.locks,
        fetches=broker.fetch.fetches,
        guard=broker.security.guard,
        settings=settings,
        now=broker.core.now,
        meters=broker.core.meters,
        tracing=broker.observation.tracing,
    ).routes()


def cold_app(broker: Broker, hot: HotRoutes, probe: Probe, settings: Settings) -> Litestar:
    """Return the application of all other routes; its document includes the hot ones."""
    site = read_site()
    return build_cold_app(
        hot,
        probe=probe,
        guard=broker.security.guard,
        body_bytes_max=settings.body_bytes_max,
        version=__version__,
        further_routes=[*api_routes(broker), *dashboard_routes(site)],
        check_analytics=broker.check_analytics,
        lost_page=partial(lost_page, site),
    )


@dataclass(slots=True, eq=False)
class BrokerProbe:
    """Answers the health routes for one worker process."""

    broker: Broker
    index: int
    is_draining: bool = False

    async def vitals(self) -> Vitals:
        """Check the database and describe the worker."""
        return Vitals(
            is_database_connected=await self._is_connected(),
            server=socket.gethostname(),
            worker_id=self.index,
            version=__version__,
            shared_state={"enabled": self.broker.core.neighbours.peers.is_enabled},
        )

    async def why_not_ready(self) -> str | None:
        """Say why this process should receive no traffic."""
        if self.is_draining:
            return "shutting down"
        return None if await self._is_connected() else "the database is not reachable"

    async def _is_connected(self) -> bool:
        try:
            async with asyncio.timeout(2):
                await self.broker.core.vital.call("select 1")
        except (SkepError, TimeoutError):
            return False
        return True


def describe_api() -> Json:
    """Return the OpenAPI document."""
    return asyncio.run(_describe())


async def _describe() -> Json:
    with described_interface() as (routes, app):
        # Defaults of fields are objects until they are converted.
        return msgspec.to_builtins(document_of(app, operations_served(routes)))


@contextmanager
def described_interface() -> Generator[tuple[HotRoutes, Litestar]]:
    """Provide the routes of this version, wired to a broker that is not connected."""
    settings = Settings()
    # An assignment has two sockets; neither is bound here.
    with socket.socket() as listener, socket.socket(type=socket.SOCK_DGRAM) as wakeup:
        broker = Broker(
            WorkerAssignment(
                index=0,
                settings=settings,
                dsn="",
                listener=listener,
                wakeup_socket=wakeup,
                wakeup_ports=(0,),
                wakeup_token=b"",
            )
        )
        broker.wire()
        routes = hot_routes(broker, settings)
        yield routes, cold_app(broker, routes, BrokerProbe(broker, index=0), settings)
