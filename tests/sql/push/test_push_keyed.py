import asyncio

import asyncpg
import pytest

from tests.sql.support.enqueued import stored
from tests.sql.support.log import envelope, key_of
from tests.sql.support.waiting import eventually


async def push(log, *items):
    """Push (partition, name) pairs; names that begin with `new` were just made."""
    return await log.value(
        "select skep.push_keyed($1, $2, $3, $4)",
        [partition for partition, _ in items],
        [key_of(name) for _, name in items],
        [name.startswith("new") for _, name in items],
        [envelope(name).encode() for _, name in items],
    )


async def test_messages_keep_their_order_in_their_partitions(log):
    a, b = await log.provision("hive", "a", "b")

    offsets = await push(log, (b, "one"), (a, "two"), (b, "three"), (b, "new four"))

    assert offsets == [1, 1, 2, 3]
    assert await stored(log) == [
        ("a", 1, "two"),
        ("b", 1, "one"),
        ("b", 2, "three"),
        ("b", 3, "new four"),
    ]


async def test_what_is_stored_already_is_told_and_not_repeated(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push(a, "x", "y")

    assert await push(log, (a, "z"), (a, "y"), (b, "y")) == [3, 2, 1]
    assert [name for _, _, name in await stored(log)] == ["x", "y", "z", "y"]


async def test_the_same_key_twice_in_a_call_is_stored_once(log):
    [a] = await log.provision("hive", "a")

    assert await push(log, (a, "x"), (a, "y"), (a, "x")) == [1, 2, 1]


async def test_many_keys_are_looked_for_one_by_one(log):
    [a] = await log.provision("hive", "a")
    await log.push(a, "n7", "n20")
    names = [f"n{number}" for number in range(30)]

    offsets = await push(log, *((a, name) for name in names))

    assert offsets[7] == 1
    assert offsets[20] == 2
    assert sorted(offsets) == list(range(1, 31))


async def test_a_partition_that_is_gone_is_an_error(log):
    with pytest.raises(asyncpg.SerializationError, match="deleted meanwhile"):
        await push(log, (999_999, "x"))


async def test_a_second_push_of_an_id_waits_for_the_first_and_finds_it(log, open_log):
    [a] = await log.provision("hive", "a")
    other = await open_log()
    transaction = log.connection.transaction()
    await transaction.start()
    await push(log, (a, "x"))
    second = asyncio.ensure_future(push(other, (a, "x")))
    watcher = await open_log()
    await eventually(
        lambda: watcher.value(
            "select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock'"
            " and datname = current_database()"
        )
    )
    await transaction.commit()

    assert await second == [1]
    assert await stored(log) == [("a", 1, "x")]


async def test_partitions_are_locked_in_ascending_order_whatever_the_order_of_the_messages(
    log, open_log
):
    a, b = await log.provision("hive", "a", "b")
    others = [await open_log() for _ in range(4)]

    async def push_often(session, number):
        partitions = [(a, b), (b, a)][number % 2]
        for turn in range(20):
            await push(session, *((partition, f"new {number} {turn}") for partition in partitions))

    await asyncio.gather(*(push_often(each, number) for number, each in enumerate(others)))

    assert len(await stored(log)) == 4 * 20 * 2


async def test_without_a_window_every_message_is_stored(log):
    a, b = await log.provision("hive", "a", "b")
    await log.configure("hive", dedup_window_s=0)

    assert await push(log, (a, "x"), (b, "x"), (a, "x"), (a, "y")) == [1, 1, 2, 3]
    assert await push(log, (a, "x")) == [4]
