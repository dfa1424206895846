import pytest


async def is_told(log):
    return await log.value("select skep.is_told_at_commit()")


async def test_brokers_are_told_unless_it_is_switched_off(log):
    assert await is_told(log) is True


@pytest.mark.parametrize(("word", "expected"), [("off", False), ("on", True), ("", True)])
async def test_the_setting_decides(log, word, expected):
    async with log.connection.transaction():
        await log.execute(f"set local skep.stage_notify = '{word}'")

        assert await is_told(log) is expected
