"""What workers report, and what the duties make of it, as Python does it."""

import os
from collections import Counter
from datetime import timedelta

import pytest

from skep.broker.cluster.leadership import Term
from skep.broker.stats.rollups import (
    Reporter,
    RollUpDuty,
    WorkerIdentity,
    lag_sampling,
    metrics_purge,
)
from skep.broker.stats.samples import decode_sample
from skep.db.access.errors import LeadershipLost, NotExecuted
from skep.db.access.functions import Functions
from skep.db.access.slots import ONE_OFF, Slots
from skep.telemetry.histograms import LAG_BOUNDS_MS
from skep.telemetry.meters import Meters
from tests.sql.support.log import QUEUE_MODE

IDENTITY = WorkerIdentity("host", 6632, 3, os.getpid())


class Caller:
    """Runs calls in the session of a test, unless they are to fail."""

    def __init__(self, log):
        self.log = log
        self.fails = False
        self.calls = 0

    async def call(self, statement, *arguments):
        self.calls += 1
        if self.fails:
            raise NotExecuted("away")
        return await self.log.rows(statement, *arguments)


@pytest.fixture
def caller(log):
    return Caller(log)


@pytest.fixture
def meters():
    return Meters()


@pytest.fixture
def reporter(arun, rollups, log, caller, meters):
    async def make():
        await log.partition("hive")
        return Reporter(
            Functions(caller),
            meters,
            IDENTITY,
            read_gauges=lambda: {"rss_bytes": [5.0], "loop_lag_ms": [1.0, 9.0]},
            read_parked=lambda: Counter({("hive", QUEUE_MODE): 2}),
            interval_s=60,
            now=lambda: log.now,
        )

    return arun(make())


async def samples(log):
    rows = await log.rows("select sample::text from skep.worker_minute order by at")
    return [decode_sample(row["sample"]) for row in rows]


async def test_what_is_new_is_added_and_a_minute_is_one_sample(log, reporter, meters):
    for pushed in (2, 3):
        meters.queues.of("hive").push_messages += pushed
        await reporter.report()

    [row] = await log.rows("select push_messages from skep.queue_minute")
    assert row["push_messages"] == 5
    [sample] = await samples(log)
    assert sample.count("push_messages") == 5
    assert [sample.gauges["rss_bytes"].times, sample.gauges["loop_lag_ms"].greatest] == [2, 9]


async def test_a_sample_has_the_histogram_of_lags_over_all_queues(log, reporter, meters):
    for queue, lag_s in (("hive", 0.004), ("nest", 0.004), ("nest", 7_000)):
        meters.queues.note_delivery(meters.queues.of(queue), 2, lag_s, is_redelivery=False)
    await reporter.report()

    [sample] = await samples(log)
    assert {
        bound: count
        for bound, count in zip(LAG_BOUNDS_MS, sample.lag_counts, strict=False)
        if count
    } == {
        5: 4,
        10_800_000: 2,
    }
    assert sample.gauges["lag_ms_max"].greatest == 7_000_000


async def test_the_next_minute_begins_anew(log, reporter, meters):
    meters.queues.of("hive").push_messages += 1
    await reporter.report()
    await log.advance(60)
    await reporter.report()

    assert [sample.count("push_messages") for sample in await samples(log)] == [1, 0]


async def test_what_could_not_be_written_is_written_later_and_once(log, reporter, caller, meters):
    meters.queues.of("hive").push_messages += 2
    await reporter.report()
    caller.fails = True
    meters.queues.of("hive").push_messages += 3
    await reporter.report()
    caller.fails = False
    await reporter.report()

    assert await log.value("select sum(push_messages) from skep.queue_minute") == 5
    assert sum(sample.count("push_messages") for sample in await samples(log)) == 5


async def test_a_worker_that_was_purged_registers_again(log, reporter, meters):
    await reporter.report()
    await log.execute("delete from skep.metric_worker")
    meters.queues.of("hive").push_messages += 4
    await reporter.report()
    await reporter.report()

    assert await log.value("select count(*) from skep.metric_worker") == 1
    assert await log.value("select sum(push_messages) from skep.queue_minute") == 4


async def test_a_report_is_three_calls_at_first_and_one_while_nothing_changes(reporter, caller):
    for _ in range(3):
        await reporter.report()

    assert caller.calls == 5


async def test_a_parked_poll_and_what_a_group_did_are_known_everywhere(log, reporter, meters):
    group = await log.subscribe("hive", "bees")
    await log.execute("update skep.consumer_group set first_polled_at = null")
    meters.groups.progressed.add(("hive", "bees"))
    await reporter.report()

    rows = await log.rows("select * from skep.group_activity order by group_id")
    parked = await log.value("select id from skep.consumer_group where name = $1", QUEUE_MODE)

    did = {row["group_id"]: (row["polled_at"], row["progressed_at"]) for row in rows}
    assert did == {group: (log.now, log.now), parked: (log.now, None)}


async def test_what_a_group_did_is_written_later_if_it_cannot_be_now(log, reporter, caller, meters):
    await reporter.report()
    group = await log.subscribe("hive", "bees")
    meters.groups.failed.add(("hive", "bees"))
    caller.fails = True
    await reporter.report()
    caller.fails = False
    await reporter.report()

    assert await log.value("select failed_at from skep.group_activity where group_id = $1", group)


async def test_minutes_are_those_of_the_database(rollups, log, caller, meters):
    behind = timedelta(hours=5)
    reporter = Reporter(
        Functions(caller),
        meters,
        IDENTITY,
        read_gauges=dict,
        read_parked=Counter,
        interval_s=60,
        now=lambda: log.now - behind,
    )

    await reporter.report()

    assert await log.value("select at from skep.worker_minute") == log.now


async def test_a_reporter_that_stops_reports_once_more(log, reporter, meters):
    reporter.start()
    meters.queues.of("hive").pop_messages += 1
    await reporter.stop()

    assert await log.value("select pop_messages from skep.queue_minute") == 1


async def test_hours_are_rolled_up_for_queues_and_workers(rollups, log, reporter, caller, meters):
    for _ in range(2):
        meters.queues.of("hive").push_messages += 2
        await reporter.report()
        await log.advance(60)
    await log.advance(2 * 3_600)
    duty = RollUpDuty(caller, Term(*rollups.term))

    assert await duty.run()
    assert not await duty.run()

    assert await log.value("select push_messages from skep.queue_hour") == 4
    [row] = await log.rows("select sample::text from skep.worker_hour")
    assert decode_sample(row["sample"]).count("push_messages") == 4


async def test_lag_is_sampled_and_old_rollups_are_purged(rollups, log, reporter, caller, meters):
    [partition_id] = await log.provision("hive", "a")
    await log.subscribe("hive", QUEUE_MODE)
    await log.push(partition_id, "x")
    meters.queues.of("hive").push_messages += 1
    await reporter.report()
    term = Term(*rollups.term)

    assert not await lag_sampling(caller, term).run()
    assert await rollups.count("group_minute") == 1
    await log.advance(3 * 86_400)
    assert not await metrics_purge(caller, term, keep=timedelta(days=90)).run()

    assert await rollups.count("group_minute") == await rollups.count("queue_minute") == 0
    assert await rollups.count("metric_worker") == 1


async def test_whoever_does_not_lead_any_more_stops(rollups, log_url, caller):

    slots = Slots(log_url, size=1, server_settings=ONE_OFF, statement_timeout_s=10)
    await slots.open()
    try:
        with pytest.raises(LeadershipLost):
            await RollUpDuty(slots, Term("nobody leads this", rollups.term[1])).run()
    finally:
        await slots.close()
