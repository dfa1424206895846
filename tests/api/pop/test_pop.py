"""Pop over HTTP: the shape of its answers, who gets which messages, and where groups start."""

import asyncio
import json
import re

import pytest

from tests.support.broker import payloads, pop_path

ANSWER_KEYS = [
    "success",
    "queue",
    "partition",
    "partitionId",
    "leaseId",
    "consumerGroup",
    "partitionsClaimed",
    "messages",
]
MESSAGE_KEYS = {
    "id",
    "transactionId",
    "traceId",
    "data",
    "producerSub",
    "createdAt",
    "queue",
    "partition",
    "partitionId",
    "leaseId",
    "consumerGroup",
    "deliveryAttempt",
    "retryCount",
}


async def push_to_each(client, queue, partitions, *payloads):
    for partition in partitions:
        await client.push_payloads(queue, *payloads, partition=partition)


# Answers


async def test_messages_come_with_status_200_and_everything_a_client_reads(client, queue):
    (pushed,) = await client.push(
        {"queue": queue, "partition": "p", "transactionId": "t", "payload": {"n": 1}}
    )

    answer = await client.call("GET", pop_path(queue))
    body = json.loads(answer.body)
    (message,) = body["messages"]

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert list(body) == ANSWER_KEYS
    assert set(message) == MESSAGE_KEYS
    assert body["success"] is True
    assert body["partitionsClaimed"] == 1
    assert message == {
        "id": pushed["message_id"],
        "transactionId": "t",
        "traceId": None,
        "data": {"n": 1},
        "producerSub": None,
        "createdAt": message["createdAt"],
        "queue": queue,
        "partition": "p",
        "partitionId": pushed["partition_id"],
        "leaseId": body["leaseId"],
        "consumerGroup": "__QUEUE_MODE__",
        "deliveryAttempt": 1,
        "retryCount": 0,
    }
    shared = ("queue", "partition", "partitionId", "leaseId", "consumerGroup")
    assert [body[name] for name in shared] == [message[name] for name in shared]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", message["createdAt"])


async def test_an_empty_pop_is_a_bare_204(client, queue):
    await client.push_payloads(queue, 1)
    await client.pop(queue, autoAck=True)

    answer = await client.call("GET", pop_path(queue))

    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers


@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_pop_of_what_nobody_pushed_to_is_empty(client, queue, partition):
    assert await client.pop(queue, partition) == []


async def test_autopilot_is_answered_with_what_was_chosen(client, queue):
    await client.push_payloads(queue, *range(30))

    answer = await client.call("GET", pop_path(queue, consumerGroup="g", autopilot=True))
    body = json.loads(answer.body)

    assert body["autopilot"] == {"partitions": 10, "batch": 200, "waitMs": 0}
    assert len(body["messages"]) == 30


async def test_autopilot_leaves_alone_what_the_client_chose(client, queue):
    await push_to_each(client, queue, "abc", 1, 2, 3)

    answer = await client.call("GET", pop_path(queue, autopilot=True, batch=2, partitions=1))
    body = json.loads(answer.body)

    assert body["autopilot"] == {"partitions": 1, "batch": 2, "waitMs": 0}
    assert len(body["messages"]) == 2


# Batches and partitions


async def test_a_batch_is_one_message_unless_the_client_says(client, queue):
    await client.push_payloads(queue, 1, 2)

    assert payloads(await client.pop(queue)) == [1]


async def test_messages_of_a_partition_come_in_order_over_several_pops(client, queue):
    await client.push_payloads(queue, *range(5))
    await client.push_payloads(queue, *range(5, 10))

    delivered = [payloads(await client.pop(queue, batch=3, autoAck=True)) for _ in range(5)]

    assert delivered == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9], []]


async def test_a_partition_under_lease_is_served_to_nobody_else(client, queue):
    await push_to_each(client, queue, ["a", "b"], 1, 2)

    first = await client.pop(queue)
    second = await client.pop(queue)
    third = await client.pop(queue)

    assert {first[0]["partition"], second[0]["partition"]} == {"a", "b"}
    assert payloads(first + second) == [1, 1]
    assert third == []


async def test_a_pop_claims_as_many_partitions_as_it_asks_for_under_one_lease(client, queue):
    await push_to_each(client, queue, "abcde", 1)

    answer = await client.call("GET", pop_path(queue, batch=100, partitions=3))
    body = json.loads(answer.body)

    assert body["partitionsClaimed"] == 3
    assert len({message["partition"] for message in body["messages"]}) == 3
    assert {message["leaseId"] for message in body["messages"]} == {body["leaseId"]}
    assert len(await client.pop(queue, batch=100, partitions=10)) == 2


async def test_the_batch_is_a_budget_for_all_partitions_of_a_pop(client, queue):
    await push_to_each(client, queue, "abc", 1, 2)

    messages = await client.pop(queue, batch=5, partitions=10)

    assert payloads(messages) == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("partitions", [0, -1])
async def test_no_cap_on_partitions_means_all_of_them(client, queue, partitions):
    await push_to_each(client, queue, [f"p{number}" for number in range(20)], 1)

    assert len(await client.pop(queue, batch=100, partitions=partitions)) == 20


async def test_a_pop_of_a_partition_gets_its_messages_only(client, queue):
    await push_to_each(client, queue, "a", "a1", "a2")
    await push_to_each(client, queue, "b", "b1", "b2")

    messages = await client.pop(queue, "b", batch=10)

    assert payloads(messages) == ["b1", "b2"]
    assert await client.pop(queue, "b") == []
    assert payloads(await client.pop(queue, batch=10, partitions=10)) == ["a1", "a2"]


async def test_a_partition_without_a_name_is_the_default_one(client, queue):
    await client.push_payloads(queue, 1, partition="")

    assert payloads(await client.pop(queue, "")) == [1]


async def test_pops_on_many_connections_share_the_messages_out(open_client, queue):
    clients = [await open_client() for _ in range(20)]
    await push_to_each(clients[0], queue, [f"p{number}" for number in range(20)], "x", "y")

    answers = await asyncio.gather(*(client.pop(queue, batch=2) for client in clients))

    assert [payloads(messages) for messages in answers] == [["x", "y"]] * 20
    assert len({messages[0]["partition"] for messages in answers}) == 20


async def test_a_large_batch_over_many_segments_is_complete(client, queue):
    for start in range(0, 2000, 100):
        await client.push_payloads(queue, *range(start, start + 100))

    assert payloads(await client.pop(queue, batch=100_000)) == list(range(2000))


# Acknowledged on delivery


async def test_an_auto_acked_message_has_no_lease_and_does_not_come_again(client, queue):
    await client.push_payloads(queue, 1, 2)

    answer = await client.call("GET", pop_path(queue, autoAck=True))
    body = json.loads(answer.body)

    assert body["leaseId"] == body["messages"][0]["leaseId"] == ""
    assert body["messages"][0]["deliveryAttempt"] == 1
    assert payloads(await client.pop(queue, batch=10, autoAck=1)) == [2]


# Groups


async def test_every_group_gets_every_message(client, queue):
    await client.push_payloads(queue, 1, 2)

    for group in ({"consumerGroup": "a"}, {"consumerGroup": "b"}, {}):
        assert payloads(await client.pop(queue, batch=10, **group)) == [1, 2]


async def test_a_group_is_not_held_up_by_the_lease_of_another(client, queue):
    await client.push_payloads(queue, 1)
    (message,) = await client.pop(queue, consumerGroup="a")
    await client.ack(message, "failed")

    (other,) = await client.pop(queue, consumerGroup="b")

    assert other["deliveryAttempt"] == 1


NEW = [
    {"subscriptionMode": "new"},
    {"subscriptionMode": "new-only"},
    {"subscriptionFrom": "now"},
]


@pytest.mark.parametrize("start", NEW, ids=str)
async def test_a_new_group_may_start_at_the_present(client, queue, start):
    await client.push_payloads(queue, "old")
    assert await client.pop(queue, consumerGroup="g", **start) == []

    await client.push_payloads(queue, "new")
    await client.push_payloads(queue, "new elsewhere", partition="later")

    messages = await client.pop(queue, consumerGroup="g", batch=10, partitions=10, **start)
    assert sorted(payloads(messages)) == ["new", "new elsewhere"]


@pytest.mark.parametrize("start", NEW, ids=str)
async def test_a_group_that_came_before_the_first_message_misses_nothing(client, queue, start):
    assert await client.pop(queue, consumerGroup="g", **start) == []

    await client.push_payloads(queue, "first")

    assert payloads(await client.pop(queue, consumerGroup="g", **start)) == ["first"]


async def test_a_group_may_start_at_a_moment_of_the_past(client, queue):
    for number in range(3):
        await client.push_payloads(queue, number)
    everything = await client.pop(queue, batch=10)
    moment = everything[1]["createdAt"]

    messages = await client.pop(queue, consumerGroup="g", batch=10, subscriptionFrom=moment)

    assert payloads(messages) == [1, 2]


@pytest.mark.parametrize("mode", ["all", "from_beginning", ""])
async def test_the_other_modes_start_at_the_beginning(client, queue, mode):
    await client.push_payloads(queue, "old")

    messages = await client.pop(queue, consumerGroup="g", subscriptionMode=mode)

    assert payloads(messages) == ["old"]


async def test_a_subscription_counts_only_when_the_group_is_new(client, queue):
    await client.push_payloads(queue, 1, 2)
    await client.pop(queue, consumerGroup="g", autoAck=True)

    messages = await client.pop(queue, consumerGroup="g", subscriptionMode="new")

    assert payloads(messages) == [2]


async def test_queue_mode_always_starts_at_the_beginning(client, queue):
    await client.push_payloads(queue, "old")

    assert payloads(await client.pop(queue, subscriptionMode="new")) == ["old"]


async def recreate_elsewhere(broker, queue, partition):
    """Let a partition vanish and come back with a message, as other brokers would do it."""
    async with broker.sql() as sql:
        await sql.execute(
            """
            select skep.drop_partitions(array_agg(p.id)) from skep.partition p
            join skep.queue q on q.id = p.queue_id where q.name = $1 and p.name = $2
            """,
            queue,
            partition,
        )
        await sql.execute(
            """
            select s.* from skep.provision_partitions(array[$1], array[$2]) p
            cross join lateral skep.push_segments(
              array[p.partition_id], '{1}', '{0}', '{infinity}', array[decode(md5('x'), 'hex')],
              array[convert_to('[{"transactionId":"x","traceId":null,"data":1}]', 'UTF8')],
              false) s
            """,
            queue,
            partition,
        )


async def test_a_poll_for_a_partition_that_was_removed_finds_the_one_created_since(
    broker, client, queue
):
    assert await client.pop(queue, "a") == []

    await recreate_elsewhere(broker, queue, "a")

    assert payloads(await client.pop(queue, "a")) == [1]


async def test_a_poll_that_waits_for_a_partition_that_is_removed_gets_what_comes_after_it(
    broker, client, queue
):
    """Nobody tells this broker: the partition is removed and created by others."""
    await client.pop(queue, "a")
    client.send_poll(queue, "a", wait=True, timeout=10_000)
    await recreate_elsewhere(broker, queue, "a")

    assert payloads(await client.popped()) == [1]
