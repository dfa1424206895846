import pytest

from tests.sql.support.housekeeping import Keeper

RELEASE = "select skep.release_hold($1, $2)"


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def test_a_hold_that_is_released_is_gone_and_the_others_are_not(log, keeper):
    await log.partition("hive")
    await log.partition("comb")
    for queue, name in [("hive", "spark"), ("hive", "archive"), ("comb", "spark")]:
        await keeper.hold(name, queue=queue)

    assert await log.value(RELEASE, "hive", "spark")

    left = await log.rows("select queue, name from skep.list_holds(10, 0)")
    assert [tuple(row) for row in left] == [("comb", "spark"), ("hive", "archive")]


async def test_a_hold_that_does_not_exist_cannot_be_released(log, keeper):
    await log.partition("hive")

    assert not await log.value(RELEASE, "hive", "spark")
    assert not await log.value(RELEASE, "nowhere", "spark")
