import pytest

from tests.sql.support.analyses import at

DELIVERY = "insert into skep.analytics_delivery values ($1, $2, 1, 2, 3, 4, 5, 6, 7, '{8}')"
NONE = (None,) * 8


@pytest.fixture(autouse=True)
def hours(arun, analyses, log):
    arun(analyses.store(queue="hive"))
    arun(analyses.store(queue="nest", hours=1))
    arun(log.execute(DELIVERY, at(0), "burrow"))
    arun(log.execute(DELIVERY, at(1), "nest"))


async def page(analyses, queue=None, after=None, since=0, limit=9):
    return await analyses.page("list_queue_hours", at(since), at(2), queue, after, limit)


async def test_what_the_log_and_what_the_brokers_know_stands_side_by_side(analyses):
    counted = (1, 2, 3, 4, 5, 6, 7, [8])
    assert await page(analyses) == [
        ("burrow", *(None,) * 4, *counted),
        ("hive", 10, 20, 1, 10, *NONE),
        ("nest", 10, 20, 1, 10, *counted),
    ]


async def test_pages_follow_each_other(analyses):
    assert [row[0] for row in await page(analyses, limit=1)] == ["burrow"]
    assert [row[0] for row in await page(analyses, after=["burrow"], limit=1)] == ["hive"]
    assert [row[0] for row in await page(analyses, after=["hive"])] == ["nest"]
    assert await page(analyses, after=["nest"], since=1) == []


async def test_a_queue_can_be_chosen(analyses):
    assert [row[0] for row in await page(analyses, queue="nest")] == ["nest"]
    assert await page(analyses, queue="nothing") == []
