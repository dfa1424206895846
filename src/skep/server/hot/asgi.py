"""Serve the hot routes on any ASGI server.

The parser fast path needs uvicorn and httptools. `HotGate` runs the same handlers behind plain
ASGI, at the cost of a task and a few futures per request, and passes all other requests on. It
answers 405 to other methods on hot paths, also for the fast path.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from skep.model.errors import Defect, PayloadTooLarge
from skep.server.edge.pipelining import Answer
from skep.server.hot.exchange import HotHandler, HotRoutes, run_handler
from skep.server.problems import problem, problem_of

if TYPE_CHECKING:
    from skep.telemetry.meters import RouteMeter


class AsgiExchange:
    """The `Exchange` of an ASGI request whose body was read."""

    def __init__(self, scope: HTTPScope, body: bytes) -> None:
        self.method = scope["method"].encode()
        self.path = raw_path(scope)
        self.query = scope["query_string"]
        self.body = body
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.timing: tuple[RouteMeter, float] | None = None
        self._headers = scope["headers"]
        self._is_aborted = False
        self._abort_callback: Callable[[], None] | None = None

    @property
    def is_answered(self) -> bool:
        """Whether `respond` was called."""
        return self.answer.done()

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header. `name` is given in lower case."""
        return next((value for its_name, value in self._headers if its_name == name), None)

    def respond(self, status: int, body: bytes = b"", *, headers: bytes = b"") -> bool:
        """Answer; see `Exchange.respond`."""
        if self.answer.done():
            raise Defect("An exchange was answered twice.")
        if self.timing is not None:
            self.timing[0].note(status, self.timing[1])
        self.answer.set_result((status, body, headers))
        return not self._is_aborted

    def when_aborted(self, callback: Callable[[], None]) -> None:
        """Register a callback; see `Exchange.when_aborted`."""
        if self._is_aborted:
            callback()
        else:
            self._abort_callback = callback

    def abort(self) -> None:
        """Note that the client disconnected, and call back unless the answer is there."""
        self._is_aborted = True
        callback, self._abort_callback = self._abort_callback, None
        if callback is not None and not self.answer.done():
            callback()


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
        refusal = self._routes.refusal_of(AsgiExchange(scope, b""))
        if refusal is not None:
            await send_answer(send, refusal)
            return
        try:
            body = await _read_body(receive, self._body_bytes_max)
        except PayloadTooLarge as error:
            await send_answer(send, problem_of(error))
            return
        if body is None:
            return
        exchange = AsgiExchange(scope, body)
        run_handler(handler, exchange)
        try:
            if await _is_answered_before_disconnect(exchange, receive):
                await send_answer(send, exchange.answer.result())
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


async def _is_answered_before_disconnect(exchange: AsgiExchange, receive: Receive) -> bool:
    if exchange.answer.done():
        return True
    # After the body, an ASGI server only reports that the client disconnected.
    disconnect = asyncio.ensure_future(receive())
    try:
        await asyncio.wait((exchange.answer, disconnect), return_when=asyncio.FIRST_COMPLETED)
    finally:
        disconnect.cancel()
    return exchange.answer.done()


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer in one piece."""
    status, body, extra = answer
    headers = [_split_header(line) for line in extra.splitlines()]
    if body:
        headers.append((b"content-type", b"application/json"))
    if status != 204:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _split_header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.strip(), value.strip()
