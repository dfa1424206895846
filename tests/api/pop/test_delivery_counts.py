"""How often a message was delivered and failed: counted for each message, not its partition."""

import json

from tests.support.broker import ack_item


def counts(messages):
    return [(each["data"], each["deliveryAttempt"], each["retryCount"]) for each in messages]


async def push(client, queue, *its_payloads, **options):
    await client.configure(queue, retryDelay=0, **options)
    await client.push_payloads(queue, *its_payloads)


async def test_a_message_that_was_never_delivered_comes_for_the_first_time(client, queue):
    await push(client, queue, 1, 2)
    (first,) = await client.pop(queue, batch=1)
    await client.ack(first, "failed")

    messages = await client.pop(queue, batch=10)

    assert counts(messages) == [(1, 2, 1), (2, 1, 0)]
    await client.ack_batch(ack_item(messages[0]), ack_item(messages[1], "retry"))
    assert counts(await client.pop(queue, batch=10)) == [(2, 2, 0)]


async def test_a_message_delivered_beside_one_that_failed_was_delivered_and_did_not_fail(
    client, queue
):
    await push(client, queue, 1, 2, 3)
    messages = await client.pop(queue, batch=10)

    await client.ack_batch(ack_item(messages[0]), ack_item(messages[1], "failed"))

    assert counts(await client.pop(queue, batch=10)) == [(2, 2, 1), (3, 2, 0)]


async def test_giving_back_and_losing_the_lease_are_no_failures(client, broker, queue):
    await push(client, queue, 1)
    (message,) = await client.pop(queue)
    await client.ack(message, "retry")
    (message,) = await client.pop(queue)
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.cursor set available_at = clock_timestamp() where lease_id = $1",
            message["leaseId"],
        )

    assert counts(await client.pop(queue)) == [(1, 3, 0)]


async def test_a_message_acknowledged_on_delivery_tells_its_earlier_deliveries(client, queue):
    await push(client, queue, 1, 2)
    (first,) = await client.pop(queue, batch=1)
    await client.ack(first, "failed")

    assert counts(await client.pop(queue, batch=10, autoAck=True)) == [(1, 2, 1), (2, 1, 0)]


async def test_pop_and_dead_letter_agree_on_the_failures(client, queue):
    await push(client, queue, 1, 2, retryLimit=1)
    seen = []
    for _ in range(2):
        (message,) = await client.pop(queue, batch=1)
        seen += counts([message])
        result = await client.ack(message, "failed")
    answer = await client.call("GET", f"/api/v1/dlq?queue={queue}")

    assert seen == [(1, 1, 0), (1, 2, 1)]
    assert result["dlq"]
    (letter,) = json.loads(answer.body)["messages"]
    assert (letter["data"], letter["retryCount"]) == (1, 2)
    assert counts(await client.pop(queue)) == [(2, 1, 0)]


async def test_the_detail_of_a_message_tells_its_own_deliveries(client, queue):
    await push(client, queue, 1, 2, 3)
    messages = await client.pop(queue, batch=2)
    await client.ack(messages[0], "failed")

    shown = {}
    for message in [*messages, *await client.pop(queue, batch=10)]:
        path = f"/api/v1/messages/{message['partitionId']}/{message['id']}/history"
        answer = json.loads((await client.call("GET", path)).body)
        (group,) = answer["deliveries"]
        shown[message["data"]] = (group["deliveries"], group["failures"])

    assert shown == {1: (2, 1), 2: (2, 0), 3: (1, 0)}
