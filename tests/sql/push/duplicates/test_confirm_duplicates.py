from datetime import timedelta

from tests.sql.support.log import MICROSECOND, NOON, key_of

HOUR = timedelta(hours=1)


async def confirm(log, *suspicions):
    """Return (is_same_key, is_in_window) by the number of the suspicion, counted from 1."""
    rows = await log.rows(
        "select * from skep.confirm_duplicates($1, $2, $3)",
        [partition for partition, _, _ in suspicions],
        [offset for _, offset, _ in suspicions],
        [key_of(name) for _, _, name in suspicions],
    )
    return {item: (is_same_key, is_in_window) for item, is_same_key, is_in_window in rows}


async def test_a_key_is_compared_with_the_one_stored_at_its_offset(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.push(partition, "c", "d", "e")

    verdicts = await confirm(log, (partition, 2, "b"), (partition, 4, "d"), (partition, 5, "d"))

    assert verdicts == {1: (True, True), 2: (True, True), 3: (False, True)}


async def test_several_partitions_are_asked_at_once(log):
    a, b = await log.provision("hive", "a", "b")
    await log.push_writes({a: "x", b: "y"})

    assert await confirm(log, (b, 1, "y"), (a, 1, "y")) == {1: (True, True), 2: (False, True)}


async def test_the_same_key_outside_the_window_is_told_apart(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    await log.set_clock(NOON + HOUR - MICROSECOND)
    assert await confirm(log, (partition, 1, "a")) == {1: (True, True)}
    await log.set_clock(NOON + HOUR)
    assert await confirm(log, (partition, 1, "a")) == {1: (True, False)}


async def test_nothing_is_inside_a_window_of_zero_even_when_the_clock_was_set_back(log):
    partition, _ = await log.partition()
    await log.configure("hive", dedup_window_s=0)
    await log.push(partition, "a")
    await log.advance(-60)

    assert await confirm(log, (partition, 1, "a")) == {1: (True, False)}


async def test_messages_that_are_not_there_get_no_row(log):
    partition, _ = await log.partition()
    await log.push(partition, "a", "b")
    await log.push(partition, "c")
    await log.execute("delete from skep.segment where first = 1")

    verdicts = await confirm(
        log, (partition, 2, "b"), (partition, 3, "c"), (partition, 4, "d"), (1_000_000, 1, "e")
    )

    assert list(verdicts) == [2]
