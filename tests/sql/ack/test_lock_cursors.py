from tests.sql.model.test_races import waiting

LOCK = "select skep.lock_cursors($1, $2)"


async def test_cursors_are_locked_in_ascending_order(log, open_log):
    other, third = await open_log(), await open_log()
    first, second = await log.provision("hive", "a", "b")
    group = await log.subscribe("hive", "bees")
    free = """
        select partition_id from skep.cursor where group_id = $1
        order by 1 for no key update skip locked
    """

    holds = other.connection.transaction()
    await holds.start()
    await other.rows(LOCK, [first], [group])
    async with waiting(third, log, log.rows(LOCK, [second, first, second], [group] * 3)):
        # It waits for the first, and does not have the second yet.
        assert [row[0] for row in await third.rows(free, group)] == [second]
        await holds.rollback()


async def test_pairs_without_a_cursor_are_ignored(log):
    partition, group = await log.partition()

    await log.rows(LOCK, [partition, partition + 1, partition], [group, group, None])
    await log.rows(LOCK, None, None)
