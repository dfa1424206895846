from tests.sql.support.analyses import at
from tests.sql.support.rollups import MINUTE, used

COLUMNS = ("queue", "pushed", "delivered", "redelivered", "completed", "failed")


async def report(rollups, *queues, minutes):
    worker = await rollups.worker()
    await rollups.report(worker, *queues, at=at(0) + minutes * MINUTE)


async def worked(rollups, log):
    await log.partition("hive")
    await log.partition("nest")
    first = used("hive", {0: 2, 3: 1}, 9, push_messages=5, pop_messages=3, redelivered=1)
    await report(rollups, first, minutes=0)
    second = used("hive", {3: 4}, 30, pop_messages=4, ack_success=6, ack_failed=1)
    await report(rollups, second, used("nest", push_messages=1), minutes=59)
    await report(rollups, used("hive", push_messages=8), minutes=60)


async def test_what_the_brokers_counted_is_summed_up_by_hour_and_queue(rollups, analyses, log):
    await worked(rollups, log)

    assert await analyses.gather("deliveries", upto=2) == 3
    assert await analyses.table("delivery", *COLUMNS) == [
        ("hive", 5, 7, 1, 6, 1),
        ("nest", 1, 0, 0, 0, 0),
        ("hive", 8, 0, 0, 0, 0),
    ]
    counts, longest = (await analyses.table("delivery", "lag_counts", "lag_ms_max"))[0]
    assert (counts[0], counts[3], sum(counts), longest) == (2, 5, 7, 30)


async def test_hours_that_were_rolled_up_count_the_same_when_their_minutes_are_gone(
    rollups, analyses, log
):
    await worked(rollups, log)
    await log.advance(3600 * 3)
    while await rollups.roll_up():
        pass
    await log.execute("delete from skep.queue_minute")

    assert await analyses.gather("deliveries", upto=1) == 2
    assert await analyses.table("delivery", *COLUMNS) == [
        ("hive", 5, 7, 1, 6, 1),
        ("nest", 1, 0, 0, 0, 0),
    ]


async def test_what_was_purged_since_does_not_take_the_place_of_what_was_kept(
    rollups, analyses, log
):
    await worked(rollups, log)
    await analyses.gather("deliveries")
    await log.execute("delete from skep.queue_minute where at = $1", at(0))

    await analyses.gather("deliveries")

    assert (await analyses.table("delivery", *COLUMNS))[0] == ("hive", 5, 7, 1, 6, 1)


async def test_the_busiest_queues_are_kept_if_there_are_too_many(rollups, analyses, log):
    await worked(rollups, log)

    assert await analyses.gather("deliveries", limit=1) == 1
    assert await analyses.table("delivery", "queue", "pushed") == [("hive", 5)]
