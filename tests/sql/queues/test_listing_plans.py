"""What a listing reads depends on its page, not on how many partitions there are.

The statements run as the broker runs them: prepared once, in sessions with the settings of queries,
often enough for PostgreSQL to settle on a plan.
"""

import pytest

from skep.db.access.slots import HOT_PATH, ONE_OFF
from tests.sql.model.test_plans import PARTITIONS, MeteredLog, begin, grow
from tests.sql.support.log import Log

PAGE = 10
ROWS_MAX = PAGE * 30
SAMPLE = 100
RUNS = 7
"""PostgreSQL considers a plan for all arguments after five runs."""


@pytest.fixture
def metered(arun, connect):
    log = arun(MeteredLog.open(connect))
    arun(begin(Log(log.connection)))
    arun(grow(log))
    for name in HOT_PATH:
        arun(log.execute(f"reset {name}"))
    for name, value in ONE_OFF.items():
        arun(log.execute(f"set {name} = {value}"))
    arun(log.execute("vacuum analyze"))
    return log


async def rows_read(log, query, *arguments):
    for _ in range(RUNS):
        await log.rows(query, *arguments)
    return log.cost.rows


async def test_a_page_of_partitions_reads_only_its_partitions(metered):
    (queue_id,) = await metered.connection.fetchrow("select id from skep.queue")
    (middle,) = await metered.connection.fetchrow(
        "select id from skep.partition order by name offset $1 limit 1", PARTITIONS // 2
    )
    query = "select * from skep.list_partitions($1, null, $2, $3, 0)"

    assert await rows_read(metered, query, queue_id, None, PAGE) < ROWS_MAX
    assert await rows_read(metered, query, queue_id, middle, PAGE) < ROWS_MAX
    assert await rows_read(metered, query, None, middle, PAGE) < ROWS_MAX


async def test_counting_a_large_queue_reads_no_cursor_but_those_of_the_sample(metered):
    (queue_id,) = await metered.connection.fetchrow("select id from skep.queue")
    query = "select * from skep.count_messages($1, 100, $2, false)"

    # All partitions are counted, once and nothing more; the rest is about the sample.
    assert await rows_read(metered, query, [queue_id], SAMPLE) < PARTITIONS + SAMPLE * 60


async def test_the_newest_messages_are_found_without_reading_the_others(metered):
    partition = await metered.connection.fetchval("select min(id) from skep.partition")
    queue_id = await metered.connection.fetchval("select id from skep.queue")
    for number in range(PAGE):
        await Log(metered.connection).push(partition, f"new-{number}")

    query = "select * from skep.newest_segments($1, $2, 0)"

    assert await rows_read(metered, query, queue_id, PAGE) < ROWS_MAX


async def test_whether_something_waits_is_known_at_the_first_partition_that_waits(metered):
    queue_id = await metered.connection.fetchval("select id from skep.queue")

    assert await rows_read(metered, "select skep.queues_waiting($1)", [queue_id]) < ROWS_MAX
