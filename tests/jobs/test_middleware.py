from contextlib import asynccontextmanager

import pytest

from skep.jobs import Ctx, JobTypes
from skep.jobs.errors import ChainFailed
from tests.jobs.support.shop import QUICK

said = []
wrapped = JobTypes("wrapped")


def wrapper(name):
    @asynccontextmanager
    async def wrap(ctx):
        said.append(f"{name} before {ctx.facts.name}")
        try:
            yield
        finally:
            said.append(f"{name} after")

    return wrap


wrapped.middleware = [wrapper("registry")]


@wrapped.job("greet", retry=QUICK)
async def greet(ctx: Ctx[str, str]) -> str:
    said.append("handler")
    if ctx.input == "break":
        raise RuntimeError
    return f"hello {ctx.input}"


async def test_what_wraps_the_worker_is_outside_of_what_wraps_the_registry(client, start_worker):
    said.clear()
    await start_worker(wrapped, middleware=[wrapper("worker")])

    assert await (await client.start(greet, "bees")).result(timeout=20) == "hello bees"

    assert said == [
        "worker before greet",
        "registry before greet",
        "handler",
        "registry after",
        "worker after",
    ]


async def test_what_a_handler_raises_passes_through_what_wraps_it(client, start_worker):
    said.clear()
    await start_worker(wrapped)
    chain = await client.start(greet, "break")

    with pytest.raises(ChainFailed):
        await chain.result(timeout=20)

    assert said == ["registry before greet", "handler", "registry after"] * QUICK.max_attempts
