"""Background work costs what it does, not what there is: rows read, as PostgreSQL counts them."""

from datetime import timedelta
from uuid import uuid4

import pytest

from tests.sql.support.housekeeping import DAY_S, SERVICE, Keeper

PARTITIONS = 500
READ = """
  select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
  from pg_stat_xact_user_tables where schemaname = 'skep' and relname = any($1)
"""
MANY_SEGMENTS = """
  insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
  select p.id, n, n, p.queue_id, $2, '\\x00', '[null]'
  from skep.partition p, generate_series(1, 20) n where p.queue_id = $1
"""


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


@pytest.fixture
def wide_queue(arun, log, keeper):
    """A queue of many partitions, each with many segments that are young."""

    async def fill():
        await log.provision("hive", *(f"{number}" for number in range(PARTITIONS)))
        await log.subscribe("hive")
        await log.execute(MANY_SEGMENTS, await keeper.queue_id(), log.now + timedelta(hours=1))
        await log.execute("update skep.partition set head = 20")
        await log.execute("analyze skep.segment; analyze skep.cursor; analyze skep.partition")

    arun(fill())


async def rows_read(log, tables, work):
    """Return how many rows of these tables were read by a piece of work."""
    async with log.connection.transaction():
        # The counters also hold what the session did before and has not published yet.
        before = await log.value(READ, tables)
        await work()
        return await log.value(READ, tables) - before


async def test_defect_46_a_step_with_nothing_to_delete_reads_hardly_anything(
    log, keeper, wide_queue
):
    await log.configure("hive", retention_enabled=True, retention_s=60)

    read = await rows_read(log, ["segment", "partition", "cursor"], keeper.retain)

    assert read <= 150


async def test_defect_46_a_step_reads_in_proportion_to_what_it_deletes(log, keeper, wide_queue):
    await log.configure("hive", retention_enabled=True, retention_s=60)
    partitions = "select array_agg(id) from (select id from skep.partition order by id limit 10) p"
    await log.execute(
        "update skep.segment set created_at = $1, xid = (10 + first)::text::xid8 "
        f"where partition_id = any(({partitions})::bigint[])",
        log.now - timedelta(hours=1),
    )

    async def delete():
        assert (await keeper.retain(limit=100)).segments == 100

    assert await rows_read(log, ["segment", "partition", "cursor"], delete) <= 1000


async def test_defect_46_partitions_that_were_read_to_their_end_cost_eviction_nothing(
    log, keeper, wide_queue
):
    await log.configure("hive", max_wait_time_s=60)
    await log.execute("update skep.cursor set acked = 20, available_at = null")
    await log.advance(7200)

    assert await rows_read(log, ["segment", "partition", "cursor"], keeper.evict_all) <= 10


async def test_eviction_looks_at_few_segments_of_a_partition_whatever_it_holds(
    log, keeper, wide_queue
):
    await log.configure("hive", max_wait_time_s=60)
    await log.execute("update skep.cursor set available_at = $1", log.now)
    await log.advance(1800)

    read = await rows_read(log, ["segment"], keeper.evict_all)

    assert read <= 2 * PARTITIONS


async def test_the_search_for_idle_partitions_looks_at_some_of_them_each_time(
    log, keeper, wide_queue
):
    async def look():
        await log.row(
            "select * from skep.remove_idle_partitions($1, $2, $3, 0, 50, $4)",
            SERVICE,
            keeper.holder,
            uuid4(),
            DAY_S,
        )

    assert await rows_read(log, ["partition", "cursor"], look) <= 100
