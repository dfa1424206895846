from datetime import timedelta

from tests.sql.support.log import NOON

STORED = "select skep.stored_at($1, $2)"


async def test_the_moment_is_that_of_the_segment_that_holds_the_offset(log):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, "x", "y")
    await log.advance(5)
    await log.push(partition, "z")

    moments = [await log.value(STORED, partition, offset) for offset in (1, 2, 3)]

    assert moments == [NOON, NOON, NOON + timedelta(seconds=5)]


async def test_a_partition_without_messages_has_no_moment(log):
    [partition] = await log.provision("hive", "a")

    assert await log.value(STORED, partition, 1) is None
