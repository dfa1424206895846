import asyncio

import asyncpg
import pytest
import xxhash

from skep.model.ids import message_id
from tests.sql.support.enqueued import push, stored
from tests.sql.support.log import Poll


async def seed(log):
    return await log.value("select hash_seed from skep.installation")


async def test_the_ids_are_the_addresses_of_the_messages(log):
    [a] = await log.provision("hive", "a")

    ids = await push(log, ("hive", "a", "1", "x"), ("hive", "a", "2", None))

    assert list(map(str, ids)) == [message_id(a, 1), message_id(a, 2)]


async def test_the_key_is_the_one_that_brokers_look_for(log):
    await push(log, ("hive", "a", "1", "x"))

    keys = await log.value("select keys from skep.segment")
    assert keys == xxhash.xxh3_128_digest(b"x", await seed(log))


async def test_a_message_without_an_id_gets_one_and_its_key_belongs_to_it(log):
    await push(log, ("hive", "a", "1", None), ("hive", "a", "2", ""))

    names = [name for _, _, name in await stored(log)]
    keys = await log.value("select keys from skep.segment")
    expected = [xxhash.xxh3_128_digest(name.encode(), await seed(log)) for name in names]
    assert keys == b"".join(expected)
    assert len(set(names)) == 2


async def test_no_partition_is_the_default_one(log):
    await push(log, ("hive", None, "1", "x"), ("hive", "", "2", "y"))

    assert await stored(log) == [("Default", 1, "x"), ("Default", 2, "y")]


async def test_whitespace_around_a_payload_is_not_stored(log):
    await push(log, ("hive", "a", '\n {"b":  1, "a": 2}\t', "x"))

    assert await log.value("select payload::text from skep.message") == '{"b":  1, "a": 2}'


async def test_nothing_to_push_is_nothing_to_do(log):
    assert await log.value("select skep.push_messages('{}','{}','{}','{}','{}','{}','{}')") == []


async def test_a_group_that_had_read_all_gets_it(log):
    partition, group = await log.partition()
    await log.pop(group)
    queue, name = await log.row(
        "select q.name, p.name from skep.partition p join skep.queue q on q.id = p.queue_id"
        " where p.id = $1",
        partition,
    )

    await push(log, (queue, name, "1", "x"))

    assert [message.transaction_id for message in (await log.pop(group, Poll())).messages] == ["x"]


async def test_one_bad_message_refuses_all(log):
    with pytest.raises(asyncpg.PostgresError, match="needs a queue"):
        await push(log, ("hive", "a", "1", "x"), ("", "a", "1", "y"))

    assert await stored(log) == []


async def test_an_id_too_long_to_hash_is_refused_with_advice(log):
    with pytest.raises(asyncpg.PostgresError, match=r"skep\.stage"):
        await push(log, ("hive", "a", "1", "ü" * 121))


async def test_brokers_hear_of_the_queues_when_it_commits(log, open_log):
    [queue_id] = [await log.value("select skep.ensure_queue('hive')")]
    heard = asyncio.Queue()
    listening = await open_log()
    await listening.connection.add_listener("skep_pushed", lambda *said: heard.put_nowait(said[3]))
    async with log.connection.transaction():
        await push(log, ("hive", "a", "1", None), ("hive", "b", "1", None))
        await push(log, ("hive", "a", "1", None))

    async with asyncio.timeout(30):
        assert await heard.get() == str(queue_id)
    assert heard.empty()


async def test_a_rollback_leaves_nothing(log):
    transaction = log.connection.transaction()
    await transaction.start()
    await push(log, ("hive", "a", "1", "x"))
    await transaction.rollback()

    await push(log, ("hive", "a", "1", "y"))

    assert await stored(log) == [("a", 1, "y")]
