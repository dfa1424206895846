from datetime import timedelta

from tests.sql.support.log import NOON, keys_of

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def read_keys(log, *partitions, segments_max=100):
    rows = await log.rows("select * from skep.read_keys($1, $2)", list(partitions), segments_max)
    return [tuple(row) for row in rows]


async def push_every_minute(log, partition, *writes):
    for names in writes:
        await log.push(partition, *names)
        await log.advance(60)


async def test_a_partition_is_told_with_its_head_and_then_segment_by_segment_from_the_newest(log):
    partition, _ = await log.partition()
    await push_every_minute(log, partition, "ab", "c")

    start = log.now - HOUR
    assert await read_keys(log, partition) == [
        (partition, 3, start, None, None, None),
        (partition, 3, start, 3, NOON + MINUTE, keys_of("c")),
        (partition, 3, start, 1, NOON, keys_of("ab")),
    ]


async def test_segments_outside_the_window_are_left_out(log):
    partition, _ = await log.partition()
    await push_every_minute(log, partition, "a", "b", "c")
    await log.set_clock(NOON + HOUR + MINUTE)

    rows = await read_keys(log, partition)

    assert [first for _, _, _, first, _, _ in rows] == [None, 3]


async def test_no_more_segments_than_wanted_are_read(log):
    partition, _ = await log.partition()
    await push_every_minute(log, partition, "a", "b", "c")

    rows = await read_keys(log, partition, segments_max=2)

    assert [first for _, _, _, first, _, _ in rows] == [None, 3, 2]


async def test_the_rows_of_each_partition_follow_its_own_head(log):
    a, b, c = await log.provision("hive", "a", "b", "c")
    await push_every_minute(log, a, "x", "y")
    await push_every_minute(log, c, "z")

    rows = await read_keys(log, c, b, a)

    told = [(partition, first) for partition, _, _, first, _, _ in rows]
    assert sorted(told, key=lambda pair: pair[0]) == [
        (a, None), (a, 2), (a, 1), (b, None), (c, None), (c, 1)
    ]  # fmt: skip


async def test_a_partition_that_does_not_exist_gets_no_row(log):
    assert await read_keys(log, 1_000_000) == []
