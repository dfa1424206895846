"""A real uvicorn server in the test's own loop, and a client that speaks raw bytes to it."""

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import NamedTuple

import uvicorn

from skep.server.edge.protocol import ConnectionLimits, build_protocol
from skep.server.hot.asgi import HotGate
from skep.server.hot.exchange import HotRoutes

PATIENCE_S = 30
"""How long an answer may take before a test gives up; what must come sooner is measured there."""


class Desk:
    """A handler that takes exchanges and leaves their answers to the test."""

    def __init__(self):
        self._arrived = asyncio.Queue()

    def __call__(self, exchange):
        self._arrived.put_nowait(exchange)

    async def next(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self._arrived.get()

    @property
    def is_empty(self):
        return self._arrived.empty()


def echo(exchange):
    exchange.respond(200, exchange.head.method + b" " + exchange.head.path + b" " + exchange.body)


class ColdApp:
    """An ASGI application that reads its body and answers with it, when it is let."""

    def __init__(self):
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.started = asyncio.Event()
        self.has_read = asyncio.Event()
        self.disconnected = asyncio.Event()

    async def __call__(self, scope, receive, send):
        self.started.set()
        if scope["path"] == "/cold/hasty":
            await self._send(send, b"hasty")
            return
        body = b""
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                self.disconnected.set()
                return
            body += event["body"]
            if not event["more_body"]:
                break
        self.has_read.set()
        await self.may_answer.wait()
        await self._send(send, b"cold " + scope["raw_path"] + b" " + body)

    async def _send(self, send, body):
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


class Edge:
    """A running server."""

    def __init__(self, server, port, desk, cold):
        self.server = server
        self.port = port
        self.desk = desk
        self.cold = cold

    @property
    def connections(self):
        return self.server.server_state.connections

    @asynccontextmanager
    async def client(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Client(reader, writer)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(
    *, limits=None, app=None, on_drain=None, keep_alive_s=60, desk=None, websocket="none"
):
    """Serve `/hot` (echo), `/later` (the desk) and the cold application behind the hot gate."""
    desk = desk or Desk()
    cold = app or ColdApp()
    routes = HotRoutes()
    routes.add(b"POST", b"/hot", echo)
    routes.add(b"GET", b"/hot", echo)
    routes.add_prefix(b"GET", b"/hot/", echo)
    routes.add(b"POST", b"/later", desk)
    routes.add(b"GET", b"/later", desk)
    limits = limits or ConnectionLimits(body_bytes_max=100_000)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        HotGate(routes, cold, body_bytes_max=limits.body_bytes_max),
        http=build_protocol(routes, limits, on_drain=on_drain),
        ws=websocket,
        timeout_keep_alive=keep_alive_s,
        lifespan="off",
        log_config=None,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    await server.on_tick(0)  # sets the date header
    try:
        yield Edge(server, listener.getsockname()[1], desk, cold)
    finally:
        await _stop_at_once(server)


async def _stop_at_once(server):
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    tasks = list(server.server_state.tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection; every wait is bounded."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    def send(self, data):
        self._writer.write(data)

    async def send_in_pieces(self, data, size=1):
        for start in range(0, len(data), size):
            self._writer.write(data[start : start + size])
            # Another turn of the loop, so that the server, which shares it, reads this piece alone.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def request(self, method, path, body=b"", headers=""):
        self.send(request(method, path, body, headers))

    def hang_up(self):
        self._writer.transport.abort()

    async def answer(self):
        async with asyncio.timeout(PATIENCE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (x.split(": ", 1) for x in lines)}
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
            return Answer(int(first.split()[1]), headers, body)

    async def bodies(self, count):
        return [(await self.answer()).body for _ in range(count)]

    async def everything_sent(self):
        async with asyncio.timeout(PATIENCE_S):
            await self._writer.drain()

    async def rest(self):
        """Return what comes until the server closes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read()


def request(method, path, body=b"", headers=""):
    length = f"content-length: {len(body)}\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: test\r\n{length}{headers}\r\n"
    return head.encode() + body
