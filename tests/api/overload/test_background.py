"""Background work runs by itself, in one process of several, and moves on when that one ends."""

import json
from datetime import UTC, datetime

import pytest

from tests.sql.support.waiting import eventually

LEADERS = "select service, expires_at from skep.leadership"
AGE_SEGMENTS = "update skep.segment set created_at = created_at - interval '1 hour'"


@pytest.fixture(scope="module")
def broker(start_broker):
    """Two processes of which one does the background work, often."""
    often = {"retention_interval_s": 0.1, "eviction_interval_s": 0.1}
    with start_broker("--workers", "2", **often) as broker:
        yield broker


async def test_retention_runs_by_itself(broker, client, queue):
    await client.configure(queue, retentionEnabled=True, retentionSeconds=60)
    await client.push_payloads(queue, "old")
    async with broker.sql() as sql:
        await sql.execute(AGE_SEGMENTS)

    async def removals():
        answer = await client.call("GET", f"/api/v1/retention/history?queue={queue}")
        return json.loads(answer.body)["history"]

    (entry,) = await eventually(removals)
    assert (entry["kind"], entry["messages"]) == ("retention", 1)
    assert await client.pop(queue) == []


async def test_one_process_leads(broker):
    async with broker.sql() as sql:
        (leader,) = await eventually(lambda: sql.fetch(LEADERS))

    assert leader["service"] == "housekeeping"
    assert leader["expires_at"] > datetime.now(UTC)


async def test_a_broker_that_ends_leaves_the_lease_to_others(broker_to_stop):
    async with broker_to_stop.sql() as sql:
        assert await eventually(lambda: sql.fetch(LEADERS))

        assert broker_to_stop.stop() == 0

        assert await sql.fetch(LEADERS) == []
