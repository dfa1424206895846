"""What a run of the archive copies: closed ranges, old enough, whole transactions."""

import pytest

from tests.sql.support.archiving import Archivist, xid


@pytest.fixture
def archivist(log, arun):
    async def prepare():
        await log.partition()
        await log.set_options("hive", archive_after_s=60)
        return Archivist(log)

    return arun(prepare())


@pytest.fixture
def partition(log, archivist, arun):
    return arun(log.partition())[0]


async def test_what_is_old_enough_is_planned_up_to_the_first_that_is_young(
    log, archivist, partition
):
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.advance(60.1)
    await log.push(partition, "c")

    run = await archivist.begin()

    assert (run.attempt, run.since) == (1, 1)
    assert await xid(log, partition, 2) < run.upto <= await xid(log, partition, 3)


async def test_without_the_option_or_anything_old_there_is_nothing_to_do(log, archivist, partition):
    await log.push(partition, "a")
    assert await archivist.begin() is None
    await log.advance(61)
    await log.set_options("hive", archive_after_s=0)
    assert await archivist.begin() is None


async def test_a_queue_that_is_gone_has_nothing_to_do(log, archivist):
    query = "select * from skep.begin_archive(-1, 10, 10)"

    assert await log.row(query) is None


async def test_the_next_run_begins_where_the_last_one_ended(log, archivist, partition):
    await log.push(partition, "a")
    await log.advance(61)
    first = await archivist.archive()
    assert await archivist.begin() is None
    await log.push(partition, "b")
    await log.advance(61)

    second = await archivist.begin()

    assert second.since == first.upto
    assert second.upto == await xid(log, partition, 2) + 1


@pytest.mark.parametrize("limit", [{"messages": 3}, {"segments": 2}])
async def test_a_run_ends_when_it_is_large_enough(log, archivist, partition, limit):
    for names in ("ab", "c", "d", "e"):
        await log.push(partition, *names)
    await log.advance(61)

    run = await archivist.begin(**limit)

    assert await xid(log, partition, 3) < run.upto <= await xid(log, partition, 4)


async def test_a_transaction_is_never_torn(log, archivist, partition):
    other, _ = await log.partition(partition="b")
    async with log.connection.transaction():
        await log.push(partition, "a")
        await log.push(other, "b")
    await log.push(partition, "c")
    await log.advance(61)

    run = await archivist.begin(segments=1)

    assert await xid(log, other, 1) < run.upto <= await xid(log, partition, 2)


async def test_a_transaction_with_something_young_waits_as_a_whole(log, archivist, partition):
    other, _ = await log.partition(partition="b")
    await log.push(partition, "before")
    async with log.connection.transaction():
        await log.push(partition, "old")
        await log.advance(61)
        await log.push(other, "young")

    run = await archivist.begin()

    assert run.upto == await xid(log, partition, 2)


async def test_nothing_is_planned_that_an_open_transaction_could_still_add_to(
    log, archivist, partition, open_log
):
    other, _ = await log.partition(partition="b")
    slow = await open_log()
    await log.push(partition, "a")
    transaction = slow.connection.transaction()
    await transaction.start()
    await slow.push(other, "late")
    await log.push(partition, "b")
    await log.advance(61)

    run = await archivist.begin()
    await transaction.commit()

    assert run.upto <= await xid(log, other, 1)
    assert await archivist.finish(run)
    assert (await archivist.begin()).upto == await xid(log, partition, 2) + 1


async def test_a_run_that_was_not_finished_is_taken_over_with_the_same_bounds(
    log, archivist, partition
):
    await log.push(partition, "a")
    await log.advance(61)
    first = await archivist.begin()
    await log.push(partition, "b")
    await log.advance(61)

    second = await archivist.begin()

    assert second == first._replace(attempt=2)


async def test_two_at_a_time_plan_one_after_the_other(log, archivist, partition, open_log, arun):
    await log.push(partition, "a")
    await log.advance(61)
    other = await open_log()
    await other.set_clock(log.now)
    transaction = log.connection.transaction()
    await transaction.start()
    first = await archivist.begin()
    await other.execute("set lock_timeout = '50ms'")

    with pytest.raises(Exception, match="lock timeout"):
        await Archivist(other).begin()
    await transaction.commit()

    assert await Archivist(other).begin() == first._replace(attempt=2)
