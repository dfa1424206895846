from datetime import timedelta

import pytest

from tests.pg.log import MICROSECOND, NOON

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
    partition, _ = await log.lane()
    await log.push(partition, "a", "b")
    await log.advance(60)
    await log.push(partition, "c", "d", "e")

    assert await offset_before(log, partition, moment) == offset


async def test_a_moment_before_everything_kept_means_the_start_of_what_is_kept(log):
    partition, _ = await log.lane()
    await log.push(partition, "a", "b")
    await log.advance(60)
    await log.push(partition, "c")
    await log.execute("update skep.partition set tail = 3")
    await log.execute("delete from skep.segment where first = 1")

    assert await offset_before(log, partition, NOON) == 2


async def test_an_empty_partition_starts_at_its_tail(log):
    partition, _ = await log.lane()

    assert await offset_before(log, partition, NOON) == 0
