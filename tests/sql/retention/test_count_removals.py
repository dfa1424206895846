from datetime import timedelta
from uuid import uuid4

import pytest

from tests.sql.support.housekeeping import Keeper
from tests.sql.support.log import NOON

COUNT = "select * from skep.count_removals($1, $2, $3, $4)"
HOUR = timedelta(hours=1)


@pytest.fixture
def record(arun, log):
    arun(Keeper.appoint(log))

    async def record(minute, queue_id, kind, messages):
        await log.value(
            "select skep.record_removal($1, $2, $3, $4, 1, 1, $5)",
            uuid4(),
            queue_id,
            kind,
            messages,
            NOON + timedelta(minutes=minute),
        )

    return record


async def test_messages_are_added_up_by_bucket_and_kind(log, record):
    await record(1, 7, "retention", 10)
    await record(4, 8, "retention", 5)
    await record(2, 7, "completed", 3)
    await record(7, 7, "eviction", 2)

    rows = await log.rows(COUNT, None, NOON, NOON + HOUR, 300)

    assert [tuple(row) for row in rows] == [
        (NOON, 15, 3, 0, 3),
        (NOON + timedelta(minutes=5), 0, 0, 2, 1),
    ]


async def test_only_the_time_asked_for_counts_its_end_left_out(log, record):
    for minute in (0, 30, 60):
        await record(minute, 7, "retention", 1)

    rows = await log.rows(COUNT, None, NOON, NOON + HOUR, 3600)

    assert [row["retention"] for row in rows] == [2]


async def test_it_can_be_narrowed_to_a_queue(log, record):
    await log.partition("hive")
    queue_id = await log.value("select id from skep.queue where name = 'hive'")
    await record(1, queue_id, "retention", 10)
    await record(1, queue_id + 1, "retention", 5)

    [row] = await log.rows(COUNT, "hive", NOON, NOON + HOUR, 300)

    assert row["retention"] == 10


async def test_dead_letters_and_partitions_are_no_messages_of_the_log(log, record):
    await record(1, 7, "dead_letter", 10)
    await record(1, 7, "partition", 0)

    assert await log.rows(COUNT, None, NOON, NOON + HOUR, 300) == []
