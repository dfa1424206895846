"""The Python calls that enqueue: what they write, and that it belongs to the transaction."""

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import msgspec
import psycopg
import pytest

from skep import enqueue
from skep.enqueue import Message
from skep.model.errors import BadRequest, Refused
from tests.enqueue.support.drivers import ASYNC, SYNC

TRACE = "0198c0de-0000-7000-8000-000000000001"


class Abandoned(Exception):
    """Raised to roll a transaction back."""


@pytest.mark.parametrize("driver", ASYNC)
async def test_what_is_staged_asynchronously_is_there_after_the_commit(
    enqueue_url, queue, staged, driver
):
    async with ASYNC[driver](enqueue_url) as connection:
        name = await enqueue.stage(connection, queue, {"n": 1}, partition="a")
        assert await staged() == []

    [row] = await staged()
    assert (row["transaction_id"], row["partition"], row["payload"]) == (name, "a", '{"n":1}')


@pytest.mark.parametrize("driver", SYNC)
def test_what_is_staged_synchronously_is_there_after_the_commit(
    arun, enqueue_url, queue, staged, driver
):
    with SYNC[driver](enqueue_url) as connection:
        name = enqueue.stage_sync(connection, queue, {"n": 1}, partition="a")

    [row] = arun(staged())
    assert (row["transaction_id"], row["partition"], row["payload"]) == (name, "a", '{"n":1}')


@pytest.mark.parametrize("driver", ASYNC)
async def test_what_is_pushed_asynchronously_is_there_after_the_commit(
    enqueue_url, queue, stored, driver
):
    async with ASYNC[driver](enqueue_url) as connection:
        message_id = await enqueue.push(connection, queue, {"n": 1}, transaction_id="x")
        assert await stored() == []

    [row] = await stored()
    assert (row["transaction_id"], row["payload"]) == ("x", '{"n":1}')
    assert UUID(message_id).version == 8


@pytest.mark.parametrize("driver", SYNC)
def test_what_is_pushed_synchronously_is_there_after_the_commit(
    arun, enqueue_url, queue, stored, driver
):
    with SYNC[driver](enqueue_url) as connection:
        enqueue.push_sync(connection, queue, {"n": 1}, transaction_id="x")

    [row] = arun(stored())
    assert (row["transaction_id"], row["payload"]) == ("x", '{"n":1}')


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_rollback_takes_everything_back(enqueue_url, queue, staged, stored, driver):
    async def enqueue_and_give_up():
        async with ASYNC[driver](enqueue_url) as connection:
            await enqueue.stage(connection, queue, 1)
            await enqueue.push(connection, queue, 2)
            raise Abandoned

    with pytest.raises(Abandoned):
        await enqueue_and_give_up()

    assert await staged() == []
    assert await stored() == []


@pytest.mark.parametrize("driver", SYNC)
def test_a_synchronous_rollback_takes_everything_back(
    arun, enqueue_url, queue, staged, stored, driver
):
    def enqueue_and_give_up():
        with SYNC[driver](enqueue_url) as connection:
            enqueue.stage_sync(connection, queue, 1)
            enqueue.push_sync(connection, queue, 2)
            raise Abandoned

    with pytest.raises(Abandoned):
        enqueue_and_give_up()

    assert arun(staged()) == []
    assert arun(stored()) == []


def full_message(queue):
    return Message(
        queue=queue,
        partition="p",
        payload=["ü", None],
        transaction_id="named",
        headers={"data": "x", "n": 1.5, "b": True, "nothing": None},
        trace_id=UUID(TRACE),
        ttl_s=60,
        deliver_at=datetime.now(timezone(timedelta(hours=2))) + timedelta(hours=1),
    )


@pytest.mark.parametrize("driver", ASYNC)
async def test_every_option_arrives_asynchronously(enqueue_url, queue, staged, driver):
    message = full_message(queue)
    async with ASYNC[driver](enqueue_url) as connection:
        names = await enqueue.stage_many(connection, [message, Message(queue=queue, payload=2)])

    first, second = await staged()
    require_full(first, message)
    assert names == ["named", second["transaction_id"]]
    assert (second["partition"], second["headers"], second["ttl_s"]) == ("Default", None, None)


@pytest.mark.parametrize("driver", SYNC)
def test_every_option_arrives_synchronously(arun, enqueue_url, queue, staged, driver):
    message = full_message(queue)
    with SYNC[driver](enqueue_url) as connection:
        enqueue.stage_many_sync(connection, [message])

    [row] = arun(staged())
    require_full(row, message)


def require_full(row, message):
    assert (row["partition"], row["payload"], row["ttl_s"]) == ("p", '["ü",null]', 60)
    assert json.loads(row["headers"]) == message.headers
    assert row["trace_id"] == message.trace_id
    assert row["deliver_at"] == message.deliver_at.astimezone(UTC)


async def test_many_are_pushed_in_order_and_repeated_ones_once(enqueue_url, queue, stored):
    messages = [
        Message(queue=queue, payload=number, transaction_id=f"t{number % 3}") for number in range(5)
    ]
    async with ASYNC["asyncpg"](enqueue_url) as connection:
        ids = await enqueue.push_many(connection, messages)

    assert [row["payload"] for row in await stored()] == ["0", "1", "2"]
    assert ids[3:] == ids[:2]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_no_messages_are_no_work(enqueue_url, driver):
    async with ASYNC[driver](enqueue_url) as connection:
        assert await enqueue.stage_many(connection, []) == []
        assert await enqueue.push_many(connection, []) == []


def test_many_are_pushed_synchronously(arun, enqueue_url, queue, stored):
    with SYNC["psycopg"](enqueue_url) as connection:
        enqueue.push_many_sync(connection, [Message(queue=queue, payload=n) for n in range(3)])

    assert [row["payload"] for row in arun(stored())] == ["0", "1", "2"]


async def test_a_raw_payload_is_written_as_it_is(enqueue_url, queue, staged):
    payload = msgspec.Raw(b'{"b": 1,  "a": "\\u0000"}')
    async with ASYNC["asyncpg"](enqueue_url) as connection:
        await enqueue.stage(connection, queue, payload)

    [row] = await staged()
    assert row["payload"] == '{"b": 1,  "a": "\\u0000"}'


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition": "x" * 256}, "partition is longer"),
        ({"partition": "a\0b"}, "NUL"),
        ({"transaction_id": "x" * 256}, "transactionId is longer"),
        ({"transaction_id": "a\0b"}, "NUL"),
        ({"headers": {str(number): 1 for number in range(65)}}, "64 headers"),
        ({"trace_id": "no"}, "UUID"),
        ({"deliver_at": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"deliver_at": datetime(2126, 1, 1, tzinfo=UTC)}, "a year ahead"),
        ({"ttl_s": 0}, "ttl_s"),
    ],
)
async def test_a_message_that_cannot_be_stored_is_refused(enqueue_url, queue, options, words):
    async def stage():
        async with ASYNC["asyncpg"](enqueue_url) as connection:
            await enqueue.stage(connection, queue, 1, **options)

    with pytest.raises(BadRequest, match=words):
        await stage()


@pytest.mark.parametrize("payload", [object(), msgspec.Raw(b"\xff")])
async def test_a_payload_that_is_no_json_is_refused(enqueue_url, queue, payload):
    async with ASYNC["asyncpg"](enqueue_url) as connection:
        with pytest.raises(BadRequest, match="JSON"):
            await enqueue.stage(connection, queue, payload)


def test_a_message_for_later_cannot_be_pushed(enqueue_url, queue):
    later = Message(queue=queue, payload=1, deliver_at=datetime.now(UTC))
    with SYNC["psycopg"](enqueue_url) as connection, pytest.raises(BadRequest, match="stage it"):
        enqueue.push_many_sync(connection, [later])


async def test_a_queue_with_rules_takes_nothing_that_is_pushed_by_sql(enqueue_url, sql, queue):
    await sql.execute("select skep.ensure_queue($1)", queue)
    await sql.execute("update skep.queue set max_size = 5 where name = $1", queue)

    async def push():
        async with ASYNC["asyncpg"](enqueue_url) as connection:
            await enqueue.push(connection, queue, 1)

    with pytest.raises(Refused, match=r"use skep\.stage"):
        await push()


def test_a_role_needs_only_usage_of_the_schema(arun, enqueue_url, sql, queue, staged, stored):
    role = f"app_{queue.replace('-', '_')}"
    arun(sql.execute(f"create role {role}; grant usage on schema skep to {role}"))
    with psycopg.connect(enqueue_url) as connection:
        connection.execute(f"set role {role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute("select * from skep.staged")
        enqueue.stage_sync(connection, queue, 1)
        enqueue.push_sync(connection, queue, 2)

    assert len(arun(staged())) == len(arun(stored())) == 1
    arun(sql.execute(f"drop owned by {role}; drop role {role}"))
