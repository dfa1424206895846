"""End the work for a client that is gone.

A read whose client leaves before the answer begins is of no use to anybody, and may keep a
connection to the database busy for as long as its statement may run: it is cancelled, which ends
the statement too. Writes go on: what was asked for is done, whoever is there to hear of it. What
is streamed has its own ways to notice.
"""

import asyncio
from typing import Final

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

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
