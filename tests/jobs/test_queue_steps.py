"""A step consumes from a queue in the transaction of its completion."""

from datetime import UTC, datetime

import msgspec
import pytest

from skep.db.access.foreign import NoTransaction
from skep.jobs import Ctx, JobTypes, Retry, consume
from skep.model.encryption import KeyRing
from skep.model.encryption_key import EncryptionKey
from skep.model.envelopes import build_envelope
from skep.model.errors import BadRequest, Refused
from tests.sql.support.log import Log

KEY = EncryptionKey("k1", bytes(range(32)))


class Order(msgspec.Struct):
    number: int


@pytest.fixture
def log(arun, sql):
    return Log(sql)


async def push(log, *envelopes, partition="a"):
    (partition_id,) = await log.provision("hive", partition)
    names = [f"{partition}{n}" for n, _ in enumerate(envelopes)]
    body = b"[%b]" % b",".join(envelopes)
    await log.push_bodies({partition_id: names}, {partition_id: body})


async def test_messages_are_gone_when_and_only_when_the_step_completes(client, start_worker, log):
    types = JobTypes("steps")

    @types.job("bill", retry=Retry(max_attempts=3, initial_s=0))
    async def bill(ctx: Ctx[None, list[int]]) -> list[int]:
        async with ctx.complete() as connection:
            messages = await consume(connection, "hive", group="billing", type=Order)
            numbers = [message.payload.number for message in messages]
            await connection.execute("insert into bill select unnest($1::integer[])", numbers)
            if ctx.attempt == 1:
                raise RuntimeError("the printer is on fire")
        return numbers

    await log.connection.execute("create table bill (number integer)")
    await push(log, *(build_envelope(f"t{n}", b'{"number":%d}' % n) for n in (1, 2)))
    await start_worker(types)

    chain = await client.start(bill, None)

    assert await chain.result(timeout=20) == [1, 2]
    assert [row[0] for row in await log.rows("select number from bill order by number")] == [1, 2]
    again = await client.start(bill, None)
    assert await again.result(timeout=20) == []


async def test_a_message_has_what_its_producer_gave_it(log):
    envelope = build_envelope("t1", b'{"number":7}', headers={"a": 1, "b": "x"})
    await push(log, envelope)

    async with log.connection.transaction():
        (message,) = await consume(log.connection, "hive", group="g")

    assert (message.transaction_id, message.partition, message.payload) == (
        "t1",
        "a",
        {"number": 7},
    )
    assert message.headers == {"a": 1, "b": "x"}
    assert message.delivery == 1


async def test_expired_and_deleted_messages_are_passed_over(log):
    expired = build_envelope("t1", b"1", expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    await push(log, expired, b"null", build_envelope("t3", b"3"))

    async with log.connection.transaction():
        messages = await consume(log.connection, "hive", group="g")

    assert [message.payload for message in messages] == [3]


async def test_an_encrypted_message_needs_a_key(log):
    ring = KeyRing([KEY])
    sealed = ring.seal_envelope(build_envelope("t1", b'"secret"'))
    await push(log, sealed)
    connection = log.connection

    with pytest.raises(Refused):
        async with connection.transaction():
            await consume(connection, "hive", group="g")
    async with connection.transaction():
        (message,) = await consume(connection, "hive", group="g", open_envelope=ring.open_envelope)

    assert message.payload == "secret"


async def test_a_payload_of_another_type_is_refused_and_stays(log):
    await push(log, build_envelope("t1", b'"seven"'))
    for _ in range(2):
        with pytest.raises(BadRequest):
            async with log.connection.transaction():
                await consume(log.connection, "hive", group="g", type=Order)


async def test_messages_are_only_taken_in_a_transaction(log):
    with pytest.raises(NoTransaction):
        await consume(log.connection, "hive", group="g")


@pytest.mark.parametrize("numbers", [{"limit": 0}, {"limit": 10_001}, {"partitions": 0}])
async def test_numbers_have_bounds(log, numbers):
    with pytest.raises(BadRequest):
        await consume(log.connection, "hive", group="g", **numbers)
