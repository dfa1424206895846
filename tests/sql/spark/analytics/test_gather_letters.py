from tests.sql.support.analyses import at
from tests.sql.support.letters import bury, redrive
from tests.sql.support.log import QUEUE_MODE

COLUMNS = ("queue", "group_name", "cause", "letters")


async def test_letters_are_counted_by_what_they_say(analyses, log):
    await bury(log, "a1", "a2", error="order 1 is odd")
    await bury(log, "a3", error="order 2 is odd")
    await bury(log, "a4", error="too late")
    await bury(log, "b1", queue="nest", group="wasps", error="too late")

    assert await analyses.gather("letters") == 3
    assert await analyses.table("letter", *COLUMNS) == [
        ("hive", QUEUE_MODE, "order # is odd", 3),
        ("hive", QUEUE_MODE, "too late", 1),
        ("nest", "wasps", "too late", 1),
    ]


async def test_a_letter_counts_in_the_hour_in_which_its_message_died(analyses, log):
    await bury(log, "early")
    await log.set_clock(at(1))
    await bury(log, "late")

    await analyses.gather("letters", upto=1)
    assert await analyses.table("letter", "hour", "letters") == [(at(0), 1)]
    await analyses.gather("letters", since=1, upto=2)
    assert await analyses.table("letter", "hour", "letters") == [(at(0), 1), (at(1), 1)]


async def test_it_is_known_how_old_messages_were_when_they_died(analyses, log):
    for name in ("a", "b", "c"):
        await bury(log, name)
    for age_s, offset in ((1, 1), (2, 2), (9, 3)):
        await log.execute(
            "update skep.dead_letter set created_at = failed_at - make_interval(secs => $1)"
            " where message_offset = $2",
            age_s,
            offset,
        )

    await analyses.gather("letters")

    ages = await analyses.table("letter", "age_ms_p50", "age_ms_p95", "age_ms_max")
    assert ages == [(2000, 8300, 9000)]


async def test_letters_that_were_redriven_count_and_deleted_ones_stay_counted(analyses, log):
    first, second, third = await bury(log, "a", "b", "c")
    partition, _ = await log.partition()
    await redrive(log, {first: partition})
    await analyses.gather("letters")
    assert await analyses.table("letter", "letters") == [(3,)]

    await log.execute("delete from skep.dead_letter where id = any($1)", [second, third])
    await bury(log, "d", error="other")

    assert await analyses.gather("letters") == 0
    assert await analyses.table("letter", "cause", "letters") == [("stung", 3)]


async def test_rare_causes_are_put_together(analyses, log):
    await bury(log, "a1", "a2", error="common")
    for name, error in (("b", "rare"), ("c", "odd")):
        await bury(log, name, error=error)

    await analyses.gather("letters", limit=1)

    found = await analyses.table("letter", "cause", "letters")
    assert sorted(found) == [("(other)", 2), ("common", 2)]
