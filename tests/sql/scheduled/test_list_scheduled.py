from tests.sql.support.log import envelope
from tests.sql.support.scheduling import schedule

LIST = "select * from skep.list_scheduled($1, $2, $3, $4, $5)"


async def names(log, scheduled_id=None, queue=None, partition=None, after=0, limit=100):
    rows = await log.rows(LIST, scheduled_id, queue, partition, after, limit)
    return [row["transaction_id"] for row in rows]


async def test_the_order_is_that_of_scheduling_and_pages_follow_each_other(log):
    await schedule(log, "late", delay_s=90)
    [early] = await schedule(log, "early", delay_s=10)
    await schedule(log, "next", delay_s=50)

    assert await names(log, limit=2) == ["late", "early"]
    assert await names(log, after=early.scheduled_id) == ["next"]


async def test_a_page_can_be_of_one_queue_or_partition(log):
    await schedule(log, "x")
    await schedule(log, "y", partition="b")
    await schedule(log, "z", queue="nest")

    assert await names(log, queue="hive") == ["x", "y"]
    assert await names(log, queue="hive", partition="b") == ["y"]
    assert await names(log, partition="a") == ["x", "z"]
    assert await names(log, queue="no such queue") == []


async def test_only_the_single_message_comes_with_its_content(log):
    [answer] = await schedule(log, "x")

    [single] = await log.rows(LIST, answer.scheduled_id, None, None, 0, 1)
    [listed] = await log.rows(LIST, None, None, None, 0, 1)

    assert single["envelope"] == envelope("x").encode()
    assert listed["envelope"] is None
