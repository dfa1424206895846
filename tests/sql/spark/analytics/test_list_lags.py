import pytest

from tests.sql.support.analyses import at

LAG = "insert into skep.analytics_lag values ($1, $2, $3, 60, 1.5, 3, 2.5, 9)"


@pytest.fixture(autouse=True)
def lags(arun, analyses, log):
    for hours, queue, group in ((1, "hive", "bees"), (0, "nest", "wasps"), (0, "nest", "bees")):
        arun(log.execute(LAG, at(hours), queue, group))


async def page(analyses, queue=None, after=None, limit=9):
    rows = await analyses.page("list_lags", at(0), at(2), queue, after, limit)
    assert all(row[2:] == (60, 1.5, 3, 2.5, 9) for row in rows)
    return [row[:2] for row in rows]


async def test_groups_stand_in_the_order_of_hours_and_queues(analyses):
    assert await page(analyses) == [("nest", "bees"), ("nest", "wasps"), ("hive", "bees")]


async def test_pages_follow_each_other_and_a_queue_can_be_chosen(analyses):
    assert await page(analyses, limit=1) == [("nest", "bees")]
    assert await page(analyses, after=["nest", "bees"]) == [("nest", "wasps"), ("hive", "bees")]
    assert await page(analyses, queue="hive") == [("hive", "bees")]
