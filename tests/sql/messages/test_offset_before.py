from datetime import timedelta

import pytest

from tests.sql.support.log import MICROSECOND, NOON

MINUTE = timedelta(minutes=1)


def offset_before(log, partition, moment):
    return log.value("select skep.offset_before($1, $2)", partition, moment)


@pytest.mark.parametrize(
    ("moment", "offset"),
    [
        (NOON - MINUTE, 0),
        (NOON, 0),
        (NOON + MICROSECOND, 2),
        (NOON + MINUTE, 2),
        (NOON + MINUTE + MICROSECOND, 5),
        (NOON + 9 * MINUTE, 5),
    ],
)
async def test_it_is_the_last_offset_pushed_before_the_moment(log, moment, offset):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.advance(60)
    await log.push(partition, "c", "d", "e")

    assert await offset_before(log, partition, moment) == offset


async def test_a_moment_before_everything_kept_means_the_start_of_what_is_kept(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.advance(60)
    await log.push(partition, "c")
    await log.execute("update skep.partition set tail = 3")
    await log.execute("delete from skep.segment where first = 1")

    assert await offset_before(log, partition, NOON) == 2


async def test_an_empty_partition_starts_at_its_tail(log):
    partition, _ = await log.partition()

    assert await offset_before(log, partition, NOON) == 0


@pytest.mark.parametrize(
    ("after", "to", "offset"), [(None, None, 4), (0, 3, 3), (5, 6, 5), (None, 2, 2), (4, None, 4)]
)
async def test_the_search_keeps_to_its_bounds(log, after, to, offset):
    partition, _ = await log.partition()
    for names in ("ab", "cd", "ef"):
        await log.push(partition, *names)
        await log.advance(60)

    found = await log.value(
        "select skep.offset_before($1, $2, $3, $4)", partition, NOON + 2 * MINUTE, after, to
    )

    assert found == offset


def test_the_border_is_found_wherever_it_lies(log, arun):
    partition, _ = arun(log.partition())
    sizes = [3, 1, 1, 5, 2, 1, 4, 1, 1, 1, 6]
    for number, size in enumerate(sizes):
        arun(log.push(partition, *(f"{number} {n}" for n in range(size))))
        arun(log.advance(60))

    found = [arun(offset_before(log, partition, NOON + n * MINUTE)) for n in range(len(sizes) + 1)]

    assert found == [sum(sizes[:n]) for n in range(len(sizes) + 1)]


async def test_a_segment_that_retention_took_meanwhile_counts_as_old(log):
    partition, _ = await log.partition()
    for names in ("ab", "cd", "ef"):
        await log.push(partition, *names)
        await log.advance(60)
    await log.execute("delete from skep.segment where first < 5")

    assert await offset_before(log, partition, NOON) == 4
