from tests.sql.support.trace_log import Trace


async def partition_of(log, *names):
    [partition] = await log.provision("hive", "a")
    await log.push(partition, *names)
    return partition


async def test_the_traces_of_a_message_come_oldest_first_in_pages(log, traces):
    partition = await partition_of(log, "a", "b")
    recorded = [await traces.record(partition, "a") for _ in range(5)]
    await traces.record(partition, "b")

    def ids(page: list[Trace]):
        return [trace.id for trace in page]

    assert ids(await traces.of_message(partition, "a")) == recorded
    assert ids(await traces.of_message(partition, "a", limit=2)) == recorded[:2]
    assert ids(await traces.of_message(partition, "a", limit=2, skip=4)) == recorded[4:]
    assert ids(await traces.of_message(partition, "a", skip=5)) == []


async def test_an_offset_means_that_message_alone(log, traces):
    partition = await partition_of(log, "x")
    await log.advance(2 * 3600)
    await log.push(partition, "x")
    first = await traces.record(partition, "", offset=1)
    second = await traces.record(partition, "", offset=2)

    assert [trace.id for trace in await traces.of_message(partition, offset=2)] == [second]
    assert [trace.id for trace in await traces.of_message(partition, "x")] == [first, second]
    assert await traces.of_message(partition, offset=3) == []


async def test_traces_are_shown_when_the_log_has_forgotten_the_message(log, traces):
    partition = await partition_of(log, "a")
    recorded = await traces.record(partition, "a")
    await log.execute("delete from skep.segment")

    assert [trace.id for trace in await traces.of_message(partition, "a")] == [recorded]


async def test_other_partitions_are_left_out(log, traces):
    partition = await partition_of(log, "a")
    await traces.record(partition, "a")
    [other] = await log.provision("hive", "other")

    assert await traces.of_message(other, "a") == []
