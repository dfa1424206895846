from datetime import timedelta

import pytest

from tests.sql.support.spans import SpanReader, address


@pytest.fixture
def reader(log):
    return SpanReader(log)


async def test_a_span_brings_what_came_between_two_snapshots(log, reader):
    lane, _ = await log.lane()
    await log.push(lane, "a", "b")
    before = await reader.present()
    await log.push(lane, "c")
    after = await reader.present()
    await log.push(lane, "d")

    assert await reader.found(before, after) == [(lane, 3)]
    assert await reader.found(upto=before) == [(lane, 1)]
    assert await reader.found(after) == [(lane, 4)]


async def test_a_late_commit_belongs_to_the_span_in_which_it_became_visible(log, reader, open_log):
    lane, _ = await log.lane()
    [late] = await log.provision("hive", "late")
    slow = await open_log()
    transaction = slow.connection.transaction()
    await transaction.start()
    await slow.push(late, "written before everything else")
    await log.push(lane, "a")
    first = await reader.present()
    await log.push(lane, "b")
    second = await reader.present()

    await transaction.commit()
    third = await reader.present()

    assert await reader.found(upto=first) == [(lane, 1)]
    assert await reader.found(first, second) == [(lane, 2)]
    assert await reader.found(second, third) == [(late, 1)]
    assert await reader.found(first, third) == [(lane, 2), (late, 1)]


async def test_addresses_bound_a_span_behind_the_one_and_up_to_the_other(log, reader):
    low, _ = await log.lane()
    [high] = await log.provision("hive", "b")
    await log.push_lots({low: ["a"], high: ["b"]})
    await log.push(low, "c")
    first, second = await address(log, low, 1), await address(log, high, 1)

    assert await reader.found(after=first) == [(low, 2), (high, 1)]
    assert await reader.found(after=second) == [(low, 2)]
    assert await reader.found(through=first) == [(low, 1)]
    assert await reader.found(after=first, through=second) == [(high, 1)]


async def test_lanes_and_times_bound_a_span(log, reader):
    lane, _ = await log.lane()
    [other] = await log.provision("hive", "b")
    await log.push(lane, "a")
    await log.push(other, "b")
    await log.advance(10)
    await log.push(lane, "c")
    middle = log.now - timedelta(seconds=5)

    assert await reader.found(partition_id=[other]) == [(other, 1)]
    assert await reader.found(since=log.now) == [(lane, 2)]
    assert await reader.found(until=log.now) == [(lane, 1), (other, 1)]
    assert await reader.found(since=middle, until=middle) == []


async def test_other_queues_are_left_alone(log, reader):
    lane, _ = await log.lane()
    other, _ = await log.lane("other")
    await log.push(lane, "a")
    await log.push(other, "b")

    assert await reader.found() == [(lane, 1)]


async def test_it_reads_by_the_index_and_not_the_whole_log(log, reader):
    lane, _ = await log.lane()
    await log.execute(
        f"""
        insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
        select 1000000, n, n, {(await reader.queue_ids())[0]}, now(), '', '[]'
        from generate_series(1, 5000) n; analyze skep.segment
        """
    )
    before = await reader.present()
    await log.push(lane, "new")

    [queue_id] = await reader.queue_ids()

    plan = await log.rows(
        f"explain select first from skep.segments_in_span({queue_id}, null, '{before}',"
        f" '{await reader.present()}', null, null, null, null)"
    )

    assert any("segment__queue_xid" in line for (line,) in plan), plan
