import json

from tests.sql.support.rollups import HOUR, MINUTE

SAMPLES = "select * from skep.worker_samples($1, $2, $3, $4, $5, $6)"


def sample(count):
    return {"counters": {"calls": count}, "gauges": {}}


async def found(log, *, hourly=False, hostname=None, number=None, limit=100):
    rows = await log.rows(SAMPLES, log.now - HOUR, log.now + HOUR, hourly, hostname, number, limit)
    return [json.loads(row["sample"])["counters"]["calls"] for row in rows]


async def test_samples_come_oldest_first_and_say_whose_they_are(rollups, log):
    first, second = await rollups.worker("x", 0), await rollups.worker("y", 1)
    await rollups.report(second, sample=sample(2))
    await rollups.report(first, sample=sample(1), at=log.now - MINUTE)

    assert await found(log) == [1, 2]
    assert await found(log, hostname="y") == [2]
    assert await found(log, number=0) == [1]
    assert await found(log, limit=1) == [1]


async def test_samples_outside_the_time_are_left_out(rollups, log):
    worker = await rollups.worker()
    await rollups.report(worker, sample=sample(1), at=log.now - 2 * HOUR)

    assert await found(log) == []


async def test_hours_stand_for_their_minutes(rollups, log):
    worker = await rollups.worker()
    await rollups.report(worker, sample=sample(1), at=log.now - HOUR)
    await rollups.report(worker, sample=sample(2))
    record = "select skep.record_worker_hour($1, $2, $3, $4, $5)"
    hour = [log.now - HOUR, [worker], [json.dumps(sample(7))]]
    await log.value(record, *rollups.term, *hour)

    assert await found(log, hourly=True) == [7, 2]
