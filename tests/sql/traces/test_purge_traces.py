from datetime import timedelta

import pytest

from skep.broker import traces as broker_traces
from skep.broker.traces import TracePurge
from tests.sql.support.log import NOON


def purge(log, before, limit=100):
    return log.value("select skep.purge_traces($1, $2)", before, limit)


@pytest.fixture
def partition(arun, log):
    async def fill():
        partition, _ = await log.partition()
        await log.push(partition, "a")
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
    duty = TracePurge(SessionCaller(log), keep=timedelta(days=7))
    for _ in range(3):
        await traces.record(partition, "a", "old")
    await log.advance(7 * 86_400 + 1)
    await traces.record(partition, "a", "young")

    assert [await duty.run() for _ in range(3)] == [True, False, False]
    assert await traces.totals() == {"young": (1, 1)}
