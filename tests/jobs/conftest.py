"""A client of a database of its own, and workers that end with the test."""

from contextlib import AsyncExitStack

import pytest

from skep.jobs import JobClient, Worker
from tests.jobs.support.shop import shop


@pytest.fixture
def stack(arun, database_url):
    """What is closed when the test has ended, the last first, and before its database goes."""
    stack = AsyncExitStack()
    yield stack
    arun(stack.aclose())


@pytest.fixture
def open_client(stack, database_url):
    async def open_client(**options):
        client = JobClient(database_url, types=[shop], **options)
        return await stack.enter_async_context(client)

    return open_client


@pytest.fixture
def client(arun, open_client):
    return arun(open_client())


@pytest.fixture
def start_worker(stack, client):
    """Start a worker that stops at the end, without waiting for what it runs."""

    async def start_worker(*registries, **options):
        options = {"lease_s": 3.0, "poll_s": 1.0, "concurrency": 5, **options}
        used = options.pop("client", client)
        worker = Worker(used, registries or [shop], **options)
        await worker.start()
        stack.push_async_callback(worker.stop, grace_s=0.2)
        return worker

    return start_worker


@pytest.fixture
def sql(arun, connect):
    """A connection to the same database."""
    return arun(connect())
