from tests.sql.support.archiving import Archivist


async def test_nothing_of_the_archive_is_left_in_the_database(log):
    partition, _ = await log.partition()
    await log.set_options("hive", archive_after_s=60)
    await log.push(partition, "a")
    await log.advance(61)
    archivist = Archivist(log)
    first = await archivist.archive()
    await log.execute(
        "insert into skep_lake.iceberg_tables values ('skep', 'skep', 'messages', 'x', null, null)"
    )

    assert await log.value("select skep.forget_archive()") == 1

    assert await log.rows("select from skep_lake.iceberg_tables") == []
    again = await archivist.begin()
    assert (again.since, again.upto) == (1, first.upto)
