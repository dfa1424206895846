async def test_a_reader_is_forgotten_with_all_that_was_kept_for_it(log):
    await log.partition()
    await log.value("select skep.register_reader('spark', '{hive}', '{}')")
    await log.value("select skep.publish_progress('spark', '{hive}', null, '5:5:', 60)")
    await log.rows("select skep.place_hold('hive', 'archive', null, 60)")

    assert await log.value("select skep.forget_reader('spark')")

    assert await log.value("select count(*) from skep.reader") == 0
    assert await log.value("select string_agg(name, ',') from skep.hold") == "archive"


async def test_a_hold_of_somebody_else_is_no_reader(log):
    await log.partition()
    await log.rows("select skep.place_hold('hive', 'archive', null, 60)")

    assert not await log.value("select skep.forget_reader('archive')")

    assert await log.value("select count(*) from skep.hold") == 1
