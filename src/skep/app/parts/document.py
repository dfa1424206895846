"""The API document of this version, made without a database and without a port.

It describes the parts that a worker process serves, wired but not connected: `skep openapi` prints
what `/openapi.json` answers.
"""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager

import msgspec
from litestar import Litestar

from skep.app.parts.broker import Broker
from skep.app.parts.interface import cold_app, hot_routes
from skep.app.processes.assignment import WorkerAssignment
from skep.app.processes.worker import BrokerProbe
from skep.server.api_document.openapi import accesses_of, merge_document, operations_served
from skep.server.api_document.operations import Json
from skep.server.hot.exchange import HotRoutes
from skep.settings import Settings


def describe_api() -> Json:
    """Return the OpenAPI document."""
    return asyncio.run(_describe())


async def _describe() -> Json:
    with described_interface() as (routes, app):
        served = operations_served(routes)
        document = merge_document(app.openapi_schema.to_schema(), served, accesses_of(app))
        # Defaults of fields are objects until they are converted.
        return msgspec.to_builtins(document)


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
