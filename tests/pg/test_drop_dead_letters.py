from tests.pg.letters import bury, letter_ids, redrive

QUERY = "select skep.drop_dead_letters($1, $2)"


async def queue_id_of(log, queue):
    return await log.value("select id from skep.queue where name = $1", queue)


async def test_a_queue_forgets_its_letters_and_what_became_of_them(log):
    moved, _ = await bury(log, "x", "y")
    [kept] = await bury(log, "z", queue="comb")
    partition, _ = await log.lane()
    await redrive(log, {moved: partition})

    assert await log.value(QUERY, await queue_id_of(log, "hive"), None) == 1
    assert await letter_ids(log) == [kept]
    assert await log.value("select count(*) from skep.redriven_letter where id = $1", moved) == 0


async def test_a_group_forgets_only_its_own(log):
    await bury(log, "x", group="g")
    [kept] = await bury(log, "y")
    group = await log.subscribe("hive", "g")

    assert await log.value(QUERY, await queue_id_of(log, "hive"), group) == 1
    assert await letter_ids(log) == [kept]
