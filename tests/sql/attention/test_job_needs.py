NEEDS = "select * from skep.job_needs(60)"


async def test_types_that_are_paused_or_wait_long_are_in_need(chains):
    await chains.start("late")
    await chains.type_ids("paused", "fine")
    await chains.value("select skep.job_type_pause('paused', true)")
    await chains.advance(61)
    await chains.start("fine")
    await chains.start("later", delay_s=500)
    await chains.enroll()

    rows = await chains.rows(NEEDS)

    assert [tuple(row) for row in rows] == [("late", False, 61, 1), ("paused", True, None, 1)]


async def test_without_needs_the_workers_are_told_nevertheless(chains):
    await chains.enroll(lease_s=10)
    assert [tuple(row) for row in await chains.rows(NEEDS)] == [(None, None, None, 1)]
    await chains.advance(11)
    assert [tuple(row) for row in await chains.rows(NEEDS)] == [(None, None, None, 0)]
