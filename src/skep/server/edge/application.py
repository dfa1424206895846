"""Count the requests and time their answers: hot ones by operation, all others by route.

A hot request pays one tuple and two readings of a clock; other requests go through a wrapper of
their ASGI application. A client that hangs up before its answer is counted nowhere.
"""

import asyncio
from time import perf_counter
from typing import Final

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from skep.server.hot.exchange import Exchange, HotHandler, HotRoutes
from skep.telemetry.meters import Meters

UNKNOWN_ROUTE: Final = "unknown"
"""Whatever the router knows no route for: paths that anybody may think of must not be labels."""


def meter_hot_routes(routes: HotRoutes, meters: Meters) -> None:
    """Have every hot request counted under the name of its handler."""

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
                # The router has been here by now, and left the route it chose.
                template = scope.get("path_template")
                route = f"{scope['method']} {template}" if template else UNKNOWN_ROUTE
                self._meters.routes[route].note(message["status"], began)
            await send(message)

        await self._app(scope, receive, note)


READS: Final = frozenset({"GET", "HEAD"})


class EndWithClient:
    """The ASGI application `app`, with reads that end when their clients go."""

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
        if has_body:  # nobody sends one; whoever does is not watched
            await self._app(scope, read.receive, send)
        else:
            await read.run(self._app, scope)


class _Read:
    """A request that has arrived whole and changes nothing."""

    def __init__(self, first: ReceiveMessage, receive: Receive, send: Send) -> None:
        self._first: ReceiveMessage | None = first
        self._receive: Final = receive
        self._send: Final = send
        self._departure: asyncio.Future[ReceiveMessage] | None = None
        self._is_begun = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Let the application answer, unless the client goes first."""
        # After the request, the only thing a server has left to say is that the client is gone.
        departure = self._departure = asyncio.ensure_future(self._receive())
        work = asyncio.ensure_future(app(scope, self.receive, self._answer))
        departure.add_done_callback(lambda _: None if self._is_begun else work.cancel())
        try:
            await work
        except asyncio.CancelledError:
            if not departure.done() or departure.cancelled():
                raise
        finally:
            departure.cancel()

    async def receive(self) -> ReceiveMessage:
        """Give the application the request, and then what the server says."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._departure is None:
            return await self._receive()
        return await asyncio.shield(self._departure)

    async def _answer(self, message: Message) -> None:
        self._is_begun = True
        await self._send(message)
