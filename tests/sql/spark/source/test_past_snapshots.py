"""Snapshots of the past: what they let readers pass over, and that it is never too much."""

import pytest

from tests.sql.support.spans import SpanReader

NOTE = "select skep.note_snapshot('1 hour', '10 days')"
BEFORE = "select skep.snapshot_before($1)"
HOUR_S = 3600


@pytest.fixture
def reader(log):
    return SpanReader(log)


async def test_a_snapshot_is_noted_once_an_hour_and_kept_for_some_days(log):
    noted = []
    for _ in range(4):
        noted.append(await log.value(NOTE))
        await log.advance(HOUR_S / 2)
    first = await log.value("select min(taken_at) from skep.past_snapshot")
    await log.advance(10 * 24 * HOUR_S)
    await log.value(NOTE)

    assert noted == [True, False, True, False]
    assert await log.value("select min(taken_at) from skep.past_snapshot") > first


async def test_what_was_stored_an_hour_before_is_passed_over_and_nothing_later(
    log, reader, open_log
):
    partition, _ = await log.partition()
    [other] = await log.provision("hive", "late")
    slow = await open_log()
    await log.push(partition, "old")
    late = slow.connection.transaction()
    await late.start()
    await slow.push(other, "late")
    await log.value(NOTE)
    await log.advance(HOUR_S - 1)
    assert await log.value(BEFORE, log.now) is None
    await log.advance(1)
    await log.push(partition, "new")
    await late.commit()

    seen = await log.value(BEFORE, log.now)

    assert await reader.found(seen) == [(partition, 2), (other, 1)]


async def test_a_snapshot_of_another_server_is_not_used(log):
    await log.value(NOTE)
    await log.execute("update skep.past_snapshot set system = '1:1'")
    await log.advance(2 * HOUR_S)

    assert await log.value(BEFORE, log.now) is None
    assert await log.value(NOTE) is True
