"""One keep-alive connection of a benchmark that looks at single requests rather than at a load.

The load generator counts what a thousand requests came to. Here every request has a caller who
waits for its answer, and anything but the expected status ends the benchmark.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from benchmarks.errors import ScenarioFailed
from benchmarks.load import Target
from benchmarks.wire import AnswerReader

_CHUNK_BYTES: Final = 1 << 16
_EXAMPLE_CHARACTERS: Final = 300

Message = dict[str, Any]


class Connection:
    """A connection with at most one request in flight."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers = AnswerReader()

    async def get(self, path: str) -> Any:
        """Return what a GET answers, or None if there is nothing."""
        return await self._call("GET", path, b"")

    async def post(self, path: str, members: dict[str, Any]) -> Any:
        """Return what a POST answers."""
        return await self._call("POST", path, msgspec.json.encode(members))

    async def push(self, queue: str, payload: object, **members: object) -> str:
        """Push one message; return what became of it."""
        item = {"queue": queue, "payload": payload, **members}
        (result,) = await self.post("/api/v1/push", {"items": [item]})
        return result["status"]

    async def pop(self, queue: str, **parameters: object) -> list[Message]:
        """Return what a wildcard pop brings."""
        answer = await self.get(f"/api/v1/pop/queue/{queue}?{urlencode(parameters)}")
        return [] if answer is None else answer["messages"]

    async def settle(self, messages: list[Message], status: str) -> int:
        """Say of delivered messages what became of them; return how many are dead letters now."""
        names = ("transactionId", "partitionId", "leaseId")
        items = [{name: each[name] for name in names} | {"status": status} for each in messages]
        body = {"acknowledgments": items, "consumerGroup": messages[0]["consumerGroup"]}
        results = await self.post("/api/v1/ack/batch", body)
        refused = [result for result in results if not result["success"]]
        if refused:
            raise ScenarioFailed(f"an ack was refused: {refused[0]}")
        return sum(result["dlq"] for result in results)

    async def _call(self, method: str, path: str, body: bytes) -> Any:
        head = f"{method} {path} HTTP/1.1\r\nHost: benchmark\r\nContent-Length: {len(body)}\r\n\r\n"
        answer = await self.exchange(head.encode() + body)
        return msgspec.json.decode(answer) if answer else None

    async def exchange(self, request: bytes) -> bytes:
        """Send a request as it is; return the body of its answer."""
        self._writer.write(request)
        line = request[: request.index(b" HTTP/")].decode()
        while True:
            data = await self._reader.read(_CHUNK_BYTES)
            if not data:
                raise ScenarioFailed(f"the broker hung up on {line}")
            answer = self._answers.feed(data)
            if answer is not None:
                break
        if not answer.is_success:
            said = answer.body.decode(errors="replace")[:_EXAMPLE_CHARACTERS]
            raise ScenarioFailed(f"{line} was answered {answer.status}: {said}")
        return answer.body


@asynccontextmanager
async def connect(target: Target) -> AsyncGenerator[Connection]:
    """Open a connection; leaving the context drops it, whatever is in flight."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()
