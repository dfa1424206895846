"""From a user's transaction through a running broker to a consumer."""

import json
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from skep import enqueue
from skep.enqueue import Message
from tests.sql.support.waiting import eventually
from tests.support.broker import payloads

WAIT_MS = 20_000


@pytest.fixture
def open_session(arun, broker):
    """Open sessions of an application with the broker's database."""
    sessions = []

    async def open_session():
        sessions.append(await asyncpg.connect(broker.database_url))
        return sessions[-1]

    async def close_all():
        for session in sessions:
            await session.close(timeout=5)

    yield open_session
    arun(close_all())


@pytest.fixture
def app(arun, open_session):
    """A session of an application with the broker's database."""
    return arun(open_session())


async def stage(session, queue, *numbers, **options):
    """Stage payloads in a transaction of their own."""
    async with session.transaction():
        for number in numbers:
            await enqueue.stage(session, queue, number, **options)


async def pop(client, queue, **parameters):
    options = {"batch": 100, "wait": True, "timeout": WAIT_MS, "autoAck": True, **parameters}
    return await client.pop(queue, **options)


async def receive(client, queue, count):
    """Return the payloads of so many messages, in the order of their delivery."""
    received = []
    while len(received) < count:
        received += payloads(await pop(client, queue))
    return received


async def dead_letters(client, queue):
    answer = await client.call("GET", f"/api/v1/dlq?queue={queue}")
    assert answer.status == 200, answer
    return json.loads(answer.body)["messages"]


async def until_rejected(client, queue, count=1):
    async def look():
        letters = await dead_letters(client, queue)
        return letters if len(letters) >= count else None

    return await eventually(look)


async def test_a_parked_poll_gets_what_a_transaction_staged_when_it_commits(client, app, queue):
    client.send_poll(queue, batch=10, wait=True, timeout=WAIT_MS)
    await stage(app, queue, {"n": 1}, {"n": 2}, headers={"h": "x"})

    messages = await client.popped()

    assert payloads(messages) == [{"n": 1}, {"n": 2}]
    assert [message["headers"] for message in messages] == [{"h": "x"}] * 2


async def test_a_parked_poll_gets_what_sql_pushed_when_it_commits(client, app, queue):
    client.send_poll(queue, batch=10, wait=True, timeout=WAIT_MS)
    async with app.transaction():
        message_id = await enqueue.push(app, queue, {"n": 1})

    [message] = await client.popped()

    assert (message["id"], message["data"]) == (message_id, {"n": 1})


async def test_what_was_rolled_back_is_never_seen(client, app, queue):
    transaction = app.transaction()
    await transaction.start()
    await enqueue.stage(app, queue, "undone")
    await transaction.rollback()
    await stage(app, queue, "done")

    assert await receive(client, queue, 1) == ["done"]


async def test_a_savepoint_that_was_rolled_back_takes_only_its_own(client, app, queue):
    async with app.transaction():
        savepoint = app.transaction()
        await savepoint.start()
        await enqueue.stage(app, queue, "undone")
        await savepoint.rollback()
        await enqueue.stage(app, queue, "done")

    assert await receive(client, queue, 1) == ["done"]


async def test_an_open_transaction_delays_nobody_and_its_messages_come_when_it_commits(
    client, open_session, queue
):
    patient, quick = await open_session(), await open_session()
    waiting = patient.transaction()
    await waiting.start()
    await enqueue.stage(patient, queue, "patient")
    for number in range(3):
        await stage(quick, queue, number)
        assert await receive(client, queue, 1) == [number]

    await waiting.commit()

    assert await receive(client, queue, 1) == ["patient"]


async def test_a_commit_that_comes_after_later_numbers_were_moved_is_not_skipped(
    client, open_session, queue
):
    late, other = await open_session(), await open_session()
    waiting = late.transaction()
    await waiting.start()
    await enqueue.stage(late, queue, "late")
    await late.execute("set constraints all immediate")  # it has drawn its number now
    await stage(other, queue, "other")
    assert await receive(client, queue, 1) == ["other"]

    await waiting.commit()

    assert await receive(client, queue, 1) == ["late"]


async def test_transactions_arrive_in_the_order_in_which_they_committed(
    client, open_session, queue
):
    first, second = await open_session(), await open_session()
    begun_first = first.transaction()
    await begun_first.start()
    await enqueue.stage_many(first, [Message(queue=queue, payload=n) for n in (3, 4)])
    await stage(second, queue, 1, 2)
    await begun_first.commit()
    await stage(second, queue, 5)

    assert await receive(client, queue, 5) == [1, 2, 3, 4, 5]


async def test_who_notifies_nobody_is_found_all_the_same(client, app, queue):
    await app.execute("set skep.stage_notify = off")
    await stage(app, queue, "quiet")

    assert await receive(client, queue, 1) == ["quiet"]


async def test_more_than_one_call_carries_arrive_in_order(client, app, queue):
    async with app.transaction():
        await enqueue.stage_many(app, [Message(queue=queue, payload=n) for n in range(2500)])

    assert await receive(client, queue, 2500) == list(range(2500))


@pytest.mark.parametrize("way", ["stage", "push"])
async def test_an_id_pushed_over_http_is_known_to_sql(client, app, queue, way):
    await client.push({"queue": queue, "payload": "http", "transactionId": "same"})
    async with app.transaction():
        await getattr(enqueue, way)(app, queue, "sql", transaction_id="same")
        await enqueue.stage(app, queue, "end")

    assert await receive(client, queue, 2) == ["http", "end"]


@pytest.mark.parametrize("way", ["stage", "push"])
async def test_an_id_enqueued_by_sql_is_known_to_http(client, app, queue, way):
    async with app.transaction():
        await getattr(enqueue, way)(app, queue, "sql", transaction_id="same")
    assert await receive(client, queue, 1) == ["sql"]

    [result] = await client.push({"queue": queue, "payload": "http", "transactionId": "same"})

    assert result["status"] == "duplicate"


async def test_an_id_staged_twice_arrives_once(client, app, queue):
    await stage(app, queue, 1, 2, transaction_id="same")
    await stage(app, queue, 3, transaction_id="same")
    await stage(app, queue, 4)

    assert await receive(client, queue, 2) == [1, 4]


async def test_what_sql_enqueued_is_acknowledged_by_its_transaction_id(client, app, queue):
    async with app.transaction():
        await enqueue.push(app, queue, 1, transaction_id="by push")
        await enqueue.stage(app, queue, 2, transaction_id="by stage", partition="other")
    messages = []
    while len(messages) < 2:
        messages += await client.pop(queue, batch=10, wait=True, timeout=WAIT_MS)

    for message in messages:
        assert (await client.ack(message))["success"] is True


async def test_a_message_for_later_waits_for_its_time(client, app, queue):
    deliver_at = datetime.now(UTC) + timedelta(hours=1)
    await stage(app, queue, "later", deliver_at=deliver_at, transaction_id="later")
    await stage(app, queue, "past", deliver_at=datetime.now(UTC) - timedelta(hours=1))

    assert await receive(client, queue, 1) == ["past"]
    answer = await client.call("GET", f"/api/v1/scheduled?queue={queue}")
    [waiting] = json.loads(answer.body)["messages"]
    assert waiting["transactionId"] == "later"
    assert datetime.fromisoformat(waiting["deliverAt"]) - deliver_at < timedelta(milliseconds=1)


async def test_a_message_whose_life_is_over_is_not_delivered(client, app, queue):
    await stage(app, queue, "short", ttl_s=0.001)
    await stage(app, queue, "long", ttl_s=3600)

    assert await receive(client, queue, 1) == ["long"]


async def test_a_payload_against_the_schema_becomes_a_dead_letter_with_the_reason(
    client, app, queue
):
    await client.configure(queue, jsonSchema={"type": "object", "required": ["id"]})
    await stage(app, queue, {"id": 1}, {"no": 1}, {"id": 2}, headers={"h": 1})

    assert await receive(client, queue, 2) == [{"id": 1}, {"id": 2}]
    [letter] = await until_rejected(client, queue)
    assert letter["data"] == {"no": 1}
    assert letter["headers"] == {"h": 1}
    assert letter["queue"] == queue
    assert "id" in letter["errorMessage"]
    counted = await client.call("GET", f"/api/v1/resources/queues/{queue}")
    assert counted.status == 200


async def test_a_rejected_message_can_be_redriven_when_the_reason_is_gone(client, app, queue):
    await client.configure(queue, jsonSchema={"type": "string"})
    await stage(app, queue, 7)
    [letter] = await until_rejected(client, queue)
    await client.configure(queue, jsonSchema=None)

    answer = await client.post(f"/api/v1/dlq/{letter['dlqId']}/replay", {})

    assert answer.status < 300, answer
    assert await receive(client, queue, 1) == [7]


async def test_a_rejected_message_may_be_staged_again_under_its_id(client, app, queue):
    await client.configure(queue, jsonSchema={"type": "string"})
    await stage(app, queue, 7, transaction_id="same")
    await until_rejected(client, queue)

    await stage(app, queue, "seven", transaction_id="same")

    assert await receive(client, queue, 1) == ["seven"]


async def test_what_a_full_queue_does_not_take_becomes_dead_letters(client, app, queue):
    await client.configure(queue, maxSize=2)
    await stage(app, queue, 1, 2)
    await receive_without_ack(client, queue)

    await stage(app, queue, 3)

    [letter] = await until_rejected(client, queue)
    assert (letter["data"], letter["errorMessage"]) == (3, f"queue {queue} is full")


async def receive_without_ack(client, queue):
    assert await client.pop(queue, wait=True, timeout=WAIT_MS)


async def test_rejected_messages_stop_no_consumer(client, app, queue):
    await client.configure(queue, jsonSchema={"type": "string"})
    await stage(app, queue, "a", 1, "b")
    await until_rejected(client, queue)
    await stage(app, queue, 2, 3)
    await until_rejected(client, queue, 3)
    await stage(app, queue, "c", 4)

    assert await receive(client, queue, 3) == ["a", "b", "c"]
    late = await pop(client, queue, consumerGroup="late", subscriptionMode="all")
    assert payloads(late) == ["a", "b", "c"]


async def test_a_queue_configured_meanwhile_is_followed(client, app, queue):
    await stage(app, queue, 1)
    assert await receive(client, queue, 1) == [1]
    await client.configure(queue, jsonSchema={"type": "string"})

    await stage(app, queue, 2)

    [letter] = await until_rejected(client, queue)
    assert letter["data"] == 2


async def test_a_queue_deleted_meanwhile_is_created_again(client, app, queue):
    await stage(app, queue, 1)
    assert await receive(client, queue, 1) == [1]
    answer = await client.call("DELETE", f"/api/v1/resources/queues/{queue}")
    assert answer.status < 300, answer

    await stage(app, queue, 2)

    assert await receive(client, queue, 1) == [2]


async def test_without_a_window_nothing_that_sql_enqueues_is_a_duplicate(client, app, queue):
    await client.configure(queue, dedupWindowSeconds=0)
    later = datetime.now(UTC) + timedelta(milliseconds=300)
    async with app.transaction():
        ids = await enqueue.push_many(
            app, [Message(queue=queue, payload=n, transaction_id="t") for n in (1, 2)]
        )
    await stage(app, queue, 3, 4, transaction_id="t")
    assert await receive(client, queue, 4) == [1, 2, 3, 4]
    await stage(app, queue, 5, 6, transaction_id="t", deliver_at=later)

    assert len(set(ids)) == 2
    assert await receive(client, queue, 2) == [5, 6]
