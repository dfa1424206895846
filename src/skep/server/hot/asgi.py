"""Serve the hot routes on any ASGI server.

The parser fast path needs uvicorn and httptools. `HotGate` runs the same handlers behind plain
ASGI, at the cost of a task and a few futures per request, and passes all other requests on. It
answers 405 to other methods on hot paths, also for the fast path.
"""

import asyncio
from typing import cast
from urllib.parse import quote

from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from skep.model.errors import PayloadTooLarge
from skep.server.hot.exchange import Answer, Exchange, Head, HotHandler, HotRoutes
from skep.server.problems import problem, problem_of, split_headers


class _Twin:
    """The connection of one exchange: keeps its answer until the application sends it."""

    def __init__(self, scope: HTTPScope, handler: HotHandler) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        head = Head(
            scope["method"].encode(),
            raw_path(scope),
            scope["query_string"],
            list(scope["headers"]),
            handler,
        )
        self.exchange = Exchange(self, head, handler)

    def take_answer(self, exchange: Exchange, answer: Answer) -> bool:
        """Keep the answer."""
        del exchange
        self.answer.set_result(answer)
        return True


class HotGate:
    """The ASGI application of a server: hot routes here, all others in `app`."""

    def __init__(self, routes: HotRoutes, app: ASGIApp, *, body_bytes_max: int) -> None:
        self._routes = routes
        self._app = app
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] == "websocket" and "raw_path" in scope:
            scope["path"] = scope["raw_path"].decode("latin-1")  # as below
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        http = cast("HTTPScope", scope)
        path = raw_path(http)
        handler = self._routes.find(http["method"].encode(), path)
        if handler is not None:
            await self._serve(handler, http, receive, send)
        elif methods := self._routes.methods(path):
            text = f"{http['method']} is not allowed here."
            allow = b"allow: %b\r\n" % b", ".join(methods)
            await send_answer(send, problem(405, "method_not_allowed", text, headers=allow))
        else:
            http["path"] = path.decode("latin-1")  # matched as sent; see skep.server.app
            await self._app(scope, receive, send)

    async def _serve(
        self, handler: HotHandler, scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        twin = _Twin(scope, handler)
        exchange = twin.exchange
        try:
            refusal = self._routes.refusal_of(exchange)
            if refusal is not None:
                await send_answer(send, refusal)
                return
            body = await _read_body(receive, self._body_bytes_max)
            if body is None:
                return
            exchange.body = body
            exchange.run()
            if await _is_answered_before_disconnect(twin.answer, receive):
                await send_answer(send, twin.answer.result())
        except PayloadTooLarge as error:
            await send_answer(send, problem_of(error))
        finally:
            exchange.abort()


def raw_path(scope: HTTPScope) -> bytes:
    """Return the path as it was sent, or encode it if the server does not provide that."""
    return scope["raw_path"] if "raw_path" in scope else quote(scope["path"]).encode()


async def _read_body(receive: Receive, bytes_max: int) -> bytes | None:
    """Read a whole body; None if the client disconnected first."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > bytes_max:
            raise PayloadTooLarge(f"The request body is larger than {bytes_max} bytes.")
        if not event.get("more_body", False):
            return bytes(body)


async def _is_answered_before_disconnect(answer: asyncio.Future[Answer], receive: Receive) -> bool:
    if not answer.done():
        # After the body, an ASGI server only reports that the client disconnected.
        disconnect = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((answer, disconnect), return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
    return answer.done()


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer in one piece."""
    status, body, extra = answer
    headers = split_headers(extra)
    if body:
        headers.append((b"content-type", b"application/json"))
    if status != 204:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
