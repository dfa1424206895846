"""A message that was redriven becomes a dead letter again, with an id of its own."""

from tests.sql.support.letters import bury, letter_ids, redrive, transaction_ids

RESTORE = "select * from skep.restore_letters($1)"


async def restored(log, *ids):
    return {row["id"]: row["new_id"] for row in await log.rows(RESTORE, list(ids))}


async def test_the_new_letter_has_what_the_old_one_had_and_can_be_redriven(log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    await redrive(log, {letter: partition})

    new_id = (await restored(log, letter))[letter]
    await redrive(log, {new_id: partition})

    assert new_id > letter
    assert await transaction_ids(log, partition) == ["a", f"dlq:{letter}", f"dlq:{new_id}"]
    record = await log.row("select * from skep.redriven_letter")
    assert (record["id"], record["transaction_id"], record["error"]) == (new_id, "a", "stung")


async def test_a_letter_is_restored_once(log):
    [letter] = await bury(log, "a")
    partition, _ = await log.partition()
    await redrive(log, {letter: partition})

    first, second = await restored(log, letter), await restored(log, letter)

    assert list(first) == [letter]
    assert second == {}
    assert await letter_ids(log) == [first[letter]]


async def test_what_is_not_stored_any_more_and_what_is_dead_still_is_left_out(log):
    gone, dead = await bury(log, "a", "b")
    partition, _ = await log.partition()
    await redrive(log, {gone: partition})
    await log.execute("delete from skep.segment")

    assert await restored(log, gone, dead, 1 << 40) == {}
    assert await letter_ids(log) == [dead]
