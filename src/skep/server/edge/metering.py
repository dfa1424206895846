"""Count requests and time their answers; end reads whose client disconnected.

A hot request costs one tuple and two clock readings; other requests pass through wrappers of their
ASGI application. A client that disconnects before its answer is not counted.
"""

import asyncio
from time import perf_counter
from typing import Final

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from skep.server.hot.exchange import Exchange, HotHandler, HotRoutes
from skep.telemetry.meters import Meters

UNKNOWN_ROUTE: Final = "unknown"
"""Requests without a route: arbitrary paths must not become labels."""


def meter_hot_routes(routes: HotRoutes, meters: Meters) -> None:
    """Count every hot request under the name of its handler."""

    def wrap(handler: HotHandler) -> HotHandler:
        meter = meters.routes[handler.__name__]

        def run(exchange: Exchange) -> None:
            exchange.timing = (meter, perf_counter())
            handler(exchange)

        return run

    routes.wrap_each(wrap)


class MeteredApp:
    """An ASGI application whose answers are counted by method and route."""

    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        self._app: Final = app
        self._meters: Final = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                # By now the router has stored the route it chose.
                template = scope.get("path_template")
                route = f"{scope['method']} {template}" if template else UNKNOWN_ROUTE
                self._meters.routes[route].note(message["status"], began)
            await send(message)

        await self._app(scope, receive, note)


READS: Final = frozenset({"GET", "HEAD"})


class EndWithClient:
    """The ASGI application `app`, with reads that end when their client disconnects.

    Cancelling a read ends its statement, which may otherwise keep a database connection busy.
    Writes are completed. Streams notice a disconnect themselves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http" or scope["method"] not in READS:
            await self._app(scope, receive, send)
            return
        first = await receive()
        has_body = first["type"] == "http.request" and first.get("more_body", False)
        read = _Read(first, receive, send)
        if has_body:  # unusual, and not watched
            await self._app(scope, read.receive, send)
        else:
            await read.run(self._app, scope)


class _Read:
    """A complete request that only reads."""

    def __init__(self, first: ReceiveMessage, receive: Receive, send: Send) -> None:
        self._first: ReceiveMessage | None = first
        self._receive: Final = receive
        self._send: Final = send
        self._disconnect: asyncio.Future[ReceiveMessage] | None = None
        self._is_begun = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Let the application answer, unless the client disconnects first."""
        # After the request, a server only reports that the client disconnected.
        disconnect = self._disconnect = asyncio.ensure_future(self._receive())
        work = asyncio.ensure_future(app(scope, self.receive, self._answer))
        disconnect.add_done_callback(lambda _: None if self._is_begun else work.cancel())
        try:
            await work
        except asyncio.CancelledError:
            if not disconnect.done() or disconnect.cancelled():
                raise
        finally:
            disconnect.cancel()

    async def receive(self) -> ReceiveMessage:
        """Return the request, then what the server reports."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._disconnect is None:
            return await self._receive()
        return await asyncio.shield(self._disconnect)

    async def _answer(self, message: Message) -> None:
        self._is_begun = True
        await self._send(message)
