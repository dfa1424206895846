from tests.sql.support.spans import SpanReader


async def test_segments_of_transactions_to_come_become_readable(log):
    lane, _ = await log.lane()
    await log.push(lane, "a")
    await log.push(lane, "b")
    await log.execute("update skep.segment set xid = '999999999999' where first = 1")
    reader = SpanReader(log)
    assert await reader.found() == [(lane, 2)]

    assert await log.value("select skep.adopt_restored_log()") == 1

    assert await reader.found() == [(lane, 1), (lane, 2)]


async def test_what_was_known_about_readers_is_forgotten(log):
    await log.lane()
    await log.value("select skep.register_reader('spark', '{hive}', '{}')")
    await log.rows("select skep.place_hold('hive', 'spark', null, 60)")

    await log.value("select skep.adopt_restored_log()")

    assert await log.value("select count(*) from skep.reader") == 0
    assert await log.value("select count(*) from skep.hold") == 0
