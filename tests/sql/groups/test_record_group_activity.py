import json
from datetime import timedelta

RECORD = "select skep.record_group_activity($1, 90)"
ACTIVITY = "select * from skep.group_activity where group_id = $1"


def did(group="bees", *, queue="hive", progressed=False, failed=False):
    return {"queue": queue, "group": group, "progressed": progressed, "failed": failed}


async def record(log, *news):
    await log.value(RECORD, json.dumps(news))


async def test_what_groups_do_is_noted_with_its_time(log):
    bees, ants = await log.subscribe("hive", "bees"), await log.subscribe("hive", "ants")
    await record(log, did(), did("ants", progressed=True))
    began_at = log.now
    await log.advance(30)
    await record(log, did("bees", failed=True))

    [bee], [ant] = await log.rows(ACTIVITY, bees), await log.rows(ACTIVITY, ants)
    assert [bee[1:], ant[1:]] == [
        (log.now, began_at, None, log.now),
        (began_at, began_at, began_at, None),
    ]


async def test_consumers_that_come_back_owe_nothing_for_the_time_they_were_away(log):
    bees = await log.subscribe("hive", "bees")
    await record(log, did(progressed=True))
    progressed_at = log.now
    await log.advance(91)
    await record(log, did())

    [row] = await log.rows(ACTIVITY, bees)

    assert (row["expected_from"], row["progressed_at"]) == (log.now, progressed_at)


async def test_a_group_that_is_gone_is_left_out(log):
    known = await log.value("select count(*) from skep.group_activity")
    await record(log, did("no such group"), did("bees", queue="gone"))

    assert await log.value("select count(*) from skep.group_activity") == known


async def test_progress_is_expected_anew_of_a_group_that_is_resumed_or_moved(log):
    [partition] = await log.provision("hive", "a")
    bees, ants = await log.subscribe("hive", "bees"), await log.subscribe("hive", "ants")
    await record(log, did("bees"), did("ants"))
    began_at = log.now

    async def expected():
        await log.advance(60)
        [bee], [ant] = await log.rows(ACTIVITY, bees), await log.rows(ACTIVITY, ants)
        return [(row["expected_from"] - began_at) // timedelta(seconds=60) for row in (bee, ant)]

    await log.advance(60)
    await log.value("select skep.pause_group($1, true)", bees)
    assert await expected() == [0, 0]
    await log.value("select skep.pause_group($1, false)", bees)
    assert await expected() == [2, 0]
    await log.value("select skep.pause_queue('hive', true)")
    assert await expected() == [2, 0]
    await log.value("select skep.pause_queue('hive', false)")
    assert await expected() == [4, 4]
    await log.rows("select * from skep.seek_cursors($1, $2, $3)", ants, [partition], [0])
    assert await expected() == [4, 5]
