"""Count the requests and time their answers: hot ones by operation, all others by route.

A hot request pays one tuple and two readings of a clock; other requests go through a wrapper of
their ASGI application. A client that hangs up before its answer is counted nowhere.
"""

from time import perf_counter
from typing import Final

from litestar.types import ASGIApp, Message, Receive, Scope, Send

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
