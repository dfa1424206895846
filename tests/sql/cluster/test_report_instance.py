from uuid import uuid4

import pytest

REPORT = "select skep.report_instance($1, $2, 6632, '1.0', 2)"
ROWS = "select host, started_at, seen_at from skep.instance order by host"


@pytest.fixture(autouse=True)
def nobody(arun, log):
    arun(log.execute("delete from skep.instance"))


async def test_the_first_report_says_when_it_started_and_later_ones_that_it_lives(log):
    instance = uuid4()
    await log.execute(REPORT, instance, "a")
    ((_, started_at, first_seen),) = await log.connection.fetch(ROWS)
    await log.advance(5)
    await log.execute(REPORT, instance, "a")

    ((_, still, seen),) = await log.connection.fetch(ROWS)

    assert still == started_at == first_seen
    assert (seen - first_seen).total_seconds() == 5


async def test_who_was_silent_for_an_hour_is_forgotten_by_whoever_reports_next(log):
    await log.execute(REPORT, uuid4(), "gone")
    await log.advance(1800)
    await log.execute(REPORT, uuid4(), "silent")
    await log.advance(1801)

    await log.execute(REPORT, uuid4(), "new")

    assert [row[0] for row in await log.connection.fetch(ROWS)] == ["new", "silent"]


async def test_a_report_does_not_wait_for_one_who_forgets_the_same(log, open_log):
    await log.execute(REPORT, uuid4(), "gone")
    await log.advance(3601)
    other = await open_log()
    await other.advance(3601)
    await other.execute("set lock_timeout = '1s'")

    async with log.connection.transaction():
        await log.execute(REPORT, uuid4(), "a")
        await other.execute(REPORT, uuid4(), "b")

    assert [row[0] for row in await log.connection.fetch(ROWS)] == ["a", "b"]
