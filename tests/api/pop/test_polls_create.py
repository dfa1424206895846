"""What a poll creates: the queue and the partition it names, unless it or the broker says no."""

import asyncio
import json
from urllib.parse import quote

import pytest

from tests.sql.support.waiting import eventually
from tests.support.broker import payloads, pop_path


@pytest.fixture
def exists(broker):
    """Return a function that tells whether a queue, or a partition of it, exists."""

    async def exists(queue, partition=None):
        query = """
            select count(*) > 0 from skep.queue q left join skep.partition p on p.queue_id = q.id
            where q.name = $1 and ($2::text is null or p.name = $2)"""
        async with broker.sql() as sql:
            return await sql.fetchval(query, queue, partition)

    return exists


async def delete(client, queue):
    assert (await client.call("DELETE", f"/api/v1/resources/queues/{quote(queue)}")).status == 200


@pytest.mark.parametrize("partition", [None, "p"])
@pytest.mark.parametrize("options", [{}, {"wait": True, "timeout": 20_000}])
async def test_a_poll_that_must_not_create_is_told_that_the_queue_does_not_exist(
    client, queue, exists, partition, options
):
    answer = await client.call("GET", pop_path(queue, partition, create="false", **options))

    assert answer.status == 404
    assert queue in json.loads(answer.body)["error"]
    assert not await exists(queue)


async def test_a_poll_that_must_not_create_is_told_that_the_partition_does_not_exist(
    client, queue, exists
):
    await client.push_payloads(queue, 1, partition="p")

    answer = await client.call("GET", pop_path(queue, "typo", create="false"))

    assert answer.status == 404
    assert "typo" in json.loads(answer.body)["error"]
    assert not await exists(queue, "typo")
    assert payloads(await client.pop(queue, "p", create="false", consumerGroup="new")) == [1]


async def test_a_poll_creates_what_it_names_by_default(client, queue, exists):
    assert (await client.call("GET", pop_path(queue, "p"))).status == 204

    assert await exists(queue, "p")


async def test_a_poll_that_waits_does_not_create_its_queue_again_if_it_must_not(
    client, open_client, queue, exists, broker
):
    await client.configure(queue)
    consumer = await open_client()
    consumer.request("GET", pop_path(queue, create="false", wait=True, timeout=20_000))

    async def is_polled():
        query = """
            select g.first_polled_at is not null
            from skep.consumer_group g join skep.queue q on q.id = g.queue_id where q.name = $1"""
        async with broker.sql() as sql:
            return await sql.fetchval(query, queue)

    await eventually(is_polled)
    await delete(client, queue)

    assert (await asyncio.wait_for(consumer.answer(), 60)).status == 404
    assert not await exists(queue)


async def test_a_discovered_queue_that_was_just_deleted_is_not_created_again(client, queue, exists):
    await client.configure(queue, {"namespace": f"space of {queue}"})
    path = f"/api/v1/pop?namespace={quote(f'space of {queue}')}"
    assert (await client.call("GET", path)).status == 204

    await delete(client, queue)

    assert (await client.call("GET", f"{path}&consumerGroup=new")).status == 204
    assert not await exists(queue)


@pytest.fixture
def strict_broker(start_broker):
    with start_broker("--workers", "1", polls_create_queues=False) as broker:
        yield broker


async def test_a_broker_may_be_told_that_polls_create_nothing(strict_broker, queue):
    async with strict_broker.connect() as client:
        refused = await client.call("GET", pop_path(queue))
        created = await client.call("GET", pop_path(queue, create="true"))
        found = await client.call("GET", pop_path(queue))

    assert [refused.status, created.status, found.status] == [404, 204, 204]
