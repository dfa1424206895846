"""Items with unknown fields or without a payload: stored as in Queen, or refused if strict."""

import json
import re

import pytest

from tests.support.broker import payloads

MISSPELT = {"paylod": 1}
DID_YOU_MEAN = "unknown field `paylod`; did you mean `payload`?"
LOOSE = [
    (MISSPELT, DID_YOU_MEAN),
    ({}, "payload is missing; send null if there is none"),
    ({"payload": 1, "color": "red", "Queue": "x"}, "unknown fields `Queue`, `color`"),
]
EVERY_FIELD = {
    "partition": "p",
    "payload": None,
    "transactionId": "t",
    "traceId": "0198c1a2-0000-7000-8000-000000000001",
    "headers": {"a": 1},
    "ttlSeconds": 60,
    "messageId": "m",
    "namespace": "n",
    "task": "t",
    "deliverAt": None,
    "delaySeconds": 0,
}


@pytest.fixture(scope="module")
def strict_broker(start_broker):
    with start_broker("--workers", "1", strict=True) as broker:
        yield broker


async def counted(client, name):
    answer = await client.call("GET", "/metrics/prometheus")
    return float(re.search(rf"^{name} (\S+)$", answer.body.decode(), re.MULTILINE)[1])


async def test_the_wire_is_tolerant_and_what_it_tolerates_is_counted(client, queue):
    names = ("skep_push_unknown_fields_total", "skep_push_missing_payloads_total")
    before = [await counted(client, name) for name in names]

    await client.push({"queue": queue, **MISSPELT}, {"queue": queue, "payload": 1, "a": 1, "b": 2})
    await client.push({"queue": queue}, {"queue": queue, "payload": None})

    after = [await counted(client, name) for name in names]
    assert payloads(await client.pop(queue, batch=10)) == [None, 1, None, None]
    assert [now - then for then, now in zip(before, after, strict=True)] == [3, 2]


@pytest.mark.parametrize(("members", "error"), LOOSE)
async def test_a_strict_queue_refuses_the_item_and_names_the_field(client, queue, members, error):
    await client.configure(queue, strict=True)
    good = {"queue": queue, "payload": 2}

    results = await client.push(good, {"queue": queue, **members}, {"queue": f"{queue}-not"})

    assert [each["status"] for each in results] == ["queued", "failed", "queued"]
    assert results[1]["error"] == error
    assert payloads(await client.pop(queue, batch=10)) == [2]


async def test_a_strict_queue_takes_every_field_there_is(client, queue):
    await client.configure(queue, strict=True)

    (result,) = await client.push({"queue": queue, **EVERY_FIELD})

    assert result["status"] == "queued"


async def test_a_queue_becomes_strict_and_tolerant_again_from_one_push_to_the_next(client, queue):
    statuses = []
    for is_strict in (False, True, False):
        await client.configure(queue, strict=is_strict)
        results = await client.push({"queue": queue, "payload": 1}, {"queue": queue, **MISSPELT})
        statuses.append(results[1]["status"])

    assert statuses == ["queued", "failed", "queued"]


async def test_a_message_for_later_is_refused_as_well(client, queue):
    await client.configure(queue, strict=True)
    later = {"queue": queue, "delaySeconds": 60}

    results = await client.push({**later, **MISSPELT}, {**later, "payload": 1})

    assert [each["status"] for each in results] == ["failed", "scheduled"]


@pytest.mark.parametrize(
    "operation",
    [
        {"items": [{"queue": "QUEUE", "payload": 1}, {"queue": "QUEUE", **MISSPELT}]},
        {"queue": "QUEUE", **MISSPELT},
    ],
)
async def test_a_transaction_is_refused_as_a_whole(client, queue, operation):
    await client.configure(queue, strict=True)
    body = json.dumps({"operations": [{"type": "push", **operation}]}).replace("QUEUE", queue)

    answer = await client.call("POST", "/api/v1/transaction", body.encode())

    assert answer.status == 400
    assert json.loads(answer.body)["error"] == DID_YOU_MEAN
    assert await client.pop(queue) == []


async def test_a_transaction_with_known_fields_is_not(client, queue):
    await client.configure(queue, strict=True)
    item = {"queue": queue, "payload": 1}
    operations = [{"type": "push", "items": [item]}, {"type": "push", "queue": queue, "data": 2}]

    answer = await client.post("/api/v1/transaction", operations)

    assert json.loads(answer.body)["success"]
    assert payloads(await client.pop(queue, batch=5)) == [1, 2]


async def lease_for_cycle(client, queue, *items):
    """Lease the one message of a source; return a cycle that acknowledges it."""
    source = f"{queue}-source"
    query = {"name": source, "source_queue": source, "config_hash": "h"}
    registered = await client.post("/streams/v1/queries", query)
    await client.push({"queue": source, "payload": 0})
    (message,) = await client.pop(source)
    return {
        "query_id": json.loads(registered.body)["query_id"],
        "partition_id": message["partitionId"],
        "state_ops": [{"type": "upsert", "key": "k", "value": 1}],
        "push_items": [{"queue": queue, **item} for item in items],
        "ack": {"messageId": message["id"], "leaseId": message["leaseId"]},
    }


async def send_cycle(client, queue, *items):
    """Lease the one message of a source, and send a cycle that acknowledges it."""
    cycle = await lease_for_cycle(client, queue, *items)
    answer = await client.post("/streams/v1/cycle", cycle)
    shard = {name: cycle[name] for name in ("query_id", "partition_id")}
    state = await client.post("/streams/v1/state/get", shard)
    (acked,) = await client.ack_batch(cycle["ack"])
    is_leased = not acked.get("noop")
    return answer, {"rows": len(json.loads(state.body)["rows"]), "is_leased": is_leased}


UNTOUCHED = {"rows": 0, "is_leased": True}


@pytest.mark.parametrize(("members", "error"), LOOSE)
async def test_a_stream_cycle_is_refused_as_a_whole(client, queue, members, error):
    await client.configure(queue, strict=True)

    answer, source = await send_cycle(client, queue, {"payload": 1}, members)

    assert answer.status == 400
    assert json.loads(answer.body)["error"] == error
    assert source == UNTOUCHED
    assert await client.pop(queue) == []


@pytest.mark.parametrize("change", [{"strict": True}, {"jsonSchema": {"type": "string"}}])
async def test_a_cycle_that_was_done_before_its_sink_would_refuse_it_is_a_repetition(
    client, queue, change
):
    cycle = await lease_for_cycle(client, queue, MISSPELT)
    first = await client.post("/streams/v1/cycle", cycle)
    await client.configure(queue, **change)

    again = await client.post("/streams/v1/cycle", cycle)

    assert json.loads(first.body)["success"]
    answer = json.loads(again.body)
    assert [answer["success"], answer["replayed"]] == [True, True]
    assert payloads(await client.pop(queue, batch=5)) == [None]


async def test_a_stream_cycle_with_known_fields_is_not(client, queue):
    await client.configure(queue, strict=True)

    answer, source = await send_cycle(client, queue, {"payload": 1}, {"payload": None})

    assert json.loads(answer.body)["success"]
    assert source == {"rows": 1, "is_leased": False}
    assert payloads(await client.pop(queue, batch=5)) == [1, None]


async def test_a_tolerant_sink_takes_what_a_cycle_pushes_and_counts_it(client, queue):
    names = ("skep_push_unknown_fields_total", "skep_push_missing_payloads_total")
    before = [await counted(client, name) for name in names]

    answer, _ = await send_cycle(client, queue, MISSPELT, {"payload": 1})

    after = [await counted(client, name) for name in names]
    assert json.loads(answer.body)["success"]
    assert payloads(await client.pop(queue, batch=5)) == [None, 1]
    assert [now - then for then, now in zip(before, after, strict=True)] == [1, 1]


async def test_the_setting_makes_the_sinks_of_streams_strict(strict_broker, queue):
    async with strict_broker.connect() as client:
        answer, source = await send_cycle(client, queue, {"payload": 1}, MISSPELT)
        status = (await client.call("GET", f"/api/v1/resources/queues/{queue}")).status

    assert [answer.status, json.loads(answer.body)["error"]] == [400, DID_YOU_MEAN]
    assert source == UNTOUCHED
    assert status == 404  # the sink is not created either


async def test_the_setting_makes_every_queue_strict(strict_broker, queue):
    async with strict_broker.connect() as client:
        results = await client.push({"queue": queue, "payload": 1}, {"queue": queue, **MISSPELT})
        flat = {"type": "push", "queue": queue}
        refused = [
            await client.post("/api/v1/push", {"items": [{"queue": queue}]}),
            await client.post("/api/v1/transaction", [flat]),
            await client.post("/api/v1/transaction", [{"type": "push", "items": [{**flat}]}]),
        ]
        stored = payloads(await client.pop(queue, batch=10))

    assert [each["status"] for each in results] == ["queued", "failed"]
    assert results[1]["error"] == DID_YOU_MEAN
    assert [answer.status for answer in refused] == [400, 400, 400]
    assert json.loads(refused[0].body)["error"].startswith("payload is missing")
    assert stored == [1]
