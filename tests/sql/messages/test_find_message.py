from tests.sql.support.letters import bury
from tests.sql.support.log import key_of

QUERY = "select skep.find_message($1, $2, $3, $4)"


async def find(log, partition, name, segments=100):
    return await log.value(QUERY, partition, key_of(name), name, segments)


async def test_the_newest_of_several_is_found(log):
    await log.configure("hive", dedup_window_s=0)
    partition, _ = await log.partition()
    await log.push(partition, "a", "twice", "b")
    await log.push(partition, "twice", "c")

    assert await find(log, partition, "twice") == 4
    assert await find(log, partition, "a") == 1
    assert await find(log, partition, "none") is None


async def test_the_search_ends_after_so_many_segments(log):
    partition, _ = await log.partition()
    await log.push(partition, "old")
    await log.push(partition, "new")

    assert await find(log, partition, "old", segments=1) is None
    assert await find(log, partition, "old", segments=2) == 1


async def test_a_message_that_only_a_dead_letter_keeps_is_found(log):
    await bury(log, "a", "b")
    partition, _ = await log.partition()
    await log.execute("delete from skep.segment")

    assert await find(log, partition, "b") == 2


async def test_a_key_across_two_others_is_no_match(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    straddling = (key_of("a") + key_of("b"))[8:24]

    assert await log.value(QUERY, partition, straddling, "x", 10) is None
