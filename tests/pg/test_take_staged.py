from tests.pg.staging import stage, staged, staged_ids, transactions


async def take(log, ids):
    return await log.value("select skep.take_staged($1)", ids)


async def test_messages_are_taken_and_their_transaction_goes_with_the_last(log):
    await stage(log, "x", "y")
    x, y = await staged_ids(log)

    assert await take(log, [x]) is True
    assert (await staged(log), await transactions(log)) == (["y"], 1)
    assert await take(log, [y]) is True
    assert (await staged(log), await transactions(log)) == ([], 0)


async def test_what_is_gone_in_part_is_left_alone(log):
    await stage(log, "x", "y")
    x, y = await staged_ids(log)
    await take(log, [x])

    assert await take(log, [x, y]) is False
    assert await staged(log) == ["y"]


async def test_while_another_session_is_at_it_nothing_is_taken(log, open_log):
    await stage(log, "x", "y")
    x, y = await staged_ids(log)
    other = await open_log()
    async with other.connection.transaction():
        assert await take(other, [x]) is True

        assert await take(log, [y]) is False

    assert await take(log, [y]) is True


async def test_a_rollback_gives_everything_back(log):
    await stage(log, "x")
    transaction = log.connection.transaction()
    await transaction.start()
    await take(log, await staged_ids(log))
    await transaction.rollback()

    assert (await staged(log), await transactions(log)) == (["x"], 1)
