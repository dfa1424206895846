import asyncio
import json

from tests.sql.support.rollups import Rollups, used


async def test_what_workers_report_of_a_minute_adds_up(rollups, log):
    await log.partition("hive")
    first, second = await rollups.worker(), await rollups.worker(number=1)

    await rollups.report(first, used("hive", {0: 2}, 7, push_messages=3, lag_ms_sum=9))
    await rollups.report(second, used("hive", {0: 1, 3: 4}, 5, push_messages=4, pop_empty=1))

    [row] = await log.rows("select * from skep.queue_minute")
    assert [row["push_messages"], row["pop_empty"], row["lag_ms_sum"]] == [7, 1, 9]
    assert row["lag_ms_max"] == 7
    assert row["lag_counts"][:4] == [3, 0, 0, 4]


async def test_another_minute_is_another_row(rollups, log):
    await log.partition("hive")
    worker = await rollups.worker()

    await rollups.report(worker, used("hive", push_messages=1))
    await log.advance(60)
    await rollups.report(worker, used("hive", push_messages=2))

    rows = await log.rows("select push_messages from skep.queue_minute order by at")
    assert [row["push_messages"] for row in rows] == [1, 2]


async def test_only_queues_that_were_used_get_a_row(rollups, log):
    for queue in ("hive", "nest"):
        await log.partition(queue)

    await rollups.report(await rollups.worker(), used("nest", pop_messages=1))

    [row] = await log.rows("select queue_id from skep.queue_minute")
    assert row["queue_id"] == await rollups.queue_id("nest")


async def test_a_queue_that_is_gone_is_left_out(rollups):
    assert await rollups.report(await rollups.worker(), used("gone", push_messages=1)) is not None

    assert await rollups.count("queue_minute") == 0


async def test_totals_grow_for_ever(rollups, log):
    for queue in ("hive", "nest"):
        await log.partition(queue)
    worker = await rollups.worker()

    for _ in range(2):
        await rollups.report(worker, used("hive", push_messages=3), used("nest", ack_success=1))

    totals = dict(map(tuple, await log.rows("select name, value from skep.metric_total")))
    assert [totals["push_messages"], totals["ack_success"]] == [6, 2]
    assert "lag_ms_max" not in totals


async def test_a_sample_stands_for_its_whole_minute(rollups, log):
    worker = await rollups.worker()

    for count in (1, 5):
        sample = {"counters": {"calls": count}, "gauges": {}}
        await rollups.report(worker, sample=sample)

    [row] = await log.rows("select sample from skep.worker_minute")
    assert json.loads(row["sample"])["counters"] == {"calls": 5}


async def test_the_most_that_waited_is_kept_by_worker(rollups, log):
    await log.partition("hive")
    worker = await rollups.worker()

    for parked in (4, 9, 2):
        await rollups.report(worker, parked={"hive": parked, "gone": 1})

    [row] = await log.rows("select parked, worker_id from skep.parked_minute")
    assert tuple(row) == (9, worker)


async def test_a_worker_that_was_purged_is_told_so(rollups):
    assert await rollups.report(12345, used("hive", push_messages=1)) is None

    assert await rollups.count("metric_total") == 0


async def test_workers_that_report_the_same_queues_at_once_do_not_deadlock(rollups, log, open_log):
    queues = [f"queue-{number}" for number in range(20)]
    for queue in queues:
        await log.partition(queue)
    sessions = [await open_log() for _ in range(3)]
    workers = [await rollups.worker(number=number) for number in range(3)]

    async def report_often(session, worker, order):
        for _ in range(10):
            await Rollups(session, rollups.term).report(
                worker, *(used(queue, push_messages=1) for queue in order)
            )

    orders = [queues, queues[::-1], queues[7:] + queues[:7]]
    await asyncio.gather(*map(report_often, sessions, workers, orders))

    assert await log.value("select sum(push_messages) from skep.queue_minute") == 600
