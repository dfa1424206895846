from tests.sql.support.archiving import Archivist


async def test_only_the_last_attempt_of_an_unfinished_run_is_under_way(log):
    partition, _ = await log.partition()
    await log.set_options("hive", archive_after_s=60)
    await log.push(partition, "a")
    await log.advance(61)
    archivist = Archivist(log)

    async def is_archiving(run):
        query = "select skep.is_archiving($1, $2)"
        return await log.value(query, run.run_id, run.attempt)

    first = await archivist.begin()
    assert await is_archiving(first)
    second = await archivist.begin()
    assert (await is_archiving(first), await is_archiving(second)) == (False, True)
    await archivist.finish(second)
    assert not await is_archiving(second)
