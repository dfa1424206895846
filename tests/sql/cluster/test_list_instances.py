from uuid import uuid4

import pytest

REPORT = "select skep.report_instance($1, $2, 6632, '1.0', 2)"
LIST = "select host, version, worker_count, silent_s from skep.list_instances($1)"


@pytest.fixture(autouse=True)
def nobody(arun, log):
    arun(log.execute("delete from skep.instance"))


async def test_those_seen_last_come_first_with_how_long_they_are_silent(log):
    await log.execute(REPORT, uuid4(), "silent")
    await log.advance(7)
    await log.execute(REPORT, uuid4(), "alive")

    rows = await log.connection.fetch(LIST, 10)

    assert [tuple(row) for row in rows] == [("alive", "1.0", 2, 0.0), ("silent", "1.0", 2, 7.0)]


async def test_who_was_silent_for_an_hour_is_not_listed(log):
    await log.execute(REPORT, uuid4(), "gone")
    await log.advance(3601)

    assert await log.connection.fetch(LIST, 10) == []


async def test_the_list_has_a_limit(log):
    for number in range(3):
        await log.execute(REPORT, uuid4(), str(number))

    assert len(await log.connection.fetch(LIST, 2)) == 2
