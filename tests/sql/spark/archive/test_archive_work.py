"""Which queues have an archive, and how they stand."""

from tests.sql.support.archiving import Archivist

WORK = "select * from skep.archive_work($1)"


async def test_queues_are_listed_that_want_an_archive_or_have_one(log):
    for queue in ("hive", "comb", "none"):
        await log.partition(queue)
    await log.set_options("hive", archive_after_s=60)
    await log.set_options("comb", archive_after_s=60)
    partition, _ = await log.partition("hive")
    await log.push(partition, "a")
    await log.advance(61)
    archivist = Archivist(log)
    await archivist.finish(await archivist.begin(), messages=1)
    await log.set_options("hive", archive_after_s=0)

    found = {row["queue"]: row for row in await log.rows(WORK, None)}

    assert {name: row["is_wanted"] for name, row in found.items()} == {"hive": False, "comb": True}
    assert (found["hive"]["messages"], found["hive"]["archived_at"]) == (1, log.now)
    assert found["comb"]["archived_at"] is None
    assert [row["queue"] for row in await log.rows(WORK, ["comb", "none"])] == ["comb"]


async def test_an_open_run_and_the_archive_of_another_server_are_told(log):
    partition, _ = await log.partition()
    await log.set_options("hive", archive_after_s=60)
    await log.push(partition, "a")
    await log.advance(61)
    archivist = Archivist(log)
    await archivist.begin()

    before = await log.row(WORK, None)
    await archivist.become_foreign()
    after = await log.row(WORK, None)

    assert (before["is_open"], before["is_foreign"], after["is_foreign"]) == (True, False, True)
