"""Push over HTTP: the shape of its answers, duplicates, and what lies in the log afterwards."""

import asyncio
import json
from itertools import count
from uuid import UUID

import pytest

from tests.support.broker import payloads

RESULT_KEYS = [
    "index",
    "transaction_id",
    "status",
    "message_id",
    "partition_id",
    "trace_id",
    "queueName",
]
TRACE_ID = "0198c1a2-0000-7000-8000-000000000001"


def statuses(results):
    return [result["status"] for result in results]


def item(queue, transaction_id, payload=None, **members):
    return {"queue": queue, "transactionId": transaction_id, "payload": payload, **members}


async def labels_of(client, queue):
    """Return the namespace and the task of a queue."""
    answer = await client.call("GET", f"/api/v1/resources/queues/{queue}")
    found = json.loads(answer.body)
    return found["namespace"], found["task"]


# Answers


async def test_a_push_is_answered_201_with_one_result_for_each_item_in_order(client, queue):
    body = {"items": [item(queue, "a", partition="p"), item(queue, "b", partition="p")]}

    answer = await client.post("/api/v1/push", body)
    first, second = json.loads(answer.body)

    assert answer.status == 201
    assert answer.headers["content-type"] == "application/json"
    assert [list(first), list(second)] == [RESULT_KEYS, RESULT_KEYS]
    assert [first["index"], first["transaction_id"], first["status"]] == [0, "a", "queued"]
    assert [second["index"], second["transaction_id"], second["status"]] == [1, "b", "queued"]
    assert first["queueName"] == queue
    assert first["trace_id"] is None
    assert first["partition_id"] == second["partition_id"]
    assert UUID(first["message_id"]) < UUID(second["message_id"])


async def test_an_item_without_a_transaction_id_is_given_a_uuid(client, queue):
    first, second = await client.push_payloads(queue, 1, 2)

    assert UUID(first["transaction_id"]) != UUID(second["transaction_id"])


@pytest.mark.parametrize("empty", [None, ""])
async def test_an_empty_transaction_id_or_partition_counts_as_none(client, queue, empty):
    (result,) = await client.push(item(queue, empty, partition=empty, traceId=empty))
    (message,) = await client.pop(queue)

    assert UUID(result["transaction_id"])
    assert result["trace_id"] is None
    assert message["partition"] == "Default"


async def test_a_push_of_nothing_is_answered_with_no_results(client):
    answer = await client.call("POST", "/api/v1/push", b'{"items":[]}')

    assert (answer.status, answer.body) == (201, b"[]")


async def test_results_keep_the_order_of_items_of_several_queues_and_partitions(client, queue):
    places = [(queue, "x"), (f"{queue}-other", "x"), (queue, "y"), (queue, "x")]

    results = await client.push(
        *(
            {"queue": name, "partition": partition, "transactionId": f"t{number}", "payload": 0}
            for number, (name, partition) in enumerate(places)
        )
    )

    assert [result["index"] for result in results] == [0, 1, 2, 3]
    assert [result["transaction_id"] for result in results] == ["t0", "t1", "t2", "t3"]
    assert [result["queueName"] for result in results] == [name for name, _ in places]
    partitions = [result["partition_id"] for result in results]
    assert partitions[0] == partitions[3]
    assert len(set(partitions)) == 3


async def test_a_trace_id_is_returned_and_delivered(client, queue):
    (result,) = await client.push(item(queue, "t", traceId=TRACE_ID.upper()))
    (message,) = await client.pop(queue)

    assert result["trace_id"] == TRACE_ID
    assert message["traceId"] == TRACE_ID


async def test_members_that_are_not_known_are_ignored(client, queue):
    body = {"items": [item(queue, "t", 1, messageID="mine", producerSub="me")], "bufferMs": 5}

    answer = await client.post("/api/v1/push", body)
    (message,) = await client.pop(queue)

    assert answer.status == 201
    assert message["producerSub"] is None


async def test_namespace_and_task_of_an_item_are_those_of_the_queue_it_creates(client, queue):
    name = f"{queue}.a.b"
    await client.push(item(name, "t", namespace="shop", task="bill"))
    await client.push(item(name, "u", partition="p", namespace="other"))
    await client.push(item(f"{name}2", "t", task=""), item(f"{name}3", "t"))

    labels = [await labels_of(client, each) for each in (name, f"{name}2", f"{name}3")]

    assert labels == [("shop", "bill"), (queue, ""), (queue, "a")]


async def test_a_transaction_names_namespace_and_task_as_well(client, queue):
    pushed = item(queue, "t", namespace="shop", task="bill")
    body = {"operations": [{"type": "push", "items": [pushed]}]}
    flat = {"type": "push", "queue": f"{queue}-flat", "data": 1, "namespace": "n", "task": "t"}
    await client.post("/api/v1/transaction", body)
    await client.post("/api/v1/transaction", {"operations": [flat]})

    assert await labels_of(client, queue) == ("shop", "bill")
    assert await labels_of(client, f"{queue}-flat") == ("n", "t")


async def test_the_message_id_of_an_item_without_a_transaction_id_takes_its_place(client, queue):
    first = {"queue": queue, "payload": 1, "messageId": TRACE_ID}
    named = {"queue": queue, "payload": 2, "messageId": TRACE_ID, "transactionId": "t"}

    results = await client.push(first, named, first)

    assert statuses(results) == ["queued", "queued", "duplicate"]
    assert [each["transaction_id"] for each in results] == [TRACE_ID, "t", TRACE_ID]


async def test_a_message_id_that_cannot_be_stored_is_refused(client, queue):
    items = [{"queue": queue, "messageId": "m" * 256}]

    answer = await client.post("/api/v1/push", {"items": items})

    assert answer.status == 400
    assert json.loads(answer.body)["error"] == "transactionId is longer than 255 characters"


async def test_an_item_without_a_payload_is_a_message_with_null(client, queue):
    await client.push({"queue": queue})

    assert payloads(await client.pop(queue)) == [None]


# Duplicates


async def test_the_second_of_two_equal_transaction_ids_in_a_request_is_a_duplicate(client, queue):
    results = await client.push(item(queue, "t", 1), item(queue, "u", 2), item(queue, "t", 3))

    assert statuses(results) == ["queued", "queued", "duplicate"]
    assert results[2]["message_id"] == results[0]["message_id"]
    assert list(results[2]) == RESULT_KEYS
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_a_repeated_request_stores_nothing_and_names_the_first_messages(client, queue):
    items = [item(queue, "t", 1), item(queue, "u", 2, partition="p")]
    stored = await client.push(*items)

    repeated = await client.push(*items)

    assert statuses(repeated) == ["duplicate", "duplicate"]
    assert [r["message_id"] for r in repeated] == [r["message_id"] for r in stored]
    assert payloads(await client.pop(queue, batch=10, partitions=10)) in ([1, 2], [2, 1])


async def test_what_is_new_beside_a_duplicate_is_stored(client, queue):
    await client.push(item(queue, "t", 1))

    results = await client.push(item(queue, "s", 2), item(queue, "t", 3), item(queue, "u", 4))

    assert statuses(results) == ["queued", "duplicate", "queued"]
    assert payloads(await client.pop(queue, batch=10)) == [1, 2, 4]


async def test_a_message_that_was_consumed_is_still_a_duplicate(client, queue):
    await client.push(item(queue, "t"))
    await client.pop(queue, autoAck=True)

    assert statuses(await client.push(item(queue, "t"))) == ["duplicate"]


async def test_partitions_and_queues_have_their_own_transaction_ids(client, queue):
    results = await client.push(
        item(queue, "t"), item(queue, "t", partition="p"), item(f"{queue}-other", "t")
    )

    assert statuses(results) == ["queued"] * 3


async def test_without_a_window_nothing_is_a_duplicate(client, queue):
    await client.configure(queue, dedupWindowSeconds=0)

    results = [*await client.push(item(queue, "t", 1)), *await client.push(item(queue, "t", 2))]

    assert statuses(results) == ["queued", "queued"]
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_without_a_window_nothing_is_a_duplicate_in_one_request(client, queue):
    await client.configure(queue, dedupWindowSeconds=0)

    results = await client.push(item(queue, "t", 1), item(queue, "u", 2), item(queue, "t", 3))

    assert statuses(results) == ["queued"] * 3
    assert len({result["message_id"] for result in results}) == 3
    assert payloads(await client.pop(queue, batch=10)) == [1, 2, 3]


async def test_of_equal_pushes_on_many_connections_one_is_stored(open_client, queue):
    clients = [await open_client() for _ in range(20)]

    answers = await asyncio.gather(*(client.push(item(queue, "t", 1)) for client in clients))
    results = [result for (result,) in answers]

    assert sorted(statuses(results)) == ["duplicate"] * 19 + ["queued"]
    assert len({result["message_id"] for result in results}) == 1
    assert payloads(await clients[0].pop(queue, batch=10)) == [1]


# Order


async def test_pipelined_pushes_into_new_partitions_keep_their_order(client, queue):
    """While a partition is being created, nothing may overtake what waits for it."""
    bodies = [
        json.dumps({"items": [{"queue": f"{queue}-{number}", "payload": place}]}).encode()
        for number in range(20)
        for place in range(20)
    ]

    for body in bodies:
        client.request("POST", "/api/v1/push", body)
    for _ in bodies:
        assert (await client.answer()).status == 201

    for number in range(20):
        popped = await client.pop(f"{queue}-{number}", batch=100, autoAck=True)
        assert payloads(popped) == list(range(20))


async def test_pipelined_pushes_are_stored_in_the_order_they_were_sent(client, queue):
    await client.push_payloads(queue, 0)
    for number in range(1, 100):
        body = json.dumps({"items": [{"queue": queue, "payload": number}]}).encode()
        client.request("POST", "/api/v1/push", body)
    answers = [await client.answer() for _ in range(1, 100)]

    assert {answer.status for answer in answers} == {201}
    assert payloads(await client.pop(queue, batch=100)) == list(range(100))


async def test_pushes_of_many_connections_lie_densely_and_each_in_its_own_order(
    broker, open_client, queue
):
    async def produce(producer):
        client = await open_client()
        for number in range(10):
            await client.push_payloads(queue, [producer, number])

    await asyncio.gather(*(produce(producer) for producer in range(10)))

    async with broker.sql() as sql:
        rows = await sql.fetch(
            'select "offset", payload::text from skep.message where queue = $1 order by 1', queue
        )
    stored = [json.loads(row["payload"]) for row in rows]
    assert [row["offset"] for row in rows] == list(range(1, 101))
    for producer in range(10):
        assert [number for by, number in stored if by == producer] == list(range(10))


# Stopping


@pytest.mark.slow
async def test_a_broker_told_to_stop_has_stored_whatever_it_answered(broker_to_stop):
    answered = set()

    async def produce(producer):
        async with broker_to_stop.connect() as client:
            for number in count():
                body = {"items": [item("q", f"{producer}-{number}")]}
                try:
                    answer = await client.post("/api/v1/push", body)
                except (ConnectionError, asyncio.IncompleteReadError):
                    return
                if answer.status == 201:
                    answered.add(f"{producer}-{number}")
                if len(answered) == 200:
                    broker_to_stop.process.terminate()

    await asyncio.gather(*map(produce, range(10)))

    async with broker_to_stop.sql() as sql:
        rows = await sql.fetch("select transaction_id from skep.message")
    assert answered <= {row["transaction_id"] for row in rows}
    assert len(answered) >= 200


# Names


@pytest.mark.parametrize(
    "name",
    ["über/1", "emoji 🐝", "a%2Fb", "q?x=1&y#z", "plus+space ", "日本語", "a'b\"c\\d", "\u0001"],
)
async def test_any_name_serves_as_queue_partition_and_group(client, queue, name):
    its_queue = f"{queue}{name}"
    await client.push_payloads(its_queue, "here", partition=name)

    (message,) = await client.pop(its_queue, name, consumerGroup=f"{name}g")
    result = await client.ack(message)

    assert [message["queue"], message["partition"]] == [its_queue, name]
    assert message["consumerGroup"] == f"{name}g"
    assert [result["queueName"], result["partitionName"]] == [its_queue, name]
    assert result["success"]


async def test_names_may_have_255_characters_whatever_their_bytes(client, queue):
    name = queue + "🐝" * (255 - len(queue))
    await client.push_payloads(name, 1, partition=name)

    (message,) = await client.pop(name, name, consumerGroup=name)

    assert [message["queue"], message["partition"], message["consumerGroup"]] == [name] * 3


async def test_a_path_need_not_be_percent_encoded(client, queue):
    name = f"{queue}-ü🐝"
    await client.push_payloads(name, 1)

    client.request("GET", f"/api/v1/pop/queue/{name}?consumerGroup=é")

    (message,) = await client.popped()
    assert [message["queue"], message["consumerGroup"]] == [name, "é"]
