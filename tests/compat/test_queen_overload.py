"""What the clients that Queen publishes make of a broker that has no room for a while.

Which status suits which client is the reason for the default: see ADR 17.
"""

import asyncio

import pytest

from tests.api.support.overload import TIGHT, overload
from tests.support.broker import payloads

pytestmark = pytest.mark.slow

SCENARIOS = "overload_scenarios.py"
LASTING_S = 2.0
"""Longer than requests are held back, shorter than clients repeat."""


@pytest.fixture(scope="module", params=[429, 503])
def status(request):
    return request.param


@pytest.fixture(scope="module")
def broker(start_broker, status):
    with start_broker("--workers", "1", **TIGHT, overload_status=status) as broker:
        yield broker


async def test_a_producer_gets_through_where_its_client_repeats_the_status(
    play, broker, client, queue, version, status
):
    await client.push_payloads(queue, "before")
    repeats = (version, status) != ("0.15.0", 429)
    async with overload(broker, queue):
        playing = asyncio.ensure_future(asyncio.to_thread(play, "push_once", fails=False))
        await asyncio.wait([playing], timeout=LASTING_S)
    error = await playing

    assert (error is None) == repeats
    assert payloads(await client.pop(queue, batch=10)) == ["before", "through"][: 1 + repeats]
