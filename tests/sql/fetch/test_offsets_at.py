"""A time has a first offset in each partition."""

from datetime import timedelta

import pytest

from tests.sql.support.log import NOON

OFFSETS = "select at, created_at, head, tail, queue_id from skep.offsets_at($1, $2, $3)"


@pytest.fixture(autouse=True)
def stored(arun, log):
    """Messages ab at noon, and cd ten seconds later."""

    async def begin():
        [partition] = await log.provision("hive", "a")
        await log.push(partition, *"ab")
        await log.advance(10)
        await log.push(partition, *"cd")
        return partition

    return arun(begin())


@pytest.mark.parametrize(
    ("seconds", "offset"), [(-5, 1), (0, 1), (1, 3), (10, 3), (10.000001, None), (99, None)]
)
async def test_a_time_begins_with_the_first_message_stored_then_or_later(log, seconds, offset):
    moment = NOON + timedelta(seconds=seconds)

    [row] = await log.rows(OFFSETS, ["hive"], ["a"], [moment])

    assert row["at"] == offset
    assert (row["head"], row["tail"]) == (4, 1)
    stored_at = {1: NOON, 3: NOON + timedelta(seconds=10), None: None}
    assert row["created_at"] == stored_at[offset]


async def test_a_time_before_the_log_means_the_first_message_that_is_kept(log, stored):
    await log.execute("delete from skep.segment where partition_id = $1 and first = 1", stored)
    await log.execute("update skep.partition set tail = 3 where id = $1", stored)

    [row] = await log.rows(OFFSETS, ["hive"], ["a"], [NOON])

    assert (row["at"], row["tail"]) == (3, 3)


async def test_answers_come_in_the_order_of_the_questions(log):
    queues = ["none", "hive", "hive"]

    rows = await log.rows(OFFSETS, queues, ["a", "new", "a"], [NOON] * 3)

    assert [row["queue_id"] is None for row in rows] == [True, False, False]
    assert [row["at"] for row in rows] == [None, None, 1]
