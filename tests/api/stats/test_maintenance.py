"""Maintenance modes over HTTP: pushes are kept on disk, polls get nothing, for all workers."""

import asyncio
import json

import pytest

from tests.sql.support.waiting import eventually
from tests.support.broker import payloads

PUSH_MODE = "/api/v1/system/maintenance"
POP_MODE = "/api/v1/system/maintenance/pop"
KEY = "ab" * 32


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", encryption_keys=KEY) as broker:
        yield broker


@pytest.fixture(autouse=True)
def modes_off(arun, client):
    yield
    for path in (PUSH_MODE, POP_MODE):
        arun(switch(client, path, enabled=False))


async def switch(client, path, *, enabled):
    answer = await client.post(path, {"enabled": enabled})
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def state(client, path=PUSH_MODE):
    answer = await client.call("GET", path)
    assert answer.status == 200, answer
    return json.loads(answer.body)


async def drained(client):
    async def is_empty():
        return (await state(client))["bufferedMessages"] == 0

    await eventually(is_empty)


def item(queue, name, **members):
    return {"queue": queue, "transactionId": name, "payload": name, **members}


async def names_of(client, queue, **parameters):
    messages = await client.pop(queue, batch=100, autoAck=True, **parameters)
    return [message["transactionId"] for message in messages]


async def test_pushes_are_buffered_and_stored_in_order_when_the_mode_is_off(client, queue):
    await client.push(item(queue, "before"))
    await switch(client, PUSH_MODE, enabled=True)

    results = await client.push(item(queue, "a"), item(queue, "b", partition="x"))
    await client.push(item(queue, "c"))
    kept = await state(client)
    await switch(client, PUSH_MODE, enabled=False)
    await drained(client)

    assert results[0] == {
        "index": 0,
        "transaction_id": "a",
        "status": "buffered",
        "transactionId": "a",
        "queue": queue,
        "partition": "Default",
        "trace_id": None,
        "queueName": queue,
    }
    assert (results[1]["index"], results[1]["partition"]) == (1, "x")
    assert (kept["maintenanceMode"], kept["bufferedMessages"]) == (True, 3)
    assert await names_of(client, queue, partition="Default") == ["before", "a", "c"]
    assert await names_of(client, queue, partition="x") == ["b"]


async def test_defect_32_live_pushes_come_after_what_is_still_on_disk(client, open_client, queue):
    producers = [await open_client() for _ in range(4)]
    names = [[f"{p}-{n}" for n in range(60)] for p in range(4)]

    async def produce(producer, its_names):
        for name in its_names:
            await producer.push(item(queue, name))

    await switch(client, PUSH_MODE, enabled=True)
    producing = asyncio.gather(*map(produce, producers, names))
    await eventually(lambda: _has_buffered(client))
    await switch(client, PUSH_MODE, enabled=False)
    await producing
    await drained(client)

    stored = await names_of(client, queue) + await names_of(client, queue)
    stored += await names_of(client, queue)
    assert len(stored) == 240
    for prefix, its_names in enumerate(names):
        assert [name for name in stored if name.startswith(f"{prefix}-")] == its_names


async def _has_buffered(client):
    return (await state(client))["bufferedMessages"] > 8


async def test_the_options_of_items_survive_the_disk(client, queue):
    await switch(client, PUSH_MODE, enabled=True)
    trace_id = "5b4e1f0e-6d1c-4b54-8a26-2a7d9d9a0c11"
    await client.push(
        item(queue, "a", headers={"tenant": "t"}, traceId=trace_id, ttlSeconds=600),
        item(queue, "later", delaySeconds=3600),
        {"queue": queue, "payload": {"no": "name"}},
    )
    await switch(client, PUSH_MODE, enabled=False)
    await drained(client)

    first, second = await client.pop(queue, batch=10)
    answer = await client.call("GET", f"/api/v1/scheduled?queue={queue}")

    assert (first["headers"], first["traceId"]) == ({"tenant": "t"}, trace_id)
    assert second["data"] == {"no": "name"}
    assert [each["transactionId"] for each in json.loads(answer.body)["messages"]] == ["later"]


async def test_a_message_that_was_stored_before_is_not_stored_again(client, queue):
    await client.push(item(queue, "a"))
    await switch(client, PUSH_MODE, enabled=True)
    await client.push(item(queue, "a"), item(queue, "b"), item(queue, "b"))
    await switch(client, PUSH_MODE, enabled=False)
    await drained(client)

    assert await names_of(client, queue) == ["a", "b"]


async def test_a_parked_poll_gets_what_is_drained(client, open_client, queue):
    await client.push(item(queue, "first"))
    await names_of(client, queue)
    waiting = await open_client()
    waiting.send_poll(queue, wait=True, timeout=20_000)
    await switch(client, PUSH_MODE, enabled=True)
    await client.push(item(queue, "a"))
    await switch(client, PUSH_MODE, enabled=False)

    assert payloads(await waiting.popped()) == ["a"]


async def test_defect_33_nothing_of_an_encrypted_queue_is_readable_on_disk(
    client, queue, spill_root, broker
):
    await client.configure(queue, encryptionEnabled=True)
    await switch(client, PUSH_MODE, enabled=True)
    await client.push(item(queue, "a", payload="a-secret-word"))

    on_disk = b"".join(path.read_bytes() for path in spill_root.rglob("*.spill"))
    await switch(client, PUSH_MODE, enabled=False)
    await drained(client)

    assert b'"a"' in on_disk  # the transaction id is
    assert b"a-secret-word" not in on_disk
    assert payloads(await client.pop(queue)) == ["a-secret-word"]
    async with broker.sql() as sql:
        query = "select body from skep.segment s join skep.queue q on q.id = s.queue_id"
        (body,) = (row[0] for row in await sql.fetch(f"{query} where q.name = $1", queue))
    assert body.count(b'"enc":') == 1
    assert b"a-secret-word" not in body


async def test_a_queue_without_encryption_is_stored_in_clear_though_the_disk_was_sealed(
    client, queue, broker
):
    await switch(client, PUSH_MODE, enabled=True)
    await client.push(item(queue, "a", payload="plain"))
    await switch(client, PUSH_MODE, enabled=False)
    await drained(client)

    async with broker.sql() as sql:
        query = "select body from skep.segment s join skep.queue q on q.id = s.queue_id"
        (body,) = (row[0] for row in await sql.fetch(f"{query} where q.name = $1", queue))
    assert b'"plain"' in body


async def test_a_payload_that_breaks_a_known_schema_is_refused_at_once(client, queue):
    await client.configure(queue, jsonSchema={"type": "object"})
    await client.push({"queue": queue, "payload": {}})
    await switch(client, PUSH_MODE, enabled=True)

    good, bad = await client.push({"queue": queue, "payload": {}}, {"queue": queue, "payload": 1})
    alone = await client.post("/api/v1/push", {"items": [{"queue": queue, "payload": 1}]})

    assert (good["status"], bad["status"]) == ("buffered", "failed")
    assert alone.status == 400


async def test_a_record_that_its_queue_refuses_is_set_aside_and_blocks_nobody(
    client, queue, broker
):
    """Also of defect 31: a poison record keeps nothing from being stored."""
    await switch(client, PUSH_MODE, enabled=True)
    await client.push(*(item(queue, name, payload=1) for name in "ab"))
    await client.push(item(queue, "c", payload="poison"))
    await client.push(item(queue, "d", payload=1), item(f"{queue}-other", "e", payload=1))
    await client.configure(queue, jsonSchema={"type": "integer"})
    rejected = (await state(client))["bufferStats"]["failedFiles"]["count"]
    await switch(client, PUSH_MODE, enabled=False)
    await drained(client)

    assert await names_of(client, queue) == ["a", "b", "d"]
    assert await names_of(client, f"{queue}-other") == ["e"]
    assert (await state(client))["bufferStats"]["failedFiles"]["count"] == rejected + 1
    assert "was set aside" in broker.log()


@pytest.mark.parametrize(
    "bad",
    [
        {"queue": "q" * 300},
        {"queue": "q", "partition": "p" * 300},
        {"queue": "q", "transactionId": "t" * 300},
        {"queue": "q", "traceId": "no uuid"},
        {"queue": "q", "deliverAt": "soon"},
    ],
)
async def test_a_bad_item_is_refused_and_its_neighbour_is_kept(client, queue, bad):
    await switch(client, PUSH_MODE, enabled=True)
    answer = await client.post("/api/v1/push", {"items": [item(queue, "a"), bad]})
    await switch(client, PUSH_MODE, enabled=False)
    await drained(client)

    assert answer.status == 201
    assert [each["status"] for each in json.loads(answer.body)] == ["buffered", "failed"]
    assert await names_of(client, queue) == ["a"]


async def test_a_transaction_that_pushes_is_refused_while_pushes_are_kept(client, queue):
    await switch(client, PUSH_MODE, enabled=True)
    body = {"operations": [{"type": "push", "items": [{"queue": queue, "payload": 1}]}]}

    answer = await client.post("/api/v1/transaction", body)

    assert answer.status == 503
    assert "maintenance" in json.loads(answer.body)["error"]


async def test_polls_get_nothing_until_the_mode_is_off(client, open_client, queue):
    await client.push(item(queue, "a"))
    await switch(client, POP_MODE, enabled=True)

    at_once = await client.call("GET", f"/api/v1/pop/queue/{queue}")
    waiting = await open_client()
    waiting.send_poll(queue, wait=True, timeout=20_000)
    told = await state(client, POP_MODE)
    await switch(client, POP_MODE, enabled=False)

    assert at_once.status == 204
    assert told["popMaintenanceMode"] is True
    assert payloads(await waiting.popped()) == ["a"]


async def test_what_is_under_lease_can_be_acknowledged_while_nothing_is_delivered(client, queue):
    await client.push(item(queue, "a"))
    (message,) = await client.pop(queue)
    await switch(client, POP_MODE, enabled=True)

    assert (await client.ack(message))["success"]


async def test_defect_49_another_instance_learns_the_modes_without_any_peers(
    client, broker, queue, start_broker
):
    await switch(client, PUSH_MODE, enabled=True)
    await client.push(item(queue, "a"))
    async with broker.sql() as sql:
        await sql.execute("select skep.set_maintenance('push', false)")

    await drained(client)

    assert (await state(client))["maintenanceMode"] is False
    assert await names_of(client, queue) == ["a"]


@pytest.mark.parametrize("path", [PUSH_MODE, POP_MODE])
@pytest.mark.parametrize("body", [{}, {"enabled": "yes"}, {"enabled": None}])
async def test_a_mode_is_a_boolean(client, path, body):
    answer = await client.post(path, body)

    assert answer.status == 400
    assert "enabled (boolean) is required" in json.loads(answer.body)["error"]


async def test_the_state_has_every_member_of_the_wire(client):
    told = await state(client)
    buffers = await state(client, "/api/v1/status/buffers")

    assert set(told) == {
        "maintenanceMode",
        "popMaintenanceMode",
        "bufferedMessages",
        "bufferHealthy",
        "bufferStats",
    }
    assert set(told["bufferStats"]) >= {"pendingCount", "failedCount", "dbHealthy", "failedFiles"}
    assert set(told["bufferStats"]["failedFiles"]) == {
        "count",
        "totalBytes",
        "totalMB",
        "failoverCount",
        "qos0Count",
    }
    assert set(buffers) >= {"pending", "failed", "dbHealthy", "worker"}


@pytest.mark.parametrize("route", ["test-connection", "start", "validate"])
async def test_defect_47_the_broker_connects_nowhere_on_request(client, route):
    body = {"host": "h; rm -rf /", "database": "d", "user": "u", "schema": "x"}

    answer = await client.post(f"/api/v1/migration/{route}", body)

    assert answer.status == 409
    assert "pg_dump" in json.loads(answer.body)["error"]


async def test_there_is_never_a_migration_under_way(client):
    told = await state(client, "/api/v1/migration/status")
    reset = await client.post("/api/v1/migration/reset", {})

    assert told == {"status": "idle", "currentStep": "", "elapsedSeconds": 0}
    assert json.loads(reset.body)["status"] == "idle"
