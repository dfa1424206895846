"""Count requests of the application and time their answers; end reads whose client disconnected.

A client that disconnects before its answer is not counted. Hot requests are counted by their
exchange.
"""

import asyncio
from time import perf_counter
from typing import Final

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from skep.telemetry.meters import Meters

UNKNOWN_ROUTE: Final = "unknown"
"""Requests without a route: arbitrary paths must not become labels."""


def metered(app: ASGIApp, meters: Meters) -> ASGIApp:
    """Return an application whose answers are counted by method and route."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began = perf_counter()

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                # By now the router has stored the route it chose.
                template = scope.get("path_template")
                route = f"{scope['method']} {template}" if template else UNKNOWN_ROUTE
                meters.routes[route].note(message["status"], began)
            await send(message)

        await app(scope, receive, note)

    return run


READS: Final = frozenset({"GET", "HEAD"})


def ending_with_client(app: ASGIApp) -> ASGIApp:
    """Return an application whose reads end when their client disconnects.

    Cancelling a read ends its statement, which may otherwise keep a database connection busy.
    Writes are completed. Streams notice a disconnect themselves.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in READS:
            await app(scope, receive, send)
            return
        first: list[ReceiveMessage] = [await receive()]
        if first[0]["type"] == "http.request" and first[0].get("more_body", False):
            disconnect = None  # unusual, and not watched
        else:
            # After the request, a server only reports that the client disconnected.
            disconnect = asyncio.ensure_future(receive())
        is_begun = False

        async def receive_on() -> ReceiveMessage:
            if first:
                return first.pop()
            return await (receive() if disconnect is None else asyncio.shield(disconnect))

        async def answer(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        work = asyncio.ensure_future(app(scope, receive_on, answer))
        if disconnect is None:
            await work
            return
        disconnect.add_done_callback(lambda _: None if is_begun else work.cancel())
        try:
            await work
        except asyncio.CancelledError:
            if not disconnect.done() or disconnect.cancelled():
                raise
        finally:
            disconnect.cancel()

    return run
