"""What queues make of the messages pushed into them: options of items, rules of queues."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.support.waiting import eventually
from tests.support.broker import ack_item, payloads

KEY = "ab" * 32
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


@pytest.fixture(scope="module")
def broker(start_broker):
    """Two workers that can encrypt, so that rules must travel between processes."""
    with start_broker("--workers", "2", encryption_keys=f"first:{KEY}") as broker:
        yield broker


async def stored_bodies(broker, queue):
    async with broker.sql() as sql:
        rows = await sql.fetch(
            """
            select s.body from skep.segment s join skep.queue q on q.id = s.queue_id
            where q.name = $1 order by s.partition_id, s.first
            """,
            queue,
        )
    return b"".join(row["body"] for row in rows)


async def test_headers_come_back_as_they_were_sent(client, queue):
    headers = {"kind": "bee", "data": 1, "wild": True, "x": None, "y": ',"data":'}
    await client.push({"queue": queue, "payload": {"n": 1}, "headers": headers})

    [message] = await client.pop(queue)

    assert message["headers"] == headers
    assert message["data"] == {"n": 1}


@pytest.mark.parametrize(
    "headers",
    [{"a": {}}, {"a": []}, ["a"], "a", {str(n): n for n in range(65)}, {"a": "x" * 9000}],
    ids=["object", "array", "list", "text", "too many", "too large"],
)
async def test_headers_that_are_not_a_few_scalars_are_refused(client, queue, headers):
    answer = await client.post("/api/v1/push", {"items": [{"queue": queue, "headers": headers}]})

    assert answer.status == 400


async def test_a_message_with_a_delay_waits_and_then_comes(client, queue):
    [result] = await client.push({"queue": queue, "payload": 1, "delaySeconds": 0.05})
    assert result["status"] == "scheduled"
    assert result["scheduledId"]
    await client.push_payloads(queue, 2)

    [first] = await client.pop(queue, autoAck=True, batch=10)
    [second] = await client.pop(queue, autoAck=True, batch=10, wait=True)

    assert payloads([first, second]) == [2, 1]


async def test_a_scheduled_message_can_be_cancelled_until_it_is_due(client, queue):
    moment = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    [result] = await client.push({"queue": queue, "payload": 1, "deliverAt": moment})

    answer = await client.call("DELETE", f"/api/v1/scheduled/{result['scheduledId']}")

    assert answer.status == 200
    assert await client.pop(queue) == []


async def test_some_items_may_be_for_now_and_some_for_later(client, queue):
    results = await client.push(
        {"queue": queue, "payload": 1, "delaySeconds": 3600, "transactionId": "later"},
        {"queue": queue, "payload": 2},
        {"queue": queue, "payload": 1, "delaySeconds": 3600, "transactionId": "later"},
    )

    assert [each["status"] for each in results] == ["scheduled", "queued", "duplicate"]
    assert [each["index"] for each in results] == [0, 1, 2]


@pytest.mark.parametrize(
    "members",
    [
        {"delaySeconds": -1},
        {"delaySeconds": 1e12},
        {"delaySeconds": "soon"},
        {"deliverAt": "soon"},
        {"deliverAt": "2026-01-01T00:00:00Z", "delaySeconds": 1},
        {"deliverAt": "9999-01-01T00:00:00Z"},
        {"ttlSeconds": 0},
        {"ttlSeconds": -5},
        {"ttlSeconds": 1e15},
        {"ttlSeconds": "long"},
    ],
    ids=str,
)
async def test_times_that_make_no_sense_are_refused(client, queue, members):
    answer = await client.post("/api/v1/push", {"items": [{"queue": queue, **members}]})

    assert answer.status == 400
    assert next(iter(members)) in json.loads(answer.body)["error"] or "exclude" in str(answer.body)


async def test_a_payload_that_breaks_the_schema_fails_alone(client, queue):
    await client.configure(queue, jsonSchema=SCHEMA)

    results = await client.push(
        {"queue": queue, "payload": {"n": 1}},
        {"queue": queue, "payload": {"n": "one"}},
        {"queue": queue, "payload": {"n": 2}},
    )

    assert [each["status"] for each in results] == ["queued", "failed", "queued"]
    assert "n" in results[1]["error"]
    assert payloads(await client.pop(queue, batch=10)) == [{"n": 1}, {"n": 2}]


async def test_a_push_of_nothing_but_invalid_payloads_is_a_400(client, queue):
    await client.configure(queue, jsonSchema=SCHEMA)

    answer = await client.post("/api/v1/push", {"items": [{"queue": queue, "payload": []}]})

    assert answer.status == 400
    assert json.loads(answer.body)["code"] == "invalid_payload"


async def test_twins_of_an_invalid_payload_fail_with_it(client, queue):
    await client.configure(queue, jsonSchema=SCHEMA)
    item = {"queue": queue, "payload": [], "transactionId": "x"}

    answer = await client.post("/api/v1/push", {"items": [item, item]})

    assert answer.status == 400


async def test_a_scheduled_payload_is_checked_when_it_is_accepted(client, queue):
    await client.configure(queue, jsonSchema=SCHEMA)

    answer = await client.post(
        "/api/v1/push", {"items": [{"queue": queue, "payload": [], "delaySeconds": 60}]}
    )

    assert answer.status == 400


async def test_a_schema_set_by_one_worker_is_followed_by_all(open_client, queue):
    clients = [await open_client() for _ in range(8)]
    for client in clients:
        await client.push({"queue": queue, "payload": []})  # all workers know the queue by now
    await clients[0].configure(queue, jsonSchema=SCHEMA)

    statuses = [
        (await client.post("/api/v1/push", {"items": [{"queue": queue, "payload": []}]})).status
        for client in clients
    ]

    assert statuses == [400] * 8


async def test_an_encrypted_queue_stores_no_payload_in_clear(broker, open_client, queue):
    clients = [await open_client() for _ in range(8)]
    for client in clients:
        await client.push({"queue": queue, "payload": "before"})
    await clients[0].configure(queue, encryptionEnabled=True)

    for client in clients:
        await client.push({"queue": queue, "payload": "secret", "headers": {"a": 1}})
        await client.push_payloads(queue, "secret")

    stored = await stored_bodies(broker, queue)
    assert stored.count(b'{"enc":"first"') == 16
    assert b"secret" not in stored


async def configure_elsewhere(broker, queue, **columns):
    """Change options as another instance would, of which this one hears only when it pushes."""
    async with broker.sql() as sql:
        await sql.execute(
            "select skep.configure_queue($1, null, null, $2)", queue, json.dumps(columns)
        )


async def test_a_sealed_payload_is_judged_by_its_content_when_the_rules_change(
    broker, client, queue
):
    await client.configure(queue, encryptionEnabled=True, jsonSchema=SCHEMA)
    await client.push_payloads(queue, {"n": 1})
    await configure_elsewhere(broker, queue, lease_time_s=7)

    [result] = await client.push_payloads(queue, {"n": 2})

    assert result["status"] == "queued"
    assert payloads(await client.pop(queue, batch=2)) == [{"n": 1}, {"n": 2}]


async def test_a_payload_is_not_sealed_once_the_queue_wants_it_in_clear(broker, client, queue):
    await client.configure(queue, encryptionEnabled=True)
    await client.push_payloads(queue, "secret")
    await configure_elsewhere(broker, queue, encryption_enabled=False)

    await client.push_payloads(queue, "for all to see")

    assert b"for all to see" in await stored_bodies(broker, queue)


async def test_a_scheduled_message_of_an_encrypted_queue_waits_encrypted(broker, client, queue):
    await client.configure(queue, encryptionEnabled=True)

    await client.push({"queue": queue, "payload": "secret", "delaySeconds": 3600})

    async with broker.sql() as sql:
        [row] = await sql.fetch(
            "select envelope from skep.scheduled s join skep.queue q on q.id = s.queue_id "
            "where q.name = $1",
            queue,
        )
    assert b"secret" not in row["envelope"]


async def test_a_full_queue_answers_429_and_says_when_to_come_back(client, queue):
    await client.configure(queue, maxSize=3)
    await client.push_payloads(queue, 1, 2, 3)

    answer = await client.post("/api/v1/push", {"items": [{"queue": queue, "payload": 4}]})

    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= 1
    body = json.loads(answer.body)
    assert [body["code"], body["queueDepth"]] == ["queue_full", 3]


async def test_a_full_queue_does_not_fail_items_for_others(client, queue):
    await client.configure(queue, maxSize=1)
    await client.push_payloads(queue, 1)

    results = await client.push(
        {"queue": queue, "payload": 2}, {"queue": f"{queue}-roomy", "payload": 3}
    )

    assert [each["status"] for each in results] == ["failed", "queued"]


async def test_a_repeated_push_into_a_full_queue_is_still_a_duplicate(client, queue):
    await client.configure(queue, maxSize=1)
    item = {"queue": queue, "payload": 1, "transactionId": "x"}
    await client.push(item)

    [result] = await client.push(item)

    assert result["status"] == "duplicate"


async def test_a_queue_has_room_again_when_its_consumers_have_read(client, queue):
    await client.configure(queue, maxSize=1)
    await client.push_payloads(queue, 1)
    await client.pop(queue, autoAck=True)

    async def is_taken():
        answer = await client.post("/api/v1/push", {"items": [{"queue": queue, "payload": 2}]})
        return answer.status == 201

    assert await eventually(is_taken)


async def test_a_queue_may_drop_its_oldest_messages_instead(client, queue):
    await client.configure(queue, maxSize=2, overflow="drop_oldest")
    for number in range(6):
        await client.push_payloads(queue, number)

    async def has_dropped_some():
        answer = await client.call("GET", f"/api/v1/resources/queues/{queue}")
        return json.loads(answer.body)["totals"]["total"] < 6

    assert await eventually(has_dropped_some)
    assert payloads(await client.pop(queue, batch=10, autoAck=True))[-1] == 5


async def commit(client, *items):
    operations = [{"type": "push", "items": list(items)}]
    return await client.post("/api/v1/transaction", {"operations": operations})


async def test_a_transaction_pushes_by_the_rules_of_its_queues(broker, client, queue):
    await client.configure(queue, encryptionEnabled=True, jsonSchema=SCHEMA)

    good = await commit(client, {"queue": queue, "payload": {"n": 12345}, "headers": {"a": "b"}})
    bad = await commit(
        client, {"queue": queue, "payload": {"n": 2}}, {"queue": queue, "payload": {"n": "two"}}
    )

    assert json.loads(good.body)["success"] is True
    assert (bad.status, json.loads(bad.body)["code"]) == (400, "invalid_payload")
    stored = await stored_bodies(broker, queue)
    assert stored.count(b'{"enc":"first"') == 1
    assert b"12345" not in stored


async def test_a_transaction_does_not_push_into_a_full_queue(client, queue):
    await client.configure(queue, maxSize=1)
    await client.push_payloads(queue, 1)

    answer = await commit(client, {"queue": queue, "payload": 2})

    assert answer.status == 429


async def test_a_transaction_has_no_messages_for_later(client, queue):
    answer = await commit(client, {"queue": queue, "payload": 2, "delaySeconds": 5})

    assert answer.status == 400
    assert "push the message alone" in json.loads(answer.body)["error"]


async def test_a_letter_that_cannot_be_opened_does_not_hide_the_others(broker, client, queue):
    await client.configure(queue, encryptionEnabled=True, retryLimit=0)
    await client.push_payloads(queue, "readable", "unreadable")
    messages = await client.pop(queue, batch=2)
    await client.ack_batch(*(ack_item(message, "dlq") for message in messages))
    async with broker.sql() as sql:
        await sql.execute(
            """
            update skep.dead_letter d
            set envelope = replace(d.envelope::text, '"enc":"first"', '"enc":"lost"')::json
            from skep.queue q where q.id = d.queue_id and q.name = $1 and d.message_offset = 2
            """,
            queue,
        )

    answer = await client.call("GET", f"/api/v1/dlq?queue={queue}")

    letters = {letter["data"]: letter for letter in json.loads(answer.body)["messages"]}
    assert set(letters) == {"readable", None}
    assert "lost" in letters[None]["payloadError"]


async def test_a_stored_schema_that_cannot_be_used_lets_nothing_pass_unchecked(
    broker, client, queue
):
    await client.configure(queue, jsonSchema=SCHEMA)
    async with broker.sql() as sql:
        spoil = "update skep.queue set json_schema = $2, version = version + 1 where name = $1"
        await sql.execute(spoil, queue, '{"type":"bee"}')
    good, other = {"queue": queue, "payload": {"n": 1}}, {"queue": f"{queue}-2", "payload": 1}

    results = [await client.push(good, other) for _ in range(3)]

    assert [[each["status"] for each in pair] for pair in results] == [["failed", "queued"]] * 3
    assert "jsonSchema" in results[0][0]["error"]
