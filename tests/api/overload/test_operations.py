"""Overload over HTTP: who is accepted with a 202, who is held back, and what becomes of them."""

import asyncio
import json
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest

from tests.api.support.overload import (
    LET_GO,
    PREFER,
    TIGHT,
    accepted,
    ended,
    overload,
    push,
    read,
    standstill,
)
from tests.support.broker import ack_item, elapsed, payloads, until_blocked_by

KEY = "00" * 32
PRODUCERS, PUSHES_MAX = 8, 200


@pytest.fixture(scope="module")
def broker(start_broker):
    limits = {"operation_depth_max_per_partition": 3, "operation_retries_max": 1}
    with start_broker(
        "--workers", "1", **TIGHT, **limits, ack_load_max=1, encryption_keys=KEY
    ) as broker:
        yield broker


async def test_who_asks_is_accepted_when_there_is_no_room_and_served_later(broker, client, queue):
    await client.push_payloads(queue, "first")
    async with overload(broker, queue):
        answer = await push(client, queue, "second", "third")
    body = json.loads(answer.body)

    assert answer.status == 202
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.headers["location"] == f"/api/v1/operations/{body['operationId']}"
    assert UUID(body["operationId"]).version == 7
    assert [body["queuePosition"], body["results"]] == [1, []]
    assert [body["status"], body["reason"]] == ["queued", "overloaded"]
    assert f"/api/v1/operations/{body['operationId']}" in body["note"]
    assert body["estimatedWait"] >= 0
    (operation,) = body["operations"]
    place = ["type", "queue", "partition"]
    assert [operation[name] for name in place] == ["push", queue, "Default"]
    found = await ended(client, body["operationId"])
    assert [found["status"], found["error"], found["itemCount"]] == ["completed", None, 2]
    assert payloads(await client.pop(queue, batch=10)) == ["first", "second", "third"]


async def test_the_answer_of_an_operation_is_that_of_the_request(broker, client, queue):
    (first,) = await client.push({"queue": queue, "payload": 1, "transactionId": "a"})
    async with overload(broker, queue):
        again = await accepted(client, queue, 1, transactionId="a")
        twins = await accepted(client, queue, 2, 3, transactionId="b", traceId=str(UUID(int=7)))

    (result,) = (await ended(client, again["operationId"]))["answer"]
    assert result == {**first, "status": "duplicate"}
    results = (await ended(client, twins["operationId"]))["answer"]
    assert [each["status"] for each in results] == ["queued", "duplicate"]
    assert [each["index"] for each in results] == [0, 1]
    assert {each["trace_id"] for each in results} == {str(UUID(int=7))}
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_a_bad_item_is_not_accepted_and_its_neighbours_are(broker, client, queue):
    bad = {"queue": "q" * 256, "payload": "bad"}
    items = [{"queue": queue, "payload": 1}, bad, {"queue": queue, "payload": 2}]
    async with overload(broker, queue):
        body = json.dumps({"items": items}).encode()
        answer = await client.call("POST", "/api/v1/push", body, PREFER)

    assert answer.status == 202
    (failed,) = json.loads(answer.body)["results"]
    assert [failed["index"], failed["status"]] == [1, "failed"]
    assert failed["error"] == "queue is longer than 255 characters"
    await ended(client, json.loads(answer.body)["operationId"])
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_what_is_loose_is_accepted_unless_its_queue_is_strict(broker, client, queue):
    for name, strict in ((queue, False), (f"{queue}-strict", True)):
        await client.configure(name, strict=strict)
        await client.push_payloads(name, 0)
    async with overload(broker, queue):
        body = await accepted(client, queue, 1, colour="red")
        refused = await push(client, f"{queue}-strict", 1, colour="red")

    assert (await ended(client, body["operationId"]))["status"] == "completed"
    assert refused.status == 400
    assert json.loads(refused.body)["error"] == "unknown field `colour`"


async def test_without_a_window_nothing_in_an_operation_is_a_duplicate(broker, client, queue):
    await client.configure(queue, dedupWindowSeconds=0)
    await client.push({"queue": queue, "payload": 1, "transactionId": "a"})
    async with overload(broker, queue):
        one = await accepted(client, queue, 2, 3, transactionId="a")
        other = await accepted(client, queue, 4, transactionId="a")

    results = (await ended(client, one["operationId"]))["answer"]
    results += (await ended(client, other["operationId"]))["answer"]
    assert [each["status"] for each in results] == ["queued"] * 3
    assert payloads(await client.pop(queue, batch=10)) == [1, 2, 3, 4]


async def test_who_does_not_ask_is_held_back_and_then_refused(broker, client, queue):
    await client.push_payloads(queue, 1)
    async with overload(broker, queue):
        with elapsed() as duration:
            answer = await push(client, queue, 2, headers="")

    assert answer.status == 429
    body = json.loads(answer.body)
    assert [body["code"], body["queueDepth"]] == ["overloaded", 1]
    assert int(answer.headers["retry-after"]) >= 1
    assert duration.seconds > TIGHT["overload_wait_s"] - 0.01  # uvloop's timers count milliseconds
    assert payloads(await client.pop(queue, batch=10)) == [1]


async def test_who_is_held_back_is_served_when_there_is_room_in_time(
    broker, client, open_client, queue
):
    await client.push_payloads(queue, 1)
    other = await open_client()
    async with overload(broker, queue):
        waiting = asyncio.ensure_future(push(client, queue, 2, headers=""))
        behind = asyncio.ensure_future(push(other, queue, 3, headers=""))
        await asyncio.wait([waiting, behind], timeout=0.05)

    assert [(await waiting).status, (await behind).status] == [201, 201]
    assert payloads(await client.pop(queue, batch=10)) == [1, 2, 3]


async def test_later_pushes_of_a_partition_wait_behind_although_there_is_room(
    broker, client, queue
):
    await client.push_payloads(queue, 1)
    async with standstill(broker):
        async with overload(broker, queue):
            first = await accepted(client, queue, 2)
        second = await accepted(client, queue, 3)
        refused = await push(client, queue, 4, headers="")
        elsewhere = await push(client, queue, 5, partition="other")

    assert [first["queuePosition"], second["queuePosition"]] == [1, 2]
    assert [first["reason"], second["reason"]] == ["overloaded", "partition_deferred"]
    assert [refused.status, elsewhere.status] == [429, 201]
    await ended(client, second["operationId"])
    (last,) = await client.push_payloads(queue, 6)
    assert last["status"] == "queued"
    assert payloads(await client.pop(queue, "Default", batch=10)) == [1, 2, 3, 6]


async def test_who_takes_a_202_is_served_at_once_again_when_the_overload_is_over(
    broker, open_client, queue
):
    producers = [await open_client() for _ in range(PRODUCERS)]

    async def pushes_until_served(client):
        for number in range(PUSHES_MAX):
            if (await push(client, queue, number)).status == 201:
                return True
        return False

    await producers[0].push_payloads(queue, "first")
    async with overload(broker, queue):
        await accepted(producers[0], queue, "second")
    served = await asyncio.gather(*map(pushes_until_served, producers))

    assert served == [True] * PRODUCERS


async def test_who_is_held_back_for_a_partition_is_served_when_the_partition_is_free(
    broker, client, queue
):
    async with standstill(broker):
        async with overload(broker, queue):
            await accepted(client, queue, 1)
        waiting = asyncio.ensure_future(push(client, queue, 2, headers=""))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()

    assert (await waiting).status == 201
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_a_push_is_not_accepted_before_an_earlier_one_of_its_partition_is_stored(
    broker, client, queue
):
    name = f"{queue}-full"  # where `overload` has a push in flight
    async with overload(broker, queue):
        waiting = asyncio.ensure_future(push(client, name, "behind"))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()

    body = json.loads((await waiting).body)
    assert (await ended(client, body["operationId"]))["status"] == "completed"
    stored = payloads(await client.pop(name, batch=10))
    assert [stored[0], stored[2], len(stored)] == [0, "behind", 3]


async def test_requests_of_one_connection_keep_their_order_though_only_one_is_deferred(
    broker, client, open_client, queue
):
    await client.push_payloads(queue, 1)
    other = await open_client()
    async with overload(broker, queue):
        for value, headers in ((2, PREFER), (3, ""), (4, PREFER)):
            body = json.dumps({"items": [{"queue": queue, "payload": value}]}).encode()
            client.request("POST", "/api/v1/push", body, headers)
        first = await client.answer()
        assert first.status == 202
        await ended(other, json.loads(first.body)["operationId"])
    others = [await client.answer(), await client.answer()]

    assert [each.status for each in others] == [201, 202]
    await ended(client, json.loads(others[1].body)["operationId"])
    assert payloads(await client.pop(queue, batch=10)) == [1, 2, 3, 4]


async def test_beyond_the_limit_of_a_partition_operations_are_refused(broker, client, queue):
    async with standstill(broker), overload(broker, queue):
        operations = [await accepted(client, queue, number) for number in range(3)]
        answer = await push(client, queue, 3)

    assert [each["queuePosition"] for each in operations] == [1, 2, 3]
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    await ended(client, operations[-1]["operationId"])
    assert payloads(await client.pop(queue, batch=10)) == [0, 1, 2]


async def test_a_queue_decides_for_its_clients(broker, client, queue):
    await client.configure(queue, deferral="always")
    await client.configure(f"{queue}-never", deferral="never")
    await client.push_payloads(queue, 0)
    await client.push_payloads(f"{queue}-never", 0)
    async with overload(broker, queue):
        always = await push(client, queue, 1, headers="")
        never = await push(client, f"{queue}-never", 1)

    assert [always.status, never.status] == [202, 429]


async def test_what_a_queue_does_not_take_is_refused_at_once(broker, client, queue):
    await client.configure(queue, jsonSchema={"type": "string"})
    await client.push_payloads(queue, "fine")
    async with overload(broker, queue):
        mixed = await accepted(client, queue, "good", 2)
        bad = await push(client, queue, 3)

    assert bad.status == 400
    (result,) = mixed["results"]
    assert [result["index"], result["status"]] == [1, "failed"]
    (good,) = (await ended(client, mixed["operationId"]))["answer"]
    assert [good["index"], good["status"]] == [0, "queued"]


async def test_messages_for_later_are_scheduled_and_not_deferred(broker, client, queue):
    await client.push_payloads(queue, 1)
    later, now = {"queue": queue, "payload": 2, "delaySeconds": 60}, {"queue": queue, "payload": 3}
    async with overload(broker, queue):
        body = json.dumps({"items": [later, now]}).encode()
        answer = await client.call("POST", "/api/v1/push", body, PREFER)
    said = json.loads(answer.body)

    assert answer.status == 202
    (result,) = said["results"]
    assert [result["index"], result["status"]] == [0, "scheduled"]
    (done,) = (await ended(client, said["operationId"]))["answer"]
    assert [done["index"], done["status"]] == [1, "queued"]


async def test_a_message_for_an_encrypted_queue_waits_encrypted(broker, client, queue):
    await client.configure(queue, encryptionEnabled=True)
    await client.push_payloads(queue, "first")
    async with standstill(broker), broker.sql() as sql:
        async with overload(broker, queue):
            body = await accepted(client, queue, "secret honey")
        kept = await sql.fetchval(
            "select payload from skep.operation where id = $1", UUID(body["operationId"])
        )

    assert b"secret honey" not in kept
    await ended(client, body["operationId"])
    assert payloads(await client.pop(queue, batch=10)) == ["first", "secret honey"]


async def test_a_transaction_waits_behind_operations_of_its_partitions(broker, client, queue):
    body = {"operations": [{"type": "push", "items": [{"queue": queue, "payload": 2}]}]}
    async with standstill(broker):
        async with overload(broker, queue):
            operation = await accepted(client, queue, 1)
        refused = await client.post("/api/v1/transaction", body)
    await ended(client, operation["operationId"])
    done = await client.post("/api/v1/transaction", body)

    assert [refused.status, done.status] == [429, 200]
    assert json.loads(done.body)["success"] is True
    assert payloads(await client.pop(queue, batch=10)) == [1, 2]


async def test_an_operation_for_a_queue_that_was_deleted_is_given_up(broker, client, queue):
    async with standstill(broker):
        async with overload(broker, queue):
            body = await accepted(client, queue, 1)
        gone = await client.call("DELETE", f"/api/v1/resources/queues/{queue}")
        assert gone.status == 200

    found = await ended(client, body["operationId"])
    assert [found["status"], found["error"]] == ["failed", "the queue was deleted"]
    retried = await client.call("POST", f"/api/v1/operations/{body['operationId']}/retry")
    assert retried.status == 409


async def test_an_operation_that_was_given_up_can_be_retried_or_cancelled(broker, client, queue):
    async with broker.sql() as sql:
        async with standstill(broker), overload(broker, queue):
            bodies = [await accepted(client, queue, number) for number in (1, 2)]
        first, second = [body["operationId"] for body in bodies]
        await ended(client, second)
        async with standstill(broker):
            async with overload(broker, queue):
                body = await accepted(client, queue, 3)
            third = body["operationId"]
            await sql.execute(LET_GO)
            await sql.execute("alter table skep.operation disable trigger stand_still")
            await sql.execute(
                "select skep.leave_operations(array[$1::uuid], 'failed', null, array['no luck'])",
                UUID(third),
            )
            await sql.execute("alter table skep.operation enable trigger stand_still")
    failed = await read(client, f"/{third}")
    retried = await client.call("POST", f"/api/v1/operations/{third}/retry")
    done = await ended(client, third)

    assert [failed["status"], failed["error"]] == ["failed", "no luck"]
    assert retried.status == 200
    assert json.loads(retried.body)["status"] in {"waiting", "processing", "completed"}
    assert done["status"] == "completed"
    assert payloads(await client.pop(queue, batch=10)) == [1, 2, 3]
    for operation_id in (first, second, third):
        again = await client.call("POST", f"/api/v1/operations/{operation_id}/retry")
        cancelled = await client.call("DELETE", f"/api/v1/operations/{operation_id}")
        assert [again.status, cancelled.status] == [409, 409]


async def test_operations_are_counted_and_listed_page_by_page(broker, client, queue):
    async with standstill(broker):
        async with overload(broker, queue):
            bodies = [await accepted(client, queue, number) for number in range(3)]
        stats = await read(client, "/stats")
        first = await read(client, f"?queue={queue}&limit=2")
        rest = await read(client, f"?queue={queue}&limit=2&before={first['nextBefore']}")
        waiting = await read(client, f"/{bodies[1]['operationId']}")

    assert stats["total"]["waiting"] + stats["total"]["processing"] >= 3
    assert stats["byType"]["push"]["waiting"] >= 2
    assert stats["waitingBytes"] > 0
    assert stats["oldestWaitingAt"].endswith("Z")
    assert stats["oldestWaitingAt"] < stats["newestWaitingAt"]
    assert [stats["systemHealth"], stats["alerts"]] == ["healthy", []]
    ids = [body["operationId"] for body in bodies]
    found = [each["operationId"] for each in first["operations"] + rest["operations"]]
    assert found == ids[::-1]
    assert rest["nextBefore"] is None
    assert [waiting["status"], waiting["queuePosition"], waiting["answer"]] == ["waiting", 2, None]
    await ended(client, ids[-1])
    done = await read(client, f"?queue={queue}&status=completed")
    assert len(done["operations"]) == 3
    latency = (await read(client, "/stats"))["latency"]
    assert latency["samples"] >= 3
    assert 0 < latency["p50"] <= latency["p95"] <= latency["max"]
    assert (await read(client, f"?queue={queue}&status=failed"))["operations"] == []


async def test_an_operation_that_is_not_carried_out_raises_an_alert(broker, client, queue):
    async with standstill(broker):
        async with overload(broker, queue):
            body = await accepted(client, queue, 1)
        async with broker.sql() as sql:
            await sql.execute("set session_replication_role = replica")  # past the standstill
            await sql.execute(LET_GO)
            await sql.execute(
                "update skep.operation set available_at = available_at - interval '1 day'"
                " where id = $1",
                body["operationId"],
            )
        stats = await read(client, "/stats")

    (alert,) = [each for each in stats["alerts"] if each["operationId"] == body["operationId"]]
    assert stats["systemHealth"] == "stuck"
    assert [alert["queue"], alert["partition"], alert["type"]] == [queue, "Default", "push"]
    assert alert["dueAt"].endswith("Z")
    await ended(client, body["operationId"])
    assert (await read(client, "/stats"))["systemHealth"] == "healthy"


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "status=lost", "before=-1"])
async def test_a_page_that_makes_no_sense_is_refused(client, query):
    await read(client, f"?{query}", status=400)


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/retry"), ("DELETE", "")])
async def test_an_operation_that_does_not_exist_is_not_found(client, method, path):
    answer = await client.call(method, f"/api/v1/operations/{uuid4()}{path}")

    assert answer.status == 404


async def test_analytics_give_way_to_messages(broker, client, queue):
    path = "/api/v1/analytics/retention"
    async with overload(broker, queue):
        busy = await client.call("GET", path)
        other = await client.call("GET", "/api/v1/operations/stats")
    quiet = await client.call("GET", path)

    assert [busy.status, other.status, quiet.status] == [429, 200, 200]
    assert int(busy.headers["retry-after"]) >= 1


async def delivered(client, queue, count):
    await client.push_payloads(queue, *range(count))
    return await client.pop(queue, batch=count)


def unfenced(messages):
    """Acks that name no lease are sent one by one, and so weigh something."""
    return [ack_item(message, members={"leaseId": None}) for message in messages]


async def ack_batch(client, items, headers=PREFER):
    body = json.dumps({"acknowledgments": items}).encode()
    return await client.call("POST", "/api/v1/ack/batch", body, headers)


@asynccontextmanager
async def ack_overload(broker, client, queue):
    """Keep acks in flight that fill what acks may have: one percent of a mebibyte."""
    name = f"{queue}-full"
    filling = unfenced(await delivered(client, name, 50))
    async with broker.sql() as sql, broker.connect() as filler:
        async with sql.transaction():
            await sql.execute(
                "select from skep.cursor c join skep.queue q on q.id = c.queue_id"
                " where q.name = $1 for update of c",
                name,
            )
            stuck = asyncio.ensure_future(filler.ack_batch(*filling))
            await until_blocked_by(sql)
            yield
        await stuck


async def test_a_batch_of_acks_is_accepted_when_there_is_no_room(broker, client, queue):
    items = unfenced(await delivered(client, queue, 50))
    items.insert(7, {**items[0], "partitionId": "nonsense"})
    async with ack_overload(broker, client, queue):
        held = await ack_batch(client, items, headers="")
        answer = await ack_batch(client, items)
    said = json.loads(answer.body)

    assert [held.status, answer.status] == [429, 202]
    (operation,) = said["operations"]
    place = ["type", "queue", "partition"]
    assert [operation[name] for name in place] == ["ack_batch", queue, "Default"]
    (known,) = said["results"]
    assert [known["index"], known["success"]] == [7, False]
    found = await ended(client, said["operationId"])
    assert [found["priority"], found["itemCount"]] == [3, 50]
    assert [each["index"] for each in found["answer"]] == [at for at in range(51) if at != 7]
    assert {each["success"] for each in found["answer"]} == {True}
    assert found["answer"][0]["queueName"] == queue
    assert await client.pop(queue) == []


async def test_later_acks_of_a_partition_wait_behind_although_there_is_room(broker, client, queue):
    messages = await delivered(client, queue, 50)
    first, second, *others = unfenced(messages)
    async with standstill(broker):
        async with ack_overload(broker, client, queue):
            nacked = json.loads(
                (
                    await ack_batch(
                        client,
                        [{**first, "status": "failed"}]
                        + [{**each, "status": "failed"} for each in others],
                    )
                ).body
            )
        single = await client.post("/api/v1/ack", second)
        behind = json.loads((await ack_batch(client, [second])).body)

    assert single.status == 429
    assert [nacked["queuePosition"], behind["queuePosition"]] == [1, 2]
    done = [await ended(client, each["operationId"]) for each in (nacked, behind)]
    assert [each["status"] for each in done] == ["completed", "completed"]
    # The nack came first: nothing may have been completed over it.
    assert {each["success"] for each in done[0]["answer"]} == {True}
