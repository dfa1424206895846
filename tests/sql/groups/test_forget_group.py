import asyncio

import asyncpg
import pytest

from tests.support.broker import until_blocked_by

FORGET = "select skep.forget_group($1)"


async def test_a_group_is_forgotten_once(log):
    group = await log.subscribe("hive", "bees")

    assert await log.value(FORGET, group) is True
    assert await log.value(FORGET, group) is False


async def test_polls_learn_that_the_group_is_gone(log):
    _, group = await log.partition()
    await log.value(FORGET, group)

    with pytest.raises(asyncpg.PostgresError) as refused:
        await log.pop(group)

    assert refused.value.sqlstate == "SK404"


async def test_no_partition_is_born_with_a_cursor_of_a_forgotten_group(log, open_log):
    group = await log.subscribe("hive", "bees")
    other = await open_log()

    async with log.connection.transaction():
        await log.value(FORGET, group)
        birth = asyncio.create_task(other.provision("hive", "a"))
        await until_blocked_by(log.connection)
    await birth

    assert await log.value("select count(*) from skep.cursor where group_id = $1", group) == 0
