import json

from tests.sql.support.letters import bury
from tests.sql.support.rollups import used

SCRAPE = "select skep.scrape_metrics($1, $2)"


async def scrape(log, queues=10, letters=100):
    return json.loads(await log.value(SCRAPE, queues, letters))


async def test_an_installation_that_did_nothing_has_nothing_to_show(rollups, log):
    shown = await scrape(log)

    assert [shown["totals"], shown["minute"]["queues"], shown["dead_letters"]] == [{}, [], {}]


async def test_the_last_minute_that_is_over_is_shown_the_busiest_queue_first(rollups, log):
    for queue in ("hive", "nest"):
        await log.partition(queue)
    worker = await rollups.worker()
    await rollups.report(
        worker,
        used("hive", push_messages=1),
        used("nest", push_messages=5),
        parked={"hive": 3},
    )
    await log.advance(65)
    await rollups.report(worker, used("hive", push_messages=100))

    shown = await scrape(log)

    queues = shown["minute"]["queues"]
    assert [(each["queue"], each["push_messages"], each["parked"]) for each in queues] == [
        ("nest", 5, 0),
        ("hive", 1, 3),
    ]
    assert shown["minute"]["age_s"] == 65
    assert shown["totals"]["push_messages"] == 106


async def test_lists_and_counts_have_their_bounds(rollups, log):
    await bury(log, "x", "y", "z", queue="hive")
    await bury(log, "v", queue="nest")

    assert (await scrape(log))["dead_letters"] == {"hive": 3, "nest": 1}
    assert (await scrape(log, queues=1, letters=2))["dead_letters"] == {"hive": 2}
