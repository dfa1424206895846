from tests.sql.support.log import QUEUE_MODE, key_of


async def find(log, partition, *, group=QUEUE_MODE, offset=None, name=""):
    return await log.value(
        "select skep.done_source($1, $2, $3, $4)", partition, group, offset, key_of(name)
    )


async def done_to_second(log):
    partition, _ = await log.partition()
    await log.push(partition, *"abc")
    await log.execute("update skep.cursor set acked = 2 where partition_id = $1", partition)
    return partition


async def test_the_queue_of_a_message_that_is_done_is_told_by_offset_and_by_name(log):
    partition = await done_to_second(log)

    found = [await find(log, partition, offset=offset) for offset in (1, 2, 3)]
    named = [await find(log, partition, name=name) for name in "abc"]

    assert found == named == ["hive", "hive", None]


async def test_a_message_that_another_group_is_done_with_is_not_done(log):
    partition = await done_to_second(log)

    assert await find(log, partition, group="others", offset=1) is None
