"""Answer health checks and metrics of a worker over HTTP.

    /livez      200 as long as the event loop turns
    /readyz     200 while the worker can claim jobs, 503 while it cannot or is stopping
    /health     the same with a few words as JSON
    /metrics    the counts, as Prometheus reads them

One request per connection and no bodies: a worker installs no server for this.
"""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from skep.jobs.worker.meters import CONTENT_TYPE
from skep.jobs.worker.worker import Worker

REQUEST_S: Final = 5.0
"""How long a client may take to send its request."""
LINE_BYTES_MAX: Final = 8_192
_REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Unavailable"}


class _Health(msgspec.Struct, rename="camel"):
    status: str
    worker_id: str
    name: str
    running: int


class HealthServer:
    """Serves the health of one worker."""

    def __init__(self, worker: Worker, *, host: str, port: int) -> None:
        self._worker: Final = worker
        self._host: Final = host
        self._port: Final = port
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "HealthServer":
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=LINE_BYTES_MAX
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_S):
                line = await reader.readuntil(b"\n")
                while (await reader.readuntil(b"\n")).strip():
                    pass
                writer.write(self._answer(line))
                await writer.drain()
        writer.close()

    def _answer(self, line: bytes) -> bytes:
        method, _, rest = line.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method in {"GET", "HEAD"}:
            status, body, kind = self._page(path)
        else:
            status, body, kind = 405, "only GET and HEAD are allowed\n", "text/plain"
        content = body.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else content)

    def _page(self, path: str) -> tuple[int, str, str]:
        worker = self._worker
        status = 200 if worker.is_ready else 503
        if path == "/livez":
            return 200, "alive\n", "text/plain"
        if path == "/readyz":
            return status, "ready\n" if worker.is_ready else "not ready\n", "text/plain"
        if path == "/health":
            word = "healthy" if worker.is_ready else "unhealthy"
            health = _Health(word, str(worker.worker_id), worker.name, worker.running)
            return status, msgspec.json.encode(health).decode(), "application/json"
        if path == "/metrics":
            return 200, worker.meters.text(), CONTENT_TYPE
        return 404, "not found: use /livez, /readyz, /health or /metrics\n", "text/plain"
