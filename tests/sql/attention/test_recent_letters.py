from tests.sql.support.letters import bury

RECENT = "select * from skep.recent_letters($1, $2)"


async def test_new_letters_are_summed_up_by_queue_and_group(log):
    began_at = log.now
    await bury(log, "x", "y", group="bees", error="stung")
    await log.advance(10)
    await bury(log, "z", group="bees", error="lost")
    await bury(log, "v", queue="nest", group="ants")

    rows = await log.rows(RECENT, 100, 60)

    assert [tuple(row) for row in rows] == [
        ("hive", "bees", 3, began_at, log.now, "stung"),
        ("nest", "ants", 1, log.now, log.now, "stung"),
    ]


async def test_old_letters_are_no_news(log):
    await bury(log, "x")
    await log.advance(61)
    await bury(log, "y", "z")

    assert [row["letters"] for row in await log.rows(RECENT, 100, 60)] == [2]
    assert [row["letters"] for row in await log.rows(RECENT, 1, 60)] == [1]
