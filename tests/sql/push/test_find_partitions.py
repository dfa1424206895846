import asyncpg
import pytest


async def find(log, *pairs):
    queues, partitions = zip(*pairs, strict=True)
    return await log.value("select skep.find_partitions($1, $2)", list(queues), list(partitions))


async def test_partitions_that_exist_are_found_in_the_order_asked(log):
    a, b = await log.provision("hive", "a", "b")

    assert await find(log, ("hive", "b"), ("hive", "a"), ("hive", "b")) == [b, a, b]


async def test_partitions_that_do_not_exist_are_created(log):
    [a] = await log.provision("hive", "a")

    found = await find(log, ("hive", "new"), ("hive", "a"), ("nest", "a"), ("hive", "new"))

    assert found[1] == a
    assert found[0] == found[3]
    assert len(set(found)) == 3


async def test_finding_does_not_keep_the_queue_from_being_configured(log, open_log):
    await log.provision("hive", "a")
    other = await open_log(lock_timeout="1s")
    async with log.connection.transaction():
        await find(log, ("hive", "a"))

        await other.execute("select 1 from skep.queue where name = 'hive' for update")


async def test_a_snapshot_too_old_to_see_a_partition_cannot_create_it_again(log, open_log):
    other = await open_log()
    transaction = log.connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await log.value("select 1 from skep.queue limit 1")
    await other.provision("hive", "a")

    with pytest.raises(asyncpg.SerializationError):
        await find(log, ("hive", "a"))
    await transaction.rollback()
