async def pause(log, is_paused, name="hive"):
    return await log.value("select skep.pause_queue($1, $2)", name, is_paused)


async def state(log):
    return tuple(await log.row("select is_paused, version from skep.queue where name = 'hive'"))


async def test_pausing_and_resuming_are_changes_of_the_queue(log):
    queue_id = await log.value("select skep.ensure_queue('hive')")

    assert await pause(log, True) == queue_id
    assert await state(log) == (True, 2)
    assert await pause(log, False) == queue_id
    assert await state(log) == (False, 3)


async def test_pausing_twice_changes_nothing_more(log):
    await log.value("select skep.ensure_queue('hive')")
    await pause(log, True)
    await log.advance()

    await pause(log, True)

    assert await state(log) == (True, 2)


async def test_what_does_not_exist_has_no_id(log):
    assert await pause(log, True, "nothing") is None
