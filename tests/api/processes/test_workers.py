"""Two worker processes behind one port: whatever a client asks of either, it meets one broker.

A connection stays with the worker that accepted it, and `/health` tells which one that is. The
workers of these tests look for themselves only once a minute; a poll that is answered sooner was
woken by the other one.
"""

import asyncio
import json

import pytest

from tests.support.broker import elapsed, payloads, until_blocked_by

SOON_S = 15
PATIENCE_S = 80
OWN_LOOK_MS = 60_000
CONNECTIONS_MAX = 200


@pytest.fixture(scope="module")
def broker(start_broker):
    intervals = {"poll_interval_ms": OWN_LOOK_MS, "poll_interval_ms_max": OWN_LOOK_MS}
    with start_broker("--workers", "2", **intervals) as broker:
        yield broker


async def worker_of(client):
    return json.loads((await client.call("GET", "/health")).body)["worker_id"]


@pytest.fixture
def open_to_each(open_client):
    """Open so many connections to each worker; return them by worker."""

    async def open_to_each(count=1):
        by_worker = {0: [], 1: []}
        for _ in range(CONNECTIONS_MAX):
            client = await open_client()
            by_worker[await worker_of(client)].append(client)
            if min(map(len, by_worker.values())) >= count:
                return [clients[:count] for clients in by_worker.values()]
        return pytest.fail(f"{CONNECTIONS_MAX} connections went to one worker")

    return open_to_each


@pytest.fixture
def pair(open_to_each, arun):
    """A connection to each worker."""
    (here,), (there,) = arun(open_to_each())
    return here, there


# One log


async def test_what_one_worker_stored_the_other_delivers_and_the_first_completes(pair, queue):
    here, there = pair
    await here.push_payloads(queue, 1, 2)

    messages = await there.pop(queue, batch=10)
    result = await here.ack(messages[1])

    assert payloads(messages) == [1, 2]
    assert (result["success"], result["leaseReleased"]) == (True, True)
    assert await there.pop(queue) == []


async def test_a_worker_extends_and_gives_back_the_lease_of_another(pair, queue):
    here, there = pair
    await here.push_payloads(queue, 1, 2, 3)
    messages = await here.pop(queue, batch=10)

    extended = await there.extend(messages[0]["leaseId"])
    result = await there.ack(messages[1], "retry")

    assert extended["success"]
    assert result["leaseReleased"]
    assert payloads(await here.pop(queue, batch=10)) == [1, 2, 3]


async def test_messages_pushed_through_either_worker_keep_their_order(pair, queue):
    for number in range(20):
        await pair[number % 2].push_payloads(queue, number)

    delivered = [(await pair[number % 2].pop(queue, autoAck=True))[0] for number in range(20)]

    assert payloads(delivered) == list(range(20))


async def test_a_group_starts_where_it_started_at_the_other_worker(pair, queue):
    here, there = pair
    await here.push_payloads(queue, "old")
    assert await here.pop(queue, consumerGroup="g", subscriptionMode="new") == []
    await there.push_payloads(queue, "new")

    assert payloads(await there.pop(queue, consumerGroup="g", batch=10)) == ["new"]


async def test_a_queue_configured_at_one_worker_is_so_at_the_other(pair, queue):
    here, there = pair
    await there.push_payloads(queue, 1)
    await here.configure(queue, retryDelay=0, retryLimit=0)
    (message,) = await there.pop(queue)

    assert (await there.ack(message, "failed"))["dlq"] is True


async def test_the_workers_share_the_partitions_out(open_to_each, queue):
    clients = [each for clients in await open_to_each(5) for each in clients]
    for number in range(10):
        await clients[number].push_payloads(queue, number, partition=f"p{number}")

    answers = await asyncio.gather(*(client.pop(queue, batch=5) for client in clients))

    assert sorted(payloads(messages)[0] for messages in answers) == list(range(10))


# Duplicates


@pytest.mark.parametrize("is_partition_new", [True, False])
async def test_of_equal_pushes_through_both_workers_one_is_stored(
    broker, open_to_each, queue, is_partition_new
):
    clients = [each for clients in await open_to_each(20) for each in clients]
    if not is_partition_new:
        await asyncio.gather(*(each.push_payloads(queue, "warm") for each in clients[::19]))
    transaction_ids = [f"t{number}" for number in range(25)]

    async def push_all(client):
        items = ({"queue": queue, "transactionId": t, "payload": t} for t in transaction_ids)
        return [(await client.push(item))[0] for item in items]

    answers = await asyncio.gather(*map(push_all, clients))

    async with broker.sql() as sql:
        stored = await sql.fetch(
            "select transaction_id from skep.message where queue = $1 and payload::text like '%t%'",
            queue,
        )
    assert sorted(row["transaction_id"] for row in stored) == sorted(transaction_ids)
    for results in zip(*answers, strict=True):
        assert sorted(r["status"] for r in results) == ["duplicate"] * 39 + ["queued"]
        assert len({r["message_id"] for r in results}) == 1


async def test_a_worker_that_never_saw_a_partition_finds_its_duplicates(pair, queue):
    here, there = pair
    items = [{"queue": queue, "transactionId": f"t{n}", "payload": n} for n in range(100)]
    stored = await here.push(*items)

    repeated = await there.push(*items, {"queue": queue, "transactionId": "new", "payload": "new"})

    assert [r["status"] for r in repeated] == ["duplicate"] * 100 + ["queued"]
    assert [r["message_id"] for r in repeated[:100]] == [r["message_id"] for r in stored]


async def test_a_repeated_batch_through_the_other_worker_is_recognised_whole(pair, queue):
    here, there = pair
    await asyncio.gather(here.push_payloads(queue, "warm"), there.push_payloads(queue, "warm"))
    for number in range(20):
        items = [{"queue": queue, "transactionId": f"{number}-{n}"} for n in range(5)]
        first = await pair[number % 2].push(*items)
        again = await pair[1 - number % 2].push(*items)

        assert {r["status"] for r in first} == {"queued"}
        assert {r["status"] for r in again} == {"duplicate"}


# Long polls


@pytest.fixture
def park(open_to_each):
    """Leave a poll waiting at one worker; return its connection and one to the other worker."""

    async def park(queue, **parameters):
        (parked, probing), (other, _) = await open_to_each(2)
        parked.send_poll(queue, wait=True, timeout=20_000, **parameters)
        # Polls of a group are served in turn: when this one is answered, the other was too.
        assert await probing.pop(queue, **parameters) == []
        return parked, other

    return park


async def test_a_push_at_one_worker_answers_a_poll_parked_at_the_other(park, queue):
    parked, other = await park(queue)

    with elapsed() as since_push:
        await other.push_payloads(queue, "here")
        messages = await parked.popped()

    assert payloads(messages) == ["here"]
    assert since_push.seconds < SOON_S


async def test_a_message_given_back_at_one_worker_answers_a_poll_at_the_other(pair, park, queue):
    await pair[0].push_payloads(queue, 1)
    (message,) = await pair[0].pop(queue)
    parked, other = await park(queue)

    with elapsed() as since_ack:
        await other.ack(message, "retry")
        (again,) = await parked.popped()

    assert again["deliveryAttempt"] == 2
    assert since_ack.seconds < SOON_S


async def test_a_client_that_leaves_one_worker_makes_way_for_a_poll_at_the_other(
    broker, pair, open_to_each, queue
):
    _, there = pair
    ((leaving, probing), _) = await open_to_each(2)
    assert await probing.pop(queue) == []
    await probing.push_payloads(queue, 1)

    async with broker.sql() as sql, sql.transaction():
        await sql.execute("lock table skep.cursor in access exclusive mode")
        leaving.send_poll(queue)
        await until_blocked_by(sql)
        leaving.hang_up()
        assert await worker_of(probing) == 0

    with elapsed() as since_release:
        (message,) = await there.pop(queue, wait=True, timeout=20_000)

    assert message["deliveryAttempt"] == 1
    assert since_release.seconds < SOON_S


# Connections


async def test_the_connections_of_a_busy_instance_gather_at_one_worker(open_to_each, queue):
    clients = [each for clients in await open_to_each(4) for each in clients]

    # A worker that gets little of a busy machine seems idle, and keeps its connections.
    async with asyncio.timeout(PATIENCE_S):
        while {await worker_of(client) for client in clients} != {0}:
            await asyncio.gather(*(client.push_payloads(queue, *range(50)) for client in clients))
