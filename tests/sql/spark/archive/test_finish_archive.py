import pytest

from tests.sql.support.archiving import Archivist


@pytest.fixture
def archivist(log, arun):
    async def prepare():
        partition, _ = await log.partition()
        await log.set_options("hive", archive_after_s=60)
        await log.push(partition, "a", "b")
        await log.advance(61)
        return Archivist(log)

    return arun(prepare())


async def test_the_watermark_moves_and_the_run_is_over(log, archivist):
    run = await archivist.begin()

    assert await archivist.finish(run, messages=2)

    row = await log.row("select upto::text::bigint, messages, archived_at from skep.archive")
    assert tuple(row) == (run.upto, 2, log.now)
    assert await log.rows("select from skep.archive_run") == []


async def test_a_run_is_finished_once_and_only_by_its_last_attempt(archivist):
    first = await archivist.begin()
    second = await archivist.begin()

    assert not await archivist.finish(first)
    assert await archivist.finish(second)
    assert not await archivist.finish(second)


async def test_who_comes_second_waits_and_learns_that_it_is_done(archivist, open_log):
    run = await archivist.begin()
    other = Archivist(await open_log())
    transaction = archivist.log.connection.transaction()
    await transaction.start()
    assert await archivist.finish(run)
    await other.log.execute("set lock_timeout = '50ms'")

    with pytest.raises(Exception, match="lock timeout"):
        await other.finish(run)
    await transaction.commit()

    assert not await other.finish(run)


async def test_a_queue_that_was_deleted_meanwhile_has_no_run(log, archivist):
    run = await archivist.begin()
    await log.execute("delete from skep.consumer_group; delete from skep.queue")

    assert not await archivist.finish(run)
