"""Moving staged messages costs what is new, not what waits or what has been.

A snapshot that somebody holds open keeps vacuum from removing anything, and indexes from noticing
what is dead. That must cost space and nothing else.
"""

import json

import pytest

from skep.broker.staged.read import Position
from tests.sql.support.enqueued import names, read, stage

MANY = 3_000
BLOCKS_MAX = 20
"""A few descents of indexes and the rows found. To pass all dead entries takes 50 blocks."""


async def stage_many(log, count=MANY):
    """Stage so many messages, each in a transaction of its own."""
    await log.execute(
        f"""
        do $$ begin
          for v_number in 1..{count} loop
            perform skep.stage('hive', 'a', '1', 'n' || v_number);
            commit;
          end loop;
        end $$
        """
    )


@pytest.fixture(params=["planned blindly", "planned with statistics"])
def prepare_to_plan(request, log):
    """What is to be so before a plan is made: nothing, or statistics of the moment."""

    async def prepare():
        if request.param == "planned with statistics":
            await log.execute("analyze skep.staged, skep.staged_transaction")

    return prepare


async def blocks_read(log, position, limit=10):
    await read(log, *position, limit=limit)  # or it would count what planning reads
    return min([await _explained_blocks(log, position, limit) for _ in range(3)])


async def _explained_blocks(log, position, limit):
    explained = await log.value(
        "explain (analyze, buffers, format json)"
        " select * from skep.read_staged($1, $2::text::pg_snapshot, $3, $4)",
        *position,
        limit,
        1 << 20,
    )
    [plan] = json.loads(explained)
    return plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]


@pytest.fixture
def worn_log(arun, log, open_log, prepare_to_plan):
    """A log in which much was staged and moved while somebody held a snapshot open."""

    async def wear():
        holder = await open_log()
        await holder.execute("begin isolation level repeatable read; select 1")
        await holder.value("select count(*) from skep.staged")
        await stage_many(log)
        rows = await read(log, limit=MANY)
        await log.value("select skep.drop_staged($1)", [row.id for row in rows])
        await prepare_to_plan()
        return Position(rows[-1].commit_number, rows[-1].snapshot)

    log.position = arun(wear())
    return log


async def test_what_is_dead_and_cannot_be_removed_costs_nothing(worn_log):
    assert await blocks_read(worn_log, worn_log.position) < BLOCKS_MAX
    assert await blocks_read(worn_log, Position()) > BLOCKS_MAX  # or the test shows nothing


async def test_a_new_message_among_dead_ones_costs_itself(worn_log):
    await stage(worn_log, "new")

    assert names(await read(worn_log, *worn_log.position)) == ["new"]
    assert await blocks_read(worn_log, worn_log.position) < BLOCKS_MAX


async def test_a_portion_costs_the_same_before_many_that_wait(log, prepare_to_plan):
    # Without what other tests left dead: who begins at the start has to pass it.
    await log.execute("truncate skep.staged, skep.staged_transaction")
    await stage_many(log)
    await prepare_to_plan()

    assert await blocks_read(log, Position()) < BLOCKS_MAX + 10 * 8
    assert len(await read(log, limit=10)) == 10
