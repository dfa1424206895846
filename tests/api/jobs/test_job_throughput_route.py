"""The pace of jobs over HTTP."""

from contextlib import AsyncExitStack

import pytest

from skep.jobs import Ctx, JobTypes
from tests.api.support.job_calls import Asking, start_worker

mill = JobTypes("mill")


@mill.job("grind")
async def grind(ctx: Ctx[int, int]) -> int:
    return ctx.input


@pytest.fixture
def broker(start_broker):
    """One that nobody has asked yet: the answer is kept for some seconds."""
    with start_broker("--workers", "1") as broker:
        yield broker


async def test_ended_jobs_show_in_the_pace_of_their_type(broker, client):
    ask = Asking(client)
    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, mill)
        for n in range(3):
            await ask.result(await ask.start("grind", n))

    pace = await ask("GET", "/jobs/throughput")

    (found,) = pace["types"]
    assert (found["type"], found["ended"], found["failed"]) == ("grind", 3, 0)
    assert found["perMinute"] == round(3 * 60 / pace["spanSeconds"], 2)
    assert found["meanRunSeconds"] >= 0
