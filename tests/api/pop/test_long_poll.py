"""Long polls over HTTP: what wakes a parked poll, when it gives up, and what happens if it leaves.

The broker of these tests looks for itself only once a minute. A poll that is answered sooner was
woken. The ends of leases and delays, of which nobody tells, are tested with leases and acks.
"""

import asyncio
import json

import pytest

from tests.support.broker import elapsed, payloads, pop_path, until_blocked_by

SOON_S = 15
OWN_LOOK_MS = 60_000


@pytest.fixture(scope="module")
def broker(start_broker):
    intervals = {"poll_interval_ms": OWN_LOOK_MS, "poll_interval_ms_max": OWN_LOOK_MS}
    with start_broker("--workers", "1", **intervals) as broker:
        yield broker


@pytest.fixture
def park(open_client):
    """Leave a poll waiting on a connection of its own, and return that connection."""

    async def park(queue, partition=None, **parameters):
        parked, probing = await open_client(), await open_client()
        parked.send_poll(queue, partition, wait=True, timeout=20_000, **parameters)
        # Polls of a group are served in turn: when this one is answered, the other was too.
        assert await probing.pop(queue, partition, **parameters) == []
        return parked

    return park


# Woken


@pytest.mark.parametrize("partition", [None, "p"])
async def test_defect_24_a_push_does_not_leave_a_parked_poll_waiting(
    client, park, queue, partition
):
    parked = await park(queue, partition)

    with elapsed() as since_push:
        await client.push_payloads(queue, "here", partition="p")
        messages = await parked.popped()

    assert payloads(messages) == ["here"]
    assert since_push.seconds < SOON_S


async def test_a_push_answers_one_poll_of_every_group(client, park, queue):
    parked = [await park(queue, consumerGroup=group) for group in "abc"]

    with elapsed() as since_push:
        await client.push_payloads(queue, "here")
        answers = [await poll.popped() for poll in parked]

    assert [payloads(messages) for messages in answers] == [["here"]] * 3
    assert since_push.seconds < SOON_S


async def test_a_push_into_many_partitions_answers_as_many_polls(client, park, queue):
    parked = [await park(queue) for _ in range(10)]
    items = [{"queue": queue, "partition": f"p{number}", "payload": 1} for number in range(10)]

    with elapsed() as since_push:
        await client.push(*items)
        answers = [await poll.popped() for poll in parked]

    assert [payloads(messages) for messages in answers] == [[1]] * 10
    assert len({messages[0]["partition"] for messages in answers}) == 10
    assert since_push.seconds < SOON_S


async def test_pushes_of_many_connections_answer_polls_of_many(open_client, park, queue):
    parked = [await park(queue, autoAck=True) for _ in range(10)]
    clients = [await open_client() for _ in range(10)]

    with elapsed() as since_push:
        await asyncio.gather(
            *(each.push_payloads(queue, n, partition=f"p{n}") for n, each in enumerate(clients))
        )
        answers = [await poll.popped() for poll in parked]

    assert sorted(payloads(messages)[0] for messages in answers) == list(range(10))
    assert since_push.seconds < SOON_S


async def test_a_push_elsewhere_leaves_a_poll_of_a_partition_waiting(client, park, queue):
    parked = await park(queue, "mine")
    await client.push_payloads(queue, "other", partition="other")

    with elapsed() as since_push:
        await client.push_payloads(queue, "mine", partition="mine")
        messages = await parked.popped()

    assert payloads(messages) == ["mine"]
    assert since_push.seconds < SOON_S


@pytest.mark.parametrize("status", ["failed", "retry"])
async def test_defect_24_a_message_given_back_does_not_leave_a_parked_poll_waiting(
    client, park, queue, status
):
    await client.configure(queue, retryDelay=0)
    await client.push_payloads(queue, 1)
    (message,) = await client.pop(queue)
    parked = await park(queue)

    with elapsed() as since_ack:
        await client.ack(message, status)
        (again,) = await parked.popped()

    assert [again["id"], again["deliveryAttempt"]] == [message["id"], 2]
    assert since_ack.seconds < SOON_S


@pytest.mark.parametrize("status", ["completed", "dlq"])
async def test_the_end_of_a_lease_answers_a_poll_that_waits_for_what_is_behind(
    client, park, queue, status
):
    await client.push_payloads(queue, 1, 2)
    (message,) = await client.pop(queue)
    parked = await park(queue)

    with elapsed() as since_ack:
        await client.ack(message, status)
        messages = await parked.popped()

    assert payloads(messages) == [2]
    assert since_ack.seconds < SOON_S


# Not woken


async def test_a_poll_that_gets_nothing_is_answered_204_when_its_time_is_up(client, queue):
    with elapsed() as waiting:
        answer = await client.call("GET", pop_path(queue, wait=True, timeout=300))

    assert (answer.status, answer.body) == (204, b"")
    assert 0.29 < waiting.seconds < 0.3 + SOON_S


@pytest.mark.parametrize("parameters", [{}, {"wait": True, "timeout": 0}, {"timeout": 20_000}])
async def test_a_poll_that_does_not_wait_is_answered_at_once(client, queue, parameters):
    with elapsed() as waiting:
        assert await client.pop(queue, **parameters) == []

    assert waiting.seconds < SOON_S


async def test_other_requests_on_the_connection_wait_behind_a_parked_poll(client, park, queue):
    parked = await park(queue)
    parked.request("GET", "/livez")

    await client.push_payloads(queue, "here")

    assert payloads(await parked.popped()) == ["here"]
    assert json.loads((await parked.answer()).body) == {"status": "alive"}


@pytest.mark.slow
async def test_a_broker_told_to_stop_answers_its_parked_polls(broker_to_stop):
    async with broker_to_stop.connect() as parked, broker_to_stop.connect() as probing:
        parked.send_poll("q", wait=True, timeout=60_000)
        assert await probing.pop("q") == []

        broker_to_stop.process.terminate()
        answer = await parked.answer()

    assert answer.status == 204
    assert answer.headers["connection"] == "close"


# Clients that leave


async def test_a_poll_that_left_takes_no_message_with_it(client, park, queue):
    leaving = await park(queue)
    staying = await park(queue)
    leaving.hang_up()

    with elapsed() as since_push:
        await client.push_payloads(queue, 1)
        (message,) = await staying.popped()

    assert message["deliveryAttempt"] == 1
    assert since_push.seconds < SOON_S


@pytest.mark.parametrize("partition", [None, "p"])
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_defect_20_what_was_claimed_for_a_client_that_left_is_not_lost(
    broker, client, open_client, queue, partition, auto_ack
):
    await client.push_payloads(queue, 1, 2, partition="p")
    await client.pop(queue, "p", consumerGroup="other")
    leaving = await open_client()
    kind = {"autoAck": True} if auto_ack else {}
    assert await client.pop(queue, consumerGroup="g", subscriptionFrom="now", **kind) == []
    await client.push_payloads(queue, 3, partition="p")

    async with broker.sql() as sql, sql.transaction():
        await sql.execute("lock table skep.cursor in access exclusive mode")
        leaving.send_poll(queue, partition, consumerGroup="g", batch=10, **kind)
        await until_blocked_by(sql)
        leaving.hang_up()
        # Answered by the loop that must have seen the hang-up first.
        assert (await client.call("GET", "/livez")).status == 200

    with elapsed() as since_release:
        messages = await client.pop(queue, consumerGroup="g", batch=10, wait=True, timeout=20_000)

    assert payloads(messages) == [3]
    assert messages[0]["deliveryAttempt"] == 1
    assert since_release.seconds < SOON_S


async def test_a_client_that_leaves_does_not_disturb_those_served_with_it(
    broker, client, open_client, queue
):
    partitions = [f"p{number}" for number in range(6)]
    assert await client.pop(queue) == []
    for partition in partitions:
        await client.push_payloads(queue, partition, partition=partition)
    clients = [await open_client() for _ in range(6)]

    async with broker.sql() as sql, sql.transaction():
        await sql.execute("lock table skep.cursor in access exclusive mode")
        for each in clients:
            each.send_poll(queue, wait=True, timeout=20_000)
        await until_blocked_by(sql)
        for each in clients[::2]:
            each.hang_up()
        assert (await client.call("GET", "/livez")).status == 200

    with elapsed() as since_release:
        answers = [await each.popped() for each in clients[1::2]]
        answers += [await client.pop(queue, wait=True, timeout=20_000) for _ in range(3)]

    assert sorted(payloads(messages)[0] for messages in answers) == partitions
    assert {messages[0]["deliveryAttempt"] for messages in answers} == {1}
    assert since_release.seconds < SOON_S
