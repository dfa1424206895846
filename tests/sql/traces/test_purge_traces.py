import random
from datetime import UTC, datetime, timedelta

import pytest

from skep.broker import traces as broker_traces
from skep.broker.traces import trace_purge
from tests.sql.model.test_races import waiting
from tests.sql.support.log import NOON
from tests.sql.support.trace_log import TraceLog

LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)


def purge(log, before, limit=100):
    return log.value("select skep.purge_traces($1, $2)", before, limit)


async def expire(log, *ids):
    await log.execute(
        "update skep.trace set created_at = $2 where id = any($1)",
        list(ids),
        LONG_AGO - timedelta(days=1),
    )


async def delete(log, *ids):
    await expire(log, *ids)
    return await purge(log, LONG_AGO)


@pytest.fixture
def partition(arun, log):
    async def fill():
        partition, _ = await log.partition()
        await log.push(partition, *"abcdef")
        return partition

    return arun(fill())


async def test_defect_45_traces_do_not_stay_for_ever(log, traces, partition):
    await traces.record(partition, "a", "old")
    await log.advance(60)
    await traces.record(partition, "a", "new")

    assert await purge(log, log.now) == 1

    assert await traces.totals() == {"new": (1, 1)}
    assert [trace.names for trace in await traces.of_message(partition, "a")] == [["new"]]


async def test_a_step_removes_a_bounded_number_the_oldest_first(log, traces, partition):
    recorded = []
    for _ in range(3):
        recorded.append(await traces.record(partition, "a"))
        await log.advance()

    assert await purge(log, log.now, limit=2) == 2
    assert [trace.id for trace in await traces.of_message(partition, "a")] == recorded[2:]
    assert await purge(log, log.now, limit=2) == 1
    assert await purge(log, log.now, limit=2) == 0


async def test_what_is_not_older_stays(log, traces, partition):
    await traces.record(partition, "a")

    assert await purge(log, NOON) == 0


class SessionCaller:
    """Runs the calls of the broker in the session of a test, with its clock."""

    def __init__(self, log):
        self.call = log.rows


async def test_the_duty_keeps_what_is_young_and_says_when_there_may_be_more(
    log, traces, partition, monkeypatch
):
    monkeypatch.setattr(broker_traces, "PURGE_STEP", 2)
    duty = trace_purge(SessionCaller(log), keep=timedelta(days=7))
    for _ in range(3):
        await traces.record(partition, "a", "old")
    await log.advance(7 * 86_400 + 1)
    await traces.record(partition, "a", "young")

    assert [await duty.run() for _ in range(3)] == [True, False, False]
    assert await traces.totals() == {"young": (1, 1)}


async def test_old_traces_are_gone_and_the_others_are_not(log, traces, partition):
    first = await traces.record(partition, "a", "order")
    second = await traces.record(partition, "a", "order")

    assert await delete(log, first) == 1

    assert [trace.id for trace in await traces.of_message(partition, "a")] == [second]
    assert await traces.totals() == {"order": (1, 1)}


async def test_a_message_leaves_a_name_with_its_last_trace(log, traces, partition):
    first = await traces.record(partition, "a", "order")
    second = await traces.record(partition, "a", "order")
    await traces.record(partition, "b", "order")

    assert await delete(log, first, second) == 2

    assert await traces.totals() == {"order": (1, 1)}


async def test_a_name_is_gone_with_its_last_trace(log, traces, partition):
    only = await traces.record(partition, "a", "order", "bill")
    await traces.record(partition, "a", "bill")

    await delete(log, only)

    assert await traces.totals() == {"bill": (1, 1)}
    assert await traces.counted() == await traces.totals()


async def test_deleting_again_or_nothing_changes_nothing(log, traces, partition):
    kept = await traces.record(partition, "a", "order")
    gone = await traces.record(partition, "a", "order")
    await delete(log, gone)

    assert await delete(log) == 0
    assert [trace.id for trace in await traces.of_message(partition, "a")] == [kept]
    assert await traces.totals() == {"order": (1, 1)}


async def test_the_totals_agree_with_a_count_after_any_history(log, traces, partition):
    chance = random.Random(7)
    ids = []
    for _ in range(120):
        names = chance.sample(["order", "bill", "mail"], chance.randint(0, 3))
        ids.append(await traces.record(partition, chance.choice("abcdef"), *names))
        if chance.random() < 0.3:
            gone = chance.sample(ids, min(len(ids), 8))
            ids = [each for each in ids if each not in gone]
            assert await delete(log, *gone) == len(gone)

    assert ids
    assert await traces.totals() == await traces.counted()


async def test_a_trace_that_arrives_during_the_deletion_is_counted(
    log, traces, partition, open_log
):
    other, observer = await open_log(), await open_log()
    first = await traces.record(partition, "a", "order")
    await expire(log, first)
    await log.execute("begin")
    await purge(log, LONG_AGO)

    async with waiting(observer, other, TraceLog(other).record(partition, "a", "order")):
        await log.execute("commit")

    assert await traces.totals() == {"order": (1, 1)}
    assert await traces.counted() == await traces.totals()


async def test_deleting_the_same_trace_at_once_counts_it_once(log, traces, partition, open_log):
    other, observer = await open_log(), await open_log()
    first = await traces.record(partition, "a", "order")
    await traces.record(partition, "a", "order")
    await expire(log, first)
    await log.execute("begin")
    await purge(log, LONG_AGO)

    async with waiting(observer, other, purge(other, LONG_AGO)) as second_try:
        await log.execute("commit")

    assert second_try.result() == 0
    assert await traces.totals() == {"order": (1, 1)}
