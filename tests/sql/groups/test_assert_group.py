import asyncpg
import pytest


async def test_a_group_that_exists_is_accepted(log):
    group = await log.subscribe("hive", "bees")

    found = await log.row("select * from skep.assert_group($1)", group)

    assert (found["id"], found["name"]) == (group, "bees")


async def test_a_group_that_does_not_exist_is_refused_with_its_own_code(log):
    with pytest.raises(asyncpg.PostgresError) as refusal:
        await log.execute("select skep.assert_group(7)")

    assert refusal.value.sqlstate == "SK404"
