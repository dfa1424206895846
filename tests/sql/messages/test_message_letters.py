"""The dead letters that a message became, and the one that it came from."""

from tests.sql.support.letters import bury, redrive
from tests.sql.support.log import QUEUE_MODE

QUERY = "select * from skep.message_letters($1, $2, $3)"


async def test_a_letter_shows_where_it_was_pushed_again_from_both_sides(log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    [before] = await log.rows(QUERY, partition, 1, 100)
    await log.advance()
    await redrive(log, {letter: partition})

    [old] = await log.rows(QUERY, partition, 1, 100)
    [new] = await log.rows(QUERY, partition, 2, 100)

    assert (before["group_name"], before["error"], before["failures"]) == (QUEUE_MODE, "stung", 4)
    assert (before["redriven_at"], before["other_offset"]) == (None, None)
    assert (old["redriven_at"], old["is_origin"], old["other_offset"]) == (log.now, False, 2)
    assert (new["is_origin"], new["other_partition_id"], new["other_offset"]) == (
        True,
        partition,
        1,
    )


async def test_only_the_newest_redrives_are_looked_through(log):
    first, second = await bury(log, "a", "b")
    partition, _ = await log.partition()
    await redrive(log, {first: partition})
    await log.advance()
    await redrive(log, {second: partition})

    assert await log.rows(QUERY, partition, 1, 1) == []
    assert len(await log.rows(QUERY, partition, 2, 1)) == 1
    assert len(await log.rows(QUERY, partition, 1, 2)) == 1


async def test_a_message_that_never_failed_has_none(log):
    partition, _ = await log.partition()
    await log.push(partition, "a")

    assert await log.rows(QUERY, partition, 1, 100) == []
