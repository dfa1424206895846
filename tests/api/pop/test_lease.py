"""Leases over HTTP: extending them, and what happens when they end."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.broker import elapsed, payloads, until_blocked_by

ANSWER_KEYS = [
    "index",
    "leaseId",
    "success",
    "error",
    "expiresAt",
    "newExpiresAt",
    "lease_expires_at",
]


def seconds_left(answer):
    return (datetime.fromisoformat(answer["expiresAt"]) - datetime.now(UTC)) / timedelta(seconds=1)


async def lease_one(client, queue, **parameters):
    await client.push_payloads(queue, 1)
    (message,) = await client.pop(queue, **parameters)
    return message


# Extending


async def test_an_extension_is_answered_with_the_expiry_under_all_its_names(client, queue):
    lease_id = (await lease_one(client, queue, leaseSeconds=10))["leaseId"]

    answer = await client.call("POST", f"/api/v1/lease/{lease_id}/extend", b'{"seconds":100}')
    body = json.loads(answer.body)

    assert answer.status == 200
    assert list(body) == ANSWER_KEYS
    assert [body["index"], body["leaseId"], body["success"], body["error"]] == [
        0,
        lease_id,
        True,
        None,
    ]
    assert body["expiresAt"] == body["newExpiresAt"] == body["lease_expires_at"]
    assert 90 < seconds_left(body) <= 101


@pytest.mark.parametrize("body", [b"", b"{}", b'{"seconds":null}'])
async def test_an_extension_is_a_minute_unless_the_client_says(client, queue, body):
    lease_id = (await lease_one(client, queue, leaseSeconds=10))["leaseId"]

    assert 50 < seconds_left(await client.extend(lease_id, body)) <= 61


async def test_an_extension_never_shortens_a_lease(client, queue):
    lease_id = (await lease_one(client, queue, leaseSeconds=1000))["leaseId"]

    assert seconds_left(await client.extend(lease_id, b'{"seconds":1}')) > 900


async def test_one_extension_covers_all_partitions_of_the_lease(client, queue, broker):
    for partition in "abc":
        await client.push_payloads(queue, 1, partition=partition)
    messages = await client.pop(queue, batch=10, partitions=3, leaseSeconds=10)

    await client.extend(messages[0]["leaseId"], b'{"seconds":1000}')

    async with broker.sql() as sql:
        left = await sql.fetch(
            "select extract(epoch from c.available_at - now()) as seconds from skep.cursor c "
            "join skep.queue q on q.id = c.queue_id where q.name = $1",
            queue,
        )
    assert len(left) == 3
    assert all(row["seconds"] > 900 for row in left)


async def test_a_lease_that_nobody_holds_is_not_extended(client):
    lease_id = "00000000-0000-4000-8000-000000000007"
    body = await client.extend(lease_id)

    assert list(body) == ANSWER_KEYS
    assert [body["leaseId"], body["success"], body["expiresAt"]] == [lease_id, False, None]
    assert body["error"] == "Lease not found or expired"


@pytest.mark.parametrize("status", ["completed", "retry", "dlq"])
async def test_a_lease_that_was_given_back_is_not_extended(client, queue, status):
    message = await lease_one(client, queue)
    await client.ack(message, status)

    assert (await client.extend(message["leaseId"]))["success"] is False


# Length


async def test_a_lease_is_as_long_as_the_queue_says(client, queue):
    await client.configure(queue, leaseTime=1000)
    message = await lease_one(client, queue)

    assert 990 < seconds_left(await client.extend(message["leaseId"], b'{"seconds":1}')) <= 1001


async def test_a_poll_may_ask_for_another_length(client, queue):
    message = await lease_one(client, queue, leaseSeconds=50)

    assert 40 < seconds_left(await client.extend(message["leaseId"], b'{"seconds":1}')) <= 51


@pytest.mark.parametrize("seconds", [0, -5])
async def test_no_length_at_all_means_that_of_the_queue(client, queue, seconds):
    message = await lease_one(client, queue, leaseSeconds=seconds)

    assert seconds_left(await client.extend(message["leaseId"], b'{"seconds":1}')) > 290


# Expiry


@pytest.mark.slow
async def test_when_a_lease_expires_a_waiting_poll_gets_its_messages(client, open_client, queue):
    waiting = await open_client()
    with elapsed() as since_lease:
        old = await lease_one(client, queue, leaseSeconds=1)
        (new,) = await waiting.pop(queue, wait=True, timeout=10_000)

    assert [new["id"], new["deliveryAttempt"]] == [old["id"], 2]
    assert since_lease.seconds > 0.9


@pytest.mark.slow
async def test_a_client_that_leaves_while_it_is_given_an_expired_lease_does_not_hold_it(
    broker, client, open_client, queue
):
    await lease_one(client, queue, leaseSeconds=1)
    leaving = await open_client()
    leaving.send_poll(queue, wait=True, timeout=10_000)

    async with broker.sql() as sql, sql.transaction():
        # It may look whether the lease has expired, but not take it.
        await sql.execute("lock table skep.cursor in exclusive mode")
        await until_blocked_by(sql)
        leaving.hang_up()
        # Answered by the loop that must have seen the hang-up first.
        assert (await client.call("GET", "/livez")).status == 200
    (message,) = await client.pop(queue, wait=True, timeout=10_000)

    assert message["deliveryAttempt"] == 2


async def test_who_lost_a_lease_can_neither_extend_nor_acknowledge(broker, client, queue):
    old = await lease_one(client, queue)
    await broker.end_leases(queue)
    (new,) = await client.pop(queue)

    refused = [await client.ack(old, status) for status in ("completed", "failed", "dlq", "retry")]
    extended = await client.extend(old["leaseId"])
    completed = await client.ack(new)

    assert [result["error"] for result in refused] == ["Invalid or expired lease"] * 4
    assert extended["success"] is False
    assert completed["success"]


async def test_after_a_part_was_acked_the_rest_comes_again(broker, client, queue):
    await client.push_payloads(queue, 1, 2, 3)
    messages = await client.pop(queue, batch=3)
    await client.ack(messages[0])
    await broker.end_leases(queue)

    again = await client.pop(queue, batch=3)

    assert payloads(again) == [2, 3]


@pytest.mark.slow
async def test_an_extended_lease_outlives_its_first_expiry(client, queue):
    message = await lease_one(client, queue, leaseSeconds=1)
    await client.extend(message["leaseId"])

    assert await client.pop(queue, wait=True, timeout=1500) == []
    assert (await client.ack(message))["success"]
