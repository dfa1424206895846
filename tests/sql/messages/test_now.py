from tests.sql.support.log import NOON


async def test_a_session_may_set_its_own_clock(log):
    assert await log.value("select skep.now()") == NOON


async def test_without_a_setting_it_is_the_wall_clock(log):
    await log.execute("reset skep.fake_now")

    before, now, after = await log.row("select clock_timestamp(), skep.now(), clock_timestamp()")

    assert before <= now <= after


async def test_the_clock_runs_on_within_a_transaction(log):
    await log.execute("reset skep.fake_now")

    async with log.connection.transaction():
        first = await log.value("select skep.now()")
        second = await log.value("select skep.now()")

    assert first < second
