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


async def markers(log):
    rows = await log.rows("select kind, instance, version from skep.marker order by id")
    return [tuple(row) for row in rows]


async def test_the_first_report_of_a_version_is_a_deploy_and_later_ones_are_starts(log):
    await log.execute("truncate skep.marker")
    report = "select skep.report_instance($1, $2, 1, $3, 1)"
    first = uuid4()
    for _ in range(2):
        await log.execute(report, first, "a", "1.0")
    await log.execute(report, uuid4(), "b", "1.0")
    await log.execute("select skep.forget_instance($1)", first)
    await log.execute(report, uuid4(), "a", "1.0")
    await log.execute(report, uuid4(), "a", "1.1")

    assert await markers(log) == [
        ("deploy", "a:1", "1.0"),
        ("start", "b:1", "1.0"),
        ("stop", "a:1", "1.0"),
        ("restart", "a:1", "1.0"),
        ("deploy", "a:1", "1.1"),
    ]


async def test_an_instance_that_falls_silent_is_noted_as_lost_once(log):
    await log.execute("truncate skep.marker")
    crashed, watcher = uuid4(), uuid4()
    await log.execute(REPORT, crashed, "crashed")
    fell_silent_at = log.now
    await log.execute(REPORT, watcher, "watcher")
    for _ in range(4):
        await log.advance(8)
        await log.execute(REPORT, watcher, "watcher")

    assert [kind for kind, *_ in await markers(log)] == ["deploy", "start", "loss"]
    row = await log.row("select at, instance from skep.marker where kind = 'loss'")
    assert tuple(row) == (fell_silent_at, "crashed:6632")

    await log.execute(REPORT, crashed, "crashed")
    await log.advance(16)
    await log.execute(REPORT, watcher, "watcher")
    assert [kind for kind, *_ in await markers(log)] == ["deploy", "start", "loss", "loss"]
