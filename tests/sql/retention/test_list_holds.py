import pytest

from tests.sql.support.housekeeping import Keeper


@pytest.fixture
def keeper(arun, log):
    return arun(Keeper.appoint(log))


async def test_holds_are_paged_by_queue_and_name_with_their_total(log, keeper):
    await log.partition("hive")
    await log.partition("comb")
    for queue, name in [("hive", "b"), ("hive", "a"), ("comb", "z")]:
        await keeper.hold(name, queue=queue)

    rows = await log.rows("select queue, name, total from skep.list_holds(2, 1)")

    assert [tuple(row) for row in rows] == [("hive", "a", 3), ("hive", "b", 3)]


async def test_a_hold_whose_reader_stayed_away_is_shown_as_inactive(log, keeper):
    await log.partition("hive")
    await keeper.hold("dead", keep_s=10)
    await keeper.hold("alive", keep_s=100)
    await log.advance(10)

    rows = await log.rows("select name, is_active from skep.list_holds(10, 0)")

    assert dict(map(tuple, rows)) == {"alive": True, "dead": False}
