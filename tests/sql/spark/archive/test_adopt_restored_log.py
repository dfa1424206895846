from tests.sql.support.spans import SpanReader


async def test_segments_of_transactions_to_come_become_readable(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")
    await log.push(partition, "b")
    await log.execute("update skep.segment set xid = '999999999999' where first = 1")
    reader = SpanReader(log)
    assert await reader.found() == [(partition, 2)]

    assert await log.value("select skep.adopt_restored_log()") == 1

    assert await reader.found() == [(partition, 1), (partition, 2)]


async def test_what_was_known_about_readers_is_forgotten(log):
    await log.partition()
    await log.value("select skep.register_reader('spark', '{hive}', '{}')")
    await log.rows("select skep.place_hold('hive', 'spark', null, 60)")

    await log.value("select skep.adopt_restored_log()")

    assert await log.value("select count(*) from skep.reader") == 0
    assert await log.value("select count(*) from skep.hold") == 0
