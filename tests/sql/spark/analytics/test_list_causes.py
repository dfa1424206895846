import pytest

from tests.sql.support.analyses import at

LETTER = "insert into skep.analytics_letter values ($1, $2, 'bees', $3, 4, 5, 6, 7)"


@pytest.fixture(autouse=True)
def letters(arun, analyses, log):
    for hours, queue, cause in ((1, "hive", "late"), (0, "nest", "odd"), (0, "nest", "late")):
        arun(log.execute(LETTER, at(hours), queue, cause))


async def page(analyses, queue=None, after=None, limit=9):
    rows = await analyses.page("list_causes", at(0), at(2), queue, after, limit)
    assert all(row[3:] == (4, 5, 6, 7) for row in rows)
    return [row[:3] for row in rows]


async def test_causes_stand_in_the_order_of_hours_and_queues(analyses):
    assert await page(analyses) == [
        ("nest", "bees", "late"),
        ("nest", "bees", "odd"),
        ("hive", "bees", "late"),
    ]


async def test_pages_follow_each_other_and_a_queue_can_be_chosen(analyses):
    assert await page(analyses, limit=1) == [("nest", "bees", "late")]
    rest = await page(analyses, after=["nest", "bees", "late"])
    assert rest == [("nest", "bees", "odd"), ("hive", "bees", "late")]
    assert await page(analyses, queue="hive") == [("hive", "bees", "late")]
