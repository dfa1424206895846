"""Messages that are taken in the transaction of whoever takes them."""

CONSUME = "select * from skep.consume_messages('hive', 'g', $1, $2)"


async def consume(log, batch=10, partitions=10):
    rows = await log.rows(CONSUME, batch, partitions)
    return [(row["partition_name"], row["taken_from"], row["taken_to"]) for row in rows]


async def test_a_commit_takes_messages_for_good(log):
    partition_id, _ = await log.partition()
    await log.push(partition_id, "x", "y", "z")

    async with log.connection.transaction():
        assert await consume(log, batch=2) == [("a", 0, 2)]

    await log.advance()
    assert await consume(log) == [("a", 2, 3)]
    await log.advance()
    assert await consume(log) == []


async def test_a_rollback_gives_them_back(log):
    partition_id, _ = await log.partition()
    await log.push(partition_id, "x")
    transaction = log.connection.transaction()
    await transaction.start()
    assert await consume(log) == [("a", 0, 1)]

    await transaction.rollback()

    assert await consume(log) == [("a", 0, 1)]


async def test_two_transactions_never_take_the_same_message(log, open_log):
    assert await consume(log) == []  # the group is there
    for partition_id in await log.provision("hive", "a", "b"):
        await log.push(partition_id, "x")
    await log.advance()
    other = await open_log()
    await other.set_clock(log.now)
    async with log.connection.transaction(), other.connection.transaction():
        taken = await consume(log, partitions=1)
        taken_by_other = await consume(other)

    assert sorted(taken + taken_by_other) == [("a", 0, 1), ("b", 0, 1)]
    assert len(taken) == 1


async def test_a_queue_that_does_not_exist_yet_has_nothing(log):
    assert await consume(log) == []
