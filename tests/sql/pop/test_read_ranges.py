import json

import pytest


@pytest.fixture
def partitions(arun, log):
    """Two partitions: 1 to 3, 4 to 5, 6 in the first, 1 in the second."""

    async def fill():
        a, b = await log.provision("hive", "a", "b")
        for names in ("123", "45", "6"):
            await log.push(a, *names)
        await log.push(b, "1")
        return a, b

    return arun(fill())


async def read(log, *ranges, limit=100):
    query = "select * from skep.read_ranges($1, $2, $3, $4)"
    columns = [list(column) for column in zip(*ranges, strict=True)] or [[], [], []]
    rows = await log.rows(query, *columns, limit)
    return [(row["item"], row["first"], row["last"]) for row in rows]


async def test_the_segments_of_each_range_come_in_order(log, partitions):
    a, b = partitions

    assert await read(log, (b, 1, 1), (a, 1, 6)) == [(1, 1, 1), (2, 1, 3), (2, 4, 5), (2, 6, 6)]


async def test_a_range_that_begins_or_ends_inside_a_segment_brings_that_segment(log, partitions):
    a, _ = partitions

    assert await read(log, (a, 3, 4)) == [(1, 1, 3), (1, 4, 5)]
    assert await read(log, (a, 5, 5)) == [(1, 4, 5)]


async def test_the_number_of_segments_is_bounded(log, partitions):
    a, b = partitions

    assert await read(log, (a, 1, 6), (b, 1, 1), limit=2) == [(1, 1, 3), (1, 4, 5)]


async def test_what_retention_took_is_passed_over(log, partitions):
    a, _ = partitions
    await log.execute("delete from skep.segment where partition_id = $1 and first < 4", a)

    assert await read(log, (a, 2, 6)) == [(1, 4, 5), (1, 6, 6)]
    await log.execute("delete from skep.segment where partition_id = $1 and first = 6", a)
    assert await read(log, (a, 6, 6)) == []


async def test_nothing_asked_is_nothing_read(log, partitions):
    assert await read(log) == []


async def test_the_messages_come_as_they_are_stored(log, partitions):
    a, _ = partitions
    query = "select body, created_at from skep.read_ranges(array[$1::bigint], '{1}', '{1}', 1)"

    row = await log.row(query, a)

    assert [each["transactionId"] for each in json.loads(row["body"])] == ["1", "2", "3"]
    assert row["created_at"] == log.now
