"""Which message an acknowledgment means when its transaction id repeats under one lease."""

import json

import pytest

from tests.support.broker import ack_item, payloads


async def lease_twins(client, queue, *, ack_mode="cumulative"):
    """Lease 1 to 4, of which 2 and 4 have the same transaction id."""
    await client.configure(queue, dedupWindowSeconds=0, retryDelay=0, ackMode=ack_mode)
    names = ["a", "twin", "b", "twin"]
    await client.push(
        *(
            {"queue": queue, "partition": "p", "payload": number, "transactionId": name}
            for number, name in enumerate(names, 1)
        )
    )
    return await client.pop(queue, batch=10)


def by_id(message, status="completed", name="messageId"):
    return {name: message["id"], "leaseId": message["leaseId"], "status": status}


def by_offset(message, offset, status="completed"):
    address = {name: message[name] for name in ("partitionId", "leaseId")}
    return {**address, "offset": offset, "status": status}


@pytest.mark.parametrize("name", ["messageId", "id"])
async def test_an_ack_by_message_id_means_that_message(client, queue, name):
    messages = await lease_twins(client, queue)

    answer = await client.post("/api/v1/ack", by_id(messages[1], name=name))

    (result,) = json.loads(answer.body)
    assert (result["success"], result["messageId"]) == (True, messages[1]["id"])
    await client.ack_batch(by_id(messages[2], "failed"))
    assert payloads(await client.pop(queue, batch=10)) == [3, 4]


async def test_an_ack_by_lease_partition_and_offset_means_that_message(client, queue):
    messages = await lease_twins(client, queue)

    results = await client.ack_batch(by_offset(messages[0], 2), by_offset(messages[0], 3, "failed"))

    assert [result["success"] for result in results] == [True, True]
    assert payloads(await client.pop(queue, batch=10)) == [3, 4]


async def test_an_ack_beyond_its_lease_is_refused_alone(client, queue):
    await client.push_payloads(queue, 1, 2, 3)
    first, second = await client.pop(queue, batch=2)

    results = await client.ack_batch(by_id(first), by_offset(first, 3), by_id(second))

    assert [result["success"] for result in results] == [True, False, True]
    assert payloads(await client.pop(queue, batch=10)) == [3]


async def test_a_message_id_counts_before_the_transaction_id(client, queue):
    messages = await lease_twins(client, queue)

    await client.ack_batch(
        {**ack_item(messages[1]), "messageId": messages[1]["id"]},
        {**ack_item(messages[3], "failed"), "messageId": messages[3]["id"]},
    )

    assert payloads(await client.pop(queue, batch=10)) == [3, 4]


@pytest.mark.parametrize("ack_mode", ["cumulative", "individual"])
async def test_a_transaction_id_alone_means_the_newest_and_completes_no_other(
    client, broker, queue, ack_mode
):
    messages = await lease_twins(client, queue, ack_mode=ack_mode)

    result = await client.ack(messages[3])
    await client.ack(messages[0], "retry")

    assert result["success"]
    if ack_mode == "individual":
        await end_lease(broker, messages[0]["leaseId"])
    assert payloads(await client.pop(queue, batch=10)) == [1, 2, 3]


async def end_lease(broker, lease_id):
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.cursor set available_at = clock_timestamp() where lease_id = $1", lease_id
        )


async def test_as_many_acks_as_there_are_messages_of_the_id_complete_all(client, queue):
    messages = await lease_twins(client, queue)

    results = await client.ack_batch(*map(ack_item, messages))

    assert [result["success"] for result in results] == [True] * 4
    assert results[-1]["leaseReleased"]
    assert await client.pop(queue, batch=10) == []


async def test_one_after_the_other_all_are_completed(client, queue):
    messages = await lease_twins(client, queue)

    results = [await client.ack(message) for message in messages]

    assert [result["success"] for result in results] == [True] * 4
    assert await client.pop(queue, batch=10) == []


@pytest.mark.parametrize("ack_mode", ["cumulative", "individual"])
@pytest.mark.parametrize("order", [(1, 3), (3, 1)])
async def test_if_one_of_two_with_the_same_id_failed_both_come_again(
    client, broker, queue, order, ack_mode
):
    messages = await lease_twins(client, queue, ack_mode=ack_mode)
    items = {1: ack_item(messages[1], "failed"), 3: ack_item(messages[3])}

    await client.ack_batch(
        ack_item(messages[0]), *(items[place] for place in order), ack_item(messages[2])
    )

    expected = [2, 3, 4] if ack_mode == "cumulative" else [2, 4]
    assert payloads(await client.pop(queue, batch=10)) == expected


async def test_a_transaction_acknowledges_by_message_id_and_by_offset(client, queue):
    messages = await lease_twins(client, queue)
    operations = [
        {"type": "ack", **by_id(messages[1]), "partitionId": messages[1]["partitionId"]},
        {"type": "ack", **by_offset(messages[0], 3)},
    ]

    answer = await client.post("/api/v1/transaction", {"operations": operations})

    assert json.loads(answer.body)["success"] is True
    await client.ack_batch(by_id(messages[3], "failed"))
    assert payloads(await client.pop(queue, batch=10)) == [4]


MALFORMED = [
    ({"messageId": "no id"}, "'no id' is not a message id"),
    ({"messageId": "00000000-0000-8000-8000-000000000001"}, "is not a message id"),
    ({"partitionId": "p", "offset": 1}, "'p' is not a partition id"),
    ({"partitionId": "p", "transactionId": "twin"}, "'p' is not a partition id"),
    ({"offset": 0}, "0 is not an offset"),
]


@pytest.mark.parametrize(("members", "reason"), MALFORMED)
async def test_a_malformed_id_is_refused_alone_with_the_reason(client, queue, members, reason):
    messages = await lease_twins(client, queue)
    bad = {"partitionId": messages[0]["partitionId"], "leaseId": messages[0]["leaseId"], **members}

    alone = await client.post("/api/v1/ack", bad)
    first, second = await client.ack_batch(bad, by_id(messages[3]))

    assert alone.status == 400
    assert reason in json.loads(alone.body)["error"]
    assert (first["success"], second["success"]) == (False, True)
    assert reason in first["error"]
    assert await client.pop(queue, batch=10) == []


async def test_a_message_id_of_another_partition_than_the_one_named_is_refused(client, queue):
    messages = await lease_twins(client, queue)
    (other,) = await client.push({"queue": queue, "partition": "q", "payload": 1})

    (result,) = await client.ack_batch({**by_id(messages[0]), "partitionId": other["partition_id"]})

    assert result["success"] is False
    assert "is not of partition" in result["error"]
