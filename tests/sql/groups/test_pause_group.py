import asyncpg
import pytest

PAUSE = "select skep.pause_group($1, $2)"


async def test_a_group_is_paused_and_resumed_alone(log):
    bees, ants = await log.subscribe("hive", "bees"), await log.subscribe("hive", "ants")
    paused = "select name from skep.consumer_group where is_paused"

    await log.value(PAUSE, bees, True)
    assert [row["name"] for row in await log.rows(paused)] == ["bees"]
    await log.value(PAUSE, bees, False)

    assert await log.rows(paused) == []
    assert ants != bees


async def test_a_group_that_does_not_exist_is_refused(log):
    with pytest.raises(asyncpg.PostgresError) as refused:
        await log.value(PAUSE, 0, True)

    assert refused.value.sqlstate == "SK404"
