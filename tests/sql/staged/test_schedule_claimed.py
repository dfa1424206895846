from datetime import timedelta

from tests.sql.support.enqueued import stage, staged, staged_ids
from tests.sql.support.log import NOON, envelope, key_of
from tests.sql.support.scheduling import queue_id_of, waiting
from tests.sql.support.scheduling import schedule as schedule_directly

LATER = NOON + timedelta(seconds=60)


async def schedule(log, ids, *names, most=100, queue_id=None):
    count = len(names)
    rows = await log.rows(
        "select * from skep.schedule_claimed($1, $2, $3, $4, $5, $6, $7, $8)",
        ids,
        [queue_id or await queue_id_of(log)] * count,
        ["a"] * count,
        [key_of(name) for name in names],
        list(names),
        [envelope(name).encode() for name in names],
        [LATER] * count,
        most,
    )
    return [tuple(row) for row in rows]


async def test_messages_wait_for_their_time_instead(log):
    await stage(log, "x", "y", at=LATER)

    rows = await schedule(log, await staged_ids(log), "x", "y")

    assert rows == [(1, "scheduled", 60), (2, "scheduled", 60)]
    assert await waiting(log) == ["x", "y"]
    assert await staged(log) == []


async def test_one_that_waits_already_is_dropped(log):
    await stage(log, "x", at=LATER)
    await schedule(log, await staged_ids(log), "x")
    await stage(log, "x", at=LATER)

    assert [row[1] for row in await schedule(log, await staged_ids(log), "x")] == ["duplicate"]
    assert (await waiting(log), await staged(log)) == (["x"], [])


async def test_what_finds_no_room_stays_staged(log):
    await stage(log, "x", "y", at=LATER)
    ids = await staged_ids(log)
    await schedule(log, ids[:1], "x", most=1)

    assert [row[1] for row in await schedule(log, ids[1:], "y", most=1)] == ["full"]
    assert await staged(log) == ["y"]


async def test_for_a_queue_that_is_gone_it_stays_staged(log):
    await stage(log, "x", at=LATER)

    assert [row[1] for row in await schedule(log, await staged_ids(log), "x", queue_id=-1)] == [
        "gone"
    ]
    assert await staged(log) == ["x"]


async def test_while_another_session_is_at_it_nothing_happens(log, open_log):
    await queue_id_of(log)
    await stage(log, "x", at=LATER)
    ids = await staged_ids(log)
    other = await open_log()
    async with other.connection.transaction():
        await schedule(other, ids, "x")

        assert await schedule(log, ids, "x") == []

    assert await waiting(log) == ["x"]


async def test_without_a_window_every_message_waits(log):
    await log.configure("hive", dedup_window_s=0)
    await stage(log, "x", "x", at=LATER)

    rows = await schedule(log, await staged_ids(log), "x", "x")

    assert [row[1] for row in rows] == ["scheduled"] * 2
    assert (await waiting(log), await staged(log)) == (["x", "x"], [])


async def test_a_staged_message_is_not_taken_for_one_that_was_scheduled_under_its_number(log):
    await log.configure("hive", dedup_window_s=0)
    await stage(log, "x", at=LATER)
    ids = await staged_ids(log)
    await log.value("select setval('skep.scheduled_id_seq', $1, false)", ids[0])
    await schedule_directly(log, "x", delay_s=60)

    await schedule(log, ids, "x")

    assert (await waiting(log), await staged(log)) == (["x", "x"], [])
