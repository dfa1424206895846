"""Which time of a queue is in the archive, which in the live log, and which is gone."""

from tests.sql.support.archiving import Archivist

QUERY = "select * from skep.archive_coverage($1, $2)"


async def prepare(log, *names):
    """Push a message a minute or so into a queue with an archive; return its partition."""
    partition, _ = await log.partition()
    await log.set_options("hive", archive_after_s=60, created_at=log.now)
    for name in names:
        await log.push(partition, name)
        await log.advance(61)
    return partition


async def test_before_the_first_run_only_the_live_log_covers_anything(log):
    start = log.now
    await prepare(log, "a", "b")

    [row] = await log.rows(QUERY, 10, 0)

    assert (row["queue"], row["is_wanted"], row["messages"]) == ("hive", True, 0)
    assert (row["covered_from"], row["covered_to"]) == (None, None)
    assert (row["live_from"], row["archived_at"], row["total"]) == (start, None, 1)


async def test_the_archive_reaches_to_the_oldest_message_that_is_not_in_it(log):
    start = log.now
    partition = await prepare(log, "a")
    archivist = Archivist(log)
    run = await archivist.begin()
    [running] = await log.rows(QUERY, 10, 0)
    await archivist.finish(run, messages=1)
    await log.push(partition, "b")
    archived_at, later = log.now, log.now
    await log.advance(61)

    [row] = await log.rows(QUERY, 10, 0)

    assert (running["is_running"], row["is_running"]) == (True, False)
    assert (row["covered_from"], row["covered_to"], row["archived_at"]) == (
        start,
        later,
        archived_at,
    )
    assert row["gone_to"] is None


async def test_what_was_deleted_unarchived_is_told_and_not_covered(log):
    start = log.now
    await prepare(log, "a", "b")
    await log.execute("delete from skep.segment where first = 1")
    archivist = Archivist(log)
    await archivist.finish(await archivist.begin(), messages=1)

    [row] = await log.rows(QUERY, 10, 0)

    assert row["gone_to"] == row["covered_from"] == start
    assert row["covered_to"] == row["archived_at"]


async def test_queues_without_an_archive_are_left_out_and_pages_know_the_total(log):
    for queue in ("b", "a", "c", "none"):
        await log.partition(queue)
    for queue in ("a", "b", "c"):
        await log.set_options(queue, archive_after_s=60)

    rows = await log.rows(QUERY, 2, 1)

    assert [(row["queue"], row["total"]) for row in rows] == [("b", 3), ("c", 3)]
