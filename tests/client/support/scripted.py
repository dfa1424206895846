"""A broker that answers what a test tells it to, and remembers what it was asked."""

import asyncio
import json
from contextlib import asynccontextmanager

REASONS = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content"}


class ScriptedBroker:
    """Answers each request with the next of its answers, and the last one for ever.

    An answer is a status with a body, maybe with header lines; None hangs up instead.
    """

    def __init__(self, *answers):
        self._answers = list(answers)
        self.requests = []
        self._server = None
        self._serving = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def paths(self):
        return [request.split(b" ")[1].decode() for request in self.requests]

    def bodies(self):
        return [
            json.loads(request.partition(b"\r\n\r\n")[2] or b"null") for request in self.requests
        ]

    async def open(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def close(self):
        self._server.close()
        for writer in self._serving.values():
            writer.transport.abort()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader, writer):
        self._serving[asyncio.current_task()] = writer
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().lower().split("\r\n")
                lengths = [line[15:] for line in lines if line.startswith("content-length:")]
                body = await reader.readexactly(int(lengths[0]) if lengths else 0)
                self.requests.append(head + body)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if answer is None:
                    return
                writer.write(rendered(*answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()


def rendered(status, body=None, headers=""):
    text = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}\r\ncontent-length: {len(text)}\r\n"
    return f"{head}{headers}\r\n".encode() + text


@asynccontextmanager
async def scripted(*answers):
    broker = ScriptedBroker(*answers)
    await broker.open()
    try:
        yield broker
    finally:
        await broker.close()


@asynccontextmanager
async def listening(protocol):
    """Listen with a protocol of asyncio; give the URL."""
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
