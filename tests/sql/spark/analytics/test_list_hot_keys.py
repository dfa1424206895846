import pytest

from tests.sql.support.analyses import at


@pytest.fixture(autouse=True)
def keys(arun, analyses):
    arun(analyses.store(keys={"a": 6, "b": 4}))
    arun(analyses.store(queue="nest", hours=1))


async def page(analyses, queue=None, after=None, limit=9):
    return await analyses.page("list_hot_keys", at(0), at(2), queue, after, limit)


async def test_keys_stand_in_the_order_of_hours_and_queues(analyses):
    first, second, third = await page(analyses)

    assert first == ("hive", "partition", "a", 6, 12)
    assert second == ("hive", "partition", "b", 4, 8)
    assert third == ("nest", "partition", "a", 10, 20)


async def test_pages_follow_each_other_and_a_queue_can_be_chosen(analyses):
    assert len(await page(analyses, limit=1)) == 1
    rest = await page(analyses, after=["hive", "partition", "a"])
    assert [row[2] for row in rest] == ["b", "a"]
    assert [row[0] for row in await page(analyses, queue="nest")] == ["nest"]
