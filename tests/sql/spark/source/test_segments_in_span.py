from datetime import timedelta

import pytest

from tests.sql.support.spans import SpanReader, address


@pytest.fixture
def reader(log):
    return SpanReader(log)


async def test_a_span_brings_what_came_between_two_snapshots(log, reader):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    before = await reader.present()
    await log.push(partition, "c")
    after = await reader.present()
    await log.push(partition, "d")

    assert await reader.found(before, after) == [(partition, 3)]
    assert await reader.found(upto=before) == [(partition, 1)]
    assert await reader.found(after) == [(partition, 4)]


async def test_a_late_commit_belongs_to_the_span_in_which_it_became_visible(log, reader, open_log):
    partition, _ = await log.partition()
    [late] = await log.provision("hive", "late")
    slow = await open_log()
    transaction = slow.connection.transaction()
    await transaction.start()
    await slow.push(late, "written before everything else")
    await log.push(partition, "a")
    first = await reader.present()
    await log.push(partition, "b")
    second = await reader.present()

    await transaction.commit()
    third = await reader.present()

    assert await reader.found(upto=first) == [(partition, 1)]
    assert await reader.found(first, second) == [(partition, 2)]
    assert await reader.found(second, third) == [(late, 1)]
    assert await reader.found(first, third) == [(partition, 2), (late, 1)]


async def test_addresses_bound_a_span_behind_the_one_and_up_to_the_other(log, reader):
    low, _ = await log.partition()
    [high] = await log.provision("hive", "b")
    await log.push_writes({low: ["a"], high: ["b"]})
    await log.push(low, "c")
    first, second = await address(log, low, 1), await address(log, high, 1)

    assert await reader.found(after=first) == [(low, 2), (high, 1)]
    assert await reader.found(after=second) == [(low, 2)]
    assert await reader.found(through=first) == [(low, 1)]
    assert await reader.found(after=first, through=second) == [(high, 1)]


async def test_partitions_and_times_bound_a_span(log, reader):
    partition, _ = await log.partition()
    [other] = await log.provision("hive", "b")
    await log.push(partition, "a")
    await log.push(other, "b")
    await log.advance(10)
    await log.push(partition, "c")
    middle = log.now - timedelta(seconds=5)

    assert await reader.found(partition_id=[other]) == [(other, 1)]
    assert await reader.found(since=log.now) == [(partition, 2)]
    assert await reader.found(until=log.now) == [(partition, 1), (other, 1)]
    assert await reader.found(since=middle, until=middle) == []


async def test_other_queues_are_left_alone(log, reader):
    partition, _ = await log.partition()
    other, _ = await log.partition("other")
    await log.push(partition, "a")
    await log.push(other, "b")

    assert await reader.found() == [(partition, 1)]


async def test_it_reads_by_the_index_and_not_the_whole_log(log, reader):
    partition, _ = await log.partition()
    await log.execute(
        f"""
        insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
        select 1000000, n, n, {(await reader.queue_ids())[0]}, now(), '', '[]'
        from generate_series(1, 5000) n; analyze skep.segment
        """
    )
    before = await reader.present()
    await log.push(partition, "new")

    [queue_id] = await reader.queue_ids()

    plan = await log.rows(
        f"explain select first from skep.segments_in_span({queue_id}, null, '{before}',"
        f" '{await reader.present()}', null, null, null, null)"
    )

    assert any("segment__queue_xid" in line for (line,) in plan), plan
