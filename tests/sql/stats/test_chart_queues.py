from tests.sql.support.rollups import MINUTE, used

CHART = "select * from skep.chart_queues($1, $2, false, 300, $3, $4, true)"


async def reported(rollups, log):
    for queue in ("a", "b"):
        await log.partition(queue)
    worker = await rollups.worker()
    for minutes in (0, 4, 5):
        await rollups.report(
            worker,
            used("a", {1: 1}, minutes, push_messages=1, pop_messages=1),
            used("b", {1: 2}, 1, push_messages=10, pop_messages=2),
            at=log.now + minutes * MINUTE,
        )
    ids = [await rollups.queue_id(queue) for queue in ("a", "b")]
    return ids, (log.now, log.now + 10 * MINUTE)


async def test_a_point_sums_up_its_bucket_by_queue(rollups, log):
    (a, b), span = await reported(rollups, log)

    rows = await log.rows(CHART, *span, [a, b], False)

    noon = log.now
    assert [(row["bucket"], row["queue_id"], row["push_messages"]) for row in rows] == [
        (noon, a, 2),
        (noon, b, 20),
        (noon + 5 * MINUTE, a, 1),
        (noon + 5 * MINUTE, b, 10),
    ]
    assert [row["lag_ms_max"] for row in rows] == [4, 1, 5, 1]
    assert [row["lag_counts"][1] for row in rows] == [2, 4, 1, 2]


async def test_all_queues_can_be_one(rollups, log):
    ids, span = await reported(rollups, log)

    rows = await log.rows(CHART, *span, ids, True)

    assert [(row["queue_id"], row["push_messages"]) for row in rows] == [(None, 22), (None, 11)]
    assert [row["lag_ms_max"] for row in rows] == [4, 5]
    assert [row["lag_counts"][1] for row in rows] == [6, 3]


async def test_other_queues_do_not_count(rollups, log):
    (a, _), span = await reported(rollups, log)

    assert [row["push_messages"] for row in await log.rows(CHART, *span, [a], True)] == [2, 1]


async def test_defect_39_a_bucket_of_six_hours_is_one_point(rollups, log):
    await log.partition("a")
    worker, noon = await rollups.worker(), log.now
    for hours in (0, 1, 5, 6):
        at = noon + hours * 60 * MINUTE
        await rollups.report(worker, used("a", push_messages=1), at=at)
    queue_id = await rollups.queue_id("a")

    rows = await log.rows(
        "select * from skep.chart_queues($1, $2, false, 21600, $3, false, false)",
        noon,
        noon + 12 * 60 * MINUTE,
        [queue_id],
    )

    assert [row["push_messages"] for row in rows] == [3, 1]
    assert [row["lag_counts"] for row in rows] == [[], []]
