"""Transactions over HTTP: acks and pushes that happen together or not at all."""

import asyncio
import json
from uuid import uuid4

import pytest

from tests.support.broker import payloads


async def commit(client, *operations, **members):
    """Commit operations; return the answer, whatever it says."""
    answer = await client.post("/api/v1/transaction", {"operations": list(operations), **members})
    assert answer.status == 200, answer
    return json.loads(answer.body)


def push_op(queue, *its_payloads, partition="p", **members):
    items = [
        {"queue": queue, "partition": partition, "payload": payload, **members}
        for payload in its_payloads
    ]
    return {"type": "push", "items": items}


def ack_op(message, status="completed", **members):
    """What the clients send: no lease inside the operation."""
    names = ("transactionId", "partitionId", "consumerGroup")
    return {"type": "ack", **{name: message[name] for name in names}, "status": status, **members}


async def leased(client, queue, *its_payloads, **parameters):
    """Push into one partition and pop everything under a lease."""
    await client.push(
        *(
            {"queue": queue, "partition": "p", "payload": payload, "transactionId": f"t{payload}"}
            for payload in its_payloads
        )
    )
    return await client.pop(queue, batch=100, **parameters)


async def expire(broker, lease_id):
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.cursor set available_at = clock_timestamp() where lease_id = $1", lease_id
        )


async def test_the_operations_may_be_the_whole_body(client, queue):
    (message,) = await leased(client, queue, 1)

    answer = await client.post(
        "/api/v1/transaction", [push_op(f"{queue}-sink", "out"), ack_op(message)]
    )

    assert [answer.status, json.loads(answer.body)["success"]] == [200, True]
    assert payloads(await client.pop(f"{queue}-sink")) == ["out"]
    assert await client.pop(queue) == []


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([], "operations array cannot be empty"),
        ([{"type": "sing"}], "the type of an operation is push or ack"),
        ([{"type": "ack", "partitionId": "p"}], "an ack needs a transactionId"),
    ],
)
async def test_a_bare_array_is_checked_as_operations_are(client, body, error):
    answer = await client.post("/api/v1/transaction", body)

    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(error)


async def test_acks_and_pushes_happen_together(client, queue):
    sink = f"{queue}-sink"
    (message,) = await leased(client, queue, 1)

    answer = await commit(
        client,
        push_op(sink, {"n": 1}, {"n": 2}),
        ack_op(message),
        requiredLeases=[message["leaseId"]],
    )

    first, second, ack = answer["results"]
    assert answer["success"] is True
    assert "error" not in answer
    assert [result["index"] for result in answer["results"]] == [0, 1, 2]
    assert list(first) == [
        "index",
        "type",
        "success",
        "transactionId",
        "messageId",
        "partitionId",
        "queueName",
        "status",
    ]
    assert [first["type"], first["success"], first["queueName"]] == ["push", True, sink]
    assert ack == {
        "index": 2,
        "type": "ack",
        "success": True,
        "transactionId": "t1",
        "error": None,
        "dlq": False,
    }
    popped = await client.pop(sink, batch=10)
    assert payloads(popped) == [{"n": 1}, {"n": 2}]
    assert [each["id"] for each in popped] == [first["messageId"], second["messageId"]]
    assert popped[0]["transactionId"] == first["transactionId"]
    assert popped[0]["partitionId"] == first["partitionId"]
    assert await client.pop(queue, batch=10) == []


async def test_payloads_go_through_byte_for_byte(client, queue):
    item = b'{"queue":"%b","payload":{"b": 1.50,"a":"\\u0000"}}' % queue.encode()
    body = b'{"operations":[{"type":"push","items":[%b]}]}' % item

    answer = await client.call("POST", "/api/v1/transaction", body)

    assert json.loads(answer.body)["success"]
    client.send_poll(queue)
    assert b'"data":{"b": 1.50,"a":"\\u0000"}' in (await client.answer()).body


async def test_one_failing_ack_leaves_nothing_behind(client, queue):
    sink = f"{queue}-sink"
    (message,) = await leased(client, queue, 1)
    unknown = {**ack_op(message), "transactionId": "never pushed"}

    answer = await commit(client, push_op(sink, 1), ack_op(message), unknown)

    assert answer["success"] is False
    assert answer["error"] == "ACK operation failed: Message not found"
    assert [result["success"] for result in answer["results"]] == [False] * 3
    assert answer["results"][2]["error"] == "Message not found"
    assert await client.pop(sink) == []
    assert (await client.ack(message))["success"]


@pytest.mark.parametrize("is_flat", [True, False])
async def test_the_order_of_pushes_is_kept(client, queue, is_flat):
    if is_flat:
        operations = [
            {"type": "push", "queue": queue, "partition": "p", "payload": number}
            for number in range(20)
        ]
    else:
        operations = [push_op(queue, *range(20))]

    answer = await commit(client, *operations)

    assert len(answer["results"]) == 20
    assert payloads(await client.pop(queue, batch=100)) == list(range(20))


async def test_a_flat_push_may_call_its_payload_data(client, queue):
    await commit(client, {"type": "push", "queue": queue, "data": {"n": 1}})

    assert payloads(await client.pop(queue)) == [{"n": 1}]


async def test_a_message_may_be_named_by_its_own_id(client, queue):
    (message,) = await leased(client, queue, 1)

    answer = await commit(client, {**ack_op(message), "transactionId": message["id"]})

    assert answer["success"] is True
    assert (await client.ack(message))["noop"] is True


async def test_a_message_beyond_the_leased_batch_fails_the_transaction(client, queue):
    sink = f"{queue}-sink"
    results = await client.push_payloads(queue, 1, 2)
    (message,) = await client.pop(queue, batch=1)
    beyond = {**message, "transactionId": results[1]["message_id"]}

    answer = await commit(
        client, push_op(sink, 1), ack_op(beyond), requiredLeases=[message["leaseId"]]
    )

    assert not answer["success"]
    assert answer["error"].endswith("the message is beyond the leased batch")
    assert await client.pop(sink) == []


async def test_an_id_of_a_message_that_does_not_exist_yet_completes_nothing(client, queue):
    (message,) = await leased(client, queue, 1)
    later = message["id"][:-1] + "9"

    answer = await commit(client, {**ack_op(message), "transactionId": later})

    assert answer["error"] == "ACK operation failed: Message not found"


async def test_defect_18_a_transaction_after_the_lease_expired_is_refused(broker, client, queue):
    sink = f"{queue}-sink"
    (stale,) = await leased(client, queue, 1)
    await expire(broker, stale["leaseId"])
    (fresh,) = await client.pop(queue)

    refused = await commit(
        client, push_op(sink, "old"), ack_op(stale), requiredLeases=[stale["leaseId"]]
    )
    done = await commit(
        client, push_op(sink, "new"), ack_op(fresh), requiredLeases=[fresh["leaseId"]]
    )

    assert [refused["success"], done["success"]] == [False, True]
    assert refused["error"] == "Required lease not held: Invalid or expired lease"
    assert payloads(await client.pop(sink, batch=10)) == ["new"]


async def test_defect_18_a_lease_held_on_another_partition_does_not_cover_a_lost_one(
    broker, client, queue
):
    sink = f"{queue}-sink"
    await client.push(*({"queue": queue, "partition": name, "payload": name} for name in "ab"))
    messages = await client.pop(queue, batch=10, partitions=2)
    lost = next(message for message in messages if message["data"] == "a")
    async with broker.sql() as sql:
        await sql.execute(
            "update skep.cursor c set available_at = clock_timestamp() from skep.partition p "
            "where p.id = c.partition_id and p.name = 'a' and c.lease_id = $1",
            lost["leaseId"],
        )
    await client.pop(queue)

    answer = await commit(client, push_op(sink, 1), ack_op(lost), requiredLeases=[lost["leaseId"]])

    assert answer["error"] == "ACK operation failed: Invalid or expired lease"
    assert await client.pop(sink) == []


async def test_a_lease_named_by_the_operation_fences_it(client, queue):
    (message,) = await leased(client, queue, 1)

    answer = await commit(client, ack_op(message, leaseId=str(uuid4())))

    assert answer["error"] == "ACK operation failed: Invalid or expired lease"


@pytest.mark.parametrize("lease", ["00000000-0000-4000-8000-000000000007", "no uuid"])
async def test_a_lease_that_never_was_is_not_held(client, queue, lease):
    answer = await commit(client, push_op(queue, 1), requiredLeases=[lease])

    assert answer["success"] is False
    assert answer["error"].startswith("Required lease not held")
    assert await client.pop(queue) == []


async def test_defect_18_a_failed_ack_is_retried_and_not_buried(client, queue):
    await client.configure(queue, retryDelay=0, retryLimit=1)
    (message,) = await leased(client, queue, 1)

    first = await commit(client, ack_op(message, "failed"), requiredLeases=[message["leaseId"]])
    (again,) = await client.pop(queue)
    second = await commit(client, ack_op(again, "failed"), requiredLeases=[again["leaseId"]])

    assert [first["results"][0]["dlq"], second["results"][0]["dlq"]] == [False, True]
    assert again["retryCount"] == 1


async def test_defect_18_a_duplicate_is_reported_and_fails_nobody(client, queue):
    (original,) = await client.push({"queue": queue, "partition": "p", "transactionId": "a"})

    answer = await commit(
        client,
        push_op(queue, 1, transactionId="a"),
        push_op(queue, 2, transactionId="b"),
        push_op(queue, 3, transactionId="b"),
        push_op(queue, 4),
    )

    assert answer["success"] is True
    statuses = [result["status"] for result in answer["results"]]
    assert statuses == ["duplicate", "queued", "duplicate", "queued"]
    assert answer["results"][0]["messageId"] == original["message_id"]
    assert answer["results"][2]["messageId"] == answer["results"][1]["messageId"]
    assert payloads(await client.pop(queue, batch=10)) == [None, 2, 4]


async def test_pushes_and_transactions_see_each_others_keys(client, queue):
    for number in range(4):
        await commit(client, push_op(queue, number, transactionId=f"t{number}"))
        await client.push({"queue": queue, "partition": "p", "transactionId": f"p{number}"})

    pushed = await client.push(
        *({"queue": queue, "partition": "p", "transactionId": f"t{n}"} for n in range(4))
    )
    committed = await commit(
        client, *(push_op(queue, n, transactionId=f"{kind}{n}") for n in range(4) for kind in "pt")
    )

    assert {result["status"] for result in pushed + committed["results"]} == {"duplicate"}
    assert len(await client.pop(queue, batch=100)) == 8


async def test_a_name_is_stored_once_however_many_push_it_at_once(broker, open_client, queue):
    clients = [await open_client() for _ in range(6)]

    async def push(client, number):
        for turn in range(12):
            names = [f"{turn}", f"{turn + 1}", f"{number}.{turn}"]
            items = [{"queue": queue, "partition": "p", "transactionId": name} for name in names]
            if number % 2:
                await client.push(*items)
            else:
                assert (await commit(client, {"type": "push", "items": items}))["success"]

    async with asyncio.timeout(30):
        await asyncio.gather(*(push(client, number) for number, client in enumerate(clients)))

    async with broker.sql() as sql:
        rows = await sql.fetch("select transaction_id from skep.message where queue = $1", queue)
    names = [row[0] for row in rows]
    assert len(names) == len(set(names)) == 13 + 6 * 12


async def test_defect_19_a_transaction_that_comes_again_succeeds_once(client, queue):
    sink = f"{queue}-sink"
    (message,) = await leased(client, queue, 1)
    operations = [push_op(sink, 1, transactionId="out"), ack_op(message)]

    first = await commit(client, *operations, requiredLeases=[message["leaseId"]])
    second = await commit(client, *operations, requiredLeases=[message["leaseId"]])

    assert [first["success"], second["success"]] == [True, True]
    assert second["results"][0]["status"] == "duplicate"
    assert second["results"][1]["noop"] is True
    assert payloads(await client.pop(sink, batch=10)) == [1]


async def test_work_that_somebody_else_completed_is_not_done_twice(client, queue):
    sink = f"{queue}-sink"
    (message,) = await leased(client, queue, 1)
    await client.ack(message)

    answer = await commit(client, push_op(sink, 1), ack_op(message))

    assert answer["error"].startswith("ACK operation failed: already committed")
    assert await client.pop(sink) == []


async def test_a_batch_is_committed_message_by_message_in_any_order(client, queue):
    sink = f"{queue}-sink"
    messages = await leased(client, queue, 1, 2, 3)

    for message in (messages[1], messages[0], messages[2]):
        answer = await commit(
            client,
            push_op(sink, message["data"]),
            ack_op(message),
            requiredLeases=[message["leaseId"]],
        )
        assert answer["success"], answer

    assert payloads(await client.pop(sink, batch=10)) == [2, 1, 3]
    assert await client.pop(queue) == []


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"status": "finished"}, "ACK operation failed: unknown status 'finished'"),
        ({"partitionId": "nowhere"}, "ACK operation failed: Message not found"),
        ({"consumerGroup": "nobody"}, "ACK operation failed: consumer not found"),
        ({"consumerGroup": "g" * 300}, "ACK operation failed: consumer not found"),
        ({"leaseId": "x"}, "ACK operation failed: Invalid or expired lease"),
    ],
)
async def test_an_ack_that_cannot_be_fails_the_transaction(client, queue, members, error):
    sink = f"{queue}-sink"
    (message,) = await leased(client, queue, 1)

    answer = await commit(client, push_op(sink, 1), ack_op(message, **{"status": "ok", **members}))

    assert answer["success"] is False
    assert answer["error"].startswith(error)
    assert answer["results"][1]["success"] is False
    assert await client.pop(sink) == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "empty"),
        (b"{}", "operations array required"),
        (b'{"operations":1}', "operations array required"),
        (b'{"operations":[]}', "operations array cannot be empty"),
        (b'{"operations":[{"type":"push","items":[]}]}', "operations array cannot be empty"),
        (b'{"operations":[{"type":"pop"}]}', "the type of an operation is push or ack"),
        (b'{"operations":[{"type":"push"}]}', "a push needs items"),
        (b'{"operations":[{"type":"ack","partitionId":"p"}]}', "an ack needs a transactionId"),
        (b'{"operations":[{"type":"ack","transactionId":"t"}]}', "an ack needs a partitionId"),
        (b'{"operations":[{"type":"push","items":[{}]}]}', "Queue must be a string"),
        (
            b'{"operations":[{"type":"push","queue":"q","traceId":"x"}]}',
            "traceId must be a UUID",
        ),
        (
            b'{"operations":[{"type":"push","queue":"q"}],"requiredLeases":"x"}',
            "requiredLeases must be an array",
        ),
        (b'{"operations":[],"kv":[]}', "operations array cannot be empty"),
        (
            b'{"operations":[{"type":"push","queue":"q"}],"timers":[{}]}',
            "do not take timers and positions",
        ),
        (
            b'{"operations":[{"type":"push","queue":"q"}],"positions":[{}]}',
            "do not take timers and positions",
        ),
        (
            b'{"operations":[%b]}' % b",".join([b'{"type":"push","queue":"q"}'] * 10_001),
            "more than 10000 operations",
        ),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(client, body, text):
    answer = await client.call("POST", "/api/v1/transaction", body)

    assert answer.status == 400
    assert text in json.loads(answer.body)["error"]


async def test_a_push_in_a_transaction_wakes_who_waits(open_client, queue):
    waiting, client = await open_client(), await open_client()
    waiting.send_poll(queue, wait=True, timeout=30_000)
    (message,) = await leased(client, f"{queue}-source", 1)

    await commit(client, push_op(queue, 1), ack_op(message))

    async with asyncio.timeout(30):
        assert payloads(await waiting.popped()) == [1]


async def test_defect_25_transactions_do_not_wait_for_each_other(broker, open_client, queue):
    held, free = await open_client(), await open_client()
    await held.push({"queue": queue, "partition": "held"}, {"queue": queue, "partition": "free"})
    async with broker.sql() as sql, sql.transaction():
        await sql.execute(
            "select 1 from skep.partition p join skep.queue q on q.id = p.queue_id "
            "where q.name = $1 and p.name = 'held' for update of p",
            queue,
        )
        waiting = asyncio.ensure_future(commit(held, push_op(queue, 1, partition="held")))
        async with asyncio.timeout(30):
            answer = await commit(free, push_op(queue, 2, partition="free"))
        assert answer["success"] is True
        assert not waiting.done()
    assert (await waiting)["success"] is True


async def test_pushing_into_the_partition_that_is_acknowledged_leaves_it_readable(client, queue):
    (message,) = await leased(client, queue, 1)

    await commit(client, ack_op(message), push_op(queue, 2), requiredLeases=[message["leaseId"]])

    assert payloads(await client.pop(queue)) == [2]


async def test_a_queue_deleted_behind_the_brokers_back_is_made_again(broker, client, queue):
    await commit(client, push_op(queue, 1))
    async with broker.sql() as sql:
        for table in ("segment", "cursor", "consumer_group", "partition"):
            await sql.execute(
                f"delete from skep.{table} where queue_id = "
                "(select id from skep.queue where name = $1)",
                queue,
            )
        await sql.execute("delete from skep.queue where name = $1", queue)

    answer = await commit(client, push_op(queue, 2))

    assert answer["success"] is True
    assert payloads(await client.pop(queue, batch=10)) == [2]


async def test_without_a_window_nothing_is_a_duplicate_in_one_transaction(client, queue):
    await client.configure(queue, dedupWindowSeconds=0)

    answer = await commit(client, push_op(queue, 1, 2, transactionId="t"))

    assert [result["status"] for result in answer["results"]] == ["queued"] * 2
    assert len({result["messageId"] for result in answer["results"]}) == 2
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_a_message_id_that_does_not_exist_yet_is_not_looked_up_by_transaction_id(
    client, queue
):
    (message,) = await leased(client, queue, 1)
    beyond = message["id"][:-4] + "ffff"

    answer = await commit(client, ack_op(message, messageId=beyond))

    assert answer["success"] is False
    assert "Message not found" in answer["error"]


# Keys


async def key_of(client, ns, key):
    operations = [{"op": "get", "ns": ns, "key": key}]
    answer = await client.post("/api/v1/kv", {"operations": operations})
    return json.loads(answer.body)["results"][0]


def put(ns, key="k", value=1, **members):
    return {"op": "put", "ns": ns, "key": key, "value": value, "forever": True, **members}


async def test_keys_change_in_the_commit_of_acks_and_pushes(client, queue):
    (message,) = await leased(client, queue, 1)
    kv = [put(queue), {"op": "getMany", "ns": queue, "keys": ["k", "none"]}]

    answer = await commit(
        client,
        push_op(f"{queue}-sink", "a", "b"),
        ack_op(message),
        kv=kv,
        requiredLeases=[message["leaseId"]],
    )

    assert answer["success"] is True
    assert [(each["index"], each["type"]) for each in answer["results"]] == [
        *((0, "push"), (1, "push"), (2, "ack"), (3, "kv"), (4, "kv")),
    ]
    stored, read = answer["results"][3:]
    assert (stored["opIndex"], stored["op"], stored["applied"]) == (0, "put", True)
    assert (read["opIndex"], read["rows"][0]["value"], read["missing"]) == (1, 1, ["none"])
    assert (await key_of(client, queue, "k"))["version"] == stored["version"]
    assert payloads(await client.pop(f"{queue}-sink", batch=9)) == ["a", "b"]


async def test_a_required_key_that_is_lost_leaves_everything_as_it_was(client, queue):
    (message,) = await leased(client, queue, 1)
    await commit(client, kv=[put(queue, "lock", {"owner": "other"})])
    version = (await key_of(client, queue, "lock"))["version"]
    check = {"op": "check", "ns": queue, "key": "lock", "expect": version + 1, "required": True}

    answer = await commit(
        client,
        push_op(f"{queue}-sink", "a", "b"),
        ack_op(message),
        kv=[put(queue, "a"), check],
    )

    del answer["transactionId"]
    assert answer == {
        "success": False,
        "ok": False,
        "reason": "kv_precondition",
        "error": "A required operation on keys was not applied: version",
        "failedIndex": 4,
        "kvReason": "version",
        "version": version,
        "value": {"owner": "other"},
        "results": [],
    }
    assert (await key_of(client, queue, "a"))["found"] is False
    assert await client.pop(f"{queue}-sink") == []
    assert (await client.ack(message))["success"] is True


async def test_a_condition_that_is_not_required_is_an_outcome(client, queue):
    answer = await commit(client, push_op(queue, 1), kv=[put(queue, expect=7)])

    assert answer["success"] is True
    assert (answer["results"][1]["applied"], answer["results"][1]["reason"]) == (False, "absent")
    assert payloads(await client.pop(queue)) == [1]


@pytest.mark.parametrize(
    ("status", "reason", "operations"),
    [
        (400, "kv_unknown_op", [{"op": "getPrefix", "ns": "n", "prefix": "a"}]),
        (400, "kv_unknown_op", [{"op": "turn", "ns": "n", "key": "a"}]),
        (400, "kv_bad_namespace", [put("N")]),
        (400, "kv_bad_key", [put("n", "")]),
        (400, "kv_bad_expect", [put("n", expect=-1)]),
        (400, "kv_expiry_not_specified", [{"op": "put", "ns": "n", "key": "k", "value": 1}]),
        (400, "kv_duplicate_key_in_call", [put("n"), put("n")]),
        (400, "kv_tenant_not_an_input", [put("n", tenant="t")]),
        (400, "kv_bad_body", [1]),
        (400, "kv_too_many_ops", [put("n", str(number)) for number in range(65)]),
        (
            400,
            "kv_too_many_keys",
            [{"op": "getMany", "ns": "n", "keys": list(map(str, range(257)))}],
        ),
        (413, "kv_value_too_large", [put("n", value="x" * 70_000)]),
        (413, "kv_key_too_large", [put("n", "k" * 600)]),
    ],
)
async def test_operations_on_keys_that_make_no_sense_refuse_the_transaction(
    client, queue, status, reason, operations
):
    answer = await client.post(
        "/api/v1/transaction", {"operations": [push_op(queue, 1)], "kv": operations}
    )

    assert (answer.status, json.loads(answer.body)["reason"]) == (status, reason)
    assert await client.pop(queue) == []


async def test_of_many_that_claim_a_key_one_pushes(open_client, queue):
    clients = [await open_client() for _ in range(6)]
    claim = {"op": "putIfAbsent", "ns": queue, "key": "job", "value": 1, "ttlSeconds": 60}

    answers = await asyncio.gather(
        *(
            commit(client, push_op(queue, number), kv=[{**claim, "required": True}])
            for number, client in enumerate(clients)
        )
    )

    won = [number for number, answer in enumerate(answers) if answer["success"]]
    assert len(won) == 1
    assert payloads(await clients[0].pop(queue, batch=9)) == won
