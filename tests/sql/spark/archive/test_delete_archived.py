"""What leaves the live log once it is in the lake."""

import pytest

from tests.sql.support.archiving import Archivist
from tests.sql.support.housekeeping import Keeper


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


@pytest.fixture
def archivist(log, keeper, arun):
    """The archivist of a queue with four old segments in a partition; three are in the lake."""

    async def prepare():
        partition, group = await log.partition()
        await log.set_options("hive", archive_after_s=60, dedup_window_s=0)
        for names in ("ab", "c", "d", "e"):
            await log.push(partition, *names)
        await log.advance(61)
        archivist = Archivist(log)
        archivist.partition, archivist.group = partition, group
        await archivist.archive(segments=3)
        return archivist

    return arun(prepare())


async def read(log, archivist, upto):
    """Let the group of the queue complete everything up to an offset."""
    await log.execute("update skep.consumer_group set first_polled_at = skep.now()")
    await log.execute(f"update skep.cursor set acked = {upto}, available_at = skep.now()")


async def test_what_every_group_has_read_goes_and_the_rest_of_the_log_stays(log, archivist, keeper):
    await read(log, archivist, 5)

    gone = await archivist.delete()

    assert (gone["messages"], gone["segments"], gone["partitions"]) == (4, 3, 1)
    assert gone["is_done"]
    assert await keeper.kept(archivist.partition) == (5, 5)
    (history,) = await keeper.history()
    assert (history["kind"], history["messages"]) == ("archive", 4)


async def test_what_a_group_has_not_read_stays_until_it_has(log, archivist, keeper):
    await read(log, archivist, 2)

    assert (await archivist.delete())["messages"] == 2
    assert await keeper.kept(archivist.partition) == (3, 5)
    await read(log, archivist, 5)
    assert (await archivist.delete())["messages"] == 2


async def test_where_nobody_reads_nothing_goes(archivist):
    assert (await archivist.delete())["messages"] == 0


async def test_what_a_reader_outside_holds_stays(log, archivist, keeper):
    await read(log, archivist, 5)
    xid = await log.value("select xid::text from skep.segment where first = 3")
    await log.row(
        "select * from skep.place_hold('hive', 'spark', $1::text::pg_snapshot, 3600)",
        f"{xid}:{xid}:",
    )

    assert (await archivist.delete())["messages"] == 2


async def test_keys_that_may_be_asked_for_stay_with_their_segments(log, archivist):
    await read(log, archivist, 5)
    await log.set_options("hive", dedup_window_s=62)

    assert (await archivist.delete())["messages"] == 0
    await log.advance(2)
    assert (await archivist.delete())["messages"] == 4


async def test_a_walk_is_bounded_and_goes_on_where_it_stopped(log, archivist):
    await read(log, archivist, 5)

    first = await archivist.delete(limit=1)
    second = await archivist.delete(after=first["reached"])

    assert (first["segments"], first["is_done"]) == (1, False)
    assert (second["segments"], second["is_done"]) == (2, True)


async def test_a_partition_that_somebody_holds_is_left_for_the_next_time(log, archivist, open_log):
    await read(log, archivist, 5)
    other = await open_log()
    transaction = other.connection.transaction()
    await transaction.start()
    await other.rows("select from skep.partition for update")

    gone = await archivist.delete()

    assert (gone["messages"], gone["is_done"]) == (0, True)
    await transaction.rollback()
    assert (await archivist.delete())["messages"] == 4


async def test_the_archive_of_another_server_deletes_nothing(log, archivist):
    await read(log, archivist, 5)
    await archivist.become_foreign()

    assert (await archivist.delete())["messages"] == 0


async def test_what_is_removed_after_it_was_archived_is_lost_for_the_live_log_only(log, archivist):
    await read(log, archivist, 5)
    await archivist.delete()
    query = (
        "select is_archived from skep.find_lost_spans("
        "array(select id from skep.queue), '1:1:', '1:1:', null, null, $1)"
    )

    assert [tuple(row) for row in await log.rows(query, False)] == [(True,)]
    assert await log.rows(query, True) == []
    await log.execute("delete from skep.segment")
    assert [tuple(row) for row in await log.rows(query, True)] == [(False,)]


async def test_an_archived_removal_does_not_make_an_earlier_loss_forgotten(log, archivist):
    await log.execute("update skep.archive set upto = '1'")
    await log.execute("delete from skep.segment where first = 1")
    await log.execute("update skep.archive set upto = '1000000'")
    await log.execute("delete from skep.segment where first = 3")

    kinds = await log.rows("select is_archived from skep.removed_span order by upto")

    assert [kind for (kind,) in kinds] == [False, True]
