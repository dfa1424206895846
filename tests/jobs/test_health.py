"""The health of a worker over HTTP."""

import asyncio
import json

import pytest

from skep.jobs.worker.health import HealthServer


@pytest.fixture
def ask(stack, start_worker):
    """Serve the health of a worker; return it and what asks for a page."""

    async def serve():
        worker = await start_worker()
        server = await stack.enter_async_context(HealthServer(worker, host="127.0.0.1", port=0))

        async def ask(path, method="GET"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
            return int(head.split()[1]), body

        ask.port = server.port
        return worker, ask

    return serve


async def until_ready(worker, ask):
    while (await ask("/readyz"))[0] != 200:
        pass


async def test_a_worker_that_claims_is_ready_and_one_that_stopped_is_not(ask):
    worker, ask = await ask()
    await until_ready(worker, ask)
    status, body = await ask("/health")
    assert (status, json.loads(body)["status"]) == (200, "healthy")

    await worker.stop(grace_s=1)

    assert (await ask("/readyz"))[0] == 503
    status, body = await ask("/health")
    assert (status, json.loads(body)["status"]) == (503, "unhealthy")
    assert (await ask("/livez"))[0] == 200


async def test_metrics_are_served_and_other_pages_are_not(ask):
    _, ask = await ask()

    assert "skep_worker_concurrency 5" in (await ask("/metrics?x=1"))[1]
    assert (await ask("/metrics", "HEAD"))[1] == ""
    assert (await ask("/elsewhere"))[0] == 404
    assert (await ask("/livez", "POST"))[0] == 405


async def test_nonsense_is_left_unanswered(ask):
    _, ask = await ask()
    reader, writer = await asyncio.open_connection("127.0.0.1", ask.port)

    writer.write(b"no line at all")
    writer.write_eof()

    assert await reader.read() == b""
    writer.close()
