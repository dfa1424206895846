from tests.sql.support.archiving import Archivist


async def test_every_queue_has_a_bound_also_without_an_archive(log):
    partition, _ = await log.partition()
    await log.partition("comb")
    await log.set_options("hive", archive_after_s=60)
    await log.push(partition, "a")
    await log.advance(61)
    archivist = Archivist(log)
    run = await archivist.archive()
    ids = [
        await log.value("select id from skep.queue where name = $1", name)
        for name in ("hive", "comb")
    ]
    query = "select * from skep.archive_bounds($1)"

    assert sorted(map(tuple, await log.rows(query, ids))) == sorted(
        [(ids[0], run.upto, False), (ids[1], 1, False)]
    )
    await archivist.become_foreign()
    assert tuple(await log.row(query, ids[:1])) == (ids[0], run.upto, True)
