"""The documented exchanges of Queen's wire contract, as raw HTTP.

Each test sends what the contract shows and checks that the answer has at least the members shown
there, with the right types. Clients skip members they do not know, so there may be more.
"""

import json
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from tests.compat.shapes import check_shape, each, maybe, time, uuid

OPTIONS = {
    "leaseTime": 60,
    "retryLimit": 5,
    "maxSize": 0,
    "ttl": int,
    "retryDelay": int,
    "deadLetterQueue": True,
    "dlqAfterMaxRetries": True,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "retentionEnabled": False,
    "encryptionEnabled": False,
    "maxWaitTimeSeconds": 0,
}
COUNTS = {
    "total": int,
    "pending": int,
    "processing": int,
    "completed": int,
    "failed": int,
    "deadLetter": int,
}
STATISTICS = {name: {int, float} for name in ("avg", "median", "min", "max")}


@pytest.fixture
def exchange(client):
    """Send a request and return the answer, which must have this status and shape."""

    async def exchange(request, body=None, *, status=200, shape=None, **parameters):
        method, path = request.split()
        if parameters:
            path += "?" + urlencode(parameters)
        answer = await client.call(method, path, json.dumps(body).encode() if body else b"")
        assert answer.status == status, answer
        if shape is None:
            assert answer.body == b""
            return None
        found = json.loads(answer.body)
        check_shape(found, shape)
        return found

    return exchange


@pytest.fixture
def order(client, queue, arun):
    """A message that a group has under lease, and where it is."""

    async def push_and_pop():
        item = {"queue": queue, "partition": "c-7", "payload": {"n": 1}, "transactionId": "t-1"}
        await client.push(item)
        (message,) = await client.pop(queue, consumerGroup="bill")
        return message

    message = arun(push_and_pop())
    return SimpleNamespace(**message, path=f"{message['partitionId']}/t-1", message=message)


def ack_of(order, status, **members):
    names = ("transactionId", "partitionId", "leaseId")
    return {**{name: order.message[name] for name in names}, "status": status, **members}


async def test_configure(exchange, queue):
    named = {"queue": queue, "namespace": "shop", "task": "bill"}
    await exchange(
        "POST /api/v1/configure",
        {**named, "options": {"leaseTime": 60, "retryLimit": 5}},
        status=201,
        shape={
            **named,
            "configured": True,
            "queueId": uuid,
            "partitionId": uuid,
            "options": OPTIONS,
        },
    )


async def test_push(exchange, queue):
    item = {"queue": queue, "partition": "c-7", "payload": {"n": 1}, "transactionId": "t-1"}
    known = {"transaction_id": "t-1", "message_id": uuid, "queueName": queue}
    first, second = await exchange(
        "POST /api/v1/push",
        {"items": [item, item]},
        status=201,
        shape=[
            {"index": 0, "status": "queued", "partition_id": uuid, "trace_id": None, **known},
            {"index": 1, "status": "duplicate", **known},
        ],
    )
    assert first["message_id"] == second["message_id"]


async def test_pop(client, exchange, queue):
    item = {"queue": queue, "partition": "c-7", "payload": {"n": 1}, "transactionId": "t-1"}
    await client.push(item)
    found = await exchange(
        f"GET /api/v1/pop/queue/{queue}",
        batch=2,
        wait="true",
        timeout=30000,
        consumerGroup="bill",
        partitions=4,
        shape={
            "success": True,
            "queue": queue,
            "partition": "c-7",
            "partitionId": uuid,
            "leaseId": uuid,
            "consumerGroup": "bill",
            "partitionsClaimed": 1,
            "messages": [
                {
                    "id": uuid,
                    "transactionId": "t-1",
                    "traceId": None,
                    "data": {"n": 1},
                    "producerSub": None,
                    "createdAt": time,
                    "partitionId": uuid,
                    "partition": "c-7",
                    "leaseId": uuid,
                    "consumerGroup": "bill",
                }
            ],
        },
    )
    (message,) = found["messages"]
    assert [message["leaseId"], message["partitionId"]] == [found["leaseId"], found["partitionId"]]


@pytest.mark.parametrize("parameters", [{}, {"wait": "true", "timeout": 50}])
async def test_a_pop_of_nothing_has_no_body(exchange, queue, parameters):
    await exchange(f"GET /api/v1/pop/queue/{queue}", status=204, **parameters)


async def test_ack(exchange, order, queue):
    result = {
        "index": 0,
        "transactionId": "t-1",
        "queueName": queue,
        "partitionName": "c-7",
        "dlq": False,
    }
    failed = ack_of(order, "failed", error="boom", consumerGroup="bill")
    await exchange(
        "POST /api/v1/ack",
        failed,
        shape=[{**result, "success": True, "error": None, "leaseReleased": True}],
    )
    stale = "Invalid or expired lease"
    await exchange(
        "POST /api/v1/ack",
        failed,
        shape=[{**result, "success": False, "error": stale, "leaseReleased": False}],
    )


async def test_ack_batch(exchange, client, queue):
    await client.push({"queue": queue, "payload": 1, "transactionId": "t-1"})
    (message,) = await client.pop(queue)
    names = ("transactionId", "partitionId", "leaseId")
    item = {name: message[name] for name in names} | {"status": "completed", "error": None}
    await exchange(
        "POST /api/v1/ack/batch",
        {"acknowledgments": [item], "consumerGroup": None},
        shape=[
            {
                "index": 0,
                "transactionId": "t-1",
                "success": True,
                "error": None,
                "queueName": queue,
                "partitionName": "Default",
                "leaseReleased": True,
                "dlq": False,
            }
        ],
    )


async def test_transaction(exchange, order, queue):
    invoices = f"{queue}-invoices"
    item = {"queue": invoices, "partition": "c-7", "payload": {"n": 2}}
    ack = ack_of(order, "completed", consumerGroup="bill", type="ack")
    del ack["leaseId"]
    body = {
        "operations": [{"type": "push", "items": [item]}, ack],
        "requiredLeases": [order.leaseId],
    }
    pushed = {
        "index": 0,
        "type": "push",
        "success": True,
        "transactionId": str,
        "messageId": uuid,
        "partitionId": uuid,
        "queueName": invoices,
    }
    acked = {"index": 1, "type": "ack", "success": True, "transactionId": "t-1", "error": None}
    await exchange(
        "POST /api/v1/transaction",
        body,
        shape={
            "transactionId": uuid,
            "success": True,
            "results": [pushed, {**acked, "dlq": False}],
        },
    )


async def test_a_transaction_that_fails(exchange, order):
    ack = {"type": "ack", "transactionId": "unknown", "partitionId": order.partitionId}
    await exchange(
        "POST /api/v1/transaction",
        {"operations": [{**ack, "consumerGroup": "bill"}]},
        shape={
            "transactionId": uuid,
            "success": False,
            "error": "ACK operation failed: Message not found",
            "results": list,
        },
    )


@pytest.mark.parametrize("body", [{}, {"seconds": 120}])
async def test_extend(client, order, body):
    # An object, where Queen sends an array of one: so all three of its clients can read it.
    answer = await client.extend(order.leaseId, json.dumps(body).encode())
    check_shape(
        answer,
        {
            "index": 0,
            "leaseId": order.leaseId,
            "success": True,
            "error": None,
            "expiresAt": time,
            "newExpiresAt": time,
            "lease_expires_at": time,
        },
    )


async def test_dead_letters(exchange, client, order, queue):
    await client.ack(order.message, "dlq", error="boom")
    await exchange(
        "GET /api/v1/dlq",
        queue=queue,
        limit=10,
        shape={
            "messages": [
                {
                    "id": order.id,
                    "transactionId": "t-1",
                    "partitionId": order.partitionId,
                    "queue": queue,
                    "partition": "c-7",
                    "consumerGroup": "bill",
                    "errorMessage": "boom",
                    "retryCount": int,
                    "data": {"n": 1},
                    "producerSub": None,
                    "createdAt": time,
                    "failedAt": time,
                }
            ],
            "total": 1,
            "pagination": {"limit": 10, "offset": 0},
        },
    )


async def test_consumer_groups(exchange, client, order, queue):
    await client.pop(queue, consumerGroup="late", subscriptionMode="new")
    entry = {
        "topics": [queue],
        "queueName": queue,
        "members": 1,
        "partitionsWithLag": int,
        "totalLag": int,
        "maxTimeLag": int,
        "state": str,
        "subscriptionTimestamp": maybe(time),
        "subscriptionCreatedAt": time,
    }
    await exchange(
        "GET /api/v1/consumer-groups",
        queue=queue,
        shape=[
            {"name": "bill", "subscriptionMode": "all", **entry},
            {"name": "late", "subscriptionMode": "new", **entry},
        ],
    )


async def test_a_consumer_group(exchange, order, queue):
    partition = {
        "partition": "c-7",
        "workerId": order.leaseId,
        "lastConsumedAt": maybe(time),
        "totalConsumed": 0,
        "offsetLag": 1,
        "timeLagSeconds": int,
        "leaseActive": True,
    }
    found = await exchange("GET /api/v1/consumer-groups/bill", shape={queue: dict})
    check_shape(found[queue], {"partitions": [partition]})


async def test_lagging_groups(exchange, order, queue):
    await exchange(
        "GET /api/v1/consumer-groups/lagging",
        minLagSeconds=0,
        queue=queue,
        shape=[
            {
                "consumer_group": "bill",
                "queue_name": queue,
                "partition_name": "c-7",
                "partition_id": order.partitionId,
                "worker_id": order.leaseId,
                "offset_lag": 1,
                "time_lag_seconds": int,
                "lag_hours": float,
                "oldest_unconsumed_at": time,
                "last_consumed_at": maybe(time),
            }
        ],
    )


async def test_seek_and_subscription(exchange, order, queue):
    named = {"success": True, "consumerGroup": "bill"}
    of_queue = f"/api/v1/consumer-groups/bill/queues/{queue}"
    moved = {**named, "queueName": queue, "partitionsUpdated": 1}
    await exchange(
        f"POST {of_queue}/seek",
        {"toEnd": True},
        shape={**moved, "seekToEnd": True, "targetTimestamp": None},
    )
    await exchange(
        f"POST {of_queue}/seek",
        {"timestamp": "2026-01-01T00:00:00Z"},
        shape={**moved, "seekToEnd": False, "targetTimestamp": time},
    )
    await exchange(
        f"POST {of_queue}/partitions/c-7/seek",
        shape={
            **named,
            "queueName": queue,
            "partitionName": "c-7",
            "updated": bool,
            "cursorMovedTo": {str, int, dict, type(None)},
        },
    )
    await exchange(
        "POST /api/v1/consumer-groups/bill/subscription",
        {"subscriptionTimestamp": "2026-01-01T00:00:00Z"},
        shape={**named, "newTimestamp": str, "rowsUpdated": int},
    )
    await exchange(
        f"DELETE {of_queue}",
        deleteMetadata="true",
        shape={**named, "queueName": queue, "deletedPartitions": 1, "metadataDeleted": True},
    )


async def test_queues(exchange, order, queue):
    summary = {
        "id": uuid,
        "name": queue,
        "namespace": str,
        "task": str,
        "createdAt": time,
        "partitions": 1,
        "messages": {"total": 1, "pending": int, "processing": int},
    }
    await exchange("GET /api/v1/resources/queues", search=queue, shape={"queues": [summary]})
    page = {"limit": 1000, "offset": 0}
    found = await exchange(
        "GET /api/v1/status/queues", limit=1000, shape={"queues": list, "pagination": page}
    )
    check_shape([each for each in found["queues"] if each["name"] == queue], [summary])


async def test_a_queue(exchange, order, queue):
    named = {"id": uuid, "name": queue, "namespace": str, "task": str, "createdAt": time}
    times = {"oldestMessage": time, "newestMessage": time}
    partition = {"id": order.partitionId, "name": "c-7", "createdAt": time, **times}
    await exchange(
        f"GET /api/v1/resources/queues/{queue}",
        shape={**named, "partitions": [{**partition, "stats": COUNTS}], "totals": COUNTS},
    )
    config = ("leaseTime", "retryLimit", "retryDelay", "ttl", "maxQueueSize")
    cursor = {"totalConsumed": int, "batchesConsumed": int}
    measured = {"messages": COUNTS, "stats": COUNTS, "cursor": cursor, "lastActivity": time}
    await exchange(
        f"GET /api/v1/status/queues/{queue}",
        shape={
            "queue": {
                **named,
                "priority": 0,
                "config": {**dict.fromkeys(config, int), "deadLetterQueue": bool},
            },
            "partitions": [{**partition, **measured}],
            "totals": {**COUNTS, "messages": COUNTS},
        },
    )
    where = {"partitionId": order.partitionId, "queuePath": f"{queue}/c-7"}
    message = {"id": order.id, "transactionId": "t-1", "queue": queue, "partition": "c-7", **where}
    await exchange(
        f"GET /api/v1/status/queues/{queue}/messages",
        shape=[{**message, "status": "processing", "createdAt": time}],
    )


async def test_namespaces_tasks_and_overview(exchange, order):
    sums = {"queues": int, "partitions": int, "messages": {"total": int, "pending": int}}
    await exchange(
        "GET /api/v1/resources/namespaces", shape={"namespaces": each({"namespace": str, **sums})}
    )
    await exchange("GET /api/v1/resources/tasks", shape={"tasks": each({"task": str, **sums})})
    await exchange(
        "GET /api/v1/resources/overview",
        shape={
            **dict.fromkeys(("queues", "partitions", "namespaces", "tasks"), int),
            "messages": COUNTS,
            "lag": {"time": STATISTICS, "offset": STATISTICS},
            "throughput": {
                "ingestedPerSecond": {int, float},
                "processedPerSecond": {int, float, type(None)},
            },
            "timestamp": time,
            "statsAge": {int, float},
        },
    )


MESSAGE = {
    "transactionId": "t-1",
    "partition": "c-7",
    "namespace": str,
    "task": str,
    "status": "processing",
    "traceId": None,
    "producerSub": None,
    "createdAt": time,
    "leaseExpiresAt": maybe(time),
}
MODE = {"hasQueueMode": False, "busGroupsCount": 1, "type": "bus"}


async def test_messages(exchange, order, queue):
    message = {**MESSAGE, "id": order.id, "partitionId": order.partitionId, "queue": queue}
    await exchange(
        "GET /api/v1/messages",
        queue=queue,
        shape={
            "messages": [
                {
                    **message,
                    "queuePath": f"{queue}/c-7",
                    "queueStatus": None,
                    "busStatus": {"consumedBy": 0, "totalGroups": 1},
                    "queuePriority": 0,
                }
            ],
            "mode": MODE,
        },
    )
    config = ("leaseTime", "retryLimit", "retryDelay", "ttl", "priority")
    await exchange(
        f"GET /api/v1/messages/{order.path}",
        shape={
            **message,
            "payload": {"n": 1},
            "isEncrypted": False,
            "errorMessage": None,
            "retryCount": None,
            "queueConfig": dict.fromkeys(config, int),
            "mode": {**MODE, "consumedByGroups": int},
            "consumerGroups": [{"name": "bill", "consumed": False, "leaseExpiresAt": time}],
        },
    )
    known = {"partitionId": order.partitionId, "transactionId": "t-1", "message": str}
    await exchange(f"DELETE /api/v1/messages/{order.path}", shape={"success": True, **known})


async def test_traces(exchange, order, queue):
    named = {"transactionId": "t-1", "partitionId": order.partitionId}
    name = f"steps of {queue}"
    await exchange(
        "POST /api/v1/traces",
        {**named, "data": {"at": 1}, "consumerGroup": "bill", "traceNames": [name]},
        status=201,
        shape={"success": True, "traceId": uuid},
    )
    trace = {
        "id": uuid,
        "event_type": "info",
        "data": {"at": 1},
        "consumer_group": "bill",
        "worker_id": None,
        "created_at": time,
        "trace_names": [name],
    }
    await exchange(f"GET /api/v1/traces/{order.path}", shape={"traces": [trace]})
    located = {
        "transaction_id": "t-1",
        "partition_id": order.partitionId,
        "queue_name": queue,
        "partition_name": "c-7",
        "message_payload": {"n": 1},
    }
    page = {"limit": int, "offset": 0}
    await exchange(
        f"GET /api/v1/traces/by-name/{name.replace(' ', '%20')}",
        shape={"traces": [{**trace, **located}], "total": 1, "pagination": page},
    )
    counted = {"trace_name": str, "trace_count": int, "message_count": int, "last_seen": time}
    await exchange(
        "GET /api/v1/traces/names",
        shape={"trace_names": each(counted), "total": int, "pagination": page},
    )


async def test_streams(exchange, order, queue):
    name, totals = f"{queue}-q1", f"{queue}-totals"
    query = {"name": name, "source_queue": queue, "sink_queue": totals}
    registered = await exchange(
        "POST /streams/v1/queries",
        {**query, "config_hash": "9f86", "reset": False},
        shape={
            "success": True,
            "query_id": uuid,
            "name": name,
            "config_hash": "9f86",
            "fresh": True,
            "reset": False,
        },
    )
    mismatch = await exchange(
        "POST /streams/v1/queries",
        {**query, "config_hash": "0000"},
        status=409,
        shape={"success": False, "query_id": uuid, "name": name, "error": str},
    )
    assert mismatch["error"].startswith("config_hash mismatch: ")
    shard = {"query_id": registered["query_id"], "partition_id": order.partitionId}
    window = {"acc": 1, "windowStart": 1767323040000, "windowEnd": 1767323100000}
    key = "tumb:60\u001f2026-01-02T03:04:00.000Z\u001fc-7"
    pushed = {
        "index": 0,
        "transaction_id": str,
        "status": "queued",
        "message_id": uuid,
        "partition_id": uuid,
        "trace_id": None,
        "queueName": totals,
    }
    await exchange(
        "POST /streams/v1/cycle",
        {
            **shard,
            "consumer_group": "bill",
            "release_lease": True,
            "state_ops": [{"type": "upsert", "key": key, "value": window}],
            "push_items": [{"queue": totals, "partition": "c-7", "payload": {"sum": 1}}],
            "ack": {**ack_of(order, "completed"), "count": 1},
        },
        shape={
            "success": True,
            **shard,
            "queueName": queue,
            "state_ops_applied": 1,
            "push_results": [pushed],
            "ack_result": {"success": True, "count": 1, "lease_released": True, "dlq": False},
        },
    )
    prefix = {"key_prefix": "tumb:60\u001f", "ripe_at_or_before": 1767323100000}
    await exchange(
        "POST /streams/v1/state/get",
        {**shard, "keys": [], **prefix},
        shape={"success": True, "rows": [{"key": key, "value": window, "updated_at": str}]},
    )


async def test_the_end_of_things(exchange, client, queue):
    await client.configure(queue)
    gone = {"deleted": True, "queue": queue}
    await exchange(f"DELETE /api/v1/resources/queues/{queue}", shape={**gone, "existed": True})
    await exchange(f"DELETE /api/v1/resources/queues/{queue}", shape={**gone, "existed": False})


async def test_statistics_and_health(exchange):
    steps = ("partition", "queue", "namespace", "task", "system", "cleanup")
    await exchange("POST /api/v1/stats/refresh", shape=dict.fromkeys(steps, dict))
    await exchange(
        "GET /health",
        shape={
            "status": "healthy",
            "database": "connected",
            "server": str,
            "worker_id": int,
            "version": str,
            "shared_state": {"enabled": bool},
            "queen": {"worker_id": int, "status": "active"},
        },
    )
